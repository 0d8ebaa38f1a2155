"""`vgpuscope waste`."""

import argparse

from vgpuscope.commands.arguments import add_forms, add_language, add_namespace, add_url, add_wide, form, url
from vgpuscope.commands.command import WATCH_EXITS, Command
from vgpuscope.model.service import ANALYZER_PORT


def _arguments(parser: argparse.ArgumentParser) -> None:
    from vgpuscope.model.waste import GROUPINGS

    add_url(parser, of="analyzer", port=ANALYZER_PORT)
    add_namespace(parser, "Only tenants of this namespace; the totals are theirs, too.")
    parser.add_argument(
        "--since", default="24h", metavar="TIME", help="Period to report: 24h, 7d, … [default: %(default)s]"
    )
    parser.add_argument(
        "--group-by",
        choices=GROUPINGS,
        default="tenant",
        help="Add up the GPU-hours of each tenant, namespace, owner, node or model. [default: %(default)s]",
    )
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="Rows of the table. [default: %(default)s]")
    add_forms(parser, watch=True)
    add_language(parser)
    add_wide(parser)


def _run(args: argparse.Namespace) -> int:
    from vgpuscope.commands.actions import waste

    return waste.main(
        url=url(args, port=ANALYZER_PORT),
        since=args.since,
        group_by=args.group_by,
        namespace=args.namespace,
        limit=args.limit,
        form=form(args),
        language=args.lang,
        wide=args.wide,
        every=args.watch,
    )


COMMAND = Command(
    name="waste",
    synopsis="waste [URL]",
    help="rank tenants by idle GPU-hours",
    description="Rank tenants by the GPU-hours that they held and did not use. Reads from an analyzer that stores its "
    "results (analyzer.history).",
    examples=(
        ("vgpuscope waste --since 7d", "the last week, by tenant"),
        ("vgpuscope waste --since 30d --group-by namespace --csv", "the last month, by namespace, as CSV"),
    ),
    arguments=_arguments,
    run=_run,
    exits=WATCH_EXITS,
)
