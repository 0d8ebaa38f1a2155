"""Capacity that can still be allocated: of a node, of a GPU type, of the cluster.

A node's capacity is computed from its GPUs. The capacity of GPU types and of the cluster is a running sum: a node is
added or subtracted, so a change on one node costs only the work for that node.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias, get_args

from msgspec import structs

from vgpuscope.knowledge.vendors import BY_WORD
from vgpuscope.model.cluster import Amount, Capacity, DeviceLedger, LostReason, NodeLedger
from vgpuscope.model.quantity import Bytes

_TypeKey: TypeAlias = tuple[str, str]  # vendor, type
_ALL: _TypeKey = ("", "")

_PARTS = ("total", "allocated", "free", "stranded", "mig", "over", "whole")
_REASONS: tuple[LostReason, ...] = get_args(LostReason)
_NOTHING = Amount()


class _Sums:
    """Running sums of amounts; holds only the parts that were added."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: dict[str, list[int]] = {}

    def add(self, part: str, gpus: int, slots: int, memory: Bytes, cores: int) -> None:
        sums = self.parts.get(part)
        if sums is None:
            self.parts[part] = [gpus, slots, memory, cores]
        else:
            sums[0] += gpus
            sums[1] += slots
            sums[2] += memory
            sums[3] += cores

    def add_all(self, capacity: Capacity, sign: int) -> None:
        for part in _PARTS:
            self._add_amount(part, getattr(capacity, part), sign)
        for reason, amount in capacity.lost.items():
            self._add_amount(reason, amount, sign)

    def _add_amount(self, part: str, amount: Amount, sign: int) -> None:
        if amount is not _NOTHING:
            self.add(part, sign * amount.cards, sign * amount.slots, sign * amount.memory, sign * amount.cores)

    def amount(self, part: str) -> Amount:
        sums = self.parts.get(part)
        return Amount(*sums) if sums and any(sums) else _NOTHING

    def capacity(self, key: _TypeKey, *, largest_memory: Bytes, largest_cores: int, whole_cards: int) -> Capacity:
        return Capacity(
            vendor=key[0],
            type=key[1],
            total=self.amount("total"),
            lost={reason: amount for reason in _REASONS if (amount := self.amount(reason)) is not _NOTHING},
            allocated=self.amount("allocated"),
            free=self.amount("free"),
            stranded=self.amount("stranded"),
            mig=self.amount("mig"),
            over=self.amount("over"),
            whole=self.amount("whole"),
            largest_memory=largest_memory,
            largest_cores=largest_cores,
            whole_cards=whole_cards,
        )


def node_capacity(devices: Sequence[DeviceLedger]) -> tuple[Capacity, tuple[Capacity, ...]]:
    """The capacity of one node: in total, and for each GPU type."""
    gpus: dict[_TypeKey, list[DeviceLedger]] = {}
    for one in devices:
        gpus.setdefault((one.device.vendor, one.device.type), []).append(one)
    types = tuple(_capacity(key, gpus[key]) for key in sorted(gpus))
    if len(types) == 1:
        return structs.replace(types[0], vendor="", type=""), types
    sums = _Sums()
    whole: dict[str, int] = {}  # by vendor: a pod requests GPUs of one vendor, of any type
    for one_type in types:
        sums.add_all(one_type, 1)
        whole[one_type.vendor] = whole.get(one_type.vendor, 0) + one_type.whole_cards
    return (
        sums.capacity(
            _ALL,
            largest_memory=max((one_type.largest_memory for one_type in types), default=0),
            largest_cores=max((one_type.largest_cores for one_type in types), default=0),
            whole_cards=max(whole.values(), default=0),
        ),
        types,
    )


def _capacity(key: _TypeKey, devices: Iterable[DeviceLedger]) -> Capacity:
    """Adds each GPU's total, and what is left of it, to the right part of the sums."""
    sums = _Sums()
    largest_memory = largest_cores = 0
    for one in devices:
        slots, memory = one.device.slots, one.device.memory
        cores, cores_taken = _percent(one)
        sums.add("total", 1, slots, memory, cores)
        if one.lost:
            sums.add(one.lost, 1, slots, memory, cores)
            continue
        sums.add("allocated", int(one.shared > 0), one.shared, one.memory_allocated, cores_taken)
        beyond = (one.shared - slots, one.memory_allocated - memory, cores_taken - cores if cores else 0)
        if max(beyond) > 0:
            sums.add("over", 1, *(max(0, amount) for amount in beyond))
        left = (1, one.slots_free, one.memory_free, max(0, cores - cores_taken))
        part = _part(one, cores_left=left[3], cores=cores)
        sums.add(part, *left)
        if part == "free":
            largest_memory = max(largest_memory, left[2])
            largest_cores = max(largest_cores, _largest_cores(left[3], cores=cores, held=one.shared > 0))
            if not one.shared:
                sums.add("whole", *left)
    return sums.capacity(
        key,
        largest_memory=largest_memory,
        largest_cores=largest_cores,
        whole_cards=sums.amount("whole").cards,
    )


def _part(one: DeviceLedger, *, cores_left: int, cores: int) -> str:
    """Whether the rest of a GPU is free or stranded: every request needs a slot, memory and some compute."""
    exhausted = (one.device.memory and not one.memory_free) or (cores and not cores_left)
    if not one.slots_free or exhausted:
        return "stranded"
    return "mig" if one.device.mode == "mig" else "free"


def _percent(one: DeviceLedger) -> tuple[int, int]:
    """A GPU's cores and its allocated cores, in percent of a GPU for every vendor; 0, 0: unknown."""
    vendor = BY_WORD.get(one.device.vendor)
    unit = vendor.core_unit if vendor else "percent"
    if unit == "percent":
        return one.device.cores, one.cores_allocated
    if unit == "mask" or not one.device.cores:
        return 0, 0
    return 100, -(-one.cores_allocated * 100 // one.device.cores)


def _largest_cores(left: int, *, cores: int, held: bool) -> int:
    """The largest request for cores that one GPU accepts: 100 % is exclusive, so a GPU with a holder rejects it."""
    return 99 if held and cores == 100 and left >= 100 else min(left, 100)


class CapacityTotals:
    """The capacity of the cluster and of each type of GPU, kept up to date node by node."""

    def __init__(self) -> None:
        self._sums: dict[_TypeKey, _Sums] = {}
        self._nodes: dict[_TypeKey, dict[str, Capacity]] = {}

    def put(self, node: NodeLedger) -> None:
        """Replace the node's previous capacity by its current one."""
        self.drop(node.name)
        for capacity in (node.capacity, *node.types):
            if capacity.total.cards:
                key = (capacity.vendor, capacity.type) if capacity is not node.capacity else _ALL
                self._sums.setdefault(key, _Sums()).add_all(capacity, 1)
                self._nodes.setdefault(key, {})[node.name] = capacity

    def drop(self, name: str) -> None:
        """Remove the node, if it is known."""
        for key in [key for key, nodes in self._nodes.items() if name in nodes]:
            nodes = self._nodes[key]
            self._sums[key].add_all(nodes.pop(name), -1)
            if not nodes:
                del self._nodes[key], self._sums[key]

    def cluster(self) -> Capacity:
        """All nodes together; a request must still fit on one of them."""
        return self._total(_ALL) if _ALL in self._sums else Capacity()

    def types(self) -> tuple[Capacity, ...]:
        """The same, for each type of GPU."""
        return tuple(self._total(key) for key in sorted(self._sums) if key != _ALL)

    def _total(self, key: _TypeKey) -> Capacity:
        nodes = self._nodes[key].values()
        return self._sums[key].capacity(
            key,
            largest_memory=max(node.largest_memory for node in nodes),
            largest_cores=max(node.largest_cores for node in nodes),
            whole_cards=max(node.whole_cards for node in nodes),
        )
