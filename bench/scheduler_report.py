"""Figures of the scheduler bench → the targets, the lines on the terminal and the tables of docs/performance.md."""

from bench.scheduler_bind import BoundFigures
from bench.scheduler_measure import FilterFigures, SchedulerFigures
from bench.verdict import Result, Target, place, promises

_BOUNDS = {1000: 20.0, 5000: 100.0}  # milliseconds


def targets(f: SchedulerFigures) -> tuple[Target, ...]:
    by_size = {one.nodes: one for one in f.filters}
    slowest = [
        Target(
            what=f"filter of one pod over {nodes:,} nodes, p99, CPU",
            measured=1e3 * by_size[nodes].share(0.99),
            bound=bound,
            unit="ms",
        )
        for nodes, bound in _BOUNDS.items()
    ]
    growth = Target(
        what="p50 over 5,000 nodes / five times that over 1,000",
        measured=by_size[5000].share(0.5) / (5 * by_size[1000].share(0.5)),
        bound=1.5,
        unit="×",
    )
    return (*slowest, growth)


def table(f: SchedulerFigures) -> str:
    """Median and 99th percentile of each shape and size, in milliseconds of CPU."""
    sizes = " | ".join(f"{one.nodes:,} nodes" for one in f.filters)
    lines = [f"| request | {sizes} |", "|---|" + "---|" * len(f.filters)]
    for at, shape in enumerate(f.filters[0].shapes):
        lines.append(f"| {shape.shape} | " + " | ".join(_cell(one, at) for one in f.filters) + " |")
    everything = " | ".join(f"{1e3 * one.share(0.5):.2f} / {1e3 * one.share(0.99):.2f}" for one in f.filters)
    return "\n".join([*lines, f"| **all** | {everything} |"])


def bound_table(f: SchedulerFigures) -> str:
    """Pods bound per second through a real kube-scheduler; empty if that was not measured."""
    if not f.bound:
        return ""
    lines = [
        "| nodes | pods | policy | pods bound per second | load | CPU of the extender | requests per pod |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_bound(one) for one in f.bound]
    return "\n".join(lines)


def _bound(one: BoundFigures) -> str:
    cpu, requests = 1e3 * one.cpu / one.pods, one.requests / one.pods
    shown = f"{one.per_second:.1f} | {one.load:.0f} | {cpu:.1f} ms per pod | {requests:.1f}"
    return f"| {one.nodes:,} | {one.pods:,} | {one.policy} | {shown} |"


def _cell(one: FilterFigures, at: int) -> str:
    shape = one.shapes[at]
    return f"{1e3 * shape.share(0.5):.2f} / {1e3 * shape.share(0.99):.2f}"


def markdown(result: Result, f: SchedulerFigures) -> str:
    """The tables for the document."""
    speed = min(one.speed for one in f.filters)
    return "\n".join(
        [
            place(result, speed),
            "",
            *promises(result),
            "",
            "Filter of one pod, p50 / p99 in milliseconds of CPU. Nodes have 8 GPUs and are half full.",
            "",
            table(f),
            "",
            bound_table(f),
        ]
    )
