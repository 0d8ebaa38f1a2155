"""`vgpuscope doctor --audit`: compare the numbers of a running system, and print where they contradict each other."""

import asyncio
import os

from vgpuscope.commands.actions.access import token
from vgpuscope.commands.actions.language import language_of
from vgpuscope.model.consistency import AuditReport
from vgpuscope.model.errors import ConfigInvalid
from vgpuscope.model.quantity import Seconds
from vgpuscope.model.service import AGENT_PORT, ANALYZER_PORT, CLUSTER_PORT, default_url
from vgpuscope.services.audit.audit import AuditTargets, audit
from vgpuscope.terminal.printing import print_drawn, print_json
from vgpuscope.terminal.screen import speak_plainly
from vgpuscope.views.audit.terminal import drawn

_LONGER = 6  # times the deadline of doctor: each difference is read several times
_SHORTEST, _LONGEST = 1.0, 600.0  # seconds


def main(
    *,
    analyzer: str | None,
    cluster: str | None,
    agents: tuple[str, ...],
    extender: str | None,
    deadline: Seconds,
    language: str | None,
    as_json: bool,
) -> int:
    """Print the audit; 0 without differences, 1 with some, 3 if nothing could be compared."""
    speak_plainly()
    if not _SHORTEST <= deadline <= _LONGEST:
        raise ConfigInvalid(f"--deadline: {deadline:g} is not from {_SHORTEST:g} to {_LONGEST:g} seconds")
    named = analyzer or cluster or agents or extender
    targets = AuditTargets(
        analyzer=analyzer or (None if named else default_url(ANALYZER_PORT)),
        cluster=cluster or (None if named else default_url(CLUSTER_PORT)),
        agents=agents or (() if named else (default_url(AGENT_PORT),)),
        extender=extender,
        token=token(),
        within=deadline * _LONGER,
    )
    report = asyncio.run(audit(targets))
    if as_json:
        print_json(report)
    else:
        print_drawn(lambda _: drawn(report, language_of(language, os.environ)))
    return exit_code(report)


def exit_code(report: AuditReport) -> int:
    """0: no difference, 1: differences, 2: not finished within the time limit, 3: nothing was compared."""
    if report.differences:
        return 1
    if report.undecided:
        return 2
    return 0 if any(check.compared for check in report.checks) else 3
