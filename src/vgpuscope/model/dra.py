"""Kubernetes' Dynamic Resource Allocation (DRA): devices that drivers publish in slices, and claims that hold them."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from vgpuscope.model.allocation import Assignment, HeldInstance
from vgpuscope.model.quantity import Bytes, DeviceUUID, PodUID

# A GPU that claims hold and do not share: the whole GPU, or MIG instances whose placements are known.
ExclusiveHold: TypeAlias = Literal["whole", "part"]
ExclusiveHolds: TypeAlias = Mapping[DeviceUUID, ExclusiveHold]

UNUSED = "Unused"  # the phase of a claim listed in place of a pod, because no pod uses the devices that it holds


class DraDevice(Struct, frozen=True, kw_only=True, gc=False):
    """One device that can be allocated: a GPU, or a part of one."""

    name: str
    gpu: str  # the same for all devices of a pool that are on the same GPU
    part: bool = False  # a MIG instance or another partition, existing or possible
    node: str = ""  # "": not tied to one node
    uuid: DeviceUUID = ""
    parent: DeviceUUID = ""  # the GPU, if the part names it
    type: str = ""  # the product
    profile: str = ""
    index: int = 0
    numa: int = 0
    memory: Bytes = 0  # 0: the driver does not report it
    cores: int = 0  # in the driver's own units, of which a claim may consume some; 0: the driver does not count them
    processors: int = 0  # of the GPU or the part, if the driver distinguishes partitions by them
    start: int = 0  # the first memory slice of a partition
    size: int = 0  # the number of its memory slices; 0: the driver does not report it
    slots: int = 1  # how many claims can have it at once
    healthy: bool = True
    cordoned: bool = False


class SliceState(Struct, frozen=True, kw_only=True):
    """One ResourceSlice: some or all devices of a pool. Only the newest generation of a pool is valid."""

    name: str
    driver: str
    pool: str
    generation: int = 0
    devices: tuple[DraDevice, ...] = ()


class ClaimedDevice(Struct, frozen=True, kw_only=True, gc=False):
    """One device allocated to a claim. An amount is the part of a shared device; None: no amount is given."""

    driver: str
    pool: str
    device: str
    memory: Bytes | None = None
    cores: int | None = None  # in the driver's own units
    request: str = ""  # the request of the claim that it serves; a container may use only some requests


class ClaimState(Struct, frozen=True, kw_only=True):
    """One ResourceClaim that holds devices, and the pods that may use them. All of these pods share the devices."""

    uid: str
    namespace: str
    name: str
    node: str = ""  # where its devices can be used; "": not limited to one node
    devices: tuple[ClaimedDevice, ...] = ()
    pods: tuple[PodUID, ...] = ()


class AllocatedClaim(Struct, frozen=True, kw_only=True):
    """All devices of one ResourceClaim. Admin access is for monitoring: it holds nothing."""

    devices: tuple[ClaimedDevice, ...] = ()
    admin: tuple[ClaimedDevice, ...] = ()


class ClaimShare(Struct, frozen=True):
    """What a pod holds through its ResourceClaims, in addition to its own annotations."""

    assignments: tuple[Assignment, ...] = ()
    instances: tuple[HeldInstance, ...] = ()
    node: str = ""  # where the devices are
