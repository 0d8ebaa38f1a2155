"""The kubelet's device plugin protocol (gRPC v1beta1): our server on a socket of its directory, and the registration.

The kubelet that starts deletes all sockets of the directory, creates its own and waits for registrations. It connects
to the socket that a registration names, and follows the list of devices. Messages are generated: docs/adr/0020.
"""

import asyncio
import logging
import os
import stat
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakSet

from grpclib.client import Channel
from grpclib.const import Status
from grpclib.exceptions import GRPCError, StreamTerminatedError
from grpclib.protocol import H2Protocol
from grpclib.server import Server
from h2.exceptions import H2Error

from vgpuscope.model.errors import AllocateFailed, KubeletAbsent, KubeletDown, ScopeError
from vgpuscope.model.plugin import RESOURCE, Injection, OfferedDevice
from vgpuscope.model.quantity import Seconds
from vgpuscope.sources.grpc_socket import answered
from vgpuscope.sources.plugin.v1beta1 import api_pb2 as pb
from vgpuscope.sources.plugin.v1beta1.api_grpc import DevicePluginBase, RegistrationStub

log = logging.getLogger(__name__)

ENDPOINT = "vgpuscope-nvidia-gpu.sock"
KUBELET = "kubelet.sock"
VERSION = "v1beta1"
_HEALTH = {True: "Healthy", False: "Unhealthy"}
_MOST_REQUESTS = 256  # containers of one call
_END_WITHIN: Seconds = 2.0  # to send the last answers; then to close the connections
_HUNG_UP = (asyncio.CancelledError, StreamTerminatedError, H2Error, OSError)


class Allocating(Protocol):
    """What answers the kubelet's questions."""

    async def allocate(self, ids: Sequence[str]) -> Injection:
        """What a container with these ids gets; AllocateFailed or another of our errors if it cannot have them."""

    def unanswered(self, injection: Injection) -> None:
        """The kubelet hung up before it got this answer of allocate(): it will ask again for the same container."""

    async def prefer(self, available: Sequence[str], required: Sequence[str], size: int) -> tuple[str, ...]:
        """The best ids of those available."""


class KubeletSide:
    """Our server, and what the kubelet sees of this node's devices."""

    def __init__(self, directory: str, allocating: Allocating, *, timeout: Seconds = 5.0) -> None:
        self._own, self._kubelet = os.path.join(directory, ENDPOINT), os.path.join(directory, KUBELET)
        self._service = _Service(allocating)
        self._timeout = timeout
        self._server: _Server | None = None
        self._inode: int | None = None  # of the socket that we listen on

    @property
    def followers(self) -> int:
        """How many kubelets follow the list of devices: 1, or 0 if it does not know us."""
        return self._service.followers

    def offer(self, devices: tuple[OfferedDevice, ...]) -> None:
        """Show these devices from now on."""
        self._service.offer(devices)

    def kubelet(self) -> tuple[int, int] | None:
        """What tells one start of the kubelet from another; None while it has no socket."""
        found = _socket(self._kubelet)
        return None if found is None else (found.st_ino, found.st_ctime_ns)

    @property
    def listening(self) -> bool:
        """Whether the kubelet can find us: our socket is still in its directory."""
        found = _socket(self._own)
        return self._server is not None and found is not None and found.st_ino == self._inode

    async def listen(self) -> None:
        """Open our socket, in place of one that was lost; KubeletAbsent if the directory cannot be used."""
        await self.close()
        server = _Server([self._service])
        try:
            await server.start(path=self._own)
            os.chmod(self._own, 0o600)
        except OSError as e:
            raise KubeletAbsent(f"{self._own}: {e.strerror or e}") from e
        found = _socket(self._own)
        self._server, self._inode = server, found.st_ino if found else None

    async def register(self) -> None:
        """Tell the kubelet about our socket; KubeletAbsent or KubeletDown."""
        channel = Channel(path=self._kubelet)
        options = pb.DevicePluginOptions(get_preferred_allocation_available=True)
        request = pb.RegisterRequest(version=VERSION, endpoint=ENDPOINT, resource_name=RESOURCE, options=options)
        try:
            async with answered(self._kubelet, within=self._timeout, absent=KubeletAbsent, down=KubeletDown):
                await RegistrationStub(channel).Register(request)
        finally:
            channel.close()

    async def close(self) -> None:
        """Close our socket; a socket that another program made in its place stays.

        The list of devices ends with a status, so that the kubelet sees its end, and calls in progress get their
        answer. A kubelet keeps its connection for as long as it can: we close it, and wait for that only so long.
        """
        server, self._server = self._server, None
        if server is None:
            return
        found = _socket(self._own)
        if found is not None and found.st_ino == self._inode:
            with suppress(OSError):
                os.unlink(self._own)
        await self._service.end(within=_END_WITHIN)
        server.close()
        server.hang_up()
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_WITHIN):
                await server.wait_closed()


class _Server(Server):
    """A server that closes its connections: since Python 3.12.1 wait_closed() waits until every peer has done so."""

    def __init__(self, handlers: Collection[Any]) -> None:
        super().__init__(handlers)
        self._accepted: WeakSet[H2Protocol] = WeakSet()

    def _protocol_factory(self) -> H2Protocol:
        protocol = super()._protocol_factory()
        self._accepted.add(protocol)
        return protocol

    def hang_up(self) -> None:
        """Close every connection, after what was written to it."""
        for protocol in self._accepted:
            if hasattr(protocol, "connection"):  # else it was not made yet
                protocol.connection.close()


class _Service(DevicePluginBase):
    """The calls of the protocol, translated."""

    def __init__(self, allocating: Allocating) -> None:
        self._allocating = allocating
        self._devices: tuple[OfferedDevice, ...] = ()
        self._generation = 0  # of the server: the streams of an earlier one end
        self._changed = asyncio.Event()
        self._calls: set[asyncio.Task[Any]] = set()  # in progress, until their status is sent
        self.followers = 0

    def offer(self, devices: tuple[OfferedDevice, ...]) -> None:
        if devices != self._devices:
            self._devices = devices
            self._wake()

    async def end(self, *, within: Seconds) -> None:
        """Let all streams end, and wait until every call in progress has sent its status."""
        self._generation += 1
        self._wake()
        if self._calls:
            await asyncio.wait(self._calls, timeout=within)

    async def _request(self, stream: Any) -> Any:
        """The request of a call. grpclib sends the status when the call's method is left, at the end of its task."""
        call = asyncio.current_task()
        assert call
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return await stream.recv_message()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def GetDevicePluginOptions(self, stream: Any) -> None:  # noqa: N802 - the protocol's name
        await self._request(stream)
        await stream.send_message(pb.DevicePluginOptions(get_preferred_allocation_available=True))

    async def ListAndWatch(self, stream: Any) -> None:  # noqa: N802
        await self._request(stream)
        generation = self._generation
        self.followers += 1
        try:
            while generation == self._generation:
                changed = self._changed
                await stream.send_message(pb.ListAndWatchResponse(devices=map(_device, self._devices)))
                await changed.wait()
        finally:
            self.followers -= 1

    async def GetPreferredAllocation(self, stream: Any) -> None:  # noqa: N802
        asked = await self._request(stream)
        answers = []
        for one in _bounded(asked.container_requests):
            available, required = list(one.available_deviceIDs), list(one.must_include_deviceIDs)
            ids = await self._allocating.prefer(available, required, one.allocation_size)
            answers.append(pb.ContainerPreferredAllocationResponse(deviceIDs=ids))
        await stream.send_message(pb.PreferredAllocationResponse(container_responses=answers))

    async def Allocate(self, stream: Any) -> None:  # noqa: N802
        asked = await self._request(stream)
        served: list[asyncio.Future[Injection]] = []
        try:
            for one in _bounded(asked.container_requests):
                served.append(asyncio.ensure_future(self._allocating.allocate(list(one.devices_ids))))
                await _shielded(served[-1])
            answers = [_response(one.result()) for one in served]
            await stream.send_message(pb.AllocateResponse(container_responses=answers))
        except _HUNG_UP:
            for one in served:
                one.add_done_callback(self._unanswered)
            raise

    def _unanswered(self, served: asyncio.Future[Injection]) -> None:
        if not served.cancelled() and served.exception() is None:
            self._allocating.unanswered(served.result())

    async def PreStartContainer(self, stream: Any) -> None:  # noqa: N802
        await self._request(stream)
        await stream.send_message(pb.PreStartContainerResponse())


async def _shielded(work: asyncio.Future[Injection]) -> None:
    """Wait; a kubelet that hangs up must not leave a pod half served. Our errors become an answer of gRPC."""
    try:
        await asyncio.shield(work)
    except ScopeError as e:
        raise GRPCError(Status.ABORTED, f"{e.code}: {e}") from e
    except Exception as e:  # the service has logged it; the kubelet gets a code, not a traceback
        raise GRPCError(Status.INTERNAL, f"{AllocateFailed.code}: {type(e).__name__}") from e


def _bounded(requests: Sequence[Any]) -> Sequence[Any]:
    if len(requests) > _MOST_REQUESTS:
        raise GRPCError(Status.RESOURCE_EXHAUSTED, f"more than {_MOST_REQUESTS} containers in one call")
    return requests


def _device(one: OfferedDevice) -> Any:
    topology = None if one.numa is None else pb.TopologyInfo(nodes=[pb.NUMANode(ID=one.numa)])
    return pb.Device(ID=one.id, health=_HEALTH[one.healthy], topology=topology)


def _response(one: Injection) -> Any:
    mounts = [pb.Mount(container_path=m.container, host_path=m.host, read_only=m.read_only) for m in one.mounts]
    return pb.ContainerAllocateResponse(envs=one.envs, mounts=mounts)


def _socket(path: str) -> os.stat_result | None:
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return found if stat.S_ISSOCK(found.st_mode) else None
