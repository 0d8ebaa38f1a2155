"""What a scheduler extender is asked, what it decides, and why.

Memory is in MiB here, the unit of HAMi's annotations and of its arithmetic: percentages are rounded down to whole MiB.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from vgpuscope.model.quantity import DeviceUUID, PodUID, Seconds, UnixTime

NodePolicy: TypeAlias = Literal["binpack", "spread"]
GpuPolicy: TypeAlias = Literal["binpack", "spread", "topology-aware", "mutex", "numa"]
Verb: TypeAlias = Literal["filter", "bind"]
DecisionOutcome: TypeAlias = Literal["assigned", "bound", "refused", "failed"]


class ContainerAsk(Struct, frozen=True, kw_only=True):
    """The GPUs that one container requests."""

    index: int  # init containers first
    name: str
    init: bool = False
    count: int
    memory: int | None = None  # MiB of each GPU; None: by percentage
    percentage: int | None = None  # of each GPU's memory; None with `memory` None: the whole GPU
    cores: int = 0  # percent of each GPU; 0: no reservation


class GpuWeights(Struct, frozen=True):
    """How much slots, cores and memory count in the score of a GPU."""

    slot: int = 1
    core: int = 1
    memory: int = 1


class GpuSelection(Struct, frozen=True, kw_only=True):
    """The GPUs that a pod's annotations allow, and the policies that they name; None: the extender's default."""

    use_types: tuple[str, ...] = ()  # lower case, substrings of a GPU's type
    avoid_types: tuple[str, ...] = ()
    use_uuids: tuple[DeviceUUID, ...] = ()
    avoid_uuids: tuple[DeviceUUID, ...] = ()
    mode: str = ""  # text that contains the GPU's mode; "": any mode
    numa_bind: bool = False
    node_policy: NodePolicy | None = None
    gpu_policy: tuple[GpuPolicy, ...] = ()  # in the order of their precedence
    weights: GpuWeights = GpuWeights()


class Policies(Struct, frozen=True, kw_only=True):
    """The policies for pods whose annotations name none: HAMi's defaults."""

    node: NodePolicy = "binpack"
    gpu: tuple[GpuPolicy, ...] = ("spread",)


class PlacementRequest(Struct, frozen=True, kw_only=True):
    """A pod that requests GPUs."""

    uid: PodUID
    namespace: str
    name: str
    containers: int  # init containers included; each has a segment in the assignment, empty or not
    asks: tuple[ContainerAsk, ...]
    selection: GpuSelection = GpuSelection()


class ChosenGpu(Struct, frozen=True, kw_only=True, gc=False):
    """A share of one GPU for one container. The same GPU can occur more than once, with several MIG instances."""

    container: int  # index, init containers first
    position: int  # among the GPUs of the container
    uuid: DeviceUUID
    memory: int  # MiB
    cores: int
    profile: str = ""  # of a MIG instance
    start: int = 0  # its placement
    size: int = 0


class Verdict(Struct, frozen=True, kw_only=True, gc=False):
    """Why a node was refused, or its score if it was not."""

    code: str = ""  # of docs/scheduling-codes.md; "": the pod fits
    reason: str = ""  # in HAMi's words: 2/2 CardInsufficientMemory
    message: str = ""  # GPU memory insufficient (requested 8000MB, available 4000MB)
    message_zh: str = ""  # the same in Chinese; "": there is only English, such as an answer of the API server
    requested: str = ""  # 8000MB
    available: str = ""  # 4000MB
    score: float | None = None  # None: not ranked


class NodeVerdict(Verdict, frozen=True, kw_only=True, gc=False):
    """The verdict on one node."""

    node: str


class Placement(Struct, frozen=True, kw_only=True):
    """The decision about one pod: a node with GPUs, or the verdicts on all nodes."""

    node: str = ""  # "": no node fits
    gpus: tuple[ChosenGpu, ...] = ()
    score: float | None = None
    policy: str = ""  # binpack/spread: of the node, of the GPUs
    terms: dict[str, float] = {}  # of the node's score: slots, cores, memory
    nodes: tuple[NodeVerdict, ...] = ()  # of all candidates, the chosen one included


class DecidedGpu(Struct, frozen=True, kw_only=True, gc=False):
    """A GPU in the log of decisions."""

    uuid: DeviceUUID
    memory: int  # MiB
    cores: int


class DecisionHead(Struct, frozen=True, kw_only=True):
    """Which decision it is, about which pod, and how it ended."""

    id: str
    at: UnixTime
    verb: Verb
    namespace: str
    pod: str
    pod_uid: PodUID
    outcome: DecisionOutcome


class DecisionFacts(DecisionHead, frozen=True, kw_only=True):
    """A decision without its verdicts on nodes."""

    node: str = ""
    devices: tuple[DecidedGpu, ...] = ()
    score: float | None = None
    policy: str = ""
    terms: dict[str, float] = {}
    seconds: Seconds = 0.0
    request: PlacementRequest | None = None  # what was asked; None: the pod requests no GPU, or was not understood


class Decision(DecisionFacts, frozen=True, kw_only=True):
    """A decision with its verdict on each node."""

    nodes: tuple[NodeVerdict, ...] = ()
