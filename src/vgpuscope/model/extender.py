"""What the scheduler extender knows of itself, for its metrics."""

from msgspec import Struct

from vgpuscope.model.histogram import Histogram
from vgpuscope.model.logged_decision import DecisionLogState
from vgpuscope.model.quantity import Seconds
from vgpuscope.model.watch import WatchState


class ExtenderFigures(Struct, frozen=True, kw_only=True):
    """One moment of a running extender."""

    filtering: Histogram
    scoring: Histogram
    binding: Histogram
    queueing: Histogram
    bound: int
    failed: int
    requests: dict[tuple[str, str], int]  # by verb and outcome
    refusals: dict[tuple[str, str], int]  # by verb and code
    node_refusals: dict[str, int]  # by code
    queue: int
    assumed: int
    unsettled: int
    leads: bool
    lease_age: Seconds | None
    lease_transitions: int
    synced: bool
    watches: tuple[WatchState, ...]
    posted: int
    dropped: int
    decisions: int
    errors: dict[str, int]
    restarts: dict[str, int]
    log: DecisionLogState = DecisionLogState()
