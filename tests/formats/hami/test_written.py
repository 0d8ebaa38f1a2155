"""What a scheduler writes: read again it is the same, and it is what HAMi's own scheduler wrote, byte for byte."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.paths import TESTS
from vgpuscope.formats.hami.annotation import (
    LOCK,
    AssignedDevice,
    NodeLock,
    assigned_devices,
    assignment_annotations,
    binding_annotations,
    decode_lock,
    encode_devices,
    encode_instances,
    encode_lock,
    held_instances,
    mig_allocations,
)
from vgpuscope.formats.times import from_unix
from vgpuscope.knowledge.vendors import NVIDIA, VENDORS
from vgpuscope.model.errors import AnnotationMalformed
from vgpuscope.model.pod import MigAllocation

RECORDED = json.loads((TESTS / "fixtures/scheduler/hami_scheduler_decisions.json").read_text())
PLACED = [one["podAnnotationsAfter"] for one in RECORDED if "hami.io/vgpu-node" in (one["podAnnotationsAfter"] or {})]
BOUND = [one for one in RECORDED if one.get("nodeLockAfterBind")]
ALLOCATED = "hami.io/vgpu-devices-allocated"
MOMENT = "2026-08-21T06:20:39Z"
MIGS = "hami.io/vgpu-mig-allocations"

words = st.text(st.characters(exclude_characters=",:;[]", exclude_categories=("Z", "C")), max_size=40)
devices = st.builds(AssignedDevice, words.filter(bool), words, st.integers(0, 10**9), st.integers(0, 100))
segments = st.lists(st.lists(devices, max_size=3), max_size=4)
names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?", fullmatch=True)
seconds = st.integers(0, 4_000_000_000).map(float)
ids = st.none() | st.tuples(st.just("MIG-1f2e"), st.integers(0, 13), st.integers(0, 3))
instances = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 7), st.sampled_from(("1g.10gb", "3g.40gb")), ids),
    unique_by=lambda one: one[:2],
    max_size=4,
).map(lambda found: [instance(*one) for one in found])


def instance(container, device, profile, made):
    mig, gpu, compute = made or (None, None, None)
    return MigAllocation(
        container_index=container,
        device_index=device,
        gpu="GPU-0",
        profile=profile,
        mig=mig,
        gpu_instance=gpu,
        compute_instance=compute,
    )


@given(segments)
def test_devices_that_are_written_are_read_as_they_were(given_out):
    assert assigned_devices("key", encode_devices(given_out)) == given_out


@pytest.mark.parametrize("written", PLACED, ids=lambda one: one[ALLOCATED][:40])
def test_a_recorded_assignment_is_written_byte_for_byte(written):
    read = assigned_devices(ALLOCATED, written[ALLOCATED])
    made = assignment_annotations(NVIDIA, node=written["hami.io/vgpu-node"], segments=read, now=1794767070.9)
    recorded = {key: text for key, text in written.items() if key in made}
    assert made == {**recorded, "hami.io/vgpu-time": "1794767070"}
    assert len(recorded) == 4


def test_a_recorded_binding_is_written_byte_for_byte():
    (one,) = BOUND
    recorded = one["podAnnotationsAfterBind"]
    moment = from_unix(recorded["hami.io/bind-time"])
    assert binding_annotations("allocating", now=moment) == recorded
    lock = NodeLock(moment, one["input"]["namespace"], one["input"]["pod"])
    assert encode_lock(lock) == one["nodeLockAfterBind"]
    assert decode_lock(one["nodeLockAfterBind"]) == lock


@given(st.builds(NodeLock, seconds, names, names) | seconds.map(NodeLock))
def test_a_lock_that_is_written_is_read_as_it_was(lock):
    assert decode_lock(encode_lock(lock)) == lock


def test_a_lock_in_another_time_zone_is_the_same_moment():
    assert decode_lock("2026-08-21T06:20:39+08:00,default,p1") == decode_lock("2026-08-20T22:20:39Z,default,p1")


@pytest.mark.parametrize(
    "text", ["", "now", "2026-08-21T06:20:39", "2026-08-21T06:20:39Z,ns", "2026-08-21T06:20:39Z,,p"]
)
def test_what_is_no_lock_is_refused(text):
    with pytest.raises(AnnotationMalformed, match=LOCK):
        decode_lock(text)


@pytest.mark.parametrize("owner", [("ns", ""), ("", "p"), ("a,b", "p")])
def test_a_lock_that_would_not_be_read_again_is_not_written(owner):
    with pytest.raises(AnnotationMalformed, match=LOCK):
        encode_lock(NodeLock(0.0, *owner))


@pytest.mark.parametrize(
    "device",
    [
        AssignedDevice("", "NVIDIA", 1, 1),
        AssignedDevice("GPU,0", "NVIDIA", 1, 1),
        AssignedDevice("GPU[0-1]", "NVIDIA", 1, 1),
        AssignedDevice("GPU-0", "NVI:DIA", 1, 1),
        AssignedDevice("GPU-0", "NVIDIA", -1, 1),
        AssignedDevice("GPU-0", "NVIDIA", 10**12, 1),
        AssignedDevice("G" * 250, "NVIDIA", 1, 1),
    ],
)
def test_a_device_that_would_not_be_read_again_is_not_written(device):
    with pytest.raises(AnnotationMalformed):
        encode_devices([[device]])


def test_more_devices_than_are_read_are_not_written():
    with pytest.raises(AnnotationMalformed, match="1024"):
        encode_devices([[AssignedDevice("GPU-0", "NVIDIA", 1, 1)]] * 1025)


@pytest.mark.parametrize("vendor", [one for one in VENDORS if one.allocated], ids=lambda one: one.word)
def test_every_vendors_devices_are_written_under_its_newest_keys(vendor):
    text = f"id-0,{vendor.word},100,5:;"
    made = assignment_annotations(vendor, node="n1", segments=[[AssignedDevice("id-0", vendor.word, 100, 5)]], now=7)
    assert {key for key, value in made.items() if value == text} == {*vendor.allocated[:1], *vendor.to_allocate[:1]}
    assert all(key.startswith("hami.io/") for key in made)
    assert (made["hami.io/vgpu-node"], made["hami.io/vgpu-time"]) == ("n1", "7")


@given(instances, st.data())
def test_instances_that_are_written_are_read_as_they_were(found, data):
    places = [(data.draw(st.integers(0, 6)), data.draw(st.integers(1, 8))) for _ in found]
    notes = {MIGS: encode_instances(found, places)}
    assert list(mig_allocations(notes)) == found
    assert [(one.start, one.size) for one in held_instances(notes)] == places


def test_an_instance_is_written_as_hami_writes_it():
    written = (
        '[{"containerIndex":0,"deviceIndex":0,"gpuUUID":"GPU-0","profile":"1g.10gb","placement":{"start":6,"size":1},'
        '"migUUID":"MIG-1f2e","gpuInstanceID":13,"computeInstanceID":0}]'
    )
    assert encode_instances([instance(0, 0, "1g.10gb", ("MIG-1f2e", 13, 0))], [(6, 1)]) == written
