"""Which memory slices of a MIG GPU a pod holds, when it may be bound, and when nothing more is placed on the GPU.

The expectations are what Project-HAMi/HAMi v2.10.0 does: pkg/scheduler/score.go allocateInitContainers places every
init container on a copy of the node, and pkg/scheduler/scheduler.go getNodesUsage reads the placements of all pods.
"""

import pytest
from hypothesis import given
from msgspec.structs import replace

from tests.logic.scheduler import worlds
from tests.logic.scheduler.worlds import ask, gpu, holder, mig, node, request, share
from vgpuscope.formats.kube.objects import decode_cluster_pods
from vgpuscope.logic.scheduler.overfull import overfull
from vgpuscope.logic.scheduler.place import place
from vgpuscope.model.allocation import HeldInstance
from vgpuscope.model.cluster_event import PodSet

UNSURE = "SCHED_DEVICE_UNHEALTHY"


def on_mig(*pods, more=()):
    return worlds.state([node("n", mig("G"), *more)], pods)


def instance(start, size=1, *, container=0, device="G", profile="1g.10gb"):
    return HeldInstance(container_index=container, device=device, profile=profile, start=start, size=size)


def placed(state, uuid="G"):
    return next(one.placed for one in state.node_info("n").gpus if one.id == uuid)


def test_a_pod_whose_init_and_app_container_have_one_placement_is_bound():
    state, wanted = on_mig(), request(ask(8000, index=0, init=True), ask(8000, index=1))
    found = place(state, wanted, ["n"])
    assert [(one.start, one.size) for one in found.gpus] == [(6, 1), (6, 1)]  # as HAMi: they take turns
    state.assume(wanted, found)
    assert overfull(state, wanted.uid, "n") is None
    state.apply(PodSet(state.assumed[wanted.uid]))
    assert overfull(state, wanted.uid, "n") is None
    assert placed(state) == ((6, 1),)


def test_a_pod_whose_init_containers_instance_lies_across_that_of_the_app_container_is_bound():
    state, wanted = on_mig(), request(ask(8000, index=0, init=True), ask(30000, index=1))
    found = place(state, wanted, ["n"])
    assert [(one.start, one.size) for one in found.gpus] == [(6, 1), (4, 4)]
    state.assume(wanted, found)
    assert overfull(state, wanted.uid, "n") is None


def test_neighbours_of_such_a_pod_are_bound():
    shares = (share("G", 9728, 15, init=True), share("G", 9728, 15, container=1))
    theirs = holder("hami", "n", *shares, instances=(instance(6), instance(6, container=1)))
    state, wanted = on_mig(theirs), request(ask(8000))
    found = place(state, wanted, ["n"])
    assert found.gpus[0].start == 5
    state.assume(wanted, found)
    assert overfull(state, wanted.uid, "n") is None
    assert overfull(state, theirs.uid, "n") is None


def test_the_slices_that_only_an_init_container_has_are_held_too():
    shares = (share("G", 9728, 15), *[share("G", 9728, 15, init=True)] * 2)
    own = holder("p", "n", *shares, instances=(instance(6), instance(4, 4, profile="3g.40gb"), instance(2)))
    assert placed(on_mig(own)) == ((2, 1), (4, 4), (6, 1))  # as containers that run together
    init = tuple(replace(one, container_index=at, init=at < 2) for at, one in enumerate(shares))
    turns = (instance(2), instance(4, 4, container=1, profile="3g.40gb"), instance(6, container=2))
    assert placed(on_mig(replace(own, assignments=init, instances=turns))) == ((2, 1), (4, 2), (6, 1), (7, 1))


def test_app_containers_in_one_place_are_still_noticed():
    shares = (share("G", 9728, 15), share("G", 9728, 15, container=1))
    state = on_mig(holder("p", "n", *shares, instances=(instance(6), instance(6, container=1))))
    assert overfull(state, "uid-p", "n").code == "SCHED_MIG_INFEASIBLE"


def test_an_init_container_in_the_place_of_a_sidecar_that_runs_beside_it_is_noticed():
    shares = (share("G", 9728, 15), share("G", 9728, 15, container=1, init=True))
    state = on_mig(holder("p", "n", *shares, instances=(instance(6), instance(6, container=1))))
    assert overfull(state, "uid-p", "n").code == "SCHED_MIG_INFEASIBLE"


@given(worlds.seeds)
def test_whatever_was_placed_can_be_bound(random):
    state, names = worlds.some_state(random, most=4)
    wanted = worlds.some_request(random)
    found = place(state, wanted, names)
    if found.node:
        state.assume(wanted, found)
        assert overfull(state, wanted.uid, found.node) is None


@pytest.mark.parametrize(("phase", "start"), [("Running", 5), ("Succeeded", 6)])
def test_the_instance_of_an_init_container_is_held_until_the_pod_ends(phase, start):
    """getNodesUsage: a reservation without a device is restored, so the slices of ended init containers stay in use."""
    done = holder("p", "n", share("G", 9728, 15, init=True), instances=(instance(6),), init_done=True)
    state = on_mig(replace(done, phase=phase))
    assert state.node_info("n").gpus[0].used == 0
    assert place(state, request(ask(8000)), ["n"]).gpus[0].start == start


# --- placements that are not known ------------------------------------------------------------------------------------


def refused(state, **selection):
    found = place(state, request(ask(8000), **selection), ["n"])
    assert not found.node
    return found.nodes[0]


def test_nothing_is_placed_on_a_mig_gpu_with_a_share_of_unknown_placement():
    verdict = refused(on_mig(holder("p", "n", share("G", 9728, 15))))
    assert (verdict.code, verdict.reason) == (UNSURE, "1/1 CardNotHealth")
    assert verdict.message == "MIG placements unknown (pods hold instances at unknown places of 1 of 1 GPUs)"


@pytest.mark.parametrize("text", ["", "[]", "[{]", '[{"containerIndex":0}]', None])
def test_placements_that_cannot_be_read_are_not_known(text):
    notes = {"hami.io/vgpu-node": "n", "hami.io/vgpu-devices-allocated": "G,NVIDIA,9728,15:;"}
    if text is not None:
        notes["hami.io/vgpu-mig-allocations"] = text
    pod = {
        "metadata": {"name": "p", "uid": "uid-p", "annotations": notes},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}]},
    }
    page = decode_cluster_pods(worlds.listed("Pod", [pod]))
    assert refused(on_mig(*page.items)).reason == "1/1 CardNotHealth"


def test_no_mig_gpu_of_a_node_is_used_while_a_pod_has_an_instance_of_a_gpu_that_is_not_registered():
    astray = holder("p", "n", share("GONE", 9728, 15), instances=(instance(6, device="GONE"),))
    state = on_mig(astray, more=[gpu("plain", 1)])
    assert refused(state, mode="mig").reason == "1/2 CardNotHealth, 1/2 CardTypeMismatch"
    assert place(state, request(ask(8000)), ["n"]).gpus[0].uuid == "plain"


def test_a_gpu_that_was_divided_is_not_shared_while_a_pod_has_an_instance_of_it():
    left = holder("p", "n", share("plain", 9728, 15), instances=(instance(6, device="plain"),))
    verdict = refused(worlds.state([node("n", gpu("plain"))], [left]))
    assert (verdict.code, verdict.reason) == (UNSURE, "1/1 CardNotHealth")


def test_when_the_pod_ends_the_gpu_is_used_again():
    lost = holder("p", "n", share("G", 9728, 15))
    state = on_mig(lost)
    state.apply(PodSet(replace(lost, phase="Succeeded")))
    assert place(state, request(ask(8000)), ["n"]).node == "n"


def test_an_instance_of_unknown_placement_that_is_seen_before_the_binding_stops_it():
    state, wanted = on_mig(), request(ask(8000))
    state.assume(wanted, place(state, wanted, ["n"]))
    state.apply(PodSet(holder("p", "n", share("G", 9728, 15))))
    verdict = overfull(state, wanted.uid, "n")
    assert (verdict.code, verdict.message) == (
        UNSURE,
        "the assignment does not fit any more: a pod holds MIG instances at unknown places of G",
    )
