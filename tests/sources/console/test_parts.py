"""A part: fetched once for all, waited for no longer than its deadline, and its last good value is not forgotten."""

import asyncio
from typing import Any

import pytest

from tests.loopclock import forward
from vgpuscope.model.errors import QueryForbidden, QueryTimeout, ScopeError, SourceDown
from vgpuscope.sources.console.parts import PartReader


class Source:
    """Answers when it is let go, with what it is told."""

    def __init__(self) -> None:
        self.fetches = 0
        self.answer: object = "first"
        self.let_go = asyncio.Event()
        self.let_go.set()

    async def fetch(self):
        self.fetches += 1
        await self.let_go.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
async def source():
    forward(0)
    return Source()


def reader(source, **more):
    loop: Any = asyncio.get_running_loop()
    clock = lambda: loop.ahead  # noqa: E731 - only by what the test puts it forward: pauses are many times a fetch
    return PartReader("cluster", source.fetch, clock=clock, wall=clock, **more)


async def slow_first_read(source, part, seconds):
    """What a read gives that takes so long."""
    source.let_go.clear()
    asked = asyncio.create_task(part.read())
    await asyncio.sleep(0)
    forward(seconds)
    source.let_go.set()
    return await asked


async def test_many_callers_at_once_cost_one_fetch(source):
    source.let_go.clear()
    part = reader(source)
    asked = [asyncio.create_task(part.read()) for _ in range(50)]
    await asyncio.sleep(0)
    source.let_go.set()
    found = await asyncio.gather(*asked)
    assert (source.fetches, {one.value for one in found}, {one.state for one in found}) == (1, {"first"}, {"ok"})


async def test_a_value_is_kept_for_a_while_and_then_fetched_again(source):
    part = reader(source, kept=5.0)
    before = await part.read()
    source.answer = "second"
    assert (await part.read()) == before
    forward(5.1)
    again = await part.read()
    assert (again.value, again.version, source.fetches) == ("second", before.version + 1, 2)


async def test_the_same_object_is_no_new_version(source):
    part = reader(source)
    first = await part.read()
    forward(6)
    assert (await part.read()).version == first.version
    assert source.fetches == 2


async def test_a_part_that_hangs_is_waited_for_once_and_shows_its_last_value(source):
    part = reader(source, deadline=3.0)
    await part.read()
    source.let_go.clear()
    forward(6)
    waiting = asyncio.create_task(part.read())
    await asyncio.sleep(0)
    forward(3.1)
    late = await waiting
    assert (late.value, late.state, late.error.code) == ("first", "stale", QueryTimeout.code)
    async with asyncio.timeout(1.0):
        again = await part.read()  # by the loop's clock: nobody waits for it a second time
    assert (again.state, source.fetches) == ("stale", 2)
    source.let_go.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (await part.read()).state == "ok"
    await part.close()


async def test_a_part_that_hangs_from_the_start_is_down_after_its_deadline(source):
    source.let_go.clear()
    part = reader(source, deadline=3.0)
    waiting = asyncio.create_task(part.read())
    await asyncio.sleep(0)
    forward(3.1)
    found = await waiting
    assert (found.state, found.value, found.at) == ("down", None, None)
    await part.close()


@pytest.mark.parametrize(
    ("error", "state"),
    [(SourceDown("gone"), "stale"), (QueryForbidden("no"), "forbidden"), (RuntimeError("bug"), "stale")],
)
async def test_a_part_that_fails_says_why_and_keeps_its_value(source, error, state):
    part = reader(source)
    await part.read()
    source.answer = error
    forward(6)
    found = await part.read()
    assert (found.state, found.value) == (state, "first")
    assert found.error.code == (error.code if isinstance(error, ScopeError) else "INTERNAL")


async def test_a_part_that_fails_is_not_asked_again_by_every_caller(source):
    source.answer = SourceDown("gone")
    part = reader(source)
    states = [(await part.read()).state for _ in range(10)]
    assert (set(states), source.fetches) == ({"down"}, 1)


async def test_a_value_that_is_too_old_is_not_shown(source):
    part = reader(source)
    await part.read()
    source.answer = SourceDown("gone")
    forward(601)
    found = await part.read()
    assert (found.state, found.value, found.version) == ("down", None, 0)


async def test_a_slow_part_is_fetched_for_a_fortieth_of_the_time_at_most(source):
    part = reader(source, kept=5.0, deadline=60.0)
    await slow_first_read(source, part, 2)
    forward(70)
    await part.read()
    assert source.fetches == 1
    forward(11)
    await part.read()
    assert source.fetches == 2


@pytest.mark.parametrize(("share", "seconds", "pause"), [(100.0, 2, 200), (100.0, 4, 300), (40.0, 4, 160)])
async def test_a_part_is_fetched_for_its_share_of_the_time_but_at_least_every_five_minutes(
    source, share, seconds, pause
):
    part = reader(source, kept=5.0, deadline=60.0, share=share)
    await slow_first_read(source, part, seconds)
    forward(pause - 1)
    await part.read()
    assert source.fetches == 1
    forward(2)
    await part.read()
    assert source.fetches == 2


async def test_a_part_that_took_long_to_fail_is_soon_tried_again(source):
    part = reader(source, kept=5.0, deadline=1.0)
    source.let_go.clear()
    waiting = asyncio.create_task(part.read())
    await asyncio.sleep(0)
    forward(50)
    source.answer = SourceDown("gone")
    source.let_go.set()
    await waiting
    await asyncio.sleep(0)
    source.answer = "back"
    forward(31)
    assert ((await part.read()).state, source.fetches) == ("ok", 2)


async def test_a_part_that_is_not_configured_is_absent_and_says_how_to_configure_it():
    missing = SourceDown("none is configured", hint="Set it.")
    part: PartReader[str] = PartReader("cluster", None, missing=missing)
    found = await part.read()
    assert (found.state, found.error) == ("absent", missing)


async def test_a_part_that_is_known_to_be_slow_is_not_waited_for_while_its_value_is_good(source):
    part = reader(source, kept=5.0, deadline=60.0)
    before = await slow_first_read(source, part, 8)
    source.let_go.clear()
    forward(400)
    assert await part.read() == before  # fetched again meanwhile, and nobody waited
    assert source.fetches == 2
    forward(9)
    assert (await part.read()).state == "ok"  # no slower than the time before
    source.answer = "second"
    source.let_go.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (await part.read()).value == "second"


async def test_a_slow_part_is_late_if_it_takes_longer_than_it_did(source):
    part = reader(source, kept=5.0, deadline=3.0)
    await slow_first_read(source, part, 8)
    await asyncio.sleep(0)
    source.let_go.clear()
    forward(400)
    await part.read()
    forward(15)
    assert (await part.read()).state == "ok"
    forward(2)
    assert (await part.read()).error.code == QueryTimeout.code
    await part.close()


# ── with a rhythm ────────────────────────────────────────────────────────────────────────────────────────────────


async def slow(source, *, seconds, **more):
    """A part that was fetched once, and took so long."""
    part = reader(source, share=100.0, rhythm=lambda: 300.0, deadline=60.0, longest=120.0, **more)
    await slow_first_read(source, part, seconds)
    return part


async def begun(part, source):
    """Whether `begin` fetches; the fetch has ended."""
    before = source.fetches
    part.begin()
    for _ in range(3):
        await asyncio.sleep(0)
    return source.fetches > before


async def test_a_slow_part_waits_for_the_next_beginning(source):
    part = await slow(source, seconds=2.6)  # the pause is 260 s
    for _ in range(9):
        forward(30)
        await part.read()
    assert source.fetches == 1  # after 270 s
    forward(30)
    assert await begun(part, source)


async def test_a_slow_part_is_fetched_without_a_beginning_that_does_not_come(source):
    part = await slow(source, seconds=2.6)
    forward(374)
    await part.read()
    assert source.fetches == 1
    forward(2)
    await part.read()
    assert source.fetches == 2


async def test_no_beginning_takes_a_slow_part_more_often_than_its_share(source):
    part = await slow(source, seconds=2.6)
    for _ in range(2):  # analyses by hand
        forward(60)
        await part.read()
        assert not await begun(part, source)


async def test_a_part_that_nobody_looks_at_is_not_fetched(source):
    part = await slow(source, seconds=2.6)
    forward(300)
    assert not await begun(part, source)


async def test_a_quick_part_is_fetched_as_often_as_without_a_rhythm(source):
    part = await slow(source, seconds=0.04)  # the pause is the five seconds of every part
    forward(5.1)
    await part.read()
    assert source.fetches == 2
    forward(1)
    assert not await begun(part, source)


async def test_a_slow_part_that_failed_is_tried_again_soon(source):
    part = await slow(source, seconds=2.6)
    source.answer = SourceDown("away")
    forward(376)
    await part.read()
    forward(6)
    source.answer = "second"
    assert (await part.read()).value == "second"
