"""Who was given what: the kubelet's word, HAMi's annotations and HAMi's regions brought to one list."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from vgpuscope.knowledge.device_ids import DeviceRef, DraName, dra_profile, parse_device_id, parse_dra_name
from vgpuscope.knowledge.dra_drivers import names_by_minor
from vgpuscope.model.device import Gpu, MigInstance
from vgpuscope.model.pod import Container, Grant, Pod, ProcessOwner, PublishedDevice, RequestShare
from vgpuscope.model.quantity import Bytes, DeviceUUID, Pid, PodUID
from vgpuscope.model.region import ContainerRegion
from vgpuscope.model.usage import ContainerKey, Dispute, Mode

_KEYS_KEPT = 4096
_OWNERS_KEPT = 16384
_SHORT_ID = 12  # digits of the id of a container that no pod source lists, as docker prints it

_Place: TypeAlias = tuple[ContainerKey, DeviceUUID, DeviceUUID | None]


class ContainerAllocation(Struct, frozen=True, kw_only=True):
    """One container was given (a part of) one GPU or instance."""

    key: ContainerKey
    gpu: DeviceUUID
    mig: DeviceUUID | None = None
    mode: Mode
    memory_limit: Bytes | None = None  # None: none was set


class PodIndex:
    """The pods of the node, found by whatever name a source uses for them; kept while the pods are the same."""

    def __init__(self, pods: Collection[Pod] | None) -> None:
        self.pods = pods
        self.known = pods is not None
        living = [pod for pod in pods or () if not pod.ended]
        self.by_uid: dict[PodUID, Pod] = {pod.config_hash: pod for pod in living if pod.config_hash}
        self.by_uid |= {pod.uid: pod for pod in living}  # a real UID takes precedence over a hash
        self.by_name = {(pod.namespace, pod.name): pod for pod in living}
        self.by_container_id: dict[str, tuple[Pod, Container]] = {
            c.id: (pod, c) for pod in living for c in pod.containers if c.id
        }
        self.past = {(uid, c.name) for uid, pod in self.by_uid.items() for c in pod.containers if c.past}
        self.apps = {(uid, c.name) for uid, pod in self.by_uid.items() for c in pod.containers if not c.init}
        self._keys: dict[tuple[PodUID, str], ContainerKey] = {}  # made once: they are looked up all through a sample
        self._containers: dict[Pid, tuple[ProcessOwner, ContainerKey, bool]] = {}
        self.annotated: dict[_Place, ContainerAllocation] = {}
        for one in _from_annotations(self):
            self.annotated.setdefault((one.key, one.gpu, one.mig), one)
        self.assigned = _by_container(self.annotated)
        self.claim_uses = {
            (pod.namespace, pod.name, c.name): c.claims for pod in living for c in pod.containers if c.claims
        }
        self.forged = tuple(_forged(self))
        self.named = frozenset(uuid for _, gpu, mig in self.annotated for uuid in (gpu, mig) if uuid)

    def key(self, pod_uid: PodUID, container: str) -> ContainerKey:
        """The container's key, with names where they are known."""
        key = self._keys.get((pod_uid, container))
        if key is None:
            if len(self._keys) >= _KEYS_KEPT:
                self._keys.clear()  # where no source of pods replaces us, containers come and go all the same
            key = self._keys[pod_uid, container] = self._key(pod_uid, container)
        return key

    def _key(self, pod_uid: PodUID, container: str) -> ContainerKey:
        pod = self.by_uid.get(pod_uid)
        if pod is None:
            return ContainerKey(pod_uid=pod_uid, container=container)
        return ContainerKey(namespace=pod.namespace, pod=pod.name, pod_uid=pod.uid, container=container)

    def container_of(self, owner: ProcessOwner) -> tuple[ContainerKey, bool]:
        """The container of a process by its cgroup, and whether the cgroup names it exactly."""
        known = self._containers.get(owner.pid)
        if known is not None and known[0] is owner:
            return known[1], known[2]
        if len(self._containers) >= _OWNERS_KEPT:
            self._containers.clear()
        key, exact = self._container(*self._outermost(owner))
        self._containers[owner.pid] = (owner, key, exact)
        return key, exact

    def container_id_of(self, owner: ProcessOwner) -> str:
        """The id of the process' container; "" if its cgroup does not say."""
        return self._outermost(owner)[1]

    def _outermost(self, owner: ProcessOwner) -> tuple[PodUID, str]:
        """Pod and container of the process: the outermost pod that is known. A pod names what is inside it freely."""
        nested = (*owner.outer, (owner.pod_uid or "", owner.container_id))
        uid, container_id = next((one for one in nested if one[0] in self.by_uid), nested[-1])
        return uid, container_id or ""

    def _container(self, uid: PodUID, container_id: str) -> tuple[ContainerKey, bool]:
        """By container id where the pod has it, else by pod UID and the id's first digits."""
        found, pod = self.by_container_id.get(container_id), self.by_uid.get(uid)
        if found is not None and (pod is None or found[0] is pod):
            return self.key(found[0].uid, found[1].name), True
        if pod is not None and len(pod.containers) == 1:
            return self.key(uid, pod.containers[0].name), False
        return self.key(uid, container_id[:_SHORT_ID]), False

    def is_unassigned(self, grant: Grant) -> bool:
        """Whether the grant's pod is known, and no scheduler of HAMi's kind assigned devices to it."""
        pod = self.by_name.get((grant.namespace, grant.pod))
        return pod is not None and not pod.assigned

    def key_of_grant(self, grant: Grant) -> ContainerKey | None:
        """The key of a container the kubelet names; None if its pod has ended, or it is an init container that has."""
        pod = self.by_name.get((grant.namespace, grant.pod))
        if pod is None and self.known:
            return None
        if pod is not None and (pod.uid, grant.container) in self.past:
            return None
        uid = pod.uid if pod else ""
        return ContainerKey(namespace=grant.namespace, pod=grant.pod, pod_uid=uid, container=grant.container)


class Holdings(NamedTuple):
    """Who was given what, the regions as far as they may speak, and the claims that were not believed."""

    allocations: tuple[ContainerAllocation, ...]
    regions: tuple[ContainerRegion, ...]
    disputes: tuple[Dispute, ...]  # of regions
    unknown: tuple[Dispute, ...]  # of annotations: devices that the node does not have
    forged: tuple[Dispute, ...]  # of annotations: devices that the scheduler did not assign


def holdings(
    *,
    gpus: Collection[Gpu],
    devices: frozenset[DeviceUUID],
    pod_index: PodIndex,
    grants: Collection[Grant],
    regions: Collection[ContainerRegion],
) -> Holdings:
    """What every container was given, once each; `devices` are all GPUs and MIG instances of the node.

    An annotation counts for devices of the node. A region is written by its tenant. It counts only for devices that
    were assigned to its container, or where no source tells assignments at all.
    """
    found, unknown = _annotated(pod_index, devices)
    for place, allocation in _granted(gpus, pod_index, grants).items():
        found.setdefault(place, allocation)
    plain = not grants and not unknown
    assigned = pod_index.assigned if plain else _assigned(found, pod_index, grants, devices)
    # without pods a region cannot be joined to the kubelet's names: it may then speak of devices that were not granted
    free = devices - {mig or gpu for _, gpu, mig in found}
    believed, disputes = _believed(regions, assigned, pod_index, free=free)
    for allocation in _from_regions(gpus, pod_index, believed, found):
        found[allocation.key, allocation.gpu, allocation.mig] = allocation
    return Holdings(tuple(found.values()), believed, disputes, unknown, pod_index.forged)


def named_devices(pod_index: PodIndex, regions: Iterable[ContainerRegion]) -> Iterator[DeviceUUID]:
    """Every device that an annotation or a region names, those of annotations first."""
    yield from sorted(pod_index.named)
    for container in regions:
        for device in container.region.devices if container.region else ():
            if device.uuid:
                yield device.uuid


def _annotated(
    pod_index: PodIndex, devices: frozenset[DeviceUUID]
) -> tuple[dict[_Place, ContainerAllocation], tuple[Dispute, ...]]:
    """What annotations assign of the node's devices, and the containers whose annotations name others."""
    if pod_index.named <= devices:  # the usual case
        return pod_index.annotated.copy(), ()
    found: dict[_Place, ContainerAllocation] = {}
    strange: dict[ContainerKey, list[DeviceUUID]] = {}
    for place, allocation in pod_index.annotated.items():
        if allocation.gpu in devices and (allocation.mig is None or allocation.mig in devices):
            found[place] = allocation
        else:
            strange.setdefault(allocation.key, []).append(allocation.mig or allocation.gpu)
    unknown = [Dispute(key=key, devices=len(named), example=named[0]) for key, named in strange.items()]
    return found, tuple(unknown)


def _by_container(found: Iterable[_Place]) -> dict[ContainerKey, set[DeviceUUID]]:
    """The devices of each container."""
    assigned: dict[ContainerKey, set[DeviceUUID]] = {}
    for key, gpu, mig in found:
        assigned.setdefault(key, set()).add(mig or gpu)
    return assigned


def _assigned(
    found: Iterable[_Place],
    pod_index: PodIndex,
    grants: Collection[Grant],
    devices: Collection[DeviceUUID],
) -> Mapping[ContainerKey, Collection[DeviceUUID]]:
    """The devices of each container, by sources that a tenant cannot write.

    HAMi's ids at the kubelet say that a container was given GPUs, and not which. Where its annotation does not say
    either, the container may have any of the node.
    """
    unnamed = [grant for grant in grants if grant.claim is None and parse_device_id(grant.device_id).share is not None]
    open_to_all = dict.fromkeys(filter(None, map(pod_index.key_of_grant, unnamed)), devices)
    return {**open_to_all, **_by_container(found)}


def _believed(
    regions: Iterable[ContainerRegion],
    assigned: Mapping[ContainerKey, Collection[DeviceUUID]],
    pod_index: PodIndex,
    *,
    free: Collection[DeviceUUID],
) -> tuple[tuple[ContainerRegion, ...], tuple[Dispute, ...]]:
    """The regions without devices that are not their container's, and what was left out."""
    believed: list[ContainerRegion] = []
    disputes: list[Dispute] = []
    for container in regions:
        region, key = container.region, pod_index.key(container.pod_uid, container.container)
        allowed = assigned.get(key, ()) if pod_index.known else free
        if region is None or all(one.uuid is None or one.uuid in allowed for one in region.devices):
            believed.append(container)
            continue
        kept = tuple(one for one in region.devices if one.uuid is None or one.uuid in allowed)
        left = [one.uuid for one in region.devices if one not in kept]
        believed.append(replace(container, region=replace(region, devices=kept)))
        ended = (container.pod_uid, container.container) in pod_index.past  # its region stays until the pod is gone
        if not pod_index.known or (container.pod_uid in pod_index.by_uid and not ended):
            disputes.append(Dispute(key=key, devices=len(left), example=left[0] or ""))
    return tuple(believed), tuple(disputes)


def _from_regions(
    gpus: Collection[Gpu], pod_index: PodIndex, regions: Iterable[ContainerRegion], known: Collection[_Place]
) -> Iterator[ContainerAllocation]:
    """Allocations that only regions name."""
    parents = {instance.uuid: gpu.uuid for gpu in gpus for instance in gpu.instances}
    for container in regions:
        if container.region is None or (pod_index.known and container.pod_uid not in pod_index.by_uid):
            continue
        key = pod_index.key(container.pod_uid, container.container)
        for device in container.region.devices:
            if not device.uuid:
                continue
            parent, limit = parents.get(device.uuid), device.memory_limit or None
            place = (key, parent, device.uuid) if parent else (key, device.uuid, None)
            if place not in known:
                _, gpu, mig = place
                yield ContainerAllocation(key=key, gpu=gpu, mig=mig, mode="mig" if mig else "hami", memory_limit=limit)


def _from_annotations(pod_index: PodIndex) -> Iterator[ContainerAllocation]:
    for pod in {pod.uid: pod for pod in pod_index.by_uid.values()}.values():
        in_mig = {(m.container_index, m.gpu) for m in pod.migs}
        names = [c.name for c in pod.containers]
        ended = {c.name for c in pod.containers if c.past}
        for share in pod.shares:
            if share.container in ended:
                continue  # its share is the app containers' now
            index = names.index(share.container) if share.container in names else -1
            if (index, share.gpu) not in in_mig:
                key = pod_index.key(pod.uid, share.container)
                yield ContainerAllocation(key=key, gpu=share.gpu, mode="hami", memory_limit=share.memory or None)
        for mig in pod.migs:
            if mig.mig and mig.container_index < len(names) and names[mig.container_index] not in ended:
                key = pod_index.key(pod.uid, names[mig.container_index])
                yield ContainerAllocation(key=key, gpu=mig.gpu, mig=mig.mig, mode="mig")


def _forged(pod_index: PodIndex) -> Iterator[Dispute]:
    """Containers whose annotations name devices that the scheduler did not assign to them."""
    for pod in {pod.uid: pod for pod in pod_index.by_uid.values()}.values():
        for name in dict.fromkeys(share.container for share in pod.claimed):
            named = [share.gpu for share in pod.claimed if share.container == name]
            yield Dispute(key=pod_index.key(pod.uid, name), devices=len(named), example=named[0])


def _granted(
    gpus: Collection[Gpu], pod_index: PodIndex, grants: Collection[Grant]
) -> dict[_Place, ContainerAllocation]:
    """What the kubelet gave; a container with several claims of one GPU may use the memory of all."""
    found: dict[_Place, ContainerAllocation] = {}
    for one in _from_grants(gpus, pod_index, grants):
        place = (one.key, one.gpu, one.mig)
        known = found.get(place)
        if known is not None and known.memory_limit is not None and one.memory_limit is not None:
            one = replace(one, memory_limit=known.memory_limit + one.memory_limit)  # noqa: PLW2901
        elif known is not None:
            continue
        found[place] = one
    return found


def _from_grants(
    gpus: Collection[Gpu], pod_index: PodIndex, grants: Collection[Grant]
) -> Iterator[ContainerAllocation]:
    used = [grant for grant in grants if grant.claim is None or _uses(pod_index, grant)]
    unused = _of_pods(grants, used) if len(used) < len(grants) else []
    shared = _shared_claims(used)  # a container that alone uses a device has it to itself, whoever else may hold it
    yield from _allocations(used, gpus, pod_index, shared)
    if unused:
        yield from _allocations(unused, gpus, pod_index, _shared_claims([*used, *unused]))


def _allocations(
    grants: Iterable[Grant],
    gpus: Collection[Gpu],
    pod_index: PodIndex,
    shared_claims: Collection[tuple[str | None, ...]],
) -> Iterator[ContainerAllocation]:
    for grant in grants:
        key = pod_index.key_of_grant(grant)
        place = _place(grant, gpus, pod_index)
        if key is None or place is None:
            continue
        gpu, mig, replica, hami = place
        limit = _claimed_memory(pod_index, grant)
        if mig is not None:
            yield ContainerAllocation(key=key, gpu=gpu.uuid, mig=mig.uuid, mode="mig")
        elif hami:
            yield ContainerAllocation(key=key, gpu=gpu.uuid, mode="hami", memory_limit=limit)
        elif replica or _claimed_device(grant) in shared_claims:
            mode: Mode = "mps" if _has_mps(gpu) else "time-slicing"
            yield ContainerAllocation(key=key, gpu=gpu.uuid, mode=mode, memory_limit=limit)
        else:
            yield ContainerAllocation(key=key, gpu=gpu.uuid, mode="exclusive")


def _uses(pod_index: PodIndex, grant: Grant) -> bool:
    """Whether the container uses a request of the claim that has this device: the kubelet lists the whole claim."""
    return not grant.requests or bool(_used_requests(pod_index, grant))


def _of_pods(grants: Iterable[Grant], used: Iterable[Grant]) -> list[Grant]:
    """Devices of claims that no container of the pod uses, for the pod: "" as container, as at the cluster exporter.

    The claim holds the device for the pod, so the device is not free.
    """
    taken = {_of_pod(grant) for grant in used}
    found = {_of_pod(grant): grant for grant in grants if grant.claim is not None and _of_pod(grant) not in taken}
    return [replace(grant, container="") for grant in found.values()]


def _of_pod(grant: Grant) -> tuple[str | None, ...]:
    return grant.namespace, grant.pod, *_claimed_device(grant)


def _claimed_memory(pod_index: PodIndex, grant: Grant) -> Bytes | None:
    """The memory that the claim limits the container to; None: it sets no limit."""
    limits = [one.memory for one in _used_requests(pod_index, grant) if one.memory is not None]
    return sum(limits) or None


def _used_requests(pod_index: PodIndex, grant: Grant) -> tuple[RequestShare, ...]:
    """The requests for this device that the container uses; all of them if the pod does not say."""
    uses = pod_index.claim_uses.get((grant.namespace, grant.pod, grant.container), ())
    names = {use.request for use in uses if f"{grant.namespace}/{use.claim}" == grant.claim}
    if not names or "" in names:
        return grant.requests
    # of a request with alternatives, the result names the chosen one too: gpu/large
    return tuple([one for one in grant.requests if one.request in names or one.request.partition("/")[0] in names])


class _Granted(NamedTuple):
    """What a grant is of."""

    gpu: Gpu
    mig: MigInstance | None = None
    replica: bool = False
    hami: bool = False


def _place(grant: Grant, gpus: Collection[Gpu], pod_index: PodIndex) -> _Granted | None:
    """GPU, instance and how it is shared; None where the id names nothing on this node.

    HAMi's kubelet ids say only that a GPU was asked for: which one, its annotation says. Without an assignment only
    our own plugin serves a pod, and only with whole GPUs: the kubelet then chose this GPU by its only id, number 0.
    """
    if grant.published is not None:
        return _published(grant.published, gpus)
    if grant.claim is not None and names_by_minor(grant.resource) and (name := parse_dra_name(grant.device_id)):
        return _claimed(name, gpus)
    ref = parse_device_id(grant.device_id)
    if ref.share is not None and (ref.share > 0 or ref.mig is not None or not pod_index.is_unassigned(grant)):
        return None
    for gpu in gpus:
        if not _is_gpu(ref, gpu):
            continue
        if ref.mig is None and ref.gpu_instance is None:
            return _Granted(gpu, None, ref.replica)
        instance = next((i for i in gpu.instances if _is_instance(ref, i)), None)
        if instance is not None:
            return _Granted(gpu, instance, ref.replica)
    return None


def _published(device: PublishedDevice, gpus: Collection[Gpu]) -> _Granted | None:
    """The device by the UUID that its driver publishes; None if the node has no such device, now or at all."""
    if device.mig:
        return next((_Granted(g, i) for g in gpus for i in g.instances if i.uuid == device.mig), None)
    gpu = next((g for g in gpus if g.uuid == device.gpu), None)
    if gpu is None:
        return None
    if not device.part:
        return _Granted(gpu, replica=device.shared, hami=device.hami)
    mig = _instance_made(device, gpu.instances)
    return None if mig is None else _Granted(gpu, mig)


def _instance_made(device: PublishedDevice, instances: Collection[MigInstance]) -> MigInstance | None:
    """The instance that was created for a claim, by profile and placement; without a placement, only if unique."""
    alike = [i for i in instances if _same_profile(i.profile, device.profile)]
    if device.start is not None:
        exact = [i for i in alike if i.start == device.start]
        alike = exact or [i for i in alike if i.start is None]
    return alike[0] if len(alike) == 1 else None


def _same_profile(here: str | None, wanted: str) -> bool:
    return here is not None and dra_profile(here) == dra_profile(wanted)


def _claimed(name: DraName, gpus: Collection[Gpu]) -> _Granted | None:
    gpu = next((g for g in gpus if g.minor == name.minor), None)
    if gpu is None:
        return None
    if name.profile_id is None:
        return _Granted(gpu, hami=name.hami)
    mig = _claimed_instance(name, gpu.instances)
    return None if mig is None else _Granted(gpu, mig)


def _claimed_instance(name: DraName, instances: Collection[MigInstance]) -> MigInstance | None:
    """The instance with this profile in this place; where places are not known, the only one with this profile."""
    exact = [i for i in instances if (i.profile_id, i.start) == (name.profile_id, name.start)]
    alike = [i for i in instances if i.start is None and name.profile == dra_profile(i.profile or "")]
    found = exact or alike
    return found[0] if len(found) == 1 else None


def _is_gpu(ref: DeviceRef, gpu: Gpu) -> bool:
    if ref.mig is not None:
        return any(instance.uuid == ref.mig for instance in gpu.instances)
    return gpu.uuid == ref.uuid or (ref.uuid is None and ref.index is not None and gpu.index == ref.index)


def _is_instance(ref: DeviceRef, instance: MigInstance) -> bool:
    if ref.mig is not None:
        return instance.uuid == ref.mig
    same_gi = instance.gpu_instance == ref.gpu_instance
    return same_gi and ref.compute_instance in (None, instance.compute_instance)


def _has_mps(gpu: Gpu) -> bool:
    return any("mps" in process.kinds for process in gpu.processes or ())


def _claimed_device(grant: Grant) -> tuple[str | None, ...]:
    return grant.claim, grant.resource, grant.pool, grant.device_id


def _shared_claims(grants: Collection[Grant]) -> set[tuple[str | None, ...]]:
    """Devices of claims that more than one container was given."""
    seen: dict[tuple[str | None, ...], set[tuple[str, str, str]]] = {}
    for grant in grants:
        if grant.claim is not None:
            seen.setdefault(_claimed_device(grant), set()).add((grant.namespace, grant.pod, grant.container))
    return {claim for claim, containers in seen.items() if len(containers) > 1}
