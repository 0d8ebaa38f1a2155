"""The measurements of the console: see docs/performance.md."""

import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from playwright.sync_api import Browser

from bench import console_page, console_past, programs
from bench.console_fleet import TENANTS
from bench.measure import SPEED
from bench.programs import Program
from bench.stub_server import stand_in

BUILT = Path(__file__).parent.parent / "src" / "vgpuscope" / "http" / "assets" / "console"
_COUNT = ".toolbar .count"
_WARM = 20  # refreshes before the heap is measured for the first time
_IDLE_WITHIN = 900.0  # seconds
_FIRST = 15.0  # seconds until a first console has asked for everything
_SEARCHES = ("node-00012", "GPU-4", "team-07", "000123")


class ConsoleEffort(Struct, frozen=True, kw_only=True):
    """How long to measure, and on which fleet."""

    gpus: int = 10_000
    loads: int = 9
    inputs: int = 5  # of each kind
    refreshes: int = 240  # one every 30 s is two hours
    consoles: int = 50
    every: float = 30.0  # seconds between two refreshes of a console, as by default; an analysis is shown at once
    seconds: float = 300.0  # with consoles and one analysis: by default an analysis begins every 300 s


CONSOLE_QUICK = ConsoleEffort(gpus=1_000, loads=3, inputs=2, refreshes=40, seconds=20.0)


class Times(Struct, frozen=True, kw_only=True):
    """Seconds, each of one input."""

    what: str
    seconds: tuple[float, ...]
    cpu: tuple[float, ...] = ()  # of the page's main thread

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


class Heap(Struct, frozen=True, kw_only=True):
    """Bytes of the JavaScript heap."""

    refreshes: int
    before: int
    after: int

    @property
    def growth(self) -> float:
        return self.after / self.before - 1


class Consoles(Struct, frozen=True, kw_only=True):
    """The analyzer's CPU time with and without open consoles, in seconds, and what the consoles received."""

    number: int
    seconds: float
    without: tuple[float, ...]  # before and after
    with_them: float
    paths: tuple[str, ...]
    received: dict[str, int]

    @property
    def share(self) -> float:
        """Of one core, against the quieter period without consoles: other work on the machine only adds to a period."""
        return max(0.0, self.with_them - min(self.without)) / self.seconds

    @property
    def noise(self) -> float:
        """How far two periods without consoles differ, of one core."""
        return (max(self.without) - min(self.without)) / self.seconds


class ConsoleFigures(Struct, frozen=True, kw_only=True):
    """The figures of one run."""

    gpus: int
    workloads: int
    paint: Times
    inputs: tuple[Times, ...]
    redraw: Times
    bounds: dict[str, float]  # seconds, of the same browser at the same time: what no console could beat
    heap: Heap
    consoles: Consoles
    files: dict[str, int]  # gzipped bytes
    resident_bytes: int
    load: float  # the machine's load average, one minute, when the browser had been measured
    speed: float

    @property
    def bundle(self) -> int:
        return sum(self.files.values())


def run(effort: ConsoleEffort) -> ConsoleFigures:
    """Measure one after the other."""
    files = bundle()
    if not files:
        raise SystemExit("bench: the console is not built; run make console")
    with tempfile.TemporaryDirectory(prefix="vgpuscope-bench-") as root, _world(Path(root), effort) as analyzer:
        url = f"http://127.0.0.1:{analyzer.port}/ui/"
        with console_page.chromium() as browser:
            paint = _paint(browser, url, effort)
            inputs = tuple(_inputs(browser, url, effort))
            redraw = _redraws(browser, url, effort)
            bounds = _bounds(browser, url, effort)
            load = os.getloadavg()[0]
            heap, paths = _refreshed(browser, url, effort)
        return ConsoleFigures(
            gpus=effort.gpus,
            workloads=effort.gpus * TENANTS,
            paint=paint,
            inputs=inputs,
            redraw=redraw,
            bounds=bounds,
            heap=heap,
            consoles=_consoles(analyzer, paths, effort),
            files=files,
            resident_bytes=analyzer.resident_bytes(),
            load=load,
            speed=SPEED.share(),
        )


def run_consoles(effort: ConsoleEffort, paths: tuple[str, ...]) -> Consoles:
    """Measure the open consoles alone; `paths`: the requests of a refresh, as a full run found them."""
    with tempfile.TemporaryDirectory(prefix="vgpuscope-bench-") as root, _world(Path(root), effort) as analyzer:
        _say("the first console, which lets the analyzer read two days of history")
        with _open({"port": analyzer.port, "paths": paths, "consoles": 1, "every": 5.0}, _forget):
            time.sleep(_FIRST)
            _until_idle(analyzer)
        return _consoles(analyzer, paths, effort)


def _forget(received: dict[str, int]) -> None:
    """What the first console received is not counted."""


def bundle(folder: Path = BUILT) -> dict[str, int]:
    """Gzipped bytes of every built file, by its path."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): len(gzip.compress(path.read_bytes(), mtime=0)) for path in found}


@contextmanager
def _world(root: Path, effort: ConsoleEffort) -> Iterator[Program]:
    _say(f"{effort.gpus} GPUs: preparing the stand-in's series")
    with stand_in("bench.console_stub", effort.gpus) as prometheus:
        _say(f"{effort.gpus} GPUs: first analysis, and two days of history")
        with programs.console(root, prometheus, root / "history.db") as analyzer:
            console_past.fill(root / "history.db", effort.gpus * (1 + TENANTS))
            yield analyzer


# ── the browser ──────────────────────────────────────────────────────────────────────────────────────────────────


def _paint(browser: Browser, url: str, effort: ConsoleEffort) -> Times:
    _say(f"{effort.loads} loads with an empty cache")
    with console_page.opened(browser, url) as tab:
        tab.useful()  # the analyzer's parts are fetched by the first console after a while
        tab.rest()
    found = []
    for _ in range(effort.loads):
        SPEED.look()
        with console_page.opened(browser, url) as tab:
            found.append(tab.useful())
            tab.rest()
    return Times(what="first useful paint", seconds=tuple(found))


def _inputs(browser: Browser, url: str, effort: ConsoleEffort) -> Iterator[Times]:
    for name, path, rows in (("GPUs", "gpus", effort.gpus), ("workloads", "workloads", effort.gpus * TENANTS)):
        _say(f"table of {rows} {name}")
        with console_page.opened(browser, url + path) as tab:
            assert tab.until_table() == rows
            tab.rest()
            yield from _of_table(tab, f"{rows} {name}", effort)


def _of_table(tab: console_page.Tab, name: str, effort: ConsoleEffort) -> Iterator[Times]:
    headings = tab.headings()
    sorts = [tab.click(one, shown="thead th[aria-sort]") for _ in range(effort.inputs) for one in headings]
    yield _times(f"{name}: sort", sorts)
    chips = tab.chip("Class")
    filters = [tab.click(one, shown=_COUNT) for _ in range(effort.inputs) for one in (chips, chips)]
    yield _times(f"{name}: filter", filters)
    words = [word for text in _SEARCHES[: effort.inputs] for word in (text, "")]
    typed = [tab.type("main [data-search]", word, shown=_COUNT) for word in words]
    yield _times(f"{name}: search", typed)


def _redraws(browser: Browser, url: str, effort: ConsoleEffort) -> Times:
    _say("the map by model and by node")
    with console_page.opened(browser, url) as tab:
        tab.useful()
        tab.rest()
        model, node = tab.groups()
        return _times("map redraw", [tab.redraw(one) for _ in range(effort.inputs) for one in (model, node)])


def _bounds(browser: Browser, url: str, effort: ConsoleEffort) -> dict[str, float]:
    """The same browser with an empty page, and with plain functions of the language on as many rows."""
    _say("lower bounds: an empty page, and plain JSON.parse and sort")
    found: dict[str, list[float]] = {}
    for _ in range(effort.inputs):
        with console_page.opened(browser, url + "icon.svg") as tab:
            found.setdefault("first paint of a picture of 655 bytes", []).append(tab.first_frame())
        with console_page.opened(browser, url + "settings") as tab:
            for what, seconds in tab.plain(effort.gpus * TENANTS).items():
                found.setdefault(what, []).append(seconds)
    return {what: statistics.median(times) for what, times in found.items()}


def _times(what: str, spans: list[console_page.Span]) -> Times:
    return Times(what=what, seconds=tuple(one.wall for one in spans), cpu=tuple(one.cpu for one in spans))


def _refreshed(browser: Browser, url: str, effort: ConsoleEffort) -> tuple[Heap, tuple[str, ...]]:
    _say(f"{effort.refreshes} refreshes")
    with console_page.opened(browser, url) as tab:
        tab.useful()
        tab.rest()
        paths: dict[str, None] = {}
        tab.forget()
        for _ in range(_WARM):
            paths |= dict.fromkeys(tab.refresh())
        tab.rest()
        before = tab.heap()
        for _ in range(effort.refreshes):
            tab.refresh()
        tab.rest()
        return Heap(refreshes=effort.refreshes, before=before, after=tab.heap()), tuple(paths)


# ── open consoles ────────────────────────────────────────────────────────────────────────────────────────────────


def _consoles(analyzer: Program, paths: tuple[str, ...], effort: ConsoleEffort) -> Consoles:
    """Without consoles, with them, and without them again; each time with one analysis."""
    received: dict[str, int] = {}
    order = {"port": analyzer.port, "paths": paths, "consoles": effort.consoles, "every": effort.every}
    before = _alone(analyzer, effort)
    _say(f"{effort.consoles} open consoles, {effort.seconds:.0f} s")
    with _open(order, received.update):
        with_them = _cpu(analyzer, effort.seconds)
    if received.get("events", 0) < 2 * effort.consoles:  # the first event of a console is the analysis before
        raise RuntimeError("the analysis failed while consoles were open; measure again on a quieter machine")
    return Consoles(
        number=effort.consoles,
        seconds=effort.seconds,
        without=(before, _alone(analyzer, effort)),
        with_them=with_them,
        paths=paths,
        received=received,
    )


def _alone(analyzer: Program, effort: ConsoleEffort) -> float:
    """The CPU time of a period with one analysis and no console, after what the last period left to do."""
    _until_idle(analyzer)
    _say(f"the analyzer without consoles, {effort.seconds:.0f} s")
    return _cpu(analyzer, effort.seconds)


def _cpu(analyzer: Program, seconds: float) -> float:
    """The CPU time of a period with one analysis."""
    before, began = analyzer.process_seconds(), time.monotonic()
    _analyse(analyzer)
    SPEED.look()
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    return analyzer.process_seconds() - before


def _analyse(analyzer: Program) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{analyzer.port}/analyze", timeout=60) as answer:
        answer.read()


def _until_idle(analyzer: Program) -> None:
    """What consoles left to do is done: nothing of it is counted for the next period."""
    deadline = time.monotonic() + _IDLE_WITHIN
    while time.monotonic() < deadline:
        before = analyzer.process_seconds()
        time.sleep(3)
        if analyzer.process_seconds() - before < 0.1:
            return
    raise RuntimeError("the analyzer does not come to rest")


@contextmanager
def _open(order: dict[str, object], note: Callable[[dict[str, int]], None]) -> Iterator[None]:
    command = [sys.executable, "-m", "bench.console_clients"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        yield
        process.stdin.close()
        told = json.loads(process.stdout.readline())
        assert not told["failed"], told
        note(told["counts"])


def _say(what: str) -> None:
    print(f"bench: {what}", file=sys.stderr, flush=True)
