"""Whether GPUs that were assigned to a pod are allocated beyond their capacity: the last check before it is bound."""

from collections.abc import Iterator, Sequence

from vgpuscope.knowledge.hami_reasons import HAMI_REASONS, HELD_BY_CLAIM, NOT_HEALTHY
from vgpuscope.logic.scheduler.node_info import MIG, GpuInfo
from vgpuscope.logic.scheduler.state import SchedulerState
from vgpuscope.model.placement import NodeVerdict
from vgpuscope.model.quantity import PodUID
from vgpuscope.model.verdict_words import Sentence, said


def overfull(state: SchedulerState, uid: PodUID, node: str) -> NodeVerdict | None:
    """Why the pod's GPUs on a node are allocated beyond their capacity; None: they are not."""
    node_info = state.node_info(node)
    if node_info is None:
        return _gone(node, "SCHED_NODE_UNREGISTERED", "bind-node-unknown", node)
    held = {one.device for pod in state.holding(uid) if pod.place == node for one in pod.assignments}
    if not held:
        return _gone(node, "SCHED_BIND_FAILED", "bind-not-held")
    known = {gpu.id: gpu for gpu in node_info.gpus}
    for device in sorted(held):
        gpu = known.get(device)
        if gpu is None:
            return _gone(node, "SCHED_NODE_UNREGISTERED", "bind-gpu-unknown", device)
        if gpu.claimed:
            return _gone(node, HAMI_REASONS[HELD_BY_CLAIM], "bind-claimed", device)
        if gpu.unsure:
            return _gone(node, HAMI_REASONS[NOT_HEALTHY], "bind-unsure", device)
        for code, sentence, used, most in _bounds(gpu):
            if used > most:
                return _gone(node, code, sentence, used, device, most)
    return None


def _gone(node: str, code: str, sentence: Sentence, *values: object) -> NodeVerdict:
    """Why an assignment does not hold any more."""
    words = said(sentence, *map(str, values))
    return NodeVerdict(node=node, code=code, message=words.en, message_zh=words.zh)


def _bounds(gpu: GpuInfo) -> Iterator[tuple[str, Sentence, int, int]]:
    """What may not be exceeded: the code, the sentence, how much is allocated, and how much there is."""
    yield "SCHED_INSUFFICIENT_GPU_MEMORY", "bind-over-memory", gpu.used_memory, gpu.memory
    yield "SCHED_SLOTS_EXHAUSTED", "bind-over-slots", gpu.used, gpu.slots
    if gpu.mode != MIG:
        yield "SCHED_INSUFFICIENT_GPU_CORES", "bind-over-cores", gpu.used_cores, gpu.cores
        return
    # seven 1g instances of 15 % are 105 % of the cores: there the placements are the bound
    yield "SCHED_MIG_INFEASIBLE", "bind-over-slices", *_slices(gpu.placed)


def _slices(placed: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """How many memory slices pods hold, and how many different ones; other pods' annotations name them."""
    different = end = 0
    for first, size in sorted(placed):
        different += max(0, first + size - max(first, end))
        end = max(end, first + size)
    return sum(size for _, size in placed), different
