"""An analysis and the analyzer's counters → samples, and the page that shows them.

The samples of GPUs are most of the page, and change only with an analysis: they are written once, compressed and kept.
The samples of the fleet and of the analyzer are few and change at any time.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Protocol

from msgspec import Struct, structs

from vgpuscope.catalog import analyzer as m
from vgpuscope.catalog.label_sets import (
    FleetLabels,
    GpuOfPodLabels,
    JudgedGpuLabels,
    NamespaceLabels,
    OpinionLabels,
    PodOnGpuLabels,
    TenantLabels,
)
from vgpuscope.catalog.limits import FLEET_OMISSIONS
from vgpuscope.catalog.metric import ExposedName, Metric
from vgpuscope.model.analysis import STATUSES, USE_CLASSES, VERDICTS, Analysis, GpuUse, TenantUse, Term, Verdict
from vgpuscope.model.callback import CallbackOutcome
from vgpuscope.model.histogram import Histogram
from vgpuscope.model.opinion import Opinion, OpinionsShown, Provider, RequestOutcome, TokenKind
from vgpuscope.model.quantity import MIB, Bytes, UnixTime
from vgpuscope.model.reclaim import Brake, State
from vgpuscope.views.build import Build
from vgpuscope.views.exposition import textline
from vgpuscope.views.exposition.page import Sample
from vgpuscope.views.fleet.podshare import VERDICT_ORDER, PodPart, pod_shares
from vgpuscope.views.fleet.results.results import Stats, memory_percent


class AnalyzerHealth(Struct, frozen=True, kw_only=True):
    """Counters of the analyses so far, and the settings in effect."""

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
    loop_restarts: Mapping[str, int] = {}
    follower_failures: Mapping[str, int] = {}
    reclaim_states: Mapping[State, int] = {}
    reclaim_held: Mapping[Brake, int] = {}  # cases by brake
    reclaim_actions: Mapping[tuple[str, str], int] = {}  # by action and outcome
    reclaim_held_back: Mapping[str, int] = {}
    reclaim_brakes: Mapping[Brake, bool] = {}  # of all workloads: whether each is on
    ai_enabled: bool = False
    ai_requests: Mapping[tuple[Provider, RequestOutcome], int] = {}
    ai_tokens: Mapping[TokenKind, int] = {}
    ai_seconds: Histogram | None = None  # None: no request was made
    ai_cost: float | None = None
    notices: Mapping[tuple[str, str], int] = {}  # by channel and outcome
    channels: Mapping[str, bool] = {}  # whether the last message was taken
    callbacks: Mapping[CallbackOutcome, int] = {}
    callbacks_waiting: int | None = None  # None: low GPUs are not reported


def gpu_samples(gpu: GpuUse, *, end: UnixTime | None = None) -> Iterator[Sample]:
    """All samples of one GPU, as long as it is in the fleet; `end`: end of the window, for ages."""
    pods = pod_shares(gpu.tenants)
    means = {term: stat.mean for term, stat in gpu.terms.items() if stat.mean is not None}
    if len(pods) > 1:
        yield from _shared(gpu, pods, means.get("mem_total"))
    else:
        yield from _whole(gpu, pods, means)
    yield from _subject(gpu, means)
    yield from _pods(gpu, pods, end)
    yield from _tenants(gpu)


def _whole(gpu: GpuUse, pods: Sequence[PodPart], means: Mapping[Term, float]) -> Iterator[Sample]:
    """The GPU's numbers, with the only pod that has it."""
    row = _gpu_row(gpu, *((pods[0].namespace, pods[0].pod) if pods else ("", "")))
    yield Sample(m.SCORE, row, _points(gpu.score.value), (gpu.status,))
    yield Sample(m.CORE, row, _times(means.get("gpu_util"), 100))
    yield Sample(m.MEMORY_USED, row, _times(means.get("mem_used"), 1 / MIB))
    yield Sample(m.MEMORY_PERCENT, row, memory_percent(gpu.terms))
    yield Sample(m.MEMORY_TOTAL, row, _times(means.get("mem_total"), 1 / MIB))
    yield Sample(m.POWER, row, _times(means.get("power"), 1))
    yield Sample(m.MEMORY_COPY, row, _times(means.get("mem_copy"), 100))
    yield Sample(m.SM_CLOCK, row, _times(means.get("sm_clock"), 1e-6))


def _shared(gpu: GpuUse, pods: Sequence[PodPart], total: float | None) -> Iterator[Sample]:
    """Each pod's own numbers. Power, clock and memory traffic are known for the whole GPU only."""
    for pod in pods:
        row = _gpu_row(gpu, pod.namespace, pod.pod)
        yield Sample(m.SCORE, row, _points(pod.score), (pod.status,))
        yield Sample(m.CORE, row, _times(pod.util, 100))
        yield Sample(m.MEMORY_USED, row, _times(pod.memory, 1 / MIB))
        if pod.memory is not None and total:
            yield Sample(m.MEMORY_PERCENT, row, round(100 * min(1.0, pod.memory / total), 2))
        yield Sample(m.MEMORY_TOTAL, row, _times(pod.limit, 1 / MIB))


def _gpu_row(gpu: GpuUse, namespace: str, pod: str) -> GpuOfPodLabels:
    model = gpu.model or "unknown"  # as in gpu-oour
    return GpuOfPodLabels(
        gpu_id=gpu.gpu_id, mig=gpu.mig, pod=pod, namespace=namespace, hostname=gpu.hostname, model=model
    )


def fleet_samples(
    *,
    build: Build,
    analysis: Analysis | None,
    stats: Stats,
    health: AnalyzerHealth,
    opinions: OpinionsShown | None = None,
) -> Iterator[Sample]:
    """All samples of the fleet as a whole, and of the analyzer itself."""
    row = FleetLabels(**structs.asdict(build))
    yield Sample(m.BUILD_INFO, row, 1)
    yield from _service(row, build, health)
    if analysis is not None:
        yield from _sums(row, stats)
        yield Sample(m.REQUESTS, row, analysis.requests)
        for reason in FLEET_OMISSIONS:
            yield Sample(m.WITHOUT_SERIES, row, analysis.omitted.get(reason, 0), (reason,))
        yield from _targets(row, analysis)
        for code, count in _fault_counts(analysis).items():
            yield Sample(m.FAULTS, row, count, (code,))
        for namespace, found in stats.by_namespace.items():
            yield Sample(m.NAMESPACE_COUNT, NamespaceLabels(namespace), found.count)
            yield Sample(m.NAMESPACE_AVERAGE, NamespaceLabels(namespace), found.avg_score)
        yield from _opinions(opinions or OpinionsShown())


def _opinions(shown: OpinionsShown) -> Iterator[Sample]:
    """One opinion for each pod on a GPU; of several, for several containers, one that holds reclaim back."""
    found: dict[OpinionLabels, Opinion] = {}
    for part, opinion in shown.parts.items():
        if isinstance(opinion, Opinion):
            row = OpinionLabels(part.gpu_id, part.mig, part.pod, part.namespace)
            if row not in found or opinion.vetoes(shown.threshold):
                found[row] = opinion
    for row, opinion in found.items():
        yield Sample(m.AI_CONFIDENCE, row, opinion.confidence, (opinion.status,))
        yield Sample(m.AI_SCORE, row, opinion.ai_adjusted_score)


def _targets(row: FleetLabels, analysis: Analysis) -> Iterator[Sample]:
    if analysis.targets:
        up = sum(target.up for target in analysis.targets)
        yield Sample(m.TARGETS, row, up, ("up",))
        yield Sample(m.TARGETS, row, len(analysis.targets) - up, ("down",))


def _service(row: FleetLabels, build: Build, health: AnalyzerHealth) -> Iterator[Sample]:
    yield Sample(m.ANALYSES, row, health.analyses)
    yield Sample(m.ANALYSIS_ERRORS, row, health.errors)
    yield Sample(m.ANALYSIS_SECONDS, row, health.seconds)
    settings = (f"{health.threshold:g}", f"{health.interval:g}", _word(health.ai_enabled))
    yield Sample(m.SERVICE_INFO, row, 1, (build.version, *settings))
    yield Sample(m.DROPPED, row, health.dropped)
    yield Sample(m.LAST_SUCCESS, row, health.last_success)
    yield Sample(m.LEADER, row, int(health.leader))
    yield Sample(m.UNSAVED, row, health.unsaved)
    for code, count in health.error_counts.items():
        yield Sample(m.ERRORS, row, count, (code,))
    for loop, count in health.loop_restarts.items():
        yield Sample(m.LOOP_RESTARTS, row, count, (loop,))
    for follower, count in health.follower_failures.items():
        yield Sample(m.FOLLOWER_FAILURES, row, count, (follower,))
    for state, count in health.reclaim_states.items():
        yield Sample(m.RECLAIM_WORKLOADS, row, count, (state,))
    for name, cases in health.reclaim_held.items():
        yield Sample(m.RECLAIM_HELD, row, cases, (name,))
    for (action, outcome), count in health.reclaim_actions.items():
        yield Sample(m.RECLAIM_ACTIONS, row, count, (action, outcome))
    for brake, count in health.reclaim_held_back.items():
        yield Sample(m.RECLAIM_HELD_BACK, row, count, (brake,))
    for brake, on in health.reclaim_brakes.items():
        yield Sample(m.RECLAIM_BRAKE_ON, row, int(on), (brake,))
    for (channel, outcome), count in health.notices.items():
        yield Sample(m.RECLAIM_NOTICES, row, count, (channel, outcome))
    for channel, works in health.channels.items():
        yield Sample(m.RECLAIM_CHANNEL_WORKS, row, float(works), (channel,))
    for outcome, count in health.callbacks.items():
        yield Sample(m.CONTROL_CALLBACKS, row, count, (outcome,))
    yield Sample(m.CONTROL_WAITING, row, health.callbacks_waiting)
    yield from _requests(row, health)


def _requests(row: FleetLabels, health: AnalyzerHealth) -> Iterator[Sample]:
    for names, count in health.ai_requests.items():
        yield Sample(m.AI_REQUESTS, row, count, names)
    for kind, count in health.ai_tokens.items():
        yield Sample(m.AI_TOKENS, row, count, (kind,))
    yield Sample(m.AI_COST, row, health.ai_cost)
    yield Sample(m.AI_SECONDS, row, health.ai_seconds)


def _word(on: bool) -> str:
    return "true" if on else "false"


def _sums(row: FleetLabels, stats: Stats) -> Iterator[Sample]:
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
        yield Sample(m.TENANT_CLASSES, row, stats.tenants_by_class.get(use_class, 0), (use_class,))


def _subject(gpu: GpuUse, means: Mapping[Term, float]) -> Iterator[Sample]:
    row = JudgedGpuLabels(gpu_id=gpu.gpu_id, mig=gpu.mig, hostname=gpu.hostname)
    yield Sample(m.GPU_SCORE, row, _points(gpu.score.value))
    for metric, term in _GPU_MEANS:
        yield Sample(metric, row, _times(means.get(term), 1))
    for verdict in VERDICTS:
        yield Sample(m.VERDICT, row, int(gpu.verdict == verdict), (verdict,))
    yield Sample(m.USE_CLASS, row, 1, (gpu.use_class,))
    yield Sample(m.COVERAGE, row, gpu.evidence.coverage)
    yield Sample(m.CONFIDENCE, row, gpu.score.confidence)
    yield Sample(m.AGE, row, gpu.evidence.freshness)
    yield Sample(m.TENANTS, row, len(gpu.tenants))


_GPU_MEANS: tuple[tuple[Metric, Term], ...] = (
    (m.GPU_UTIL, "gpu_util"),
    (m.GPU_TRAFFIC, "mem_copy"),
    (m.GPU_MEMORY_USED, "mem_used"),
    (m.GPU_MEMORY_TOTAL, "mem_total"),
    (m.GPU_POWER, "power"),
    (m.GPU_CLOCK, "sm_clock"),
)


def _pods(gpu: GpuUse, pods: Sequence[PodPart], end: UnixTime | None) -> Iterator[Sample]:
    for pod in pods:
        row = PodOnGpuLabels(
            gpu_id=gpu.gpu_id,
            mig=gpu.mig,
            hostname=gpu.hostname,
            namespace=pod.namespace,
            pod=pod.pod,
            owner=pod.owner,
        )
        yield Sample(m.TENANT_CLASS, row, 1, (pod.use_class,))
        yield Sample(m.TENANT_IDLE, row, _idle_for(pod, end))


def _idle_for(pod: PodPart, end: UnixTime | None) -> float | None:
    if pod.verdict == "in_use":
        return 0
    if pod.verdict == "unknown" or pod.idle_since is None or end is None:
        return None
    return round(max(0.0, end - pod.idle_since), 3)


def _tenants(gpu: GpuUse) -> Iterator[Sample]:
    for names, verdict in _own_verdicts(gpu.tenants).items():
        row = TenantLabels(gpu.gpu_id, gpu.mig, gpu.hostname, *names)
        yield Sample(m.TENANT_VERDICT, row, 1, (verdict,))


def _own_verdicts(tenants: Iterable[TenantUse]) -> dict[tuple[str, str, str], Verdict]:
    """By namespace, pod and container; of two pods with one name, as after a restart, the stronger verdict."""
    found: dict[tuple[str, str, str], Verdict] = {}
    for use in tenants:
        if use.own:
            names = (use.tenant.namespace, use.tenant.pod, use.tenant.container)
            found[names] = min(found.get(names, use.verdict), use.verdict, key=VERDICT_ORDER.index)
    return found


def _points(score: float | None) -> float | None:
    return None if score is None else round(score, 1)


def _times(value: float | None, scale: float) -> float | None:
    return None if value is None else round(value * scale, 3)


def _fault_counts(analysis: Analysis) -> dict[str, int]:
    counts: dict[str, int] = {}
    for fault in analysis.faults:
        counts[fault.code] = counts.get(fault.code, 0) + 1
    return counts


# ── the page ─────────────────────────────────────────────────────────────────────────────────────────────────────

GPU_SCOPES = frozenset({"gpu-of-pod", "subject", "tenant", "gpupod"})
GPU_METRICS: tuple[Metric, ...] = tuple(metric for metric in m.METRICS if metric.scope in GPU_SCOPES)
FLEET_METRICS: tuple[Metric, ...] = tuple(metric for metric in m.METRICS if metric.scope not in GPU_SCOPES)

_LEVEL, _GZIP = 1, 31  # most of the gain in a fifth of the time; zlib's value for a gzip member
_AT_ONCE = 256  # GPUs
_Known = dict[tuple[int, tuple[str, ...], tuple[str, ...]], str]  # labels as text
_PLAIN_MOST: Bytes = 64 * 1024 * 1024  # above this, plain text is decompressed on request


class _Part(Protocol):
    def text(self) -> bytes: ...
    def openmetrics(self) -> bytes: ...
    def gzipped(self, openmetrics: bool) -> bytes: ...


class GpusPage:
    """The samples of all GPUs, for both text formats: gauges have the same headers in both."""

    def __init__(self, plain: bytes | None = b"", packed: bytes = b"") -> None:
        self._plain, self._packed = plain, packed

    def text(self) -> bytes:
        """As lines."""
        return self._plain if self._plain is not None else b"".join(_unpacked(self._packed))

    def gzipped(self) -> bytes:
        """As gzip members, one for each name."""
        return self._packed


class AnalyzerPage:
    """The page at one moment: metrics of GPUs first, then those of the fleet."""

    def __init__(self, gpus: GpusPage, fleet: _Part) -> None:
        self._gpus, self._fleet = gpus, fleet

    def text(self) -> bytes:
        """Text format 0.0.4."""
        return self._gpus.text() + self._fleet.text()

    def openmetrics(self) -> bytes:
        """OpenMetrics 1.0."""
        return self._gpus.text() + self._fleet.openmetrics()

    def gzipped(self, openmetrics: bool) -> bytes:
        """Either form, as concatenated gzip members."""
        return self._gpus.gzipped() + self._fleet.gzipped(openmetrics)


def gpus_page(gpus: Iterable[GpuUse], *, end: UnixTime | None = None, plain_most: Bytes = _PLAIN_MOST) -> GpusPage:
    """All samples of these GPUs, each GPU once; takes a while for a large fleet, but little memory."""
    kinds = {(metric.labels, metric.extra): number for number, metric in enumerate(GPU_METRICS)}
    blocks = {metric.name: _Block(metric, kinds[metric.labels, metric.extra]) for metric in GPU_METRICS}
    waiting = iter({(gpu.gpu_id, gpu.mig): gpu for gpu in gpus}.values())
    size = 0
    while some := tuple(islice(waiting, _AT_ONCE)):
        for gpu in some:
            known: _Known = {}
            for sample in gpu_samples(gpu, end=end):
                if sample.value is not None:
                    blocks[sample.metric.name].add(sample, known)
        size += sum([block.pack(keep=size <= plain_most) for block in blocks.values()])
    parts = [(block.plain, block.end()) for block in blocks.values() if block.packed]
    packed = b"".join(member for _, member in parts)
    return GpusPage(b"".join(b"".join(plain) for plain, _ in parts) if size <= plain_most else None, packed)


class _Block:
    """The lines of one metric, which are compressed as they come.

    A ShardedPage would cost 1.6 times the CPU and 2.5 times the memory; see the ADR on exposition engines.
    """

    def __init__(self, metric: Metric, kind: int) -> None:
        """`kind`: metrics of one kind have the same labels."""
        (self._exposed,) = metric.exposed(frozenset(m.FAMILIES))
        self._kind = kind
        self._lines: list[str] = []
        self._packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        self.packed: list[bytes] = []
        self.plain: list[bytes] = []

    def add(self, sample: Sample, known: _Known) -> None:
        """Add one line; most lines of a GPU have the same labels, which are formatted once."""
        exposed, extra = self._exposed, sample.extra
        same = (self._kind, sample.row, extra)
        labels = known.get(same)
        if labels is None:
            labels = known[same] = textline.start(exposed, sample.row, extra)[len(exposed.name) :]
        self._lines.append(f"{exposed.name}{labels}{sample.value!r}\n")

    def pack(self, *, keep: bool) -> int:
        """Compress the lines so far, and if `keep`, keep them uncompressed too; returns their size."""
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
        """The whole gzip member."""
        return b"".join([*self.packed, self._packer.flush()])


def _head(exposed: ExposedName) -> str:
    head = textline.text_head(exposed)
    assert head == textline.openmetrics_head(exposed), "one text serves both formats"
    return f"{head}\n"


def _unpacked(packed: bytes) -> Iterator[bytes]:
    while packed:
        member = zlib.decompressobj(_GZIP)
        yield member.decompress(packed)
        packed = member.unused_data
