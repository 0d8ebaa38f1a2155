"""GPUs that a node's kubelet only counts, as offered by NVIDIA's device plugin, and the labels that describe them.

    nvidia.com/gpu             whole GPUs; with time-slicing or MPS, `replicas` times as many; with the MIG strategy
                               `single`, MIG instances
    nvidia.com/gpu.shared      shares of GPUs, if the plugin renames shared resources
    nvidia.com/mig-1g.10gb     MIG instances of one profile; `.shared` as above

The labels are those of NVIDIA's GPU feature discovery: RESOURCE.product, .memory (MiB), .replicas, .sharing-strategy.
`nvidia.com/gpu.count` counts all GPUs of that model, also those that MIG divides (strategy `mixed`).
"""

from collections.abc import Iterator, Mapping
from sys import intern

from vgpuscope.model.allocation import OfferedResource, OfferMode
from vgpuscope.model.quantity import MIB, Bytes

_WHOLE, _MIG, _SHARED = "nvidia.com/gpu", "nvidia.com/mig-", ".shared"
_STRATEGIES: dict[str, OfferMode] = {"time-slicing": "time-slicing", "mps": "mps"}
_MOST_DIGITS = 9


def offered_resources(
    labels: Mapping[str, object], capacity: Mapping[str, int], allocatable: Mapping[str, int]
) -> tuple[OfferedResource, ...]:
    """The offered resources, sorted by name; resources with a capacity of 0 are not included."""
    return tuple(_offers(labels, capacity, allocatable))


def labelled_gpus(labels: Mapping[str, object]) -> int | None:
    """The node's GPUs of one model, also those that MIG divides; None: no label, or it counts MIG instances."""
    return None if "-MIG-" in _text(labels, f"{_WHOLE}.product") else _number(labels, f"{_WHOLE}.count")


def labelled_memory(labels: Mapping[str, object]) -> Bytes | None:
    """The memory of one of the node's GPUs, from its label; None: no label, or it describes MIG instances."""
    return None if "-MIG-" in _text(labels, f"{_WHOLE}.product") else _memory(labels, _WHOLE)


def _offers(
    labels: Mapping[str, object], capacity: Mapping[str, int], allocatable: Mapping[str, int]
) -> Iterator[OfferedResource]:
    for resource in sorted(capacity):
        base = resource.removesuffix(_SHARED)
        if capacity[resource] and (base == _WHOLE or base.startswith(_MIG)):
            model, _, profile = _text(labels, f"{base}.product").removesuffix("-SHARED").partition("-MIG-")
            profile = base.removeprefix(_MIG) if base != _WHOLE else profile
            replicas = _replicas(labels, base, renamed=base != resource)
            yield OfferedResource(
                resource=intern(resource),
                mode="mig" if profile else _mode(labels, base, replicas),
                capacity=capacity[resource],
                allocatable=allocatable.get(resource, capacity[resource]),
                type=intern(model),
                profile=intern("" if profile == "INVALID" else profile),
                memory=_memory(labels, base),
                replicas=replicas,
            )


def _mode(labels: Mapping[str, object], base: str, replicas: int | None) -> OfferMode:
    if replicas == 1:
        return "whole"
    return _STRATEGIES.get(_text(labels, f"{base}.sharing-strategy"), "shared")


def _replicas(labels: Mapping[str, object], base: str, *, renamed: bool) -> int | None:
    """How many units of the resource are one GPU; None: it is shared, and the labels do not give the number."""
    number = _number(labels, f"{base}.replicas")
    if number is not None and number > 1:
        return number
    shared = renamed or _text(labels, f"{base}.sharing-strategy") in _STRATEGIES
    return None if shared or _text(labels, f"{base}.product").endswith("-SHARED") else 1


def _memory(labels: Mapping[str, object], base: str) -> Bytes | None:
    mib = _number(labels, f"{base}.memory")
    return mib * MIB if mib else None


def _number(labels: Mapping[str, object], key: str) -> int | None:
    text = _text(labels, key)
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS else None


def _text(labels: Mapping[str, object], key: str) -> str:
    """A label's value; Kubernetes allows at most 63 characters."""
    value = labels.get(key)
    return value if isinstance(value, str) and len(value) <= 63 else ""
