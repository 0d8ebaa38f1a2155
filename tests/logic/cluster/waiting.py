"""PendingPods beside a cluster's state, wired as in the cluster exporter."""

from typing import Any

from vgpuscope.logic.cluster.pending.pods import PendingPods
from vgpuscope.logic.cluster.state import ClusterState
from vgpuscope.model.allocation import PodState
from vgpuscope.model.cluster_event import PodGone, PodSet


class WaitingPods(PendingPods):
    """Keeps the state up to date before the pods that wait are told."""

    def __init__(self, **bounds: Any) -> None:
        self.state = ClusterState()
        super().__init__(self.state.pods, **bounds)

    def set_pod(self, pod: PodState, now: float) -> None:
        self.state.apply(PodSet(pod))
        super().set_pod(pod, now)

    def drop_pod(self, uid: str, now: float) -> None:
        super().drop_pod(uid, now)
        self.state.apply(PodGone(uid))
