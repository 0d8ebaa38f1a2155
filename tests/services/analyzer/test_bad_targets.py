"""One scrape target that lies, floods, drips or never ends costs its own samples and nothing else."""

import asyncio
import contextlib
import gzip
import logging
import re

import msgspec
import pytest

from tests.fuzz import survives
from tests.loopclock import forward
from tests.looplag import loop_lag
from tests.paths import TESTS
from tests.services.analyzer.test_own_scrapes import exporters, page, reading_when, source
from tests.waiting import until
from vgpuscope.catalog import agent as m
from vgpuscope.formats.prom.text import PageReader
from vgpuscope.logic.fleet import scrape_window
from vgpuscope.logic.fleet.assembly import assemble
from vgpuscope.logic.fleet.scoring import ScoreWeights, Thresholds
from vgpuscope.logic.fleet.scrape_window import WANTED, Pages
from vgpuscope.logic.fleet.verdict import VerdictRules
from vgpuscope.model.analysis import Analysis, Reading, Window
from vgpuscope.model.errors import ScopeError
from vgpuscope.views.fleet.results.results import rows

pytestmark = pytest.mark.attack

UTIL = m.GPU_UTILIZATION.name
LONGEST = 1.0  # seconds of CPU time between two turns of the event loop; some hundredths on a quiet machine
LONG = 1e6  # seconds
GOLDEN = (TESTS / "golden/node.prom").read_bytes()
BAD_LINES = {
    "no value": f"{UTIL}\n",
    "a brace without its pair": f"{UTIL} 5}}\n",
    "an open brace": f"{UTIL}{{\n",
    "a label without an end": f'{UTIL}{{gpu_uuid="GPU-1\n',
    "a value that is a word": f'{UTIL}{{gpu_uuid="GPU-1"}} high\n',
    "an XID of 5,000 digits": f'{m.GPU_XIDS.name}{{gpu_uuid="GPU-1",xid="{"9" * 5000}"}} 1\n',
}


def sampled(pages):
    """A page of the agent with the lines that an analyzer reads."""
    wanted = [line for line in pages.splitlines() if line.partition(b"{")[0].decode() in WANTED]
    return b"\n".join(wanted[:: len(wanted) // 16]) + b"\n"


def up(reading):
    return {target.name: target.up for target in reading.targets}


def faulty(reading):
    """What has a fault. A scrape here has little time: on a busy machine one of a good target may be late."""
    return [(fault.part, fault.code) for fault in reading.faults]


def uuids(reading):
    return {track.gpu_id for track in reading.tracks}


@pytest.mark.parametrize("kind", BAD_LINES)
async def test_a_malformed_line_is_skipped_and_every_target_is_read(kind):
    async with (
        exporters(page("GPU-1", more=BAD_LINES[kind]), page("GPU-2")) as (bad, good),
        source(bad.url, good.url) as made,
    ):
        both, well = {"GPU-1", "GPU-2"}, {bad.url: True, good.url: True}
        reading = await reading_when(made, lambda reading: uuids(reading) == both and up(reading) == well)
    assert up(reading) == well


async def test_malformed_lines_are_counted_and_the_target_is_named():
    bad_page = page("GPU-1", more=BAD_LINES["no value"] + BAD_LINES["an open brace"])
    async with exporters(bad_page, page("GPU-2")) as (bad, good), source(bad.url, good.url) as made:
        told = [(bad.url, "PAGE_MALFORMED")]
        reading = await reading_when(made, lambda reading: faulty(reading) == told and len(uuids(reading)) == 2)
    [fault] = reading.faults
    assert fault.message.startswith("2 lines")


class Broken(Pages):
    def take(self, at, samples):
        raise ZeroDivisionError("a broken promise of our own")


async def test_an_unexpected_error_of_one_target_is_its_own_with_its_name_and_counted(monkeypatch, caplog):
    counted: list[ScopeError] = []
    async with exporters(page("GPU-1"), page("GPU-2")) as (bad, good), source(bad.url, good.url) as made:
        made.units.count = counted.append
        await reading_when(made, lambda reading: len(uuids(reading)) == 2)
        made._known[bad.url].pages.__class__ = Broken
        await reading_when(made, lambda reading: faulty(reading) == [(bad.url, "INTERNAL")])
        seen = len(good.asked)
        await until(lambda: len(good.asked) > seen + 2)
        await reading_when(made, lambda reading: up(reading) == {bad.url: False, good.url: True})
    assert {error.code for error in counted} == {"INTERNAL"}
    [told] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert (told.fields["unit"], told.exc_info[0]) == (bad.url, ZeroDivisionError)


async def test_an_unexpected_error_in_the_samples_of_one_target_leaves_the_others_readable():
    async with exporters(page("GPU-1"), page("GPU-2")) as (bad, good), source(bad.url, good.url) as made:
        await reading_when(made, lambda reading: len(uuids(reading)) == 2 and not reading.faults)
        made._known[bad.url].pages.tracks = None  # whatever it is that cannot be read any more
        reading = await made.read(end=2e9, seconds=2e9)
    assert uuids(reading) == {"GPU-2"}
    assert [(fault.part, fault.code) for fault in reading.faults] == [(bad.url, "INTERNAL")]


async def test_an_unexpected_error_while_targets_are_listed_stops_no_scrape():
    broken: list[bool] = []

    async def listed():
        if broken:
            raise RuntimeError("a broken promise of our own")
        return (good.url,)

    async with exporters(page()) as (good,), source(targets=listed) as made:
        await until(lambda: good.asked)
        broken.append(True)
        await reading_when(made, lambda reading: faulty(reading) == [("targets", "INTERNAL")])
        seen = len(good.asked)
        await until(lambda: len(good.asked) > seen)


@pytest.mark.parametrize("address", ["http://a b:1", "http://[::1", "http://x:99999", "ftp://x:1"])
async def test_an_address_that_is_none_costs_only_itself(address):
    async with exporters(page()) as (good,), source(good.url, address) as made:
        told = [("targets", "CONFIG_INVALID")]
        reading = await reading_when(made, lambda reading: faulty(reading) == told and uuids(reading))
    assert up(reading) == {good.url: True}


async def test_after_all_scrapes_were_stopped_they_can_be_started_again():
    async with exporters(page()) as (good,), source(good.url) as made:
        await until(lambda: good.asked)
        made.running.cancel()
        await asyncio.gather(made.running, return_exceptions=True)
        seen = len(good.asked)
        again = asyncio.create_task(made.run())
        await until(lambda: len(good.asked) > seen)
        again.cancel()
        await asyncio.gather(again, return_exceptions=True)


# ── pages that never end, or only when unpacked ─────────────────────────────────────────────────────────────────────


@contextlib.asynccontextmanager
async def streaming(send):
    """A target that answers by `send(writer)`, which may take for ever."""
    serving = set()

    async def talk(reader, writer):
        serving.add(asyncio.current_task())
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            await send(writer)
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        server.close()


async def endless(writer):
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b"# " + b"x" * 65536 + b"\n")
        await writer.drain()


async def dripping(writer):
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b"#")
        await writer.drain()
        await asyncio.sleep(0.001)  # the pace of a target that sends byte by byte


async def endless_head(writer):
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"x-more: " + b"x" * 1000 + b"\r\n")
        await writer.drain()


def sends(body, *headers):
    async def send(writer):
        lines = "".join(f"{header}\r\n" for header in headers)
        writer.write(f"HTTP/1.1 200 OK\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()

    return send


GZIP, MIB = "Content-Encoding: gzip", 1 << 20
FLOODS = {
    "a stream without an end": (endless, "larger than 32 MiB"),
    "a slow drip": (dripping, "no whole page"),
    "a head without an end": (endless_head, "."),
    "a gzip bomb": (sends(gzip.compress(bytes(200 * MIB), 1), GZIP), "larger than 32 MiB"),
    "members of nothing": (sends(gzip.compress(b"") * 100_000, GZIP), ""),
    "an encoding that was not requested": (sends(b"x", "Content-Encoding: br"), "content encoding br"),
    "two encodings": (
        sends(gzip.compress(gzip.compress(page())), "Content-Encoding: gzip, gzip"),
        "encoding gzip, gzip",
    ),
    "lines of nothing": (sends(b"\n" * 8 * MIB), ""),
    "too many samples": (
        sends(page("GPU-1") * 120_000),
        "more than 100,000 samples",
    ),
}


@pytest.mark.parametrize("kind", FLOODS)
async def test_a_flood_costs_its_target_only_and_no_turn_of_the_loop_is_long(kind):
    send, reason = FLOODS[kind]
    async with (
        streaming(send) as bad,
        exporters(page("GPU-2")) as (good,),
        loop_lag() as lag,
        source(bad, good.url, interval=LONG, timeout=LONG / 2) as made,
    ):
        forward(0.0)
        await until(lambda: made._known)
        forward(LONG)
        await until(lambda: made._known[good.url].up)
        if send is dripping:
            forward(LONG / 2)
        await until(lambda: made._known[bad].error or made._known[bad].up)
        reading = await made.read(end=2e9, seconds=2e9)
    assert uuids(reading) == {"GPU-2"}
    assert [fault.part for fault in reading.faults] == ([bad] if reason else [])
    assert re.search(reason, "".join(fault.message for fault in reading.faults))
    assert lag.longest < LONGEST


async def test_new_series_on_every_page_are_left_out_beyond_a_limit(monkeypatch):
    monkeypatch.setattr(scrape_window, "MOST_ROWS", 50)
    async with exporters(page("GPU-a")) as (bad,), source(bad.url) as made:
        for number in range(8):
            more = "".join(f'{UTIL}{{gpu_uuid="GPU-{number}-{n}"}} 1\n' for n in range(20))
            bad.body, seen = page("GPU-a", more=more), len(bad.asked)
            await until(lambda seen=seen: len(bad.asked) > seen + 1)
        reading = await reading_when(made, lambda reading: faulty(reading) == [(bad.url, "PAGE_MALFORMED")])
    assert len(uuids(reading)) == 50
    assert "GPU-a" in uuids(reading)
    [fault] = reading.faults
    assert "left out" in fault.message


def analysed(pages):
    """A page through all that an analysis makes of it."""
    store = Pages()
    reader = PageReader(wanted=WANTED, meaning=store.meaning)
    for at in (1e9, 1e9 + 30):
        store.take(at, reader.read(pages, at=at, late=60.0))
    tracks = tuple(store.tracks(begin=1e9 - 1, end=1e9 + 31, interval=15.0))
    window = Window(begin=1e9 - 1, end=1e9 + 31, interval=15.0)
    gpus = assemble(
        Reading(window=window, tracks=tracks),
        previous={},
        weights=ScoreWeights(),
        thresholds=Thresholds(),
        rules=VerdictRules(),
        owners={},
    )
    analysis = Analysis(number=1, started=1e9, seconds=0.0, window=window, gpus=gpus)
    msgspec.json.encode(rows(analysis, stale=False))


def test_every_cut_and_every_changed_byte_of_a_page_can_be_analysed():
    assert survives(analysed, sampled(GOLDEN))
