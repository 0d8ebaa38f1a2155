"""`vgpuscope top`."""

import argparse
import os

from vgpuscope.commands.arguments import add_url, url
from vgpuscope.commands.command import EXITS, Command
from vgpuscope.model.errors import ConfigInvalid
from vgpuscope.model.service import AGENT_PORT


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_url(parser, of="agent", port=AGENT_PORT)
    parser.add_argument("--once", action="store_true", help="Print one table and exit.")
    parser.add_argument(
        "--wide", action="store_true", help="With --once: show all columns and whole names on a narrow terminal."
    )
    parser.add_argument(
        "--json", action="store_true", help="Print JSON: one line per interval, or one document with --once."
    )
    parser.add_argument(
        "--interval",
        type=_interval,
        default=1.0,
        metavar="SECONDS",
        help="Time between two updates, at least 0.1. [default: 1]",
    )
    parser.add_argument(
        "--sort", default="gpu", metavar="gpu|memory|sm|power|name", help="Order of the rows. [default: gpu]"
    )
    parser.add_argument("--filter", default="", metavar="TEXT", help="Show only the rows that contain this text.")
    parser.add_argument("--processes", action="store_true", help="Show the processes of each container; key p toggles.")
    parser.add_argument(
        "--no-color", action="store_true", help="Use no colours; the environment variable NO_COLOR does the same."
    )


def _run(args: argparse.Namespace) -> int:
    from vgpuscope.commands.actions import top

    if args.wide and not args.once:
        raise ConfigInvalid(
            "--wide needs --once: the live screen is as wide as the terminal",
            hint="For example: vgpuscope top --once --wide.",
        )
    return top.main(
        url=url(args, port=AGENT_PORT),
        once=args.once,
        wide=args.wide,
        as_json=args.json,
        interval=args.interval,
        sort=args.sort,
        pattern=args.filter,
        processes=args.processes,
        color=not args.no_color and not os.environ.get("NO_COLOR"),
    )


def _interval(text: str) -> float:
    from vgpuscope.runtime import duration

    try:
        value = duration.seconds(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(f"{text!r}: {e}") from None
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not from 0.1 to 3600 seconds")
    return value


COMMAND = Command(
    name="top",
    synopsis="top [URL]",
    help="show one node's GPUs and containers, live",
    description="Show the GPUs of a node and the containers on them, live. Reads from the agent of that node.",
    examples=(
        ("vgpuscope top", "the agent on this machine"),
        ("vgpuscope top node1 --sort memory", f"the agent on node1, port {AGENT_PORT}"),
        ("vgpuscope top --once --json", "one sample as JSON"),
    ),
    arguments=_arguments,
    run=_run,
    exits={
        0: "success, or ended by a key or Ctrl-C",
        1: "no agent answers, with --once",
        2: EXITS[2],
        143: "ended by SIGTERM",
    },
)
