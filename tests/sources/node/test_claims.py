"""Requests for slices and claims, and answers that are none. A real API server: tests/contract/test_agent_dra.py."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from tests.paths import TESTS
from vgpuscope.model.errors import KubeForbidden, KubeUnreadable
from vgpuscope.sources.node.claims import KubeClaims

GROUP = "/apis/resource.k8s.io"
SLICES = f"{GROUP}/v1/resourceslices"
CLAIM = f"{GROUP}/v1/namespaces/ml/resourceclaims/whole"


def served(*versions):
    named = [{"groupVersion": f"resource.k8s.io/{one}", "version": one} for one in versions]
    return 200, {"kind": "APIGroup", "name": "resource.k8s.io", "versions": named}


def slices(**metadata):
    found = json.loads((TESTS / "fixtures/dra/nvidia_gpus.json").read_text())
    return 200, found | {"metadata": metadata}


def claim(number=0):
    return 200, json.loads((TESTS / "fixtures/dra/claims.json").read_text())["items"][number]


@asynccontextmanager
async def server(tmp_path, answers):
    """Answers by path, each with a status and an object; what is not among them is a 404. Notes each request."""
    asked = []

    async def talk(reader, writer):
        _, target, _ = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].decode().split()
        asked.append(target)
        status, found = answers.get(target.partition("?")[0], (404, {}))
        body = json.dumps(found).encode()
        writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as listening:
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        }
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(config))
        source = KubeClaims(node="n1", kubeconfig=str(path), timeout=60.0)
        try:
            yield source, asked
        finally:
            await source.close()


async def test_only_slices_of_the_node_and_only_the_claim_are_asked_for(tmp_path):
    async with server(tmp_path, {GROUP: served("v1"), SLICES: slices(), CLAIM: claim()}) as (source, asked):
        (one,) = await source.slices()
        found = await source.claim("ml/whole")
    assert [device.name for device in one.devices] == ["gpu-0", "gpu-1"]
    assert [device.device for device in found.devices] == ["gpu-0"]
    assert asked == [GROUP, f"{SLICES}?fieldSelector=spec.nodeName%3Dn1&limit=500&resourceVersion=0", CLAIM]


async def test_slices_without_a_node_are_asked_for_by_that_and_devices_say_where_they_are(tmp_path):
    status, found = slices()
    spec = found["items"][0]["spec"]
    del spec["nodeName"]
    spec["perDeviceNodeSelection"] = True
    for device, node in zip(spec["devices"], ("n1", "n2"), strict=True):
        device["nodeName"] = node
    async with server(tmp_path, {GROUP: served("v1"), SLICES: (status, found)}) as (source, asked):
        (one,) = await source.slices_without_node()
    assert [(device.name, device.node) for device in one.devices] == [("gpu-0", "n1"), ("gpu-1", "n2")]
    assert asked == [GROUP, f"{SLICES}?fieldSelector=spec.nodeName%3D&limit=500&resourceVersion=0"]


async def test_the_newest_version_that_is_served_is_used(tmp_path):
    old = f"{GROUP}/v1beta1/resourceslices"
    async with server(tmp_path, {GROUP: served("v1beta1"), old: slices()}) as (source, _):
        assert len(await source.slices()) == 1


async def test_a_version_that_went_with_an_upgrade_is_looked_for_again(tmp_path):
    answers = {GROUP: served("v1beta1"), f"{GROUP}/v1beta1/resourceslices": slices()}
    async with server(tmp_path, answers) as (source, _):
        await source.slices()
        del answers[f"{GROUP}/v1beta1/resourceslices"]
        answers |= {GROUP: served("v1"), SLICES: slices()}
        with pytest.raises(KubeUnreadable):
            await source.slices()
        assert len(await source.slices()) == 1


async def test_a_claim_that_is_gone_is_none(tmp_path):
    async with server(tmp_path, {GROUP: served("v1")}) as (source, _):
        assert await source.claim("ml/whole") is None


async def test_a_server_without_dra_is_told_from_one_without_slices(tmp_path):
    async with server(tmp_path, {}) as (source, _):
        with pytest.raises(KubeUnreadable, match="serves none of"):
            await source.slices()
    empty = {"kind": "ResourceSliceList", "items": []}
    async with server(tmp_path, {GROUP: served("v1"), SLICES: (200, empty)}) as (source, _):
        assert await source.slices() == ()


@pytest.mark.parametrize(
    ("status", "error"), [(403, KubeForbidden), (400, KubeUnreadable), (410, KubeUnreadable), (500, KubeUnreadable)]
)
async def test_a_refusal_is_an_error_of_ours(tmp_path, status, error):
    refusal = status, {"kind": "Status", "message": "no"}
    async with server(tmp_path, {GROUP: served("v1"), SLICES: refusal, CLAIM: refusal}) as (source, _):
        with pytest.raises(error, match="no"):
            await source.slices()
        with pytest.raises(error, match="no"):
            await source.claim("ml/whole")


async def test_a_list_without_an_end_is_refused(tmp_path):
    async with server(tmp_path, {GROUP: served("v1"), SLICES: slices(**{"continue": "again"})}) as (source, _):
        with pytest.raises(KubeUnreadable, match="does not end"):
            await source.slices()


async def test_a_name_cannot_lead_to_another_path(tmp_path):
    async with server(tmp_path, {GROUP: served("v1")}) as (source, asked):
        await source.claim("ml/x/../y?watch=1#z")
    assert asked[-1] == f"{GROUP}/v1/namespaces/ml/resourceclaims/x%2F..%2Fy%3Fwatch%3D1%23z"
