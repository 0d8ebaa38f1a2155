"""Adds the devices of DRA (Kubernetes' own device allocation) to nodes and pods.

slices ─┐                ┌──► by node: the GPUs that drivers publish on it, and which of them claims do not share
claims ─┼──► DraIndex ────┼──► by pod: what its claims hold
pods ───┘                └──► a claim that no pod uses, as a pod

The index keeps only the UIDs of pods that can use a claim, and no nodes. A cluster without slices and claims needs no
index.
"""

from collections.abc import Callable, Iterable
from itertools import chain
from typing import TypeVar

from msgspec import structs

from vgpuscope.knowledge.dra_drivers import is_gpu_driver
from vgpuscope.logic.dra_devices import DraGpu, PoolKey, ResourcePool, make_pool, synthetic_id
from vgpuscope.logic.dra_joins import joined_pod
from vgpuscope.model.allocation import Assignment, HeldInstance, PodState, RegisteredDevice
from vgpuscope.model.dra import (
    UNUSED,
    ClaimedDevice,
    ClaimShare,
    ClaimState,
    DraDevice,
    ExclusiveHold,
    ExclusiveHolds,
    SliceState,
)
from vgpuscope.model.quantity import DeviceUUID, PodUID

T = TypeVar("T")


class DraIndex:
    """All slices and claims, and the pods that can use claims. The order of events makes no difference.

    A pod holds the devices of a claim if the claim is reserved for the pod and the pod has not ended. Several such
    pods share the devices.
    """

    def __init__(
        self,
        *,
        keep_gpus: Callable[[str, tuple[RegisteredDevice, ...]], None],
        keep_share: Callable[[PodUID, ClaimShare | None], None],
        keep_pod: Callable[[PodState], None],
        drop_pod: Callable[[PodUID], None],
        keep_exclusive: Callable[[str, ExclusiveHolds], None] = lambda _name, _holds: None,
    ) -> None:
        """`keep_pod` and `drop_pod` are called for claims that no pod uses."""
        self._keep_gpus, self._keep_share, self._keep_exclusive = keep_gpus, keep_share, keep_exclusive
        self._keep_pod, self._drop_pod = keep_pod, drop_pod
        self._using: set[PodUID] = set()  # pods that refer to claims and have not ended
        self._slices: dict[PoolKey, dict[str, SliceState]] = {}
        self._pool_of: dict[str, PoolKey] = {}  # by slice
        self._pools: dict[PoolKey, ResourcePool] = {}
        self._at: dict[str, set[PoolKey]] = {}  # by node
        self._drivers: dict[str, int] = {}  # how many pools each has
        self._claims: dict[str, ClaimState] = {}
        self._for: dict[PodUID, set[str]] = {}  # the claims reserved for a pod
        self._in: dict[PoolKey, dict[str, dict[str, int]]] = {}  # by pool, device, claim: how often it holds it
        self._unused: set[str] = set()

    @property
    def empty(self) -> bool:
        """Whether there are no slices and no claims."""
        return not self._slices and not self._claims

    @property
    def unplaced(self) -> int | None:
        """Number of devices that belong to no single node, and so to no ledger; None: no driver publishes devices."""
        return sum(pool.unplaced for pool in self._pools.values()) if self._pools else None

    def claim(self, uid: str) -> ClaimState | None:
        """The claim as it was last set."""
        return self._claims.get(uid)

    def slice(self, name: str) -> SliceState | None:
        """The slice as it was last set."""
        pool = self._pool_of.get(name)
        return self._slices[pool][name] if pool is not None else None

    # ── events ───────────────────────────────────────────────────────────────────────────────────────────────────

    def set_pod(self, pod: PodState) -> None:
        """A pod was added or has changed."""
        if not pod.claims or pod.ended:
            self.drop_pod(pod.uid)
        elif pod.uid not in self._using:
            self._using.add(pod.uid)
            self._settle(self._for.get(pod.uid, ()))

    def drop_pod(self, uid: PodUID) -> None:
        """A pod was deleted, or can no longer use claims."""
        if uid in self._using:
            self._using.discard(uid)
            self._settle(self._for.get(uid, ()))

    def set_slice(self, found: SliceState) -> None:
        """A slice was added or has changed."""
        pool = (found.driver, found.pool)
        old = self._pool_of.get(found.name)
        if old is not None and old != pool:
            self.drop_slice(found.name)
        self._pool_of[found.name] = pool
        self._slices.setdefault(pool, {})[found.name] = found
        self._settle_pool(pool)

    def drop_slice(self, name: str) -> None:
        """A slice was deleted."""
        pool = self._pool_of.pop(name, None)
        if pool is None:
            return
        del self._slices[pool][name]
        if not self._slices[pool]:
            del self._slices[pool]
        self._settle_pool(pool)

    def set_claim(self, claim: ClaimState) -> None:
        """A claim was added or has changed."""
        old = self._claims.get(claim.uid)
        if old == claim:
            return
        if old is not None:
            self._take_out(old)
        self._put_in(claim)
        self._settle((claim.uid,), also=old)

    def drop_claim(self, uid: str) -> None:
        """A claim was deleted, or no longer holds devices."""
        old = self._claims.get(uid)
        if old is not None:
            self._take_out(old)
            self._settle((uid,), also=old)

    # ── indexes ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _put_in(self, claim: ClaimState) -> None:
        self._claims[claim.uid] = claim
        for pod in claim.pods:
            self._for.setdefault(pod, set()).add(claim.uid)
        for one in claim.devices:
            holders = self._in.setdefault((one.driver, one.pool), {}).setdefault(one.device, {})
            holders[claim.uid] = holders.get(claim.uid, 0) + 1

    def _take_out(self, claim: ClaimState) -> None:
        del self._claims[claim.uid]
        for pod in claim.pods:
            _discard(self._for, pod, claim.uid)
        for one in claim.devices:
            pool = (one.driver, one.pool)
            devices = self._in.get(pool, {})
            devices.get(one.device, {}).pop(claim.uid, None)
            if one.device in devices and not devices[one.device]:
                del devices[one.device]
                if not devices:
                    del self._in[pool]

    def _settle_pool(self, key: PoolKey) -> None:
        """Rebuild the pool, and update all affected nodes and pods."""
        old, slices = self._pools.pop(key, None), self._slices.get(key)
        if slices:
            self._pools[key] = make_pool(key, slices.values())
        before, after = ({gpu.node for gpu in pool.gpus} if pool else set() for pool in (old, self._pools.get(key)))
        for name in before - after:
            _discard(self._at, name, key)
        for name in after:
            self._at.setdefault(name, set()).add(key)
        self._tell_nodes(before | after)
        self._settle(self._uids_in(key))
        self._count_pool(key[0], (key in self._pools) - (old is not None))

    def _count_pool(self, driver: str, more: int) -> None:
        """Count a driver's pools; if it comes or goes, update all its claims: its devices become known or unknown."""
        before = self._drivers.get(driver, 0)
        self._drivers[driver] = before + more
        if not self._drivers[driver]:
            del self._drivers[driver]
        if bool(before) != bool(before + more):
            self._settle({uid for key in self._in if key[0] == driver for uid in self._uids_in(key)})

    def _uids_in(self, key: PoolKey) -> set[str]:
        """The claims that hold devices of a pool."""
        return {uid for holders in self._in.get(key, {}).values() for uid in holders}

    def _settle(self, claims: Iterable[str], *, also: ClaimState | None = None) -> None:
        """Update the pods and nodes of these claims and of `also` (a claim's old state), and handle unused claims."""
        touched = [claim for uid in claims if (claim := self._claims.get(uid))]
        for uid in claims:
            self._stand_in(uid)
        if also is not None:
            touched.append(also)
        for pod in {pod: None for claim in touched for pod in claim.pods}:
            self._keep_share(pod, self._share_of(pod))
        self._tell_nodes({node for claim in touched for one in claim.devices if (node := self._place(one))})

    def _tell_nodes(self, names: Iterable[str]) -> None:
        for name in names:
            self._keep_gpus(name, self._gpus(name))
            self._keep_exclusive(name, self._exclusive(name))

    def _stand_in(self, uid: str) -> None:
        """Represent the claim as a pod as long as no pod uses it."""
        claim = self._claims.get(uid)
        pod = self._as_pod(claim) if claim and not self._users(claim) else None
        if pod is not None:
            self._unused.add(uid)
            self._keep_pod(pod)
        elif uid in self._unused:
            self._unused.discard(uid)
            self._drop_pod(uid)

    # ── results ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _users(self, claim: ClaimState) -> list[PodUID]:
        """The pods that use the claim's devices."""
        return [uid for uid in claim.pods if uid in self._using]

    def _find(self, one: ClaimedDevice) -> tuple[DraDevice, DraGpu] | None:
        pool = self._pools.get((one.driver, one.pool))
        return pool.devices.get(one.device) if pool else None

    def _place(self, one: ClaimedDevice) -> str:
        found = self._find(one)
        return found[0].node if found else ""

    def _gpus(self, name: str) -> tuple[RegisteredDevice, ...]:
        """The GPUs on a node, each once: if two pools publish the same GPU, the first pool is used."""
        gpus = chain.from_iterable(self._pools[key].gpus for key in sorted(self._at.get(name, ())))
        found: dict[DeviceUUID, RegisteredDevice] = {}
        for gpu in gpus:
            if gpu.node == name and gpu.registered.id not in found:
                found[gpu.registered.id] = self._registered(gpu)
        return tuple(found.values())

    def _registered(self, gpu: DraGpu) -> RegisteredDevice:
        """The GPU with its allocations: each pod that shares a claim takes a slot, so slots are added if needed."""
        devices = self._in.get(gpu.pool)
        if not devices:
            return gpu.registered
        held = parts = 0
        for device in gpu.devices:
            for uid, times in devices.get(device.name, {}).items():
                held += times * max(1, len(self._users(self._claims[uid])))
                parts += device.part
        mode = "mig" if parts else gpu.registered.mode
        if held <= gpu.registered.slots and mode == gpu.registered.mode:
            return gpu.registered
        return structs.replace(gpu.registered, slots=max(held, gpu.registered.slots), mode=mode)

    def _exclusive(self, name: str) -> ExclusiveHolds:
        """The GPUs on a node that claims hold and do not share with others, and whether whole or in part."""
        found: dict[DeviceUUID, ExclusiveHold] = {}
        for key in self._at.get(name, ()):
            held = self._in.get(key, {})
            for gpu in self._pools[key].gpus if held else ():
                hold = _hold([device for device in gpu.devices if device.name in held]) if gpu.node == name else None
                if hold and found.get(gpu.registered.id) != "whole":
                    found[gpu.registered.id] = hold
        return found

    def _share_of(self, pod: PodUID) -> ClaimShare | None:
        """The devices that a pod holds through all its claims; None: no devices, or the pod cannot use claims."""
        claims = self._for.get(pod)
        if not claims or pod not in self._using:
            return None
        shares = []
        for uid in sorted(claims):
            claim = self._claims[uid]
            users = self._users(claim)
            shares.append(self._share(claim, rank=users.index(pod), of=len(users)))
        return _together(shares)

    def _as_pod(self, claim: ClaimState) -> PodState | None:
        pod = PodState(
            uid=claim.uid, namespace=claim.namespace, name=f"resourceclaim/{claim.name}", phase=UNUSED, scheduler=""
        )
        share = self._share(claim, rank=0, of=1)
        return joined_pod(pod, share) if share.assignments else None

    def _share(self, claim: ClaimState, *, rank: int, of: int) -> ClaimShare:
        """The share of one user (number `rank` of `of`): equal shares that add up to the claim's devices."""
        assignments, instances, node = [], [], ""
        for one in claim.devices:
            found = self._find(one)
            if found is None:
                if self._vanished(one):
                    node = node or claim.node
                    gone, memory = synthetic_id(one.driver, one.pool, one.device), _part_of(one.memory or 0, rank, of)
                    assignments.append(_assignment(one, gone, memory, 0))
                continue
            device, gpu = found
            if not device.node:
                continue
            node = node or device.node
            memory, cores = _part_of(_memory(one, device), rank, of), _part_of(_cores(one, device, gpu), rank, of)
            assignments.append(_assignment(one, gpu.registered.id, memory, cores))
            if (
                device.part and device.profile and device.size and device.slots == 1 and rank == 0
            ):  # an instance is held once
                instances.append(_instance(device, gpu.registered.id))
        return ClaimShare(tuple(assignments), tuple(instances), node)

    def _vanished(self, one: ClaimedDevice) -> bool:
        """Whether the device is gone, not only unknown: true if the GPU driver publishes other devices."""
        return one.driver in self._drivers and is_gpu_driver(one.driver)


def _hold(held: list[DraDevice]) -> ExclusiveHold | None:
    """How the held devices of one GPU exclude others; None: all of them can be shared.

    A part without a known placement excludes others from the whole GPU: no place on it is known to be free.
    """
    alone = [device for device in held if device.slots == 1 or device.part]
    if not alone:
        return None
    return "part" if all(device.part and device.profile and device.size for device in alone) else "whole"


def _together(shares: list[ClaimShare]) -> ClaimShare:
    return ClaimShare(
        tuple(one for share in shares for one in share.assignments),
        tuple(one for share in shares for one in share.instances),
        next((share.node for share in shares if share.node), ""),
    )


def _assignment(one: ClaimedDevice, device: DeviceUUID, memory: int, cores: int) -> Assignment:
    """An assignment to the whole pod: a claim does not say which container has the device."""
    return Assignment(
        container_index=0, container="", init=False, vendor=one.driver, device=device, memory=memory, cores=cores
    )


def _instance(device: DraDevice, gpu: DeviceUUID) -> HeldInstance:
    return HeldInstance(
        container_index=0,
        device=gpu,
        profile=device.profile,
        start=device.start,
        size=device.size,
        mig=device.uuid or None,
    )


def _memory(one: ClaimedDevice, device: DraDevice) -> int:
    return device.memory if one.memory is None else one.memory


def _cores(one: ClaimedDevice, device: DraDevice, gpu: DraGpu) -> int:
    """Percent of the GPU; 0: not limited, or unknown."""
    if device.part:
        return round(100 * device.processors / gpu.processors) if gpu.processors else 0
    if one.cores is not None and device.cores:
        return -(-100 * one.cores // device.cores)
    return 100 if device.slots == 1 else 0


def _part_of(amount: int, rank: int, of: int) -> int:
    return amount // of + (rank < amount % of)


def _discard(index: dict[str, set[T]], key: str, value: T) -> None:
    found = index.get(key)
    if found is not None:
        found.discard(value)
        if not found:
            del index[key]
