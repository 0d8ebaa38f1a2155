"""`vgpuscope pending`."""

import argparse

from vgpuscope.commands.arguments import add_forms, add_language, add_namespace, add_url, add_wide, form
from vgpuscope.commands.command import WATCH_EXITS, Command
from vgpuscope.model.service import CLUSTER_PORT


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "%(prog)s [-h] [NS/POD] [--all] [--namespace NAME]\n"
        "                         [--json | --csv | --watch [SECONDS]] [--lang {en,zh}]\n"
        "                         [--wide] [--url URL | URL]"
    )
    parser.add_argument(
        "words", metavar="NS/POD or URL", nargs="*", help="A pod by namespace and name. A URL is the same as --url URL."
    )
    parser.add_argument(
        "--all", action="store_true", help="Include pods that stopped waiting; the exporter keeps them for one day."
    )
    add_url(parser, of="cluster exporter", port=CLUSTER_PORT, positional=False)
    add_namespace(parser, "Only pods of this namespace.")
    add_forms(parser, watch=True)
    add_language(parser)
    add_wide(parser)


def _run(args: argparse.Namespace) -> int:
    from vgpuscope.commands.actions import pending

    return pending.main(
        args.words,
        url=args.url,
        namespace=args.namespace,
        everything=args.all,
        language=args.lang,
        form=form(args),
        wide=args.wide,
        every=args.watch,
    )


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
        ("vgpuscope pending --namespace ml --watch", "the pods of a namespace, again every 5 seconds"),
    ),
    arguments=_arguments,
    run=_run,
    exits=WATCH_EXITS,
)
