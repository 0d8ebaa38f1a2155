"""The measurements of the cluster exporter: see docs/performance.md."""

import http.client
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from msgspec import Struct

from bench import programs
from bench.client import PROMETHEUS, TEXT, Client, asking_for_health, client
from bench.cluster_feed import Changes, Feed, control_plane, stand_in
from bench.cluster_objects import PODS, places
from bench.measure import SPEED
from bench.programs import Program

_SHARE = 0.01  # share of the pods that change between two scrapes
_LOOK = 2.2  # seconds; longer than the interval at which the exporter looks for changes
_QUIET_WITHIN = 60.0
_SEED = 20250601  # the same pods change in every run


class ClusterEffort(Struct, frozen=True, kw_only=True):
    """How long to measure, and on which clusters."""

    nodes: tuple[int, ...] = (100, 1000, 5000)
    real: int = 1000  # the cluster of this size is read from a real API server
    rounds: int = 5
    storm: float = 0.1  # share of the pods that change
    library_rounds: int = 1


CLUSTER_QUICK = ClusterEffort(nodes=(20, 100), real=100, rounds=3)


class Scrape(Struct, frozen=True, kw_only=True):
    """Seconds of wall time and of CPU that one scrape costs its server, as medians."""

    wall: float
    cpu: float


class Scrapes(Struct, frozen=True, kw_only=True):
    """Scrapes in one format."""

    changed: Scrape  # 1 % of the pods changed since the last one
    unchanged: Scrape  # the scrape after that, without a change
    static: Scrape  # a static page of the same size
    taken_in: float  # seconds of CPU for processing the changes before the scrape
    health_wait: float  # seconds: the longest answer of /healthz during a scrape after such a change


class Library(Struct, frozen=True, kw_only=True):
    """prometheus_client's generate_latest over the same samples: seconds of CPU."""

    plain: float
    gzip: float


class ClusterSize(Struct, frozen=True, kw_only=True):
    """The costs of a cluster of one size."""

    nodes: int
    pods: int
    served_by: str
    samples: int
    page_bytes: int
    gzip_bytes: int
    first_sync: float  # seconds from the start to /readyz
    first_sync_cpu: float
    first_gzip: float  # seconds of the first compressed scrape, which compresses everything
    first_health_wait: float  # seconds: the longest answer of /healthz meanwhile
    idle: float  # seconds of CPU per second while nothing happens
    plain: Scrapes
    gzip: Scrapes
    library: Library
    event: float  # seconds of CPU per event of a storm
    storm: int  # number of events
    lone_event: float  # seconds of CPU per event if there are few, each for a different node
    resident_bytes: int
    most_resident_bytes: int

    def per_100k(self, seconds: float) -> float:
        """Seconds per 100,000 samples."""
        return seconds * 100_000 / self.samples


class ClusterFigures(Struct, frozen=True, kw_only=True):
    """The figures of one run."""

    sizes: tuple[ClusterSize, ...]
    speed: float


def run(effort: ClusterEffort) -> ClusterFigures:
    """Measure one cluster after the other."""
    with client() as scraper:
        sizes = tuple(_size(nodes, scraper, effort) for nodes in effort.nodes)
    return ClusterFigures(sizes=sizes, speed=SPEED.share())


def _size(nodes: int, scraper: Client, effort: ClusterEffort) -> ClusterSize:
    feeding: Callable[[Path, int], AbstractContextManager[Feed]]
    feeding = control_plane if nodes == effort.real else stand_in
    with tempfile.TemporaryDirectory(prefix="vgpuscope-bench-") as root:
        _say(f"{nodes} nodes, {nodes * PODS} pods: filling the API server")
        with feeding(Path(root), nodes) as feed:
            _say(f"{nodes} nodes: first sync from the {feed.name}")
            with programs.cluster(Path(root), feed.kubeconfig) as exporter:
                return _Measured(exporter, feed, scraper, nodes=nodes, root=Path(root), effort=effort).size()


class _Measured:
    """An exporter under test."""

    def __init__(
        self, exporter: Program, feed: Feed, scraper: Client, *, nodes: int, root: Path, effort: ClusterEffort
    ) -> None:
        self._exporter, self._feed, self._scraper = exporter, feed, scraper
        self._nodes, self._root, self._effort = nodes, root, effort
        self._places = places(nodes)
        self._random = random.Random(_SEED)
        self._idle = 0.0

    def size(self) -> ClusterSize:
        """All measurements of one cluster."""
        sync_cpu = self._exporter.cpu_seconds()
        self._idle = self._idle_cpu()
        first_gzip, first_wait = self._with_health(PROMETHEUS)
        resident = [self._exporter.resident_bytes()]
        page = self._exporter.page()
        with programs.static(self._root, page) as static:
            plain, lone_plain = self._scrapes("plain", static, TEXT)
            packed, lone_packed = self._scrapes("gzip, as Prometheus asks", static, PROMETHEUS)
        resident.append(self._exporter.resident_bytes())
        storm, event = self._storm()
        resident.append(self._exporter.resident_bytes())
        self._proves_current()
        return ClusterSize(
            nodes=self._nodes,
            pods=len(self._places),
            served_by=self._feed.name,
            samples=sum(1 for line in page.splitlines() if not line.startswith(b"#")),
            page_bytes=len(page),
            gzip_bytes=self._gzip_bytes(),
            first_sync=self._exporter.start_seconds,
            first_sync_cpu=sync_cpu,
            first_gzip=first_gzip,
            first_health_wait=first_wait,
            idle=self._idle,
            plain=plain,
            gzip=packed,
            library=self._library(page),
            event=event,
            storm=storm,
            lone_event=statistics.median([*lone_plain, *lone_packed]),
            resident_bytes=max(resident),
            most_resident_bytes=self._exporter.most_resident_bytes(),
        )

    def _idle_cpu(self) -> float:
        """CPU seconds per second while nothing happens: the minimum, measured until it no longer decreases."""
        seconds: list[float] = []
        while len(seconds) < 4 or min(seconds[-3:]) < 0.9 * min(seconds[:-3]):
            began, cpu = time.monotonic(), self._exporter.cpu_seconds()
            time.sleep(1)
            seconds.append((self._exporter.cpu_seconds() - cpu) / (time.monotonic() - began))
        return min(seconds)

    def _scrapes(self, form: str, static: Program, headers: dict[str, str]) -> tuple[Scrapes, list[float]]:
        """Scrapes in one format, and the cost of an event between them in each round."""
        _say(f"{self._nodes} nodes: scrapes, {form}; 1 % of the pods change between them")
        taken_in, changed, unchanged, fixed = [], [], [], []
        self._scraper.scrape_once(self._exporter.port, headers=headers)
        for _ in range(self._effort.rounds):
            SPEED.look()
            taken_in.append(self._take_in(self._some(_SHARE)))
            changed.append(self._scrape(self._exporter, headers))
            unchanged.append(self._scrape(self._exporter, headers))
            fixed.append(self._scrape(static, headers))
        self._take_in(self._some(_SHARE))
        wait = self._with_health(headers)[1]
        cpu = statistics.median(taken_in)
        found = Scrapes(
            changed=_median(changed),
            unchanged=_median(unchanged),
            static=_median(fixed),
            taken_in=cpu,
            health_wait=wait,
        )
        return found, [one / (len(self._places) * _SHARE) for one in taken_in]

    def _scrape(self, server: Program, headers: dict[str, str]) -> Scrape:
        cpu = server.cpu_seconds()
        wall = self._scraper.scrape_once(server.port, headers=headers)
        time.sleep(0.02)  # work of the server after the last byte is part of its cost
        return Scrape(wall=wall, cpu=server.cpu_seconds() - cpu)

    def _storm(self) -> tuple[int, float]:
        changes = self._some(self._effort.storm)
        _say(f"{self._nodes} nodes: a storm of {len(changes)} events")
        return len(changes), self._take_in(changes) / len(changes)

    def _some(self, share: float) -> Changes:
        """New amounts of memory for a share of the pods."""
        chosen = self._random.sample(self._places, round(len(self._places) * share))
        return [(place, self._random.randrange(1024, 16384)) for place in chosen]

    def _take_in(self, changes: Changes) -> float:
        """Seconds of CPU until the exporter is idle again, without its idle use."""
        began, cpu = time.monotonic(), self._exporter.cpu_seconds()
        self._feed.change(changes)
        self._last = changes[-1]
        self._rest()
        return self._exporter.cpu_seconds() - cpu - self._idle * (time.monotonic() - began)

    def _rest(self) -> None:
        """Wait until the exporter was idle in two successive looks."""
        quiet, deadline = 0, time.monotonic() + _QUIET_WITHIN
        while quiet < 2:
            busy = self._exporter.busy_seconds()
            time.sleep(_LOOK)
            used = self._exporter.busy_seconds() - busy
            quiet = quiet + 1 if used < _LOOK * (2 * self._idle + 0.01) else 0
            assert time.monotonic() < deadline, "the exporter does not come to rest"

    def _with_health(self, headers: dict[str, str]) -> tuple[float, float]:
        """Seconds of a scrape, and of the longest answer of /healthz meanwhile."""
        with asking_for_health(self._exporter.port) as waits:
            wall = self._scraper.scrape_once(self._exporter.port, headers=headers)
        return wall, max(waits)

    def _gzip_bytes(self) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self._exporter.port, timeout=60)
        connection.request("GET", "/metrics", headers=PROMETHEUS)
        return len(connection.getresponse().read())

    def _proves_current(self) -> None:
        """Prove that the work was done: the last change is on the page."""
        place, memory = self._last
        pod = f'pod="trainer-{place.node * PODS + place.slot:06d}-'.encode()
        found = re.search(
            rb"^vgpuscope_\w+memory\w+\{[^\n]*%b[^\n]*\} (\S+)$" % pod, self._exporter.page(), re.MULTILINE
        )
        assert found, "the last change is not shown"
        assert float(found[1]) == memory << 20, (found[0], memory)

    def _library(self, page: bytes) -> Library:
        _say(f"{self._nodes} nodes: prometheus_client over the same samples")
        file = self._root / "library-page"
        file.write_bytes(page)
        command = [sys.executable, "-m", "bench.library_page", str(file), str(self._effort.library_rounds)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        return Library(plain=found["plain"], gzip=found["gzip"])


def _median(scrapes: list[Scrape]) -> Scrape:
    return Scrape(
        wall=statistics.median(one.wall for one in scrapes), cpu=statistics.median(one.cpu for one in scrapes)
    )


def _say(what: str) -> None:
    print(f"bench: {what}", file=sys.stderr, flush=True)
