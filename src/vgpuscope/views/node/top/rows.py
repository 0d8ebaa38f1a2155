"""The rows that `vgpuscope top` shows of a node, in numbers: filtered, sorted, and placed below their GPUs."""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from vgpuscope.model.device import MigInstance
from vgpuscope.model.quantity import Bytes, Celsius, DeviceUUID, Joules, Ratio, Seconds, Watts
from vgpuscope.model.usage import ContainerUsage, GpuUsage, Ledger, MigUsage, NodeSnapshot, Split
from vgpuscope.views.text import clean, label, percent

Sort = Literal["gpu", "memory", "sm", "power", "name"]
SORTS: tuple[Sort, ...] = ("gpu", "memory", "sm", "power", "name")

Kind = Literal["gpu", "mig", "container", "process", "system", "unattributed", "free", "ended"]
REST: frozenset[Kind] = frozenset({"system", "unattributed", "free", "ended"})  # rows that belong to no container


class TopRow(Struct, frozen=True, kw_only=True):
    """One line of the table, in numbers. None: not measured."""

    kind: Kind
    name: str
    gpu: DeviceUUID
    place: str = ""  # index of the GPU, and of the MIG instance on it
    usage: ContainerUsage | None = None  # where it came from, for a container
    branch: str = ""  # the lines of the tree before the name
    state: str | None = None
    health: str | None = None
    allocated: bool = True
    busy: Ratio | None = None
    busy_mean: Ratio | None = None
    busy_max: Ratio | None = None
    memory: Bytes | None = None
    memory_total: Bytes | None = None
    power: Watts | None = None
    power_limit: Watts | None = None
    energy: Joules | None = None
    temperature: Celsius | None = None
    processes: int | None = None
    age: Seconds | None = None  # of a process
    method: str | None = None


def rows(
    snapshot: NodeSnapshot, *, sort: Sort = "gpu", reverse: bool = False, pattern: str = "", group: bool = True
) -> tuple[TopRow, ...]:
    """The table of a node: GPUs with their containers, or only the containers."""
    shown = narrowed(snapshot, pattern)
    if not group:
        places = _places(snapshot)
        found = [_container_row(u, places) for u in shown.containers]
        return tuple(ordered(found, sort, reverse))
    whole = {gpu for gpu, n in _counts(snapshot).items() if n == _counts(shown).get(gpu, 0)}
    return tuple(
        row for branch in _branches(shown, sort, reverse) for row in _tree(branch, sort, reverse, branch.gpu in whole)
    )


def narrowed(snapshot: NodeSnapshot, pattern: str) -> NodeSnapshot:
    """The snapshot with only the GPUs and containers that match a pattern; a matching GPU keeps its containers."""
    needle = pattern.strip().casefold()
    if not needle:
        return snapshot
    named = {g.gpu.uuid for g in snapshot.gpus if _names(needle, g.gpu.uuid, g.gpu.model)}
    containers = tuple(
        u for u in snapshot.containers if u.gpu in named or _names(needle, label(u.key), u.key.pod_uid, u.mig or "")
    )
    held = {(u.key, u.gpu) for u in containers}
    pods = {(u.key.pod_uid, u.gpu) for u in containers}
    kept = named | {u.gpu for u in containers} | _gpus_of_instances(snapshot, needle)
    return replace(
        snapshot,
        gpus=tuple(g for g in snapshot.gpus if g.gpu.uuid in kept),
        ledgers=tuple(entry for entry in snapshot.ledgers if entry.gpu in kept),
        containers=containers,
        pods=tuple(p for p in snapshot.pods if (p.pod_uid, p.gpu) in pods),
        vgpus=tuple(v for v in snapshot.vgpus if (v.key, v.gpu) in held),
        migs=tuple(m for m in snapshot.migs if (m.key, m.gpu) in held),
        processes=tuple(
            p for p in snapshot.processes if p.gpu in named or (p.key is not None and (p.key, p.gpu) in held)
        ),
    )


def _names(needle: str, *texts: str) -> bool:
    return any(needle in text.casefold() for text in texts)


def _gpus_of_instances(snapshot: NodeSnapshot, needle: str) -> set[DeviceUUID]:
    return {g.gpu.uuid for g in snapshot.gpus if any(_names(needle, i.uuid) for i in g.gpu.instances)}


def _counts(snapshot: NodeSnapshot) -> dict[DeviceUUID, int]:
    counts = dict.fromkeys((g.gpu.uuid for g in snapshot.gpus), 0)
    for usage in snapshot.containers:
        counts[usage.gpu] = counts.get(usage.gpu, 0) + 1
    return counts


class _Branch(Struct, frozen=True, kw_only=True):
    """A GPU or MIG instance with the rows below it."""

    gpu: DeviceUUID
    row: TopRow
    instances: tuple["_Branch", ...] = ()
    containers: tuple[TopRow, ...] = ()
    ledger: Ledger | None = None


def _branches(snapshot: NodeSnapshot, sort: Sort, reverse: bool) -> list[_Branch]:
    places, ledgers = _places(snapshot), {(entry.gpu, entry.mig): entry for entry in snapshot.ledgers}
    below: dict[tuple[DeviceUUID, DeviceUUID | None], list[TopRow]] = {}
    for usage in snapshot.containers:
        at = usage.mig if (usage.gpu, usage.mig) in places else None
        below.setdefault((usage.gpu, at), []).append(_container_row(usage, places))
    used = {one.mig: one for one in snapshot.instances}
    branches = {g.gpu.uuid: _gpu_branch(g, below, ledgers, used) for g in snapshot.gpus}
    for (gpu, _), held in below.items():
        if gpu not in branches:  # a GPU that the driver no longer lists still has its containers
            row = TopRow(kind="gpu", name=f"? {clean(gpu)}", gpu=gpu, place="?", health="lost")
            branches[gpu] = _Branch(gpu=gpu, row=row, containers=tuple(held), ledger=ledgers.get((gpu, None)))
    by_row = {branch.row: branch for branch in branches.values()}
    return [by_row[row] for row in ordered(list(by_row), sort, reverse)]


def _gpu_branch(
    usage: GpuUsage,
    below: dict[tuple[DeviceUUID, DeviceUUID | None], list[TopRow]],
    ledgers: dict[tuple[DeviceUUID, DeviceUUID | None], Ledger],
    used: dict[DeviceUUID, MigUsage],
) -> _Branch:
    uuid = usage.gpu.uuid
    instances = tuple(
        _Branch(
            gpu=uuid,
            row=_instance_row(usage, i, used.get(i.uuid), held=bool(below.get((uuid, i.uuid)))),
            containers=tuple(below.get((uuid, i.uuid), ())),
            ledger=ledgers.get((uuid, i.uuid)),
        )
        for i in usage.gpu.instances
    )
    return _Branch(
        gpu=uuid,
        row=_gpu_row(usage),
        instances=instances,
        containers=tuple(below.get((uuid, None), ())),
        ledger=ledgers.get((uuid, None)),
    )


def _tree(branch: _Branch, sort: Sort, reverse: bool, whole: bool) -> Iterator[TopRow]:
    """The GPU's row and those below it; rows outside containers are shown only if no container is filtered out."""
    yield branch.row
    children: list[_Branch | TopRow] = [*branch.instances, *ordered(branch.containers, sort, reverse)]
    children += _rest_rows(branch) if whole else ()
    yield from _hang(children, "", sort, reverse, whole)


def _hang(
    children: Sequence[_Branch | TopRow], indent: str, sort: Sort, reverse: bool, whole: bool
) -> Iterator[TopRow]:
    for n, child in enumerate(children, 1):
        last = n == len(children)
        branch = indent + ("└ " if last else "├ ")
        if isinstance(child, TopRow):
            yield replace(child, branch=branch)
            continue
        yield replace(child.row, branch=branch)
        own: list[_Branch | TopRow] = [*ordered(child.containers, sort, reverse)]
        own += _rest_rows(child) if whole and own else ()
        yield from _hang(own, indent + ("  " if last else "│ "), sort, reverse, whole)


def _gpu_row(usage: GpuUsage) -> TopRow:
    gpu, burst = usage.gpu, usage.utilization_burst
    return TopRow(
        kind="gpu",
        name=f"{gpu.index} {clean(gpu.model)}",
        gpu=gpu.uuid,
        place=str(gpu.index),
        state=usage.mode or "free",
        health=gpu.health,
        busy=gpu.utilization,
        busy_mean=burst.mean if burst else None,
        busy_max=burst.max if burst else None,
        memory=gpu.memory.used if gpu.memory else None,
        memory_total=gpu.memory.total if gpu.memory else None,
        power=gpu.power,
        power_limit=gpu.power_limit,
        energy=usage.energy,
        temperature=gpu.temperature,
        processes=None if gpu.processes is None else len(gpu.processes),
    )


def _instance_row(usage: GpuUsage, instance: MigInstance, used: MigUsage | None, *, held: bool) -> TopRow:
    memory, burst = instance.memory, used.engine_burst if used else None
    return TopRow(
        kind="mig",
        name=f"mig {instance.index}" + (f" {clean(instance.profile)}" if instance.profile else ""),
        gpu=usage.gpu.uuid,
        place=f"{usage.gpu.index}:{instance.index}",
        state="in use" if held or instance.processes else "free",
        busy=used.activity.busy if used and used.activity else None,
        busy_mean=burst.mean if burst else None,
        busy_max=burst.max if burst else None,
        energy=used.energy if used else None,
        memory=memory.used if memory else None,
        memory_total=memory.total if memory else None,
        processes=None if instance.processes is None else len(instance.processes),
    )


def _container_row(usage: ContainerUsage, places: dict[tuple[DeviceUUID, DeviceUUID | None], str]) -> TopRow:
    burst = usage.sm_burst
    place = places.get((usage.gpu, usage.mig)) or places.get((usage.gpu, None), "?")
    return TopRow(
        kind="container",
        name=label(usage.key),
        gpu=usage.gpu,
        place=place,
        usage=usage,
        state=usage.state,
        allocated=usage.allocated,
        busy=usage.sm,
        busy_mean=burst.mean if burst else None,
        busy_max=burst.max if burst else None,
        memory=usage.memory,
        memory_total=usage.memory_total,
        power=usage.power,
        energy=usage.energy,
        processes=usage.processes,
        method=_method(usage),
    )


def _method(usage: ContainerUsage) -> str | None:
    """How memory and SM time were found out, how sure that is, and how far the SM time can be off."""
    methods = dict.fromkeys(m for m in (usage.memory_method, usage.sm_method) if m)
    sure = dict.fromkeys(c for c in (usage.memory_certainty, usage.sm_certainty) if c)
    bound = "" if usage.sm_error is None else f"±{percent(usage.sm_error)}"
    return " ".join(filter(None, ("/".join(methods), "/".join(sure), bound))) or None


def _rest_rows(branch: _Branch) -> list[TopRow]:
    """The rows that belong to no container, from the ledger; empty ones are skipped."""
    if branch.ledger is None:
        return []
    memory, energy = branch.ledger.memory, branch.ledger.energy
    parts: tuple[tuple[Kind, Callable[[Split], float | None]], ...] = (
        ("system", lambda s: s.system),
        ("unattributed", lambda s: s.unattributed),
        ("ended", lambda s: s.ended),
        ("free", lambda s: s.free),
    )
    found = []
    for kind, part in parts:
        used, joules = (part(split) if split else None for split in (memory, energy))
        if used or joules:
            total = int(memory.total) if memory else None
            held = None if used is None else int(used)
            row = TopRow(kind=kind, name=kind, gpu=branch.gpu, memory=held, memory_total=total, energy=joules)
            found.append(replace(row, place=branch.row.place))
    return found


def _places(snapshot: NodeSnapshot) -> dict[tuple[DeviceUUID, DeviceUUID | None], str]:
    places: dict[tuple[DeviceUUID, DeviceUUID | None], str] = {}
    for usage in snapshot.gpus:
        places[usage.gpu.uuid, None] = str(usage.gpu.index)
        for instance in usage.gpu.instances:
            places[usage.gpu.uuid, instance.uuid] = f"{usage.gpu.index}:{instance.index}"
    return places


_KEYS: dict[Sort, Callable[[TopRow], float | str | tuple[int, ...] | None]] = {
    "gpu": lambda row: tuple(int(n) if n.isdecimal() else 1 << 30 for n in row.place.split(":")),
    "memory": lambda row: row.memory,
    "sm": lambda row: row.busy,
    "power": lambda row: row.power,
    "name": lambda row: row.name.partition(" ")[2] if row.kind == "gpu" else row.name,
}
DESCENDING = {"memory", "sm", "power"}  # the largest consumers first


def ordered(found: Sequence[TopRow], sort: Sort, reverse: bool) -> list[TopRow]:
    """By one column, the unmeasured last in either direction, equals in the order of place and name."""
    key = _KEYS[sort]
    settled = sorted(found, key=lambda row: (_KEYS["gpu"](row), row.name))
    known = [(value, row) for row in settled if (value := key(row)) is not None]
    known.sort(key=lambda pair: pair[0], reverse=(sort in DESCENDING) != reverse)
    return [row for _, row in known] + [row for row in settled if key(row) is None]
