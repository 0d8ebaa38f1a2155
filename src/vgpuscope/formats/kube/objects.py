"""Nodes, pods and resource quotas of a cluster, as the Kubernetes API lists and watches them → HAMi's allocations.

Only fields that concern the allocation of devices are decoded. A pod without devices is skipped in a page; an event
about it has no item, as if the pod were deleted. If an object or an annotation is invalid, only that is missing, and it
is reported as a fault.

An item is identified by its key, which is the `uid` of its events and faults: a pod's uid, a node's name, and a quota's
namespace/name.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from sys import intern
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, field

from vgpuscope.formats.hami.annotation import AssignedDevice, assigned_devices, held_instances
from vgpuscope.formats.hami.register import pair_scores, registered_devices
from vgpuscope.formats.hami.seal import Seals
from vgpuscope.formats.kube.lists import ObjectKind, ObjectPage, WatchEvent, decode_line, decode_page
from vgpuscope.formats.kube.offers import labelled_gpus, labelled_memory, offered_resources
from vgpuscope.formats.kube.quantity import whole_number
from vgpuscope.formats.scheduler_messages.reasons import condition_reasons
from vgpuscope.formats.times import from_rfc3339, from_unix
from vgpuscope.knowledge.vendors import (
    BY_ALLOCATED,
    BY_QUOTA,
    BY_TO_ALLOCATE,
    BY_WORD,
    NVIDIA,
    Vendor,
    vendor_by_resource,
)
from vgpuscope.model.allocation import (
    Assignment,
    ContainerRequest,
    Controller,
    HeldInstance,
    NodeState,
    PodState,
    PodTimes,
    QuotaState,
    RegisteredDevice,
    UnschedulableCondition,
)
from vgpuscope.model.errors import AnnotationMalformed
from vgpuscope.model.quantity import MIB, UnixTime

# Kubernetes allows no longer names, so no longer text gets into our labels.
Name = Annotated[str, Meta(max_length=253)]


def decode_nodes(data: bytes) -> ObjectPage[NodeState]:
    """The nodes of a list; raises KubeUnreadable for anything but a list of nodes."""
    return decode_page(_NODES, data)


def decode_node_event(line: bytes) -> WatchEvent[NodeState]:
    """The event in one line of a watch of nodes; raises KubeUnreadable if the line is not an event."""
    return decode_line(_NODES, line)


def decode_cluster_pods(data: bytes, *, seals: Seals | None = None) -> ObjectPage[PodState]:
    """The pods of a list that have, request or had devices; raises KubeUnreadable for anything but a list of pods.

    With `seals`, a pod holds only what the scheduler has sealed.
    """
    return decode_page(_pods_of(seals), data)


def decode_cluster_pod_event(line: bytes, *, seals: Seals | None = None) -> WatchEvent[PodState]:
    """The event in one line of a watch of pods; without an item if the pod does not concern devices."""
    return decode_line(_pods_of(seals), line)


def decode_quotas(data: bytes) -> ObjectPage[QuotaState]:
    """The resource quotas of a list that limit devices; raises KubeUnreadable for anything but a list of quotas."""
    return decode_page(_QUOTAS, data)


def decode_quota_event(line: bytes) -> WatchEvent[QuotaState]:
    """The event in one line of a watch of quotas; without an item if the quota does not limit devices."""
    return decode_line(_QUOTAS, line)


# --- fields of every object -------------------------------------------------------------------------------------------


class _Metadata(Struct, rename="camel"):
    name: Name
    uid: Name = ""
    namespace: Name | None = None
    resource_version: str | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    annotations: dict[str, str | None] | None = None
    labels: "_Labels | None" = None
    owner_references: "list[_Owner] | None" = None
    managed_fields: msgspec.Raw = msgspec.Raw(b"")  # read only of a pod that is in doubt


class _Labels(Struct):
    node: str | None = field(default=None, name="hami.io/vgpu-node")
    template: str | None = field(default=None, name="pod-template-hash")


class _Owner(Struct, rename="camel"):
    kind: Name = ""
    name: Name = ""
    controller: bool | None = None
    api_version: Name = ""
    uid: Name = ""


class _Condition(Struct, rename="camel"):
    type: str
    status: str | None = None
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


def _present(annotations: dict[str, str | None] | None) -> dict[str, str]:
    return {key: text for key, text in annotations.items() if text} if annotations else {}


# --- nodes ------------------------------------------------------------------------------------------------------------


class _NodeStatus(Struct):
    conditions: list[_Condition] | None = None
    capacity: dict[str, object] | None = None
    allocatable: dict[str, object] | None = None


class _NodeSpec(Struct):
    unschedulable: bool | None = None


class _NodeMetadata(Struct, rename="camel"):
    name: Name
    uid: Name = ""
    resource_version: str | None = None
    annotations: dict[str, str | None] | None = None
    labels: dict[str, object] | None = None


class _Node(Struct):
    metadata: _NodeMetadata
    kind: str | None = None
    spec: _NodeSpec | None = None
    status: _NodeStatus | None = None


def _node(found: _Node, wrong: list[str]) -> NodeState:
    """A node; it is ready unless its Ready condition is False or Unknown."""
    status, name = found.status or _NodeStatus(), intern(found.metadata.name)
    ready = [condition.status == "True" for condition in status.conditions or () if condition.type == "Ready"]
    annotations, capacity = _present(found.metadata.annotations), _device_amounts(status.capacity, wrong)
    allocatable = _device_amounts(status.allocatable, wrong)
    devices, reasons = registered_devices(annotations, capacity, name)
    wrong.extend(reasons)
    registered = not annotations.keys().isdisjoint(NVIDIA.registers)
    return NodeState(
        name=name,
        ready=all(ready),
        schedulable=not (found.spec and found.spec.unschedulable),
        devices=_with_physical(devices, found.metadata.labels or {}),
        allocatable=allocatable,
        offers=() if registered else offered_resources(found.metadata.labels or {}, capacity, allocatable),
        labelled_gpus=labelled_gpus(found.metadata.labels or {}),
        pair_scores=_pair_scores(annotations, wrong),
    )


def _pair_scores(annotations: Mapping[str, str], wrong: list[str]) -> dict[str, dict[str, int]]:
    try:
        return pair_scores(annotations)
    except AnnotationMalformed as e:
        wrong.append(str(e))
        return {}


def _with_physical(devices: tuple[RegisteredDevice, ...], labels: Mapping[str, object]) -> tuple[RegisteredDevice, ...]:
    """The same devices; if the model's name does not tell the memory size, the node's label may.

    The label describes one model, so it is ignored on nodes with several models.
    """
    if len({one.type for one in devices if one.vendor == NVIDIA.word}) != 1:
        return devices
    memory = labelled_memory(labels)
    return tuple(
        msgspec.structs.replace(one, physical=memory) if one.vendor == NVIDIA.word and one.physical is None else one
        for one in devices
    )


def _device_amounts(amounts: Mapping[str, object] | None, wrong: list[str]) -> dict[str, int]:
    """The device resources among these amounts, including those of amount 0."""
    found = {}
    for name, value in (amounts or {}).items():
        if vendor_by_resource(name) is None:
            continue
        amount = whole_number(value)
        if amount is None or amount < 0:
            wrong.append(f"{name[:253]}: {str(value)[:80]!r} is no whole number of devices")
        else:
            found[intern(name)] = amount
    return found


# --- quotas -----------------------------------------------------------------------------------------------------------


class _QuotaSpec(Struct):
    hard: dict[str, object] | None = None


class _Quota(Struct):
    metadata: _Metadata
    kind: str | None = None
    spec: _QuotaSpec | None = None


def _quota(found: _Quota, wrong: list[str]) -> QuotaState | None:
    hard = {}
    for key, value in ((found.spec and found.spec.hard) or {}).items():
        if key not in BY_QUOTA:
            continue
        limit = whole_number(value)
        if limit is None or limit < 0:
            wrong.append(f"{key}: {str(value)[:80]!r} is no whole number")
        else:
            hard[intern(key.removeprefix("limits."))] = limit
    if not hard:
        return None
    return QuotaState(namespace=found.metadata.namespace or "default", name=found.metadata.name, hard=hard)


# --- pods -------------------------------------------------------------------------------------------------------------


class _Resources(Struct):
    limits: dict[str, object] | None = None
    requests: dict[str, object] | None = None


class _Container(Struct, rename="camel"):
    name: Name
    resources: _Resources | None = None
    restart_policy: str | None = None


class _Claim(Struct, rename="camel"):
    name: Name
    resource_claim_name: Name | None = None


class _ExtendedClaim(Struct, rename="camel"):
    """The claim that the scheduler created for devices requested as an extended resource."""

    resource_claim_name: Name | None = None


class _PodSpec(Struct, rename="camel"):
    node_name: Name | None = None
    scheduler_name: Name | None = None
    resource_claims: list[_Claim] | None = None
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None


class _Running(Struct, rename="camel"):
    started_at: str | None = None


class _Terminated(Struct, rename="camel"):
    exit_code: int = 0
    started_at: str | None = None


class _State(Struct):
    running: _Running | None = None
    terminated: _Terminated | None = None


class _ContainerStatus(Struct, rename="camel"):
    name: str
    state: _State | None = None
    last_state: _State | None = None


class _PodStatus(Struct, rename="camel"):
    phase: Annotated[str, Meta(max_length=63)] | None = None
    conditions: list[_Condition] | None = None
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None
    resource_claim_statuses: list[_Claim] | None = None
    extended_resource_claim_status: _ExtendedClaim | None = None


class _Pod(Struct):
    metadata: _Metadata
    kind: str | None = None
    spec: _PodSpec | None = None
    status: _PodStatus | None = None


_MESSAGE = 8192  # characters kept of a scheduler's message; Kubernetes itself cuts events at 1,024
_NODE_KEYS = ("hami.io/vgpu-node", "4pd.io/vgpu-node")
_DEVICE_KEYS = frozenset({*BY_ALLOCATED, *BY_TO_ALLOCATE, *_NODE_KEYS, "hami.io/vgpu-mig-allocations"})


def _pod(found: _Pod, wrong: list[str], *, seals: Seals | None = None) -> PodState | None:
    meta, spec = found.metadata, found.spec or _PodSpec()
    if not meta.uid:
        wrong.append("it has no uid")
        return None
    marked = meta.labels is not None and meta.labels.node is not None
    marked = marked or (meta.annotations is not None and not _DEVICE_KEYS.isdisjoint(meta.annotations))
    if not marked and not spec.resource_claims and not _asks_for_devices(spec):
        return None
    status, annotations = found.status or _PodStatus(), _present(meta.annotations)
    holders = list(_holders(spec, wrong))
    assignments, instances = tuple(_assignments(annotations, holders, wrong)), _instances(annotations, wrong)
    sealed = None if seals is None else _sealed(seals, meta, annotations, node=spec.node_name or "")
    held = _believed(assignments, holders, sealed=sealed)
    claimed = tuple([one for one in assignments if one not in held]) if len(held) < len(assignments) else ()
    return PodState(
        uid=meta.uid,
        namespace=intern(meta.namespace or "default"),
        name=meta.name,
        phase=intern(status.phase or "Pending"),
        node=intern(spec.node_name or ""),
        assigned_node=_assigned_node(meta, annotations, wrong),
        deleting=meta.deletion_timestamp is not None,
        init_done=_init_done(spec, status),
        assignments=held,
        instances=instances if held or not (claimed or sealed is False) else (),
        sealed=sealed,
        claimed=claimed,
        doubt=("unsealed" if sealed is False else "unrequested") if claimed else None,
        writer=_writer(meta) if claimed else "",
        asks=_asks(holders),
        claims=_claims(spec, status),
        scheduler=intern(spec.scheduler_name or "default-scheduler"),
        owner=_owner(meta),
        controller=_controller(meta),
        times=_times(meta, annotations, status),
        refusal=None if spec.node_name else _refusal(status),
    )


def _claims(spec: _PodSpec, status: _PodStatus) -> tuple[str, ...]:
    """The pod's claims: named in its spec, or created for it, in which case its status has the name."""
    made = {one.name: one.resource_claim_name for one in status.resource_claim_statuses or ()}
    names = [one.resource_claim_name or made.get(one.name) for one in spec.resource_claims or ()]
    if status.extended_resource_claim_status is not None:
        names.append(status.extended_resource_claim_status.resource_claim_name)
    return tuple(name for name in names if name)


def _sealed(seals: Seals, meta: _Metadata, annotations: Mapping[str, str], *, node: str) -> bool | None:
    """Whether the assignment is sealed, for the node of the pod; None for a pod that was bound before such were."""
    if seals.holds(meta.uid, annotations, bound=bool(node)):
        return node in {"", annotations[_NODE_KEYS[0]]}  # who may bind pods may bind one elsewhere
    created = from_rfc3339(meta.creation_timestamp)
    return None if node and created is not None and created < seals.since else False


def _believed(
    assignments: tuple[Assignment, ...], holders: Sequence[ContainerRequest], *, sealed: bool | None
) -> tuple[Assignment, ...]:
    """The assignments that the pod holds: the scheduler made them, and their containers request such devices."""
    if sealed is False or not assignments:
        return ()
    if sealed:
        return assignments  # the seal is of what the filter found in the request
    asked = {
        (holder.index, vendor.word)
        for holder in holders
        for name in holder.amounts
        if (vendor := vendor_by_resource(name)) is not None
    }
    return tuple([one for one in assignments if (one.container_index, one.vendor) in asked])


class _ManagedFields(Struct, rename="camel"):
    manager: str = ""
    time: str = ""
    fields: msgspec.Raw = field(default=msgspec.Raw(b""), name="fieldsV1")


_managed = msgspec.json.Decoder(list[_ManagedFields])


def _writer(meta: _Metadata) -> str:
    """The program that last wrote an annotation of devices: what it calls itself, as the API server has noted."""
    with suppress(msgspec.MsgspecError, UnicodeError, RecursionError):
        entries = _managed.decode(meta.managed_fields or b"[]")
        found = [one for one in entries if any(f'"f:{key}"'.encode() in bytes(one.fields) for key in _DEVICE_KEYS)]
        return max(found, key=lambda one: one.time).manager[:253] if found else ""
    return ""


class _Object(Struct):
    metadata: _Metadata


def decode_controller(data: bytes, *, uid: str) -> Controller | None:
    """The controller of an object, from its metadata; None if it has none, or if the object has another uid.

    Raises ValueError for anything but an object.
    """
    try:
        meta = msgspec.json.decode(data, type=_Object).metadata
    except msgspec.MsgspecError as e:
        raise ValueError(f"not an object with metadata: {e}") from e
    return _controller(meta) if meta.uid == uid else None


def _controlling(meta: _Metadata) -> _Owner | None:
    return next((one for one in meta.owner_references or () if one.controller and one.name), None)


def _controller(meta: _Metadata) -> Controller | None:
    owner = _controlling(meta)
    if owner is None or not owner.uid or not owner.kind:
        return None
    return Controller(intern(owner.api_version), intern(owner.kind), intern(owner.name), intern(owner.uid))


def _owner(meta: _Metadata) -> str:
    """The controller; for a ReplicaSet of a Deployment (recognised by the label), the Deployment."""
    owner = _controlling(meta)
    if owner is None:
        return ""
    template = meta.labels.template if meta.labels else None
    if owner.kind == "ReplicaSet" and template and owner.name.endswith(f"-{template}"):
        return intern(f"Deployment/{owner.name.removesuffix(f'-{template}')}")
    return intern(f"{owner.kind}/{owner.name}")


def _times(meta: _Metadata, annotations: Mapping[str, str], status: _PodStatus) -> PodTimes:
    bound = next((one for one in status.conditions or () if one.type == "PodScheduled" and one.status == "True"), None)
    return PodTimes(
        created=from_rfc3339(meta.creation_timestamp),
        filtered=from_unix(annotations.get("hami.io/vgpu-time")),
        bind_begun=from_unix(annotations.get("hami.io/bind-time")),
        bind_phase=intern(annotations.get("hami.io/bind-phase", "")[:32]),
        scheduled=from_rfc3339(bound.last_transition_time) if bound else None,
        started=min(_starts(status), default=None),
    )


def _starts(status: _PodStatus) -> Iterator[UnixTime]:
    """The known start times of the pod's containers, from their current and last states."""
    for one in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        for state in (one.state, one.last_state):
            for part in (state.running, state.terminated) if state else ():
                moment = from_rfc3339(part.started_at) if part else None
                if moment is not None and moment > 0:  # a container that never ran has a start time of 1970
                    yield moment


def _refusal(status: _PodStatus) -> UnschedulableCondition | None:
    for one in status.conditions or ():
        if one.type == "PodScheduled" and one.status == "False":
            reason, message = intern((one.reason or "")[:253]), (one.message or "")[:_MESSAGE]
            return UnschedulableCondition(
                reason=reason,
                message=message,
                at=from_rfc3339(one.last_transition_time),
                said=condition_reasons(reason, message),
            )
    return None


def _asks_for_devices(spec: _PodSpec) -> bool:
    for containers in (spec.containers, spec.init_containers):
        for container in containers or ():
            if container.resources is None:
                continue
            for amounts in (container.resources.limits, container.resources.requests):
                for name, value in amounts.items() if amounts else ():
                    if vendor_by_resource(name) is not None and value not in (0, "0"):
                        return True
    return False


def _holders(spec: _PodSpec, wrong: list[str]) -> Iterator[ContainerRequest]:
    """Init containers first, in HAMi's numbering. One that always restarts is a sidecar, which lives with the pod."""
    first = spec.init_containers or []
    for index, container in enumerate([*first, *(spec.containers or ())]):
        init = index < len(first) and container.restart_policy != "Always"
        asked = _asked(container.resources, wrong)
        yield _request(index, intern(container.name), init, tuple(asked.items()))[0]


@lru_cache(maxsize=4096)
def _request(index: int, name: str, init: bool, asked: tuple[tuple[str, int], ...]) -> tuple[ContainerRequest]:
    """One shared value for equal requests, such as those of a Deployment's pods: a dictionary takes 200 bytes.

    In a tuple, as a pod has it of which one container requests devices.
    """
    return (ContainerRequest(index, name, init, dict(asked)),)


def _asked(resources: _Resources | None, wrong: list[str]) -> dict[str, int]:
    """The requested devices, from limits and requests; limits take precedence."""
    if resources is None:
        return {}
    limits, requests = resources.limits or {}, resources.requests or {}
    named = limits if requests.keys() <= limits.keys() else {**requests, **limits}
    return {name: amount for name, amount in _device_amounts(named, wrong).items() if amount}


def _asks(holders: list[ContainerRequest]) -> tuple[ContainerRequest, ...]:
    """The requests of the containers that request devices; in most pods it is one container."""
    asking = [holder for holder in holders if holder.amounts]
    if len(asking) == 1:
        one = asking[0]
        return _request(one.index, one.name, one.init, tuple(one.amounts.items()))
    return tuple(asking)


def _assigned_node(meta: _Metadata, annotations: Mapping[str, str], wrong: list[str]) -> str:
    label = meta.labels.node if meta.labels else None
    node = next((annotations[key] for key in _NODE_KEYS if key in annotations), label or "")
    if len(node) > 253:
        wrong.append(f"{_NODE_KEYS[0]}: {node[:80]!r}… is no name of a node")
        return ""
    return intern(node)


def _init_done(spec: _PodSpec, status: _PodStatus) -> bool:
    ended = {
        one.name
        for one in status.init_container_statuses or ()
        if one.state and one.state.terminated and one.state.terminated.exit_code == 0
    }
    return all(one.name in ended for one in spec.init_containers or () if one.restart_policy != "Always")


def _instances(annotations: Mapping[str, str], wrong: list[str]) -> tuple[HeldInstance, ...]:
    try:
        return held_instances(annotations)
    except AnnotationMalformed as e:
        wrong.append(str(e))
        return ()


def _assignments(
    annotations: Mapping[str, str], holders: list[ContainerRequest], wrong: list[str]
) -> Iterator[Assignment]:
    for key in annotations:
        vendor = BY_ALLOCATED.get(key)
        if vendor is None or (key != vendor.allocated[0] and vendor.allocated[0] in annotations):
            continue  # the newer key of the two is complete
        try:
            segments = assigned_devices(key, annotations[key])
        except AnnotationMalformed as e:
            wrong.append(str(e))
            continue
        whose: Sequence[ContainerRequest | None] = holders
        if len(segments) != len(holders):
            segments = [devices for devices in segments if devices]
            whose = _asking(holders, vendor, key)
            if len(segments) > len(whose):
                wrong.append(f"{key}: {len(segments)} containers with devices, but {len(whose)} ask for them")
                whose = [*whose, *[None] * (len(segments) - len(whose))]
        for place, devices in enumerate(segments):
            for device in devices:
                yield _assignment(device, vendor, beyond=len(holders), holder=whose[place])


def _asking(holders: list[ContainerRequest], vendor: Vendor, key: str) -> list[ContainerRequest]:
    """The containers to which the segments belong, in order, if some segments were left out (v2.10.0).

    These are the containers that request a number of the vendor's GPUs. If no container does, these are the
    containers that request any resource of the vendor.
    """
    if not key.startswith("hami.io/"):  # until v2.2 one key held the devices of all vendors
        return [holder for holder in holders if holder.amounts]
    counting = [holder for holder in holders if vendor.count in holder.amounts]
    return counting or [
        holder for holder in holders if any(vendor_by_resource(name) is vendor for name in holder.amounts)
    ]


def _assignment(device: AssignedDevice, vendor: Vendor, *, beyond: int, holder: ContainerRequest | None) -> Assignment:
    """The assignment; all devices without a container have one index together: that many containers do not exist."""
    vendor = BY_WORD.get(device.word, vendor)
    return Assignment(
        container_index=holder.index if holder else beyond,
        container=holder.name if holder else "",
        init=holder is not None and holder.init,
        vendor=vendor.word,
        device=intern(device.uuid),
        memory=device.mib * MIB if vendor.memory_counted else 0,
        cores=device.cores,
    )


_NODES = ObjectKind[NodeState]("Node", msgspec.json.Decoder(_Node), _node, known_by="name")
_PODS = ObjectKind[PodState]("Pod", msgspec.json.Decoder(_Pod), _pod)


@lru_cache(maxsize=4)
def _pods_of(seals: Seals | None) -> ObjectKind[PodState]:
    return _PODS if seals is None else ObjectKind("Pod", _PODS.decoder, partial(_pod, seals=seals))


_QUOTAS = ObjectKind[QuotaState]("ResourceQuota", msgspec.json.Decoder(_Quota), _quota, known_by="namespace/name")
