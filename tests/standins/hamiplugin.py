"""Stands in for HAMi's device plugin v2.10 at a real kubelet: registration, devices, what Allocate writes and answers.

It follows pkg/device-plugin of HAMi: ids `<uuid>-<n>`; the pod of an Allocate is the one that the node's lock names;
the first container that was not served yet is served, and its part of the annotation is emptied. It shares no code
with vgpuscope but the kubelet's protocol.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from vgpuscope.sources.plugin.v1beta1 import api_pb2 as pb

TO_ALLOCATE, PHASE = "hami.io/vgpu-devices-to-allocate", "hami.io/bind-phase"
REGISTER, LOCK = "hami.io/node-nvidia-register", "hami.io/mutex.lock"
SHARES = 10
Kube = Callable[..., Any]  # (method, path, body) of the API server, with the plugin's own account


class HamiPlugin:
    """Serves the GPUs of a node to its kubelet while the block lasts."""

    def __init__(self, kube: Kube, *, node: str, gpus: Mapping[str, int], kubelet: Path, hook: Path) -> None:
        """gpus: MiB by UUID."""
        self._kube, self._node, self._gpus, self._hook = kube, node, gpus, hook
        self._kubelet, self._socket = kubelet / "kubelet.sock", kubelet / "hami-nvidia.sock"
        self._ended = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(4))

    def __enter__(self) -> "HamiPlugin":
        calls = {
            "GetDevicePluginOptions": (self._options, pb.Empty),
            "Allocate": (self._allocate, pb.AllocateRequest),
            "PreStartContainer": (
                lambda _request, _context: pb.PreStartContainerResponse(),
                pb.PreStartContainerRequest,
            ),
        }
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                call,
                request_deserializer=kind.FromString,
                response_serializer=lambda answer: answer.SerializeToString(),
            )
            for name, (call, kind) in calls.items()
        }
        handlers["ListAndWatch"] = grpc.unary_stream_rpc_method_handler(
            self._list,
            request_deserializer=pb.Empty.FromString,
            response_serializer=pb.ListAndWatchResponse.SerializeToString,
        )
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", handlers),))
        self._socket.unlink(missing_ok=True)
        self._server.add_insecure_port(f"unix://{self._socket}")
        self._server.start()
        self._register_at_kubelet()
        self._register_at_node()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._server.stop(2).wait()
        self._socket.unlink(missing_ok=True)

    def _register_at_kubelet(self) -> None:
        request = pb.RegisterRequest(version="v1beta1", endpoint=self._socket.name, resource_name="nvidia.com/gpu")
        with grpc.insecure_channel(f"unix://{self._kubelet}") as channel:
            register = channel.unary_unary(
                "/v1beta1.Registration/Register",
                request_serializer=pb.RegisterRequest.SerializeToString,
                response_deserializer=pb.Empty.FromString,
            )
            register(request, timeout=30)

    def _register_at_node(self) -> None:
        common = {"count": SHARES, "devcore": 100, "type": "NVIDIA A100-SXM4-80GB", "mode": "hami-core", "health": True}
        cards = [
            {"id": gpu, "index": n, "devmem": memory, **common} for n, (gpu, memory) in enumerate(self._gpus.items())
        ]
        self._annotate(f"/api/v1/nodes/{self._node}", {REGISTER: json.dumps(cards)})

    def _options(self, _request: Any, _context: grpc.ServicerContext) -> pb.DevicePluginOptions:
        return pb.DevicePluginOptions()

    def _list(self, _request: Any, _context: grpc.ServicerContext) -> Iterator[pb.ListAndWatchResponse]:
        devices = [pb.Device(ID=f"{gpu}-{n}", health="Healthy") for gpu in self._gpus for n in range(SHARES)]
        yield pb.ListAndWatchResponse(devices=devices)
        self._ended.wait()

    def _allocate(self, request: pb.AllocateRequest, context: grpc.ServicerContext) -> pb.AllocateResponse:
        answers = []
        for asked in request.container_requests:
            node = self._kube("GET", f"/api/v1/nodes/{self._node}")
            _, namespace, name = node["metadata"]["annotations"][LOCK].split(",")
            path = f"/api/v1/namespaces/{namespace}/pods/{name}"
            pod = self._kube("GET", path)
            parts = pod["metadata"]["annotations"][TO_ALLOCATE].split(";")
            number = next(n for n, part in enumerate(parts) if part)
            devices = [device.split(",") for device in parts[number].split(":") if device]
            if len(devices) != len(asked.devices_ids):
                self._annotate(path, {PHASE: "failed"})
                context.abort(grpc.StatusCode.UNKNOWN, "device number not matched")
            parts[number] = ""
            left = ";".join(parts)
            done = {} if left.strip(";") else {PHASE: "success"}
            self._annotate(path, {TO_ALLOCATE: left, **done})
            if done:
                self._annotate(f"/api/v1/nodes/{self._node}", {LOCK: None})
            answers.append(self._injection(pod, number, devices))
        return pb.AllocateResponse(container_responses=answers)

    def _injection(self, pod: Any, number: int, devices: list[list[str]]) -> pb.ContainerAllocateResponse:
        wanting = [c for c in pod["spec"]["containers"] if "nvidia.com/gpu" in c["resources"].get("limits", {})]
        folder = self._hook / "containers" / f"{pod['metadata']['uid']}_{wanting[number]['name']}"
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)
        values = {f"CUDA_DEVICE_MEMORY_LIMIT_{n}": f"{memory}m" for n, (_, _, memory, _) in enumerate(devices)}
        values |= {
            "NVIDIA_VISIBLE_DEVICES": ",".join(gpu for gpu, *_ in devices),
            "CUDA_DEVICE_SM_LIMIT": devices[0][3],
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": f"/usr/local/vgpu/{pod['metadata']['uid']}.cache",
        }
        mount = pb.Mount(container_path="/usr/local/vgpu", host_path=f"/usr/local/vgpu/containers/{folder.name}")
        return pb.ContainerAllocateResponse(envs=values, mounts=[mount])

    def _annotate(self, path: str, notes: Mapping[str, str | None]) -> None:
        self._kube("PATCH", path, {"metadata": {"annotations": dict(notes)}})
