"""`vgpuscope nodes`."""

import argparse

from vgpuscope.commands.arguments import add_json, add_url
from vgpuscope.commands.command import Command
from vgpuscope.model.service import CLUSTER_PORT


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_url(parser, of="cluster exporter", port=CLUSTER_PORT)
    add_json(parser)


def _run(args: argparse.Namespace) -> int:
    from vgpuscope.commands.clients import inventory

    return inventory.main("nodes", url=args.url, as_json=args.json)


COMMAND = Command(
    name="nodes",
    synopsis="nodes [URL]",
    help="list nodes: allocations, free capacity, findings",
    description="Print one row per node: GPUs, allocated memory, the largest request that still fits, and findings. "
    "Reads from the cluster exporter.",
    examples=(
        ("vgpuscope nodes", "the cluster exporter on this machine"),
        ("vgpuscope nodes exporter.monitoring --json", f"another one, port {CLUSTER_PORT}, as JSON"),
    ),
    arguments=_arguments,
    run=_run,
)
