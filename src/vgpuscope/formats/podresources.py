"""The kubelet's PodResources answer: protobuf bytes → who was given which device.

Only what we need is read; every other field is skipped unseen, so newer kubelets do not disturb. Field numbers:

    ListPodResourcesResponse  pod_resources=1
    PodResources              name=1 namespace=2 containers=3
    ContainerResources        name=1 devices=2 dynamic_resources=5
    ContainerDevices          resource_name=1 device_ids=2
    DynamicResource           claim_name=2 claim_namespace=3 claim_resources=4
    ClaimResource             driver_name=2 pool_name=3 device_name=4
"""

from collections.abc import Iterator
from itertools import chain
from typing import TypeAlias

from vgpuscope.model.plugin import KubeletView
from vgpuscope.model.pod import Grant

_VARINT, _LENGTH, _GROUP, _GROUP_END = 0, 2, 3, 4
_FIXED = {1: 8, 5: 4}  # wire types of a fixed size

_Message: TypeAlias = dict[int, list[bytes]]  # contents by field number, in the order they came


class WireInvalid(ValueError):
    """The bytes are not a protobuf message."""


def decode_grants(data: bytes) -> tuple[Grant, ...]:
    """Every device that was given to a container, once each; WireInvalid for bytes that are no such answer.

    The kubelet names a device once per NUMA node it touches, so equal entries are one grant.
    """
    return tuple(dict.fromkeys(_grants(data)))


def decode_view(data: bytes, *, resource: str) -> KubeletView:
    """The pods that the kubelet knows, and which containers have devices of a resource; WireInvalid as above."""
    pods, holding = set[tuple[str, str]](), set[tuple[str, str, str]]()
    for pod in map(_fields, _fields(data).get(1, ())):
        name = (_text(pod, 2), _text(pod, 1))
        pods.add(name)
        for container in map(_fields, pod.get(3, ())):
            if any(one == resource for one, *_ in _devices(container)):
                holding.add((*name, _text(container, 1)))
    return KubeletView(pods=frozenset(pods), holding=frozenset(holding))


def _grants(answer: bytes) -> Iterator[Grant]:
    for pod in map(_fields, _fields(answer).get(1, ())):
        namespace, name = _text(pod, 2), _text(pod, 1)
        for container in map(_fields, pod.get(3, ())):
            inside = _text(container, 1)
            for resource, device_id, claim, pool in chain(_devices(container), _claimed(container)):
                yield Grant(
                    namespace=namespace,
                    pod=name,
                    container=inside,
                    resource=resource,
                    device_id=device_id,
                    claim=claim,
                    pool=pool,
                )


def _devices(container: _Message) -> Iterator[tuple[str, str, str | None, str]]:
    """Resource and id of all that a container got from device plugins."""
    for devices in map(_fields, container.get(2, ())):
        resource = _text(devices, 1)
        for device_id in devices.get(2, ()):
            yield resource, _string(device_id), None, ""


def _claimed(container: _Message) -> Iterator[tuple[str, str, str | None, str]]:
    """Driver, device, claim and pool of all that a container got through dynamic resource allocation."""
    for claim in map(_fields, container.get(5, ())):
        whole_name = f"{_text(claim, 3)}/{_text(claim, 2)}"
        for device in map(_fields, claim.get(4, ())):
            yield _text(device, 2), _text(device, 4), whole_name, _text(device, 3)


def _text(message: _Message, number: int) -> str:
    """A string field; empty when it is not there, the last when it is there more than once, as protobuf has it."""
    values = message.get(number)
    return _string(values[-1]) if values else ""


def _string(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as e:
        raise WireInvalid(f"a string is not UTF-8: {e.reason}") from e


def _fields(data: bytes) -> _Message:
    """The length-delimited fields of a message; of all others only that they are well formed."""
    found: _Message = {}
    at, end = 0, len(data)
    open_groups: list[int] = []
    while at < end:
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise WireInvalid(f"field number {number}")
        if kind == _LENGTH:
            size, at = _varint(data, at)
            if not open_groups:
                found.setdefault(number, []).append(data[at : at + size])
            at += size
        elif kind == _VARINT:
            _, at = _varint(data, at)
        elif kind in _FIXED:
            at += _FIXED[kind]
        elif kind == _GROUP:
            open_groups.append(number)
        elif kind != _GROUP_END or not open_groups or open_groups.pop() != number:
            raise WireInvalid(f"wire type {kind} of field {number}")
    if at > end or open_groups:
        raise WireInvalid("truncated")
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at a place, and the place after it."""
    if at < len(data) and data[at] < 0x80:  # nearly always, so worth a short cut
        return data[at], at + 1
    value = 0
    for shift, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, at + shift + 1
    raise WireInvalid("truncated, or a number of more than 10 bytes")
