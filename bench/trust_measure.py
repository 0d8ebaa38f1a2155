"""How often `idle` is wrong and how often it is missed: a real analyzer, with workloads whose truth is known."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from bench import trust_feed
from bench.trust_feed import OWN_INTERVAL, OWN_WINDOW, Exporters, World
from bench.trust_judge import Judged, Score, Tally, claims, judged, oour_claims, tallies, total, zero_claims
from bench.trust_kinds import KINDS
from tests.ports import free_port

PROMETHEUS, LARGE, VICTORIA, OWN = "Prometheus", "large fleet", "VictoriaMetrics", "own scrapes"
OURS, OOUR, ZERO = "vgpuscope", "gpu-oour's formula", "max_over_time == 0"
HOLES = ("restarted", "restarted-30s", "restarted-60s", "restarted-late", "two-holes", "young")
_WITHIN = 180.0  # seconds for an analysis
_LATE = 0.12  # share of the window by which the last judgement may be late; no truth changes in that time
_ATTEMPTS = 4


class TrustEffort(Struct, frozen=True, kw_only=True):
    """The stores to query."""

    stores: tuple[str, ...] = (PROMETHEUS, LARGE, VICTORIA)
    own: bool = True
    kinds: frozenset[str] = frozenset()


TRUST_QUICK = TrustEffort(stores=(PROMETHEUS,), own=False)


class TrustFigures(Struct, frozen=True, kw_only=True):
    """The figures of one run."""

    kinds: int
    subjects: int
    seconds: float
    tallies: tuple[Tally, ...]

    def score(self, judge: str, run: str) -> Score:
        """Precision and recall of one judge in one run."""
        return total(one.score for one in self.tallies if (one.judge, one.run) == (judge, run))

    def mig(self, judge: str, run: str) -> Score:
        """The same, of MIG instances and their tenants only."""
        found = (one for one in self.tallies if (one.judge, one.run) == (judge, run))
        return total(one.score for one in found if one.kind.startswith("MIG"))

    def runs(self, judge: str) -> list[str]:
        """The runs in which the judge was queried."""
        return list(dict.fromkeys(one.run for one in self.tallies if one.judge == judge))


def run(effort: TrustEffort) -> TrustFigures:
    """Measure every world in every store."""
    for program in ("prometheus", "victoria-metrics"):
        if shutil.which(program) is None:
            raise SystemExit(f"bench: the trust bench needs {program} (Debian package {program})")
    began = time.monotonic()
    found: dict[str, list[Judged]] = {OURS: [], OOUR: [], ZERO: []}
    with tempfile.TemporaryDirectory(prefix="vgpuscope-trust-") as folder:
        for store in effort.stores:
            for world in _worlds(store, effort):
                for judge, said in in_time(store, world, Path(folder)).items():
                    found[judge] += said
        if effort.own:
            found[OURS] += _own(Path(folder))
    truths = {one.name: one.truth for one in KINDS}
    return TrustFigures(
        kinds=len({one.kind for one in found[OURS]}),
        subjects=len(found[OURS]),
        seconds=time.monotonic() - began,
        tallies=tuple(tally for judge, all_ in found.items() for tally in tallies(judge, all_, truths)),
    )


def _worlds(store: str, effort: TrustEffort) -> Iterator[World]:
    yield trust_feed.world("usual", kinds=effort.kinds)
    if store == PROMETHEUS:
        yield trust_feed.world("long", window=1800.0, kinds=effort.kinds)
    if store != LARGE:
        for name in HOLES:
            yield trust_feed.world(name, kinds=effort.kinds)


def in_time(store: str, world: World, folder: Path) -> dict[str, list[Judged]]:
    """The answers of all judges about a world at the planned time; retried with more time to fill if it was missed."""
    say(f"{store}: {world.name}, {len(world.cases)} cases")
    for attempt in range(_ATTEMPTS):
        lead = (6.0 + 0.07 * len(world.cases) + (20.0 if store == LARGE else 0.0)) * 1.7**attempt
        with trust_feed.engine(store, folder / f"{store[:1]}-{world.name}-{attempt}") as url:
            now = time.time() + lead
            trust_feed.fill(url, world.cases, now)
            if store == LARGE:
                trust_feed.fill_fleet(url, now)
            if time.time() > now:
                continue
            time.sleep(max(0.0, now - time.time()))
            found = _all_judges(store, world, url, folder)
            if time.time() < now + _LATE * world.window:
                return found
    raise SystemExit(f"bench: {world.name} could not be judged in time; is the machine busy?")


def _all_judges(store: str, world: World, url: str, path: Path) -> dict[str, list[Judged]]:
    found = {OURS: list(_judgements(store, world, url, path))}
    if store == PROMETHEUS:
        at = time.time()
        found[OOUR] = judged(world.cases, oour_claims(url, at, world.window), store, seen_only=True)
        found[ZERO] = judged(world.cases, zero_claims(url, at, world.window), store, seen_only=True)
    return found


def _judgements(store: str, world: World, url: str, path: Path) -> Iterator[Judged]:
    """The answers of a new process' only analysis, and of a service's third analysis; both must be right."""
    flags = ("--prometheus-url", url, "--window-minutes", world.minutes)
    rows = _once(path, *flags)
    yield from judged(world.cases, claims(rows, world.cases), store)
    if store == PROMETHEUS:
        with service(path, *flags) as analyzer:
            for _ in range(2):
                analyzer.analyse()
            yield from judged(world.cases, claims(analyzer.rows(), world.cases), f"{store}, third analysis")


def _own(path: Path) -> list[Judged]:
    """The answers of an analyzer without Prometheus, one window and four of its own scrapes after its start."""
    world = trust_feed.own_world()
    settings = path / "own.yaml"
    for _ in range(_ATTEMPTS):
        lead = OWN_WINDOW + 4 * OWN_INTERVAL + 4.0
        say(f"{OWN}: {len(world.cases)} cases, {lead:.0f} s")
        now = time.time() + lead
        with Exporters(world.cases, now) as exporters:
            targets = ", ".join(f'"{url}"' for url in exporters.urls)
            settings.write_text(f"analyzer:\n  targets: [{targets}]\n  scrape_interval: {OWN_INTERVAL:g}\n")
            with service(path, "--config", str(settings), "--window-minutes", world.minutes) as analyzer:
                time.sleep(max(0.0, now - time.time()))
                analyzer.analyse()
                rows = analyzer.rows()
                if time.time() < now + _LATE * OWN_WINDOW:
                    return judged(world.cases, claims(rows, world.cases), OWN)
    raise SystemExit("bench: own scrapes could not be judged in time; is the machine busy?")


def _once(path: Path, *flags: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "vgpuscope", "analyze", "--once", "--json", *flags]
    done = subprocess.run(command, capture_output=True, timeout=_WITHIN, cwd=path, check=False, env=_environment())
    if done.returncode:
        raise SystemExit(f"bench: vgpuscope analyze ended with {done.returncode}:\n{done.stderr.decode()[-2000:]}")
    (path / "once.json").write_bytes(done.stdout)
    shown = json.loads(done.stdout)
    return shown if isinstance(shown, list) else shown["gpus"]


class Service:
    """A running `vgpuscope analyzer`."""

    def __init__(self, port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._process, self._log = process, log

    def rows(self) -> list[dict[str, Any]]:
        """Its /results."""
        return self.get("/results")  # type: ignore[no-any-return]

    def analyse(self) -> None:
        """Run one more analysis, and wait until it ends."""
        before = self.get("/health")["last_success"]
        while int(time.time()) <= _second(before):
            time.sleep(0.05)  # times are shown in whole seconds, and two analyses must differ
        self.wait(lambda: "started" in self.get("/analyze", b"")["message"])  # work after the last one may still run
        self.wait(lambda: self.get("/health")["last_success"] != before)

    def wait(self, holds: Any) -> None:
        """Wait until the condition holds."""
        end = time.monotonic() + _WITHIN
        while not holds():
            if self._process.poll() is not None:
                raise SystemExit(f"bench: the analyzer ended:\n{self._log.read_text(errors='replace')[-2000:]}")
            if time.monotonic() > end:
                raise SystemExit("bench: the analyzer did not end its analysis")
            time.sleep(0.05)

    def ready(self) -> bool:
        """Whether its first analysis is done."""
        try:
            return bool(self.get("/health")["last_success"])
        except OSError:
            return False

    def get(self, path: str, body: bytes | None = None) -> Any:
        """The decoded answer."""
        with urllib.request.urlopen(f"{self._url}{path}", body, timeout=60) as answer:
            return json.load(answer)


@contextmanager
def service(path: Path, *flags: str) -> Iterator[Service]:
    """An analyzer after its first analysis; further analyses run only on request."""
    port = free_port()
    command = [sys.executable, "-m", "vgpuscope", "analyzer", "--listen", f"127.0.0.1:{port}", *flags]
    command += ["--interval", "3600"]
    with (path / "analyzer.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=path, env=_environment())
    try:
        found = Service(port, process, path / "analyzer.log")
        found.wait(found.ready)
        yield found
    finally:
        process.terminate()
        process.wait()


def _environment() -> dict[str, str]:
    return {**os.environ, "VGPUSCOPE_ANALYZER_RATE_LIMIT": "1000000"}  # because one client sends all requests


def _second(stamp: str | None) -> float:
    return datetime.fromisoformat(stamp).timestamp() if stamp else 0.0


def say(what: str) -> None:
    print(f"bench: {what}", file=sys.stderr, flush=True)
