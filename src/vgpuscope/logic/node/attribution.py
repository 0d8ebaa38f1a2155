"""The ledger of one moment: what of each GPU is whose, so that it adds up.

A *pool* is what memory and SM time are taken from: a GPU, or the GPU instance of a MIG GPU. For each pool

    memory:  total = Σ containers + system + unattributed + free
    SM:      utilisation = Σ containers + system + unattributed

(the utilisation of a GPU instance is the busy time that profiling counters show, times its part of the GPU)
holds exactly, nothing is negative, and no process is counted twice. Evidence has a rank. What the driver measured of a
process whose cgroup names its pod comes first. A HAMi region is written by its tenant: it may name the container within
that pod, and it may claim memory and SM time that the driver leaves over, up to the limit that was assigned. It never
changes what was measured of another container. Where the driver does not tell processes apart, a container that alone
was given the whole pool has the rest. What remains is unattributed: we do not guess.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct

from vgpuscope.knowledge.mig import SLICE_ERROR
from vgpuscope.logic.node.holdings import ContainerAllocation, PodIndex
from vgpuscope.logic.node.profiling import NO_PROFILE, Profile, share_of
from vgpuscope.model.device import Gpu, GpuProcess, Memory, MigInstance
from vgpuscope.model.pod import ProcessOwner
from vgpuscope.model.quantity import Bytes, DeviceUUID, Pid, Ratio
from vgpuscope.model.region import ContainerRegion, Region
from vgpuscope.model.usage import Certainty, ContainerKey, Method, Mode

# Processes that serve all users of a GPU, wherever they run. The kernel cuts names to 15 characters.
_SYSTEM_COMMANDS = ("nvidia-cuda-mps", "nvidia-persiste")

_ROUNDING = 0.01  # of two percentages that the driver samples apart; cutting so little is not worth a count

_NOTHING = 1e-9  # sums of floats differ by that much from what they stand for


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
    measured: Bytes = 0  # by the driver, of processes that the kernel says are the container's
    claimed: Bytes = 0  # by the driver, of processes that only the region says are
    hidden: bool = False  # the driver does not tell the memory of a process
    memory: Bytes | None = None
    memory_method: Method | None = None
    sm: Ratio | None = None
    sm_method: Method | None = None
    sm_measured: Ratio = 0.0  # by the driver, of processes that the kernel says are the container's
    sm_proven: bool = False  # the driver measured it of processes that the kernel says are the container's
    memory_error: Bytes | None = None  # how far the figure can be off, as far as that is known
    sm_error: Ratio | None = None
    memory_certainty: Certainty | None = None
    sm_certainty: Certainty | None = None
    memory_cut: bool = False  # the figure was cut in proportion with others
    sm_cut: bool = False
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
    contradicted: set[str] = set()  # resources whose total the driver's own figures exceed: none of them is proven
    memory_left: Bytes = 0  # in use, and not proven to be anyone's
    sm_left: Ratio = 0.0
    share: Ratio = 1.0  # the part of the GPU that the pool is
    sm_source: Method | None = None  # what measured the utilisation of a GPU instance
    keys: dict[Pid, ContainerKey] = {}  # of the processes that are a container's


class _Claim(Struct):
    """A process with its owner: a place and its row, the system (no place), or unknown."""

    process: GpuProcess
    place: ContainerOnGpu | None
    method: Method | None
    known: bool
    proven: bool = False  # by the kernel, not only by what a region claims
    row: ContainerShare | None = None


def attribute(
    *,
    gpus: Collection[Gpu],
    holdings: Collection[ContainerAllocation],
    regions: Collection[ContainerRegion],
    owners: Mapping[Pid, ProcessOwner] | None,
    pod_index: PodIndex,
    profile: Profile = NO_PROFILE,
) -> tuple[GpuPool, ...]:
    """Every pool of the node with its rows. Containers appear whether they were given a pool or merely use it."""
    ownership = _Ownership(regions, owners, pod_index)
    pools = [pool for gpu in gpus for pool in _pools(gpu, profile)]
    for pool in pools:
        _open_rows(pool, holdings)
        holder = None if pod_index.known else _sole_holder(pool)
        claims = [ownership.claim(process, pool, holder) for process in _processes(pool, gpus)]
        _find_rows(pool, claims)
        _memory(pool, claims, ownership)
        _sm(pool, claims, ownership)
        _judge(pool)
    pools += _homeless(gpus, holdings, ownership)
    return tuple(pools)


class _Ownership:
    """Whose a process is. The kernel's cgroups are evidence; a region is a claim that a tenant makes of itself."""

    def __init__(
        self, regions: Collection[ContainerRegion], owners: Mapping[Pid, ProcessOwner] | None, pod_index: PodIndex
    ) -> None:
        self.owners = owners
        self.pod_index = pod_index
        self.regions: dict[ContainerKey, ContainerRegion] = {}
        self.by_host_pid: dict[Pid, ContainerKey | None] = {}  # None: several containers claim the process
        for container in regions:
            if container.region is None or (pod_index.known and container.pod_uid not in pod_index.by_uid):
                continue
            key = pod_index.key(container.pod_uid, container.container)
            self.regions[key] = container
            if container.region.devices:
                self._record(container.region, key)

    def _record(self, region: Region, key: ContainerKey) -> None:
        """Note the processes that a region claims. A process that two containers claim is neither's by claim."""
        claimed = self.by_host_pid
        for slot in region.live_slots():
            if slot.host_pid > 0:
                other = claimed.get(slot.host_pid, key)
                claimed[slot.host_pid] = key if other is key or other == key else None

    def claim(self, process: GpuProcess, pool: GpuPool, holder: ContainerShare | None) -> _Claim:
        """The process with its owner in this pool.

        Without a source of pods a cgroup's UID cannot be joined to the kubelet's names; then a process of some pod
        on a GPU that one container alone was given is taken to be that container's.
        """
        owner = self.owners.get(process.pid) if self.owners is not None else None
        if owner is not None and (owner.command or "").startswith(_SYSTEM_COMMANDS):
            return _Claim(process, None, None, known=True)
        in_pod = owner is not None and (owner.pod_uid is not None or owner.container_id is not None)
        key, method = self._key(process.pid, owner if in_pod else None)
        if key is None:
            return _Claim(process, None, None, known=owner is not None)
        if holder is not None and method == "nvml-process":
            return _Claim(process, holder.place, "podresources", known=True, proven=True)
        mig = _instance_of(process, pool) if pool.migs else None
        return _Claim(process, ContainerOnGpu(key, pool.gpu, mig), method, known=True, proven=in_pod)

    def _key(self, pid: Pid, owner: ProcessOwner | None) -> tuple[ContainerKey | None, Method | None]:
        """The container of a process. A region may name the container only within the pod that the cgroup names."""
        recorded = self.by_host_pid.get(pid)
        if owner is None:
            return (recorded, "hami-region") if recorded else (None, None)
        key, exact = self.pod_index.container_of(owner)
        if recorded is None:
            return key, "nvml-process"
        same = recorded is key or (recorded == key if exact else recorded.pod_uid == key.pod_uid)
        return (recorded, "hami-region") if same else (key, "nvml-process")

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


def _pools(gpu: Gpu, profile: Profile) -> Iterable[GpuPool]:
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
        made = GpuPool(gpu=gpu.uuid, migs=migs, memory=migs[0].memory, utilization=None, listed=listed)
        measured, share = profile.of(gpu.uuid, migs[0].gpu_instance), share_of(gpu, migs)
        busy = measured.activity.busy if measured else None
        if measured is not None and busy is not None and share is not None:
            made.utilization, made.share, made.sm_source = busy * share, share, measured.source
        yield made


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


def _open_rows(pool: GpuPool, holdings: Collection[ContainerAllocation]) -> None:
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
            pool.keys[claim.process.pid] = claim.place.key
            claim.row.processes += 1


def _sole_holder(pool: GpuPool) -> ContainerShare | None:
    """The one container that was given the whole pool, whatever else sneaks in.

    A pod that holds a device of a claim without using it counts only where no container uses the device.
    """
    held = [row for row in pool.rows.values() if row.allocated]
    held = [row for row in held if row.place.key.container] or held
    if len(held) == 1 and held[0].mode in {"exclusive", "mig"} and len(pool.migs) <= 1:
        return held[0]
    return None


# ── memory ───────────────────────────────────────────────────────────────────────────────────────────────────────
def _memory(pool: GpuPool, claims: Collection[_Claim], ownership: _Ownership) -> None:
    reserved = (pool.memory.reserved or 0) if pool.memory else 0
    system = _measure(claims)
    extras = [(row, _extra_memory(row, ownership)) for row in pool.rows.values()]
    if pool.memory is None:
        pool.system_memory = system
        for row, extra in extras:
            _set_memory(row, extra)
        return
    system = _cut_measured(pool, pool.memory.used, system)
    left = pool.memory.used - system - sum([row.measured for row in pool.rows.values()])
    pool.memory_left = left
    for row, extra in _shared(pool, extras, left):
        _set_memory(row, extra)
    holder = _sole_holder(pool)
    if holder is not None:
        _rest_to_holder(pool, holder, system, claims)
    pool.system_memory = system + reserved
    pool.unattributed_memory = pool.memory.used - system - sum([row.memory or 0 for row in pool.rows.values()])


def _measure(claims: Collection[_Claim]) -> Bytes:
    """Give each row what the driver says of its processes; what is the system's comes back."""
    system = 0
    for claim in claims:
        row, memory = claim.row, claim.process.memory
        if row is None:
            system += (memory or 0) if claim.known else 0
            continue
        row.memory_method = claim.method
        if memory is None:
            row.hidden = True
        elif claim.proven:
            row.measured += memory
            row.covered += 1
        else:
            row.claimed += memory
            row.covered += 1
    return system


def _extra_memory(row: ContainerShare, ownership: _Ownership) -> Bytes | None:
    """What the row claims beyond what the driver measured of it; None: its memory is not known.

    A region raises the figure where the driver does not see all of its processes, up to the limit that was assigned.
    """
    part = ownership.region_part(row.place.key, row.place.mig or row.place.gpu)
    seen = row.measured + row.claimed
    if part is None:
        return None if row.hidden or not row.covered else row.claimed
    row.region = True
    row.region_attached = part.attached
    row.processes = max(row.processes, part.processes)
    if row.covered and not row.hidden and row.covered >= part.busy_slots:
        return row.claimed
    bound = part.memory if row.memory_limit is None else min(part.memory, row.memory_limit)
    if bound > seen or not row.covered:
        row.memory_method = "hami-region"
    return max(bound, seen) - row.measured


def _set_memory(row: ContainerShare, extra: Bytes | None) -> None:
    row.memory = None if extra is None else row.measured + extra
    row.memory_method = None if extra is None else row.memory_method


def _cut_measured(pool: GpuPool, used: Bytes, system: Bytes) -> Bytes:
    """Cut the driver's figures where they contradict each other: together they cannot pass what is in use."""
    whole = system + sum([row.measured for row in pool.rows.values()])
    if whole <= used:
        return system
    pool.scaled, pool.contradicted = pool.scaled | {"memory"}, pool.contradicted | {"memory"}
    for row in pool.rows.values():
        row.memory_cut = row.measured > 0
        row.measured = row.measured * used // whole
    return system * used // whole


def _shared(
    pool: GpuPool, extras: Collection[tuple[ContainerShare, Bytes | None]], left: Bytes
) -> Iterable[tuple[ContainerShare, Bytes | None]]:
    """The claims, cut in proportion where together they pass what the driver leaves over."""
    claimed = sum([extra or 0 for _, extra in extras])
    if claimed <= left:
        return extras
    pool.scaled = pool.scaled | {"memory"}
    for row, extra in extras:
        row.memory_cut = row.memory_cut or bool(extra)
    return [(row, None if extra is None else extra * left // claimed) for row, extra in extras]


def _rest_to_holder(pool: GpuPool, holder: ContainerShare, system: Bytes, claims: Collection[_Claim]) -> None:
    """Everything in use that is not another's belongs to the container that was given the whole pool.

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
            if claim.proven:
                row.sm_measured, row.sm_proven = row.sm_measured + sm, True
    for row in pool.rows.values():
        if not pool.migs:  # HAMi's library reads the driver's samples of processes, and an instance has none
            _sm_from_region(row, ownership)
        if row.sm is None and row.processes == 0 and pool.listed:
            row.sm = 0.0  # no process, so it does nothing: that is measured
            row.sm_method = "nvml-process"
    if pool.utilization is None:
        pool.system_sm = _cut_sm(pool, pool.share, system)  # processes together cannot use more than there is
        return
    system = _cut_sm(pool, pool.utilization, system)
    if pool.migs:
        system = _sm_of_instance(pool, pool.utilization, claims)
    else:
        _sm_to_holder(pool, pool.utilization, system)
    pool.system_sm = system
    rows = sum(row.sm or 0.0 for row in pool.rows.values())
    pool.unattributed_sm = max(0.0, pool.utilization - rows - system)


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


def _sm_of_instance(pool: GpuPool, utilization: Ratio, claims: Collection[_Claim]) -> Ratio:
    """Give a GPU instance's busy time to the only container that can have worked; the system's part comes back.

    The driver does not tell the processes of an instance apart. If nothing worked, every container did nothing.
    """
    running = [row for row in pool.rows.values() if row.processes > 0 or not pool.listed]
    strangers = [claim for claim in claims if claim.row is None]
    if utilization <= _NOTHING:
        for row in running:
            row.sm, row.sm_method = 0.0, pool.sm_source
    elif len(running) == 1 and not strangers:
        running[0].sm, running[0].sm_method = utilization, pool.sm_source
    elif not running and strangers and all(claim.known for claim in strangers):
        return utilization
    return 0.0


def _cut_sm(pool: GpuPool, utilization: Ratio, system: Ratio) -> Ratio:
    """Cut first what the driver measured, if that alone passes the utilisation; claims share what it leaves over."""
    proven = [row for row in pool.rows.values() if row.sm_proven]
    claims = [row for row in pool.rows.values() if row.sm is not None and not row.sm_proven]
    measured = system + sum([row.sm or 0.0 for row in proven])
    if measured > utilization + _ROUNDING:
        pool.contradicted = pool.contradicted | {"sm"}
    system *= _cut(pool, proven, measured, utilization)
    left = pool.sm_left = max(0.0, utilization - system - sum([row.sm or 0.0 for row in proven]))
    _cut(pool, claims, sum([row.sm or 0.0 for row in claims]), left)
    return system


def _cut(pool: GpuPool, rows: Iterable[ContainerShare], whole: Ratio, most: Ratio) -> float:
    """Bring rows that are `whole` together down to `most`; the factor."""
    if whole <= most + _NOTHING:
        return 1.0
    if whole > most + _ROUNDING:
        pool.scaled = pool.scaled | {"sm"}
    factor = most / whole
    for row in rows:
        row.sm = (row.sm or 0.0) * factor
        row.sm_cut = row.sm_cut or whole > most + _ROUNDING
    return factor


# ── how sure ─────────────────────────────────────────────────────────────────────────────────────────────────────
def _judge(pool: GpuPool) -> None:
    """Say of each figure whether it was measured, and how far it can be off.

    What is not proven to be anyone's may be that of any container that runs here. What a container has beyond what was
    measured of it may be another's. So nothing that a region claims changes what is said of another container. A figure
    that was cut because the driver's own figures contradict each other may be anything up to all that is in use.
    """
    for row in pool.rows.values():
        runs = row.processes > 0 or not pool.listed
        if row.memory is not None:
            _judge_memory(row, pool, runs=runs)
        if row.sm is not None:
            _judge_sm(row, pool, runs=runs)


def _judge_memory(row: ContainerShare, pool: GpuPool, *, runs: bool) -> None:
    assert row.memory is not None
    beyond, left = max(0, row.memory - row.measured), pool.memory_left
    row.memory_certainty = "derived" if beyond or row.memory_method in _BY_RULE else "measured"
    if row.memory_cut:
        row.memory_certainty = "shared-out"
    if pool.memory is None:
        return
    if row.memory_cut and "memory" in pool.contradicted:
        beyond, left = row.memory, pool.memory.used
    row.memory_error = max(beyond, left - beyond) if runs else 0


def _judge_sm(row: ContainerShare, pool: GpuPool, *, runs: bool) -> None:
    assert row.sm is not None
    beyond, left = max(0.0, row.sm - row.sm_measured), pool.sm_left
    if pool.sm_source is not None and runs and not row.sm_cut:
        row.sm_certainty, row.sm_error = "derived", row.sm * SLICE_ERROR
        return
    row.sm_certainty = "shared-out" if row.sm_cut else "derived" if beyond > _ROUNDING else "measured"
    if pool.utilization is None:
        row.sm_error = pool.share if row.sm_cut else None
        return
    if row.sm_cut and "sm" in pool.contradicted:
        beyond, left = row.sm, pool.utilization
    row.sm_error = min(1.0, max(beyond, left - beyond) + _ROUNDING) if runs else 0.0


_BY_RULE: frozenset[Method] = frozenset({"podresources", "mig"})


# ── rows without a pool ──────────────────────────────────────────────────────────────────────────────────────────
def _homeless(gpus: Collection[Gpu], holdings: Collection[ContainerAllocation], ownership: _Ownership) -> list[GpuPool]:
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
            _set_memory(row, _extra_memory(row, ownership))
            _sm_from_region(row, ownership)
            row.memory_certainty = None if row.memory is None else "derived"
            row.sm_certainty = None if row.sm is None else "derived"
    return list(pools.values())
