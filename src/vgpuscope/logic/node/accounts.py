"""What the agent remembers from sample to sample: seconds, joules, bursts, and which containers were seen.

All of it is one fold: `Accounts.settle` adds one sample to the totals so far. When a container ends, its use stays in
the accounts, in a separate row `ended`. So the parts of a GPU's total still add up.
"""

from collections import deque
from collections.abc import Collection, Iterable
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from vgpuscope.logic.node.attribution import ContainerOnGpu, ContainerShare, GpuPool
from vgpuscope.model.device import Gpu
from vgpuscope.model.quantity import DeviceUUID, Joules, Ratio, Seconds
from vgpuscope.model.usage import Burst, Certainty, Method

_WindowKey: TypeAlias = tuple[object, str]

_RECENT: Seconds = 5.0  # busy time that profiling counters show is published so long after it was measured last


class Account(Struct, kw_only=True):
    """What one container has used of one GPU so far."""

    sm_seconds: Seconds | None = None
    sm_at: float | None = None  # when it was last known how much to add
    energy: Joules | None = None
    energy_method: Method | None = None
    energy_certainty: Certainty | None = None
    power: float | None = None
    started: bool = False  # has had a process on the GPU at some time


class GpuAccount(Struct, kw_only=True):
    """The totals of a GPU so far, and the parts that belong to no running container."""

    busy_seconds: Seconds | None = None
    by_instances: bool = False  # busy_seconds is the sum of MIG instances, which only profiling counters measure
    sm_system: Seconds = 0.0
    sm_unattributed: Seconds = 0.0
    sm_ended: Seconds = 0.0
    energy: Joules | None = None
    energy_system: Joules = 0.0
    energy_unattributed: Joules = 0.0
    energy_ended: Joules = 0.0
    raw_energy: Joules | None = None  # the driver's counter at the last sample


class InstanceAccount(Struct, kw_only=True):
    """The totals of a GPU instance so far."""

    migs: frozenset[DeviceUUID] = frozenset()  # its compute instances: its number may be another's later
    busy_seconds: Seconds | None = None  # in seconds of the whole GPU
    busy_at: float | None = None  # when it was last measured
    method: Method | None = None
    energy: Joules | None = None


class _Window:
    """The samples of the window: the time and value of each."""

    __slots__ = ("times", "values")

    def __init__(self) -> None:
        self.times: deque[float] = deque()
        self.values: deque[float] = deque()

    def add(self, at: float, value: float, length: Seconds) -> None:
        times, values = self.times, self.values
        times.append(at)
        values.append(value)
        while times[0] <= at - length or times[0] > at:
            times.popleft()
            values.popleft()

    def reaches(self, moment: float) -> bool:
        """Whether the newest sample is later than `moment`."""
        return self.times[-1] > moment


class Accounts:
    """All accounts of a node. One writer, the sampler."""

    def __init__(self, window: Seconds) -> None:
        self.window = window
        self.at: float | None = None
        self.containers: dict[ContainerOnGpu, Account] = {}
        self.gpus: dict[DeviceUUID, GpuAccount] = {}
        self.instances: dict[tuple[DeviceUUID, int], InstanceAccount] = {}
        self.ended = 0
        self._windows: dict[_WindowKey, _Window] = {}

    def settle(self, pools: Collection[GpuPool], gpus: Collection[Gpu], at: float) -> None:
        """Add one sample; `at` is from a monotonic clock. The very first sample adds no time."""
        seconds = max(0.0, at - self.at) if self.at is not None else 0.0
        self.at = at
        self._windows = {key: window for key, window in self._windows.items() if window.reaches(at - self.window)}
        self._close(pools, silent={gpu.uuid for gpu in gpus if gpu.health != "ok"})
        self._open_instances(pools, silent={gpu.uuid for gpu in gpus if gpu.health != "ok"})
        for gpu in gpus:
            mine = [pool for pool in pools if pool.gpu == gpu.uuid]
            gpu_account = self.gpus.setdefault(gpu.uuid, GpuAccount())
            for pool in mine:
                self._add_sm(gpu_account, pool, seconds)
            if gpu.health == "ok":
                gpu_account.by_instances = bool(gpu.mig_enabled)
            self._add_energy(gpu_account, gpu, mine)
        for pool in pools:
            for row in pool.rows.values():
                account = self._account(row.place)
                account.started = account.started or row.processes > 0 or row.region_attached

    def burst(self, owner: object, what: str, value: float | None) -> Burst | None:
        """Mean and maximum of a value over the window, including this sample; None if the value is None."""
        if value is None or self.at is None:
            return None
        key = (owner, what)
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window()
        window.add(self.at, value, self.window)
        values = window.values
        return Burst(mean=sum(values) / len(values), max=max(values))

    def busy_seconds(self, gpu: DeviceUUID) -> Seconds | None:
        """The busy time of a GPU; None while that of one of its MIG instances is not measured.

        A counter that stands still means "idle" to rate(), so one that is not being measured must be absent.
        """
        gpu_account = self.gpus.get(gpu)
        if gpu_account is None or (gpu_account.by_instances and not self._instances_recent(gpu)):
            return None
        return gpu_account.busy_seconds

    def instance(self, gpu: DeviceUUID, number: int) -> InstanceAccount | None:
        """The account of a GPU instance; without busy time while that is not measured."""
        account = self.instances.get((gpu, number))
        if account is None or self._recent(account.busy_at):
            return account
        return replace(account, busy_seconds=None, method=None)

    def sm_seconds(self, place: ContainerOnGpu) -> Seconds | None:
        """The busy time of a container; None while that of a container in a MIG instance is not measured."""
        account = self.containers[place]
        if not account.started or (place.mig is not None and not self._recent(account.sm_at)):
            return None
        return account.sm_seconds

    def _instances_recent(self, gpu: DeviceUUID) -> bool:
        return all(self._recent(one.busy_at) for (mine, _), one in self.instances.items() if mine == gpu)

    def _recent(self, at: float | None) -> bool:
        return self.at is not None and at is not None and self.at - at <= _RECENT

    def used_by_gpu(self) -> dict[DeviceUUID, list[Account]]:
        """The accounts of the containers that have not ended, by GPU."""
        used: dict[DeviceUUID, list[Account]] = {}
        for place, account in self.containers.items():
            used.setdefault(place.gpu, []).append(account)
        return used

    def _account(self, place: ContainerOnGpu) -> Account:
        account = self.containers.get(place)
        if account is None:
            account = self.containers[place] = Account()
        return account

    def _close(self, pools: Iterable[GpuPool], silent: set[DeviceUUID]) -> None:
        """Move the use of ended containers to the row `ended`.

        On a GPU that does not answer, the agent cannot tell which containers have ended. Its accounts stay open until
        it answers.
        """
        here = {place for pool in pools for place in pool.rows}
        gone = [place for place in self.containers if place not in here and place.gpu not in silent]
        for place in gone:
            account = self.containers.pop(place)
            self.ended += 1
            if (gpu_account := self.gpus.get(place.gpu)) is not None:
                gpu_account.sm_ended += account.sm_seconds or 0.0
                gpu_account.energy_ended += account.energy or 0.0

    def _open_instances(self, pools: Iterable[GpuPool], silent: set[DeviceUUID]) -> None:
        """An account for each GPU instance; that of a destroyed instance is dropped, even if its number is in use."""
        if not self.instances and not any(pool.migs for pool in pools):
            return
        kept = {key: one for key, one in self.instances.items() if key[0] in silent}
        for pool in pools:
            if pool.migs:
                key = (pool.gpu, pool.migs[0].gpu_instance)
                migs = frozenset(instance.uuid for instance in pool.migs)
                before = self.instances.get(key)
                kept[key] = before if before and not before.migs.isdisjoint(migs) else InstanceAccount()
                kept[key].migs = migs
        self.instances = kept

    def _add_sm(self, gpu_account: GpuAccount, pool: GpuPool, seconds: Seconds) -> None:
        if pool.utilization is not None:
            gpu_account.busy_seconds = (gpu_account.busy_seconds or 0.0) + pool.utilization * seconds
            gpu_account.sm_system += pool.system_sm * seconds
            gpu_account.sm_unattributed += pool.unattributed_sm * seconds
            if pool.migs:
                instance = self.instances[pool.gpu, pool.migs[0].gpu_instance]
                instance.busy_seconds = (instance.busy_seconds or 0.0) + pool.utilization * seconds
                instance.method = pool.sm_source
                instance.busy_at = self.at
        for row in pool.rows.values():
            account = self._account(row.place)
            if row.sm is not None and pool.utilization is not None:
                account.sm_seconds = (account.sm_seconds or 0.0) + row.sm * seconds
            if row.sm is not None and (pool.utilization is not None or row.processes == 0):
                account.sm_at = self.at  # without a process the busy time does not grow, which needs no counter

    def _add_energy(self, gpu_account: GpuAccount, gpu: Gpu, pools: Collection[GpuPool]) -> None:
        """Divide the energy drawn since the last sample. A lower counter was reset: counting continues from it."""
        for pool in pools:
            for row in pool.rows.values():
                self._account(row.place).power = None
        if gpu.energy is None:
            return  # the energy drawn meanwhile is divided when the GPU answers again
        before, gpu_account.raw_energy = gpu_account.raw_energy, gpu.energy
        gpu_account.energy = gpu_account.energy or 0.0
        drawn = gpu.energy - before if before is not None and gpu.energy >= before else 0.0
        weights = _weights(gpu, pools)
        gpu_account.energy += drawn
        gpu_account.energy_system += drawn * weights.system
        gpu_account.energy_unattributed += drawn * weights.unattributed
        for row, weight, method in weights.rows:
            account = self._account(row.place)
            account.energy = (account.energy or 0.0) + drawn * weight
            account.energy_method = method
            account.energy_certainty = "shared-out" if method == "share" else "derived"
            if gpu.power is not None:
                account.power = gpu.power * weight
        for pool, weight in weights.pools:
            instance = self.instances[pool.gpu, pool.migs[0].gpu_instance]
            instance.energy = (instance.energy or 0.0) + drawn * weight


class _Weights(Struct, frozen=True):
    """How a GPU's energy is divided; all parts together are 1."""

    rows: tuple[tuple[ContainerShare, Ratio, Method], ...]
    system: Ratio
    unattributed: Ratio
    pools: tuple[tuple[GpuPool, Ratio], ...] = ()  # GPU instances; the rest is drawn outside of them


def _weights(gpu: Gpu, pools: Collection[GpuPool]) -> _Weights:
    """By SM time if the GPU was busy, else by memory held; an exclusive container on the GPU gets all of it."""
    if gpu.mig_enabled and any(pool.migs for pool in pools):
        return _of_instances(pools)
    rows = [row for pool in pools for row in pool.rows.values()]
    if len(rows) == 1 and rows[0].mode == "exclusive" and (rows[0].processes > 0 or rows[0].allocated):
        return _Weights(((rows[0], 1.0, "podresources"),), 0.0, 0.0)
    if gpu.utilization is not None and gpu.utilization > 0:
        return _by([(row, row.sm) for row in rows], sum(p.system_sm for p in pools), gpu.utilization)
    told = [(pool, pool.memory) for pool in pools if pool.memory is not None]
    system = sum(pool.system_memory - (memory.reserved or 0) for pool, memory in told)
    used = sum(memory.used for _, memory in told)
    return _by([(row, row.memory) for pool, _ in told for row in pool.rows.values()], system, used)


def _of_instances(pools: Collection[GpuPool]) -> _Weights:
    """By the busy time of the instances if all of them were measured and one worked, else by memory held."""
    cut = [pool for pool in pools if pool.migs]
    busy = [pool.utilization for pool in cut if pool.utilization is not None]
    if len(busy) == len(cut) and sum(busy) > 0:
        total = sum(busy)
        found = _by([(row, row.sm) for pool in cut for row in pool.rows.values()], sum(p.system_sm for p in cut), total)
        return replace(found, pools=tuple((pool, (pool.utilization or 0.0) / total) for pool in cut))
    told = [(pool, pool.memory) for pool in cut if pool.memory is not None]
    system = sum(pool.system_memory - (memory.reserved or 0) for pool, memory in told)
    used = sum(memory.used for _, memory in told)
    found = _by([(row, row.memory) for pool, _ in told for row in pool.rows.values()], system, used)
    return replace(found, pools=tuple((pool, memory.used / used) for pool, memory in told) if used else ())


def _by(parts: list[tuple[ContainerShare, float | int | None]], system: float, total: float) -> _Weights:
    if total <= 0:
        return _Weights(tuple((row, 0.0, "share") for row, part in parts if part is not None), 0.0, 1.0)
    rows: tuple[tuple[ContainerShare, Ratio, Method], ...] = tuple(
        (row, part / total, "share") for row, part in parts if part is not None
    )
    rest = 1.0 - sum(weight for _, weight, _ in rows) - system / total
    return _Weights(rows, system / total, max(0.0, rest))
