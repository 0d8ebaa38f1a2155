"""A GPU that a ResourceClaim holds is given to no pod, and is as full for the extender as for the exporter."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.logic import test_dra_index as drawn
from tests.logic.scheduler.worlds import ask, gpu, mig, node, request
from tests.paths import TESTS
from vgpuscope.formats.kube import dra
from vgpuscope.logic.cluster.state import ClusterState
from vgpuscope.logic.dra_devices import make_pool
from vgpuscope.logic.scheduler.fit import fit
from vgpuscope.logic.scheduler.place import place
from vgpuscope.logic.scheduler.state import SchedulerState
from vgpuscope.model.allocation import NodeState
from vgpuscope.model.cluster_event import (
    ClaimGone,
    ClaimSet,
    NodeGone,
    NodeSet,
    PodGone,
    PodSet,
    SliceGone,
    SliceSet,
)
from vgpuscope.model.quantity import MIB

FIXTURES = TESTS / "fixtures/dra"
FIRST, SECOND = "GPU-3f1c5a02-7c1e-4b6a-9d54-0d1f6a2b7c10", "GPU-a7d84b1e-52f0-46c9-8be3-9c7d1e5f2a34"
EVENTS: dict[str, tuple[Any, Any]] = {
    "node": (NodeSet, NodeGone),
    "pod": (PodSet, PodGone),
    "slice": (SliceSet, SliceGone),
    "claim": (ClaimSet, ClaimGone),
}


def recorded(file, *names):
    items = json.loads((FIXTURES / f"{file}.json").read_text())["items"]
    found = [one for one in items if not names or one["metadata"]["name"] in names]
    for one in found:
        one["metadata"].setdefault("uid", f"uid-{one['metadata']['name']}")
    return json.dumps({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": found}).encode()


def recorded_slices(*files):
    return [SliceSet(one) for file in files for one in dra.decode_slices(recorded(file)).items]


def recorded_claims(*names):
    return [ClaimSet(one) for one in dra.decode_claims(recorded("claims", *names)).items]


def applied(*events, into=SchedulerState):
    made = into()
    for event in events:
        made.apply(event)
    return made


HAMI = NodeSet(node("n1", gpu(FIRST, 0), gpu(SECOND, 1)))


def test_the_gpu_of_a_recorded_claim_is_refused_with_the_reason_and_the_other_is_given():
    state = applied(HAMI, *recorded_slices("nvidia_gpus"), *recorded_claims("whole"))
    assert [chosen.uuid for chosen in place(state, request(ask(1)), ["n1"]).gpus] == [SECOND]
    (verdict,) = place(state, request(ask(1, count=2)), ["n1"]).nodes
    assert (verdict.code, verdict.reason) == (
        "SCHED_EXCLUSIVE_CONFLICT",
        "1/2 AllocatedCardsInsufficientRequest, 1/2 CardHeldByClaim",
    )
    assert (verdict.message, verdict.message_zh) == (
        "GPU held by a ResourceClaim (1 of 2 GPUs)",
        "GPU 已被 ResourceClaim 占用（2 张 GPU 中 1 张）",
    )


def test_a_gpu_whose_memory_is_scaled_by_hami_is_not_shared_with_a_claim_either():
    twice = NodeSet(node("n1", gpu(FIRST, 0, memory=2 * 81920 * MIB, cores=200)))
    state = applied(twice, *recorded_slices("nvidia_gpus"), *recorded_claims("whole"))
    assert [one.reason for one in place(state, request(ask(1)), ["n1"]).nodes] == ["1/1 CardHeldByClaim"]


def test_of_a_gpu_that_claims_may_share_what_a_claim_consumes_is_used_and_the_rest_is_free():
    state = applied(HAMI, *recorded_slices("hami_core"), *recorded_claims("share"))
    (first, _) = state.node_info("n1").gpus
    assert (first.used, first.used_memory, first.used_cores, first.claimed) == (1, 10240, 50, False)
    assert place(state, request(ask(81920 - 10240, count=2, cores=50)), ["n1"]).node == "n1"
    assert not place(state, request(ask(81920 - 10239, count=2)), ["n1"]).node


@pytest.mark.parametrize("name", ["look", "waiting"])
def test_a_claim_for_administrators_or_without_an_allocation_holds_nothing(name):
    state = applied(HAMI, *recorded_slices("nvidia_gpus"), *recorded_claims(name))
    assert len(place(state, request(ask(81920, count=2, cores=100)), ["n1"]).gpus) == 2


def instance(start):
    return drawn.mig(start, gpu="GPU-0", parent="GPU-0")


def test_an_instance_that_a_claim_cut_leaves_only_other_places_of_a_gpu_that_hami_divides():
    made = (SliceSet(drawn.published(instance(6))), ClaimSet(drawn.claim(drawn.held("gpu-0-mig-6"))))
    state = applied(NodeSet(node("n1", mig("GPU-0"))), *made)
    (chosen,) = place(state, request(ask(9000)), ["n1"]).gpus
    assert (chosen.profile, chosen.start) == ("1g.10gb", 5)
    hami = applied(NodeSet(node("n1", gpu("GPU-0"))), *made)  # not divided: its processes would need the whole GPU
    assert [one.reason for one in place(hami, request(ask(1)), ["n1"]).nodes] == ["1/1 CardHeldByClaim"]


def test_an_instance_at_an_unknown_place_leaves_no_place():
    somewhere = SliceSet(drawn.published(drawn.mig(0, size=0)))
    state = applied(NodeSet(node("n1", mig("GPU-0"))), somewhere, ClaimSet(drawn.claim(drawn.held("gpu-0-mig-0"))))
    assert not place(state, request(ask(1)), ["n1"]).node


def test_a_pod_does_not_release_its_claim_when_it_is_placed_again_simulated_or_copied():
    using = drawn.pod("uid-new", on="n1")
    claim = ClaimSet(drawn.claim(drawn.held(), pods=("uid-new",)))
    shared = SliceSet(drawn.published(drawn.gpu(0, slots=10)))
    state = applied(NodeSet(node("n1", gpu("GPU-0"))), PodSet(using), shared, claim)
    whole = request(ask(81920))
    assert not place(state, whole, ["n1"]).node
    assert not place(
        state.with_nodes([NodeState(name="n1", devices=(gpu("GPU-0"),))], without="uid-new"), whole, ["n1"]
    ).node
    assert fit(state, whole).fitting == 0
    state.apply(ClaimGone("uid-c"))
    assert place(state, whole, ["n1"]).node == "n1"


def test_no_remedy_ends_or_moves_a_claim_that_no_pod_uses():
    free = NodeSet(NodeState(name="n2", devices=(gpu("GPU-9"),)))
    shared = SliceSet(drawn.published(drawn.gpu(0, slots=10)))
    state = applied(NodeSet(node("n1", gpu("GPU-0"))), free, shared, ClaimSet(drawn.claim(drawn.held(), pods=())))
    assert state.node_info("n1").gpus[0].used_memory == 81920
    assert state.holders("n1") == ()
    report = fit(state, request(ask(81920, count=1)), candidates=["n1"])
    assert not [one for one in report.remedies if one.kind in ("end", "move")]


def test_without_slices_and_claims_nothing_is_kept_of_them():
    state = applied(HAMI, *recorded_slices("nvidia_gpus"), *recorded_claims("whole"))
    for one in dra.decode_slices(recorded("nvidia_gpus")).items:
        state.apply(SliceGone(one.name))
    state.apply(ClaimGone("uid-whole"))
    fresh = applied(HAMI)
    assert (state._dra, state._gpus, state._shares, state._exclusive, state._uses) == (None, {}, {}, {}, {})
    assert vars(state).keys() == vars(fresh).keys()


# --- whatever happens -------------------------------------------------------------------------------------------------

registered = st.builds(
    lambda name, uuids: NodeState(name=name, devices=tuple(gpu(uuid, index) for index, uuid in enumerate(uuids))),
    st.sampled_from(drawn.NODES),
    st.lists(st.sampled_from(("GPU-0", "GPU-1")), max_size=2, unique=True),
)
beginnings = st.builds(  # a world in which each event that follows meets something
    lambda slots, pods, memory: [
        ("node", NodeState(name="n1", devices=(gpu("GPU-0"), gpu("GPU-1", 1))), "set"),
        ("slice", drawn.published(drawn.gpu(0, slots=slots), drawn.gpu(1)), "set"),
        ("claim", drawn.claim(drawn.held(memory=memory), pods=pods), "set"),
        *(("pod", drawn.pod(uid), "set") for uid in drawn.PODS),
    ],
    st.sampled_from((1, 100)),
    st.sets(st.sampled_from((*drawn.PODS, "gone"))).map(lambda found: tuple(sorted(found))),
    st.sampled_from((None, 3 * MIB)),
)
histories = st.builds(
    lambda first, rest: [*first, *rest],
    beginnings,
    st.lists(drawn.events | st.tuples(st.just("node"), registered, st.just("set")), max_size=20),
)


def replayed(history):
    states = (SchedulerState(), ClusterState())
    left: dict[str, dict] = {kind: {} for kind in EVENTS}
    for kind, state, action in history:
        key, (is_set, is_gone) = getattr(state, drawn.KEYS[kind]), EVENTS[kind]
        for made in states:
            made.apply(is_set(state) if action == "set" else is_gone(key))
        left[kind].pop(key, None)
        if action == "set":
            left[kind][key] = state
    return *states, left


def exclusively_held(left):
    """The GPUs that claims hold and do not share, from all objects that are left: (node, UUID)."""
    pools: dict = {}
    for one in left["slice"].values():
        pools.setdefault((one.driver, one.pool), []).append(one)
    known = {key: make_pool(key, slices).devices for key, slices in pools.items()}
    for claim in left["claim"].values():
        for one in claim.devices:
            device, of = known.get((one.driver, one.pool), {}).get(one.device, (None, None))
            if device is not None and device.node and (device.part or device.slots == 1):
                yield device.node, of.registered.id


@settings(max_examples=5 * settings.default.max_examples)
@given(histories, st.randoms())
def test_extender_and_exporter_count_the_same_of_each_gpu_and_no_held_gpu_is_given(history, random):
    scheduler, exporter, left = replayed(history)
    held = set(exclusively_held(left))
    for name, info in scheduler.node_infos().items():
        ledger = {one.device.id: one for one in exporter.node(name).devices}
        for one in info.gpus:
            of = ledger[one.id]
            assert (one.used, one.used_cores) == (of.shared, of.cores_allocated)
            assert 0 <= of.memory_allocated - one.used_memory * MIB < max(1, of.shared) * MIB  # each is rounded down
            assert one.claimed == ((name, one.id) in held)
        given_ = place(scheduler, request(ask(0), name="new"), [name]).gpus
        assert not {(name, one.uuid) for one in given_} & held
    rest = [(kind, state, "set") for kind, states in left.items() for state in states.values()]
    random.shuffle(rest)
    again = replayed(rest)[0]
    assert (again._exclusive, again._shares, again._at) == (scheduler._exclusive, scheduler._shares, scheduler._at)
    assert {name: vars_of(one) for name, one in again.node_infos().items()} == {
        name: vars_of(one) for name, one in scheduler.node_infos().items()
    }


def vars_of(info):
    return [(one.id, one.used, one.used_memory, one.used_cores, one.placed, one.claimed) for one in info.gpus]
