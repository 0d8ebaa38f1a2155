"""`vgpuscope why`."""

import argparse

from vgpuscope.commands.arguments import add_json, add_language
from vgpuscope.commands.command import Command
from vgpuscope.model.service import EXTENDER_PORT, default_url


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s NS/POD [--url URL] [--lang {en,zh}] [--json]"
    parser.add_argument("words", metavar="NS/POD", nargs="+", help="The pod, by namespace and name.")
    parser.add_argument(
        "--url", metavar="URL", help=f"Address of a scheduler extender. [default: {default_url(EXTENDER_PORT)}]"
    )
    add_language(parser)
    add_json(parser)


def _run(args: argparse.Namespace) -> int:
    from vgpuscope.commands.actions import why

    return why.main([*args.words, *([args.url] if args.url else [])], language=args.lang, as_json=args.json)


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
