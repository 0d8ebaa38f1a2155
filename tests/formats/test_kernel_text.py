"""Text files of the kernel: what they say, and that any other bytes are refused."""

import os
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.paths import TESTS
from vgpuscope.formats import kernel_text as text
from vgpuscope.formats.kernel_text import Malformed

DECODERS = (
    text.number,
    text.limit,
    text.cpu_max,
    text.io_stat,
    text.blkio,
    text.net_dev,
    text.meminfo,
    text.loadavg,
    text.first_pid,
    text.status_uid,
    lambda content: text.node_stat(content, ticks=100),
    lambda content: text.keyed(content, b"usage_usec", b"nr_periods"),
)
RECORDED = sorted(path for path in (TESTS / "fixtures" / "host").rglob("*") if path.is_file() and path.name != "SOURCE")


@pytest.mark.parametrize("decode", DECODERS)
@given(content=st.binary(max_size=300))
def test_any_bytes_are_decoded_or_refused(decode, content):
    with suppress(Malformed):
        decode(content)


@pytest.mark.parametrize("decode", DECODERS)
@given(path=st.sampled_from(RECORDED), cut=st.integers(0, 3000), noise=st.binary(max_size=3))
def test_a_torn_file_is_decoded_or_refused(decode, path, cut, noise):
    content = path.read_bytes()
    with suppress(Malformed):
        decode(content[:cut] + noise + content[cut:])


@given(value=st.integers(0, 2**62 - 1))
def test_a_limit_is_the_number_and_max_is_none(value):
    assert text.limit(b"%d\n" % value) == value


@pytest.mark.parametrize("none", [b"max\n", b"-1\n", b"9223372036854771712\n", b"9223372036854710272\n"])
def test_what_the_kernel_writes_without_a_limit_is_no_limit(none):
    assert text.limit(none) is None


@pytest.mark.parametrize(
    ("content", "cores"), [(b"800000 100000\n", 8.0), (b"max 100000\n", None), (b"50000 100000\n", 0.5)]
)
def test_a_cpu_limit_is_in_cores(content, cores):
    assert text.cpu_max(content) == cores


@pytest.mark.parametrize("bad", [b"", b"\n", b"-5\n", b"0x10\n", b"1e9\n", "٣\n".encode(), b"9" * 21, b"1 2\n"])
def test_a_text_that_is_no_number_is_not_0(bad):
    with pytest.raises(Malformed):
        text.number(bad)


def test_a_name_that_the_file_lacks_is_absent_and_not_0():
    assert text.keyed(b"usage_usec 7\nuser_usec 5\n", b"usage_usec", b"nr_periods") == (7, None)


def test_io_is_added_up_over_devices():
    content = b"8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353\n8:0 rbytes=90430464 wbytes=299008000\n"
    assert text.io_stat(content) == (1459200 + 90430464, 314773504 + 299008000)
    assert text.io_stat(b"") == (0, 0)


def test_a_total_of_0_without_devices_is_not_measured():
    assert text.blkio(b"Total 0\n") is None
    assert text.blkio(b"8:0 Read 5\n8:0 Write 0\n8:0 Total 5\nTotal 5\n") == (5, 0)


def test_the_loopback_interface_is_no_traffic():
    heading = b"Inter-| Receive | Transmit\n face |bytes |bytes\n"
    own = b"    lo: 999 1 0 0 0 0 0 0 999 1 0 0 0 0 0 0\n"
    other = b"  eth0:100 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\n net1: 3 1 0 0 0 0 0 0 4 1 0 0 0 0 0 0\n"
    assert text.net_dev(heading + own + other) == (103, 24)


def test_the_cpu_time_of_the_node_is_that_of_its_modes():
    found = text.node_stat(b"cpu  100 20 30 400 50 6 7 8 90 0\ncpu0 1\ncpu1 1\nbtime 1700000000\n", ticks=100)
    assert found.cpus == 2
    assert found.booted == 1700000000
    assert (found.cpu.user, found.cpu.system, found.cpu.iowait) == pytest.approx((1.2, 0.43, 0.5))
    assert (found.cpu.steal, found.cpu.idle) == pytest.approx((0.08, 4.0))


def test_this_kernel_s_own_files_are_understood():
    ticks = os.sysconf("SC_CLK_TCK")
    with open("/proc/stat", "rb") as stat, open("/proc/meminfo", "rb") as memory:
        found, (total, available) = text.node_stat(stat.read(), ticks=ticks), text.meminfo(memory.read())
    assert found.cpus == os.cpu_count()
    assert total == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < available <= total
    with open("/proc/self/status", "rb") as status:
        assert text.status_uid(status.read()) == os.geteuid()
    with open("/proc/loadavg", "rb") as load:
        assert all(value >= 0 for value in text.loadavg(load.read()))
