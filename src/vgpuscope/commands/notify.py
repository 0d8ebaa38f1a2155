"""`vgpuscope notify`."""

import argparse
import os

from vgpuscope.commands.command import Command


def _arguments(parser: argparse.ArgumentParser) -> None:
    from vgpuscope.commands.setting_flags import add_setting_flags

    add_setting_flags(parser, sections=("log",))
    parser.add_argument("channel", metavar="CHANNEL", nargs="?", help="The channel. Without it, all are listed.")


def _run(args: argparse.Namespace) -> int:
    from vgpuscope.commands.actions import notify
    from vgpuscope.commands.setting_flags import given, settings_file

    return notify.main(args.channel, flags=given(args), environ=os.environ, file=settings_file(args))


COMMAND = Command(
    name="notify",
    synopsis="notify [CHANNEL]",
    help="send a trial message through a channel for notices",
    description="Check the channels for notices of the settings (notify.channels), and send a trial message through "
    "one of them, from this machine.",
    examples=(
        ("vgpuscope notify --config prod.yaml", "list the channels of a file"),
        ("vgpuscope notify --config prod.yaml ml-team", "send a trial message"),
    ),
    arguments=_arguments,
    run=_run,
    note="The message names no workload. The analyzer does not have to run.",
)
