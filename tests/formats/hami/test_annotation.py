import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.formats.hami.annotation import mig_allocations, pod_shares
from vgpuscope.model.errors import AnnotationMalformed
from vgpuscope.model.pod import Container, HamiShare, MigAllocation
from vgpuscope.model.quantity import MIB

ALLOCATED = "hami.io/vgpu-devices-allocated"
MIGS = "hami.io/vgpu-mig-allocations"
A = "GPU-8dcd427f-483b-b48f-d7e5-75fb19a52b76"
B = "GPU-0aa6b97c-d386-26ba-a94a-b9d27c2e3a71"

worker, second = Container(name="worker", gpu_request=True), Container(name="second", gpu_request=True)
sidecar, logger = Container(name="sidecar"), Container(name="logger")
prepare = Container(name="prepare", init=True, gpu_request=True)


def shares(text: str, *containers: Container, key: str = ALLOCATED) -> list[tuple[str, str, int, int]]:
    found = pod_shares({key: text}, containers)
    return [(share.container, share.gpu, share.memory // MIB, share.cores) for share in found]


def test_a_share_has_bytes_and_percent():
    assert pod_shares({ALLOCATED: f"{A},NVIDIA,8000,30:;"}, (worker,)) == (
        HamiShare(container="worker", gpu=A, memory=8000 * MIB, cores=30),
    )


def test_a_container_may_have_several_gpus():
    text = f"{A},NVIDIA,40960,0:{B},NVIDIA,40961,5:;"
    assert shares(text, worker) == [("worker", A, 40960, 0), ("worker", B, 40961, 5)]


def test_each_container_has_its_own_segment():
    text = f"{A},NVIDIA,1000,5:;{B},NVIDIA,1500,6:;"
    assert shares(text, worker, second) == [("worker", A, 1000, 5), ("second", B, 1500, 6)]


def test_a_container_without_a_gpu_has_an_empty_segment():
    assert shares(f";{A},NVIDIA,2000,10:;", sidecar, worker) == [("worker", A, 2000, 10)]


def test_old_builds_write_an_empty_device_for_a_container_without_a_gpu():
    assert shares(f"{A},NVIDIA,1000,0:;;,,0,0:;", worker, sidecar, logger) == [("worker", A, 1000, 0)]


@pytest.mark.parametrize("containers", [(sidecar, worker), (worker, sidecar), (sidecar, worker, logger)])
def test_where_segments_were_left_out_they_belong_to_who_asked(containers):
    assert shares(f"{A},NVIDIA,1000,0:;", *containers) == [("worker", A, 1000, 0)]


def test_left_out_segments_keep_the_order_of_those_who_asked():
    text = f"{A},NVIDIA,1,0:;{B},NVIDIA,2,0:;"
    assert shares(text, sidecar, worker, logger, second) == [("worker", A, 1, 0), ("second", B, 2, 0)]


def test_init_containers_come_first_wherever_they_are_listed():
    text = f"{A},NVIDIA,1,0:;{B},NVIDIA,2,0:;"
    assert shares(text, worker, prepare) == [("prepare", A, 1, 0), ("worker", B, 2, 0)]


def test_the_key_of_the_first_releases_is_understood():
    assert shares(f"{A},NVIDIA,1000,5:;", worker, key="4pd.io/vgpu-ids-new") == [("worker", A, 1000, 5)]


def test_the_last_semicolon_may_be_missing():
    assert shares(f"{A},NVIDIA,1000,5:", worker) == [("worker", A, 1000, 5)]


def test_the_newer_key_wins():
    annotations = {ALLOCATED: f"{A},NVIDIA,1,0:;", "4pd.io/vgpu-ids-new": f"{B},NVIDIA,2,0:;"}
    assert [share.gpu for share in pod_shares(annotations, (worker,))] == [A]


def test_old_mig_slots_name_their_gpu():
    assert shares(f"{A}[1-0],NVIDIA,10240,14:;", worker) == [("worker", A, 10240, 14)]


def test_several_instances_of_one_gpu_are_one_share_of_it():
    assert shares(f"{A}[2-1],NVIDIA,20096,42:{A}[2-0],NVIDIA,20096,42:;", worker) == [("worker", A, 40192, 84)]


@pytest.mark.parametrize("text", ["", ";", ";;", " "])
def test_nothing_given_is_no_share(text):
    assert shares(text, worker) == []


def test_a_pod_that_hami_did_not_place_has_no_share():
    assert pod_shares({"other": "x"}, (worker,)) == ()


@pytest.mark.parametrize(
    "text",
    [
        f"{A},NVIDIA,1000:;",
        "nonsense",
        f"{A},NVIDIA,-1,0:;",
        f"{A},NVIDIA,1e3,0:;",
        f"{A},NVIDIA,1,٣:;",
        f"{A},NVIDIA,{'9' * 20},0:;",
        f"{A},NVIDIA,,:;",
    ],
)
def test_what_no_release_writes_is_refused(text):
    with pytest.raises(AnnotationMalformed, match=ALLOCATED):
        shares(text, worker)


def test_more_segments_than_containers_are_refused():
    with pytest.raises(AnnotationMalformed, match="2 containers with devices"):
        shares(f"{A},NVIDIA,1,0:;{B},NVIDIA,2,0:;", worker)


CHOSEN = {
    "containerIndex": 1,
    "deviceIndex": 0,
    "gpuUUID": A,
    "profile": "1g.10gb",
    "placement": {"start": 6, "size": 1},
}
MADE = CHOSEN | {"migUUID": "MIG-1f2e3d4c-0000-1111-2222-333344445555", "gpuInstanceID": 13, "computeInstanceID": 0}


def migs(*entries: dict[str, object]) -> tuple[MigAllocation, ...]:
    return mig_allocations({MIGS: json.dumps(entries)})


def test_a_chosen_instance_has_no_name_yet():
    assert migs(CHOSEN) == (MigAllocation(container_index=1, device_index=0, gpu=A, profile="1g.10gb"),)


def test_a_made_instance_has_its_uuid_and_ids():
    (one,) = migs(MADE)
    assert (one.mig, one.gpu_instance, one.compute_instance) == (MADE["migUUID"], 13, 0)


def test_one_container_may_have_several_instances():
    assert [one.device_index for one in migs(CHOSEN, MADE | {"deviceIndex": 1})] == [0, 1]


def test_keys_of_later_releases_do_no_harm():
    assert len(migs(CHOSEN | {"later": {"x": [1]}})) == 1


@pytest.mark.parametrize("annotations", [{}, {MIGS: ""}, {MIGS: "[]"}])
def test_no_instances_are_no_fault(annotations):
    assert mig_allocations(annotations) == ()


@pytest.mark.parametrize(
    "entries",
    [
        (CHOSEN, MADE),
        (CHOSEN | {"migUUID": "MIG-1"},),
        (CHOSEN | {"gpuInstanceID": 0},),
        (CHOSEN | {"placement": {"start": 0, "size": 0}},),
        (CHOSEN | {"placement": {"start": 0, "size": 10**12}},),
        (CHOSEN | {"placement": {"start": 10**12, "size": 1}},),
        (CHOSEN | {"containerIndex": -1},),
        (CHOSEN | {"containerIndex": 10**12},),
        (CHOSEN | {"deviceIndex": "0"},),
        ({key: value for key, value in CHOSEN.items() if key != "gpuUUID"},),
    ],
    ids=[
        "twice",
        "half named",
        "id without uuid",
        "no size",
        "huge size",
        "huge start",
        "negative",
        "huge index",
        "text for number",
        "no card",
    ],
)
def test_instances_that_cannot_be_are_refused(entries):
    with pytest.raises(AnnotationMalformed, match=MIGS):
        migs(*entries)


@pytest.mark.parametrize("text", ["{", "{}", "7", "\ud800", '[{"x":' + "[" * 100_000])
def test_what_is_not_a_list_of_instances_is_refused(text):
    with pytest.raises(AnnotationMalformed, match=MIGS):
        mig_allocations({MIGS: text})


PIECES = st.sampled_from((A, B, ",", ":", ";", "NVIDIA", "1000", "0", "[1-0]", "-", " ", ",,0,0:", f"{A},NVIDIA,1,2:"))


@given(st.text() | st.lists(PIECES, max_size=20).map("".join))
def test_any_text_is_read_or_refused(text):
    for containers in ((), (worker,), (sidecar, worker), (prepare, sidecar, second)):
        try:
            found = pod_shares({ALLOCATED: text}, containers)
        except AnnotationMalformed:
            continue
        assert {share.container for share in found} <= {container.name for container in containers}
        assert len({(share.container, share.gpu) for share in found}) == len(found)


VALUES = st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.just({"start": 0, "size": 1})


@given(st.text() | st.lists(st.dictionaries(st.sampled_from(sorted(MADE)), VALUES), max_size=3).map(json.dumps))
def test_any_list_of_instances_is_read_or_refused(text):
    try:
        assert isinstance(mig_allocations({MIGS: text}), tuple)
    except AnnotationMalformed as error:
        assert error.code == "ANNOTATION_MALFORMED"  # noqa: PT017 either outcome is right
