"""The store of results in SQLite: what is saved is there, once, whatever happens in between."""

import asyncio
import os
import random
import select
import signal
import sqlite3
import subprocess
import sys
import threading
import zlib
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.environment import uncovered
from tests.paths import REPOSITORY, TESTS
from tests.store.fleets import DAY, GIB, HOUR, NOON, analyses, analysis, fleet, gpu, points, runs, tenant
from tests.store.results.laws import (
    assert_equal_points,
    assert_gpus_of_tenants_are_those_of_their_pods,
    assert_some_fields_are_those_of_the_whole,
    every_point,
    rolled,
)
from vgpuscope.model.analysis import STATUSES, USE_CLASSES, VERDICTS, Allocated, Evidence, Score, Stat
from vgpuscope.model.errors import ConfigInvalid, HistoryDown
from vgpuscope.store import encoding
from vgpuscope.store.engine.engine import Engine
from vgpuscope.store.engine.migrations import Migration, TableSet
from vgpuscope.store.engine.sqlite import SqliteDatabase
from vgpuscope.store.limits import Limits
from vgpuscope.store.opening import open_store
from vgpuscope.store.results import statements
from vgpuscope.store.results.packed import pack, unpack
from vgpuscope.store.results.schema import MIGRATIONS
from vgpuscope.store.results.stored import StoredHistory
from vgpuscope.store.results.unsaved import Outbox
from vgpuscope.store.results.wanted import AnalysisKey

KEEP: dict[str, Any] = {"keep_results": DAY, "keep_hours": 30 * DAY, "keep_days": 400 * DAY}
fewer = settings(max_examples=settings.default.max_examples // 2)  # each is many transactions on the disk
ALL = {"begin": 0, "end": 2 * NOON, "limit": 100_000}


@asynccontextmanager
async def history(path, **keep):
    store = open_store(str(path), **{**KEEP, **keep})
    try:
        yield store.results
    finally:
        await store.close()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "history.db"


# ── what is saved is there ───────────────────────────────────────────────────────────────────────────────────────


@given(analyses())
async def test_the_last_analysis_comes_back_whole_after_a_restart(tmp_path_factory, found):
    path = tmp_path_factory.mktemp("history") / "h.db"
    async with history(path) as store:
        await store.save(found)
    async with history(path) as store:
        assert await store.latest() == found
        key = AnalysisKey.of(found)
        assert await store.latest(unlike=key) is None
        assert await store.latest(unlike=key._replace(number=found.number + 1)) == found
        assert await store.latest(unlike=key._replace(started=found.started + 0.001)) == found


async def test_a_new_store_has_nothing(path):
    async with history(path) as store:
        assert await store.latest() is None
        for step in ("analysis", "hour", "day"):
            assert await points(store, step=step, **ALL) == []


async def test_a_gpu_keeps_its_numbers(path):
    use = gpu(
        score=Score(value=41.25),
        status="normal",
        verdict="in_use",
        use_class="busy",
        terms={"gpu_util": Stat(mean=0.4, max=0.9), "mem_used": Stat(mean=7.0 * GIB, max=9.0 * GIB)},
        evidence=Evidence(coverage=0.95, signal="sm_active", signal_mean=0.3, signal_max=0.7),
    )
    async with history(path) as store:
        await store.save(analysis(NOON, use))
        [point] = await points(store, step="analysis", **ALL)
    assert (point.time, point.gpu_id, point.hostname, point.model) == (NOON, use.gpu_id, "node-0", "NVIDIA A100")
    assert (point.score, point.status, point.verdict, point.use_class) == (41.25, "normal", "in_use", "busy")
    assert (point.util, point.util_max, point.coverage) == (0.3, 0.7, 0.95)
    assert (point.memory_used, point.memory_max) == (7 * GIB, 9 * GIB)


async def test_a_pod_is_never_above_its_peak_and_has_the_time_in_which_kernels_ran(path):
    """When each of two containers has its peak is not known: together they reach at least their mean."""
    parts = [
        {"process_sm": Stat(mean=0.3, max=0.4), "mem_used": Stat(mean=5.0 * GIB, max=6.0 * GIB)},
        {"process_sm": Stat(mean=0.2, max=0.3), "mem_used": Stat(mean=4.0 * GIB, max=4.0 * GIB)},
    ]
    parts = [terms | {"power": Stat(mean=30.0, max=40.0)} for terms in parts]
    uses = tuple(tenant("a", container=str(number), own=True, terms=terms) for number, terms in enumerate(parts))
    few = Evidence(signal="sm_active", signal_mean=0.1, signal_max=0.2)
    measured = {"sm_active": Stat(mean=0.1, max=0.2), "gpu_util": Stat(mean=0.8, max=1.0)}
    async with history(path) as store:
        await store.save(
            analysis(NOON, gpu(tenants=uses), gpu(1, tenants=(tenant("alone"),), terms=measured, evidence=few))
        )
        pods = {one.pod: one for one in await points(store, step="analysis", **ALL, namespace="ml")}
    assert (pods["a"].util, pods["a"].util_max) == (0.5, 0.5)
    assert (pods["a"].memory_used, pods["a"].memory_max) == (9 * GIB, 9 * GIB)
    assert (pods["a"].power, pods["a"].power_max) == (60.0, 60.0)
    assert (pods["alone"].util, pods["alone"].util_max) == (0.8, 1.0)


ALLOCATED = Allocated(20 * GIB, 30)


async def test_power_energy_and_allocation_are_kept_for_gpus_and_pods(path):
    """The energy counter covers the time between samples; power is sampled, as the rows of GPUs show it."""
    own = {"power": Stat(mean=90.0, max=120.0), "process_sm": Stat(mean=0.2)}
    a, b = tenant("a", own=True, terms=own, allocated=ALLOCATED), tenant("b", since=NOON + 540)
    terms = {"power": Stat(mean=200.0, max=390.0), "energy": Stat(mean=250.5)}
    uses = (
        gpu(0, terms=terms, tenants=(a, b), allocated=Allocated(60 * GIB, 100)),
        gpu(1, terms={"power": Stat(mean=80.0)}, tenants=(tenant("alone", since=NOON + 300),)),
        gpu(2, mig="MIG-1", terms=terms, tenants=(tenant("inside"),)),
        gpu(2, mig="MIG-2"),
    )
    async with history(path) as store:
        await store.save(analysis(NOON + 600, *uses))
        await store.save(analysis(NOON + 1200, *uses, number=2))
        gpus = await points(store, step="hour", **ALL)
        pods = {p.pod: p for p in await points(store, step="hour", **ALL, namespace="ml")}
    shared, alone, *instances = gpus
    assert (shared.power, shared.power_max, shared.energy) == (200.0, 390.0, 250.5 * 1200)
    assert (shared.memory_allocated, shared.cores_allocated) == (60 * GIB, 100)
    assert (alone.power, alone.power_max, alone.energy, alone.memory_allocated) == (80.0, None, 80.0 * 1200, None)
    assert [(one.power, one.energy, one.power_max) for one in instances] == [(100.0, 125.25 * 1200, None)] * 2
    assert pods["inside"].power is None  # exporters report the power of the whole GPU there
    assert (pods["a"].power, pods["a"].energy, pods["a"].memory_allocated) == (90.0, 90.0 * 1200, 20 * GIB)
    assert (pods["b"].power, pods["b"].energy, pods["b"].cores_allocated) == (None, None, None)
    assert pods["alone"].energy == 80.0 * (300 + 600)  # of the time in which it had the GPU


async def test_what_was_not_measured_comes_back_as_not_measured(path):
    async with history(path) as store:
        await store.save(analysis(NOON, gpu()))
        for step in ("analysis", "hour", "day"):
            [point] = await points(store, step=step, **ALL)
            assert (point.score, point.util, point.util_max, point.memory_used, point.coverage) == (None,) * 5
            assert (point.power, point.power_max, point.energy) == (None,) * 3
            assert (point.memory_allocated, point.cores_allocated) == (None,) * 2
            assert point.by_status == point.by_verdict == point.by_class == {"unknown": 600}


async def test_gpus_and_pods_are_asked_for_apart(path):
    shared = gpu(0, tenants=(tenant("a", owner="Job/a"), tenant("b", namespace="web")))
    async with history(path) as store:
        await store.save(analysis(NOON, shared, gpu(1, mig="GI-1")))
        found = {
            str(wanted): [(p.gpu_id[-1], p.mig, p.pod) for p in await points(store, step="hour", **ALL, **wanted)]
            for wanted in ({}, {"mig": "GI-1"}, {"namespace": "ml"}, {"gpu_id": shared.gpu_id, "pod": ""})
        }
        [a] = await points(store, step="day", **ALL, pod="a")
    assert list(found.values()) == [
        [("0", "", ""), ("1", "GI-1", "")],
        [("1", "GI-1", "")],
        [("0", "", "a")],
        [("0", "", "a"), ("0", "", "b")],
    ]
    assert a.owner == "Job/a"


async def test_a_gpu_that_is_listed_twice_is_stored_once(path):
    async with history(path) as store:
        await store.save(analysis(NOON, gpu(status="low"), gpu(status="idle"), gpu(1)))
        assert [p.status for p in await points(store, step="analysis", **ALL)] == ["low", "unknown"]


async def test_a_pod_that_shares_a_gpu_has_no_score_of_its_own(path):
    one_gpu = gpu(score=Score(value=50.0), status="normal", tenants=(tenant("a"), tenant("b")))
    alone = gpu(1, score=Score(value=50.0), status="normal", tenants=(tenant("c"),))
    async with history(path) as store:
        await store.save(analysis(NOON, one_gpu, alone))
        found = {p.pod: (p.score, p.status) for p in await points(store, step="analysis", **ALL, namespace="ml")}
    assert found == {"a": (None, "unknown"), "b": (None, "unknown"), "c": (50.0, "normal")}


async def test_a_pod_is_idle_only_if_all_of_its_containers_are(path):
    verdicts = {"a": ("idle", "in_use"), "b": ("idle", "unknown"), "c": ("idle", "idle")}
    uses = tuple(tenant(pod, container=str(i), verdict=v) for pod, both in verdicts.items() for i, v in enumerate(both))
    async with history(path) as store:
        await store.save(analysis(NOON, gpu(tenants=uses)))
        found = {p.pod: p.verdict for p in await points(store, step="analysis", **ALL, namespace="ml")}
    assert found == {"a": "in_use", "b": "unknown", "c": "idle"}


async def test_what_becomes_known_of_a_pod_is_not_forgotten_again(path):
    async with history(path) as store:
        for number, owner in enumerate(("", "Job/a", "")):
            await store.save(analysis(NOON + number * 60, gpu(tenants=(tenant("a", owner=owner),)), number=number))
            if number == 1:
                async with history(path) as other:  # which has never seen the name
                    [*_, last] = await points(other, step="analysis", **ALL, pod="a")
                    assert last.owner == "Job/a"
        assert {p.owner for p in await points(store, step="analysis", **ALL, pod="a")} == {"Job/a"}


@pytest.mark.parametrize("step", ["analysis", "hour", "day"])
async def test_the_limit_takes_the_oldest_and_the_end_is_not_part_of_the_time(path, step):
    async with history(path) as store:
        for day in range(4):
            await store.save(analysis(NOON + day * DAY, gpu(), number=day))  # the hour before noon
        begin, end = (
            (NOON + DAY, NOON + 3 * DAY) if step == "analysis" else (NOON + DAY - HOUR, NOON + 3 * DAY - DAY // 2)
        )
        found = await points(store, step=step, begin=begin, end=end, limit=10)
        assert [p.time // DAY - NOON // DAY for p in found] == [1, 2]
        assert (await points(store, step=step, begin=begin, end=end, limit=1)) == found[:1]


# ── the time that analyses stand for ─────────────────────────────────────────────────────────────────────────────


async def test_windows_that_overlap_count_each_second_once(path):
    async with history(path) as store:
        for number in range(3):
            await store.save(analysis(NOON + number * 300, gpu(), number=number, window=600))
        assert [p.seconds for p in await points(store, step="analysis", **ALL)] == [600, 300, 300]


async def test_a_gap_between_two_analyses_is_nobodys_time(path):
    async with history(path) as store:
        for number in range(2):
            await store.save(analysis(NOON + number * 3000, gpu(), number=number, window=600))
        assert [p.seconds for p in await points(store, step="analysis", **ALL)] == [600, 600]


@given(st.lists(st.tuples(st.integers(0, 5000), st.sampled_from((60, 600, 3600))), min_size=1, max_size=12))
async def test_no_second_is_counted_twice_in_whatever_order_analyses_come(tmp_path_factory, order):
    covered = {second for end, window in order for second in range(end - window, end)}
    async with history(tmp_path_factory.mktemp("history") / "h.db") as store:
        for number, (end, window) in enumerate(order):
            await store.save(analysis(NOON + end, gpu(), number=number, window=window))
        found = sum(p.seconds for p in await points(store, step="analysis", **ALL))
    assert found <= len(covered)


async def test_a_pod_is_charged_for_the_time_in_which_it_had_the_gpu(path):
    use = gpu(
        tenants=(tenant("new", since=NOON - 100),),
        former=(tenant("old", since=NOON - 500, until=NOON - 200), tenant("gone", until=NOON - 650)),
    )
    async with history(path) as store:
        await store.save(analysis(NOON, use))
        found = {p.pod: p.held_seconds for p in await points(store, step="hour", **ALL, namespace="ml")}
        [one_gpu] = await points(store, step="hour", **ALL)
    assert found == {"new": 100, "old": 300}
    assert (one_gpu.seconds, one_gpu.held_seconds) == (600, 400)


async def test_time_in_which_two_pods_had_a_gpu_is_the_gpus_time_once(path):
    use = gpu(tenants=(tenant("a", since=NOON - 300), tenant("b", since=NOON - 200)))
    async with history(path) as store:
        await store.save(analysis(NOON, use))
        [one_gpu] = await points(store, step="hour", **ALL)
        pods = {p.pod: p.held_seconds for p in await points(store, step="hour", **ALL, namespace="ml")}
    assert (one_gpu.held_seconds, pods) == (300, {"a": 300, "b": 200})


WINDOWS = st.lists(
    st.tuples(st.integers(0, 80), st.sampled_from((1, 10, 70)), st.booleans(), st.booleans()), min_size=1, max_size=6
)


@given(WINDOWS)
async def test_a_quantity_is_measured_in_the_time_of_the_analyses_that_have_it_of_any_gpu(tmp_path_factory, windows):
    """In minutes after noon. Windows that do not overlap: each analysis stands for all of its window."""
    memory, power, taken = set[int](), set[int](), set[int]()
    async with history(tmp_path_factory.mktemp("history") / "h.db") as store:
        for number, (end, minutes, used, drawn) in enumerate(windows):
            stands_for = set(range(end - minutes, end))
            if stands_for & taken:
                continue
            taken |= stands_for
            memory |= stands_for if used else set()
            power |= stands_for if drawn else set()
            measured = {"mem_used": Stat(mean=1.0)} if used else {"power": Stat(mean=1.0)} if drawn else {}
            uses = (gpu(0, terms=measured), gpu(1, terms={"power": Stat(mean=2.0)} if drawn else {}), gpu(2))
            await store.save(analysis(NOON + end * 60, *uses, number=number, window=minutes * 60))
        covered = await store.covered(NOON - 2 * HOUR, NOON + 2 * HOUR, step=HOUR)
    hours = range(-2, 2)
    for seconds, of in (
        (covered.seconds, taken),
        (covered.measured["memory_used"], memory),
        (covered.measured["power"], power),
        (covered.measured["memory_allocated"], set()),
    ):
        by_hour = {hour: 60.0 * sum(minute // 60 == hour for minute in of) for hour in hours}
        assert {hour: seconds.get(NOON // HOUR + hour, 0.0) for hour in hours} == by_hour


# ── once ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@fewer
@given(runs(), st.randoms())
async def test_saving_an_analysis_again_changes_nothing(tmp_path_factory, found, chance):
    async with history(tmp_path_factory.mktemp("history") / "h.db") as store:
        for one in found:
            await store.save(one)
        before = await every_point(store), await store.latest()
        for one in chance.sample(found, len(found)):
            await store.save(one)
            if chance.random() < 0.3:
                await store.prune(NOON + chance.randrange(12) * HOUR)
        assert (await every_point(store), await store.latest()) == before


async def test_an_old_analysis_does_not_take_the_place_of_the_last(path):
    async with history(path) as store:
        last = analysis(NOON, gpu(), number=2)
        await store.save(last)
        await store.save(analysis(NOON - 300, gpu(), number=1))
        assert await store.latest() == last


# ── roll-ups ─────────────────────────────────────────────────────────────────────────────────────────────────────


@fewer
@given(runs())
async def test_hours_and_days_are_the_sums_of_their_analyses(tmp_path_factory, found):
    async with history(tmp_path_factory.mktemp("history") / "h.db") as store:
        for one in found:
            await store.save(one)
        await store.prune(NOON + DAY - 1)
        for step in ("hour", "day"):
            assert_equal_points((await every_point(store))[step], await rolled(store, step))


@fewer
@given(runs(), st.data())
async def test_it_does_not_matter_when_hours_are_rolled_up(tmp_path_factory, found, data):
    """Before, between or after: what comes late is added, and what was added is not added again."""
    path = tmp_path_factory.mktemp("history")
    async with history(path / "a.db") as late, history(path / "b.db") as plain:
        for one in found:
            await plain.save(one)
            await late.save(one)
            if data.draw(st.booleans()):
                await late.prune(data.draw(st.sampled_from((NOON, NOON + HOUR, NOON + 2 * HOUR, NOON + DAY - 1))))
        assert await every_point(late) == await every_point(plain)


async def test_an_analysis_that_stands_for_no_time_and_ends_at_a_full_hour_is_in_the_hour_before(tmp_path):
    async with history(tmp_path / "a.db") as late, history(tmp_path / "b.db") as plain:
        for number, end in enumerate((NOON + HOUR, NOON + HOUR, NOON + HOUR + 600), start=1):
            for store in (late, plain):
                await store.save(analysis(end, gpu(number), number=number))
            if number == 1:
                await late.prune(NOON + HOUR)
        assert await every_point(late) == await every_point(plain)


async def test_some_fields_are_those_of_the_whole_whether_hours_are_rolled_up_or_not(path):
    async with history(path) as store:
        for number in range(4):
            await store.save(fleet(NOON + number * 1500, 3, number=number))
        await assert_some_fields_are_those_of_the_whole(store)
        await store.prune(NOON + HOUR)
        await store.save(fleet(NOON + 100, 3, number=9))  # of an hour that is rolled up already
        await assert_some_fields_are_those_of_the_whole(store)


@fewer
@given(runs(), st.booleans())
async def test_gpus_of_some_namespaces_are_those_of_the_steps_in_which_their_pods_held_them(
    tmp_path_factory, found, rolled_up
):
    async with history(tmp_path_factory.mktemp("history") / "h.db") as store:
        for number, one in enumerate(found):
            await store.save(one)
            if rolled_up and number % 2:
                await store.prune(NOON + 2 * HOUR)
        await assert_gpus_of_tenants_are_those_of_their_pods(store)


async def test_large_hours_are_rolled_up_and_dropped_in_parts(path):
    async with history(path, limits=Limits(rows_per_transaction=25, rows_per_insert=7)) as store:
        for number in range(5):
            await store.save(fleet(NOON + number * 300, 10, number=number))
        before = (await every_point(store))["hour"]
        await store.prune(NOON + HOUR)
        assert (await every_point(store))["hour"] == before
        await store.prune(NOON + 2 * DAY)
        after = await every_point(store)
        assert (after["analysis"], after["hour"]) == ([], before)


async def test_what_has_not_been_rolled_up_is_never_dropped(path):
    async with history(path, keep_results=60) as store:
        await store.save(analysis(NOON + 600, gpu()))
        await store.prune(NOON + 1800)
        assert len((await every_point(store))["analysis"]) == 1
        await store.prune(NOON + HOUR)
        found = await every_point(store)
        assert (len(found["analysis"]), len(found["hour"]), len(found["day"])) == (0, 1, 1)


async def test_each_kind_is_kept_as_long_as_it_is_to_be_kept(path):
    async with history(path, keep_results=HOUR, keep_hours=2 * DAY, keep_days=5 * DAY) as store:
        for day in range(8):
            await store.save(analysis(NOON + day * DAY + 600, gpu(), number=day))
        await store.prune(NOON + 7 * DAY + 660)
        found = {step: [(p.time - NOON) // DAY for p in points] for step, points in (await every_point(store)).items()}
    assert found == {"analysis": [7], "hour": [5, 6, 7], "day": [1, 2, 3, 4, 5, 6]}


async def test_an_analysis_that_comes_again_after_its_results_were_dropped_is_not_counted_again(path):
    async with history(path) as store:
        one = analysis(NOON, gpu())
        await store.save(one)
        await store.prune(NOON + 3 * DAY)
        before = await every_point(store)
        await store.save(one)
        await store.prune(NOON + 3 * DAY)
        assert await every_point(store) == before


async def test_names_of_pods_that_nothing_refers_to_are_forgotten(path):
    async with history(path, keep_hours=DAY, keep_days=DAY) as store:
        await store.save(analysis(NOON, gpu(tenants=(tenant("old"),))))
        await store.save(analysis(NOON + 9 * DAY, gpu(tenants=(tenant("new"),)), number=2))
        await store.prune(NOON + 9 * DAY)
        await store.save(analysis(NOON + 9 * DAY + 60, gpu(tenants=(tenant("old"),)), number=3))
        assert [p.pod for p in await points(store, step="analysis", **ALL, namespace="ml")] == ["new", "old"]
    with sqlite3.connect(path) as file:
        assert {pod for (pod,) in file.execute("SELECT pod FROM history_series")} == {"", "new", "old"}
        assert file.execute("SELECT count(*) FROM history_analyses").fetchone() == (2,)
    file.close()


def test_the_stored_codes_are_those_of_the_model():
    assert set(encoding.STATUS_CODES) == set(STATUSES)
    assert set(encoding.VERDICT_CODES) == set(VERDICTS)
    assert set(encoding.CLASS_CODES) == set(USE_CLASSES)


# ── no store ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_without_a_store_nothing_is_kept():
    async with history("none") as store:
        await store.save(analysis(NOON, gpu(), number=2))
        assert await store.latest() is None
        assert await every_point(store) == {"analysis": [], "hour": [], "day": []}


# ── what goes wrong ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("place", "words"),
    [("", "is a directory"), ("missing/h.db", "there is no directory"), ("text", "not a database")],
)
async def test_a_file_that_cannot_be_used_is_named_with_the_reason(tmp_path, place, words):
    (tmp_path / "text").write_text("this is no database, only text. " * 100)
    async with history(tmp_path / place) as store:
        with pytest.raises(HistoryDown, match=words) as caught:
            await store.save(analysis(NOON, gpu()))
    assert str(tmp_path / place) in str(caught.value)


async def test_a_directory_that_may_not_be_written_is_said_so():
    async with history("/proc/history.db") as store:
        with pytest.raises(HistoryDown, match=r"/proc.*"):
            await store.latest()


async def test_a_store_that_was_down_is_used_when_it_is_back(tmp_path):
    folder = tmp_path / "later"
    async with history(folder / "h.db") as store:
        with pytest.raises(HistoryDown):
            await store.save(analysis(NOON, gpu()))
        folder.mkdir()
        await store.save(analysis(NOON, gpu()))
        assert await store.latest() == analysis(NOON, gpu())


async def test_a_save_that_fails_half_way_leaves_nothing_behind(path, monkeypatch):
    async with history(path) as store:
        await store.save(analysis(NOON, gpu()))
        before = await every_point(store)
        with monkeypatch.context() as patch:
            patch.setattr(statements, "KEEP_IF_LATER", "no sentence of SQL")
            with pytest.raises(HistoryDown):
                await store.save(analysis(NOON + 60, gpu(), gpu(1), number=2))
        assert await every_point(store) == before
        await store.save(analysis(NOON + 60, gpu(), gpu(1), number=2))
        assert len((await every_point(store))["analysis"]) == 3


@pytest.mark.parametrize("notices", ["save", "prune"])
async def test_what_a_removed_database_knew_is_not_taken_for_granted_in_the_next_one(path, notices):
    store = open_store(str(path), **KEEP)
    results = store.results
    await results.save(analysis(NOON, gpu()))
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink()
    after = analysis(NOON + 60, gpu(), number=2)
    with pytest.raises(HistoryDown, match="removed or replaced"):
        await (results.save(after) if notices == "save" else results.prune(NOON))
    await results.save(after)
    assert [point.gpu_id for point in await points(results, step="analysis", **ALL)] == [gpu().gpu_id]
    [replayed] = [one async for one in store.past.read(begin=NOON, end=NOON + DAY)]
    assert [one.gpu_id for one in replayed.gpus] == [gpu().gpu_id]
    await store.close()


async def test_a_full_disk_is_down_and_what_was_saved_stays(path):
    async with history(path) as store:
        await store.save(analysis(NOON, gpu()))
        before = await every_point(store)

        def fill() -> None:
            core = store._engine._lanes["write"][0]
            core._database._connection.execute("PRAGMA max_page_count = 1")  # no more than it has already

        await store._engine.do(fill)
        with pytest.raises(HistoryDown, match="full"):
            await store.save(fleet(NOON + 60, 500, number=2))
        assert await every_point(store) == before
        await store.save(fleet(NOON + 60, 500, number=2))
        assert (await store.latest()).number == 2


@pytest.mark.parametrize(
    "packed", [b"", b"no such bytes", pack(fleet(NOON, 3))[:-5], zlib.compress(b"\x00\x00\x00\x01\xc0")]
)
async def test_a_last_analysis_of_another_version_is_as_good_as_none(path, packed):
    async with history(path) as store:
        await store.save(analysis(NOON, gpu()))
        with sqlite3.connect(path) as file:
            file.execute("UPDATE history_latest SET packed = ?", (packed,))
        file.close()
        assert await store.latest() is None
        assert len(await points(store, step="analysis", **ALL)) == 1


def test_a_fleet_of_many_pieces_is_packed_and_unpacked_whole():
    whole = fleet(NOON, 1203)
    assert unpack(pack(whole)) == whole


def test_a_databases_driver_is_loaded_only_when_it_is_configured(path):
    script = f"""
import sys
from vgpuscope.store.opening import open_store
from vgpuscope.store.results.wanted import AnalysisKey
keep = dict(keep_results=1, keep_hours=1, keep_days=1)
open_store("none", **keep)
assert not {{"sqlite3", "psycopg"}} & sys.modules.keys()
open_store({str(path)!r}, **keep)
assert "psycopg" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, env=uncovered())  # coverage loads sqlite3


def test_another_kind_of_database_is_refused_without_its_password():
    with pytest.raises(ConfigInvalid) as caught:
        open_store("mysql://me:secret@host/db", **KEEP)
    assert "secret" not in str(caught.value)
    assert str(caught.value) == "analyzer.history: results cannot be kept in mysql://"


async def test_the_event_loop_goes_on_while_the_store_is_busy(path):
    async with history(path) as store:
        loop_thread = threading.get_ident()
        assert await store._engine.do(threading.get_ident, deadline=60) != loop_thread


async def test_a_store_that_does_not_answer_is_down_and_what_waits_for_it_is_not_done_later(path):
    async with history(path) as store:
        begun, stuck, done = threading.Event(), threading.Event(), []
        first = asyncio.ensure_future(store._engine.do(lambda: (begun.set(), stuck.wait(60)), deadline=60))
        try:
            await asyncio.to_thread(begun.wait, 60)
            with pytest.raises(HistoryDown, match="not answered"):
                await store._engine.do(lambda: done.append(1), deadline=0.01)
        finally:
            stuck.set()
        await first
        await store.latest()
        assert done == []


async def test_after_closing_nothing_is_saved(path):
    async with history(path) as store:
        pass
    with pytest.raises(HistoryDown):
        await store.save(analysis(NOON, gpu()))


# ── what is stored with an analysis ──────────────────────────────────────────────────────────────────────────────


class Counting:
    """Another table that is written with each analysis."""

    def __init__(self, engine: Engine) -> None:
        engine.register(TableSet("counted", (Migration(1, ("CREATE TABLE counted (number integer NOT NULL)",)),)))
        self.committed: list[int] = []
        self.forgotten, self.fails = 0, False

    def add(self, tx, found):
        tx.insert("counted", ("number",), [(found.number,)])
        if self.fails:
            raise HistoryDown("broken on purpose")
        return lambda: self.committed.append(found.number)

    def forget(self) -> None:
        self.forgotten += 1


async def test_what_follows_an_analysis_is_stored_with_it_or_not_at_all(path):
    engine = Engine(SqliteDatabase(str(path)))
    follower = Counting(engine)
    store = StoredHistory(engine, followers=[follower], **KEEP)
    await store.save(analysis(NOON, gpu()))
    follower.fails = True
    with pytest.raises(HistoryDown):
        await store.save(analysis(NOON + 60, gpu(), number=2))
    assert await engine.read(lambda tx: tx.all("SELECT number FROM counted")) == [(1,)]
    assert len(await points(store, step="analysis", **ALL)) == 1
    follower.fails, before = False, follower.forgotten
    await store.save(analysis(NOON + 60, gpu(), number=2))
    assert follower.committed == [1, 2]
    assert follower.forgotten == before + 1  # the failure cost the connection
    await store.save(analysis(NOON + 60, gpu(), number=2))  # it is stored already
    assert (follower.committed, follower.forgotten) == ([1, 2], before + 2)
    await engine.close()


# ── migrations ───────────────────────────────────────────────────────────────────────────────────────────────────

NEXT = Migration(MIGRATIONS[-1].version + 1, ("ALTER TABLE history_series ADD COLUMN team text NOT NULL DEFAULT ''",))
BROKEN = Migration(NEXT.version, (*NEXT.statements, "no sentence of SQL"))


def stored(path: Path, migrations) -> StoredHistory:
    engine = Engine(SqliteDatabase(str(path)))
    return StoredHistory(engine, tables=TableSet("history", tuple(migrations)), **KEEP)


async def test_a_newer_version_takes_over_what_an_older_one_stored(path):
    async with history(path) as store:
        await store.save(analysis(NOON, gpu(tenants=(tenant("a"),))))
        before = await every_point(store)
    newer = stored(path, (*MIGRATIONS, NEXT))
    assert await every_point(newer) == before
    await newer._engine.close()


async def test_a_newer_store_is_refused_and_left_as_it_is(path):
    newer = stored(path, (*MIGRATIONS, NEXT))
    await newer.save(analysis(NOON, gpu()))
    await newer._engine.close()
    async with history(path) as store:
        with pytest.raises(HistoryDown, match=f"version {NEXT.version}.*knows them up to {MIGRATIONS[-1].version}"):
            await store.save(analysis(NOON + 60, gpu(), number=2))
    again = stored(path, (*MIGRATIONS, NEXT))
    assert len((await every_point(again))["analysis"]) == 1
    await again._engine.close()


async def test_a_migration_that_fails_is_undone_whole(path):
    async with history(path) as store:
        await store.save(analysis(NOON, gpu()))
    newer = stored(path, (*MIGRATIONS, BROKEN))
    with pytest.raises(HistoryDown):
        await newer.latest()
    await newer._engine.close()
    async with history(path) as store:
        assert await store.latest() == analysis(NOON, gpu())


async def test_a_file_of_version_1_is_still_read(path):
    file = sqlite3.connect(path)
    file.executescript((TESTS / "fixtures/history/v1.sql").read_text())
    file.close()
    async with history(path) as store:
        found = await every_point(store)
        assert {step: len(points) for step, points in found.items()} == {"analysis": 4, "hour": 4, "day": 2}
        assert [(p.score, p.verdict) for p in found["analysis"] if not p.pod] == [(12.5, "idle"), (80.0, "in_use")]
        [pod] = await points(store, step="day", **ALL, namespace="ml")
        assert (pod.pod, pod.owner, pod.held_seconds) == ("train", "Job/train", 900)
        await store.save(analysis(NOON + 2 * HOUR, gpu(), number=3))


async def test_a_file_from_before_power_was_stored_gets_it_from_now_on(path):
    file = sqlite3.connect(path)
    file.executescript((TESTS / "fixtures/history/v2.sql").read_text())
    file.close()
    drawn = gpu(terms={"power": Stat(mean=100.0)}, allocated=ALLOCATED)
    async with history(path) as store:
        for step in ("analysis", "hour", "day"):
            found = await points(store, step=step, **ALL)
            assert {(p.power, p.energy, p.memory_allocated) for p in found} == {(None, None, None)}
            assert all(p.score is not None for p in found)
        await store.save(analysis(NOON + 300, drawn, number=3))
        await store.prune(NOON + 2 * HOUR)
        [day] = await points(store, step="day", **ALL)
    assert (day.samples, day.power_samples, day.power, day.energy) == (3, 1, 100.0, 100.0 * 300)
    assert (day.memory_allocated, day.cores_allocated) == ALLOCATED


def test_versions_are_numbered_without_a_gap():
    assert [migration.version for migration in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))


# ── kill -9 ──────────────────────────────────────────────────────────────────────────────────────────────────────

WRITER = """
import asyncio, sys
from tests.store.fleets import NOON, fleet
from vgpuscope.store.opening import open_store
from vgpuscope.store.results.wanted import AnalysisKey

async def main(path, first):
    store = open_store(path, keep_results=1200, keep_hours=86400, keep_days=864000).results
    for number in range(first, first + 10**6):
        await store.save(fleet(NOON + number * 300, 60, number=number))
        print(number, flush=True)
        if number % 5 == 0:
            await store.prune(NOON + number * 300)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def acknowledged(path: Path, first: int, *, more: int, seconds: float) -> int:
    """Let a process save until it is killed, so long after so many; the last analysis that it said was saved."""
    command = [sys.executable, "-c", WRITER, str(path), str(first)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=REPOSITORY)
    try:
        assert process.stdout is not None
        for number in range(first, first + 1 + more):
            assert process.stdout.readline().strip() == str(number).encode()
        select.select([], [], [], seconds)  # a random moment: this is no waiting for something
    finally:
        process.send_signal(signal.SIGKILL)
        said, _ = process.communicate()
    return int(said.split()[-1]) if said.split() else first + more


async def test_kill_9_at_any_moment_loses_no_saved_analysis(path):
    chance = random.Random(os.environ.get("PYTEST_XDIST_WORKER", "0"))
    first, said = 1, 0
    for run in range(15):
        last = acknowledged(path, first, more=run % 3, seconds=chance.uniform(0, 0.15))
        said += last - first + 1
        file = sqlite3.connect(path)
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        kept = {number for (number,) in file.execute("SELECT number FROM history_analyses")}
        file.close()
        assert kept >= set(range(first, last + 1))
        async with history(path, keep_results=1200, keep_hours=DAY, keep_days=10 * DAY) as store:
            newest = await store.latest()
            assert newest == fleet(NOON + newest.number * 300, 60, number=newest.number)
            assert newest.number >= last
            days = await points(store, step="day", **ALL)
            assert sum(p.samples for p in days) == 60 * len(kept)
        first = newest.number + 1
    assert said > 15


def killed_young(path: Path, seconds: float) -> None:
    """Let a process make the file, and kill it so long after the file is there."""
    command = [sys.executable, "-c", WRITER, str(path), "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=REPOSITORY)
    try:
        while not path.exists():
            assert process.poll() is None
        select.select([], [], [], seconds)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


async def test_kill_9_while_the_file_is_made_leaves_one_that_can_be_used(tmp_path):
    for run in range(8):
        path = tmp_path / f"{run}.db"
        killed_young(path, run * 0.002)
        async with history(path) as store:
            await store.save(analysis(NOON + DAY, gpu(), number=10**6))
            assert (await store.latest()).number == 10**6


# ── what waits ───────────────────────────────────────────────────────────────────────────────────────────────────


class Flaky:
    """A store that is down at times."""

    def __init__(self) -> None:
        self.down = True
        self.saved: list = []

    async def save(self, found, *, current=False) -> None:
        if self.down:
            raise HistoryDown("down")
        self.saved.append(found)


async def test_what_could_not_be_saved_is_saved_in_its_order_when_the_store_is_back():
    store: Any = Flaky()
    outbox, made = Outbox(store), [analysis(NOON + n, gpu(n), number=n) for n in range(4)]
    for one in made[:3]:
        with pytest.raises(HistoryDown):
            await outbox.save(one)
    assert (outbox.waiting, outbox.dropped) == (3, 0)
    store.down = False
    await outbox.save(made[3])
    assert (store.saved, outbox.waiting) == (made, 0)


async def test_the_newest_wait_when_there_is_no_room_for_all():
    store: Any = Flaky()
    outbox = Outbox(store, most=2)
    for n in range(5):
        with pytest.raises(HistoryDown):
            await outbox.save(analysis(NOON + n, number=n))
    assert (outbox.waiting, outbox.dropped) == (2, 3)
    store.down = False
    await outbox.flush()
    assert [one.number for one in store.saved] == [3, 4]


async def test_the_room_is_measured_in_bytes_too_but_the_newest_always_has_some():
    store: Any = Flaky()
    outbox = Outbox(store, most_bytes=10)
    for n in range(3):
        with pytest.raises(HistoryDown):
            await outbox.save(fleet(NOON + n, 5, number=n))
    assert (outbox.waiting, outbox.dropped) == (1, 2)


async def test_a_store_that_goes_down_again_while_it_is_caught_up_with_loses_nothing():
    store: Any = Flaky()
    outbox = Outbox(store)
    for n in range(3):
        with pytest.raises(HistoryDown):
            await outbox.save(analysis(NOON + n, number=n))
    store.down, save = False, store.save

    async def save_one(found, *, current) -> None:
        await save(found)
        store.down = True

    store.save = save_one
    with pytest.raises(HistoryDown):
        await outbox.flush()
    assert (outbox.waiting, [one.number for one in store.saved]) == (2, [0])
