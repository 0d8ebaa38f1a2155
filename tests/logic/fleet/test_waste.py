"""Idle GPU-hours: what is added up from the store is what a count second by second gives."""

import asyncio
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.logic.point_fields import fields_read
from tests.store import fleets
from tests.store.fleets import points
from vgpuscope.logic.fleet.waste import LEDGER_FIELDS, WasteLedger, present
from vgpuscope.logic.fleet.waste_hours import WasteHour, idle_of_span, waste_by_namespace, waste_hour
from vgpuscope.model.analysis import Stat
from vgpuscope.model.history import HistoryPoint
from vgpuscope.store.opening import open_store

GIB, HOUR = fleets.GIB, fleets.HOUR
TICK = 600  # seconds that one analysis stands for
BEGIN = fleets.NOON
KEEP: dict[str, Any] = {"keep_results": 100 * fleets.DAY, "keep_hours": 100 * fleets.DAY, "keep_days": 100 * fleets.DAY}


def analysed(*ticks):
    """An analysis for each tick, over that tick."""
    return [fleets.analysis(BEGIN + (n + 1) * TICK, *gpus, number=n + 1, window=TICK) for n, gpus in enumerate(ticks)]


def tenant(pod, verdict="idle", limit=None, memory=None, **more):
    terms = {} if memory is None else {"mem_used": Stat(mean=memory * GIB)}
    limit = None if limit is None else int(limit * GIB)
    return fleets.tenant(pod, verdict=verdict, memory_limit=limit, own=True, terms=terms, **more)


def gpu(number, *tenants, **more):
    return fleets.gpu(number, tenants=tenants, terms={"mem_total": Stat(mean=80.0 * GIB)}, **more)


def waste(analyses, path, group_by="tenant", **more):
    """Through a real store, as the analyzer does it."""

    async def run():
        opened = open_store(str(path), **KEEP)
        store = opened.results
        for analysis in analyses:
            await store.save(analysis)
        end = analyses[-1].window.end + 1
        await store.prune(end + more.get("later", 0))
        span = {"step": "hour", "begin": BEGIN, "end": end, "limit": 10**6}
        ledger = WasteLedger(present(analyses[-1].gpus))
        ledger.add(await points(store, **span), await points(store, **span, namespace=""))
        await opened.close()
        return ledger.waste(group_by=group_by, begin=BEGIN, end=end)

    return asyncio.run(run())


@pytest.fixture
def store(tmp_path):
    return tmp_path / "history.db"


def hours(found):
    return {row.pod: row.idle_gpu_hours for row in found.rows if row.idle_gpu_hours}


def test_a_ledger_adds_up_the_fields_that_are_read_for_it():
    of: dict[str, Any] = {"step": "hour", "time": BEGIN, "gpu_id": "a", "seconds": HOUR, "held_seconds": HOUR}
    pod = HistoryPoint(**of, namespace="ml", pod="nb", by_verdict={"idle": HOUR}, memory_used=GIB)
    assert fields_read(WasteLedger({}).add, [HistoryPoint(**of)], [pod]) == LEDGER_FIELDS


def test_an_idle_pod_that_has_a_gpu_alone_wastes_all_of_it(store):
    found = waste(analysed(*[(gpu(0, tenant("nb", memory=20)), gpu(1, tenant("w", "in_use")), gpu(2))] * 6), store)
    assert hours(found) == {"nb": 1.0}
    assert (found.gpu_hours, found.held_gpu_hours, found.unallocated_gpu_hours) == (3.0, 2.0, 1.0)
    assert (found.idle_gpu_hours, found.in_use_gpu_hours, found.unknown_gpu_hours) == (1.0, 1.0, 0.0)
    assert found.rows[0].memory_held == 20 * 1024**3
    assert found.rows[0].idle_ratio == 1.0


def test_an_idle_pod_of_a_shared_gpu_wastes_its_limit_of_it(store):
    found = waste(analysed(*[(gpu(0, tenant("nb", limit=20), tenant("w", "in_use", limit=40)),)] * 6), store)
    assert hours(found) == {"nb": 0.25}
    assert (found.in_use_gpu_hours, found.held_gpu_hours) == (0.5, 1.0)


def test_a_past_hour_keeps_its_numbers_when_the_pod_ends(store):
    ticks = [(gpu(0, tenant("nb", limit=20), tenant("w", "in_use", limit=40)),)] * 6
    ended = [(gpu(0, tenant("w", "in_use", limit=40)),)] * 6
    assert hours(waste(analysed(*ticks, *ended), store)) == {"nb": 0.25}


def test_without_a_limit_tenants_have_equal_parts(store):
    found = waste(
        analysed(*[(gpu(0, tenant("a"), tenant("b"), tenant("c", "in_use"), tenant("d", "unknown")),)] * 6), store
    )
    assert hours(found) == {"a": 0.25, "b": 0.25}
    assert found.unknown_gpu_hours == 0.25


def test_limits_that_promise_more_than_there_is_waste_no_more_than_there_is(store):
    found = waste(analysed(*[(gpu(0, tenant("a", limit=80), tenant("b", limit=80)),)] * 6), store)
    assert hours(found) == {"a": 0.5, "b": 0.5}


def test_pods_that_follow_each_other_waste_the_gpu_one_after_the_other(store):
    found = waste(analysed(*[(gpu(0, tenant("a")),)] * 2, *[(gpu(0, tenant("b")),)] * 4), store)
    assert hours(found) == {"a": pytest.approx(1 / 3, abs=1e-4), "b": pytest.approx(2 / 3, abs=1e-4)}
    assert {row.pod: row.verdict for row in found.rows} == {"a": "ended", "b": "idle"}


def test_seven_idle_instances_of_one_gpu_waste_one_gpu(store):
    parts = tuple(fleets.gpu(0, mig=f"GI-{n}", tenants=(tenant(f"p{n}"),)) for n in range(7))
    found = waste(analysed(*[parts] * 6), store)
    assert found.idle_gpu_hours == pytest.approx(1.0, abs=1e-3)
    assert found.gpu_hours == pytest.approx(1.0, abs=1e-3)


def test_a_pod_with_several_gpus_is_one_row(store):
    found = waste(analysed(*[(gpu(0, tenant("nb")), gpu(1, tenant("nb")))] * 6), store)
    assert [(row.pod, row.gpus, row.idle_gpu_hours) for row in found.rows] == [("nb", 2, 2.0)]


def test_idle_since_is_what_the_last_analysis_says(store):
    since = BEGIN - 5 * HOUR
    found = waste(
        analysed((gpu(0, tenant("nb", idle_since=since)), gpu(1, tenant("nb", idle_since=since + 60)))), store
    )
    assert (found.rows[0].idle_since, found.rows[0].verdict) == ("2026-09-21T07:01:00Z", "idle")


def test_time_that_no_analysis_saw_is_counted_nowhere(store):
    seen = analysed(*[(gpu(0, tenant("nb")),)] * 12)
    found = waste([*seen[:2], *seen[9:]], store)
    assert found.gpu_hours == pytest.approx(5 * TICK / HOUR, abs=1e-4)
    assert hours(found)["nb"] == pytest.approx(5 * TICK / HOUR, abs=1e-4)


@pytest.mark.parametrize(
    ("group_by", "names"),
    [
        ("namespace", {("ml", None, None): 1.5, ("lab", "c", "Pod/c"): 1.0}),
        ("owner", {("ml", None, "Job/x"): 1.0, ("ml", "b", "Pod/b"): 0.5, ("lab", "c", "Pod/c"): 1.0}),
    ],
)
def test_tenants_are_grouped(store, group_by, names):
    a0, a1 = tenant("a0", owner="Job/x"), tenant("a1", owner="Job/x")
    fleet = (gpu(0, a0, a1, tenant("b"), tenant("w", "in_use")), gpu(1, tenant("c", namespace="lab")))
    found = waste(analysed(*[fleet] * 6), store, group_by)
    expected = {key: value / 2 if key[0] == "ml" else value for key, value in names.items()}
    idle = {(row.namespace, row.pod, row.owner): row.idle_gpu_hours for row in found.rows if row.idle_gpu_hours}
    assert idle == expected


def test_a_team_without_idle_hours_is_listed_so_that_hours_add_up(store):
    busy = tenant("w", "in_use", namespace="train", memory=10)
    found = waste(analysed(*[(gpu(0, tenant("nb", memory=20)), gpu(1, busy), gpu(2))] * 6), store, "namespace")
    assert [(row.namespace, row.idle_gpu_hours, row.held_gpu_hours) for row in found.rows] == [
        ("ml", 1.0, 1.0),
        ("train", 0.0, 1.0),
    ]
    assert (found.count, sum(row.held_gpu_hours for row in found.rows)) == (2, found.held_gpu_hours)


def test_memory_of_a_group_is_what_its_pods_hold_at_the_same_time(store):
    """One pod has 20.5 GiB all the time, another 6 GiB on two GPUs for a third of it."""
    always, late = tenant("a", memory=20.5), tenant("b", "in_use", memory=6)
    ticks = [(gpu(0, always), gpu(1), gpu(2))] * 4 + [(gpu(0, always), gpu(1, late), gpu(2, late))] * 2
    (row,) = waste(analysed(*ticks), store, "namespace").rows
    assert row.memory_held == pytest.approx((20.5 + 2 * 6 / 3) * GIB)
    parts = waste(analysed(*ticks), store.with_name("again.db")).rows
    assert sum(part.memory_held for part in parts) == pytest.approx(row.memory_held)


def test_nodes_and_models_are_groups_too(store):
    fleet = (gpu(0, tenant("a")), gpu(8, tenant("b")), gpu(9, tenant("c", "in_use"), model="NVIDIA H100"))
    by_node = waste(analysed(*[fleet] * 6), store, "node")
    assert {row.node: row.idle_gpu_hours for row in by_node.rows} == {"node-0": 1.0, "node-1": 1.0}


# ── second by second ─────────────────────────────────────────────────────────────────────────────────────────────

pods = st.lists(st.sampled_from("abcd"), unique=True, max_size=4)
limits = st.fixed_dictionaries({name: st.none() | st.sampled_from((10, 20, 40, 80)) for name in "abcd"})


@st.composite
def worlds(draw):
    """Who was on which GPU or instance in each tick, and what they did."""
    units = draw(st.sampled_from((((0, ""),), ((0, ""), (1, "")), ((0, "GI-1"), (0, "GI-2"), (1, "")))))
    known = {unit: draw(limits) for unit in units}
    ticks = []
    for _ in range(draw(st.integers(1, 14))):
        there = {unit: draw(pods) for unit in units}
        ticks.append(
            {unit: {p: draw(st.sampled_from(("idle", "in_use", "unknown"))) for p in there[unit]} for unit in units}
        )
    return units, known, ticks


def brute_force(units, known, ticks):
    """The definition, by counting: hour by hour, tick by tick."""
    wasted: dict[str, float] = defaultdict(float)
    free = 0.0
    by_hour = defaultdict(list)
    for n, tick in enumerate(ticks):
        by_hour[(BEGIN + n * TICK) // HOUR].append(tick)
    for hour in by_hour.values():
        for unit in units:
            part = 1 / sum(other[0] == unit[0] for other in units)
            free += sum(part * TICK for tick in hour if not tick[unit])
            held = [tick[unit] for tick in hour if tick[unit]]
            if not held:
                continue
            on_average = sum(len(there) for there in held) / len(held)
            share = {}
            for pod in {pod for there in held for pod in there}:
                limit = known[unit][pod]
                share[pod] = limit / 80 if limit is not None else 1 / on_average
            taken = sum(share[pod] for there in held for pod in there)
            over = min(1.0, len(held) / taken)
            for there in held:
                for pod, verdict in there.items():
                    if verdict == "idle":
                        wasted[pod] += part * share[pod] * over * TICK
    return {pod: seconds / HOUR for pod, seconds in wasted.items() if seconds}, free / HOUR


@given(worlds(), st.sampled_from((0, 2 * HOUR)))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_what_the_store_adds_up_is_what_a_count_gives(tmp_path_factory, world, later):
    units, known, ticks = world
    analyses = analysed(
        *(
            tuple(
                gpu(n, *(tenant(p, v, known[n, mig][p]) for p, v in tick[n, mig].items()), mig=mig) for n, mig in units
            )
            for tick in ticks
        )
    )
    found = waste(analyses, tmp_path_factory.mktemp("store") / "history.db", later=later)
    expected, free = brute_force(units, known, ticks)
    assert hours(found) == {pod: pytest.approx(value, abs=2e-4) for pod, value in expected.items()}
    assert found.unallocated_gpu_hours == pytest.approx(free, abs=2e-4)
    given = found.idle_gpu_hours + found.in_use_gpu_hours + found.unknown_gpu_hours
    assert given + found.free_part_gpu_hours == pytest.approx(found.held_gpu_hours, abs=1e-3)
    assert sum(row.held_gpu_hours for row in found.rows) == pytest.approx(given, abs=1e-3)
    for name in ("idle_gpu_hours", "in_use_gpu_hours", "unknown_gpu_hours"):
        assert sum(getattr(row, name) for row in found.rows) == pytest.approx(getattr(found, name), abs=1e-3)


def test_a_day_is_the_sum_of_its_hours_by_namespace(store):
    ticks = [
        (
            gpu(0, tenant("nb", "idle" if n % 5 else "in_use", limit=20), tenant("w", "in_use", limit=40)),
            gpu(1, *([tenant("late", limit=10)] if n > 8 else [])),
        )
        for n in range(18)
    ]
    analyses = analysed(*ticks)
    now = present(analyses[-1].gpus)

    async def both():
        opened = open_store(str(store), **KEEP)
        history = opened.results
        for analysis in analyses:
            await history.save(analysis)
        span = {"step": "hour", "limit": 10**6}
        whole, parts = WasteLedger(now), []
        for begin in range(int(BEGIN), int(BEGIN) + 4 * HOUR, HOUR):
            found = {**span, "begin": begin, "end": begin + HOUR}
            read = await points(history, **found), await points(history, **found, namespace="")
            part = WasteLedger(now)
            part.add(*read)
            whole.add(*read)
            parts.append(waste_hour(part))
        await opened.close()
        return whole.waste(group_by="namespace", begin=BEGIN, end=BEGIN + 4 * HOUR), waste_by_namespace(parts)

    whole, (rows, idle) = asyncio.run(both())
    held = whole.idle_gpu_hours + whole.in_use_gpu_hours + whole.unknown_gpu_hours
    assert [(row.namespace, row.held_gpu_hours) for row in whole.rows] == [("ml", pytest.approx(held, abs=1e-3))]
    assert idle == whole.idle_gpu_hours > 0
    fields = ("namespace", "idle_gpu_hours", "idle_ratio", "pods", "gpus")
    assert [[getattr(row, f) for f in fields] for row in rows] == [
        [getattr(row, f) for f in fields] for row in whole.rows
    ]


def test_hours_without_an_analysis_are_not_hours_without_waste():
    assert waste_by_namespace([waste_hour(WasteLedger({}))]) == ((), None)


def test_a_day_of_which_little_was_analysed_is_not_compared_with_a_whole_one():
    """An analyzer that has run for 25 hours knows one hour of the day before."""
    known, unknown = WasteHour(analysed=3600.0, namespaces={}), WasteHour(analysed=0.0, namespaces={})
    assert idle_of_span([unknown] * 23 + [known]) is None
    assert idle_of_span([known] * 23 + [unknown]) == 0.0  # the analyzer was restarted
    assert idle_of_span([]) is None
