"""The analyzer's own /metrics page; it is made again only if something on it changed."""

import asyncio
import operator
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from vgpuscope.catalog import analyzer as catalog
from vgpuscope.config import Config
from vgpuscope.model.analysis import Analysis
from vgpuscope.model.reclaim import Brake
from vgpuscope.runtime.build import this_build
from vgpuscope.runtime.counters import Counters
from vgpuscope.services.analyzer.callbacks import Callbacks
from vgpuscope.services.analyzer.cycle import AnalysisCycle
from vgpuscope.services.analyzer.notices.notices import Notices
from vgpuscope.services.analyzer.opinion.opinions import Opinions
from vgpuscope.services.analyzer.reclaim.reclaim import Reclaim
from vgpuscope.services.analyzer.replica import Replica
from vgpuscope.store.results.unsaved import Outbox
from vgpuscope.views.exposition.page import Sample
from vgpuscope.views.exposition.sharded import ShardedPage
from vgpuscope.views.fleet.metrics import (
    FLEET_METRICS,
    AnalyzerHealth,
    AnalyzerPage,
    GpusPage,
    fleet_samples,
    gpus_page,
)
from vgpuscope.views.reclaim.api import counted
from vgpuscope.views.reclaim.held_by import counted_brakes


class MetricSources(Struct, frozen=True, kw_only=True):
    """The parts of the analyzer that have metrics."""

    config: Callable[[], Config]
    cycle: AnalysisCycle
    replica: Replica
    outbox: Outbox
    opinions: Opinions
    notices: Notices
    callbacks: Callbacks
    reclaim: Reclaim
    counters: Counters


class MetricsPage:
    """GPUs, which change with each analysis, and the health of the analyzer, which changes at any time."""

    def __init__(self, parts: MetricSources) -> None:
        self._parts = parts
        self._gpus = GpusPage()
        self._fleet = ShardedPage(FLEET_METRICS, catalog.FAMILIES)
        self._made_from: tuple[tuple[object, ...], object] = ((), None)

    async def show(self, analysis: Analysis) -> None:
        """The page is replaced as a whole: GPUs that are gone from the fleet are gone from it."""
        self._gpus = await asyncio.to_thread(gpus_page, analysis.gpus, end=analysis.window.end)

    def page(self) -> AnalyzerPage:
        """Old results are not shown: a reader would take them for current."""
        one = self._parts
        of = (one.cycle.shown().stats, one.cycle.tally, one.config())  # the board would stay in memory
        asked = (one.opinions.changes, one.opinions.asker.counts.seconds.count)
        changes = (
            one.reclaim.changes,
            tuple(self._brakes().items()),
            one.notices.changes,
            one.callbacks.changes,
            *asked,
        )
        state = (one.cycle.old, one.replica.leads, one.outbox.waiting, one.counters.total, changes)
        if state != self._made_from[1] or not all(map(operator.is_, of, self._made_from[0])):
            self._fleet.update("fleet", self._samples())
            self._made_from = (of, state)
        return AnalyzerPage(GpusPage() if one.cycle.old else self._gpus, self._fleet)

    def _brakes(self) -> Mapping[Brake, bool]:
        return self._parts.reclaim.brakes(reachable=self._parts.replica.stored is not False)

    def _samples(self) -> Iterator[Sample]:
        one = self._parts
        board, shown = one.cycle.shown(), one.opinions.shown
        analysis = None if one.cycle.old else board.analysis
        return fleet_samples(
            build=this_build(), analysis=analysis, stats=board.stats, health=self._health(), opinions=shown
        )

    def _health(self) -> AnalyzerHealth:
        one = self._parts
        tally, config, asked = one.cycle.tally, one.config(), one.opinions.asker.counts
        return AnalyzerHealth(
            analyses=tally.analyses,
            errors=tally.errors,
            seconds=tally.seconds,
            dropped=tally.dropped,
            last_success=tally.last_success,
            leader=one.replica.leads,
            unsaved=one.outbox.waiting,
            threshold=config.thresholds.low_utilization,
            interval=config.scheduler.interval,
            error_counts=one.counters.errors,
            loop_restarts=one.counters.restarts,
            follower_failures=one.counters.failures,
            reclaim_states=counted(one.reclaim.cases.values()),
            reclaim_held=counted_brakes(one.reclaim.cases.values()),
            reclaim_actions=one.reclaim.counts.actions,
            reclaim_held_back=one.reclaim.counts.held_back,
            reclaim_brakes=self._brakes(),
            ai_enabled=config.ai.enabled,
            ai_requests=asked.requests,
            ai_tokens=asked.tokens,
            ai_seconds=asked.seconds if asked.seconds.count else None,
            ai_cost=asked.cost,
            notices=one.notices.counts,
            channels=one.notices.working(),
            callbacks=one.callbacks.counts,
            callbacks_waiting=None if one.callbacks.when is None else one.callbacks.waiting,
        )
