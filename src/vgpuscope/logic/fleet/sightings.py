"""Tracks → judged GPUs: each physical GPU or MIG instance once, with its numbers and its tenants.

A GPU may have tracks from several exporters, from replicas of one exporter, and from each pod that shares it. It is
still one GPU.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from vgpuscope.logic.fleet.pace import common
from vgpuscope.logic.fleet.scoring import ScoreWeights, Thresholds
from vgpuscope.logic.fleet.tracks import contradict
from vgpuscope.logic.fleet.verdict import VerdictRules, allowed_gap, best_signal, measured, window_of
from vgpuscope.model.analysis import SIGNALS, Fault, Schema, Stat, Tenant, Term, Track, Verdict, Window
from vgpuscope.model.quantity import Bytes, Ratio, Seconds, UnixTime, Watts

Key: TypeAlias = tuple[str, ...]  # of a GPU, of a MIG instance, or of a tenant on one


class PreviousVerdict(NamedTuple):
    """The last verdict on a GPU or tenant, and since when it was idle when that was last known."""

    verdict: Verdict | None = None  # None: never judged
    steady: int = 0  # number of analyses with this verdict
    idle_since: UnixTime | None = None
    until: UnixTime | None = None  # end of the last window for which this is known


NEW = PreviousVerdict()
OF_GPUS: frozenset[Term] = frozenset({"power", "power_limit", "energy"})  # exist for whole GPUs only
UNUSABLE = frozenset({"lost", "reset-required", "unresponsive"})  # health of a GPU that cannot compute


class AnalysisContext(Struct, frozen=True, kw_only=True):
    """The data and settings that all GPUs of one analysis share."""

    source: str
    window: Window
    previous: Mapping[Key, PreviousVerdict]
    weights: ScoreWeights
    thresholds: Thresholds
    rules: VerdictRules
    owners: Mapping[tuple[str, str], str]
    default_power: Watts
    default_memory: Bytes | None
    partial: bool
    faults: tuple[Fault, ...]  # faults that cost some tracks a term
    paces: dict[Seconds | None, "SampleTiming"] = {}  # by the sample interval of tracks

    def pace(self, track: Track) -> "SampleTiming":
        found = self.paces.get(track.interval)
        if found is None:
            window = window_of(track, self.window)
            slack = self.rules.max_age_intervals * window.interval
            found = SampleTiming(
                window=window, expected=window.expected, ended=window.end - slack, began=window.begin + slack
            )
            self.paces[track.interval] = found
        return found

    def failed(self, schemas: Collection[Schema], *, own: bool) -> frozenset[Term]:
        """The terms that could not be read for tracks of these schemas."""
        if not self.faults:
            return _NONE_FAILED
        of_these = [fault for fault in self.faults if fault.schema is None or fault.schema in schemas]
        return frozenset(term for fault in of_these if fault.own is None or fault.own == own for term in fault.terms)

    def goes_on(self, track: Track) -> bool:
        """Whether the track continues to the end of the window."""
        return track.last is None or not track.last < self.pace(track).ended

    def since(self, track: Track) -> UnixTime | None:
        """When the track began, if that is within the window."""
        return track.first if track.first is not None and track.first > self.pace(track).began else None

    def later(self, at: UnixTime | None, seen_since: UnixTime | None) -> bool:
        """Whether a tenancy began well after the GPU was first seen, so that the GPU has changed tenants."""
        slack = self.rules.max_age_intervals * self.window.interval
        return at is not None and seen_since is not None and at > seen_since + slack

    def idle_since(self, past: PreviousVerdict, since: UnixTime | None) -> UnixTime:
        """Since when an idle GPU or tenant is idle.

        The earlier start is kept if there is no unseen time between the two windows. `since`: when the tenant came, if
        that is within the window; earlier idle time is not the tenant's.
        """
        window = self.window
        unbroken = past.until is not None and past.until >= window.begin - allowed_gap(window, self.rules)
        if past.idle_since is not None and unbroken:
            return past.idle_since if since is None else max(past.idle_since, since)
        return window.begin if since is None else since

    def owner(self, tenant: Tenant) -> str:
        return self.owners.get((tenant.namespace, tenant.pod), "") if self.owners else ""


_NONE_FAILED: frozenset[Term] = frozenset()


class SampleTiming(Struct, frozen=True, kw_only=True):
    """What follows from the sample interval of a track."""

    window: Window
    expected: int
    ended: UnixTime  # a track without a sample after this has ended
    began: UnixTime  # a track without a sample before this began within the window


class Tenancy(Struct, kw_only=True, gc=False):
    """A tenant with its track, which is that of its own numbers if there is one."""

    tenant: Tenant
    track: Track
    since: UnixTime | None  # None: since before the window
    most: Ratio = 0.0  # the highest activity of its own processes


class JudgedGpu(Struct, kw_only=True, gc=False):
    """The data by which a GPU or MIG instance is judged."""

    base: Track  # the GPU's own numbers, by which it is judged
    shown: dict[Term, Stat]  # the numbers from the time of the current tenants
    span: str  # code for how the times of the GPU's and the tenants' numbers differ; "": they do not
    origins: Mapping[Term, Track]  # tracks of the terms that are not from `base`
    tenancies: list[Tenancy]
    gone: list[Tenancy]
    schemas: tuple[Schema, ...]  # of the tracks that see the whole GPU or instance
    several: bool  # whether there are several tracks
    contested: bool  # whether two targets contradict each other
    jobs: tuple[str, ...]  # of all tracks
    seen_since: UnixTime | None


# ── which tracks are of one GPU or instance ─────────────────────────────────────────────────────────────────────


def units_of(tracks: list[Track], context: AnalysisContext) -> Iterable[list[Track]]:
    """The tracks of the GPU, or those of each MIG instance if the GPU is divided now."""
    if len(tracks) == 1 or not any(track.mig for track in tracks):
        return (tracks,)
    parts: dict[str, list[Track]] = {}
    for track in _one_name_each(tracks):
        parts.setdefault(track.mig, []).append(track)
    whole = parts.pop("", [])
    if not any(context.goes_on(track) for part in parts.values() for track in part) and any(
        map(context.goes_on, whole)
    ):
        return (whole,)
    return [_with_gpu(part, whole, context) for part in parts.values()] if whole else parts.values()


def _with_gpu(part: list[Track], whole: list[Track], context: AnalysisContext) -> list[Track]:
    """A MIG instance has the health and the XIDs of its GPU, and shows its power, which nobody measures by instance."""
    health, xids = _health([*whole, *part]), _xids([*whole, *part])
    devices = [track for track in whole if not track.own]
    devices.sort(key=lambda track: (not context.goes_on(track), _rank(track, context), repr(track)), reverse=True)
    drawn = {name: stat for track in devices for name, stat in track.terms.items() if name in OF_GPUS}  # the best's
    return [
        replace(track, health=health, xids=xids, terms=track.terms if track.own else track.terms | drawn)
        for track in part
    ]


def _one_name_each(tracks: Sequence[Track]) -> Sequence[Track]:
    """MIG instances that one exporter names by number and another by UUID, all under the UUID.

    No source says which number has which UUID. They are matched by tenant, or by a profile that only one instance has.
    Numbers without a match are dropped: one instance must not be listed twice.
    """
    named = [track for track in tracks if track.mig and not track.mig.startswith("GI-")]
    if not named or len(named) == len(tracks):
        return tracks
    kept: list[Track] = []
    for track in tracks:
        if not track.mig.startswith("GI-"):
            kept.append(track)
        elif len(names := _same_instance(track, named, tracks)) == 1:
            kept.append(replace(track, mig=names.pop()))
    return kept


def _same_instance(track: Track, named: Iterable[Track], tracks: Iterable[Track]) -> set[str]:
    if track.tenant is not None:
        return {other.mig for other in named if other.tenant and _same_tenant(other.tenant, track.tenant)}
    numbers = {other.mig for other in tracks if other.mig.startswith("GI-") and other.profile == track.profile}
    return {other.mig for other in named if other.profile == track.profile} if len(numbers) == 1 else set()


def _one_of_each(tracks: list[Track], context: AnalysisContext) -> list[Track]:
    """One track for replicas of the same numbers: consecutive parts are joined, else the best track is kept."""
    alike: dict[tuple[object, ...], list[Track]] = {}
    for track in tracks:
        alike.setdefault((track.schema, track.own, track.tenant), []).append(track)
    return [_combined(same, context) if len(same) > 1 else same[0] for same in alike.values()]


def _combined(tracks: list[Track], context: AnalysisContext) -> Track:
    ordered = sorted(tracks, key=lambda track: (track.first or 0.0, track.last or 0.0, repr(track)))
    joined = ordered[:1]
    for track in ordered[1:]:
        before = joined[-1]
        if before.last is not None and track.first is not None and before.last < track.first:
            joined[-1] = _joined(before, track)
        else:
            joined.append(track)
    return _merged(sorted(joined, key=lambda track: (not context.goes_on(track), _rank(track, context), repr(track))))[
        0
    ]


def _joined(before: Track, after: Track) -> Track:
    """One track from two consecutive ones: a restarted exporter has its series under new labels."""
    terms = dict(before.terms)
    for name, stat in after.terms.items():
        terms[name] = _sum(terms[name], stat) if name in terms else stat
    return replace(after, terms=terms, first=before.first)


def _sum(one: Stat, two: Stat) -> Stat:
    samples = one.samples + two.samples
    mean = None
    if one.mean is not None and two.mean is not None and samples:
        mean = (one.mean * one.samples + two.mean * two.samples) / samples
    return Stat(
        mean=mean,
        max=max(one.max, two.max) if one.max is not None and two.max is not None else None,
        samples=samples,  # no p95: it does not follow from the p95 of the parts
        dropped=one.dropped + two.dropped,
        holes=common(one.holes, two.holes),
    )


def case_of(tracks: list[Track], context: AnalysisContext) -> JudgedGpu | None:
    """The data of one GPU or MIG instance to judge; None if only pods that have ended were seen on it."""
    if len(tracks) == 1 and not tracks[0].own:
        return _plain_case(tracks[0], context)
    whole = [one for one in tracks if not one.own and context.goes_on(one) and context.since(one) is None]
    contested = any(one.contested for one in tracks) or contradict([(one.target, one.terms) for one in whole])
    jobs = tuple(sorted({job for one in tracks for job in one.jobs}))
    tracks = _one_of_each(tracks, context)
    present = [track for track in tracks if context.goes_on(track)]
    if not present and all(track.tenant for track in tracks):
        return None
    base, origins = _device(tracks, present, context)
    tenancies, gone = _guests([track for track in tracks if track.tenant is not None], context)
    shown, span = _shown(base, present, tenancies, context)
    return JudgedGpu(
        base=base,
        shown=shown,
        span=span,
        origins=origins,
        tenancies=tenancies,
        gone=gone,
        schemas=tuple({track.schema for track in tracks if not track.own}),
        several=len(tracks) > 1,
        contested=contested,
        jobs=jobs,
        seen_since=_seen_since(tracks) if len(tracks) > 1 else base.first,
    )


def _plain_case(track: Track, context: AnalysisContext) -> JudgedGpu | None:
    """The usual case: numbers of the whole GPU, and at most one tenant."""
    tenancies = _NOBODY
    if track.tenant is not None:
        if not context.goes_on(track):
            return None
        tenancies = [Tenancy(tenant=track.tenant, track=track, since=context.since(track))]
    return JudgedGpu(
        base=track,
        shown=track.terms,
        span="",
        origins=_NO_ORIGINS,
        tenancies=tenancies,
        gone=_NOBODY,
        schemas=(track.schema,),
        several=False,
        contested=track.contested,
        jobs=track.jobs,
        seen_since=track.first,
    )


def _device(tracks: list[Track], present: list[Track], context: AnalysisContext) -> tuple[Track, Mapping[Term, Track]]:
    """The whole GPU's numbers, and which of its terms come from other tracks."""
    device = [track for track in present if not track.own] or [track for track in tracks if track.tenant is None]
    if device:
        return _merged(sorted(device, key=lambda track: _rank(track, context)))
    return _nameless(min(present, key=lambda track: _rank(track, context))), _NO_ORIGINS


def _nameless(track: Track) -> Track:
    """A GPU for which only tenants' own numbers are known: it exists, and has no numbers itself."""
    return replace(track, tenant=None, own=False, terms={}, first=None, state="")


def _seen_since(tracks: Iterable[Track]) -> UnixTime | None:
    return min((track.first for track in tracks if track.first is not None), default=None)


_NOBODY: list[Tenancy] = []
_NO_ORIGINS: Mapping[Term, Track] = {}


# ── numbers of the same time ─────────────────────────────────────────────────────────────────────────────────────


def _shown(
    base: Track, present: list[Track], tenancies: list[Tenancy], context: AnalysisContext
) -> tuple[dict[Term, Stat], str]:
    """The GPU's numbers to show beside its tenants' own, and the code for how they differ in time.

    If a tenant has had the GPU for as long as it was seen, the numbers are those of the window. If all tenants came
    later, the numbers are those since then, if a track has them, else none. The reason: the mean of a GPU that was free
    for half of the window is half of what its tenant uses now.
    """
    began = [tenancy.track.first for tenancy in tenancies if tenancy.track.own and tenancy.track.first is not None]
    if base.first is None or not began:
        return base.terms, ""
    interval = context.pace(base).window.interval
    slack = interval * (_SURELY_SAME if len(tenancies) == 1 and _exceeds(tenancies[0].track, base) else _SAME_SPAN)
    if not max(began) > base.first + slack:
        return base.terms, ""
    if len(began) < len(tenancies) or min(began) <= base.first + slack:
        return base.terms, "VERDICT_TENANT_IS_NEW"
    since = [track for track in present if not track.own and track.first and track.first >= min(began) - slack]
    if len(tenancies) == 1 and since:
        return min(since, key=lambda track: _rank(track, context)).terms, ""
    return {name: base.terms[name] for name in _LASTING if name in base.terms}, "VERDICT_NUMBERS_WITHHELD"


def _exceeds(track: Track, base: Track) -> bool:
    """Whether a tenant seems to use more memory than its GPU, which happens if the times differ by one sample."""
    mine, whole = track.terms.get("mem_used"), base.terms.get("mem_used")
    return bool(mine and whole and mine.mean and whole.mean is not None and mine.mean > whole.mean)


_SAME_SPAN = 1.5  # two tracks that begin within so many intervals cover the same time
_SURELY_SAME = 0.5
_LASTING: tuple[Term, ...] = ("mem_total", "power_limit")  # do not depend on the tenant


# ── which numbers are the GPU's ─────────────────────────────────────────────────────────────────────────────────


def _rank(track: Track, context: AnalysisContext) -> tuple[bool, bool, float, str]:
    """Sort key, best first: tracks that cover the window, our own schema, higher coverage."""
    seen = best_signal(
        track.terms,
        window=context.pace(track).window,
        first=track.first,
        last=track.last,
        schema=track.schema,
        rules=context.rules,
    )
    covered = seen.coverage if seen else -1.0
    who = track.tenant
    place = f"{who.namespace}/{who.pod}/{who.container}/{who.pod_uid}" if who else ""
    return covered < context.rules.min_coverage, track.schema != "vgpuscope", -covered, place


def _merged(tracks: Sequence[Track]) -> tuple[Track, dict[Term, Track]]:
    """The first track, completed with terms of the others, and which terms those are.

    If two tracks saw the same GPU and one saw more work, the higher maximum is used: the work did happen.
    """
    base = tracks[0]
    if len(tracks) == 1:
        return base, {}
    terms, origins = dict(base.terms), {}
    for track in tracks[1:]:
        for name, stat in track.terms.items():
            mine = terms.get(name)
            if mine is None or (mine.mean is None and mine.max is None):
                terms[name], origins[name] = stat, track
            elif (measured(stat.max) or 0.0) > (mine.max if mine.max is not None else 1.0):
                terms[name] = replace(mine, max=stat.max)
    best = replace(
        base,
        terms=terms,
        hostname=_said(tracks, "hostname"),
        model=_said(tracks, "model"),
        gpu_index=_said(tracks, "gpu_index"),
        profile=_said(tracks, "profile"),
        gpu_instance=_said(tracks, "gpu_instance"),
        target=_said(tracks, "target"),
        health=_health(tracks),
        xids=_xids(tracks),
    )
    return best, origins


def _health(tracks: Sequence[Track]) -> str:
    """The first reported health, unless a track reports that the GPU is unusable."""
    return next((track.health for track in tracks if track.health in UNUSABLE), "") or _said(tracks, "health")


def _xids(tracks: Iterable[Track]) -> tuple[int, ...]:
    return tuple(sorted({xid for track in tracks for xid in track.xids}))


def _said(tracks: Iterable[Track], field: str) -> str:
    return next((str(value) for track in tracks if (value := getattr(track, field))), "")


# ── tenants ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _guests(named: list[Track], context: AnalysisContext) -> tuple[list[Tenancy], list[Tenancy]]:
    """The current and the former tenants of the GPU, sorted by name."""
    here: list[Tenancy] = []
    gone: list[Tenancy] = []
    if len(named) > 1:
        named = sorted(named, key=lambda track: (not context.goes_on(track), _plainness(track)))
    for track in named:
        assert track.tenant is not None
        among = here if context.goes_on(track) else gone
        same = (_find(track.tenant, here) or _find(track.tenant, among)) if here or gone else None
        if same:
            _meet(same, track, context)
        else:
            among.append(Tenancy(tenant=track.tenant, track=track, since=context.since(track), most=_own_most(track)))
    return here, gone


def _find(tenant: Tenant, tenancies: Iterable[Tenancy]) -> Tenancy | None:
    return next((tenancy for tenancy in tenancies if _same_tenant(tenancy.tenant, tenant)), None)


def _plainness(track: Track) -> tuple[object, ...]:
    """Sort key: complete names first, then own numbers, so that a vaguer name meets the one that it is part of."""
    who = track.tenant
    assert who is not None
    name = (not who.pod_uid, not who.container, who.pod_uid, who.container)
    return (who.namespace, who.pod, *name, not track.own, track.schema != "vgpuscope", -(track.last or 0.0))


def _meet(tenancy: Tenancy, track: Track, context: AnalysisContext) -> None:
    """Add another track of the same tenant: it has had the GPU since the earlier start of both."""
    since = context.since(track)
    tenancy.since = None if since is None or tenancy.since is None else min(since, tenancy.since)
    tenancy.most = max(tenancy.most, _own_most(track))
    if track.own and not tenancy.track.own and context.goes_on(track):
        tenancy.track = track


def _same_tenant(one: Tenant, two: Tenant) -> bool:
    return (
        one.pod == two.pod
        and one.namespace == two.namespace
        and (one.container == two.container or not one.container or not two.container)
        and (one.pod_uid == two.pod_uid or not one.pod_uid or not two.pod_uid)
    )


def _own_most(track: Track) -> Ratio:
    if not track.own:
        return 0.0
    stats = [track.terms[name] for name in SIGNALS if name in track.terms]
    return max((measured(value) or 0.0 for stat in stats for value in (stat.max, stat.mean)), default=0.0)
