"""Profiling values, and how sure each attributed figure is → samples."""

from collections.abc import Collection, Iterable, Iterator

from vgpuscope.catalog import agent as m
from vgpuscope.catalog.label_sets import ContainerLabels, GpuLabels, MigLabels
from vgpuscope.catalog.metric import Metric
from vgpuscope.model.activity import Activity
from vgpuscope.model.usage import Burst, ContainerUsage, GpuUsage, MigUsage
from vgpuscope.views.exposition.page import Sample

_Values = Iterable[tuple[Metric, float | None]]


def gpu_activity(row: GpuLabels, gpu: GpuUsage, instances: Collection[MigUsage]) -> Iterator[Sample]:
    """The profiling values of a GPU, and their source."""
    source = gpu.activity_source or next((one.activity_source for one in instances if one.activity_source), None)
    if source or gpu.activity_blind:
        yield Sample(m.GPU_PROFILING_INFO, row, 1, (source or "none", gpu.activity_blind))
    if gpu.activity is None:
        return
    for metric, value in _of_gpu(gpu.activity, gpu.engine_burst, gpu.sm_active_burst):
        if value is not None:
            yield Sample(metric, row, value)


def _of_gpu(activity: Activity, engine: Burst | None, sm: Burst | None) -> _Values:
    return (
        (m.GPU_ENGINE_ACTIVE, activity.engine),
        (m.GPU_ENGINE_ACTIVE_MEAN, engine.mean if engine else None),
        (m.GPU_ENGINE_ACTIVE_MAX, engine.max if engine else None),
        (m.GPU_SM_ACTIVE, activity.sm),
        (m.GPU_SM_ACTIVE_MEAN, sm.mean if sm else None),
        (m.GPU_SM_ACTIVE_MAX, sm.max if sm else None),
        (m.GPU_SM_OCCUPANCY, activity.occupancy),
        (m.GPU_TENSOR_ACTIVE, activity.tensor),
        (m.GPU_FP64_ACTIVE, activity.fp64),
        (m.GPU_FP32_ACTIVE, activity.fp32),
        (m.GPU_FP16_ACTIVE, activity.fp16),
        (m.GPU_DRAM_ACTIVE, activity.dram),
        (m.GPU_PCIE_SENT_RATE, activity.pcie_sent),
        (m.GPU_PCIE_RECEIVED_RATE, activity.pcie_received),
        (m.GPU_NVLINK_SENT_RATE, activity.nvlink_sent),
        (m.GPU_NVLINK_RECEIVED_RATE, activity.nvlink_received),
        (m.GPU_NVLINK_BANDWIDTH, _megabytes(activity.nvlink_sent, activity.nvlink_received)),
    )


def _megabytes(sent: float | None, received: float | None) -> float | None:
    return None if sent is None or received is None else (sent + received) / 1e6


def mig_activity(row: MigLabels, usage: MigUsage | None) -> Iterator[Sample]:
    """The profiling values of a MIG instance, its busy time and its energy."""
    if usage is None:
        return
    if usage.activity is not None:
        for metric, value in _of_mig(usage.activity, usage.engine_burst, usage.sm_active_burst):
            if value is not None:
                yield Sample(metric, row, value)
    if usage.busy_seconds is not None and usage.method:
        yield Sample(m.MIG_BUSY, row, usage.busy_seconds)
        yield Sample(m.MIG_METHOD, row, 1, ("sm", usage.method, "derived"))
    if usage.energy is not None and usage.energy_method:
        yield Sample(m.MIG_ENERGY, row, usage.energy)
        yield Sample(m.MIG_METHOD, row, 1, ("energy", usage.energy_method, "shared-out"))


def _of_mig(activity: Activity, engine: Burst | None, sm: Burst | None) -> _Values:
    return (
        (m.MIG_ENGINE_ACTIVE, activity.engine),
        (m.MIG_ENGINE_ACTIVE_MEAN, engine.mean if engine else None),
        (m.MIG_ENGINE_ACTIVE_MAX, engine.max if engine else None),
        (m.MIG_SM_ACTIVE, activity.sm),
        (m.MIG_SM_ACTIVE_MEAN, sm.mean if sm else None),
        (m.MIG_SM_ACTIVE_MAX, sm.max if sm else None),
        (m.MIG_SM_OCCUPANCY, activity.occupancy),
        (m.MIG_TENSOR_ACTIVE, activity.tensor),
        (m.MIG_FP64_ACTIVE, activity.fp64),
        (m.MIG_FP32_ACTIVE, activity.fp32),
        (m.MIG_FP16_ACTIVE, activity.fp16),
        (m.MIG_DRAM_ACTIVE, activity.dram),
        (m.MIG_DECODER, activity.decoder),
        (m.MIG_JPEG, activity.jpeg),
        (m.MIG_OFA, activity.ofa),
    )


def instance_sm(usage: ContainerUsage) -> _Values:
    """The container's use as a share of its MIG instance."""
    if usage.instance_sm is None:
        return ()
    burst = usage.instance_sm_burst
    return (
        (m.CONTAINER_INSTANCE_SM, usage.instance_sm),
        (m.CONTAINER_INSTANCE_SM_MEAN, burst.mean if burst else None),
        (m.CONTAINER_INSTANCE_SM_MAX, burst.max if burst else None),
    )


def container_certainty(row: ContainerLabels, usage: ContainerUsage) -> Iterator[Sample]:
    """How each figure of a container was found out, and how far it can be off."""
    for resource, method, certainty in (
        ("memory", usage.memory_method, usage.memory_certainty),
        ("sm", usage.sm_method, usage.sm_certainty),
        ("energy", usage.energy_method, usage.energy_certainty),
    ):
        if method is not None:
            yield Sample(m.CONTAINER_METHOD, row, 1, (resource, method, certainty or ""))
    for metric, error in (
        (m.CONTAINER_MEMORY_ERROR, usage.memory_error),
        (m.CONTAINER_SM_ERROR, usage.sm_error),
    ):
        if error is not None:
            yield Sample(metric, row, error)
