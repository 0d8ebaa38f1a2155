"""Joins the kubelet's list with the API server: which GPU the device of a claim is, and whether the claim holds it.

PodResources → driver, pool, device, claim ──┐
ResourceSlices → driver, pool, device, UUID ─┼──► ClaimCache ──► grants with UUIDs, without admin access
ResourceClaims → claim, device, request ─────┘

The kubelet lists devices by name, lists devices with admin access like any other, and lists all devices of a claim for
each container that uses one of its requests.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeAlias

from msgspec.structs import replace

from vgpuscope.knowledge.dra_drivers import is_gpu_driver, is_hami_driver
from vgpuscope.logic.dra_devices import DraGpu, PoolKey, make_pool, real_id
from vgpuscope.model.dra import AllocatedClaim, ClaimedDevice, DraDevice, SliceState
from vgpuscope.model.pod import Grant, PublishedDevice, RequestShare

DeviceKey: TypeAlias = tuple[str, str, str]  # driver, pool, device
_Held: TypeAlias = tuple[str, DeviceKey]  # a claim, and one of its devices


class ClaimCache:
    """The slices and claims that concern this node, as they were last read.

    A device that was found in a slice is remembered as long as a container has it: drivers stop publishing a GPU that
    is unhealthy, and replace their slices when they restart.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._published: Mapping[DeviceKey, PublishedDevice] = {}
        self._remembered: dict[_Held, PublishedDevice] = {}
        self._claims: dict[str, AllocatedClaim] = {}

    def take_slices(self, slices: Collection[SliceState]) -> None:
        """These are all slices of the node."""
        self._published = dict(published(slices, node=self._node))

    def take_claims(self, claims: Mapping[str, AllocatedClaim]) -> None:
        """These claims were read; others stay as they are."""
        self._claims.update(claims)

    def unknown_devices(self, grants: Iterable[Grant]) -> frozenset[DeviceKey]:
        """Devices of GPU drivers that no slice had."""
        return frozenset(
            _key(grant)
            for grant in grants
            if grant.claim is not None and is_gpu_driver(grant.resource) and self._device(grant) is None
        )

    def unknown_claims(self, grants: Iterable[Grant]) -> frozenset[str]:
        """Claims of GPUs that were not read, or that had other devices when they were."""
        return frozenset(grant.claim for grant in grants if grant.claim is not None and self._is_open(grant))

    def gpu_claims(self, grants: Iterable[Grant]) -> frozenset[str]:
        """All claims of GPUs."""
        return frozenset(grant.claim for grant in grants if grant.claim is not None and self._is_gpu(grant))

    def resolve(self, grants: Collection[Grant]) -> tuple[Grant, ...]:
        """The grants that hold a device, with what is published about it; forgets all claims but these."""
        claimed = [grant for grant in grants if grant.claim is not None]
        found = {(grant.claim or "", _key(grant)): self._device(grant) for grant in claimed}
        self._remembered = {held: device for held, device in found.items() if device is not None}
        self._claims = {name: self._claims[name] for name in {one.claim or "" for one in claimed} & self._claims.keys()}
        return tuple(grant if grant.claim is None else self._joined(grant) for grant in grants if self._holds(grant))

    def _is_open(self, grant: Grant) -> bool:
        claim = self._claims.get(grant.claim or "")
        if claim is None:
            return self._is_gpu(grant)
        return not _of(claim.devices, grant) and not _of(claim.admin, grant)

    def _is_gpu(self, grant: Grant) -> bool:
        return is_gpu_driver(grant.resource) or self._device(grant) is not None

    def _device(self, grant: Grant) -> PublishedDevice | None:
        key = _key(grant)
        return self._published.get(key) or self._remembered.get((grant.claim or "", key))

    def _holds(self, grant: Grant) -> bool:
        """Whether the grant is an allocation; a claim that is not known is taken at the kubelet's word."""
        claim = self._claims.get(grant.claim or "")
        return claim is None or not _of(claim.admin, grant) or bool(_of(claim.devices, grant))

    def _joined(self, grant: Grant) -> Grant:
        claim = self._claims.get(grant.claim or "")
        held = _of(claim.devices, grant) if claim else ()
        return replace(
            grant,
            published=self._device(grant),
            requests=tuple(RequestShare(one.request, one.memory) for one in held),
        )


def on_node(slices: Iterable[SliceState], *, node: str) -> tuple[SliceState, ...]:
    """All slices of pools with devices on the node, without devices of other nodes.

    A slice that has no device left still shows the newest generation of its pool.
    """
    found = [replace(one, devices=tuple([d for d in one.devices if d.node == node])) for one in slices]
    pools = {(one.driver, one.pool) for one in found if one.devices}
    return tuple([one for one in found if (one.driver, one.pool) in pools])


def published(slices: Iterable[SliceState], *, node: str) -> Iterator[tuple[DeviceKey, PublishedDevice]]:
    """The devices on a node that can be told apart by a UUID or a placement, by driver, pool and name."""
    pools: dict[PoolKey, list[SliceState]] = {}
    for one in slices:
        pools.setdefault((one.driver, one.pool), []).append(one)
    for key, content in pools.items():
        for name, (device, parent) in make_pool(key, content).devices.items():
            found = _published(key[0], device, parent)
            if device.node == node and found is not None:
                yield (*key, name), found


def _published(driver: str, device: DraDevice, parent: DraGpu) -> PublishedDevice | None:
    gpu = real_id(parent)
    if not device.part:
        return PublishedDevice(gpu=gpu, shared=device.slots > 1, hami=is_hami_driver(driver)) if gpu else None
    if not gpu and not device.uuid:
        return None
    start = device.start if device.size else None
    return PublishedDevice(gpu=gpu, part=True, mig=device.uuid, profile=device.profile, start=start)


def _key(grant: Grant) -> DeviceKey:
    return grant.resource, grant.pool, grant.device_id


def _of(devices: Iterable[ClaimedDevice], grant: Grant) -> tuple[ClaimedDevice, ...]:
    key = _key(grant)
    return tuple([one for one in devices if (one.driver, one.pool, one.device) == key])
