"""Workloads, namespaces and nodes add up to the GPUs they are made from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.logic.console.clusters import GIB, device, holder, node
from tests.store import fleets
from vgpuscope.catalog import agent as m
from vgpuscope.logic.console.allocations import pod_allocations
from vgpuscope.logic.console.facts import folded
from vgpuscope.logic.console.gpus import gpu_rows, ledgers
from vgpuscope.logic.console.namespaces import namespace_rows
from vgpuscope.logic.console.nodes import agents_of, node_rows
from vgpuscope.logic.console.overview import classes, figures, gpu_class, tenant_classes
from vgpuscope.logic.console.scope import gpus_in
from vgpuscope.logic.console.workloads import workload_rows
from vgpuscope.model.allocation import OfferedResource, OfferMode
from vgpuscope.model.analysis import Evidence, Score, Stat, Target
from vgpuscope.model.cluster import OfferLedger, PodShare
from vgpuscope.model.console.facts import LabelledValues
from vgpuscope.model.console.namespaces import QuotaRow
from vgpuscope.model.console.overview import WasteBy
from vgpuscope.model.console.workloads import WORKLOAD_GROUPS
from vgpuscope.model.pending import PendingPod

GPU = fleets.gpu(0).gpu_id
OWN = frozenset({"ml"})


def made(analysis, nodes=(), facts=None):
    return gpu_rows(analysis, stale=False, cluster=ledgers(nodes) if nodes else None, facts=facts)


@given(fleets.analyses(), st.sampled_from(WORKLOAD_GROUPS))
def test_every_tenant_is_in_one_workload(analysis, group_by):
    rows = made(analysis)
    found = workload_rows(rows, group_by=group_by)
    assert sum(row.tenants for row in found) == sum(len(row.tenants) for row in rows)
    assert all(sum(row.by_class.values()) == row.tenants for row in found)
    known = {(row.gpu_id, row.mig) for row in rows}
    assert {(gpu.gpu_id, gpu.mig) for row in found for gpu in row.gpus} <= known
    used = sum(one.memory_used or 0 for row in rows for one in row.tenants)
    assert sum(row.memory_used or 0 for row in found) == used


@given(fleets.analyses())
def test_every_tenant_is_in_one_namespace(analysis):
    rows = made(analysis)
    found = namespace_rows(rows, quotas=None, pending=None, waste=None)
    assert sum(row.tenants for row in found) == sum(len(row.tenants) for row in rows)
    assert all(sum(row.by_class.values()) == sum(row.by_verdict.values()) == row.tenants for row in found)
    assert {(row.pending_pods, row.idle_gpu_hours) for row in found} <= {(None, None)}


@given(fleets.analyses())
def test_every_gpu_is_in_one_class_and_an_idle_one_without_a_pod_is_free(analysis):
    rows = made(analysis)
    assert sum(classes(rows).values()) == len(rows)
    assert sum(tenant_classes(rows).values()) == sum(len(row.tenants) for row in rows)
    for row in rows:
        assert (gpu_class(row) == "unallocated") == (row.verdict == "idle" and not row.tenants)


def test_a_tenant_that_came_late_adds_to_the_power_of_its_namespace_for_its_time_only():
    """A GPU drew 100 W for 50 s and 400 W for 10 s, 150 W in all. The pod of the last 10 s does not make it 400 W."""
    window = Evidence(window_begin=fleets.NOON - 60, window_end=fleets.NOON)
    drawn = {"power": Stat(mean=400.0, max=400.0)}
    late = fleets.tenant("late", own=True, owner="Job/x", terms=drawn, since=fleets.NOON - 10)
    gpu = structs.replace(fleets.gpu(0, tenants=(late,)), terms={"power": Stat(mean=150.0, max=400.0)}, evidence=window)
    rows = made(fleets.analysis(fleets.NOON, gpu))
    assert rows[0].tenants[0].power == 400.0
    [space] = namespace_rows(rows, quotas=None, pending=None, waste=None)
    [job] = workload_rows(rows, group_by="owner")
    assert space.power == job.power == pytest.approx(400 * 10 / 60, abs=0.1)


def test_p95_of_a_workload_is_known_only_if_it_is_known_of_all_that_its_mean_is_of():
    steady = fleets.tenant("a", own=True, owner="Job/x", terms={"process_sm": Stat(mean=0.1, max=0.2, p95=0.1)})
    merged = fleets.tenant("b", own=True, owner="Job/x", terms={"process_sm": Stat(mean=0.9, max=1.0)})
    silent = fleets.tenant("c", owner="Job/x")

    def use(*tenants):
        [row] = workload_rows(made(fleets.analysis(fleets.NOON, fleets.gpu(0, tenants=tenants))), group_by="owner")
        return row.use.mean, row.use.p95, row.use.max

    assert use(steady, merged) == (0.5, None, 1.0)
    assert use(steady, silent) == (0.1, 0.1, 0.2)


def test_a_workload_is_idle_only_if_all_of_it_is():
    idle = fleets.tenant("a", owner="Job/x", verdict="idle", use_class="idle-held", idle_since=fleets.NOON)
    busy = fleets.tenant("b", owner="Job/x", verdict="in_use", use_class="busy")
    rows = made(fleets.analysis(fleets.NOON, fleets.gpu(0, tenants=(idle, busy), verdict="in_use")))
    (owner,) = workload_rows(rows, group_by="owner")
    assert (owner.verdict, owner.use_class, owner.idle_since, owner.pods) == ("in_use", None, None, 2)
    first, second = workload_rows(rows, group_by="pod")
    assert (first.pod, first.verdict, first.use_class, first.idle_since) == (
        "a",
        "idle",
        "idle-held",
        "2026-09-21T12:00:00Z",
    )
    assert (second.pod, second.verdict, second.owner) == ("b", "in_use", "Job/x")


def test_pods_that_wait_are_workloads_too():
    waits = PendingPod(namespace="ml", pod="later", pod_uid="u", created=fleets.NOON - 60, code="SCHED_NOT_TRIED")
    (row,) = workload_rows((), group_by="pod", pending=(waits,), now=fleets.NOON)
    assert (row.state, row.code, row.waited_seconds, row.gpus, row.use_class) == (
        "pending",
        "SCHED_NOT_TRIED",
        60.0,
        (),
        None,
    )


def test_a_namespace_has_its_quotas_its_waiting_pods_and_its_idle_hours():
    rows = made(fleets.analysis(fleets.NOON, fleets.gpu(0, tenants=(fleets.tenant("a"),))))
    quota = QuotaRow(resource="nvidia.com/gpumem", used=4.0, limit=8.0, ratio=0.5)
    waits = [
        PendingPod(namespace="new", pod="p", pod_uid="p"),
        PendingPod(namespace="new", pod="q", pod_uid="q", outcome="scheduled"),
    ]
    waste = WasteBy(namespace="ml", idle_gpu_hours=3.0, held_gpu_hours=4.0, idle_ratio=0.75, pods=1, gpus=1)
    found = namespace_rows(rows, quotas={"ml": (quota,), "quiet": ()}, pending=waits, waste={"ml": waste})
    assert [(row.name, row.gpus, row.pending_pods, row.idle_gpu_hours, row.held_gpu_hours) for row in found] == [
        ("ml", 1, 0, 3.0, 4.0),
        ("new", 0, 1, 0.0, 0.0),
        ("quiet", 0, 0, 0.0, 0.0),
    ]
    assert found[0].quotas == (quota,)


def test_a_node_without_an_agent_is_listed_with_what_the_scheduler_knows():
    nodes = [
        node(
            "dark",
            device(fleets.gpu(7).gpu_id, allocated=GIB),
            holders=(holder(fleets.gpu(7).gpu_id, "p"),),
            ready=False,
        )
    ]
    silent = fleets.gpu(7, hostname="dark", unreported=True, tenants=(fleets.tenant("p"),))
    analysis = fleets.analysis(fleets.NOON, fleets.gpu(0), silent)
    rows = made(analysis, nodes)
    dark, seen = node_rows(rows, cluster=ledgers(nodes), agents=agents_of(analysis, None, now=fleets.NOON))
    assert (dark.name, dark.ready, dark.agent.up, dark.gpus, dark.memory_allocated) == ("dark", False, None, 1, GIB)
    assert (dark.use, dark.power, dark.memory_used) == (None, None, None)
    assert (seen.name, seen.ready, seen.known, seen.memory_capacity, seen.findings) == (
        "node-0",
        None,
        None,
        None,
        None,
    )


def test_an_agent_is_down_where_its_target_is():
    gpus = [fleets.gpu(0, target="http://a"), fleets.gpu(8, target="http://b")]
    analysis = fleets.analysis(fleets.NOON, *gpus)
    down = Target(name="http://b", up=False, since=fleets.NOON, reason="refused")
    fields = {name: getattr(analysis, name) for name in analysis.__struct_fields__}
    known = type(analysis)(**(fields | {"targets": (Target(name="http://a", up=True), down)}))
    up = LabelledValues({"node": "node-0", "source": "nvml", "instance": "a"}, {m.SOURCE_UP.name: 1.0})
    at = LabelledValues({"node": "node-0", "instance": "a"}, {m.SAMPLE_TIME.name: fleets.NOON - 2.0})
    facts = folded([at, up, LabelledValues({"version": "1.2", "instance": "a"}, {m.BUILD_INFO.name: 1.0})])
    agents = agents_of(known, facts, now=fleets.NOON)
    assert (agents["node-0"].up, agents["node-0"].version, agents["node-0"].sources[0].up) == (True, "1.2", True)
    assert agents["node-0"].age_seconds == 2.0
    assert (agents["node-1"].up, agents["node-1"].reason, agents["node-1"].last_seen) == (
        False,
        "refused",
        "2026-09-21T12:00:00Z",
    )


def test_memory_that_two_compute_instances_share_is_counted_once_on_their_node():
    pool = {"mem_used": Stat(mean=3.0 * GIB), "mem_total": Stat(mean=20.0 * GIB)}
    three = [fleets.gpu(0, mig=mig, terms=pool) for mig in ("MIG-a", "MIG-b", "MIG-c")]
    ledger = {"containers": 2.0 * GIB, "system": 1.0 * GIB, "unattributed": 0.0, "free": 77.0 * GIB}
    instances = {"MIG-a": "1", "MIG-b": "1", "MIG-c": "2"}
    facts = folded(
        [
            *[
                LabelledValues({"gpu_uuid": GPU, "owner": who}, {m.GPU_MEMORY_LEDGER.name: size})
                for who, size in ledger.items()
            ],
            *[
                LabelledValues({"gpu_uuid": GPU, "mig_uuid": mig, "gpu_instance": at}, {m.MIG_INFO.name: 1.0})
                for mig, at in instances.items()
            ],
        ]
    )
    analysis = fleets.analysis(fleets.NOON, *three)
    (row,) = node_rows(made(analysis), cluster=None, agents={}, facts=facts)
    assert (row.memory_used, row.memory_total, row.gpus) == (
        6 * GIB,
        80 * GIB,
        1,
    )  # means of the window, as in the rows


def test_what_a_caller_sees_of_a_node_is_what_its_namespaces_have_there():
    own, other = (
        fleets.tenant(name, namespace=name, own=True, terms={"mem_used": Stat(mean=size)})
        for name, size in (("ml", 2.0 * GIB), ("other", 5.0 * GIB))
    )
    shared = fleets.gpu(0, terms={"mem_used": Stat(mean=8.0 * GIB)}, tenants=(own, other))
    nodes = [
        node(
            "node-0",
            device(GPU, allocated=7 * GIB, cores=50),
            device(fleets.gpu(1).gpu_id, allocated=GIB),
            holders=tuple(
                holder(GPU, name, namespace=name, memory=size * GIB) for name, size in (("ml", 3), ("other", 4))
            ),
        )
    ]
    rows = gpus_in(made(fleets.analysis(fleets.NOON, shared, fleets.gpu(1)), nodes), OWN)
    allocations = pod_allocations(ledgers(nodes), OWN)
    (row,) = node_rows(rows, cluster=ledgers(nodes), agents={}, listed=False, allocations=allocations)
    assert (row.gpus, row.gpus_or_instances, row.tenants) == (1, 1, 1)
    assert (row.memory_allocated, row.memory_used, row.slots_allocated) == (3 * GIB, 2 * GIB, 1)


def test_a_tenant_that_the_scheduler_did_not_place_has_no_slot_of_a_node():
    placed, other = (fleets.tenant(name, namespace="ml", own=True) for name in ("placed", "other"))
    nodes = [node("node-0", device(GPU, allocated=GIB), holders=(holder(GPU, "placed", namespace="ml"),))]
    fleet = made(fleets.analysis(fleets.NOON, fleets.gpu(0, tenants=(placed, other))), nodes)
    own = pod_allocations(ledgers(nodes), OWN)
    (row,) = node_rows(gpus_in(fleet, OWN), cluster=ledgers(nodes), agents={}, listed=False, allocations=own)
    assert (row.tenants, row.slots_allocated) == (2, 1)


def test_a_pod_that_is_only_assigned_counts_for_its_node_its_namespace_and_has_a_row():
    holders = (holder(GPU, "train", memory=3 * GIB, cores=30), holder(GPU, "stuck", namespace="batch", memory=4 * GIB))
    gone = holder("GPU-gone", "old", namespace="batch", memory=9 * GIB)  # no longer registered: of no capacity
    nodes = [node("node-0", device(GPU, allocated=7 * GIB, cores=30), holders=(*holders, gone))]
    known = ledgers(nodes)
    rows = made(fleets.analysis(fleets.NOON, fleets.gpu(0, tenants=(fleets.tenant("train", namespace="ml"),))), nodes)
    spaces = namespace_rows(rows, quotas=None, pending=None, waste=None, allocations=pod_allocations(known))
    assert [(one.name, one.tenants, one.memory_allocated, one.cores_allocated) for one in spaces] == [
        ("batch", 0, 4 * GIB, None),
        ("ml", 1, 3 * GIB, 30),
    ]
    (row,) = node_rows(rows, cluster=known, agents={})
    assert row.memory_allocated == sum(one.memory_allocated for one in spaces)
    waits = [PendingPod(namespace="batch", pod="stuck", pod_uid="uid-stuck")]
    pods = workload_rows(rows, group_by="pod", pending=waits, allocations=pod_allocations(known))
    assert [(one.pod, one.state, one.nodes, one.memory_allocated) for one in pods if one.namespace == "batch"] == [
        ("stuck", "pending", ("node-0",), 4 * GIB)
    ]
    batch = frozenset({"batch"})
    (seen,) = node_rows(
        gpus_in(rows, batch), cluster=known, agents={}, listed=False, allocations=pod_allocations(known, batch)
    )
    assert (seen.name, seen.gpus, seen.memory_allocated, seen.slots_allocated) == ("node-0", 0, 4 * GIB, 1)


@pytest.mark.parametrize("group_by", ["namespace", "owner"])
def test_what_an_unbound_pod_was_allocated_is_in_the_sum_of_its_namespace_and_owner(group_by):
    holders = (holder(GPU, "train", memory=3 * GIB, cores=30), holder(GPU, "stuck", memory=4 * GIB, cores=10))
    nodes = [node("node-0", device(GPU, allocated=7 * GIB, cores=40), holders=holders)]
    known, tenant = ledgers(nodes), fleets.tenant("train", namespace="ml", owner="Deployment/train")
    rows = made(fleets.analysis(fleets.NOON, fleets.gpu(0, tenants=(tenant,))), nodes)
    waits = [PendingPod(namespace="ml", pod="stuck", pod_uid="uid-stuck", owner="Deployment/train")]
    found = workload_rows(rows, group_by=group_by, pending=waits, allocations=pod_allocations(known))
    spaces = namespace_rows(rows, quotas=None, pending=None, waste=None, allocations=pod_allocations(known))
    assert [(one.memory_allocated, one.cores_allocated) for one in found] == [(7 * GIB, 40)]
    assert [(one.memory_allocated, one.cores_allocated) for one in spaces] == [(7 * GIB, 40)]


def test_what_counts_of_a_pod_that_has_a_gpu_more_than_once_is_its_share():
    twice = tuple(holder(GPU, "train", container=name, memory=size * GIB) for name, size in (("init", 8), ("main", 3)))
    share = PodShare(namespace="ml", pod="train", pod_uid="uid-train", device=GPU, memory=8 * GIB, cores=0)
    nodes = [node("node-0", device(GPU, allocated=8 * GIB), holders=twice, shares=(share,))]
    assert [(one.memory, one.slots) for one in pod_allocations(ledgers(nodes))] == [(8 * GIB, 2)]


def test_gpus_that_the_kubelet_counts_have_an_allocation_if_pods_get_whole_ones():
    def counted(mode: OfferMode, replicas: int, requested: int, memory: int | None = 80 * GIB) -> OfferLedger:
        one = offer(mode, 4, replicas=replicas)
        return structs.replace(one, offer=structs.replace(one.offer, memory=memory), requested=requested)

    def shown(*offers: OfferLedger):
        (row,) = node_rows([], cluster=ledgers([node("node-0", offers=offers)]), agents={})
        return row.counted_memory_requested, row.counted_memory, row.memory_allocated

    assert shown(counted("whole", 1, 2)) == (160 * GIB, 320 * GIB, None)
    assert shown(counted("whole", 1, 2), counted("mig", 1, 1, 10 * GIB)) == (170 * GIB, 360 * GIB, None)
    assert shown(counted("time-slicing", 4, 3)) == (None, 80 * GIB, None)  # shares have no limit of memory
    assert shown(counted("whole", 1, 2, None)) == (None, None, None)


def test_the_figures_of_the_fleet():
    idle = {"verdict": "idle", "use_class": "idle-held"}
    gpus = (
        fleets.gpu(0, evidence=Evidence(signal_mean=0.5), tenants=(fleets.tenant("a"),), verdict="in_use"),
        fleets.gpu(1, evidence=Evidence(signal_mean=0.0), tenants=(fleets.tenant("b", **idle),), **idle),
        fleets.gpu(2, evidence=Evidence(signal_mean=0.1), verdict="idle", use_class="idle", health="ok"),
        fleets.gpu(3, health="lost", score=Score(value=None), evidence=Evidence()),
    )
    nodes = [node("n", *(device(gpu.gpu_id, allocated=40 * GIB, cores=10) for gpu in gpus[:2]))]
    waits = [PendingPod(namespace="ml", pod="p", pod_uid="p")]
    rows = made(fleets.analysis(fleets.NOON, *gpus), nodes)
    found = figures(rows, cluster=ledgers(nodes), whole=True, pending=waits, wasted=2.5)
    assert (found.gpus, found.gpus_healthy, found.gpus_held, found.gpus_unlisted) == (4, 3, 2, 0)
    assert (found.gpus_or_instances, found.idle_held, found.unknown, found.tenants_idle) == (4, 1, 1, 1)
    assert (found.use, found.use_held, found.gpus_measured) == (0.2, 0.25, 3)
    assert (found.memory_allocated, found.memory_ratio, found.cores_ratio) == (80 * GIB, 0.5, 0.1)
    assert (found.pending_pods, found.wasted_gpu_hours, found.power) == (1, 2.5, None)


def test_a_gpu_that_mig_divides_counts_once_among_gpus_and_as_its_instances_among_instances():
    idle = {"verdict": "idle", "use_class": "idle"}
    parts = [fleets.gpu(0, mig=f"MIG-{n}", tenants=(fleets.tenant(f"p{n}", **idle),), **idle) for n in range(3)]
    busy = fleets.gpu(0, mig="MIG-9", tenants=(fleets.tenant("q", namespace="other"),), verdict="in_use")
    rows = made(fleets.analysis(fleets.NOON, *parts, busy, fleets.gpu(1)))
    fleet, own = (
        figures(found, cluster=None, whole=whole, pending=None, wasted=None)
        for found, whole in ((rows, True), (gpus_in(rows, frozenset({"ml"})), False))
    )
    assert (fleet.gpus, fleet.gpus_divided, fleet.mig_instances, fleet.gpus_or_instances) == (2, 1, 4, 5)
    assert (fleet.idle_held, own.idle_held) == (3, 3)  # the part is never above the whole
    assert (own.gpus, own.gpus_or_instances) == (1, 3)
    by_name = {row.name: row for row in namespace_rows(rows, quotas=None, pending=None, waste=None)}
    assert (by_name["ml"].gpus, by_name["ml"].gpus_or_instances, by_name["other"].gpus) == (1, 3, 1)


def offer(mode: OfferMode, capacity: int, *, replicas: int | None = 1) -> OfferLedger:
    resource = OfferedResource(
        resource="nvidia.com/x", mode=mode, capacity=capacity, allocatable=capacity, replicas=replicas
    )
    return OfferLedger(offer=resource)


@pytest.mark.parametrize(
    ("offers", "rows", "gpus", "unlisted"),
    [
        ((offer("whole", 8),), 0, 8, 8),  # no agent: only the kubelet's number is known
        ((offer("whole", 8),), 8, 8, 0),  # the same GPUs, reported and offered
        ((offer("time-slicing", 8, replicas=4),), 0, 2, 2),
        ((offer("time-slicing", 8, replicas=None),), 1, 1, 0),
        ((offer("mig", 7),), 1, 1, 0),  # seven instances are not seven GPUs
        ((offer("mig", 7),), 0, None, 0),  # on how many GPUs they are is not known
        ((offer("whole", 6), offer("mig", 14)), 8, 8, 0),
    ],
)
def test_what_a_kubelet_offers_is_counted_in_gpus_and_never_twice(offers, rows, gpus, unlisted):
    nodes = [node("node-0", offers=offers)]
    found = made(fleets.analysis(fleets.NOON, *[fleets.gpu(n, hostname="node-0") for n in range(rows)]), nodes)
    (row,) = node_rows(found, cluster=ledgers(nodes), agents={})
    assert (row.gpus, row.gpus_unlisted, row.gpus_or_instances) == (gpus, unlisted, rows)


def test_a_label_counts_the_gpus_that_mig_divides_where_no_agent_reports_them():
    divided = node("node-0", offers=(offer("whole", 4), offer("mig", 3)), labelled_gpus=5)
    (row,) = node_rows((), cluster=ledgers([divided]), agents={})
    assert (row.gpus, row.gpus_unlisted) == (5, 5)


def test_memory_of_an_idle_gpu_that_no_pod_has_does_not_make_it_held():
    rows = made(fleets.analysis(fleets.NOON, fleets.gpu(0, verdict="idle", use_class="idle-held")))
    assert classes(rows)["unallocated"] == 1
    assert figures(rows, cluster=None, whole=True, pending=None, wasted=None).idle_held == 0
