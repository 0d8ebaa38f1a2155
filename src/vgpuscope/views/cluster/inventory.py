"""The ledger of the cluster as two tables: one row for each node, one row for each GPU.

GPUs that are only counted (nodes without HAMi) share one row: the API server does not know which of them a pod has.
Notes below the table explain unexpected values.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from vgpuscope.model.cluster import Capacity, DeviceLedger, Holder, NodeLedger, OfferLedger, memory_of_all
from vgpuscope.model.quantity import DeviceUUID, Ratio
from vgpuscope.views.table import table
from vgpuscope.views.text import UNKNOWN, clean, percent, size, sizes

_FULL = 0.9  # of a GPU's memory; numbers from here on are coloured
_FEW = 3  # nodes named in a note
_WIDE = 110  # cells: a narrower terminal has no room for the kinds of findings
_ALL_IN_PIECES = 0.995  # from here on, 100 % is shown


class InventoryDevice(Struct, frozen=True, kw_only=True):
    """One device of one node and its holders; without a ledger, the node no longer registers it.

    Or all counted GPUs of one resource: then the UUID is empty, and `counted` has their number and the pods that
    request them.
    """

    node: str
    uuid: DeviceUUID
    ledger: DeviceLedger | None
    holders: tuple[Holder, ...]
    counted: OfferLedger | None = None


def device_rows(nodes: Iterable[NodeLedger]) -> list[InventoryDevice]:
    """Every device that is registered, held or counted, node by node."""
    return [row for node in nodes for row in _of_node(node)]


def _of_node(node: NodeLedger) -> Iterator[InventoryDevice]:
    held: dict[DeviceUUID, list[Holder]] = {}
    for holder in node.holders:
        held.setdefault(holder.device, []).append(holder)
    ledgers = {one.device.id: one for one in node.devices}
    for uuid in (*ledgers, *sorted(held.keys() - ledgers.keys())):
        yield InventoryDevice(node=node.name, uuid=uuid, ledger=ledgers.get(uuid), holders=tuple(held.get(uuid, ())))
    for one in node.offers:
        yield InventoryDevice(node=node.name, uuid="", ledger=None, holders=(), counted=one)


# --- nodes -----------------------------------------------------------------------------------------------------------


def nodes_table(nodes: Sequence[NodeLedger], width: int | None) -> RenderableType:
    """A row for each node: its GPUs, what is allocated, what still fits, and findings."""
    apart = (
        width is not None and width < _WIDE
    )  # then a row has the number of findings, and notes below list their kinds
    last = "FOUND" if apart else "FINDINGS"
    titles = ("NODE", "STATE", "GPUS>", "MEMORY>", "FREE SLOTS>", "LARGEST FIT", "FRAGMENTED>", last)
    spared = ("FRAGMENTED>", "FREE SLOTS>", "LARGEST FIT", "STATE")
    drawn = table(titles, [_node_cells(node, apart=apart) for node in nodes], width, spared=spared)
    found = [(node.name, _findings(node)) for node in nodes if node.finding_counts] if apart else []
    scaled = _scaled((node.name, node.devices) for node in nodes)
    return _with_notes(drawn, (*found, *_fragmented(nodes), *scaled))


def _node_cells(node: NodeLedger, *, apart: bool) -> list[Text]:
    if node.devices:
        cells = _capacity_cells(node)
    else:
        cells = _offer_cells(node.offers) if node.offers else [Text(UNKNOWN, "dim")] * 5
    total = sum(one.count for one in node.finding_counts)
    findings = Text(str(total or "") if apart else _findings(node), "red" if total else "")
    return [Text(clean(node.name), "bold"), _state(node), *cells, findings]


def _state(node: NodeLedger) -> Text:
    if not node.known:
        return Text("unknown", "red")
    words = ["ready" if node.ready else "not ready"] + ([] if node.schedulable else ["cordoned"])
    return Text(", ".join(words), "red" if not node.ready else "" if node.schedulable else "yellow")


def _capacity_cells(node: NodeLedger) -> list[Text]:
    """The cells of registered GPUs; counted GPUs of another vendor are added where numbers can be added."""
    capacity, allocated = node.capacity, sum(one.memory_allocated for one in node.devices)
    total, usable = capacity.total.cards, capacity.usable.cards
    counted = [_offer_fit(one) for one in node.offers if one.free]
    return [
        _many(usable, total, extra=[_number(one) for one in node.offers]),
        _share(allocated, capacity.total.memory),
        Text(str(capacity.free.slots + sum(one.free for one in node.offers))),
        Text(", ".join([_largest(capacity), *counted])),
        Text(percent(capacity.fragmentation)),
    ]


def _largest(capacity: Capacity) -> str:
    """The largest requests for memory and for cores of one GPU, and how many whole GPUs one pod can have."""
    if not capacity.largest_memory and not capacity.largest_cores and not capacity.whole_cards:
        return "nothing"
    whole = f", {capacity.whole_cards} whole" if capacity.whole_cards else ""
    return f"{size(capacity.largest_memory)}, {capacity.largest_cores}%{whole}"


def _findings(node: NodeLedger) -> str:
    words = (f"{one.count} {one.kind}{f' ({one.reason})' if one.reason else ''}" for one in node.finding_counts)
    return clean(", ".join(words))


def _many(usable: int, total: int, *, extra: Sequence[str] = ()) -> Text:
    number = str(total) if usable == total else f"{usable} of {total}"
    return Text(", ".join((number, *extra)), "" if usable == total else "yellow")


# --- counted GPUs ----------------------------------------------------------------------------------------------------


def _offer_cells(offers: Sequence[OfferLedger]) -> list[Text]:
    lost = any(one.lost or one.offer.allocatable < one.offer.capacity for one in offers)
    return [
        Text(", ".join(map(_number, offers)), "yellow" if lost else ""),
        _offer_memory(offers),
        Text(str(sum(one.free for one in offers))),
        Text(", ".join(_offer_fit(one) for one in offers if one.free) or "nothing"),
        Text(UNKNOWN, "dim"),
    ]


def _number(one: OfferLedger) -> str:
    """`4`, `3 of 4`, `7 MIG`; for an unknown number of shared GPUs, `16 shares`."""
    total, usable = one.gpus, one.usable
    if total is None or usable is None:
        return f"{one.offer.capacity} shares"
    number = str(total) if usable == total else f"{usable} of {total}"
    return f"{number} MIG" if one.offer.mode == "mig" else number


def _offer_fit(one: OfferLedger) -> str:
    """How much of the resource a pod can have, in the resource's own unit."""
    if one.offer.mode == "mig":
        return clean(f"{one.free}× {one.offer.profile or 'MIG'}")
    return f"{one.whole} whole" if one.offer.mode == "whole" else f"{one.free} of {one.offer.capacity} shares"


def _offer_memory(offers: Sequence[OfferLedger]) -> Text:
    """Requested and total memory; only the total for shared GPUs, whose pods have no memory limit."""
    total = memory_of_all([one.memory_total for one in offers])
    used = memory_of_all([one.memory_requested for one in offers])
    if total is None:
        return Text(UNKNOWN, "dim")
    return Text(sizes(None, total)) if used is None else _share(used, total)


# --- devices ---------------------------------------------------------------------------------------------------------


def gpus_table(rows: Sequence[InventoryDevice], width: int | None) -> RenderableType:
    """A row for each GPU: its model, how much of it is allocated, and its holders."""
    titles = ("NODE", "#>", "UUID", "TYPE", "MODE", "HEALTH", "SLOTS>", "MEMORY>", "CORES>", "HOLDERS")
    # Node and number identify the GPU, so the UUID is the first column to be dropped.
    spared = ("UUID", "MODE", "TYPE", "CORES>")
    drawn = table(titles, [_gpu_cells(row) for row in rows], width, spared=spared, fold=_folded)
    return _with_notes(drawn, (*_scaled((row.node, [row.ledger] if row.ledger else []) for row in rows), *_once(rows)))


def _gpu_cells(row: InventoryDevice) -> list[Text]:
    if row.counted:
        number, *rest = _counted_cells(row.counted)
        holders = [clean(f"{one.namespace}/{one.pod}") + _times(one.count) for one in row.counted.holders]
    else:
        number, *rest = _device_cells(row.ledger) if row.ledger else _missing_cells()
        holders = list(dict.fromkeys(_holder(one) for one in row.holders))
    uuid = Text(clean(row.uuid)) if row.uuid else Text(UNKNOWN, "dim")
    return [Text(clean(row.node), "bold"), number, uuid, *rest, Text(", ".join(holders))]


def _device_cells(one: DeviceLedger) -> list[Text]:
    device = one.device
    return [
        Text(str(device.index)),
        Text(clean(device.type)),
        Text(clean(device.mode) or UNKNOWN),
        Text("ok") if one.lost is None else Text(one.lost, "red" if one.lost == "unhealthy" else "yellow"),
        Text(f"{one.shared}/{device.slots}", "red" if one.shared > device.slots else ""),
        _share(one.memory_allocated, device.memory),
        Text(f"{one.cores_allocated}/{device.cores}%", "red" if one.cores_allocated > device.cores else ""),
    ]


def _counted_cells(one: OfferLedger) -> list[Text]:
    offer = one.offer
    mode = f"mig {offer.profile}".rstrip() if offer.mode == "mig" else offer.mode
    return [
        Text(UNKNOWN if one.gpus is None else f"×{one.gpus}"),
        Text(clean(offer.type) or UNKNOWN),
        Text(clean(mode) + (_times(offer.replicas) if offer.replicas else "")),
        _counted_health(one),
        Text(f"{one.requested}/{offer.capacity}", "red" if one.requested > offer.capacity else ""),
        _offer_memory([one]),
        Text(UNKNOWN, "dim"),
    ]


def _counted_health(one: OfferLedger) -> Text:
    if one.lost:
        return Text(one.lost, "yellow")
    lost = one.offer.capacity - one.offer.allocatable
    return Text(f"{lost} unhealthy", "red") if lost > 0 else Text("ok")


def _missing_cells() -> list[Text]:
    unknown = Text(UNKNOWN, "dim")
    return [unknown, unknown, unknown, Text("vanished", "red"), unknown, unknown, unknown]


def _holder(holder: Holder) -> str:
    parts = (holder.namespace, holder.pod, holder.container or f"[{holder.container_index}]")
    return clean("/".join(parts)) + (" (init)" if holder.init else "")


def _folded(holders: Text, room: int) -> Text:
    """Each holder on a line of its own; a longer name is broken after a / or -, and continues indented."""
    lines: list[str] = []
    for name in holders.plain.split(", "):
        lines.append("")
        for piece in _PIECES.findall(name):
            if lines[-1].strip() and cell_len(lines[-1] + piece) > room:
                lines.append(" ")
            lines[-1] += piece
    return Text("\n".join(lines), holders.style)


_PIECES = re.compile(r"[^/-]*[/-]|[^/-]+")


def _times(count: int) -> str:
    return f" ×{count}" if count > 1 else ""


# --- notes -----------------------------------------------------------------------------------------------------------


def _with_notes(drawn: RenderableType, notes: Sequence[tuple[str, str]]) -> RenderableType:
    """The table, and below it each note once, with the nodes it is about."""
    about: dict[str, dict[str, None]] = {}
    for node, note in notes:
        about.setdefault(note, {})[node] = None
    if not about:
        return drawn
    lines = (Text(f"{_named(list(nodes))}: {note}", "dim", overflow="fold") for note, nodes in about.items())
    return Group(drawn, "", *lines)


def _named(nodes: Sequence[str]) -> str:
    rest = len(nodes) - _FEW
    return clean(", ".join(nodes[:_FEW])) + (f" and {rest} more" if rest > 0 else "")


def _fragmented(nodes: Iterable[NodeLedger]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        if (node.capacity.fragmentation or 0) >= _ALL_IN_PIECES:
            yield (
                node.name,
                "100% fragmented. Every GPU with free memory already has a tenant, so no whole GPU is free.",
            )


def _scaled(nodes: Iterable[tuple[str, Iterable[DeviceLedger]]]) -> Iterator[tuple[str, str]]:
    for name, devices in nodes:
        for one in devices:
            device = one.device
            if device.memory_scaling and device.physical:
                yield (
                    name,
                    f"memory scaling ×{device.memory_scaling:.3g}: up to {size(device.memory)} can be allocated on a "
                    f"GPU that has {size(device.physical)}, so a request can be larger than the GPU.",
                )


def _once(rows: Iterable[InventoryDevice]) -> Iterator[tuple[str, str]]:
    """The note about rows of counted GPUs."""
    for row in rows:
        if row.counted:
            yield row.node, "GPUs are counted from capacity and requests. Only the node knows which GPU a pod has."


# --- cells -----------------------------------------------------------------------------------------------------------


def _share(used: int, total: int) -> Text:
    """Used of total, and the share, which can exceed 100 %."""
    ratio: Ratio | None = used / total if total else None
    style = "" if ratio is None or ratio < _FULL else "yellow" if ratio <= 1 else "red"
    return Text(f"{sizes(used, total)} {percent(ratio)}", style)
