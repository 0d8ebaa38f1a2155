"""`vgpuscope why`."""

import argparse

from vgpuscope.commands.arguments import add_json, add_language, add_url, add_wide
from vgpuscope.commands.command import Command
from vgpuscope.model.service import EXTENDER_PORT


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [-h] NS/POD [--json] [--lang {en,zh}] [--wide]\n                     [--url URL | URL]"
    parser.add_argument(
        "words",
        metavar="NS/POD or URL",
        nargs="+",
        help="The pod, by namespace and name. A URL is the same as --url URL.",
    )
    add_url(parser, of="scheduler extender", port=EXTENDER_PORT, positional=False)
    add_json(parser)
    add_language(parser)
    add_wide(parser)


def _run(args: argparse.Namespace) -> int:
    from vgpuscope.commands.actions import why

    return why.main(args.words, url=args.url, language=args.lang, as_json=args.json, wide=args.wide)


COMMAND = Command(
    name="why",
    synopsis="why NS/POD",
    help="explain the decisions about a pod with GPUs",
    description="Print what a pod asked for, the verdict on every node, the terms of the score and the choice. For a "
    "pod that fits nowhere, also what would make it fit. Reads from the scheduler extender, which keeps its decisions "
    "for 24 hours. Without an extender, `vgpuscope pending` prints what other schedulers report.",
    examples=(
        ("vgpuscope why ml/train-0", "why this pod runs where it does, or nowhere"),
        ("vgpuscope why ml/train-0 --lang zh", "the same in Chinese"),
        ("vgpuscope why ml/train-0 --url http://vgpuscope-extender --json", "every decision about it as JSON"),
    ),
    arguments=_arguments,
    run=_run,
)
