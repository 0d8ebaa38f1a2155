"""Who was given what: the kubelet's word, HAMi's annotations and HAMi's regions brought to one list."""

import re
from collections.abc import Collection, Iterable, Iterator

from msgspec import Struct

from vgpuscope.formats.device_id import DeviceRef, parse_device_id
from vgpuscope.model.device import Gpu, MigInstance
from vgpuscope.model.pod import Container, Grant, Pod
from vgpuscope.model.quantity import Bytes, DeviceUUID, PodUID
from vgpuscope.model.region import ContainerRegion
from vgpuscope.model.usage import ContainerKey, Mode

# NVIDIA's DRA driver names a whole card gpu-<minor number>.
_DRA_CARD = re.compile(r"gpu-(\d+)")

_KEYS_KEPT = 4096


class Holding(Struct, frozen=True, kw_only=True):
    """One container was given (a part of) one card or instance."""

    key: ContainerKey
    gpu: DeviceUUID
    mig: DeviceUUID | None = None
    mode: Mode
    memory_limit: Bytes | None = None  # None: none was set


class People:
    """The pods of the node, found by whatever name a source uses for them; kept while the pods are the same."""

    def __init__(self, pods: Collection[Pod] | None) -> None:
        self.pods = pods
        self.known = pods is not None
        living = [pod for pod in pods or () if not pod.ended]
        self.by_uid: dict[PodUID, Pod] = {pod.uid: pod for pod in living}
        self.by_uid |= {pod.config_hash: pod for pod in living if pod.config_hash}
        self.by_name = {(pod.namespace, pod.name): pod for pod in living}
        self.by_container_id: dict[str, tuple[Pod, Container]] = {
            c.id: (pod, c) for pod in living for c in pod.containers if c.id
        }
        self.apps = {(uid, c.name) for uid, pod in self.by_uid.items() for c in pod.containers if not c.init}
        self._keys: dict[tuple[PodUID, str], ContainerKey] = {}  # made once: they are looked up all through a sample
        self.annotated = tuple(_from_annotations(self))

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

    def key_of_grant(self, grant: Grant) -> ContainerKey | None:
        """The key of a container the kubelet names; None if its pod has ended."""
        pod = self.by_name.get((grant.namespace, grant.pod))
        if pod is None and self.known:
            return None
        uid = pod.uid if pod else ""
        return ContainerKey(namespace=grant.namespace, pod=grant.pod, pod_uid=uid, container=grant.container)


def holdings(
    *,
    gpus: Collection[Gpu],
    people: People,
    grants: Collection[Grant],
    regions: Collection[ContainerRegion],
) -> tuple[Holding, ...]:
    """What every container was given, once each; the more exact word wins where two sources speak of the same."""
    found: dict[tuple[ContainerKey, DeviceUUID, DeviceUUID | None], Holding] = {}
    for holding in (
        *_from_regions(gpus, people, regions),
        *people.annotated,
        *_from_grants(gpus, people, grants),
    ):
        place = (holding.key, holding.gpu, holding.mig)
        found.setdefault(place, holding)
    return tuple(found.values())


def _from_regions(gpus: Collection[Gpu], people: People, regions: Iterable[ContainerRegion]) -> Iterator[Holding]:
    parents = {instance.uuid: gpu.uuid for gpu in gpus for instance in gpu.instances}
    for container in regions:
        if container.region is None or (people.known and container.pod_uid not in people.by_uid):
            continue
        key = people.key(container.pod_uid, container.container)
        for device in container.region.devices:
            if not device.uuid:
                continue
            limit = device.memory_limit or None
            if parent := parents.get(device.uuid):
                yield Holding(key=key, gpu=parent, mig=device.uuid, mode="mig", memory_limit=limit)
            else:
                yield Holding(key=key, gpu=device.uuid, mode="hami", memory_limit=limit)


def _from_annotations(people: People) -> Iterator[Holding]:
    for pod in {pod.uid: pod for pod in people.by_uid.values()}.values():
        in_mig = {(m.container_index, m.gpu) for m in pod.migs}
        names = [c.name for c in pod.containers]
        for share in pod.shares:
            index = names.index(share.container) if share.container in names else -1
            if (index, share.gpu) not in in_mig:
                key = people.key(pod.uid, share.container)
                yield Holding(key=key, gpu=share.gpu, mode="hami", memory_limit=share.memory or None)
        for mig in pod.migs:
            if mig.mig and mig.container_index < len(names):
                key = people.key(pod.uid, names[mig.container_index])
                yield Holding(key=key, gpu=mig.gpu, mig=mig.mig, mode="mig")


def _from_grants(gpus: Collection[Gpu], people: People, grants: Collection[Grant]) -> Iterator[Holding]:
    shared_claims = _shared_claims(grants)
    for grant in grants:
        key = people.key_of_grant(grant)
        place = _place(grant, gpus)
        if key is None or place is None:
            continue
        gpu, mig, replica = place
        if mig is not None:
            yield Holding(key=key, gpu=gpu.uuid, mig=mig.uuid, mode="mig")
        elif replica or (grant.claim, grant.device_id) in shared_claims:
            yield Holding(key=key, gpu=gpu.uuid, mode="mps" if _has_mps(gpu) else "time-slicing")
        else:
            yield Holding(key=key, gpu=gpu.uuid, mode="exclusive")


def _place(grant: Grant, gpus: Collection[Gpu]) -> tuple[Gpu, MigInstance | None, bool] | None:
    """Card, instance and whether it is a replica; None where the id names nothing on this node.

    HAMi's kubelet ids say only that a card was asked for: which one, its annotation says.
    """
    ref = parse_device_id(grant.device_id)
    if ref.hami:
        return None
    if grant.claim is not None and (match := _DRA_CARD.fullmatch(grant.device_id)):
        card = next((g for g in gpus if g.minor == int(match[1])), None)
        return (card, None, False) if card else None
    for gpu in gpus:
        if not _is_card(ref, gpu):
            continue
        if ref.mig is None and ref.gpu_instance is None:
            return gpu, None, ref.replica
        instance = next((i for i in gpu.instances if _is_instance(ref, i)), None)
        if instance is not None:
            return gpu, instance, ref.replica
    return None


def _is_card(ref: DeviceRef, gpu: Gpu) -> bool:
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


def _shared_claims(grants: Collection[Grant]) -> set[tuple[str | None, str]]:
    """Devices of claims that more than one container was given."""
    seen: dict[tuple[str | None, str], set[tuple[str, str, str]]] = {}
    for grant in grants:
        if grant.claim is not None:
            seen.setdefault((grant.claim, grant.device_id), set()).add((grant.namespace, grant.pod, grant.container))
    return {claim for claim, containers in seen.items() if len(containers) > 1}
