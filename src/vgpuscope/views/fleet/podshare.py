"""The containers of one pod on one GPU, taken together.

Their own parts add up: memory, utilisation and, since it is linear in its terms, the score. A pod is in use if one of
its containers is, and idle only if all of them are.
"""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from vgpuscope.model.analysis import Status, TenantUse, Term, UseClass, Verdict
from vgpuscope.model.quantity import Ratio, UnixTime

VERDICT_ORDER: tuple[Verdict, ...] = ("in_use", "unknown", "idle")  # the first that a container has is the pod's
_CLASS_ORDER: tuple[UseClass, ...] = (
    "busy",
    "busy-unproductive",
    "stalled",
    "low",
    "not-started",
    "unknown",
    "idle-preparing",
    "idle-held",
    "idle",
)
_STATUS_ORDER: tuple[Status, ...] = ("high", "normal", "unknown", "low", "idle")  # idle and low only if all are known


class PodPart(Struct, frozen=True, kw_only=True):
    """What one pod has and does on one GPU; None: not measured."""

    namespace: str
    pod: str
    owner: str
    score: float | None
    status: Status
    verdict: Verdict
    use_class: UseClass
    util: Ratio | None
    memory: float | None  # bytes
    limit: float | None  # bytes; None: one of its containers has no limit
    idle_since: UnixTime | None  # since when all its containers are idle


def pod_shares(tenants: Iterable[TenantUse]) -> list[PodPart]:
    """The tenants of one GPU by pod, in their order."""
    pods: dict[tuple[str, str], list[TenantUse]] = {}
    for use in tenants:
        pods.setdefault((use.tenant.namespace, use.tenant.pod), []).append(use)
    return [_share(namespace, pod, uses) for (namespace, pod), uses in pods.items()]


def _share(namespace: str, pod: str, uses: Sequence[TenantUse]) -> PodPart:
    verdict = min((use.verdict for use in uses), key=VERDICT_ORDER.index)
    of_verdict = [use.use_class for use in uses if use.verdict == verdict]
    own = [use for use in uses if use.own]
    idle = [use.idle_since for use in uses]
    return PodPart(
        namespace=namespace,
        pod=pod,
        owner=next((use.owner for use in uses if use.owner), ""),
        score=_sum([use.score.value for use in own], most=100.0),
        status=min((use.status for use in uses), key=_STATUS_ORDER.index),
        verdict=verdict,
        use_class=min(of_verdict, key=_CLASS_ORDER.index),
        util=_sum([_mean(use, "process_sm") for use in own], most=1.0),
        memory=_sum([_mean(use, "mem_used") for use in own]),
        limit=_all([use.memory_limit for use in uses], sum),
        idle_since=_all(idle, max) if verdict == "idle" else None,
    )


def _mean(use: TenantUse, term: Term) -> float | None:
    stat = use.terms.get(term)
    return None if stat is None else stat.mean


def _sum(values: Iterable[float | None], *, most: float | None = None) -> float | None:
    """The sum of the measured values; None if none was measured."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return sum(known) if most is None else min(most, sum(known))


def _all(values: Sequence[float | None], together: Callable[[list[float]], float]) -> float | None:
    known = [value for value in values if value is not None]
    return together(known) if len(known) == len(values) else None
