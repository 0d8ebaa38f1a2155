"""Every page of the console, in both languages and both themes, on a desktop and on a phone."""

import re

import pytest

from tests.console.conftest import Opened
from tests.console.processes import Demo, answer, idle_case

pytestmark = pytest.mark.xdist_group("console")

PAGES = {
    "overview": "",
    "gpus": "gpus",
    "shared": "gpus/{shared}",
    "mig": "gpus/{mig_gpu}?mig={mig}",
    "unhealthy": "gpus/{unhealthy}",
    "nodes": "nodes",
    "node": "nodes/hami-a",
    "node-not-ready": "nodes/worn-f",
    "workloads": "workloads",
    "owners": "workloads?by=owner",
    "by-namespace": "workloads?by=namespace",
    "workload": "workloads/research/notebook-alice",
    "idle": "idle",
    "cases": "idle?view=cases",
    "case": "idle/{case}",
    "policy": "idle?view=policy",
    "backtest": "idle?view=backtest",
    "audit": "audit",
    "scheduling": "scheduling",
    "pending": "scheduling/ml-team/sweep-12",
    "namespaces": "namespaces",
    "namespace": "namespaces/research",
    "events": "events",
    "doctor": "doctor",
    "settings": "settings",
    "missing": "no/such/page",
    "mine": "?scope=research",
}
RAW = re.compile(r"undefined|\[object|NaN|\b[A-Z]{2,}(_[A-Z]+)+\b|\bnull\b")
# Names, units and commands that are the same in Chinese; anything with a digit, a slash, a dot or a hyphen is a name.
NAMES = re.compile(
    r"\b(?:kubectl|vgpuscope|curl|dcgmi|sum|max|avg|count) [\w-]+ .*|"  # commands and PromQL
    r"\S*[\d/\-_.{}()=\"]\S*|\b(?:GPU|CPU|SM|XID|MIG|HAMi|MPS|DRA|UUID|Pod|NVML|Prometheus|PromQL|Kubernetes|kubelet|"
    r"ResourceQuota|ResourceClaims?|PodResources|CUDA|kernel|vgpuscope|API|CSV|JSON|curl|English|OIDC|token|bearer|GiB|MiB|"
    r"service account|basic auth|Name: value|Azure OpenAI)\b",
    re.IGNORECASE,
)
_TEXTS = """() => {
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walk.nextNode()) {
    const parent = walk.currentNode.parentElement;
    if (parent.closest('code, .mono, .sr, title, a, noscript') || !walk.currentNode.textContent.trim()) continue;
    found.push(walk.currentNode.textContent.trim());
  }
  return found;
}"""


_LABELS = """() => [...document.querySelectorAll('[aria-label], [title], [placeholder]')].filter((one) =>
    !one.closest('code, .mono, td')).flatMap((one) =>
    ['aria-label', 'title', 'placeholder'].map((name) => one.getAttribute(name) ?? ''))
"""


@pytest.fixture(scope="module")
def names(fleet: Demo) -> dict[str, str]:
    """GPUs of the demo, by what they show."""
    gpus = answer(f"{fleet.analyzer}/api/v1/gpus")
    assert gpus is not None
    mig = next(row for row in gpus["rows"] if row["mig"] and row["tenants"])
    return {
        "case": idle_case(fleet)["id"],
        "shared": next(row["gpu_id"] for row in gpus["rows"] if row["shared"] and len(row["tenants"]) > 1),
        "mig_gpu": mig["gpu_id"],
        "mig": mig["mig"],
        "unhealthy": next(row["gpu_id"] for row in gpus["rows"] if row["node"] == "sick-e" and row["index"] == 1),
    }


def texts(page) -> list[str]:
    found: list[str] = page.evaluate(_TEXTS)
    return found


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_no_errors_no_codes_and_no_serious_findings_of_axe(opened: Opened, names: dict[str, str], name: str):
    watched = opened(PAGES[name].format(**names))
    shown = texts(watched.page)
    assert len(shown) >= 2
    assert watched.page.locator("h1").count() >= 1
    codes = [text for text in shown if RAW.search(text)]
    assert codes == [], codes
    assert watched.axe() == []
    watched.page.emulate_media(color_scheme="dark")
    assert watched.axe() == []
    assert watched.wider_than_window() == 0
    watched.page.set_viewport_size({"width": 390, "height": 800})
    assert watched.wider_than_window() == 0
    assert watched.page.evaluate("document.querySelector('header.top').offsetHeight") < 110  # two lines


@pytest.mark.parametrize("name", PAGES)
def test_a_page_in_chinese_is_in_chinese(opened: Opened, names: dict[str, str], name: str):
    """No visible English sentence, also in tooltips and labels, but names, units, code and what a scheduler said."""
    watched = opened(PAGES[name].format(**names), language="zh", theme="dark")
    assert watched.page.evaluate("document.documentElement.lang") == "zh-CN"
    shown = texts(watched.page)
    labels: list[str] = watched.page.evaluate(_LABELS)
    assert [text for text in (*shown, *labels) if english(text)] == []
    assert any(_chinese(text) for text in shown)
    watched.page.emulate_media(color_scheme="light")
    watched.page.set_viewport_size({"width": 390, "height": 800})
    assert watched.wider_than_window() == 0


def english(text: str) -> bool:
    """Whether a text has two English words in a row that are no names."""
    rest = NAMES.sub(" 、 ", text)
    return bool(re.search(r"\b[a-z]{3,}[,.:;]? [a-z]{2,}\b", rest, re.IGNORECASE))


def test_the_search_for_english_finds_sentences_and_ignores_names():
    assert english("A node was found")
    assert english("Pod 的申请 is too much for it")
    assert not english("命名空间 ml-team 的配额 gpu：nvidia.com/gpumem 已用 114688")
    assert not english("NVIDIA A100-SXM4-80GB · GPU 0")


def _chinese(text: str) -> bool:
    return bool(re.search(r"[\u4e00-\u9fff]", text))
