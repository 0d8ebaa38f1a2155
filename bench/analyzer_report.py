"""Figures of the analyzer → a verdict and the tables of docs/performance.md."""

from collections.abc import Iterator

from bench.analyzer_measure import AnalyzerFigures, FleetSize
from bench.verdict import Result, Target, place, promises

_MEMORY = ((5_000, 150), (100_000, 1000))  # MB for fleets up to this many GPUs


def targets(f: AnalyzerFigures) -> tuple[Target, ...]:
    """The targets at every size."""
    return (*(target for size in (*f.sizes, f.replayed) for target in _of_size(size)), *_growth(f))


def _of_size(s: FleetSize) -> Iterator[Target]:
    at = f"{s.gpus} GPUs: "
    yield _target(f"{at}analysis, time / plain script, {s.served_by}", s.against_script, 1.5, "×")
    memory = next(bound for gpus, bound in _MEMORY if s.gpus <= gpus)
    yield _target(f"{at}resident memory", s.resident_bytes / 1e6, memory, "MB")
    if s.gpus <= 5_000:
        yield _target(f"{at}/results", s.results * 1e3, 50, "ms")
        yield _target(f"{at}/results, first after an analysis", s.results_first * 1e3, 50, "ms")
        for page in s.pages:
            yield _target(f"{at}/metrics, {page.form} / static page", page.ours / page.static, 2, "×")


def _growth(f: AnalyzerFigures) -> Iterator[Target]:
    """Linear growth: the cost per GPU in the largest fleet of a real Prometheus, as a multiple of a smaller one."""
    *smaller, large = f.sizes
    for small in smaller:
        at = f"{large.gpus} / {small.gpus} GPUs: "
        yield _target(f"{at}time of an analysis per GPU", large.per_gpu / small.per_gpu, 2, "×")
        yield _target(f"{at}requests per analysis", large.usual_requests / small.usual_requests, 1, "×")


def _target(what: str, measured: float, bound: float, unit: str) -> Target:
    return Target(what=what, measured=measured, bound=bound, unit=unit)


def markdown(result: Result, f: AnalyzerFigures) -> str:
    """The tables for the document."""
    sizes = (*f.sizes, f.replayed)
    return "\n".join(
        [
            place(result, f.speed),
            "",
            *promises(result),
            "",
            "| GPUs | served by | analysis | plain script | as a client sees it | CPU | CPU of the script "
            "| first analysis | ready after | requests | longest /healthz meanwhile | resident | the most it was |",
            "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
            *(_analysis_row(s) for s in sizes),
            "",
            "| GPUs | /results | time | gzip | first after an analysis | /metrics "
            + "".join(f"| {page.form} | static " for page in sizes[0].pages)
            + "|",
            "|---" * (6 + 2 * len(sizes[0].pages)) + "|",
            *(_answer_row(s) for s in sizes),
        ]
    )


def _analysis_row(s: FleetSize) -> str:
    requests = " or ".join(str(number) for number in sorted(set(s.requests)))
    return (
        f"| {s.gpus} | {s.served_by} | {_ms(s.analysis.wall)} | {_ms(s.script.wall)} | {_ms(s.outside)} "
        f"| {_ms(s.analysis.cpu)} | {_ms(s.script.cpu)} | {_ms(s.first)} | {s.ready:.1f} s | {requests} "
        f"| {_ms(s.health_wait)} | {s.resident_bytes / 1e6:.0f} MB | {s.most_resident_bytes / 1e6:.0f} MB |"
    )


def _answer_row(s: FleetSize) -> str:
    pages = " | ".join(f"{page.ours * 1e3:.2f} ms | {page.static * 1e3:.2f} ms" for page in s.pages)
    return (
        f"| {s.gpus} | {s.results_bytes / 1e6:.1f} MB | {_ms(s.results)} | {_ms(s.results_gzip)} "
        f"| {_ms(s.results_first)} | {s.page_bytes / 1e6:.1f} MB | {pages} |"
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"
