"""What would make a pod fit: every remedy is applied to small random clusters, and brute force finds none missing."""

import re
from itertools import combinations

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from tests.logic.scheduler import worlds
from tests.logic.scheduler.worlds import MIB, TYPES, ask, gpu, holder, node, quota, request, share, state
from vgpuscope.logic.scheduler import node_info
from vgpuscope.logic.scheduler.fit import fit
from vgpuscope.logic.scheduler.place import place
from vgpuscope.logic.scheduler.state import SchedulerState
from vgpuscope.model.cluster_event import NodeSet, PodSet, QuotaGone, QuotaSet
from vgpuscope.model.placement import ContainerAsk, GpuSelection, PlacementRequest, Policies


def copy_of(made, *, without=(), moved=()):
    """Another state with the same nodes, quotas and holders, but for pods that are gone or elsewhere."""
    copied = SchedulerState()
    for one in made.nodes.values():
        copied.apply(NodeSet(one))
    for namespace in ("ml", "web"):
        for one in made.quotas(namespace):
            copied.apply(QuotaSet(one))
    for uid in {**made.pods, **made.assumed}:
        if uid not in without:
            for pod in made.holding(uid)[:1]:
                copied.apply(PodSet(pod))
    for pod in moved:
        copied.apply(PodSet(pod))
    return copied


def fits(made, wanted, names):
    return bool(place(made, wanted, names).node)


def within_capacity(made):
    for name in made.nodes:
        for one in made.node_info(name).gpus:
            assert one.used <= one.slots
            assert one.used_memory <= one.memory
            assert one.mode == "mig" or one.used_cores <= one.cores


def moved_pod(made, move):
    """The pod as it is after a move: the same shares on other GPUs."""
    (old,) = made.holding(move.pod.uid)
    before = sorted(old.assignments, key=lambda one: one.container_index)
    after = sorted(move.gpus, key=lambda one: (one.container, one.position))
    assert [(one.memory // MIB, one.cores) for one in before] == [(one.memory, one.cores) for one in after]
    shares = tuple(replace(one, device=new.uuid) for one, new in zip(before, after, strict=True))
    return replace(old, node=move.node, assigned_node=move.node, assignments=shares)


def with_amount(wanted, remedy):
    """The request with the amount that a remedy names."""
    (subject,) = remedy.subjects
    name = "cores" if subject == "exclusive" else subject
    return replace(
        wanted,
        asks=tuple(
            replace(one, **{name: remedy.value}) if one.name == remedy.container else one for one in wanted.asks
        ),
    )


def without(selection, subject):
    cleared: dict = {
        "type": {"use_types": (), "avoid_types": ()},
        "uuid": {"use_uuids": (), "avoid_uuids": ()},
        "mode": {"mode": ""},
        "numa-bind": {"numa_bind": False},
        "mutex": {"gpu_policy": tuple(one for one in selection.gpu_policy if one != "mutex") or ("spread",)},
    }
    return replace(selection, **cleared.get(subject, {}))


def eased(made, wanted, subjects, remedy=None):
    """State and request after constraints were relaxed; a quota is raised to what the remedy names, if there is one."""
    changed, selection = copy_of(made), wanted.selection
    for subject in subjects:
        selection = without(selection, subject)
        if subject == "quota":
            for one in made.quotas(wanted.namespace):
                changed.apply(QuotaGone(one.namespace, one.name))
                if remedy is not None:
                    hard = {key: max(limit, remedy.quota.get(key, 0)) for key, limit in one.hard.items()}
                    changed.apply(QuotaSet(replace(one, hard=hard)))
        if subject == "cordon":
            for one in made.nodes.values():
                devices = [
                    replace(each, cordoned=each.cordoned and remedy is not None and each.id not in remedy.devices)
                    for each in one.devices
                ]
                changed.apply(NodeSet(replace(one, devices=tuple(devices))))
    return changed, replace(wanted, selection=selection)


def helped(made, wanted, subjects, names):
    changed, asked = eased(made, wanted, subjects)
    return fits(changed, asked, names)


def check(made, wanted, names, remedy):
    """Apply a remedy; the pod fits then, where the remedy says, and no GPU is over its capacity."""
    if remedy.kind == "end":
        made = copy_of(made, without=[one.uid for one in remedy.pods])
    elif remedy.kind == "move":
        moved = [moved_pod(made, one) for one in remedy.moves]
        made = copy_of(made, without=[one.uid for one in moved], moved=moved)
    elif remedy.kind == "smaller" or remedy.subjects == ("exclusive",):
        made, wanted = copy_of(made), with_amount(wanted, remedy)
    else:
        made, wanted = eased(made, wanted, remedy.subjects, remedy)
    found = place(made, wanted, names)
    assert found.node, remedy
    if remedy.kind != "move":  # the advice names one node, and the scheduler may like another one as well
        verdict = next(one for one in found.nodes if one.node == remedy.node)
        assert not verdict.code
    made.assume(wanted, found)
    within_capacity(made)


def question(random, **more):
    """A cluster and a pod; None if it fits."""
    made, names = worlds.some_state(random, **more)
    wanted = worlds.some_request(random)
    return made, names, wanted


@settings(max_examples=250)
@given(worlds.seeds)
def test_after_any_remedy_the_pod_fits(random):
    made, names, wanted = question(random)
    made = copy_of(made)
    report = fit(made, wanted, candidates=names, idle=[uid for uid in made.pods if random.random() < 0.5])
    assert bool(report.fitting) == fits(made, wanted, names)
    for remedy in report.remedies:
        check(made, wanted, names, remedy)


# --- brute force: what a remedy of one step would be, found without any cleverness ------------------------------------


def one_container(random):
    """Clusters without MIG and a pod with one container: there every single step can be tried."""
    made, names = worlds.some_state(random, plain=True, inits=False)
    wanted = worlds.some_request(random, most=1, inits=False)
    return copy_of(made), names, wanted


def amounts(wanted):
    """Every smaller request, by what changes."""
    (one,) = wanted.asks
    if one.memory is not None:
        yield "memory", [replace(one, memory=value) for value in range(one.memory - 1, 0, -1)]
    else:
        most = (one.percentage or 100) - 1
        yield "percentage", [replace(one, percentage=value) for value in range(most, 0, -1)]
    if one.cores:
        subject = "exclusive" if one.cores == 100 else "cores"
        yield subject, [replace(one, cores=value) for value in range(one.cores - 1, -1, -1)]
    yield "count", [replace(one, count=value) for value in range(one.count - 1, 0, -1)]


@settings(max_examples=25)
@given(worlds.seeds)
def test_the_largest_amount_that_fits_is_found(random):
    made, names, wanted = one_container(random)
    report = fit(made, wanted, candidates=names)
    if report.fitting:
        return
    found = {one.subjects[0]: one.value for one in report.remedies if one.value is not None}
    field = {"exclusive": "cores"}
    for subject, asks in amounts(wanted):
        step = 97 if subject == "memory" else 1  # every MiB would take minutes: the found one and its neighbours decide
        tried = [one for at, one in enumerate(asks) if at % step == 0]
        best = next((one for one in tried if fits(made, replace(wanted, asks=(one,)), names)), None)
        name = field.get(subject, subject)
        if best is not None:
            assert found[subject] >= getattr(best, name)
        if subject in found:
            more = replace(wanted.asks[0], **{name: found[subject] + 1})
            assert not fits(made, replace(wanted, asks=(more,)), names)


@settings(max_examples=150)
@given(worlds.seeds)
def test_every_single_constraint_whose_end_helps_is_found(random):
    made, names, wanted = question(random)
    made = copy_of(made)
    report = fit(made, wanted, candidates=names)
    if report.fitting:
        return
    found = {one.subjects for one in report.remedies if one.kind == "relax" and one.subjects != ("exclusive",)}
    subjects = ("type", "uuid", "mode", "numa-bind", "mutex", "quota", "cordon")
    helps = {(one,) for one in subjects if helped(made, wanted, [one], names)}
    assert {one for one in found if len(one) == 1} == helps
    if not helps:
        pairs = {pair for pair in combinations(subjects, 2) if helped(made, wanted, pair, names)}
        assert found == pairs


@settings(max_examples=150)
@given(worlds.seeds)
def test_the_fewest_idle_pods_are_found(random):
    made, names, wanted = question(random)
    made = copy_of(made)
    idle = [uid for uid in made.pods if random.random() < 0.7]
    report = fit(made, wanted, candidates=names, idle=idle)
    if report.fitting:
        return
    found = [one.pods for one in report.remedies if one.kind == "end"]
    for size in (1, 2):
        helps = [set(group) for group in combinations(idle, size) if fits(copy_of(made, without=group), wanted, names)]
        if helps:
            assert len(found) == min(3, len(helps))
            assert all({pod.uid for pod in pods} in helps for pods in found)
            return
    assert all(len(pods) > 2 for pods in found)


@settings(max_examples=150)
@given(worlds.seeds)
def test_a_single_move_that_helps_is_found(random):
    made, names, wanted = one_container(random)
    report = fit(made, wanted, candidates=names)
    if report.fitting:
        return
    found = [one for one in report.remedies if one.kind == "move"]
    if any(single_moves(made, wanted, names)):
        assert found
        assert len(found[0].moves) == 1
    else:
        single = [one.moves[0] for one in found if len(one.moves) == 1]
        assert all(len(move.gpus) > 1 for move in single)  # brute force moves only pods with one GPU


def single_moves(made, wanted, names):
    """Every move of one pod with one GPU to another GPU of its kind, if it is allowed there and helps."""
    kinds = {one.id: (one.type, one.mode) for each in made.nodes.values() for one in each.devices}
    for uid, pod in made.pods.items():
        if len(pod.assignments) != 1:
            continue
        (held,) = pod.assignments
        alone = copy_of(made, without=[uid])
        for name in names:
            for target in made.nodes[name].devices:
                if target.id == held.device or kinds[target.id] != kinds[held.device]:
                    continue
                there = place(alone, as_request(pod, use_uuids=(target.id,)), [name])
                if there.node:
                    moved = replace(pod, node=name, assigned_node=name, assignments=(replace(held, device=target.id),))
                    yield fits(copy_of(made, without=[uid], moved=[moved]), wanted, names)


def as_request(pod, **selection):
    (held,) = pod.assignments
    return PlacementRequest(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        containers=1,
        asks=(ContainerAsk(index=0, name="c", count=1, memory=held.memory // MIB, cores=held.cores),),
        selection=GpuSelection(**selection),
    )


# --- reports ----------------------------------------------------------------------------------------------------------


def test_replicas_go_where_they_would_one_after_the_other():
    made = state([node("a", gpu("A", memory=10000 * MIB)), node("b", gpu("B", memory=10000 * MIB))])
    report = fit(made, request(ask(4000)), replicas=6)
    assert [one.node for one in report.places] == ["a", "a", "b", "b"]
    assert (report.replicas, report.fitting) == (6, 4)
    assert {one.code for one in report.nodes} == {"SCHED_INSUFFICIENT_GPU_MEMORY"}
    assert report.remedies[0].value == 2000


def test_a_replica_costs_one_node_however_many_came_before(monkeypatch):
    made = state([node(f"n{at:02}", gpu(f"GPU-{at}", memory=10000 * MIB)) for at in range(20)])
    made.node_infos()
    computed = []
    usual = node_info.NodeInfo.__init__
    monkeypatch.setattr(node_info.NodeInfo, "__init__", lambda *told: (computed.append(1), usual(*told))[1])
    report = fit(made, request(ask(2500)), replicas=80, policies=Policies(node="spread"))
    assert report.fitting == 80
    assert len(computed) <= 80


def test_when_the_time_is_over_the_replicas_so_far_are_told_and_that_there_may_be_more():
    made = state([node("a", gpu("A", memory=10000 * MIB))])
    asked = iter([False, False, True])
    report = fit(made, request(ask(1000)), replicas=9, expired=lambda: next(asked))
    assert (report.fitting, report.cut, report.nodes) == (3, True, ())


def test_when_the_time_is_over_no_more_pods_are_looked_at():
    held = [holder(f"p{at}", "a", share("A", 1000)) for at in range(5)]
    made = state([node("a", gpu("A", memory=10000 * MIB))], held)
    idle = [pod.uid for pod in held]
    whole = fit(made, request(ask(9000)), idle=idle)
    assert {"end"} <= {one.kind for one in whole.remedies}
    assert not whole.cut
    late = fit(made, request(ask(9000)), idle=idle, expired=lambda: True)
    assert {one.kind for one in late.remedies} == {"smaller"}
    assert late.cut


def test_asking_changes_nothing():
    made = state([node("a", gpu("A", memory=10000 * MIB))], [holder("p", "a", share("A", 7000))])
    before = [(one.used, one.used_memory) for one in made.node_info("a").gpus]
    fit(made, request(ask(4000)), replicas=3, idle=["uid-p"])
    assert [(one.used, one.used_memory) for one in made.node_info("a").gpus] == before
    assert not made.assumed


def test_the_nodes_that_lack_least_come_first_with_how_much():
    sizes = {"a": 3000, "b": 7000, "c": 5000}
    made = state([node(name, gpu(f"GPU-{name}", memory=size * MIB)) for name, size in sizes.items()] + [node("d")])
    report = fit(made, request(ask(8000)))
    assert [(one.node, one.memory) for one in report.lacks] == [("b", 1000), ("c", 3000), ("a", 5000), ("d", None)]


def test_a_pod_in_two_halves_is_told_to_move_its_neighbour():
    """Two GPUs are half free each, and the pod wants a whole one: one move on the node, or to another node."""
    made = state(
        [node("n", gpu("A", 0, memory=10000 * MIB), gpu("B", 1, memory=10000 * MIB))],
        [holder("p", "n", share("A", 5000)), holder("q", "n", share("B", 5000))],
    )
    (remedy,) = [one for one in fit(made, request(ask(10000))).remedies if one.kind == "move"][:1]
    (move,) = remedy.moves
    assert (move.node, [one.uuid for one in move.gpus]) == ("n", ["B"] if move.pod.name == "p" else ["A"])
    assert "After moving ml/p to B of the same node, the pod would fit on n." in remedy.message
    assert "将 ml/p 移到同节点的 B 后，Pod 可调度到 n。" in remedy.message_zh


def test_a_pod_is_never_moved_to_another_type_of_gpu():
    made = state(
        [node("n", gpu("A", memory=10000 * MIB)), node("m", gpu("B", memory=10000 * MIB, type=TYPES[1]))],
        [holder("p", "n", share("A", 5000))],
    )
    report = fit(made, request(ask(10000), use_types=("a100",)))
    assert not [one for one in report.remedies if one.kind == "move"]


def test_the_quota_that_would_be_needed_is_named():
    made = state([node("n", gpu("A"))], [holder("p", "n", share("A", 3000))], [quota(gpumem=10000)])
    (remedy,) = [one for one in fit(made, request(ask(9000))).remedies if one.subjects == ("quota",)]
    assert remedy.quota == {"nvidia.com/gpumem": 12000}
    assert "12000" in remedy.message
    assert "12000" in remedy.message_zh


def test_many_idle_pods_are_reduced_to_those_that_are_needed():
    pods = [holder(f"p{at}", "n", share("A", 1000)) for at in range(8)]
    made = state([node("n", gpu("A", memory=8000 * MIB))], pods)
    report = fit(made, request(ask(5000)), idle=[pod.uid for pod in pods])
    (remedy,) = [one for one in report.remedies if one.kind == "end"]
    assert len(remedy.pods) == 5


def test_a_sentence_names_five_idle_pods_and_counts_the_rest():
    pods = [holder(f"p{at}", "n", share("A", 1000)) for at in range(8)]
    made = state([node("n", gpu("A", memory=8000 * MIB))], pods)
    report = fit(made, request(ask(8000)), idle=[pod.uid for pod in pods])
    (remedy,) = [one for one in report.remedies if one.kind == "end"]
    assert len(remedy.pods) == 8
    assert "ml/p4 and 3 more (8 idle pods) ended" in remedy.message
    assert "ml/p4 等（8 个空闲 Pod）后" in remedy.message_zh


@pytest.mark.parametrize("kind", ["smaller", "relax", "end", "move"])
def test_remedies_are_told_in_both_languages(kind):
    gpus = [gpu("A", 0, memory=10000 * MIB), gpu("B", 1, memory=10000 * MIB, cordoned=True)]
    made = state(
        [node("n", *gpus), node("m", gpu("C", memory=6000 * MIB))],
        [holder("p", "n", share("A", 5000))],
    )
    remedies = [one for one in fit(made, request(ask(9000)), idle=["uid-p"]).remedies if one.kind == kind]
    assert remedies
    for one in remedies:
        assert one.message.isascii()
        assert one.message.endswith(".")
        assert one.message_zh.endswith("。")
        assert not re.search(r"[a-z]{3,} [a-z]{2,}", one.message_zh)
        assert not re.search(r"[\u4e00-\u9fff][,:;()A-Za-z0-9]|[A-Za-z0-9%,:;(][\u4e00-\u9fff]", one.message_zh)


@pytest.mark.parametrize(
    ("change", "said", "chinese"),
    [
        ({"memory": 12000}, "With 10000 MiB of memory, container", "的显存申请减到 10000 MiB 后，Pod 可调度到 n。"),
        ({"memory": 10, "count": 2}, "With 1 GPU, container", "的 GPU 申请减到 1 张后，Pod 可调度到 n。"),
        ({"memory": 10, "cores": 90}, "With 50 % of the cores, container", "的算力申请减到 50 % 后，Pod 可调度到 n。"),
    ],
)
def test_a_smaller_request_is_told_with_its_unit(change, said, chinese):
    held = [holder("p", "n", share("A", 10, cores=50))] if "cores" in change else []
    made = state([node("n", gpu("A", memory=10000 * MIB))], held)
    found = [one for one in fit(made, request(ask(**change))).remedies if one.kind == "smaller"]
    assert any(one.message.startswith(said) for one in found), [one.message for one in found]
    assert any(one.message_zh.endswith(chinese) for one in found), [one.message_zh for one in found]


@pytest.mark.parametrize("free", [1, 2, 3, 7, 100, 4095, 4096, 8191])
def test_the_largest_memory_is_exact_to_the_mebibyte(free):
    made = state([node("n", gpu("A", memory=free * MIB))])
    found = fit(made, request(ask(8192))).remedies[0]
    assert (found.subjects, found.value) == (("memory",), free)
