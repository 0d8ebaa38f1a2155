"""Whether a pod would fit, where its replicas would go, and what would make it fit if it does not. Advice only."""

from typing import Literal, TypeAlias

from msgspec import Struct

from vgpuscope.model.placement import ChosenGpu, NodeVerdict
from vgpuscope.model.quantity import DeviceUUID, PodUID

RemedyKind: TypeAlias = Literal[
    "smaller",  # the largest request that fits, if only one amount of it changes
    "relax",  # the constraints that keep the pod away
    "end",  # the fewest idle pods whose end would free the room
    "move",  # the fewest pods whose move to other GPUs would free the room
]
# What a remedy changes. `exclusive` is a request for all cores of a GPU, `cordon` is on the GPUs, not on the pod.
RemedySubject: TypeAlias = Literal[
    "memory",
    "percentage",
    "cores",
    "count",
    "type",
    "uuid",
    "mode",
    "numa-bind",
    "mutex",
    "exclusive",
    "quota",
    "cordon",
    "pods",
]


class ReplicaPlace(Struct, frozen=True, kw_only=True):
    """Where one replica would go."""

    replica: int  # from 0
    node: str
    gpus: tuple[ChosenGpu, ...]
    score: float | None = None


class NodeLack(Struct, frozen=True, kw_only=True):
    """What a node lacks for the pod; the nodes with the smallest lack come first."""

    node: str
    code: str
    message: str
    message_zh: str = ""  # "": there is only English
    memory: int | None = None  # MiB more on the GPU that comes closest; None: memory is not what lacks
    cores: int | None = None  # percent more on the GPU that comes closest
    gpus: int | None = None  # more GPUs that fit


class NamedPod(Struct, frozen=True, kw_only=True):
    """A pod that holds GPUs."""

    uid: PodUID
    namespace: str
    name: str
    node: str


class PodMove(Struct, frozen=True, kw_only=True):
    """A pod that would have to move: restarted elsewhere, since GPU memory cannot be moved."""

    pod: NamedPod
    node: str  # the new one, which can be the same
    gpus: tuple[ChosenGpu, ...]


class Remedy(Struct, frozen=True, kw_only=True):
    """One change after which the pod fits, with nothing else changed."""

    kind: RemedyKind
    subjects: tuple[RemedySubject, ...]  # one, or two constraints that have to be relaxed together
    container: str = ""  # the container whose request changes
    value: int | None = None  # the amount that fits: MiB, percent or GPUs
    quota: dict[str, int] = {}  # the limits that would be needed, by resource
    devices: tuple[DeviceUUID, ...] = ()  # the GPUs to uncordon
    pods: tuple[NamedPod, ...] = ()  # to end
    moves: tuple[PodMove, ...] = ()
    node: str  # where the pod would go then
    gpus: tuple[ChosenGpu, ...]
    message: str
    message_zh: str


class FitReport(Struct, frozen=True, kw_only=True):
    """The answer to `what if`. Remedies and lacks are about the first replica that does not fit."""

    namespace: str
    name: str
    replicas: int
    fitting: int  # how many of them fit
    places: tuple[ReplicaPlace, ...] = ()
    policy: str = ""
    nodes: tuple[NodeVerdict, ...] = ()  # of all candidates, for the first replica that does not fit
    lacks: tuple[NodeLack, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    cut: bool = False  # a search was stopped at its limit; without `nodes`, the other replicas were not tried
