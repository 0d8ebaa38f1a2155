"""The processes of `vgpuscope top`: each below its container, those of the host below the memory of the system."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from vgpuscope.model.host import ProcessUse
from vgpuscope.model.quantity import DeviceUUID, Seconds
from vgpuscope.model.usage import ContainerKey, NodeSnapshot
from vgpuscope.views.node.top.rows import Sort, TopRow, ordered
from vgpuscope.views.text import UNKNOWN, clean

_Place = tuple[DeviceUUID, DeviceUUID | None]


def with_processes(table: Sequence[TopRow], snapshot: NodeSnapshot, *, sort: Sort, reverse: bool) -> tuple[TopRow, ...]:
    """The table with a row for each process on a GPU."""
    held: dict[tuple[ContainerKey, _Place], list[ProcessUse]] = {}
    others: dict[DeviceUUID, list[ProcessUse]] = {}
    for process in snapshot.processes:
        if process.key is None:
            others.setdefault(process.gpu, []).append(process)
        else:
            held.setdefault((process.key, (process.gpu, process.mig)), []).append(process)
    found: list[TopRow] = []
    for n, row in enumerate(table):
        found.append(row)
        if row.usage is not None:
            mine = held.get((row.usage.key, (row.usage.gpu, row.usage.mig)), [])
            found += _below(mine, row, snapshot.at, sort=sort, reverse=reverse)
        elif _takes_others(table, n):
            found += _below(others.pop(row.gpu, []), row, snapshot.at, sort=sort, reverse=reverse)
    return tuple(found)


def _takes_others(table: Sequence[TopRow], n: int) -> bool:
    """Processes of no container use memory of the system; where that is not shown, they are the GPU's."""
    row = table[n]
    if row.kind == "system":
        return True
    if row.kind != "gpu":
        return False
    rest = (other.kind for other in table[n + 1 :] if other.gpu == row.gpu)
    return "system" not in rest


def _below(
    processes: Sequence[ProcessUse], parent: TopRow, now: float, *, sort: Sort, reverse: bool
) -> Iterator[TopRow]:
    made = ordered([_row(process, parent, now) for process in processes], sort, reverse)
    whole = parent.kind == "gpu"
    indent = "" if whole else parent.branch.replace("├ ", "│ ").replace("└ ", "  ")
    for n, row in enumerate(made, 1):
        last = n == len(made) and not whole
        yield replace(row, branch=indent + ("└ " if last else "├ "))


def _row(process: ProcessUse, parent: TopRow, now: float) -> TopRow:
    what = process.command_line or process.command or "?"
    return TopRow(
        kind="process",
        name=f"{process.pid} {clean(what)}",
        gpu=process.gpu,
        place=parent.place,
        state=f"uid {process.uid}" if process.uid is not None else None,
        busy=process.sm,
        memory=process.memory,
        age=None if process.started is None else max(0.0, now - process.started),
    )


def short_age(seconds: Seconds | None) -> str:
    """How long a process has run, in at most four cells."""
    if seconds is None:
        return UNKNOWN
    for most, unit, letter in ((100, 1, "s"), (6000, 60, "m"), (172_800, 3600, "h")):
        if seconds < most:
            return f"{seconds // unit:.0f}{letter}"
    return f"{min(seconds // 86400, 999):.0f}d"
