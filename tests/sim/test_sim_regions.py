"""Regions as HAMi-core writes them. The offsets here were typed apart from the writer's, from the C structs."""

import struct
from typing import Any

import pytest

from vgpuscope.sim.regions import DeviceUse, RegionFile

MIB = 1 << 20
GPU = "GPU-8dcd427f-483b-b48f-d7e5-75fb19a52b76"
OTHER = "GPU-03cd1cf6-11f6-5ecc-feb0-af07406e1838"
USE = DeviceUse(context=400 * MIB, data=100 * MIB, driver_used=510 * MIB, sm=37)

# file bytes, version, device_num, uuids, limit, sm_limit, procs, slot bytes, proc_num, last_kernel_time
HEAD = {
    "v0": (1197897, None, 48, 56, 1592, 1720, 1848, 1168, 1197880, None),
    "v1.1": (2008953, (1, 1), 56, 64, 1600, 1728, 1856, 1960, 2008896, 2008912),
    "v1.2": (2008953, (1, 2), 56, 64, 1600, 1728, 1856, 1960, 2008896, 2008912),
    "v1s": (2008985, (1, 1), 88, 96, 1632, 1760, 1888, 1960, 2008928, 2008944),
}
# inside a slot: used, record bytes, monitorused, device_util, record bytes, status
SLOT = {
    "v0": (8, 40, 648, 776, 24, 1160),
    "v1.1": (8, 64, 1032, 1160, 48, 1928),
    "v1.2": (8, 64, 1032, 1160, 48, 1928),
    "v1s": (16, 64, 1040, 1168, 48, 1936),
}
every_layout = pytest.mark.parametrize("layout", HEAD)


def region(tmp_path, layout, **kw):
    said: dict[str, Any] = {
        "uuids": [GPU, OTHER],
        "memory_limits": [3 * MIB, 5 * MIB],
        "sm_limit": 30,
        "priority": 0,
        "now": 1700.9,
    }
    return RegionFile(tmp_path / "r.cache", layout=layout, **(said | kw))


def number(path, offset, form="<Q"):
    return struct.unpack_from(form, path.read_bytes(), offset)[0]


def slot(path, layout, index=0):
    """(pid, hostpid, status, [(context, module, data, offset, total, monitorused, sm)])"""
    raw, (_, _, _, _, _, _, procs, size, *_), (used, step, monitor, util, wide, status) = (
        path.read_bytes(),
        HEAD[layout],
        SLOT[layout],
    )
    at = procs + index * size
    devices = [
        struct.unpack_from("<5Q", raw, at + used + d * step)
        + struct.unpack_from("<Q", raw, at + monitor + d * 8)
        + struct.unpack_from("<Q", raw, at + util + d * wide + 16)
        for d in range(2)
    ]
    return *struct.unpack_from("<ii", raw, at), struct.unpack_from("<i", raw, at + status)[0], devices


@every_layout
def test_the_head_stands_where_the_c_struct_has_it(tmp_path, layout):
    size, version, device_num, uuids, limit, sm_limit, _, _, proc_num, last_kernel = HEAD[layout]
    region(tmp_path, layout).close()
    raw = (tmp_path / "r.cache").read_bytes()
    assert len(raw) == size
    assert raw[:4] == bytes.fromhex("4ef72f01")
    assert version is None or struct.unpack_from("<II", raw, 4) == version
    assert struct.unpack_from("<Q", raw, device_num) == (2,)
    assert raw[uuids : uuids + 192] == GPU.encode().ljust(96, b"\0") + OTHER.encode().ljust(96, b"\0")
    assert struct.unpack_from("<3Q", raw, limit) == (3 * MIB, 5 * MIB, 0)
    assert struct.unpack_from("<16Q", raw, sm_limit) == (30,) * 16
    assert struct.unpack_from("<4i", raw, proc_num) == (0, 1, 2, 0)
    assert last_kernel is None or struct.unpack_from("<Q", raw, last_kernel) == (1700,)


@every_layout
def test_a_process_and_its_use_stand_in_its_slot(tmp_path, layout):
    r = region(tmp_path, layout)
    r.attach(7, now=1701, alive=set())
    r.update(7, host_pid=4242, devices=[USE, USE._replace(sm=5)])
    first = (400 * MIB, 0, 100 * MIB, 0, 500 * MIB, 510 * MIB, 37)
    assert slot(r.path, layout) == (7, 4242, 1, [first, (*first[:-1], 5)])
    assert number(r.path, HEAD[layout][8], "<i") == 1
    r.close()


@pytest.mark.parametrize("layout", ["v1.2", "v1s"])
def test_new_layouts_keep_the_slot_of_an_ended_process(tmp_path, layout):
    r = region(tmp_path, layout)
    r.attach(7, now=1701, alive=set())
    r.update(7, host_pid=4242, devices=[USE, USE])
    r.exit(7)
    pid, _, status, devices = slot(r.path, layout)
    assert (pid, status, devices[0][4]) == (0, 0, 500 * MIB)
    assert number(r.path, HEAD[layout][8], "<i") == 1
    r.close()


@pytest.mark.parametrize("layout", ["v0", "v1.1"])
def test_old_layouts_fill_the_gap_of_an_ended_process_with_the_last(tmp_path, layout):
    r = region(tmp_path, layout)
    r.attach(7, now=1701, alive=set())
    r.attach(9, now=1701, alive={7})
    r.exit(7)
    assert slot(r.path, layout)[0] == 9
    assert number(r.path, HEAD[layout][8], "<i") == 1
    r.close()


@every_layout
def test_a_killed_process_counts_until_another_attaches(tmp_path, layout):
    r = region(tmp_path, layout)
    r.attach(7, now=1701, alive=set())
    r.update(7, host_pid=4242, devices=[USE, USE])
    assert slot(r.path, layout)[2] == 1
    r.attach(9, now=1702, alive=set())
    assert slot(r.path, layout)[0] == 9
    assert number(r.path, HEAD[layout][8], "<i") == 1
    r.close()


@every_layout
def test_a_flicker_zeroes_the_watchers_numbers_and_nothing_else(tmp_path, layout):
    r = region(tmp_path, layout)
    r.attach(7, now=1701, alive=set())
    r.update(7, host_pid=4242, devices=[USE, USE])
    r.flicker()
    assert slot(r.path, layout)[3][0] == (400 * MIB, 0, 100 * MIB, 0, 500 * MIB, 0, 0)
    r.close()


def test_a_blocked_container_says_so(tmp_path):
    r = region(tmp_path, "v1.2")
    r.feedback(blocked=True, enforced=True, active=False)
    assert number(r.path, 2008904, "<i") == -1
    r.close()


def test_the_shifted_layout_looks_to_plain_offsets_as_the_real_one_does(tmp_path):
    region(tmp_path, "v1s").close()
    raw = (tmp_path / "r.cache").read_bytes()
    assert struct.unpack_from("<Q", raw, 56) == (1,)
    assert raw[64] == 0x80


def test_a_region_takes_little_room_on_disk(tmp_path):
    r = region(tmp_path, "v1.2")
    r.attach(7, now=1701, alive=set())
    assert r.path.stat().st_blocks * 512 < 64 * 1024
    r.close()
