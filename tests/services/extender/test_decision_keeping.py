"""Decisions are recorded at once; the store may be slow, down or shared with another replica."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from tests.http.serving import until
from tests.logic.scheduler.decided import assignment, refusal
from vgpuscope.model.errors import ConfigInvalid, HistoryDown, ScopeError
from vgpuscope.model.logged_decision import logged
from vgpuscope.services.extender.decision_keeping import DecisionKeeper, open_store
from vgpuscope.store.decisions import DecisionsPage


@asynccontextmanager
async def keeping(store, **more):
    keeper = DecisionKeeper(store, wall=lambda: 100.0, **more)
    task = asyncio.create_task(keeper.run())
    try:
        yield keeper
    finally:
        task.cancel()
        await asyncio.wait({task})
        await keeper.close()


def ids(keeper):
    return [entry.id for entry in keeper.log.find()]


async def test_a_restart_finds_the_decisions_of_the_last_day(tmp_path):
    path = str(tmp_path / "state.db")
    async with keeping(open_store(path)) as keeper:
        keeper.add(refusal(1, at=100.0))
        keeper.add(assignment(2, at=101.0))
        await until(lambda: keeper.state().unsaved == 0)
    async with keeping(open_store(path)) as keeper:
        await until(lambda: keeper.state().entries == 2)
        assert ids(keeper) == ["d2", "d1"]
        assert keeper.log.find()[0].devices == assignment(2).devices


async def test_what_was_decided_just_before_the_end_is_saved_too(tmp_path):
    path = str(tmp_path / "state.db")
    keeper = DecisionKeeper(open_store(path), wall=lambda: 100.0)
    keeper.add(refusal(1, at=100.0))
    await keeper.close()
    async with keeping(open_store(path)) as keeper:
        await until(lambda: ids(keeper) == ["d1"])


async def test_without_a_store_decisions_are_kept_in_memory():
    assert open_store("none") is None
    async with keeping(None) as keeper:
        keeper.add(refusal(1, at=100.0))
        assert ids(keeper) == ["d1"]
        assert (keeper.state().stored, keeper.state().unsaved) == (None, 0)


async def test_a_folder_that_does_not_exist_delays_no_decision_and_is_counted(tmp_path):
    counted: list[Exception] = []
    store = open_store(str(tmp_path / "missing" / "deep" / "state.db"))
    async with keeping(store, failed=counted.append) as keeper:
        await until(lambda: keeper.state().stored is False)
        keeper.add(refusal(1, at=100.0))
        assert ids(keeper) == ["d1"]
        assert keeper.state().unsaved == 1
        assert keeper.state().fault
        assert isinstance(counted[0], HistoryDown)


class Shared:
    """The store of two replicas: a list."""

    def __init__(self):
        self.rows = []

    async def add(self, entries):
        self.rows += entries

    async def after(self, number, *, now):
        return DecisionsPage(self.rows[number:], len(self.rows), whole=True)

    async def prune(self, now):
        pass

    async def close(self):
        pass


def test_a_wrong_place_is_named_by_the_extenders_own_setting():
    with pytest.raises(ConfigInvalid) as caught:
        open_store("mysql://me:secret@host/db")
    assert str(caught.value) == "extender.state: decisions cannot be kept in mysql://"
    with pytest.raises(
        HistoryDown, match=r"^extender\.state: the postgresql:// URL of the store cannot be understood$"
    ):
        open_store("postgresql://me:se/cret@host/db")


async def test_the_hint_of_an_outage_names_the_extenders_own_setting(tmp_path, caplog):
    counted: list[ScopeError] = []
    async with keeping(open_store(str(tmp_path / "missing" / "state.db")), failed=counted.append):
        await until(lambda: counted)
    hint = "Check extender.state, the disk or the database. Unwritten decisions are written when the store is back."
    assert counted[0].advice == hint
    assert [record.fields["hint"] for record in caplog.records] == [hint]


async def test_a_replica_that_becomes_leader_knows_what_the_former_leader_decided():
    store = Shared()
    leads: list[bool] = []
    async with keeping(store, leads=lambda: bool(leads)) as keeper:
        await until(lambda: keeper.state().stored)
        store.rows.append(logged(assignment(7, at=99.0)))
        leads.append(True)
        keeper.add(refusal(8, at=100.0))  # wakes the loop
        await until(lambda: ids(keeper) == ["d8", "d7"])
        await until(lambda: [row.id for row in store.rows] == ["d7", "d8"])
