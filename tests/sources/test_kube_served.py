import asyncio
import json
from contextlib import asynccontextmanager

import httpx2
import pytest

from vgpuscope.model.errors import KubeForbidden, KubeUnreadable
from vgpuscope.sources.kube import KubeClient, served_version

GROUP = "resource.k8s.io"
WANTED = ("v1", "v1beta2", "v1beta1")


def group(*versions):
    return {
        "kind": "APIGroup",
        "name": GROUP,
        "versions": [{"groupVersion": f"{GROUP}/{version}", "version": version} for version in versions],
        "preferredVersion": {"version": versions[0]},
    }


@asynccontextmanager
async def answering(status, body):
    """An API server that has one answer, and the lines that it was asked with."""
    asked = []

    async def talk(reader, writer):
        asked.append((await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].decode())
        writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with httpx2.AsyncClient(base_url=url, timeout=1e-6) as client:  # the time that counts is ours
            yield KubeClient(client, timeout=60.0), asked


async def served(status, body):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with answering(status, body) as (api, _):
        return await served_version(api, GROUP, WANTED)


@pytest.mark.parametrize(
    ("versions", "chosen"),
    [
        (("v1", "v1beta1", "v1beta2"), "v1"),
        (("v1beta1", "v1beta2"), "v1beta2"),
        (("v1beta1",), "v1beta1"),
        (("v1alpha3",), None),
    ],
)
async def test_of_the_versions_that_are_served_the_one_we_like_best_is_chosen(versions, chosen):
    assert await served(200, group(*versions)) == chosen


async def test_a_group_that_is_not_there_has_no_version():
    assert await served(404, b"404 page not found\n") is None


async def test_the_group_is_asked_for_by_its_name():
    async with answering(200, json.dumps(group("v1")).encode()) as (api, asked):
        await served_version(api, GROUP, WANTED)
    assert asked == ["GET /apis/resource.k8s.io HTTP/1.1"]


@pytest.mark.parametrize("status", [401, 403])
async def test_to_be_refused_is_not_the_same_as_not_served(status):
    with pytest.raises(KubeForbidden):
        await served(status, {"kind": "Status", "code": status, "message": "no"})


@pytest.mark.parametrize(
    ("status", "body"), [(500, b"x"), (503, b""), (504, b""), (400, b""), (200, b"<html>"), (200, {"kind": "PodList"})]
)
async def test_a_server_that_does_not_say_is_unreadable(status, body):
    with pytest.raises(KubeUnreadable):
        await served(status, body)
