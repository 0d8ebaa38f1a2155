"""An analysis and how the analyses went → samples."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from vgpuscope.catalog import analyzer as m
from vgpuscope.catalog.rows import CardRow, FleetRow, GroupRow, SubjectRow, TenantRow
from vgpuscope.model.analysis import STATUSES, USE_CLASSES, VERDICTS, Analysis, GpuUse
from vgpuscope.model.histogram import Histogram
from vgpuscope.model.quantity import MIB, UnixTime
from vgpuscope.views.build import Build
from vgpuscope.views.exposition import Sample
from vgpuscope.views.results import ResultRow, Stats, memory_percent, only_tenant


class Health(Struct, frozen=True, kw_only=True):
    """How the analyses went so far, and the settings they run by."""

    analyses: int
    errors: int
    seconds: Histogram
    dropped: int
    last_success: UnixTime | None
    leader: bool
    threshold: float
    interval: float
    error_counts: Mapping[str, int]


def gpu_samples(gpu: GpuUse) -> Iterator[Sample]:
    """Everything shown of one card, for as long as it is in the fleet."""
    namespace, pod = only_tenant(gpu)
    row = CardRow(gpu_id=gpu.gpu_id, mig=gpu.mig, pod=pod, namespace=namespace, hostname=gpu.hostname, model=gpu.model)
    means = {term: stat.mean for term, stat in gpu.terms.items() if stat.mean is not None}
    yield Sample(m.SCORE, row, None if gpu.score.value is None else round(gpu.score.value, 1), (gpu.status,))
    yield Sample(m.CORE, row, _times(means.get("gpu_util"), 100))
    yield Sample(m.MEMORY_USED, row, _times(means.get("mem_used"), 1 / MIB))
    yield Sample(m.MEMORY_PERCENT, row, memory_percent(gpu.terms))
    yield Sample(m.MEMORY_TOTAL, row, _times(means.get("mem_total"), 1 / MIB))
    yield Sample(m.POWER, row, _times(means.get("power"), 1))
    yield Sample(m.MEMORY_COPY, row, _times(means.get("mem_copy"), 100))
    yield Sample(m.SM_CLOCK, row, _times(means.get("sm_clock"), 1e-6))
    yield from _subject(gpu)
    yield from _tenants(gpu)


def fleet_samples(
    *, build: Build, analysis: Analysis | None, rows: Sequence[ResultRow], stats: Stats, health: Health
) -> Iterator[Sample]:
    """Everything shown of the fleet as a whole, and of the analyzer itself."""
    row = FleetRow(
        version=build.version,
        revision=build.revision,
        build_date=build.build_date,
        python_version=build.python_version,
        compiler=build.compiler,
        platform=build.platform,
    )
    yield Sample(m.BUILD_INFO, row, 1)
    yield from _service(row, build, health)
    if analysis is not None:
        yield from _sums(row, stats, scored=any(one.score is not None for one in rows))
        yield Sample(m.REQUESTS, row, analysis.requests)
        for code, count in _fault_counts(analysis).items():
            yield Sample(m.FAULTS, row, count, (code,))
        for namespace, found in stats.by_namespace.items():
            yield Sample(m.NAMESPACE_COUNT, GroupRow(namespace), found.count)
            yield Sample(m.NAMESPACE_AVERAGE, GroupRow(namespace), found.avg_score)


def _service(row: FleetRow, build: Build, health: Health) -> Iterator[Sample]:
    yield Sample(m.ANALYSES, row, health.analyses)
    yield Sample(m.ANALYSIS_ERRORS, row, health.errors)
    yield Sample(m.ANALYSIS_SECONDS, row, health.seconds)
    yield Sample(m.SERVICE_INFO, row, 1, (build.version, f"{health.threshold:g}", f"{health.interval:g}", "false"))
    yield Sample(m.DROPPED, row, health.dropped)
    yield Sample(m.LAST_SUCCESS, row, health.last_success)
    yield Sample(m.LEADER, row, int(health.leader))
    for code, count in health.error_counts.items():
        yield Sample(m.ERRORS, row, count, (code,))


def _sums(row: FleetRow, stats: Stats, *, scored: bool) -> Iterator[Sample]:
    yield Sample(m.TOTAL, row, stats.total_gpus)
    yield Sample(m.LOW, row, stats.low_utilization_count)
    yield Sample(m.IDLE, row, stats.idle_count)
    yield Sample(m.AVERAGE, row, stats.avg_score if scored else None)
    for status in STATUSES:
        yield Sample(m.STATUS_COUNT, row, stats.by_status.get(status, 0), (status,))
    for verdict in VERDICTS:
        yield Sample(m.GPUS, row, stats.by_verdict.get(verdict, 0), (verdict,))
    for use_class in USE_CLASSES:
        yield Sample(m.CLASSES, row, stats.by_class.get(use_class, 0), (use_class,))


def _subject(gpu: GpuUse) -> Iterator[Sample]:
    row = SubjectRow(gpu_id=gpu.gpu_id, mig=gpu.mig, hostname=gpu.hostname)
    for verdict in VERDICTS:
        yield Sample(m.VERDICT, row, int(gpu.verdict == verdict), (verdict,))
    yield Sample(m.USE_CLASS, row, 1, (gpu.use_class,))
    yield Sample(m.COVERAGE, row, gpu.evidence.coverage)
    yield Sample(m.CONFIDENCE, row, gpu.score.confidence)
    yield Sample(m.AGE, row, gpu.evidence.freshness)
    yield Sample(m.TENANTS, row, len(gpu.tenants))


def _tenants(gpu: GpuUse) -> Iterator[Sample]:
    for use in gpu.tenants:
        if use.own:
            row = TenantRow(
                gpu_id=gpu.gpu_id,
                mig=gpu.mig,
                hostname=gpu.hostname,
                namespace=use.tenant.namespace,
                pod=use.tenant.pod,
                container=use.tenant.container,
            )
            yield Sample(m.TENANT_VERDICT, row, 1, (use.verdict,))


def _times(value: float | None, scale: float) -> float | None:
    return None if value is None else round(value * scale, 3)


def _fault_counts(analysis: Analysis) -> dict[str, int]:
    counts: dict[str, int] = {}
    for fault in analysis.faults:
        counts[fault.code] = counts.get(fault.code, 0) + 1
    return counts
