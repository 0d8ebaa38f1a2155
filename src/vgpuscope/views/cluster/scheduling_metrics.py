"""Scheduling results → samples: the handbook's metrics for all schedulers together, ours for each scheduler."""

from collections.abc import Iterator

from vgpuscope.catalog import scheduling as m
from vgpuscope.catalog.label_sets import ClusterLabels, SchedulerLabels
from vgpuscope.model.scheduling import SchedulerResult, SchedulingResult
from vgpuscope.views.exposition.page import Sample


def scheduling_samples(result: SchedulingResult, *, estimates: bool = True) -> Iterator[Sample]:
    """All samples about schedulers. The samples of one row come together.

    `estimates` False: without the handbook's names, because an extender publishes them.
    """
    row = ClusterLabels()
    if estimates:
        yield Sample(m.FILTER_SECONDS, row, result.filtering)
        yield Sample(m.BIND_SECONDS, row, result.binding)
        yield Sample(m.BIND_SUCCESS, row, result.bound)
        yield Sample(m.BIND_FAILURE, row, result.failed)
    yield Sample(m.STAGES_SKIPPED, row, result.skipped)
    for scheduler in result.schedulers:
        yield from _scheduler(scheduler)


def _scheduler(result: SchedulerResult) -> Iterator[Sample]:
    row = SchedulerLabels(scheduler=result.scheduler)
    for step, took in result.steps.items():
        yield Sample(m.STAGE_SECONDS, row, took, (step,))
    yield Sample(m.BINDS, row, result.bound, ("success",))
    yield Sample(m.BINDS, row, result.failed, ("failure",))
    for code, times in sorted(result.refusals.items()):
        yield Sample(m.FAILURES, row, times, (code,))
