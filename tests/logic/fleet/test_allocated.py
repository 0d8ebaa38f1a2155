"""What the scheduler has allocated, on the GPUs of an analysis."""

from msgspec import structs

from tests.store.fleets import GIB, gpu, tenant
from vgpuscope.logic.fleet.allocated import with_allocations, with_pod_uids, with_registered
from vgpuscope.model.analysis import Allocated, Allocations, Reading, RegisteredGpu, Tenant, Track, Window

HALF, QUARTER = Allocated(40 * GIB, 50), Allocated(20 * GIB, None)


def allocations(of, *pods) -> Allocations:
    return Allocations({of.gpu_id: HALF}, {(of.gpu_id, "ml", pod): QUARTER for pod in pods})


def test_a_gpu_and_its_tenants_get_what_is_allocated_to_them():
    one_gpu = gpu(0, tenants=(tenant("a"), tenant("b")))
    found, other = with_allocations((one_gpu, gpu(1)), allocations(one_gpu, "a"))
    assert found.allocated == HALF
    assert [use.allocated for use in found.tenants] == [QUARTER, None]
    assert other == gpu(1)


def test_an_allocation_to_a_pod_is_counted_once_whatever_it_has_of_the_gpu():
    parts = [gpu(0, mig=f"MIG-{n}", tenants=(tenant("a", container="x"), tenant("a", container="y"))) for n in (1, 2)]
    found = with_allocations(parts, allocations(parts[0], "a"))
    assert [use.allocated for part in found for use in part.tenants] == [QUARTER, None, None, None]
    assert [part.allocated for part in found] == [Allocated(20 * GIB, 0), None]


def test_a_free_instance_of_a_registered_gpu_has_nothing_allocated_and_an_unregistered_one_is_unknown():
    free, foreign = gpu(0, mig="MIG-1"), gpu(1, mig="MIG-2")
    found = with_allocations((free, foreign), allocations(free))
    assert [part.allocated for part in found] == [Allocated(0, 0), None]


def test_what_was_allocated_to_a_missed_gpu_is_not_known_any_more():
    assert with_allocations((gpu(0, allocated=HALF),), None) == (gpu(0),)


def marked(gpus, *assigned) -> list[str]:
    """The pods that are marked as seen only in part, if pods are assigned to GPUs like this."""
    found = with_allocations(gpus, Allocations({}, {(gpu_id, "ml", pod): HALF for gpu_id, pod in assigned}))
    return [use.tenant.pod for one in found for use in one.tenants if use.partly_seen]


def test_a_pod_with_a_second_gpu_that_does_not_report_is_seen_only_in_part():
    first, silent = gpu(0, tenants=(tenant("a"), tenant("b"))), gpu(1, last_seen=1.0)
    both = [(first.gpu_id, "a"), (silent.gpu_id, "a"), (first.gpu_id, "b")]
    assert marked((first, silent), *both) == ["a"]
    assert marked((first,), *both) == ["a"]  # the analyzer was started after the GPU fell silent
    assert marked((first, gpu(1)), *both) == []


def test_a_scheduler_that_names_gpus_otherwise_says_nothing_about_what_was_seen():
    assert marked((gpu(0, tenants=(tenant("a"),)),), ("pool-1/gpu-0", "a"), ("pool-1/gpu-1", "a")) == []


DAY = 86400.0


def registered(*gpus, node="n9", **more) -> Allocations:
    return Allocations({}, {}, {gpu_id: RegisteredGpu(node=node, index=0, model="A100", **more) for gpu_id in gpus})


def listed(gpus, allocations, *, end=1000.0, before=()):
    window = Window(begin=end - 600, end=end, interval=15)
    return with_registered(gpus, allocations, window=window, before=before, forget_after=DAY)


def test_a_gpu_that_only_the_scheduler_knows_is_listed_as_unknown_with_its_holders():
    held = registered("GPU-9", healthy=False, holders=(tenant("a").tenant,))
    seen, silent = listed((gpu(0),), held)
    assert seen == gpu(0)
    assert (silent.gpu_id, silent.hostname, silent.model, silent.health) == ("GPU-9", "n9", "A100", "unhealthy")
    assert (silent.verdict, silent.status, silent.evidence.reasons) == ("unknown", "unknown", ("VERDICT_UNREPORTED",))
    assert [(use.tenant.pod, use.verdict) for use in silent.tenants] == [("a", "unknown")]


def test_a_registered_gpu_that_no_longer_reports_has_the_holders_that_the_scheduler_knows():
    missed = structs.replace(gpu(0), tenants=(), last_seen=400.0)
    [shown] = listed((missed,), registered(missed.gpu_id, healthy=True, holders=(tenant("a").tenant,)))
    assert [(use.tenant.pod, use.verdict) for use in shown.tenants] == [("a", "unknown")]
    [reporting] = listed((gpu(0),), registered(missed.gpu_id, healthy=True, holders=(tenant("a").tenant,)))
    assert reporting == gpu(0)


def test_a_gpu_that_an_exporter_reports_is_listed_once_whole_or_by_its_instances():
    instances = (gpu(0, mig="MIG-1"), gpu(0, mig="MIG-2"))
    assert listed(instances, registered(instances[0].gpu_id, healthy=True)) == instances


def test_a_registered_gpu_whose_id_is_no_uuid_may_be_one_that_reports():
    assert listed((gpu(0),), registered("pool-1/gpu-0", node=gpu(0).hostname, healthy=True)) == (gpu(0),)
    assert len(listed((gpu(0),), registered("pool-1/gpu-0", healthy=True))) == 2


def test_unreported_gpus_stay_for_a_while_if_the_scheduler_s_list_cannot_be_read():
    before = listed((gpu(0),), registered("GPU-9", healthy=True))
    assert listed((gpu(0),), None, before=before) == before
    assert listed((gpu(0),), None, before=before, end=1000.0 + DAY) == (gpu(0),)
    assert listed((gpu(0),), registered(), before=before) == (gpu(0),)


def test_a_tenant_gets_the_uid_of_its_pod_only_on_its_own_node_and_keeps_one_that_was_measured():
    def track(node: str, uid: str = "", pod: str = "a") -> Track:
        tenant = Tenant(namespace="ml", pod=pod, pod_uid=uid)
        return Track(schema="dcgm", gpu_id="GPU-0", hostname=node, tenant=tenant)

    tracks = (track("n1"), track("of-another-cluster"), track("n1", pod="b"), track("n1", "old", pod="b"))
    reading = Reading(window=Window(begin=0, end=600, interval=30), tracks=tracks)
    known = Allocations({}, {}, uids={("n1", "ml", "a"): "uid-a", ("n1", "ml", "b"): "new"})
    found = [one.tenant.pod_uid for one in with_pod_uids(reading, known).tracks]
    assert found == ["uid-a", "", "", "old"]
    assert with_pod_uids(reading, None) is reading
