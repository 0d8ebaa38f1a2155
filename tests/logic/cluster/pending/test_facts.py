"""The numbers behind a refusal. HAMi's own scheduler refused these pods on these nodes, in this order; see SOURCE."""

import pytest

from tests.logic.cluster.builders import GIB, asks, device, given, instance, ledger, node, node_names, pod, quota
from tests.logic.cluster.languages import english
from tests.logic.cluster.test_decisions import DECISIONS, place, start
from vgpuscope.formats.scheduler_messages.reasons import reasons
from vgpuscope.logic.cluster.pending.facts import explain, facts
from vgpuscope.model.allocation import OfferedResource, PodState
from vgpuscope.model.cluster import NamespaceLedger
from vgpuscope.model.pending import PendingPod, Said
from vgpuscope.model.scheduling_codes import CODES, Reason

GPU = "nvidia.com/gpu"
MEMORY, CORES, COUNT = (f"SCHED_INSUFFICIENT_GPU_{what}" for what in ("MEMORY", "CORES", "COUNT"))
QUOTA = "SCHED_QUOTA_EXCEEDED"


def waiting(*said, namespace="ml", asking=1, claims=(), **requests):
    named = {GPU if name == "gpu" else f"nvidia.com/{name.replace('_', '-')}": n for name, n in requests.items()}
    return PendingPod(
        namespace=namespace,
        pod="train",
        pod_uid="u",
        scheduler="hami-scheduler",
        requests=named,
        asking=asking,
        claims=claims,
        code=said[0].code if said else "SCHED_NOT_TRIED",
        said=tuple(Said(reason=one, component="hami-scheduler") for one in said),
    )


def reason(code, *nodes):
    return Reason(code=code, nodes=nodes, node_count=len(nodes) or None, detail=code.lower())


def told(asks, made):
    names = sorted(node_names(made))
    found = facts(asks, names, node_of=made.node, namespace=made.namespace(asks.namespace))
    return {code: tuple(map(english, lines)) for code, lines in found.items()}


# --- as HAMi decided --------------------------------------------------------------------------------------------------


def decided(scenario):
    """The pod of a recorded refusal as it waits, and the ledger before it."""
    made = start()
    for decision in DECISIONS:
        wanted = decision["input"]
        if decision["scenario"] == scenario:
            heard = [text.split(": ", 1)[1] for text in decision["events"]]
            said = [one for text in heard for one in reasons("hami-scheduler", "FilteringFailed", text)]
            (limits,) = [one["limits"] for one in wanted["containers"]]
            asked = {name.removeprefix("nvidia.com/"): amount for name, amount in limits.items()}
            return waiting(*said, namespace=wanted["namespace"], **asked), made
        place(made, decision)
    raise AssertionError(scenario)


def test_a_quota_that_is_exceeded_is_told_with_what_is_used_the_limit_and_the_request():
    asks, made = decided("quota_exceeded")
    assert told(asks, made)[QUOTA] == (
        "Quota quota of namespace team-q: nvidia.com/gpumem 0 of 10000 MiB used; the pod asks for 12000 MiB: "
        "2000 MiB too much.",
    )


def test_memory_that_is_missing_is_told_by_node_and_gpu():
    asks, made = decided("too_much_memory")
    assert told(asks, made)[MEMORY] == (
        "node-a: GPU 0 has the most free memory, 76.1 GiB of 80.0 GiB; the pod asks for 97.7 GiB: 21.6 GiB missing.",
        "node-b: GPU 0 has the most free memory, 37.1 GiB of 80.0 GiB; the pod asks for 97.7 GiB: 60.6 GiB missing.",
        "node-c: GPU 0 has the most free memory, 0 of 15.0 GiB; the pod asks for 97.7 GiB: 97.7 GiB missing.",
    )


def test_cores_that_are_missing_are_told_by_node_and_gpu():
    asks, made = decided("exclusive_core_100_conflict")
    assert told(asks, made)[CORES] == (
        "node-b: GPU 0 has the most free cores, 85% of 100%; the pod asks for 100%, which needs a GPU without tenants: "
        "15% missing.",
    )


def test_gpus_that_are_missing_are_told_by_node():
    asks, made = decided("too_many_cards")
    said = waiting(reason(COUNT, "node-a", "node-c"), gpu=asks.requests[GPU], gpumem=1000)
    assert told(said, made)[COUNT] == (
        "node-a: 2 of 2 GPUs have room for 1000 MiB; the pod asks for 4: 2 missing.",
        "node-c: 0 of 1 GPU has room for 1000 MiB; the pod asks for 4: 4 missing.",
    )


@pytest.mark.parametrize("scenario", ["type_mismatch", "uuid_mismatch"])
def test_a_wish_that_no_gpu_meets_is_told_with_what_there_is(scenario):
    asks, made = decided(scenario)
    (lines,) = [lines for code, lines in told(asks, made).items() if "MISMATCH" in code]
    assert [line.partition(":")[0] for line in lines] == ["node-a", "node-b", "node-c"]
    assert ("NVIDIA-Tesla T4" if scenario == "type_mismatch" else "GPU-cccccccc-0000") in lines[2]


# --- quotas -----------------------------------------------------------------------------------------------------------

HELD = pod("p", given("GPU-0", 74 * GIB, 60))
ONE = ledger([node(device())], [HELD], [quota(gpumem=80 * 1024, gpucores=100)])


def test_of_several_limits_the_one_that_is_exceeded_is_told():
    (line,) = told(waiting(reason(QUOTA), gpu=1, gpumem=1024, gpucores=50), ONE)[QUOTA]
    assert line == "Quota q of namespace ml: nvidia.com/gpucores 60 of 100 used; the pod asks for 50: 10 too much."


def test_what_is_asked_for_on_each_of_several_gpus_counts_as_often():
    (line,) = told(waiting(reason(QUOTA), gpu=2, gpumem=4096), ONE)[QUOTA]
    assert "75776 of 81920 MiB used; the pod asks for 8192 MiB: 2048 MiB too much." in line


def test_what_several_containers_ask_for_is_at_least_the_sum():
    (line,) = told(waiting(reason(QUOTA), gpu=3, gpumem=8192, asking=2), ONE)[QUOTA]
    assert "the pod asks for at least 8192 MiB: 2048 MiB too much." in line


def test_a_quota_that_would_do_now_is_told_so():
    (_, memory) = told(waiting(reason(QUOTA), gpu=1, gpumem=1024, gpucores=10), ONE)[QUOTA]
    assert memory.endswith("75776 of 81920 MiB used; the pod asks for 1024 MiB, which fits now.")


def test_without_a_quota_that_we_know_nothing_is_told():
    assert told(waiting(reason(QUOTA), gpu=1, gpumem=1024), ledger([node(device())])) == {}


# --- devices ----------------------------------------------------------------------------------------------------------


def test_where_no_node_is_named_all_with_such_gpus_are_looked_at_the_best_first_and_not_too_many():
    held = [pod(f"p{n}", given(f"GPU-{n}", (70 + n) * GIB), on=f"n{n}") for n in range(8)]
    made = ledger([*(node(device(f"GPU-{n}"), name=f"n{n}") for n in range(8)), node(name="cpu")], held)
    *lines, rest = told(waiting(reason(MEMORY), gpu=1, gpumem=20480), made)[MEMORY]
    assert [line[:3] for line in lines] == ["n0:", "n1:", "n2:", "n3:", "n4:"]
    assert rest == "3 more nodes have less."


def test_a_reason_without_names_is_not_about_nodes_that_another_reason_names():
    made = ledger([node(device(), name="a"), node(device("GPU-1"), name="b"), node(name="cpu")])
    found = told(waiting(reason(QUOTA, "a"), reason(COUNT), gpu=2), made)
    assert [line.partition(":")[0] for line in found[COUNT]] == ["b"]


def test_more_free_memory_than_the_gpu_has_is_explained():
    made = ledger([node(device(memory=160 * GIB, physical=80 * GIB))], [HELD])
    (line,) = told(waiting(reason(MEMORY, "n1"), gpu=1, gpumem=100 * 1024), made)[MEMORY]
    assert line == (
        "n1: GPU 0 has the most free memory, 86.0 GiB of 160.0 GiB with memory scaling ×2; the pod asks for 100.0 GiB: "
        "14.0 GiB missing."
    )


def test_two_sizes_that_are_almost_the_same_are_told_apart():
    (line,) = told(waiting(reason(MEMORY, "n1"), gpu=1, gpumem=6150), ONE)[MEMORY]
    assert "6144 MiB of 81920 MiB; the pod asks for 6150 MiB: 6 MiB missing." in line


def test_room_that_is_there_now_is_told_so():
    (line,) = told(waiting(reason(MEMORY, "n1"), gpu=1, gpumem=1024), ONE)[MEMORY]
    assert line.endswith("the pod asks for 1.0 GiB, which fits now.")


def test_a_pod_that_names_no_memory_wants_a_gpus_whole_memory_by_hamis_default():
    (line,) = told(waiting(reason(MEMORY, "n1"), gpu=1), ONE)[MEMORY]
    assert line == (
        "n1: GPU 0 has the most free memory, 6.0 GiB of 80.0 GiB; the pod names no amount, so HAMi allocates "
        "a whole GPU by default."
    )


def test_a_share_of_the_memory_is_that_of_each_gpu():
    (line,) = told(waiting(reason(MEMORY, "n1"), gpu=1, gpumem_percentage=50), ONE)[MEMORY]
    assert "the pod asks for 40.0 GiB: 34.0 GiB missing." in line


def test_a_node_on_which_nothing_can_be_placed_says_so():
    full = ledger([node(device(slots=1))], [HELD])
    assert told(waiting(reason(MEMORY, "n1"), gpu=1, gpumem=1), full)[MEMORY] == (
        "n1: no GPU in service has a free slot.",
    )
    assert told(waiting(reason(MEMORY, "cpu"), gpu=1, gpumem=1), ledger([node(name="cpu")]))[MEMORY] == (
        "cpu: registers no GPU.",
    )


def test_slots_are_counted():
    full = ledger([node(device(slots=1), device("GPU-1", 1, slots=2))], [HELD])
    assert told(waiting(reason("SCHED_SLOTS_EXHAUSTED", "n1"), gpu=1), full)["SCHED_SLOTS_EXHAUSTED"] == (
        "n1: 1 of 3 slots used on 2 GPUs.",
    )


def test_who_shares_the_gpus_that_should_be_exclusive_is_counted():
    code = "SCHED_EXCLUSIVE_CONFLICT"
    made = ledger([node(device(), device("GPU-1", 1))], [HELD])
    assert told(waiting(reason(code, "n1"), gpu=1, gpucores=100), made)[code] == (
        "n1: 1 of 2 GPUs has no tenant; GPU 0 has 1.",
    )


@pytest.mark.parametrize(
    ("code", "gpu", "line"),
    [
        ("SCHED_DEVICE_UNHEALTHY", {"healthy": False}, "n1: GPU 1 (GPU-1) is unhealthy."),
        ("SCHED_DEVICE_CORDONED", {"cordoned": True}, "n1: GPU 1 (GPU-1) is cordoned."),
        ("SCHED_MODE_MISMATCH", {"mode": "mig"}, "n1: GPU 0 is hami-core, GPU 1 is mig."),
    ],
)
def test_gpus_that_keep_the_pod_away_are_named(code, gpu, line):
    made = ledger([node(device(), device("GPU-1", 1, **gpu)), node(device("GPU-2"), name="n2")])
    assert line in told(waiting(reason(code), gpu=1), made)[code]


def test_a_mig_gpu_says_what_is_held_and_free():
    code = "SCHED_MIG_INFEASIBLE"
    held = pod("p", given("GPU-0", 10 * GIB), instances=(instance(),))
    made = ledger([node(device(mode="mig"))], [held])
    assert told(waiting(reason(code, "n1"), gpu=1), made)[code] == (
        "n1: GPU 0 holds 1 MIG instance, 70.0 GiB of 80.0 GiB free.",
    )


@pytest.mark.parametrize(
    ("code", "state", "line"),
    [
        ("SCHED_NODE_NOT_READY", {"ready": False}, "n1 is not ready."),
        ("SCHED_NODE_UNSCHEDULABLE", {"schedulable": False}, "n1 is cordoned."),
    ],
)
def test_nodes_that_take_no_pods_are_named_where_they_have_gpus(code, state, line):
    made = ledger([node(device(), **state), node(name="cpu", **state), node(device("GPU-2"), name="n2")])
    assert told(waiting(reason(code), gpu=1), made)[code] == (line,)


def test_claims_are_named():
    code = "SCHED_DRA_UNALLOCATABLE"
    found = told(waiting(reason(code), claims=("eval-h100", "other")), ledger([]))
    assert found[code] == ("ResourceClaims of the pod: eval-h100, other.",)


# --- nodes without HAMi -----------------------------------------------------------------------------------------------


def test_counted_gpus_are_told_with_how_many_are_free():
    offers = (OfferedResource(resource=GPU, mode="whole", capacity=4, allocatable=4),)
    user = PodState(uid="x", namespace="ml", name="x", node="plain", asks=asks({GPU: 3}))
    made = ledger([node(name="plain", offers=offers)], [user])
    assert told(waiting(reason(COUNT), gpu=2), made)[COUNT] == (
        "plain: 1 of 4 nvidia.com/gpu free; the pod asks for 2: 1 missing.",
    )


def test_mig_instances_are_told_by_their_own_resource():
    resource = "nvidia.com/mig-1g.10gb"
    offers = (OfferedResource(resource=resource, mode="mig", capacity=7, allocatable=6),)
    made = ledger([node(name="plain", offers=offers), node(name="cpu")])
    asks = waiting(reason("SCHED_MIG_INFEASIBLE"), **{"mig-1g.10gb": 7})
    assert told(asks, made)["SCHED_MIG_INFEASIBLE"] == (
        "plain: 6 of 7 nvidia.com/mig-1g.10gb free; the pod asks for 7: 1 missing.",
    )


# --- what to do -------------------------------------------------------------------------------------------------------


def runbook(asks, code, **more):
    return explain(asks, **more)[code].runbook


def test_what_to_do_has_the_names_filled_in():
    assert "resourcequota -n team-q`" in runbook(waiting(reason(QUOTA), namespace="team-q"), QUOTA)
    taint = "SCHED_TAINT"
    assert "`kubectl describe node gpu-1 gpu-2`" in runbook(waiting(reason(taint, "gpu-1", "gpu-2")), taint)
    assert "`kubectl describe nodes`" in runbook(waiting(reason(taint)), taint)
    assert "`kubectl uncordon gpu-1`" in runbook(
        waiting(reason("SCHED_NODE_UNSCHEDULABLE", "gpu-1")), "SCHED_NODE_UNSCHEDULABLE"
    )
    assert "hami-scheduler" in runbook(waiting(), "SCHED_NOT_TRIED")
    assert "`kubectl get pod train -n ml -o yaml`" in runbook(waiting(reason("SCHED_GATED")), "SCHED_GATED")


@pytest.mark.parametrize("code", [one.code for one in CODES])
@pytest.mark.parametrize("nodes", [("gpu-1",), ()])
def test_no_advice_leaves_a_name_for_the_reader_to_fill_in(code, nodes):
    asks = waiting(reason(code, *nodes))
    for text in (explain(asks)[code].meaning, runbook(asks, code)):
        assert text
        assert not {"NAMESPACE", "POD", "NODE", "SCHEDULER", "LABEL"} & set(text.replace("`", " ").split())


def test_nothing_is_told_of_a_pod_that_has_no_reason():
    assert facts(waiting(gpu=1), [], node_of=lambda _: None, namespace=NamespaceLedger(name="ml")) == {}
