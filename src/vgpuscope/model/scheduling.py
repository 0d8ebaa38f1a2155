"""How scheduling went, as it is seen from outside: how long each stage took, and how often it failed."""

from typing import Literal, TypeAlias

from msgspec import Struct

from vgpuscope.model.histogram import Histogram
from vgpuscope.model.quantity import Seconds

# filter: a node is looked for. lock: the node is waited for. bind: the pod is given to it. These three only HAMi shows.
# schedule: from creation to the binding. start: from the binding to the first container's start.
Step: TypeAlias = Literal["filter", "lock", "bind", "schedule", "start"]
STEPS: tuple[Step, ...] = ("filter", "lock", "bind", "schedule", "start")

# Whole seconds, because the times are: a bound below one second would say what nobody measured.
BOUNDS: tuple[Seconds, ...] = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
NOTHING = Histogram.empty(BOUNDS)


class SchedulerResult(Struct, frozen=True, kw_only=True):
    """What one scheduler did since the exporter started."""

    scheduler: str
    steps: dict[Step, Histogram] = {}  # those it is known to have
    bound: int = 0
    failed: int = 0  # attempts to bind, or to hand out devices
    refusals: dict[str, int] = {}  # attempts that failed in any way, by code


class SchedulingResult(Struct, frozen=True, kw_only=True):
    """What all schedulers did since the exporter started."""

    filtering: Histogram = NOTHING  # HAMi: creation, or the attempt before, to the choice of a node
    binding: Histogram = NOTHING  # HAMi: the choice of a node to the binding, the wait for the lock included
    bound: int = 0
    failed: int = 0
    skipped: int = 0  # durations that cannot be: they would be negative, or too long to be true
    schedulers: tuple[SchedulerResult, ...] = ()
