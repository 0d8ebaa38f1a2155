"""Write all generated files; with --check, fail if one is not current."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tools.alerting import compat
from tools.alerting.tables import FILES, by_name
from tools.dashboards import write as dashboards
from tools.writers import (
    alerts,
    chart,
    codes,
    commands,
    decisions,
    definitions,
    deprecations,
    doctor,
    manifests,
    metrics,
    names,
    operations,
    protocol,
    rules,
    settings,
    sizing,
)
from tools.writers.limits import CLUSTER_LIMITS, FLEET_LIMITS, NODE_LIMITS
from tools.writers.metrics_index import ServiceMetrics, index_page
from tools.writers.series import AGENT_SCOPES, ANALYZER_SCOPES, CLUSTER_SCOPES, EXTENDER_SCOPES, PLUGIN_SCOPES
from vgpuscope import cli
from vgpuscope.catalog import agent as agent_catalog
from vgpuscope.catalog import analyzer as analyzer_catalog
from vgpuscope.catalog import cluster as cluster_catalog
from vgpuscope.catalog import extender as extender_catalog
from vgpuscope.catalog import plugin as plugin_catalog
from vgpuscope.catalog.deprecations import DEPRECATIONS
from vgpuscope.config import SETTINGS
from vgpuscope.http.sending import HTTP_ERRORS
from vgpuscope.model.errors import error_types
from vgpuscope.model.service import AGENT_PORT, ANALYZER_PORT, CLUSTER_PORT, EXTENDER_PORT, PLUGIN_PORT
from vgpuscope.version import __version__

ROOT = Path(__file__).resolve().parents[1]

SERVICES = (
    ServiceMetrics("node agent", AGENT_PORT, "metrics-agent.md", agent_catalog.METRICS),
    ServiceMetrics("cluster exporter", CLUSTER_PORT, "metrics-cluster.md", cluster_catalog.METRICS),
    ServiceMetrics("analyzer", ANALYZER_PORT, "metrics-analyzer.md", analyzer_catalog.METRICS),
    ServiceMetrics("extender", EXTENDER_PORT, "metrics-extender.md", extender_catalog.METRICS),
    ServiceMetrics("device plugin", PLUGIN_PORT, "metrics-plugin.md", plugin_catalog.METRICS),
)

GENERATED: dict[str, Callable[[], str]] = {
    "docs/metrics.md": lambda: index_page(SERVICES),
    "docs/metrics-agent.md": lambda: metrics.metrics_page(
        "Metrics of the node agent", agent_catalog.METRICS, AGENT_SCOPES, limits=NODE_LIMITS
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
        lifetime="The series of a pod end with the first analysis that does not see the pod. A GPU that stops "
        "reporting keeps its verdict (unknown), class and sample age until it is known to be removed. The series of "
        "all GPUs end when the last successful analysis is older than one scheduler.interval plus "
        "verdict.max_age_intervals sample intervals.",
    ),
    "docs/metrics-plugin.md": lambda: metrics.metrics_page(
        "Metrics of the device plugin",
        plugin_catalog.METRICS,
        PLUGIN_SCOPES,
        limits=(),
        fixed=plugin_catalog.FAMILIES,
        lifetime="A GPU that was seen once keeps its series: one that is gone is unhealthy.",
    ),
    "docs/metrics-extender.md": lambda: metrics.metrics_page(
        "Metrics of the extender", extender_catalog.METRICS, EXTENDER_SCOPES, limits=()
    ),
    "docs/metric-names.md": lambda: names.names_page(
        {
            "agent": agent_catalog.METRICS,
            "cluster exporter": cluster_catalog.METRICS,
            "analyzer": analyzer_catalog.METRICS,
            "extender": extender_catalog.METRICS,
            "device plugin": plugin_catalog.METRICS,
        }
    ),
    "docs/sizing.md": lambda: sizing.sizing_page(ROOT / "docs" / "sizing.md", "en"),
    "docs/sizing.zh-CN.md": lambda: sizing.sizing_page(ROOT / "docs" / "sizing.zh-CN.md", "zh"),
    "docs/cli.md": lambda: commands.commands_page(cli.COMMANDS, cli.parser()),
    "docs/api-reference.md": operations.operations_page,
    "docs/api.md": lambda: operations.page_with_roles(ROOT / "docs" / "api.md"),
    "docs/deprecations.md": lambda: deprecations.deprecations_page(DEPRECATIONS),
    "docs/adr/README.md": lambda: decisions.decisions_page(ROOT / "docs" / "adr"),
    "docs/configuration.md": lambda: settings.settings_page(SETTINGS),
    "docs/scheduling-codes.md": codes.codes_page,
    "docs/codes.zh-CN.md": codes.chinese_page,
    "docs/xid.md": codes.xid_page,
    "docs/doctor.md": lambda: doctor.doctor_page("en"),
    "docs/doctor.zh-CN.md": lambda: doctor.doctor_page("zh"),
    "docs/definitions.md": lambda: definitions.definitions_page("en"),
    "docs/definitions.zh-CN.md": lambda: definitions.definitions_page("zh"),
    "docs/errors.md": lambda: settings.errors_page(error_types(), HTTP_ERRORS),
    "charts/vgpuscope/Chart.yaml": lambda: chart.chart_file(__version__),
    "charts/vgpuscope/values.schema.json": lambda: chart.values_schema(SETTINGS),
    **dashboards.files(),
    **protocol.files(),
}

RULES = "charts/vgpuscope/rules"
RULE_FILES: dict[str, Callable[[], str]] = {
    "recording.yaml": rules.recording_file,
    "workload.yaml": rules.workload_file,
    "compat/handbook.yaml": lambda: rules.compat_file("the HAMi handbook", compat.HANDBOOK_FAULTS, compat.HANDBOOK),
    "compat/monitoring-chapter.yaml": lambda: rules.compat_file(
        "the handbook's monitoring chapter", compat.MONITORING_CHAPTER_FAULTS, compat.MONITORING_CHAPTER
    ),
    **{f"{file.name}.yaml": partial(rules.alert_file, file) for file in FILES},
}
GENERATED |= {f"{RULES}/{name}": partial(rules.checked, name, write) for name, write in RULE_FILES.items()}
GENERATED |= {
    f"docs/runbooks/{folder}{name}.md": partial(alerts.runbook_page, same, language)
    for name, same in by_name().items()
    for folder, language in alerts.FOLDERS
}
GENERATED |= {page: partial(alerts.page_with_tables, ROOT / page, FILES, language) for page, language in alerts.PAGES}
# Last: Helm reads the files of the chart.
GENERATED |= {f"deploy/{name}": partial(manifests.manifest, name) for name in manifests.FILES}


def main(argv: list[str]) -> int:
    """Exit code 1 if a file was not current and --check was given."""
    check = "--check" in argv
    stale = []
    for name, make in GENERATED.items():
        try:
            path, text = ROOT / name, make()
        except manifests.HelmMissing as missing:
            print(f"gen: {name} left as it is: {missing}")
            continue
        if not path.exists() or path.read_text() != text:
            stale.append(name)
            if not check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
    for name in stale:
        print(f"gen: {name} {'is not current: run make gen' if check else 'written'}")
    return 1 if (check and stale) or _other_rules() else 0


def _other_rules() -> list[str]:
    """What rule files that are not generated name and does not exist; printed."""
    wrong = [fault for file in sorted((ROOT / RULES).rglob("*.yaml")) for fault in rules.file_faults(file)]
    for fault in wrong:
        print(f"gen: {fault}")
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
