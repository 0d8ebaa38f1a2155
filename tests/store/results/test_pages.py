"""The history in pages: a cursor continues exactly where the page before ended."""

from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.fleets import DAY, HOUR, NOON, analysis, gpu, runs
from tests.store.results.pages import STEPS, assert_pages_are_the_whole
from vgpuscope.store.opening import open_store
from vgpuscope.store.results.wanted import HistorySelection


@asynccontextmanager
async def history(path):
    store = open_store(str(path), keep_results=DAY, keep_hours=30 * DAY, keep_days=400 * DAY)
    try:
        yield store.results
    finally:
        await store.close()


@given(runs(), st.integers(1, 5), st.booleans())
async def test_page_by_page_nothing_is_missing_and_nothing_comes_twice(tmp_path_factory, found, limit, rolled):
    async with history(tmp_path_factory.mktemp("history") / "h.db") as store:
        for number, one in enumerate(found):
            await store.save(one)
            if rolled and number % 2:
                await store.prune(NOON + 2 * HOUR)
        await assert_pages_are_the_whole(store, limit=limit)


async def test_analyses_of_the_same_moment_are_told_apart(tmp_path):
    async with history(tmp_path / "h.db") as store:
        for number in range(3):
            await store.save(analysis(NOON, gpu(0), gpu(1), number=number))
        await assert_pages_are_the_whole(store, limit=1)
        await assert_pages_are_the_whole(store, limit=3)


async def test_what_is_saved_between_two_pages_does_not_shift_the_next_one(tmp_path):
    async with history(tmp_path / "h.db") as store:
        for number in range(4):
            await store.save(analysis(NOON + 60 * number, gpu(0), gpu(1), number=number))
        wanted: dict[str, Any] = {"step": "analysis", "begin": 0, "end": 2 * NOON, "limit": 3}
        first = await store.page(HistorySelection(**wanted))
        await store.save(analysis(NOON - 600, gpu(0), number=9))  # before all that was read
        second = await store.page(HistorySelection(**wanted, cursor=first.cursor))
    assert [(p.time - NOON, p.gpu_id[-1]) for p in (*first.points, *second.points)] == [
        (60 * number, one_gpu) for number in range(3) for one_gpu in "01"
    ]


@pytest.mark.attack
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("cursor", ["0.0.0", "999999999999999.9999999999.9999999999", "1.9999999999.1"])
async def test_a_made_up_cursor_is_only_another_place_to_begin(tmp_path, step, cursor):
    async with history(tmp_path / "h.db") as store:
        await store.save(analysis(NOON, gpu()))
        await store.prune(NOON + DAY)
        whoses: tuple[dict[str, Any], ...] = ({}, {"gpu_id": gpu().gpu_id})
        for whose in whoses:
            page = await store.page(HistorySelection(step=step, begin=0, end=2 * NOON, limit=9, cursor=cursor, **whose))
            assert len(page.points) == (0 if cursor.startswith("9") else 1)
