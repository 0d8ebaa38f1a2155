"""The state of the device plugin → samples."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, structs

from vgpuscope.catalog import plugin as m
from vgpuscope.catalog.label_sets import OfferedGpuLabels, PluginLabels
from vgpuscope.model.histogram import Histogram
from vgpuscope.model.plugin import FeedbackMove, GpuState
from vgpuscope.views.build import Build
from vgpuscope.views.exposition.page import Sample


class FeedbackCounts(Struct, frozen=True, kw_only=True):
    """The priority feedback so far, and its last round."""

    moves: Mapping[FeedbackMove, int]
    states: Mapping[str, int]
    failures: int = 0


class PluginStatus(Struct, frozen=True, kw_only=True):
    """Everything that the page shows, apart from the GPUs. None: not known yet."""

    node: str
    allocate: Histogram
    allocations: int
    failures: Mapping[str, int]
    dirs_removed: int
    registrations: Mapping[str, int]
    kubelet_up: bool
    node_patches: int
    api_up: bool | None
    driver_up: bool | None
    limits: bool
    feedback: FeedbackCounts | None = None


def plugin_samples(
    status: PluginStatus, *, build: Build, errors: Mapping[str, int], loop_restarts: Mapping[str, int], gpus: int
) -> Iterator[Sample]:
    """All samples of the plugin itself."""
    row = PluginLabels(node=status.node, **structs.asdict(build))
    yield Sample(m.ALLOCATE_SECONDS, row, status.allocate)
    yield Sample(m.DEVICE_COUNT, row, gpus)
    yield Sample(m.ALLOCATIONS, row, status.allocations)
    for code, times in sorted(status.failures.items()):
        yield Sample(m.FAILURES, row, times, (code,))
    yield Sample(m.DIRS_REMOVED, row, status.dirs_removed)
    for result in ("success", "failure"):
        yield Sample(m.REGISTRATIONS, row, status.registrations.get(result, 0), (result,))
    yield Sample(m.KUBELET_UP, row, int(status.kubelet_up))
    yield Sample(m.NODE_PATCHES, row, status.node_patches)
    yield Sample(m.API_UP, row, None if status.api_up is None else int(status.api_up))
    yield Sample(m.DRIVER_UP, row, None if status.driver_up is None else int(status.driver_up))
    yield Sample(m.LIMITS, row, int(status.limits))
    yield from _feedback(row, status.feedback)
    for code, times in sorted(errors.items()):
        yield Sample(m.ERRORS, row, times, (code,))
    yield Sample(m.BUILD, row, 1)
    for loop, times in sorted(loop_restarts.items()):
        yield Sample(m.LOOP_RESTARTS, row, times, (loop,))


def _feedback(row: PluginLabels, feedback: FeedbackCounts | None) -> Iterator[Sample]:
    if feedback is None:
        return
    for decision, times in sorted(feedback.moves.items()):
        yield Sample(m.MOVES, row, times, (decision,))
    for state, number in sorted(feedback.states.items()):
        yield Sample(m.STATES, row, number, (state,))
    yield Sample(m.FEEDBACK_FAILURES, row, feedback.failures)


def gpu_samples(node: str, states: Iterable[GpuState]) -> Iterator[Sample]:
    """The samples of each GPU."""
    for state in states:
        row = OfferedGpuLabels(node=node, gpu_uuid=state.gpu.uuid)
        yield Sample(m.HEALTHY, row, int(state.healthy))
        if not state.healthy:
            yield Sample(m.UNHEALTHY, row, 1, (state.reason,))
