"""The kubelet's PodResources socket: which device was allocated to which container.

It uses grpclib and our own wire reader, because the usual libraries cost half of the agent's memory: docs/adr/0004.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from grpclib.client import Channel, Handler, UnaryUnaryMethod
from grpclib.encoding.base import CodecBase
from grpclib.protocol import H2Protocol

from vgpuscope.formats.podresources import WireInvalid, decode_grants, decode_view
from vgpuscope.model.errors import PodResourcesAbsent, PodResourcesDown
from vgpuscope.model.plugin import KubeletView
from vgpuscope.model.pod import Grant
from vgpuscope.model.quantity import Seconds
from vgpuscope.sources.grpc_socket import answered

T = TypeVar("T")
_LIST = "/v1.PodResourcesLister/List"
_LIMIT = 16 * 1024 * 1024  # bytes; large nodes exceed gRPC's default of 4 MiB


class PodResources:
    """The grants of this node; each read is a new connection, so a restarted kubelet needs no special handling."""

    def __init__(self, socket_path: str, *, timeout: Seconds = 5.0) -> None:
        self._path = socket_path
        self._timeout = timeout

    async def read(self) -> tuple[Grant, ...]:
        """All current grants; PodResourcesAbsent when there is no socket, PodResourcesDown when it does not answer."""
        return await self._decoded(decode_grants)

    async def view(self, resource: str) -> KubeletView:
        """The pods that the kubelet knows now, and which of their containers have devices; the same errors."""
        return await self._decoded(partial(decode_view, resource=resource))

    async def _decoded(self, decode: Callable[[bytes], T]) -> T:
        async with answered(self._path, within=self._timeout, absent=PodResourcesAbsent, down=PodResourcesDown):
            answer = await self._ask()
        try:
            return decode(answer)
        except WireInvalid as e:
            raise PodResourcesDown(f"{self._path}: {e}") from e

    def close(self) -> None:
        """Nothing is kept between two reads."""

    async def _ask(self) -> bytes:
        channel = _Channel(path=self._path, codec=_Bytes())
        try:
            answer: bytes = await UnaryUnaryMethod(channel, _LIST, bytes, bytes)(b"")
        finally:
            channel.close()
        return answer


class _Bytes(CodecBase):
    """Messages stay bytes: the formats package encodes them."""

    __content_subtype__ = "proto"

    def encode(self, message: bytes, message_type: object) -> bytes:  # noqa: ARG002
        return message

    def decode(self, data: bytes, message_type: object) -> bytes:  # noqa: ARG002
        return data


class _Bounded(H2Protocol):
    """A limit for the size of a message, which grpclib does not have."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.connection.data_received > _LIMIT:
            self.processor.close(f"the answer is larger than {_LIMIT} bytes")


class _Channel(Channel):
    def _protocol_factory(self) -> H2Protocol:
        return _Bounded(Handler(), self._config, self._h2_config)
