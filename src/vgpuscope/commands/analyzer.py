"""`vgpuscope analyzer`."""

import argparse
import os

from vgpuscope.commands.command import SERVICE_EXITS, Command
from vgpuscope.model.service import ANALYZER_PORT


def _arguments(parser: argparse.ArgumentParser) -> None:
    from vgpuscope.commands.setting_flags import ANALYZER_SECTIONS, add_setting_flags

    add_setting_flags(parser, sections=ANALYZER_SECTIONS)


def _run(args: argparse.Namespace) -> int:
    from vgpuscope.commands.setting_flags import given, settings_file
    from vgpuscope.services.analyzer import process as analyzer

    return analyzer.main(flags=given(args), environ=os.environ, file=settings_file(args))


COMMAND = Command(
    name="analyzer",
    synopsis="analyzer",
    help=f"score every GPU and serve the results on :{ANALYZER_PORT}",
    description="Read Prometheus, or scrape agents directly, and serve a score, a verdict and evidence for every GPU.",
    examples=(
        ("vgpuscope analyzer --prometheus-url http://prometheus:9090", "read metrics from Prometheus"),
        ("vgpuscope analyzer --history /var/lib/vgpuscope/history.db", "keep past results, for `vgpuscope waste`"),
    ),
    note="The settings and environment variables of gpu-oour are accepted. Flags take precedence over environment "
    "variables, and environment variables over the settings file. A changed settings file is read again.",
    arguments=_arguments,
    run=_run,
    exits=SERVICE_EXITS,
)
