"""Commands that print a table of the cluster exporter: `vgpuscope nodes` and `vgpuscope gpus`."""

import argparse
from typing import Literal

from vgpuscope.commands.arguments import add_forms, add_language, add_namespace, add_url, add_wide, form, url
from vgpuscope.commands.command import WATCH_EXITS, Command
from vgpuscope.model.service import CLUSTER_PORT


def inventory_command(name: Literal["nodes", "gpus"], *, summary: str, description: str) -> Command:
    """The command that prints one of the tables, for a person, as JSON or as CSV."""

    def arguments(parser: argparse.ArgumentParser) -> None:
        add_url(parser, of="cluster exporter", port=CLUSTER_PORT)
        if name == "gpus":
            add_namespace(parser, "Only GPUs that a pod of this namespace holds.")
        add_forms(parser, watch=True)
        add_language(parser)
        add_wide(parser)

    def run(args: argparse.Namespace) -> int:
        from vgpuscope.commands.actions import inventory

        return inventory.main(
            name,
            url=url(args, port=CLUSTER_PORT),
            namespace=args.namespace if name == "gpus" else None,
            form=form(args),
            language=args.lang,
            wide=args.wide,
            every=args.watch,
        )

    return Command(
        name=name,
        synopsis=f"{name} [URL]",
        help=summary,
        description=description,
        examples=(
            (f"vgpuscope {name}", "the cluster exporter on this machine"),
            (f"vgpuscope {name} --url exporter.monitoring --json", f"another one, port {CLUSTER_PORT}, as JSON"),
            (f"vgpuscope {name} --watch", "again every 5 seconds"),
        ),
        arguments=arguments,
        run=run,
        exits=WATCH_EXITS,
    )
