"""The laws of the cluster's ledger, over random histories."""

from operator import attrgetter

from hypothesis import given
from hypothesis import strategies as st

from tests.logic.cluster.builders import GIB, asks, conclusions, ledger, node_names, relist, totals
from vgpuscope.logic.cluster.capacity import CapacityTotals
from vgpuscope.logic.cluster.ledger import ClusterLedger
from vgpuscope.model.allocation import Assignment, HeldInstance, NodeState, PodState, QuotaState, RegisteredDevice
from vgpuscope.model.cluster import Changes

NODES = ("n1", "n2", "never-seen")
NAMESPACES = ("ml", "web")
DEVICES = ("GPU-0", "GPU-1", "GPU-2")
VENDORS = ("NVIDIA", "AMD", "AWSNeuron", "Unheard-of")
RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "cpu")

devices = st.builds(
    RegisteredDevice,
    id=st.sampled_from(DEVICES),
    vendor=st.sampled_from(VENDORS),
    index=st.integers(0, 2),
    slots=st.integers(0, 3),
    memory=st.integers(0, 4).map(lambda n: n * GIB),
    cores=st.sampled_from((0, 100, 200)),
    type=st.sampled_from(("A100", "T4")),
    mode=st.sampled_from(("hami-core", "mig")),
    healthy=st.sampled_from((True, True, True, False)),
    cordoned=st.sampled_from((False, False, False, True)),
).filter(lambda one: one.cores or one.vendor != "NVIDIA")  # no cores: a vendor that does not count them
nodes = st.builds(
    NodeState,
    name=st.sampled_from(NODES[:2]),
    ready=st.sampled_from((True, True, False)),
    schedulable=st.sampled_from((True, True, False)),
    devices=st.lists(devices, max_size=3).map(tuple),
    allocatable=st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 2), max_size=2),
)
assignments = st.builds(
    Assignment,
    container_index=st.integers(0, 2),
    container=st.just("c"),
    init=st.booleans(),
    vendor=st.sampled_from(VENDORS),
    device=st.sampled_from((*DEVICES, "GPU-gone")),
    memory=st.integers(0, 3).map(lambda n: n * GIB),
    cores=st.sampled_from((0, 30, 100)),
)
instances = st.builds(
    HeldInstance,
    container_index=st.integers(0, 2),
    device=st.sampled_from(DEVICES),
    profile=st.just("1g.10gb"),
    start=st.integers(0, 6),
    size=st.just(1),
)
pods = st.builds(
    PodState,
    uid=st.sampled_from(("a", "b", "c", "d", "e")),
    namespace=st.sampled_from(NAMESPACES),
    name=st.sampled_from(("train", "serve")),
    phase=st.sampled_from(("Pending", "Running", "Running", "Succeeded", "Failed", "Unknown")),
    node=st.sampled_from((*NODES, "")),
    assigned_node=st.sampled_from((*NODES, "")),
    deleting=st.booleans(),
    init_done=st.booleans(),
    assignments=st.lists(assignments, max_size=4).map(tuple),
    instances=st.lists(instances, max_size=2).map(tuple),
    asks=st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 2), max_size=2).map(asks),
)
quotas = st.builds(
    QuotaState,
    namespace=st.sampled_from(NAMESPACES),
    name=st.sampled_from(("q1", "q2")),
    hard=st.dictionaries(
        st.sampled_from(("nvidia.com/gpumem", "nvidia.com/gpucores", "nvidia.com/gpu")),
        st.integers(0, 9),
    ),
)
clusters = st.tuples(
    st.lists(nodes, max_size=2, unique_by=lambda one: one.name),
    st.lists(pods, max_size=5, unique_by=lambda one: one.uid),
    st.lists(quotas, max_size=3, unique_by=lambda one: (one.namespace, one.name)),
)
events = st.one_of(
    st.tuples(st.just("set_node"), nodes.map(lambda one: (one,))),
    st.tuples(st.just("set_pod"), pods.map(lambda one: (one,))),
    st.tuples(st.just("set_quota"), quotas.map(lambda one: (one,))),
    st.tuples(st.just("drop_node"), st.sampled_from(NODES).map(lambda name: (name,))),
    st.tuples(st.just("drop_pod"), st.sampled_from("abcdef").map(lambda uid: (uid,))),
    st.tuples(st.just("drop_quota"), st.tuples(st.sampled_from(NAMESPACES), st.sampled_from(("q1", "q2", "q3")))),
)
histories = st.lists(events, max_size=12)


KEYS = {"node": attrgetter("name"), "pod": attrgetter("uid"), "quota": attrgetter("namespace", "name")}


def replay(history, made=None):
    made = made or ClusterLedger()
    for method, arguments in history:
        getattr(made, method)(*arguments)
    return made


@given(histories, clusters)
def test_any_history_and_then_a_fresh_list_ends_in_what_the_list_alone_gives(history, fresh):
    made = replay(history)
    nodes, pods, quotas = fresh
    relist(set(made.nodes), nodes, key=KEYS["node"], keep=made.set_node, drop=made.drop_node)
    relist(set(made.pods), pods, key=KEYS["pod"], keep=made.set_pod, drop=made.drop_pod)
    known = {(namespace, name) for namespace, found in made._quotas.items() for name in found}
    relist(known, quotas, key=KEYS["quota"], keep=made.set_quota, drop=lambda gone: made.drop_quota(*gone))
    assert conclusions(made) == conclusions(ledger(*fresh))


@given(histories)
def test_a_history_ends_in_what_a_list_of_the_objects_that_are_left_gives(history):
    left: dict[str, dict] = {"node": {}, "pod": {}, "quota": {}}
    for method, arguments in history:
        action, _, kind = method.partition("_")
        if action == "set":
            left[kind][KEYS[kind](arguments[0])] = arguments[0]
        else:
            left[kind].pop(arguments if kind == "quota" else arguments[0], None)
    fresh = ledger(left["node"].values(), left["pod"].values(), left["quota"].values())
    assert conclusions(replay(history)) == conclusions(fresh)


@given(histories, events)
def test_seeing_an_event_twice_changes_nothing(history, last):
    made = replay([*history, last])
    before = conclusions(made)
    made.changed()
    replay([last], made)
    assert conclusions(made) == before
    assert made.changed() == Changes()


@given(clusters, st.randoms())
def test_the_order_in_a_list_makes_no_difference(fresh, random):
    shuffled = [random.sample(part, len(part)) for part in fresh]
    assert conclusions(ledger(*shuffled)) == conclusions(ledger(*fresh))


@given(histories, histories)
def test_whoever_is_not_named_as_changed_is_as_before(first, then):
    made = replay(first)
    nodes = {name: made.node(name) for name in NODES}
    namespaces = {name: made.namespace(name) for name in NAMESPACES}
    made.changed()
    replay(then, made)
    changes = made.changed()
    assert {name for name in NODES if made.node(name) != nodes[name]} <= changes.nodes
    assert {name for name in NAMESPACES if made.namespace(name) != namespaces[name]} <= changes.namespaces


@given(histories, st.lists(st.sampled_from(NODES), max_size=6))
def test_totals_kept_node_by_node_are_those_made_anew(history, dropped):
    made, sums = ClusterLedger(), CapacityTotals()
    for event in history:
        replay([event], made)
        for name in made.changed().nodes:
            one = made.node(name)
            sums.drop(name) if one is None else sums.put(one)
    assert (sums.cluster(), sums.types()) == (totals(made).cluster(), totals(made).types())
    for name in (*dropped, *NODES):
        sums.drop(name)
    assert (sums.cluster(), sums.types()) == (CapacityTotals().cluster(), ())


def naive(pod, device):
    """HAMi's rule again, written for one amount after the other."""
    mine = [one for one in pod.assignments if one.device == device and not (one.init and pod.init_done)]
    app = [one for one in mine if not one.init]
    running = [app]
    for index in {one.container_index for one in mine if one.init}:
        sidecars = [one for one in app if one.container_index < index]
        running.append([*sidecars, *(one for one in mine if one.init and one.container_index == index)])
    return tuple(max(map(amount, running)) for amount in (_memory, _cores, len))


def _memory(some):
    return sum(one.memory for one in some)


def _cores(some):
    return sum(one.cores for one in some)


@given(clusters)
def test_a_device_has_given_away_what_its_living_pods_take_at_their_most(fresh):
    made = ledger(*fresh)
    for state in fresh[0]:
        for one in made.node(state.name).devices:
            holding = [p for p in fresh[1] if p.phase not in ("Succeeded", "Failed")]
            holding = [p for p in holding if (p.assigned_node or p.node) == state.name]
            taken = [naive(p, one.device.id) for p in holding]
            assert (one.memory_allocated, one.cores_allocated, one.shared) == tuple(
                sum(column) for column in (zip(*taken, strict=True) if taken else ((), (), ()))
            )


@given(clusters)
def test_every_gpu_is_somewhere_and_only_once(fresh):
    made = ledger(*fresh)
    sums = totals(made)
    for one in (sums.cluster(), *sums.types()):
        assert one.usable.cards == one.free.cards + one.stranded.cards + one.mig.cards
        for amount in ("slots", "memory", "cores"):
            free, stranded, mig, over, usable, allocated = (
                getattr(part, amount) for part in (one.free, one.stranded, one.mig, one.over, one.usable, one.allocated)
            )
            assert free + stranded + mig == usable - allocated + over
    gpus = sum(len({d.id for d in state.devices}) for state in fresh[0])
    assert sums.cluster().total.cards == sum(one.total.cards for one in sums.types()) == gpus


def accepts(one, memory, cores):
    """HAMi's checks of one GPU, in its order; not for MIG."""
    gpu = one.device
    if one.lost or gpu.mode == "mig" or one.shared >= gpu.slots:
        return False
    if memory > gpu.memory - one.memory_allocated or cores > gpu.cores - one.cores_allocated:
        return False
    if cores == 100 and gpu.cores == 100 and one.shared:
        return False
    return not (cores == 0 and gpu.cores and one.cores_allocated >= gpu.cores)


@given(clusters)
def test_the_largest_request_is_the_last_one_that_fits(fresh):
    made = ledger(*fresh)
    for state in fresh[0]:
        one = made.node(state.name)
        nvidia = [d for d in one.devices if d.device.vendor == "NVIDIA"]
        of_nvidia = [c for c in one.types if c.vendor == "NVIDIA"]
        memory = max((c.largest_memory for c in of_nvidia), default=0)
        cores = max((c.largest_cores for c in of_nvidia), default=0)
        assert not any(accepts(d, memory + 1, 0) for d in nvidia)
        assert cores == 100 or not any(accepts(d, 1, cores + 1) for d in nvidia)
        assert not memory or any(accepts(d, memory, 0) for d in nvidia)
        whole = [d for d in nvidia if not d.shared and accepts(d, d.device.memory, min(100, d.device.cores))]
        assert sum(c.whole_cards for c in of_nvidia) == len(whole)


@given(clusters)
def test_findings_are_bounded_and_their_counts_are_not(fresh):
    made = ledger(*fresh)
    for name in node_names(made):
        one = made.node(name)
        assert len(one.findings) == min(32, sum(count.count for count in one.finding_counts))
