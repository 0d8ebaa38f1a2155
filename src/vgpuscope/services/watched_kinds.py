"""The kinds of objects of a cluster that services watch and fold, built in one place for all of them."""

import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from vgpuscope.formats.kube import dra, objects
from vgpuscope.model.allocation import NodeState, QuotaState
from vgpuscope.model.cluster_event import (
    ClaimGone,
    ClaimSet,
    ClusterEvent,
    NodeGone,
    NodeSet,
    ObjectSet,
    QuotaGone,
    QuotaSet,
    SliceGone,
    SliceSet,
)
from vgpuscope.model.dra import ClaimState, SliceState
from vgpuscope.model.quantity import Seconds
from vgpuscope.services.watch import RETRY, WatchedKind, WatchGroup

SLICES, CLAIMS = DRA_KINDS = ("resourceslices", "resourceclaims")
_DRA = WatchGroup("resource.k8s.io", ("v1", "v1beta2", "v1beta1"))


class ObjectFold(Protocol):
    """What holds the objects: the state of the cluster exporter, or that of the scheduler extender."""

    def apply(self, event: ClusterEvent) -> None: ...

    def keeps(self, event: ObjectSet) -> bool: ...


class KindBuilder:
    """Makes the watched kinds of one service, whose changes go to `fold`. Each kind is stored there and only there."""

    def __init__(
        self,
        fold: ObjectFold,
        *,
        resync: Seconds,
        retry: tuple[Seconds, Seconds] = RETRY,
        clock: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        """`retry` is the first and the longest pause before a watch is retried."""
        self._apply, self._keeps = fold.apply, fold.keeps
        self.kind = partial(WatchedKind, resync=resync, retry=retry, clock=clock)  # any kind, with these settings

    def nodes(self) -> WatchedKind[NodeState]:
        return self.kind(
            "nodes",
            decoders=(objects.decode_nodes, objects.decode_node_event),
            key=lambda node: node.name,
            keep=lambda node: self._apply(NodeSet(node)),
            drop=lambda name: self._apply(NodeGone(name)),
            kept=lambda node: self._keeps(NodeSet(node)),
        )

    def quotas(self, namespace: str = "") -> WatchedKind[QuotaState]:
        return self.kind(
            "resourcequotas",
            namespace=namespace,
            decoders=(objects.decode_quotas, objects.decode_quota_event),
            key=lambda quota: f"{quota.namespace}/{quota.name}",
            keep=lambda quota: self._apply(QuotaSet(quota)),
            drop=lambda key: self._apply(QuotaGone(*key.split("/", 1))),
            kept=lambda quota: self._keeps(QuotaSet(quota)),
        )

    def slices(self) -> WatchedKind[SliceState]:
        """The ResourceSlices, if the API server serves them."""
        return self.kind(
            SLICES,
            group=_DRA,
            decoders=(dra.decode_slices, dra.decode_slice_event),
            key=lambda found: found.name,
            keep=lambda found: self._apply(SliceSet(found)),
            drop=lambda name: self._apply(SliceGone(name)),
            kept=lambda found: self._keeps(SliceSet(found)),
        )

    def claims(self, namespace: str = "") -> WatchedKind[ClaimState]:
        """The ResourceClaims that hold devices, if the API server serves them."""
        return self.kind(
            CLAIMS,
            namespace=namespace,
            group=_DRA,
            decoders=(dra.decode_claims, dra.decode_claim_event),
            key=lambda claim: claim.uid,
            keep=lambda claim: self._apply(ClaimSet(claim)),
            drop=lambda uid: self._apply(ClaimGone(uid)),
            kept=lambda claim: self._keeps(ClaimSet(claim)),
        )
