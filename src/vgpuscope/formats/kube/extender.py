"""The protocol of kube-scheduler's extenders, version 1: requests decoded leniently, answers encoded exactly.

Go encodes these structs without JSON names, so the keys are Go's names: Pod, NodeNames, FailedNodes. Go's decoder
ignores the case of keys, and so do we. Other keys are skipped.

    filter      ExtenderArgs {Pod, Nodes, NodeNames}    → ExtenderFilterResult {Nodes, NodeNames, FailedNodes, Error}
    prioritize  ExtenderArgs                            → HostPriorityList [{Host, Score}], scores from 0 to 10
    bind        ExtenderBindingArgs {PodName, PodNamespace, PodUID, Node} → ExtenderBindingResult {Error}

With nodeCacheCapable, kube-scheduler sends NodeNames; without, it sends whole Node objects in Nodes.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct

from vgpuscope.formats.hami.annotation import FILTERED, MIG_ALLOCATIONS, NODE
from vgpuscope.formats.hami.seal import SEAL
from vgpuscope.knowledge.vendors import NVIDIA
from vgpuscope.model.errors import BodyInvalid

T = TypeVar("T")

MOST_SCORE = 10  # of an extender; kube-scheduler multiplies it by the extender's weight
_MOST_NODES = 200_000  # names in one request; Kubernetes supports 5,000 nodes
Name = Annotated[str, Meta(max_length=253)]


class PodHead(Struct, frozen=True, kw_only=True):
    """The part of a pod that identifies it, and that shows whether it can still be placed."""

    name: str
    namespace: str
    uid: str
    version: str = ""  # resourceVersion; "": not given
    node: str = ""  # where it is bound
    deleting: bool = False
    ended: bool = False
    assigned_node: str = ""  # that an extender chose before; "": none
    assigned: str = ""  # HAMi's text of its GPUs
    assigned_at: str = ""  # Unix seconds, as text
    instances: str = ""  # HAMi's text of its MIG instances
    seal: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def assignment(self) -> str:
        """What tells this assignment from an earlier or later one of the pod; "": it has none."""
        return f"{self.assigned_at} {self.assigned_node} {self.assigned}" if self.assigned else ""


class ExtenderArgs(Struct, frozen=True, kw_only=True):
    """A request to filter or to prioritize."""

    pod: bytes  # the pod as JSON
    head: PodHead
    node_names: tuple[str, ...] | None = None  # None: whole nodes were sent
    nodes: tuple[bytes, ...] | None = None  # each node as JSON
    sent_nodes: bytes | None = None  # the whole NodeList as it was sent


class BindingArgs(Struct, frozen=True, kw_only=True):
    """A request to bind."""

    name: str
    namespace: str
    uid: str
    node: str


def decode_args(data: bytes) -> ExtenderArgs:
    """The request; raises BodyInvalid for anything but ExtenderArgs."""
    found = _keys(data, "ExtenderArgs")
    pod = found.get("pod")
    if pod is None or _absent(pod):
        raise BodyInvalid("ExtenderArgs: Pod is missing")
    names, nodes = found.get("nodenames"), found.get("nodes")
    sent = None if nodes is None or _absent(nodes) else nodes
    listed = None if names is None or _absent(names) else _read(names, list[Name], "NodeNames")
    if listed is None and sent is None:
        raise BodyInvalid("ExtenderArgs: neither NodeNames nor Nodes is given")
    if listed is not None and len(listed) > _MOST_NODES:
        raise BodyInvalid(f"ExtenderArgs: more than {_MOST_NODES} names of nodes")
    return ExtenderArgs(
        pod=bytes(pod),
        head=decode_pod_head(bytes(pod)),
        node_names=None if listed is None else tuple(listed),
        nodes=None if sent is None else tuple(bytes(one) for one in _read(sent, _NodeList, "Nodes").items or ()),
        sent_nodes=None if sent is None else bytes(sent),
    )


def decode_binding_args(data: bytes) -> BindingArgs:
    """The request; raises BodyInvalid for anything but ExtenderBindingArgs."""
    found = _keys(data, "ExtenderBindingArgs")
    values = {}
    for field, key in _BINDING.items():
        raw = found.get(key.lower())
        values[field] = "" if raw is None or _absent(raw) else _read(raw, Name, key)
        if not values[field]:
            raise BodyInvalid(f"ExtenderBindingArgs: {key} is missing")
    return BindingArgs(**values)


def decode_pod_head(data: bytes) -> PodHead:
    """The part of a pod that identifies it; raises BodyInvalid for a pod without name or uid."""
    pod = _read(Raw(data), _Pod, "Pod")
    meta, spec = pod.metadata, pod.spec or _Spec()
    notes = {key: text for key, text in (meta.annotations or {}).items() if isinstance(text, str)}
    if not meta.name or not meta.uid:
        raise BodyInvalid("Pod: metadata.name or metadata.uid is missing")
    return PodHead(
        name=meta.name,
        namespace=meta.namespace or "default",
        uid=meta.uid,
        version=meta.resource_version or "",
        node=spec.node_name or "",
        deleting=meta.deletion_timestamp is not None,
        ended=pod.status is not None and pod.status.phase in {"Succeeded", "Failed"},
        assigned_node=notes.get(NODE, ""),
        assigned=next((notes[key] for key in NVIDIA.allocated if key in notes), ""),
        assigned_at=notes.get(FILTERED, ""),
        instances=notes.get(MIG_ALLOCATIONS, ""),
        seal=notes.get(SEAL, ""),
    )


def filter_result(
    args: ExtenderArgs, passed: Iterable[str] | None, *, failed: Mapping[str, str] | None = None, error: str = ""
) -> bytes:
    """The answer to a filter: the nodes that passed, in the form in which they were sent; None: all of them."""
    names: Any = None
    nodes: Any = None
    if not error:
        if args.node_names is not None:
            names = list(args.node_names if passed is None else passed)
        elif passed is None:
            nodes = Raw(args.sent_nodes or b"null")
        else:
            kept = set(passed)
            nodes = {"metadata": {}, "items": [Raw(one) for one in args.nodes or () if node_name(one) in kept]}
    return _filter_body(nodes, names, dict(failed or {}), error)


def filter_error(error: str) -> bytes:
    """The answer to a filter that was not decided; kube-scheduler retries the pod."""
    return _filter_body(None, None, {}, error)


def priorities(scores: Iterable[tuple[str, int]]) -> bytes:
    """The answer to prioritize: a HostPriorityList."""
    return msgspec.json.encode([{"Host": host, "Score": score} for host, score in scores])


def binding_result(error: str = "") -> bytes:
    """The answer to bind; with an error, the pod is not bound."""
    return msgspec.json.encode({"Error": error})


def node_name(node: bytes) -> str:
    """The name of a node; "" if it has none."""
    try:
        return msgspec.json.decode(node, type=_Named).metadata.name or ""
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""


def _filter_body(nodes: Any, names: list[str] | None, failed: dict[str, str], error: str) -> bytes:
    return msgspec.json.encode(
        {
            "Nodes": nodes,
            "NodeNames": names,
            "FailedNodes": failed,
            "FailedAndUnresolvableNodes": {},
            "Error": error,
        }
    )


class _Meta(Struct, rename="camel"):
    name: Name | None = None
    namespace: Name | None = None
    uid: Name | None = None
    resource_version: Name | None = None
    deletion_timestamp: str | None = None
    annotations: dict[str, object] | None = None


class _Spec(Struct, rename="camel"):
    node_name: Name | None = None


class _Status(Struct):
    phase: str | None = None


class _Pod(Struct):
    metadata: _Meta
    spec: _Spec | None = None
    status: _Status | None = None


class _Named(Struct):
    metadata: _Meta


class _NodeList(Struct):
    items: list[Raw] | None = None


_BINDING = {"name": "PodName", "namespace": "PodNamespace", "uid": "PodUID", "node": "Node"}


def _keys(data: bytes, what: str) -> dict[str, Raw]:
    """The values by their keys in lower case."""
    found = _read(Raw(data), dict[str, Raw], what)
    return {key.lower(): value for key, value in found.items()}


def _absent(raw: Raw) -> bool:
    return bytes(raw).strip() == b"null"


def _read(raw: Raw, kind: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        raise BodyInvalid(f"{what}: {e}") from e
