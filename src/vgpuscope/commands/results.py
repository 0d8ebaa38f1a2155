"""`vgpuscope results`."""

import argparse

from vgpuscope.commands.arguments import add_forms, add_language, add_namespace, add_url, add_wide, form, url
from vgpuscope.commands.command import WATCH_EXITS, Command
from vgpuscope.model.errors import ConfigInvalid
from vgpuscope.model.service import ANALYZER_PORT


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_url(parser, of="analyzer", port=ANALYZER_PORT)
    add_namespace(parser, "Only GPUs of which a tenant is in this namespace; with --low, also only its tenants.")
    parser.add_argument(
        "--low",
        action="store_true",
        help="Show only GPUs and tenants with the verdict idle, or with a score below thresholds.low_utilization.",
    )
    parser.add_argument(
        "--kind",
        choices=("gpu", "tenant"),
        help="With --low, show only GPUs and MIG instances, or only tenants, also those that have a GPU alone.",
    )
    add_forms(parser, watch=True)
    add_language(parser)
    add_wide(parser)


def _run(args: argparse.Namespace) -> int:
    from vgpuscope.commands.actions import results

    if args.kind and not args.low:
        raise ConfigInvalid("--kind needs --low", hint="For example: vgpuscope results --low --kind gpu.")
    return results.main(
        url=url(args, port=ANALYZER_PORT),
        only_low=args.low,
        kind=args.kind,
        namespace=args.namespace,
        form=form(args),
        language=args.lang,
        wide=args.wide,
        every=args.watch,
    )


COMMAND = Command(
    name="results",
    synopsis="results [URL]",
    help="show the latest results of an analyzer",
    description="Print every GPU with its tenants: score, memory, verdict, class and idle time. Reads from an "
    "analyzer.",
    examples=(
        ("vgpuscope results", "all GPUs, from the analyzer on this machine"),
        ("vgpuscope results --low --csv", "GPUs and tenants with the verdict idle or a low score, as CSV"),
        ("vgpuscope results --low --kind tenant", "only the tenants of them"),
    ),
    arguments=_arguments,
    run=_run,
    exits=WATCH_EXITS,
)
