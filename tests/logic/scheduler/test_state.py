"""What the scheduler's books hold: events, assumptions, and the same sums as the ledger of the cluster exporter."""

from hypothesis import given
from msgspec.structs import replace

from tests.logic.scheduler import worlds
from tests.logic.scheduler.worlds import ask, gpu, holder, node, quota, request, share
from vgpuscope.logic.cluster.state import ClusterState
from vgpuscope.logic.scheduler.place import place
from vgpuscope.logic.scheduler.state import SchedulerState
from vgpuscope.model.allocation import HeldInstance
from vgpuscope.model.cluster_event import NodeGone, NodeSet, PodGone, PodSet, QuotaGone, QuotaSet
from vgpuscope.model.placement import ChosenGpu, Placement

MIB = worlds.MIB


def used(state, name="n", uuid="GPU-0"):
    """Slots, MiB and cores of one GPU."""
    found = next(one for one in state.node_info(name).gpus if one.id == uuid)
    return found.used, found.used_memory, found.used_cores


def sums(state):
    """Everything that the books say."""
    books = {
        name: [(one.id, one.used, one.used_memory, one.used_cores, one.placed) for one in state.node_info(name).gpus]
        for name in state.nodes
    }
    return books, [state.room(namespace) for namespace in ("ml", "web")], sorted(state.assumed)


def one_node(*pods, quotas=()):
    return worlds.state([node("n", gpu("GPU-0"), gpu("GPU-1", 1))], pods, quotas)


def given_to(wanted, *uuids, on="n", memory=8000, cores=0, slices=None):
    """`slices`: the first slice of a MIG instance of size 1."""
    mig = {} if slices is None else {"profile": "1g.10gb", "start": slices, "size": 1}
    gpus = tuple(
        ChosenGpu(container=one.index, position=at, uuid=uuid, memory=memory, cores=cores, **mig)
        for one in wanted.asks
        for at, uuid in enumerate(uuids)
    )
    return Placement(node=on, gpus=gpus)


# --- events -----------------------------------------------------------------------------------------------------------


def test_an_assigned_pod_holds_its_share_before_it_is_bound():
    state = one_node(replace(holder("a", "n", share("GPU-0", 8000, 30)), node=""))
    assert used(state) == (1, 8000, 30)


def test_an_ended_pod_holds_nothing_and_a_deleting_one_still_holds():
    ended = replace(holder("a", "n", share("GPU-0")), phase="Succeeded")
    leaving = replace(holder("b", "n", share("GPU-0", 4000)), deleting=True)
    assert used(one_node(ended, leaving)) == (1, 4000, 0)


def test_init_containers_count_by_their_peak_until_they_are_done():
    pod = holder(
        "a",
        "n",
        share("GPU-0", 9000, container=0, init=True),
        share("GPU-0", 3000, container=1),
        share("GPU-0", 2000, container=2),
    )
    state = one_node(pod)
    assert used(state) == (2, 9000, 0)
    state.apply(PodSet(replace(pod, init_done=True)))
    assert used(state) == (2, 5000, 0)


def test_a_deleted_pod_frees_its_gpus():
    state = one_node(holder("a", "n", share("GPU-0")))
    state.apply(PodGone("uid-a"))
    assert used(state) == (0, 0, 0)
    assert not state.holds("uid-a")


def test_a_pod_holds_gpus_on_no_node_after_it_has_ended_and_on_no_former_node_after_it_has_moved():
    pod = replace(holder("a", "n", share("GPU-0")), node="")
    state = one_node(pod)
    state.apply(PodSet(replace(pod, assigned_node="m")))
    assert (state.holders("n"), state.holders("m")) == ((), ("uid-a",))
    state.apply(PodSet(replace(pod, assigned_node="m", phase="Succeeded")))
    state.apply(PodGone("uid-a"))
    assert (state._at, state._uses, state._namespaces) == ({}, {}, {})


def test_a_node_that_registers_its_gpus_late_has_the_shares_that_pods_held_before():
    state = worlds.state([], [holder("a", "n", share("GPU-0", 5000))])
    assert state.node_info("n") is None
    state.apply(NodeSet(node("n", gpu("GPU-0"))))
    assert used(state) == (1, 5000, 0)
    state.apply(NodeGone("n"))
    assert state.node_info("n") is None


def test_of_several_quotas_the_strictest_counts_and_a_removed_one_counts_no_more():
    state = one_node(quotas=[quota(name="a", gpumem=9000), quota(name="b", gpumem=5000)])
    assert state.room("ml").memory_limit == 5000
    state.apply(QuotaGone("ml", "b"))
    assert state.room("ml").memory_limit == 9000
    state.apply(QuotaGone("ml", "a"))
    assert not state.room("ml").limited


def test_a_quota_of_zero_is_a_limit_and_no_quota_is_none():
    state = one_node(quotas=[quota(gpumem=0)])
    assert not state.room("ml").fits(1, 0)
    assert state.room("web").fits(10**9, 100)


# --- assumptions ------------------------------------------------------------------------------------------------------


def test_an_assumption_holds_until_the_watch_reports_the_same_assignment():
    state, wanted = one_node(), request(ask(8000))
    state.assume(wanted, given_to(wanted, "GPU-0"))
    assert used(state) == (1, 8000, 0)
    state.apply(PodSet(holder("new", "n", share("GPU-0", 8000))))
    assert used(state) == (1, 8000, 0)
    assert not state.assumed


def test_a_report_without_the_assignment_does_not_lose_the_assumption():
    state, wanted = one_node(), request(ask(8000))
    state.assume(wanted, given_to(wanted, "GPU-0"))
    state.apply(PodSet(replace(holder("new", ""), phase="Pending")))
    assert used(state) == (1, 8000, 0)


def test_a_late_report_of_an_older_assignment_does_not_free_the_new_one():
    state, wanted = one_node(), request(ask(8000))
    state.assume(wanted, given_to(wanted, "GPU-0"))
    state.apply(PodSet(replace(holder("new", "n", share("GPU-1", 8000)), node="")))
    assert used(state) == (1, 8000, 0)
    assert used(state, uuid="GPU-1") == (1, 8000, 0)
    state.apply(PodSet(replace(holder("new", "n", share("GPU-0", 8000)), node="")))
    assert (used(state), used(state, uuid="GPU-1")) == ((1, 8000, 0), (0, 0, 0))


def test_a_pod_that_another_scheduler_bound_holds_what_its_report_says():
    state, wanted = one_node(), request(ask(8000))
    state.assume(wanted, given_to(wanted, "GPU-0"))
    state.apply(PodSet(holder("new", "n", share("GPU-1", 4000))))
    assert (used(state), used(state, uuid="GPU-1")) == ((0, 0, 0), (1, 4000, 0))


def test_a_pod_that_ended_or_is_gone_has_no_assumption():
    for event in (PodSet(replace(holder("new", ""), phase="Failed")), PodGone("uid-new")):
        state, wanted = one_node(), request(ask(8000))
        state.assume(wanted, given_to(wanted, "GPU-0"))
        state.apply(event)
        assert used(state) == (0, 0, 0)
        assert not state.assumed


def test_forgetting_frees_an_assumption_and_an_assignment():
    state, wanted = one_node(holder("a", "n", share("GPU-0", 1000))), request(ask(8000))
    state.assume(wanted, given_to(wanted, "GPU-0"))
    state.drop_pod("uid-new")
    assert used(state) == (1, 1000, 0)
    state.drop_pod("uid-a")
    assert used(state) == (0, 0, 0)
    state.drop_pod("never-seen")


def test_a_second_assumption_replaces_the_first():
    state, wanted = one_node(), request(ask(8000))
    state.assume(wanted, given_to(wanted, "GPU-0"))
    state.assume(wanted, given_to(wanted, "GPU-1"))
    assert (used(state), used(state, uuid="GPU-1")) == ((0, 0, 0), (1, 8000, 0))


def test_assuming_what_the_watch_has_reported_already_counts_once():
    """The watch can be quicker than the answer to the write."""
    state, wanted = one_node(holder("new", "n", share("GPU-0", 8000))), request(ask(8000))
    state.assume(wanted, given_to(wanted, "GPU-0"))
    assert used(state) == (1, 8000, 0)
    assert not state.assumed


def test_another_slice_of_the_same_gpu_and_profile_is_another_assignment():
    state, wanted = one_node(on_slice(6)), request(ask(8000))
    state.assume(wanted, given_to(wanted, "GPU-0", slices=5))
    assert placed(state) == ((5, 1), (6, 1))  # both, until the watch reports the new one
    state.apply(PodSet(on_slice(6)))
    assert placed(state) == ((5, 1), (6, 1))
    state.apply(PodSet(on_slice(5)))
    assert placed(state) == ((5, 1),)
    assert not state.assumed


def on_slice(start):
    """The pod `new`, assigned to one MIG instance and not bound yet."""
    pod = replace(holder("new", "n", share("GPU-0", 8000)), node="")
    held = HeldInstance(container_index=0, device="GPU-0", profile="1g.10gb", start=start, size=1)
    return replace(pod, instances=(held,))


def placed(state):
    return state.node_info("n").gpus[0].placed


def test_what_is_assumed_counts_against_the_quota():
    state, wanted = one_node(quotas=[quota(gpumem=10000)]), request(ask(8000))
    state.assume(wanted, given_to(wanted, "GPU-0"))
    assert state.room("ml").memory_used == 8000
    assert not place(state, request(ask(4000), name="other"), ["n"]).node


@given(worlds.seeds)
def test_assuming_and_forgetting_leaves_the_books_as_they_were(random):
    state, names = worlds.some_state(random)
    before, wanted = sums(state), worlds.some_request(random)
    found = place(state, wanted, names)
    if found.node:
        state.assume(wanted, found)
        assert state.holds(wanted.uid)
        state.drop_pod(wanted.uid)
    assert sums(state) == before


@given(worlds.seeds)
def test_what_was_assumed_and_what_is_reported_then_are_the_same(random):
    state, names = worlds.some_state(random)
    wanted = worlds.some_request(random)
    found = place(state, wanted, names)
    if found.node:
        state.assume(wanted, found)
        books, rooms, _ = sums(state)
        state.apply(PodSet(state.assumed[wanted.uid]))
        assert sums(state)[:2] == (books, rooms)
        assert wanted.uid not in state.assumed


# --- histories --------------------------------------------------------------------------------------------------------


def events(random):
    """A random history of nodes, pods and quotas, whose objects come, change and go."""
    found: list = []
    uuids = [f"GPU-{at}{index}" for at in range(2) for index in range(3)]
    for _ in range(random.randint(0, 25)):
        kind = random.choice(("node", "pod", "pod", "pod", "quota", "gone"))
        name = f"n{random.randrange(2)}"
        if kind == "node":
            all_gpus = [
                worlds.some_device(random, f"GPU-{name[1]}{index}", index) for index in range(random.randint(0, 3))
            ]
            found.append(NodeSet(node(name, *all_gpus)))
        elif kind == "pod":
            shares = [
                share(random.choice(uuids), random.choice(worlds.SIZES), 10, container=at, init=random.random() < 0.3)
                for at in range(random.randint(0, 3))
            ]
            pod = holder(f"p{random.randrange(4)}", name, *shares, namespace=random.choice(("ml", "web")))
            instances = tuple(
                HeldInstance(container_index=at, device=one.device, profile="1g", start=random.randrange(7), size=1)
                for at, one in enumerate(shares)
                if random.random() < 0.3
            )
            phase, place = random.choice(("Running", "Running", "Succeeded")), random.choice((name, name, "n9"))
            done = random.random() < 0.3
            found.append(PodSet(replace(pod, phase=phase, assigned_node=place, instances=instances, init_done=done)))
        elif kind == "quota":
            found.append(QuotaSet(quota(name=random.choice("ab"), gpumem=random.choice((0, 9000)))))
        else:
            gone = (PodGone(f"uid-p{random.randrange(4)}"), NodeGone(name), QuotaGone("ml", random.choice("ab")))
            found.append(random.choice(gone))
    return found


def key(event):
    """The object that an event is about."""
    match event:
        case PodSet(pod):
            return "pod", pod.uid
        case PodGone(uid):
            return "pod", uid
        case NodeSet(node):
            return "node", node.name
        case NodeGone(name):
            return "node", name
        case QuotaSet(quota):
            return "quota", quota.name
        case _:
            return "quota", event.name


def replayed(history):
    made = SchedulerState()
    for event in history:
        made.apply(event)
    return made


@given(worlds.seeds)
def test_only_the_last_event_of_each_object_counts_in_whatever_order_and_however_often(random):
    history = events(random)
    last = list({key(event): event for event in history}.values())
    random.shuffle(last)
    assert sums(replayed(history)) == sums(replayed([*last, *last]))


@given(worlds.seeds)
def test_after_the_last_pod_is_gone_nothing_is_kept_of_any(random):
    history = events(random)
    state = replayed(history)
    for uid in list(state.pods):
        state.apply(PodGone(uid))
    assert (state._at, state._uses, state._namespaces) == ({}, {}, {})


@given(worlds.seeds)
def test_the_books_have_the_sums_of_the_ledger_of_the_cluster_exporter(random):
    history = events(random)
    made, exporter = replayed(history), ClusterState()
    for event in history:
        exporter.apply(event)
    agree(made, exporter)


@given(worlds.seeds)
def test_replaying_the_decisions_gives_the_ledger_of_the_cluster_exporter(random):
    """What the extender wrote is all that the exporter sees."""
    state, _ = worlds.some_state(random)
    exporter = ClusterState()
    for known in state.nodes.values():
        exporter.apply(NodeSet(known))
    for one in (*state.quotas("ml"), *state.quotas("web")):
        exporter.apply(QuotaSet(one))
    for uid in [*state.pods, *state.assumed]:
        for pod in state.holding(uid):
            exporter.apply(PodSet(pod))
    agree(state, exporter)


def slices(spans):
    """The memory slices that are taken; init containers may have those of app containers."""
    return {at for start, size in spans for at in range(start, start + size)}


def agree(state, exporter):
    for name in state.nodes:
        theirs = {one.device.id: one for one in exporter.node(name).devices}
        for ours in state.node_info(name).gpus:
            one = theirs[ours.id]
            allocated = (one.shared, one.memory_allocated // MIB, one.cores_allocated)
            assert (ours.used, ours.used_memory, ours.used_cores) == allocated
            assert slices(ours.placed) == slices((each.instance.start, each.instance.size) for each in one.instances)
    for namespace in ("ml", "web"):
        theirs = {one.resource: one for one in exporter.namespace(namespace).quotas}
        room = state.room(namespace)
        if room.memory_limit is not None:
            memory = theirs["nvidia.com/gpumem"]
            assert (room.memory_used, room.memory_limit) == (memory.used, memory.limit)
