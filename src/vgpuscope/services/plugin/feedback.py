"""The priority feedback: every five seconds, HAMi's rule over all regions of the node."""

import logging
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence

from vgpuscope.logic.plugin.feedback import decide, unblocked
from vgpuscope.model.errors import RegionRefused, RegionsAbsent, ScopeError
from vgpuscope.model.plugin import FeedbackDecision, FeedbackMove, FeedbackRegion
from vgpuscope.model.quantity import DeviceUUID, PodUID
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

    def __init__(
        self,
        containers_dir: str,
        *,
        gpus: Callable[[PodUID, str], Container[DeviceUUID]],
        count: Callable[[ScopeError], None],
    ) -> None:
        """`gpus` are those of a container. Its region is its own to write, so it says nothing of other GPUs."""
        self._regions = Regions(containers_dir)
        self._gpus, self._count = gpus, count
        self.containers: frozenset[tuple[PodUID, str]] = frozenset()  # with regions, in the last round
        self._tell = OnChange(log)
        self._moves: Counter[FeedbackMove] = Counter()
        self._failures = 0
        self._blocked: frozenset[str] = frozenset()  # the regions of containers that wait because of us
        self.counts = FeedbackCounts(moves=dict.fromkeys(_MOVES, 0), states={})

    def round(self) -> None:
        """Read all regions, decide, and write what changes. A region that cannot be written affects no other."""
        decisions = decide(self._read())
        self._write(decisions)
        states = {
            "all": len(decisions),
            "active": sum(one.active for one in decisions),
            "blocked": sum(one.blocked for one in decisions),
            "enforced": sum(one.utilization_switch for one in decisions),
        }
        self._publish(states)

    def release(self) -> None:
        """Let all containers go on that wait because of us: after this, nobody would unblock them."""
        mine = [one for one in self._read() if one.path in self._blocked and one.recent_kernel < 0]
        self._write(tuple(unblocked(one) for one in mine))
        self._publish({})

    def _read(self) -> tuple[FeedbackRegion, ...]:
        try:
            found = self._regions.read()
        except RegionsAbsent:  # no container yet
            return ()
        there = [one for one in found.containers if one.region is not None and one.path is not None]
        self.containers = frozenset((one.pod_uid, one.container) for one in there)
        return tuple(_fields(one, self._gpus(one.pod_uid, one.container)) for one in there)

    def _write(self, decisions: Sequence[FeedbackDecision]) -> None:
        for decision, failure in zip(decisions, store(decisions), strict=True):
            self._note(decision, failure)
        self._blocked = frozenset(one.region.path for one in decisions if one.blocked)

    def _publish(self, states: Mapping[str, int]) -> None:
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


def _fields(one: ContainerRegion, own: Container[DeviceUUID]) -> FeedbackRegion:
    region = one.region
    assert region is not None
    assert one.path is not None
    return FeedbackRegion(
        path=one.path,
        devices=tuple(device.uuid for device in region.devices if device.uuid and device.uuid in own),
        priority=region.priority,
        recent_kernel=region.recent_kernel,
        utilization_switch=region.utilization_switch,
    )
