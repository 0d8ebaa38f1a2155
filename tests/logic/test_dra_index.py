from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.logic.cluster.builders import GIB, MIB, device, ledger
from tests.logic.cluster.builders import given as assigned
from vgpuscope.logic.dra_index import DraIndex
from vgpuscope.logic.dra_joins import joined_node, joined_pod
from vgpuscope.model.allocation import HeldInstance, NodeState, PodState
from vgpuscope.model.dra import ClaimedDevice, ClaimState, DraDevice, SliceState

DRIVER = "gpu.nvidia.com"


class Joined:
    """Nodes and pods, and what the book adds to them."""

    def __init__(self):
        self._nodes: dict = {}
        self._pods: dict = {}
        self._gpus: dict = {}
        self._shares: dict = {}
        self.told = 0
        self.book = DraIndex(
            keep_gpus=lambda name, gpus: self._put(self._gpus, name, gpus),
            keep_share=lambda uid, share: self._put(self._shares, uid, share),
            keep_pod=lambda pod: self._put(self._pods, pod.uid, pod),
            drop_pod=lambda uid: self._pods.pop(uid, None),
        )

    def _put(self, where, key, value):
        where[key] = value
        self.told += 1

    def set_node(self, node):
        self._nodes[node.name] = node

    def drop_node(self, name):
        self._nodes.pop(name, None)

    def set_pod(self, pod):
        self._pods[pod.uid] = pod
        self.book.set_pod(pod)

    def drop_pod(self, uid):
        self._pods.pop(uid, None)
        self.book.drop_pod(uid)

    def __getattr__(self, name):
        """Slices and claims are the book's alone."""
        return getattr(self.book, name)

    @property
    def nodes(self):
        return {name: joined_node(node, self._gpus.get(name, ())) for name, node in self._nodes.items()}

    @property
    def pods(self):
        return {uid: joined_pod(pod, self._shares.get(uid)) for uid, pod in self._pods.items()}

    @property
    def state(self):
        return self.nodes, self.pods, self.book.unplaced


def joined(nodes=(), pods=(), slices=(), claims=()):
    made = Joined()
    for kind, objects in (("node", nodes), ("pod", pods), ("slice", slices), ("claim", claims)):
        for one in objects:
            getattr(made, f"set_{kind}")(one)
    return made


def node(name="n1", *devices, **more):
    return NodeState(name=name, devices=devices, **more)


def gpu(number=0, **more):
    uuid = more.pop("uuid", f"GPU-{number}")
    defaults = {"node": "n1", "memory": 80 * GIB, "type": "A100", "index": number, "processors": 98}
    return DraDevice(name=f"gpu-{number}", gpu=more.pop("gpu", uuid or f"gpu-{number}"), uuid=uuid, **defaults | more)


def mig(start=0, *, gpu="GPU-0", parent="GPU-0", **more):
    defaults: dict[str, Any] = {
        "node": "n1",
        "memory": 10 * GIB,
        "type": "A100",
        "profile": "1g.10gb",
        "processors": 14,
        "size": 1,
    }
    return DraDevice(name=f"gpu-0-mig-{start}", gpu=gpu, part=True, parent=parent, start=start, **defaults | more)


def published(*devices, name="s1", driver=DRIVER, pool="n1", generation=1):
    return SliceState(name=name, driver=driver, pool=pool, generation=generation, devices=devices)


def held(name="gpu-0", *, driver=DRIVER, pool="n1", **more):
    return ClaimedDevice(driver=driver, pool=pool, device=name, **more)


def claim(*devices, name="c", pods=("a",), node="n1"):
    return ClaimState(uid=f"uid-{name}", namespace="ml", name=name, node=node, devices=devices, pods=pods)


def pod(uid="a", *, on="n1", claims=("c",), **more):
    return PodState(
        uid=uid, namespace="ml", name=uid, node=on, claims=claims, phase=more.pop("phase", "Running"), **more
    )


def gpus(made, name="n1"):
    return {one.id: one for one in made.nodes[name].devices}


def holdings(made, uid="a"):
    return [(one.device, one.memory, one.cores) for one in made.pods[uid].assignments]


def settled(made, *, passed=0.0):
    """The ledger over what was joined."""
    found = ledger(made.nodes.values(), made.pods.values(), patience=300.0)
    found.pass_time(0.0)
    found.pass_time(passed)
    return found.node("n1")


def kinds(of):
    return [(one.kind, one.reason) for one in of.findings]


# --- GPUs ------------------------------------------------------------------------------------------------------------


def test_a_published_gpu_is_one_of_the_nodes_devices():
    made = joined([node()], slices=[published(gpu(0), gpu(1))])
    one = gpus(made)["GPU-1"]
    assert list(gpus(made)) == ["GPU-0", "GPU-1"]
    assert (one.vendor, one.mode, one.slots, one.memory, one.cores) == (DRIVER, "dra", 1, 80 * GIB, 100)
    assert (one.type, one.index, one.healthy, one.cordoned) == ("A100", 1, True, False)


def test_a_gpu_that_hami_registered_too_is_one_gpu_as_hami_says():
    ours = device("GPU-0", slots=10, memory=160 * GIB)
    made = joined([node("n1", ours)], [pod()], [published(gpu(0))], [claim(held())])
    assert made.nodes["n1"].devices == (ours,)
    both = pod(assignments=(assigned("GPU-0"),), assigned_node="n1")
    made.set_pod(both)
    assert [device for device, *_ in holdings(made)] == ["GPU-0", "GPU-0"]


def test_a_gpu_without_a_uuid_is_known_by_where_it_is():
    made = joined([node()], slices=[published(gpu(0, uuid=""))])
    assert list(gpus(made)) == ["gpu.nvidia.com/n1/gpu-0"]


def test_only_the_newest_generation_of_a_pool_counts():
    old, new = published(gpu(0), gpu(1)), published(gpu(0), name="s2", generation=2)
    made = joined([node()], slices=[new, old])
    assert list(gpus(made)) == ["GPU-0"]
    made.drop_slice("s2")
    assert list(gpus(made)) == ["GPU-0", "GPU-1"]


def test_a_pool_in_several_slices_has_the_devices_of_all():
    made = joined([node()], slices=[published(gpu(0)), published(gpu(1), name="s2")])
    assert list(gpus(made)) == ["GPU-0", "GPU-1"]


def test_a_device_that_two_slices_name_is_the_same_one_whichever_came_first():
    twice = [published(gpu(0, memory=GIB)), published(gpu(0, memory=2 * GIB), name="s2")]
    assert joined([node()], slices=twice).state == joined([node()], slices=twice[::-1]).state


def test_devices_on_no_node_in_particular_are_left_out_and_counted():
    made = joined([node()], [pod()], [published(gpu(0), gpu(1, node=""))], [claim(held("gpu-1"), held("gpu-0"))])
    assert (list(gpus(made)), made.book.unplaced) == (["GPU-0"], 1)
    assert [one for one, *_ in holdings(made)] == ["GPU-0"]


def test_a_gpu_is_lost_only_when_everything_made_of_it_is():
    half = joined([node()], slices=[published(mig(0, healthy=False), mig(1))])
    sick = joined([node()], slices=[published(mig(0, healthy=False), mig(1, healthy=False))])
    kept = joined([node()], slices=[published(mig(0, healthy=False), mig(1, cordoned=True))])
    states = [(one.healthy, one.cordoned) for made in (half, sick, kept) for one in gpus(made).values()]
    assert states == [(True, False), (False, False), (True, True)]


# --- what is held -----------------------------------------------------------------------------------------------------


def test_a_pod_holds_the_whole_gpu_that_its_claim_does():
    made = joined([node()], [pod()], [published(gpu(0))], [claim(held())])
    assert holdings(made) == [("GPU-0", 80 * GIB, 100)]
    one = settled(made)
    assert (one.devices[0].memory_allocated, one.devices[0].slots_free, one.findings) == (80 * GIB, 0, ())
    assert [(holder.pod, holder.vendor) for holder in one.holders] == [("a", DRIVER)]


def test_of_a_shared_gpu_a_pod_holds_what_its_claim_consumes():
    shared = gpu(0, cores=100, slots=100)
    claims = [claim(held(memory=10 * GIB, cores=50)), claim(held(memory=4 * GIB), name="d", pods=("b",))]
    made = joined([node()], [pod(), pod("b", claims=("d",))], [published(shared)], claims)
    assert holdings(made) == [("GPU-0", 10 * GIB, 50)]
    assert holdings(made, "b") == [("GPU-0", 4 * GIB, 0)]
    assert settled(made).devices[0].memory_free == 66 * GIB


def test_units_of_a_driver_become_percent():
    made = joined([node()], [pod()], [published(gpu(0, cores=1000, slots=100))], [claim(held(cores=255))])
    assert holdings(made) == [("GPU-0", 80 * GIB, 26)]


def test_pods_that_share_a_claim_have_together_what_it_holds():
    made = joined([node()], [pod("a"), pod("b"), pod("d")], [published(gpu(0))], [claim(held(), pods=("a", "b", "d"))])
    shares = [holdings(made, uid)[0] for uid in ("a", "b", "d")]
    assert (sum(one[1] for one in shares), sum(one[2] for one in shares)) == (80 * GIB, 100)
    assert (gpus(made)["GPU-0"].slots, settled(made).findings) == (3, ())
    made.set_pod(pod("b", phase="Succeeded"))
    made.drop_pod("d")
    assert (holdings(made), gpus(made)["GPU-0"].slots) == ([("GPU-0", 80 * GIB, 100)], 1)
    assert holdings(made, "b") == []


def test_a_pod_that_ends_leaves_its_part_to_the_others():
    made = joined([node()], [pod("a"), pod("b")], [published(gpu(0))], [claim(held(), pods=("a", "b"))])
    made.set_pod(pod("b", phase="Failed"))
    assert (holdings(made), holdings(made, "b")) == ([("GPU-0", 80 * GIB, 100)], [])


def test_a_pod_that_a_claim_is_no_longer_reserved_for_holds_nothing():
    made = joined([node()], [pod("a"), pod("b")], [published(gpu(0))], [claim(held(), pods=("a", "b"))])
    made.set_claim(claim(held(), pods=("b",)))
    assert (holdings(made), holdings(made, "b")) == ([], [("GPU-0", 80 * GIB, 100)])


def test_a_claim_that_moves_to_another_gpu_leaves_the_first_as_it_was():
    made = joined([node()], [pod("a"), pod("b")], [published(gpu(0), gpu(1))], [claim(held(), pods=("a", "b"))])
    made.set_claim(claim(held("gpu-1"), pods=("a", "b")))
    assert [one.slots for one in gpus(made).values()] == [1, 2]


def test_an_unbound_pod_holds_its_gpu_where_the_gpu_is():
    made = joined([node()], [pod(on="")], [published(gpu(0))], [claim(held())])
    assert made.pods["a"].place == "n1"
    assert kinds(settled(made)) == []


def test_a_claim_that_is_reserved_for_another_pod_gives_nothing():
    made = joined([node()], [pod("a"), pod("b")], [published(gpu(0))], [claim(held(), pods=("b",))])
    assert (holdings(made, "a"), len(holdings(made, "b"))) == ([], 1)


def test_a_claim_that_is_released_frees_its_gpu():
    made = joined([node()], [pod()], [published(gpu(0))], [claim(held())])
    made.drop_claim("uid-c")
    assert (holdings(made), settled(made).devices[0].shared) == ([], 0)


# --- parts of GPUs ---------------------------------------------------------------------------------------------------


def test_a_gpu_that_was_cut_for_good_is_one_gpu_of_its_parts():
    made = joined([node()], [pod()], [published(mig(0, uuid="MIG-a"), mig(1), mig(2))], [claim(held("gpu-0-mig-0"))])
    one = gpus(made)["GPU-0"]
    assert (len(gpus(made)), one.mode, one.slots, one.memory) == (1, "mig", 3, 30 * GIB)
    assert holdings(made) == [("GPU-0", 10 * GIB, 0)]
    instance = HeldInstance(container_index=0, device="GPU-0", profile="1g.10gb", start=0, size=1, mig="MIG-a")
    assert made.pods["a"].instances == (instance,)


def test_parts_that_a_gpu_could_be_cut_into_are_no_gpus():
    parts = [mig(start, gpu="counters-0") for start in range(7)]
    made = joined([node()], [pod()], [published(gpu(0, gpu="counters-0"), *parts)])
    one = gpus(made)["GPU-0"]
    assert (len(gpus(made)), one.mode, one.slots, one.memory) == (1, "dra", 7, 80 * GIB)
    assert settled(made).capacity.whole_cards == 1


def test_a_gpu_is_in_mig_mode_while_a_part_of_it_is_held():
    parts = [mig(start, gpu="counters-0") for start in range(7)]
    made = joined(
        [node()],
        [pod()],
        [published(gpu(0, gpu="counters-0"), *parts)],
        [claim(held("gpu-0-mig-3"), held("gpu-0-mig-4"))],
    )
    assert gpus(made)["GPU-0"].mode == "mig"
    assert holdings(made) == [("GPU-0", 10 * GIB, 14), ("GPU-0", 10 * GIB, 14)]
    assert [(one.start, one.size) for one in made.pods["a"].instances] == [(3, 1), (4, 1)]
    assert settled(made).capacity.whole_cards == 0
    made.set_claim(claim(held("gpu-0")))
    assert (gpus(made)["GPU-0"].mode, holdings(made)) == ("dra", [("GPU-0", 80 * GIB, 100)])


def test_partitions_without_uuids_are_one_gpu_by_their_address():
    parts = [mig(start, gpu="0000:19:00.0", parent="") for start in range(2)]
    made = joined([node()], slices=[published(*parts, driver="gpu.amd.com")])
    assert list(gpus(made)) == ["gpu.amd.com/n1/0000:19:00.0"]


def test_an_instance_that_several_pods_share_is_shown_once():
    made = joined([node()], [pod("a"), pod("b")], [published(mig(0))], [claim(held("gpu-0-mig-0"), pods=("a", "b"))])
    assert len(made.pods["a"].instances + made.pods["b"].instances) == 1


# --- what does not add up ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pods", [(), ("gone",), ("ended",)])
def test_a_claim_that_no_living_pod_uses_holds_its_gpu_and_is_a_ghost_in_time(pods):
    ended = pod("ended", phase="Succeeded")
    made = joined([node()], [ended], [published(gpu(0))], [claim(held(), pods=pods)])
    assert settled(made).devices[0].memory_allocated == 80 * GIB
    assert kinds(settled(made, passed=299)) == []
    (finding,) = settled(made, passed=300).findings
    assert (finding.kind, finding.reason, finding.pod) == ("ghost", "unused", "resourceclaim/c")
    made.set_pod(pod("late"))
    made.set_claim(claim(held(), pods=("late",)))
    assert (kinds(settled(made, passed=300)), set(made.pods)) == ([], {"ended", "late"})


def test_a_gpu_that_a_driver_no_longer_publishes_has_vanished_while_held():
    made = joined([node()], [pod()], [published(gpu(0), gpu(1))], [claim(held("gpu-1"))])
    made.set_slice(published(gpu(0), generation=2))
    (finding,) = settled(made).findings
    assert (finding.kind, finding.device, finding.pod) == ("vanished-device", "gpu.nvidia.com/n1/gpu-1", "a")


def test_a_vanished_gpu_that_no_pod_uses_is_where_its_claim_was_allocated():
    made = joined([node()], [], [published(gpu(0))], [claim(held("gpu-1"), pods=())])
    assert kinds(settled(made)) == [("vanished-device", "")]


def test_of_a_driver_with_few_gpus_only_those_we_know_are_ours():
    some = {"driver": "cards.example.com"}
    made = joined([node()], [pod()], [published(gpu(0), **some)], [claim(held("nic-0", **some), held("gpu-0", **some))])
    assert [one for one, *_ in holdings(made)] == ["GPU-0"]


def test_without_any_slice_of_a_driver_nothing_is_said_to_have_vanished():
    made = joined([node(), node("n2")], [pod()], [], [claim(held())])
    assert holdings(made) == []
    made.set_slice(published(gpu(0, node="n2"), pool="n2", name="other"))
    assert len(holdings(made)) == 1
    made.drop_slice("other")
    assert holdings(made) == []


def test_devices_of_other_drivers_are_none_of_our_business():
    made = joined([node()], [pod()], [published(gpu(0))], [claim(held("nic-0", driver="dra.net", pool="n1"))])
    assert (holdings(made), set(made.pods)) == ([], {"a"})


def test_the_kubelets_own_counter_says_nothing_of_published_gpus():
    made = joined([node(allocatable={"nvidia.com/gpu": 0})], slices=[published(gpu(0))])
    assert (settled(made).devices[0].lost, settled(made).findings) == (None, ())


# --- whatever happens -------------------------------------------------------------------------------------------------

NODES, PODS = ("n1", "n2"), ("a", "b")
DRIVERS = (DRIVER, DRIVER, DRIVER, "gpu.amd.com")  # events that meet the same objects are those that can go wrong
device_states = st.one_of(
    st.builds(gpu, st.integers(0, 1), node=st.sampled_from((*NODES, "")), slots=st.sampled_from((1, 100))),
    st.builds(mig, st.integers(0, 1), node=st.sampled_from(NODES), uuid=st.sampled_from(("", "MIG-0"))),
)
node_states = st.builds(
    lambda name, devices, ready: node(name, *devices, ready=ready),
    st.sampled_from(NODES),
    st.lists(st.sampled_from(("GPU-0", "GPU-9")).map(device), max_size=2),
    st.booleans(),
)
pod_states = st.builds(
    pod,
    st.sampled_from(PODS),
    on=st.sampled_from((*NODES, "")),
    claims=st.sampled_from(((), ("c",), ("c",))),
    phase=st.sampled_from(("Running", "Pending", "Succeeded")),
)
slice_states = st.builds(
    lambda devices, **more: published(*devices, **more),
    st.lists(device_states, max_size=3, unique_by=lambda one: one.name),
    name=st.sampled_from(("s1", "s2", "s3")),
    driver=st.sampled_from(DRIVERS),
    pool=st.sampled_from(("n1", "n1", "n2")),
    generation=st.integers(1, 2),
)
claimed = st.builds(
    held,
    st.sampled_from(("gpu-0", "gpu-1", "gpu-0-mig-0", "gpu-0-mig-1")),
    driver=st.sampled_from((*DRIVERS, "dra.net")),
    pool=st.sampled_from(("n1", "n1", "n2")),
    memory=st.sampled_from((None, 0, MIB)),
)
claim_states = st.builds(
    lambda devices, **more: claim(*devices, **more),
    st.lists(claimed, min_size=1, max_size=3),
    name=st.sampled_from(("c", "d")),
    pods=st.sets(st.sampled_from((*PODS, "gone"))).map(lambda found: tuple(sorted(found))),
)
KEYS = {"node": "name", "pod": "uid", "slice": "name", "claim": "uid"}
events = st.one_of(
    *(
        st.tuples(st.just(kind), states, st.sampled_from(("set", "set", "drop")))
        for kind, states in (
            ("node", node_states),
            ("pod", pod_states),
            ("slice", slice_states),
            ("claim", claim_states),
        )
    )
)


def replay(history):
    made = Joined()
    left: dict[str, dict] = {kind: {} for kind in KEYS}
    for kind, state, action in history:
        key = getattr(state, KEYS[kind])
        if action == "set":
            getattr(made, f"set_{kind}")(state)
            left[kind][key] = state
        else:
            getattr(made, f"drop_{kind}")(key)
            left[kind].pop(key, None)
    return made, left


@settings(max_examples=5 * settings.default.max_examples)
@given(st.lists(events, min_size=5, max_size=25), st.randoms())
def test_a_history_ends_in_what_the_objects_that_are_left_give_in_any_order(history, random):
    made, left = replay(history)
    rest = [(kind, state, "set") for kind, states in left.items() for state in states.values()]
    random.shuffle(rest)
    assert made.state == replay(rest)[0].state


@given(st.lists(events, max_size=12))
def test_nothing_is_remembered_of_what_is_gone(history):
    made, left = replay(history)
    for kind, states in left.items():
        for key in states:
            getattr(made, f"drop_{kind}")(key)
    assert made.state == ({}, {}, None)
    assert not [name for name, value in vars(made.book).items() if isinstance(value, (dict, set)) and value]


@given(st.lists(events, max_size=20))
def test_of_a_claim_exactly_as_much_is_held_as_it_was_given(history):
    _, left = replay(history)
    for one in left["claim"].values():
        alone = joined(left["node"].values(), left["pod"].values(), left["slice"].values(), [one])
        total = sum(a.memory for p in alone.pods.values() for a in p.assignments)
        unshared = claim(*one.devices, name=one.name, pods=())
        nobody = joined((), (), left["slice"].values(), [unshared])
        assert total == sum(a.memory for p in nobody.pods.values() for a in p.assignments)


def test_a_device_that_vanished_is_shared_by_the_pods_of_its_claim():
    held = ClaimedDevice(driver="gpu.nvidia.com", pool="n1", device="gpu-7", memory=3, cores=None)
    made = joined([node()], [pod("a"), pod("b")], [published(gpu(0))], [claim(held, pods=("a", "b"))])
    assert [one.memory for name in ("a", "b") for one in made.pods[name].assignments] == [2, 1]


def test_a_pod_without_claims_costs_nothing_and_is_not_kept():
    made = joined([node()], [pod(f"p{i}", claims=()) for i in range(100)], [published(gpu(0))])
    assert made.told == 1  # the node's GPUs, for its slice
    assert made.book._using == set()
