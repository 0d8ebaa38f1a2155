"""The laws of placing, over random clusters and histories."""

from hypothesis import given, settings

from tests.logic.scheduler import plain_fit, worlds
from vgpuscope.logic.scheduler.node_fit import NodeRefusal, PodFit
from vgpuscope.logic.scheduler.place import place
from vgpuscope.logic.scheduler.rules import Rules
from vgpuscope.logic.scheduler.verdicts import refused, unregistered
from vgpuscope.model.placement import NodeVerdict, Policies
from vgpuscope.model.scheduling_codes import BY_CODE


def cluster(random):
    state, names = worlds.some_state(random)
    return state, names, worlds.some_request(random)


def plain(state, request, names):
    """The verdict on every node by the plain checks."""
    rules, room = Rules(request.selection, Policies()), state.room(request.namespace)
    for name in names:
        node_info = state.node_info(name)
        if node_info is None or not node_info.usable:
            yield unregistered(name, node_info)
            continue
        refusal = plain_fit.refusal(node_info, request, rules, room)
        if refusal is not None:
            yield refused(node_info, refusal, rules=rules, room=room, namespace=request.namespace)
        else:
            yield NodeVerdict(node=name, score=node_info.score)


@settings(max_examples=500)
@given(worlds.seeds)
def test_the_verdicts_are_those_of_the_plain_checks(random):
    state, names, request = cluster(random)
    assert place(state, request, names).nodes == tuple(plain(state, request, names))


@settings(max_examples=500)
@given(worlds.seeds)
def test_on_nodes_with_equal_gpus_the_verdicts_are_those_of_the_plain_checks(random):
    state, names = worlds.equal_state(random)
    for _ in range(5):
        request = worlds.several_containers(random)
        assert place(state, request, names).nodes == tuple(plain(state, request, names))


@settings(max_examples=500)
@given(worlds.seeds)
def test_a_node_that_fits_has_gpus_to_choose_and_a_refusal_is_the_same_when_they_are_chosen(random):
    state, names, request = cluster(random)
    rules, room = Rules(request.selection, Policies()), state.room(request.namespace)
    pod_fit = PodFit(request, rules, room)
    for node_info in filter(None, map(state.node_info, names)):
        if node_info.usable:
            chosen, refusal = pod_fit.choose(node_info), pod_fit.refusal(node_info)
            assert isinstance(chosen, NodeRefusal) == (refusal is not None)
            if refusal is not None:
                assert fields(chosen) == fields(refusal)


def fields(refusal):
    return {name: getattr(refusal, name) for name in NodeRefusal.__slots__}


@settings(max_examples=500)
@given(worlds.seeds)
def test_no_gpu_is_ever_over_its_memory_cores_or_slots(random):
    state, names = worlds.some_state(random)
    for name in names:
        for gpu in state.node_info(name).gpus:
            assert 0 <= gpu.used <= gpu.slots
            assert 0 <= gpu.used_memory <= gpu.memory
            if gpu.mode != "mig":  # seven 1g instances of 15 % are 105 %: there the placements are the bound
                assert 0 <= gpu.used_cores <= gpu.cores


@given(worlds.seeds)
def test_mig_instances_of_one_gpu_never_overlap(random):
    state, names = worlds.some_state(random)
    for name in names:
        for gpu in state.node_info(name).gpus:
            slices = [at for start, size in gpu.placed for at in range(start, start + size)]
            assert len(slices) == len(set(slices))


@given(worlds.seeds)
def test_the_order_and_repetition_of_candidates_make_no_difference(random):
    state, names, request = cluster(random)
    shuffled = [*names, *names]
    random.shuffle(shuffled)
    one, other = place(state, request, names), place(state, request, shuffled)
    assert (one.node, one.gpus, one.score) == (other.node, other.gpus, other.score)
    assert sorted(one.nodes, key=lambda each: each.node) == sorted(other.nodes, key=lambda each: each.node)


@given(worlds.seeds)
def test_every_candidate_has_one_verdict_and_refusals_have_a_known_code(random):
    state, names, request = cluster(random)
    found = place(state, request, [*names, "never-seen"])
    assert [one.node for one in found.nodes] == [*names, "never-seen"]
    for one in found.nodes:
        assert (one.score is None) == bool(one.code)
        if one.code:
            assert one.code in BY_CODE
            assert one.reason
            assert one.message


@given(worlds.seeds)
def test_a_chosen_node_fits_and_no_fitting_node_is_better(random):
    state, names, request = cluster(random)
    found = place(state, request, names)
    fitting = {one.node: one.score for one in found.nodes if not one.code}
    assert bool(found.node) == bool(fitting)
    if fitting:
        best = min if request.selection.node_policy == "spread" else max
        assert fitting[found.node] == best(fitting.values())
        assert found.node == min(name for name, score in fitting.items() if score == fitting[found.node])


@given(worlds.seeds)
def test_every_container_gets_as_many_gpus_as_it_asked_for(random):
    state, names, request = cluster(random)
    found = place(state, request, names)
    if found.node:
        got = {one.index: [gpu for gpu in found.gpus if gpu.container == one.index] for one in request.asks}
        assert {index: len(gpus) for index, gpus in got.items()} == {one.index: one.count for one in request.asks}
        assert len(found.gpus) == sum(one.count for one in request.asks)
        for gpus in got.values():
            assert [gpu.position for gpu in gpus] == list(range(len(gpus)))
            assert len({(gpu.uuid, gpu.start if gpu.profile else None) for gpu in gpus}) == len(gpus)


@given(worlds.seeds)
def test_placing_changes_nothing(random):
    state, names, request = cluster(random)
    first = place(state, request, names)
    assert place(state, request, names) == first


@given(worlds.seeds)
def test_a_pod_that_holds_gpus_is_placed_as_if_it_held_none(random):
    state, names, request = cluster(random)
    first = place(state, request, names)
    if first.node:
        state.assume(request, first)
        again = place(state, request, names)
        assert (again.node, again.gpus) == (first.node, first.gpus)
        assert again.nodes == first.nodes
