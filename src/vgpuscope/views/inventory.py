"""The ledger of the cluster as two tables: one row for each node, one row for each device."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from rich.table import Table
from rich.text import Text

from vgpuscope.model.cluster import Capacity, DeviceLedger, Holder, NodeLedger
from vgpuscope.model.quantity import DeviceUUID, Ratio
from vgpuscope.views.table import table
from vgpuscope.views.top_text import UNKNOWN, clean, percent, size, sizes

_FULL = 0.9  # of a card's memory; from here on a number is coloured


class DeviceRow(Struct, frozen=True, kw_only=True):
    """One device of one node and who holds it; without a ledger the node no longer registers it."""

    node: str
    uuid: DeviceUUID
    ledger: DeviceLedger | None
    holders: tuple[Holder, ...]


def device_rows(nodes: Iterable[NodeLedger]) -> list[DeviceRow]:
    """Every device that is registered or held, node by node."""
    return [row for node in nodes for row in _of_node(node)]


def _of_node(node: NodeLedger) -> Iterator[DeviceRow]:
    held: dict[DeviceUUID, list[Holder]] = {}
    for holder in node.holders:
        held.setdefault(holder.device, []).append(holder)
    ledgers = {one.device.id: one for one in node.devices}
    for uuid in (*ledgers, *sorted(held.keys() - ledgers.keys())):
        yield DeviceRow(node=node.name, uuid=uuid, ledger=ledgers.get(uuid), holders=tuple(held.get(uuid, ())))


# --- nodes -----------------------------------------------------------------------------------------------------------


def nodes_table(nodes: Sequence[NodeLedger], width: int | None) -> Table:
    """A row for each node: what it has, what is given away, what still fits, and what does not add up."""
    titles = ("NODE", "STATE", "CARDS>", "MEMORY>", "FREE SLOTS>", "LARGEST FIT", "FRAGMENTED>", "FINDINGS")
    return table(titles, [_node_cells(node) for node in nodes], width, spared=("FRAGMENTED>", "FREE SLOTS>", "CARDS>"))


def _node_cells(node: NodeLedger) -> list[Text]:
    return [
        Text(clean(node.name), "bold"),
        _state(node),
        *(_capacity_cells(node) if node.devices else [Text(UNKNOWN, "dim")] * 5),
        Text(_findings(node), "red" if node.finding_counts else ""),
    ]


def _state(node: NodeLedger) -> Text:
    if not node.known:
        return Text("unknown", "red")
    words = ["ready" if node.ready else "not ready"] + ([] if node.schedulable else ["cordoned"])
    return Text(", ".join(words), "red" if not node.ready else "" if node.schedulable else "yellow")


def _capacity_cells(node: NodeLedger) -> list[Text]:
    capacity, allocated = node.capacity, sum(one.memory_allocated for one in node.devices)
    total, usable = capacity.total.cards, capacity.usable.cards
    return [
        Text(str(total)) if usable == total else Text(f"{usable} of {total}", "yellow"),
        _share(allocated, capacity.total.memory),
        Text(str(capacity.free.slots)),
        Text(_largest(capacity)),
        Text(percent(capacity.fragmentation)),
    ]


def _largest(capacity: Capacity) -> str:
    """The largest requests for memory and for cores of one card, and how many whole cards one pod can have."""
    if not capacity.largest_memory and not capacity.largest_cores and not capacity.whole_cards:
        return "nothing"
    whole = f", {capacity.whole_cards} whole" if capacity.whole_cards else ""
    return f"{size(capacity.largest_memory)}, {capacity.largest_cores}%{whole}"


def _findings(node: NodeLedger) -> str:
    words = (f"{one.count} {one.kind}{f' ({one.reason})' if one.reason else ''}" for one in node.finding_counts)
    return clean(", ".join(words))


# --- devices ---------------------------------------------------------------------------------------------------------


def gpus_table(rows: Sequence[DeviceRow], width: int | None) -> Table:
    """A row for each device: what it is, how much of it is given away, and to whom."""
    titles = ("NODE", "#>", "UUID", "TYPE", "MODE", "HEALTH", "SLOTS>", "MEMORY>", "CORES>", "HOLDERS")
    # Node and number say which card it is, so its UUID is the first to go.
    return table(titles, [_gpu_cells(row) for row in rows], width, spared=("UUID", "MODE", "TYPE", "CORES>"))


def _gpu_cells(row: DeviceRow) -> list[Text]:
    number, *rest = _device_cells(row.ledger) if row.ledger else _missing_cells()
    holders = ", ".join(dict.fromkeys(_holder(one) for one in row.holders))
    return [Text(clean(row.node), "bold"), number, Text(clean(row.uuid)), *rest, Text(holders)]


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


def _missing_cells() -> list[Text]:
    unknown = Text(UNKNOWN, "dim")
    return [unknown, unknown, unknown, Text("vanished", "red"), unknown, unknown, unknown]


def _holder(holder: Holder) -> str:
    parts = (holder.namespace, holder.pod, holder.container or f"[{holder.container_index}]")
    return clean("/".join(parts)) + (" (init)" if holder.init else "")


# --- cells -----------------------------------------------------------------------------------------------------------


def _share(used: int, total: int) -> Text:
    """So much of so much, and the share of it; above 100 % it says so."""
    ratio: Ratio | None = used / total if total else None
    style = "" if ratio is None or ratio < _FULL else "yellow" if ratio <= 1 else "red"
    return Text(f"{sizes(used, total)} {percent(ratio)}", style)
