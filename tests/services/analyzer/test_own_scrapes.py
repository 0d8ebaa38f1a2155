"""Own scrapes against servers that behave and servers that do not."""

import asyncio
import contextlib
import gzip
import time
from typing import Any

import pytest

from tests.loopclock import forward
from tests.waiting import until
from vgpuscope.catalog import agent as m
from vgpuscope.model.analysis import Fault
from vgpuscope.model.errors import KubeForbidden, SourceDown
from vgpuscope.services.analyzer.sources.own_scrapes import ScrapeSource
from vgpuscope.sources.fleet import scrape

DEADLINE = 30.0

INTERVAL = 0.2
HUNG = object()
BEGUN = object()


def page(uuid="GPU-1", util=0.5, more=""):
    return f'{m.GPU_UTILIZATION.name}{{node="n1",gpu_uuid="{uuid}"}} {util}\n{more}'.encode()


class Exporter:
    """A target: what it answers can be changed at any time."""

    def __init__(self, body):
        self.body, self.status, self.kind, self.packed, self.cut = body, "200 OK", "text/plain", False, 0
        self.asked = []
        self.address = ""

    @property
    def url(self):
        return f"http://{self.address}"

    def answer(self, request):
        body = gzip.compress(self.body) if self.packed and "gzip" in request else self.body
        encoding = "Content-Encoding: gzip\r\n" if self.packed else ""
        head = f"HTTP/1.1 {self.status}\r\nContent-Type: {self.kind}\r\n{encoding}Content-Length: {len(body)}\r\n\r\n"
        return head.encode() + body[: len(body) - self.cut]

    async def talk(self, reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                request = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.asked.append(request)
                if self.body is HUNG:
                    await reader.read()
                    break
                if self.body is BEGUN:
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nwhat")
                    await reader.read()
                    break
                writer.write(self.answer(request))
                await writer.drain()
                if self.cut:
                    break
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def exporters(*bodies):
    async with contextlib.AsyncExitStack() as stack:
        found = []
        for body in bodies:
            one = Exporter(body)
            serving: set = set()

            async def talk(reader, writer, one=one, serving=serving):
                serving.add(asyncio.current_task())
                await one.talk(reader, writer)

            server = await asyncio.start_server(talk, "127.0.0.1", 0)
            one.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            stack.push_async_callback(_stop, server, serving)
            found.append(one)
        yield found


async def _stop(server, serving):
    server.close()
    await asyncio.gather(*serving)


@contextlib.asynccontextmanager
async def source(*urls, targets=None, **options):
    """A source that scrapes; its targets are a list that a test may change."""
    wanted = list(urls)

    async def listed():
        return tuple(wanted)

    made: Any = ScrapeSource(targets=targets or listed, **{"interval": INTERVAL, "keep": 60.0, **options})
    made.wanted = wanted
    made.running = running = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        running.cancel()
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await running  # raises what it fell by, if it did
        finally:
            await made.close()


async def reading_when(made, condition, *, seconds=60.0, ahead=0.0):
    """The first reading of which the condition is true."""

    async def read():
        with contextlib.suppress(SourceDown):
            reading = await made.read(end=time.time() + ahead, seconds=seconds)
            return reading if condition(reading) else None

    return await until(read)


def at_once(_):
    """All targets at the beginning of each interval, in order."""
    return 0.0


def urls(targets):
    return [target.url for target in targets]


def parts(reading):
    return [fault.part for fault in reading.faults]


def by_gpu(reading):
    return {track.gpu_id: track for track in reading.tracks}


def samples(reading, gpu="GPU-1"):
    found = by_gpu(reading).get(gpu)
    return found.terms["gpu_util"].samples if found else 0


async def test_every_scrape_is_a_sample():
    async with exporters(page()) as (one,), source(one.url) as made:
        reading = await reading_when(made, lambda r: samples(r) >= 3 and not r.faults)
    stat = by_gpu(reading)["GPU-1"].terms["gpu_util"]
    assert (stat.mean, stat.max, stat.p95) == (0.5, 0.5, 0.5)
    assert stat.samples <= len(one.asked)
    assert (reading.window.interval, reading.schemas, reading.faults) == (INTERVAL, ("vgpuscope",), ())
    assert all(request.startswith("GET /metrics HTTP/1.1") for request in one.asked)


async def test_a_connection_is_kept_between_scrapes():
    ahead = 0.0
    forward(ahead)
    options = {"interval": DEADLINE, "timeout": DEADLINE, "clock": lambda: time.time() + ahead, "moment": at_once}
    async with exporters(page()) as (one,), source(one.url, **options) as made:
        connections = []
        original = one.talk

        async def talk(reader, writer):
            connections.append(writer)
            await original(reader, writer)

        one.talk = talk
        for number in range(1, 5):
            await reading_when(made, lambda r, number=number: samples(r) == number, seconds=600.0, ahead=ahead)
            ahead += DEADLINE
            forward(DEADLINE)
    assert len(one.asked) >= 4
    assert len(connections) == 1


@pytest.mark.parametrize("typed", ["{}", "http://{}", "http://{}/", "http://{}/metrics"])
async def test_a_target_may_be_written_with_or_without_its_path(typed):
    async with exporters(page()) as (one,), source(typed.format(one.address)) as made:
        reading = await reading_when(made, samples)
    assert reading.source == "own scrapes of 1 targets"


async def test_the_same_target_written_twice_is_scraped_once():
    async with exporters(page()) as (one,), source(one.address, f"{one.url}/metrics") as made:
        reading = await reading_when(made, lambda r: samples(r) >= 2)
    assert len(reading.tracks) == 1


@pytest.mark.parametrize("behaviour", [HUNG, BEGUN])
async def test_a_target_that_hangs_costs_only_itself(behaviour):
    async with exporters(page(), *[behaviour] * 12) as found, source(*urls(found)) as made:
        reading = await reading_when(made, lambda r: samples(r) >= 8 and len(r.faults) == 12)
    assert {fault.part for fault in reading.faults} == set(urls(found[1:]))
    assert {fault.code for fault in reading.faults} == {"SOURCE_DOWN"}


@pytest.mark.parametrize("behaviour", [HUNG, BEGUN])
async def test_nobody_waits_for_a_target_that_does_not_answer(behaviour):
    async with (
        exporters(behaviour, page()) as found,
        source(*urls(found), interval=2 * DEADLINE, timeout=DEADLINE, moment=at_once) as made,
    ):
        await reading_when(made, samples)
        assert [target.error for target in made._followed()] == [None, None]  # it is still being waited for


async def test_a_target_that_falls_leaves_a_gap_and_comes_back():
    async with exporters(page(util=1), page("GPU-2")) as (one, other), source(one.url, other.url) as made:
        await reading_when(made, samples)
        one.status = "503 Service Unavailable"
        fault = Fault(part=one.url, code="SOURCE_DOWN", message="answers 503 Service Unavailable")
        down = await reading_when(made, lambda r: r.faults == (fault,))
        asked = len(one.asked)
        await until(lambda: len(one.asked) > asked + 2)
        one.status = "200 OK"
        before = samples(down)
        back = await reading_when(made, lambda r: not r.faults and samples(r) > before)
    assert by_gpu(back)["GPU-1"].terms["gpu_util"].mean == 1.0
    assert samples(back) < len(one.asked) - 2


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        ({"status": "401 Unauthorized"}, "401"),
        ({"status": "302 Found"}, "302"),
        ({"kind": "text/html; charset=utf-8"}, "HTML"),
        ({"cut": 5}, ""),
        ({"packed": True, "body": b"x" * (2 << 20)}, "larger than"),
        ({"body": b"x" * (2 << 20)}, "larger than"),
        ({"body": HUNG}, "no whole page within"),
    ],
)
async def test_a_page_that_cannot_be_had_is_a_fault_and_no_sample(monkeypatch, spoil, said):
    monkeypatch.setattr(scrape, "_LARGEST", 1 << 20)
    async with exporters(page(), page("GPU-2")) as (bad, good), source(bad.url, good.url) as made:
        for name, value in spoil.items():
            setattr(bad, name, value)
        told = lambda r: parts(r) == [bad.url] and said in r.faults[0].message  # noqa: E731
        reading = await reading_when(made, lambda r: told(r) and samples(r, "GPU-2") >= 2)
    assert set(by_gpu(reading)) == {"GPU-2"}


async def test_packed_pages_are_unpacked():
    async with exporters(page()) as (one,), source(one.url) as made:
        one.packed = True
        assert samples(await reading_when(made, samples))


async def test_a_page_that_is_packed_piece_by_piece_is_read_to_its_end():
    body = gzip.compress(b"# a page in three members\n") + gzip.compress(page()) + gzip.compress(page("GPU-2"))
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    async with exporters(page()) as (one,), source(one.url) as made:
        one.answer = lambda _: head + body
        assert set(by_gpu(await reading_when(made, lambda r: samples(r, "GPU-2")))) == {"GPU-1", "GPU-2"}


@pytest.mark.parametrize(
    "body",
    [b"nono", gzip.compress(page())[:-9], b"", gzip.compress(page()) + gzip.compress(page())[:-9]],
    ids=["none", "cut off", "empty", "second cut off"],  # bytes with the time in them would name the tests
)
async def test_packing_that_is_none_or_cut_off_is_a_fault(body):
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    async with exporters(page()) as (one,), source(one.url) as made:
        one.answer = lambda _: head + body
        await until(lambda: made._followed() and made._followed()[0].error)
        with pytest.raises(SourceDown, match="none is up"):
            await made.read(end=time.time(), seconds=60)


async def test_credentials_are_sent_and_never_shown():
    async with exporters(page()) as (one,), source(f"http://me:hidden@{one.address}") as made:
        await reading_when(made, samples)
        one.status = "403 Forbidden"
        reading = await reading_when(made, lambda r: r.faults and "403" in r.faults[0].message)
    assert "authorization: basic" in one.asked[0].lower()
    assert "hidden" not in repr(reading)


async def test_a_token_goes_to_every_target_and_not_to_where_it_redirects():
    async with exporters(page(), page("GPU-2")) as (one, other), source(one.url, token="a-token") as made:
        await reading_when(made, samples)
        one.answer = lambda _: f"HTTP/1.1 302 Found\r\nLocation: {other.url}\r\nContent-Length: 0\r\n\r\n".encode()
        await reading_when(made, lambda r: r.faults and "302" in r.faults[0].message)
    assert "authorization: bearer a-token" in one.asked[0].lower()
    assert other.asked == []


async def test_a_proxy_of_the_environment_is_not_asked(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with exporters(page()) as (one,), source(one.url) as made:
        assert samples(await reading_when(made, samples))


async def test_a_target_that_left_is_no_fault_and_its_samples_stay_until_they_are_old():
    ahead = [0.0]
    both = {"GPU-1", "GPU-2"}
    async with (
        exporters(page(), page("GPU-2")) as (one, other),
        source(one.url, other.url, clock=lambda: time.time() + ahead[0]) as made,
    ):
        await reading_when(made, lambda r: set(by_gpu(r)) == both)
        made.wanted.remove(one.url)
        one.status = "503 Gone"
        left = await reading_when(made, lambda r: r.source == "own scrapes of 1 targets" and not r.faults)
        assert set(by_gpu(left)) == both
        ahead[0] = 100.0
        await reading_when(made, lambda r: set(by_gpu(r)) == {"GPU-2"}, ahead=100.0)
        await until(lambda: len(made._known) == 1)


async def test_new_targets_are_taken_up():
    async with exporters(page(), page("GPU-2")) as (one, other), source(one.url) as made:
        await reading_when(made, samples)
        made.wanted.append(other.url)
        await reading_when(made, lambda r: samples(r, "GPU-2"))


async def test_when_targets_cannot_be_listed_the_known_ones_are_scraped_on():
    async with exporters(page()) as (one,):
        wrong: list = []

        async def targets():
            if wrong:
                raise wrong[0]
            return (one.url,)

        async with source(targets=targets) as made:
            await reading_when(made, samples)
            wrong.append(KubeForbidden("403 no"))
            fault = Fault(part="targets", code="KUBE_FORBIDDEN", message="403 no")
            reading = await reading_when(made, lambda r: r.faults == (fault,))
            more = samples(reading) + 2
            await reading_when(made, lambda r: samples(r) >= more)


async def test_what_discovery_could_not_find_out_is_a_fault():
    fault = Fault(part="service a/b:1", code="KUBE_UNREADABLE", message="down")
    async with exporters(page()) as (one,), source(one.url, target_faults=lambda: (fault,)) as made:
        await reading_when(made, lambda r: samples(r) and r.faults == (fault,))


async def test_it_is_ready_while_a_target_answers():
    async with exporters(page()) as (one,), source(one.url) as made:
        with pytest.raises(SourceDown):
            await made.ready()
        await reading_when(made, samples)
        await made.ready()
        one.status = "503 Service Unavailable"
        await until(lambda: made._followed()[0].error)
        with pytest.raises(SourceDown, match="1 of 1 targets are down, none is up"):
            await made.ready()


async def test_targets_that_do_not_answer_are_listed_with_their_last_answer_and_why():
    clock = [1000.0]
    async with exporters(page(), page("GPU-2")) as (one, two):
        options = {"clock": lambda: clock[0], "interval": INTERVAL}
        async with source(one.url, two.url, "127.0.0.1:1", **options) as made:
            # A scrape here has little time: on a busy machine one may fail first.
            await until(lambda: made.tried and made._known[one.url].up and made._known[two.url].up)
            reading = await made.read(end=1000.0, seconds=60)
            dead = "http://127.0.0.1:1"
            assert {(t.name, t.up, t.since) for t in reading.targets} == {
                (one.url, True, None),
                (two.url, True, None),
                (dead, False, None),
            }
            assert {track.gpu_id: track.target for track in reading.tracks} == {"GPU-1": one.url, "GPU-2": two.url}
            two.body = HUNG
            clock[0] = 1020.0
            await until(lambda: not made._known[two.url].up)
            (fallen,) = [t for t in (await made.read(end=1020.0, seconds=60)).targets if t.name == two.url]
            assert (fallen.up, fallen.since) == (False, 1000.0)
            assert "no whole page within" in fallen.reason


async def test_a_target_that_was_never_scraped_is_expected_and_does_not_answer():
    async with exporters(page(), HUNG) as (one, two), source(one.url, two.url, interval=3600.0) as made:
        await until(lambda: len(made._followed()) == 2)
        await made._scrape(made._known[one.url])
        reading = await made.read(end=time.time() + 1, seconds=60)
        assert not made.tried
    assert [(t.name, t.up, t.reason) for t in reading.targets] == [
        (one.url, True, ""),
        (two.url, False, "has not been scraped yet"),
    ]


async def test_nothing_at_all_is_source_down_and_says_why():
    async def read(*urls, **options):
        async with source(*urls, **options) as made:
            await until(lambda: made._scrapes >= len(urls) and (not urls or made._followed()[0].error))
            await asyncio.sleep(0)
            await made.read(end=time.time(), seconds=60)

    with pytest.raises(SourceDown, match="no targets"):
        await read()
    with pytest.raises(SourceDown, match=r"1 of 1 targets are down, none is up; http://127\.0\.0\.1:1: "):
        await read("127.0.0.1:1")


async def test_a_fleet_without_gpus_is_an_empty_reading():
    async with exporters(b"other 1\n") as (one,), source(one.url) as made:
        reading = await reading_when(made, lambda r: True)
    assert (reading.tracks, reading.faults) == ((), ())


async def test_an_agent_that_has_stopped_sampling_gives_no_new_samples():
    frozen = f'{m.SAMPLE_TIME.name}{{node="n1"}} 7\n'
    async with exporters(page(more=frozen)) as (one,), source(one.url, frozen=0.0) as made:
        await reading_when(made, lambda r: r.faults and "has taken no sample for" in r.faults[0].message)
        one.body = page(more=frozen.replace("7", "8"))
        await reading_when(made, lambda r: not r.faults)


async def test_a_longer_window_is_kept_from_then_on():
    async with exporters(page()) as (one,), source(one.url, keep=10.0) as made:
        await reading_when(made, samples, seconds=120.0)
        assert made.keep == 120.0


async def test_reading_lets_others_have_their_turn():
    async with exporters(page(), page("GPU-2"), page("GPU-3")) as found, source(*urls(found), turn=0.0) as made:
        await reading_when(made, lambda r: len(r.tracks) == 3)
        turns: list = []
        asyncio.get_running_loop().call_soon(turns.append, 1)
        await made.read(end=time.time(), seconds=60)
        assert turns


async def test_a_target_that_is_no_address_is_told():
    async with source("ftp://x") as made:
        await until(lambda: made._lost)
        with pytest.raises(SourceDown, match="not the address"):
            await made.ready()


async def test_before_the_targets_were_listed_it_is_not_said_that_there_are_none():
    listing = asyncio.Event()

    async def slowly():
        await listing.wait()
        return ()

    async with source(targets=slowly) as made:
        with pytest.raises(SourceDown, match="no target has been scraped yet"):
            await made.ready()
        listing.set()
        await until(lambda: made._listed)
        with pytest.raises(SourceDown, match="there are no targets"):
            await made.ready()
