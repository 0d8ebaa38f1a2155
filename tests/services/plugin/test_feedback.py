"""The priority feedback writes regions that HAMi-core's own code made."""

import faulthandler
import gzip
import mmap
import os
import struct

import pytest

from tests.paths import TESTS
from vgpuscope.runtime.counters import Counters
from vgpuscope.services.plugin.feedback import Feedback

REAL = ("real_v0_single", "real_v11_single", "real_v12_single")
SWITCH, RECENT, PRIORITY = range(3)
TAIL = {1197897: 1197884, 2008953: 2008900}  # by size of the file: the offset of the switch, as HAMi's headers say
FIXTURES = TESTS / "fixtures/regions"


class _All:
    def __contains__(self, gpu):
        return True


ALL_GPUS = _All()


class Container:
    """A container with a region, whose fields are read as HAMi's library does: from a mapping of its own."""

    def __init__(self, root, name, recorded, *, priority, recent, switch=1):
        directory = root / f"uid-{name}_main"
        directory.mkdir(parents=True)
        self.path = directory / "region.cache"
        self.path.write_bytes(gzip.decompress((FIXTURES / f"{recorded}.cache.gz").read_bytes()))
        self.offset = TAIL[self.path.stat().st_size]
        with self.path.open("r+b") as file:
            file.seek(self.offset)
            file.write(struct.pack("<3i", switch, recent, priority))
            file.flush()
            self._mapped = mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
        self.before = bytes(self._mapped)

    @property
    def fields(self):
        return struct.unpack_from("<3i", self._mapped, self.offset)

    def others_are_untouched(self):
        end = self.offset + 8
        now = bytes(self._mapped)
        return now[: self.offset] == self.before[: self.offset] and now[end:] == self.before[end:]


@pytest.fixture
def root(tmp_path):
    return tmp_path / "containers"


@pytest.fixture
def counters():
    return Counters()


@pytest.fixture
def feedback(root, counters):
    return Feedback(str(root), gpus=lambda *_: ALL_GPUS, count=counters.count)


@pytest.mark.parametrize("recorded", REAL)
def test_a_low_priority_waits_while_a_high_one_computes_and_then_goes_on(root, feedback, recorded):
    high = Container(root, "high", recorded, priority=0, recent=3)
    low = Container(root, "low", recorded, priority=1, recent=2)
    feedback.round()
    assert (high.fields, low.fields) == ((0, 2, 0), (1, -1, 1))
    assert feedback.counts.states == {"all": 2, "active": 2, "blocked": 1, "enforced": 1}
    feedback.round()
    assert (high.fields, low.fields) == ((0, 1, 0), (1, -1, 1))
    feedback.round()
    assert (high.fields, low.fields) == ((0, 0, 0), (0, 0, 1))
    assert feedback.counts.moves == {"block": 1, "unblock": 1, "enforce": 0, "release": 2}
    assert high.others_are_untouched()
    assert low.others_are_untouched()


def test_a_plugin_that_ends_leaves_nobody_blocked(root, feedback):
    high = Container(root, "high", REAL[2], priority=0, recent=3)
    low = Container(root, "low", REAL[2], priority=1, recent=2)
    gone = Container(root, "gone", REAL[2], priority=1, recent=2)
    feedback.round()
    assert low.fields == gone.fields == (1, -1, 1)
    gone.path.unlink()
    other = Container(root, "other", REAL[2], priority=1, recent=-1)  # that another program has blocked
    feedback.release()
    assert (high.fields, low.fields, other.fields) == ((0, 2, 0), (1, 0, 1), (1, -1, 1))
    assert low.others_are_untouched()
    assert (feedback.counts.moves["unblock"], feedback.counts.failures) == (1, 0)
    low_again = low.fields
    feedback.release()
    assert low.fields == low_again


def test_a_container_that_an_earlier_plugin_blocked_is_released_too(root, feedback):
    Container(root, "high", REAL[2], priority=0, recent=9)
    low = Container(root, "low", REAL[2], priority=1, recent=-1)
    feedback.round()
    assert low.fields[RECENT] == -1
    feedback.release()
    assert low.fields[RECENT] == 0


def test_a_node_without_containers_is_not_an_error(feedback, counters):
    feedback.round()
    assert feedback.counts.states["all"] == 0
    assert counters.errors == {}


def test_a_region_that_cannot_be_written_affects_no_other(root, feedback, counters, monkeypatch):
    good = Container(root, "good", REAL[2], priority=1, recent=2)
    bad = Container(root, "bad", REAL[2], priority=1, recent=2)
    usual = os.open

    def refuse(path, flags, *more, **named):
        if path == str(bad.path) and flags & os.O_RDWR:
            raise PermissionError(13, "Permission denied", path)
        return usual(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", refuse)
    feedback.round()
    feedback.round()
    assert good.fields[RECENT] == 0
    assert bad.fields[RECENT] == 2
    assert feedback.counts.failures == 2
    assert counters.errors == {"REGION_REFUSED": 1}  # told once


def test_a_link_to_another_file_is_never_written(root, feedback, tmp_path):
    target = Container(tmp_path / "elsewhere", "t", REAL[2], priority=1, recent=2)
    evil = root / "uid-evil_main"
    evil.mkdir(parents=True)
    (evil / "region.cache").symlink_to(target.path)
    feedback.round()
    assert target.fields == (1, 2, 1)


def test_a_tenant_that_truncates_its_region_at_the_worst_moment_harms_only_itself(root, feedback, monkeypatch):
    cut = Container(root, "b-cut", REAL[2], priority=1, recent=2)
    first = Container(root, "a-first", REAL[2], priority=1, recent=2)
    last = Container(root, "c-last", REAL[2], priority=1, recent=2)
    usual = mmap.mmap

    def truncated(file, *arguments, **named):
        mapped = usual(file, *arguments, **named)
        if os.fstat(file).st_ino == cut.path.stat().st_ino:
            faulthandler.disable()  # pytest's, in the child: the end of the child is what is expected
            os.ftruncate(file, 0)  # after the check, before the store: SIGBUS
        return mapped

    monkeypatch.setattr(mmap, "mmap", truncated)
    feedback.round()
    assert (first.fields[RECENT], last.fields[RECENT]) == (1, 1)
    assert feedback.counts.failures == 1
