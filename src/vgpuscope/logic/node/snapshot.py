"""Everything that was read of a node in one sample → the snapshot that all views are made from."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from vgpuscope.logic.node.accounts import Account, Accounts
from vgpuscope.logic.node.attribution import ContainerShare, GpuPool, attribute
from vgpuscope.logic.node.holdings import PodIndex, holdings, named_devices
from vgpuscope.logic.node.host_accounts import sought
from vgpuscope.logic.node.known_devices import KnownDevices
from vgpuscope.logic.node.process_list import process_list
from vgpuscope.logic.node.profiling import NO_PROFILE, Profile, own_activity
from vgpuscope.logic.node.region_repair import ContainerName, RegionHistory, driver_sm, repair, shows_zero
from vgpuscope.logic.node.second_look import doubtful
from vgpuscope.model.device import DeviceReading, Gpu, MigInstance
from vgpuscope.model.host import SoughtContainer
from vgpuscope.model.pod import Grant, Pod, ProcessOwner, SourceState
from vgpuscope.model.quantity import Bytes, DeviceUUID, Pid
from vgpuscope.model.region import ContainerRegion, RegionReading
from vgpuscope.model.usage import (
    ContainerUsage,
    GpuUsage,
    Ledger,
    MigHolding,
    MigUsage,
    Mode,
    NodeSnapshot,
    PodUsage,
    Split,
    State,
    Tally,
    Vgpu,
)

_Number = TypeVar("_Number", int, float)


class Readings(Struct, frozen=True, kw_only=True):
    """One sample of every source. None: the source gave nothing."""

    at: float  # unix time, for pod_index
    tick: float  # from a monotonic clock, for durations
    devices: DeviceReading | None
    regions: RegionReading | None
    owners: Mapping[Pid, ProcessOwner] | None
    pods: tuple[Pod, ...] | None
    grants: tuple[Grant, ...] | None
    sources: tuple[SourceState, ...] = ()
    profile: Profile = NO_PROFILE


class NodeTracker:
    """Turns samples into snapshots, one after the other; keeps only the state that the ledgers over time need."""

    def __init__(self, *, node: str, window: float) -> None:
        self._node = node
        self._accounts = Accounts(window)
        self._pod_index = PodIndex(None)
        self._known_devices = KnownDevices()
        self._history = RegionHistory()
        self._corrections = {"false-zero": 0, "dead-process": 0}
        self._scaled = {"memory": 0, "sm": 0}
        self._samples = 0

    def conclude(self, readings: Readings, *, ratio: float) -> "NodeSample":
        """The result of this sample. Errors and the host are added by the caller, who reads more sources after this."""
        gpus = readings.devices.gpus if readings.devices else ()
        pod_index = self._pod_index = (
            self._pod_index if self._pod_index.pods is readings.pods else PodIndex(readings.pods)
        )
        regions = self._repaired(readings, gpus)
        here = self._known_devices.of(gpus, named_devices(pod_index, regions))
        held = holdings(gpus=gpus, devices=here, pod_index=pod_index, grants=readings.grants or (), regions=regions)
        pools = attribute(
            gpus=gpus,
            holdings=held.allocations,
            regions=held.regions,
            owners=readings.owners,
            pod_index=pod_index,
            profile=readings.profile,
        )
        self._accounts.settle(pools, gpus, readings.tick)
        for pool in pools:
            for resource in pool.scaled:
                self._scaled[resource] += 1
        self._samples += 1
        containers = tuple(self._usage(row, pool, ratio) for pool in pools for row in pool.rows.values())
        devices = readings.devices
        snapshot = NodeSnapshot(
            at=readings.at,
            node=self._node,
            ratio=ratio,
            driver_version=devices.driver_version if devices else None,
            cuda_version=devices.cuda_version if devices else None,
            gpus=tuple(self._gpu_usage(gpu, [p for p in pools if p.gpu == gpu.uuid], readings.profile) for gpu in gpus),
            instances=tuple(self._instances(pools, readings.profile)),
            ledgers=tuple(self._ledgers(gpus, pools)),
            containers=containers,
            migs=tuple(_mig_holdings(pod_index, self._known_devices.instances)),
            xids=devices.xids if devices else (),
            last_xid=devices.last_xid if devices else (),
            regions=sum(1 for r in regions if r.region is not None),
            regions_refused=_by_reason(readings.regions),
            disputes=held.disputes,
            unknown_devices=held.unknown,
            forged_assignments=held.forged,
            regions_orphaned=sum(1 for r in regions if pod_index.known and r.pod_uid not in pod_index.by_uid),
            sources=readings.sources,
            tally=Tally(
                corrections=dict(self._corrections),
                dropped={**(dict(devices.dropped) if devices else {}), **readings.profile.dropped},
                scaled=dict(self._scaled),
                ended=self._accounts.ended,
            ),
            samples=self._samples,
        )
        return NodeSample(snapshot, held.regions, pod_index, owners=readings.owners, pools=pools)

    def doubtful(self, regions: Collection[ContainerRegion], gpus: Collection[Gpu]) -> frozenset[ContainerName]:
        """The containers whose region should be read again before this sample is concluded."""
        at_zero = [one for one in regions if shows_zero(one.region)]
        return doubtful(at_zero, history=self._history, driver_sm=driver_sm(gpus)) if at_zero else frozenset()

    def _repaired(self, readings: Readings, gpus: Collection[Gpu]) -> tuple[ContainerRegion, ...]:
        if readings.regions is None:
            return ()
        repaired = repair(
            readings.regions.containers,
            history=self._history,
            owners=readings.owners,
            driver_pids=driver_pids(gpus),
            driver_sm=driver_sm(gpus),
        )
        self._history = repaired.history
        self._corrections["false-zero"] += repaired.false_zeros
        self._corrections["dead-process"] += repaired.dead_processes
        return repaired.containers

    def _usage(self, row: ContainerShare, pool: GpuPool, ratio: float) -> ContainerUsage:
        account = self._accounts.containers[row.place]
        seen = pool.listed or row.region  # whether a source can show that it has no processes
        sm, memory = row.sm, row.memory
        if row.processes == 0 and seen and not account.started:
            sm, memory = sm or None, memory or None  # not started yet, which is not the same as using nothing
        elif row.processes == 0 and pool.listed and memory is None:
            memory, row.memory_method = 0, "nvml-process"  # its processes have ended, so 0 is a measured value
            row.memory_certainty, row.memory_error = "measured", 0
        burst = self._accounts.burst(row.place, "sm", sm)
        inside = sm / pool.share if pool.migs and sm is not None else None
        drew = account.energy or account.started
        return ContainerUsage(
            key=row.place.key,
            gpu=row.place.gpu,
            mig=row.place.mig,
            mode=row.mode,
            state=_state(row, seen=seen, started=account.started, sm_max=burst.max if burst else None),
            allocated=row.allocated,
            processes=row.processes if seen else None,
            memory=memory,
            memory_method=row.memory_method if memory is not None else None,
            memory_certainty=row.memory_certainty if memory is not None else None,
            memory_error=row.memory_error if memory is not None else None,
            memory_total=_may_use(row, pool, ratio),
            sm=sm,
            sm_method=row.sm_method if sm is not None else None,
            sm_certainty=row.sm_certainty if sm is not None else None,
            sm_error=row.sm_error if sm is not None else None,
            sm_burst=burst,
            sm_seconds=self._accounts.sm_seconds(row.place),
            instance_sm=inside,
            instance_sm_burst=self._accounts.burst(row.place, "instance_sm", inside),
            energy=account.energy if drew else None,
            energy_method=account.energy_method if drew else None,
            energy_certainty=account.energy_certainty if drew else None,
            power=account.power if account.power or account.started else None,
        )

    def _gpu_usage(self, gpu: Gpu, pools: Collection[GpuPool], profile: Profile) -> GpuUsage:
        rows = [row for pool in pools for row in pool.rows.values()]
        measured = profile.of(gpu.uuid)
        activity = measured.activity if measured else None
        account = self._accounts.gpus.get(gpu.uuid)
        burst = self._accounts.burst
        return GpuUsage(
            gpu=gpu,
            mode=_mode(gpu, rows),
            holder=rows[0].place.key if len(rows) == 1 and rows[0].mode == "exclusive" else None,
            sharers=len({row.place.key for row in rows}),
            utilization_burst=burst(gpu.uuid, "utilization", gpu.utilization),
            memory_controller_burst=burst(gpu.uuid, "memory_controller", gpu.memory_controller),
            memory_burst=burst(gpu.uuid, "memory", gpu.memory.used if gpu.memory else None),
            power_burst=burst(gpu.uuid, "power", gpu.power),
            sm_clock_burst=burst(gpu.uuid, "sm_clock", gpu.sm_clock),
            busy_seconds=self._accounts.busy_seconds(gpu.uuid),
            energy=account.energy if account else None,
            activity=activity,
            activity_source=measured.source if measured else None,
            activity_blind=profile.blind.get(gpu.uuid, ""),
            engine_burst=burst(gpu.uuid, "engine", activity.engine if activity else None),
            sm_active_burst=burst(gpu.uuid, "sm_active", activity.sm if activity else None),
        )

    def _instances(self, pools: Collection[GpuPool], profile: Profile) -> Iterator[MigUsage]:
        burst = self._accounts.burst
        for pool in pools:
            for instance in pool.migs:
                measured = profile.of(pool.gpu, instance.gpu_instance)
                activity = own_activity(instance, pool.migs, measured.activity) if measured else None
                alone = len(pool.migs) == 1
                account = self._accounts.instance(pool.gpu, instance.gpu_instance) if alone else None
                yield MigUsage(
                    gpu=pool.gpu,
                    mig=instance.uuid,
                    activity=activity,
                    activity_source=measured.source if measured and activity else None,
                    engine_burst=burst(instance.uuid, "engine", activity.engine if activity else None),
                    sm_active_burst=burst(instance.uuid, "sm_active", activity.sm if activity else None),
                    busy_seconds=account.busy_seconds if account else None,
                    energy=account.energy if account else None,
                    energy_method="share" if account and account.energy is not None else None,
                    method=account.method if account and account.busy_seconds is not None else None,
                )

    def _ledgers(self, gpus: Collection[Gpu], pools: Collection[GpuPool]) -> Iterator[Ledger]:
        used = self._accounts.used_by_gpu()
        for gpu in gpus:
            mine = [pool for pool in pools if pool.gpu == gpu.uuid]
            yield Ledger(
                gpu=gpu.uuid,
                memory=_memory_split(gpu, mine),
                sm_seconds=self._sm_split(gpu.uuid, used.get(gpu.uuid, ())),
                energy=self._energy_split(gpu.uuid, used.get(gpu.uuid, ())),
            )
            for pool in mine:
                if pool.migs:
                    yield Ledger(gpu=gpu.uuid, mig=pool.migs[0].uuid, memory=_pool_split(pool))

    def _sm_split(self, gpu: DeviceUUID, used: Iterable[Account]) -> Split | None:
        gpu_account, total = self._accounts.gpus.get(gpu), self._accounts.busy_seconds(gpu)
        if gpu_account is None or total is None:
            return None
        return Split(
            total=total,
            containers=sum(account.sm_seconds or 0.0 for account in used),
            system=gpu_account.sm_system,
            unattributed=gpu_account.sm_unattributed,
            ended=gpu_account.sm_ended,
        )

    def _energy_split(self, gpu: DeviceUUID, used: Iterable[Account]) -> Split | None:
        gpu_account = self._accounts.gpus.get(gpu)
        if gpu_account is None or gpu_account.energy is None:
            return None
        return Split(
            total=gpu_account.energy,
            containers=sum(account.energy or 0.0 for account in used),
            system=gpu_account.energy_system,
            unattributed=gpu_account.energy_unattributed,
            ended=gpu_account.energy_ended,
        )


class NodeSample:
    """One sample. Pods and vGPUs are derived from the rest only on request, because most samples are never viewed."""

    def __init__(
        self,
        outline: NodeSnapshot,
        regions: Collection[ContainerRegion],
        pod_index: PodIndex,
        *,
        owners: Mapping[Pid, ProcessOwner] | None = None,
        pools: Collection[GpuPool] = (),
    ) -> None:
        self.outline = outline  # without pods, vGPUs and processes
        self._regions = regions
        self._owners, self._pools = owners, pools
        self._pod_index = pod_index
        self._complete: NodeSnapshot | None = None

    def complete(self) -> NodeSnapshot:
        """The whole snapshot; any thread may call this, and all get the same object."""
        if self._complete is None:
            self._complete = replace(
                self.outline,
                pods=tuple(_pods(self.outline.containers, [usage.gpu for usage in self.outline.gpus])),
                vgpus=tuple(_vgpus(self._regions, self._pod_index)),
                processes=process_list(self.outline, self._owners, self._pools),
            )
        return self._complete

    def sought(self, owners: Mapping[Pid, ProcessOwner] | None) -> tuple[SoughtContainer, ...]:
        """The containers whose use of the node is of interest: those that hold or use a GPU."""
        return sought(self.outline.containers, owners, self._pod_index)


def driver_pids(gpus: Collection[Gpu]) -> set[Pid]:
    """All pids that the driver lists, on GPUs and in MIG instances."""
    whole = {p.pid for gpu in gpus for p in gpu.processes or ()}
    return whole | {p.pid for gpu in gpus for i in gpu.instances for p in i.processes or ()}


def _state(row: ContainerShare, *, seen: bool, started: bool, sm_max: float | None) -> State:
    if row.processes == 0 and seen:
        return "idle" if started else "not-started"
    if sm_max is None:
        return "unknown"
    return "active" if sm_max > 0 else "idle"


def _may_use(row: ContainerShare, pool: GpuPool, ratio: float) -> Bytes | None:
    """The container's memory limit: HAMi's limit; else the MIG instance; else the GPU's memory divided by the ratio."""
    if row.memory_limit is not None:
        return row.memory_limit
    if pool.memory is None:
        return None
    return pool.memory.total if pool.migs else int(pool.memory.total / ratio)


def _mode(gpu: Gpu, rows: Collection[ContainerShare]) -> Mode | None:
    """The GPU's mode: the mode of its holders, or `unallocated` if containers use it without an allocation."""
    if gpu.mig_enabled:
        return "mig"
    modes = {row.mode for row in rows}
    order: tuple[Mode, ...] = ("hami", "mps", "time-slicing", "exclusive", "unallocated")
    return next((mode for mode in order if mode in modes), None)


def _pool_split(pool: GpuPool) -> Split | None:
    if pool.memory is None:
        return None
    return Split(
        total=pool.memory.total,
        containers=sum(row.memory or 0 for row in pool.rows.values()),
        system=pool.system_memory,
        unattributed=pool.unattributed_memory,
        # From the driver, not total minus the other parts: otherwise the ledger would add up even if a part is wrong.
        free=pool.memory.total - pool.memory.used - (pool.memory.reserved or 0),
    )


def _memory_split(gpu: Gpu, pools: Collection[GpuPool]) -> Split | None:
    """A GPU's memory; for a MIG GPU, the sum of its instances and the memory outside them."""
    if gpu.memory is None:
        return None
    if not gpu.mig_enabled:
        return next((_pool_split(pool) for pool in pools if not pool.migs), None)
    splits = [split for pool in pools if (split := _pool_split(pool)) is not None]
    containers = sum(s.containers for s in splits)
    inside = sum((pool.memory.reserved or 0) for pool in pools if pool.memory is not None)
    system = sum(s.system for s in splits) + max(0, (gpu.memory.reserved or 0) - inside)
    outside = gpu.memory.used - sum(pool.memory.used for pool in pools if pool.memory is not None)
    unattributed = sum(s.unattributed for s in splits) + max(0, outside)
    free = gpu.memory.total - containers - system - unattributed
    if free < 0:
        return None  # the instances have more than the GPU: the sample was taken while they were being changed
    return Split(total=gpu.memory.total, containers=containers, system=system, unattributed=unattributed, free=free)


def _pods(containers: Collection[ContainerUsage], gpus: Collection[Gpu]) -> Iterator[PodUsage]:
    index = {gpu.uuid: gpu.index for gpu in gpus}
    groups: dict[tuple[str, str, str, DeviceUUID], list[ContainerUsage]] = {}
    for usage in containers:
        if usage.key.pod or usage.key.pod_uid:
            place = (usage.key.namespace, usage.key.pod, usage.key.pod_uid, usage.gpu)
            groups.setdefault(place, []).append(usage)
    for (namespace, pod, uid, gpu), rows in groups.items():
        if gpu in index:
            yield PodUsage(
                namespace=namespace,
                pod=pod,
                pod_uid=uid,
                gpu=gpu,
                gpu_index=index[gpu],
                memory=_sum([row.memory for row in rows]),
                memory_total=_pod_total(rows) if len(rows) > 1 else rows[0].memory_total,
                sm=_sum([row.sm for row in rows]),
            )


def _sum(values: Iterable[_Number | None]) -> _Number | None:
    """The sum; None if any part is unknown, because an incomplete sum is wrong."""
    total: _Number | None = None
    for value in values:
        if value is None:
            return None
        total = value if total is None else total + value
    return total


def _pod_total(rows: Collection[ContainerUsage]) -> Bytes | None:
    """HAMi limits and MIG instances add up; containers that share one part of the GPU have it once."""
    apart = [r.memory_total for r in rows if r.mode in {"hami", "mig"} and r.memory_total is not None]
    together = [r.memory_total for r in rows if r.mode not in {"hami", "mig"} and r.memory_total is not None]
    if not apart and not together:
        return None
    return sum(apart) + max(together, default=0)


def _vgpus(regions: Collection[ContainerRegion], pod_index: PodIndex) -> Iterator[Vgpu]:
    for container in regions:
        region = container.region
        if region is None or (pod_index.known and not _is_app(container, pod_index)):
            continue
        key = pod_index.key(container.pod_uid, container.container)
        live = region.live_slots()
        for device in region.devices:
            if device.uuid is None:
                continue
            used = context = module = buffer = 0
            sm = 0.0
            for slot in live:
                if device.index < len(slot.devices):
                    use = slot.devices[device.index]
                    used += use.total
                    context += use.context
                    module += use.module
                    buffer += use.buffer
                    sm += use.sm
            yield Vgpu(
                key=key,
                index=device.index,
                gpu=device.uuid,
                used=used,
                limit=device.memory_limit,
                context=context,
                module=module,
                buffer=buffer,
                offset=used - context - module - buffer,
                sm=sm,
                sm_limit=device.sm_limit,
                priority=region.priority,
                blocked=region.recent_kernel < 0,
                last_kernel=region.last_kernel,
            )


def _is_app(container: ContainerRegion, pod_index: PodIndex) -> bool:
    """Whether it is an app container; HAMi shows only containers of running pods, and never init containers."""
    return (container.pod_uid, container.container) in pod_index.apps


def _mig_holdings(
    pod_index: PodIndex, instances: Mapping[DeviceUUID, tuple[DeviceUUID, MigInstance]]
) -> Iterator[MigHolding]:
    """The MIG instances that annotations assign, if the node has them; described as the driver describes them."""
    for pod in {pod.uid: pod for pod in pod_index.by_uid.values()}.values():
        for mig in pod.migs:
            gpu, made = instances.get(mig.mig or "", ("", None))
            if made is not None and gpu == mig.gpu and mig.container_index < len(pod.containers):
                yield MigHolding(
                    key=pod_index.key(pod.uid, pod.containers[mig.container_index].name),
                    index=mig.device_index,
                    gpu=gpu,
                    mig=made.uuid,
                    profile=made.profile or mig.profile,
                    gpu_instance=made.gpu_instance,
                    compute_instance=made.compute_instance,
                )


def _by_reason(reading: RegionReading | None) -> dict[str, int]:
    counts: dict[str, int] = {}
    for refusal in reading.refusals if reading else ():
        counts[refusal.reason] = counts.get(refusal.reason, 0) + 1
    return counts
