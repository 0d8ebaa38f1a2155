"""`vgpuscope extender`."""

import argparse

from vgpuscope.commands.command import SERVICE_EXITS, Command
from vgpuscope.model.service import EXTENDER_PORT


def _arguments(parser: argparse.ArgumentParser) -> None:
    from vgpuscope.commands.setting_flags import add_setting_flags

    add_setting_flags(parser, sections=("extender", "log"))


def _run(args: argparse.Namespace) -> int:
    from vgpuscope.commands.setting_flags import of_service

    config, file = of_service(args, sections=("extender",))
    from vgpuscope.services.extender import process as extender  # only after the settings proved to be valid

    return extender.main(config, file=file)


COMMAND = Command(
    name="extender",
    synopsis="extender",
    help=f"decide where pods with GPUs run, on :{EXTENDER_PORT}",
    description="Choose the node and the GPUs of pods as HAMi's scheduler does, for a kube-scheduler that names this "
    "extender in its configuration; explain every decision, and serve metrics about them.",
    examples=(
        ("vgpuscope extender --kubeconfig ~/.kube/config", "decide from outside the cluster"),
        ("vgpuscope extender --node-scheduler-policy spread", "prefer the emptiest node"),
        ("vgpuscope extender --allow-from 10.0.0.0/8", "kube-scheduler runs on another machine"),
    ),
    note="Flags take precedence over environment variables, and environment variables over the settings file.",
    arguments=_arguments,
    run=_run,
    exits=SERVICE_EXITS,
)
