"""GPUs with what the scheduler has allocated of them."""

from collections.abc import Sequence

from msgspec.structs import replace

from vgpuscope.model.analysis import Allocated, Allocations, GpuUse, TenantUse

_NOTHING = Allocations({}, {})


def with_allocations(gpus: Sequence[GpuUse], allocations: Allocations | None) -> tuple[GpuUse, ...]:
    """The same GPUs. The allocation of a GPU that is not registered with the scheduler is not known.

    The scheduler allocates a GPU to a pod. So if a pod has several containers or MIG instances of one GPU, the first
    of them gets the allocation: sums over tenants are then right.
    """
    given: set[tuple[str, str, str]] = set()
    return tuple([_with_allocation(gpu, allocations or _NOTHING, given) for gpu in gpus])


def _with_allocation(gpu: GpuUse, allocations: Allocations, given: set[tuple[str, str, str]]) -> GpuUse:
    whole = allocations.gpus.get(gpu.gpu_id)
    if whole is None:
        return replace(gpu, allocated=None) if gpu.allocated else gpu  # one that is missed has its former value
    tenants = tuple([_tenant(use, gpu, allocations, given) for use in gpu.tenants])
    return replace(gpu, tenants=tenants, allocated=_of_instance(tenants) if gpu.mig else whole)


def _tenant(use: TenantUse, gpu: GpuUse, allocations: Allocations, given: set[tuple[str, str, str]]) -> TenantUse:
    key = (gpu.gpu_id, use.tenant.namespace, use.tenant.pod)
    found = allocations.pods.get(key)
    if found is None or key in given:
        return use
    given.add(key)
    return replace(use, allocated=found)


def _of_instance(tenants: Sequence[TenantUse]) -> Allocated | None:
    """A MIG instance is allocated to its tenants; one without a tenant is free."""
    found = [use.allocated for use in tenants if use.allocated]
    if tenants and not found:
        return None
    return Allocated(sum(one.memory for one in found), sum(one.cores or 0 for one in found))
