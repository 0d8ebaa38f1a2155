"""A kubelet's PodResources socket: a real gRPC server that encodes its answers by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from grpclib.const import Cardinality, Handler
from grpclib.encoding.base import CodecBase
from grpclib.server import Server, Stream

LIST = "/v1.PodResourcesLister/List"


class Granted(NamedTuple):
    """The allocation of a container: device ids of a resource, or a claim with its driver, pool and device."""

    namespace: str
    pod: str
    container: str
    resource: str | None = None
    device_ids: tuple[str, ...] = ()
    claim: str | None = None
    pool: str = ""
    device: str = ""


def list_response(grants: list[Granted]) -> bytes:
    """A ListPodResourcesResponse: pod_resources=1 of name=1, namespace=2, containers=3."""
    return b"".join(
        _part(1, _part(1, g.pod) + _part(2, g.namespace) + _part(3, _part(1, g.container) + _given(g))) for g in grants
    )


async def serve(path: Path, grants: Callable[[], list[Granted]]) -> Server:
    """A running server on a Unix socket; the caller closes it."""
    server = Server([_Lister(grants)], codec=_Bytes())
    await server.start(path=str(path))
    return server


def _given(grant: Granted) -> bytes:
    # As the kubelet does, one ContainerDevices (2) per device: resource_name=1, device_ids=2, topology=3.
    devices = b"".join(
        _part(2, _part(1, grant.resource or "") + _part(2, id_) + _part(3, _part(1, b"\x08\x00")))
        for id_ in grant.device_ids
    )
    return devices + (_part(5, _claimed(grant, grant.claim)) if grant.claim else b"")


def _claimed(grant: Granted, claim: str) -> bytes:
    # DynamicResource: claim_name=2, claim_namespace=3, claim_resources=4 of cdi_devices=1, driver=2, pool=3, device=4.
    cdi = _part(1, _part(1, f"k8s.gpu.nvidia.com/device={claim}-{grant.device}"))
    resource = cdi + _part(2, "gpu.nvidia.com") + _part(3, grant.pool) + _part(4, grant.device)
    return _part(2, claim) + _part(3, grant.namespace) + _part(4, resource)


def _part(number: int, content: str | bytes) -> bytes:
    data = content.encode() if isinstance(content, str) else content
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class _Bytes(CodecBase):
    __content_subtype__ = "proto"

    def encode(self, message: object, message_type: object) -> bytes:  # noqa: ARG002 - grpclib's signature
        assert isinstance(message, bytes)
        return message

    def decode(self, data: bytes, message_type: object) -> bytes:  # noqa: ARG002
        return data


class _Lister:
    def __init__(self, grants: Callable[[], list[Granted]]) -> None:
        self._grants = grants

    def __mapping__(self) -> dict[str, Handler]:
        return {LIST: Handler(self._list, Cardinality.UNARY_UNARY, bytes, bytes)}

    async def _list(self, stream: "Stream[bytes, bytes]") -> None:
        await stream.recv_message()
        await stream.send_message(list_response(self._grants()))
