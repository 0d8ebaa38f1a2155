"""The dashboards keep the promises of a good dashboard: places, words, colours, queries."""

import itertools
import json
import re

import pytest

from tests.dashboards.boards import BOARDS, FILES, everything, names_in, organized, panels
from tests.dashboards.promql_words import selectors, unknown_words
from tests.paths import REPOSITORY
from tools.dashboards import words
from tools.dashboards.boards import BOARDS as TABLES
from tools.dashboards.promql import METRICS, UnknownLabel, each, labels_of, metrics_in, select
from tools.dashboards.words import LANGUAGES
from tools.gen import GENERATED
from tools.writers.families import FAMILY_HELP
from vgpuscope.catalog import agent, extender, plugin
from vgpuscope.model.analysis import STATUSES, USE_CLASSES, VERDICTS
from vgpuscope.model.device import HEALTH

CONFIGMAP = 1024 * 1024  # bytes of one, at most
NATIVE = {"native", "gpu-oour"}  # families that are always on: an alias can be switched off
# Metrics that extender and device plugin have under the handbook's names only.
SOLE_NAMES = {metric.name for metric in (*extender.METRICS, *plugin.METRICS) if metric.family == "handbook"}
BY_NAME = {metric.name: metric for metric in METRICS}

each_panel = pytest.mark.parametrize("shown", [*panels("en"), *panels("zh")], ids=lambda shown: shown.id)


def test_the_files_are_those_that_make_gen_writes():
    written = {REPOSITORY / name for name in GENERATED if "/dashboards/" in name}
    assert {*FILES["en"], *FILES["zh"]} == written
    assert len(written) == len(TABLES) * len(LANGUAGES)


def test_every_dashboard_has_a_uid_of_its_own_in_each_language():
    found = [
        (path.stem, board["uid"]) for lang in LANGUAGES for path, board in zip(FILES[lang], BOARDS[lang], strict=True)
    ]
    assert all(stem == uid for stem, uid in found)
    assert len(set(found)) == len(found)
    assert all(re.fullmatch(r"[a-z0-9-]{1,40}", uid) for _, uid in found)  # Grafana takes at most 40 characters


@pytest.mark.parametrize("language", LANGUAGES)
def test_panels_have_numbers_of_their_own_and_do_not_overlap(language):
    for board in BOARDS[language]:
        found = list(everything(board))
        assert len({panel["id"] for panel in found}) == len(found)
        cells = [cell for panel in found for cell in _cells(panel["gridPos"])]
        assert len(cells) == len(set(cells)), board["uid"]
        assert all(0 <= x < 24 for x, _ in cells)


@pytest.mark.parametrize("language", LANGUAGES)
def test_lines_of_panels_are_full_and_leave_no_hole(language):
    for board in BOARDS[language]:
        cells = {cell for panel in everything(board) for cell in _cells(panel["gridPos"])}
        bottom = max(y for _, y in cells) + 1
        assert len(cells) == 24 * bottom, f"{board['uid']} has {24 * bottom - len(cells)} empty cells"


def _cells(at):
    return itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"]))


def test_no_two_panels_of_a_dashboard_have_one_title():
    for language in LANGUAGES:
        names = [shown.id for shown in panels(language)]
        assert sorted({name for name in names if names.count(name) > 1}) == []


@each_panel
def test_a_panel_says_what_it_shows_whence_and_why_it_can_be_empty(shown):
    text = shown.panel["description"]
    assert len(text.split("\n\n")[0]) > 4
    assert re.search(r"Source: |数据来源：", text)
    for query in shown.queries:
        assert all(f"`{name}`" in text for name in metrics_in(query["expr"]))
    assert shown.panel["fieldConfig"]["defaults"]["noValue"]
    assert shown.panel["fieldConfig"]["defaults"]["unit"]
    assert shown.panel["datasource"]["uid"] == "${datasource}"


def test_both_languages_ask_the_same_and_say_it_in_their_own_words():
    for english, chinese in zip(panels("en"), panels("zh"), strict=True):
        asked = [query["expr"] for query in english.queries]
        assert asked == [query["expr"] for query in chinese.queries]
        assert english.panel["gridPos"] == chinese.panel["gridPos"]
        text = chinese.panel["description"]
        assert re.search(r"[\u4e00-\u9fff]", text), chinese.id
        assert not re.search(r"[\u4e00-\u9fff]", json.dumps(english.panel, ensure_ascii=False)), english.id
        assert not re.search(r"[\u4e00-\u9fff][,;:!?]|[\u4e00-\u9fff]\.(?!\w)", text.split("\n\n")[0]), (
            text
        )  # full-width only
        assert chinese.title == english.title or re.search(r"[\u4e00-\u9fff]", chinese.title)


# ── queries ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shown", panels("en"), ids=lambda shown: shown.id)
def test_a_query_reads_metrics_of_the_table_that_are_always_on_and_labels_that_they_have(shown):
    for query in shown.queries:
        assert unknown_words(query["expr"]) == []
        found = selectors(query["expr"])
        assert found
        for name, suffix, matchers, by in found:
            metric = BY_NAME[name]
            assert metric.family in NATIVE or name in SOLE_NAMES
            assert (metric.type == "histogram") == bool(suffix)
            own = {*labels_of(metric), "cluster"}
            assert {matcher.label for matcher in matchers} <= own
            assert {"cluster"} <= {matcher.label for matcher in matchers}, "a second cluster would be mixed in"
            copied = set(re.findall(r"\w+", " ".join(re.findall(r"group_left \(([^)]*)\)", query["expr"]))))
            assert by <= own | copied | {"le", "job", "instance"}, (name, by - own)
            assert by, f"{name} is not merged to one series for each object: replicas would count twice"


def test_a_typing_error_in_a_label_or_a_metric_is_refused():
    with pytest.raises(UnknownLabel, match="has no label nodes"):
        select(agent.GPU_POWER, nodes="a")
    with pytest.raises(UnknownLabel):
        each(agent.GPU_POWER, "pod")
    assert unknown_words('sum(vgpuscope_gpu_power_wats{cluster=~".*"})') == ["vgpuscope_gpu_power_wats"]
    assert unknown_words("sum by (pot) (vgpuscope_gpu_power_watts{})") == ["pot"]


@each_panel
def test_variables_of_queries_and_links_are_those_of_the_dashboard(shown):
    known = {variable["name"] for variable in shown.variables} | {"__rate_interval", "__range", "__interval"}
    used = {name for query in shown.queries for name in re.findall(r"\$([A-Za-z_]\w*)", query["expr"])}
    links = set(re.findall(r"\$\{(\w+)\}", json.dumps(shown.panel)))
    assert used | links <= known | {"datasource"}


@each_panel
def test_a_share_is_drawn_as_a_percentage_and_a_gap_stays_a_gap(shown):
    defaults = shown.panel["fieldConfig"]["defaults"]
    assert defaults["unit"] != "percent"  # 0-100; all our ratios are 0-1
    if shown.kind == "timeseries":
        assert defaults["custom"]["spanNulls"] is False


@each_panel
def test_columns_and_links_name_fields_that_the_panel_has(shown):
    if shown.kind not in {"table", "barchart"}:
        return
    headers = set(organized(shown.panel)["renameByName"].values())
    for override in shown.panel["fieldConfig"]["overrides"]:
        assert override["matcher"]["options"] in headers
        ids = [one["id"] for one in override["properties"]]
        assert len(set(ids)) == len(ids)
    for name in re.findall(
        r'__data\.fields\["([^"]+)"\]', json.dumps(shown.panel["fieldConfig"], ensure_ascii=False).replace('\\"', '"')
    ):
        assert name in headers
    assert len(headers) == len(organized(shown.panel)["renameByName"]), "two columns have one name"


def test_dashboards_lead_to_each_other_and_to_the_console():
    for language in LANGUAGES:
        for board in BOARDS[language]:
            others, console = board["links"]
            assert set(others["tags"]) <= set(board["tags"])
            assert (others["includeVars"], others["keepTime"]) == (True, True)
            assert console["url"] == "${console}/ui/"


def test_a_dashboard_fits_into_a_config_map():
    for paths in FILES.values():
        assert all(path.stat().st_size < CONFIGMAP / 2 for path in paths)


# ── words and colours ────────────────────────────────────────────────────────────────────────────────────────────


def test_every_value_of_a_state_has_a_word():
    assert {word.value for word in words.CLASSES} == set(USE_CLASSES)
    assert {word.value for word in words.VERDICTS} == set(VERDICTS)
    assert {word.value for word in words.STATUSES} == set(STATUSES)
    assert {word.value for word in words.HEALTH} == set(HEALTH)


def test_classes_have_the_words_and_colours_of_the_console():
    css = (REPOSITORY / "web" / "src" / "style" / "base.css").read_text()
    colours = dict(re.findall(r"--c-([a-z-]+): (#[0-9a-f]{6});", css[: css.index("--c-unknown") + 40]))
    said = {lang: _console_words(lang) for lang in LANGUAGES}
    for kind, table in (("class", words.CLASSES), ("verdict", words.VERDICTS), ("status", words.STATUSES)):
        for word in table:
            for lang in LANGUAGES:
                assert word.text.of(lang) == said[lang][f"{kind}.{word.value}"]
    assert {word.value: word.colour for word in words.CLASSES} == {
        word.value: colours[word.value] for word in words.CLASSES
    }


def _console_words(language: str) -> dict[str, str]:
    text = (REPOSITORY / "web" / "src" / "words" / f"{language}.ts").read_text()
    return dict(re.findall(r'^  "([\w.-]+)": "([^"]*)",$', text, re.M))


def test_a_legend_of_words_names_the_label_that_has_them():
    for shown in panels("en"):
        named = {override["matcher"]["options"] for override in shown.panel["fieldConfig"]["overrides"]}
        for label, table in words.WORDS.items():
            if shown.kind == "timeseries" and {word.value for word in table} <= named:
                assert (
                    any(names_in(query.get("legendFormat", "")) == [label] for query in shown.queries) or label == "yes"
                )


# ── documentation ────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_metric_of_every_service_is_in_the_list_of_metrics():
    listed = (REPOSITORY / "docs" / "metrics.md").read_text()
    names = set(re.findall(r"`([A-Za-z_:][\w:]*)`", listed))
    exposed = {one.name for metric in METRICS for one in metric.exposed(frozenset(FAMILY_HELP))}
    assert exposed <= names
    asked = {name for shown in panels("en") for query in shown.queries for name in metrics_in(query["expr"])}
    assert asked <= names


@pytest.mark.parametrize("page", ["dashboards.md", "dashboards.zh-CN.md"])
def test_the_manual_names_every_dashboard(page):
    text = (REPOSITORY / "docs" / page).read_text()
    chinese = page.endswith("zh-CN.md")
    for table in TABLES:
        assert f"vgpuscope-{table.name}" in text
        assert table.title.of("zh" if chinese else "en") in text
