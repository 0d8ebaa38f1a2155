"""One node as the scheduler counts it: its NVIDIA GPUs, and how much of each is allocated.

Scores are computed with 32-bit floats as HAMi does, so that the same nodes and GPUs have equal scores.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from struct import Struct as Packing
from typing import TypeAlias

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


# What the checks of a GPU and its place in the order depend on: why no pod can have a share of it ("": pods can), type
# and mode, UUID, used slots, slots, memory, free memory (both MiB, less than 0 if over-allocated), cores, free cores,
# NUMA node, index, used memory slices in MIG mode. A plain tuple is unpacked in a third of the time of a named one.
GpuRow: TypeAlias = tuple[str, tuple[str, str], DeviceUUID, int, int, int, int, int, int, int, int, tuple[Span, ...]]


def with_share(row: GpuRow, memory: int, cores: int, placement: Span | None = None) -> GpuRow:
    """The same GPU with one more share allocated."""
    out_of_service, kind, uuid, used, slots, total, free, all_cores, free_cores, numa, index, placed = row
    if placement is not None:
        placed = (*placed, placement)
    free, free_cores = free - memory, free_cores - cores
    return out_of_service, kind, uuid, used + 1, slots, total, free, all_cores, free_cores, numa, index, placed


def gpu_score(row: GpuRow, weights: GpuWeights = EVEN) -> float:
    """How full a GPU is, by HAMi's formula; 0 if it registers no slots, cores or memory."""
    _, _, _, used, slots, total, free, all_cores, free_cores, _, _, _ = row
    if not (slots and all_cores and total):
        return 0.0
    shares = (used / slots, (all_cores - free_cores) / all_cores, (total - free) / total)
    slot, core, memory = _FLOATS.unpack(_FLOATS.pack(*shares))
    if weights is not EVEN:
        each = _FLOATS.unpack(_FLOATS.pack(weights.slot, weights.core, weights.memory))
        weighted = (each[0] * slot, each[1] * core, each[2] * memory)
        slot, core, memory = _FLOATS.unpack(_FLOATS.pack(*weighted))
    return f32(10 * f32(f32(slot + core) + memory))


class GpuInfo:
    """One GPU with its usage. Never changed."""

    __slots__ = (
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
        "row",
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
        self.row = self._row()

    def uncordoned(self) -> "GpuInfo":
        made = GpuInfo.__new__(GpuInfo)
        for name in GpuInfo.__slots__:
            setattr(made, name, getattr(self, name))
        made.cordoned = False
        made.row = made._row()
        return made

    def _row(self) -> GpuRow:
        return (
            out_of_service(self),
            (self.type, self.mode),
            self.id,
            self.used,
            self.slots,
            self.memory,
            self.memory - self.used_memory,
            self.cores,
            self.cores - self.used_cores,
            self.numa,
            self.index,
            self.placed,
        )


class NodeInfo:
    """The GPUs of one node, and the node's score, at one moment. Never changed: a change makes another one."""

    __slots__ = (
        "_orders",
        "by_numa",
        "emptiest",
        "gpus",
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
        self.rows = tuple([gpu.row for gpu in self.gpus])
        self.emptiest = _emptiest(self.rows)
        self.by_numa = _by_numa(self.rows)
        self.most_memory = max((gpu.memory for gpu in self.gpus), default=0)

    def order(self, key: object, compute: Callable[[Sequence[GpuRow]], list[int]]) -> list[int]:
        """The order of the GPUs for a policy, computed once for each `key`."""
        found = self._orders.get(key)
        if found is None:
            if len(self._orders) >= _MOST_ORDERS:
                self._orders.clear()
            found = self._orders[key] = compute(self.rows)
        return found

    def uncordoned(self) -> "NodeInfo":
        """The same node with no GPU cordoned."""
        made = NodeInfo.__new__(NodeInfo)
        for name in NodeInfo.__slots__:
            setattr(made, name, getattr(self, name))
        made.gpus = tuple(gpu.uncordoned() for gpu in self.gpus)
        made.rows = tuple([gpu.row for gpu in made.gpus])
        made.emptiest = _emptiest(made.rows)
        made.by_numa = _by_numa(made.rows)
        return made


def out_of_service(gpu: GpuInfo) -> str:
    """Why no pod can have a share of the GPU; "": pods can."""
    if not gpu.healthy or gpu.unsure:
        return NOT_HEALTHY
    if gpu.cordoned:
        return CORDONED
    return HELD_BY_CLAIM if gpu.claimed else ""


def _emptiest(rows: Sequence[GpuRow]) -> GpuRow | None:
    """The emptiest GPU of a node whose GPUs are all in service, with a free slot, of one kind and one size.

    The memory that it lacks, all lack. None: the GPUs differ, so each has to be looked at.
    """
    kinds = {(row[0], row[3] < row[4], row[1], row[5]) for row in rows}
    return emptiest_of(rows) if len(kinds) == 1 and kinds.pop()[:2] == ("", True) else None


def _by_numa(rows: Sequence[GpuRow]) -> tuple[Sequence[GpuRow], ...]:
    """The GPUs of each NUMA node."""
    found: dict[int, list[GpuRow]] = {}
    for row in rows:
        found.setdefault(row[9], []).append(row)
    return tuple(found.values())


def emptiest_of(rows: Sequence[GpuRow]) -> GpuRow:
    """The GPU with the most free memory."""
    return max(rows, key=itemgetter(6))


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
