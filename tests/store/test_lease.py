"""The lease: one replica leads, and whoever cannot reach the store may read but not act."""

import asyncio
import shutil
import sqlite3
import subprocess
import sys
import threading
from contextlib import asynccontextmanager

import pytest

from tests.environment import uncovered
from tests.paths import REPOSITORY
from vgpuscope.model.errors import HistoryDown, RowRefused
from vgpuscope.store.engine.engine import Engine
from vgpuscope.store.engine.sqlite import SqliteDatabase
from vgpuscope.store.lease import Leadership, LocalLease, lease_in
from vgpuscope.store.limits import Limits


class Clock:
    """A monotonic clock that stands until it is put forward."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.db"


@asynccontextmanager
async def file_lease(path, clock):
    engine = Engine(SqliteDatabase(str(path)))
    lease = lease_in(engine, clock=clock)
    try:
        yield lease
    finally:
        await lease.close()
        await engine.close()


async def test_a_second_process_on_the_same_file_does_not_lead(path, clock):
    async with file_lease(path, clock) as one, file_lease(path, clock) as two:
        assert await one.take("a", 60)
        assert not await two.take("b", 60)
        assert await one.take("a", 60)
        await one.release("a")
        assert await two.take("b", 60)


async def test_a_process_that_waits_for_the_lease_learns_who_has_it(path, clock):
    async with file_lease(path, clock) as one, file_lease(path, clock) as two:
        assert await two.leader() == ""
        assert await one.take("a", 60)
        assert not await two.take("b", 60)
        assert await two.leader() == await one.leader() == "a"
        waiting = Leadership(two, "b", 60, clock=clock)
        assert not await waiting.renew()
        assert await waiting.leader() == "a"


async def test_closing_frees_the_lease(path, clock):
    async with file_lease(path, clock) as one:
        assert await one.take("a", 60)
    async with file_lease(path, clock) as two:
        assert await two.take("b", 60)


async def two_holders(lease):
    assert await lease.take("a", 60)
    assert not await lease.take("b", 60)
    await lease.release("b")
    assert not await lease.take("b", 60)
    await lease.release("a")
    assert await lease.take("b", 60)


async def test_two_holders_in_one_process_are_two(path, clock):
    await two_holders(LocalLease(clock=clock))
    async with file_lease(path, clock) as lease:
        await two_holders(lease)


async def test_a_lease_runs_out(path, clock):
    async with file_lease(path, clock) as lease:
        assert await lease.take("a", 10)
        clock.now += 9.9
        assert not await lease.take("b", 10)
        clock.now += 0.2
        assert await lease.take("b", 10)


# ── what a replica may do ────────────────────────────────────────────────────────────────────────────────────────


class Remote(LocalLease):
    """A lease that replicas share, in a store that can be down and slow."""

    shared = True

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock=clock)
        self._ticks = clock
        self.down, self.delay = False, 0.0

    async def take(self, holder: str, seconds: float) -> bool:
        if self.down:
            raise HistoryDown("down")
        self._ticks.now += self.delay
        return await super().take(holder, seconds)


@pytest.fixture
def remote(clock):
    return Remote(clock)


def replica(remote, clock, name="a"):
    return Leadership(remote, name, 15, clock=clock)


async def test_before_the_store_was_asked_a_replica_may_do_nothing(remote, clock):
    one = replica(remote, clock)
    assert (one.leads, one.may_read(), one.may_act()) == (False, False, False)


async def test_the_leader_may_act_and_a_follower_may_not(remote, clock):
    one, two = replica(remote, clock), replica(remote, clock, "b")
    assert await one.renew()
    assert not await two.renew()
    assert (one.may_read(), one.may_act()) == (True, True)
    assert (two.may_read(), two.may_act()) == (False, False)


async def test_with_the_store_down_everybody_may_read_and_nobody_may_act(remote, clock):
    replicas = [replica(remote, clock), replica(remote, clock, "b")]
    for one in replicas:
        await one.renew()
    remote.down = True
    for one in replicas:
        with pytest.raises(HistoryDown):
            await one.renew()
    assert [(one.leads, one.may_read(), one.may_act()) for one in replicas] == [(False, True, False)] * 2


@pytest.mark.parametrize("use", ["read", "write"])
async def test_a_failed_use_of_the_store_ends_acting_until_one_of_the_same_kind_succeeds(remote, clock, use):
    one = replica(remote, clock)
    await one.renew()
    one.store_failed(use)
    assert (one.leads, one.may_read(), one.may_act()) == (True, True, False)
    await one.renew()
    assert (one.leads, one.reachable, one.may_read(), one.may_act()) == (True, False, True, False)
    one.store_works(use)
    assert one.may_act()


async def test_a_leader_that_cannot_renew_in_time_stops_leading_by_its_own_clock(remote, clock):
    one = replica(remote, clock)
    await one.renew()
    clock.now += 14.9
    assert (one.leads, one.may_read(), one.may_act()) == (True, True, True)
    clock.now += 0.2
    assert (one.leads, one.may_read(), one.may_act()) == (False, False, False)


class Broken(Remote):
    """A lease that fails in ways that its callers do not expect."""

    error: BaseException | None = None

    async def take(self, holder: str, seconds: float) -> bool:
        if self.error:
            raise self.error
        return await super().take(holder, seconds)


@pytest.mark.parametrize("error", [HistoryDown("down"), RowRefused("odd"), OSError(5, "I/O"), asyncio.CancelledError()])
async def test_after_any_exception_a_replica_does_not_lead(clock, error):
    broken = Broken(clock)
    one = replica(broken, clock)
    assert await one.renew()
    broken.error = error
    with pytest.raises(type(error)):
        await one.renew()
    assert (one.leads, one.may_act()) == (False, False)
    broken.error = None
    assert await one.renew()
    assert one.may_act()


async def test_the_time_that_the_answer_took_is_not_part_of_the_lease(remote, clock):
    one = replica(remote, clock)
    remote.delay = 10.0
    await one.renew()
    clock.now += 5.1  # the store's lease lasts 9.9 s more
    assert not one.may_act()


async def test_an_action_must_end_before_the_lease_does(remote, clock):
    one = replica(remote, clock)
    await one.renew()
    assert one.may_act(lasting=14)
    assert not one.may_act(lasting=15)


async def test_who_resigns_may_not_act_and_another_may(remote, clock):
    one, two = replica(remote, clock), replica(remote, clock, "b")
    await one.renew()
    await one.resign()
    assert await two.renew()
    assert (one.may_act(), two.may_act()) == (False, True)


async def test_without_a_store_nobody_may_act_since_other_processes_do_not_see_the_lease(clock):
    one = Leadership(LocalLease(clock=clock), "a", 15, clock=clock)
    assert await one.renew()
    assert (one.leads, one.may_read(), one.may_act()) == (True, True, False)


async def test_a_file_that_cannot_be_read_has_no_leader_though_the_lock_is_free(path, clock):
    path.write_text("this is no database, only text. " * 100)
    async with file_lease(path, clock) as lease:
        one = replica(lease, clock)
        with pytest.raises(HistoryDown, match="not a database"):
            await one.renew()
        assert (one.leads, one.may_read(), one.may_act()) == (False, True, False)
        path.unlink()
        assert await one.renew()
        assert one.may_act()


async def test_a_database_that_loses_its_tables_loses_its_leader_though_the_lock_is_held(path, clock):
    async with file_lease(path, clock) as lease:
        one = replica(lease, clock)
        assert await one.renew()
        file = sqlite3.connect(path)
        file.execute("DROP TABLE history_lease")
        file.close()
        with pytest.raises(HistoryDown, match="history_lease"):
            await one.renew()
        assert (one.leads, one.may_read(), one.may_act()) == (False, True, False)


# A full disk is a limit on the size of files, which fails in the same places: a write returns an error.
FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from vgpuscope.model.errors import HistoryDown
from vgpuscope.store.engine.engine import Engine
from vgpuscope.store.engine.sqlite import SqliteDatabase
from vgpuscope.store.lease import Leadership, lease_in

def leave(room):
    size = max(Path(sys.argv[1] + end).stat().st_size for end in ("", "-wal"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, resource.RLIM_INFINITY))

async def tell(one):
    try:
        await one.renew()
    except HistoryDown:
        print("down", end=" ")
    print(one.leads, one.reachable, one.may_read(), one.may_act())

async def main():
    engine = Engine(SqliteDatabase(sys.argv[1]))
    lease = lease_in(engine)
    one = Leadership(lease, "a", 60)
    await tell(one)
    leave(room=int(sys.argv[2]))
    try:
        await engine.write(lambda tx: tx.all("CREATE TABLE large AS SELECT zeroblob(1000000)"))
    except HistoryDown:
        one.store_failed("write")
    await tell(one)
    await tell(one)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await engine.write(lambda tx: tx.all("CREATE TABLE large AS SELECT zeroblob(1000000)"))
    one.store_works("write")
    await tell(one)
    await lease.close()
    await engine.close()

asyncio.run(main())
"""
MAY_ACT = "True True True True"


@pytest.mark.parametrize(
    ("room", "meanwhile"),
    [(0, "down False False True False"), (200_000, "True False True False")],
    ids=["for nothing", "for the lease only"],
)
def test_on_a_full_disk_nobody_acts_and_everybody_reads(path, room, meanwhile):
    command = [sys.executable, "-c", FULL_DISK, str(path), str(room)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY, env=uncovered())
    assert done.stdout.splitlines() == [MAY_ACT, meanwhile, meanwhile, MAY_ACT]


async def test_a_renewal_waits_for_no_write_of_its_own_process(path, clock):
    engine = Engine(SqliteDatabase(str(path), limits=Limits(lock_wait=0.0)))
    lease, writes, over = lease_in(engine, clock=clock), threading.Event(), threading.Event()

    def long(tx) -> None:
        tx.all("DELETE FROM history_lease")
        writes.set()
        over.wait(60)

    assert await lease.take("a", 60)  # its connection has found the tables
    saving = asyncio.ensure_future(engine.write(long))
    try:
        await asyncio.to_thread(writes.wait, 60)
        assert await lease.take("a", 60)
        assert not saving.done()
    finally:
        over.set()
        await saving
        await lease.close()
        await engine.close()


# ── files that are removed or replaced ───────────────────────────────────────────────────────────────────────────


def remove_lock(path):
    path.with_name(f"{path.name}.leader").unlink()


def remove_database(path):
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink()


def replace_database(path):
    path.rename(path.with_name("moved"))
    path.with_name(f"{path.name}-wal").unlink()
    sqlite3.connect(path).close()


def replace_directory(path):
    shutil.rmtree(path.parent)
    path.parent.mkdir()


@pytest.mark.parametrize("lose", [remove_lock, remove_database, replace_database, replace_directory])
async def test_a_leader_whose_files_are_gone_leads_no_more_once_it_asks(path, clock, lose):
    async with file_lease(path, clock) as one, file_lease(path, clock) as two:
        first, second = replica(one, clock), replica(two, clock, "b")
        assert await first.renew()
        lose(path)
        with pytest.raises(HistoryDown, match="removed or replaced"):
            await first.renew()
        assert (first.leads, first.may_read(), first.may_act()) == (False, True, False)
        assert await second.renew()
        assert not await first.renew()
        assert [one.may_act() for one in (first, second)] == [False, True]


async def test_a_leader_whose_directory_is_gone_leads_no_more(path, clock):
    async with file_lease(path, clock) as lease:
        one = replica(lease, clock)
        assert await one.renew()
        shutil.rmtree(path.parent)
        for why in ("removed or replaced", "there is no directory"):
            with pytest.raises(HistoryDown, match=why):
                await one.renew()
            assert (one.leads, one.may_read(), one.may_act()) == (False, True, False)
        path.parent.mkdir()
        assert await one.renew()
        assert one.may_act()


async def test_who_took_a_lock_of_the_same_name_in_between_keeps_it(path, clock):
    async with file_lease(path, clock) as one, file_lease(path, clock) as two:
        first, second = replica(one, clock), replica(two, clock, "b")
        assert await first.renew()
        remove_lock(path)
        assert await second.renew()
        with pytest.raises(HistoryDown, match="removed or replaced"):
            await first.renew()
        assert not await first.renew()
        assert await second.renew()
