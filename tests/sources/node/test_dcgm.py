"""A dcgm-exporter on the node: read, late, too large, wrong, or not there."""

import asyncio
import itertools
from collections.abc import Callable
from contextlib import aclosing, asynccontextmanager

import pytest

from vgpuscope.formats.kube.pods import decode_pods
from vgpuscope.logic.node.dcgm import DcgmReadings
from vgpuscope.model.activity import Activity, DcgmPage, DcgmSeries
from vgpuscope.model.errors import DcgmNotFound, DcgmUnreadable
from vgpuscope.model.pod import Pod
from vgpuscope.sources.node.dcgm import DcgmExporter, exporter_url, page_url

PAGE = b'DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-a",GPU_I_ID="3"} 0.5\n'


@asynccontextmanager
async def exporter(body: bytes | None, *, status: int = 200):
    """Serves one page; None: it accepts and never answers."""

    async def talk(reader, writer):
        try:
            await reader.readuntil(b"\r\n\r\n")
            if body is None:
                await asyncio.Event().wait()
            writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(body or b'')}\r\n\r\n".encode() + (body or b""))
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/metrics"
    finally:
        server.close()


async def first(url: str, **more):
    async with aclosing(DcgmExporter(lambda: url, clock=lambda: 0.0, **more).follow()) as readings:
        return await anext(readings)


def read(body: bytes | None, *, status: int = 200, **more):
    async def go():
        async with exporter(body, status=status) as url:
            return await first(url, **more)

    return asyncio.run(go())


def test_the_page_becomes_samples_by_gpu_and_instance():
    series = DcgmSeries(("GPU-a", 3), "sm", 1.0)
    assert read(PAGE) == DcgmPage([(series, 0.5)], at=0.0, interrupted=True)


def test_a_page_that_is_too_large_is_unreadable():
    with pytest.raises(DcgmUnreadable, match="larger than 16 MiB"):
        read(b"x" * (17 * 1024 * 1024))


def test_a_refusal_is_unreadable():
    with pytest.raises(DcgmUnreadable, match="503"):
        read(b"", status=503)


def test_an_exporter_that_does_not_answer_is_given_up_at_the_deadline():
    with pytest.raises(DcgmUnreadable, match="no answer within"):
        read(None, timeout=0.2)


def test_nobody_listening_is_unreadable():
    with pytest.raises(DcgmUnreadable):
        asyncio.run(first("http://127.0.0.1:1/metrics"))


async def values_of(pages: list[bytes | None], find: Callable[[], str] | None = None) -> list[float | None]:
    """What an exporter's reader makes of one page after the other; None: the exporter does not answer."""
    body: list[bytes | None] = [b""]

    async def talk(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        if body[0] is not None:
            writer.write(
                f"HTTP/1.1 200 X\r\nconnection: close\r\ncontent-length: {len(body[0])}\r\n\r\n".encode() + body[0]
            )
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    at = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    times = itertools.count(0.0, 60.0)
    reader = DcgmExporter(lambda: at + (find() if find else ""), poll=0.0, clock=lambda: next(times))
    readings, found = DcgmReadings(), []
    for body[0] in pages:
        try:
            async with aclosing(reader.follow()) as read_pages:
                places = readings.take(await anext(read_pages)).places
                found.append(places.get(("GPU-a", None), Activity()).sm)
        except DcgmUnreadable:
            found.append(None)
    server.close()
    return found


RATIO, PERCENT = (b'DCGM_FI_PROF_SM_UTIL_RATIO{UUID="GPU-a"} %g\n' % value for value in (0.9, 50))


def test_an_exporter_that_was_away_may_have_come_back_with_another_scale():
    assert asyncio.run(values_of([PERCENT] * 4 + [RATIO] * 4))[4:] == [None] * 4  # it has not been away
    found = asyncio.run(values_of([PERCENT] * 4 + [None] + [RATIO] * 3))
    assert found == [None, None, 0.5, 0.5, None, None, None, 0.9]


def test_an_exporter_at_another_address_may_have_another_scale():
    addresses = iter(["/a"] * 4 + ["/b"] * 3)
    found = asyncio.run(values_of([PERCENT] * 4 + [RATIO] * 3, lambda: next(addresses)))
    assert found == [None, None, 0.5, 0.5, None, None, 0.9]


@pytest.mark.parametrize(
    ("setting", "page"),
    [
        ("http://10.0.0.1:9400", "http://10.0.0.1:9400/metrics"),
        ("http://10.0.0.1:9400/", "http://10.0.0.1:9400/metrics"),
        ("http://10.0.0.1:9400/gpu/metrics", "http://10.0.0.1:9400/gpu/metrics"),
    ],
)
def test_an_address_without_a_path_means_metrics(setting, page):
    assert page_url(setting) == page


def named(name: str, address: str | None, phase: str = "Running") -> Pod:
    return Pod(uid=name, namespace="gpu-operator", name=name, phase=phase, dcgm=address)


def test_auto_takes_the_only_exporter_that_the_pod_source_names():
    pods = (named("dcgm-x", "10.1.2.3:9400"), named("train", None), named("old", "10.1.2.9:9400", "Failed"))
    assert exporter_url(pods) == "http://10.1.2.3:9400/metrics"


@pytest.mark.parametrize("pods", [None, (), (named("train", None),)])
def test_auto_finds_nothing_where_the_pod_source_names_no_exporter(pods):
    with pytest.raises(DcgmNotFound):
        exporter_url(pods)


def test_auto_does_not_choose_between_two_exporters():
    with pytest.raises(DcgmNotFound, match="gpu-operator/a, gpu-operator/b"):
        exporter_url((named("b", "10.1.2.4:9400"), named("a", "10.1.2.3:9400")))


def pod_json(image: str, *, ports: str = "", ip: str = "10.1.2.3", phase: str = "Running") -> bytes:
    return (
        f'{{"kind":"PodList","items":[{{"metadata":{{"name":"x","uid":"u"}},'
        f'"spec":{{"containers":[{{"name":"exporter","image":"{image}"{ports}}}]}},'
        f'"status":{{"phase":"{phase}","podIP":"{ip}"}}}}]}}'
    ).encode()


@pytest.mark.parametrize(
    ("data", "address"),
    [
        (pod_json("nvcr.io/nvidia/k8s/dcgm-exporter:4.2.3-4.1.3-ubuntu22.04"), "10.1.2.3:9400"),
        (pod_json("dcgm-exporter"), "10.1.2.3:9400"),
        (pod_json("mirror.example/dcgm-exporter@sha256:00", ip="fd00::1"), "[fd00::1]:9400"),
        (pod_json("x/dcgm-exporter:1", ports=',"ports":[{"containerPort":9401,"name":"metrics"}]'), "10.1.2.3:9401"),
        (pod_json("x/dcgm-exporter:1", phase="Pending"), None),
        (pod_json("x/not-dcgm-exporter-really:1"), None),
        (pod_json("x/dcgm-exporter:1", ip=""), None),
    ],
)
def test_a_pod_that_runs_the_exporters_image_is_one(data, address):
    assert decode_pods(data).items[0].dcgm == address
