"""From tracks to cards: each physical card or MIG instance once, with those who have it and what is concluded of it.

A card may be seen by several exporters, by replicas of one, and once for each pod that shares it; that stays one card.
What a former tenant did with a card says nothing about the present one.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from vgpuscope.logic.scoring import (
    DEFAULT_POWER,
    Thresholds,
    Weights,
    believable,
    measured_value,
    score,
    share,
    status,
)
from vgpuscope.logic.verdict import VerdictRules, best_signal, judge, measured, window_of
from vgpuscope.model.analysis import (
    SIGNALS,
    Evidence,
    Fault,
    GpuUse,
    Reading,
    Schema,
    Score,
    Stat,
    Tenant,
    TenantUse,
    Term,
    Track,
    UseClass,
    Verdict,
    Window,
)
from vgpuscope.model.quantity import Bytes, DeviceUUID, Ratio, Seconds, UnixTime, Watts

Key: TypeAlias = tuple[str, ...]  # of a card or MIG instance, or of a tenant on one
Past: TypeAlias = tuple[Verdict, int]  # what was said last, and for how many analyses
_Concluded: TypeAlias = tuple[Verdict, UseClass, Evidence]


def assemble(
    reading: Reading,
    *,
    previous: Mapping[Key, Past],
    weights: Weights,
    thresholds: Thresholds,
    rules: VerdictRules,
    owners: Mapping[tuple[str, str], str],
    default_power: Watts = DEFAULT_POWER,
    default_memory: Bytes | None = None,
) -> tuple[GpuUse, ...]:
    """All cards and MIG instances that the reading shows to be there now, ordered by node and index."""
    desk = _Desk(
        source=reading.source,
        window=reading.window,
        previous=previous,
        weights=weights,
        thresholds=thresholds,
        rules=rules,
        owners=owners,
        default_power=default_power,
        default_memory=default_memory,
        partial=reading.partial,
        faults=tuple(fault for fault in reading.faults if fault.terms),
    )
    cards: dict[DeviceUUID, list[Track]] = {}
    for track in reading.tracks:
        cards.setdefault(track.gpu_id, []).append(track)
    units = [unit for tracks in cards.values() for unit in _units(tracks, desk)]
    found: list[GpuUse] = []
    for at in range(0, len(units), _BLOCK):
        found += _uses(units[at : at + _BLOCK], desk)
    return tuple(sorted(found, key=_order))


def card_key(use: GpuUse) -> Key:
    """What a card or MIG instance is remembered by from one analysis to the next."""
    return (use.gpu_id, use.mig)


def tenant_key(use: GpuUse, tenant: Tenant) -> Key:
    """What a tenant of a card is remembered by; a pod of the same name that replaced it is another."""
    return _tenant_key(use.gpu_id, use.mig, tenant)


def remembered(uses: Iterable[GpuUse]) -> dict[Key, Past]:
    """What the next analysis has to know of this one: its `previous`."""
    previous: dict[Key, Past] = {}
    for use in uses:
        previous[card_key(use)] = (use.verdict, use.evidence.steady_for)
        for one in use.tenants:
            if one.own:
                previous[tenant_key(use, one.tenant)] = (one.verdict, one.evidence.steady_for)
    return previous


class _Desk(Struct, frozen=True, kw_only=True):
    """What is the same for all cards of one analysis."""

    source: str
    window: Window
    previous: Mapping[Key, Past]
    weights: Weights
    thresholds: Thresholds
    rules: VerdictRules
    owners: Mapping[tuple[str, str], str]
    default_power: Watts
    default_memory: Bytes | None
    partial: bool
    faults: tuple[Fault, ...]  # that took a term from some tracks
    paces: dict[Seconds | None, "_Pace"] = {}  # by the interval of tracks

    def pace(self, track: Track) -> "_Pace":
        found = self.paces.get(track.interval)
        if found is None:
            window = window_of(track, self.window)
            slack = self.rules.max_age_intervals * window.interval
            found = _Pace(window=window, expected=window.expected, ended=window.end - slack, began=window.begin + slack)
            self.paces[track.interval] = found
        return found

    def failed(self, schemas: Collection[Schema], *, own: bool) -> frozenset[Term]:
        """The terms that could not be read of such tracks."""
        if not self.faults:
            return _NONE_FAILED
        of_these = [fault for fault in self.faults if fault.schema is None or fault.schema in schemas]
        return frozenset(term for fault in of_these if fault.own is None or fault.own == own for term in fault.terms)

    def goes_on(self, track: Track) -> bool:
        """Whether the track has not ended within the window."""
        return track.last is None or not track.last < self.pace(track).ended

    def since(self, track: Track) -> UnixTime | None:
        """When the track began, if that is within the window."""
        return track.first if track.first is not None and track.first > self.pace(track).began else None

    def later(self, at: UnixTime | None, seen_since: UnixTime | None) -> bool:
        """Whether something began well after the card was first seen, so that it was in other hands before."""
        slack = self.rules.max_age_intervals * self.window.interval
        return at is not None and seen_since is not None and at > seen_since + slack


_NONE_FAILED: frozenset[Term] = frozenset()


class _Pace(Struct, frozen=True, kw_only=True):
    """What follows from how often a track has a sample."""

    window: Window
    expected: int
    ended: UnixTime  # who had no sample after this has ended
    began: UnixTime  # who had none before this began within the window


class _Guest(Struct, kw_only=True, gc=False):
    """A tenant with its track: the one of its own numbers, if there is one."""

    tenant: Tenant
    track: Track
    since: UnixTime | None  # None: since before the window
    most: Ratio = 0.0  # the highest activity of its own processes


# ── which tracks are of one card or instance ─────────────────────────────────────────────────────────────────────


def _units(tracks: list[Track], desk: _Desk) -> Iterable[list[Track]]:
    """The tracks of the card, or those of each of its MIG instances if that is how it is used now."""
    if len(tracks) == 1 or not any(track.mig for track in tracks):
        return (tracks,)
    parts: dict[str, list[Track]] = {}
    for track in _one_name_each(tracks):
        parts.setdefault(track.mig, []).append(track)
    whole = parts.pop("", [])
    if any(desk.goes_on(track) for part in parts.values() for track in part):
        return parts.values()
    return (whole,) if any(map(desk.goes_on, whole)) else parts.values()


def _one_name_each(tracks: Sequence[Track]) -> Sequence[Track]:
    """Instances that one exporter knows by number and another by UUID, under the UUID.

    Nothing says which number is which UUID, so they are matched by whoever has them, or by a profile that only one
    has. Numbers that match nothing are left out: the same instance must not be there twice.
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


def _one_of_each(tracks: list[Track], desk: _Desk) -> list[Track]:
    """Replicas of the same numbers are one track: the parts of one that was cut are joined, else the best is kept."""
    alike: dict[tuple[object, ...], list[Track]] = {}
    for track in tracks:
        alike.setdefault((track.schema, track.own, track.tenant), []).append(track)
    return [_combined(same, desk) if len(same) > 1 else same[0] for same in alike.values()]


def _combined(tracks: list[Track], desk: _Desk) -> Track:
    ordered = sorted(tracks, key=lambda track: (track.first or 0.0, track.last or 0.0, repr(track)))
    joined = ordered[:1]
    for track in ordered[1:]:
        before = joined[-1]
        if before.last is not None and track.first is not None and before.last < track.first:
            joined[-1] = _joined(before, track)
        else:
            joined.append(track)
    return _merged(sorted(joined, key=lambda track: (not desk.goes_on(track), _rank(track, desk), repr(track))))[0]


def _joined(before: Track, after: Track) -> Track:
    """One track of two that follow each other: an exporter that was restarted has its series under new labels."""
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
        samples=samples,  # and no p95: that of the whole does not follow from those of the parts
        dropped=one.dropped + two.dropped,
    )


# ── which numbers are the card's ─────────────────────────────────────────────────────────────────────────────────


def _rank(track: Track, desk: _Desk) -> tuple[bool, bool, float, str]:
    """Lowest first: what covers the window, our own schema, the better covered."""
    seen = best_signal(
        track.terms,
        window=desk.pace(track).window,
        first=track.first,
        last=track.last,
        schema=track.schema,
        rules=desk.rules,
    )
    covered = seen.coverage if seen else -1.0
    who = track.tenant
    place = f"{who.namespace}/{who.pod}/{who.container}/{who.pod_uid}" if who else ""
    return covered < desk.rules.min_coverage, track.schema != "vgpuscope", -covered, place


def _merged(tracks: Sequence[Track]) -> tuple[Track, dict[Term, Track]]:
    """The first track with what it lacks from the others, and which terms those are.

    Where two saw the same card and one saw more work, the work was there: its maximum is taken.
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
    )
    return best, origins


def _said(tracks: Iterable[Track], field: str) -> str:
    return next((str(value) for track in tracks if (value := getattr(track, field))), "")


# ── what is concluded ────────────────────────────────────────────────────────────────────────────────────────────


def _uses(units: Iterable[list[Track]], desk: _Desk) -> list[GpuUse]:
    """Cards and instances, step by step for all of them: Python takes half the time where it repeats itself."""
    cases = [case for unit in units if (case := _case(unit, desk)) is not None]
    scores = [_score(case, desk) for case in cases]
    concluded = [_judged(case, found, desk) for case, found in zip(cases, scores, strict=True)]
    return [_use(*all_of_it, desk) for all_of_it in zip(cases, scores, concluded, strict=True)]


_BLOCK = 500  # cards of one step
_NEW: tuple[None, int] = (None, 0)  # nothing was ever said of it


class _Case(Struct, kw_only=True, gc=False):
    """What there is to judge a card or instance by."""

    base: Track  # its own numbers
    origins: Mapping[Term, Track]  # of those terms that are from other tracks
    guests: list[_Guest]
    gone: list[_Guest]
    schemas: tuple[Schema, ...]  # of those who see the whole of it
    several: bool  # tracks
    seen_since: UnixTime | None


def _case(tracks: list[Track], desk: _Desk) -> _Case | None:
    """None if all that was seen of it are pods that have ended."""
    if len(tracks) == 1 and not tracks[0].own:
        return _plain_case(tracks[0], desk)
    tracks = _one_of_each(tracks, desk)
    present = [track for track in tracks if desk.goes_on(track)]
    if not present and all(track.tenant for track in tracks):
        return None
    base, origins = _device(tracks, present, desk)
    guests, gone = _guests([track for track in tracks if track.tenant is not None], desk)
    return _Case(
        base=base,
        origins=origins,
        guests=guests,
        gone=gone,
        schemas=tuple({track.schema for track in tracks if not track.own}),
        several=len(tracks) > 1,
        seen_since=_seen_since(tracks) if len(tracks) > 1 else base.first,
    )


def _plain_case(track: Track, desk: _Desk) -> _Case | None:
    """What most cards are: numbers of the whole device, and at most one who has it."""
    guests = _NOBODY
    if track.tenant is not None:
        if not desk.goes_on(track):
            return None
        guests = [_Guest(tenant=track.tenant, track=track, since=desk.since(track))]
    return _Case(
        base=track,
        origins=_NO_ORIGINS,
        guests=guests,
        gone=_NOBODY,
        schemas=(track.schema,),
        several=False,
        seen_since=track.first,
    )


def _score(case: _Case, desk: _Desk) -> Score:
    base = case.base
    return score(
        base.terms,
        model=base.model,
        weights=desk.weights,
        default_power=desk.default_power,
        default_memory=desk.default_memory,
        expected=desk.pace(base).expected,
    )


def _judged(case: _Case, found: Score, desk: _Desk) -> _Concluded:
    base, guests = case.base, case.guests
    previous, steady = desk.previous.get((base.gpu_id, base.mig), _NEW)
    known = _compute_is_known(found, base.terms)
    return judge(
        base.terms,
        window=desk.pace(base).window,
        first=base.first,
        last=base.last,
        previous=previous,
        rules=desk.rules,
        status=status(measured_value(found, base.terms) if known else None, desk.thresholds),
        schema=base.schema,
        model=base.model,
        default_power=desk.default_power,
        source=desk.source,
        partial=desk.partial,
        failed=desk.failed(case.schemas, own=False),
        origins=case.origins,
        beside=guests[0].most if len(guests) == 1 else max([guest.most for guest in guests], default=None),
        held_since=guests[0].since if len(guests) == 1 else _latest([guest.since for guest in guests]),
        handed_over=_handover(base, guests, case.seen_since, desk) if case.several else None,
        steady=steady,
    )


def _use(case: _Case, found: Score, concluded: _Concluded, desk: _Desk) -> GpuUse:
    base, (verdict, use_class, evidence) = case.base, concluded
    # memory alone says nothing of use: who acts on the status must not take a card for idle that nobody looked at
    told = found.value if _compute_is_known(found, base.terms) else None
    return GpuUse(
        gpu_id=base.gpu_id,
        mig=base.mig,
        profile=base.profile,
        gpu_index=base.gpu_index,
        hostname=base.hostname,
        model=base.model,
        terms=base.terms,
        score=found,
        status=believable(status(told, desk.thresholds), verdict),
        verdict=verdict,
        use_class=use_class,
        evidence=evidence,
        tenants=_tenants(case, concluded, desk) if case.guests else (),
        former=tuple(_former(guest, desk) for guest in case.gone) if case.gone else (),
    )


def _compute_is_known(found: Score, terms: Mapping[Term, Stat]) -> bool:
    if found.terms and found.terms[0].value is not None:  # utilisation is a term of the score itself
        return True
    return any(share(terms.get(signal)) is not None for signal in SIGNALS)


def _device(tracks: list[Track], present: list[Track], desk: _Desk) -> tuple[Track, Mapping[Term, Track]]:
    """The whole card's numbers, and which of its terms are from another track than the rest."""
    device = [track for track in present if not track.own] or [track for track in tracks if track.tenant is None]
    if device:
        return _merged(sorted(device, key=lambda track: _rank(track, desk)))
    return _nameless(min(present, key=lambda track: _rank(track, desk))), _NO_ORIGINS


def _nameless(track: Track) -> Track:
    """The card of which only tenants' own parts are known: it is there, and that is all."""
    return replace(track, tenant=None, own=False, terms={}, first=None)


def _seen_since(tracks: Iterable[Track]) -> UnixTime | None:
    return min((track.first for track in tracks if track.first is not None), default=None)


def _handover(base: Track, guests: Iterable[_Guest], seen_since: UnixTime | None, desk: _Desk) -> UnixTime | None:
    """When the card last came into other hands, where it was seen before."""
    began = (base.first, *(guest.since for guest in guests))
    return _latest([at for at in began if desk.later(at, seen_since)])


def _latest(times: Iterable[UnixTime | None]) -> UnixTime | None:
    return max((at for at in times if at is not None), default=None)


_NOBODY: list[_Guest] = []
_NO_ORIGINS: Mapping[Term, Track] = {}


def _guests(named: list[Track], desk: _Desk) -> tuple[list[_Guest], list[_Guest]]:
    """Those who have the card and those who had it, by name."""
    here: list[_Guest] = []
    gone: list[_Guest] = []
    if len(named) > 1:
        named = sorted(named, key=lambda track: (not desk.goes_on(track), _plainness(track)))
    for track in named:
        assert track.tenant is not None
        among = here if desk.goes_on(track) else gone
        same = (_find(track.tenant, here) or _find(track.tenant, among)) if here or gone else None
        if same:
            _meet(same, track, desk)
        else:
            among.append(_Guest(tenant=track.tenant, track=track, since=desk.since(track), most=_own_most(track)))
    return here, gone


def _find(tenant: Tenant, guests: Iterable[_Guest]) -> _Guest | None:
    return next((guest for guest in guests if _same_tenant(guest.tenant, tenant)), None)


def _plainness(track: Track) -> tuple[object, ...]:
    """Own numbers first, then the names that say most, so that a vaguer name meets the one that it is part of."""
    who = track.tenant
    assert who is not None
    name = (not who.pod_uid, not who.container, who.pod_uid, who.container)
    return (who.namespace, who.pod, *name, not track.own, track.schema != "vgpuscope", -(track.last or 0.0))


def _meet(guest: _Guest, track: Track, desk: _Desk) -> None:
    """The same tenant, seen another way: it has the card since the earlier of both."""
    since = desk.since(track)
    guest.since = None if since is None or guest.since is None else min(since, guest.since)
    guest.most = max(guest.most, _own_most(track))
    if track.own and not guest.track.own and desk.goes_on(track):
        guest.track = track


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


def _tenants(case: _Case, card: _Concluded, desk: _Desk) -> tuple[TenantUse, ...]:
    guests, gone, seen_since = case.guests, case.gone, case.seen_since
    key = (case.base.gpu_id, case.base.mig)
    if len(guests) == 1 and not guests[0].track.own:
        return (_tenant(guests[0], _by_card(guests[0], card, seen_since, desk, alone=True), desk),)
    own = {id(guest): _own(guest, key, seen_since, desk) for guest in guests if guest.track.own}
    doubtful = bool(own) and _unexplained(own.values(), gone, card, desk)
    uses: list[TenantUse] = []
    for guest in guests:
        concluded = own.get(id(guest)) or _by_card(guest, card, seen_since, desk, alone=len(guests) == 1)
        if doubtful and guest.track.own and concluded[0] == "idle":
            concluded = _unknown(concluded[2], "VERDICT_UNEXPLAINED_WORK")
        uses.append(_tenant(guest, concluded, desk))
    return tuple(uses)


def _tenant(guest: _Guest, concluded: _Concluded, desk: _Desk) -> TenantUse:
    verdict, use_class, evidence = concluded
    return TenantUse(
        tenant=guest.tenant,
        own=guest.track.own,
        terms=guest.track.terms if guest.track.own else _NO_TERMS,
        since=guest.since,
        verdict=verdict,
        use_class=use_class,
        evidence=evidence,
        owner=desk.owners.get((guest.tenant.namespace, guest.tenant.pod), "") if desk.owners else "",
    )


_NO_TERMS: dict[Term, Stat] = {}


def _own(guest: _Guest, key: tuple[str, str], seen_since: UnixTime | None, desk: _Desk) -> _Concluded:
    """What the tenant's own numbers say."""
    track = guest.track
    previous, steady = desk.previous.get(_tenant_key(*key, guest.tenant), _NEW)
    means = (measured(stat.mean) for name in SIGNALS if (stat := track.terms.get(name)))
    mean = next((mean for mean in means if mean is not None), None)
    return judge(
        track.terms,
        window=desk.pace(track).window,
        first=track.first,
        last=track.last,
        previous=previous,
        rules=desk.rules,
        status=status(None if mean is None else 100.0 * mean, desk.thresholds),
        schema=track.schema,
        source=desk.source,
        partial=desk.partial,
        failed=desk.failed((track.schema,), own=True),
        beside=guest.most,
        held_since=guest.since,
        handed_over=guest.since if desk.later(guest.since, seen_since) else None,
        steady=steady,
    )


def _unexplained(own: Iterable[_Concluded], gone: Iterable[_Guest], card: _Concluded, desk: _Desk) -> bool:
    """Whether the card works, or draws power as if, and nobody's own numbers say who it is.

    On some cards the driver gives every process 0: then a tenant's own idleness means nothing.
    """
    if card[0] == "in_use":
        worked = any(one[0] == "in_use" for one in own) or any(one.most >= desk.rules.idle_enter for one in gone)
        return not worked
    return card[2].reasons[0] in {"VERDICT_POWER_DISAGREES", "VERDICT_NO_MAX"}


def _by_card(guest: _Guest, card: _Concluded, seen_since: UnixTime | None, desk: _Desk, *, alone: bool) -> _Concluded:
    """What the whole card's numbers say of one tenant: all if it is alone, nothing of who works if it is not."""
    verdict, _, evidence = card
    if verdict == "unknown":
        return card
    window = desk.window
    since = guest.since if desk.later(guest.since, seen_since) else None
    if since is not None and window.end - since < desk.rules.min_coverage * window.seconds:
        return _unknown(replace(evidence, held_since=since), "VERDICT_HANDOVER_YOUNG")
    if alone or verdict == "idle":
        return card
    return _unknown(evidence, "VERDICT_SHARED_CARD")


def _unknown(evidence: Evidence, reason: str) -> _Concluded:
    kept = tuple(code for code in evidence.reasons if code in {"VERDICT_PARTIAL_READING", "VERDICT_SAMPLES_DROPPED"})
    return "unknown", "unknown", replace(evidence, reasons=(reason, *kept), steady_for=1)


def _former(guest: _Guest, desk: _Desk) -> TenantUse:
    track = guest.track
    return TenantUse(
        tenant=guest.tenant,
        own=track.own,
        terms=track.terms,  # of its own time, so even the whole card's say something of it
        since=guest.since,
        until=track.last,
        evidence=Evidence(
            reasons=("VERDICT_ENDED",),
            window_begin=desk.window.begin,
            window_end=desk.window.end,
            freshness=None if track.last is None else desk.window.end - track.last,
            source=desk.source,
            schema=track.schema,
        ),
        owner=desk.owners.get((guest.tenant.namespace, guest.tenant.pod), ""),
    )


def _tenant_key(gpu_id: str, mig: str, tenant: Tenant) -> Key:
    return (gpu_id, mig, tenant.namespace, tenant.pod, tenant.pod_uid, tenant.container)


def _order(use: GpuUse) -> tuple[str, bool, int, str, str, str]:
    index = use.gpu_index
    number = int(index) if index.isascii() and index.isdigit() and len(index) < 10 else -1
    return (use.hostname, number < 0, number, index, use.gpu_id, use.mig)
