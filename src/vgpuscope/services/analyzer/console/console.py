"""What the console's API is made from: the board, joined with what the cluster exporter, agents and history know.

Every part has its own deadline and is fetched once for all callers (sources/console/parts.py). The join is made once
for each analysis and each change of a part, off the event loop.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, TypeVar

from msgspec import Struct, structs

from vgpuscope.config import Config
from vgpuscope.http.answers import KeptAnswers
from vgpuscope.logic.console import overview, timeline
from vgpuscope.logic.console.gpus import Ledgers, gpu_rows, ledgers
from vgpuscope.logic.console.history import ClassHour
from vgpuscope.logic.console.moments import iso, iso_or_none
from vgpuscope.logic.console.preview import compared
from vgpuscope.logic.fleet.waste import Now, present
from vgpuscope.logic.fleet.waste_hours import WasteHour, idle_of_span, waste_by_namespace, waste_hour
from vgpuscope.model.analysis import Analysis, GpuUse
from vgpuscope.model.console.facts import ClusterFacts, Facts
from vgpuscope.model.console.gpus import GpuRow
from vgpuscope.model.console.parts import Part
from vgpuscope.model.console.settings import Preview, SettingList
from vgpuscope.model.console.timeline import TimelineEvent
from vgpuscope.model.decision_answers import DecisionBody
from vgpuscope.model.errors import HistoryDown, ScopeError, SourceDown, Unknown
from vgpuscope.model.history import HistoryPoint
from vgpuscope.model.pending import PendingList, PendingPod
from vgpuscope.model.pod import SourceState
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.runtime.heap import without_collections
from vgpuscope.services.analyzer.console.agent_facts import AgentSource, EngineFacts, PageFacts
from vgpuscope.services.analyzer.console.host_usage import HostUsage
from vgpuscope.services.analyzer.console.past_hours import PastHours
from vgpuscope.services.analyzer.cycle import Board, ReadingSource, Staleness
from vgpuscope.services.analyzer.settings.rows import setting_list
from vgpuscope.services.analyzer.settings.settings import Settings
from vgpuscope.services.analyzer.sources.own_scrapes import ScrapedTarget, ScrapeSource
from vgpuscope.services.analyzer.sources.prometheus.reading import PrometheusSource
from vgpuscope.services.analyzer.sources.sources import cluster_url, prom_api
from vgpuscope.services.analyzer.wasted import ReadPoints, points, wasted_by
from vgpuscope.sources.console.cluster import ClusterPart
from vgpuscope.sources.console.extender import ExtenderPart
from vgpuscope.sources.console.parts import PartReader, PartReading
from vgpuscope.sources.fleet.promapi import PromApi
from vgpuscope.store.results.wanted import Covered, HistorySelection
from vgpuscope.store.timeline import MOST_IN_MEMORY, EventLog

T = TypeVar("T")

JOINED = ("analysis", "cluster", "agents")  # the parts of every list
_SHARE = 60  # rows are joined again at most for 1/60 of the time, unless there is a new analysis,
_SHARE_OF_FACTS = 200  # and at most for 1/200 if only agents' facts are new: the next analysis is joined with them
_TICK: Seconds = 60.0  # an answer with times that go on, such as how long pods wait, is made anew so often
_PAST_KEPT: Seconds = 300.0
_PAST_LONGEST: Seconds = 600.0
_FACTS_WITHIN: Seconds = 3.0  # for the facts of one GPU
_FACTS_SHARE = 100.0  # new facts of all GPUs are read, joined and sent to all consoles at most for 1/100 of the time
_HOUR, _DAY = 3600, 86400
_HOURS = 49  # kept in memory: two days, each hour up to 1 MB for 40,000 pods
_CLASS_HOURS = 5000  # kept in memory: sums, some bytes each
_CHARTS = 64  # kept in memory, and waiting to be read
_CHARTS_AT_ONCE = 2
_CHART_KEPT: Seconds = 15.0
_CHART_WITHIN: Seconds = 10.0
_LARGEST = 256 * 2**20  # bytes of an engine's answer
_NO_CLUSTER = SourceDown(
    "no cluster exporter is configured", hint="Start `vgpuscope cluster`, and set analyzer.cluster_url."
)
_NO_AGENTS = SourceDown(
    "no agents are known", hint="Set prometheus.url, analyzer.targets or analyzer.discover_services."
)
_NO_EXTENDER = SourceDown(
    "no extender is configured", hint="Start `vgpuscope extender`, and set analyzer.extender_url."
)
_HISTORY_ABSENT = HistoryDown("results are not stored", hint="Set analyzer.history to a file or a postgresql:// URL.")


class ConsoleBackend(Protocol):
    """What the console reads from the analyzer."""

    async def board(self) -> Board: ...
    def config(self) -> Config: ...
    def staleness(self) -> Staleness | None: ...
    def last_error(self) -> ScopeError | None: ...
    def source(self) -> ReadingSource: ...
    def settings(self) -> Settings: ...
    def records(self) -> bool:
        """Whether this replica analyses, and so records what happened."""

    def event_log(self) -> EventLog: ...
    def stored(self) -> Hashable:
        """Another value when other results may be in the store."""

    async def points(self, wanted: HistorySelection) -> list[HistoryPoint]: ...
    async def covered(self, begin: UnixTime, end: UnixTime, *, step: Seconds, kept: bool) -> Covered:
        """The time that analyses stand for, by step; `kept`: only of those whose single results are still stored."""

    async def judged_by(self, changes: Mapping[str, Any]) -> tuple[Sequence[GpuUse], Sequence[GpuUse]]:
        """The GPUs of now, judged by the settings in effect and by changed ones."""


class ConsoleView(Struct, frozen=True, kw_only=True):
    """Everything that an answer is made from, as it was at one moment."""

    now: UnixTime
    board: Board
    cluster: PartReading[ClusterFacts]
    agents: PartReading[Facts]
    past: PartReading[overview.PastFacts]
    ledgers: Ledgers | None
    rows: tuple[GpuRow, ...]
    parts: tuple[Part, ...]
    version: tuple[object, ...]  # of the rows and the states of the parts
    full_version: tuple[object, ...]  # also of waiting pods, quotas, the history, and the minute

    @property
    def analysis(self) -> Analysis | None:
        return self.board.analysis

    @property
    def at(self) -> str | None:
        return iso(self.analysis.window.end) if self.analysis else None

    @property
    def pending(self) -> tuple[PendingPod, ...] | None:
        """Pods that wait or waited; None: not known."""
        return self.cluster.value.pending.pending if self.cluster.value else None

    def part(self, *names: str) -> tuple[Part, ...]:
        """The parts that an answer uses."""
        return tuple(part for part in self.parts if part.name in names)


class _Wiring(NamedTuple):
    """The parts, made for some settings and a source."""

    made_for: tuple[object, ...]
    api: ClusterPart | None
    cluster: PartReader[ClusterFacts]
    source: AgentSource | None
    agents: PartReader[Facts]
    beside: HostUsage
    engine: PromApi | None
    extender: ExtenderPart | None
    decisions: PartReader[tuple[DecisionBody, ...]]


class _Join(NamedTuple):
    made_for: tuple[object, ...]
    ledgers: Ledgers | None
    rows: tuple[GpuRow, ...]
    facts_at: UnixTime | None  # when the joined facts were read
    began: Seconds
    took: Seconds


class Console:
    """Makes views, and records events."""

    def __init__(
        self,
        backend: ConsoleBackend,
        *,
        clock: Callable[[], Seconds] = time.monotonic,
        wall: Callable[[], UnixTime] = time.time,
    ) -> None:
        self._backend, self._clock, self._wall = backend, clock, wall
        self._wiring: _Wiring | None = None
        self._join: _Join | None = None
        self._joining = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()
        self._charts: dict[str, PartReader[Any]] = {}  # the last ones that were asked for
        self._reading, self._waiting = asyncio.Semaphore(_CHARTS_AT_ONCE), 0
        self._past = self._past_reader(stored=False)
        self._stored = False
        self._day_ago: tuple[UnixTime, list[HistoryPoint]] | None = None  # the hour a day ago
        self._waste_hours: PastHours[WasteHour] = PastHours(wall, most=_HOURS, stored=backend.stored)
        self.class_hours: PastHours[ClassHour] = PastHours(wall, most=_CLASS_HOURS, stored=backend.stored)
        self._digest: timeline.Digest | None = None
        self._noted = 0
        self._recent: deque[TimelineEvent] = deque(maxlen=MOST_IN_MEMORY)  # of this process
        self._unsaved: deque[TimelineEvent] = deque(maxlen=MOST_IN_MEMORY)
        self._recorded: PartReader[list[TimelineEvent]] = PartReader("history", self._read_events, wall=wall)
        self._began = iso(wall())
        self.kept = KeptAnswers()

    # ── views ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def view(self, *, past: bool = False) -> ConsoleView:
        """What is known now. `past`: the history is asked too."""
        wiring = self._wired()
        board, cluster, agents, held = await asyncio.gather(
            self._backend.board(), wiring.cluster.read(), wiring.agents.read(), self._read_past(past=past)
        )
        joined, now = await self._joined(board, cluster, agents), self._wall()
        shown = structs.replace(agents, at=joined.facts_at)
        parts = (self._analysis_part(board, now), *(part_of(one, now) for one in (cluster, shown, held)))
        states = tuple((part.name, part.state, part.code) for part in parts)
        version = (*joined.made_for, states)
        return ConsoleView(
            now=now,
            board=board,
            cluster=cluster,
            agents=agents,
            past=held,
            ledgers=joined.ledgers,
            rows=joined.rows,
            parts=parts,
            version=version,
            full_version=(*version, cluster.version, held.version, int(now // _TICK)),
        )

    async def gpu_facts(self, gpu_id: str) -> Facts | None:
        """All that the agents say of one GPU; None if they cannot be asked."""
        source = self._wired().source
        if source is None:
            return None
        try:
            async with asyncio.timeout(_FACTS_WITHIN):
                found = await source.gpu(gpu_id)
        except (ScopeError, TimeoutError):
            return None
        return found if found.gpus else None

    @property
    def beside(self) -> HostUsage:
        """What agents know beside the GPUs."""
        return self._wired().beside

    async def agent_sources(self, node: str) -> tuple[SourceState, ...] | None:
        """What a node's agent says of its sources; None if we do not scrape it ourselves, or it does not answer."""
        sample = await self.beside.sample(node)
        return None if sample is None else sample.sources

    async def explained(self, namespace: str, pod: str) -> PendingList | None:
        """Why one pod waits, with the numbers; None if the cluster exporter does not say it now."""
        api = self._wired().api
        if api is None:
            raise Unknown(str(_NO_CLUSTER), hint=_NO_CLUSTER.advice)
        try:
            async with asyncio.timeout(_FACTS_WITHIN):
                return await api.explain(namespace, pod)
        except (ScopeError, TimeoutError):
            return None

    async def decisions(self) -> tuple[tuple[DecisionBody, ...], Part]:
        """The newest decisions of the extender, and the state of that part."""
        held = await self._wired().decisions.read()
        return held.value or (), part_of(held, self._wall())

    async def decisions_of(self, namespace: str, pod: str) -> tuple[tuple[DecisionBody, ...], Part]:
        """The decisions about one pod; if the extender does not answer now, those of the list, without verdicts."""
        wiring = self._wired()
        held = await wiring.decisions.read()
        part = part_of(held, self._wall())
        if wiring.extender is not None and held.state != "forbidden":
            try:
                async with asyncio.timeout(_FACTS_WITHIN):
                    return await wiring.extender.of_pod(namespace, pod), part
            except (ScopeError, TimeoutError):
                pass
        return tuple(one for one in held.value or () if (one.namespace, one.pod) == (namespace, pod)), part

    @property
    def extender(self) -> ExtenderPart:
        """The extender; Unknown if none is configured."""
        found = self._wired().extender
        if found is None:
            raise Unknown(str(_NO_EXTENDER), hint=_NO_EXTENDER.advice)
        return found

    @property
    def engine(self) -> PromApi | None:
        """The PromQL engine; None without one."""
        return self._wired().engine

    def scraped(self) -> tuple[ScrapedTarget, ...] | None:
        """Every target that we scrape ourselves; None with an engine."""
        source = self._backend.source()
        return source.scraped() if isinstance(source, ScrapeSource) else None

    @property
    def config(self) -> Config:
        return self._backend.config()

    def now(self) -> UnixTime:
        return self._wall()

    async def size(self, *, pods: bool) -> int:
        """How many rows one analysis has in the store: GPUs, and with `pods` their pods."""
        analysis = (await self._backend.board()).analysis
        gpus = analysis.gpus if analysis else ()
        return len(gpus) + (sum(len(gpu.tenants) for gpu in gpus) if pods else 0)

    async def chart(self, key: object, fetch: Callable[[], Awaitable[T]]) -> PartReading[T]:
        """A chart, read from the history once for all who ask for the same."""
        name = repr(key)
        reader = self._charts.pop(name, None) or self._chart_reader(fetch)
        self._charts[name] = reader
        while len(self._charts) > _CHARTS:
            del self._charts[next(iter(self._charts))]
        return await reader.read()

    def _chart_reader(self, fetch: Callable[[], Awaitable[Any]]) -> PartReader[Any]:
        stored = self._backend.config().analyzer.keeps_results or self.engine is not None
        return PartReader(
            "history",
            (lambda: self._in_turn(fetch)) if stored else None,
            missing=_HISTORY_ABSENT,
            kept=_CHART_KEPT,
            deadline=_CHART_WITHIN,
            longest=_PAST_LONGEST,
            wall=self._wall,
        )

    async def _in_turn(self, fetch: Callable[[], Awaitable[T]]) -> T:
        """Read few charts at once: others use the store too, and the analyzer saves its results there."""
        if self._waiting >= _CHARTS:
            raise HistoryDown(f"{_CHARTS} charts are waiting to be read; this one was rejected", hint="Retry soon.")
        self._waiting += 1
        try:
            async with self._reading:
                return await fetch()
        finally:
            self._waiting -= 1

    def settings(self) -> SettingList:
        """Every setting of the analyzer."""
        return setting_list(self._backend.settings())

    async def preview(self, changes: Mapping[str, Any]) -> Preview:
        """What a change of settings would change, on a reading of now; nothing is changed."""
        before, after = await self._backend.judged_by(changes)
        return await asyncio.to_thread(compared, before, after, changes=changes)

    @property
    def read_points(self) -> ReadPoints:
        return self._backend.points

    async def covered(self, begin: UnixTime, end: UnixTime, *, step: Seconds, kept: bool) -> Covered:
        """The time that analyses stand for, by step of a chart."""
        return await self._backend.covered(begin, end, step=step, kept=kept)

    async def close(self) -> None:
        """End what is under way."""
        if self._wiring is not None:
            await _let_go(self._wiring)
        readers: list[PartReader[Any]] = [self._past, self._recorded, *self._charts.values()]
        for reader in readers:
            await reader.close()
        if self._closing:
            await asyncio.wait(self._closing)

    async def _joined(self, board: Board, cluster: PartReading[ClusterFacts], agents: PartReading[Facts]) -> _Join:
        analysis = board.analysis
        shown = (analysis.number, analysis.started, board.stale) if analysis else ()
        wanted = (shown, cluster.value.revision if cluster.value else None, agents.version)
        async with self._joining:
            known = self._join
            if known is not None and (known.made_for == wanted or self._too_soon(known, wanted)):
                return known
            began = self._clock()
            with without_collections():
                index, rows = await asyncio.to_thread(_join, board, cluster.value, agents.value)
            self._join = _Join(wanted, index, rows, agents.at, began, self._clock() - began)
            return self._join

    def _too_soon(self, known: _Join, wanted: tuple[object, ...]) -> bool:
        if known.made_for[0] != wanted[0]:
            return False
        newer = known.made_for[1] == wanted[1] and known.made_for[2] and wanted[2]  # facts instead of older facts
        share = _SHARE_OF_FACTS if newer else _SHARE
        return self._clock() < known.began + share * known.took

    def _analysis_part(self, board: Board, now: UnixTime) -> Part:
        stale, error, analysis = self._backend.staleness(), self._backend.last_error(), board.analysis
        if analysis is None:
            code = error.code if error else None
            message = str(error) if error else "the first analysis is not done yet"
            hint = error.advice if error else None
            return Part(name="analysis", state="down" if error else "absent", code=code, message=message, hint=hint)
        return Part(
            name="analysis",
            state="stale" if stale else "ok",
            at=iso(analysis.window.end),
            age_seconds=round(max(0.0, now - analysis.window.end), 1),
            window_seconds=round(analysis.window.seconds, 1),
            low_score=self._backend.config().thresholds.low_utilization,
            code=error.code if stale and error else None,
            message=stale.reason if stale else None,
            hint=error.advice if stale and error else None,
        )

    # ── parts ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _wired(self) -> _Wiring:
        """The parts for the settings of now; parts for former settings are closed."""
        config, source = self._backend.config(), self._backend.source()
        urls = (cluster_url(config), config.analyzer.extender_url)
        wanted = (*urls, config.analyzer.scrape_token, source, config.prometheus)
        known = self._wiring
        if known is not None and known.made_for == wanted:
            return known
        if known is not None:
            task = asyncio.create_task(_let_go(known), name="former parts")
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        self._wiring = self._wire(config, source, wanted)
        return self._wiring

    def _wire(self, config: Config, source: ReadingSource, wanted: tuple[object, ...]) -> _Wiring:
        url = cluster_url(config)
        api = ClusterPart(url, token=config.analyzer.scrape_token) if url else None
        engine = prom_api(config, largest=_LARGEST, at_once=4) if isinstance(source, PrometheusSource) else None
        agents = _agent_source(config, source, engine)
        extender = _extender(config)
        return _Wiring(
            wanted,
            api,
            PartReader("cluster", api.read if api else None, missing=_NO_CLUSTER, wall=self._wall),
            agents,
            PartReader(
                "agents",
                agents.fleet if agents else None,
                missing=_NO_AGENTS,
                share=_FACTS_SHARE,
                rhythm=lambda: self._backend.config().scheduler.interval,
                wall=self._wall,
            ),
            HostUsage(agents, token=config.analyzer.scrape_token, wall=self._wall),
            engine,
            extender,
            PartReader("extender", extender.read if extender else None, missing=_NO_EXTENDER, wall=self._wall),
        )

    # ── the past ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _read_past(self, *, past: bool) -> PartReading[overview.PastFacts]:
        stored = self._backend.config().analyzer.keeps_results
        if stored != self._stored:
            self._stored, self._past = stored, self._past_reader(stored=stored)
        return await self._past.read() if past else self._past.held()

    def _past_reader(self, *, stored: bool) -> PartReader[overview.PastFacts]:
        fetch: Callable[[], Awaitable[overview.PastFacts]] | None = self._fetch_past if stored else None
        return PartReader(
            "history", fetch, missing=_HISTORY_ABSENT, kept=_PAST_KEPT, longest=_PAST_LONGEST, wall=self._wall
        )

    async def _fetch_past(self) -> overview.PastFacts:
        """Idle hours of the last day and the one before it, and the fleet a day ago."""
        end = self._wall()
        begin = (end - _DAY) // _HOUR * _HOUR
        analysis = (await self._backend.board()).analysis
        if self._day_ago is None or self._day_ago[0] != begin:  # it changes once an hour
            self._day_ago = (begin, await points(self._backend.points, "hour", begin, begin + _HOUR, namespace=None))
        now = await asyncio.to_thread(present, analysis.gpus if analysis else ())
        waste, idle = await asyncio.to_thread(waste_by_namespace, await self._wasted(begin, end, now))
        hours_before = await self._wasted(begin - _DAY, begin, now)
        before = overview.figures_before(self._day_ago[1], wasted=await asyncio.to_thread(idle_of_span, hours_before))
        return overview.PastFacts(waste=waste, wasted_gpu_hours=idle, before=before)

    async def _wasted(self, begin: UnixTime, end: UnixTime, now: Now) -> Sequence[WasteHour]:
        """What each hour of the span held and wasted."""
        hours = []
        for at in range(int(begin), math.ceil(end), _HOUR):
            until = min(at + _HOUR, end)

            async def read(at: int = at, until: UnixTime = until) -> WasteHour:
                with without_collections():
                    ledger = await wasted_by(self._backend.points, now, step="hour", begin=at, end=until)
                    return await asyncio.to_thread(waste_hour, ledger)

            complete = at + _HOUR + self._backend.config().scheduler.interval  # of an analysis that begins in the hour
            hours.append(await self._waste_hours.get((), at, complete, read))
        return hours

    def analysis_begins(self) -> None:
        """Agents' facts of a large fleet are read while it is analysed: both are joined and sent to consoles once."""
        self._wired().agents.begin()

    # ── events ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def follow(self, board: Board) -> None:
        """Record what happened since the analysis before."""
        analysis = board.analysis
        if analysis is None:
            return
        before, self._digest = self._digest, await asyncio.to_thread(timeline.digest, analysis)
        if before is not None and self._backend.records():
            self._note(await asyncio.to_thread(_between, before, self._digest, analysis.window.end))
        await self._save_events()

    async def events(self) -> tuple[list[TimelineEvent], str]:
        """The recorded events of this and former processes, newest first, and since when they are recorded."""
        held = await self._recorded.read()
        found = {event.id: event for event in (*reversed(self._recent), *(held.value or ()))}
        newest = sorted(found.values(), key=lambda event: event.at, reverse=True)
        return newest, min(self._began, newest[-1].at) if newest else self._began

    async def _read_events(self) -> list[TimelineEvent]:
        return await self._backend.event_log().newest(MOST_IN_MEMORY)

    def _note(self, events: Sequence[TimelineEvent]) -> None:
        self._recent.extend(events)
        self._unsaved.extend(events)

    async def _save_events(self) -> None:
        """Save what is not saved yet; HistoryDown if it has to wait."""
        some = tuple(self._unsaved)
        if some:
            await self._backend.event_log().add(some)
            saved = {event.id for event in some}
            rest = [event for event in self._unsaved if event.id not in saved]
            self._unsaved.clear()
            self._unsaved.extend(rest)

    async def settings_changed(self, changes: Mapping[str, tuple[Any, Any]]) -> None:
        """Record changed settings: path → value before and after."""
        now = self._wall()
        at = iso(now)
        for path, (before, after) in changes.items():
            self._noted += 1
            self._note(
                [
                    TimelineEvent(
                        id=f"setting-{now:.3f}-{self._noted}",
                        at=at,
                        kind="settings",
                        code=path,
                        before=_text(before),
                        after=_text(after),
                    )
                ]
            )
        with suppress(HistoryDown):  # it is saved after the next analysis
            await self._save_events()


def _join(board: Board, cluster: ClusterFacts | None, facts: Facts | None) -> tuple[Ledgers | None, tuple[GpuRow, ...]]:
    index = ledgers(cluster.nodes) if cluster else None
    return index, gpu_rows(board.analysis, stale=board.stale, cluster=index, facts=facts)


def _agent_source(config: Config, source: ReadingSource, engine: PromApi | None) -> AgentSource | None:
    if isinstance(source, ScrapeSource):
        return PageFacts(source.last_pages)
    return EngineFacts(engine, condition=config.prometheus.query_condition) if engine else None


def _extender(config: Config) -> ExtenderPart | None:
    url = config.analyzer.extender_url
    return ExtenderPart(url, token=config.analyzer.scrape_token) if url else None


def _between(before: timeline.Digest, after: timeline.Digest, at: UnixTime) -> list[TimelineEvent]:
    return list(timeline.between(before, after, at=at))


def part_of(held: PartReading[Any], now: UnixTime) -> Part:
    """The state of a part as an answer shows it."""
    error, state, fault = held.error, held.state, getattr(held.value, "fault", None)
    if state == "ok" and isinstance(fault, ScopeError):
        error, state = fault, "stale"
    return Part(
        name=held.name,
        state=state,
        at=iso_or_none(held.at),
        age_seconds=None if held.at is None else round(max(0.0, now - held.at), 1),
        code=error.code if error else None,
        message=str(error) if error else None,
        hint=error.advice if error else None,
    )


async def _let_go(wiring: _Wiring) -> None:
    await wiring.cluster.close()
    await wiring.agents.close()
    await wiring.beside.close()
    await wiring.decisions.close()
    if wiring.api is not None:
        await wiring.api.__aexit__()
    if wiring.extender is not None:
        await wiring.extender.__aexit__()
    if wiring.engine is not None:
        await wiring.engine.aclose()


def _text(value: object) -> str | None:
    return None if value is None else str(value)
