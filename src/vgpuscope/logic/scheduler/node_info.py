"""One node as the scheduler counts it: its NVIDIA GPUs, and how much of each is allocated.

Scores are computed with 32-bit floats as HAMi does, so that the same nodes and GPUs have equal scores.
"""

from collections.abc import Callable, Mapping, Sequence
from struct import Struct as Packing
from typing import NamedTuple

from vgpuscope.knowledge.hami_reasons import CORDONED, HELD_BY_CLAIM, NOT_HEALTHY
from vgpuscope.knowledge.vendors import NVIDIA
from vgpuscope.logic.device_use import Span
from vgpuscope.model.allocation import MigProfile, NodeState, RegisteredDevice
from vgpuscope.model.dra import ExclusiveHold, ExclusiveHolds
from vgpuscope.model.placement import GpuWeights
from vgpuscope.model.quantity import MIB, DeviceUUID

MIG = "mig"
_FLOAT, _FLOATS = Packing("f"), Packing("3f")
EVEN = GpuWeights()
_MOST_ORDERS = 8  # orders of its GPUs that a node keeps


def f32(value: float) -> float:
    """The nearest 32-bit float."""
    return float(_FLOAT.unpack(_FLOAT.pack(value))[0])


class AllocatedAmounts:
    """What pods hold of one device: slots, MiB, percent of cores, and the memory slices of MIG instances.

    `divided` is the number of pods that have MIG instances of it, and `undivided` that of pods that have a share and no
    instance: on a MIG GPU nobody knows which slices they use.
    """

    __slots__ = ("cores", "divided", "memory", "placed", "slots", "undivided")

    def __init__(self) -> None:
        self.slots = self.memory = self.cores = self.divided = self.undivided = 0
        self.placed: tuple[Span, ...] = ()

    @property
    def held(self) -> bool:
        return bool(self.slots or self.placed)

    def copy(self) -> "AllocatedAmounts":
        made = AllocatedAmounts()
        for name in AllocatedAmounts.__slots__:
            setattr(made, name, getattr(self, name))
        return made


class GpuInfo:
    """One GPU with its usage. Never changed: `plus` makes another one."""

    __slots__ = (
        "_score",
        "claimed",
        "cordoned",
        "cores",
        "healthy",
        "id",
        "index",
        "memory",
        "mode",
        "numa",
        "placed",
        "profiles",
        "slots",
        "type",
        "unsure",
        "used",
        "used_cores",
        "used_memory",
    )

    def __init__(
        self,
        device: RegisteredDevice,
        use: AllocatedAmounts | None,
        hold: ExclusiveHold | None = None,
        *,
        strays: bool = False,
    ) -> None:
        """`hold`: claims hold the GPU, or MIG instances of it, and do not share.

        `strays`: a pod of the node has MIG instances of a GPU that the node does not register.
        """
        self.id, self.index, self.numa = device.id, device.index, device.numa
        self.type, self.mode = device.type, device.mode
        self.healthy, self.cordoned = device.healthy, device.cordoned
        # MIG instances of claims leave room only on a GPU that is divided by HAMi, too; their placements are in `use`.
        self.claimed = hold == "whole" or (hold == "part" and device.mode != MIG)
        self.slots, self.cores, self.memory = device.slots, device.cores, device.memory // MIB
        self.profiles = device.profiles
        # An instance may lie anywhere: as HAMi, nothing more is placed there until the pods that have them end.
        if device.mode == MIG:
            self.unsure = strays or (use is not None and use.undivided > 0)
        else:
            self.unsure = use is not None and use.divided > 0
        self.used = use.slots if use else 0
        self.used_cores = use.cores if use else 0
        self.used_memory = use.memory if use else 0
        self.placed = use.placed if use else ()
        self._score: float | None = None

    def plus(self, memory: int, cores: int, placement: Span | None = None) -> "GpuInfo":
        """The same GPU with one more share allocated."""
        made = self._copy()
        made._score = None
        made.used += 1
        made.used_memory += memory
        made.used_cores += cores
        if placement is not None:
            made.placed = (*made.placed, placement)
        return made

    def uncordoned(self) -> "GpuInfo":
        made = self._copy()
        made.cordoned = False
        return made

    def _copy(self) -> "GpuInfo":
        made = GpuInfo.__new__(GpuInfo)
        for name in GpuInfo.__slots__:
            setattr(made, name, getattr(self, name))
        return made

    def score(self, weights: GpuWeights = EVEN) -> float:
        """How full the GPU is, by HAMi's formula; 0 if it registers no slots, cores or memory."""
        if weights is EVEN and self._score is not None:
            return self._score
        if not (self.slots and self.cores and self.memory):
            return 0.0
        shares = (self.used / self.slots, self.used_cores / self.cores, self.used_memory / self.memory)
        slots, cores, memory = _FLOATS.unpack(_FLOATS.pack(*shares))
        if weights is not EVEN:
            each = _FLOATS.unpack(_FLOATS.pack(weights.slot, weights.core, weights.memory))
            weighted = (each[0] * slots, each[1] * cores, each[2] * memory)
            slots, cores, memory = _FLOATS.unpack(_FLOATS.pack(*weighted))
        score = f32(10 * f32(f32(slots + cores) + memory))
        if weights is EVEN:
            self._score = score
        return score


class NodeInfo:
    """The GPUs of one node, and the node's score, at one moment. Never changed: a change makes another one."""

    __slots__ = (
        "_orders",
        "alike",
        "gpus",
        "least_memory",
        "links",
        "mig",
        "most_memory",
        "name",
        "rows",
        "score",
        "terms",
        "types",
        "usable",
    )

    def __init__(
        self, node: NodeState, uses: Mapping[DeviceUUID, AllocatedAmounts], holds: ExclusiveHolds | None = None
    ) -> None:
        """`holds`: the GPUs that claims hold exclusively; None: none of them."""
        self.name = node.name
        unique = {device.id: device for device in reversed(node.devices)}  # as the cluster's ledger counts them
        devices = sorted(unique.values(), key=lambda device: (device.vendor, device.index, device.id))
        strays = any(use.divided and id_ not in unique for id_, use in uses.items())
        self.gpus = tuple(
            GpuInfo(device, uses.get(device.id), holds.get(device.id) if holds else None, strays=strays)
            for device in devices
            if device.vendor == NVIDIA.word
        )
        self.links = node.pair_scores
        # A kubelet that offers 0 rejects every pod; one that says nothing yet may offer them all.
        self.usable = bool(self.gpus) and node.allocatable.get(NVIDIA.count) != 0
        self.terms = _terms(devices, uses)
        slots, cores, memory = self.terms
        self.score = f32(10 * f32(f32(slots + cores) + memory))
        self.types = tuple(sorted({gpu.type for gpu in self.gpus}))
        self._orders: dict[object, list[int]] = {}
        self.mig = any(gpu.mode == MIG for gpu in self.gpus)
        self.rows = tuple([_row(gpu) for gpu in self.gpus])
        self.alike = _alike(self.gpus)
        sizes = [gpu.memory for gpu in self.gpus]
        self.least_memory, self.most_memory = min(sizes, default=0), max(sizes, default=0)

    def order(self, key: object, compute: Callable[[Sequence[GpuInfo]], list[int]]) -> list[int]:
        """The order of the GPUs for a policy, computed once for each `key`."""
        found = self._orders.get(key)
        if found is None:
            if len(self._orders) >= _MOST_ORDERS:
                self._orders.clear()
            found = self._orders[key] = compute(self.gpus)
        return found

    def uncordoned(self) -> "NodeInfo":
        """The same node with no GPU cordoned."""
        made = NodeInfo.__new__(NodeInfo)
        for name in NodeInfo.__slots__:
            setattr(made, name, getattr(self, name))
        made.gpus = tuple(gpu.uncordoned() for gpu in self.gpus)
        made.rows, made.alike = tuple([_row(gpu) for gpu in made.gpus]), _alike(made.gpus)
        return made


def out_of_service(gpu: GpuInfo) -> str:
    """Why no pod can have a share of the GPU; "": pods can."""
    if not gpu.healthy or gpu.unsure:
        return NOT_HEALTHY
    if gpu.cordoned:
        return CORDONED
    return HELD_BY_CLAIM if gpu.claimed else ""


Row = tuple[str, tuple[str, str], DeviceUUID, int, int, int, int, int, int, int]


def _row(gpu: GpuInfo) -> Row:
    """The same as a flat tuple, for the quick check: one look at a tuple is cheaper than nine at an object."""
    return (
        out_of_service(gpu),
        (gpu.type, gpu.mode),
        gpu.id,
        gpu.used,
        gpu.slots,
        gpu.memory,
        gpu.memory - gpu.used_memory,
        gpu.cores,
        gpu.cores - gpu.used_cores,
        gpu.numa,
    )


class UniformGpus(NamedTuple):
    """The bounds of a node whose GPUs are all in service, of one kind and of one size."""

    kind: tuple[str, str]
    memory: int  # MiB of each GPU
    spare_slots: int  # at least, of each GPU
    most_free: int  # MiB of the emptiest GPU
    least_free: int
    least_cores: int  # free percent of the fullest GPU
    free: tuple[int, ...]  # MiB of each GPU


def _alike(gpus: Sequence[GpuInfo]) -> UniformGpus | None:
    """None: the GPUs differ, so each has to be looked at."""
    if not gpus or len({(gpu.type, gpu.mode, gpu.memory, out_of_service(gpu)) for gpu in gpus}) > 1:
        return None
    first, free = gpus[0], [gpu.memory - gpu.used_memory for gpu in gpus]
    if out_of_service(first):
        return None
    return UniformGpus(
        kind=(first.type, first.mode),
        memory=first.memory,
        spare_slots=min(gpu.slots - gpu.used for gpu in gpus),
        most_free=max(free),
        least_free=min(free),
        least_cores=min(gpu.cores - gpu.used_cores for gpu in gpus),
        free=tuple(free),
    )


def _terms(devices: list[RegisteredDevice], uses: Mapping[DeviceUUID, AllocatedAmounts]) -> tuple[float, float, float]:
    """The allocated share of slots, cores and memory over all devices of a node; 0 if a total is 0."""
    slots = sum(device.slots for device in devices)
    cores = sum(device.cores for device in devices)
    memory = sum(device.memory for device in devices) // MIB
    if not (slots and cores and memory):
        return 0.0, 0.0, 0.0
    used = [use for device in devices if (use := uses.get(device.id)) is not None]
    return (
        f32(sum(use.slots for use in used) / slots),
        f32(sum(use.cores for use in used) / cores),
        f32(sum(use.memory for use in used) / memory),
    )


def profiles_by_size(profiles: tuple[MigProfile, ...]) -> list[MigProfile]:
    """The smallest first: by memory, then by slices, then as registered."""
    return sorted(profiles, key=lambda profile: (profile.memory, profile.slices))
