"""Laws of the frames that back-tests replay, the same for every database."""

from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from tests.store.fleets import DAY, NOON, analysis, fleet, gpu, tenant
from vgpuscope.logic.reclaim.workloads import HoldingWorkloads, vanished
from vgpuscope.model.analysis import Analysis, Evidence, Stat
from vgpuscope.model.reclaim import Policy
from vgpuscope.store.engine.engine import Engine
from vgpuscope.store.past import PastStore
from vgpuscope.store.results.stored import StoredHistory

POLICIES = [Policy(min_coverage=share, include_held=held) for share in (0.5, 0.95, 1.0) for held in (False, True)]


class Kept(NamedTuple):
    """Results, and the frames that follow them."""

    results: StoredHistory
    past: PastStore

    async def save(self, one: Analysis) -> None:
        await self.results.save(one)

    async def prune(self, now: float) -> None:
        await self.past.prune(now)


def store(engine: Engine, **more) -> Kept:
    past = PastStore(engine, **more)
    keep: dict[str, Any] = {"keep_results": DAY, "keep_hours": 30 * DAY, "keep_days": 400 * DAY}
    return Kept(StoredHistory(engine, followers=[past], **keep), past)


async def read(history: Kept, begin: float = 0.0, end: float = 2.0 * NOON) -> list[Analysis]:
    return [one async for one in history.past.read(begin=begin, end=end)]


def looks_the_same(one: Analysis, other: Analysis) -> None:
    """All that the machine asks of an analysis."""
    assert (one.window.begin, one.window.end) == (other.window.begin, other.window.end)
    mine, theirs = HoldingWorkloads(one.gpus), HoldingWorkloads(other.gpus)
    assert set(mine) == set(theirs)
    assert mine.held({}) == theirs.held({})
    for key in mine:
        for policy in POLICIES:
            assert mine.finding(key, policy, held=mine.held({})) == theirs.finding(key, policy, held=theirs.held({}))
        found, wanted = mine[key], theirs[key]
        assert (found.namespace, found.pod, found.owner) == (wanted.namespace, wanted.pod, wanted.owner)
        assert set(found.gpu_ids) == set(wanted.gpu_ids)
    gpus = [{gpu.gpu_id: gpu for gpu in each.gpus} for each in (one, other)]
    assert gpus[0].keys() == gpus[1].keys()
    assert all(vanished([key], gpus[0]) == vanished([key], gpus[1]) for key in gpus[0])


def idle(pod: str, coverage: float = 1.0, **more):
    evidence = Evidence(coverage=coverage)
    return tenant(pod, verdict="idle", use_class="idle", evidence=evidence, idle_since=5.0, **more)


def some(turn: int) -> Analysis:
    """A fleet in which something changes each time: a tenant comes and goes, one works, one GPU is lost."""
    gpus = [
        gpu(0, tenants=(idle("steady", memory_limit=2**30),), terms={"mem_total": Stat(mean=2.0**34)}),
        gpu(1, tenants=(idle("b", coverage=0.9499),) if turn % 3 else (), last_seen=None if turn % 4 else 7.0),
        gpu(2, tenants=(tenant("c", verdict="in_use" if turn % 2 else "unknown", use_class="busy"), idle("d", 0.96))),
        gpu(5, tenants=(idle("e", 0.99), idle("f", 1.0, partly_seen=bool(turn % 2)))),
        gpu(6, tenants=(idle("e", 0.99),)),
    ]
    return analysis(NOON + 300.0 * turn, *gpus[: 2 + turn % 2], *gpus[3:], number=turn + 1)


async def assert_the_machine_sees_the_same_again(engine: Engine) -> None:
    history = store(engine)
    saved = [some(turn) for turn in range(130)]  # more than one page
    for one in saved:
        await history.save(one)
    found = await read(history)
    assert len(found) == len(saved)
    for mine, theirs in zip(found, saved, strict=True):
        looks_the_same(mine, theirs)
    steady = [next(g for g in one.gpus if g.gpu_id == saved[0].gpus[0].gpu_id) for one in found]
    assert all(a is b for a, b in pairwise(steady))  # what did not change is stored and decoded once
    assert (steady[0].tenants[0].memory_limit, steady[0].terms["mem_total"].mean) == (2**30, 2.0**34)
    middle = await read(history, begin=saved[50].window.end, end=saved[60].window.end)
    assert [one.window.end for one in middle] == [one.window.end for one in saved[50:60]]
    looks_the_same(middle[0], saved[50])


async def assert_analyses_of_the_same_moment_are_all_read(engine: Engine) -> None:
    """Two replicas may end a window at once; the boundary of a page lies between them."""
    history = store(engine)
    for turn in range(49):
        await history.save(some(turn))
    for number in (901, 902, 903):
        await history.save(replace(some(50), number=number))
    assert len(await read(history)) == 52


async def assert_an_analysis_that_is_known_already_breaks_no_chain(engine: Engine) -> None:
    """Its commit was not seen, so it is saved again; what its frame had changed is not lost."""
    history = store(engine)
    past = history.past
    await history.save(some(0))
    before = past._last
    await history.save(some(1))
    past._last = before  # the commit of the second one was not seen
    await history.save(some(1))
    await history.save(some(2))
    for mine, theirs in zip(await read(history), map(some, range(3)), strict=True):
        looks_the_same(mine, theirs)


async def assert_a_new_process_begins_a_chain(engine: Engine) -> None:
    history = store(engine)
    for turn in range(8):
        await history.save(some(turn))
        if turn == 3:
            history.past.forget()  # as in a process that has just started
    for mine, theirs in zip(await read(history), map(some, range(8)), strict=True):
        looks_the_same(mine, theirs)
    await history.save(some(7))  # saved already
    await history.save(some(8))
    assert len(await read(history)) == 9


async def assert_a_broken_chain_is_not_guessed(engine: Engine) -> None:
    history = store(engine)
    for turn in range(9):
        if turn == 6:
            history.past.forget()
        await history.save(some(turn))
    await engine.write(
        lambda tx: tx.all("DELETE FROM past_frames WHERE place = 2 AND time < :t", t=(NOON + 1700) * 1000)
    )
    times = [round(one.window.end - NOON) // 300 for one in await read(history)]
    assert times == [0, 1, 6, 7, 8]


class Broken(Exception):
    pass


async def assert_a_failed_save_breaks_no_chain(engine: Engine) -> None:
    history = store(engine)
    past = history.past

    def fail(tx):
        past.add(tx, some(1))
        raise Broken

    await history.save(some(0))
    with pytest.raises(Broken):
        await engine.write(fail)
    for turn in (1, 2):
        await history.save(some(turn))
    for mine, theirs in zip(await read(history), map(some, range(3)), strict=True):
        looks_the_same(mine, theirs)


async def assert_a_gpu_that_is_reported_twice_is_stored_once(engine: Engine) -> None:
    history = store(engine)
    one = some(1)
    await history.save(replace(one, gpus=(*one.gpus, replace(one.gpus[0], hostname="other"))))
    [found] = await read(history)
    assert len(found.gpus) == len(one.gpus)


async def assert_chains_that_are_too_old_are_dropped(engine: Engine) -> None:
    history = store(engine, keep=1000.0)
    for turn in range(12):
        if turn in {4, 8}:
            history.past.forget()
        await history.save(some(turn))
    await history.prune(NOON + 7 * 300 + 999.0)
    assert len(await read(history)) == 8  # the second chain ends within the time: all of it can be read
    await history.prune(NOON + 7 * 300 + 1001.0)
    assert len(await read(history)) == 4


async def assert_the_size_is_bounded(engine: Engine) -> None:
    history = store(engine, most=40_000)
    for turn in range(12):
        await history.save(fleet(NOON + 300.0 * turn, 400, number=turn + 1))
        history.past.forget()
    await history.prune(NOON + 4000.0)
    [(size,)] = await engine.read(lambda tx: tx.all("SELECT sum(size) FROM past_frames"))
    assert 0 < size <= 40_000
    left = [one.window.end for one in await read(history)]
    assert left == [NOON + 300.0 * turn for turn in range(12 - len(left), 12)]  # the newest stay


async def assert_a_frame_without_changes_is_small(engine: Engine) -> None:
    history = store(engine)
    gpus = [gpu(number, tenants=(idle(f"p{number}"),)) for number in range(500)]
    for turn in range(3):
        await history.save(analysis(NOON + 300.0 * turn, *gpus, number=turn + 1))
    sizes = await engine.read(lambda tx: tx.all("SELECT size FROM past_frames ORDER BY number"))
    assert [size < 50 for (size,) in sizes] == [False, True, True]


LAWS = [value for name, value in list(globals().items()) if name.startswith("assert_")]
