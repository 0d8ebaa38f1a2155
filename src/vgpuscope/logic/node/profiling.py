"""Profiling values of a node: from which source each GPU and GPU instance has them, and whose they are.

The driver and DCGM measure a GPU instance. Several compute instances may share it; then its values are one compute
instance's only if no other of them can have worked.
"""

from collections.abc import Collection, Mapping

from msgspec import Struct
from msgspec.structs import replace

from vgpuscope.knowledge.mig import instance_share
from vgpuscope.model.activity import Activity, ActivityPlace, ActivityReading, ActivitySource, Blind
from vgpuscope.model.device import Gpu, MigInstance
from vgpuscope.model.quantity import DeviceUUID, Ratio

_IDLE = 1e-6  # a ratio below this is 0
_NO_VALUE = Activity()


class Measured(Struct, frozen=True):
    """Values of one place, and where they came from."""

    activity: Activity
    source: ActivitySource


class Profile(Struct, frozen=True, kw_only=True):
    """All profiling values of one sample."""

    places: Mapping[ActivityPlace, Measured] = {}
    blind: Mapping[DeviceUUID, Blind] = {}
    dropped: Mapping[str, int] = {}

    def of(self, gpu: DeviceUUID, instance: int | None = None) -> Measured | None:
        """The values of a GPU or of one of its GPU instances."""
        return self.places.get((gpu, instance))


NO_PROFILE = Profile()


def joined(*readings: ActivityReading | None) -> Profile:
    """One profile from several sources; where two have the same place, the first with busy time, else the first.

    The values of one place are never mixed: they have one source, and they were measured over the same time.
    """
    there = [reading for reading in readings if reading is not None]
    if not there:
        return NO_PROFILE
    places: dict[ActivityPlace, Measured] = {}
    blind: dict[DeviceUUID, Blind] = {}
    dropped: dict[str, int] = {}
    for reading in there:
        for place, activity in reading.places.items():
            before = places.get(place)
            better = before is None or (before.activity.busy is None and activity.busy is not None)
            if better and activity != _NO_VALUE:
                places[place] = Measured(activity, reading.source)
        blind.update(reading.blind)
        dropped.update(reading.dropped)
    return Profile(places=places, blind=blind, dropped=dropped)


class Replacements:
    """When each GPU instance took its number: what was measured before is another instance's."""

    def __init__(self) -> None:
        self._migs: dict[ActivityPlace, frozenset[DeviceUUID]] = {}
        self._since: dict[ActivityPlace, float] = {}
        self._newest = float("-inf")
        self._looked = False

    def look_at(self, gpus: Collection[Gpu], now: float) -> None:
        """Note which instances are new. Those of the very first look may be old."""
        found = self._present(gpus)
        for place, migs in found.items():
            if self._looked and self._migs.get(place, frozenset()).isdisjoint(migs):
                self._since[place] = self._newest = now
        self._since = {place: at for place, at in self._since.items() if place in found}
        self._migs, self._looked = found, True

    def own(self, reading: ActivityReading, taken: float) -> ActivityReading:
        """The reading without the values of instances that were made after it was taken."""
        if taken >= self._newest:
            return reading
        late = {place for place, at in self._since.items() if taken < at}
        return replace(reading, places={place: one for place, one in reading.places.items() if place not in late})

    def _present(self, gpus: Collection[Gpu]) -> dict[ActivityPlace, frozenset[DeviceUUID]]:
        silent = {gpu.uuid for gpu in gpus if gpu.health != "ok"}  # their instances cannot be seen, and may be the same
        found = {place: migs for place, migs in self._migs.items() if place[0] in silent}
        for gpu in gpus:
            for one in gpu.instances:
                place = (gpu.uuid, one.gpu_instance)
                found[place] = found.get(place, frozenset()) | {one.uuid}
        return found


def strange(reading: ActivityReading, gpus: Collection[Gpu]) -> dict[str, int]:
    """How many of a dcgm-exporter's places this node does not have, by reason: they are not used."""
    here = {gpu.uuid: {i.gpu_instance for i in gpu.instances} for gpu in gpus}
    counts: dict[str, int] = {}
    for gpu, instance in reading.places:
        reason = ""
        if gpu not in here:
            reason = "dcgm-other-gpu"
        elif instance is not None and instance not in here[gpu]:
            reason = "dcgm-unknown-instance"
        if reason:
            counts[reason] = counts.get(reason, 0) + 1
    return counts


def share_of(gpu: Gpu, group: Collection[MigInstance]) -> Ratio | None:
    """The part of the GPU that a GPU instance is, from one of its compute instances."""
    first = next(iter(group), None)
    if first is None:
        return None
    return instance_share(first.profile, gpu.model, slices=first.slices if len(group) == 1 else None)


def own_activity(instance: MigInstance, group: Collection[MigInstance], activity: Activity) -> Activity | None:
    """The values of one compute instance; None if they may be another's of the same GPU instance."""
    if len(group) == 1:
        return activity
    if not works(activity):
        return activity
    if any(one.processes is None for one in group):
        return None
    running = [one for one in group if one.processes]
    if len(running) != 1:
        return None
    return activity if running[0] is instance else _nothing(activity)


def works(activity: Activity) -> bool:
    """Whether any pipe, engine or memory was busy."""
    return any((getattr(activity, name) or 0.0) > _IDLE for name in _RATIOS)


def _nothing(activity: Activity) -> Activity:
    """The same values of one that has no process: 0 where something was measured."""
    return replace(activity, **{name: 0.0 for name in _RATIOS if getattr(activity, name) is not None})


_RATIOS = ("engine", "sm", "occupancy", "tensor", "fp64", "fp32", "fp16", "dram", "decoder", "jpeg", "ofa")
