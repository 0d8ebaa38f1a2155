"""Joins what Kubernetes' own device allocation says to nodes and pods, so that the ledger need not know of it.

slices ─┐                ┌──► nodes, with the cards that drivers publish on them
claims ─┤                │
nodes ──┼──► DraBook ────┤
pods ───┘                └──► pods, with what their claims hold; and a claim that no pod uses, in the place of a pod

Nodes and pods that have nothing to do with it pass through as they are.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from msgspec import Struct, structs

from vgpuscope.knowledge.dra_drivers import is_gpu_driver
from vgpuscope.logic.cluster.dra_devices import Card, Pool, PoolKey, make_pool, synthetic_id
from vgpuscope.model.allocation import Assignment, HeldInstance, NodeState, PodState, RegisteredDevice
from vgpuscope.model.dra import UNUSED, ClaimedDevice, ClaimState, DraDevice, SliceState
from vgpuscope.model.quantity import DeviceUUID, PodUID

T = TypeVar("T")


class DraBook:
    """All slices, claims, nodes, and pods that refer to claims. What is joined does not depend on the order of events.

    A pod holds what a claim does if the claim is reserved for it, and it has not ended. Several of them share it.
    """

    def __init__(
        self,
        *,
        keep_node: Callable[[NodeState], None],
        drop_node: Callable[[str], None],
        keep_pod: Callable[[PodState], None],
        drop_pod: Callable[[PodUID], None],
    ) -> None:
        self._keep_node, self._drop_node = keep_node, drop_node
        self._keep_pod, self._drop_pod = keep_pod, drop_pod
        self._nodes: dict[str, NodeState] = {}
        self._pods: dict[PodUID, PodState] = {}  # only those that refer to claims
        self._slices: dict[PoolKey, dict[str, SliceState]] = {}
        self._pool_of: dict[str, PoolKey] = {}  # by slice
        self._pools: dict[PoolKey, Pool] = {}
        self._at: dict[str, set[PoolKey]] = {}  # by node
        self._drivers: dict[str, int] = {}  # how many pools each has
        self._claims: dict[str, ClaimState] = {}
        self._for: dict[PodUID, set[str]] = {}  # the claims that are reserved for a pod
        self._in: dict[PoolKey, dict[str, dict[str, int]]] = {}  # by pool and device: how often which claim has it
        self._unused: set[str] = set()

    @property
    def unplaced(self) -> int | None:
        """How many devices are on no node in particular, and so in no node's ledger; None: nobody publishes any."""
        return sum(pool.unplaced for pool in self._pools.values()) if self._pools else None

    # ── what happened ────────────────────────────────────────────────────────────────────────────────────────────

    def set_node(self, node: NodeState) -> None:
        """A node is as given."""
        self._nodes[node.name] = node
        self._keep_node(self._joined_node(node))

    def drop_node(self, name: str) -> None:
        """A node is gone."""
        self._nodes.pop(name, None)
        self._drop_node(name)

    def set_pod(self, pod: PodState) -> None:
        """A pod is as given."""
        old = self._pods.get(pod.uid)
        if not pod.claims:
            if old is not None:
                self._forget_pod(pod.uid)
            self._keep_pod(pod)
            return
        self._pods[pod.uid] = pod
        if old is None or old.ended != pod.ended:
            self._settle(self._for.get(pod.uid, ()))
        self._keep_pod(self._joined_pod(pod))

    def drop_pod(self, uid: PodUID) -> None:
        """A pod is gone."""
        if uid in self._pods:
            self._forget_pod(uid)
        self._drop_pod(uid)

    def set_slice(self, found: SliceState) -> None:
        """A slice is as given."""
        pool = (found.driver, found.pool)
        old = self._pool_of.get(found.name)
        if old is not None and old != pool:
            self.drop_slice(found.name)
        self._pool_of[found.name] = pool
        self._slices.setdefault(pool, {})[found.name] = found
        self._settlemake_pool(pool)

    def drop_slice(self, name: str) -> None:
        """A slice is gone."""
        pool = self._pool_of.pop(name, None)
        if pool is None:
            return
        del self._slices[pool][name]
        if not self._slices[pool]:
            del self._slices[pool]
        self._settlemake_pool(pool)

    def set_claim(self, claim: ClaimState) -> None:
        """A claim is as given."""
        old = self._claims.get(claim.uid)
        if old == claim:
            return
        if old is not None:
            self._take_out(old)
        self._put_in(claim)
        self._settle((claim.uid,), also=old)

    def drop_claim(self, uid: str) -> None:
        """A claim is gone, or holds nothing any more."""
        old = self._claims.get(uid)
        if old is not None:
            self._take_out(old)
            self._settle((uid,), also=old)

    # ── the books ────────────────────────────────────────────────────────────────────────────────────────────────

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

    def _forget_pod(self, uid: PodUID) -> None:
        del self._pods[uid]
        self._settle(self._for.get(uid, ()))

    def _settlemake_pool(self, key: PoolKey) -> None:
        """Make the pool anew, and tell everyone who has to do with it."""
        old, slices = self._pools.pop(key, None), self._slices.get(key)
        if slices:
            self._pools[key] = make_pool(key, slices.values())
        before, after = ({card.node for card in pool.cards} if pool else set() for pool in (old, self._pools.get(key)))
        for name in before - after:
            _discard(self._at, name, key)
        for name in after:
            self._at.setdefault(name, set()).add(key)
        self._tell_nodes(before | after)
        self._settle(self._uids_in(key))
        self._count_pool(key[0], (key in self._pools) - (old is not None))

    def _count_pool(self, driver: str, more: int) -> None:
        """Of a driver that comes or goes, all claims must be looked at: its devices become known or unknown."""
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
        """Tell the pods and nodes that claims, or what a claim was, have to do with; and stand in for unused ones."""
        touched = [claim for uid in claims if (claim := self._claims.get(uid))]
        for uid in claims:
            self._stand_in(uid)
        if also is not None:
            touched.append(also)
        for pod in {pod: None for claim in touched for pod in claim.pods}:
            if pod in self._pods:
                self._keep_pod(self._joined_pod(self._pods[pod]))
        self._tell_nodes({node for claim in touched for one in claim.devices if (node := self._place(one))})

    def _tell_nodes(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self._nodes:
                self._keep_node(self._joined_node(self._nodes[name]))

    def _stand_in(self, uid: str) -> None:
        """A claim that no pod uses is told as a pod of its own, for as long as that is so."""
        claim = self._claims.get(uid)
        pod = self._as_pod(claim) if claim and not self._users(claim) else None
        if pod is not None:
            self._unused.add(uid)
            self._keep_pod(pod)
        elif uid in self._unused:
            self._unused.discard(uid)
            self._drop_pod(uid)

    # ── what follows ─────────────────────────────────────────────────────────────────────────────────────────────

    def _users(self, claim: ClaimState) -> list[PodUID]:
        """The pods that use what the claim holds."""
        return [uid for uid in claim.pods if (pod := self._pods.get(uid)) and not pod.ended]

    def _find(self, one: ClaimedDevice) -> tuple[DraDevice, Card] | None:
        pool = self._pools.get((one.driver, one.pool))
        return pool.devices.get(one.device) if pool else None

    def _place(self, one: ClaimedDevice) -> str:
        found = self._find(one)
        return found[0].node if found else ""

    def _joined_node(self, node: NodeState) -> NodeState:
        """The node with its cards; one that HAMi registered too is as HAMi says."""
        pools = self._at.get(node.name)
        if not pools:
            return node
        devices, known = list(node.devices), {device.id for device in node.devices}
        for key in sorted(pools):
            for card in self._pools[key].cards:
                if card.node == node.name and card.registered.id not in known:
                    known.add(card.registered.id)
                    devices.append(self._registered(card))
        return structs.replace(node, devices=tuple(devices))

    def _registered(self, card: Card) -> RegisteredDevice:
        """The card as it is held: pods that share a claim share a slot, so there are as many as it takes."""
        devices = self._in.get(card.pool)
        if not devices:
            return card.registered
        held = parts = 0
        for device in card.devices:
            for uid, times in devices.get(device.name, {}).items():
                held += times * max(1, len(self._users(self._claims[uid])))
                parts += device.part
        mode = "mig" if parts else card.registered.mode
        if held <= card.registered.slots and mode == card.registered.mode:
            return card.registered
        return structs.replace(card.registered, slots=max(held, card.registered.slots), mode=mode)

    def _joined_pod(self, pod: PodState) -> PodState:
        """The pod with what its claims hold, in the place where that is."""
        claims = self._for.get(pod.uid)
        if not claims or pod.ended:
            return pod
        shares = []
        for uid in sorted(claims):
            claim = self._claims[uid]
            users = self._users(claim)
            shares.append(self._share(claim, rank=users.index(pod.uid), of=len(users)))
        return _with_shares(pod, shares)

    def _as_pod(self, claim: ClaimState) -> PodState | None:
        pod = PodState(
            uid=claim.uid, namespace=claim.namespace, name=f"resourceclaim/{claim.name}", phase=UNUSED, scheduler=""
        )
        share = self._share(claim, rank=0, of=1)
        return _with_shares(pod, [share]) if share.assignments else None

    def _share(self, claim: ClaimState, *, rank: int, of: int) -> "_Share":
        """What one of several users has: everyone as much, so that together they have what the claim holds."""
        assignments, instances, node = [], [], ""
        for one in claim.devices:
            found = self._find(one)
            if found is None:
                if self._vanished(one):
                    node = node or claim.node
                    assignments.append(
                        _assignment(one, synthetic_id(one.driver, one.pool, one.device), one.memory or 0, 0)
                    )
                continue
            device, card = found
            if not device.node:
                continue
            node = node or device.node
            memory, cores = _part_of(_memory(one, device), rank, of), _part_of(_cores(one, device, card), rank, of)
            assignments.append(_assignment(one, card.registered.id, memory, cores))
            if (
                device.part and device.profile and device.size and device.slots == 1 and rank == 0
            ):  # an instance is held once
                instances.append(_instance(device, card.registered.id))
        return _Share(tuple(assignments), tuple(instances), node)

    def _vanished(self, one: ClaimedDevice) -> bool:
        """Whether the device is gone, and not merely unknown to us: then we know others of its driver."""
        return one.driver in self._drivers and is_gpu_driver(one.driver)


class _Share(Struct, frozen=True):
    assignments: tuple[Assignment, ...]
    instances: tuple[HeldInstance, ...]
    node: str


def _with_shares(pod: PodState, shares: list[_Share]) -> PodState:
    node = next((share.node for share in shares if share.node), "")
    return structs.replace(
        pod,
        assigned_node=pod.assigned_node or (node if node != pod.node else ""),
        assignments=(*pod.assignments, *(one for share in shares for one in share.assignments)),
        instances=(*pod.instances, *(one for share in shares for one in share.instances)),
    )


def _assignment(one: ClaimedDevice, device: DeviceUUID, memory: int, cores: int) -> Assignment:
    """A claim is the pod's: which of its containers has it is not said."""
    return Assignment(
        container_index=0, container="", init=False, vendor=one.driver, device=device, memory=memory, cores=cores
    )


def _instance(device: DraDevice, card: DeviceUUID) -> HeldInstance:
    return HeldInstance(
        container_index=0,
        device=card,
        profile=device.profile,
        start=device.start,
        size=device.size,
        mig=device.uuid or None,
    )


def _memory(one: ClaimedDevice, device: DraDevice) -> int:
    return device.memory if one.memory is None else one.memory


def _cores(one: ClaimedDevice, device: DraDevice, card: Card) -> int:
    """Percent of the card; 0: not limited, or not to be told."""
    if device.part:
        return round(100 * device.processors / card.processors) if card.processors else 0
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
