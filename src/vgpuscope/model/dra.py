"""What Kubernetes' own device allocation says: devices that drivers publish in slices, and claims that hold them."""

from msgspec import Struct

from vgpuscope.model.allocation import Assignment, HeldInstance
from vgpuscope.model.quantity import Bytes, DeviceUUID, PodUID

UNUSED = "Unused"  # the phase of a claim that stands in the place of a pod, because no pod uses what it holds


class DraDevice(Struct, frozen=True, kw_only=True, gc=False):
    """One device that can be allocated: a GPU, or a part of one."""

    name: str
    card: str  # the same for all devices of a pool that are made of the same GPU
    part: bool = False  # a MIG instance or another partition, existing or possible
    node: str = ""  # "": on no node in particular
    uuid: DeviceUUID = ""
    parent: DeviceUUID = ""  # the GPU, where a part names it
    type: str = ""  # the product
    profile: str = ""
    index: int = 0
    numa: int = 0
    memory: Bytes = 0  # 0: the driver does not say
    cores: int = 0  # in the driver's own units, of which a claim may consume some; 0: it does not count them
    processors: int = 0  # of the GPU or the part, where drivers tell partitions apart by them
    start: int = 0  # the first memory slice of a partition
    size: int = 0  # how many it has; 0: the driver does not say
    slots: int = 1  # how many claims can have it at once
    healthy: bool = True
    cordoned: bool = False


class SliceState(Struct, frozen=True, kw_only=True):
    """One ResourceSlice: some or all devices of a pool. Of a pool only the newest generation counts."""

    name: str
    driver: str
    pool: str
    generation: int = 0
    devices: tuple[DraDevice, ...] = ()


class ClaimedDevice(Struct, frozen=True, kw_only=True, gc=False):
    """One device that a claim was given. An amount is what it consumes of a shared one; None: it names no amount."""

    driver: str
    pool: str
    device: str
    memory: Bytes | None = None
    cores: int | None = None  # in the driver's own units


class ClaimState(Struct, frozen=True, kw_only=True):
    """One ResourceClaim that holds devices, and the pods that may use them. All of these share what it holds."""

    uid: str
    namespace: str
    name: str
    node: str = ""  # where its devices can be used; "": not on one node only
    devices: tuple[ClaimedDevice, ...] = ()
    pods: tuple[PodUID, ...] = ()


class ClaimShare(Struct, frozen=True):
    """What a pod holds through its ResourceClaims, beside what its own annotations say."""

    assignments: tuple[Assignment, ...] = ()
    instances: tuple[HeldInstance, ...] = ()
    node: str = ""  # where the devices are
