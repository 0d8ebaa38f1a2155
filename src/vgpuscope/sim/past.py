"""The time before the demo: a day of analyses for the analyzer's history, and a minute of scrapes for its window.

The same nodes are simulated for that time, with pods that start and end more slowly. The analyzer's own code judges the
samples that exporters would have shown; nothing here decides what is idle.
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from vgpuscope.config import Config
from vgpuscope.logic.fleet.allocated import with_allocations, with_registered
from vgpuscope.logic.fleet.assembly import assemble, remembered
from vgpuscope.logic.fleet.scoring import ScoreWeights, Thresholds
from vgpuscope.logic.fleet.verdict import VerdictRules
from vgpuscope.model.analysis import (
    Allocated,
    Allocations,
    Analysis,
    Hole,
    Reading,
    Schema,
    Stat,
    Tenant,
    Term,
    Track,
    Window,
)
from vgpuscope.services.analyzer.sources.own_scrapes import ScrapeSource
from vgpuscope.sim import dcgm
from vgpuscope.sim.cluster import registered_only, stale_allocations
from vgpuscope.sim.driver import BUSY_SMS
from vgpuscope.sim.hardware import MIB, Instance, SimGpu
from vgpuscope.sim.jobs import HOUR, Life, Timeline
from vgpuscope.sim.kinds import PLANS, KindPlan
from vgpuscope.sim.kinds import KindWindow as Stretch
from vgpuscope.sim.pods import owner
from vgpuscope.sim.world import World, engine_time
from vgpuscope.sources.fleet.targets import StaticTargets
from vgpuscope.store.results.history import History

DAY = 24 * HOUR
SOURCE = "the simulated day"
STEP = HOUR  # between two analyses of the day
_SLOWER = 60  # a pod's seconds in the demo are minutes on the day before
_LOOKS, _APART = 5, 6.0  # samples at each step, and seconds between them; together they see every burst of requests
_LONGEST_START = 120.0  # seconds until every node was scraped once, on a busy machine; a node that was not is down
_MISSED = 1.5  # intervals without a sample that make a gap


class Day:
    """The nodes on the day before the demo."""

    def __init__(self, *, seed: int, began: float) -> None:
        self._worlds = [World(_slow(plan), seed=seed, now=began - DAY, began=began) for plan in PLANS]

    def read(self, *, end: float, seconds: float) -> Reading:
        """The samples of the window; each window must be later than the one before."""
        samples, interval = Samples(), seconds / _LOOKS
        for look in range(1, _LOOKS + 1):
            for world in self._worlds:
                world.advance(end - (_LOOKS - look) * _APART)
                samples.add(world, at=end - seconds + look * interval)
        window = Window(begin=end - seconds, end=end, interval=interval)
        return _reading(window, samples.tracks(window))

    def owners(self) -> dict[tuple[str, str], str]:
        """The owners of the pods that exist now."""
        lives = [life for world in self._worlds for life in world.lives.values()]
        return {(life.job.namespace, life.name): owner(life.name) for life in lives}

    def allocations(self) -> Allocations:
        """What HAMi has allocated now, on the nodes that it manages."""
        registered = registered_only()
        pods: dict[tuple[str, str, str], Allocated] = {}
        gpus = {gpu_id: Allocated(0, 0) for gpu_id in registered}
        for world in self._worlds:
            given = [life for life in world.lives.values() if life.job.hami]
            gpus |= {gpu.uuid: Allocated(0, 0) for gpu in world.gpus if given}
            for life, gpu in [(one, world.gpus[index]) for one in given for index in one.job.gpus]:
                pods[gpu.uuid, life.job.namespace, life.name] = _given(life, gpu)
        pods |= {key: given for key, given in stale_allocations(self._worlds[0]) if key[0] in gpus}
        for (gpu_id, _, _), found in pods.items():
            all_ = gpus[gpu_id]
            gpus[gpu_id] = Allocated(all_.memory + found.memory, (all_.cores or 0) + (found.cores or 0))
        return Allocations(gpus, pods, registered)


def _given(life: Life, gpu: SimGpu) -> Allocated:
    hami = life.job.hami
    memory = hami.memory * MIB if hami and hami.memory else gpu.spec.memory * MIB
    return Allocated(memory, (hami.cores or None) if hami else None)


class Minutes:
    """The nodes shortly before their first scrapes, as scrapes would have seen them."""

    def __init__(self, *, seed: int, began: float, seconds: float, interval: float) -> None:
        self._interval, self._until = interval, began + _LONGEST_START
        self._next = began - seconds - 2 * interval
        self._worlds = [World(plan, seed=seed, now=self._next, began=began) for plan in PLANS]
        self._samples = Samples()
        self._first: dict[_Key | tuple[Schema, str], float] = {}  # first real samples, by series and by node

    def read(self, *, end: float, seconds: float) -> Reading:
        """The simulated samples of a window that has no real samples."""
        window = Window(begin=end - seconds, end=end, interval=self._interval)
        return _reading(window, self.tracks(window))

    def tracks(self, window: Window, seen: Iterable[Track] = ()) -> list[Track]:
        """The simulated samples in the window before the first real sample of each series."""
        if window.begin >= self._until:
            self._samples = Samples()
            return []
        for track in seen:
            if track.first is not None:
                for key in (_key(track), (track.schema, track.hostname)):
                    self._first[key] = min(track.first, self._first.get(key, math.inf))
        self._advance(min(window.end, self._until))
        return list(self._samples.tracks(window, self._cut))

    def _cut(self, key: "_Key") -> float | None:
        """Where real samples begin; a series without any had ended before the first scrape of its node."""
        return self._first.get(key, self._first.get((key.schema, key.hostname)))

    def _advance(self, until: float) -> None:
        while self._next <= until:
            for world in self._worlds:
                world.advance(self._next)
                self._samples.add(world, at=self._next)
            self._next += self._interval


async def remember(
    history: History, *, seed: int, began: float, clock: Callable[[], float], minutes: Minutes, window: float
) -> None:
    """Fills the store with analyses of the day before the demo, and with one of the present."""
    day, past = Day(seed=seed, began=began), _Memory()
    saves = []
    for number in range(1, round(DAY / STEP) + 1):
        reading = day.read(end=began - DAY + number * STEP, seconds=STEP)
        saves.append(asyncio.create_task(history.save(past.judged(reading, day.owners(), day.allocations()))))
        await asyncio.sleep(0)  # the store writes one analysis while the next is made
    # who has GPUs now is read from the cluster as soon as the demo runs
    present = past.judged(
        minutes.read(end=clock(), seconds=window), day.owners(), Allocations({}, {}, registered_only())
    )
    await asyncio.gather(*saves, history.save(present))


class _Memory:
    """Judges one reading after the other, with the analyzer's default settings."""

    def __init__(self) -> None:
        self._number, self._previous = 0, remembered(())

    def judged(self, reading: Reading, owners: Mapping[tuple[str, str], str], allocations: Allocations) -> Analysis:
        """The analysis that an analyzer would have made of the reading."""
        gpus = assemble(
            reading,
            previous=self._previous,
            weights=ScoreWeights(),
            thresholds=Thresholds(),
            rules=VerdictRules(),
            owners=owners,
        )
        self._number += 1
        self._previous = remembered(gpus)
        gpus = with_registered(gpus, allocations, window=reading.window, forget_after=DAY)
        gpus = with_allocations(gpus, allocations)
        return Analysis(
            number=self._number,
            started=reading.window.end,
            seconds=0.0,
            window=reading.window,
            gpus=gpus,
            source=reading.source,
            schemas=reading.schemas,
        )


class Remembering(ScrapeSource):
    """Scrapes that begin before the first real one, as if the analyzer had been running."""

    def __init__(self, config: Config, minutes: Minutes) -> None:
        super().__init__(
            targets=StaticTargets(config.analyzer.targets),
            interval=config.analyzer.scrape_interval,
            keep=config.prometheus.time_window_min * 60,
            condition=config.prometheus.query_condition,
        )
        self._minutes = minutes

    async def read(self, *, end: float, seconds: float) -> Reading:
        """The scraped samples in the window, and before them the simulated ones."""
        reading = await super().read(end=end, seconds=seconds)
        return replace(reading, tracks=(*reading.tracks, *self._minutes.tracks(reading.window, reading.tracks)))


def _reading(window: Window, tracks: Iterable[Track]) -> Reading:
    return Reading(window=window, tracks=tuple(tracks), schemas=("vgpuscope", "dcgm"), source=SOURCE)


# --- the slower timelines of the day before --------------------------------------------------------------------------


def _slow(plan: KindPlan) -> KindPlan:
    """The plan of a node on the day before: its timelines take minutes instead of seconds, and past pods are added."""
    return plan._replace(
        jobs=(*(job._replace(timeline=_slow_timeline(job.timeline)) for job in plan.jobs), *plan.past),
        slices=tuple(one._replace(exists=_slow_stretch(one.exists)) for one in plan.slices),
        faults=tuple(
            fault._replace(lost=_slow_stretch(fault.lost), hung=None, garbage=None, xids=()) for fault in plan.faults
        ),
    )


def _slow_timeline(timeline: Timeline) -> Timeline:
    if timeline.period is None or timeline.life is None:
        return timeline
    period = timeline.period * _SLOWER
    first = _before_the_day(timeline.first * _SLOWER, period)
    return timeline._replace(first=first, life=timeline.life * _SLOWER, period=period, linger=0)


def _slow_stretch(stretch: Stretch | None) -> Stretch | None:
    if stretch is None:
        return None
    period = stretch.period * _SLOWER
    return Stretch(_before_the_day(stretch.start * _SLOWER, period), stretch.length * _SLOWER, period)


def _before_the_day(start: float, period: float) -> float:
    return start - math.ceil((DAY + start) / period) * period


# --- the samples that exporters would have shown ---------------------------------------------------------------------


class _Key(NamedTuple):
    """Identifies the GPU, MIG instance or tenant of a sample."""

    schema: Schema
    hostname: str
    gpu_id: str
    mig: str
    tenant: Tenant | None
    own: bool


class _About(NamedTuple):
    """Properties from labels, as of the last sample."""

    gpu_index: str
    model: str
    profile: str = ""
    gpu_instance: str = ""
    health: str = ""
    state: str = ""


class _Sample(NamedTuple):
    at: float
    values: Mapping[Term, float]


def _key(track: Track) -> _Key:
    return _Key(track.schema, track.hostname, track.gpu_id, track.mig, track.tenant, track.own)


class Samples:
    """The samples that agents and a dcgm-exporter would have shown."""

    def __init__(self) -> None:
        self._rows: dict[_Key, list[_Sample]] = {}
        self._about: dict[_Key, _About] = {}

    def add(self, world: World, *, at: float) -> None:
        """Adds the samples of a node's current state."""
        for key, about, values in _shown(world):
            self._rows.setdefault(key, []).append(_Sample(at, values))
            self._about[key] = about

    def tracks(self, window: Window, cut_of: Callable[[_Key], float | None] = lambda _: None) -> Iterator[Track]:
        """The tracks in the window, each up to its cut, where real samples begin."""
        for key, rows in self._rows.items():
            cut = cut_of(key)
            until = window.end if cut is None else cut
            inside = [row for row in rows if window.begin < row.at <= window.end and (cut is None or row.at < cut)]
            if inside:
                yield _track(key, self._about[key], inside, window, until=until)


def _track(key: _Key, about: _About, samples: Sequence[_Sample], window: Window, *, until: float) -> Track:
    first, last = samples[0].at, samples[-1].at
    most = _MISSED * window.interval
    # If real samples follow, everything up to the first of them was observed.
    seen = until if until < window.end and until - last <= most else last
    holes = [Hole(window.begin, first)] if first - window.begin > most else []
    holes += [Hole(seen, window.end)] if window.end - seen > most else []
    terms = dict.fromkeys(term for sample in samples for term in sample.values)
    return Track(
        schema=key.schema,
        gpu_id=key.gpu_id,
        mig=key.mig,
        hostname=key.hostname,
        tenant=key.tenant,
        own=key.own,
        profile=about.profile,
        gpu_instance=about.gpu_instance,
        gpu_index=about.gpu_index,
        model=about.model,
        health=about.health,
        state=about.state,
        terms={term: _stat([s.values[term] for s in samples if term in s.values], tuple(holes)) for term in terms},
        first=first,
        last=last,
    )


def _stat(values: Sequence[float], holes: tuple[Hole, ...]) -> Stat:
    return Stat(mean=math.fsum(values) / len(values), max=max(values), samples=len(values), holes=holes)


_Shown = tuple[_Key, _About, Mapping[Term, float]]


def _shown(world: World) -> Iterator[_Shown]:
    node = world.plan.name
    for gpu in world.gpus:
        about = _About(str(gpu.index), gpu.spec.name, health="lost" if gpu.lost else "ok")
        yield _Key("vgpuscope", node, gpu.uuid, "", None, False), about, _of_gpu(gpu)
        if not gpu.lost:
            yield from _of_instances(world, gpu)
            yield from _of_tenants(world, gpu)
    if node not in dcgm.BESIDE:  # otherwise the agent itself shows these values
        yield from (_activity(node, one) for one in dcgm.activities(world))


def _of_gpu(gpu: SimGpu) -> Mapping[Term, float]:
    if gpu.lost:
        return {}
    found: dict[Term, float] = {
        "mem_used": gpu.used,
        "mem_total": gpu.total,
        "power": gpu.power,
        "power_limit": gpu.spec.limit_watts,
        "sm_clock": gpu.sm_clock * 1e6,
    }
    if not gpu.mig:  # with MIG on, the driver does not report the GPU's own utilisation
        found |= {"gpu_util": gpu.busy, "mem_copy": gpu.busy * 0.58}
        found |= {"encoder": gpu.load.encoder, "decoder": gpu.load.decoder}
        if gpu.spec.gpm:
            found |= {"sm_active": min(1.0, gpu.load.sm * BUSY_SMS), "engine_active": gpu.busy}
    return found


def _of_instances(world: World, gpu: SimGpu) -> Iterator[_Shown]:
    for instance in gpu.instances:
        used = sum(
            world.driver_memory(life, process, gpu)
            for life, process in world.on_gpu(gpu)
            if (place := world.instance_of(life)) and place.gpu_instance == instance.gpu_instance
        )
        key = _Key("vgpuscope", world.plan.name, gpu.uuid, instance.uuid, None, False)
        about = _About(str(gpu.index), gpu.spec.name, profile=instance.profile, gpu_instance=str(instance.gpu_instance))
        values: dict[Term, float] = {"mem_used": used, "mem_total": instance.total}
        if _profiled(world, gpu, instance):
            engine = engine_time(world, gpu, instance.gpu_instance)
            values |= {"sm_active": engine * BUSY_SMS, "engine_active": engine}
        yield key, about, values


def _profiled(world: World, gpu: SimGpu, instance: Instance) -> bool:
    """Whether the agent has profiling values of a MIG instance that are not another's."""
    numbers = [one.gpu_instance for one in gpu.instances]
    return (gpu.spec.gpm or world.plan.name in dcgm.BESIDE) and numbers.count(instance.gpu_instance) == 1


def _of_tenants(world: World, gpu: SimGpu) -> Iterator[_Shown]:
    for life in world.lives.values():
        if life.job.host or gpu.index not in life.job.gpus or life.phase(world.elapsed) != "Running":
            continue
        place = world.instance_of(life)
        if life.job.instances and place is None:
            continue  # its MIG instance does not exist yet
        key = _Key(
            "vgpuscope", world.plan.name, gpu.uuid, place.uuid if place else "", _tenant(life, uid=life.uid), True
        )
        about = _About(str(gpu.index), gpu.spec.name, state="active" if life.running() else "not-started")
        yield key, about, _of_tenant(world, life, gpu, place)


def _of_tenant(world: World, life: Life, gpu: SimGpu, place: Instance | None) -> Mapping[Term, float]:
    running = life.running()
    if not running:
        return {}
    found: dict[Term, float] = {"mem_used": sum(world.driver_memory(life, process, gpu) for process in running)}
    found["cpu"], found["power"] = life.job.cpu, _power_of(world, life, gpu)
    if life.job.hami and life.job.hami.memory:
        found["mem_total"] = life.job.hami.memory * MIB
    if place is None or _profiled(world, gpu, place):  # in an instance, the only tenant has all that is measured
        found["process_sm"] = sum(process.sm.get(gpu.index, 0.0) for process in running)
    return found


def _power_of(world: World, life: Life, gpu: SimGpu) -> float:
    """A pod's part of the GPU's power, as agents divide it: by SM time, and by memory if nothing computes."""
    processes = [
        (other is life, process, world.driver_memory(other, process, gpu)) for other, process in world.on_gpu(gpu)
    ]
    busy = [(mine, process.sm.get(gpu.index, 0.0)) for mine, process, _ in processes]
    for parts in (busy, [(mine, float(memory)) for mine, _, memory in processes]):
        if total := sum(part for _, part in parts):
            return gpu.power * sum(part for mine, part in parts if mine) / total
    return 0.0


def _activity(node: str, one: dcgm.Activity) -> _Shown:
    mig = f"GI-{one.instance.gpu_instance}" if one.instance else ""
    tenant = _tenant(one.holder) if one.holder else None
    about = _About(str(one.gpu.index), one.gpu.spec.name, profile=one.instance.profile if one.instance else "")
    key = _Key("dcgm", node, one.gpu.uuid, mig, tenant, False)
    return key, about, {"sm_active": one.sm, "engine_active": one.engine}


def _tenant(life: Life, *, uid: str = "") -> Tenant:
    return Tenant(namespace=life.job.namespace, pod=life.name, container=life.job.container, pod_uid=uid)
