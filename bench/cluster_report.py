"""Figures of the cluster exporter → a verdict and the tables of docs/performance.md."""

from collections.abc import Iterator

from bench.cluster_measure import ClusterFigures, ClusterSize, Scrapes
from bench.verdict import Result, Target, place, promises

_FEW = 50  # nodes: the page is too small for meaningful ratios


def targets(f: ClusterFigures) -> tuple[Target, ...]:
    """The targets at every size."""
    return (*(target for size in f.sizes for target in _of_size(size)), *_growth(f))


def _of_size(s: ClusterSize) -> Iterator[Target]:
    at, plain, packed = f"{s.nodes} nodes: ", s.plain, s.gzip
    if s.nodes > _FEW:
        times = {"time": (plain.changed.wall, plain.static.wall), "CPU": (plain.changed.cpu, plain.static.cpu)}
        for what, (ours, static) in times.items():
            yield Target(what=f"{at}plain scrape, {what} / static page", measured=ours / static, bound=2, unit="×")
        yield _target(f"{at}plain scrape, CPU per 100,000 samples", s.per_100k(plain.changed.cpu) * 1e3, 15, "ms")
        yield _target(f"{at}gzip scrape, CPU per 100,000 samples", s.per_100k(packed.changed.cpu) * 1e3, 50, "ms")
    yield _target(f"{at}one pod event of a storm, CPU", s.event * 1e6, 300, "µs")
    yield _target(f"{at}resident memory", s.resident_bytes / 1e6, s.pods * 0.01 + 100, "MB")
    if s.pods == 32_000:
        yield _target(f"{at}first sync of 32,000 pods, {s.served_by}", s.first_sync, 15, "s")


def _growth(f: ClusterFigures) -> Iterator[Target]:
    """Linear growth: the cost per unit on the largest cluster, as a multiple of the smallest."""
    small, large = f.sizes[0], f.sizes[-1]
    at = f"{large.nodes} / {small.nodes} nodes: "
    for form, few, many in (("plain", small.plain, large.plain), ("gzip", small.gzip, large.gzip)):
        ratio = large.per_100k(many.changed.cpu) / small.per_100k(few.changed.cpu)
        yield Target(what=f"{at}{form} scrape, CPU per sample", measured=ratio, bound=2, unit="×")
    yield Target(what=f"{at}CPU per event", measured=large.event / small.event, bound=2, unit="×")


def _target(what: str, measured: float, bound: float, unit: str) -> Target:
    return Target(what=what, measured=measured, bound=bound, unit=unit)


def markdown(result: Result, f: ClusterFigures) -> str:
    """The tables for the document."""
    return "\n".join(
        [
            place(result, f.speed),
            "",
            *promises(result),
            "",
            "A scrape after 1 % of the pods changed. CPU is the exporter's, per 100,000 samples:",
            "",
            "| nodes | samples | page | form | CPU | time | CPU, nothing changed | static page: CPU | time "
            "| prometheus_client | longest /healthz meanwhile |",
            "|---|---|---|---|---|---|---|---|---|---|---|",
            *(row for s in f.sizes for row in _scrape_rows(s)),
            "",
            "What happens between scrapes, and what it takes to hold it all:",
            "",
            "| nodes | pods | served by | ready after | CPU for that | CPU per event: storm | one event to a node "
            "| CPU at rest | resident | the most it was | first gzip scrape | longest /healthz meanwhile |",
            "|---|---|---|---|---|---|---|---|---|---|---|---|",
            *(_other_row(s) for s in f.sizes),
        ]
    )


def _scrape_rows(s: ClusterSize) -> Iterator[str]:
    for form, size, scrapes, library in (
        ("plain", s.page_bytes, s.plain, s.library.plain),
        ("gzip", s.gzip_bytes, s.gzip, s.library.gzip),
    ):
        yield f"| {s.nodes} | {s.samples} | {size / 1e6:.1f} MB | {form} | {_scrape_cells(s, scrapes, library)} |"


def _scrape_cells(s: ClusterSize, scrapes: Scrapes, library: float) -> str:
    def ms(seconds: float) -> str:
        return f"{s.per_100k(seconds) * 1e3:.1f} ms"

    times = library / scrapes.changed.cpu
    return " | ".join(
        [
            ms(scrapes.changed.cpu),
            f"{scrapes.changed.wall * 1e3:.0f} ms",
            ms(scrapes.unchanged.cpu),
            ms(scrapes.static.cpu),
            f"{scrapes.static.wall * 1e3:.0f} ms",
            f"{ms(library)} ({times:.0f} ×)",
            f"{scrapes.health_wait * 1e3:.0f} ms",
        ]
    )


def _other_row(s: ClusterSize) -> str:
    return (
        f"| {s.nodes} | {s.pods} | {s.served_by} | {s.first_sync:.1f} s | {s.first_sync_cpu:.1f} s "
        f"| {s.event * 1e6:.0f} µs | {s.lone_event * 1e6:.0f} µs | {s.idle:.1%} | {s.resident_bytes / 1e6:.0f} MB "
        f"| {s.most_resident_bytes / 1e6:.0f} MB | {s.first_gzip:.2f} s | {s.first_health_wait * 1e3:.0f} ms |"
    )
