"""What the extender has written counts until its watch has caught up, in whatever order news arrives."""

import asyncio

import pytest
from msgspec.structs import replace

from vgpuscope.logic.scheduler.overfull import _slices, overfull
from vgpuscope.model.allocation import Assignment, HeldInstance, NodeState, PodState, QuotaState, RegisteredDevice
from vgpuscope.model.cluster_event import ClaimSet, NodeSet, QuotaSet, SliceSet
from vgpuscope.model.dra import ClaimedDevice, ClaimState, DraDevice, SliceState
from vgpuscope.model.errors import KubeForbidden, SourceDown
from vgpuscope.model.placement import ChosenGpu, ContainerAsk, Placement, PlacementRequest
from vgpuscope.model.quantity import MIB
from vgpuscope.services.extender.cache import Cache, SeenNode, SeenPod

REQUEST = PlacementRequest(
    uid="u1", namespace="ml", name="train", containers=1, asks=(ContainerAsk(index=0, name="main", count=1),)
)


def device(number):
    return RegisteredDevice(id=f"GPU-{number}", vendor="NVIDIA", slots=10, memory=10000 * MIB, cores=100, healthy=True)


def placement(number, memory=4000):
    return Placement(
        node=f"n{number}",
        gpus=(ChosenGpu(container=0, position=0, uuid=f"GPU-{number}", memory=memory, cores=10),),
    )


def pod(number=None, uid="u1", memory=4000, **more):
    held = (
        ()
        if number is None
        else (
            Assignment(
                container_index=0,
                container="main",
                init=False,
                vendor="NVIDIA",
                device=f"GPU-{number}",
                memory=memory * MIB,
                cores=10,
            ),
        )
    )
    return PodState(
        uid=uid,
        namespace="ml",
        name="train",
        assigned_node="" if number is None else f"n{number}",
        assignments=held,
        **more,
    )


@pytest.fixture
def cache():
    made = Cache(resync=1800.0)
    for number in range(2):
        made.state.apply(NodeSet(NodeState(name=f"n{number}", devices=(device(number),))))
    return made


def used(cache):
    return [cache.state.node_info(f"n{number}").gpus[0].used_memory for number in range(2)]


async def test_an_assumption_counts_before_it_is_written_and_after(cache):
    cache.assume(REQUEST, placement(0), 0.0)
    assert used(cache) == [4000, 0]
    cache.wrote("u1", "12")
    assert used(cache) == [4000, 0]
    cache.see(SeenPod(pod(0), 12))
    assert (used(cache), cache.assumed) == ([4000, 0], 0)


async def test_older_news_of_the_pod_does_not_free_what_was_written(cache):
    cache.assume(REQUEST, placement(0), 0.0)
    cache.wrote("u1", "12")
    cache.see(SeenPod(pod(), 11))  # as it was before
    assert used(cache) == [4000, 0]


async def test_an_old_assignment_that_equals_the_new_one_does_not_confirm_it(cache):
    """A then B then A again: the news of the first A must not end the hold of the second."""
    cache.see(SeenPod(pod(0), 10))
    cache.assume(REQUEST, placement(1), 0.0)
    cache.wrote("u1", "11")
    cache.assume(REQUEST, placement(0), 0.0)
    cache.wrote("u1", "12")
    cache.see(SeenPod(pod(0), 10))
    cache.see(SeenPod(pod(1), 11))
    assert used(cache)[0] == 4000
    cache.see(SeenPod(pod(0), 12))
    assert used(cache) == [4000, 0]


async def test_news_that_overtakes_the_answer_of_the_write_is_not_lost(cache):
    cache.assume(REQUEST, placement(0), 0.0)
    cache.see(SeenPod(pod(0), 12))
    cache.wrote("u1", "12")
    assert (used(cache), cache.assumed) == ([4000, 0], 0)


async def test_a_change_by_another_after_our_write_counts(cache):
    cache.assume(REQUEST, placement(0), 0.0)
    cache.wrote("u1", "12")
    cache.see(SeenPod(pod(1), 13))
    assert used(cache) == [0, 4000]


async def test_a_write_that_was_rejected_leaves_what_was_before(cache):
    cache.see(SeenPod(pod(1), 10))
    cache.assume(REQUEST, placement(0), 0.0)
    cache.forget("u1")
    assert used(cache) == [0, 4000]


async def test_a_cleared_assignment_is_free_at_once(cache):
    cache.see(SeenPod(pod(1), 10))
    cache.forget("u1", "11")
    assert used(cache) == [0, 0]


async def test_a_pod_that_is_deleted_holds_nothing(cache):
    cache.assume(REQUEST, placement(0), 0.0)
    cache.wrote("u1", "12")
    cache.gone("u1")
    assert (used(cache), cache.assumed) == ([0, 0], 0)


async def test_what_another_leader_decided_replaces_our_assumptions(cache):
    cache.assume(REQUEST, placement(0), 0.0)
    cache.drop_assumptions()
    cache.see(SeenPod(pod(1), 20))
    assert (used(cache), cache.assumed) == ([0, 4000], 0)


async def test_a_gpu_beyond_its_capacity_is_noticed(cache):
    cache.see(SeenPod(pod(0, memory=6000), 10))
    assert overfull(cache.state, "u1", "n0") is None
    cache.see(SeenPod(pod(0, uid="u2", memory=6000), 11))
    over = overfull(cache.state, "u1", "n0")
    assert (over.code, over.message, over.message_zh) == (
        "SCHED_INSUFFICIENT_GPU_MEMORY",
        "the assignment does not fit any more: 12000MB of GPU-0 are allocated, it has 10000MB",
        "指派已放不下：GPU-0 已分配 12000MB，总共 10000MB",
    )
    assert overfull(cache.state, "u1", "n1").code == "SCHED_BIND_FAILED"  # it holds nothing there
    assert overfull(cache.state, "u1", "n9").code == "SCHED_NODE_UNREGISTERED"


async def test_a_simulation_sees_all_but_the_pod_itself_and_changes_nothing(cache):
    cache.see(SeenPod(pod(0, uid="u2", memory=3000), 10))
    cache.assume(REQUEST, placement(0), 0.0)
    other = cache.state.with_nodes([NodeState(name="n0", devices=(device(0),))], without="u1")
    assert other.node_info("n0").gpus[0].used_memory == 3000
    assert (
        cache.state.with_nodes([NodeState(name="n0", devices=(device(0),))], without="u9")
        .node_info("n0")
        .gpus[0]
        .used_memory
        == 7000
    )
    assert used(cache) == [7000, 0]


def test_a_simulation_has_the_quotas_of_all_namespaces(cache):
    for namespace in ("ml", "web"):
        cache.state.apply(QuotaSet(QuotaState(namespace=namespace, name="q", hard={"nvidia.com/gpumem": 5000})))
    other = cache.state.with_nodes([], without="u1")
    assert [other.room(namespace).memory_limit for namespace in ("ml", "web", "none")] == [5000, 5000, None]


async def test_who_waits_for_a_node_is_woken_by_a_newer_version_only(cache):
    cache.see_node(SeenNode(NodeState(name="n0"), 7))
    await cache.node_changed("n0", "6", 1e6)
    waiting = asyncio.create_task(cache.node_changed("n0", "7", 1e6))
    await asyncio.sleep(0)
    cache.see_node(SeenNode(NodeState(name="n0"), 7))
    cache.see_node(SeenNode(NodeState(name="n1"), 9))
    await asyncio.sleep(0)
    assert not waiting.done()
    cache.see_node(SeenNode(NodeState(name="n0"), 8))
    async with asyncio.timeout(60):
        await waiting


async def test_who_waits_for_a_node_that_does_not_change_waits_no_longer_than_said(cache):
    await cache.node_changed("n0", "7", 0.0)
    assert not cache._node_news


def instance(uid, start, *, cores=15):
    one = pod(2, uid=uid, memory=9728)
    return replace(
        one,
        assignments=tuple(replace(held, cores=cores) for held in one.assignments),
        instances=(HeldInstance(container_index=0, device="GPU-2", profile="1g.10gb", start=start, size=1),),
    )


async def test_seven_mig_instances_are_within_capacity_although_their_cores_are_105_percent(cache):
    mig = replace(device(2), slots=7, memory=81920 * MIB, mode="mig")
    cache.state.apply(NodeSet(NodeState(name="n2", devices=(mig,))))
    for start in range(7):
        cache.see(SeenPod(instance(f"m{start}", start), 10 + start))
    assert cache.state.node_info("n2").gpus[0].used_cores == 105
    assert overfull(cache.state, "m0", "n2") is None


async def test_an_endless_mig_instance_of_another_pod_costs_nothing(cache):
    mig = replace(device(2), slots=7, memory=81920 * MIB, mode="mig")
    cache.state.apply(NodeSet(NodeState(name="n2", devices=(mig,))))
    endless = instance("m1", 0)
    held = tuple(replace(one, size=10**15) for one in endless.instances)
    cache.see(SeenPod(instance("m0", 3), 10))
    cache.see(SeenPod(replace(endless, instances=held), 11))
    assert overfull(cache.state, "m0", "n2").code == "SCHED_MIG_INFEASIBLE"


async def test_two_mig_instances_in_one_place_are_noticed(cache):
    mig = replace(device(2), slots=7, memory=81920 * MIB, mode="mig")
    cache.state.apply(NodeSet(NodeState(name="n2", devices=(mig,))))
    cache.see(SeenPod(instance("m0", 3), 10))
    cache.see(SeenPod(instance("m1", 3), 11))
    assert overfull(cache.state, "m0", "n2").code == "SCHED_MIG_INFEASIBLE"


@pytest.mark.parametrize(
    ("placed", "slices"),
    [
        ((), (0, 0)),
        (((0, 4), (4, 4)), (8, 8)),
        (((4, 4), (0, 8), (2, 1)), (13, 8)),
        (((0, 10**15), (1, 2)), (10**15 + 2, 10**15)),
    ],
)
def test_slices_are_compared_as_intervals_however_long_they_are(placed, slices):
    assert _slices(placed) == slices


# --- claims -----------------------------------------------------------------------------------------------------------


def claimed(cache, number=0):
    device = DraDevice(name="gpu-0", gpu=f"GPU-{number}", uuid=f"GPU-{number}", node=f"n{number}")
    cache.state.apply(SliceSet(SliceState(name="s", driver="gpu.nvidia.com", pool="p", devices=(device,))))
    held = (ClaimedDevice(driver="gpu.nvidia.com", pool="p", device="gpu-0"),)
    cache.state.apply(ClaimSet(ClaimState(uid="c", namespace="ml", name="c", devices=held)))


async def test_a_gpu_that_a_claim_got_after_the_decision_is_not_bound(cache):
    cache.see(SeenPod(pod(0), 10))
    assert overfull(cache.state, "u1", "n0") is None
    claimed(cache)
    over = overfull(cache.state, "u1", "n0")
    assert (over.code, over.message, over.message_zh) == (
        "SCHED_EXCLUSIVE_CONFLICT",
        "the assignment does not fit any more: a ResourceClaim holds GPU-0",
        "指派已失效：GPU-0 已被 ResourceClaim 占用",
    )


async def test_a_gpu_that_the_pod_has_by_a_claim_does_not_matter_to_its_binding(cache):
    cache.see(SeenPod(pod(0, claims=("c",)), 10))
    claimed(cache, 1)
    cache.state.apply(ClaimSet(replace(cache.state._dra.claim("c"), pods=("u1",))))
    assert overfull(cache.state, "u1", "n0") is None


FORBIDDEN = KubeForbidden("resourceclaims is forbidden")


def listed(kind, *, served=True):
    kind._take_list({})
    kind.served = served
    kind._alive()


async def test_claims_that_may_not_be_read_are_reported_and_do_not_stop_decisions():
    cache = Cache(resync=1800.0)
    for kind in cache.kinds:
        if kind.name == "resourceclaims":
            kind._error = FORBIDDEN
        else:
            listed(kind)
    assert (cache.synced, cache.missing, cache.forbidden) == (True, (), ("resourceclaims",))
    state = next(one for one in cache.states() if one.kind == "resourceclaims")
    assert (state.up, state.awaited, state.code) == (False, False, "KUBE_FORBIDDEN")


@pytest.mark.parametrize("name", ["nodes", "pods", "resourcequotas"])
async def test_nothing_is_decided_without_nodes_pods_and_quotas(name):
    cache = Cache(resync=1800.0)
    for kind in cache.kinds:
        listed(kind)
    next(kind for kind in cache.kinds if kind.name == name)._error = FORBIDDEN
    assert (cache.synced, cache.forbidden) == (False, ())
    assert [one.partition(":")[0] for one in cache.missing] == [name]


async def test_claims_that_cannot_be_read_for_another_reason_stop_decisions():
    cache = Cache(resync=1800.0)
    for kind in cache.kinds:
        listed(kind)
    cache.kinds[-1]._error = SourceDown("no answer")
    assert not cache.synced


async def test_a_kind_that_is_not_served_is_synced_and_does_not_make_the_cache_old():
    cache = Cache(resync=1800.0)
    for kind in cache.kinds:
        listed(kind, served=kind.name not in ("resourceslices", "resourceclaims"))
    assert cache.synced
    assert {one.kind for one in cache.states() if one.awaited} == {"nodes", "pods", "resourcequotas"}
