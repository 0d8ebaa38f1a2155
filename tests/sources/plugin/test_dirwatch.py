"""A directory's changes wake who waits; nothing else does."""

import asyncio
import shutil
import time

import pytest

from vgpuscope.sources.plugin.dirwatch import DirectoryWatch

LONG = 60.0


@pytest.fixture
async def watch(tmp_path):
    (tmp_path / "dir").mkdir()
    made = DirectoryWatch(str(tmp_path / "dir"))
    await made.wait(LONG)  # the first call returns: something may have changed before
    yield made
    made.close()


async def changed(watch, change):
    """Whether a change wakes one who waits long before the time is over."""
    waiting = asyncio.create_task(watch.wait(LONG))
    await asyncio.sleep(0)
    began = time.monotonic()
    change()
    await waiting
    return time.monotonic() - began < LONG / 2


async def test_entries_that_come_go_and_are_renamed_wake_who_waits(watch, tmp_path):
    entry = tmp_path / "dir" / "kubelet.sock"
    assert await changed(watch, entry.touch)
    assert await changed(watch, lambda: entry.rename(tmp_path / "dir" / "other"))
    assert await changed(watch, (tmp_path / "dir" / "other").unlink)


async def test_a_change_between_two_calls_is_not_missed(watch, tmp_path):
    (tmp_path / "dir" / "new").touch()
    await asyncio.sleep(0)
    began = time.monotonic()
    await watch.wait(LONG)
    assert time.monotonic() - began < LONG / 2


async def test_without_a_change_the_time_passes(watch):
    await watch.wait(0.05)


async def test_a_directory_that_is_replaced_is_watched_again(watch, tmp_path):
    assert await changed(watch, lambda: shutil.rmtree(tmp_path / "dir"))
    await watch.wait(0.01)
    (tmp_path / "dir").mkdir()
    await watch.wait(LONG)  # begins to watch it
    assert await changed(watch, (tmp_path / "dir" / "new").touch)


async def test_a_directory_that_does_not_exist_lets_the_time_pass(tmp_path):
    watch = DirectoryWatch(str(tmp_path / "nowhere"))
    await watch.wait(0.01)
    watch.close()
