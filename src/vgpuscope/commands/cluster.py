"""`vgpuscope cluster`."""

import argparse

from vgpuscope.commands.command import SERVICE_EXITS, Command
from vgpuscope.model.service import CLUSTER_PORT


def _arguments(parser: argparse.ArgumentParser) -> None:
    from vgpuscope.commands.setting_flags import add_setting_flags

    add_setting_flags(parser, sections=("cluster", "log"))


def _run(args: argparse.Namespace) -> int:
    from vgpuscope.commands.setting_flags import of_service

    config, file = of_service(args, sections=("cluster",))
    from vgpuscope.services.cluster import process as cluster  # only after the settings proved to be valid

    return cluster.main(config, file=file)


COMMAND = Command(
    name="cluster",
    synopsis="cluster",
    help=f"serve the GPU allocations of the cluster on :{CLUSTER_PORT}",
    description="Watch the nodes, pods and quotas of the cluster, and serve on /metrics which pod holds which GPU.",
    examples=(
        ("vgpuscope cluster --kubeconfig ~/.kube/config", "watch from outside the cluster"),
        ("vgpuscope cluster --namespaces ml,research", "watch the pods and quotas of two namespaces"),
    ),
    note="Flags take precedence over environment variables, and environment variables over the settings file.",
    arguments=_arguments,
    run=_run,
    exits=SERVICE_EXITS,
)
