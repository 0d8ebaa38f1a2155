"""`vgpuscope results`."""

import argparse

from vgpuscope.commands.arguments import add_forms, add_url, form
from vgpuscope.commands.command import Command
from vgpuscope.model.service import ANALYZER_PORT


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_url(parser, of="analyzer", port=ANALYZER_PORT)
    parser.add_argument(
        "--low",
        action="store_true",
        help="Show only GPUs and tenants with the verdict idle, or with a score below thresholds.low_utilization.",
    )
    add_forms(parser)


def _run(args: argparse.Namespace) -> int:
    from vgpuscope.commands.actions import results

    return results.main(url=args.url, only_low=args.low, form=form(args))


COMMAND = Command(
    name="results",
    synopsis="results [URL]",
    help="show the latest results of an analyzer",
    description="Print every GPU with its tenants: score, memory, verdict, class and idle time. Reads from an "
    "analyzer.",
    examples=(
        ("vgpuscope results", "all GPUs, from the analyzer on this machine"),
        ("vgpuscope results --low --csv", "GPUs with the verdict idle or a low score, as CSV"),
    ),
    arguments=_arguments,
    run=_run,
)
