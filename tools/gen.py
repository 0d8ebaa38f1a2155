"""Write all generated files; with --check, fail if one is not current."""

import sys
from collections.abc import Callable
from pathlib import Path

from tools.writers import codes, commands, decisions, metrics, names, operations, rules, settings
from vgpuscope import cli
from vgpuscope.catalog import analyzer as analyzer_catalog
from vgpuscope.catalog import cluster as cluster_catalog
from vgpuscope.catalog import node as node_catalog
from vgpuscope.catalog.limits import CLUSTER_LIMITS, FLEET_LIMITS, NODE_LIMITS
from vgpuscope.catalog.series import AGENT_SCOPES, ANALYZER_SCOPES, CLUSTER_SCOPES
from vgpuscope.config import SETTINGS
from vgpuscope.http.server import HTTP_ERRORS
from vgpuscope.logic.fleet.queries import RECORDED_EVERY, recording_rules
from vgpuscope.model.errors import error_types

ROOT = Path(__file__).resolve().parents[1]

GENERATED: dict[str, Callable[[], str]] = {
    "docs/metrics.md": lambda: metrics.metrics_page(
        "Metrics of the node agent", node_catalog.METRICS, AGENT_SCOPES, limits=NODE_LIMITS
    ),
    "docs/metrics-cluster.md": lambda: metrics.metrics_page(
        "Metrics of the cluster exporter", cluster_catalog.METRICS, CLUSTER_SCOPES, limits=CLUSTER_LIMITS
    ),
    "docs/metrics-analyzer.md": lambda: metrics.metrics_page(
        "Metrics of the analyzer",
        analyzer_catalog.METRICS,
        ANALYZER_SCOPES,
        limits=FLEET_LIMITS,
        fixed=analyzer_catalog.FAMILIES,
    ),
    "docs/metric-names.md": lambda: names.names_page(
        {
            "agent": node_catalog.METRICS,
            "cluster exporter": cluster_catalog.METRICS,
            "analyzer": analyzer_catalog.METRICS,
        }
    ),
    "docs/cli.md": lambda: commands.commands_page(cli.COMMANDS, cli.parser()),
    "docs/api-reference.md": operations.operations_page,
    "docs/adr/README.md": lambda: decisions.decisions_page(ROOT / "docs" / "adr"),
    "docs/configuration.md": lambda: settings.settings_page(SETTINGS),
    "docs/scheduling-codes.md": codes.codes_page,
    "docs/codes.zh-CN.md": codes.chinese_page,
    "docs/xid.md": codes.xid_page,
    "deploy/recording-rules.yaml": lambda: rules.rules_file(
        [(f"{rule.group.schema}-{rule.group.kind}", rule.name, rule.expression) for rule in recording_rules()],
        every=RECORDED_EVERY,
    ),
    "docs/errors.md": lambda: settings.errors_page(error_types(), HTTP_ERRORS),
}


def main(argv: list[str]) -> int:
    """Exit code 1 if a file was not current and --check was given."""
    check = "--check" in argv
    stale = []
    for name, make in GENERATED.items():
        path, text = ROOT / name, make()
        if not path.exists() or path.read_text() != text:
            stale.append(name)
            if not check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
    for name in stale:
        print(f"gen: {name} {'is not current: run make gen' if check else 'written'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
