"""Reads of past results have connections of their own: however long they take, saving and the lease do not wait."""

import asyncio
import threading
from typing import Any

import pytest

from tests.store.engine.engines import opened
from tests.store.engine.notes import Notes
from tests.store.fleets import DAY, NOON, analysis, gpu
from tests.waiting import until
from vgpuscope.model.errors import HistoryDown, RowRefused
from vgpuscope.store.engine.lane import Lane
from vgpuscope.store.engine.sqlite import SqliteDatabase
from vgpuscope.store.lease import lease_in
from vgpuscope.store.limits import Limits
from vgpuscope.store.results.stored import StoredHistory

pytestmark = pytest.mark.attack
KEEP: dict[str, Any] = {"keep_results": DAY, "keep_hours": 30 * DAY, "keep_days": 400 * DAY}
SOON = 60.0


class Stuck:
    """A job that begins and does not end until it is let go."""

    def __init__(self) -> None:
        self.begun, self.let_go = threading.Semaphore(0), threading.Event()

    def __call__(self, *_: object) -> bool:
        self.begun.release()
        return self.let_go.wait(SOON)


async def test_reads_that_hang_keep_neither_saving_nor_the_lease_waiting(tmp_path):
    async with opened(tmp_path / "h.db") as engine:
        history, lease, stuck = StoredHistory(engine, **KEEP), lease_in(engine), Stuck()
        reads = [asyncio.ensure_future(engine.read(stuck)) for _ in range(20)]
        try:
            await asyncio.to_thread(stuck.begun.acquire, timeout=SOON)
            await history.save(analysis(NOON, gpu()))
            assert await lease.take("a", 60)
            assert await history.latest() == analysis(NOON, gpu())
            await history.prune(NOON + DAY)
            assert not any(read.done() for read in reads)
        finally:
            stuck.let_go.set()
        await asyncio.gather(*reads)
        await lease.close()


async def test_a_save_that_hangs_keeps_the_lease_not_waiting(tmp_path):
    async with opened(tmp_path / "h.db") as engine:
        lease, stuck = lease_in(engine), Stuck()
        saving = asyncio.ensure_future(engine.do(stuck))
        try:
            await asyncio.to_thread(stuck.begun.acquire, timeout=SOON)
            assert await lease.take("a", 60)
            assert not saving.done()
        finally:
            stuck.let_go.set()
        await saving
        await lease.close()


async def test_one_read_that_hangs_leaves_a_connection_to_others(tmp_path):
    async with opened(tmp_path / "h.db") as engine:
        stuck = Stuck()
        hung = asyncio.ensure_future(engine.read(stuck))
        try:
            await asyncio.to_thread(stuck.begun.acquire, timeout=SOON)
            for number in range(5):
                assert await engine.read(lambda tx: tx.all("SELECT :n", n=number)) == [(number,)]  # noqa: B023
            assert not hung.done()
        finally:
            stuck.let_go.set()
        await hung


async def test_a_read_is_down_after_its_own_deadline(tmp_path):
    async with opened(tmp_path / "h.db", Limits(read=0.01)) as engine:
        stuck = Stuck()
        try:
            with pytest.raises(HistoryDown, match=r"not answered within 0\.01 s"):
                await engine.read(stuck)
        finally:
            stuck.let_go.set()


def endless(tx) -> list:
    return tx.all("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n")


async def test_the_database_itself_ends_a_read_that_nobody_waits_for(tmp_path):
    # The deadline holds for the last read too, which a busy machine must be able to do in time.
    async with opened(tmp_path / "h.db", Limits(read=2.0, readers=1)) as engine:
        with pytest.raises(HistoryDown):
            await engine.read(endless)
        [reader] = engine._lanes["read"]
        await until(lambda: not reader.load)  # an endless read would keep this thread for ever
        assert await engine.read(lambda tx: tx.all("SELECT 1")) == [(1,)]


async def test_a_row_that_breaks_a_rule_of_its_table_is_the_rows_fault(tmp_path):
    async with opened(tmp_path / "h.db") as engine:
        notes = Notes(engine)
        with pytest.raises(RowRefused, match="NOT NULL"):
            await notes.add((None, None, None))
        await notes.add(("good", None, None))
        assert await notes.all() == [("good", None, None)]


async def test_lanes_that_open_a_new_file_at_once_make_its_tables_once(tmp_path):
    for number in range(5):
        async with opened(tmp_path / f"{number}.db") as engine:
            notes = Notes(engine)
            reads = [notes.all() for _ in range(4)]
            await asyncio.gather(notes.add(("one", None, None)), *reads)
            assert await notes.all() == [("one", None, None)]


async def test_a_connection_whose_job_outlasts_the_close_is_closed_when_the_job_ends(tmp_path):
    closed = threading.Event()

    class Watched(SqliteDatabase):
        def close(self) -> None:
            super().close()
            closed.set()

    limits, stuck = Limits(close=0.01), Stuck()
    lane = Lane("frozen", Watched(str(tmp_path / "h.db"), limits=limits), (), limits=limits)
    job = asyncio.ensure_future(lane.do(stuck, deadline=SOON))
    await asyncio.to_thread(stuck.begun.acquire, timeout=SOON)
    with pytest.raises(HistoryDown, match=r"has not closed within 0\.01 s"):
        await lane.close()
    assert not closed.is_set()
    stuck.let_go.set()
    assert await asyncio.to_thread(closed.wait, SOON)
    await job
