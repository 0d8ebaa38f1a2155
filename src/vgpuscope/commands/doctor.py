"""`vgpuscope doctor`."""

import argparse

from vgpuscope.commands.arguments import add_json, add_language
from vgpuscope.commands.command import EXITS, Command
from vgpuscope.model.service import AGENT_PORT, ANALYZER_PORT, CLUSTER_PORT, default_url

_EXITS = {
    0: "nothing was found, or with --audit: no numbers contradict each other",
    1: "warnings, or with --audit: some numbers contradict each other",
    2: "failures, wrong arguments, or with --audit: not finished in time",
    3: "no check could run, or nothing could be compared",
    130: EXITS[130],
}
_NOTE = (
    "VGPUSCOPE_TOKEN is sent to our own services. Nothing is changed anywhere. Services that "
    "are not named are found by the settings, at the default ports, in a running demo, or through the Kubernetes API."
)
_AUDIT_NOTE = "With --audit the time limit is six times --deadline, because a difference is read three times."


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--agent",
        metavar="URL",
        action="append",
        help="Address of an agent; can be repeated. "
        f"[default: those that are found, such as {default_url(AGENT_PORT)}]",
    )
    parser.add_argument(
        "--cluster",
        metavar="URL",
        help=f"Address of the cluster exporter. [default: the one that is found, such as {default_url(CLUSTER_PORT)}]",
    )
    parser.add_argument(
        "--analyzer",
        "--url",
        metavar="URL",
        help=f"Address of an analyzer. [default: the one that is found, such as {default_url(ANALYZER_PORT)}]",
    )
    parser.add_argument(
        "--extender", metavar="URL", help="Address of a scheduler extender. [default: the one that is found]"
    )
    parser.add_argument("--plugin", metavar="URL", action="append", help="Address of a device plugin; can be repeated.")
    parser.add_argument(
        "--prometheus", metavar="URL", help="Address of Prometheus. [default: the one that the analyzer reads]"
    )
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="Kubeconfig. [default: KUBECONFIG, ~/.kube/config or the service account]"
    )
    parser.add_argument(
        "--condition", metavar="{…}", help="Matchers that select series, as prometheus.query_condition does."
    )
    parser.add_argument(
        "--deadline", metavar="SECONDS", type=float, default=20.0, help="Time limit for all checks. [default: 20]"
    )
    parser.add_argument("--all", action="store_true", help="Also list what passed, and what was not checked and why.")
    add_language(parser)
    parser.add_argument(
        "--bundle", metavar="FILE", help="Write an archive (.tar.gz) for a bug report, without secrets."
    )
    add_json(parser)
    parser.add_argument(
        "--audit",
        action="store_true",
        help="Compare the numbers of all services, and print where they contradict each other.",
    )


def _run(args: argparse.Namespace) -> int:
    if args.audit:
        from vgpuscope.commands.actions import audit

        return audit.main(
            analyzer=args.analyzer,
            cluster=args.cluster,
            agents=tuple(args.agent or ()),
            extender=args.extender,
            kubeconfig=args.kubeconfig,
            deadline=args.deadline,
            language=args.lang,
            as_json=args.json,
        )
    from vgpuscope.commands.actions import doctor

    return doctor.main(
        doctor.DoctorArguments(
            agents=tuple(args.agent or ()),
            cluster=args.cluster,
            analyzer=args.analyzer,
            extender=args.extender,
            plugins=tuple(args.plugin or ()),
            prometheus=args.prometheus,
            kubeconfig=args.kubeconfig,
            condition=args.condition,
            deadline=args.deadline,
        ),
        everything=args.all,
        language=args.lang,
        as_json=args.json,
        bundle=args.bundle,
    )


COMMAND = Command(
    name="doctor",
    synopsis="doctor",
    help="find out why numbers are missing or wrong",
    description="Check the whole chain: driver, HAMi regions, agents, scrape, labels, units, freshness, permissions, "
    "scheduler, analyzer and history. Each finding has a code, its cause and its fix, with commands to copy. Run it "
    "on a GPU "
    "node, or anywhere with the addresses of the services.",
    examples=(
        ("vgpuscope doctor", "this node, and the services that are found"),
        ("vgpuscope doctor --prometheus http://prometheus:9090", "a cluster from outside"),
        ("vgpuscope doctor --bundle report.tar.gz", "an archive for a bug report"),
        ("vgpuscope doctor --audit", "whether the numbers of the system agree with each other"),
    ),
    arguments=_arguments,
    run=_run,
    note=f"{_NOTE}\n\n{_AUDIT_NOTE}",
    exits=_EXITS,
)
