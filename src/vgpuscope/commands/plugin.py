"""`vgpuscope plugin`."""

import argparse

from vgpuscope.commands.command import SERVICE_EXITS, Command
from vgpuscope.model.service import PLUGIN_PORT


def _arguments(parser: argparse.ArgumentParser) -> None:
    from vgpuscope.commands.setting_flags import add_setting_flags

    add_setting_flags(parser, sections=("plugin", "log"))


def _run(args: argparse.Namespace) -> int:
    from vgpuscope.commands.setting_flags import of_service

    config, file = of_service(args, sections=("plugin",))
    from vgpuscope.services.plugin import process as plugin  # only after the settings proved to be valid

    return plugin.main(config, file=file)


COMMAND = Command(
    name="plugin",
    synopsis="plugin",
    help=f"offer this node's GPUs to its kubelet, on :{PLUGIN_PORT}",
    description="Offer the GPUs of this node to its kubelet and to HAMi's scheduler, and give them to containers.",
    examples=(
        ("vgpuscope plugin --split-count 10", "ten containers can share a GPU"),
        ("vgpuscope plugin --split-count 1", "whole GPUs, also without HAMi's scheduler"),
    ),
    note="It needs root, the kubelet's directory and permissions for pods, nodes and events: docs/plugin.md.",
    arguments=_arguments,
    run=_run,
    exits=SERVICE_EXITS,
)
