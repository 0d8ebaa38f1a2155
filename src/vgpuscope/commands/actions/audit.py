"""`vgpuscope doctor --audit`: compare the numbers of a running system, and print where they contradict each other."""

import asyncio
import os
from pathlib import Path

from vgpuscope.commands.actions.access import in_pod, token
from vgpuscope.commands.actions.language import language_of
from vgpuscope.model.consistency import AuditReport
from vgpuscope.model.errors import ConfigInvalid
from vgpuscope.model.quantity import Seconds
from vgpuscope.model.service import AGENT_PORT, ANALYZER_PORT, CLUSTER_PORT, default_url
from vgpuscope.services.audit.audit import AuditTargets, audit
from vgpuscope.services.doctor.asked import ServiceAddress
from vgpuscope.services.doctor.collect import DoctorTargets
from vgpuscope.services.doctor.finding import find
from vgpuscope.terminal.printing import print_drawn, print_json
from vgpuscope.terminal.screen import speak_plainly
from vgpuscope.views.audit.terminal import drawn

_PORTS = (ANALYZER_PORT, CLUSTER_PORT, AGENT_PORT)
_LONGER = 6  # times the deadline of doctor: each difference is read several times
_SHORTEST, _LONGEST = 1.0, 600.0  # seconds


def main(
    *,
    analyzer: str | None,
    cluster: str | None,
    agents: tuple[str, ...],
    extender: str | None,
    kubeconfig: str | None,
    deadline: Seconds,
    language: str | None,
    as_json: bool,
) -> int:
    """Print the audit; 0 without differences, 1 with some, 3 if nothing could be compared."""
    speak_plainly()
    if not _SHORTEST <= deadline <= _LONGEST:
        raise ConfigInvalid(
            f"--deadline: {deadline:g} is not from {_SHORTEST:g} to {_LONGEST:g} seconds",
            hint="For example --deadline 60.",
        )
    found = (
        DoctorTargets(
            agents=tuple(map(ServiceAddress, agents)),
            cluster=ServiceAddress(cluster) if cluster else None,
            analyzer=ServiceAddress(analyzer) if analyzer else None,
            extender=ServiceAddress(extender) if extender else None,
        )
        if analyzer or cluster or agents or extender
        else _found(kubeconfig)
    )
    addresses = (found.analyzer, found.cluster, found.extender, *found.agents)
    foreign = any(one is not None and one.found_by == "cluster" for one in addresses)
    targets = AuditTargets(
        analyzer=found.analyzer.url if found.analyzer else None,
        cluster=found.cluster.url if found.cluster else None,
        agents=tuple(one.url for one in found.agents),
        extender=found.extender.url if found.extender else None,
        token=None if foreign else token(),  # others may publish addresses in the cluster
        within=deadline * _LONGER,
    )
    report = asyncio.run(audit(targets))
    if as_json:
        print_json(report)
    else:
        print_drawn(lambda _: drawn(report, language_of(language, os.environ)))
    return exit_code(report)


def _found(kubeconfig: str | None) -> DoctorTargets:
    """The services that `vgpuscope doctor` finds; if it finds none, the default addresses, so that they are listed."""
    config = kubeconfig or os.environ.get("KUBECONFIG")
    usual = Path("~/.kube/config").expanduser().is_file() or in_pod()
    place = ServiceAddress(config) if config else None
    targets = asyncio.run(find(DoctorTargets(kubeconfig=place, kubernetes=bool(config) or usual), os.environ))
    if targets.analyzer or targets.cluster or targets.agents or targets.extender:
        return targets
    urls = [ServiceAddress(default_url(port), given=False, found_by="default") for port in _PORTS]
    return DoctorTargets(analyzer=urls[0], cluster=urls[1], agents=(urls[2],))


def exit_code(report: AuditReport) -> int:
    """0: no difference, 1: differences, 2: not finished within the time limit, 3: nothing was compared."""
    if report.differences:
        return 1
    if report.undecided:
        return 2
    return 0 if any(check.compared for check in report.checks) else 3
