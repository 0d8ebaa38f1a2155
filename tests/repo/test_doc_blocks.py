"""Blocks of the documentation that a reader copies: YAML, PromQL and examples of code do what the page says."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.needed import needed
from tests.paths import REPOSITORY
from tests.repo.test_docs import _HEADING, _TABLE_ROW, LABELS, METRICS, PAGES, prose
from tools.writers.series import series_per
from vgpuscope.catalog import agent, analyzer, cluster
from vgpuscope.catalog.metric import DEFAULT_FAMILIES, Metric
from vgpuscope.formats.hami import annotation, register
from vgpuscope.knowledge import vendors

DOCS = REPOSITORY / "docs"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def blocks(language: str) -> list[tuple[str, str]]:
    """Every block in this language, with the name of its page and its number there."""
    return [
        (f"{page.relative_to(REPOSITORY)}-{number}", text)
        for page in PAGES
        for number, (word, text) in enumerate(_BLOCK.findall(page.read_text()))
        if word == language
    ]


def each(found: list[tuple[str, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("text", [text for _, text in found], ids=[name for name, _ in found])


YAML, PROMQL = blocks("yaml"), blocks("promql")
SCRAPES = [(name, text) for name, text in YAML if "scrape_configs:" in text]
RULES = [(name, text) for name, text in YAML if re.search(r"^groups:", text, re.M)]


def test_there_are_blocks_to_check():
    assert min(len(YAML), len(PROMQL), len(SCRAPES), len(RULES)) >= 2


@each(YAML)
def test_a_block_of_yaml_can_be_read(text):
    assert any(document is not None for document in yaml.safe_load_all(text))


# --- what Prometheus says --------------------------------------------------------------------------------------------


def promtool(*words: str) -> subprocess.CompletedProcess[str]:
    needed("promtool", package="prometheus")
    return subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)


@pytest.mark.real
@each(SCRAPES)
def test_a_scrape_configuration_is_one(text, tmp_path):
    for name in re.findall(r"rule_files: \[([\w.]+)\]", text):
        (tmp_path / name).write_text("groups: []\n")
    # Debian's Prometheus has no Kubernetes discovery; tests/contract/test_scraping.py tests what it would find.
    path = tmp_path / "prometheus.yml"
    path.write_text(re.sub(r"kubernetes_sd_configs: \[\{role: (?:pod|endpoints)\}\]", "static_configs: []", text))
    done = promtool("check", "config", "--syntax-only", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.real
def test_a_wrong_scrape_configuration_is_noticed(tmp_path):
    path = tmp_path / "prometheus.yml"
    path.write_text("scrape_configs: [{job_name: a, honour_labels: true}]\n")
    assert promtool("check", "config", "--syntax-only", str(path)).returncode != 0


@each([(name, text) for name, text in SCRAPES if "vgpuscope" in text])
def test_a_scrape_of_ours_keeps_the_labels_of_tenants(text):
    jobs = yaml.safe_load(text)["scrape_configs"]
    assert [job["job_name"] for job in jobs if not job.get("honor_labels")] == []


@pytest.mark.real
@each(RULES)
def test_a_block_of_rules_is_accepted(text, tmp_path):
    path = tmp_path / "rules.yml"
    path.write_text(text)
    done = promtool("check", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


_GOES_ON = re.compile(r"\s|[-+*/%^<>=!)]|(?:and|or|unless|by|without|on|ignoring|group_left|group_right)\b")
_OPEN_END = re.compile(
    r"(?:[-+*/%^<>=!(,]|\b(?:and|or|unless)|\b(?:on|ignoring|group_left|group_right)\s*\([^()]*\))\s*$"
)


def queries(text: str) -> list[str]:
    """The queries of a block: each begins after a comment, or at the margin if the one before is complete."""
    found = [""]
    for line in text.splitlines():
        if line.startswith("#"):
            found.append("")
            continue
        last = found[-1]
        unfinished = last.count("(") > last.count(")") or _OPEN_END.search(last) or _GOES_ON.match(line)
        if unfinished:
            found[-1] += f"\n{line}"
        else:
            found.append(line)
    return [query.strip() for query in found if query.strip()]


def test_a_block_is_split_into_its_queries():
    assert queries("# a\nup\n  > 1\nsum(\n  up)\n/ up\nup +\nup\n# b\nup\n") == [
        "up\n  > 1",
        "sum(\n  up)\n/ up",
        "up +\nup",
        "up",
    ]


@pytest.mark.real
@each(PROMQL)
def test_a_block_of_promql_is_accepted(text, tmp_path):
    assert queries(text)
    rules = [{"record": f"a:{number}", "expr": query} for number, query in enumerate(queries(text))]
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "a", "rules": rules}]}))
    done = promtool("check", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


# Series that Prometheus adds to every target, and words of its language.
_PROMETHEUS = {"up", "scrape_duration_seconds", "scrape_samples_scraped"}
_WORDS = {"and", "or", "unless", "by", "without", "on", "ignoring", "group_left", "group_right", "bool", "offset"}


def series_named(query: str) -> set[str]:
    """The metrics that a query names: what is neither a label, a text, a function nor a word of the language."""
    bare = re.sub(r"\"[^\"]*\"|#.*", "", query)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", bare)
    bare = re.sub(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", "", bare)
    names = set(re.findall(r"(?<![\w.:])[a-zA-Z_:][\w:]*(?!\w|\s*\()", bare))
    return names - _WORDS


@each(PROMQL)
def test_a_block_of_promql_uses_metrics_that_exist(text):
    assert {name for query in queries(text) for name in series_named(query)} <= METRICS | _PROMETHEUS


def test_a_metric_that_does_not_exist_is_found():
    assert series_named('sum by (pod) (rate(gone_total{a="b"}[5m])) / on(pod) up') == {"gone_total", "up"}
    assert "gone_total" not in METRICS | LABELS


# --- pages in two languages ------------------------------------------------------------------------------------------

PAIRS = [
    (english, chinese)
    for chinese in sorted(DOCS.glob("*.zh-CN.md"))
    if (english := chinese.with_name(chinese.name.replace(".zh-CN", ""))).exists() and chinese.name != "index.zh-CN.md"
]


@pytest.mark.parametrize(("english", "chinese"), PAIRS, ids=[english.stem for english, _ in PAIRS])
def test_both_languages_of_a_page_have_the_same_sections_and_rows(english, chinese):
    def shape(page: Path) -> tuple[list[int], list[int]]:
        text = prose(page.read_text())
        return [len(level) for level, _ in _HEADING.findall(text)], [row.count("|") for row in _TABLE_ROW.findall(text)]

    if english.stem == "glossary":  # the Chinese one has a column for the English word
        assert shape(english)[0] == shape(chinese)[0]
    else:
        assert shape(english) == shape(chinese)


# --- worked examples -------------------------------------------------------------------------------------------------

EXTENDING = (DOCS / "extending.md").read_text()


def example(start: str) -> str:
    """The block of code that begins with this."""
    return next(text for _, text in _BLOCK.findall(EXTENDING) if text.lstrip().startswith(start))


def test_the_metric_of_the_worked_example_is_one():
    scope = dict(vars(agent))
    exec(example("GPU_POWER_HEADROOM"), scope)
    made = scope["GPU_POWER_HEADROOM"]
    assert isinstance(made, Metric)
    assert made.name == "vgpuscope_gpu_power_headroom_watts"
    assert made.name.endswith(made.unit)
    assert made.name not in METRICS  # once it exists, the page needs another example


def test_the_vendor_of_the_worked_example_is_understood(monkeypatch):
    vendor = eval(example("Vendor(").strip().rstrip(","), dict(vars(vendors)))
    monkeypatch.setattr(register, "VENDORS", (*vendors.VENDORS, vendor))
    written = yaml.safe_load(example("# of the node"))
    devices, wrong = register.registered_devices(written, {}, "node-1")
    assert wrong == ()
    assert [(one.id, one.vendor, one.slots) for one in devices] == [("ACME-1", "Acme", 4)]
    key = vendor.allocated[0]
    [[held]] = annotation.assigned_devices(key, written[key])
    assert (held.uuid, held.mib, held.cores) == ("ACME-1", 16384, 25)


# --- figures of the sizing guide -------------------------------------------------------------------------------------

GPUS, SOURCES = 8, 7


def agent_series(containers: int, *, hami: bool, families: tuple[str, ...] = DEFAULT_FAMILIES) -> int:
    def per(scope):
        return series_per(scope, agent.METRICS, families)

    regions = containers * per("vgpu") if hami else 0
    shared = containers * (per("container") + per("pod") + per("host"))
    return GPUS * per("gpu") + shared + regions + per("node") + SOURCES * per("source")


def cluster_series(containers: int, families: tuple[str, ...] = DEFAULT_FAMILIES) -> int:
    def per(scope):
        return series_per(scope, cluster.METRICS, families)

    return GPUS * per("device") + containers * per("holder") + per("place")


def analyzer_series(pods: int) -> int:
    def per(scope):
        return series_per(scope, analyzer.METRICS, analyzer.FAMILIES)

    return GPUS * per("subject") + pods * (per("gpu-of-pod") + per("tenant") + per("gpupod"))


@pytest.mark.parametrize("page", ["sizing.md", "sizing.zh-CN.md"])
def test_the_sizing_guide_has_the_series_of_the_catalog(page):
    counted = series_per("offer", cluster.METRICS, DEFAULT_FAMILIES) + series_per(
        "place", cluster.METRICS, DEFAULT_FAMILIES
    )
    native = ("native",)
    rows = [
        (agent_series(32, hami=True), agent_series(32, hami=True, families=native), agent_series(8, hami=False)),
        (cluster_series(32), cluster_series(32, native), counted),
        (analyzer_series(32), analyzer_series(32), analyzer_series(8)),
    ]
    text = (DOCS / page).read_text()
    for row in rows:
        assert f"| {' | '.join(f'{series:,}' for series in row)} |" in text
