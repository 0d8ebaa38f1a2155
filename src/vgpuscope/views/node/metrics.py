"""NodeSnapshot → samples. It reads like a list: a value that is not measured is None and does not appear."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, structs

from vgpuscope.catalog import agent as m
from vgpuscope.catalog.label_sets import (
    ContainerLabels,
    GpuLabels,
    MigHolderLabels,
    MigLabels,
    NodeLabels,
    PodLabels,
    SourceLabels,
    VgpuLabels,
)
from vgpuscope.catalog.limits import (
    CONTAINER_MIGS,
    HOST_CONTAINERS,
    NODE_CONTAINERS,
    NODE_MIG_HOLDINGS,
    NODE_OMISSIONS,
    NODE_VGPUS,
    NodeOmission,
)
from vgpuscope.catalog.metric import Metric
from vgpuscope.knowledge.mig import instance_profile
from vgpuscope.knowledge.xid import advice
from vgpuscope.model.device import HEALTH, THROTTLE_REASONS, Gpu, MigInstance
from vgpuscope.model.serving import QUANTILES, ServedScrapes
from vgpuscope.model.usage import (
    MODES,
    STATES,
    ContainerUsage,
    GpuUsage,
    Ledger,
    MigUsage,
    NodeSnapshot,
    Split,
    Vgpu,
)
from vgpuscope.views.build import Build
from vgpuscope.views.exposition.page import Sample
from vgpuscope.views.node.activity_metrics import container_certainty, gpu_activity, instance_sm, mig_activity
from vgpuscope.views.node.host_metrics import host_samples, node_host_samples

FREE = "free"
MICROSECONDS = 1e6  # prometheus-cpp counts in them


class SelfUse(Struct, frozen=True, kw_only=True):
    """What the process itself uses."""

    cpu_seconds: float | None = None
    resident_bytes: int | None = None
    open_fds: int | None = None
    start_time: float | None = None
    loop_restarts: dict[str, int] = {}
    served: ServedScrapes | None = None


def node_samples(snapshot: NodeSnapshot, *, build: Build, self_use: SelfUse) -> Iterator[Sample]:
    """Every sample of the agent's page. The samples of one row come together."""
    snapshot, omitted = _within_limits(snapshot)
    gpu_rows = {gpu_usage.gpu.uuid: _gpu_row(snapshot, gpu_usage) for gpu_usage in snapshot.gpus}
    ledgers = {(ledger.gpu, ledger.mig): ledger for ledger in snapshot.ledgers}
    used = {one.mig: one for one in snapshot.instances}
    instances: dict[str, list[MigUsage]] = {}
    for one in snapshot.instances:
        instances.setdefault(one.gpu, []).append(one)
    yield from _node(snapshot, build, self_use, omitted)
    yield from _sources(snapshot)
    for gpu_usage in snapshot.gpus:
        gpu_row = gpu_rows[gpu_usage.gpu.uuid]
        yield from _gpu(gpu_row, gpu_usage, ledgers.get((gpu_usage.gpu.uuid, None)))
        yield from _xids(gpu_row, snapshot)
        yield from gpu_activity(gpu_row, gpu_usage, instances.get(gpu_usage.gpu.uuid, ()))
        for instance in gpu_usage.gpu.instances:
            mig_row = _mig_row(gpu_row, instance, gpu_usage.gpu, snapshot)
            yield from _mig(mig_row, instance, ledgers.get((gpu_usage.gpu.uuid, instance.uuid)))
            yield from mig_activity(mig_row, used.get(instance.uuid))
    shown = {gpu_usage.gpu.uuid: gpu_usage for gpu_usage in snapshot.gpus}
    tenants = Counter(_gpu_instance(usage, shown.get(usage.gpu)) for usage in snapshot.containers)
    cpu = {use.key: use.cpu_cores for use in snapshot.host.containers}
    for usage in snapshot.containers:
        row = _container_row(snapshot.node, usage, gpu_rows.get(usage.gpu), shown.get(usage.gpu))
        if (place := _gpu_instance(usage, shown.get(usage.gpu))) is not None and tenants[place] == 1:
            row = row._replace(shared="")
        yield from _container(row, usage)
        if (cores := cpu.get(usage.key)) is not None:
            yield Sample(m.CONTAINER_CPU, row, cores)
    for use in snapshot.host.containers:
        yield from host_samples(snapshot.node, use)
    yield from _pods(snapshot)
    for vgpu in snapshot.vgpus:
        yield from _vgpu(snapshot, vgpu)
    yield from _holdings(snapshot)


def _within_limits(snapshot: NodeSnapshot) -> tuple[NodeSnapshot, Counter[NodeOmission]]:
    """The snapshot without what exceeds a limit, and how many things have no series."""
    containers = snapshot.containers[: NODE_CONTAINERS.most]
    numbered = tuple(one for one in snapshot.migs if one.index < CONTAINER_MIGS.most)
    vgpus, migs = snapshot.vgpus[: NODE_VGPUS.most], numbered[: NODE_MIG_HOLDINGS.most]
    whole = len(snapshot.containers) + len(snapshot.vgpus) + len(numbered)
    omitted = Counter[NodeOmission](
        {
            "unknown-device": sum(one.devices for one in snapshot.unknown_devices),
            "container-limit": len(snapshot.migs) - len(numbered),
            "node-limit": whole - len(containers) - len(vgpus) - len(migs) + _without_host(snapshot),
        }
    )
    if not omitted["node-limit"] and not omitted["container-limit"]:
        return snapshot, omitted
    kept = {(one.key.namespace, one.key.pod, one.key.pod_uid, one.gpu) for one in containers}
    pods = tuple(one for one in snapshot.pods if (one.namespace, one.pod, one.pod_uid, one.gpu) in kept)
    return structs.replace(snapshot, containers=containers, pods=pods, vgpus=vgpus, migs=migs), omitted


def _without_host(snapshot: NodeSnapshot) -> int:
    """Containers whose use of the node is not read because there are too many."""
    if len(snapshot.containers) <= HOST_CONTAINERS.most:
        return 0
    return max(0, len({usage.key for usage in snapshot.containers}) - HOST_CONTAINERS.most)


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def _text(value: int | str | None) -> str:
    return "" if value is None else str(value)


def _gpu_row(snapshot: NodeSnapshot, gpu_usage: GpuUsage) -> GpuLabels:
    gpu, holder = gpu_usage.gpu, gpu_usage.holder
    return GpuLabels(
        node=snapshot.node,
        gpu_uuid=gpu.uuid,
        gpu_index=str(gpu.index),
        model=gpu.model,
        serial=_text(gpu.serial),
        minor=_text(gpu.minor),
        pci_bus_id=_text(gpu.pci_bus_id),
        driver_version=_text(snapshot.driver_version),
        hami_type=f"NVIDIA-{gpu.model}",
        device=f"nvidia{gpu.minor if gpu.minor is not None else gpu.index}",
        namespace=holder.namespace if holder else "",
        pod=holder.pod if holder else "",
        pod_uid=holder.pod_uid if holder else "",
        container=holder.container if holder else "",
        whole="" if gpu.instances else "1",
    )


def _mig_row(gpu: GpuLabels, instance: MigInstance, whole: Gpu, snapshot: NodeSnapshot) -> MigLabels:
    # dcgm-exporter has one series for a GPU instance, so it bears a pod's name only if one pod has all of it
    beside = {one.uuid for one in whole.instances if one.gpu_instance == instance.gpu_instance}
    holders = [u.key for u in snapshot.containers if u.mig in beside]
    holder = holders[0] if len(holders) == 1 else None
    return MigLabels(
        node=gpu.node,
        gpu_uuid=gpu.gpu_uuid,
        mig_uuid=instance.uuid,
        gpu_index=gpu.gpu_index,
        mig_index=str(instance.index),
        profile=_text(instance.profile),
        gpu_instance=str(instance.gpu_instance),
        compute_instance=str(instance.compute_instance),
        model=gpu.model,
        pci_bus_id=gpu.pci_bus_id,
        driver_version=gpu.driver_version,
        device=gpu.device,
        instance_profile=instance_profile(_text(instance.profile)),
        namespace=holder.namespace if holder else "",
        pod=holder.pod if holder else "",
        pod_uid=holder.pod_uid if holder else "",
        container=holder.container if holder else "",
    )


def _container_row(node: str, usage: ContainerUsage, gpu: GpuLabels | None, shown: GpuUsage | None) -> ContainerLabels:
    instance = _instance(usage, shown)
    apart = "1" if usage.key.pod and (shown is None or shown.holder != usage.key) else ""
    return ContainerLabels(
        node=node,
        namespace=usage.key.namespace,
        pod=usage.key.pod,
        pod_uid=usage.key.pod_uid,
        container=usage.key.container,
        gpu_uuid=usage.gpu,
        mig_uuid=usage.mig or "",
        gpu_index=gpu.gpu_index if gpu else "",
        model=gpu.model if gpu else "",
        pci_bus_id=gpu.pci_bus_id if gpu else "",
        driver_version=gpu.driver_version if gpu else "",
        device=gpu.device if gpu else "",
        instance_profile=instance_profile(_text(instance.profile)) if instance else "",
        gpu_instance=str(instance.gpu_instance) if instance else "",
        shared=apart,
        apart=apart,
        sharing="" if usage.mig else apart,
    )


def _gpu_instance(usage: ContainerUsage, gpu_usage: GpuUsage | None) -> tuple[str, int] | None:
    instance = _instance(usage, gpu_usage)
    return None if instance is None else (usage.gpu, instance.gpu_instance)


def _instance(usage: ContainerUsage, gpu_usage: GpuUsage | None) -> MigInstance | None:
    if gpu_usage is None or usage.mig is None:
        return None
    return next((i for i in gpu_usage.gpu.instances if i.uuid == usage.mig), None)


# ── samples ──────────────────────────────────────────────────────────────────────────────────────────────────────
def _node(
    snapshot: NodeSnapshot, build: Build, self_use: SelfUse, omitted: Mapping[NodeOmission, int]
) -> Iterator[Sample]:
    row = NodeLabels(node=snapshot.node, **structs.asdict(build))
    tally = snapshot.tally
    yield Sample(m.BUILD_INFO, row, 1)
    yield Sample(m.SAMPLES, row, snapshot.samples)
    yield Sample(m.SAMPLE_SECONDS, row, snapshot.sample_seconds)
    yield Sample(m.SAMPLE_TIME, row, snapshot.at)
    yield Sample(m.RATIO, row, snapshot.ratio)
    yield Sample(m.REGIONS, row, snapshot.regions)
    yield Sample(m.REGIONS_ORPHANED, row, snapshot.regions_orphaned)
    for dispute in snapshot.disputes:
        key = dispute.key
        yield Sample(m.REGIONS_DISPUTED, row, dispute.devices, (key.namespace, key.pod, key.container))
    for reason in NODE_OMISSIONS:
        yield Sample(m.WITHOUT_SERIES, row, omitted[reason], (reason,))
    yield Sample(m.ENDED, row, tally.ended)
    yield from node_host_samples(row, snapshot.host)
    yield from _counts(m.REGIONS_REFUSED, row, snapshot.regions_refused)
    yield from _counts(m.CORRECTIONS, row, tally.corrections)
    yield from _counts(m.DROPPED, row, tally.dropped)
    yield from _counts(m.SCALED, row, tally.scaled)
    yield from _counts(m.ERRORS, row, tally.errors)
    yield from _counts(m.LOOP_RESTARTS, row, self_use.loop_restarts)
    yield Sample(m.PROCESS_CPU, row, self_use.cpu_seconds)
    yield Sample(m.PROCESS_RSS, row, self_use.resident_bytes)
    yield Sample(m.PROCESS_FDS, row, self_use.open_fds)
    yield Sample(m.PROCESS_START, row, self_use.start_time)
    if (served := self_use.served) is not None:
        yield Sample(m.EXPOSER_BYTES, row, served.bytes)
        yield Sample(m.EXPOSER_SCRAPES, row, served.count)
        for share, seconds in zip(QUANTILES, served.quantiles, strict=False):
            yield Sample(m.EXPOSER_LATENCIES, row, seconds * MICROSECONDS, (f"{share:g}",))
        yield Sample(m.EXPOSER_LATENCY_SUM, row, served.seconds * MICROSECONDS)
        yield Sample(m.EXPOSER_LATENCY_COUNT, row, served.count)


def _counts(metric: Metric, row: NodeLabels, counts: dict[str, int]) -> Iterator[Sample]:
    for what, count in counts.items():
        yield Sample(metric, row, count, (what,))


def _sources(snapshot: NodeSnapshot) -> Iterator[Sample]:
    for source in snapshot.sources:
        row = SourceLabels(node=snapshot.node, source=source.source)
        yield Sample(m.SOURCE_UP, row, int(source.up))
        yield Sample(m.SOURCE_ABSENT, row, int(source.absent))
        if source.code and not source.up:
            yield Sample(m.SOURCE_ERROR, row, 1, (source.code,))
        yield Sample(m.SOURCE_READ_SECONDS, row, source.read_seconds)
        yield Sample(m.SOURCE_AGE_SECONDS, row, source.age_seconds)


def _gpu(row: GpuLabels, gpu_usage: GpuUsage, ledger: Ledger | None) -> Iterator[Sample]:
    gpu = gpu_usage.gpu
    yield Sample(m.GPU_INFO, row, 1)
    yield from _one_hot(m.GPU_HEALTH, row, HEALTH, gpu.health)
    yield from _one_hot(m.GPU_MODE, row, (*MODES, FREE), gpu_usage.mode or FREE)
    yield Sample(m.GPU_SHARERS, row, gpu_usage.sharers)
    yield Sample(m.GPU_PROCESSES, row, _process_count(gpu))
    if gpu.memory is not None:
        yield Sample(m.GPU_MEMORY_TOTAL, row, gpu.memory.total)
        yield Sample(m.GPU_MEMORY_USED, row, gpu.memory.used)
        yield Sample(m.GPU_MEMORY_FREE, row, gpu.memory.free)
        yield Sample(m.GPU_MEMORY_RESERVED, row, gpu.memory.reserved)
        yield Sample(m.HOST_MEMORY_USED, row, gpu.memory.used + (gpu.memory.reserved or 0))
    for metric, value in _measured(gpu_usage):
        yield Sample(metric, row, value)
    if gpu.throttle is not None:
        for reason in THROTTLE_REASONS:
            yield Sample(m.GPU_THROTTLE, row, int(reason in gpu.throttle), (reason,))
    if ledger is not None:
        yield from _memory_ledger(m.GPU_MEMORY_LEDGER, row, ledger.memory)
        yield from _counter_ledger(m.GPU_SM_LEDGER, row, ledger.sm_seconds)
        yield from _counter_ledger(m.GPU_ENERGY_LEDGER, row, ledger.energy)


def _measured(gpu_usage: GpuUsage) -> Iterable[tuple[Metric, float | int | None]]:
    """The plain numbers of a GPU."""
    gpu = gpu_usage.gpu
    busy, controller = gpu_usage.utilization_burst, gpu_usage.memory_controller_burst
    return (
        (m.GPU_UTILIZATION, gpu.utilization),
        (m.GPU_UTILIZATION_MEAN, busy.mean if busy else None),
        (m.GPU_UTILIZATION_MAX, busy.max if busy else None),
        (m.GPU_BUSY, gpu_usage.busy_seconds),
        (m.GPU_MEMORY_CONTROLLER, gpu.memory_controller),
        (m.GPU_MEMORY_CONTROLLER_MEAN, controller.mean if controller else None),
        (m.GPU_MEMORY_CONTROLLER_MAX, controller.max if controller else None),
        (m.GPU_MEMORY_USED_MAX, gpu_usage.memory_burst.max if gpu_usage.memory_burst else None),
        (m.GPU_ENCODER, gpu.encoder),
        (m.GPU_DECODER, gpu.decoder),
        (m.GPU_JPEG, gpu.jpeg),
        (m.GPU_OFA, gpu.ofa),
        (m.GPU_POWER, gpu.power),
        (m.GPU_POWER_MEAN, gpu_usage.power_burst.mean if gpu_usage.power_burst else None),
        (m.GPU_POWER_MAX, gpu_usage.power_burst.max if gpu_usage.power_burst else None),
        (m.GPU_POWER_LIMIT, gpu.power_limit),
        (m.GPU_POWER_LIMIT_MAX, gpu.power_limit_max),
        (m.GPU_ENERGY, gpu_usage.energy),
        (m.GPU_TOTAL_ENERGY, None if gpu.energy is None else gpu.energy * 1000),
        (m.GPU_TEMPERATURE, gpu.temperature),
        (m.GPU_MEMORY_TEMPERATURE, gpu.memory_temperature),
        (m.GPU_SM_CLOCK, gpu.sm_clock),
        (m.GPU_SM_CLOCK_MEAN, gpu_usage.sm_clock_burst.mean if gpu_usage.sm_clock_burst else None),
        (m.GPU_SM_CLOCK_LIMIT, gpu.sm_clock_max),
        (m.GPU_MEMORY_CLOCK, gpu.memory_clock),
        (m.GPU_MEMORY_CLOCK_LIMIT, gpu.memory_clock_max),
        (m.GPU_FAN, gpu.fan),
        (m.GPU_PCIE_SENT, gpu.pcie_sent),
        (m.GPU_PCIE_RECEIVED, gpu.pcie_received),
        (m.GPU_PCIE_REPLAYS, gpu.pcie_replays),
        (m.GPU_ECC_CORRECTED, gpu.ecc_corrected),
        (m.GPU_ECC_UNCORRECTED, gpu.ecc_uncorrected),
        (m.GPU_REMAPPED_CORRECTED, gpu.remapped_corrected),
        (m.GPU_REMAPPED_UNCORRECTED, gpu.remapped_uncorrected),
        (m.GPU_REMAP_PENDING, None if gpu.remap_pending is None else int(gpu.remap_pending)),
        (m.GPU_REMAP_FAILED, None if gpu.remap_failed is None else int(gpu.remap_failed)),
    )


def _process_count(gpu: Gpu) -> int | None:
    if gpu.processes is None and not gpu.instances:
        return None
    pids = {p.pid for p in gpu.processes or ()}
    return len(pids | {p.pid for i in gpu.instances for p in i.processes or ()})


def _one_hot(metric: Metric, row: tuple[str, ...], all_of_them: Iterable[str], this: str) -> Iterator[Sample]:
    for one in all_of_them:
        yield Sample(metric, row, int(one == this), (one,))


def _memory_ledger(metric: Metric, row: tuple[str, ...], split: Split | None) -> Iterator[Sample]:
    if split is not None:
        yield Sample(metric, row, split.containers, ("containers",))
        yield Sample(metric, row, split.system, ("system",))
        yield Sample(metric, row, split.unattributed, ("unattributed",))
        yield Sample(metric, row, split.free, ("free",))


def _counter_ledger(metric: Metric, row: tuple[str, ...], split: Split | None) -> Iterator[Sample]:
    """The ledger without the running containers: their part falls when one ends, and they have their own series."""
    if split is not None:
        yield Sample(metric, row, split.system, ("system",))
        yield Sample(metric, row, split.unattributed, ("unattributed",))
        yield Sample(metric, row, split.ended, ("ended",))


def _xids(row: GpuLabels, snapshot: NodeSnapshot) -> Iterator[Sample]:
    for seen in snapshot.xids:
        if seen.gpu == row.gpu_uuid:
            said = advice(seen.xid)
            fatal = "" if said.fatal is None else "true" if said.fatal else "false"
            yield Sample(m.GPU_XIDS, row, seen.count, (str(seen.xid), said.action, fatal))
    last = dict(snapshot.last_xid)
    yield Sample(m.GPU_LAST_XID, row, last.get(row.gpu_uuid, 0))


def _mig(row: MigLabels, instance: MigInstance, ledger: Ledger | None) -> Iterator[Sample]:
    yield Sample(m.MIG_INFO, row, 1)
    if instance.memory is not None:
        yield Sample(m.MIG_MEMORY_TOTAL, row, instance.memory.total)
        yield Sample(m.MIG_MEMORY_USED, row, instance.memory.used)
        yield Sample(m.MIG_MEMORY_FREE, row, instance.memory.free)
        yield Sample(m.MIG_MEMORY_RESERVED, row, instance.memory.reserved)
    if ledger is not None:
        yield from _memory_ledger(m.MIG_MEMORY_LEDGER, row, ledger.memory)


def _container(row: ContainerLabels, usage: ContainerUsage) -> Iterator[Sample]:
    yield Sample(m.CONTAINER_INFO, row, 1, (usage.mode, "true" if usage.allocated else "false"))
    yield from _one_hot(m.CONTAINER_STATE, row, STATES, usage.state)
    yield from container_certainty(row, usage)
    yield Sample(m.CONTAINER_PROCESSES, row, usage.processes)
    yield Sample(m.CONTAINER_MEMORY_TOTAL, row, usage.memory_total)
    for metric, value in _used(usage):
        # None of a container that has not started means nothing used, not unknown. It must not make a sum unknown.
        if value is not None or usage.state != "not-started":
            yield Sample(metric, row, value)


def _used(usage: ContainerUsage) -> Iterable[tuple[Metric, float | int | None]]:
    """What a container uses."""
    return (
        (m.CONTAINER_MEMORY_USED, usage.memory),
        (m.CONTAINER_SM, usage.sm),
        (m.CONTAINER_SM_MEAN, usage.sm_burst.mean if usage.sm_burst else None),
        (m.CONTAINER_SM_MAX, usage.sm_burst.max if usage.sm_burst else None),
        *instance_sm(usage),
        (m.CONTAINER_SM_SECONDS, usage.sm_seconds),
        (m.CONTAINER_ENERGY, usage.energy),
        (m.CONTAINER_POWER, usage.power),
    )


def _pods(snapshot: NodeSnapshot) -> Iterator[Sample]:
    started = {
        (u.key.pod_uid, u.key.namespace, u.key.pod, u.gpu) for u in snapshot.containers if u.state != "not-started"
    }
    for pod in snapshot.pods:
        row = PodLabels(
            node=snapshot.node,
            namespace=pod.namespace,
            pod=pod.pod,
            pod_uid=pod.pod_uid,
            gpu_uuid=pod.gpu,
            gpu_index=str(pod.gpu_index),
        )
        yield Sample(m.POD_MEMORY_TOTAL, row, pod.memory_total)
        for metric, value in ((m.POD_MEMORY_USED, pod.memory), (m.POD_SM, pod.sm)):
            if value is not None or (pod.pod_uid, pod.namespace, pod.pod, pod.gpu) in started:
                yield Sample(metric, row, value)


def _vgpu(snapshot: NodeSnapshot, vgpu: Vgpu) -> Iterator[Sample]:
    row = VgpuLabels(
        node=snapshot.node,
        namespace=vgpu.key.namespace,
        pod=vgpu.key.pod,
        pod_uid=vgpu.key.pod_uid,
        container=vgpu.key.container,
        vdevice_index=str(vgpu.index),
        gpu_uuid=vgpu.gpu,
    )
    desc = (str(vgpu.context), str(vgpu.module), str(vgpu.buffer), str(vgpu.offset))
    yield Sample(m.VGPU_MEMORY_USED, row, vgpu.used)
    yield Sample(m.VGPU_MEMORY_LIMIT, row, vgpu.limit or None)
    yield Sample(m.HAMI_VGPU_MEMORY_LIMIT, row, vgpu.limit)
    yield Sample(m.VGPU_CONTEXT, row, vgpu.context)
    yield Sample(m.VGPU_MODULE, row, vgpu.module)
    yield Sample(m.VGPU_BUFFER, row, vgpu.buffer)
    yield Sample(m.VGPU_MEMORY_DESC, row, vgpu.used, desc)
    yield Sample(m.VGPU_SM, row, vgpu.sm)
    yield Sample(m.VGPU_SM_LIMIT, row, vgpu.sm_limit if vgpu.sm_limit < 1 else None)
    yield Sample(m.VGPU_PRIORITY, row, vgpu.priority)
    yield Sample(m.VGPU_BLOCKED, row, int(vgpu.blocked))
    if vgpu.last_kernel > 0:
        yield Sample(m.VGPU_LAST_KERNEL, row, vgpu.last_kernel)
        yield Sample(m.VGPU_LAST_KERNEL_AGE, row, max(0, int(snapshot.at) - vgpu.last_kernel))


def _holdings(snapshot: NodeSnapshot) -> Iterator[Sample]:
    for holding in snapshot.migs:
        row = MigHolderLabels(
            node=snapshot.node,
            namespace=holding.key.namespace,
            pod=holding.key.pod,
            pod_uid=holding.key.pod_uid,
            container=holding.key.container,
            vdevice_index=str(holding.index),
            gpu_uuid=holding.gpu,
            mig_uuid=_text(holding.mig),
            profile=holding.profile,
            gpu_instance=_text(holding.gpu_instance),
            compute_instance=_text(holding.compute_instance),
        )
        yield Sample(m.MIG_HOLDING, row, 1)
