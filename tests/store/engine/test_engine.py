"""The engine knows no table: a foreign one is registered, migrated and used beside the results."""

import asyncio
import sqlite3
import threading
from typing import Any

import pytest

from tests.paths import TESTS
from tests.store.engine.engines import opened
from tests.store.engine.notes import FIRST, TABLES, Notes, assert_foreign_table_works
from tests.store.fleets import DAY, NOON, analysis, gpu
from vgpuscope.model.errors import HistoryDown
from vgpuscope.store.engine.engine import open_engine
from vgpuscope.store.engine.migrations import Migration, TableSet
from vgpuscope.store.lease import lease_in
from vgpuscope.store.limits import Limits
from vgpuscope.store.results.stored import StoredHistory

KEEP: dict[str, Any] = {"keep_results": DAY, "keep_hours": 30 * DAY, "keep_days": 400 * DAY}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.db"


def versions(path, name):
    file = sqlite3.connect(path)
    try:
        return [version for (version,) in file.execute(f"SELECT version FROM {name}_migrations ORDER BY version")]
    finally:
        file.close()


async def test_a_foreign_table_needs_nothing_but_its_own_migrations(path):
    async with opened(path) as engine:
        await assert_foreign_table_works(engine)
    assert versions(path, "notes") == [1, 2]


async def test_results_lease_and_a_foreign_table_share_one_engine(path):
    async with opened(path) as engine:
        notes, history, lease = Notes(engine), StoredHistory(engine, **KEEP), lease_in(engine)
        await history.save(analysis(NOON, gpu()))
        await notes.add(("one", None, 1.0))
        assert await lease.take("a", 60)
        assert await history.latest() == analysis(NOON, gpu())
        assert await notes.all() == [("one", None, 1.0)]
        await lease.close()
    assert [versions(path, name) for name in ("history", "lease", "notes")] == [[1, 2, 3, 4, 5, 6, 7, 8], [1], [1, 2]]


async def test_tables_may_be_registered_when_the_database_is_open_already(path):
    async with opened(path) as engine:
        history = StoredHistory(engine, **KEEP)
        await history.save(analysis(NOON, gpu()))
        await assert_foreign_table_works(engine)


async def test_a_set_migrates_from_the_version_that_the_database_has(path):
    async with opened(path) as engine:
        await Notes(engine, TableSet("notes", (FIRST,))).add(("old", None, None))
    assert versions(path, "notes") == [1]
    async with opened(path) as engine:
        notes = Notes(engine)
        assert await notes.all() == [("old", None, None)]
        assert await engine.read(lambda tx: tx.all("SELECT read FROM notes")) == [(0,)]
    assert versions(path, "notes") == [1, 2]


async def test_a_newer_set_is_refused_by_its_name(path):
    newer = TableSet("notes", (*TABLES.migrations, Migration(3, ("ALTER TABLE notes ADD COLUMN x text",))))
    async with opened(path) as engine:
        await Notes(engine, newer).all()
    async with opened(path) as engine:
        with pytest.raises(HistoryDown, match=r"notes tables of version 3.*up to 2"):
            await Notes(engine).all()


async def test_a_database_of_version_1_gets_the_lease_and_keeps_its_results(path):
    file = sqlite3.connect(path)
    file.executescript((TESTS / "fixtures/history/v1.sql").read_text())
    file.close()
    async with opened(path) as engine:
        StoredHistory(engine, **KEEP)
        lease = lease_in(engine)
        assert await lease.take("a", 60)
        await lease.close()
    assert [versions(path, name) for name in ("history", "lease")] == [[1, 2, 3, 4, 5, 6, 7, 8], [1]]


async def test_two_sets_of_one_name_are_a_mistake(path):
    async with opened(path) as engine:
        engine.register(TABLES)
        with pytest.raises(ValueError, match="notes"):
            engine.register(TABLES)


def test_no_url_is_no_engine():
    assert open_engine("none") is None
    assert open_engine("") is None


# ── limits ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_read_of_too_many_rows_is_ended(path):
    async with opened(path, Limits(rows_per_read=3)) as engine:
        notes = Notes(engine)
        await notes.add(*((str(n), None, None) for n in range(3)))
        assert len(await notes.all()) == 3
        await notes.add(("one more", None, None))
        with pytest.raises(HistoryDown, match="more than 3 rows"):
            await notes.all()


async def test_a_call_is_rejected_when_the_queue_is_full(path):
    async with opened(path, Limits(calls_waiting=2)) as engine:
        begun, stuck = threading.Event(), threading.Event()
        first = asyncio.ensure_future(engine.do(lambda: (begun.set(), stuck.wait(60))))
        try:
            await asyncio.to_thread(begun.wait, 60)
            waiting = [asyncio.ensure_future(engine.do(lambda: None)) for _ in range(2)]
            await asyncio.sleep(0)
            with pytest.raises(HistoryDown, match="2 calls to the store are waiting"):
                await engine.do(lambda: None)
        finally:
            stuck.set()
        await asyncio.gather(first, *waiting)
        assert await engine.do(lambda: 1) == 1
