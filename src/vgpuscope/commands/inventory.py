"""Commands that print a table of the cluster exporter: `vgpuscope nodes` and `vgpuscope gpus`."""

import argparse
from typing import Literal

from vgpuscope.commands.arguments import add_json, add_url
from vgpuscope.commands.command import Command
from vgpuscope.model.service import CLUSTER_PORT


def inventory_command(name: Literal["nodes", "gpus"], *, summary: str, description: str) -> Command:
    """The command that prints one of the tables, for a person or as JSON."""

    def run(args: argparse.Namespace) -> int:
        from vgpuscope.commands.actions import inventory

        return inventory.main(name, url=args.url, as_json=args.json)

    return Command(
        name=name,
        synopsis=f"{name} [URL]",
        help=summary,
        description=description,
        examples=(
            (f"vgpuscope {name}", "the cluster exporter on this machine"),
            (f"vgpuscope {name} exporter.monitoring --json", f"another one, port {CLUSTER_PORT}, as JSON"),
        ),
        arguments=_arguments,
        run=run,
    )


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_url(parser, of="cluster exporter", port=CLUSTER_PORT)
    add_json(parser)
