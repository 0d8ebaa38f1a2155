"""Figures → a verdict, a table for the terminal, JSON, and the tables of docs/performance.md."""

import os
import platform
import re
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.measure import Figures, Latency

RESULTS = Path(__file__).parent / "results" / "agent.json"
DOCS = Path(__file__).parent.parent / "docs" / "performance.md"
_MARKS = ("<!-- bench: begin, written by `make bench` -->", "<!-- bench: end -->")


class Target(Struct, frozen=True, kw_only=True):
    """One promise and what came of it."""

    what: str
    measured: float
    bound: float
    unit: str
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the promise is kept."""
        return self.measured >= self.bound if self.at_least else self.measured <= self.bound


class Machine(Struct, frozen=True, kw_only=True):
    """Where it was measured."""

    cpu: str
    cores: int
    python: str
    kernel: str


class Result(Struct, frozen=True, kw_only=True):
    """What is written to bench/results."""

    command: str
    machine: Machine
    targets: tuple[Target, ...]
    figures: Figures


def result(figures: Figures) -> Result:
    """The run with its verdicts."""
    return Result(command="make bench", machine=_machine(), targets=targets(figures), figures=figures)


def targets(f: Figures) -> tuple[Target, ...]:
    """Every promise. Ratios, where the machine's speed would decide otherwise."""
    found = []
    for form, pair in (("plain", f.plain), ("gzip", f.gzip), ("as Prometheus asks", f.prometheus)):
        pairs = (("p50", pair.ours.p50, pair.static.p50), ("p99", pair.ours.p99, pair.static.p99))
        for rank, ours, static in pairs:
            if rank == "p99" and pair.ours.scrapes < 1000:
                continue  # too few for a tail
            found.append(Target(what=f"scrape {rank}, {form} / static page", measured=ours / static, bound=2, unit="×"))
    for form, theirs, ours in (("plain", f.peer.scrape, f.plain.ours), ("gzip", f.peer.scrape_gzip, f.gzip.ours)):
        ratio = theirs.p50 / ours.p50
        found.append(
            Target(
                what=f"nvitop-exporter's scrape p50, {form} / ours", measured=ratio, bound=20, unit="×", at_least=True
            )
        )
    return (
        *found,
        Target(what="CPU per sample cycle", measured=f.cpu_per_cycle.median * 1e3, bound=20, unit="ms"),
        Target(
            what="CPU per sample cycle, scraped every 15 s",
            measured=f.cpu_per_cycle_scraped.median * 1e3,
            bound=20,
            unit="ms",
        ),
        Target(what="resident memory", measured=f.resident_bytes / 1e6, bound=50, unit="MB"),
    )


def terminal(result: Result) -> str:
    """The table of promises."""
    lines = [f"{'':42} {'measured':>12} {'target':>10}"]
    for t in result.targets:
        sign = "≥" if t.at_least else "≤"
        verdict = "met" if t.met else "MISSED"
        lines.append(f"{t.what:42} {t.measured:>9.2f} {t.unit:2} {sign} {t.bound:g} {t.unit:2}  {verdict}")
    return "\n".join(lines)


def save(result: Result) -> None:
    """Write the JSON and bring the document up to date."""
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
    begin, end = _MARKS
    text = DOCS.read_text()
    inner = f"{begin}\n{markdown(result)}\n{end}"
    DOCS.write_text(re.sub(f"{re.escape(begin)}.*{re.escape(end)}", lambda _: inner, text, flags=re.DOTALL))


def markdown(result: Result) -> str:
    """The tables of the document."""
    f, m = result.figures, result.machine
    rows = [f"| {t.what} | {'≥' if t.at_least else '≤'} {t.bound:g} {t.unit} | {t.measured:.2f} {t.unit} | "
            f"{'met' if t.met else '**missed**'} |" for t in result.targets]  # fmt: skip
    scrapes = [
        _scrape_row("agent, plain", f.plain.ours),
        _scrape_row("static page, plain", f.plain.static),
        _scrape_row("agent, gzip", f.gzip.ours),
        _scrape_row("static page, gzip", f.gzip.static),
        _scrape_row("agent, as Prometheus asks", f.prometheus.ours),
        _scrape_row("static page, as Prometheus asks", f.prometheus.static),
        _scrape_row(f"nvitop-exporter {f.peer.version}, plain", f.peer.scrape),
        _scrape_row(f"nvitop-exporter {f.peer.version}, gzip", f.peer.scrape_gzip),
    ]
    growth = [
        f"| {s.processes} | {s.containers} | {s.series} | {s.page_bytes / 1000:.0f} kB "
        f"| {s.cpu_per_cycle.median * 1e3:.1f} ms | {s.scrape_p50 * 1e3:.2f} ms | {s.resident_bytes / 1e6:.1f} MB |"
        for s in f.growth
    ]
    return "\n".join(
        [
            f"Machine: {m.cpu}, {m.cores} cores, {m.python}, Linux {m.kernel}; other work on it left "
            f"{f.speed:.0%} of its speed.",
            "",
            "| what | target | measured | |",
            "|---|---|---|---|",
            *rows,
            "",
            f"CPU is the median over stretches of time; in the quietest it was {f.cpu_per_cycle.best * 1e3:.1f} ms, "
            f"scraped {f.cpu_per_cycle_scraped.best * 1e3:.1f} ms.",
            "",
            f"The page: {f.series} series, {f.page_bytes / 1000:.0f} kB, {f.gzip_bytes / 1000:.0f} kB compressed.",
            "",
            "| scrapes | p50 | p99 | number |",
            "|---|---|---|---|",
            *scrapes,
            "",
            f"One collection of nvitop-exporter takes {f.peer.collection_cpu * 1e3:.0f} ms of CPU "
            f"({f.peer.collection_wall * 1e3:.0f} ms of time), "
            f"{f.peer.collection_cpu / f.cpu_per_cycle.median:.0f} times ours; "
            f"its process has {f.peer.resident_bytes / 1e6:.0f} MB resident.",
            "",
            "| processes | containers | series | page | CPU per cycle | scrape p50 | resident |",
            "|---|---|---|---|---|---|---|",
            *growth,
        ]
    )


def _scrape_row(who: str, latency: Latency) -> str:
    return f"| {who} | {latency.p50 * 1e3:.2f} ms | {latency.p99 * 1e3:.2f} ms | {latency.scrapes} |"


def _machine() -> Machine:
    models = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return Machine(
        cpu=models[0] if models else platform.machine(),
        cores=len(os.sched_getaffinity(0)),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        kernel=platform.release(),
    )
