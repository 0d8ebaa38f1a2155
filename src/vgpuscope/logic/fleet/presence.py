"""GPUs that reported before and do not report now: they stay listed as unknown until they are known to be gone.

A GPU is known to be gone when its node was deleted, when its scrape target has answered without it for a few analyses,
when its MIG layout changed, or when it has not been seen for a long time. Only the GPU stays listed; its tenants do
not.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from vgpuscope.logic.fleet.sightings import UNUSABLE
from vgpuscope.model.analysis import Analysis, Evidence, GpuUse, Reading, Target, Window
from vgpuscope.model.quantity import Seconds, UnixTime

MOST_PER_TARGET = 64  # GPUs and MIG instances kept of one target; eight GPUs have at most 56 instances
_FEW = 2  # intervals from the first analysis to the third
_Key: TypeAlias = tuple[str, str]


class GpuPresence(Struct, frozen=True, kw_only=True):
    """The GPUs of one analysis in two groups: those that report, and those that no longer do."""

    reporting: tuple[GpuUse, ...]
    away: tuple[GpuUse, ...]


def split(found: Iterable[GpuUse], *, before: Analysis | None, window: Window) -> GpuPresence:
    """Separate the GPUs that report in this window from those that reported only earlier.

    GPUs that no longer report are known from the beginning of the window or from the analysis before.
    """
    reporting: list[GpuUse] = []
    silent: list[GpuUse] = []
    for gpu in found:
        (silent if _silent(gpu) else reporting).append(gpu)
    known = {_key(gpu): gpu for gpu in before.gpus if not gpu.unreported} if before else {}
    away = [_away(gpu, window, was=known.get(_key(gpu))) for gpu in silent]
    there = {_key(gpu) for gpu in reporting} | {_key(gpu) for gpu in silent}
    away += [_remembered(gpu, window, before) for key, gpu in known.items() if key not in there] if before else []
    return GpuPresence(reporting=tuple(reporting), away=tuple(away))


def kept(
    present: GpuPresence,
    *,
    reading: Reading,
    interval: Seconds,
    forget_after: Seconds,
    nodes: Collection[str] | None = None,
    all_targets: bool = False,
) -> tuple[GpuUse, ...]:
    """The GPUs that do not report and are not known to be gone.

    `interval`: between two analyses. `nodes`: all nodes of the cluster; None: not known. `all_targets`: a target that
    is missing from the reading was removed from the settings.
    """
    now = _Now.of(present.reporting, reading, nodes=nodes, all_targets=all_targets)
    stay = [gpu for gpu in map(now.answered, present.away) if not now.gone(gpu, interval, forget_after)]
    return tuple(_newest_of_each(stay))


def expected(targets: Sequence[Target], stay: Iterable[GpuUse]) -> tuple[Target, ...]:
    """The targets of a reading, and former targets whose GPUs are still missed."""
    there = {target.name for target in targets}
    left: dict[str, UnixTime] = {}
    for gpu in stay:
        if gpu.target and gpu.target not in there and gpu.last_seen is not None:
            left[gpu.target] = max(gpu.last_seen, left.get(gpu.target, gpu.last_seen))
    gone = [Target(name=name, up=False, since=at, reason=_LEFT) for name, at in sorted(left.items())]
    return (*targets, *gone)


_LEFT = "the source no longer knows this target"


# ── GPUs that do not report ──────────────────────────────────────────────────────────────────────────────────────


def _key(gpu: GpuUse) -> _Key:
    return (gpu.gpu_id, gpu.mig)


def _silent(gpu: GpuUse) -> bool:
    """Whether the last sample is too old, and no tenant has newer numbers of its own.

    A GPU that its exporter reports as lost is not silent: a lost GPU is expected to have no numbers.
    """
    age, most = gpu.evidence.freshness, gpu.evidence.max_age
    return gpu.health not in UNUSABLE and not gpu.tenants and age is not None and most is not None and age > most


def _away(gpu: GpuUse, window: Window, *, was: GpuUse | None) -> GpuUse:
    """A GPU that no longer reports, but whose last sample is still in the window.

    If it is not known from before, it ended between two analyses, or it is gone for good and still in the window. In
    either case its absence began with its last sample.
    """
    assert gpu.evidence.freshness is not None
    last = window.end - gpu.evidence.freshness
    former = tuple(replace(use, terms={}) for use in gpu.former)  # no part is known of what is not known
    return replace(_unknown(gpu, last, window), former=former, absent_since=was.absent_since if was else last)


def _remembered(gpu: GpuUse, window: Window, before: Analysis) -> GpuUse:
    age, end = gpu.evidence.freshness, before.window.end
    last = gpu.last_seen if gpu.last_seen is not None else end - max(0.0, age or 0.0)
    return _unknown(gpu, last, window)


def _unknown(gpu: GpuUse, last: UnixTime, window: Window) -> GpuUse:
    """What is kept of a GPU: its identity, its node, and the health that its exporter last reported."""
    return GpuUse(
        gpu_id=gpu.gpu_id,
        mig=gpu.mig,
        profile=gpu.profile,
        gpu_instance=gpu.gpu_instance,
        gpu_index=gpu.gpu_index,
        hostname=gpu.hostname,
        model=gpu.model,
        evidence=Evidence(
            reasons=("VERDICT_NOT_SEEN",),
            freshness=max(0.0, window.end - last),
            window_begin=window.begin,
            window_end=window.end,
            source=gpu.target or gpu.evidence.source,
            schema=gpu.evidence.schema,
        ),
        last_seen=last,
        target=gpu.target,
        health=gpu.health,
        xids=gpu.xids,
        absent_since=gpu.absent_since,
    )


# ── GPUs that are gone ───────────────────────────────────────────────────────────────────────────────────────────


class _Now(Struct, frozen=True, kw_only=True):
    """What this reading shows about where GPUs may be."""

    at: UnixTime
    up: dict[str, bool]  # by target
    answering: frozenset[str]  # targets and nodes that report GPUs
    gpus: frozenset[str]
    whole: bool  # no query failed, so a GPU that is absent was not reported
    nodes: Collection[str] | None  # None: not known, or exporters use other node names
    all_targets: bool

    @classmethod
    def of(
        cls, reporting: Sequence[GpuUse], reading: Reading, *, nodes: Collection[str] | None, all_targets: bool
    ) -> "_Now":
        hosts = {gpu.hostname for gpu in reporting if gpu.hostname}
        comparable = nodes is not None and bool(hosts) and hosts <= set(nodes)
        return cls(
            at=reading.window.end,
            up={target.name: target.up for target in reading.targets},
            answering=frozenset({gpu.target for gpu in reporting if gpu.target} | hosts),
            gpus=frozenset(gpu.gpu_id for gpu in reporting),
            whole=not any(fault.terms for fault in reading.faults),
            nodes=nodes if comparable else None,
            all_targets=all_targets,
        )

    def answered(self, gpu: GpuUse) -> GpuUse:
        """The GPU with a reason code and `absent_since`, by whether its target answers."""
        answers = self._answers(gpu)
        why = "VERDICT_TARGET_WITHOUT_IT" if answers else "VERDICT_TARGET_DOWN"
        since = gpu.absent_since
        if not answers:
            since = None
        elif since is None and self.whole:
            since = self.at
        return replace(gpu, evidence=replace(gpu.evidence, reasons=("VERDICT_NOT_SEEN", why)), absent_since=since)

    def gone(self, gpu: GpuUse, interval: Seconds, forget_after: Seconds) -> bool:
        assert gpu.last_seen is not None
        if abs(self.at - gpu.last_seen) >= forget_after:  # also a time in the future: a clock was wrong
            return True
        if self.nodes is not None and gpu.hostname and gpu.hostname not in self.nodes:
            return True
        if self.all_targets and gpu.target and gpu.target not in self.up:
            return True
        if not self.whole:
            return False
        if gpu.gpu_id in self.gpus:  # as a whole GPU, or with other MIG instances
            return True
        return gpu.absent_since is not None and self.at - gpu.absent_since >= _FEW * interval

    def _answers(self, gpu: GpuUse) -> bool:
        """Whether its target or node answers. A replaced agent pod has a new address, so the node is checked too."""
        if gpu.target in self.up:
            return self.up[gpu.target]
        return gpu.target in self.answering or gpu.hostname in self.answering


def _newest_of_each(stay: Iterable[GpuUse]) -> Iterable[GpuUse]:
    """The newest GPUs of each target, up to a limit: an exporter that invents names must not fill the list."""
    counts: dict[str, int] = {}
    for gpu in sorted(stay, key=lambda one: (-(one.last_seen or 0.0), one.gpu_id, one.mig)):
        place = gpu.target or gpu.hostname
        counts[place] = counts.get(place, 0) + 1
        if counts[place] <= MOST_PER_TARGET:
            yield gpu
