"""A reading without what exceeds a limit: an exporter's owner decides how many GPUs and tenants its page names."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from vgpuscope.catalog.limits import FLEET_GPUS, GPU_TENANTS, TARGET_GPUS, FleetOmission, SeriesLimit
from vgpuscope.model.analysis import Fault, Reading, Track
from vgpuscope.model.errors import LimitReached


class LimitedReading(NamedTuple):
    """What is analysed, how many GPUs and tenants are not, and where."""

    reading: Reading
    omitted: dict[str, int]
    faults: tuple[Fault, ...]


def within_limits(reading: Reading) -> LimitedReading:
    """The reading with the first GPUs of each target and of the fleet, and the first tenants of each GPU."""
    omitted: dict[str, int] = {}
    faults: list[Fault] = []
    tracks: Iterable[Track] = reading.tracks
    for reason, limit, group, of in _LIMITS:
        if reason == "target-limit" and not reading.own:
            continue  # an engine may have all GPUs under one target, as after a federation
        tracks, beyond = _first(tracks, limit, group=group, of=of)
        if beyond:
            omitted[reason] = beyond.total()
            faults.append(_fault(reason, limit, beyond))
    return LimitedReading(replace(reading, tracks=tuple(tracks)) if faults else reading, omitted, tuple(faults))


def _first(
    tracks: Iterable[Track], limit: SeriesLimit, *, group: Callable[[Track], str], of: Callable[[Track], Hashable]
) -> tuple[list[Track], Counter[str]]:
    """The tracks of the first things in each group, and the number of the other things by group."""
    kept: list[Track] = []
    known: dict[str, set[Hashable]] = {}
    beyond: dict[str, set[Hashable]] = {}
    for track in tracks:
        thing, there = of(track), known.setdefault(group(track), set())
        if thing in there or thing is None or len(there) < limit.most:
            there.add(thing)
            kept.append(track)
        else:
            beyond.setdefault(group(track), set()).add(thing)
    return kept, Counter({name: len(things) for name, things in beyond.items()})


def _fault(reason: FleetOmission, limit: SeriesLimit, beyond: Counter[str]) -> Fault:
    part, _ = beyond.most_common(1)[0]
    where = f"{part[:80]} and {len(beyond) - 1} more" if len(beyond) > 1 else part[:80]
    text = f"{beyond.total()} beyond the limit of {limit.most:,} {limit.what} are ignored"
    return Fault(part=where or reason, code=LimitReached.code, message=text)


def _gpu(track: Track) -> Hashable:
    return track.gpu_id, track.mig


def _tenant(track: Track) -> Hashable:
    tenant = track.tenant
    return tenant and (tenant.namespace, tenant.pod, tenant.container, tenant.pod_uid)


_LIMITS: tuple[tuple[FleetOmission, SeriesLimit, Callable[[Track], str], Callable[[Track], Hashable]], ...] = (
    ("target-limit", TARGET_GPUS, lambda track: track.target, _gpu),
    ("fleet-limit", FLEET_GPUS, lambda _: "", _gpu),
    ("gpu-limit", GPU_TENANTS, lambda track: f"{track.gpu_id} {track.mig}".rstrip(), _tenant),
)
