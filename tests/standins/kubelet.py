"""A kubelet as far as device plugins see it, with the reference implementation of gRPC.

    with Kubelet(directory) as kubelet:
        kubelet.until(lambda: kubelet.devices)
        answer = kubelet.allocate(["GPU-0-0"])
        kubelet.restart()

As the real one, it deletes all sockets of its directory when it starts, then makes its own, calls back who registers,
and follows the list of devices. A second registration of the resource replaces the first. It keeps its connection to a
plugin until it stops or is told to forget, even if the list has ended.
"""

import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from tests.waiting import wait_until
from vgpuscope.model.plugin import KubeletView
from vgpuscope.sources.plugin.v1beta1 import api_pb2 as pb

WITHIN = 60.0  # seconds: on a busy machine


@contextmanager
def plugin_directory() -> Iterator[Path]:
    """A directory for a kubelet's sockets with a short path: that of a socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="kubelet-") as path:
        yield Path(path)


class Kubelet:
    """One kubelet, from its first start; `sessions` counts the plugins that it has followed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.registered: list[Any] = []  # the requests of all registrations
        self.lists: list[list[Any]] = []  # every list of devices that came
        self.ends: list[str] = []  # the status with which each list of devices ended
        self.knows: KubeletView | None = None  # what PodResources says; None: there is no such socket
        self.refuse = ""  # why registrations are refused; "": they are not
        self._server: grpc.Server | None = None
        self._channel: grpc.Channel | None = None
        self._earlier: list[grpc.Channel] = []

    def __enter__(self) -> "Kubelet":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        for entry in os.scandir(self.directory):
            if stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode):
                os.unlink(entry.path)
        method = grpc.unary_unary_rpc_method_handler(
            self._register,
            request_deserializer=pb.RegisterRequest.FromString,
            response_serializer=pb.Empty.SerializeToString,
        )
        self._server = grpc.server(ThreadPoolExecutor(4))
        services = (grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": method}),)
        self._server.add_generic_rpc_handlers(services)
        made, own = self.directory / "made.sock", self.directory / "kubelet.sock"
        self._server.add_insecure_port(f"unix://{made}")
        made.rename(own)  # grpc removes a socket that it has made: the real kubelet leaves its own behind
        self._server.start()

    def stop(self) -> None:
        """It hangs up; its socket stays, and nobody answers."""
        if self._server is not None:
            self._server.stop(None).wait()
            self._server = None
        self.forget()

    def restart(self) -> None:
        """The devices of the plugin are unknown until it registers again."""
        self.stop()
        self.lists.clear()
        self.start()

    def forget(self) -> None:
        """Hang up, as a kubelet does with a plugin that another one replaces."""
        for channel in (*self._earlier, *([self._channel] if self._channel else [])):
            channel.close()
        self._earlier, self._channel = [], None

    async def view(self) -> KubeletView | None:
        """What a plugin reads of PodResources, in the same process."""
        return self.knows

    # --- what the plugin told -----------------------------------------------------------------------------------------

    @property
    def devices(self) -> dict[str, str]:
        """Health by id, of the newest list."""
        return {device.ID: device.health for device in self.lists[-1]} if self.lists else {}

    def until(self, condition: Callable[[], object], *, within: float = WITHIN) -> None:
        wait_until(condition, within=within)

    # --- what it asks -------------------------------------------------------------------------------------------------

    def allocate(self, *containers: Sequence[str]) -> Any:
        request = pb.AllocateRequest(container_requests=[{"devices_ids": ids} for ids in containers])
        return self._ask("Allocate", request, pb.AllocateResponse).container_responses

    def prefer(self, available: Sequence[str], size: int, required: Sequence[str] = ()) -> list[str]:
        one = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=required, allocation_size=size
        )
        request = pb.PreferredAllocationRequest(container_requests=[one])
        answer = self._ask("GetPreferredAllocation", request, pb.PreferredAllocationResponse)
        return list(answer.container_responses[0].deviceIDs)

    def prestart(self, *ids: str) -> Any:
        request = pb.PreStartContainerRequest(devices_ids=ids)
        return self._ask("PreStartContainer", request, pb.PreStartContainerResponse)

    def options(self) -> Any:
        return self._ask("GetDevicePluginOptions", pb.Empty(), pb.DevicePluginOptions)

    def _ask(self, method: str, request: Any, answer: Any) -> Any:
        assert self._channel is not None
        call = self._channel.unary_unary(
            f"/v1beta1.DevicePlugin/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        return call(request, timeout=WITHIN)

    # --- registration -------------------------------------------------------------------------------------------------

    def _register(self, request: Any, context: grpc.ServicerContext) -> Any:
        if self.refuse:
            context.abort(grpc.StatusCode.UNKNOWN, self.refuse)
        if request.version != "v1beta1":
            context.abort(grpc.StatusCode.UNKNOWN, f"unsupported version {request.version}")
        if self._channel is not None:
            self._earlier.append(self._channel)
        self._channel = grpc.insecure_channel(f"unix://{self.directory}/{request.endpoint}")
        self.registered.append(request)  # who sees it may hang up: the channel is there
        threading.Thread(target=self._follow, args=(self._channel,), daemon=True).start()
        return pb.Empty()

    def _follow(self, channel: grpc.Channel) -> None:
        listed = channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch",
            request_serializer=pb.Empty.SerializeToString,
            response_deserializer=pb.ListAndWatchResponse.FromString,
        )
        try:
            for answer in listed(pb.Empty(), wait_for_ready=True):
                self.lists.append(list(answer.devices))
            self.ends.append("OK")
        except grpc.RpcError as e:
            self.ends.append(e.code().name)
        except ValueError:  # it hung up before the call
            return
