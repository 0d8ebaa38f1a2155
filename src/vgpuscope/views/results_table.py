"""Results as a table for the terminal: colour says what the words beside it say too."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from vgpuscope.views.results import ResultRow
from vgpuscope.views.table import table
from vgpuscope.views.top_text import UNKNOWN, clean

_COLOURS = {"in_use": "green", "idle": "yellow", "unknown": "magenta"}


def results_table(rows: Sequence[ResultRow], width: int | None) -> Table:
    """A row for each card or MIG instance, in the order given; where room is short, cards go by node and index."""
    titles = ("NODE", "#", "GPU", "MODEL", "SCORE>", "UTIL>", "MEMORY>", "STATUS", "VERDICT", "CLASS", "SEEN>", _WHO)
    numbered = all(row.gpu_index and not row.mig.startswith("MIG-") for row in rows)
    spared = (
        "MODEL",
        "SEEN>",
        "MEMORY>",
        "STATUS",
        "GPU" if numbered else "#",
        "UTIL>",
        "CLASS" if numbered else "NODE",
    )
    return table(titles, [_cells(row) for row in rows], width, spared=spared)


_WHO = "WHO HAS IT"


def _cells(row: ResultRow) -> list[Text]:
    instance = f"/{row.mig}" if row.mig and not row.mig.startswith("MIG-") else ""
    return [
        Text(clean(row.hostname), "bold"),
        Text(clean(row.gpu_index + instance)),
        Text(clean(row.mig if row.mig.startswith("MIG-") else row.gpu_id + instance)),
        Text(clean(row.model_name), "dim"),
        _number(row.score),
        _number(row.gpu_util, "%"),
        _memory(row),
        Text(row.status),
        Text(row.verdict, _COLOURS[row.verdict]),
        Text(row.use_class, "red" if row.use_class in {"idle-held", "busy-unproductive"} else ""),
        _number(None if row.coverage is None else round(100 * row.coverage), "%"),
        Text(clean(_holders(row)) or UNKNOWN),
    ]


def _number(value: float | None, unit: str = "") -> Text:
    return Text(UNKNOWN, "dim") if value is None else Text(f"{value:g}{unit}")


def _memory(row: ResultRow) -> Text:
    if row.mem_used_mb is None:
        return Text(UNKNOWN, "dim")
    share = "" if row.mem_usage_percent is None else f" {row.mem_usage_percent:.0f}%"
    return Text(f"{row.mem_used_mb / 1024:.1f}Gi{share}")


def _holders(row: ResultRow) -> str:
    return ", ".join(dict.fromkeys(f"{one.namespace}/{one.pod}" for one in row.tenants))
