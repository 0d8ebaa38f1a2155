"""The ledger of one moment: what of each GPU is whose, so that it adds up.

A *pool* is what memory and SM time are taken from: a GPU, or the GPU instance of a MIG GPU. For each pool

    memory:  total = Σ containers + system + unattributed + free
    SM:      utilisation = Σ containers + system + unattributed

holds exactly, nothing is negative, and no process is counted twice. Whose a process is, is found out in this order:
HAMi's region names its host pid; its cgroup names a pod; it is a process of the host; nobody knows. Where the driver
does not tell processes apart, a container that alone was given the whole pool has what no one else has. What is left
is unattributed: we do not guess.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct

from vgpuscope.logic.node.holdings import Allocation, PodIndex
from vgpuscope.model.device import Gpu, GpuProcess, Memory, MigInstance
from vgpuscope.model.pod import ProcessOwner
from vgpuscope.model.quantity import Bytes, DeviceUUID, Pid, Ratio
from vgpuscope.model.region import ContainerRegion
from vgpuscope.model.usage import ContainerKey, Method, Mode

# Processes that serve all users of a GPU, wherever they run. The kernel cuts names to 15 characters.
_SYSTEM_COMMANDS = ("nvidia-cuda-mps", "nvidia-persiste")

_ROUNDING = 0.01  # of two percentages that the driver samples apart; cutting so little is not worth a count

_NOTHING = 1e-9  # sums of floats differ by that much from what they stand for

_SHORT_ID = 12  # of a container that no pod source knows: as docker prints it


class ContainerOnGpu(NamedTuple):
    """A container on a GPU or instance: what one row of the ledger is about."""

    key: ContainerKey
    gpu: DeviceUUID
    mig: DeviceUUID | None


class ContainerShare(Struct, kw_only=True):
    """One container's part, while it is being found out."""

    place: ContainerOnGpu
    mode: Mode
    allocated: bool
    memory_limit: Bytes | None = None
    processes: int = 0
    covered: int = 0  # of these, how many have their memory told by the driver
    memory: Bytes | None = None
    memory_method: Method | None = None
    sm: Ratio | None = None
    sm_method: Method | None = None
    region: bool = False  # HAMi has a region for it
    region_attached: bool = False  # and a process has attached to it at some time


class GpuPool(Struct, kw_only=True):
    """A pool and where it went. memory and utilisation None: not measured."""

    gpu: DeviceUUID
    migs: tuple[MigInstance, ...]  # the compute instances that share it; none for a whole GPU
    memory: Memory | None
    utilization: Ratio | None
    listed: bool  # the driver's process list was readable
    rows: dict[ContainerOnGpu, ContainerShare] = {}
    system_memory: Bytes = 0
    system_sm: Ratio = 0.0
    unattributed_memory: Bytes = 0
    unattributed_sm: Ratio = 0.0
    scaled: set[str] = set()


class _Claim(Struct):
    """A process with its owner: a place and its row, the system (no place), or nobody (unknown)."""

    process: GpuProcess
    place: ContainerOnGpu | None
    method: Method | None
    known: bool
    row: ContainerShare | None = None


def attribute(
    *,
    gpus: Collection[Gpu],
    holdings: Collection[Allocation],
    regions: Collection[ContainerRegion],
    owners: Mapping[Pid, ProcessOwner] | None,
    pod_index: PodIndex,
) -> tuple[GpuPool, ...]:
    """Every pool of the node with its rows. Containers appear whether they were given a pool or merely use it."""
    ownership = _Ownership(regions, owners, pod_index)
    pools = [pool for gpu in gpus for pool in _pools(gpu)]
    for pool in pools:
        _open_rows(pool, holdings)
        holder = None if pod_index.known else _sole_holder(pool)
        claims = [ownership.claim(process, pool, holder) for process in _processes(pool, gpus)]
        _find_rows(pool, claims)
        _memory(pool, claims, ownership)
        _sm(pool, claims, ownership)
    pools += _homeless(gpus, holdings, ownership)
    return tuple(pools)


class _Ownership:
    """Whose a process is, by region and by cgroup."""

    def __init__(
        self, regions: Collection[ContainerRegion], owners: Mapping[Pid, ProcessOwner] | None, pod_index: PodIndex
    ) -> None:
        self.owners = owners
        self.pod_index = pod_index
        self.regions: dict[ContainerKey, ContainerRegion] = {}
        self.by_host_pid: dict[Pid, ContainerKey] = {}
        for container in regions:
            if container.region is None or (pod_index.known and container.pod_uid not in pod_index.by_uid):
                continue
            key = pod_index.key(container.pod_uid, container.container)
            self.regions[key] = container
            for slot in container.region.live_slots():
                if slot.host_pid > 0:
                    self.by_host_pid[slot.host_pid] = key

    def claim(self, process: GpuProcess, pool: GpuPool, holder: ContainerShare | None) -> _Claim:
        """The process with its owner in this pool.

        Without a source of pods a cgroup's UID cannot be joined to the kubelet's names; then a process of some pod
        on a GPU that one container alone was given is taken to be that container's.
        """
        owner = self.owners.get(process.pid) if self.owners is not None else None
        if owner is not None and (owner.command or "").startswith(_SYSTEM_COMMANDS):
            return _Claim(process, None, None, known=True)
        key, method = self._key(process.pid, owner)
        if key is None:
            return _Claim(process, None, None, known=owner is not None)
        if holder is not None and method == "nvml-process":
            return _Claim(process, holder.place, "podresources", known=True)
        mig = _instance_of(process, pool) if pool.migs else None
        return _Claim(process, ContainerOnGpu(key, pool.gpu, mig), method, known=True)

    def _key(self, pid: Pid, owner: ProcessOwner | None) -> tuple[ContainerKey | None, Method | None]:
        recorded = self.by_host_pid.get(pid)
        uid = owner.pod_uid if owner is not None else None
        if recorded and (uid is None or uid == recorded.pod_uid or self._is_pod(uid, recorded)):
            return recorded, "hami-region"
        if owner is None or (owner.pod_uid is None and owner.container_id is None):
            return None, None
        return self._container(owner), "nvml-process"

    def _is_pod(self, uid: str, key: ContainerKey) -> bool:
        pod = self.pod_index.by_uid.get(uid)
        return (pod.uid if pod else uid) == key.pod_uid

    def _container(self, owner: ProcessOwner) -> ContainerKey:
        """By container id where a pod has it, else by pod UID and the id's first digits."""
        found = self.pod_index.by_container_id.get(owner.container_id or "")
        if found is not None:
            pod, container = found
            return ContainerKey(namespace=pod.namespace, pod=pod.name, pod_uid=pod.uid, container=container.name)
        uid = owner.pod_uid or ""
        pod_by_uid = self.pod_index.by_uid.get(uid)
        if pod_by_uid is not None and len(pod_by_uid.containers) == 1:
            return self.pod_index.key(uid, pod_by_uid.containers[0].name)
        return self.pod_index.key(uid, (owner.container_id or "")[:_SHORT_ID])

    def region_part(self, key: ContainerKey, gpu: DeviceUUID) -> "_RegionPart | None":
        """What the container's region says of this device; None if there is no region or it lacks the device."""
        container = self.regions.get(key)
        if container is None or container.region is None:
            return None
        region = container.region
        index = next((d.index for d in region.devices if d.uuid == gpu), None)
        if index is None:
            return None
        memory = processes = busy = 0
        sm = 0.0
        for slot in region.slots:
            if slot.status == 0 or index >= len(slot.devices):
                continue
            use = slot.devices[index]
            memory += use.total
            sm += use.sm
            processes += 1
            busy += use.total > 0
        attached = region.process_count > 0 or region.last_kernel > 0
        return _RegionPart(memory, sm, processes, busy_slots=busy, attached=attached)


class _RegionPart(NamedTuple):
    memory: Bytes
    sm: Ratio
    processes: int
    busy_slots: int
    attached: bool  # a process has attached at some time, even if it is gone by now


def _pools(gpu: Gpu) -> Iterable[GpuPool]:
    """A GPU is one pool; a MIG GPU has one for each GPU instance."""
    if not gpu.mig_enabled:
        yield GpuPool(
            gpu=gpu.uuid,
            migs=(),
            memory=gpu.memory,
            utilization=gpu.utilization,
            listed=gpu.processes is not None,
        )
        return
    groups: dict[int, list[MigInstance]] = {}
    for instance in gpu.instances:
        groups.setdefault(instance.gpu_instance, []).append(instance)
    for group in groups.values():
        migs = tuple(sorted(group, key=lambda i: i.compute_instance))
        listed = all(i.processes is not None for i in migs)
        yield GpuPool(gpu=gpu.uuid, migs=migs, memory=migs[0].memory, utilization=None, listed=listed)


def _processes(pool: GpuPool, gpus: Collection[Gpu]) -> list[GpuProcess]:
    """The pool's processes, each pid once."""
    if pool.migs:
        found = {p.pid: p for instance in pool.migs for p in instance.processes or ()}
    else:
        gpu = next(g for g in gpus if g.uuid == pool.gpu)
        found = {p.pid: p for p in gpu.processes or ()}
    return list(found.values())


def _instance_of(process: GpuProcess, pool: GpuPool) -> DeviceUUID:
    for instance in pool.migs:
        if any(p.pid == process.pid for p in instance.processes or ()):
            return instance.uuid
    return pool.migs[0].uuid


def _open_rows(pool: GpuPool, holdings: Collection[Allocation]) -> None:
    migs = {instance.uuid for instance in pool.migs}
    rows = {}
    for holding in holdings:
        if holding.gpu != pool.gpu or (holding.mig is None) == bool(migs) or (migs and holding.mig not in migs):
            continue
        place = ContainerOnGpu(holding.key, holding.gpu, holding.mig)
        rows[place] = ContainerShare(place=place, mode=holding.mode, allocated=True, memory_limit=holding.memory_limit)
    pool.rows = rows


def _row(pool: GpuPool, place: ContainerOnGpu) -> ContainerShare:
    """The row of a place; a container that was given nothing here gets one that says so."""
    row = pool.rows.get(place)
    if row is None:
        row = pool.rows[place] = ContainerShare(place=place, mode="unallocated", allocated=False)
    return row


def _find_rows(pool: GpuPool, claims: Collection[_Claim]) -> None:
    """Give each claim its row, and count the processes of each row."""
    for claim in claims:
        if claim.place is not None:
            claim.row = _row(pool, claim.place)
            claim.row.processes += 1


def _sole_holder(pool: GpuPool) -> ContainerShare | None:
    """The one container that was given the whole pool, whatever else sneaks in."""
    held = [row for row in pool.rows.values() if row.allocated]
    if len(held) == 1 and held[0].mode in {"exclusive", "mig"} and len(pool.migs) <= 1:
        return held[0]
    return None


# ── memory ───────────────────────────────────────────────────────────────────────────────────────────────────────
def _memory(pool: GpuPool, claims: Collection[_Claim], ownership: _Ownership) -> None:
    reserved = (pool.memory.reserved or 0) if pool.memory else 0
    system = 0
    for claim in claims:
        row = claim.row
        if row is None:
            system += (claim.process.memory or 0) if claim.known else 0
        elif claim.process.memory is not None:
            row.memory = (row.memory or 0) + claim.process.memory
            row.memory_method = claim.method
            row.covered += 1
    _forget_partial_sums(claims)
    for row in pool.rows.values():
        _memory_from_region(row, ownership)
    if pool.memory is None:
        pool.system_memory = system
        return
    holder = _sole_holder(pool)
    if holder is not None:
        _rest_to_holder(pool, holder, system, claims)
    _settle_memory(pool, pool.memory, system, reserved)


def _forget_partial_sums(claims: Collection[_Claim]) -> None:
    """A container with a process whose memory the driver hides has an unknown sum, not a small one."""
    for claim in claims:
        if claim.row is not None and claim.process.memory is None:
            claim.row.memory, claim.row.memory_method = None, None


def _memory_from_region(row: ContainerShare, ownership: _Ownership) -> None:
    """HAMi's own figure, where the driver's list does not cover all the processes the region knows of.

    One evidence or the other for a container, never a mixture: the same process may stand in both.
    """
    part = ownership.region_part(row.place.key, row.place.mig or row.place.gpu)
    if part is None:
        return
    row.region = True
    row.region_attached = part.attached
    row.processes = max(row.processes, part.processes)
    if row.memory is None or row.covered < part.busy_slots:
        row.memory, row.memory_method = part.memory, "hami-region"


def _rest_to_holder(pool: GpuPool, holder: ContainerShare, system: Bytes, claims: Collection[_Claim]) -> None:
    """Everything in use that is nobody else's belongs to the container that was given the whole pool.

    But not before it runs: with a readable list and no process of its own, what is in use is not the container's.
    """
    assert pool.memory is not None
    runs = holder.processes > 0 or not pool.listed or any(not c.known for c in claims)
    if not runs:
        return
    others = sum(row.memory or 0 for row in pool.rows.values() if row is not holder)
    rest = max(0, pool.memory.used - system - others)
    if holder.memory is None:
        holder.memory_method = "mig" if pool.migs else "podresources"
    elif pool.migs:
        holder.memory_method = "mig"
    holder.memory = rest


def _settle_memory(pool: GpuPool, memory: Memory, system: Bytes, reserved: Bytes) -> None:
    """Make it add up: cut claims that together pass what is in use, leave the rest unattributed."""
    claimed = sum(row.memory or 0 for row in pool.rows.values())
    if claimed + system > memory.used and claimed + system > 0:
        pool.scaled = pool.scaled | {"memory"}
        whole = claimed + system
        for row in pool.rows.values():
            if row.memory is not None:
                row.memory = row.memory * memory.used // whole
        system = system * memory.used // whole
        claimed = sum(row.memory or 0 for row in pool.rows.values())
    pool.system_memory = system + reserved
    pool.unattributed_memory = memory.used - claimed - system


# ── SM time ──────────────────────────────────────────────────────────────────────────────────────────────────────
def _sm(pool: GpuPool, claims: Collection[_Claim], ownership: _Ownership) -> None:
    system = 0.0
    for claim in claims:
        sm = claim.process.sm
        if sm is None:
            continue
        row = claim.row
        if row is None:
            system += sm if claim.known else 0.0
        else:
            row.sm, row.sm_method = (row.sm or 0.0) + sm, claim.method
    for row in pool.rows.values():
        _sm_from_region(row, ownership)
        if row.sm is None and row.processes == 0 and pool.listed:
            row.sm = 0.0  # no process, so it does nothing: that is measured
            row.sm_method = "nvml-process"
    if pool.utilization is None:
        pool.system_sm = system
        return
    _sm_to_holder(pool, pool.utilization, system)
    _settle_sm(pool, pool.utilization, system)


def _sm_from_region(row: ContainerShare, ownership: _Ownership) -> None:
    """HAMi's figure where the driver has none for the container's processes."""
    if row.sm is not None:
        return
    part = ownership.region_part(row.place.key, row.place.mig or row.place.gpu)
    if part is not None:
        row.sm, row.sm_method = part.sm, "hami-region"


def _sm_to_holder(pool: GpuPool, utilization: Ratio, system: Ratio) -> None:
    holder = _sole_holder(pool)
    if holder is None or (holder.processes == 0 and pool.listed):
        return
    others = sum(row.sm or 0.0 for row in pool.rows.values() if row is not holder)
    if holder.sm is None:
        holder.sm_method = "podresources"
    holder.sm = max(0.0, utilization - system - others)


def _settle_sm(pool: GpuPool, utilization: Ratio, system: Ratio) -> None:
    claimed = sum(row.sm or 0.0 for row in pool.rows.values()) + system
    if claimed > utilization + _NOTHING:
        if claimed > utilization + _ROUNDING:
            pool.scaled = pool.scaled | {"sm"}
        factor = utilization / claimed
        for row in pool.rows.values():
            if row.sm is not None:
                row.sm *= factor
        system *= factor
    pool.system_sm = system
    rows = sum(row.sm or 0.0 for row in pool.rows.values())
    pool.unattributed_sm = max(0.0, utilization - rows - system)


# ── rows without a pool ──────────────────────────────────────────────────────────────────────────────────────────
def _homeless(gpus: Collection[Gpu], holdings: Collection[Allocation], ownership: _Ownership) -> list[GpuPool]:
    """Holdings on GPUs the driver does not show (now): the region's word is all there is.

    A holding of a whole GPU that is cut into instances contradicts the driver: it is shown, without numbers.
    """
    shown = {gpu.uuid for gpu in gpus}
    whole = {gpu.uuid for gpu in gpus if not gpu.mig_enabled}
    shown_migs = {instance.uuid for gpu in gpus for instance in gpu.instances}
    pools: dict[DeviceUUID, GpuPool] = {}
    for holding in holdings:
        if holding.mig in shown_migs if holding.mig else holding.gpu in whole:
            continue
        pool = pools.setdefault(
            holding.gpu, GpuPool(gpu=holding.gpu, migs=(), memory=None, utilization=None, listed=False)
        )
        place = ContainerOnGpu(holding.key, holding.gpu, holding.mig)
        row = ContainerShare(place=place, mode=holding.mode, allocated=True, memory_limit=holding.memory_limit)
        pool.rows = {**pool.rows, place: row}
        if holding.gpu not in shown:
            _memory_from_region(row, ownership)
            _sm_from_region(row, ownership)
    return list(pools.values())
