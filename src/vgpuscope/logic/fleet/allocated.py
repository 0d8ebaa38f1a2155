"""GPUs with what the scheduler has allocated of them, and the GPUs that only the scheduler knows."""

from collections.abc import Sequence
from typing import TypeAlias

from msgspec.structs import replace

from vgpuscope.catalog.limits import FLEET_GPUS
from vgpuscope.model.analysis import (
    Allocated,
    Allocations,
    Evidence,
    GpuUse,
    Reading,
    RegisteredGpu,
    TenantUse,
    Window,
)
from vgpuscope.model.quantity import Seconds

UNREPORTED = "VERDICT_UNREPORTED"
_NOTHING = Allocations({}, {})
_UUID = "GPU-"  # how an NVIDIA GPU's UUID begins; a DRA driver may publish another id
_Pod: TypeAlias = tuple[str, str]  # namespace and name


def with_pod_uids(reading: Reading, allocations: Allocations | None) -> Reading:
    """The same reading, in which tenants have the UIDs of their pods where the metrics have none.

    The node has to be the same, because metrics of another cluster can have a pod of the same name. A pod that has its
    UID in some series keeps it: that is of the moment of the measurement.
    """
    uids = allocations.uids if allocations else {}
    if not uids:
        return reading
    named = {(one.namespace, one.pod) for track in reading.tracks if (one := track.tenant) and one.pod_uid}
    tracks = []
    for track in reading.tracks:
        who = track.tenant
        if who is not None and (who.namespace, who.pod) not in named:
            uid = uids.get((track.hostname, who.namespace, who.pod), "")
            tracks.append(replace(track, tenant=replace(who, pod_uid=uid)) if uid else track)
        else:
            tracks.append(track)
    return replace(reading, tracks=tuple(tracks))


def with_registered(
    gpus: Sequence[GpuUse],
    allocations: Allocations | None,
    *,
    window: Window,
    before: Sequence[GpuUse] = (),
    forget_after: Seconds,
) -> tuple[GpuUse, ...]:
    """The same GPUs, and those that are registered with the scheduler and that no exporter reports, as unknown.

    So every list, count and chart has the same GPUs. A GPU that no exporter reports has the tenants that the scheduler
    placed there, whether it has reported before or not. A GPU under an id that is no UUID, on a node that reports GPUs,
    may be one of them under another name and is left out. `before`: the GPUs of the last analysis, whose unreported
    ones stay if the scheduler's list cannot be read now.
    """
    known = {gpu.gpu_id for gpu in gpus}
    if allocations is None:
        oldest = window.end - forget_after
        stay = [gpu for gpu in before if gpu.unreported and gpu.gpu_id not in known]
        return (*gpus, *[gpu for gpu in stay if (gpu.evidence.window_end or 0.0) > oldest])
    gpus = [_with_holders(gpu, allocations.registered.get(gpu.gpu_id)) for gpu in gpus]
    hosts = {gpu.hostname for gpu in gpus}
    evidence = Evidence(reasons=(UNREPORTED,), window_begin=window.begin, window_end=window.end)
    unreported = [
        GpuUse(
            gpu_id=gpu_id,
            gpu_index=str(one.index),
            hostname=one.node,
            model=one.model,
            health="" if one.healthy else "unhealthy",
            evidence=evidence,
            tenants=_holders(one, evidence),
            unreported=True,
        )
        for gpu_id, one in allocations.registered.items()
        if gpu_id not in known and (gpu_id.startswith(_UUID) or one.node not in hosts)
    ]
    return (*gpus, *unreported[: max(0, FLEET_GPUS.most - len(gpus))])


def _with_holders(gpu: GpuUse, registered: RegisteredGpu | None) -> GpuUse:
    """A GPU that no longer reports, with the tenants that the scheduler placed there."""
    if gpu.last_seen is None or gpu.tenants or gpu.mig or registered is None:
        return gpu
    return replace(gpu, tenants=_holders(registered, gpu.evidence))


def _holders(registered: RegisteredGpu, evidence: Evidence) -> tuple[TenantUse, ...]:
    return tuple([TenantUse(tenant=tenant, evidence=evidence) for tenant in registered.holders])


def with_allocations(gpus: Sequence[GpuUse], allocations: Allocations | None) -> tuple[GpuUse, ...]:
    """The same GPUs. The allocation of a GPU that is not registered with the scheduler is not known.

    The scheduler allocates a GPU to a pod. So if a pod has several containers or MIG instances of one GPU, the first
    of them gets the allocation: sums over tenants are then right.
    """
    allocations, given = allocations or _NOTHING, set[tuple[str, str, str]]()
    partly = _partly_seen(gpus, allocations)
    return tuple([_with_allocation(_marked(gpu, partly), allocations, given) for gpu in gpus])


def _partly_seen(gpus: Sequence[GpuUse], allocations: Allocations) -> frozenset[_Pod]:
    """Pods that were allocated several GPUs, of which some report and some do not.

    If none of them reports, the scheduler may name GPUs by other ids than the exporters, and nothing can be compared.
    """
    reporting = {gpu.gpu_id for gpu in gpus if gpu.last_seen is None and not gpu.unreported}
    seen, unseen = set[_Pod](), set[_Pod]()
    for gpu_id, namespace, pod in allocations.pods:
        (seen if gpu_id in reporting else unseen).add((namespace, pod))
    return frozenset(seen & unseen)


def _marked(gpu: GpuUse, partly: frozenset[_Pod]) -> GpuUse:
    if not partly or not any((use.tenant.namespace, use.tenant.pod) in partly for use in gpu.tenants):
        return gpu
    tenants = [replace(use, partly_seen=(use.tenant.namespace, use.tenant.pod) in partly) for use in gpu.tenants]
    return replace(gpu, tenants=tuple(tenants))


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
