"""What a device plugin writes: as HAMi's own, byte for byte, and our reader understands it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.hami.test_register import JSON_MIG, JSON_ONE, JSON_TWO, NVIDIA
from tests.paths import TESTS
from vgpuscope.formats.hami.annotation import AssignedDevice, assigned_devices, encode_devices, next_segment
from vgpuscope.formats.hami.handshake import reported
from vgpuscope.formats.hami.register import encode_registration, registered_devices
from vgpuscope.formats.kube.faults import decode_faults, encode_faults
from vgpuscope.model.errors import AnnotationMalformed
from vgpuscope.model.plugin import GpuFault, GpuRegistration, PluginMigProfile

NODES = json.loads((TESTS / "fixtures/scheduler/hami_scheduler_inputs.json").read_text())["nodes"]
RECORDED = [text for node in NODES if (text := node["annotations"].get(NVIDIA))]
KEY = "hami.io/vgpu-devices-to-allocate"


def as_json_says(text):
    """The registrations of a JSON array, read by the standard library and not by our decoder."""
    return [
        GpuRegistration(
            id=one["id"],
            index=one.get("index", 0),
            slots=one.get("count", 0),
            memory=one.get("devmem", 0),
            cores=one.get("devcore", 0),
            type=one.get("type", ""),
            numa=one.get("numa", 0),
            mode=one["mode"],
            healthy=one.get("health", False),
            profiles=tuple(
                PluginMigProfile(
                    name=profile["name"],
                    memory=profile["memoryMB"],
                    cores=profile["core"],
                    slices=profile["sliceCount"],
                    placements=tuple((place["start"], place["size"]) for place in profile["placements"]),
                )
                for profile in one.get("migProfiles", ())
            ),
        )
        for one in json.loads(text)
    ]


def test_there_are_recorded_registrations_of_several_kinds():
    assert len(RECORDED) >= 7
    assert any("migProfiles" in text for text in RECORDED)


@pytest.mark.parametrize("text", [*RECORDED, JSON_ONE, JSON_TWO, JSON_MIG])
def test_a_registration_is_written_as_hami_wrote_it(text):
    assert encode_registration(as_json_says(text)) == text


registrations = st.builds(
    GpuRegistration,
    id=st.uuids().map("GPU-{}".format),
    index=st.integers(0, 16),
    slots=st.integers(1, 100),
    memory=st.integers(1, 10**6),
    cores=st.integers(1, 1000),
    type=st.sampled_from(["NVIDIA A100-SXM4-80GB", "NVIDIA-Tesla T4"]),
    numa=st.integers(0, 7),
    mode=st.just("hami-core"),
    healthy=st.booleans(),
)


@given(st.lists(registrations, max_size=8, unique_by=lambda one: one.id))
def test_what_is_written_reads_back_the_same(gpus):
    devices, reasons = registered_devices({NVIDIA: encode_registration(gpus)}, {}, "n1")
    assert reasons == ()
    assert [
        (one.id, one.index, one.slots, one.memory >> 20, one.cores, one.type, one.numa, one.mode, one.healthy)
        for one in devices
    ] == [
        (one.id, one.index, one.slots, one.memory, one.cores, one.type, one.numa, one.mode, one.healthy) for one in gpus
    ]


def test_the_handshake_has_the_form_that_old_schedulers_read():
    assert reported(1705984204.434037) == "Reported 2024-01-23 04:30:04.434037 +0000 UTC"


devices = st.builds(
    AssignedDevice, st.sampled_from(["GPU-a", "GPU-b"]), st.just("NVIDIA"), st.integers(0, 10**6), st.integers(0, 100)
)
segments = st.lists(st.lists(devices, max_size=3), max_size=6)


@given(segments)
def test_serving_takes_one_container_after_the_other_and_nothing_else(assigned):
    text, served = encode_devices(assigned), []
    while (found := next_segment(KEY, text)) is not None:
        left = assigned_devices(KEY, found.rest)
        assert len(left) == len(assigned)
        served.append((found.position, found.devices))
        assert found.last == (not any(left))
        text = found.rest
    assert served == [(number, devices) for number, devices in enumerate(assigned) if devices]
    assert text == ";" * len(assigned)


@pytest.mark.parametrize("text", ["GPU-a,NVIDIA,1:;", "x;", "GPU-a,NVIDIA,-1,0:;", ";" * 2000])
def test_what_no_scheduler_writes_is_malformed(text):
    with pytest.raises(AnnotationMalformed):
        next_segment(KEY, text)


def test_a_segment_of_old_builds_for_a_container_without_gpus_is_empty():
    found = next_segment(KEY, ",,0,0:;GPU-a,NVIDIA,1,0:;")
    assert found is not None
    assert (found.position, found.last, found.rest) == (1, True, ",,0,0:;;")


faults = st.builds(
    GpuFault, gpu=st.uuids().map("GPU-{}".format), xid=st.integers(1, 200), since=st.integers(0, 4 * 10**9).map(float)
)


@given(st.lists(faults, max_size=5))
def test_faults_read_back_the_same(found):
    assert decode_faults(encode_faults(found)) == tuple(found)


def test_without_faults_there_is_no_annotation():
    assert encode_faults(()) is None
    assert decode_faults(None) == decode_faults(" ") == ()


@pytest.mark.parametrize("text", ["{", "[1]", '[{"gpu":"","xid":1,"since":"2026-11-15T08:00:00Z"}]', '[{"gpu":"a"}]'])
def test_a_typing_error_in_the_faults_is_malformed(text):
    with pytest.raises(AnnotationMalformed, match=r"vgpuscope\.io/gpu-faults"):
        decode_faults(text)


def test_a_fault_without_a_time_is_malformed():
    with pytest.raises(AnnotationMalformed, match="time"):
        decode_faults('[{"gpu":"a","xid":1,"since":"yesterday"}]')
