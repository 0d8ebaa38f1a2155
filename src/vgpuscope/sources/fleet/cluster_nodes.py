"""The nodes of the cluster and what is allocated there, fetched from the cluster exporter."""

import asyncio

import httpx2
from msgspec import Struct

from vgpuscope.model.analysis import Allocated, Allocations, RegisteredGpu, Tenant
from vgpuscope.model.errors import SourceDown
from vgpuscope.model.quantity import Seconds
from vgpuscope.sources.clients.cluster import CLUSTER, ClusterApi

_KEPT = 60.0  # seconds


class _Registered(Struct, gc=False):
    id: str
    index: int = 0
    type: str = ""
    healthy: bool = False


class _Device(Struct, gc=False):
    device: _Registered
    memory_allocated: int = 0
    cores_allocated: int = 0


class _Holder(Struct, gc=False):
    namespace: str
    pod: str
    device: str
    memory: int
    cores: int = 0  # 0: not specified
    pod_uid: str = ""
    container: str = ""


class _OfferHolder(Struct, gc=False):
    namespace: str
    pod: str
    pod_uid: str = ""


class _Offer(Struct):
    holders: tuple[_OfferHolder, ...] = ()


class _Node(Struct):
    """The fields of a node's ledger that are needed here."""

    name: str
    known: bool = True  # False: only pods refer to it
    devices: tuple[_Device, ...] = ()
    holders: tuple[_Holder, ...] = ()
    offers: tuple[_Offer, ...] = ()  # GPUs that only the kubelet assigns


class ClusterNodes(ClusterApi[list[_Node]]):
    """A client of a cluster exporter's list of nodes; caches the response."""

    def __init__(self, url: str, *, timeout: Seconds = 5.0, token: str | None = None, kept: Seconds = _KEPT) -> None:
        super().__init__(CLUSTER, url, content=list[_Node], timeout=timeout, token=token)
        self._kept, self._due = kept, float("-inf")
        self._nodes: frozenset[str] = frozenset()
        self._allocations = Allocations({}, {})

    async def read(self) -> frozenset[str]:
        """The names of all nodes; raises SourceDown if they cannot be fetched or are not all listed yet."""
        await self._refresh()
        return self._nodes

    async def allocations(self) -> Allocations:
        """What is allocated of each GPU; raises SourceDown if it cannot be fetched or is not all listed yet."""
        await self._refresh()
        return self._allocations

    async def _refresh(self) -> None:
        clock = asyncio.get_running_loop().time
        if clock() >= self._due:
            listed = await self._listed()
            self._nodes = frozenset(node.name for node in listed if node.known)
            self._allocations = await asyncio.to_thread(_allocations, listed)
            self._due = clock() + self._kept

    async def _listed(self) -> list[_Node]:
        if missing := await self.missing():
            raise SourceDown(f"the cluster exporter has not listed {', '.join(missing)} yet")
        answer = await self.get(CLUSTER.path)
        if answer.status_code != httpx2.codes.OK:
            raise self._refused(answer)
        return self._decoded(answer)


def _allocations(nodes: list[_Node]) -> Allocations:
    gpus = {
        one.device.id: Allocated(one.memory_allocated, one.cores_allocated) for node in nodes for one in node.devices
    }
    pods: dict[tuple[str, str, str], Allocated] = {}
    holders: dict[str, dict[Tenant, None]] = {}
    for node in nodes:
        for one in node.holders:
            key, cores = (one.device, one.namespace, one.pod), one.cores or None
            who = Tenant(namespace=one.namespace, pod=one.pod, container=one.container, pod_uid=one.pod_uid)
            holders.setdefault(one.device, {})[who] = None
            known = pods.get(key)
            pods[key] = (
                Allocated(known.memory + one.memory, _sum(known.cores, cores))
                if known
                else Allocated(one.memory, cores)
            )
    registered = {
        one.device.id: RegisteredGpu(
            node=node.name,
            index=one.device.index,
            model=one.device.type,
            healthy=one.device.healthy,
            holders=tuple(holders.get(one.device.id, ())),
        )
        for node in nodes
        for one in node.devices
    }
    return Allocations(gpus, pods, registered, _uids(nodes))


def _uids(nodes: list[_Node]) -> dict[tuple[str, str, str], str]:
    """The UID of each pod that has a GPU. A name with two UIDs, of a pod that is being replaced, has none."""
    found: dict[tuple[str, str, str], set[str]] = {}
    for node in nodes:
        pods: list[_Holder | _OfferHolder] = [*node.holders, *(one for offer in node.offers for one in offer.holders)]
        for one in pods:
            if one.pod_uid:
                found.setdefault((node.name, one.namespace, one.pod), set()).add(one.pod_uid)
    return {name: next(iter(uids)) for name, uids in found.items() if len(uids) == 1}


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other
