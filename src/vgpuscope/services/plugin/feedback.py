"""The priority feedback: every five seconds, HAMi's rule over all regions of the node."""

import logging
from collections import Counter
from collections.abc import Callable

from vgpuscope.logic.plugin.feedback import decide
from vgpuscope.model.errors import RegionRefused, RegionsAbsent, ScopeError
from vgpuscope.model.plugin import FeedbackDecision, FeedbackMove, FeedbackRegion
from vgpuscope.model.region import ContainerRegion
from vgpuscope.runtime.log import DETAIL, OnChange, fields
from vgpuscope.sinks.regions import store
from vgpuscope.sources.node.regions import Regions
from vgpuscope.views.plugin.metrics import FeedbackCounts

log = logging.getLogger(__name__)

EVERY = 5.0  # seconds, as HAMi's monitor: a container counts as active for one round after its last kernel
_MOVES: tuple[FeedbackMove, ...] = ("block", "unblock", "enforce", "release")


class Feedback:
    """The rounds so far. One thread at a time may run a round."""

    def __init__(self, containers_dir: str, *, count: Callable[[ScopeError], None]) -> None:
        self._regions = Regions(containers_dir)
        self._count = count
        self._tell = OnChange(log)
        self._moves: Counter[FeedbackMove] = Counter()
        self._failures = 0
        self.counts = FeedbackCounts(moves=dict.fromkeys(_MOVES, 0), states={})

    def round(self) -> None:
        """Read all regions, decide, and write what changes. A region that cannot be written affects no other."""
        try:
            found = self._regions.read()
        except RegionsAbsent:  # no container yet
            containers: tuple[ContainerRegion, ...] = ()
        else:
            containers = found.containers
        decisions = decide(_fields(one) for one in containers if one.region is not None and one.path is not None)
        for decision, failure in zip(decisions, store(decisions), strict=True):
            self._note(decision, failure)
        states = {
            "all": len(decisions),
            "active": sum(one.active for one in decisions),
            "blocked": sum(one.blocked for one in decisions),
            "enforced": sum(one.utilization_switch for one in decisions),
        }
        moves = {move: self._moves[move] for move in _MOVES}
        self.counts = FeedbackCounts(moves=moves, states=states, failures=self._failures)

    def _note(self, decision: FeedbackDecision, failure: str) -> None:
        path = decision.region.path
        if failure:
            self._failures += 1
            values = {"path": path, "err": failure, "error_code": RegionRefused.code}
            if self._tell.tell(path, failure, level=logging.WARNING, message="region not written", **values):
                self._count(RegionRefused(failure))
            return
        self._tell.forget(path)
        for move in decision.moves:
            self._moves[move] += 1
            log.log(DETAIL, "feedback", extra=fields(decision=move, path=path, priority=decision.region.priority))


def _fields(one: ContainerRegion) -> FeedbackRegion:
    region = one.region
    assert region is not None
    assert one.path is not None
    return FeedbackRegion(
        path=one.path,
        devices=tuple(device.uuid for device in region.devices if device.uuid),
        priority=region.priority,
        recent_kernel=region.recent_kernel,
        utilization_switch=region.utilization_switch,
    )
