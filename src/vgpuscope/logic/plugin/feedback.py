"""One round of HAMi's priority feedback: who is active on which GPU, who must wait, and whose SM limit is enforced.

recent_kernel    2 after a kernel, counted down by each round; a container is active while it is above 0; -1: blocked
priority         0 is the highest; an active container blocks all of a lower priority on its GPUs
switch           1: the SM limit is enforced, because another container is active on the GPU
"""

from collections import Counter
from collections.abc import Iterable

from vgpuscope.model.plugin import FeedbackDecision, FeedbackRegion
from vgpuscope.model.quantity import DeviceUUID

_BLOCKED = -1


def decide(regions: Iterable[FeedbackRegion]) -> tuple[FeedbackDecision, ...]:
    """The decision about each container, in the order given."""
    counted = [(one, one.recent_kernel - 1 if one.recent_kernel > 0 else one.recent_kernel) for one in regions]
    active = Counter(
        (uuid, one.priority)
        for one, recent in counted
        if recent > 0 and one.priority >= 0
        for uuid in dict.fromkeys(one.devices)
    )
    return tuple(_decision(one, recent, active) for one, recent in counted)


def unblocked(one: FeedbackRegion) -> FeedbackDecision:
    """The decision that lets a container go on, and changes nothing else."""
    return FeedbackDecision(
        region=one, recent_kernel=0, utilization_switch=one.utilization_switch, active=False, blocked=False
    )


def _decision(one: FeedbackRegion, recent: int, active: Counter[tuple[DeviceUUID, int]]) -> FeedbackDecision:
    blocked = any(uuid in one.devices and priority < one.priority for uuid, priority in active)
    crowded = any(active[uuid, one.priority] > 1 for uuid in one.devices)
    is_active = recent > 0
    if blocked:
        recent = min(recent, _BLOCKED)
    elif recent < 0:
        recent = 0
    return FeedbackDecision(
        region=one,
        recent_kernel=recent,
        utilization_switch=1 if blocked or crowded else 0,
        active=is_active,
        blocked=blocked,
    )
