"""`vgpuscope gpus`."""

import argparse

from vgpuscope.commands.arguments import add_json, add_url
from vgpuscope.commands.command import Command
from vgpuscope.model.service import CLUSTER_PORT


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_url(parser, of="cluster exporter", port=CLUSTER_PORT)
    add_json(parser)


def _run(args: argparse.Namespace) -> int:
    from vgpuscope.commands.clients import inventory

    return inventory.main("gpus", url=args.url, as_json=args.json)


COMMAND = Command(
    name="gpus",
    synopsis="gpus [URL]",
    help="list GPUs: model, health, allocation, holders",
    description="Print one row per GPU of the cluster: model, health, allocated memory and cores, and the pods that "
    "hold it. Reads from the cluster exporter.",
    examples=(
        ("vgpuscope gpus", "the cluster exporter on this machine"),
        ("vgpuscope gpus exporter.monitoring --json", f"another one, port {CLUSTER_PORT}, as JSON"),
    ),
    arguments=_arguments,
    run=_run,
)
