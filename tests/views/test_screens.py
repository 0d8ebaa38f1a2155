"""What each command shows of a recorded cluster at 80 columns. `VGPUSCOPE_GOLDEN=write` rewrites the golden screens."""

import os
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType

from tests.paths import REPOSITORY
from vgpuscope.model.audit import AuditPage
from vgpuscope.model.backtest import Backtest
from vgpuscope.model.cluster import NodeLedger
from vgpuscope.model.decision_answers import DecisionBody, FitAnswer
from vgpuscope.model.pending import PendingList
from vgpuscope.model.waste import Waste
from vgpuscope.model.words import Language
from vgpuscope.views.cluster.inventory import device_rows, gpus_table, nodes_table
from vgpuscope.views.cluster.pending.table import pending_table, pod_view
from vgpuscope.views.fleet.results.results import ResultRow
from vgpuscope.views.fleet.results.table import results_table
from vgpuscope.views.fleet.waste_table import waste_table
from vgpuscope.views.reclaim.api import ReclaimList
from vgpuscope.views.reclaim.backtest.table import backtest_table
from vgpuscope.views.reclaim.tables import audit_table, cases_table
from vgpuscope.views.scheduler.fitting import fit_view
from vgpuscope.views.scheduler.why import why_view

FIXTURES = REPOSITORY / "tests" / "fixtures" / "screens"
GOLDEN = REPOSITORY / "tests" / "golden" / "screens"


def recorded(name: str, kind: Any) -> Any:
    return msgspec.json.decode((FIXTURES / f"{name}.json").read_bytes(), type=kind)


NODES = recorded("nodes", list[NodeLedger])
PENDING = recorded("pending", PendingList)
RESULTS = recorded("results", list[ResultRow])
WASTE = recorded("waste", Waste)
CASES = recorded("reclaim", ReclaimList)
AUDIT = recorded("audit", AuditPage).entries
BACKTEST = recorded("backtest", Backtest)
DECISIONS = recorded("why", list[DecisionBody])
FIT = recorded("fit", FitAnswer)
NOW = DECISIONS[0].at + 5

Screen = Callable[[int | None, Language], RenderableType]
SCREENS: dict[str, Screen] = {
    "nodes": lambda width, lang: nodes_table(NODES, width, lang),
    "gpus": lambda width, lang: gpus_table(device_rows(NODES), width, lang),
    "pending": lambda width, lang: pending_table(PENDING, width, outcomes=False, language=lang),
    "pending-all": lambda width, lang: pending_table(PENDING, width, outcomes=True, language=lang),
    "pending-pod": lambda _, lang: pod_view(PENDING.pending[1], PENDING, lang),
    "results": lambda width, lang: results_table(RESULTS, width, lang),
    "waste": lambda width, lang: waste_table(WASTE, width, lang, limit=20),
    "reclaim": lambda width, lang: cases_table(CASES, width, lang, now=NOW, limit=50),
    "reclaim-audit": lambda width, lang: audit_table(AUDIT, width, lang),
    "backtest": lambda width, lang: backtest_table(BACKTEST, width, lang, limit=20),
    "why": lambda width, lang: why_view(DECISIONS, NOW, width, language=lang),
    "fit": lambda width, lang: fit_view(FIT, width, language=lang),
}
PROMISED = {  # the columns that each command is for, and that are never hidden at 80 columns
    "nodes": ("NODE", "LARGEST FIT", "FINDINGS"),
    "gpus": ("NODE", "#", "HEALTH", "MEMORY", "HOLDERS"),
    "pending": ("POD", "REASON"),
    "pending-all": ("POD", "OUTCOME", "REASON"),
    "results": ("SCORE", "UTIL", "STATUS", "VERDICT"),
    "waste": ("IDLE GPU-H", "TENANT"),
    "reclaim": ("CASE", "STATE", "NEXT", "POD"),
    "reclaim-audit": ("TIME", "WHAT", "AFTER", "POD"),
}

each_screen = pytest.mark.parametrize("name", SCREENS)
each_language = pytest.mark.parametrize("language", ["en", "zh"])


def drawn(name: str, width: int | None, language: Language) -> str:
    console = Console(width=width or 10_000, no_color=True, highlight=False)
    with console.capture() as captured:
        console.print(SCREENS[name](width, language))
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


@each_screen
@each_language
def test_a_screen_at_80_columns_is_the_golden_one(name, language):
    golden = GOLDEN / f"{name}-{language}.txt"
    if os.environ.get("VGPUSCOPE_GOLDEN") == "write":
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(drawn(name, 80, language))
    assert drawn(name, 80, language) == golden.read_text()


@each_screen
@each_language
@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_no_line_is_wider_than_the_terminal(name, language, width):
    assert max(map(cell_len, drawn(name, width, language).splitlines())) <= width


@pytest.mark.parametrize("name", PROMISED)
def test_80_columns_show_what_the_command_is_for(name):
    head = drawn(name, 80, "en").splitlines()[0]
    assert all(title in head for title in PROMISED[name])


@each_screen
def test_without_a_width_nothing_is_hidden_or_cut(name):
    text = drawn(name, None, "en")
    assert "--wide" not in text
    assert "…" not in text.replace("… and", "")


def test_a_name_that_is_too_long_for_its_line_is_whole_with_all_columns():
    pod = "inference-service-predictor-default-00001-deployment-7d9c5b8f6c-x2x9z"
    for name in ("gpus", "results"):
        assert pod not in drawn(name, 80, "en")
        assert "7d9c5b8f6c-x2x9z"[-5:] in drawn(name, 80, "en")  # the end tells the pods of a Deployment apart
        assert pod in drawn(name, None, "en")
