"""HAMi's rules for the choice of nodes and GPUs, one by one."""

import re
from ctypes import c_float

import pytest
from msgspec.structs import replace

from tests.logic.scheduler.worlds import (
    MIB,
    TYPES,
    ask,
    gpu,
    holder,
    mig,
    node,
    quota,
    request,
    share,
    state,
)
from vgpuscope.logic.scheduler.place import place
from vgpuscope.model.allocation import HeldInstance
from vgpuscope.model.placement import GpuWeights, Policies


def only(made, wanted, *names, policies=None):
    """The verdict on the one refused node."""
    found = place(made, wanted, names or sorted(made.nodes), policies=policies or Policies())
    assert not found.node
    (verdict,) = found.nodes
    return verdict


def chosen(made, wanted, policies=None):
    """The UUIDs in their order."""
    found = place(made, wanted, sorted(made.nodes), policies=policies or Policies())
    return [one.uuid for one in found.gpus]


def gpus(count, **more):
    return [gpu(f"GPU-{index}", index, **more) for index in range(count)]


# --- the choice of a node ---------------------------------------------------------------------------------------------


def two_nodes():
    return state([node("a", gpu("GPU-a")), node("b", gpu("GPU-b"))], [holder("p", "a", share("GPU-a", 8000, 30))])


def test_binpack_takes_the_fullest_node_and_spread_the_emptiest():
    made = two_nodes()
    assert place(made, request(), ["a", "b"]).node == "a"
    assert place(made, request(node_policy="spread"), ["a", "b"]).node == "b"
    assert place(made, request(), ["a", "b"], policies=Policies(node="spread")).node == "b"


def test_the_score_is_ten_times_the_sum_of_the_allocated_shares():
    made = state([node("a", *gpus(2))], [holder("p", "a", share("GPU-0", 8000, 30))])
    found = place(made, request(), ["a"])
    assert f"{found.score:.2f}" == "2.49"  # as HAMi's record has it
    assert {name: round(value, 3) for name, value in found.terms.items()} == {
        "slots": 0.5,
        "cores": 1.5,
        "memory": 0.488,
    }
    assert found.policy == "binpack/spread"


def test_scores_are_32_bit_floats_so_that_ties_are_those_of_hami():
    made = state([node("a", gpu("GPU-0", slots=3, memory=7777 * MIB))], [holder("p", "a", share("GPU-0", 1234, 33))])
    slots, cores, memory = (c_float(part).value for part in (1 / 3, 33 / 100, 1234 / 7777))
    expected = c_float(10 * c_float(c_float(slots + cores).value + memory).value).value
    assert place(made, request(ask(1000)), ["a"]).score == expected
    assert expected != 10 * (1 / 3 + 33 / 100 + 1234 / 7777)


def test_equal_nodes_are_taken_in_the_order_of_their_names():
    made = state([node(name, gpu(f"GPU-{name}")) for name in ("c", "a", "b")])
    assert place(made, request(), ["c", "b", "a"]).node == "a"
    assert place(made, request(node_policy="spread"), ["c", "b", "a"]).node == "a"


def test_a_node_whose_kubelet_offers_no_gpu_is_refused_and_one_that_says_nothing_is_not():
    zero = state([node("a", gpu("GPU-a"), allocatable={"nvidia.com/gpu": 0})])
    verdict = only(zero, request())
    assert (verdict.code, verdict.reason) == ("SCHED_NODE_UNREGISTERED", "node unregistered")
    assert "offers 0 nvidia.com/gpu" in verdict.message
    assert place(state([node("a", gpu("GPU-a"))]), request(), ["a"]).node == "a"


def test_a_node_of_another_vendor_has_no_gpu_for_the_pod():
    made = state([node("a", gpu("DCU-0", vendor="DCU"))])
    assert only(made, request()).code == "SCHED_NODE_UNREGISTERED"


# --- the choice of GPUs -----------------------------------------------------------------------------------------------


def uneven():
    """GPU 1 is the fullest, GPU 2 has fewer pods, GPU 0 is idle."""
    pods = [holder("p", "n", share("GPU-1", 30000)), holder("q", "n", share("GPU-2", 10000))]
    return state([node("n", *gpus(3))], pods)


def test_spread_takes_the_emptiest_gpu_and_binpack_the_fullest():
    assert chosen(uneven(), request()) == ["GPU-0"]
    assert chosen(uneven(), request(gpu_policy=("binpack",))) == ["GPU-1"]
    assert chosen(uneven(), request(ask(count=3))) == ["GPU-0", "GPU-2", "GPU-1"]
    assert chosen(uneven(), request(), Policies(gpu=("binpack",))) == ["GPU-1"]


def test_equal_gpus_are_taken_from_the_higher_numa_node_then_from_the_higher_index():
    made = state([node("n", gpu("GPU-0", 0, numa=1), gpu("GPU-1", 1, numa=0), gpu("GPU-2", 2, numa=0))])
    assert chosen(made, request(ask(count=3))) == ["GPU-0", "GPU-2", "GPU-1"]


def test_equal_gpus_without_an_index_are_taken_from_the_last_uuid_on():
    made = state([node("n", gpu("GPU-a"), gpu("GPU-c"), gpu("GPU-b"))])
    assert chosen(made, request(ask(count=3))) == ["GPU-c", "GPU-b", "GPU-a"]


def test_weights_change_which_gpu_is_the_fullest():
    pods = [holder("p", "n", share("GPU-0", 40000)), holder("q", "n", share("GPU-1", 1000, 80))]
    made = state([node("n", *gpus(2))], pods)
    assert chosen(made, request(gpu_policy=("binpack",), weights=GpuWeights(0, 0, 1))) == ["GPU-0"]
    assert chosen(made, request(gpu_policy=("binpack",), weights=GpuWeights(0, 1, 0))) == ["GPU-1"]


def test_mutex_takes_only_idle_gpus():
    made = uneven()
    assert chosen(made, request(gpu_policy=("mutex",))) == ["GPU-0"]
    verdict = only(made, request(ask(count=2), gpu_policy=("mutex",)))
    assert verdict.reason == "1/3 AllocatedCardsInsufficientRequest, 2/3 ExclusiveDeviceAllocateConflict"
    assert verdict.code == "SCHED_EXCLUSIVE_CONFLICT"


def test_a_chain_compares_its_keys_in_order_and_mutex_in_it_is_a_filter():
    made = state(
        [node("n", gpu("GPU-0", 0, numa=0), gpu("GPU-1", 1, numa=1), gpu("GPU-2", 2, numa=1))],
        [holder("p", "n", share("GPU-0", 30000)), holder("q", "n", share("GPU-1", 10000))],
    )
    assert chosen(made, request(gpu_policy=("numa", "binpack"))) == ["GPU-1"]
    assert chosen(made, request(gpu_policy=("binpack", "numa"))) == ["GPU-0"]
    assert chosen(made, request(gpu_policy=("numa",))) == ["GPU-2"]
    assert chosen(made, request(gpu_policy=("binpack", "mutex"))) == ["GPU-2"]


def test_numa_bind_takes_all_gpus_from_one_numa_node():
    made = state([node("n", *(gpu(f"GPU-{at}", at, numa=at % 2) for at in range(4)))])
    assert chosen(made, request(ask(count=2), numa_bind=True)) == ["GPU-3", "GPU-1"]
    assert chosen(made, request(ask(count=2), numa_bind=True, gpu_policy=("binpack",))) == ["GPU-2", "GPU-0"]
    verdict = only(made, request(ask(count=3), numa_bind=True))
    assert verdict.reason == "2/4 AllocatedCardsInsufficientRequest, 2/4 NumaNotFit"
    assert verdict.code == "SCHED_NUMA_MISMATCH"
    assert verdict.message == "GPUs on one NUMA node insufficient (requested 3, available 2)"


def links():
    """Two pairs with strong links: 0-1 and 2-3; 0 has the weakest links in all."""
    pairs = {(0, 1): 100, (2, 3): 400, (0, 2): 10, (0, 3): 10, (1, 2): 20, (1, 3): 20}
    scores: dict = {f"GPU-{at}": {} for at in range(4)}
    for (one, other), score in pairs.items():
        scores[f"GPU-{one}"][f"GPU-{other}"] = scores[f"GPU-{other}"][f"GPU-{one}"] = score
    return scores


def test_topology_takes_the_best_linked_group_and_for_one_gpu_the_worst_linked():
    made = state([node("n", *gpus(4), pair_scores=links())])
    topology = {"gpu_policy": ("topology-aware",)}
    assert set(chosen(made, request(ask(count=2), **topology))) == {"GPU-2", "GPU-3"}
    assert chosen(made, request(ask(count=1), **topology)) == ["GPU-0"]
    assert len(chosen(made, request(ask(count=4), **topology))) == 4


def test_topology_of_very_many_gpus_is_decided_in_time():
    many = [gpu(f"GPU-{at:02}", at) for at in range(64)]
    scores = {one.id: {other.id: 1 for other in many if other is not one} for one in many}
    scores["GPU-07"]["GPU-09"] = scores["GPU-09"]["GPU-07"] = 500
    made = state([node("n", *many, pair_scores=scores)])
    found = chosen(made, request(ask(count=32), gpu_policy=("topology-aware",)))
    assert len(set(found)) == 32
    assert {"GPU-07", "GPU-09"} <= set(found)


# --- the checks, each with HAMi's word, our code and a sentence -------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "wanted", "reason", "message"),
    [
        (gpu("G", healthy=False), request(), "1/1 CardNotHealth", "GPU unhealthy (1 of 1 GPUs)"),
        (gpu("G", cordoned=True), request(), "1/1 CardCordoned", "GPU cordoned (1 of 1 GPUs)"),
        (
            gpu("G", type=TYPES[1]),
            request(use_types=("a100",)),
            "1/1 CardTypeMismatch",
            "device type mismatch (requested A100, has T4)",
        ),
        (
            gpu("G", type=TYPES[1]),
            request(avoid_types=("t4",)),
            "1/1 CardTypeMismatch",
            "device type mismatch (requested not T4, has T4)",
        ),
        (
            gpu("G"),
            request(mode="mig"),
            "1/1 CardTypeMismatch",
            "device mode mismatch (requested mig, has hami-core)",
        ),
        (
            gpu("G"),
            request(use_uuids=("GPU-z",)),
            "1/1 CardUuidMismatch",
            "device UUID mismatch (requested GPU-z, 1 of 1 GPUs do not match)",
        ),
        (
            gpu("G"),
            request(avoid_uuids=("G",)),
            "1/1 CardUuidMismatch",
            "device UUID mismatch (requested not G, 1 of 1 GPUs do not match)",
        ),
        (
            gpu("G", memory=4000 * MIB),
            request(ask(8000)),
            "1/1 CardInsufficientMemory",
            "GPU memory insufficient (requested 8000MB, available 4000MB)",
        ),
        (
            gpu("G", cores=30),
            request(ask(cores=50)),
            "1/1 CardInsufficientCore",
            "GPU cores insufficient (requested 50%, available 30%)",
        ),
        (gpu("G"), request(ask(count=2)), "NodeInsufficientDevice", "GPUs insufficient (requested 2, available 1)"),
        (
            mig("G", profiles=()),
            request(ask(8000)),
            "1/1 CardMigTopologyInfeasible",
            "no MIG placement (requested 8000MB, no free profile on 1 of 1 GPUs)",
        ),
    ],
)
def test_an_unused_gpu_is_refused_for(device, wanted, reason, message):
    verdict = only(state([node("n", device)]), wanted)
    assert (verdict.reason, verdict.message) == (reason, message)
    assert re.search(r"[\u4e00-\u9fff]", verdict.message_zh)
    assert numbers(verdict.message_zh) == numbers(message)


def numbers(text):
    return sorted(re.findall(r"[0-9]+", text))


@pytest.mark.parametrize(
    ("shares", "wanted", "reason", "code"),
    [
        ([share("G", 1)] * 10, request(), "CardTimeSlicingExhausted", "SCHED_SLOTS_EXHAUSTED"),
        ([share("G", 1)], request(ask(cores=100)), "ExclusiveDeviceAllocateConflict", "SCHED_EXCLUSIVE_CONFLICT"),
        ([share("G", 1, 10)], request(ask(cores=100)), "CardInsufficientCore", "SCHED_INSUFFICIENT_GPU_CORES"),
        ([share("G", 1, 100)], request(), "CardComputeUnitsExhausted", "SCHED_INSUFFICIENT_GPU_CORES"),
        ([share("G", 80000)], request(), "CardInsufficientMemory", "SCHED_INSUFFICIENT_GPU_MEMORY"),
    ],
)
def test_a_used_gpu_is_refused_for(shares, wanted, reason, code):
    pods = [holder(f"p{at}", "n", one) for at, one in enumerate(shares)]
    verdict = only(state([node("n", gpu("G"))], pods), wanted)
    assert (verdict.reason, verdict.code) == (f"1/1 {reason}", code)


def test_a_gpu_with_scaled_cores_can_be_shared_by_a_pod_that_asks_for_100_percent():
    made = state([node("n", gpu("G", cores=200))], [holder("p", "n", share("G", 1, 100))])
    assert chosen(made, request(ask(cores=100))) == ["G"]


def test_several_reasons_are_counted_and_sorted_as_hami_writes_them():
    devices = [gpu("A", 0), gpu("B", 1, healthy=False), gpu("C", 2, cordoned=True)]
    verdict = only(state([node("n", *devices)]), request(ask(count=2)))
    assert verdict.reason == "1/3 AllocatedCardsInsufficientRequest, 1/3 CardCordoned, 1/3 CardNotHealth"
    assert verdict.code == "SCHED_INSUFFICIENT_GPU_COUNT"
    assert verdict.message == "suitable GPUs insufficient (requested 2, available 1)"


def test_a_scarce_resource_decides_the_code_before_gpus_that_never_come_into_question():
    devices = [gpu("A", 0, healthy=False), gpu("B", 1, healthy=False), gpu("C", 2, memory=1000 * MIB)]
    verdict = only(state([node("n", *devices)]), request(ask(8000)))
    assert verdict.code == "SCHED_INSUFFICIENT_GPU_MEMORY"
    assert (verdict.requested, verdict.available) == ("8000MB", "1000MB")


def test_a_percentage_is_of_each_gpu_and_rounded_down():
    made = state([node("n", gpu("A", memory=1001 * MIB))])
    found = place(made, request(ask(None, percentage=50)), ["n"])
    assert [one.memory for one in found.gpus] == [500]
    assert [one.memory for one in place(made, request(ask(None)), ["n"]).gpus] == [1001]


# --- quotas -----------------------------------------------------------------------------------------------------------


def test_a_quota_refuses_in_the_handbooks_words_with_what_was_requested_and_is_left():
    made = state(
        [node("n", gpu("G"))],
        [holder("p", "n", share("G", 4000), namespace="ai-team")],
        [quota("ai-team", gpumem=10000)],
    )
    verdict = only(made, request(ask(8000), namespace="ai-team"))
    assert (verdict.code, verdict.reason) == ("SCHED_QUOTA_EXCEEDED", "1/1 ResourceQuotaNotFit")
    assert verdict.message == "quota exceeded (namespace ai-team)"
    assert (verdict.requested, verdict.available) == ("8000MB", "6000MB")
    assert place(made, request(ask(6000), namespace="ai-team"), ["n"]).node == "n"
    assert place(made, request(ask(8000), namespace="other"), ["n"]).node == "n"


def test_a_quota_counts_all_gpus_and_containers_of_a_pod():
    made = state([node("n", *gpus(2))], quotas=[quota(gpumem=10000, gpucores=50)])
    assert only(made, request(ask(6000, count=2))).code == "SCHED_QUOTA_EXCEEDED"
    assert only(made, request(ask(6000), ask(6000, index=1))).code == "SCHED_QUOTA_EXCEEDED"
    cores = only(made, request(ask(100, cores=60)))
    assert (cores.code, cores.requested, cores.available) == ("SCHED_QUOTA_EXCEEDED", "60%", "50%")
    assert place(made, request(ask(5000, count=2, cores=25)), ["n"]).node == "n"


def test_a_quota_counts_an_init_container_and_an_app_container_on_one_gpu_once():
    made = state([node("n", gpu("G"))], quotas=[quota(gpumem=10000)])
    assert place(made, request(ask(9000, init=True), ask(6000, index=1)), ["n"]).node == "n"
    assert only(made, request(ask(6000), ask(6000, index=1))).code == "SCHED_QUOTA_EXCEEDED"


# --- several containers -----------------------------------------------------------------------------------------------


def test_containers_are_placed_on_what_the_containers_before_them_leave():
    made = state([node("n", gpu("G", memory=10000 * MIB))])
    assert only(made, request(ask(6000), ask(6000, index=1))).code == "SCHED_INSUFFICIENT_GPU_MEMORY"
    assert [one.container for one in place(made, request(ask(6000), ask(4000, index=2)), ["n"]).gpus] == [0, 2]


def test_an_init_container_ends_before_the_app_containers_start():
    made = state([node("n", gpu("G", memory=10000 * MIB))])
    wanted = request(ask(9000, init=True), ask(8000, init=True, index=1), ask(10000, index=2))
    assert [one.memory for one in place(made, wanted, ["n"]).gpus] == [9000, 8000, 10000]


def test_an_init_container_runs_beside_the_sidecars_before_it():
    made = state([node("n", gpu("G", memory=10000 * MIB))])
    sidecar, init = ask(4000, index=0), ask(7000, index=1, init=True)
    assert only(made, request(sidecar, init)).code == "SCHED_INSUFFICIENT_GPU_MEMORY"


# --- MIG --------------------------------------------------------------------------------------------------------------


def test_seven_small_instances_fit_although_their_cores_are_105_percent():
    made = state([node("n", mig("G"))])
    starts = []
    for at in range(7):
        wanted = request(ask(8000), name=f"p{at}")
        found = place(made, wanted, ["n"])
        (one,) = found.gpus
        assert (one.profile, one.memory, one.cores, one.size) == ("1g.10gb", 9728, 15, 1)
        starts.append(one.start)
        made.assume(wanted, found)
    assert starts == [6, 5, 4, 3, 2, 1, 0]  # from the high end, so that the low end stays free
    assert made.node_info("n").gpus[0].used_cores == 105
    assert only(made, request(ask(8000))).reason == "1/1 CardTimeSlicingExhausted"


def test_one_pod_can_have_seven_instances_of_one_gpu():
    found = place(state([node("n", mig("G"))]), request(ask(8000, count=7)), ["n"])
    assert [(one.uuid, one.start) for one in found.gpus] == [("G", at) for at in (6, 5, 4, 3, 2, 1, 0)]
    assert only(state([node("n", mig("G"))]), request(ask(8000, count=8))).code == "SCHED_MIG_INFEASIBLE"


@pytest.mark.parametrize(
    ("memory", "profile", "start"),
    [(9728, "1g.10gb", 6), (9729, "2g.20gb", 0), (30000, "3g.40gb", 4), (80000, "7g.79gb", 0)],
)
def test_the_smallest_profile_with_enough_memory_is_taken(memory, profile, start):
    (one,) = place(state([node("n", mig("G"))]), request(ask(memory)), ["n"]).gpus
    assert (one.profile, one.start) == (profile, start)


def test_a_larger_profile_is_taken_if_the_smaller_one_has_no_free_place():
    small, _, large, _ = mig("x").profiles
    held = (HeldInstance(container_index=0, device="G", profile="1g.10gb", start=0, size=1),)
    made = state(
        [node("n", mig("G", profiles=(large, replace(small, placements=((0, 1),)))))],
        [holder("p", "n", share("G", 9728, 15), instances=held)],
    )
    (one,) = place(made, request(ask(8000)), ["n"]).gpus
    assert (one.profile, one.start) == ("3g.40gb", 4)


def test_a_place_of_another_instance_is_never_taken():
    held = (HeldInstance(container_index=0, device="G", profile="3g.40gb", start=4, size=4),)
    made = state([node("n", mig("G"))], [holder("p", "n", share("G", 40192, 43), instances=held)])
    assert [one.start for one in place(made, request(ask(8000, count=4)), ["n"]).gpus] == [3, 2, 1, 0]
    assert only(made, request(ask(8000, count=5))).code == "SCHED_MIG_INFEASIBLE"


# --- bad input --------------------------------------------------------------------------------------------------------


def test_impossible_requests_are_refused_and_nothing_breaks():
    made = state([node("n", gpu("G", slots=0, memory=0, cores=0)), node("m", gpu("H"))])
    for wanted in (ask(10**18), ask(1, count=10**18), ask(1, cores=10**18)):
        found = place(made, request(wanted), ["n", "m", "x"])
        assert len(found.nodes) == 3
        assert found.nodes[0].code
    assert place(made, request(), []).nodes == ()


def test_an_over_allocated_gpu_takes_nothing_and_shows_nothing_as_available():
    made = state([node("n", gpu("G", memory=4000 * MIB))], [holder("p", "n", share("G", 9000, 150))])
    verdict = only(made, request(ask(1)))
    assert verdict.message == "GPU memory insufficient (requested 1MB, available 0MB)"


def test_a_container_without_cores_does_not_fit_beside_one_that_takes_the_last_cores():
    made = state([node("n", gpu("G"))], [holder("h", "n", share("G", 1000, 50))])
    found = place(made, request(ask(1000, cores=50), ask(1000, index=1)), ["n"])
    assert [one.reason for one in found.nodes] == ["1/1 CardComputeUnitsExhausted"]
    assert place(made, request(ask(1000, cores=49), ask(1000, index=1)), ["n"]).node == "n"


def test_a_mig_instance_counts_against_the_quota_with_the_cores_of_its_profile():
    made = state([node("n", mig("G"), mig("H", 1))], quotas=[quota(gpucores=20)])
    wanted = request(ask(8000, count=2), ask(8000, index=1))
    assert [one.reason for one in place(made, wanted, ["n"]).nodes] == ["2/2 ResourceQuotaNotFit"]
