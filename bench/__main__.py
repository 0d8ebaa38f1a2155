"""`make bench`: measure against comparable programs and lower bounds; exit code 1 if a target is missed."""

import argparse
import sys
from collections.abc import Callable
from typing import Any

from bench import (
    analyzer_measure,
    analyzer_report,
    cluster_measure,
    cluster_report,
    console_measure,
    console_report,
    measure,
    reclaim_measure,
    reclaim_report,
    report,
    scheduler_measure,
    scheduler_report,
    trust_measure,
    trust_report,
    verdict,
)
from bench.programs import NVITOP

Bench = tuple[Callable[[bool], Any], Callable[[Any], tuple[verdict.Target, ...]], Callable[[verdict.Result, Any], str]]


def _agent(quick: bool) -> measure.Figures:
    return measure.run(measure.QUICK if quick else measure.Effort())


def _cluster(quick: bool) -> cluster_measure.ClusterFigures:
    return cluster_measure.run(cluster_measure.CLUSTER_QUICK if quick else cluster_measure.ClusterEffort())


def _analyzer(quick: bool) -> analyzer_measure.AnalyzerFigures:
    return analyzer_measure.run(analyzer_measure.ANALYZER_QUICK if quick else analyzer_measure.AnalyzerEffort())


def _console(quick: bool) -> console_measure.ConsoleFigures:
    return console_measure.run(console_measure.CONSOLE_QUICK if quick else console_measure.ConsoleEffort())


def _trust(quick: bool) -> trust_measure.TrustFigures:
    figures = trust_measure.run(trust_measure.TRUST_QUICK if quick else trust_measure.TrustEffort())
    print(trust_report.table(figures))
    return figures


def _reclaim(quick: bool) -> reclaim_measure.ReclaimFigures:
    figures = reclaim_measure.run(quick=quick)
    print(reclaim_report.table(figures))
    return figures


def _scheduler(quick: bool) -> scheduler_measure.SchedulerFigures:
    figures = scheduler_measure.run(quick=quick)
    print(scheduler_report.table(figures))
    print(scheduler_report.bound_table(figures))
    return figures


BENCHES: dict[str, Bench] = {
    "agent": (_agent, report.targets, report.markdown),
    "cluster": (_cluster, cluster_report.targets, cluster_report.markdown),
    "analyzer": (_analyzer, analyzer_report.targets, analyzer_report.markdown),
    "console": (_console, console_report.targets, console_report.markdown),
    "trust": (_trust, trust_report.targets, trust_report.markdown),
    "reclaim": (_reclaim, reclaim_report.targets, reclaim_report.markdown),
    "scheduler": (_scheduler, scheduler_report.targets, scheduler_report.markdown),
}


def main() -> int:
    """Measure, save the figures, and print the targets that were missed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "what",
        nargs="*",
        metavar="agent|cluster|analyzer|console|trust|reclaim|scheduler",
        help="what to measure; nothing named: all",
    )
    parser.add_argument("--quick", action="store_true", help="a minute for each; figures are not kept")
    arguments = parser.parse_args()
    unknown = set(arguments.what) - BENCHES.keys()
    if unknown:
        parser.error(f"there is no bench {', '.join(sorted(unknown))}")
    if "agent" in (arguments.what or BENCHES) and not NVITOP.exists():
        parser.error("the agent is compared with nvitop-exporter, which is not installed: run `make bench BENCH=agent`")
    return max([_bench(name, quick=arguments.quick) for name in arguments.what or BENCHES])


def _bench(name: str, *, quick: bool) -> int:
    run, targets, markdown = BENCHES[name]
    figures = run(quick)
    result = verdict.result(figures, targets(figures))
    tables = markdown(result, figures)
    if quick:
        print(tables)
    else:
        verdict.save(name, result, tables)
    print("", f"{name}:", verdict.terminal(result), sep="\n")
    return 0 if all(target.met for target in result.targets) else 1


sys.exit(main())
