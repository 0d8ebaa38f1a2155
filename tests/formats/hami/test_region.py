import gzip
import json
import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formats.hami.wholefile import decode_file
from tests.paths import TESTS
from vgpuscope.formats.hami.region import LastDecoded, decode, identify
from vgpuscope.model.errors import RegionRefused
from vgpuscope.model.region import Region

FIXTURES = TESTS / "fixtures" / "regions"
ALL = {path.stem: json.loads(path.read_text()) for path in sorted(FIXTURES.glob("*.json"))}
ACCEPTED = [name for name, said in ALL.items() if "error" not in said["strict"]]
REFUSED = [name for name, said in ALL.items() if "error" in said["strict"]]
UUID = b"GPU-8dcd427f-483b-b48f-d7e5-75fb19a52b76"


def recorded(name: str) -> bytes:
    return gzip.decompress((FIXTURES / f"{name}.cache.gz").read_bytes())


def edited(name: str, *changes: tuple[int, str, object]) -> bytes:
    data = bytearray(recorded(name))
    for offset, code, value in changes:
        struct.pack_into("<" + code, data, offset, value)
    return bytes(data)


def refusal_of(data: bytes) -> str:
    with pytest.raises(RegionRefused) as refused:
        decode_file(data)
    return refused.value.reason


def test_the_recorded_files_are_all_here():
    assert len(ACCEPTED) == 17
    assert {ALL[name]["strict"]["error"] for name in REFUSED} == {
        "too_small",
        "bad_magic",
        "unknown_major",
        "unknown_size_or_version",
    }


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_no_release_writes_is_refused_by_its_reason(name):
    assert refusal_of(recorded(name)) == ALL[name]["strict"]["error"]


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_recorded_region_reads_as_its_writer_meant_it(name):
    region, said = decode_file(recorded(name)), ALL[name]["strict"]
    assert {
        "layout": region.layout,
        "version": list(region.version) if region.version else None,
        "device_num_raw": region.device_count,
        "device_num": len(region.devices),
        "proc_num_raw": region.process_count,
        "active_slots_scanned": len(region.slots),
        "utilization_switch": region.utilization_switch,
        "recent_kernel": region.recent_kernel,
        "priority": region.priority,
        "last_kernel_time": region.last_kernel,
    } == {key: said.get(key) for key in said.keys() - {"devices", "nonempty_slots"} | {"version"}}
    assert (region.writing, region.corrupt) == (False, 0)


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_recorded_device_has_its_identity_limits_and_sums(name):
    region, said = decode_file(recorded(name)), ALL[name]["strict"]
    assert [device_facts(region, index) for index in range(len(region.devices))] == [
        {
            "index": device["index"],
            "uuid": device["uuid_label"] if device["uuid_valid"] and device["uuid_utf8"] else None,
            **{key: device[key] for key in ("limit", "sm_limit", "sm_util", "monitor_used")},
            **{key: device[key] for key in ("used_total", "used_context", "used_module", "used_data", "used_offset")},
        }
        for device in said["devices"]
    ]


def device_facts(region: Region, index: int) -> dict[str, object]:
    device = region.devices[index]
    live = [slot.devices[index] for slot in region.live_slots()]
    return {
        "index": device.index,
        "uuid": device.uuid,
        "limit": device.memory_limit,
        "sm_limit": round(device.sm_limit * 100, 9),
        "used_total": sum(record.total for record in live),
        "used_context": sum(record.context for record in live),
        "used_module": sum(record.module for record in live),
        "used_data": sum(record.buffer for record in live),
        "used_offset": sum(record.offset for record in live),
        "sm_util": round(sum(record.sm for record in live) * 100, 9),
        "monitor_used": sum(record.driver_used for record in live),
    }


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_recorded_slot_has_its_pids_status_and_numbers(name):
    region, said = decode_file(recorded(name)), ALL[name]["strict"]
    found = {}
    for index, slot in enumerate(region.slots):
        devices = {
            str(d): {
                "context": record.context,
                "module": record.module,
                "data": record.buffer,
                "offset": record.offset,
                "total": record.total,
                "monitorused": record.driver_used,
                "sm_util": round(record.sm * 100, 9),
            }
            for d, record in enumerate(slot.devices)
            if any((record.total, record.driver_used, record.sm, record.context, record.buffer))
        }
        if slot.pid or slot.host_pid or slot.status or devices:
            found[index] = (slot.pid, slot.host_pid, slot.status, devices)
    assert found == {
        slot["index"]: (slot["pid"], slot["hostpid"], slot["status"], without_codecs(slot["devices"]))
        for slot in said["nonempty_slots"]
    }


def without_codecs(devices: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    return {
        index: {key: value for key, value in record.items() if key not in {"dec_util", "enc_util"}}
        for index, record in devices.items()
    }


def test_the_byte_behind_the_region_may_be_missing():
    data = recorded("real_v12_single")
    assert decode_file(data[:-1]) == decode_file(data)


def test_a_size_one_byte_off_either_side_is_refused():
    data = recorded("real_v12_single")
    assert refusal_of(data[:-2]) == refusal_of(data + b"\0") == "unknown_size_or_version"


def test_a_v1_file_cut_into_the_sizes_between_is_not_taken_for_v0():
    assert refusal_of(recorded("real_v12_single")[:1500000]) == "unknown_size_or_version"


# The shifted layout of v2.8.1, written here from its published offsets and not through the decoder's table.
def shifted_region(*, seqlock: int = 4, minor: int = 1) -> bytes:
    data = bytearray(2008985)
    struct.pack_into("<iII", data, 0, 19920718, 1, minor)
    data[56:88] = b"\x80" * 32  # the second semaphore: where v1 has device count and uuid
    struct.pack_into("<Q", data, 88, 2)
    data[96 : 96 + len(UUID)] = UUID
    data[96 + 96 : 96 + 96 + 4] = b"MIG-"
    struct.pack_into("<2Q", data, 1632, 4 << 30, 0)
    struct.pack_into("<2Q", data, 1760, 30, 100)
    second_slot = 1888 + 1960
    struct.pack_into("<iiQ", data, second_slot, 42, 77042, seqlock)
    struct.pack_into("<5Q", data, second_slot + 16 + 64, 1, 2, 3, 4, 10)
    struct.pack_into("<Q", data, second_slot + 1040 + 8, 99)
    struct.pack_into("<3Q", data, second_slot + 1168 + 48, 7, 8, 55)
    struct.pack_into("<i", data, second_slot + 1936, 2)
    struct.pack_into("<4iQ", data, 2008928, 2, 1, -1, 0, 1767225600)
    return bytes(data)


def test_the_shifted_layout_of_v2_8_1_is_read_with_its_own_offsets():
    region = decode_file(shifted_region())
    assert (region.layout, region.version, region.writing) == ("v1s", (1, 1), False)
    assert [(d.uuid, d.memory_limit, d.sm_limit) for d in region.devices] == [
        (UUID.decode(), 4 << 30, 0.3),
        ("MIG-", 0, 1.0),
    ]
    assert (region.utilization_switch, region.recent_kernel, region.priority) == (1, -1, 0)
    assert region.last_kernel == 1767225600
    first, second = region.slots
    assert (first.status, second.pid, second.host_pid, second.status) == (0, 42, 77042, 2)
    record = second.devices[1]
    assert (record.context, record.module, record.buffer, record.offset, record.total) == (1, 2, 3, 4, 10)
    assert (record.driver_used, record.sm) == (99, 0.55)
    assert second.devices[0].total == 0


def test_only_version_1_1_has_the_shifted_layout():
    assert refusal_of(shifted_region(minor=2)) == "unknown_size_or_version"


def test_an_odd_seqlock_in_a_living_slot_says_that_the_region_is_being_written():
    assert decode_file(edited("real_v12_single", (1856 + 1936, "Q", 7))).writing
    assert decode_file(shifted_region(seqlock=5)).writing


def test_an_odd_seqlock_of_an_exited_process_says_nothing():
    assert not decode_file(edited("real_v12_all_exited", (1856 + 1936, "Q", 7))).writing


def test_version_1_1_has_no_seqlock():
    assert not decode_file(edited("real_v11_single", (1856 + 1936, "Q", 7))).writing


def test_slots_beyond_the_process_count_need_not_be_read():
    data = recorded("real_v12_procs_dead")
    layout = identify(len(data), data[:12])
    offset, length = layout.tail
    tail = data[offset : offset + length]
    head = data[: layout.head_length(layout.process_count(tail))]
    assert len(head) == 1856 + 4 * 1960
    assert decode(layout, head, tail) == decode_file(data)


def test_a_file_that_shrinks_while_it_is_read_is_refused():
    data = recorded("real_v12_single")
    layout = identify(len(data), data[:12])
    offset, length = layout.tail
    for head, tail in ((data[:3000], data[offset : offset + length]), (data, data[offset : offset + length - 1])):
        with pytest.raises(RegionRefused, match="too_small"):
            decode(layout, head, tail)
    assert layout.process_count(b"") == 0


def test_a_negative_process_count_means_no_slots():
    region = decode_file(edited("own_v12_single", (2008896, "i", -5)))
    assert (region.process_count, region.slots) == (-5, ())


def test_a_uuid_that_is_not_text_hides_that_device_only():
    region = decode_file(edited("real_v12_multi_gpu", (64 + 96, "B", 0xFF)))
    assert [device.uuid is None for device in region.devices] == [False, True, False]


def test_a_uuid_ends_at_its_first_nul_and_after_40_bytes():
    assert decode_file(edited("real_v12_single", (64 + 3, "B", 0))).devices[0].uuid == "GPU"
    assert decode_file(edited("real_v12_single", (64, "96s", b"x" * 96))).devices[0].uuid == "x" * 40


def test_a_counter_below_zero_is_given_as_zero_and_counted():
    region = decode_file(edited("own_v12_single", (1856 + 8 + 32, "Q", 2**64 - 4096)))
    record = region.slots[0].devices[0]
    assert (region.corrupt, record.total, record.buffer, record.context) == (1, 0, 0, 0)
    assert (record.driver_used, record.sm) == (1992294400, 0.27)


def test_a_limit_no_gpu_has_is_no_limit_and_counted():
    region = decode_file(edited("own_v12_single", (1600, "Q", 2**64 - 1)))
    assert (region.corrupt, region.devices[0].memory_limit) == (1, 0)


def test_garbage_that_the_driver_gave_for_sm_is_given_as_zero_and_counted():
    region = decode_file(edited("own_v12_single", (1856 + 1160 + 16, "Q", 4294967280)))
    assert (region.corrupt, region.slots[0].devices[0].sm) == (1, 0)


def test_memory_the_driver_does_not_know_is_unknown_and_not_corrupt():
    region = decode_file(edited("own_v12_single", (1856 + 1032, "Q", 2**64 - 1)))
    assert (region.corrupt, region.slots[0].devices[0].driver_used) == (0, 0)


def test_an_sm_limit_above_a_whole_gpu_is_no_limit():
    assert decode_file(edited("own_v12_single", (1728, "Q", 250))).devices[0].sm_limit == 1.0


def test_a_time_before_1970_is_not_recorded():
    assert decode_file(edited("own_v12_single", (2008912, "q", -1))).last_kernel == 0


BEGINNINGS = st.sampled_from((b"", recorded("real_v12_single")[:4], recorded("real_v12_single")[:12]))
SIZES = st.sampled_from((0, 1197896, 1197897, 2008952, 2008953, 2008984, 2008985))


@settings(deadline=None)  # a file is two million bytes
@given(BEGINNINGS, st.binary(max_size=4096), SIZES, st.sampled_from((b"\0", b"\xa5")))
def test_any_bytes_are_decoded_or_refused(beginning, noise, size, filling):
    attempt((beginning + noise).ljust(size, filling))


SEEDS = [recorded(name) for name in ("real_v0_single", "real_v11_single", "real_v12_multi_gpu")] + [shifted_region()]
CHANGES = st.lists(st.tuples(st.integers(0, 2 << 20), st.binary(min_size=1, max_size=64)), max_size=8)


@settings(deadline=None)  # a file is two million bytes
@given(st.sampled_from(SEEDS), CHANGES, st.none() | st.integers(0, 2 << 20), st.integers(-(2**31), 2**31 - 1))
def test_a_damaged_region_is_decoded_or_refused(seed, changes, cut, process_count):
    data = bytearray(seed)
    layout = identify(len(seed), seed)
    struct.pack_into("<i", data, layout.tail[0], process_count % 12 if process_count > 0 else process_count)
    for offset, piece in changes:
        at = offset % layout.head_length(12)
        data[at : at + len(piece)] = piece
    attempt(bytes(data[:cut]))


IN_THE_HEAD = (8, 56, 64, 70, 1600, 1608, 1728)  # minor version, device count, uuids, limits
IN_THE_TAIL = (2008900, 2008904, 2008908, 2008912)  # switch, recent kernel, priority, last kernel
IN_A_SLOT = (0, 4, 8, 16, 40, 104, 1032, 1040, 1176, 1224, 1928, 1936)  # pids, memory, SM, status, seqlock
OFFSETS = (*IN_THE_HEAD, *IN_THE_TAIL, *(1856 + 1960 * slot + at for slot in range(4) for at in IN_A_SLOT))


def looked_at(data: bytes, known: LastDecoded) -> Region:
    layout = identify(len(data), data[:12])
    begin, length = layout.tail
    return decode(layout, data, data[begin : begin + length], known)


@pytest.mark.parametrize("offset", OFFSETS)
def test_a_single_number_that_changes_is_seen_at_the_next_look(offset):
    before = bytearray(recorded("real_v12_multi_gpu"))
    struct.pack_into("<i", before, 2008896, 4)  # processes
    after = bytearray(before)
    after[offset] ^= 1
    known = LastDecoded()
    for data in (bytes(before), bytes(after), bytes(before)):
        assert looked_at(data, known) == decode_file(data)


@settings(deadline=None)  # a file is two million bytes
@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.lists(st.tuples(st.sampled_from(OFFSETS), st.integers(0, 3)), max_size=6)),
        min_size=2,
        max_size=6,
    )
)
def test_a_region_reads_the_same_whatever_was_read_before_it(looks):
    data, known = bytearray(recorded("real_v12_multi_gpu")), LastDecoded()
    for processes, changes in looks:
        struct.pack_into("<i", data, 2008896, processes)
        for offset, byte in changes:
            data[offset] = byte
        assert looked_at(bytes(data), known) == decode_file(bytes(data))


@settings(deadline=None)  # a file is two million bytes
@given(st.binary(min_size=12, max_size=64), st.binary(max_size=5000), st.binary(max_size=30))
def test_any_pieces_of_a_file_are_decoded_or_refused(start, head, tail):
    for seed in SEEDS:
        with suppress(RegionRefused):
            decode(identify(len(seed), seed[:12]), start + head, tail)


def attempt(data: bytes) -> None:
    with suppress(RegionRefused):
        region = decode_file(data)
        assert len(region.devices) <= 16
        assert len(region.slots) <= 1024
        assert all(len(slot.devices) == len(region.devices) for slot in region.slots)
        assert all(0 <= record.total < 2**63 for slot in region.slots for record in slot.devices)
