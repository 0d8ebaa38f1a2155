"""The same hour has the same mean and the same energy in charts of an hour, a day, a week and a month.

The truth is counted moment by moment from a made-up world: pods that come, go and return under their name, GPUs that
are shared or divided by MIG, a GPU that is added, and times without an analyzer.
"""

import math
import random
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from tests.store.fleets import DAY, GIB, HOUR, analysis, gpu, tenant
from vgpuscope.config import Config
from vgpuscope.model.analysis import Analysis, GpuUse, Stat
from vgpuscope.services.analyzer.console.history import class_history, series_history
from vgpuscope.services.analyzer.console.parameters import ClassesQuery, SeriesQuery
from vgpuscope.services.analyzer.console.past_hours import PastHours
from vgpuscope.sources.console.parts import PartReading
from vgpuscope.store.opening import open_store

TICK = 20  # seconds; everything in the world happens at a multiple of it
BEGIN = 1_790_000_000 // DAY * DAY  # midnight
LONG = 27 * HOUR
KEEP: dict[str, Any] = {"keep_results": 30 * DAY, "keep_hours": 30 * DAY, "keep_days": 400 * DAY}
IDLE_WATTS = 50.0


class Stay(NamedTuple):
    """A pod on a GPU or MIG instance; its numbers do not change while it stays."""

    number: int  # of the GPU
    mig: str
    namespace: str
    pod: str
    begin: int
    end: int
    memory: float
    watts: float

    def at(self, tick: int) -> bool:
        return self.begin <= tick < self.end


class World:
    """GPUs with the moments between which they exist, pods on them, and the windows that were analysed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.interval = self.chance.choice((300, 600, 900, 1800))
        self.windows = self._windows()
        self.gpus = {0: BEGIN, 1: BEGIN, 2: BEGIN, 3: BEGIN + self._moment(0, LONG)}  # 2 is divided, 3 is added
        self.devices = [(0, ""), (1, ""), (2, "MIG-a"), (2, "MIG-b"), (3, "")]
        self.stays = [stay for device in self.devices for n in range(2) for stay in self._stays(*device, n)]
        self.covered = {tick for begin, end in self.windows for tick in range(begin, end, TICK)}

    def _moment(self, low: int, high: int) -> int:
        return self.chance.randrange(low, high) // TICK * TICK

    def _windows(self) -> list[tuple[int, int]]:
        """One after the other, not at full hours, with gaps in which no analyzer runs."""
        found, at = [], BEGIN + self._moment(0, self.interval)
        while at < BEGIN + LONG:
            found.append((at, at + self.interval))
            at += self.interval
            if self.chance.random() < 0.03:
                at += self._moment(0, 3 * HOUR)
        return found

    def _stays(self, number: int, mig: str, of: int) -> list[Stay]:
        found, at = [], max(BEGIN, self.gpus[number]) + self._moment(0, 4 * HOUR)
        names = [f"pod-{number}{mig}-{of}-{n}" for n in range(3)]  # a name returns, never while it is there
        numbers = {
            name: (self.chance.randrange(1, 40) * float(GIB), self.chance.randrange(50, 400) * 1.0) for name in names
        }
        while at < BEGIN + LONG:
            at = self._end(at)
            end = self._end(at + self._moment(TICK, 5 * HOUR) + TICK)
            name = self.chance.choice(names)
            team = f"team-{(number + of) % 2}"
            found.append(Stay(number, mig, team, name, at, end, *numbers[name]))
            at = self._after(end) + self._moment(0, HOUR)
        return found

    def _window_of(self, moment: int) -> tuple[int, int] | None:
        return next((one for one in self.windows if one[0] < moment <= one[1]), None)

    def _end(self, moment: int) -> int:
        """An analysis has one mean for all of its time: a change within it matters only across a full hour."""
        window = self._window_of(moment)
        if window is not None and window[0] // HOUR != (window[1] - 1) // HOUR:
            return window[1]
        return moment

    def _after(self, moment: int) -> int:
        """The next pod of this place comes in another analysis, so that each has its own numbers there."""
        window = self._window_of(moment)
        return window[1] if window else moment

    def analyses(self) -> list[Analysis]:
        return [
            analysis(end, *self._gpus(begin, end), number=place + 1, window=end - begin)
            for place, (begin, end) in enumerate(self.windows)
        ]

    def _gpus(self, begin: int, end: int) -> list[GpuUse]:
        return [self._gpu(number, mig, begin, end) for number, mig in self.devices if self.gpus[number] < end]

    def _gpu(self, number: int, mig: str, begin: int, end: int) -> GpuUse:
        ticks = range(begin, end, TICK)
        here = [
            one for one in self.stays if (one.number, one.mig) == (number, mig) and one.begin < end and one.end > begin
        ]
        whole = [one for one in self.stays if one.number == number]
        memory = sum(one.memory for tick in ticks for one in here if one.at(tick)) / len(ticks)
        watts = IDLE_WATTS + sum(one.watts for tick in ticks for one in whole if one.at(tick)) / len(ticks)
        uses = [
            tenant(
                one.pod,
                namespace=one.namespace,
                own=True,
                terms={"mem_used": Stat(mean=one.memory), "power": Stat(mean=one.watts), "process_sm": Stat(mean=0.5)},
                since=float(one.begin) if one.begin > begin else None,
                until=float(one.end) if one.end < end else None,
                verdict="in_use",
                use_class="busy",
            )
            for one in here
        ]
        return gpu(
            number,
            mig=mig,
            terms={"mem_used": Stat(mean=memory), "power": Stat(mean=watts), "gpu_util": Stat(mean=0.25)},
            tenants=tuple(use for use in uses if use.until is None),
            former=tuple(use for use in uses if use.until is not None),
            verdict="in_use" if here else "idle",
            use_class="busy" if here else "idle",
        )

    # ── the truth ────────────────────────────────────────────────────────────────────────────────────────────────

    def seconds(self, begin: int, long: int) -> list[int]:
        """The moments of a step for which there are analyses."""
        return [tick for tick in range(begin, begin + long, TICK) if tick in self.covered]

    def of_pods(self, quantity: str, namespace: str, begin: int, long: int) -> float | None:
        """The mean of the sum over pods; of energy, the integral."""
        ticks = self.seconds(begin, long)
        here = [one for one in self.stays if one.namespace == namespace and any(map(one.at, ticks))]
        if not here:
            return None
        what = "memory" if quantity == "memory_used" else "watts"
        total = sum(getattr(one, what) for tick in ticks for one in here if one.at(tick))
        return total * TICK if quantity == "energy" else total / len(ticks)

    def of_gpus(self, quantity: str, begin: int, long: int) -> float | None:
        """The same over all GPUs. One that is added is there from the first analysis that lists it."""
        ticks = self.seconds(begin, long)
        if not ticks:
            return None
        total = 0.0
        for number, added in self.gpus.items():
            known = next((start for start, end in self.windows if end > added), math.inf)
            there = [tick for tick in ticks if tick >= known]
            pods = [one for one in self.stays if one.number == number]
            base = 0.0 if quantity == "memory_used" else IDLE_WATTS
            what = "memory" if quantity == "memory_used" else "watts"
            total += sum(base + sum(getattr(one, what) for one in pods if one.at(tick)) for tick in there)
        return total * TICK if quantity == "energy" else total / len(ticks)

    def gpus_known(self, begin: int, long: int) -> float:
        ticks = self.seconds(begin, long)
        first = [next((start for start, end in self.windows if end > added), math.inf) for added in self.gpus.values()]
        return sum(tick >= known for tick in ticks for known in first) / len(ticks)

    def held(self, begin: int, long: int) -> float:
        """GPUs that pods hold; an instance of a GPU that is divided in two is half of it."""
        ticks = self.seconds(begin, long)
        parts = [(0.5 if mig else 1.0, number, mig) for number, mig in self.devices]
        return sum(
            part
            for tick in ticks
            for part, number, mig in parts
            if any(one.at(tick) for one in self.stays if (one.number, one.mig) == (number, mig))
        ) / len(ticks)


class _Console:
    """As much of the console as charts need, with the real store."""

    engine = None
    covered: Any

    def __init__(self, results, *, interval: float) -> None:
        self._results = results
        config = Config()
        self.config = replace(
            config,
            scheduler=replace(config.scheduler, interval=float(interval)),
            analyzer=replace(config.analyzer, **KEEP),
        )
        self.covered = getattr(results, "covered", None)
        self.class_hours: PastHours[Any] = PastHours(self.now, most=1000)

    def now(self) -> float:
        return float(BEGIN + LONG + 2 * HOUR)

    async def size(self, *, pods: bool) -> int:
        return 5 + 5 * pods

    async def chart(self, _key, fetch):
        return PartReading(name="history", state="ok", value=await fetch(), at=self.now())

    async def read_points(self, wanted):
        return (await self._results.page(wanted)).points


@asynccontextmanager
async def console_of(world: World, path, *, rolled: bool):
    store = open_store(str(path), **KEEP)
    try:
        made = world.analyses()
        for place, one in enumerate(made):
            await store.results.save(one)
            if rolled and place % 40 == 39:
                await store.results.prune(one.window.end)
        if rolled:
            await store.results.prune(BEGIN + LONG + DAY)
        yield _Console(store.results, interval=world.interval)
    finally:
        await store.close()


VIEWS = {"1h": 3600 // 300 + 1, "1d": 25, "7d": 169, "30d": 31}  # points, for steps of 5 to 30 minutes, 1 h, 1 h, 1 d


async def series(console, range_: str, *, end: float, scope, quantity) -> dict[str, dict[int, float]]:
    """Quantity → begin of the step → value."""
    asked = SeriesQuery(range=range_, end=end, points=VIEWS[range_], quantity=tuple(quantity))
    found = await series_history(console, asked, scope)
    return {
        column.quantity: {at: value for at, value in zip(found.times, column.values, strict=True) if value is not None}
        for column in found.columns
    } | {"step": {0: found.step_seconds}}


QUANTITIES = ("memory_used", "power", "energy")
SUBJECTS = (None, frozenset({"team-0"}), frozenset({"team-1"}))


def truth(world: World, scope, quantity: str, begin: int, long: int) -> float | None:
    return (
        world.of_gpus(quantity, begin, long)
        if scope is None
        else world.of_pods(quantity, next(iter(scope)), begin, long)
    )


def alike(quantity: str, value: float | None, wanted: float | None) -> bool:
    """Up to rounding: bytes of a mean over milliseconds, and 0.1 W or J."""
    if value is None or wanted is None:
        return not value and not wanted
    rounding = {"memory_used": 600.0, "power": 0.2, "energy": 1.0}[quantity]
    return value == pytest.approx(wanted, rel=1e-4, abs=rounding)


@pytest.mark.parametrize("rolled", [False, True])
@pytest.mark.parametrize("seed", range(4))
async def test_every_chart_shows_what_was_there_second_by_second(tmp_path, seed, rolled):
    world = World(seed)
    async with console_of(world, tmp_path / "h.db", rolled=rolled) as console:
        end = BEGIN + LONG
        for scope in SUBJECTS:
            for range_, hour_end in (("1d", end), ("1d", end - 1234), ("7d", end), ("30d", end)):
                found = await series(console, range_, end=hour_end, scope=scope, quantity=QUANTITIES)
                step = int(found["step"][0])
                assert step == (DAY if range_ == "30d" else HOUR)
                for quantity in QUANTITIES:
                    for at in range(hour_end - int(end - BEGIN), hour_end):
                        if at % step == 0 and at >= BEGIN and (range_ != "1d" or at >= hour_end - DAY):
                            value, wanted = found[quantity].get(at), truth(world, scope, quantity, at, step)
                            assert alike(quantity, value, wanted), (range_, quantity, scope, (at - BEGIN) / HOUR)


@pytest.mark.parametrize("seed", range(4))
async def test_the_steps_of_an_hour_are_the_hour(tmp_path, seed):
    world = World(seed)
    async with console_of(world, tmp_path / "h.db", rolled=True) as console:
        for hour in range(BEGIN + 3 * HOUR, BEGIN + 9 * HOUR, HOUR):
            for scope in SUBJECTS:
                fine = await series(console, "1h", end=hour + HOUR, scope=scope, quantity=QUANTITIES)
                step = int(fine["step"][0])
                assert HOUR % step == 0
                steps = range(hour, hour + HOUR, step)
                covered = {at: len(world.seconds(at, step)) * TICK for at in steps}
                for quantity in QUANTITIES:
                    values = fine[quantity]
                    added = (
                        sum(values.values())
                        if quantity == "energy"
                        else sum(values.get(at, 0.0) * covered[at] for at in steps) / max(1, sum(covered.values()))
                    )
                    assert set(values) <= set(steps)
                    assert alike(quantity, added, truth(world, scope, quantity, hour, HOUR)), (quantity, scope)


@pytest.mark.parametrize("seed", range(4))
async def test_classes_add_up_to_the_gpus_and_namespaces_to_those_that_are_held(tmp_path, seed):
    world = World(seed)
    async with console_of(world, tmp_path / "h.db", rolled=bool(seed % 2)) as console:
        for range_ in ("1d", "7d", "30d"):
            asked: dict[str, Any] = {"range": range_, "end": BEGIN + LONG, "points": VIEWS[range_]}
            fleet = await class_history(console, ClassesQuery(**asked), None)
            teams = await class_history(console, ClassesQuery(**asked, group_by="namespace"), None)
            step = int(fleet.step_seconds)
            for place, at in enumerate(fleet.times):
                if not BEGIN <= at < BEGIN + LONG or not world.seconds(at, step):
                    continue
                stack = sum(column.gpus[place] or 0.0 for column in fleet.columns)
                assert stack == pytest.approx(world.gpus_known(at, step), abs=0.01)
                assert stack <= len(world.gpus) + 0.001
                held = sum(column.gpus[place] or 0.0 for column in teams.columns)
                assert held == pytest.approx(world.held(at, step), abs=0.01)
