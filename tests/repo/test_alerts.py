"""The alerts that we ship: each has a page in both languages, known names only, and a test of both outcomes."""

import re
from pathlib import Path

import pytest
import yaml

from tests.paths import REPOSITORY
from tools.alerting.alert import SEVERITIES
from tools.alerting.checking import expression_faults, faults, known_metrics, named
from tools.alerting.hardware import SILENT_ACTIONS, XID_ACTIONS
from vgpuscope.knowledge.xid import ADVICE

FOLDER = REPOSITORY / "charts" / "vgpuscope" / "rules"
FILES = sorted(FOLDER.glob("*.yaml"))  # what the chart and a plain Prometheus load
COMPATIBLE = sorted((FOLDER / "compat").glob("*.yaml"))
RUNBOOKS = REPOSITORY / "docs" / "runbooks"
SITE = "https://github.com/vgpuscope/vgpuscope/blob/main/docs/runbooks/"
TESTS = sorted((REPOSITORY / "tests" / "rules").glob("*.yaml"))

HANDBOOK = {
    *("GPUMemoryUsageHigh", "GPUCoreUtilizationSaturated", "ContainerVGPUMemoryNearLimit", "ContainerGPUIdle"),
    *("ClusterGPUMemoryAllocationHigh", "GPUOversharing", "VGPUMonitorDown"),
}
MONITORING_CHAPTER = {"GPUMemoryUsageHigh", "GPUNoAvailableMemory", "ScheduleFailureRate"}


def rules_of(*files: Path) -> list[dict]:
    return [rule for file in files for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]]


ALERTS = [rule for rule in rules_of(*FILES) if "alert" in rule]
each_alert = pytest.mark.parametrize(
    "alert", ALERTS, ids=lambda rule: "-".join(filter(None, (rule["alert"], rule["labels"].get("source"))))
)


def test_the_alerts_of_the_handbook_and_of_its_monitoring_chapter_are_all_here():
    assert {alert["alert"] for alert in ALERTS} >= HANDBOOK | MONITORING_CHAPTER
    by_file = {file.stem: {rule["alert"] for rule in rules_of(file)} for file in COMPATIBLE}
    assert by_file == {"handbook": HANDBOOK, "monitoring-chapter": MONITORING_CHAPTER}


def test_the_alert_that_both_have_is_two_rules_told_apart_by_their_source():
    high = [alert for alert in ALERTS if alert["alert"] == "GPUMemoryUsageHigh"]
    assert {(a["labels"]["source"], a["for"], a["expr"].split()[-1]) for a in high} == {
        ("handbook", "5m", "0.9"),
        ("monitoring-chapter", "10m", "0.95"),
    }


# --- texts -----------------------------------------------------------------------------------------------------------


@each_alert
def test_an_alert_has_a_severity_and_its_texts_in_both_languages(alert):
    assert alert["labels"]["severity"] in SEVERITIES
    texts = alert["annotations"]
    assert set(texts) == {"summary", "summary_zh", "description", "description_zh", "runbook_url"}
    for text in ("summary", "description"):
        assert re.search(r"[一-鿿]", texts[f"{text}_zh"])
        assert not re.search(r"[一-鿿，。：（）]", texts[text])
        named_in = [set(re.findall(r"\$labels\.\w+|\$value", texts[key])) for key in (text, f"{text}_zh")]
        assert named_in[0] == named_in[1]
    assert not re.search(r"(?<=[一-鿿])[,;:?!]|[,;:?!](?=[一-鿿])", texts["summary_zh"] + texts["description_zh"])


@each_alert
def test_an_alert_leads_to_its_page_which_exists_in_both_languages(alert):
    assert alert["annotations"]["runbook_url"] == f"{SITE}{alert['alert']}.md"
    for page in (RUNBOOKS / f"{alert['alert']}.md", RUNBOOKS / "zh" / f"{alert['alert']}.md"):
        text = page.read_text()
        assert [line for line in text.splitlines() if line.startswith("# ")] == [f"# {alert['alert']}"]
        assert text.count("\n## ") == 4
        assert alert["expr"].strip() in text


def test_every_page_belongs_to_an_alert():
    for folder in (RUNBOOKS, RUNBOOKS / "zh"):
        assert {page.stem for page in folder.glob("*.md")} == {alert["alert"] for alert in ALERTS}


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", [*FILES, *COMPATIBLE], ids=lambda file: str(file.relative_to(FOLDER)))
def test_a_rule_file_names_only_metrics_and_labels_that_exist(file):
    assert list(faults(yaml.safe_load(file.read_text()))) == []


@pytest.mark.parametrize("page", sorted(RUNBOOKS.glob("*.md")), ids=lambda page: page.stem)
def test_the_queries_of_a_page_name_only_metrics_and_labels_that_exist(page):
    queries = [
        q for block in re.findall(r"```promql\n(.*?)```", page.read_text(), re.S)[:1] for q in block.splitlines()
    ]
    assert queries
    assert [list(expression_faults(named(query), known_metrics())) for query in queries] == [[] for _ in queries]


BAD = {
    "sum(vgpuscope_gpu_memory_fre_bytes)": ["the metric vgpuscope_gpu_memory_fre_bytes is not in the catalog"],
    'vgpuscope_gpu_health{state="lost"} == 1': ["vgpuscope_gpu_health has no label state"],
    "max by (node, card) (vgpuscope_gpu_sharers)": ["no metric here has the label card"],
    "up and on (nodename) vgpuscope_regions": ["no metric here has the label nodename"],
    "rate(hami_scheduler_bind_duration_seconds[5m])": [
        "the metric hami_scheduler_bind_duration_seconds is not in the catalog"  # a histogram has only its parts
    ],
    'label_replace(vgpuscope_gpu_sharers, "a", "sum(no_such)", "b", "") # no_such': [],
}


@pytest.mark.parametrize("expression", BAD)
def test_a_wrong_name_is_found(expression):
    rule = {"alert": "Wrong", "expr": expression, "annotations": {}}
    assert list(faults({"groups": [{"rules": [rule]}]})) == [f"Wrong: {fault}" for fault in BAD[expression]]


def test_a_text_that_names_a_label_which_the_alert_does_not_have_is_found():
    rule = {"alert": "Wrong", "expr": "vgpuscope_gpu_sharers > 5", "annotations": {"summary": "{{ $labels.nodeid }}"}}
    found = list(faults({"groups": [{"rules": [rule]}]}))
    assert found == ["Wrong: a text names the label nodeid, which the alert does not have"]


def test_a_rule_file_with_an_unknown_metric_fails_the_build(tmp_path, monkeypatch, capsys):
    from tools import gen

    rules = tmp_path / gen.RULES
    rules.mkdir(parents=True)
    (rules / "own.yaml").write_text("groups: [{name: g, rules: [{alert: Own, expr: vgpuscope_gpu_nothing > 1}]}]")
    monkeypatch.setattr(gen, "ROOT", tmp_path)
    monkeypatch.setattr(gen, "GENERATED", {})
    assert gen.main(["--check"]) == 1
    assert "own.yaml: Own: the metric vgpuscope_gpu_nothing is not in the catalog" in capsys.readouterr().out


def test_every_action_of_nvidias_catalogue_has_an_alert_or_a_reason_for_none():
    alerting = [action for actions in XID_ACTIONS.values() for action in actions]
    assert sorted([*alerting, *SILENT_ACTIONS]) == sorted(ADVICE)


# --- tests of the rules ----------------------------------------------------------------------------------------------


def expectations() -> list[tuple[str, list[dict]]]:
    """The queries for alerts in tests/rules, with the labels of the alerts that are expected."""
    found = []
    for test in (test for file in TESTS for test in yaml.safe_load(file.read_text())["tests"]):
        for one in test.get("promql_expr_test", ()):
            if one["expr"].startswith("ALERTS"):
                samples = [dict(re.findall(r'(\w+)="([^"]*)"', s["labels"])) for s in one.get("exp_samples") or ()]
                found.append((one["expr"], samples))
    return found


@each_alert
def test_an_alert_is_tested_to_fire_with_the_labels_that_its_texts_name_and_not_to_fire(alert):
    source = alert["labels"].get("source")
    others = {one["labels"].get("source") for one in ALERTS if one["alert"] == alert["alert"]} - {source, None}
    fired = [
        labels
        for _, samples in expectations()
        for labels in samples
        if labels["alertname"] == alert["alert"]
        and source in (None, labels.get("source"))
        and labels.get("source") not in others
    ]
    assert fired
    texts = "".join(alert["annotations"].values())
    for labels in fired:
        always = set(re.findall(r"\{\{ \$labels\.(\w+) \}\}", texts))  # not those inside {{ with }}
        assert always <= set(labels)
    silent = [
        expr for expr, samples in expectations() if not samples and re.search(rf"{alert['alert']}\b|ALERTS$", expr)
    ]
    assert silent
