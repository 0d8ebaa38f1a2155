"""Pods as the Kubernetes API writes them in JSON: lists, pages of lists and lines of a watch → Pod.

Only the needed fields are decoded. If a pod or an annotation is invalid, only that is missing, and it is reported as a
fault.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Struct, field

from vgpuscope.formats.hami.annotation import is_assigned, mig_allocations, pod_shares
from vgpuscope.formats.kube.lists import ObjectKind, ObjectPage, WatchEvent, decode_line, decode_page
from vgpuscope.formats.times import from_rfc3339
from vgpuscope.model.errors import AnnotationMalformed
from vgpuscope.model.pod import ClaimUse, Container, HamiShare, Pod
from vgpuscope.model.service import DCGM_EXPORTER_PORT

if TYPE_CHECKING:
    from vgpuscope.formats.hami.seal import Seals  # its hashes cost memory that most agents do not need

T = TypeVar("T")

PodPage = ObjectPage[Pod]
PodEvent = WatchEvent[Pod]


def decode_pods(data: bytes, *, origin: str = "pods", node: str | None = None, seals: "Seals | None" = None) -> PodPage:
    """The pods of a list, of one node if `node` is given; raises KubeUnreadable for anything but a list of pods.

    With `seals`, a pod was assigned only what the scheduler has sealed.
    """
    return decode_page(_pods_of(node, seals), data, origin=origin)


def decode_event(line: bytes, *, seals: "Seals | None" = None) -> PodEvent:
    """The event in one line of a watch of pods; raises KubeUnreadable if the line is not an event."""
    return decode_line(_pods_of(None, seals), line)


# --- the shape of the JSON: unknown fields are skipped, null is treated as absent -------------------------------------


class _ClaimUse(Struct):
    name: str
    request: str | None = None


class _Resources(Struct):
    limits: dict[str, object] | None = None
    requests: dict[str, object] | None = None
    claims: list[_ClaimUse] | None = None


class _PodClaim(Struct, rename="camel"):
    name: str
    resource_claim_name: str | None = None


class _Port(Struct, rename="camel"):
    container_port: int | None = None
    name: str | None = None


class _RequestMapping(Struct, rename="camel"):
    container_name: str = ""
    request_name: str = ""


class _ExtendedClaim(Struct, rename="camel"):
    """The claim that the scheduler created for devices requested as an extended resource."""

    resource_claim_name: str | None = None
    request_mappings: list[_RequestMapping] | None = None


class _ContainerSpec(Struct, rename="camel"):
    name: str
    restart_policy: str | None = None
    resources: _Resources | None = None
    image: str | None = None
    ports: list[_Port] | None = None


class _Spec(Struct, rename="camel"):
    node_name: str | None = None
    containers: list[_ContainerSpec] | None = None
    init_containers: list[_ContainerSpec] | None = None
    resource_claims: list[_PodClaim] | None = None


class _Mark(Struct):
    """An object of which only the presence matters."""


class _State(Struct):
    running: _Mark | None = None


class _ContainerStatus(Struct):
    name: str
    id: str | None = field(default=None, name="containerID")
    state: _State | None = None


class _Status(Struct, rename="camel"):
    phase: str | None = None
    pod_ip: str | None = field(default=None, name="podIP")
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None
    resource_claim_statuses: list[_PodClaim] | None = None
    extended_resource_claim_status: _ExtendedClaim | None = None


class _OwnerReference(Struct):
    kind: str
    controller: bool | None = None


class _PodMeta(Struct, rename="camel"):
    uid: str
    name: str
    namespace: str | None = None
    resource_version: str | None = None
    creation_timestamp: str | None = None
    annotations: dict[str, str | None] | None = None
    owner_references: list[_OwnerReference] | None = None


class _Pod(Struct):
    metadata: _PodMeta
    kind: str | None = None
    spec: _Spec | None = None
    status: _Status | None = None


# --- from that shape to the model -------------------------------------------------------------------------------------


def _pods_of(node: str | None, seals: "Seals | None") -> ObjectKind[Pod]:
    """Reads pods; with `node`, skips pods of other nodes."""
    if node is None:
        return _PODS if seals is None else ObjectKind("Pod", _PODS.decoder, partial(_pod, seals=seals))

    def read(found: _Pod, wrong: list[str]) -> Pod | None:
        elsewhere = found.spec is not None and found.spec.node_name not in {None, "", node}
        return None if elsewhere else _pod(found, wrong, seals=seals)

    return ObjectKind("Pod", _PODS.decoder, read)


def _pod(found: _Pod, wrong: list[str], *, seals: "Seals | None" = None) -> Pod:
    spec, status, meta = found.spec or _Spec(), found.status or _Status(), found.metadata
    annotations = {key: text for key, text in (meta.annotations or {}).items() if text}
    containers = tuple(_containers(spec, status))
    shares = _unless_malformed(lambda: pod_shares(annotations, containers), wrong)
    migs = _unless_malformed(lambda: mig_allocations(annotations), wrong)
    claimed: tuple[HamiShare, ...] = ()
    if seals is not None and (shares or migs):
        created = from_rfc3339(meta.creation_timestamp)
        if not seals.believes(meta.uid, annotations, bound=bool(spec.node_name), created=created):
            shares, migs, claimed = (), (), shares
    return Pod(
        uid=meta.uid,
        namespace=meta.namespace or "default",
        name=meta.name,
        phase=status.phase or "Unknown",
        config_hash=_config_hash(meta, annotations),
        containers=containers,
        shares=shares,
        migs=migs,
        claimed=claimed,
        assigned=is_assigned(annotations),
        dcgm=_exporter(spec, status),
    )


_DCGM = re.compile(r"(?:^|/)dcgm-exporter(?:$|[:@])")  # NVIDIA's image, in any registry


def _exporter(spec: _Spec, status: _Status) -> str | None:
    """The address of the dcgm-exporter in a running pod."""
    if status.phase != "Running" or not status.pod_ip:
        return None
    for container in spec.containers or ():
        if _DCGM.search(container.image or ""):
            ports = [port for port in container.ports or () if port.container_port]
            chosen = next((port for port in ports if port.name == "metrics"), ports[0] if ports else None)
            host = f"[{status.pod_ip}]" if ":" in status.pod_ip else status.pod_ip
            return f"{host}:{chosen.container_port if chosen else DCGM_EXPORTER_PORT}"
    return None


def _config_hash(meta: _PodMeta, annotations: Mapping[str, str]) -> str | None:
    """The UID under which a static pod runs. Anyone may write an annotation; only the kubelet makes mirror pods."""
    mirror, owners = annotations.get("kubernetes.io/config.mirror"), meta.owner_references or ()
    if mirror is None or mirror != annotations.get("kubernetes.io/config.hash"):
        return None
    return mirror if any(owner.kind == "Node" and owner.controller for owner in owners) else None


def _unless_malformed(decode: Callable[[], tuple[T, ...]], wrong: list[str]) -> tuple[T, ...]:
    try:
        return decode()
    except AnnotationMalformed as e:
        wrong.append(str(e))
        return ()


def _containers(spec: _Spec, status: _Status) -> Iterator[Container]:
    """Init containers first, as HAMi counts them."""
    claims = _claim_uses(spec, status)
    yield from _joined(spec.init_containers or [], status.init_container_statuses or [], claims, init=True)
    yield from _joined(spec.containers or [], status.container_statuses or [], claims, init=False)


def _claim_uses(spec: _Spec, status: _Status) -> Mapping[str, list[ClaimUse]]:
    """The claims of each container, by its name: those that its spec names, and those of extended resources."""
    found: dict[str, list[ClaimUse]] = {}
    if spec.resource_claims:
        names = _claim_names(spec, status)
        for container in (*(spec.init_containers or ()), *(spec.containers or ())):
            uses = (container.resources and container.resources.claims) or ()
            found[container.name] = [ClaimUse(names[one.name], one.request or "") for one in uses if one.name in names]
    extended = status.extended_resource_claim_status
    if extended is not None and extended.resource_claim_name:
        for mapping in extended.request_mappings or ():
            use = ClaimUse(extended.resource_claim_name, mapping.request_name)
            found.setdefault(mapping.container_name, []).append(use)
    return found


def _claim_names(spec: _Spec, status: _Status) -> Mapping[str, str]:
    """The names of ResourceClaims, by the pod's own names for them. The status has the names of those made for it."""
    made = {one.name: one.resource_claim_name for one in status.resource_claim_statuses or ()}
    named = {one.name: one.resource_claim_name or made.get(one.name) for one in spec.resource_claims or ()}
    return {own: name for own, name in named.items() if name}


def _joined(
    specs: list[_ContainerSpec],
    statuses: list[_ContainerStatus],
    claims: Mapping[str, list[ClaimUse]],
    *,
    init: bool,
) -> Iterator[Container]:
    by_name = {status.name: status for status in statuses}
    for spec in specs:
        status = by_name.get(spec.name)
        yield Container(
            name=spec.name,
            id=_bare(status.id) if status else None,
            init=init,
            sidecar=init and spec.restart_policy == "Always",
            gpu_request=_asks_for_gpu(spec.resources),
            running=(status.state is not None and status.state.running is not None) if status else None,
            claims=tuple(claims.get(spec.name, ())),
        )


def _bare(container_id: str | None) -> str | None:
    """The container id without the runtime's prefix, as used in cgroup names."""
    return (container_id or "").rpartition("://")[2] or None


_GPU = re.compile(r"nvidia\.com/(gpu|gpu\.shared|mig-.+|gpumem.*|gpucores)")


def _asks_for_gpu(resources: _Resources | None) -> bool:
    if resources is None:
        return False
    named: Mapping[str, object] = {**(resources.requests or {}), **(resources.limits or {})}
    return any(amount not in (0, "0", None) for name, amount in named.items() if _GPU.fullmatch(name))


_PODS = ObjectKind[Pod]("Pod", msgspec.json.Decoder(_Pod), _pod)
