"""The ledger of the cluster as two tables: one row for each node, one row for each GPU.

GPUs that are only counted (nodes without HAMi) share one row: the API server does not know which of them a pod has.
Notes below the table explain unexpected values.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from rich.console import Group, RenderableType
from rich.text import Text

from vgpuscope.model.cluster import Capacity, DeviceLedger, Holder, NodeLedger, OfferLedger, memory_of_all
from vgpuscope.model.quantity import DeviceUUID, Ratio
from vgpuscope.model.words import Language
from vgpuscope.views.cluster.inventory_words import finding, lost, word
from vgpuscope.views.pairs import Sentence
from vgpuscope.views.table import TableColumn, table
from vgpuscope.views.text import UNKNOWN, clean, percent, size, sizes

_FULL = 0.9  # of a GPU's memory; numbers from here on are coloured
_FEW = 3  # nodes named in a note
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


def held_in(rows: Iterable[InventoryDevice], namespace: str) -> list[InventoryDevice]:
    """The devices that a pod of this namespace holds, with all their holders."""
    found = []
    for row in rows:
        spaces = {one.namespace for one in row.holders}
        spaces |= {one.namespace for one in row.counted.holders} if row.counted else set()
        if namespace in spaces:
            found.append(row)
    return found


# --- nodes -----------------------------------------------------------------------------------------------------------

_NODE_COLUMNS = (  # what still fits is what the command is for
    TableColumn(("NODE", "节点"), form="name"),
    TableColumn(("STATE", "状态"), hide=4),
    TableColumn(("GPUS", "GPU"), right=True, form="names", least=16),
    TableColumn(("MEMORY", "显存"), right=True, hide=3),
    TableColumn(("FREE SLOTS", "空闲份数"), right=True, hide=2),
    TableColumn(("LARGEST FIT", "最大可容纳"), form="text", least=21),
    TableColumn(("FRAGMENTED", "碎片率"), right=True, hide=1),
    TableColumn(("FINDINGS", "对账发现"), form="names", least=17),
)


def nodes_table(nodes: Sequence[NodeLedger], width: int | None, language: Language = "en") -> RenderableType:
    """A row for each node: its GPUs, what is allocated, what still fits, and findings."""
    drawn = table(_NODE_COLUMNS, [_node_cells(node, language) for node in nodes], width, language)
    scaled = _scaled(((node.name, node.devices) for node in nodes), language)
    return _with_notes(drawn, (*_fragmented(nodes, language), *scaled), language)


def _node_cells(node: NodeLedger, language: Language) -> list[Text]:
    if node.devices:
        cells = _capacity_cells(node, language)
    else:
        cells = _offer_cells(node, language) if node.offers else [Text(UNKNOWN, "dim")] * 5
    found = (finding(one.kind, one.reason, one.count, language) for one in node.finding_counts)
    findings = Text(clean(word("and", language).join(found)), "red")
    return [Text(clean(node.name), "bold"), _state(node, language), *cells, findings]


def _state(node: NodeLedger, language: Language) -> Text:
    if not node.known:
        return Text(word("unknown", language), "red")
    state = word("ready" if node.ready else "not_ready", language)
    cordoned = "" if node.schedulable else word("cordoned", language)
    return Text(state + cordoned, "red" if not node.ready else "" if node.schedulable else "yellow")


def _capacity_cells(node: NodeLedger, language: Language) -> list[Text]:
    """The cells of registered GPUs; counted GPUs of another vendor are added where numbers can be added."""
    capacity, allocated = node.capacity, sum(one.memory_allocated for one in node.devices)
    fits = (_largest(capacity, language), *(_offer_fit(one, language) for one in node.offers if one.free))
    return [
        _number(node, language),
        _share(allocated, capacity.total.memory),
        Text(str(capacity.free.slots + sum(one.free for one in node.offers))),
        Text(word("and", language).join(fits)),
        Text(percent(capacity.fragmentation)),
    ]


def _largest(capacity: Capacity, language: Language) -> str:
    """The largest requests for memory and for cores of one GPU, and how many whole GPUs one pod can have."""
    if not capacity.largest_memory and not capacity.largest_cores and not capacity.whole_cards:
        return word("nothing", language)
    whole = [word("whole", language, n=capacity.whole_cards)] if capacity.whole_cards else []
    return word("and", language).join((size(capacity.largest_memory), f"{capacity.largest_cores}%", *whole))


# --- counted GPUs ----------------------------------------------------------------------------------------------------


def _offer_cells(node: NodeLedger, language: Language) -> list[Text]:
    join, offers = word("and", language).join, node.offers
    return [
        _number(node, language),
        _offer_memory(offers),
        Text(str(sum(one.free for one in offers))),
        Text(join(_offer_fit(one, language) for one in offers if one.free) or word("nothing", language)),
        Text(UNKNOWN, "dim"),
    ]


def _number(node: NodeLedger, language: Language) -> Text:
    """`4`, `3 of 4`; with MIG instances `5 (3 instances)`, or at least `≥3 (2 instances)`; else `16 shares`."""
    gpus = node.gpus
    number = ("" if gpus.exact else "≥") + _of(gpus.usable, gpus.number, language)
    shares = [word("shares", language, n=one.offer.capacity) for one in node.offers if one.gpus is None]
    shown = word("and", language).join([number, *shares] if gpus.number else shares)
    if gpus.instances:
        instances = _of(gpus.usable_instances, gpus.instances, language)
        shown += word("one_instance" if instances == "1" else "instances", language, n=instances)
    lost_some = any(one.lost or one.offer.allocatable < one.offer.capacity for one in node.offers)
    return Text(shown, "yellow" if lost_some or gpus.usable < gpus.number else "")


def _of(usable: int, total: int, language: Language) -> str:
    return str(total) if usable == total else word("part_of", language, n=usable, all=total)


def _offer_fit(one: OfferLedger, language: Language) -> str:
    """How much of the resource a pod can have, in the resource's own unit."""
    if one.offer.mode == "mig":
        return clean(f"{one.free}× {one.offer.profile or 'MIG'}")
    if one.offer.mode == "whole":
        return word("whole", language, n=one.whole)
    return word("shares_of", language, n=one.free, all=one.offer.capacity)


def _offer_memory(offers: Sequence[OfferLedger]) -> Text:
    """Requested and total memory; only the total for shared GPUs, whose pods have no memory limit."""
    total = memory_of_all([one.memory_total for one in offers])
    used = memory_of_all([one.memory_requested for one in offers])
    if total is None:
        return Text(UNKNOWN, "dim")
    return Text(sizes(None, total)) if used is None else _share(used, total)


# --- devices ---------------------------------------------------------------------------------------------------------

_GPU_COLUMNS = (  # node and number identify the GPU, so the UUID is the first that is hidden
    TableColumn(("NODE", "节点"), form="name"),
    TableColumn(("#", "#"), right=True),
    TableColumn(("UUID", "UUID"), hide=1),
    TableColumn(("TYPE", "型号"), hide=5),
    TableColumn(("MODE", "模式"), hide=2),
    TableColumn(("HEALTH", "健康"), form="text", least=14),
    TableColumn(("SLOTS", "份数"), right=True, hide=4),
    TableColumn(("MEMORY", "显存"), right=True),
    TableColumn(("CORES", "算力"), right=True, hide=3),
    TableColumn(("HOLDERS", "持有者"), form="names", least=32),
)


def gpus_table(rows: Sequence[InventoryDevice], width: int | None, language: Language = "en") -> RenderableType:
    """A row for each GPU: its model, how much of it is allocated, and its holders."""
    drawn = table(_GPU_COLUMNS, [_gpu_cells(row, language) for row in rows], width, language)
    scaled = _scaled(((row.node, [row.ledger] if row.ledger else []) for row in rows), language)
    counted = [(row.node, word("counted", language)) for row in rows if row.counted]
    return _with_notes(drawn, (*scaled, *counted), language)


def _gpu_cells(row: InventoryDevice, language: Language) -> list[Text]:
    if row.counted:
        number, *rest = _counted_cells(row.counted, language)
        holders = [clean(f"{one.namespace}/{one.pod}") + _times(one.count) for one in row.counted.holders]
    else:
        number, *rest = _device_cells(row.ledger, language) if row.ledger else _missing_cells(language)
        holders = list(dict.fromkeys(_holder(one) for one in row.holders))
    uuid = Text(clean(row.uuid)) if row.uuid else Text(UNKNOWN, "dim")
    return [Text(clean(row.node), "bold"), number, uuid, *rest, Text(", ".join(holders))]


def _device_cells(one: DeviceLedger, language: Language) -> list[Text]:
    device = one.device
    return [
        Text(str(device.index)),
        Text(clean(device.type)),
        Text(clean(device.mode) or UNKNOWN),
        Text(word("ok", language))
        if one.lost is None
        else Text(lost(one.lost, language), "red" if one.lost == "unhealthy" else "yellow"),
        Text(f"{one.shared}/{device.slots}", "red" if one.shared > device.slots else ""),
        _share(one.memory_allocated, device.memory),
        Text(f"{one.cores_allocated}/{device.cores}%", "red" if one.cores_allocated > device.cores else ""),
    ]


def _counted_cells(one: OfferLedger, language: Language) -> list[Text]:
    offer = one.offer
    mode = f"mig {offer.profile}".rstrip() if offer.mode == "mig" else offer.mode
    return [
        Text(UNKNOWN if one.gpus is None else f"×{one.gpus}"),
        Text(clean(offer.type) or UNKNOWN),
        Text(clean(mode) + (_times(offer.replicas) if offer.replicas else "")),
        _counted_health(one, language),
        Text(f"{one.requested}/{offer.capacity}", "red" if one.requested > offer.capacity else ""),
        _of_profile(offer.profile, _offer_memory([one])),
        Text(UNKNOWN, "dim"),
    ]


def _of_profile(profile: str, memory: Text) -> Text:
    """The memory of MIG instances, behind their profile: rows of the same node differ in nothing else."""
    if not profile:
        return memory
    return Text(clean(profile)) if memory.plain == UNKNOWN else Text(f"{clean(profile)} ").append_text(memory)


def _counted_health(one: OfferLedger, language: Language) -> Text:
    if one.lost:
        return Text(lost(one.lost, language), "yellow")
    missing = one.offer.capacity - one.offer.allocatable
    return Text(word("some_unhealthy", language, n=missing), "red") if missing > 0 else Text(word("ok", language))


def _missing_cells(language: Language) -> list[Text]:
    unknown = Text(UNKNOWN, "dim")
    return [unknown, unknown, unknown, Text(word("vanished", language), "red"), unknown, unknown, unknown]


def _holder(holder: Holder) -> str:
    parts = (holder.namespace, holder.pod, holder.container or f"[{holder.container_index}]")
    return clean("/".join(parts)) + (" (init)" if holder.init else "")


def _times(count: int) -> str:
    return f" ×{count}" if count > 1 else ""


# --- notes -----------------------------------------------------------------------------------------------------------


def _with_notes(drawn: RenderableType, notes: Sequence[tuple[str, str]], language: Language) -> RenderableType:
    """The table, and below it each note once, with the nodes it is about."""
    about: dict[str, dict[str, None]] = {}
    for node, note in notes:
        about.setdefault(note, {})[node] = None
    if not about:
        return drawn
    lines = (word("about", language, nodes=_named(list(nodes), language), note=note) for note, nodes in about.items())
    return Group(drawn, "", *(Sentence(line, "dim") for line in lines))


def _named(nodes: Sequence[str], language: Language) -> str:
    rest = len(nodes) - _FEW
    more = word("and_more", language, n=rest, all=len(nodes)) if rest > 0 else ""
    return clean(word("comma", language).join(nodes[:_FEW])) + more


def _fragmented(nodes: Iterable[NodeLedger], language: Language) -> Iterator[tuple[str, str]]:
    for node in nodes:
        if (node.capacity.fragmentation or 0) >= _ALL_IN_PIECES:
            yield node.name, word("fragmented", language)


def _scaled(nodes: Iterable[tuple[str, Iterable[DeviceLedger]]], language: Language) -> Iterator[tuple[str, str]]:
    for name, devices in nodes:
        for one in devices:
            device = one.device
            if device.memory_scaling and device.physical:
                factor, most, physical = f"{device.memory_scaling:.3g}", size(device.memory), size(device.physical)
                yield name, word("scaled", language, factor=factor, most=most, physical=physical)


# --- cells -----------------------------------------------------------------------------------------------------------


def _share(used: int, total: int) -> Text:
    """Used of total, and the share, which can exceed 100 %."""
    ratio: Ratio | None = used / total if total else None
    style = "" if ratio is None or ratio < _FULL else "yellow" if ratio <= 1 else "red"
    return Text(f"{sizes(used, total)} {percent(ratio)}", style)
