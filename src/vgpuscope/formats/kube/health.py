"""Nodes and pods of the Kubernetes API (JSON) → what doctor looks at. Other fields are not read."""

from collections.abc import Iterator, Mapping
from typing import TypeVar

import msgspec
from msgspec import Struct, field

from vgpuscope.formats.kube.quantity import whole_number
from vgpuscope.knowledge.vendors import VENDORS, vendor_by_resource
from vgpuscope.model.doctor import ComponentPod, KubeNode, ServiceEndpoint
from vgpuscope.model.errors import KubeUnreadable

T = TypeVar("T")

_REGISTERS = frozenset(key for vendor in VENDORS for key in vendor.registers)
_GPU_LABELS = ("nvidia.com/gpu.present", "accelerator", "gpu")


class _Meta(Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    more: str | None = field(default=None, name="continue")


class _Condition(Struct):
    type: str = ""
    status: str = ""


class _Taint(Struct):
    key: str = ""
    effect: str = ""


class _NodeSpec(Struct):
    taints: list[_Taint] | None = None


class _NodeStatus(Struct):
    allocatable: dict[str, str] | None = None
    conditions: list[_Condition] | None = None


class _Node(Struct):
    metadata: _Meta
    spec: _NodeSpec = field(default_factory=_NodeSpec)
    status: _NodeStatus = field(default_factory=_NodeStatus)


class _Ended(Struct):
    reason: str = ""


class _State(Struct):
    waiting: _Ended | None = None
    terminated: _Ended | None = None


class _ContainerStatus(Struct, rename="camel"):
    ready: bool = False
    restart_count: int = 0
    state: _State = field(default_factory=_State)
    last_state: _State = field(default_factory=_State)


class _PodSpec(Struct, rename="camel"):
    node_name: str = ""
    service_account_name: str = ""


class _PodStatus(Struct, rename="camel"):
    phase: str = ""
    container_statuses: list[_ContainerStatus] | None = None


class _Pod(Struct):
    metadata: _Meta
    spec: _PodSpec = field(default_factory=_PodSpec)
    status: _PodStatus = field(default_factory=_PodStatus)


class _Port(Struct, rename="camel"):
    name: str | None = None
    port: int | None = None
    app_protocol: str | None = None


class _Endpoint(Struct, rename="camel"):
    addresses: list[str] | None = None
    node_name: str | None = None


class _Slice(Struct):
    metadata: _Meta
    endpoints: list[_Endpoint] | None = None
    ports: list[_Port] | None = None


class _SliceList(Struct):
    items: list[_Slice] = []


class _NodeList(Struct):
    items: list[_Node] = []
    metadata: _Meta = field(default_factory=_Meta)


class _PodList(Struct):
    items: list[_Pod] = []
    metadata: _Meta = field(default_factory=_Meta)


class _ReviewStatus(Struct):
    allowed: bool = False


class _Review(Struct):
    status: _ReviewStatus = field(default_factory=_ReviewStatus)


def decode_gpu_nodes(data: bytes) -> tuple[tuple[KubeNode, ...], str]:
    """The nodes of a page that have GPUs, or say so, and the continue token; KubeUnreadable."""
    found = _decoded(data, _NodeList)
    nodes = tuple(_node(one) for one in found.items if _has_gpus(one))
    return nodes, found.metadata.more or ""


def decode_component_pods(data: bytes) -> tuple[ComponentPod, ...]:
    """The pods of a page; KubeUnreadable."""
    return tuple(_pod(one) for one in _decoded(data, _PodList).items)


def decode_names(data: bytes) -> tuple[tuple[str, str], ...]:
    """Namespace and name of the pods of a page; KubeUnreadable."""
    return tuple((one.metadata.namespace, one.metadata.name) for one in _decoded(data, _PodList).items)


def decode_allowed(data: bytes) -> bool:
    """Whether a SelfSubjectAccessReview says yes; KubeUnreadable."""
    return _decoded(data, _Review).status.allowed


def decode_our_endpoints(data: bytes) -> tuple[ServiceEndpoint, ...]:
    """The endpoints of our services in a list of EndpointSlices; KubeUnreadable."""
    found = _decoded(data, _SliceList)
    return tuple(one for part in found.items if _is_ours(part.metadata.labels or {}) for one in _endpoints(part))


def _endpoints(part: _Slice) -> Iterator[ServiceEndpoint]:
    ports = {port.name or "": port for port in part.ports or () if port.port is not None}
    port = ports.get("metrics") or ports.get("http") or next(iter(ports.values()), None)
    component = (part.metadata.labels or {}).get("app.kubernetes.io/component", "")
    if port is None or not component:
        return
    tls = (port.app_protocol or "").lower() == "https" or (port.name or "").startswith("https")
    for one in part.endpoints or ():
        for address in (one.addresses or ())[:1]:
            host = f"[{address}]" if ":" in address else address
            url = f"{'https' if tls else 'http'}://{host}:{port.port}"
            yield ServiceEndpoint(component=component, url=url, node=one.node_name or "")


def _is_ours(labels: Mapping[str, str]) -> bool:
    """By the chart's labels; a release may have another name, but not another chart."""
    named = labels.get("app.kubernetes.io/name") == "vgpuscope"
    return named or labels.get("helm.sh/chart", "").startswith("vgpuscope-")


def _has_gpus(node: _Node) -> bool:
    labels = node.metadata.labels or {}
    return bool(_offered(node)) or _registers(node) or any(name in labels for name in _GPU_LABELS)


def _registers(node: _Node) -> bool:
    return any(key in (node.metadata.annotations or {}) for key in _REGISTERS)


def _offered(node: _Node) -> int:
    found = (node.status.allocatable or {}).items()
    counts = [value for name, value in found if (vendor := vendor_by_resource(name)) and _counts(vendor.count, name)]
    return sum(max(0, whole_number(value) or 0) for value in counts)


def _counts(count: str, name: str) -> bool:
    return name == count or name.startswith(("nvidia.com/mig-", "nvidia.com/gpu.shared"))


def _node(node: _Node) -> KubeNode:
    conditions = node.status.conditions or []
    return KubeNode(
        name=node.metadata.name,
        ready=any(one.type == "Ready" and one.status == "True" for one in conditions),
        labels={name: value for name, value in (node.metadata.labels or {}).items() if name in _GPU_LABELS},
        taints=tuple(f"{taint.key}:{taint.effect}" for taint in node.spec.taints or ()),
        offered=_offered(node),
        registered=_registers(node),
    )


def _pod(pod: _Pod) -> ComponentPod:
    statuses = pod.status.container_statuses or []
    labels = pod.metadata.labels or {}
    ended = [one.last_state.terminated.reason for one in statuses if one.last_state.terminated]
    waiting = [one.state.waiting.reason for one in statuses if one.state.waiting]
    done = pod.status.phase == "Succeeded"
    return ComponentPod(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        node=pod.spec.node_name,
        component=labels.get("app.kubernetes.io/component") or labels.get("app", ""),
        account=pod.spec.service_account_name,
        ours=_is_ours(labels),
        ready=done or (bool(statuses) and all(one.ready for one in statuses)),
        restarts=max((one.restart_count for one in statuses), default=0),
        ended_by=next((reason for reason in ended if reason == "OOMKilled"), ended[0] if ended else ""),
        waiting=waiting[0] if waiting else "" if statuses else pod.status.phase,
    )


def _decoded(data: bytes, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        raise KubeUnreadable(f"an answer of the API server cannot be read: {e}") from e
