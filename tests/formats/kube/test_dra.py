import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.paths import TESTS
from vgpuscope.formats.kube.dra import (
    decode_claim,
    decode_claim_event,
    decode_claims,
    decode_slice_event,
    decode_slices,
)
from vgpuscope.knowledge.dra_drivers import is_gpu_driver
from vgpuscope.model.dra import ClaimedDevice, ClaimState, DraDevice, SliceState
from vgpuscope.model.errors import KubeUnreadable
from vgpuscope.model.quantity import MIB

FIXTURES = TESTS / "fixtures/dra"
GPU = "GPU-3f1c5a02-7c1e-4b6a-9d54-0d1f6a2b7c10"
TRAIN, SERVE = "d99dc6df-092c-4f3a-ac55-cfb88c017af7", "173a6d7f-665b-4b2d-961c-f550d70f7484"


def recorded(name):
    return json.loads((FIXTURES / name).read_text())["items"]


def listed(*items, kind="ResourceSlice"):
    return json.dumps({"kind": f"{kind}List", "metadata": {"resourceVersion": "7"}, "items": items}).encode()


def slices(*items):
    page = decode_slices(listed(*items))
    assert page.faults == ()
    return page.items


def devices(name):
    return [device for one in slices(*recorded(name)) for device in one.devices]


def slice_of(*found, driver="gpu.example.com", **spec):
    pool = {"name": "n1", "generation": 3, "resourceSliceCount": 1}
    return {
        "metadata": {"name": "s"},
        "spec": {"driver": driver, "nodeName": "n1", "pool": pool, "devices": found, **spec},
    }


def one_device(found, **more):
    ((device,),) = [one.devices for one in slices(slice_of({"name": "gpu-0", **found}, **more))]
    return device


def claims(*items):
    page = decode_claims(listed(*items, kind="ResourceClaim"))
    assert page.faults == ()
    return page.items


def allocated(*results, uid="u", **status):
    made = {"allocation": {"devices": {"results": results}}, **status}
    return {"metadata": {"name": "c", "namespace": "ml", "uid": uid}, "status": made}


# --- slices -----------------------------------------------------------------------------------------------------------


def test_a_slice_of_whole_gpus_is_read_whole():
    (found,) = slices(*recorded("nvidia_gpus.json"))
    assert (found.name, found.driver, found.pool, found.generation) == (
        "n1-gpu.nvidia.com-x7k2p",
        "gpu.nvidia.com",
        "n1",
        1,
    )
    assert found.devices[0] == DraDevice(
        name="gpu-0", gpu=GPU, node="n1", uuid=GPU, type="NVIDIA A100-SXM4-80GB", memory=81920 * MIB
    )
    assert (found.devices[1].index, found.devices[1].healthy) == (1, False)


def test_the_older_api_version_says_the_same():
    (new,), (old,) = slices(*recorded("nvidia_gpus.json")), slices(*recorded("v1beta1.json"))
    assert old == SliceState(
        name=new.name, driver=new.driver, pool=new.pool, generation=new.generation, devices=new.devices[:1]
    )


def test_a_gpu_that_was_cut_for_good_is_told_by_its_parts():
    found = devices("nvidia_static_mig.json")
    assert {(one.gpu, one.parent, one.part) for one in found} == {(GPU, GPU, True)}
    assert [(one.profile, one.start, one.size, one.memory // MIB) for one in found] == [
        ("3g.40gb", 0, 4, 40192),
        ("1g.10gb", 4, 1, 9728),
        ("1g.10gb", 5, 1, 9728),
    ]
    assert all(one.uuid.startswith("MIG-") for one in found)


def test_a_gpu_and_what_it_could_be_cut_into_draw_from_the_same_counters():
    counters, made = slices(*recorded("nvidia_dynamic_mig.json"))
    assert (counters.devices, {one.gpu for one in made.devices}) == ((), {"gpu-0-counter-set"})
    assert [one.name for one in made.devices if not one.part] == ["gpu-0"]
    part = next(one for one in made.devices if one.name == "gpu-0-mig-3g40gb-9-4")
    assert (part.start, part.size, part.processors, part.uuid, part.parent) == (4, 4, 42, "", GPU)


def test_a_gpu_that_claims_share_says_how_small_a_share_may_be():
    (found,) = devices("hami_core.json")
    assert (found.slots, found.cores, found.memory, found.part) == (100, 100, 81920 * MIB, False)


def test_partitions_without_uuids_share_an_address():
    found = devices("amd.json")
    assert [(one.gpu, one.part, one.processors) for one in found] == [
        ("0000:05:00.0", False, 304),
        ("0000:26:00.0", True, 152),
        ("0000:26:00.0", True, 152),
    ]
    assert {(one.numa, one.uuid, one.type) for one in found} == {(1, "", "AMD_Instinct_MI300X_OAM")}


def test_names_may_carry_the_drivers_domain():
    device = one_device(
        {
            "attributes": {"gpu.example.com/uuid": {"string": "GPU-7"}, "gpu.example.com/index": {"int": 7}},
            "capacity": {"gpu.example.com/memory": {"value": "80Gi"}},
        }
    )
    assert (device.uuid, device.index, device.memory) == ("GPU-7", 7, 80 * 1024 * MIB)


@pytest.mark.parametrize(
    ("taints", "state"),
    [
        ([], (True, False)),
        ([{"key": "gpu.nvidia.com/xid", "effect": "NoSchedule"}], (False, False)),
        ([{"key": "example.com/unhealthy", "effect": "NoExecute"}], (False, False)),
        ([{"key": "example.com/maintenance", "effect": "NoExecute"}], (True, True)),
        ([{"key": "gpu.nvidia.com/xid", "effect": "None"}], (True, False)),
        ([{"key": "example.com/maintenance", "effect": "SomethingNew"}], (True, False)),
        ([{"key": "a", "effect": "NoSchedule"}, {"key": "health", "effect": "NoSchedule"}], (False, False)),
    ],
)
def test_a_taint_that_keeps_claims_away_is_illness_or_a_cordon_by_its_key(taints, state):
    device = one_device({"taints": taints})
    assert (device.healthy, device.cordoned) == state


@pytest.mark.parametrize(
    ("capacity", "slots"),
    [
        ({}, 100),
        ({"memory": {"value": "80Gi"}}, 100),
        ({"shares": {"value": "4", "requestPolicy": {"default": "1", "validRange": {"min": "1"}}}}, 4),
        ({"memory": {"value": "80Gi", "requestPolicy": {"default": "0", "validRange": {"min": "0"}}}}, 100),
        ({"memory": {"value": "80Gi", "requestPolicy": {"default": "1Mi", "validRange": {"min": "1Mi"}}}}, 100),
        ({"memory": {"value": "80Gi", "requestPolicy": {"validValues": ["40Gi", "20Gi"], "default": "40Gi"}}}, 4),
        ({"partitions": {"value": "8", "requestPolicy": {"default": "1"}}}, 8),
    ],
)
def test_a_shared_gpu_has_room_for_as_many_claims_as_may_be_small(capacity, slots):
    assert one_device({"allowMultipleAllocations": True, "capacity": capacity}).slots == slots


def test_a_gpu_that_is_not_shared_has_room_for_one_claim():
    policy = {"validRange": {"min": "1Gi"}, "default": "1Gi"}
    assert one_device({"capacity": {"memory": {"value": "80Gi", "requestPolicy": policy}}}).slots == 1


def test_devices_may_name_their_nodes_one_by_one():
    spec = {"nodeName": None, "perDeviceNodeSelection": True}
    (found,) = slices(slice_of({"name": "gpu-0", "nodeName": "n2"}, {"name": "gpu-1", "allNodes": True}, **spec))
    assert [one.node for one in found.devices] == ["n2", ""]


@pytest.mark.parametrize(
    ("driver", "known"),
    [
        ("gpu.nvidia.com", True),
        ("hami-core-gpu.project-hami.io", True),
        ("gpu.intel.com", True),
        ("npu.huawei.com", True),
        ("compute-domain.nvidia.com", False),
        ("dra.net", False),
        ("dra.cpu", False),
    ],
)
def test_drivers_of_gpus_are_known_by_their_names(driver, known):
    assert is_gpu_driver(driver) is known
    assert bool(slices(slice_of({"name": "device-0"}, driver=driver))) is known


def test_a_gpu_of_another_driver_is_known_by_its_uuid():
    other = {"name": "nic-0", "attributes": {"uuid": {"string": "2b4c"}}}
    one_gpu = {"name": "card-0", "attributes": {"uuid": {"string": GPU}}}
    (found,) = slices(slice_of(other, one_gpu, driver="cards.example.com"))
    assert [one.name for one in found.devices] == ["card-0"]


@pytest.mark.parametrize("value", ["lots", "-1", "0.5", None, [], "9" * 60])
def test_a_capacity_that_is_no_amount_is_named_and_costs_only_itself(value):
    found = {"name": "gpu-0", "attributes": {"uuid": {"string": GPU}}, "capacity": {"memory": {"value": value}}}
    page = decode_slices(listed(slice_of(found)))
    assert (page.items[0].devices[0].uuid, page.items[0].devices[0].memory) == (GPU, 0)
    assert [(fault.uid, fault.object) for fault in page.faults] == [("s", "ResourceSlice/s")]


def test_a_slice_that_cannot_be_read_is_named_and_costs_only_itself():
    broken = slice_of({"name": "gpu-0", "attributes": []})
    fine = slice_of({"name": "gpu-0"}) | {"metadata": {"name": "t"}}
    page = decode_slices(listed(broken, fine))
    assert ([one.name for one in page.items], [fault.uid for fault in page.faults]) == (["t"], ["s"])


def test_a_text_that_no_label_could_carry_is_not_taken():
    assert one_device({"attributes": {"productName": {"string": "x" * 1_000_000}}}).type == ""


def test_an_event_about_a_slice_is_known_by_its_name():
    line = {"type": "MODIFIED", "object": slice_of({"name": "gpu-0"})}
    event = decode_slice_event(json.dumps(line).encode())
    assert (event.uid, event.item.generation) == ("s", 3)
    line = {"type": "DELETED", "object": slice_of()}
    assert decode_slice_event(json.dumps(line).encode()).uid == "s"


# --- claims -----------------------------------------------------------------------------------------------------------


def test_claims_are_read_whole():
    made = [one | {"metadata": one["metadata"] | {"uid": one["metadata"]["name"]}} for one in recorded("claims.json")]
    whole, share = claims(*made)
    assert whole == ClaimState(
        uid="whole",
        namespace="ml",
        name="whole",
        node="n1",
        devices=(ClaimedDevice(driver="gpu.nvidia.com", pool="n1", device="gpu-0", request="gpu"),),
        pods=(SERVE, TRAIN),
    )
    assert (share.devices[0].memory, share.devices[0].cores, share.pods) == (10 * 1024 * MIB, 50, (TRAIN,))


def test_who_looks_as_an_administrator_holds_nothing():
    look = {"driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-0", "adminAccess": True}
    assert claims(allocated(look)) == ()
    (both,) = claims(allocated(look, look | {"adminAccess": False, "device": "gpu-1"}))
    assert [one.device for one in both.devices] == ["gpu-1"]


def test_only_pods_count_among_those_a_claim_is_reserved_for():
    others = [
        {"resource": "pods", "uid": "p"},
        {"apiGroup": "x", "resource": "groups", "uid": "g"},
        {"resource": "pods"},
    ]
    (found,) = claims(allocated({"driver": "d", "pool": "p", "device": "x"}, reservedFor=others))
    assert found.pods == ("p",)


def test_a_share_of_nothing_is_not_a_share_that_is_not_named():
    result = {"driver": "d", "pool": "p", "device": "x"}
    (nothing,) = claims(allocated(result | {"consumedCapacity": {"d/memory": "0", "shares": "1"}}))
    (unnamed,) = claims(allocated(result))
    assert ([nothing.devices[0].memory, nothing.devices[0].cores], unnamed.devices[0].memory) == ([0, None], None)


def test_a_claim_that_no_longer_holds_anything_is_as_good_as_gone():
    freed = {"type": "MODIFIED", "object": allocated() | {"status": {}}}
    event = decode_claim_event(json.dumps(freed).encode())
    assert (event.uid, event.item, event.faults) == ("u", None, ())


def test_a_claim_without_a_uid_is_a_fault():
    page = decode_claims(listed(allocated({"driver": "d"}, uid=""), kind="ResourceClaim"))
    assert (page.items, [fault.object for fault in page.faults]) == ((), ["ResourceClaim/ml/c"])


def test_one_claim_is_read_with_the_devices_that_it_may_only_look_at():
    whole, share, look, waiting = (decode_claim(json.dumps(one).encode()) for one in recorded("claims.json"))
    gpu = ClaimedDevice(driver="gpu.nvidia.com", pool="n1", device="gpu-0", request="gpu")
    assert (whole.devices, whole.admin) == ((gpu,), ())
    assert (look.devices, look.admin) == ((), (gpu,))
    assert ([one.memory for one in share.devices], share.admin) == ([10 * 1024 * MIB], ())
    assert (waiting.devices, waiting.admin) == ((), ())


def test_something_else_is_not_taken_for_a_claim():
    for text in (b"{}", b"[]", b'{"kind": "Status", "metadata": {"name": "x"}}'):
        with pytest.raises(KubeUnreadable):
            decode_claim(text)


# --- anything ---------------------------------------------------------------------------------------------------------

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(("value", "string", "int")), inner),
    max_leaves=5,
)
keys = st.sampled_from(("name", "attributes", "capacity", "basic", "taints", "consumesCounters", "nodeName"))


@given(st.lists(st.dictionaries(keys, anything, max_size=4), max_size=3))
def test_whatever_a_device_is_a_slice_is_read_or_named(found):
    page = decode_slices(listed(slice_of(*found)))
    assert len(page.items) == 1 or len(page.faults) == 1


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data):
    for decode in (decode_slices, decode_slice_event, decode_claims, decode_claim_event, decode_claim):
        with pytest.raises(KubeUnreadable):
            decode(data)


@given(st.lists(anything, max_size=3), anything)
def test_whatever_a_claim_was_given_it_is_read_or_named(results, reserved):
    page = decode_claims(listed(allocated(*results, reservedFor=reserved), kind="ResourceClaim"))
    assert len(page.items) + len(page.faults) <= 1 + len(results) * 2
