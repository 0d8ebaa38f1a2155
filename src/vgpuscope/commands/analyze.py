"""`vgpuscope analyze`."""

import argparse
import os

from vgpuscope.commands.arguments import add_forms, add_language, add_wide, form
from vgpuscope.commands.command import Command
from vgpuscope.model.service import AGENT_PORT


def _arguments(parser: argparse.ArgumentParser) -> None:
    from vgpuscope.commands.setting_flags import ANALYZER_SECTIONS, add_setting_flags

    add_setting_flags(parser, sections=ANALYZER_SECTIONS)
    parser.add_argument("--once", action="store_true", help="Accepted for compatibility; `analyze` always runs once.")
    add_forms(parser)
    add_language(parser)
    add_wide(parser)


def _run(args: argparse.Namespace) -> int:
    from vgpuscope.commands.actions import analysis
    from vgpuscope.commands.setting_flags import given, settings_file

    return analysis.main(
        flags=given(args),
        environ=os.environ,
        file=settings_file(args),
        form=form(args),
        language=args.lang,
        wide=args.wide,
    )


COMMAND = Command(
    name="analyze",
    synopsis="analyze",
    help="score every GPU once and print the results",
    description="Run one analysis and print its results. Without --prometheus-url it first scrapes the targets for one "
    "window.",
    examples=(
        ("vgpuscope analyze --prometheus-url http://prometheus:9090", "the last 10 minutes in Prometheus"),
        (f"vgpuscope analyze --targets http://node1:{AGENT_PORT} --window-minutes 1", "scrape one agent for a minute"),
    ),
    arguments=_arguments,
    run=_run,
)
