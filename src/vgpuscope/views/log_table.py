"""An analysis as the table that the log shows: a line for each card, or for a large fleet only for the lowest."""

from collections.abc import Iterator, Sequence

from vgpuscope.views.results import ResultRow, low

_MOST = 40  # lines of cards; what is beyond is counted
_RULE = "=" * 100


def table_lines(rows: Sequence[ResultRow]) -> Iterator[str]:
    """The lines, cards of low score first."""
    yield _RULE
    yield "GPU Utilization Analysis Results"
    yield _RULE
    yield f"{'Namespace/Pod':<44} {'GPU':<40} {'Score':>7} {'Util':>7} {'Mem(MB)':>10} {'Status':<8} Verdict"
    yield "-" * 100
    for row in rows[:_MOST]:
        mig = f"/{row.mig}" if row.mig else ""
        yield (
            f"{_holder(row):<44} {row.gpu_id + mig:<40} {_percent(row.score):>7} {_percent(row.gpu_util):>7} "
            f"{_number(row.mem_used_mb):>10} {row.status:<8} {row.verdict}"
        )
    if len(rows) > _MOST:
        yield f"… and {len(rows) - _MOST} more; GET /results has them all"


def low_lines(rows: Sequence[ResultRow], *, threshold: float) -> Iterator[str]:
    """What is warned of: cards below the threshold."""
    found = low(rows, threshold=threshold)
    if found:
        yield f"⚠️  Found {len(found)} GPU(s) with utilization below {threshold:g}%:"
        for row in found[:_MOST]:
            yield f"  - {_holder(row)} ({_percent(row.score)}) - {row.gpu_id} - {row.verdict}"
        if len(found) > _MOST:
            yield f"  … and {len(found) - _MOST} more; GET /results/low has them all"


def _holder(row: ResultRow) -> str:
    if not row.tenants:
        return "(nobody)"
    if row.shared:
        return f"{row.namespace or '*'}/({len(row.tenants)} share it)"
    return f"{row.namespace}/{row.pod}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}%"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
