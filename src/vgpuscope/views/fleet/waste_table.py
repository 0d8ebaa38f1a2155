"""Idle GPU-hours as a table for the terminal, with the sums of the whole fleet below."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from vgpuscope.model.waste import GroupBy, Waste, WasteRow
from vgpuscope.model.words import Language
from vgpuscope.views.languages import Pair, lasting, one_of
from vgpuscope.views.table import TableColumn, table
from vgpuscope.views.text import UNKNOWN, clean, size

_NOW = {"idle": "yellow", "in_use": "green", "unknown": "magenta", "ended": "dim"}
_COLUMNS = (  # who wastes how much is what the command is for
    TableColumn(("IDLE GPU-H", "空闲 GPU 小时"), right=True),
    TableColumn(("HELD GPU-H", "持有 GPU 小时"), right=True, hide=4),
    TableColumn(("IDLE", "空闲率"), right=True, hide=7),
    TableColumn(("GPUS", "GPU"), right=True, hide=2),
    TableColumn(("PODS", "POD"), right=True, hide=1),
    TableColumn(("MEAN MEMORY", "平均显存"), right=True, hide=3),
    TableColumn(("NOW", "现状"), hide=6),
    TableColumn(("IDLE FOR", "已空闲"), right=True, hide=5),
)
_NAMES: dict[GroupBy, Pair] = {
    "tenant": ("TENANT (OWNER)", "租户（所有者）"),
    "namespace": ("NAMESPACE", "命名空间"),
    "owner": ("OWNER", "所有者"),
    "node": ("NODE", "节点"),
    "model": ("MODEL", "型号"),
}
_TEXTS: dict[str, Pair] = {
    "more": ("({n} more: use --limit {all} or --json)", "（另有 {n} 个：使用 --limit {all} 或 --json）"),
    "without": ("({n} without idle GPU-hours: see --json)", "（{n} 个没有空闲 GPU 小时：见 --json）"),
    "idle": ("idle", "空闲"),
    "in_use": ("in use", "使用中"),
    "unknown": ("unknown", "未知"),
    "ended": ("ended", "已结束"),
    "no_history": (
        "Idle GPU-hours are unknown: this analyzer stores no results (analyzer.history is none).",
        "空闲 GPU 小时未知：该分析器不保存结果（analyzer.history 为 none）。",
    ),
    "no_results_of": (
        "No pod of namespace {namespace} has held a GPU since {begin}.",
        "自 {begin} 起，命名空间 {namespace} 没有 Pod 持有过 GPU。",
    ),
    "no_results": ("No results are stored since {begin}.", "自 {begin} 起没有保存的结果。"),
    "nobody": ("No tenant was idle.", "没有空闲的租户。"),
    "analysed": (
        "Since {begin}: {all:.1f} GPU-hours analysed, {held:.1f} held by pods, {free:.1f} not allocated.",
        "自 {begin} 起：分析了 {all:.1f} GPU 小时，其中 Pod 持有 {held:.1f}，未分配 {free:.1f}。",
    ),
    "of_held": (
        "Of the held GPU-hours: {used:.1f} in use, {idle:.1f} idle, {unknown:.1f} unknown{rest}.",
        "持有的 GPU 小时中：使用中 {used:.1f}，空闲 {idle:.1f}，未知 {unknown:.1f}{rest}。",
    ),
    "rest": (", {n:.1f} free parts of shared GPUs", "，共享 GPU 的空闲部分 {n:.1f}"),
}


def waste_table(
    found: Waste, width: int | None, language: Language = "en", *, limit: int, namespace: str | None = None
) -> Group:
    """The rows with idle GPU-hours, most first; the others as one row; and the totals of all GPU-hours."""
    idle = [row for row in found.rows if row.idle_gpu_hours]
    folded = [row for row in found.rows if not row.idle_gpu_hours]
    parts: list[RenderableType] = []
    if found.rows:
        rows = [_cells(row, found, language) for row in idle[:limit]]
        if len(idle) > limit:
            rows.append(_together(idle[limit:], _text("more", language, n=len(idle) - limit, all=len(idle))))
        if folded:
            rows.append(_together(folded, _text("without", language, n=len(folded))))
        name = TableColumn(_NAMES[found.group_by], form="name", least=28)
        parts.append(table((*_COLUMNS, name), rows, width, language))
    return Group(*parts, *_sums(found, language, namespace))


def _text(name: str, language: Language, **values: object) -> str:
    return one_of(_TEXTS[name], language).format(**values)


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
        Text(name, "dim"),
    ]


def _gpu_hours(number: float) -> Text:
    return Text(f"{number:.2f}" if number >= 0.005 or not number else "<0.01", "bold")


def _cells(row: WasteRow, found: Waste, language: Language) -> list[Text]:
    held = row.memory_held
    return [
        _gpu_hours(row.idle_gpu_hours),
        _gpu_hours(row.held_gpu_hours),
        Text(f"{100 * row.idle_ratio:.0f}%"),
        Text(str(row.gpus)),
        Text(str(row.pods)),
        Text(UNKNOWN, "dim") if held is None else Text(size(held)),
        Text(_text(row.verdict, language), _NOW[row.verdict]),
        Text("") if row.idle_since is None else Text(_age(row.idle_since, found.end, language)),
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


def _age(since: str, now: str, language: Language) -> str:
    return lasting((datetime.fromisoformat(now) - datetime.fromisoformat(since)).total_seconds(), language)


def _sums(found: Waste, language: Language, namespace: str | None) -> Iterable[Text]:
    if found.rows:
        yield Text()
    elif not found.history:
        yield Text(_text("no_history", language))
        return
    elif not found.gpu_hours:
        name = "no_results_of" if namespace else "no_results"
        yield Text(_text(name, language, begin=found.begin, namespace=clean(namespace or "")))
        return
    else:
        yield Text(_text("nobody", language))
    held, free = found.held_gpu_hours, found.unallocated_gpu_hours
    yield Text(_text("analysed", language, begin=found.begin, all=found.gpu_hours, held=held, free=free))
    parts = (
        found.free_part_gpu_hours
    )  # memory limits of tenants can add up to less than the GPU: no tenant has the rest
    rest = _text("rest", language, n=parts) if parts >= _SHOWN else ""
    used, idle, unknown = found.in_use_gpu_hours, found.idle_gpu_hours, found.unknown_gpu_hours
    yield Text(_text("of_held", language, used=used, idle=idle, unknown=unknown, rest=rest))


_SHOWN = 0.05  # GPU-hours
