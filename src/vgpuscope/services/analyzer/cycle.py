"""Runs analyses one after the other: read the fleet, judge it, put the result on the board.

A trigger joins an analysis that is already running. The board is replaced as a whole. If an analysis fails, the old
result stays, and answers report it as stale. Once its data is too old, its verdicts are unknown.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Protocol

from msgspec import Struct, structs

from vgpuscope.config import Config
from vgpuscope.logic.fleet.allocated import with_allocations, with_pod_uids, with_registered
from vgpuscope.logic.fleet.assembly import assemble, remembered
from vgpuscope.logic.fleet.limits import within_limits
from vgpuscope.logic.fleet.presence import GpuPresence, expected, kept, split
from vgpuscope.logic.fleet.scoring import ScoreWeights, Thresholds
from vgpuscope.logic.fleet.sightings import Key, PreviousVerdict
from vgpuscope.logic.fleet.verdict import VerdictRules
from vgpuscope.model.analysis import Allocations, Analysis, Fault, GpuUse, Reading, Target
from vgpuscope.model.errors import QueryTimeout, ScopeError, WindowTooShort
from vgpuscope.model.histogram import Histogram
from vgpuscope.model.opinion import NO_OPINIONS, OpinionsShown
from vgpuscope.model.quantity import MIB, Seconds, UnixTime
from vgpuscope.model.words import Language
from vgpuscope.runtime.heap import give_back, without_collections
from vgpuscope.services.analyzer.failure_log import FailureLog
from vgpuscope.views.fleet.log.table import RULE
from vgpuscope.views.fleet.results.results import ResultRow, Stats, iso, rows, stats

log = logging.getLogger(__name__)

BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_SLACK = 30.0  # seconds beyond the source's own deadline


class ReadingSource(Protocol):
    """Where readings come from."""

    async def read(self, *, end: UnixTime, seconds: Seconds) -> Reading: ...


Owners = Mapping[tuple[str, str], str]  # (namespace, pod) → Deployment/web


class Staleness(Struct, frozen=True, kw_only=True):
    """Since when the shown results are out of date, and why."""

    since: UnixTime
    reason: str


class Board(Struct, frozen=True, kw_only=True):
    """The results that are shown: the last good analysis, as rows and sums."""

    analysis: Analysis | None = None
    rows: tuple[ResultRow, ...] = ()
    stats: Stats
    threshold: float = 0.0  # of low scores, by which `stats` counts
    stale: bool = False
    dropped: int = 0  # impossible samples
    opinions: OpinionsShown = NO_OPINIONS  # that the rows show
    opinions_version: tuple[int, Language] | None = None


class AnalysisCounts(Struct, frozen=True, kw_only=True):
    """Counters and times of the analyses so far."""

    analyses: int = 0
    errors: int = 0
    seconds: Histogram = Histogram.empty(BUCKETS)
    dropped: int = 0
    last_start: UnixTime | None = None
    last_success: UnixTime | None = None
    connected: bool | None = None  # None: not tried yet
    last_error: ScopeError | None = None
    failing_since: UnixTime | None = None  # start of the first failed analysis since the last good one


async def _no_list() -> None:
    """Nothing is known of the cluster."""


class AnalysisCycle:
    """Runs analyses, one at a time."""

    def __init__(
        self,
        config: Callable[[], Config],
        source: Callable[[], ReadingSource],
        *,
        owners: Callable[[], Awaitable[Owners]],
        done: Callable[[Board], Awaitable[bool | None]],
        nodes: Callable[[], Awaitable[Collection[str] | None]] = _no_list,
        allocations: Callable[[], Awaitable[Allocations | None]] = _no_list,
        begins: Callable[[], object] = lambda: None,
        clock: Callable[[], UnixTime] = time.time,
    ) -> None:
        """`done` is called with each successful analysis after it is on the board, and never raises.

        If `done` returns True, a part of it failed, and the analysis is counted as one with an error. `nodes` returns
        the nodes of the cluster, or None if they are not known; `allocations` what is allocated there.
        `begins` is called when an analysis begins.
        """
        self._config, self._source, self._owners, self._done, self._clock = config, source, owners, done, clock
        self._nodes, self._allocations, self._begins = nodes, allocations, begins
        self._fleet: object = None  # the fleet of the last analysis; None: not known
        self._running: asyncio.Task[None] | None = None
        self._closing = False
        self._previous: dict[Key, PreviousVerdict] = {}
        self._board = Board(stats=stats((), threshold=0, timestamp=None))
        self._own = False  # whether the analysis on the board was made here
        self._ageing = asyncio.Lock()
        self._news = FailureLog(log, clock=clock)
        self.tally = AnalysisCounts()

    @property
    def old(self) -> bool:
        """Whether the analysis on the board is too old to be trusted."""
        analysis = self._board.analysis
        return analysis is not None and self._too_old(analysis)

    async def board(self) -> Board:
        """The board to show now; verdicts of data that is too old are unknown, and a new threshold counts at once."""
        async with self._ageing:
            board = self._board
            threshold = self._config().thresholds.low_utilization
            if board.analysis is None:
                self._board = structs.replace(board, threshold=threshold)
            elif (board.stale, board.threshold) != (self.old, threshold):
                made = await asyncio.to_thread(self._make_board, board.analysis, stale=self.old)
                if self._board is board:
                    self._board = made
            return self._board

    def shown(self) -> Board:
        """The board as it was last made; `old` says whether to trust it."""
        return self._board

    def staleness(self) -> Staleness | None:
        """Why the shown results are out of date; None: they are from the last analysis, and not too old."""
        analysis, tally = self._board.analysis, self.tally
        if tally.failing_since is not None and (analysis is None or analysis.started < tally.failing_since):
            error = tally.last_error
            assert error is not None
            return Staleness(since=tally.failing_since, reason=f"{error.code}: {error}")
        if analysis is None or not self._too_old(analysis):
            return None
        lasts = self._lasts(analysis)
        return Staleness(
            since=min(self._clock(), analysis.started + lasts), reason=f"no analysis has succeeded for {lasts:g} s"
        )

    def last(self) -> Analysis | None:
        """The last good analysis, old or not."""
        return self._board.analysis

    async def restore(self, analysis: Analysis) -> bool:
        """Continue from an analysis of an earlier run or of the leader; False if one of our own is to stay.

        The store decides the order of its analyses, because a replica's clock may be wrong. An analysis of our own
        stays if it began later, unless its time is too far from now to be trusted.
        """
        own = self._board.analysis if self._own else None
        if own is not None and own.started >= analysis.started and not self._too_old(own):
            return False
        await self._show(analysis)
        self._own = False
        return True

    def trigger(self) -> bool:
        """Start an analysis, unless one is running; True if this call started it."""
        if self._running is not None and not self._running.done():
            return False
        self._running = asyncio.create_task(self._analyze(), name="analysis")
        return True

    async def finished(self) -> None:
        """Wait for the running analysis to end, if there is one; it never raises."""
        if self._running is not None:
            await asyncio.wait({self._running})

    async def close(self) -> None:
        """Cancel the running analysis."""
        self._closing = True
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})

    async def _analyze(self) -> None:
        began, start = self._clock(), time.perf_counter()
        self.tally = _with(self.tally, last_start=began)
        if self._config().analyzer.log_results == "table":
            log.info(RULE)
            log.info("Starting GPU utilization analysis")
        try:
            self._begins()
            with without_collections():
                analysis = await self._look(began)
                await self._show(analysis, since=start)
                self._own = True
        except ScopeError as e:
            self._failed(e, time.perf_counter() - start)
            return
        except asyncio.CancelledError as e:
            if self._closing:
                raise
            why = ScopeError("the analysis was cancelled; see the log")
            self._failed(why, time.perf_counter() - start, cause=e)
            return
        except Exception as e:
            self._failed(ScopeError("the analysis failed; see the log"), time.perf_counter() - start, cause=e)
            return
        self._succeeded()
        if await self._done(self._board):
            self.tally = _with(self.tally, errors=self.tally.errors + 1)
        await asyncio.to_thread(give_back)  # an analysis takes several times the memory of its result

    async def _look(self, began: UnixTime) -> Analysis:
        config = self._config()
        within = config.prometheus.deadline + _SLACK
        try:
            async with asyncio.timeout(within):
                reading = await self._source().read(end=began, seconds=config.prometheus.time_window_min * 60)
                owners, fault = await self._asked_owners()
        except TimeoutError:
            raise QueryTimeout(f"nothing was read within {within:g} s") from None
        allocations = await self._allocations()
        reading = await asyncio.to_thread(with_pod_uids, reading, allocations)
        reading, omitted, beyond = await asyncio.to_thread(within_limits, reading)
        gpus = await asyncio.to_thread(self._judged, reading, config, owners)
        gpus, targets = await self._with_missed(gpus, reading, config)
        before = self._board.analysis
        listed = await asyncio.to_thread(
            with_registered,
            gpus,
            allocations,
            window=reading.window,
            before=before.gpus if before else (),
            forget_after=config.analyzer.forget_after,
        )
        gpus = await asyncio.to_thread(with_allocations, listed, allocations)
        return Analysis(
            number=self.tally.analyses + 1,
            started=began,
            seconds=0.0,  # set when it is on the board
            window=reading.window,
            gpus=gpus,
            source=reading.source,
            schemas=reading.schemas,
            requests=reading.requests,
            faults=(*reading.faults, *fault, *beyond, *_too_short(gpus)),
            targets=targets,
            omitted=omitted,
        )

    def _judged(self, reading: Reading, config: Config, owners: Owners) -> tuple[GpuUse, ...]:
        return assemble(
            reading,
            previous=self._previous,
            weights=_weights(config),
            thresholds=_thresholds(config),
            rules=_rules(config),
            default_power=config.gpu_defaults.power_w,
            default_memory=_default_memory(config),
            owners=owners,
        )

    async def judged_by(self, config: Config) -> tuple[tuple[GpuUse, ...], tuple[GpuUse, ...]]:
        """A reading of now, judged by the settings in effect and by others; nothing is remembered of it."""
        current = self._config()
        within = current.prometheus.deadline + _SLACK
        try:
            async with asyncio.timeout(within):
                window = current.prometheus.time_window_min * 60
                reading = await self._source().read(end=self._clock(), seconds=window)
                reading = await asyncio.to_thread(with_pod_uids, reading, await self._allocations())
        except TimeoutError:
            raise QueryTimeout(f"nothing was read within {within:g} s") from None
        return await asyncio.to_thread(lambda: (self._judged(reading, current, {}), self._judged(reading, config, {})))

    async def _with_missed(
        self, gpus: tuple[GpuUse, ...], reading: Reading, config: Config
    ) -> tuple[tuple[GpuUse, ...], tuple[Target, ...]]:
        """The GPUs that report and those that are missed, and the targets that should answer."""
        fleet = _fleet(config)
        before = self._board.analysis if self._fleet in (None, fleet) else None
        present = await asyncio.to_thread(split, gpus, before=before, window=reading.window)
        stay = await self._kept(present, reading, config) if present.away else ()
        self._fleet = fleet
        return (*present.reporting, *stay), expected(reading.targets, stay)

    async def _kept(self, present: GpuPresence, reading: Reading, config: Config) -> tuple[GpuUse, ...]:
        return kept(
            present,
            reading=reading,
            interval=config.scheduler.interval,
            forget_after=config.analyzer.forget_after,
            nodes=await self._nodes(),
            all_targets=config.prometheus.url is None and bool(config.analyzer.targets),
        )

    async def _asked_owners(self) -> tuple[Owners, tuple[Fault, ...]]:
        """The owners of the pods; if they cannot be read, only their names are missing."""
        try:
            return await self._owners(), ()
        except ScopeError as e:
            return {}, (Fault(part="owners", code=e.code, message=str(e)),)

    async def _show(self, analysis: Analysis, *, since: float | None = None) -> None:
        """Put an analysis on the board; one that is too old is not remembered. `since`: when a new one began."""
        old = self._too_old(analysis)
        gpus = () if old else analysis.gpus
        before = self._previous
        board, previous = await asyncio.to_thread(
            lambda: (self._make_board(analysis, stale=old), remembered(gpus, before=before))
        )
        if since is not None:
            board = structs.replace(board, analysis=structs.replace(analysis, seconds=time.perf_counter() - since))
        self._board, self._previous = board, previous

    def _make_board(self, analysis: Analysis, *, stale: bool) -> Board:
        made, threshold = rows(analysis, stale=stale), self._config().thresholds.low_utilization
        sums = stats(made, threshold=threshold, timestamp=iso(analysis.started))
        dropped = sum([stat.dropped for gpu in analysis.gpus for stat in gpu.terms.values()])
        return Board(analysis=analysis, rows=made, stats=sums, threshold=threshold, stale=stale, dropped=dropped)

    def _too_old(self, analysis: Analysis) -> bool:
        """Whether the data is too old, or from the future: a clock was wrong, and may stay wrong for long."""
        return abs(self._clock() - analysis.window.end) > self._lasts(analysis)

    def _lasts(self, analysis: Analysis) -> Seconds:
        """How old the data may become: until the next analysis is due, plus the allowed delay of samples.

        If an analysis takes longer than samples may be late, its duration is allowed instead.
        """
        config = self._config()
        late = config.verdict.max_age_intervals * analysis.window.interval
        return config.scheduler.interval + max(late, analysis.seconds)

    def _succeeded(self) -> None:
        tally, analysis = self.tally, self._board.analysis
        assert analysis is not None
        self.tally = _with(
            tally,
            analyses=tally.analyses + 1,
            errors=tally.errors + bool(analysis.faults),
            seconds=tally.seconds.with_one(analysis.seconds),
            dropped=tally.dropped + self._board.dropped,
            last_success=analysis.started,
            connected=True,
            last_error=None,
            failing_since=None,
        )
        self._news.succeeded(analysis.faults)

    def _failed(self, error: ScopeError, seconds: Seconds, *, cause: BaseException | None = None) -> None:
        """Keep the last results; once they are too old, forget the verdicts that were remembered from them."""
        self._news.failed(error, cause)
        tally = self.tally
        self.tally = _with(
            tally,
            analyses=tally.analyses + 1,
            errors=tally.errors + 1,
            seconds=tally.seconds.with_one(seconds),
            connected=False,
            last_error=error,
            failing_since=tally.last_start if tally.failing_since is None else tally.failing_since,
        )
        if self.old:
            self._previous = {}


def _too_short(gpus: Iterable[GpuUse]) -> tuple[Fault, ...]:
    """The fault of a window that is too short for enough samples of some GPUs; empty if there is none."""
    found = [gpu.evidence for gpu in gpus if gpu.evidence.reasons[:1] == ("VERDICT_WINDOW_TOO_SHORT",)]
    if not found:
        return ()
    rarest = max(evidence.interval or 0.0 for evidence in found)
    text = f"{len(found)} GPUs have a sample only every {rarest:.0f} s, too rarely for the window"
    return (Fault(part="window", code=WindowTooShort.code, message=text),)


def _with(tally: AnalysisCounts, **changes: object) -> AnalysisCounts:
    return structs.replace(tally, **changes)


def _fleet(config: Config) -> object:
    """The settings that select the GPUs: GPUs of another fleet are not missed in this one."""
    prometheus, analyzer = config.prometheus, config.analyzer
    return prometheus.url, prometheus.query_condition, analyzer.targets, analyzer.discover_services


def _weights(config: Config) -> ScoreWeights:
    scoring = config.scoring
    return ScoreWeights(
        gpu_util=scoring.gpu_util_weight,
        mem_copy=scoring.mem_copy_weight,
        mem_used=scoring.mem_used_weight,
        power=scoring.power_weight,
    )


def _thresholds(config: Config) -> Thresholds:
    found = config.thresholds
    return Thresholds(idle=found.idle, low=found.low_utilization, high=found.high)


def _rules(config: Config) -> VerdictRules:
    found = config.verdict
    return VerdictRules(
        min_coverage=found.min_coverage,
        max_age_intervals=found.max_age_intervals,
        idle_enter=found.idle_enter,
        idle_leave=found.idle_leave,
        held_memory=found.held_memory,
        unproductive_util=found.unproductive_util,
        unproductive_sm=found.unproductive_sm,
        held_bytes=round(found.held_memory_mb * MIB),
        power_contradiction=found.power_contradiction,
        stalled_util=found.stalled_util,
        stalled_power=found.stalled_power,
        preparing_cpu=found.preparing_cpu,
    )


def _default_memory(config: Config) -> int | None:
    assumed = config.gpu_defaults.memory_mb
    return None if assumed is None else round(assumed * MIB)
