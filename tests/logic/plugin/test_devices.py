"""The ids for the kubelet, which of them are best, and what HAMi's scheduler is told."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from vgpuscope.logic.plugin.assignment import Answered, askers, strangers
from vgpuscope.logic.plugin.devices import offered, preferred
from vgpuscope.logic.plugin.registration import registrations
from vgpuscope.model.plugin import (
    AllocatingPod,
    GpuFault,
    GpuState,
    KubeletView,
    OfferedDevice,
    PluginGpu,
    Segment,
    StaticInstance,
)

MIB = 1 << 20


def state(uuid, index=0, *, healthy=True, **more):
    gpu = PluginGpu(uuid=uuid, index=index, model="Tesla T4", **more)
    return GpuState(gpu=gpu, driver="ok" if healthy else "lost")


def instance(n, profile="1g.10gb", *, start, size=1, slices=1, memory=9728):
    return StaticInstance(
        uuid=f"MIG-{n}",
        gpu_instance=n,
        compute_instance=0,
        profile=profile,
        memory=memory * MIB,
        slices=slices,
        start=start,
        size=size,
    )


def test_a_gpu_is_offered_as_shares_and_with_mig_as_its_instances():
    mig = state("GPU-m", 1, mig=True, instances=(instance(0, start=0), instance(1, start=1)))
    found = offered([state("GPU-a", numa=1), mig], split=2)
    assert [(one.id, one.visible, one.healthy, one.numa) for one in found] == [
        ("GPU-a-0", "GPU-a", True, 1),
        ("GPU-a-1", "GPU-a", True, 1),
        ("MIG-0", "MIG-0", True, None),
        ("MIG-1", "MIG-1", True, None),
    ]


def test_all_shares_of_an_unhealthy_gpu_are_unhealthy():
    fault = GpuState(gpu=state("GPU-b").gpu, driver="ok", fault=GpuFault(gpu="GPU-b", xid=48, since=0.0))
    assert {one.healthy for one in offered([state("GPU-a", healthy=False), fault], split=3)} == {False}


DEVICES = {one.id: one for one in offered([state(f"GPU-{n}", n) for n in "abc"], split=3)}


def test_ids_of_the_assigned_gpus_come_first_then_of_as_many_gpus_as_possible():
    every = list(DEVICES)
    assert preferred(every, [], 2, devices=DEVICES, assigned=("GPU-c", "GPU-b")) == ("GPU-b-0", "GPU-c-0")
    assert preferred(every, [], 2, devices=DEVICES, assigned=("GPU-c", "GPU-c")) == ("GPU-c-0", "GPU-c-1")
    assert preferred(every, [], 3, devices=DEVICES) == ("GPU-a-0", "GPU-b-0", "GPU-c-0")
    assert preferred(every, ["GPU-b-2"], 2, devices=DEVICES) == ("GPU-b-2", "GPU-a-0")


def test_the_id_of_the_assigned_instance_comes_before_its_neighbours_on_the_gpu():
    gpu = OfferedDevice(id="MIG-a", gpu="GPU-m", visible="MIG-a", healthy=True, numa=None)
    devices = {one: replace(gpu, id=one, visible=one) for one in ("MIG-a", "MIG-b", "MIG-c")}
    assert preferred(list(devices), [], 1, devices=devices, assigned=("MIG-b",)) == ("MIG-b",)
    assert preferred(list(devices), [], 2, devices=devices, assigned=("MIG-c", "MIG-b")) == ("MIG-b", "MIG-c")


ids = st.lists(st.sampled_from([*DEVICES, "unknown-0"]), unique=True)


@given(ids, st.integers(0, 12), st.integers(0, 3))
def test_the_kubelet_gets_as_many_ids_as_it_asks_for_and_all_that_it_requires(available, size, required):
    must = available[: min(required, size)]
    found = preferred(available, must, size, devices=DEVICES, assigned=("GPU-a",))
    assert len(found) == len(set(found)) == min(size, len(available))
    assert set(must) <= set(found) <= set(available)


def test_memory_and_cores_are_scaled_and_the_type_has_the_vendors_name():
    (one,) = registrations([state("GPU-a", memory=15360 * MIB)], split=10, memory_scaling=1.5, core_scaling=2.0)
    assert (one.memory, one.cores, one.slots, one.type) == (23040, 200, 10, "NVIDIA-Tesla T4")


def test_a_gpu_without_known_memory_is_left_out_unless_it_is_configured():
    assert registrations([state("GPU-a")], split=1) == ()
    (one,) = registrations([state("GPU-a")], split=1, memory_unless_known=24576)
    assert one.memory == 24576


def test_instances_that_exist_are_the_profiles_with_their_places():
    made = (
        instance(0, start=4),
        instance(1, start=2),
        instance(2, "3g.40gb", start=0, size=4, slices=3, memory=40192),
    )
    (one,) = registrations([state("GPU-m", memory=81920 * MIB, mig=True, instances=made)], split=10, memory_scaling=2.0)
    assert (one.mode, one.slots, one.memory, one.cores) == ("mig", 3, 81920, 100)
    assert [(p.name, p.memory, p.cores, p.slices, p.placements) for p in one.profiles] == [
        ("1g.10gb", 9728, 15, 1, ((2, 1), (4, 1))),
        ("3g.40gb", 40192, 43, 3, ((0, 4),)),
    ]


def pod(name, *asks, segment=None, **more):
    """A pod whose containers c0, c1, … want so many devices; `segment` is the one that waits by its annotation."""
    containers = tuple((f"c{number}", count) for number, count in enumerate(asks))
    waiting = None if segment is None else Segment(container=segment, devices=())
    return AllocatingPod(
        uid=name, namespace="ml", name=name, version="1", asks=containers, segment=waiting, **{"node": "n1", **more}
    )


def asked_for(pods, count, *, served=(), refused=(), kubelet=None):
    return [one.name for one in askers(pods, count=count, known=Answered(served, refused, kubelet))]


def test_every_pod_of_the_node_may_ask_until_the_kubelet_or_an_answer_says_that_it_has():
    pods = [
        pod("two", 2, segment="c0"),
        pod("one", 1, segment="c0"),
        pod("plain", 1, node=""),
        pod("up", 1, admitted=True),
    ]
    assert asked_for(pods, 1) == ["one", "plain"]
    assert asked_for(pods, 2) == ["two"]
    assert asked_for(pods, 3) == []
    assert asked_for(pods, 1, served={("one", "c0")}) == ["plain"]
    assert asked_for(pods, 1, refused={"plain"}) == ["one"]
    knows = KubeletView(pods=frozenset({("ml", "one"), ("ml", "plain")}), holding=frozenset({("ml", "plain", "c0")}))
    assert asked_for(pods, 1, kubelet=knows) == ["one"]
    assert asked_for(pods, 2, kubelet=knows) == []


def test_what_a_pod_says_of_its_first_containers_may_be_true_or_not():
    served = pod("p", 1, 2, 3, segment="c1")
    assert [asked_for([served], count) for count in (1, 2, 3)] == [["p"], ["p"], []]
    assert asked_for([served], 1, served={("p", "c0")}) == []
    emptied = pod("p", 1, 2, 3)
    assert [asked_for([emptied], count) for count in (1, 2, 3)] == [["p"]] * 3


def test_a_pod_that_only_the_kubelet_knows_is_a_stranger_unless_it_has_devices():
    view = KubeletView(
        pods=frozenset({("ml", "p"), ("ml", "gone"), ("ml", "held")}), holding=frozenset({("ml", "held", "main")})
    )
    assert strangers([pod("p", 1)], view) == {("ml", "gone")}
    assert strangers([pod("p", 1)], None) == frozenset()
