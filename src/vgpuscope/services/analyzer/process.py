"""The analyzer: readings of the fleet → scores and verdicts → an API, /metrics, a log table and a history.

PrometheusSource ─┐
ScrapeSource ─────┴─► AnalysisCycle (fleet → score → verdict) ─► Board ─► API, /metrics, log
                                            └──────────► History ─► /api/v1/history, the next start, other replicas
"""

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from vgpuscope.config import NO_FILE, Config, SettingsFile
from vgpuscope.http.app import App, Readiness
from vgpuscope.http.console_files import with_console
from vgpuscope.http.events import Feed
from vgpuscope.http.openapi import METRICS
from vgpuscope.http.operations import Operation, routes
from vgpuscope.http.session_api import SessionApi
from vgpuscope.logic.opinion.courses import Courses
from vgpuscope.logic.reclaim.brakes import joined
from vgpuscope.model.analysis import GpuUse, Window
from vgpuscope.model.caller import Caller
from vgpuscope.model.errors import HistoryDown, ScopeError
from vgpuscope.model.history import HistoryPage, HistoryPoint
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.model.reclaim import Case
from vgpuscope.model.words import NO_WORDS, Words
from vgpuscope.runtime.heap import one_heap
from vgpuscope.runtime.log import set_level
from vgpuscope.services.analyzer.access import AnalyzerAccess, needs_no_credentials
from vgpuscope.services.analyzer.api import TITLE, AnalyzerApi, ServiceState, TriggerResult, analysis_event
from vgpuscope.services.analyzer.backtest.backtests import Backtests
from vgpuscope.services.analyzer.callbacks import Callbacks
from vgpuscope.services.analyzer.console.console import Console
from vgpuscope.services.analyzer.cycle import AnalysisCycle, Board, ReadingSource, Staleness
from vgpuscope.services.analyzer.followers import Follower, Followers
from vgpuscope.services.analyzer.log import ResultsLog
from vgpuscope.services.analyzer.metrics_page import MetricSources, MetricsPage
from vgpuscope.services.analyzer.notices.low_gpus import LowGpuNotices
from vgpuscope.services.analyzer.notices.notices import Notices
from vgpuscope.services.analyzer.opinion.board import OpinionBoard
from vgpuscope.services.analyzer.opinion.opinions import Opinions
from vgpuscope.services.analyzer.reclaim.activity import ReclaimActivity
from vgpuscope.services.analyzer.reclaim.control import control_sender
from vgpuscope.services.analyzer.reclaim.dependencies import ReclaimDependencies
from vgpuscope.services.analyzer.reclaim.kube import ReclaimKube
from vgpuscope.services.analyzer.reclaim.newest import NewestAnalysis
from vgpuscope.services.analyzer.reclaim.reclaim import Reclaim
from vgpuscope.services.analyzer.replica import LEASE, Replica
from vgpuscope.services.analyzer.saving import Saving
from vgpuscope.services.analyzer.schedule import READ_WITHIN, Schedule
from vgpuscope.services.analyzer.settings.check import check_settings
from vgpuscope.services.analyzer.settings.settings import Settings
from vgpuscope.services.analyzer.settings.watch import LOOK_EVERY, SettingsWatch
from vgpuscope.services.analyzer.sources.courses import read_courses
from vgpuscope.services.analyzer.sources.prometheus.reading import PrometheusSource
from vgpuscope.services.analyzer.sources.sources import Sources
from vgpuscope.services.analyzer.sources.watch import SourceWatch
from vgpuscope.services.frame import Loops, Plan, Restartable, Service, run
from vgpuscope.store.opening import AnalyzerStore, open_store
from vgpuscope.store.results.wanted import AnalysisKey, Covered, HistorySelection
from vgpuscope.store.timeline import EventLog

if TYPE_CHECKING:
    from vgpuscope.services.frame import Guard

log = logging.getLogger(__name__)

_PAGE_WITHIN, _LOG_WITHIN, _HAND_WITHIN = 120.0, 60.0, 60.0  # seconds


def main(
    *,
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    file: SettingsFile | None = None,
    source: Callable[[Config], ReadingSource] | None = None,
) -> int:
    """`vgpuscope analyzer`. `source` returns the source that the settings ask for, if not the default one."""
    return run(*plan(flags=flags, environ=environ, file=file, source=source))


def plan(
    *,
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    file: SettingsFile | None = None,
    source: Callable[[Config], ReadingSource] | None = None,
    hosted: bool = False,
) -> Plan:
    """The analyzer for the frame; ConfigInvalid if its settings cannot be used.

    `hosted`: another server listens, and a caller on this machine is known by the connection.
    """
    settings = Settings(flags=flags, environ=environ, file=file.path if file else None, check=check_settings)
    config = settings.config
    one_heap()  # a quarter less memory at 5,000 GPUs

    def make() -> Analyzer:
        return Analyzer(settings, sources=Sources(config, make=source), hosted=hosted)

    read = (file or SettingsFile(NO_FILE, ""))._replace(deprecated=settings.loaded.deprecated)
    return Plan(make, config, config.analyzer, read)


class Analyzer(Service):
    """The parts of the analyzer, and what the API asks of them."""

    name = "analyzer"

    def __init__(
        self,
        settings: Settings,
        *,
        store: AnalyzerStore | None = None,
        sources: Sources | None = None,
        lease: Seconds = LEASE,
        read_within: tuple[Seconds, Seconds] = READ_WITHIN,
        look_every: Seconds = LOOK_EVERY,
        hosted: bool = False,
        clock: Callable[[], Seconds] = time.monotonic,
        wall: Callable[[], UnixTime] = time.time,
    ) -> None:
        """`lease` is how long the lease of a leader lasts; `look_every` is the time between two checks of the file.

        `read_within` is the shortest and the longest time between two reads of a leader's results.
        """
        super().__init__()
        self._settings, self._clock, self._wall = settings, clock, wall
        self.feed = Feed()
        self._access = AnalyzerAccess(lambda: settings.config.analyzer, clock=clock, hosted=hosted)
        self._sources = sources or Sources(settings.config, clock=clock)
        self._sources.on_error(self.counters.count)
        self._store = store or _store(settings.config)
        self.callbacks = Callbacks(
            self.config, leads=lambda: self._replica.leads, failed=self.counters.count, clock=wall
        )
        self._followers = Followers(self._followed_by(), failed=self._follower_failed)
        keeps = self._store.results.keeps
        self._replica = Replica(self._store.lease, failed=self.counters.count, keeps=keeps, seconds=lease, clock=clock)
        self._saving = Saving(self._store, self._replica, run=self._followers.run, wall=wall)
        self._replica.on_turn.append(self._saving.again)
        self.console = Console(self, clock=clock, wall=wall)
        self._cycle = AnalysisCycle(
            self.config,
            self.source,
            owners=self._sources.owners,
            done=self._after,
            nodes=self._sources.nodes,
            allocations=self._sources.allocations,
            begins=self.console.analysis_begins,
            clock=wall,
        )
        self._schedule = Schedule(
            self.config,
            self._replica,
            analyse=self._analyse_now,
            read=self._restore,
            read_within=read_within,
            clock=clock,
        )
        self._replica.on_work.append(self._schedule.wake)
        self._look = SourceWatch(
            self._sources.ready, analyses=lambda: self._cycle.tally.analyses, back=self._source_is_back
        )
        self._settings_watch = SettingsWatch(
            settings, changed=self._settings_changed, failed=self.counters.count, every=look_every
        )
        self.opinions = Opinions(
            self.config,
            asks=lambda: self._replica.leads,
            store=self._store.opinions,
            courses=self._courses,
            clock=wall,
        )
        self._opinion_board = OpinionBoard(self._cycle, self.opinions)
        self.notices = Notices(self.config, opinion=self._opinion_on, clock=wall)
        self.low_gpus = LowGpuNotices(
            self.config, self.notices, leads=lambda: self._replica.leads, board=self.board, clock=wall
        )
        self._kube = ReclaimKube(self.config, clock=wall)
        self.reclaim = self._new_reclaim()
        self._to_reclaim = NewestAnalysis(self.reclaim.ticks, run=self._followers.run)
        self.backtests = Backtests(settings, self._store.past, clock=clock, wall=wall)
        self._metrics = self._new_metrics()
        self._results_log = ResultsLog()
        self._found = 0  # analyses of other processes that were found in the store
        self._restoring = asyncio.Lock()

    def _new_reclaim(self) -> Reclaim:
        """The machine with what it knows and what it may do."""
        activity = ReclaimActivity(
            self.config,
            engine=lambda: isinstance(self._sources.current, PrometheusSource),
            queues=self._kube.queues,
            clock=self._wall,
        )
        given = ReclaimDependencies(
            config=self.config,
            store=self._store.reclaim,
            lead=self._replica,
            send={
                "control": control_sender(lambda: self.config().control),
                "scale": self._kube.scale,
                "restore": self._kube.restore,
            },
            look_again=self._analyse_now,
            opinion=self.opinions.on_share,
            channel=self.notices.ready,
            notify=self.notices.calls,
            facts=joined(self._kube.known, activity.known, self.opinions.facts),
            learn=(self._kube.learn, activity.learn),
            kube=lambda: self._kube.state,
            asks_prometheus=lambda: activity.asks,
            clock=self._wall,
        )
        return Reclaim(given)

    def _new_metrics(self) -> MetricsPage:
        parts = MetricSources(
            config=self.config,
            cycle=self._cycle,
            replica=self._replica,
            outbox=self._saving.outbox,
            opinions=self.opinions,
            notices=self.notices,
            callbacks=self.callbacks,
            reclaim=self.reclaim,
            counters=self.counters,
        )
        return MetricsPage(parts)

    def _opinion_on(self, case: Case) -> Words:
        """The reason that a language model gave for a case's workload; without texts if it gave none."""
        found = self.opinions.on_pod(case.uid)
        return Words(found.reason or "", found.reason_zh or "") if found else NO_WORDS

    def about(self) -> dict[str, object]:
        return {"source": self._sources.name}

    def warn(self) -> None:
        if self.read_only:
            log.warning("read-only: no caller has the role operate or admin")
        control = self.config().control
        reclaims = control.enabled and control.dry_run is not None  # without the key, callbacks are what is meant
        if reclaims and self.reclaim.mode == "off":
            log.warning("no GPU is taken back: analyzer.history is not set")
        if reclaims and self._kube.state == "none":
            log.warning("no GPU is taken back: without kube.enabled nothing but metrics shows which pod holds a GPU")

    @property
    def read_only(self) -> bool:
        return self._access.identity.read_only

    def loops(self) -> Loops:
        """The loops that run as long as the analyzer does; their state is kept in the analyzer's parts."""
        return {
            "schedule": Restartable(self._analyse_forever),
            "lead": Restartable(self._replica.lead_forever),
            "settings": Restartable(self._settings_watch.forever),
            "look": Restartable(self._look.forever),
            "source": Restartable(lambda: self._sources.run(finished=self._cycle.finished)),
            "save": Restartable(self._saving.forever),
            "prune": Restartable(self._saving.prune_forever),
            "reclaim": Restartable(self._to_reclaim.forever),
            "deliver": Restartable(self.reclaim.deliveries.forever),
            "callbacks": Restartable(self.callbacks.forever),
            "opinions": Restartable(self.opinions.ask_forever),
            "low gpus": Restartable(self.low_gpus.forever),
            "notices": Restartable(lambda: self.notices.deliver_forever(self.reclaim.notices)),
        }

    def signals(self) -> dict[signal.Signals, Callable[[], None]]:
        return {signal.SIGHUP: self._settings_watch.hang_up}

    def app(self, guard: "Guard | None") -> App:
        """The HTTP application."""
        self._access.guard(guard)
        session = SessionApi(lambda: self._access.identity, lambda: self._access.sessions)
        api = AnalyzerApi(
            self,
            guarded=lambda: guard is not None and guard.guarded,
            more=session.operations(),
            clock=self._clock,
            wall=self._wall,
        )
        return App(
            title=TITLE,
            service=self.name,
            metrics=self._metrics.page,
            ready=self.readiness,
            guard=guard,
            routes=with_console(routes(api.operations, self)),
            admit=lambda request: self.admit(request, METRICS),
            identity=lambda: self._access.identity,
            public=needs_no_credentials(api.operations),
        )

    async def close(self) -> None:
        """Release the lease and the connections, which other replicas may need."""
        await self._cycle.close()
        await self.console.close()
        await self.opinions.close()
        self.notices.close()
        await self._saving.close()
        with contextlib.suppress(HistoryDown):
            await self._replica.leadership.resign()
        await self._sources.close()
        await self._kube.close()
        await self._store.close()

    # ── what the API asks ────────────────────────────────────────────────────────────────────────────────────────

    async def board(self) -> Board:
        return await self._opinion_board.board()

    def config(self) -> Config:
        return self._settings.config

    def settings(self) -> Settings:
        return self._settings

    def source(self) -> ReadingSource:
        return self._sources.current

    def staleness(self) -> Staleness | None:
        return self._cycle.staleness()

    def last_error(self) -> ScopeError | None:
        return self._cycle.tally.last_error

    async def judged_by(self, changes: Mapping[str, Any]) -> tuple[Sequence[GpuUse], Sequence[GpuUse]]:
        self._replica.check_analyses()
        config = await asyncio.to_thread(self._settings.tried, changes)
        return await self._cycle.judged_by(config)

    def state(self) -> ServiceState:
        """The state of the service, without waiting."""
        return ServiceState(
            tally=self._cycle.tally,
            last=self._cycle.last(),
            old=self._cycle.old,
            stale=self._cycle.staleness(),
            look=self._look.last,
            leader=self._replica.leads,
            history=self._store.results.keeps and self._replica.stored is True,
            failing=tuple(f"{name}: {e.code}" for name, e in self._followers.failing.items()),
            ai_error=self.opinions.last_error,
            control_error=self.callbacks.last_error,
        )

    def trigger(self, *, use_ai: bool | None = None) -> TriggerResult:
        self._replica.check_analyses()
        return self._start(use_ai)

    def _start(self, use_ai: bool | None = None) -> TriggerResult:
        """Start an analysis, or join the running one. A wish about the language model counts for that analysis only."""
        started = self._cycle.trigger()
        asks, why = self.opinions.wish(use_ai, joined=not started)
        return TriggerResult(started=started, asks=asks, why_not=why)

    async def update(self, changes: dict[str, Any]) -> dict[str, Any]:
        self._replica.check_analyses()
        return await self._settings_watch.update(changes)

    def records(self) -> bool:
        return self._replica.analyses

    def event_log(self) -> EventLog:
        return self._store.events

    def stored(self) -> Hashable:
        return self._saving.outbox.saved, self._found

    async def page(self, wanted: HistorySelection) -> HistoryPage:
        return await self._store.results.page(wanted)

    async def points(self, wanted: HistorySelection) -> list[HistoryPoint]:
        return (await self._store.results.page(wanted)).points

    async def covered(self, begin: UnixTime, end: UnixTime, *, step: Seconds, kept: bool) -> Covered:
        return await self._store.results.covered(begin, end, step=step, kept=kept)

    def admit(self, request: Request, operation: Operation) -> Caller:
        return self._access.admit(request, operation)

    def readiness(self) -> Readiness:
        """Ready as soon as there is a result, or the reason why there is none is known."""
        waiting = self._cycle.last() is None and self._cycle.tally.analyses == 0
        if self._replica.stored is None or (waiting and self._replica.analyses):
            return Readiness(missing=("the first analysis",))
        return Readiness()

    # ── analyses ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _analyse_forever(self) -> None:
        await self._restore()
        await self._sources.begun(within=2 * self.config().analyzer.scrape_interval)
        await self._schedule.forever()

    async def _analyse_now(self) -> None:
        self._start()
        await self._cycle.finished()

    def _source_is_back(self) -> None:
        """An analysis that failed because the source did not answer is made again now, not after the interval."""
        if self._cycle.tally.last_error is not None:
            self._schedule.wake()

    async def _restore(self) -> None:
        """Take over the last result of an earlier run or of the leader; one read at a time."""
        async with self._restoring:
            known = self._cycle.last()
            try:
                latest = await self._store.results.latest(unlike=AnalysisKey.of(known) if known else None)
            except HistoryDown as e:
                self._replica.store_failed(e, "read")
                return
            if not self._saving.outbox.waiting:
                self._replica.leadership.nothing_to_write()
            self._replica.store_works("read")
            self._found += latest is not None
            if latest is not None and await self._cycle.restore(latest):
                board = self._cycle.shown()
                for follower in self._restored_by():
                    await self._followers.run(follower, board)

    async def _settings_changed(self, changes: Mapping[str, tuple[str, str]]) -> None:
        """Let changed settings take effect now."""
        await self.console.settings_changed(changes)
        config = self.config()
        self._access.renew()
        self._sources.renew(config)
        set_level(v=config.log.v, level=config.logging.level)
        await self._cycle.board()  # counts of low scores follow a new threshold, also in the metrics
        self._schedule.wake()

    # ── what follows from an analysis ────────────────────────────────────────────────────────────────────────────

    def _followed_by(self) -> tuple[Follower[Board], ...]:
        """They run in this order: consoles hear first, and opinions come before the cases. To add one, add a row."""
        return (
            Follower(name="feed", follow=self._publish, deadline=_HAND_WITHIN),
            Follower(name="page", follow=self._render_page, deadline=_PAGE_WITHIN),
            Follower(name="events", follow=self._record_events, deadline=_PAGE_WITHIN),
            Follower(name="log", follow=self._log_board, deadline=_LOG_WITHIN),
            Follower(name="callbacks", follow=self.callbacks.follow, deadline=_HAND_WITHIN),
            Follower(name="opinions", follow=self._hand_to_opinions, deadline=_HAND_WITHIN),
            Follower(name="low_gpus", follow=self._hand_to_low_gpus, deadline=_HAND_WITHIN),
            Follower(name="cases", follow=self._hand_to_reclaim, deadline=_HAND_WITHIN),
        )

    def _restored_by(self) -> tuple[Follower[Board], ...]:
        """What follows from an analysis that another replica, or an earlier run, made."""
        return (
            Follower(name="feed", follow=self._publish, deadline=_HAND_WITHIN),
            Follower(name="opinions", follow=self._show_opinions, deadline=_HAND_WITHIN),
            Follower(name="page", follow=self._render_page, deadline=_PAGE_WITHIN),
            Follower(name="events", follow=self._record_events, deadline=_PAGE_WITHIN),
        )

    async def _after(self, board: Board) -> bool:
        """Tell the followers, and leave the analysis to be saved; True if a follower raised an unexpected error."""
        assert board.analysis is not None
        broken = await self._followers.tell(board)
        await self._saving.put(board.analysis)
        return broken

    def _follower_failed(self, name: str, error: ScopeError) -> None:
        self.counters.failed(name)
        if isinstance(error, HistoryDown):
            self._replica.store_failed(error, "write")
        else:
            self.counters.count(error)

    async def _publish(self, board: Board) -> None:
        """First: consoles do not wait for a slow page of metrics."""
        self.feed.publish(analysis_event(board))

    async def _render_page(self, board: Board) -> None:
        assert board.analysis is not None
        await self._metrics.show(board.analysis)

    async def _show_opinions(self, board: Board) -> None:
        assert board.analysis is not None
        await self.opinions.show(board.analysis)

    async def _record_events(self, board: Board) -> None:
        await self.console.follow(board)

    async def _log_board(self, board: Board) -> None:
        assert board.analysis is not None
        await asyncio.to_thread(self._results_log.tell, board, results=self.config().analyzer.log_results)

    async def _hand_to_opinions(self, board: Board) -> None:
        """Before the cases: reclaim asks for opinions on the evidence of this analysis."""
        assert board.analysis is not None
        self._opinion_board.forget()
        await self.opinions.take(board.analysis)

    async def _hand_to_low_gpus(self, board: Board) -> None:
        await self.low_gpus.follow(board)

    async def _courses(self, window: Window, gpu_ids: Collection[str]) -> Courses:
        return await read_courses(self._sources.current, window, gpu_ids)

    async def _hand_to_reclaim(self, board: Board) -> None:
        assert board.analysis is not None
        self._to_reclaim.put(board.analysis)


def _store(config: Config) -> AnalyzerStore:
    own = config.analyzer
    return open_store(
        own.history,
        keep_results=own.keep_results,
        keep_hours=own.keep_hours,
        keep_days=own.keep_days,
        keep_past=config.reclaim.keep_history,
    )
