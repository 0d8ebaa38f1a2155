"""What is scraped: the list as given, or what a real-enough API server says of Services' endpoints."""

import asyncio
import json
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from vgpuscope.formats.kube.endpoints import Endpoint, Port, decode_endpoints
from vgpuscope.model.errors import ConfigInvalid, KubeForbidden, KubeUnreadable
from vgpuscope.sources.fleet.targets import ServicePort, ServiceTargets, StaticTargets, parse_service, urls_of
from vgpuscope.sources.kube import KubeClient


def endpoint(address, *, ready=True, uid=None):
    ref = {} if uid is None else {"targetRef": {"kind": "Pod", "name": f"p-{uid}", "uid": uid}}
    return {"addresses": [address], "conditions": {"ready": ready}, "nodeName": "n", **ref}


def piece(*endpoints, ports=({"name": "metrics", "port": 9394, "protocol": "TCP"},), kind="IPv4", name="s"):
    meta = {"name": name, "namespace": "gpu", "uid": f"uid-{name}"}
    return {"metadata": meta, "addressType": kind, "endpoints": list(endpoints), "ports": list(ports)}


def listed(*pieces, more=""):
    meta = {"resourceVersion": "1", **({"continue": more} if more else {})}
    return 200, {"kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1", "metadata": meta, "items": pieces}


FORBIDDEN = 403, {"kind": "Status", "code": 403, "message": "endpointslices is forbidden: cannot list"}


@asynccontextmanager
async def api_server(answers):
    """An API server: `answers` gives status and body by Service, and may be changed; a list: page after page."""
    asked = []

    async def talk(reader, writer):
        url = urlsplit((await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode())
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        asked.append((url.path, query))
        service = url.path.split("/")[5] + "/" + query["labelSelector"].removeprefix("kubernetes.io/service-name=")
        found = answers[service]
        status, body = found[int(query.get("continue", 0))] if isinstance(found, list) else found
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(text)}\r\nconnection: close\r\n\r\n".encode() + text)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with httpx2.AsyncClient(base_url=base, timeout=None) as client:
            yield KubeClient(client, timeout=60.0), asked


async def targets(answers, *services):
    async with api_server(answers) as (api, _):
        return await ServiceTargets(services, api=api)()


async def test_a_list_that_was_given_stays_as_it_is():
    assert await StaticTargets(["node1", "http://node2:80/metrics"])() == ("node1", "http://node2:80/metrics")


def test_an_address_that_is_none_is_refused_at_once():
    with pytest.raises(ConfigInvalid):
        StaticTargets(["node1", "ftp://node2"])


async def test_targets_are_the_ready_endpoints_of_the_service():
    answer = listed(piece(endpoint("10.0.0.2"), endpoint("10.0.0.1"), endpoint("10.0.0.3", ready=False)))
    async with api_server({"gpu/agent": answer}) as (api, asked):
        assert await ServiceTargets(["gpu/agent:9394"], api=api)() == ("http://10.0.0.1:9394", "http://10.0.0.2:9394")
    ((path, query),) = asked
    assert path == "/apis/discovery.k8s.io/v1/namespaces/gpu/endpointslices"
    assert query["labelSelector"] == "kubernetes.io/service-name=agent"


async def test_an_endpoint_that_does_not_say_whether_it_is_ready_is_taken_as_ready():
    bare = {"addresses": ["10.0.0.1"]}
    assert await targets({"gpu/agent": listed(piece(bare))}, "gpu/agent:9394") == ("http://10.0.0.1:9394",)


async def test_all_pages_are_read():
    pages = [listed(piece(endpoint("10.0.0.1"), name="a"), more="1"), listed(piece(endpoint("10.0.0.2"), name="b"))]
    assert len(await targets({"gpu/agent": pages}, "gpu/agent:9394")) == 2


async def test_a_pod_with_two_addresses_is_scraped_once():
    four = piece(endpoint("10.0.0.1", uid="a"), name="v4")
    six = piece(endpoint("fd00::1", uid="a"), endpoint("fd00::2", uid="b"), kind="IPv6", name="v6")
    found = await targets({"gpu/agent": listed(six, four)}, "gpu/agent:9394")
    assert found == ("http://10.0.0.1:9394", "http://[fd00::2]:9394")


@pytest.mark.parametrize(
    ("asked", "ports", "url"),
    [
        ("9394", [Port(number=9394)], "http://10.0.0.1:9394"),
        ("metrics", [Port(number=1, name="web"), Port(number=2, name="metrics")], "http://10.0.0.1:2"),
        ("80", [Port(number=9394, name="metrics")], "http://10.0.0.1:9394"),  # the Service's own number
        ("80", [Port(number=1), Port(number=2)], "http://10.0.0.1:80"),
        ("80", [], "http://10.0.0.1:80"),
        ("tls", [Port(number=9394, name="tls", tls=True)], "https://10.0.0.1:9394"),
        ("nosuch", [Port(number=9394, name="metrics")], None),
    ],
)
def test_a_port_may_be_a_number_or_a_name(asked, ports, url):
    found = urls_of(ServicePort("gpu", "agent", asked), [Endpoint(pod="", address="10.0.0.1", ports=tuple(ports))])
    assert found == (() if url is None else (url,))


def test_a_port_that_speaks_tls_says_so_by_name_or_protocol():
    ports = [{"name": "https-metrics", "port": 1}, {"name": "m", "port": 2, "appProtocol": "HTTPS"}, {"port": 3}]
    page = decode_endpoints(json.dumps(listed(piece(endpoint("10.0.0.1"), ports=ports))[1]).encode())
    assert [port.tls for port in page.items[0][0].ports] == [True, True, False]


async def test_the_list_is_asked_for_again_only_after_a_while():
    async with api_server({"gpu/agent": listed(piece(endpoint("10.0.0.1")))}) as (api, asked):
        found = ServiceTargets(["gpu/agent:9394"], api=api)
        assert await found() == await found()
        assert len(asked) == 1
        eager = ServiceTargets(["gpu/agent:9394"], api=api, refresh=0.0)
        await eager()
        await eager()
        assert len(asked) == 3


@pytest.mark.parametrize("trouble", [(500, b"no"), (504, b"slow"), (410, b"gone"), (200, b"<html>"), FORBIDDEN])
async def test_the_last_good_list_stays_while_the_api_server_is_in_trouble(trouble):
    answers = {"gpu/agent": listed(piece(endpoint("10.0.0.1")))}
    async with api_server(answers) as (api, _):
        found = ServiceTargets(["gpu/agent:9394"], api=api, refresh=0.0)
        good = await found()
        answers["gpu/agent"] = trouble
        assert await found() == good
        assert [fault.part for fault in found.faults()] == ["service gpu/agent:9394"]
        answers["gpu/agent"] = listed()
        assert (await found(), found.faults()) == ((), ())


async def test_what_was_never_allowed_is_named():
    with pytest.raises(KubeForbidden, match="endpointslices is forbidden"):
        await targets({"gpu/agent": FORBIDDEN}, "gpu/agent:9394")


async def test_one_service_that_fails_does_not_hide_the_other():
    answers = {"gpu/agent": listed(piece(endpoint("10.0.0.1"))), "dcgm/exporter": FORBIDDEN}
    async with api_server(answers) as (api, _):
        found = ServiceTargets(["dcgm/exporter:9400", "gpu/agent:9394"], api=api)
        assert await found() == ("http://10.0.0.1:9394",)
        assert [(fault.part, fault.code) for fault in found.faults()] == [
            ("service dcgm/exporter:9400", "KUBE_FORBIDDEN")
        ]


async def test_a_slice_that_cannot_be_read_is_not_passed_over():
    broken = piece(endpoint("10.0.0.1")) | {"endpoints": "none"}
    with pytest.raises(KubeUnreadable, match="EndpointSlice/gpu/s"):
        await targets({"gpu/agent": listed(broken)}, "gpu/agent:9394")


async def test_an_api_server_that_is_down_is_unreadable():
    async with httpx2.AsyncClient(base_url="http://127.0.0.1:1") as client:
        with pytest.raises(KubeUnreadable):
            await ServiceTargets(["gpu/agent:9394"], api=KubeClient(client, timeout=1.0))()


@pytest.mark.parametrize(
    "text", ["", "agent", "agent:9394", "gpu/agent", "gpu/agent:", "a/b/c:1", "GPU/agent:1", "a/b:1?"]
)
def test_a_service_must_be_written_in_full(text):
    with pytest.raises(ConfigInvalid, match="not a Service"):
        parse_service(text)
