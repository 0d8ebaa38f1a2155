"""An analysis as the table in the log: gpu-oour's columns, then our verdict.

There is a line for each GPU; in a large fleet only for those with the lowest scores. The tenants of a shared GPU have
their own lines below it.
"""

from collections.abc import Iterator, Sequence

from vgpuscope.views.fleet.results.results import ResultRow, TenantResult, below, low

_MOST = 40  # lines of GPUs; a last line shows how many more there are
_TENANTS = 8  # lines of tenants below a GPU
_NAMED = 3  # tenants in one line
RULE = "=" * 60
TITLE = "GPU Utilization Analysis Results"


def table_lines(rows: Sequence[ResultRow], *, active: int) -> Iterator[str]:
    """The lines, GPUs of low score first. `active`: the number of GPUs that report."""
    yield f"Found {active} active GPUs"
    if not rows:
        return
    yield from (RULE, TITLE, RULE)
    yield _line("Namespace/Pod", "GPU", "Score", "Util", "Mem(MB)", "Status", "Verdict")
    yield "-" * len(RULE)
    for row in rows[:_MOST]:
        yield from _row_lines(row)
    if len(rows) > _MOST:
        yield f"… and {len(rows) - _MOST} more; GET /results has them all"


def low_lines(rows: Sequence[ResultRow], *, threshold: float) -> Iterator[str]:
    """The warning about GPUs below the threshold; the first line calls the score utilization, as gpu-oour does.

    The lines together are those of /results/low. Each head counts the lines below it.
    """
    found, limit = low(rows, threshold=threshold), f"{threshold:g}"
    gpus = [row for row in found if row.kind == "gpu"]
    yield from _group([row for row in gpus if below(row, threshold)], "GPU(s)", f"with utilization below {limit}%")
    yield from _group(
        [row for row in gpus if not below(row, threshold)], "GPU(s)", f"with verdict idle and a score not below {limit}"
    )
    yield from _group(
        [row for row in found if row.kind == "tenant"], "tenant(s)", f"with verdict idle or a score below {limit}"
    )


def _group(rows: Sequence[ResultRow], what: str, which: str) -> Iterator[str]:
    if rows:
        yield f"⚠️  Found {len(rows)} {what} {which}:"
        for row in rows[:_MOST]:
            yield f"  - {_holders(row)} ({_percent(row.score)}) - {_gpu(row)}, verdict {row.verdict}"
        if len(rows) > _MOST:
            yield f"  … and {len(rows) - _MOST} more; GET /results/low has them all"


def _row_lines(row: ResultRow) -> Iterator[str]:
    several = bool(row.tenants) and not row.pod
    holder = f"({len(row.tenants)} tenants)" if several else _holders(row)
    used = (_percent(row.score), _percent(row.gpu_util), _number(row.mem_used_mb))
    yield _line(holder, _gpu(row), *used, row.status, row.verdict)
    if several:
        yield from (_tenant_line(row, tenant) for tenant in row.tenants[:_TENANTS])
        if len(row.tenants) > _TENANTS:
            yield f"  … and {len(row.tenants) - _TENANTS} more tenants of {_gpu(row)}"


def _tenant_line(row: ResultRow, tenant: TenantResult) -> str:
    """A tenant by its own numbers."""
    used = (_percent(tenant.score), _percent(tenant.gpu_util), _number(tenant.mem_used_mb))
    return _line(f"  {tenant.namespace}/{tenant.pod}", _gpu(row), *used, tenant.status, tenant.verdict)


def _line(*cells: str) -> str:
    holder, gpu, score, util, memory, status, verdict = cells
    return f"{holder:<40} {gpu:<40} {score:>7} {util:>7} {memory:>10} {status:<8} {verdict}"


def _holders(row: ResultRow) -> str:
    if not row.tenants:
        return "(no pod)"
    names = [f"{row.namespace}/{row.pod}"] if row.pod else [f"{one.namespace}/{one.pod}" for one in row.tenants]
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _gpu(row: ResultRow) -> str:
    return f"{row.gpu_id}/{row.mig}" if row.mig else row.gpu_id


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}%"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
