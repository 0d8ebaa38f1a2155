"""The store of results in a real PostgreSQL: the same laws as in a file, and several replicas of which one leads."""

import asyncio
import contextlib
import itertools
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.postgres import Postgres
from tests.http.serving import until
from tests.paths import REPOSITORY
from tests.ports import free_port
from tests.store.decision_laws import assert_decisions_are_kept, assert_old_and_too_many_are_deleted
from tests.store.engine.notes import Notes, assert_foreign_table_works
from tests.store.events import assert_events_are_kept
from tests.store.fleets import DAY, HOUR, NOON, analysis, fleet, gpu, points, runs, tenant
from tests.store.past_laws import LAWS as PAST_LAWS
from tests.store.reclaim_laws import LAWS as RECLAIM_LAWS
from tests.store.results.laws import (
    assert_equal_points,
    assert_gpus_of_tenants_are_those_of_their_pods,
    assert_some_fields_are_those_of_the_whole,
    every_point,
    rolled,
)
from tests.store.results.pages import STEPS, assert_pages_are_the_whole
from vgpuscope.model.errors import HistoryDown, RowRefused
from vgpuscope.store.decisions import DecisionStore
from vgpuscope.store.engine.engine import Engine, open_engine
from vgpuscope.store.engine.migrations import Migration, TableSet
from vgpuscope.store.engine.postgres import PostgresDatabase
from vgpuscope.store.lease import Leadership, lease_in
from vgpuscope.store.limits import Limits
from vgpuscope.store.opening import open_store
from vgpuscope.store.results import rows
from vgpuscope.store.results.schema import MIGRATIONS
from vgpuscope.store.results.stored import StoredHistory
from vgpuscope.store.results.unsaved import Outbox
from vgpuscope.store.timeline import StoredEvents

pytestmark = pytest.mark.real
KEEP: dict[str, Any] = {"keep_results": DAY, "keep_hours": 30 * DAY, "keep_days": 400 * DAY}
ALL = {"begin": 0, "end": 2 * NOON, "limit": 100_000}
NEXT = Migration(MIGRATIONS[-1].version + 1, ("ALTER TABLE history_series ADD COLUMN team text NOT NULL DEFAULT ''",))
SETS = ("history", "lease", "notes")
numbers = itertools.count()


@pytest.fixture(scope="module")
def postgres():
    with Postgres() as server:
        yield server


def new_url(postgres: Postgres) -> str:
    """A place of its own: another schema in the same database."""
    schema = f"test{next(numbers)}"
    postgres.say(f"CREATE SCHEMA {schema}")
    return f"{postgres.url}?options=-csearch_path%3D{schema}"


@pytest.fixture
def url(postgres):
    return new_url(postgres)


@asynccontextmanager
async def whole(url, **keep):
    store = open_store(url, **{**KEEP, **keep})
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def history(url, **keep):
    async with whole(url, **keep) as store:
        yield store.results


# ── the same laws ────────────────────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=8)
@given(runs(), st.data())
async def test_what_a_file_would_say_the_database_says(postgres, tmp_path_factory, found, data):
    file = tmp_path_factory.mktemp("history") / "h.db"
    async with history(new_url(postgres)) as store, history(str(file)) as plain:
        for one in found:
            await store.save(one)
            await plain.save(one)
            if data.draw(st.booleans()):
                await store.prune(data.draw(st.sampled_from((NOON, NOON + 2 * HOUR, NOON + DAY - 1))))
                await store.save(one)
        assert await every_point(store) == await every_point(plain)
        assert await store.latest() == await plain.latest()


@settings(max_examples=8)
@given(runs())
async def test_hours_and_days_are_the_sums_of_their_analyses(postgres, found):
    async with history(new_url(postgres)) as store:
        for one in found:
            await store.save(one)
        await store.prune(NOON + DAY - 1)
        for step in ("hour", "day"):
            assert_equal_points((await every_point(store))[step], await rolled(store, step))


async def test_some_fields_are_those_of_the_whole(url):
    async with history(url) as store:
        for number in range(4):
            await store.save(fleet(NOON + number * 1500, 3, number=number))
        await store.prune(NOON + HOUR)
        await store.save(fleet(NOON + 100, 3, number=9))  # of an hour that is rolled up already
        await assert_some_fields_are_those_of_the_whole(store)


@settings(max_examples=8)
@given(runs())
async def test_gpus_of_some_namespaces_are_those_of_the_steps_in_which_their_pods_held_them(postgres, found):
    async with history(new_url(postgres)) as store:
        for number, one in enumerate(found):
            await store.save(one)
            if number % 2:
                await store.prune(NOON + 2 * HOUR)
        await assert_gpus_of_tenants_are_those_of_their_pods(store)


async def test_the_last_analysis_survives_a_restart_of_ours(url):
    last = fleet(NOON, 20)
    async with history(url) as store:
        await store.save(last)
    async with history(url) as store:
        assert await store.latest() == last


async def test_what_is_old_goes_and_is_not_counted_again(url):
    async with history(url) as store:
        one = analysis(NOON, gpu(tenants=(tenant("a"),)))
        await store.save(one)
        before = await every_point(store)
        await store.prune(NOON + 3 * DAY)
        await store.save(one)
        await store.prune(NOON + 3 * DAY)
        after = await every_point(store)
        assert (after["analysis"], after["hour"], after["day"]) == ([], before["hour"], before["day"])
        await store.prune(NOON + 500 * DAY)
        assert await every_point(store) == {"analysis": [], "hour": [], "day": []}


async def test_two_replicas_that_save_the_same_or_other_analyses_count_each_once(url):
    made = [fleet(NOON + n * 60, 5, number=n) for n in range(12)]
    async with history(url) as one, history(url) as two:
        await asyncio.gather(*(store.save(a) for a in made for store in (one, two)))
        found = await points(one, step="day", **ALL)
        assert [p.samples for p in found] == [12] * 5
        assert [p.seconds for p in found] == [600 + 11 * 60] * 5


async def test_a_series_that_another_replica_has_forgotten_is_made_again(url):
    async with history(url, keep_hours=DAY, keep_days=DAY) as one, history(url, keep_hours=DAY, keep_days=DAY) as two:
        await one.save(analysis(NOON, gpu()))
        await two.prune(NOON + 30 * DAY)
        await one.save(analysis(NOON + 30 * DAY, gpu(), number=2))
        assert len(await points(two, step="analysis", **ALL)) == 1


# ── foreign tables ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_foreign_table_needs_nothing_but_its_own_migrations_beside_the_results(url, postgres):
    engine = Engine(PostgresDatabase(url))
    history, lease = StoredHistory(engine, **KEEP), lease_in(engine)
    try:
        await history.save(analysis(NOON, gpu()))
        await assert_foreign_table_works(engine)
        await assert_events_are_kept(StoredEvents(engine, keep=DAY))
        assert await history.latest() == analysis(NOON, gpu())
    finally:
        await lease.close()
        await engine.close()
    schema = url.rpartition("%3D")[2]
    recorded = [postgres.say(f"SELECT max(version) FROM {schema}.{name}_migrations") for name in SETS]
    assert [int(version) for version in recorded] == [8, 1, 2]


async def test_decisions_of_the_extender_are_kept_as_in_a_file(url):
    engine = open_engine(url)
    try:
        await assert_decisions_are_kept(DecisionStore(engine))
        await engine.write(lambda tx: tx.all("DELETE FROM decisions"))
    finally:
        await engine.close()
    engine = open_engine(url)
    try:
        await assert_old_and_too_many_are_deleted(DecisionStore(engine, most=3))
    finally:
        await engine.close()


async def test_a_read_of_too_many_rows_is_ended(url):
    limits = Limits(rows_per_read=3)
    engine = Engine(PostgresDatabase(url, limits=limits), limits=limits)
    try:
        notes = Notes(engine)
        await notes.add(*((str(n), None, None) for n in range(4)))
        with pytest.raises(HistoryDown, match="more than 3 rows"):
            await notes.all()
    finally:
        await engine.close()


# ── one leads ────────────────────────────────────────────────────────────────────────────────────────────────────

REPLICA = """
import asyncio, sys
from vgpuscope.store.results import rows
from vgpuscope.store.opening import open_store

async def main(url, holder, seconds):
    store = open_store(url, keep_results=86400, keep_hours=86400, keep_days=86400)
    while True:
        print(int(await store.lease.take(holder, seconds)), flush=True)
        await asyncio.sleep(0.2)

asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
"""
LEASE = 10.0


class Replica:
    """A process of its own that wants to lead."""

    def __init__(self, url: str, name: str) -> None:
        command = [sys.executable, "-c", REPLICA, url, name, str(LEASE)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)

    def leads(self) -> bool:
        """What it is told the next time that it asks."""
        assert self.process.stdout is not None
        return self.process.stdout.readline() == "1\n"

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


def test_of_two_processes_one_leads_and_when_it_is_killed_the_other_takes_over(url):
    replicas = [Replica(url, name) for name in ("a", "b")]
    try:
        for _ in range(15):
            assert sorted(replica.leads() for replica in replicas) == [False, True]
        leader, other = sorted(replicas, key=lambda replica: not replica.leads())
        leader.kill()
        asked = [other.leads()]
        while not asked[-1]:
            asked.append(other.leads())
            assert len(asked) < 30 * LEASE  # thrice as often as the lease lasts
        assert len(asked) > 1
    finally:
        for replica in replicas:
            if replica.process.poll() is None:
                replica.kill()


async def test_a_lease_is_nobody_elses_until_it_is_given_back(url):
    async with whole(url) as one, whole(url) as two:
        assert await one.lease.take("a", 60)
        assert not await two.lease.take("b", 60)
        await two.lease.release("b")
        assert not await two.lease.take("b", 60)
        await one.lease.release("a")
        assert await two.lease.take("b", 60)
        assert not await one.lease.take("a", 60)


async def test_of_many_who_ask_at_once_one_leads(url):
    stores = [open_store(url, **KEEP) for _ in range(8)]
    try:
        answers = await asyncio.gather(*(store.lease.take(str(n), 60) for n, store in enumerate(stores)))
        assert sum(answers) == 1
    finally:
        await asyncio.gather(*(store.close() for store in stores))


async def test_a_leader_may_not_act_while_the_database_is_away_and_may_again_when_it_is_back(postgres, url):
    async with whole(url) as store:
        leadership = Leadership(store.lease, "a", 60)
        assert await leadership.renew()
        assert leadership.may_act()
        postgres.stop()
        try:
            with pytest.raises(HistoryDown):
                await leadership.renew()
            assert (leadership.leads, leadership.may_read(), leadership.may_act()) == (False, True, False)
        finally:
            postgres.start()
        assert await leadership.renew()
        assert leadership.may_act()


async def test_a_leader_may_not_act_while_the_database_is_read_only(postgres, url):
    async with whole(url) as store:
        leadership = Leadership(store.lease, "a", 60)
        assert await leadership.renew()
        with postgres.read_only():
            await renew_until(leadership, leads=False)
            assert (leadership.leads, leadership.may_read(), leadership.may_act()) == (False, True, False)
            with pytest.raises(HistoryDown, match="read-only"):
                await leadership.renew()
        await renew_until(leadership, leads=True)
        assert leadership.may_act()


async def renew_until(leadership: Leadership, *, leads: bool) -> None:
    """Sessions of the database see a changed setting soon, not at once."""
    while leadership.leads != leads:
        with contextlib.suppress(HistoryDown):
            await leadership.renew()


# ── what goes wrong ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_restart_of_the_database_between_two_calls_is_not_even_noticed(postgres, url):
    async with history(url) as store:
        await store.save(analysis(NOON, gpu()))
        postgres.stop()
        postgres.start()
        await store.save(analysis(NOON + 60, gpu(), number=2))
        assert len(await points(store, step="analysis", **ALL)) == 2


async def test_while_the_database_is_away_analyses_wait_and_then_all_are_there(postgres, url):
    async with whole(url) as store:
        outbox = Outbox(store.results)
        await outbox.save(analysis(NOON, gpu()))
        postgres.stop()
        try:
            for n in (1, 2):
                with pytest.raises(HistoryDown):
                    await outbox.save(analysis(NOON + n * 60, gpu(), number=1 + n))
            with pytest.raises(HistoryDown):
                await store.lease.take("a", 10)
        finally:
            postgres.start()
        await outbox.save(analysis(NOON + 180, gpu(), number=4))
        assert [p.time - NOON for p in await points(store.results, step="analysis", **ALL)] == [0, 60, 120, 180]


async def test_a_database_that_is_killed_loses_no_saved_analysis(postgres, url):
    async with history(url) as store:
        for n in range(5):
            await store.save(fleet(NOON + n * 60, 50, number=n))
            postgres.crash()
            postgres.start()
            assert (await store.latest()).number == n
        assert [p.samples for p in await points(store, step="day", **ALL)] == [5] * 50


async def test_a_database_that_hangs_is_down_when_the_deadline_is_over_and_the_event_loop_never_waits(postgres, url):
    async with whole(url) as store:
        assert await store.lease.take("a", 60)
        with postgres.frozen():
            asked, turns = asyncio.ensure_future(store.lease.take("a", 1.0)), 0
            while not asked.done():
                await asyncio.sleep(0)
                turns += 1
            with pytest.raises(HistoryDown, match="not answered within 1 s"):
                await asked
        assert turns > 100
        await store.results.save(analysis(NOON, gpu()))


async def test_a_wrong_password_is_said_without_the_password(postgres):
    async with history(postgres.url_of("wr0ng-secret")) as store:
        with pytest.raises(HistoryDown, match="password authentication failed") as caught:
            await store.latest()
    assert "wr0ng-secret" not in f"{caught.value!r} {caught.value.advice} {caught.value.__cause__!r}"


@pytest.mark.parametrize("password", ["se/cret", "se@cret", "12/cret", "se%cret", "/cret"])
def test_a_url_that_cannot_be_understood_is_not_repeated(password):
    with pytest.raises(HistoryDown, match="cannot be understood") as caught:
        open_store(f"postgresql://me:{password}@host/db", **KEEP)
    assert "cret" not in str(caught.value)
    assert caught.value.__cause__ is None


async def test_a_database_that_is_not_there_is_named(postgres):
    async with history(postgres.url_of(database="nowhere")) as store:
        with pytest.raises(HistoryDown, match=r'127\.0\.0\.1/nowhere.*"nowhere" does not exist'):
            await store.save(analysis(NOON, gpu()))


async def test_nobody_at_the_address_is_down_at_once():
    async with history(f"postgresql://me:secret@127.0.0.1:{free_port()}/db") as store:
        with pytest.raises(HistoryDown, match="refused"):
            await store.save(analysis(NOON, gpu()))


# ── migrations ───────────────────────────────────────────────────────────────────────────────────────────────────


def stored(url: str, *migrations: Migration) -> StoredHistory:
    engine = Engine(PostgresDatabase(url))
    return StoredHistory(engine, tables=TableSet("history", migrations), **KEEP)


async def test_a_newer_version_takes_over_and_the_older_one_is_refused_from_then_on(url):
    async with history(url) as older:
        await older.save(analysis(NOON, gpu()))
        before = await every_point(older)
    newer = stored(url, *MIGRATIONS, NEXT)
    assert await every_point(newer) == before
    await newer._engine.close()
    async with history(url) as older:
        with pytest.raises(HistoryDown, match=f"version {NEXT.version}"):
            await older.latest()


async def test_a_migration_that_fails_is_undone_whole(url):
    broken = stored(url, *MIGRATIONS, Migration(NEXT.version, (*NEXT.statements, "no sentence of SQL")))
    with pytest.raises(HistoryDown):
        await broken.latest()
    await broken._engine.close()
    async with history(url) as store:
        await store.save(analysis(NOON, gpu()))


async def test_replicas_that_start_at_once_make_the_tables_once(url):
    stores = [open_store(url, **KEEP) for _ in range(6)]
    try:
        assert await asyncio.gather(*(store.results.latest() for store in stores)) == [None] * 6
    finally:
        await asyncio.gather(*(store.close() for store in stores))


# ── strangers ────────────────────────────────────────────────────────────────────────────────────────────────────

NUL, LONG, ODD = "train\0", "".join(f"{n:x}" for n in range(5000)), "\ud7ff\ue000\U0010ffff\x7f"


@pytest.mark.attack
@pytest.mark.parametrize("name", [NUL, LONG, ODD])
async def test_no_name_stops_the_outbox(url, name):
    named = gpu(gpu_id=name, mig=name, hostname=name, model=name, tenants=(tenant(name, namespace=name, owner=name),))
    async with history(url) as store:
        outbox = Outbox(store)
        await outbox.save(analysis(NOON, named))
        await outbox.save(analysis(NOON + 60, gpu(), number=2))
        assert outbox.waiting == 0
        assert len(await points(store, step="analysis", **ALL)) == 2
        assert len(await points(store, step="analysis", **ALL, namespace="")) == 1
        assert await store.latest() == analysis(NOON + 60, gpu(), number=2)


@pytest.mark.attack
@settings(max_examples=15)
@given(st.lists(st.text(), min_size=4, max_size=4))
async def test_any_text_can_be_a_name(postgres, names):
    one_gpu, pod, space, owner = names
    async with history(new_url(postgres)) as store:
        await store.save(analysis(NOON, gpu(gpu_id=one_gpu, tenants=(tenant(pod, namespace=space, owner=owner),))))
        assert len(await points(store, step="hour", **ALL)) == 1


@pytest.mark.attack
@pytest.mark.parametrize("name", [NUL, LONG])
async def test_a_row_that_the_database_rejects_is_dropped_alone(url, name, monkeypatch):
    monkeypatch.setattr(rows, "storable", lambda text: text)
    async with history(url) as store:
        outbox = Outbox(store)
        await outbox.put(analysis(NOON, gpu(gpu_id=name)))
        await outbox.put(analysis(NOON + 60, gpu(), number=2))
        with pytest.raises(RowRefused):
            await outbox.flush()
        await outbox.flush()
        assert [p.time for p in await points(store, step="analysis", **ALL)] == [NOON + 60]


@settings(max_examples=10)
@given(runs(), st.integers(1, 4))
async def test_page_by_page_nothing_is_missing_and_nothing_comes_twice(postgres, found, limit):
    async with history(new_url(postgres)) as store:
        for number, one in enumerate(found):
            await store.save(one)
            if number % 2:
                await store.prune(NOON + 2 * HOUR)
        await assert_pages_are_the_whole(store, limit=limit)


@pytest.mark.attack
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("cursor", ["0.0.0", "999999999999999.9999999999.9999999999", "1.9999999999.1"])
async def test_a_made_up_cursor_is_only_another_place_to_begin(url, step, cursor):
    async with history(url) as store:
        await store.save(analysis(NOON, gpu()))
        await store.prune(NOON + DAY)
        for whose in ({}, {"gpu_id": gpu().gpu_id}):
            found = await points(store, step=step, **ALL, cursor=cursor, **whose)
            assert len(found) == (0 if cursor.startswith("9") else 1)


@pytest.mark.attack
async def test_a_reader_that_waits_for_the_database_keeps_neither_saving_nor_the_lease_waiting(url):
    engine = Engine(PostgresDatabase(url))
    store, lease = StoredHistory(engine, **KEEP), lease_in(engine)
    try:
        await store.latest()
        reads = [asyncio.ensure_future(engine.read(lambda tx: tx.all("SELECT pg_sleep(600)"))) for _ in range(10)]
        await asyncio.sleep(0)
        await store.save(analysis(NOON, gpu()))
        assert await lease.take("a", 60)
        assert not any(read.done() for read in reads)
        for read in reads:
            read.cancel()
    finally:
        with pytest.raises(HistoryDown):  # the sleeping ones cannot be closed in time; the server ends them
            await engine.close()


@pytest.mark.attack
async def test_the_database_itself_ends_a_read_that_nobody_waits_for(url):
    limits = Limits(read=0.5)
    engine = Engine(PostgresDatabase(url, limits=limits), limits=limits)
    try:
        with pytest.raises(HistoryDown, match=r"within 0\.5 s|statement timeout"):
            await engine.read(lambda tx: tx.all("SELECT pg_sleep(600)"))
        await until(lambda: not any(lane.load for lane in engine._lanes["read"]))
    finally:
        await engine.close()


@pytest.mark.attack
async def test_a_result_from_the_future_is_followed_by_one_from_now(url):
    async with history(url) as store:
        outbox = Outbox(store)
        for number, ahead in enumerate((0, 3600, 60, -3600, 120)):
            await outbox.save(analysis(NOON + ahead, gpu(), number=number))
            assert (await store.latest()).number == number


@pytest.mark.attack
async def test_while_the_database_is_frozen_a_read_is_down_within_its_deadline(postgres, url):
    limits = Limits(read=5.0, close=30.0)  # enough for a read on a busy machine
    opened = open_store(url, **KEEP, limits=limits)
    store = opened.results
    await store.save(analysis(NOON, gpu()))
    assert len(await points(store, step="analysis", **ALL)) == 1
    with postgres.frozen():
        reads = await asyncio.gather(*(points(store, step="analysis", **ALL) for _ in range(6)), return_exceptions=True)
        assert {str(error) for error in reads} == {"the store has not answered within 5 s"}
    assert len(await points(store, step="analysis", **ALL)) == 1
    await opened.close()


@pytest.mark.parametrize("law", [*RECLAIM_LAWS, *PAST_LAWS], ids=lambda law: law.__name__.removeprefix("assert_"))
async def test_reclaim(law, url):
    engine = open_engine(url)
    assert engine is not None
    try:
        await law(engine)
    finally:
        await engine.close()
