"""`vgpuscope standalone`."""

import argparse
import os

from vgpuscope.commands.command import SERVICE_EXITS, Command
from vgpuscope.model.service import AGENT_PORT, ANALYZER_PORT, everywhere, local

_FLAGS = (  # flag, setting, placeholder, help
    (
        "--listen",
        "analyzer.listen",
        "HOST:PORT",
        f"Address of the console, the API and /metrics of the analyzer. [default: {everywhere(ANALYZER_PORT)}]",
    ),
    (
        "--agent-listen",
        "agent.listen",
        "HOST:PORT",
        f"Address of the agent's /metrics. [default: {local(AGENT_PORT)}]",
    ),
    (
        "--history",
        "analyzer.history",
        "FILE",
        "Store for results: a file, or none. [default: /var/lib/vgpuscope/history.db for root, otherwise "
        "~/.local/state/vgpuscope/history.db]",
    ),
)


def _arguments(parser: argparse.ArgumentParser) -> None:
    from vgpuscope.commands.setting_flags import add_setting_flags

    add_setting_flags(parser, sections=("log",))
    for flag, path, placeholder, text in _FLAGS:
        parser.add_argument(flag, dest=path, metavar=placeholder, help=text)


def _run(args: argparse.Namespace) -> int:
    from vgpuscope.commands.setting_flags import given, loaded, settings_file
    from vgpuscope.services import standalone

    return standalone.main(loaded(args), flags=given(args), environ=os.environ, file=settings_file(args))


COMMAND = Command(
    name="standalone",
    synopsis="standalone",
    help=f"agent and analyzer of one server, console on :{ANALYZER_PORT}",
    description="Run the agent and the analyzer with its console on one GPU server, without Kubernetes and without "
    "Prometheus. Ctrl-C ends both. Both log to standard error.",
    examples=(
        ("vgpuscope standalone", f"then open http://localhost:{ANALYZER_PORT}/ui/"),
        ("vgpuscope standalone --listen 127.0.0.1:9000 --history none", "another port, and no past results"),
    ),
    note="All settings of the agent and the analyzer are accepted, from environment variables and the settings file. "
    "Verdicts are unknown until one window (10 minutes) has passed.",
    arguments=_arguments,
    run=_run,
    exits=SERVICE_EXITS,
)
