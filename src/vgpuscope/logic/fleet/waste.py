"""Points of the history → idle GPU-hours of tenants, ranked.

An idle tenant wastes its share of the GPU. The share is its memory limit divided by the GPU's memory, as each analysis
recorded it. If that is unknown, the GPU is divided equally by the average number of pods that held it in that hour. All
shares of a GPU together never exceed the GPU. If a GPU had MIG instances, each of them is an equal part of the GPU. A
GPU that no pod holds is free, not wasted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from vgpuscope.model.analysis import GpuUse, TenantUse, Verdict
from vgpuscope.model.history import HistoryPoint
from vgpuscope.model.quantity import Ratio, Seconds, UnixTime
from vgpuscope.model.waste import GroupBy, Waste, WasteRow

_HOUR = 3600.0


class HeldTime(NamedTuple):
    """A pod on a GPU or MIG instance."""

    gpu_id: str
    mig: str
    namespace: str
    pod: str


class PresentTenant(Struct, frozen=True, kw_only=True):
    """What the last analysis found about a pod on a GPU."""

    verdict: Verdict
    idle_since: UnixTime | None


Now: TypeAlias = Mapping[HeldTime, PresentTenant]


def present(gpus: Iterable[GpuUse]) -> dict[HeldTime, PresentTenant]:
    """The pods of the last analysis, each with all its containers."""
    found: dict[HeldTime, list[TenantUse]] = {}
    for gpu in gpus:
        for use in gpu.tenants:
            who = HeldTime(gpu.gpu_id, gpu.mig, use.tenant.namespace, use.tenant.pod)
            found.setdefault(who, []).append(use)
    return {who: _present(uses) for who, uses in found.items()}


def _present(uses: Sequence[TenantUse]) -> PresentTenant:
    since = [use.idle_since for use in uses if use.idle_since is not None]
    verdicts = {use.verdict for use in uses}
    idle = verdicts == {"idle"}
    return PresentTenant(
        verdict="in_use" if "in_use" in verdicts else "idle" if idle else "unknown",
        idle_since=max(since) if idle and len(since) == len(uses) else None,
    )


class _Sums(Struct):
    """The time of one pod on one GPU, in seconds of a whole GPU."""

    owner: str = ""
    node: str = ""
    model: str = ""
    idle: Seconds = 0.0
    in_use: Seconds = 0.0
    unknown: Seconds = 0.0
    memory: float | None = None  # bytes × seconds


# The fields of points that a ledger adds up, besides their names.
LEDGER_FIELDS = frozenset({"seconds", "held_seconds", "by_verdict", "memory_used", "share"})


class WasteLedger:
    """Adds up points of the history, hour by hour or day by day."""

    def __init__(self, now: Now) -> None:
        self._now = now
        self._pods: dict[HeldTime, _Sums] = {}
        self._total = self._held = self._covered = 0.0

    def add(self, gpus: Sequence[HistoryPoint], pods: Sequence[HistoryPoint]) -> None:
        """Add the points of GPUs and pods of one or several whole steps; no point may be added twice."""
        for time in sorted({point.time for point in gpus}):
            self._step([one for one in gpus if one.time == time], [one for one in pods if one.time == time])

    def _step(self, gpus: Sequence[HistoryPoint], pods: Sequence[HistoryPoint]) -> None:
        parts = _parts(gpus)
        self._covered += max((gpu.seconds for gpu in gpus), default=0.0)
        tenants: dict[tuple[str, str], list[HistoryPoint]] = {}
        for pod in pods:
            tenants.setdefault((pod.gpu_id, pod.mig), []).append(pod)
        for gpu in gpus:
            part = parts[gpu.gpu_id]
            self._total += part * gpu.seconds
            self._held += part * gpu.held_seconds
            holders = tenants.get((gpu.gpu_id, gpu.mig), [])
            for pod, share in zip(holders, self._shares(gpu, holders), strict=True):
                self._count(pod, part * share)

    def _shares(self, gpu: HistoryPoint, pods: Sequence[HistoryPoint]) -> list[Ratio]:
        """Each pod's share of the GPU while the pod holds it."""
        together = sum(pod.seconds for pod in pods)
        equal = gpu.held_seconds / together if together > gpu.held_seconds else 1.0
        shares = [equal if pod.share is None else pod.share for pod in pods]
        taken = sum(share * pod.seconds for share, pod in zip(shares, pods, strict=True))
        over = gpu.held_seconds / taken if taken > gpu.held_seconds else 1.0
        return [share * over for share in shares]

    def _count(self, pod: HistoryPoint, share: Ratio) -> None:
        sums = self._pods.setdefault(_holding(pod), _Sums())
        sums.owner, sums.node, sums.model = pod.owner or sums.owner, pod.hostname, pod.model
        sums.idle += share * pod.by_verdict.get("idle", 0.0)
        sums.in_use += share * pod.by_verdict.get("in_use", 0.0)
        sums.unknown += share * pod.by_verdict.get("unknown", 0.0)
        if pod.memory_used is not None:
            sums.memory = (sums.memory or 0.0) + pod.memory_used * pod.seconds

    @property
    def analysed(self) -> Seconds:
        """The time of all GPUs together."""
        return self._total

    def by_namespace(self) -> "dict[str, list[tuple[HeldTime, _Sums]]]":
        """The pods on GPUs and their times."""
        found: dict[str, list[tuple[HeldTime, _Sums]]] = {}
        for who, sums in self._pods.items():
            found.setdefault(who.namespace, []).append((who, sums))
        return found

    def waste(
        self,
        *,
        group_by: GroupBy,
        begin: UnixTime,
        end: UnixTime,
        history: bool = True,
        sees: Callable[[str], bool] | None = None,
    ) -> Waste:
        """The totals, and a row for each group that held a GPU, most idle time first.

        With `sees`, all figures are those of pods in the namespaces for which it returns True.
        """
        groups: dict[tuple[str, ...], list[tuple[HeldTime, _Sums]]] = {}
        pods = {who: sums for who, sums in self._pods.items() if sees is None or sees(who.namespace)}
        for who, sums in pods.items():
            groups.setdefault(_group(group_by, who, sums), []).append((who, sums))
        rows = [_row(found, self._now, covered=self._covered) for found in groups.values() if _held(found)]
        rows.sort(
            key=lambda row: (
                -row.idle_gpu_hours,
                -row.held_gpu_hours,
                row.namespace or "",
                row.pod or "",
                row.owner or "",
            )
        )
        every = list(pods.values())
        own = sum(sums.idle + sums.in_use + sums.unknown for sums in every)
        total, held = (self._total, self._held) if sees is None else (own, own)
        return Waste(
            begin=_iso(begin),
            end=_iso(end),
            group_by=group_by,
            history=history,
            gpu_hours=_hours(total),
            held_gpu_hours=_hours(held),
            unallocated_gpu_hours=_hours(total - held),
            idle_gpu_hours=_hours(sum(sums.idle for sums in every)),
            in_use_gpu_hours=_hours(sum(sums.in_use for sums in every)),
            unknown_gpu_hours=_hours(sum(sums.unknown for sums in every)),
            free_part_gpu_hours=_hours(max(0.0, held - own)),
            count=len(rows),
            rows=rows,
        )


def _holding(pod: HistoryPoint) -> HeldTime:
    return HeldTime(pod.gpu_id, pod.mig, pod.namespace, pod.pod)


def _parts(gpus: Iterable[HistoryPoint]) -> dict[str, Ratio]:
    """The part of its GPU that an instance is: together they are at most one GPU for the time analysed."""
    seconds: dict[str, Seconds] = {}
    longest: Seconds = 0.0
    for point in gpus:
        seconds[point.gpu_id] = seconds.get(point.gpu_id, 0.0) + point.seconds
        longest = max(longest, point.seconds)
    return {gpu_id: longest / spent if spent > longest else 1.0 for gpu_id, spent in seconds.items()}


def _group(by: GroupBy, who: HeldTime, sums: _Sums) -> tuple[str, ...]:
    match by:
        case "tenant":
            return who.namespace, who.pod
        case "namespace":
            return (who.namespace,)
        case "owner":
            return who.namespace, _owner(who, sums)
        case "node":
            return (sums.node,)
        case "model":
            return (sums.model,)


def _owner(who: HeldTime, sums: _Sums) -> str:
    return sums.owner or f"Pod/{who.pod}"


def _held(found: Sequence[tuple[HeldTime, _Sums]]) -> Seconds:
    return sum(sums.idle + sums.in_use + sums.unknown for _, sums in found)


def _row(found: Sequence[tuple[HeldTime, _Sums]], now: Now, *, covered: Seconds) -> WasteRow:
    """`covered`: the time that was analysed."""
    idle, in_use, unknown = (sum(getattr(sums, name) for _, sums in found) for name in ("idle", "in_use", "unknown"))
    memory = [sums.memory for _, sums in found if sums.memory is not None]
    here = [now[who] for who, _ in found if who in now]
    verdict = _verdict([one.verdict for one in here])
    since = [one.idle_since for one in here if one.idle_since is not None]
    return WasteRow(
        namespace=_only({who.namespace for who, _ in found}),
        pod=_only({who.pod for who, _ in found}),
        owner=_only({_owner(who, sums) for who, sums in found}),
        node=_only({sums.node for _, sums in found}),
        model=_only({sums.model for _, sums in found}),
        gpus=len({(who.gpu_id, who.mig) for who, _ in found}),
        pods=len({(who.namespace, who.pod) for who, _ in found}),
        idle_gpu_hours=_hours(idle),
        in_use_gpu_hours=_hours(in_use),
        unknown_gpu_hours=_hours(unknown),
        held_gpu_hours=_hours(idle + in_use + unknown),
        idle_ratio=round(idle / (idle + in_use + unknown), 4),
        memory_held=round(sum(memory) / covered) if memory and covered else None,
        idle_since=_iso(max(since)) if verdict == "idle" and len(since) == len(here) else None,
        verdict=verdict,
    )


def _verdict(said: Sequence[Verdict]) -> Verdict | Literal["ended"]:
    if not said:
        return "ended"
    return "in_use" if "in_use" in said else "unknown" if "unknown" in said else "idle"


def _only(names: set[str]) -> str | None:
    return names.pop() if len(names) == 1 else None


def _hours(seconds: Seconds) -> float:
    return round(seconds / _HOUR, 4)


def _iso(moment: UnixTime) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
