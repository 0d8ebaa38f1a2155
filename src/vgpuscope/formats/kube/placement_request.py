"""A pod as the Kubernetes API writes it → the GPUs that it asks a scheduler extender for.

Limits are read first, then requests. Only a container with nvidia.com/gpu asks for GPUs: the webhook adds it where just
memory or cores are given, and without it the kubelet allocates nothing. The whole memory is asked for if neither memory
nor a percentage is given. Amounts that no GPU can satisfy are refused, not ignored.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, get_args

import msgspec
from msgspec import Meta, Raw, Struct

from vgpuscope.formats.kube.quantity import whole_number
from vgpuscope.knowledge.request_limits import MOST, MOST_CORES, MOST_GPUS
from vgpuscope.knowledge.vendors import NVIDIA
from vgpuscope.model.errors import RequestInvalid
from vgpuscope.model.placement import ContainerAsk, GpuPolicy, GpuSelection, GpuWeights, NodePolicy, PlacementRequest
from vgpuscope.model.verdict_words import Sentence, said

USE_TYPE, AVOID_TYPE = "nvidia.com/use-gputype", "nvidia.com/nouse-gputype"
USE_UUID, AVOID_UUID = "nvidia.com/use-gpuuuid", "nvidia.com/nouse-gpuuuid"
MODE, NUMA_BIND = "nvidia.com/vgpu-mode", "nvidia.com/numa-bind"
NODE_POLICY, GPU_POLICY = "hami.io/node-scheduler-policy", "hami.io/gpu-scheduler-policy"
WEIGHTS = "hami.io/device-scoring-weights"

_COUNT, _MEMORY, _PERCENTAGE, _CORES = (
    NVIDIA.count,
    NVIDIA.memory or "",
    NVIDIA.memory_percentage or "",
    NVIDIA.core or "",
)
_MOST_CONTAINERS = 1024
_LONGEST = 65536  # characters of an annotation that selects GPUs

Name = Annotated[str, Meta(max_length=253)]


def placement_request(pod: bytes | Raw) -> PlacementRequest | None:
    """What the pod asks for; None: no NVIDIA GPU. RequestInvalid names the container and resource that are invalid."""
    try:
        found = _decoder.decode(pod)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as e:
        raise _invalid("undecodable", str(e)[:200]) from e
    spec, meta = found.spec or _Spec(), found.metadata
    first = spec.init_containers or []
    containers = [*first, *(spec.containers or ())]
    if len(containers) > _MOST_CONTAINERS:
        raise _invalid("too-many-containers", len(containers), _MOST_CONTAINERS)
    asks = tuple(_asks(containers, init=len(first)))
    if not asks:
        return None
    total = sum(ask.count for ask in asks)
    if total > MOST_GPUS:
        raise _invalid("too-many-gpus", _COUNT, total, MOST_GPUS)
    return PlacementRequest(
        uid=meta.uid,
        namespace=meta.namespace or "default",
        name=meta.name or (meta.generate_name or ""),
        containers=len(containers),
        asks=asks,
        selection=_selection({key: text for key, text in (meta.annotations or {}).items() if text is not None}),
    )


def _invalid(sentence: Sentence, *values: object) -> RequestInvalid:
    words = said(sentence, *map(str, values))
    return RequestInvalid(words.en, chinese=words.zh)


# --- the shape of the JSON --------------------------------------------------------------------------------------------


class _Resources(Struct):
    limits: dict[str, object] | None = None
    requests: dict[str, object] | None = None


class _Container(Struct, rename="camel"):
    name: Name = ""
    resources: _Resources | None = None
    restart_policy: str | None = None


class _Spec(Struct, rename="camel"):
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None


class _Metadata(Struct, rename="camel"):
    name: Name = ""
    generate_name: Name | None = None
    uid: Name = ""
    namespace: Name | None = None
    annotations: dict[str, str | None] | None = None


class _Pod(Struct):
    metadata: _Metadata
    spec: _Spec | None = None


_decoder = msgspec.json.Decoder(_Pod)


# --- resources --------------------------------------------------------------------------------------------------------


def _asks(containers: list[_Container], *, init: int) -> Iterator[ContainerAsk]:
    for index, container in enumerate(containers):
        ask = _ask(index, container, init=index < init and container.restart_policy != "Always")
        if ask is not None:
            yield ask


def _ask(index: int, container: _Container, *, init: bool) -> ContainerAsk | None:
    resources = container.resources or _Resources()
    named = {**(resources.requests or {}), **(resources.limits or {})}
    amounts = {
        name: _amount(container.name, name, named[name], most=most) for name, most in MOST.items() if name in named
    }
    count = amounts.get(_COUNT, 0)
    if not count:
        return None
    memory, percentage, cores = (amounts.get(name, 0) for name in (_MEMORY, _PERCENTAGE, _CORES))
    return ContainerAsk(
        index=index,
        name=container.name,
        init=init,
        count=count,
        memory=memory or None,
        percentage=percentage or None if not memory else None,
        cores=min(cores, MOST_CORES),
    )


def _amount(container: str, resource: str, value: object, *, most: int) -> int:
    amount = whole_number(value)
    name, shown = repr(container[:63]), str(value)[:40]
    if amount is None:
        raise _invalid("not-whole", name, resource, repr(shown))
    if amount < 0:
        raise _invalid("negative", name, resource, shown)
    if amount > most:
        raise _invalid("too-large", name, resource, shown, most)
    return amount


# --- annotations ------------------------------------------------------------------------------------------------------

_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})  # as Go reads them
_NODE_POLICIES: dict[str, NodePolicy] = {name: name for name in get_args(NodePolicy)}
_GPU_POLICIES: dict[str, GpuPolicy] = {name: name for name in get_args(GpuPolicy)}
_WEIGHT = re.compile(r"\+?[0-9]{1,30}|-0{1,30}")  # as Go reads a number that is not negative
_WEIGHED = {"slot", "core", "memory"}


def _selection(annotations: Mapping[str, str]) -> GpuSelection:
    for key in (USE_TYPE, AVOID_TYPE, USE_UUID, AVOID_UUID, MODE, GPU_POLICY, WEIGHTS):
        if len(annotations.get(key, "")) > _LONGEST:
            raise _invalid("annotation-long", key, _LONGEST)
    return GpuSelection(
        use_types=tuple(name.lower() for name in _listed(annotations.get(USE_TYPE, ""))),
        avoid_types=tuple(name.lower() for name in _listed(annotations.get(AVOID_TYPE, ""))),
        use_uuids=_listed(annotations.get(USE_UUID, "")),
        avoid_uuids=_listed(annotations.get(AVOID_UUID, "")),
        mode=annotations.get(MODE, "").strip(),
        numa_bind=annotations.get(NUMA_BIND, "") in _TRUE,
        node_policy=_node_policy(annotations.get(NODE_POLICY)),
        gpu_policy=_gpu_policy(annotations.get(GPU_POLICY)),
        weights=_weights(annotations.get(WEIGHTS)),
    )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item for part in text.split(",") if (item := part.strip())))


def _node_policy(text: str | None) -> NodePolicy | None:
    """HAMi packs if the annotation names no policy that it knows, whatever its own default is."""
    return None if text is None else _NODE_POLICIES.get(text.strip(), "binpack")


def _gpu_policy(text: str | None) -> tuple[GpuPolicy, ...]:
    """The policies in their order, without those that HAMi does not know; it spreads if none is left.

    A comma makes a chain, in which equal GPUs are ordered by index and not by NUMA node. A chain of one has "spread"
    behind it, which changes nothing else.
    """
    if text is None:
        return ()
    known = [_GPU_POLICIES[name] for part in text.split(",") if (name := part.strip()) in _GPU_POLICIES]
    chain = tuple(dict.fromkeys(known)) or ("spread",)
    return chain if "," not in text or len(chain) > 1 or chain == ("numa",) else (*chain, "spread")


def _weights(text: str | None) -> GpuWeights:
    if text is None:
        return GpuWeights()
    parts = [[side.strip() for side in part.split("=", 1)] for part in text.split(",")]
    values = {part[0]: int(part[1]) for part in parts if len(part) == 2 and _WEIGHT.fullmatch(part[1])}
    if len(parts) != 3 or values.keys() != _WEIGHED or not 0 < max(values.values()) < 2**63:
        raise _invalid("weights", WEIGHTS, repr(text[:80]))
    return GpuWeights(**values)
