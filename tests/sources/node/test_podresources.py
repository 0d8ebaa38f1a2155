import asyncio
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress

import grpc
import pytest

from tests.formats.kubelet_messages import pb
from vgpuscope.model.errors import PodResourcesAbsent, PodResourcesDown
from vgpuscope.sources.node.podresources import PodResources


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "kubelet.sock")


def answer(*device_ids):
    devices = [{"resource_name": "nvidia.com/gpu", "device_ids": device_ids}]
    container = {"name": "main", "devices": devices}
    return pb.ListPodResourcesResponse(pod_resources=[{"name": "p", "namespace": "ml", "containers": [container]}])


@asynccontextmanager
async def kubelet(path, reply):
    """A gRPC server that answers List with what reply(context) returns: a message, or raw bytes."""

    def to_bytes(message):
        return message if isinstance(message, bytes) else message.SerializeToString()

    method = grpc.unary_unary_rpc_method_handler(
        lambda _, context: reply(context),
        request_deserializer=pb.ListPodResourcesRequest.FromString,
        response_serializer=to_bytes,
    )
    server = grpc.server(ThreadPoolExecutor(2), options=[("grpc.max_send_message_length", -1)])
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": method}),),
    )
    server.add_insecure_port(f"unix://{path}")
    server.start()
    try:
        yield
    finally:
        await asyncio.to_thread(lambda: server.stop(None).wait())


@asynccontextmanager
async def peer(path, text):
    """A server that is no gRPC server: it says its text and waits for the other side to go."""

    talks = []

    async def talk(reader, writer):
        talks.append(asyncio.current_task())
        writer.write(text)
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    async with await asyncio.start_unix_server(talk, path):
        yield
        await asyncio.gather(*talks)


async def test_the_kubelets_grants_are_read(path):
    async with kubelet(path, lambda _: answer("GPU-1", "GPU-2")):
        grants = await PodResources(path, timeout=60.0).read()
    assert [(g.namespace, g.pod, g.container, g.resource, g.device_id) for g in grants] == [
        ("ml", "p", "main", "nvidia.com/gpu", "GPU-1"),
        ("ml", "p", "main", "nvidia.com/gpu", "GPU-2"),
    ]


async def test_no_socket_means_no_kubelet_here(path):
    with pytest.raises(PodResourcesAbsent, match=r"kubelet\.sock"):
        await PodResources(path, timeout=60.0).read()


async def test_a_socket_that_nobody_listens_on_is_down(path):
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(path)
    with pytest.raises(PodResourcesDown, match="refused"):
        await PodResources(path, timeout=60.0).read()


async def test_a_kubelet_that_hangs_is_down_after_the_timeout(path):
    release = threading.Event()
    async with kubelet(path, lambda _: answer() if release.wait(30) else None):
        try:
            with pytest.raises(PodResourcesDown, match=r"0\.2 s"):
                await PodResources(path, timeout=0.2).read()
        finally:
            release.set()


async def test_a_kubelet_that_refuses_says_why(path):
    def refuse(context):
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")

    async with kubelet(path, refuse):
        with pytest.raises(PodResourcesDown, match="RESOURCE_EXHAUSTED: rejected by rate limit"):
            await PodResources(path, timeout=60.0).read()


@pytest.mark.parametrize("reply", [b"\xff", b"\x0a\x7f", b"\x0a\x05\x0a\x03\xff\xff\xff"])
async def test_an_answer_that_is_no_such_message_is_down(path, reply):
    async with kubelet(path, lambda _: reply):
        with pytest.raises(PodResourcesDown):
            await PodResources(path, timeout=60.0).read()


@pytest.mark.parametrize("text", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", bytes(range(256)) * 64])
async def test_a_peer_that_speaks_no_grpc_is_down(path, text):
    async with peer(path, text):
        with pytest.raises(PodResourcesDown):
            await PodResources(path, timeout=0.3).read()


async def test_a_large_answer_is_read(path):
    async with kubelet(path, lambda _: answer("x" * 10 * 2**20)):
        (grant,) = await PodResources(path, timeout=60.0).read()
    assert len(grant.device_id) == 10 * 2**20


async def test_an_answer_over_the_limit_is_refused(path):
    async with kubelet(path, lambda _: answer("x" * 17 * 2**20)):
        with pytest.raises(PodResourcesDown, match="larger than"):
            await PodResources(path, timeout=60.0).read()


async def test_a_kubelet_that_restarted_is_met_again(path):
    source = PodResources(path, timeout=60.0)
    async with kubelet(path, lambda _: answer("before")):
        assert [g.device_id for g in await source.read()] == ["before"]
    with pytest.raises((PodResourcesAbsent, PodResourcesDown)):
        await source.read()
    async with kubelet(path, lambda _: answer("after")):
        assert [g.device_id for g in await source.read()] == ["after"]


async def test_reading_keeps_nothing_open(path):
    source = PodResources(path, timeout=0.05)
    async with peer(path, b"garbage" * 9):
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(10):
            with pytest.raises(PodResourcesDown):
                await source.read()
        async with asyncio.timeout(60):
            while len(os.listdir("/proc/self/fd")) > before:  # noqa: ASYNC110 - the kernel raises no event for it
                await asyncio.sleep(0)
