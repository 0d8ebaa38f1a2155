"""The measurements of the analyzer: see docs/performance.md."""

import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from bench import analyzer_feed, programs
from bench.client import PROMETHEUS, TEXT, TEXT_GZIP, Client, asking_for_health, client
from bench.measure import SPEED
from bench.programs import Program
from bench.stub_server import stand_in

_JSON = {"Accept": "application/json"}
_GZIP = {"Accept-Encoding": "gzip"}
_FORMS = {"plain": TEXT, "gzip": TEXT_GZIP, "as Prometheus asks": PROMETHEUS}
_PAUSE = 0.02  # seconds between two requests, on average
_WITHIN = 120.0
_ROUNDING = 0.1001  # points: the analyzer and the script both round a score to one digit


class AnalyzerEffort(Struct, frozen=True, kw_only=True):
    """How long to measure, and on which fleets."""

    gpus: tuple[int, ...] = (100, 1000, 5000)  # GPUs in a real Prometheus
    replayed: int = 100_000  # GPUs in the stand-in
    rounds: int = 9
    replayed_rounds: int = 7
    requests: int = 60  # requests for each answer in each format
    replayed_requests: int = 7


ANALYZER_QUICK = AnalyzerEffort(
    gpus=(100, 1000), replayed=25_000, rounds=7, replayed_rounds=2, requests=10, replayed_requests=3
)


class Cost(Struct, frozen=True, kw_only=True):
    """Seconds of wall time and of CPU, as medians."""

    wall: float
    cpu: float


class Page(Struct, frozen=True, kw_only=True):
    """Seconds of a scrape in one format, with those of a static page of the same size."""

    form: str
    ours: float
    static: float


class FleetSize(Struct, frozen=True, kw_only=True):
    """The costs of a fleet of one size."""

    gpus: int
    served_by: str
    ready: float  # seconds from the start until the first analysis is done
    first: float  # seconds of the first analysis
    analysis: Cost  # wall: reported by the analyzer, until the result is shown; CPU: until the analyzer is idle again
    outside: float  # seconds from POST /analyze until a client sees the result
    script: Cost
    requests: tuple[int, ...]  # number of requests of each analysis
    health_wait: float  # seconds: the longest answer of /healthz during an analysis
    results: float
    results_gzip: float
    results_first: float  # seconds of the first answer after an analysis
    results_bytes: int
    pages: tuple[Page, ...]
    page_bytes: int
    resident_bytes: int
    most_resident_bytes: int

    @property
    def usual_requests(self) -> float:
        """The median: some analyses need one more request, for the list of metrics."""
        return statistics.median(self.requests)

    @property
    def against_script(self) -> float:
        """The wall time of an analysis as a multiple of the plain script's."""
        return self.analysis.wall / self.script.wall

    @property
    def per_gpu(self) -> float:
        """Seconds of an analysis per GPU."""
        return self.analysis.wall / self.gpus


class AnalyzerFigures(Struct, frozen=True, kw_only=True):
    """The figures of one run."""

    sizes: tuple[FleetSize, ...]
    replayed: FleetSize
    speed: float


def run(effort: AnalyzerEffort) -> AnalyzerFigures:
    """Measure one fleet after the other."""
    with client() as asker:
        sizes = tuple(_real(gpus, asker, effort) for gpus in effort.gpus)
        replayed = _replayed(effort.replayed, asker, effort)
    return AnalyzerFigures(sizes=sizes, replayed=replayed, speed=SPEED.share())


def _real(gpus: int, asker: Client, effort: AnalyzerEffort) -> FleetSize:
    with tempfile.TemporaryDirectory(prefix="vgpuscope-bench-") as root:
        _say(f"{gpus} GPUs: filling Prometheus")
        with analyzer_feed.prometheus(Path(root), gpus) as url:
            return _size(url, asker, root=Path(root), gpus=gpus, served_by="Prometheus", effort=effort)


def _replayed(gpus: int, asker: Client, effort: AnalyzerEffort) -> FleetSize:
    with tempfile.TemporaryDirectory(prefix="vgpuscope-bench-") as root:
        _say(f"{gpus} GPUs: preparing the stand-in's answers")
        with stand_in("bench.analyzer_stub", gpus) as url:
            return _size(url, asker, root=Path(root), gpus=gpus, served_by="stand-in", effort=effort)


def _size(url: str, asker: Client, *, root: Path, gpus: int, served_by: str, effort: AnalyzerEffort) -> FleetSize:
    _say(f"{gpus} GPUs: first analysis")
    renew = partial(analyzer_feed.renew, url) if served_by == "stand-in" else lambda: None
    with programs.analyzer(root, url) as analyzer, _script(url) as script:
        measured = _Measured(analyzer, script, asker, root=root, gpus=gpus, renew=renew)
        return measured.size(effort, served_by=served_by)


class _Measured:
    """An analyzer under test, and the plain script beside it."""

    def __init__(
        self,
        analyzer: Program,
        script: "_Script",
        asker: Client,
        *,
        root: Path,
        gpus: int,
        renew: Callable[[], None],
    ) -> None:
        self._analyzer, self._script, self._asker, self._root, self._gpus = analyzer, script, asker, root, gpus
        self._renew = renew
        self._requests: list[int] = []
        self._own: list[float] = []
        self._outside: list[float] = []
        self._resident: list[int] = []

    def size(self, effort: AnalyzerEffort, *, served_by: str) -> FleetSize:
        """All measurements of one fleet."""
        self._rest()
        first = float(self._summary()["seconds"])
        real = served_by == "Prometheus"
        rounds = effort.rounds if real else effort.replayed_rounds
        requests = effort.requests if real else effort.replayed_requests
        ours, theirs = self._rounds(rounds)
        first_answer = self._asker.scrape_once(self._analyzer.port, headers=_JSON, path="/results")
        _say(f"{self._gpus} GPUs: /results and /metrics")
        results, results_gzip = (self._results(headers, requests) for headers in (_JSON, {**_JSON, **_GZIP}))
        pages = tuple(self._pages(requests))
        self._resident.append(self._analyzer.resident_bytes())
        wait = self._health_wait()
        self._proves_same()
        return FleetSize(
            gpus=self._gpus,
            served_by=served_by,
            ready=self._analyzer.start_seconds,
            first=first,
            analysis=_median(ours),
            outside=statistics.median(self._outside),
            script=_median(theirs),
            requests=tuple(self._requests),
            health_wait=wait,
            results=results,
            results_gzip=results_gzip,
            results_first=first_answer,
            results_bytes=len(self._get("/results")),
            pages=pages,
            page_bytes=len(self._analyzer.page()),
            resident_bytes=max(self._resident),
            most_resident_bytes=self._analyzer.most_resident_bytes(),
        )

    def _rounds(self, rounds: int) -> tuple[list[Cost], list[Cost]]:
        """Analyses and runs of the script in turn, so that noise affects both alike; each reports its own time."""
        _say(f"{self._gpus} GPUs: {rounds} analyses, and the plain script as often")
        self._script.run(time.time())
        ours, theirs = [], []
        for _ in range(rounds):
            SPEED.look()
            ours.append(self._analyze())
            theirs.append(self._script.run(time.time()))
        return ours, theirs

    def _analyze(self) -> Cost:
        """The wall time of one analysis until its result is shown, and the CPU time until the analyzer is idle."""
        cpu, outside = self._analyzer.cpu_seconds(), self._until_shown()
        self._rest()
        cpu = self._analyzer.cpu_seconds() - cpu
        own = self._noted(outside)
        return Cost(wall=own, cpu=cpu)

    def _until_shown(self) -> float:
        self._renew()
        before = self._shown()
        while int(time.time()) <= datetime.fromisoformat(before).timestamp():
            time.sleep(0.05)  # times are shown in whole seconds, and two analyses must differ
        began = self._started()
        usual = min(self._own, default=0.0)
        time.sleep(usual)  # requests during the analysis would slow it down
        while self._shown() == before:
            assert time.perf_counter() < began + _WITHIN, "the analysis does not end"
            time.sleep(max(0.002, 0.01 * usual))
        return time.perf_counter() - began

    def _started(self) -> float:
        """When an analysis was started; on a busy machine, work after the previous one may have to finish first."""
        while True:
            began = time.perf_counter()
            if b"started" in self._get("/analyze", method="POST"):
                return began
            self._rest()

    def _shown(self) -> str:
        health = json.loads(self._get("/health"))
        error = health["error"]
        # The stand-in has one thread. While it sends an answer of 100,000 GPUs, it does not answer a health check.
        assert not error or error["code"] == "SOURCE_DOWN", health
        return str(health["last_success"])

    def _noted(self, outside: float) -> float:
        """The analyzer's own figure for the seconds of an analysis, which cannot be more than a client saw."""
        summary = self._summary()
        assert not summary["faults"], summary
        assert summary["seconds"] <= outside, (summary, outside)
        self._requests.append(summary["requests"])
        self._own.append(summary["seconds"])
        self._outside.append(outside)
        self._resident.append(self._analyzer.resident_bytes())
        return float(summary["seconds"])

    def _rest(self) -> None:
        """Wait until the analyzer is idle."""
        quiet, busy = 0, self._analyzer.busy_seconds()
        while quiet < 2:
            time.sleep(0.1)
            before, busy = busy, self._analyzer.busy_seconds()
            quiet = quiet + 1 if busy - before < 0.01 else 0

    def _results(self, headers: dict[str, str], requests: int) -> float:
        taken = self._asker.scrape(
            [self._analyzer.port], rounds=requests, headers=headers, pause=_PAUSE, path="/results"
        )
        return statistics.median(taken[0])

    def _pages(self, requests: int) -> Iterator[Page]:
        with programs.static(self._root, self._analyzer.page()) as static:
            ports = [self._analyzer.port, static.port]
            for form, headers in _FORMS.items():
                SPEED.look()
                ours, fixed = self._asker.scrape(ports, rounds=requests, headers=headers, pause=_PAUSE)
                yield Page(form=form, ours=statistics.median(ours), static=statistics.median(fixed))

    def _health_wait(self) -> float:
        with asking_for_health(self._analyzer.port) as waits:
            self._until_shown()
        self._rest()
        return max(waits)

    def _proves_same(self) -> None:
        """Prove that the work was done: the scores equal the script's, for every GPU that had one holder."""
        self._analyze()
        shown = datetime.fromisoformat(self._summary()["timestamp"]).timestamp()
        expected = self._script.scores(shown + 0.5)  # no sample lies in between, so both windows hold the same samples
        gpus = Counter(key.split()[0] for key in expected)
        single = {key.split()[0]: score for key, score in expected.items() if gpus[key.split()[0]] == 1}
        found = {row["gpu_id"]: row["score"] for row in json.loads(self._get("/results"))}
        assert found.keys() == gpus.keys(), (len(found), len(gpus))
        wrong = {gpu: (found[gpu], score) for gpu, score in single.items() if abs(found[gpu] - score) > _ROUNDING}
        assert not wrong, f"{len(wrong)} scores differ, as of {next(iter(wrong.items()))}"

    def _summary(self) -> dict[str, Any]:
        summary = json.loads(self._get("/api/v1/summary"))
        assert summary["seconds"] is not None, self._get("/health")
        return summary  # type: ignore[no-any-return]

    def _get(self, path: str, *, method: str = "GET") -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self._analyzer.port, timeout=_WITHIN)
        connection.request(method, path)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        assert answer.status == 200, (path, answer.status, body[:500])
        return body


class _Script:
    """The process of the plain script."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(self, at: float) -> Cost:
        done = self._order(at, show=False)
        return Cost(wall=done["seconds"], cpu=done["cpu"])

    def scores(self, at: float) -> dict[str, float]:
        return self._order(at, show=True)["scores"]  # type: ignore[no-any-return]

    def _order(self, at: float, *, show: bool) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({"at": at, "show": show}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the plain script has ended")
        return json.loads(answer)  # type: ignore[no-any-return]


@contextmanager
def _script(url: str) -> Iterator[_Script]:
    command = [sys.executable, "-m", "bench.analyzer_script", url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield _Script(process)
        assert process.stdin
        process.stdin.close()


def _median(costs: list[Cost]) -> Cost:
    return Cost(wall=statistics.median(one.wall for one in costs), cpu=statistics.median(one.cpu for one in costs))


def _say(what: str) -> None:
    print(f"bench: {what}", file=sys.stderr, flush=True)
