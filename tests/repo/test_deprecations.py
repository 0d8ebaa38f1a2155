"""A deprecated setting or metric still works, says what to use instead, and is gone in time."""

import argparse
import json
import logging
from datetime import UTC, date, datetime

import pytest

from tools.writers.chart import values_schema
from tools.writers.deprecations import deprecations_page
from vgpuscope import config
from vgpuscope.catalog import agent, analyzer, cluster, deprecations, extender, plugin
from vgpuscope.catalog.deprecations import DEPRECATIONS, Deprecation, minor, overdue
from vgpuscope.catalog.metric import FAMILIES
from vgpuscope.commands.setting_flags import add_setting_flags, given
from vgpuscope.config import SettingsFile, load, tell_file
from vgpuscope.model.errors import ConfigInvalid
from vgpuscope.version import __version__

TABLES = (agent.METRICS, analyzer.METRICS, cluster.METRICS, extender.METRICS, plugin.METRICS)
SETTING = Deprecation(
    kind="setting",
    name="agent.pace",
    instead="agent.sample_interval",
    since="0.2",
    removed_in="0.4",
    removed_on=date(2027, 6, 1),
)
METRIC = Deprecation(
    kind="metric",
    name="vgpuscope_gpu_power_watts",
    since="0.2",
    removed_in="0.4",
    removed_on=date(2027, 6, 1),
)
NOTE = "Deprecated since 0.2, removed in 0.4 (2027-06-01)."


@pytest.fixture
def table(monkeypatch):
    monkeypatch.setattr(deprecations, "DEPRECATIONS", (SETTING, METRIC))


# --- the table itself ------------------------------------------------------------------------------------------------


def test_nothing_is_overdue():
    """Remove the name and its row. This test begins to fail on the day that the row promised."""
    assert overdue(__version__, datetime.now(UTC).date()) == ()


def test_a_row_gives_two_minor_releases_and_names_what_exists():
    paths = {setting.path for setting in config.SETTINGS}
    names = {exposed.name for metrics in TABLES for m in metrics for exposed in m.exposed(frozenset(FAMILIES))}
    for row in DEPRECATIONS:
        (major, of_since), (later, of_removal) = minor(row.since), minor(row.removed_in)
        assert later > major or of_removal >= of_since + 2, row.name
        known = paths if row.kind == "setting" else names
        assert not row.instead or row.instead in known, row.name
        assert row.name in known or (row.kind == "setting" and row.instead), row.name


@pytest.mark.parametrize(
    ("version", "today", "due"),
    [
        ("0.3.2", date(2027, 6, 1), 0),
        ("0.3.2", date(2027, 6, 2), 2),
        ("0.4.0", date(2027, 1, 1), 2),
        ("1.0.0", date(2027, 1, 1), 2),
    ],
)
def test_a_name_is_overdue_in_its_release_and_after_its_day(table, version, today, due):
    assert len(overdue(version, today)) == due


def test_the_page_has_every_row():
    page = deprecations_page((SETTING, METRIC))
    assert "| setting | `agent.pace` | `agent.sample_interval` | 0.2 | 0.4 | 2027-06-01 |" in page
    assert "| metric | `vgpuscope_gpu_power_watts` | – |" in page
    assert "Nothing is deprecated" in deprecations_page(())


# --- a setting under its old name ------------------------------------------------------------------------------------


def in_file(tmp_path, text: str) -> str:
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    return str(path)


def by_flag(*words: str) -> dict[str, object]:
    parser = argparse.ArgumentParser()
    add_setting_flags(parser, sections=("agent",))
    return dict(given(parser.parse_args(words)))


def test_without_a_row_the_old_name_is_unknown(tmp_path):
    with pytest.raises(ConfigInvalid, match=r"agent\.pace.*unknown"):
        load(flags={}, environ={}, file=in_file(tmp_path, "agent: {pace: 2s}\n"))


def test_the_old_name_works_in_the_file_as_a_variable_and_as_a_flag(table, tmp_path):
    loaded = [
        load(flags={}, environ={}, file=in_file(tmp_path, "agent: {pace: 2s}\n")),
        load(flags={}, environ={"VGPUSCOPE_AGENT_PACE": "2s"}),
        load(flags=by_flag("--pace", "2s"), environ={}),
    ]
    assert [found.config.agent.sample_interval for found in loaded] == [2.0] * 3
    said = [[(row.name, said.split()[0]) for row, said in found.deprecated] for found in loaded]
    assert said == [[("agent.pace", "file")], [("agent.pace", "env")], [("agent.pace", "flag")]]


def test_the_flag_of_an_old_name_is_not_shown(table):
    parser = argparse.ArgumentParser()
    add_setting_flags(parser, sections=("agent",))
    assert "--pace" not in parser.format_help()


@pytest.mark.parametrize("text", ["agent: {pace: 2s, sample_interval: 3s}", "agent: {sample_interval: 3s, pace: 2s}"])
def test_of_both_names_in_one_place_the_new_one_counts(table, tmp_path, text):
    found = load(flags={}, environ={}, file=in_file(tmp_path, text))
    assert found.config.agent.sample_interval == 3.0
    assert len(found.deprecated) == 1


def test_an_old_name_in_the_environment_beats_the_new_one_in_the_file(table, tmp_path):
    file = in_file(tmp_path, "agent: {sample_interval: 3s}")
    assert load(flags={}, environ={"VGPUSCOPE_AGENT_PACE": "2s"}, file=file).config.agent.sample_interval == 2.0


def test_a_service_logs_what_is_deprecated(table, caplog):
    found = load(flags={}, environ={"VGPUSCOPE_AGENT_PACE": "2s"})
    with caplog.at_level(logging.INFO, logger="vgpuscope.config"):
        tell_file(SettingsFile("none", "")._replace(deprecated=found.deprecated))
    (record,) = caplog.records
    assert (record.levelname, record.message) == ("WARNING", "setting deprecated")
    assert {"agent.pace", "agent.sample_interval", "0.4", "2027-06-01"} <= set(record.fields.values())


def test_the_chart_accepts_the_old_name_and_marks_it(table):
    keys = json.loads(values_schema(config.SETTINGS))["$defs"]["Values"]["properties"]["config"]
    old = keys["properties"]["agent"]["properties"]["pace"]
    assert old["deprecated"] is True
    assert old["description"] == f"{NOTE} Use agent.sample_interval."


# --- a metric --------------------------------------------------------------------------------------------------------


def test_the_help_of_a_deprecated_metric_says_so(table):
    metric = next(metric for metric in agent.METRICS if metric.name == METRIC.name)
    own, *others = metric.exposed(frozenset(FAMILIES))
    assert own.help == f"{metric.help} {NOTE}"
    assert not [other for other in others if NOTE in other.help]
