"""The cluster exporter's answers → pods that wait, times of each stage, and what still fits."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from vgpuscope.catalog import cluster as m
from vgpuscope.catalog import scheduling as s
from vgpuscope.logic.console.moments import iso_or_none
from vgpuscope.model.allocation import OfferMode
from vgpuscope.model.cluster import Amount, Capacity, LostReason, NodeLedger, OfferLedger, memory_of_all
from vgpuscope.model.console.facts import SeenSeries
from vgpuscope.model.console.namespaces import QuotaRow
from vgpuscope.model.console.scheduling import (
    CountedCapacity,
    FailureCount,
    FreeCapacity,
    PendingRow,
    ReasonRow,
    StageTimes,
)
from vgpuscope.model.pending import PendingList, PendingPod, Said
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.model.scheduling import STEPS, Step
from vgpuscope.model.scheduling_codes import Code
from vgpuscope.model.words import Words

Page = Sequence[tuple[SeenSeries, float]]
Say = Callable[[str], tuple[Words, Words] | None]  # code → meaning and advice in both languages
_QUANTILES = (0.5, 0.95, 0.99)


# ── pods that wait ───────────────────────────────────────────────────────────────────────────────────────────────


def waited(pod: PendingPod, now: UnixTime) -> Seconds | None:
    """How long a pod has waited, or had waited when the wait ended; None: its start is not known."""
    if pod.created is None:
        return None
    return round(max(0.0, (now if pod.ended is None else pod.ended) - pod.created), 1)


def pending_row(pod: PendingPod, *, now: UnixTime, codes: Mapping[str, Code], say: Say) -> PendingRow:
    """One pod that waits or waited."""
    words = say(pod.code)
    return PendingRow(
        namespace=pod.namespace,
        pod=pod.pod,
        pod_uid=pod.pod_uid,
        owner=pod.owner or None,
        scheduler=pod.scheduler or None,
        requests=pod.requests,
        claims=pod.claims,
        outcome=pod.outcome,
        code=pod.code,
        stage=codes[pod.code].stage if pod.code in codes else None,
        meaning=words[0] if words else None,
        advice=_filled(words[1], pod) if words else None,
        fact=Words(pod.fact, pod.fact_zh or pod.fact) if pod.fact else None,
        created=iso_or_none(pod.created),
        ended=iso_or_none(pod.ended),
        waited_seconds=waited(pod, now),
        node=pod.node or None,
        attempts=pod.attempts,
    )


def reason_row(
    one: Said, pod: PendingPod, *, codes: Mapping[str, Code], facts: Mapping[str, Sequence[Words]], say: Say
) -> ReasonRow:
    """One reason that a scheduler reported."""
    reason, words = one.reason, say(one.reason.code)
    return ReasonRow(
        code=reason.code,
        stage=codes[reason.code].stage if reason.code in codes else None,
        meaning=words[0] if words else None,
        advice=_filled(words[1], pod, reason.nodes) if words else None,
        detail=reason.detail,
        component=one.component or None,
        current=one.current,
        count=one.count,
        first=iso_or_none(one.first),
        last=iso_or_none(one.last),
        nodes=reason.nodes,
        node_count=reason.node_count,
        facts=tuple(facts.get(reason.code, ())),
    )


def both(english: Sequence[str], chinese: Sequence[str]) -> tuple[Words, ...]:
    """Sentences in both languages; those of an older cluster exporter are in English only."""
    return tuple(
        Words(*pair) for pair in zip(english, chinese if len(chinese) == len(english) else english, strict=True)
    )


def facts_of(found: PendingList) -> dict[str, tuple[Words, ...]]:
    """The numbers behind the reasons of one pod, by code."""
    return {code: both(lines, found.facts_zh.get(code, ())) for code, lines in found.facts.items()}


def _filled(words: Words, pod: PendingPod, nodes: Sequence[str] = ()) -> Words:
    """Advice with the names of this pod, which the list of codes leaves open."""
    known = {"NAMESPACE": pod.namespace, "POD": pod.pod, "SCHEDULER": pod.scheduler or _DEFAULT_SCHEDULER}
    if nodes:
        known["NODE"] = nodes[0]
    return Words(*(_OPEN.sub(lambda found: known.get(found[0], found[0]), text) for text in (words.en, words.zh)))


_OPEN = re.compile(r"\b(?:NAMESPACE|POD|SCHEDULER|NODE)\b")
_DEFAULT_SCHEDULER = "default-scheduler"


def by_code(pods: Iterable[PendingPod]) -> dict[str, int]:
    """How many pods wait for which reason, most first."""
    return dict(Counter(pod.code for pod in pods).most_common())


# ── the exporter's metrics ───────────────────────────────────────────────────────────────────────────────────────


def stage_times(page: Page) -> tuple[StageTimes, ...]:
    """How long each stage took, scheduler by scheduler; quantiles as Prometheus estimates them."""
    name = s.STAGE_SECONDS.name
    buckets: dict[tuple[str, str], list[tuple[float, float]]] = {}
    sums: dict[tuple[str, str], float] = {}
    for (metric, labels), value in page:
        of = labels.get("scheduler", ""), labels.get("stage", "")
        if metric == f"{name}_bucket":
            buckets.setdefault(of, []).append((float(labels.get("le", "nan")), value))
        elif metric == f"{name}_sum":
            sums[of] = value
    order = {step: place for place, step in enumerate(STEPS)}
    found = [
        _times(scheduler, step, buckets[scheduler, step], sums.get((scheduler, step), 0.0))
        for scheduler, step in buckets
        if step in order
    ]
    return tuple(sorted(found, key=lambda one: (one.scheduler, order[one.stage])))


def _times(scheduler: str, stage: str, buckets: list[tuple[float, float]], spent: float) -> StageTimes:
    buckets.sort()
    count = buckets[-1][1]
    p50, p95, p99 = (quantile(buckets, share) for share in _QUANTILES)
    step: Step = next(one for one in STEPS if one == stage)
    mean = round(spent / count, 3) if count else None
    return StageTimes(scheduler=scheduler, stage=step, count=int(count), mean=mean, p50=p50, p95=p95, p99=p99)


def quantile(buckets: Sequence[tuple[float, float]], share: float) -> float | None:
    """The quantile of a histogram's cumulative buckets, linear within a bucket; None: it is empty."""
    count = buckets[-1][1] if buckets else 0.0
    if not count:
        return None
    rank, below, passed = share * count, 0.0, 0.0
    for bound, reached in buckets:
        if reached >= rank:
            if bound == float("inf"):
                return below
            return (
                round(below + (bound - below) * (rank - passed) / (reached - passed), 3) if reached > passed else bound
            )
        below, passed = bound, reached
    return below


def binds(page: Page, result: str) -> int:
    """Pods that were bound (success), or attempts that failed (failure)."""
    found = [value for (name, labels), value in page if name == s.BINDS.name and labels.get("result") == result]
    return int(sum(found))


def failures(page: Page) -> tuple[FailureCount, ...]:
    """Failed attempts by scheduler and code, most first."""
    found = [
        FailureCount(scheduler=labels.get("scheduler", ""), code=labels.get("code", ""), count=int(value))
        for (name, labels), value in page
        if name == s.FAILURES.name and value
    ]
    return tuple(sorted(found, key=lambda one: (-one.count, one.scheduler, one.code)))


def quotas(page: Page) -> dict[str, tuple[QuotaRow, ...]]:
    """The quotas of each namespace."""
    used: dict[tuple[str, str], float] = {}
    limits: dict[tuple[str, str], float] = {}
    for (name, labels), value in page:
        of = labels.get("namespace", ""), labels.get("resource", "")
        if name == m.QUOTA_USED.name:
            used[of] = value
        elif name == m.QUOTA_LIMIT.name:
            limits[of] = value
    rows: dict[str, list[QuotaRow]] = {}
    for namespace, resource in sorted(used.keys() | limits.keys()):
        spent, limit = used.get((namespace, resource), 0.0), limits.get((namespace, resource))
        ratio = round(spent / limit, 4) if limit else None
        rows.setdefault(namespace, []).append(QuotaRow(resource=resource, used=spent, limit=limit, ratio=ratio))
    return {namespace: tuple(found) for namespace, found in rows.items()}


# ── what still fits ──────────────────────────────────────────────────────────────────────────────────────────────


def free_capacity(one: Capacity) -> FreeCapacity:
    """What a node, a type of GPU or the cluster can still take."""
    return FreeCapacity(
        vendor=one.vendor or None,
        type=one.type or None,
        total=one.total,
        lost=one.lost,
        allocated=one.allocated,
        free=one.free,
        stranded=one.stranded,
        mig=one.mig,
        over=one.over,
        largest_memory=one.largest_memory,
        largest_cores=one.largest_cores,
        whole_gpus=one.whole_cards,
        fragmentation=one.fragmentation,
    )


def fleet_capacity(nodes: Sequence[NodeLedger]) -> FreeCapacity:
    """What the whole cluster can still take: amounts of registered GPUs, and the largest requests of any kind."""
    made = free_capacity(cluster_capacity(nodes))
    return replace(
        made,
        largest_memory=max((node.largest_memory or 0 for node in nodes), default=0),
        whole_gpus=max((node.whole_gpus or 0 for node in nodes), default=0),
    )


def counted_capacity(nodes: Iterable[NodeLedger]) -> tuple[CountedCapacity, ...]:
    """What is left of each resource that kubelets only count, for each type of GPU."""
    groups: dict[tuple[str, OfferMode, str, str], list[OfferLedger]] = {}
    for node in nodes:
        for one in node.offers:
            offer = one.offer
            groups.setdefault((offer.resource, offer.mode, offer.type, offer.profile), []).append(one)
    return tuple(
        _counted(resource, mode, kind, profile, groups[resource, mode, kind, profile])
        for resource, mode, kind, profile in sorted(groups, key=lambda group: (group[2], group[0]))
    )


def _counted(resource: str, mode: OfferMode, kind: str, profile: str, offers: Sequence[OfferLedger]) -> CountedCapacity:
    memory = {one.offer.memory for one in offers}
    free = [one.memory_free for one in offers]
    return CountedCapacity(
        resource=resource,
        mode=mode,
        type=kind or None,
        profile=profile or None,
        capacity=sum(one.offer.capacity for one in offers),
        requested=sum(one.requested for one in offers),
        memory_requested=memory_of_all([one.memory_requested for one in offers]),
        free=sum(one.free for one in offers),
        free_on_one=max(one.free for one in offers),
        memory=memory.pop() if len(memory) == 1 else None,
        memory_free=None if None in free else sum(one for one in free if one is not None),
        whole_gpus=max(one.whole for one in offers),
    )


def cluster_capacity(nodes: Iterable[NodeLedger]) -> Capacity:
    """All nodes together."""
    return merged([node.capacity for node in nodes])


def capacity_by_type(nodes: Iterable[NodeLedger]) -> tuple[Capacity, ...]:
    """All nodes together, for each type of GPU."""
    groups: dict[tuple[str, str], list[Capacity]] = {}
    for node in nodes:
        for one in node.types:
            groups.setdefault((one.vendor, one.type), []).append(one)
    return tuple(
        merged(found, vendor=vendor, kind=kind) for (vendor, kind), found in sorted(groups.items(), key=lambda g: g[0])
    )


def merged(several: Sequence[Capacity], *, vendor: str = "", kind: str = "") -> Capacity:
    """Capacities added up; a request must fit on one node, so the largest that fits is that of one node."""
    lost: dict[LostReason, Amount] = {}
    for one in several:
        for reason, amount in one.lost.items():
            lost[reason] = _plus(lost.get(reason, Amount()), amount)
    return Capacity(
        vendor=vendor,
        type=kind,
        total=_sum([one.total for one in several]),
        lost=lost,
        allocated=_sum([one.allocated for one in several]),
        free=_sum([one.free for one in several]),
        stranded=_sum([one.stranded for one in several]),
        mig=_sum([one.mig for one in several]),
        over=_sum([one.over for one in several]),
        whole=_sum([one.whole for one in several]),
        largest_memory=max((one.largest_memory for one in several), default=0),
        largest_cores=max((one.largest_cores for one in several), default=0),
        whole_cards=max((one.whole_cards for one in several), default=0),
    )


def _sum(amounts: Iterable[Amount]) -> Amount:
    whole = Amount()
    for amount in amounts:
        whole = _plus(whole, amount)
    return whole


def _plus(one: Amount, other: Amount) -> Amount:
    return Amount(one.cards + other.cards, one.slots + other.slots, one.memory + other.memory, one.cores + other.cores)
