"""Figures of the agent → a verdict and the tables of docs/performance.md."""

from bench.measure import Figures, Latency
from bench.verdict import Result, Target, place, promises


def targets(f: Figures) -> tuple[Target, ...]:
    """All targets; ratios where the absolute value would depend on the machine's speed."""
    found = []
    for form, pair in (("plain", f.plain), ("gzip", f.gzip), ("as Prometheus asks", f.prometheus)):
        pairs = (("p50", pair.ours.p50, pair.static.p50), ("p99", pair.ours.p99, pair.static.p99))
        for rank, ours, static in pairs:
            if rank == "p99" and pair.ours.scrapes < 1000:
                continue  # too few scrapes for a p99
            found.append(Target(what=f"scrape {rank}, {form} / static page", measured=ours / static, bound=2, unit="×"))
    for form, theirs, mine in (("plain", f.peer.scrape, f.plain.ours), ("gzip", f.peer.scrape_gzip, f.gzip.ours)):
        ratio = theirs.p50 / mine.p50
        found.append(
            Target(
                what=f"nvitop-exporter's scrape p50, {form} / ours", measured=ratio, bound=20, unit="×", at_least=True
            )
        )
    return (
        *found,
        Target(what="CPU per sample cycle", measured=f.cpu_per_cycle.median * 1e3, bound=12, unit="ms"),
        Target(
            what="CPU per sample cycle, scraped every 15 s",
            measured=f.cpu_per_cycle_scraped.median * 1e3,
            bound=15,  # includes writing and compressing a page in one of fifteen samples
            unit="ms",
        ),
        Target(what="resident memory", measured=f.resident_bytes / 1e6, bound=50, unit="MB"),
    )


def markdown(result: Result, f: Figures) -> str:
    """The tables for the document."""
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
            place(result, f.speed),
            "",
            *promises(result),
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
