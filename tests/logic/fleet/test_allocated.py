"""What the scheduler has allocated, on the GPUs of an analysis."""

from tests.store.fleets import GIB, gpu, tenant
from vgpuscope.logic.fleet.allocated import with_allocations
from vgpuscope.model.analysis import Allocated, Allocations

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
