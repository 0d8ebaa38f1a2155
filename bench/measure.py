"""The measurements of the agent: see docs/performance.md."""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from bench import programs
from bench.client import PROMETHEUS, TEXT, TEXT_GZIP, Client, client
from bench.programs import Program, freeze
from bench.world import World, world

PROCESSES = 256
_STRETCH = 5  # seconds of one measurement of CPU
GROWTH = (64, 256, 1024)


class Speed:
    """The speed of the machine: the time of a fixed piece of Python, measured now and then."""

    def __init__(self) -> None:
        self._times: list[float] = []

    def look(self) -> None:
        """Measure it a few times."""
        for _ in range(10):
            began = time.thread_time()
            sum(number & 7 for number in range(50_000))
            self._times.append(time.thread_time() - began)

    def share(self) -> float:
        """The best time divided by the median: the share of the machine that other work left."""
        return min(self._times) / statistics.median(self._times)


SPEED = Speed()


class Effort(Struct, frozen=True, kw_only=True):
    """How much to measure."""

    scrapes: int = 2000  # of the agent and of the static page, in each format
    prometheus_scrapes: int = 60  # with Prometheus' headers, about one a second, so that each one gets a new page
    peer_scrapes: int = 100
    cycles: int = 30
    rhythm: float = 15.0  # seconds between two scrapes by a Prometheus
    resident_cycles: int = 300  # five minutes' worth
    peer_collections: int = 10


QUICK = Effort(
    scrapes=200, prometheus_scrapes=8, peer_scrapes=10, cycles=10, rhythm=5.0, resident_cycles=50, peer_collections=2
)


class Latency(Struct, frozen=True, kw_only=True):
    """Seconds of a scrape."""

    p50: float
    p99: float
    scrapes: int


class Cpu(Struct, frozen=True, kw_only=True):
    """Seconds of CPU per sample, over several periods; the target applies to the median, the best is reported too."""

    best: float
    median: float


class Pair(Struct, frozen=True, kw_only=True):
    """Our scrapes and those of the static page, taken in turn."""

    ours: Latency
    static: Latency


class Peer(Struct, frozen=True, kw_only=True):
    """nvitop-exporter on the same simulated node."""

    version: str
    scrape: Latency
    scrape_gzip: Latency
    collection_cpu: float
    collection_wall: float
    page_bytes: int
    resident_bytes: int


class Size(Struct, frozen=True, kw_only=True):
    """The costs of a node of one size."""

    processes: int
    containers: int
    series: int
    page_bytes: int
    cpu_per_cycle: Cpu
    scrape_p50: float
    resident_bytes: int


class Figures(Struct, frozen=True, kw_only=True):
    """The figures of one run."""

    page_bytes: int
    gzip_bytes: int
    series: int
    plain: Pair
    gzip: Pair
    prometheus: Pair
    cpu_per_cycle: Cpu  # without scrapes
    cpu_per_cycle_scraped: Cpu  # scraped as by a Prometheus, every 15 s
    resident_bytes: int
    peer: Peer
    growth: tuple[Size, ...]
    speed: float  # share of the machine's best speed during the run


def run(effort: Effort) -> Figures:
    """Measure everything, on one node after the other."""
    with client() as scraper:
        with _node(PROCESSES) as node:
            at_default = _default_node(node, scraper, effort)
        growth = tuple(_size(processes, scraper, effort) for processes in GROWTH)
    return Figures(**at_default, growth=growth, speed=SPEED.share())


@contextmanager
def _node(processes: int) -> Iterator[World]:
    with tempfile.TemporaryDirectory(prefix="vgpuscope-bench-") as root, world(Path(root), processes=processes) as made:
        yield made


def _default_node(node: World, scraper: Client, effort: Effort) -> dict[str, Any]:
    """The node of the targets: 8 GPUs, 256 processes, 64 containers, sampled once a second."""
    with programs.agent(node) as agent:
        idle = _cpu_per_cycle(agent, effort.cycles, "nobody scrapes")
        scraped = _cpu_scraped(agent, scraper, effort.rhythm)
        page = agent.page()
        with programs.static(node.root, page) as static, programs.nvitop_exporter(node) as peer:
            freeze(peer, frozen=True)
            pairs = _pairs(agent, static, scraper, effort)
            resident = agent.resident_bytes()
            freeze(peer, frozen=False)
            beside = _peer(peer, node, scraper, effort)
    return {
        "page_bytes": len(page),
        "gzip_bytes": _gzip_bytes(page),
        "series": _series(page),
        **pairs,
        "cpu_per_cycle": idle,
        "cpu_per_cycle_scraped": scraped,
        "resident_bytes": max(resident, _resident_after(node, effort.resident_cycles)),
        "peer": beside,
    }


def _pairs(agent: Program, static: Program, scraper: Client, effort: Effort) -> dict[str, Pair]:
    def pair(what: str, headers: dict[str, str], *, rounds: int, pause: float) -> Pair:
        _say(f"scrapes, {what}: agent and static page in turn")
        SPEED.look()
        ours, theirs = scraper.scrape([agent.port, static.port], rounds=rounds, headers=headers, pause=pause)
        return Pair(ours=_latency(ours), static=_latency(theirs))

    return {
        "plain": pair("plain text", TEXT, rounds=effort.scrapes, pause=0.005),
        "gzip": pair("gzip", TEXT_GZIP, rounds=effort.scrapes, pause=0.005),
        "prometheus": pair("as Prometheus asks", PROMETHEUS, rounds=effort.prometheus_scrapes, pause=0.5),
    }


def _peer(peer: Program, node: World, scraper: Client, effort: Effort) -> Peer:
    _say("scrapes, nvitop-exporter")
    (plain,) = scraper.scrape([peer.port], rounds=effort.peer_scrapes, headers=TEXT, pause=0.05)
    (packed,) = scraper.scrape([peer.port], rounds=effort.peer_scrapes, headers=TEXT_GZIP, pause=0.05)
    page, resident = len(peer.page()), peer.resident_bytes()
    freeze(peer, frozen=True)
    _say("collections, nvitop-exporter")
    command = [sys.executable, "-m", "bench.nvitop_collection", str(effort.peer_collections)]
    done = subprocess.run(command, env=node.environment(), check=True, capture_output=True)
    cost = json.loads(done.stdout)
    freeze(peer, frozen=False)
    from nvitop_exporter import __version__

    return Peer(
        version=__version__,
        scrape=_latency(plain),
        scrape_gzip=_latency(packed),
        collection_cpu=cost["cpu"],
        collection_wall=cost["wall"],
        page_bytes=page,
        resident_bytes=resident,
    )


def _cpu_per_cycle(agent: Program, cycles: int, how: str) -> Cpu:
    """CPU of the whole process per sample, while there are no HTTP requests."""
    _say(f"CPU of {cycles} sample cycles, {how}")
    return _cpu([_stretch(agent, _STRETCH) for _ in range(cycles // _STRETCH)])


def _cpu_scraped(agent: Program, scraper: Client, rhythm: float) -> Cpu:
    """The same while a Prometheus scrapes: three rounds, after two in which the agent learns its interval."""
    _say(f"CPU of sample cycles, scraped every {rhythm:.0f} s")

    def scraped_once() -> float:
        return _stretch(agent, rhythm, lambda: scraper.scrape([agent.port], rounds=0, headers=PROMETHEUS, pause=0.0))

    return _cpu([scraped_once() for _ in range(5)][2:])


def _cpu(stretches: list[float]) -> Cpu:
    return Cpu(best=min(stretches), median=statistics.median(stretches))


def _stretch(agent: Program, seconds: float, meanwhile: Callable[[], object] = lambda: None) -> float:
    """Seconds of CPU per sample over a period, while `meanwhile` runs."""
    from_sample = agent.samples()
    began, cpu = time.monotonic(), agent.cpu_seconds()
    meanwhile()
    SPEED.look()
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    used = agent.cpu_seconds() - cpu
    return used / (agent.samples() - from_sample)


def _resident_after(node: World, cycles: int) -> int:
    """Resident bytes after five minutes' worth of samples, and after the page was requested in every format."""
    _say(f"resident memory after {cycles} cycles")
    with programs.agent(node, interval=0.1) as agent:
        while agent.value("vgpuscope_samples_total") < cycles:
            time.sleep(1)
        return agent.resident_bytes()


def _size(processes: int, scraper: Client, effort: Effort) -> Size:
    with _node(processes) as node, programs.agent(node) as agent:
        page = agent.page()
        cpu = _cpu_per_cycle(agent, effort.cycles, f"{processes} processes")
        (scrapes,) = scraper.scrape([agent.port], rounds=max(50, effort.scrapes // 10), headers=TEXT, pause=0.01)
        return Size(
            processes=processes,
            containers=len(node.tenants),
            series=_series(page),
            page_bytes=len(page),
            cpu_per_cycle=cpu,
            scrape_p50=_latency(scrapes).p50,
            resident_bytes=agent.resident_bytes(),
        )


def _latency(seconds: list[float]) -> Latency:
    ordered = sorted(seconds)
    return Latency(p50=_rank(ordered, 0.50), p99=_rank(ordered, 0.99), scrapes=len(ordered))


def _rank(ordered: list[float], share: float) -> float:
    """The percentile by nearest rank."""
    return ordered[max(0, -(-int(len(ordered) * share * 100) // 100) - 1)]


def _series(page: bytes) -> int:
    return sum(1 for line in page.splitlines() if line and not line.startswith(b"#"))


def _gzip_bytes(page: bytes) -> int:
    import gzip

    return len(gzip.compress(page, 1, mtime=0))


def _say(what: str) -> None:
    print(f"bench: {what}", file=sys.stderr, flush=True)
