"""Figures of the console → a verdict and the tables of docs/performance.md."""

import statistics

from bench.console_measure import ConsoleFigures, Consoles, Times
from bench.verdict import Result, Target, place, promises

_KB = 1000


def targets(f: ConsoleFigures) -> tuple[Target, ...]:
    """The targets; times are medians."""
    return (
        _target(f"first useful paint, {f.gpus} GPUs, {f.workloads} workloads", f.paint.median, 1.5, "s"),
        *(_target(one.what, one.median * 1e3, 100, "ms") for one in f.inputs),
        _target("map redraw, by model and by node", f.redraw.median * 1e3, 50, "ms"),
        _target(f"JavaScript heap, growth over {f.heap.refreshes} refreshes", 100 * f.heap.growth, 10, "%"),
        _target("all built files, gzipped", f.bundle / _KB, 180, "kB"),
        _target(f"analyzer's CPU for {f.consoles.number} open consoles, of one core", 100 * f.consoles.share, 5, "%"),
    )


def _target(what: str, measured: float, bound: float, unit: str) -> Target:
    return Target(what=what, measured=measured, bound=bound, unit=unit)


def markdown(result: Result, f: ConsoleFigures) -> str:
    """The tables for the document."""
    return "\n".join(
        [
            f"{place(result, f.speed)} When the browser had been measured, the load average of its "
            f"{result.machine.cores} cores was {f.load:.1f}, the bench included.",
            "",
            *promises(result),
            "",
            "| time | median | fastest | slowest | CPU of the page's main thread, median | number |",
            "|---|---|---|---|---|---|",
            *(_row(one) for one in (f.paint, *f.inputs, f.redraw)),
            "",
            f"JavaScript heap: {f.heap.before / 1e6:.1f} MB before, {f.heap.after / 1e6:.1f} MB after.",
            "",
            "| lower bound, in the same browser at the same time | median |",
            "|---|---|",
            *(f"| {what} | {1e3 * seconds:.0f} ms |" for what, seconds in f.bounds.items()),
            "",
            _of_consoles(f.consoles, f.resident_bytes),
        ]
    )


def _of_consoles(c: Consoles, resident: int) -> str:
    before, after = c.without
    got, size, same = (c.received.get(what, 0) for what in ("200", "bytes", "304"))
    return (
        f"CPU of the analyzer in {c.seconds:.0f} s with one analysis: {before:.1f} and {after:.1f} s without consoles "
        f"(before and after), {c.with_them:.1f} s with {c.number}. The periods without consoles differ by "
        f"{100 * c.noise:.1f} % of a core. The consoles got {got} answers, {size / 1e6:.0f} MB, and were told {same} "
        f"times that nothing has changed. The analyzer had {resident / 1e6:.0f} MB resident."
    )


def _row(one: Times) -> str:
    times = (one.median, min(one.seconds), max(one.seconds))
    cpu = f"{1e3 * statistics.median(one.cpu):.0f} ms" if one.cpu else "–"
    return f"| {one.what} | {' | '.join(f'{1e3 * at:.0f} ms' for at in times)} | {cpu} | {len(one.seconds)} |"
