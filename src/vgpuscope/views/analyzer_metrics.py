"""An analysis and how the analyses went → samples, and the page they are shown on.

What is said of cards is most of the page, and all of it changes with each analysis and with nothing else: it is written
once, compressed, and kept as it is. What is said of the fleet and of the analyzer is little and changes at any time.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Protocol

from msgspec import Struct, structs

from vgpuscope.catalog import analyzer as m
from vgpuscope.catalog.metric import Exposed, Metric
from vgpuscope.catalog.rows import CardRow, FleetRow, GroupRow, SubjectRow, TenantRow
from vgpuscope.model.analysis import STATUSES, USE_CLASSES, VERDICTS, Analysis, GpuUse
from vgpuscope.model.histogram import Histogram
from vgpuscope.model.quantity import MIB, Bytes, UnixTime
from vgpuscope.views import textline
from vgpuscope.views.build import Build
from vgpuscope.views.exposition import Sample
from vgpuscope.views.results import Stats, memory_percent, only_tenant


class Health(Struct, frozen=True, kw_only=True):
    """How the analyses went so far, and the settings they run by."""

    analyses: int
    errors: int
    seconds: Histogram
    dropped: int
    last_success: UnixTime | None
    leader: bool
    unsaved: int
    threshold: float
    interval: float
    error_counts: Mapping[str, int]


def gpu_samples(gpu: GpuUse) -> Iterator[Sample]:
    """Everything shown of one card, for as long as it is in the fleet."""
    namespace, pod = only_tenant(gpu)
    model = gpu.model or "unknown"  # as gpu-oour says
    row = CardRow(gpu_id=gpu.gpu_id, mig=gpu.mig, pod=pod, namespace=namespace, hostname=gpu.hostname, model=model)
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


def fleet_samples(*, build: Build, analysis: Analysis | None, stats: Stats, health: Health) -> Iterator[Sample]:
    """Everything shown of the fleet as a whole, and of the analyzer itself."""
    row = FleetRow(**structs.asdict(build))
    yield Sample(m.BUILD_INFO, row, 1)
    yield from _service(row, build, health)
    if analysis is not None:
        yield from _sums(row, stats)
        yield Sample(m.REQUESTS, row, analysis.requests)
        yield from _targets(row, analysis)
        for code, count in _fault_counts(analysis).items():
            yield Sample(m.FAULTS, row, count, (code,))
        for namespace, found in stats.by_namespace.items():
            yield Sample(m.NAMESPACE_COUNT, GroupRow(namespace), found.count)
            yield Sample(m.NAMESPACE_AVERAGE, GroupRow(namespace), found.avg_score)


def _targets(row: FleetRow, analysis: Analysis) -> Iterator[Sample]:
    if analysis.targets:
        up = sum(target.up for target in analysis.targets)
        yield Sample(m.TARGETS, row, up, ("up",))
        yield Sample(m.TARGETS, row, len(analysis.targets) - up, ("down",))


def _service(row: FleetRow, build: Build, health: Health) -> Iterator[Sample]:
    yield Sample(m.ANALYSES, row, health.analyses)
    yield Sample(m.ANALYSIS_ERRORS, row, health.errors)
    yield Sample(m.ANALYSIS_SECONDS, row, health.seconds)
    yield Sample(m.SERVICE_INFO, row, 1, (build.version, f"{health.threshold:g}", f"{health.interval:g}", "false"))
    yield Sample(m.DROPPED, row, health.dropped)
    yield Sample(m.LAST_SUCCESS, row, health.last_success)
    yield Sample(m.LEADER, row, int(health.leader))
    yield Sample(m.UNSAVED, row, health.unsaved)
    for code, count in health.error_counts.items():
        yield Sample(m.ERRORS, row, count, (code,))


def _sums(row: FleetRow, stats: Stats) -> Iterator[Sample]:
    yield Sample(m.TOTAL, row, stats.total_gpus)
    yield Sample(m.LOW, row, stats.low_utilization_count)
    yield Sample(m.IDLE, row, stats.idle_count)
    yield Sample(m.AVERAGE, row, stats.avg_score if stats.scored else None)
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


# ── the page ─────────────────────────────────────────────────────────────────────────────────────────────────────

CARD_SCOPES = frozenset({"card", "subject", "tenant"})
CARD_METRICS: tuple[Metric, ...] = tuple(metric for metric in m.METRICS if metric.scope in CARD_SCOPES)
FLEET_METRICS: tuple[Metric, ...] = tuple(metric for metric in m.METRICS if metric.scope not in CARD_SCOPES)

_LEVEL, _GZIP = 1, 31  # most of the gain, a fifth of the time; zlib's word for a gzip member
_AT_ONCE = 256  # cards
_Known = dict[tuple[int, tuple[str, ...], tuple[str, ...]], str]  # labels as they are written
_PLAIN_MOST: Bytes = 64 * 1024 * 1024  # above this, plain text is made from the compressed when somebody asks for it


class _Part(Protocol):
    def text(self) -> bytes: ...
    def openmetrics(self) -> bytes: ...
    def gzipped(self, openmetrics: bool) -> bytes: ...


class CardsPage:
    """What is said of all cards, in both formats: gauges have the same heads in either."""

    def __init__(self, plain: bytes | None = b"", packed: bytes = b"") -> None:
        self._plain, self._packed = plain, packed

    def text(self) -> bytes:
        """As lines."""
        return self._plain if self._plain is not None else b"".join(_unpacked(self._packed))

    def gzipped(self) -> bytes:
        """As gzip members, one for each name."""
        return self._packed


class AnalyzerPage:
    """The page of one moment: names of cards first, then those of the fleet."""

    def __init__(self, cards: CardsPage, fleet: _Part) -> None:
        self._cards, self._fleet = cards, fleet

    def text(self) -> bytes:
        """Text format 0.0.4."""
        return self._cards.text() + self._fleet.text()

    def openmetrics(self) -> bytes:
        """OpenMetrics 1.0."""
        return self._cards.text() + self._fleet.openmetrics()

    def gzipped(self, openmetrics: bool) -> bytes:
        """Either form, as concatenated gzip members."""
        return self._cards.gzipped() + self._fleet.gzipped(openmetrics)


def cards_page(gpus: Iterable[GpuUse], *, plain_most: Bytes = _PLAIN_MOST) -> CardsPage:
    """Everything shown of these cards; takes a while for a large fleet, and little memory."""
    kinds = {(metric.labels, metric.extra): number for number, metric in enumerate(CARD_METRICS)}
    blocks = {metric.name: _Block(metric, kinds[metric.labels, metric.extra]) for metric in CARD_METRICS}
    waiting = iter(gpus)
    size = 0
    while some := tuple(islice(waiting, _AT_ONCE)):
        for gpu in some:
            known: _Known = {}
            for sample in gpu_samples(gpu):
                if sample.value is not None:
                    blocks[sample.metric.name].add(sample, known)
        size += sum([block.pack(keep=size <= plain_most) for block in blocks.values()])
    parts = [(block.plain, block.end()) for block in blocks.values() if block.packed]
    packed = b"".join(member for _, member in parts)
    return CardsPage(b"".join(b"".join(plain) for plain, _ in parts) if size <= plain_most else None, packed)


class _Block:
    """The lines of one name, which are compressed as they come."""

    def __init__(self, metric: Metric, kind: int) -> None:
        """`kind`: names of one kind have the same labels."""
        (self._exposed,) = metric.exposed(frozenset(m.FAMILIES))
        self._kind = kind
        self._lines: list[str] = []
        self._packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        self.packed: list[bytes] = []
        self.plain: list[bytes] = []

    def add(self, sample: Sample, known: _Known) -> None:
        """One more line; most of a card's lines have the same labels, which are written once."""
        exposed, extra = self._exposed, sample.extra
        same = (self._kind, sample.row, extra)
        labels = known.get(same)
        if labels is None:
            labels = known[same] = textline.start(exposed, sample.row, extra)[len(exposed.name) :]
        self._lines.append(f"{exposed.name}{labels}{sample.value!r}\n")

    def pack(self, *, keep: bool) -> int:
        """Compress what has come, and keep it as it is, too; how much it was."""
        if not self._lines:
            return 0
        head = "" if self.packed else _head(self._exposed)
        text = (head + "".join(self._lines)).encode()
        self._lines.clear()
        self.packed.append(self._packer.compress(text))
        self._keep(text, keep=keep)
        return len(text)

    def _keep(self, text: bytes, *, keep: bool) -> None:
        if keep:
            self.plain.append(text)
        else:
            self.plain.clear()

    def end(self) -> bytes:
        """The whole member."""
        return b"".join([*self.packed, self._packer.flush()])


def _head(exposed: Exposed) -> str:
    head = textline.text_head(exposed)
    assert head == textline.openmetrics_head(exposed), "one text serves both formats"
    return f"{head}\n"


def _unpacked(packed: bytes) -> Iterator[bytes]:
    while packed:
        member = zlib.decompressobj(_GZIP)
        yield member.decompress(packed)
        packed = member.unused_data
