"""`vgpuscope agent`."""

import argparse

from vgpuscope.commands.command import SERVICE_EXITS, Command
from vgpuscope.model.service import AGENT_PORT


def _arguments(parser: argparse.ArgumentParser) -> None:
    from vgpuscope.commands.setting_flags import add_setting_flags

    add_setting_flags(parser, sections=("agent", "log"))
    parser.add_argument("--once", action="store_true", help="Print one sample in the Prometheus text format, and exit.")


def _run(args: argparse.Namespace) -> int:
    from vgpuscope.commands.setting_flags import of_service

    config, file = of_service(args, sections=("agent",))
    from vgpuscope.services.agent import process as agent  # only after the settings proved to be valid

    return agent.main(config, once=args.once, file=file)


COMMAND = Command(
    name="agent",
    synopsis="agent",
    help=f"sample this node's GPUs; serve /metrics on :{AGENT_PORT}",
    description="Sample the GPUs, containers and pods of this node and serve them on /metrics.",
    examples=(
        ("vgpuscope agent --once", "print one sample and exit"),
        (f"vgpuscope agent --listen :{AGENT_PORT} --pods kube", "serve metrics, with pod names from the API server"),
    ),
    note="Flags take precedence over environment variables, and environment variables over the settings file.",
    arguments=_arguments,
    run=_run,
    exits=SERVICE_EXITS,
)
