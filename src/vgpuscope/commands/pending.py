"""`vgpuscope pending`."""

import argparse

from vgpuscope.commands.arguments import add_json, add_language
from vgpuscope.commands.command import Command
from vgpuscope.model.service import CLUSTER_PORT, default_url


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [NS/POD] [--all] [--lang {en,zh}] [--json] [URL]"
    parser.add_argument(
        "words",
        metavar="NS/POD or URL",
        nargs="*",
        help=f"A pod by namespace and name; address of a cluster exporter. [default: {default_url(CLUSTER_PORT)}]",
    )
    parser.add_argument(
        "--all", action="store_true", help="Include pods that stopped waiting; the exporter keeps them for one day."
    )
    add_language(parser)
    add_json(parser)


def _run(args: argparse.Namespace) -> int:
    from vgpuscope.commands.actions import pending

    return pending.main(args.words, everything=args.all, language=args.lang, as_json=args.json)


COMMAND = Command(
    name="pending",
    synopsis="pending [NS/POD]",
    help="list pods that wait for a GPU, and why",
    description="Print one row per pod that waits for GPUs, or the details of one pod: its request, why no node fits, "
    "who reported that, and what to do. Reads from the cluster exporter.",
    examples=(
        ("vgpuscope pending", "all pods that wait for a GPU"),
        ("vgpuscope pending ml/train-0", "why one pod waits, and what to do"),
        ("vgpuscope pending ml/train-0 --lang zh", "the same in Chinese"),
    ),
    arguments=_arguments,
    run=_run,
)
