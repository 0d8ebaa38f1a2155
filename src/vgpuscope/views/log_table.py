"""An analysis as the table that the log shows: a line for each card, or for a large fleet only for the lowest."""

from collections.abc import Iterator, Sequence

from vgpuscope.views.results import ResultRow, low

_MOST = 40  # lines of cards; what is beyond is counted
RULE = "=" * 60


def table_lines(rows: Sequence[ResultRow]) -> Iterator[str]:
    """The lines, cards of low score first."""
    yield f"Found {len({row.gpu_id for row in rows})} active GPUs"
    if not rows:
        return
    yield f"{'Namespace/Pod':<40} {'Score':>7} {'Util':>7} {'Status':<8} {'Verdict':<8} GPU"
    yield "-" * len(RULE)
    for row in rows[:_MOST]:
        yield (
            f"{_holder(row):<40} {_points(row.score):>7} {_percent(row.gpu_util):>7} {row.status:<8} {row.verdict:<8} "
            f"{_card(row)}"
        )
    if len(rows) > _MOST:
        yield f"… and {len(rows) - _MOST} more; GET /results has them all"


def low_lines(rows: Sequence[ResultRow], *, threshold: float) -> Iterator[str]:
    """What is warned of: cards below the threshold."""
    found = low(rows, threshold=threshold)
    if found:
        yield f"⚠️  Found {len(found)} GPU(s) with utilization below {threshold:g}%:"
        for row in found[:_MOST]:
            yield f"  - {_holder(row)}: score {_points(row.score)}, {row.verdict}, {_card(row)}"
        if len(found) > _MOST:
            yield f"  … and {len(found) - _MOST} more; GET /results/low has them all"


def _holder(row: ResultRow) -> str:
    if not row.tenants:
        return "(nobody)"
    if not row.pod:
        return f"{row.namespace or '*'}/({len(row.tenants)} share it)"
    return f"{row.namespace}/{row.pod}"


def _card(row: ResultRow) -> str:
    return f"{row.gpu_id}/{row.mig}" if row.mig else row.gpu_id


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}%"


def _points(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
