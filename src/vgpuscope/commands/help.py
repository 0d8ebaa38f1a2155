"""`vgpuscope help`."""

import argparse

from vgpuscope.commands.command import Command


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", metavar="COMMAND", nargs="*", help="The command. Without it, all are listed.")


def _run(args: argparse.Namespace) -> int:
    if not args.words:
        return int(args.overview())
    args.whole().parse_args([*args.words, "--help"])
    return 0


COMMAND = Command(
    name="help",
    synopsis="help [COMMAND]",
    help="explain a command: arguments, examples, exit codes",
    description="Print what `vgpuscope COMMAND --help` prints. Without a command, list all commands.",
    examples=(
        ("vgpuscope help", "all commands"),
        ("vgpuscope help results", "one of them"),
        ("vgpuscope help reclaim snooze", "a command of a command"),
    ),
    arguments=_arguments,
    run=_run,
)
