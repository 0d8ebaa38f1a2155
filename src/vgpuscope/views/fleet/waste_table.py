"""Idle GPU-hours as a table for the terminal, with the sums of the whole fleet below."""

from collections.abc import Iterable
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from vgpuscope.model.waste import Waste, WasteRow
from vgpuscope.views.table import table
from vgpuscope.views.text import UNKNOWN, clean, size, span

_NOW = {"idle": "yellow", "in_use": "green", "unknown": "magenta", "ended": "dim"}
_WHAT = {
    "tenant": "TENANT (OWNER)",
    "namespace": "NAMESPACE",
    "owner": "OWNER",
    "node": "NODE",
    "model": "MODEL",
}


def waste_table(found: Waste, width: int | None, *, limit: int) -> Group:
    """The rows, most idle GPU-hours first, and the totals of all GPU-hours."""
    parts: list[RenderableType] = []
    if found.rows:
        titles = ("IDLE GPU-H>", "IDLE>", "GPUS>", "PODS>", "MEMORY>", "NOW", "IDLE FOR>", _WHAT[found.group_by])
        rows = [_cells(row, found) for row in found.rows[:limit]]
        parts.append(table(titles, rows, width, spared=("PODS>", "GPUS>")))
    if len(found.rows) > limit:
        parts.append(Text(f"… and {len(found.rows) - limit} more: use --limit {len(found.rows)} or --json."))
    return Group(*parts, *_sums(found))


def _cells(row: WasteRow, found: Waste) -> list[Text]:
    held = row.memory_held
    return [
        Text(f"{row.idle_gpu_hours:.2f}" if row.idle_gpu_hours >= 0.005 else "<0.01", "bold"),
        Text(f"{100 * row.idle_ratio:.0f}%"),
        Text(str(row.gpus)),
        Text(str(row.pods)),
        Text(UNKNOWN, "dim") if held is None else Text(size(held)),
        Text(row.verdict, _NOW[row.verdict]),
        Text("") if row.idle_since is None else Text(_age(row.idle_since, found.end)),
        _name(row, found),
    ]


def _name(row: WasteRow, found: Waste) -> Text:
    match found.group_by:
        case "tenant":
            name = Text(clean(f"{row.namespace}/{row.pod}"))
            owner = row.owner or ""
            return name if owner in {"", f"Pod/{row.pod}"} else name.append(f" ({clean(owner)})", "dim")
        case "owner":
            return Text(clean(f"{row.namespace}/{row.owner}"))
        case "namespace":
            return Text(clean(row.namespace or ""))
        case "node":
            return Text(clean(row.node or ""))
        case "model":
            return Text(clean(row.model or ""))


def _age(since: str, now: str) -> str:
    return span(max(0.0, (datetime.fromisoformat(now) - datetime.fromisoformat(since)).total_seconds()))


def _sums(found: Waste) -> Iterable[Text]:
    if found.rows:
        yield Text()
    elif not found.history:
        yield Text("Idle GPU-hours are unknown: this analyzer stores no results (analyzer.history is none).")
        return
    elif not found.gpu_hours:
        yield Text(f"No results are stored since {found.begin}.")
        return
    else:
        yield Text("No tenant was idle.")
    yield Text(
        f"Since {found.begin}: {found.gpu_hours:.1f} GPU-hours analysed, {found.held_gpu_hours:.1f} held by pods, "
        f"{found.unallocated_gpu_hours:.1f} not allocated."
    )
    yield Text(
        f"Of the held GPU-hours: {found.in_use_gpu_hours:.1f} in use, {found.idle_gpu_hours:.1f} idle, "
        f"{found.unknown_gpu_hours:.1f} unknown{_rest(found)}."
    )


def _rest(found: Waste) -> str:
    """The memory limits of tenants can add up to less than the GPU: no tenant held the rest."""
    rest = found.held_gpu_hours - found.in_use_gpu_hours - found.idle_gpu_hours - found.unknown_gpu_hours
    return f", {rest:.1f} beyond the limits of the pods that share a GPU" if rest >= _SHOWN else ""


_SHOWN = 0.05  # GPU-hours
