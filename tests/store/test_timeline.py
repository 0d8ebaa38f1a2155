"""Events in the store: there after a restart, once, and not without end."""

from contextlib import asynccontextmanager

from tests.store.events import assert_events_are_kept, event
from vgpuscope.store.engine.engine import Engine
from vgpuscope.store.engine.sqlite import SqliteDatabase
from vgpuscope.store.timeline import MOST_IN_MEMORY, LocalEvents, StoredEvents


@asynccontextmanager
async def opened(path, **more):
    engine = Engine(SqliteDatabase(str(path)))
    try:
        yield StoredEvents(engine, **{"keep": 3600.0, **more})
    finally:
        await engine.close()


async def test_events_are_there_after_a_restart_once_and_newest_first(tmp_path):
    async with opened(tmp_path / "h.db") as events:
        await assert_events_are_kept(events)
        kept = await events.newest(10)
    async with opened(tmp_path / "h.db") as events:
        assert await events.newest(10) == kept
        assert await events.newest(1) == kept[:1]


async def test_old_events_and_those_beyond_the_limit_are_deleted(tmp_path):
    async with opened(tmp_path / "h.db", most=3) as events:
        await events.add([event(number, at=number * 600.0) for number in range(10)])
        await events.prune(9 * 600.0)
        assert [one.id for one in await events.newest(10)] == ["9", "8", "7"]
        await events.prune(7 * 600.0 + 3601)
        assert [one.id for one in await events.newest(10)] == ["9", "8"]


async def test_an_event_of_endless_length_is_left_out_alone(tmp_path):
    async with opened(tmp_path / "h.db") as events:
        await events.add([event(1, message="x" * 100_000), event(2)])
        assert [one.id for one in await events.newest(10)] == ["2"]


async def test_without_a_store_the_last_events_are_kept():
    events = LocalEvents()
    await events.add([event(number) for number in range(MOST_IN_MEMORY + 5)])
    found = await events.newest(10**6)
    assert (len(found), found[0].id) == (MOST_IN_MEMORY, str(MOST_IN_MEMORY + 4))
