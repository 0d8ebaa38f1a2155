"""Changes of the objects of a cluster, one type for each kind: an object has a new state, or it was removed.

Added and changed objects are not distinguished, because conclusions depend only on the current objects.
"""

from typing import TypeAlias

from msgspec import Struct

from vgpuscope.model.allocation import NodeState, PodState, QuotaState
from vgpuscope.model.dra import ClaimState, SliceState
from vgpuscope.model.quantity import PodUID


class NodeSet(Struct, frozen=True):
    node: NodeState


class NodeGone(Struct, frozen=True):
    name: str


class PodSet(Struct, frozen=True):
    pod: PodState


class PodGone(Struct, frozen=True):
    uid: PodUID


class QuotaSet(Struct, frozen=True):
    quota: QuotaState


class QuotaGone(Struct, frozen=True):
    namespace: str
    name: str


class SliceSet(Struct, frozen=True):
    slice: SliceState


class SliceGone(Struct, frozen=True):
    name: str


class ClaimSet(Struct, frozen=True):
    claim: ClaimState


class ClaimGone(Struct, frozen=True):
    uid: str


ObjectSet: TypeAlias = NodeSet | PodSet | QuotaSet | SliceSet | ClaimSet
DraEvent: TypeAlias = SliceSet | SliceGone | ClaimSet | ClaimGone
ClusterEvent: TypeAlias = NodeSet | NodeGone | PodSet | PodGone | QuotaSet | QuotaGone | DraEvent
