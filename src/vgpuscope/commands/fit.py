"""`vgpuscope fit`."""

import argparse

from vgpuscope.commands.arguments import add_json, add_language, add_namespace, add_url, add_wide, url
from vgpuscope.commands.command import EXITS, Command
from vgpuscope.model.service import EXTENDER_PORT


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f",
        "--filename",
        required=True,
        metavar="FILE",
        help="Manifests in YAML or JSON; - reads standard input. Pods, Deployments, StatefulSets, Jobs and others.",
    )
    parser.add_argument(
        "--replicas", type=int, metavar="N", help="Replicas to place. [default: as the manifest says, or 1]"
    )
    add_url(parser, of="scheduler extender", port=EXTENDER_PORT)
    add_namespace(parser, "Namespace of manifests that name none.")
    add_json(parser)
    add_language(parser)
    add_wide(parser)


def _run(args: argparse.Namespace) -> int:
    from vgpuscope.commands.actions import fit

    return fit.main(
        args.filename,
        url=url(args, port=EXTENDER_PORT),
        replicas=args.replicas,
        namespace=args.namespace or "",
        language=args.lang,
        as_json=args.json,
        wide=args.wide,
    )


COMMAND = Command(
    name="fit",
    synopsis="fit -f FILE",
    help="check whether a pod would fit, and where",
    description="Ask the scheduler extender where the pods of a manifest would go. Nothing is created: the answer "
    "uses the current allocations. If a pod does not fit, the command prints which node lacks how much, and what would "
    "help: a smaller request, fewer constraints, idle pods to end, pods to move.",
    examples=(
        ("vgpuscope fit -f pod.yaml", "whether this pod would fit now"),
        ("vgpuscope fit -f deployment.yaml --replicas 8", "how many of eight replicas would fit"),
        ("vgpuscope fit -f - --replicas 2", "a manifest from standard input, for example of kubectl get -o yaml"),
    ),
    arguments=_arguments,
    run=_run,
    exits={**EXITS, 1: "some replicas do not fit, or the command failed"},
)
