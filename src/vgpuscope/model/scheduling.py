"""How scheduling went, seen from outside: how long each stage took, and how often it failed."""

from typing import Literal, TypeAlias

from msgspec import Struct

from vgpuscope.model.histogram import Histogram
from vgpuscope.model.quantity import Seconds

# filter: HAMi looks for a node. lock: HAMi waits for the node's lock. bind: the pod is bound to the node. Only HAMi
# shows these three. schedule: from creation to binding. start: from binding to the start of the first container.
Step: TypeAlias = Literal["filter", "lock", "bind", "schedule", "start"]
STEPS: tuple[Step, ...] = ("filter", "lock", "bind", "schedule", "start")

# Whole seconds, because the times are: a bound below one second would show a precision that was not measured.
BOUNDS: tuple[Seconds, ...] = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
NOTHING = Histogram.empty(BOUNDS)


class SchedulerResult(Struct, frozen=True, kw_only=True):
    """What one scheduler did since the exporter started."""

    scheduler: str
    steps: dict[Step, Histogram] = {}  # the steps that it is known to have
    bound: int = 0
    failed: int = 0  # failed attempts to bind, or to allocate devices
    refusals: dict[str, int] = {}  # attempts that failed in any way, by code


class SchedulingResult(Struct, frozen=True, kw_only=True):
    """What all schedulers did since the exporter started."""

    filtering: Histogram = NOTHING  # HAMi: from creation, or the attempt before, to the choice of a node
    binding: Histogram = NOTHING  # HAMi: from the choice of a node to the binding, including the wait for the lock
    bound: int = 0
    failed: int = 0
    skipped: int = 0  # impossible durations: negative, or too long
    schedulers: tuple[SchedulerResult, ...] = ()
