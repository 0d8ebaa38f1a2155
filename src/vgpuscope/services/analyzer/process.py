"""The analyzer: readings of the fleet → scores and verdicts → an API, /metrics, a log table and a history.

PrometheusSource ─┐
ScrapeSource ─────┴─► Cycle (fleet → score → verdict) ─► Board ─► API, /metrics, log
                                    └──────────────────► History ─► /api/v1/history, the next start, other replicas
"""

import asyncio
import contextlib
import logging
import operator
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request

from vgpuscope.catalog import analyzer as catalog
from vgpuscope.config import AnalyzerConfig, Config, SettingsFile
from vgpuscope.http import address
from vgpuscope.http.admission import Admission
from vgpuscope.http.client_limits import ClientLimits
from vgpuscope.http.console_files import wants_page, with_console
from vgpuscope.http.events import Feed
from vgpuscope.http.identity import ApiToken, Identity
from vgpuscope.http.openapi import METRICS
from vgpuscope.http.operations import Operation, routes
from vgpuscope.http.server import App, Readiness, make_app
from vgpuscope.http.session_api import PATH as SESSION_PATH
from vgpuscope.http.session_api import SessionApi
from vgpuscope.http.sessions import SessionCookie, Sessions, session_key
from vgpuscope.logic.opinion.courses import Courses
from vgpuscope.logic.reclaim.brakes import joined
from vgpuscope.model.analysis import Analysis, GpuUse, Window
from vgpuscope.model.caller import Caller
from vgpuscope.model.errors import ConfigInvalid, HistoryDown, NotLeader, ScopeError, SourceDown
from vgpuscope.model.history import HistoryPage, HistoryPoint
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.model.reclaim import Brake, Call, Case
from vgpuscope.runtime.build import this_build
from vgpuscope.runtime.heap import give_back, one_heap
from vgpuscope.runtime.log import SUMMARY, OnChange, error_fields, fields, set_level
from vgpuscope.services.analyzer.api import TITLE, AnalyzerApi, ServiceState, SourceCheck, Triggered, analysis_event
from vgpuscope.services.analyzer.backtest import Backtests
from vgpuscope.services.analyzer.console import Console
from vgpuscope.services.analyzer.courses import read_courses
from vgpuscope.services.analyzer.cycle import Board, Cycle, Source, Stale
from vgpuscope.services.analyzer.log import tell_analysis
from vgpuscope.services.analyzer.notices import LINK_PATH, Notices, check_notices
from vgpuscope.services.analyzer.opinion import Opinions, check_model
from vgpuscope.services.analyzer.prometheus_reading import PrometheusSource
from vgpuscope.services.analyzer.reclaim import Delivered, Reclaim
from vgpuscope.services.analyzer.reclaim_activity import ReclaimActivity
from vgpuscope.services.analyzer.reclaim_kube import ReclaimKube, wanted
from vgpuscope.services.analyzer.settings import Settings, changed
from vgpuscope.services.analyzer.sources import Sources, check_source
from vgpuscope.services.followers import Follower, Followers
from vgpuscope.services.frame import Loops, Plan, Restartable, Service, run
from vgpuscope.sinks.webhook import Webhook
from vgpuscope.sources.kube import check_kubeconfig
from vgpuscope.store.lease import Leadership, Use
from vgpuscope.store.results.history import History, open_history
from vgpuscope.store.results.unsaved import Outbox
from vgpuscope.store.results.wanted import AnalysisKey, Wanted
from vgpuscope.store.timeline import EventLog
from vgpuscope.version import __version__
from vgpuscope.views.exposition.page import Sample
from vgpuscope.views.exposition.sharded import ShardedPage
from vgpuscope.views.fleet.log_table import low_lines, table_lines
from vgpuscope.views.fleet.metrics import (
    FLEET_METRICS,
    AnalyzerHealth,
    AnalyzerPage,
    CardsPage,
    cards_page,
    fleet_samples,
)
from vgpuscope.views.fleet.results import with_opinions
from vgpuscope.views.reclaim.api import counted

if TYPE_CHECKING:
    from vgpuscope.services.frame import Guard

log = logging.getLogger(__name__)

_LOOK_EVERY = 1.0  # seconds between two checks of the settings file
_ASK_EVERY, _ASK_WITHIN = 5.0, 4.5  # seconds: it takes at most ten to notice whether the source answers
_LEASE = 15.0  # seconds; the leader renews it three times in that time
_PRUNE_EVERY = 600.0
_SAVE_LAST_WITHIN = 2.0
_FOLLOW_WITHIN = (1.0, 15.0)  # seconds between two reads of the leader's results: bounds for a fifth of the interval
_PAGE_WITHIN, _LOG_WITHIN, _RECLAIM_WITHIN, _STORE_WITHIN = (
    120.0,
    60.0,
    60.0,
    600.0,
)  # seconds; results that waited are stored too


def main(
    *,
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    file: SettingsFile | None = None,
    source: Callable[[Config], Source] | None = None,
) -> int:
    """`vgpuscope analyzer`. `source` returns the source that the settings ask for, if not the default one."""
    return run(*plan(flags=flags, environ=environ, file=file, source=source))


def plan(
    *,
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    file: SettingsFile | None = None,
    source: Callable[[Config], Source] | None = None,
) -> Plan:
    """The analyzer for the frame; ConfigInvalid if its settings cannot be used."""
    settings = Settings(flags=flags, environ=environ, file=file.path if file else None, check=_check)
    config = settings.config
    one_heap()  # a quarter less memory at 5,000 GPUs

    def make() -> Analyzer:
        return Analyzer(settings, sources=Sources(config, make=source))

    return Plan(make, config, config.analyzer, file)


class Analyzer(Service):
    """The parts of the analyzer, and what the API asks of them."""

    name = "analyzer"

    def __init__(
        self,
        settings: Settings,
        *,
        history: History | None = None,
        sources: Sources | None = None,
        clock: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        """`clock` is a monotonic clock, for the schedule and for the rate limit of clients."""
        super().__init__()
        self._settings, self._clock = settings, clock
        config = settings.config.analyzer
        self._guard: Guard | None = None
        self._session_key = secrets.token_bytes(32)  # if no other is configured
        self._admission = self._new_admission()
        self.feed = Feed()
        self._sources = sources or Sources(settings.config)
        self._sources.on_error(self.counters.count)
        self._history = history or open_history(
            config.history,
            keep_results=config.keep_results,
            keep_hours=config.keep_hours,
            keep_days=config.keep_days,
            keep_past=settings.config.reclaim.keep_history,
        )
        self._outbox = Outbox(self._history, leads=lambda: self._leads)
        self._saving: Follower[None] = Follower(name="store", follow=self._save_waiting, deadline=_STORE_WITHIN)
        self._followers = Followers(self._followed_by(), failed=self._follower_failed)
        self._cycle = Cycle(
            lambda: settings.config,
            lambda: self._sources.current,
            owners=self._sources.owners,
            done=self._after,
            nodes=self._sources.nodes,
            allocations=self._sources.allocations,
        )
        self._to_reclaim: Analysis | None = None  # the last analysis, until its cases are settled
        self._reclaimable = asyncio.Event()
        self.console = Console(self)
        self._look: SourceCheck | None = None  # the last check of the source
        self._cards = CardsPage()
        self._fleet = ShardedPage(FLEET_METRICS, catalog.FAMILIES)
        self._told: tuple[tuple[object, ...], object] = ((), None)  # what the fleet's metrics were made from
        self._leadership = Leadership(self._history.lease, f"{socket.gethostname()}-{os.getpid()}", _LEASE)
        self.opinions = Opinions(
            lambda: settings.config,
            asks=lambda: self._leads,
            store=self._history.opinions,
            courses=self._courses,
        )
        self._with_opinions: tuple[Board | None, int, Board | None] = (None, 0, None)  # made from, changes, made
        self.notices = Notices(lambda: settings.config, opinion=self._opinion_on)
        self._kube = ReclaimKube(lambda: settings.config)
        activity = ReclaimActivity(
            lambda: settings.config,
            engine=lambda: isinstance(self._sources.current, PrometheusSource),
            queues=self._kube.queues,
        )
        self.reclaim = Reclaim(
            lambda: settings.config,
            store=self._history.reclaim,
            lead=self._leadership,
            send={"control": self._call_control, "scale": self._kube.scale, "restore": self._kube.restore},
            look_again=self._analyse_now,
            opinion=self.opinions.on_share,
            channel=self.notices.ready,
            notify=self.notices.calls,
            facts=joined(self._kube.known, activity.known, self.opinions.facts),
            learn=(self._kube.learn, activity.learn),
            kube=lambda: self._kube.state,
            asks_prometheus=lambda: activity.asks,
        )
        self.backtests = Backtests(settings, self._history.past)
        self._reclaiming: Follower[Analysis] = Follower(
            name="reclaim", follow=self.reclaim.follow, deadline=_STORE_WITHIN
        )
        self._wake, self._hung_up, self._changing = asyncio.Event(), asyncio.Event(), asyncio.Lock()
        self._history_told, self._source_told = OnChange(log), OnChange(log)

    def _opinion_on(self, case: Case) -> str:
        """What a language model said of a case's workload; "" if nothing."""
        found = self.opinions.on_pod(case.uid)
        return (found.reason or "") if found else ""

    def about(self) -> dict[str, object]:
        return {"source": self._sources.name}

    def warn(self) -> None:
        if self.read_only:
            log.warning("read-only: no caller has the role operate or admin")
        if self._settings.config.control.enabled and self.reclaim.mode == "off":
            log.warning("no GPU is taken back: analyzer.history is not set")
        if self._settings.config.control.enabled and self._kube.state == "none":
            log.warning("annotations, owners and priority classes of pods are not read: kube.enabled is not set")

    @property
    def read_only(self) -> bool:
        return self._admission.identity.read_only

    def loops(self) -> Loops:
        """The loops that run as long as the analyzer does; their state is kept in the analyzer's parts."""
        return {
            "schedule": Restartable(self._schedule),
            "lead": Restartable(self._lead_forever),
            "settings": Restartable(self._watch_settings),
            "look": Restartable(self._look_forever),
            "source": Restartable(lambda: self._sources.run(finished=self._cycle.finished)),
            "save": Restartable(self._save_forever),
            "prune": Restartable(self._prune_forever),
            "reclaim": Restartable(self._reclaim_forever),
            "deliver": Restartable(self.reclaim.deliver_forever),
            "opinions": Restartable(self.opinions.ask_forever),
            "notices": Restartable(lambda: self.notices.deliver_forever(self.reclaim)),
        }

    def signals(self) -> dict[signal.Signals, Callable[[], None]]:
        return {signal.SIGHUP: self.hang_up}

    def app(self, guard: "Guard | None") -> App:
        """The HTTP application."""
        self._guard, self._admission = guard, self._new_admission(guard)
        session = SessionApi(lambda: self._admission.identity, lambda: self._sessions)
        api = AnalyzerApi(self, guarded=guard is not None, more=session.operations())
        return make_app(
            title=TITLE,
            service=self.name,
            metrics=self._metrics,
            ready=self.readiness,
            guard=guard,
            routes=with_console(routes(api.operations, self)),
            admit=lambda request: self.admit(request, METRICS),
            identity=lambda: self._admission.identity,
            public=_shows_no_data,
        )

    def hang_up(self) -> None:
        """Read the settings again soon."""
        self._hung_up.set()

    async def close(self) -> None:
        """Release the lease and the connections, which other replicas may need."""
        await self._cycle.close()
        await self.console.close()
        await self.opinions.close()
        self.notices.close()
        await self._save_last()
        with contextlib.suppress(HistoryDown):
            await self._leadership.resign()
        await self._sources.close()
        await self._kube.close()
        await self._history.close()

    async def _save_last(self) -> None:
        """Save what was about to be saved, if the store answers quickly."""
        if self._outbox.waiting:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_SAVE_LAST_WITHIN):
                    await self._outbox.flush()

    # ── what the API asks ────────────────────────────────────────────────────────────────────────────────────────

    async def board(self) -> Board:
        """The board with the opinions on its rows, made once for each change of either."""
        board, changes, shown = await self._cycle.board(), self.opinions.changes, self.opinions.shown
        if not shown.parts:
            return board
        made_from, known, made = self._with_opinions
        if made is None or made_from is not board or known != changes:
            rows = await asyncio.to_thread(with_opinions, board.rows, shown)
            made = msgspec.structs.replace(board, rows=rows, opinions=shown, opinions_version=changes)
            self._with_opinions = (board, changes, made)
        return made

    def config(self) -> Config:
        return self._settings.config

    def settings(self) -> Settings:
        return self._settings

    def source(self) -> Source:
        return self._sources.current

    def staleness(self) -> Stale | None:
        return self._cycle.staleness()

    def last_error(self) -> ScopeError | None:
        return self._cycle.tally.last_error

    async def judged_by(self, changes: Mapping[str, Any]) -> tuple[Sequence[GpuUse], Sequence[GpuUse]]:
        self._check_leads()
        config = await asyncio.to_thread(self._settings.tried, changes)
        return await self._cycle.judged_by(config)

    def state(self) -> ServiceState:
        """The state of the service, without waiting."""
        return ServiceState(
            tally=self._cycle.tally,
            last=self._cycle.last(),
            old=self._cycle.old,
            stale=self._cycle.staleness(),
            look=self._look,
            leader=self._leads,
            history=self._history.keeps and self._stored is True,
            failing=tuple(f"{name}: {e.code}" for name, e in self._followers.failing.items()),
            ai_error=self.opinions.last_error,
        )

    def trigger(self, *, use_ai: bool | None = None) -> Triggered:
        self._check_leads()
        return self._start(use_ai)

    def _start(self, use_ai: bool | None = None) -> Triggered:
        """Start an analysis, or join the running one. A wish about the language model counts for that analysis only."""
        started = self._cycle.trigger()
        asks, why = self.opinions.wish(use_ai, joined=not started)
        return Triggered(started=started, asks=asks, why_not=why)

    async def update(self, changes: dict[str, Any]) -> dict[str, Any]:
        self._check_leads()
        async with self._changing:
            before = self._settings.loaded
            done = await asyncio.to_thread(self._settings.update, changes)
        await self.console.settings_changed(changed(before, self._settings.loaded))
        log.info("settings changed", extra=fields(**{path.replace(".", "_"): value for path, value in done.items()}))
        self._apply()
        return done

    def records(self) -> bool:
        return self._analyses

    def event_log(self) -> EventLog:
        return self._history.events

    async def page(self, wanted: Wanted) -> HistoryPage:
        return await self._history.page(wanted)

    async def points(self, wanted: Wanted) -> list[HistoryPoint]:
        return (await self._history.page(wanted)).points

    # ── loops ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _schedule(self) -> None:
        """An analysis each interval, measured from start to start; changed settings take effect at once."""
        await self._restore()
        await self._sources.begun(within=2 * self._settings.config.analyzer.scrape_interval)
        while True:
            self._wake.clear()
            began, analyses = self._clock(), self._analyses
            if analyses:
                self._start()
                await self._cycle.finished()
            else:
                await self._restore()
            rest = began + self._pause(analyses=analyses) - self._clock()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), max(0.05, rest))

    def _pause(self, *, analyses: bool) -> Seconds:
        interval = self._settings.config.scheduler.interval
        if analyses:
            return interval
        least, most = _FOLLOW_WITHIN
        return max(least, min(most, interval / 5))

    @property
    def _leads(self) -> bool:
        return self._leadership.leads

    @property
    def _stored(self) -> bool | None:
        """Whether the store of results answers; None: not asked yet."""
        return self._leadership.reachable

    @property
    def _analyses(self) -> bool:
        """Whether this replica should analyse."""
        return self._leadership.may_read()

    def _check_leads(self) -> None:
        if not self._analyses:
            raise NotLeader("another replica analyses")

    async def _restore(self) -> None:
        """Take over the last result of an earlier run or of the leader."""
        known = self._cycle.last()
        try:
            latest = await self._history.latest(unlike=AnalysisKey.of(known) if known else None)
        except HistoryDown as e:
            self._history_failed(e, "read")
            return
        if not self._outbox.waiting:
            self._leadership.nothing_to_write()
        self._history_works("read")
        if latest is not None and await self._cycle.restore(latest):
            await self.opinions.show(latest)
            await self._show_cards(latest)
            await self.console.follow(self._cycle.shown())

    async def _lead_forever(self) -> None:
        try:
            while True:
                await self._ask_for_lead()
                await asyncio.sleep(_LEASE / 3)
        finally:
            self._leadership.store_failed("lease")  # the lease is no longer renewed

    async def _ask_for_lead(self) -> None:
        before, known = self._analyses, (self._stored is not None, self._leads)
        try:
            self._lead(await self._leadership.renew(), known=known)
        except HistoryDown as e:
            self._history_failed(e, "lease")
        if self._analyses != before:
            self._wake.set()

    def _lead(self, leads: bool, *, known: tuple[bool, bool]) -> None:
        if known != (True, leads):
            log.info("leading" if leads else "following", extra=fields(holder=self._leadership.holder))
            if self._outbox.waiting:
                self._outbox.filled.set()
        self._history_works("lease")

    async def _look_forever(self) -> None:
        """Check whether the source answers. Analyses alone are too rare for that, and may take a minute."""
        while True:
            analyses = self._cycle.tally.analyses
            error = await self._source_error()
            self._look = SourceCheck(error=error, analyses=analyses)
            if error is not None:
                self._source_told.tell(
                    "source", error.code, level=logging.WARNING, message="source does not answer", **error_fields(error)
                )
            else:
                self._source_told.tell("source", "up", level=SUMMARY, message="source answers")
            await asyncio.sleep(_ASK_EVERY)

    async def _source_error(self) -> ScopeError | None:
        try:
            async with asyncio.timeout(_ASK_WITHIN):
                await self._sources.ready()
        except TimeoutError:
            return SourceDown(f"the source does not answer within {_ASK_WITHIN:g} s")
        except ScopeError as e:
            return e
        return None

    async def _watch_settings(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hung_up.wait(), _LOOK_EVERY)
            async with self._changing:
                if await asyncio.to_thread(self._settings.file_changed) or self._hung_up.is_set():
                    self._hung_up.clear()
                    await self._reload()

    async def _reload(self) -> None:
        """Read the settings again; invalid settings are logged and ignored."""
        before = self._settings.loaded
        try:
            late = await asyncio.to_thread(self._settings.reload)
        except ConfigInvalid as e:
            self.counters.count(e)
            log.warning("settings rejected", extra=error_fields(e))
            return
        log.info("settings reloaded")
        await self.console.settings_changed(changed(before, self._settings.loaded))
        if late:
            log.warning("settings take effect after a restart", extra=fields(settings=", ".join(late)))
        self._apply()

    async def _prune_forever(self) -> None:
        while True:
            await asyncio.sleep(_PRUNE_EVERY)
            if self._leads:
                try:
                    await self._history.prune(time.time())
                    await self._history.events.prune(time.time())
                except HistoryDown as e:
                    self._history_failed(e, "write")

    async def _save_forever(self) -> None:
        """Save beside the analyses: they go on, however long the store takes."""
        while True:
            await self._outbox.filled.wait()
            await self._followers.run(self._saving, None)

    # ── what follows from an analysis ────────────────────────────────────────────────────────────────────────────

    def _followed_by(self) -> tuple[Follower[Board], ...]:
        """To add a follower, add a row; followers are independent of each other."""
        return (
            Follower(name="page", follow=self._show_board, deadline=_PAGE_WITHIN),
            Follower(name="events", follow=self._record_events, deadline=_PAGE_WITHIN),
            Follower(name="log", follow=self._log_board, deadline=_LOG_WITHIN),
            Follower(name="opinions", follow=self._hand_to_opinions, deadline=_RECLAIM_WITHIN),
            Follower(name="cases", follow=self._hand_to_reclaim, deadline=_RECLAIM_WITHIN),
        )

    async def _after(self, board: Board) -> bool:
        """Tell the followers, and leave the analysis to be saved; True if a follower raised an unexpected error."""
        assert board.analysis is not None
        broken = await self._followers.tell(board)
        await self._outbox.put(board.analysis)
        return broken

    def _follower_failed(self, name: str, error: ScopeError) -> None:
        self.counters.failed(name)
        if isinstance(error, HistoryDown):
            self._history_failed(error, "write")
        else:
            self.counters.count(error)

    async def _show_board(self, board: Board) -> None:
        assert board.analysis is not None
        await self._show_cards(board.analysis)
        self.feed.publish(analysis_event(board))

    async def _record_events(self, board: Board) -> None:
        await self.console.follow(board)

    async def _log_board(self, board: Board) -> None:
        assert board.analysis is not None
        await asyncio.to_thread(tell_analysis, board.analysis)
        self._log_table(board, board.analysis.seconds)

    async def _hand_to_opinions(self, board: Board) -> None:
        """Before the cases: reclaim asks for opinions on the evidence of this analysis."""
        assert board.analysis is not None
        self._with_opinions = (None, 0, None)  # the last board need not stay in memory
        await self.opinions.take(board.analysis)

    async def _courses(self, window: Window, gpu_ids: Collection[str]) -> Courses:
        return await read_courses(self._sources.current, window, gpu_ids)

    async def _hand_to_reclaim(self, board: Board) -> None:
        """A newer analysis replaces one that still waits: an old finding is not worth acting on."""
        self._to_reclaim = board.analysis
        self._reclaimable.set()

    async def _reclaim_forever(self) -> None:
        """Move the cases beside the analyses: they go on, however long the store takes."""
        while True:
            await self._reclaimable.wait()
            self._reclaimable.clear()
            if (analysis := self._to_reclaim) is not None:
                await self._followers.run(self._reclaiming, analysis)
                if self._to_reclaim is analysis:
                    self._to_reclaim = None

    async def _analyse_now(self) -> None:
        self._start()
        await self._cycle.finished()

    async def _call_control(self, call: Call, *, now: UnixTime) -> Delivered:
        control = self._settings.config.control
        agent = f"vgpuscope/{__version__}"
        async with Webhook(control.api_url, secret=control.secret, timeout=control.timeout, agent=agent) as webhook:
            await webhook.send(call.body.encode(), key=call.key, now=now)
        return Delivered()

    async def _save_waiting(self, _: None) -> None:
        before = self._outbox.saved
        try:
            await self._outbox.flush()
        finally:
            if self._outbox.saved > before:
                self._history_works("read", "write")  # saving reads, too
                await asyncio.to_thread(give_back)

    def _history_works(self, *uses: Use) -> None:
        self._leadership.store_works(*uses)
        if self._stored:
            self._history_told.tell("history", "up", level=SUMMARY, message="history store is up")

    def _history_failed(self, error: HistoryDown, use: Use) -> None:
        """Without a store of results, every replica analyses independently."""
        self._leadership.store_failed(use)
        self.counters.count(error)
        self._history_told.tell(
            "history", error.code, level=logging.ERROR, message="history store is down", **error_fields(error)
        )

    def _log_table(self, board: Board, seconds: Seconds) -> None:
        for line in table_lines(board.rows):
            log.info(line)
        for line in low_lines(board.rows, threshold=self._settings.config.thresholds.low_utilization):
            log.warning(line)
        log.info("Analysis completed in %.2fs", seconds)

    async def _show_cards(self, analysis: Analysis) -> None:
        """The page is replaced as a whole: GPUs that are gone from the fleet are gone from it."""
        self._cards = await asyncio.to_thread(cards_page, analysis.gpus, end=analysis.window.end)

    # ── what is served ───────────────────────────────────────────────────────────────────────────────────────────

    def _metrics(self) -> AnalyzerPage:
        """Old results are not shown: a reader would take them for current."""
        of = (self._cycle.shown().stats, self._cycle.tally, self._settings.config)  # the board would stay in memory
        asked = (self.opinions.changes, self.opinions.asker.counts.seconds.count)
        changes = (self.reclaim.changes, tuple(self._brakes().items()), self.notices.changes, *asked)
        state = (self._cycle.old, self._leads, self._outbox.waiting, self.counters.total, changes)
        if state != self._told[1] or not all(map(operator.is_, of, self._told[0])):
            self._fleet.update("fleet", self._fleet_samples())
            self._told = (of, state)
        return AnalyzerPage(CardsPage() if self._cycle.old else self._cards, self._fleet)

    def _brakes(self) -> Mapping[Brake, bool]:
        return self.reclaim.brakes(reachable=self._stored is not False)

    def _fleet_samples(self) -> Iterator[Sample]:
        tally, config, board = self._cycle.tally, self._settings.config, self._cycle.shown()
        asked = self.opinions.asker.counts
        health = AnalyzerHealth(
            analyses=tally.analyses,
            errors=tally.errors,
            seconds=tally.seconds,
            dropped=tally.dropped,
            last_success=tally.last_success,
            leader=self._leads,
            unsaved=self._outbox.waiting,
            threshold=config.thresholds.low_utilization,
            interval=config.scheduler.interval,
            error_counts=self.counters.errors,
            loop_restarts=self.counters.restarts,
            follower_failures=self.counters.failures,
            reclaim_states=counted(self.reclaim.cases.values()),
            reclaim_actions=self.reclaim.counts.actions,
            reclaim_held_back=self.reclaim.counts.held_back,
            reclaim_brakes=self._brakes(),
            ai_enabled=config.ai.enabled,
            ai_requests=asked.requests,
            ai_tokens=asked.tokens,
            ai_seconds=asked.seconds if asked.seconds.count else None,
            ai_cost=asked.cost,
            notices=self.notices.counts,
            channels=self.notices.working(),
        )
        analysis = None if self._cycle.old else board.analysis
        shown = self.opinions.shown
        return fleet_samples(build=this_build(), analysis=analysis, stats=board.stats, health=health, opinions=shown)

    def readiness(self) -> Readiness:
        """Ready as soon as there is a result, or the reason why there is none is known."""
        waiting = self._cycle.last() is None and self._cycle.tally.analyses == 0
        if self._stored is None or (waiting and self._analyses):
            return Readiness(missing=("the first analysis",))
        return Readiness()

    def admit(self, request: Request, operation: Operation) -> Caller:
        return self._admission.admit(request, operation)

    def _new_admission(self, guard: "Guard | None" = None) -> Admission:
        config = self._settings.config.analyzer
        token = ApiToken(config.api_token, _token_holder(config))

        def bound() -> bytes:
            return sha256(token.fingerprint + (guard.fingerprint if guard else b"")).digest()

        key = session_key(config.session_key, config.api_token) or self._session_key
        self._sessions = Sessions(key, lifetime=config.session_lifetime, bound=bound)
        identity = _identity(config, guard, token, SessionCookie(self._sessions))
        return Admission(identity, ClientLimits(config.rate_limit, clock=self._clock))

    def _apply(self) -> None:
        """Let changed settings take effect now."""
        config = self._settings.config
        self._admission = self._new_admission(self._guard)
        self._sources.renew(config)
        set_level(v=config.log.v, level=config.logging.level)
        self._wake.set()


def _check(config: Config) -> None:
    """ConfigInvalid for settings that cannot be used."""
    check_source(config)
    check_model(config)
    check_notices(config)
    found = config.analyzer
    if wanted(config) and found.kubeconfig is not None:
        check_kubeconfig(found.kubeconfig)
    if found.protect_reads and not (found.api_token or found.proxy_user_header or found.web_config_file):
        raise ConfigInvalid(
            "analyzer.protect_reads: reading is to need credentials, but there are none",
            hint="Set VGPUSCOPE_API_TOKEN, analyzer.web_config_file, or analyzer.proxy_user_header behind an "
            "authenticating proxy.",
        )
    if found.api_token_namespaces and not found.protect_reads:
        raise ConfigInvalid(
            "analyzer.api_token_namespaces: has no effect, because callers without the token see all namespaces",
            hint="Set analyzer.protect_reads to true.",
        )


def _shows_no_data(request: Request) -> bool:
    """The console's files and the session: without them nobody could log in. An owner's link is its own credential."""
    path = request.url.path
    return (
        path in {SESSION_PATH, "/ui"} or path.startswith(("/ui/", LINK_PATH)) or (path == "/" and wants_page(request))
    )


def _token_holder(config: AnalyzerConfig) -> Caller:
    return Caller(name="token", role=config.api_token_role, namespaces=config.api_token_namespaces or None)


def _identity(config: AnalyzerConfig, guard: "Guard | None", token: ApiToken, session: SessionCookie) -> Identity:
    return Identity(
        guard=guard,
        api_token=token,
        session=session,
        user_header=config.proxy_user_header,
        role_header=config.proxy_role_header,
        protect_reads=config.protect_reads,
        listen_host=address.split(config.listen)[0],
    )
