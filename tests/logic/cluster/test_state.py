"""The state of a cluster, fed by events: its kept conclusions are those that would be made anew."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.logic import test_dra_index as test_dra
from tests.logic.cluster import test_laws
from tests.logic.cluster.builders import GIB, device, node, node_names, pod, totals
from tests.logic.cluster.builders import given as assigned
from vgpuscope.logic import objects as books
from vgpuscope.logic.cluster import ledger
from vgpuscope.logic.cluster import state as cluster_state
from vgpuscope.logic.cluster.ledger import ClusterLedger
from vgpuscope.logic.cluster.state import ClusterState
from vgpuscope.model.cluster import NamespaceLedger
from vgpuscope.model.cluster_event import (
    ClaimGone,
    ClaimSet,
    NodeGone,
    NodeSet,
    PodGone,
    PodSet,
    QuotaGone,
    QuotaSet,
    SliceGone,
    SliceSet,
)

SET = {"node": NodeSet, "pod": PodSet, "quota": QuotaSet, "slice": SliceSet, "claim": ClaimSet}
GONE = {"node": NodeGone, "pod": PodGone, "quota": QuotaGone, "slice": SliceGone, "claim": ClaimGone}


def event(method, arguments):
    action, _, kind = method.partition("_")
    return (SET if action == "set" else GONE)[kind](*arguments)


KEYS = test_dra.KEYS
hami_events = test_laws.events.map(lambda found: event(*found))
dra_events = test_dra.events.map(
    lambda found: SET[found[0]](found[1]) if found[2] == "set" else GONE[found[0]](getattr(found[1], KEYS[found[0]]))
)
histories = st.lists(st.one_of(hami_events, dra_events), max_size=20)
NODES, NAMESPACES = (*test_laws.NODES, *test_dra.NODES), (*test_laws.NAMESPACES, "default")


def replay(history, state=None):
    state = state or ClusterState()
    for one in history:
        state.apply(one)
    return state


def settle(state):
    changes = state.changed()
    for name in changes.nodes:
        state.node(name)
    for name in changes.namespaces:
        state.namespace(name)


def brute_force(history):
    """Every conclusion made anew from the objects that are left, by a ledger that keeps none of them."""
    return replay(history)._ledger


@given(histories, histories)
def test_kept_conclusions_are_those_that_are_made_anew(first, then):
    state = replay(first)
    settle(state)
    replay(then, state)
    settle(state)
    fresh = brute_force([*first, *then])
    assert {one.name: one for one in state.settled_nodes()} == {name: fresh.node(name) for name in node_names(fresh)}
    assert [state.settled_namespace(name) for name in NAMESPACES] == [fresh.namespace(name) for name in NAMESPACES]
    assert (state.capacity(), state.capacity_types()) == (totals(fresh).cluster(), totals(fresh).types())


@given(histories, histories)
def test_an_answer_is_up_to_date_whoever_asked_before(first, then):
    state = replay(first)
    for name in NODES:
        state.node(name)
    replay(then, state)
    fresh = brute_force([*first, *then])
    assert {name: state.node(name) for name in NODES} == {name: fresh.node(name) for name in NODES}
    assert [state.namespace(name) for name in NAMESPACES] == [fresh.namespace(name) for name in NAMESPACES]


def test_what_did_not_change_is_not_made_anew(monkeypatch):
    made = []
    monkeypatch.setattr(ledger, "settle_node", lambda name, **_: made.append(name) or SimpleNamespace(name=name))
    monkeypatch.setattr(cluster_state, "CapacityTotals", lambda: SimpleNamespace(put=lambda _: None))
    state = replay([NodeSet(node(name="n1")), NodeSet(node(name="n2"))])
    for _ in range(3):
        state.node("n1"), state.node("n2")
    state.apply(NodeSet(node(device(), name="n2")))
    for _ in range(3):
        state.node("n1"), state.node("n2")
    assert made == ["n1", "n2", "n2"]


def test_kept_conclusions_are_answered_without_making_any(monkeypatch):
    state = replay([NodeSet(node(device())), PodSet(pod("p", assigned()))])
    settle(state)
    before = list(state.settled_nodes())
    monkeypatch.setattr(ClusterLedger, "node", lambda *_: pytest.fail("made anew"))
    monkeypatch.setattr(ClusterLedger, "namespace", lambda *_: pytest.fail("made anew"))
    state.apply(PodGone("uid-ml-p"))
    assert list(state.settled_nodes()) == before == [state.settled_node("n1")]
    assert state.settled_namespace("ml").pods == 1
    assert state.settled_namespace("other") == NamespaceLedger(name="other")


def test_who_holds_what_of_a_gpu_and_what_is_left_of_it():
    state = replay(
        [
            NodeSet(node(device("GPU-0"), device("GPU-1", 1))),
            PodSet(pod("a", assigned("GPU-0", 8 * GIB, 30), assigned("GPU-0", GIB, 10, container=1))),
            PodSet(pod("b", assigned("GPU-0", 4 * GIB))),
        ]
    )
    held = [(one.device, one.pod, one.container, one.memory, one.cores) for one in state.node("n1").holders]
    assert held == [
        ("GPU-0", "a", "c0", 8 * GIB, 30),
        ("GPU-0", "a", "c1", GIB, 10),
        ("GPU-0", "b", "c0", 4 * GIB, 0),
    ]
    free = [(one.memory_free, one.cores_free, one.slots_free) for one in state.node("n1").devices]
    assert free == [(67 * GIB, 60, 7), (80 * GIB, 100, 10)]
    assert state.node("never-seen") is None


# --- a pod is in one place --------------------------------------------------------------------------------------------


def places(value, wanted, seen):
    """How many containers of a state have the object itself as an entry."""
    if id(value) in seen:
        return 0
    seen.add(id(value))
    if isinstance(value, dict):
        inside = [*value.values(), *value.keys()]
    elif isinstance(value, (set, list, tuple, frozenset)):
        inside = list(value)
    elif type(value).__module__.startswith("vgpuscope"):
        names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
        names += getattr(type(value), "__struct_fields__", ())
        inside = [*vars(value).values()] if hasattr(value, "__dict__") else []
        inside += [getattr(value, name, None) for name in names]
    else:
        return 0
    return sum(one is wanted for one in inside) + sum(places(one, wanted, seen) for one in inside)


def test_a_pod_is_kept_in_one_place():
    held = pod("p", assigned(), claims=("c",))
    slices = SliceSet(test_dra.published(test_dra.gpu(5)))
    claims = ClaimSet(test_dra.claim(test_dra.held("gpu-5"), pods=(held.uid,)))
    state = replay([NodeSet(node(device())), PodSet(held), slices, claims])
    settle(state)
    assert len(state.pod(held.uid).assignments) == 2
    assert places(state, held, set()) == 1
    state.apply(PodGone(held.uid))
    assert places(state, held, set()) == 0


# --- clusters without DRA pay nothing for it --------------------------------------------------------------------------


def test_without_slices_and_claims_there_is_no_book_of_them(monkeypatch):
    monkeypatch.setattr(books, "DraIndex", lambda **_: pytest.fail("nothing published, nothing claimed"))
    claiming = [pod(f"p{i}", assigned(), claims=("c",)) for i in range(50)]
    state = replay([NodeSet(node(device())), *map(PodSet, claiming), *(PodGone(one.uid) for one in claiming[:10])])
    settle(state)
    assert (state._ledger._dra, state._ledger._gpus, state._ledger._shares, state.unplaced) == (None, {}, {}, None)


def test_the_book_of_dra_goes_with_the_last_slice_and_claim():
    using, slices = pod("p", claims=("c",)), test_dra.published(test_dra.gpu(0))
    claims = test_dra.claim(test_dra.held(), pods=(using.uid,))
    state = replay([NodeSet(node()), PodSet(using), ClaimSet(claims), SliceSet(slices)])
    assert [one.device for one in state.node("n1").holders] == ["GPU-0"]
    replay([SliceGone(slices.name), ClaimGone(claims.uid)], state)
    assert (state._ledger._dra, state._ledger._gpus, state._ledger._shares) == (None, {}, {})
    assert state.node("n1").holders == state.node("n1").devices == ()


@given(st.lists(dra_events, max_size=25), st.randoms())
def test_the_order_of_events_of_different_objects_makes_no_difference(history, random):
    left = {}
    for one in history:
        kind = type(one).__name__.removesuffix("Set").removesuffix("Gone")
        key = one.__struct_fields__[0]
        value = getattr(one, key)
        key = (kind, value if isinstance(value, str) else getattr(value, KEYS[kind.lower()]))
        left[key] = one if type(one).__name__.endswith("Set") else None
    rest = [one for one in left.values() if one is not None]
    random.shuffle(rest)
    made, again = replay(history), replay(rest)
    assert {name: made.node(name) for name in NODES} == {name: again.node(name) for name in NODES}
    assert (made.unplaced, dict(made.pods)) == (again.unplaced, dict(again.pods))
