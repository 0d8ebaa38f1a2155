"""`make bench`: measure the agent against its peers and lower bounds; exit code 1 when a target is missed."""

import argparse
import sys

from bench import report
from bench.measure import QUICK, Effort, run


def main() -> int:
    """Measure, write the figures down, say what was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute instead of five; figures are not kept")
    arguments = parser.parse_args()
    result = report.result(run(QUICK if arguments.quick else Effort()))
    if not arguments.quick:
        report.save(result)
    print(report.markdown(result) if arguments.quick else "", report.terminal(result), sep="\n")
    return 0 if all(target.met for target in result.targets) else 1


sys.exit(main())
