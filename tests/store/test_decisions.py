"""Decisions in the store: there after a restart, once, for a day, and not without end."""

from collections.abc import Collection
from contextlib import asynccontextmanager

import pytest

from tests.logic.scheduler.decided import assignment, refusal
from tests.store.decision_laws import assert_decisions_are_kept, assert_old_and_too_many_are_deleted, entries
from vgpuscope.model.errors import HistoryDown, RowRefused
from vgpuscope.store.decisions import DecisionStore, Unsaved
from vgpuscope.store.engine.engine import Engine
from vgpuscope.store.engine.sqlite import SqliteDatabase


@asynccontextmanager
async def opened(path, **more):
    engine = Engine(SqliteDatabase(str(path)))
    try:
        yield DecisionStore(engine, **more)
    finally:
        await engine.close()


async def test_decisions_are_there_after_a_restart_as_they_were(tmp_path):
    async with opened(tmp_path / "d.db") as store:
        await assert_decisions_are_kept(store)
        kept = (await store.after(0, now=10.0)).entries
    async with opened(tmp_path / "d.db") as store:
        assert (await store.after(0, now=10.0)).entries == kept


async def test_old_decisions_and_those_beyond_the_limit_are_deleted(tmp_path):
    async with opened(tmp_path / "d.db", most=3) as store:
        await assert_old_and_too_many_are_deleted(store)


async def test_decisions_beyond_the_bytes_are_deleted(tmp_path):
    async with opened(tmp_path / "d.db", most_bytes=1_000) as store:
        await store.add(entries(*(refusal(number) for number in range(50))))
        await store.prune(0.0)
        left = [one.id for one in (await store.after(0, now=0.0)).entries]
        assert 0 < len(left) < 50
        assert left[-1] == "d49"


async def test_a_refusal_by_five_thousand_nodes_is_small_in_the_store(tmp_path):
    async with opened(tmp_path / "d.db", most_bytes=100_000) as store:
        await store.add(entries(refusal(1, nodes=5_000)))
        await store.prune(0.0)
        [found] = (await store.after(0, now=0.0)).entries
        assert len(found.nodes) == 5_000


async def test_a_row_that_this_version_cannot_read_is_left_out_alone(tmp_path):
    async with opened(tmp_path / "d.db") as store:
        await store.add(entries(refusal(1), refusal(2)))
        await store._engine.write(
            lambda tx: tx.all("UPDATE decisions SET body = :body WHERE id = 'd1'", body=b"of a newer version")
        )
        assert [one.id for one in (await store.after(0, now=0.0)).entries] == ["d2"]


class Failing(DecisionStore):
    """A store that is down, or that rejects some entries."""

    def __init__(self, *, down: bool = False, rejects: Collection[str] = ()) -> None:
        self.down, self.rejects = down, rejects
        self.saved: list[str] = []

    async def add(self, entries):
        if self.down:
            raise HistoryDown("the disk is full")
        if any(entry.id in self.rejects for entry in entries):
            raise RowRefused("a NUL character")
        self.saved += [entry.id for entry in entries]


async def test_what_was_not_saved_is_saved_later_in_order():
    store, unsaved = Failing(down=True), Unsaved()
    for entry in entries(assignment(1), refusal(2)):
        unsaved.put(entry)
    with pytest.raises(HistoryDown):
        await unsaved.flush(store)
    assert len(unsaved) == 2
    store.down = False
    assert await unsaved.flush(store) == 2
    assert (store.saved, len(unsaved), await unsaved.flush(store)) == (["d1", "d2"], 0, 0)


async def test_while_the_store_is_down_superseded_refusals_are_dropped_first():
    store, unsaved = Failing(), Unsaved(most=3)
    for entry in entries(assignment(0, pod="runs"), *(refusal(number) for number in range(1, 6))):
        unsaved.put(entry)
    await unsaved.flush(store)
    assert store.saved == ["d0", "d4", "d5"]
    assert unsaved.dropped == 3


async def test_an_entry_that_the_database_rejects_costs_no_other():
    store, unsaved = Failing(rejects={"d2"}), Unsaved()
    for entry in entries(refusal(1), refusal(2), refusal(3)):
        unsaved.put(entry)
    assert await unsaved.flush(store) == 2
    assert (store.saved, len(unsaved), unsaved.dropped) == (["d1", "d3"], 0, 1)
