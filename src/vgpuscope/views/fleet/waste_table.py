"""Idle GPU-hours as a table for the terminal, with the sums of the whole fleet below."""

from collections.abc import Iterable, Sequence
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
    """The rows with idle GPU-hours, most first; the others as one row; and the totals of all GPU-hours."""
    idle = [row for row in found.rows if row.idle_gpu_hours]
    folded = [row for row in found.rows if not row.idle_gpu_hours]
    parts: list[RenderableType] = []
    if found.rows:
        titles = (
            "IDLE GPU-H>", "HELD GPU-H>", "IDLE>", "GPUS>", "PODS>", "MEAN MEMORY>", "NOW", "IDLE FOR>",
            _WHAT[found.group_by],
        )  # fmt: skip
        rows = [_cells(row, found) for row in idle[:limit]]
        rows += [_together(idle[limit:], f"{len(idle) - limit} more: use --limit {len(idle)} or --json")] * (
            len(idle) > limit
        )
        rows += [_together(folded, f"{len(folded)} without idle GPU-hours: see --json")] * bool(folded)
        parts.append(table(titles, rows, width, spared=("PODS>", "GPUS>", "MEAN MEMORY>")))
    return Group(*parts, *_sums(found))


def _together(rows: Sequence[WasteRow], name: str) -> list[Text]:
    """Rows that are not shown separately; their GPUs can be the same, so they are not counted."""
    idle, held = (sum(getattr(row, of) for row in rows) for of in ("idle_gpu_hours", "held_gpu_hours"))
    known = [row.memory_held for row in rows if row.memory_held is not None]
    return [
        _gpu_hours(idle),
        _gpu_hours(held),
        Text(f"{100 * idle / held:.0f}%" if held else UNKNOWN),
        Text(""),
        Text(""),
        Text(size(sum(known))) if known else Text(UNKNOWN, "dim"),
        Text(""),
        Text(""),
        Text(f"({name})", "dim"),
    ]


def _gpu_hours(number: float) -> Text:
    return Text(f"{number:.2f}" if number >= 0.005 or not number else "<0.01", "bold")


def _cells(row: WasteRow, found: Waste) -> list[Text]:
    held = row.memory_held
    return [
        _gpu_hours(row.idle_gpu_hours),
        _gpu_hours(row.held_gpu_hours),
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
    """The memory limits of tenants can add up to less than the GPU: no tenant has the rest."""
    rest = found.free_part_gpu_hours
    return f", {rest:.1f} free parts of shared GPUs" if rest >= _SHOWN else ""


_SHOWN = 0.05  # GPU-hours
