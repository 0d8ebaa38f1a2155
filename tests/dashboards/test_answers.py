"""Every query of every panel and variable, answered by a real Prometheus over the demo's services."""

import re
from functools import partial
from typing import Any

import pytest

from tests.console.processes import eventually
from tests.dashboards.boards import Shown, interpolated, names_in, organized, panels
from tests.dashboards.conftest import OURS
from tests.dashboards.engine import MACROS, Engine, Series, measured
from tests.dashboards.test_meaning import EMPTY_ON_A_HEALTHY_DEMO, EMPTY_QUERIES

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("dashboards")]
ASKED = [shown for shown in panels("en") if shown.id not in EMPTY_ON_A_HEALTHY_DEMO]
each_panel = pytest.mark.parametrize("shown", ASKED, ids=lambda shown: shown.id)
MOVES = 1.6  # what a value may change between two scrapes of a replica each; counted twice it would double


@each_panel
def test_every_query_of_a_panel_has_an_answer_of_its_shape(engine: Engine, shown: Shown):
    """A pod may just have ended, an error may be still to come: within two minutes all of it is there."""
    why: list[str] = []

    def answered() -> bool:
        why[:] = list(complaints(shown, engine.panel(shown)))
        return not why

    try:
        eventually(answered)
    except AssertionError:
        pytest.fail("; ".join(why))


def complaints(shown: Shown, answers: dict[str, list[Series]]):
    for query in shown.queries:
        found = measured(answers[query["refId"]])
        if not found and (shown.id, query["refId"]) in EMPTY_QUERIES:
            continue
        if not found:
            yield f"{query['refId']} is empty"
            continue
        seen = {label for one in found for label in one.labels}
        yield from (
            f"{label} is on no series" for label in names_in(query.get("legendFormat", "")) if label not in seen
        )
        if shown.kind == "stat" and len(found) != 1:
            yield f"{query['refId']} has {len(found)} series"
        if shown.kind in {"table", "barchart"}:
            yield from columns(shown, query["refId"], found, seen)
        if shown.kind == "heatmap" and seen != {"le"}:
            yield f"buckets have the labels {seen}"
        if query.get("legendFormat") and shown.kind in {"timeseries", "bargauge", "state-timeline"}:
            names = [legend(query["legendFormat"], one.labels) for one in found]
            if len(set(names)) != len(names):
                yield "two series have one name"


def columns(shown: Shown, letter: str, found: list[Series], seen: set[str]):
    """A row has exactly the labels of the columns; at least one query of the table has each."""
    wanted = {name for name in organized(shown.panel)["indexByName"] if not name.startswith("Value")} - {"cluster"}
    if seen - wanted:
        yield f"{letter} has other labels: {seen - wanted}"
    if letter == "A" and wanted - seen:
        yield f"no row has {wanted - seen}"
    rows = [tuple(sorted(one.labels.items())) for one in found]
    if len(set(rows)) != len(rows):
        yield "two rows have the same labels"


def legend(template: str, labels: dict[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda name: labels.get(name[1], ""), template)


@each_panel
def test_a_second_replica_changes_nothing(engine: Engine, shown: Shown):
    """Each target is scraped twice. With one of the two alone, every answer is about the same."""
    values = {**engine.chosen(shown, {}), **MACROS}
    if shown.title == "Leaders":  # counts replicas
        return

    def the_same() -> bool:
        for query in shown.queries:
            text = interpolated(query["expr"], values)
            both, one = (
                _numbers(engine.ask(asked)) for asked in (text, text.replace("{cluster=~", '{replica="a",cluster=~'))
            )
            if {*both} != {*one} or any(abs(both[key] - one[key]) > limit(one[key]) for key in one):
                return False
        return True

    eventually(the_same)


def limit(value: float) -> float:
    return max(abs(value) * (MOVES - 1), 0.2)


def _numbers(found: list[Series]) -> dict[tuple[tuple[str, str], ...], float]:
    return {tuple(sorted(one.labels.items())): one.value for one in measured(found)}


@each_panel
def test_no_panel_takes_our_own_pods_for_tenants(engine: Engine, shown: Shown):
    """prometheus-operator puts the exporter's own pod and namespace on every series that has none."""
    for found in engine.panel(shown).values():
        for one in found:
            assert one.labels.get("namespace") != OURS
            assert not one.labels.get("pod", "").startswith("vgpuscope-")


@each_panel
def test_a_chosen_value_narrows_the_answer_and_breaks_nothing(engine: Engine, shown: Shown):
    everything = engine.chosen(shown, {})
    for variable in shown.variables:
        if variable["type"] != "query" or variable["name"] == "cluster":
            continue
        offered = engine.label_values(variable, everything)
        for choice in (offered[:1], offered[:2], ["no (such) [value]"]):
            answers = engine.panel(shown, {variable["name"]: choice})
            used = any(f"${variable['name']}" in query["expr"] for query in shown.queries)
            if used and len(offered) > 2 and choice == ["no (such) [value]"]:
                assert all(not found or found[0].value == 0 for found in answers.values())


def test_every_variable_offers_values(engine: Engine):
    for shown in ASKED:
        everything = engine.chosen(shown, {})
        for variable in shown.variables:
            if (
                variable["type"] == "query" and variable["name"] != "cluster"
            ):  # the demo is one cluster, without a label
                eventually(partial(offers, engine, variable, everything))
                assert OURS not in engine.label_values(variable, everything)


def offers(engine: Engine, variable: dict[str, Any], values: dict[str, str]) -> bool:
    return bool(engine.label_values(variable, values))
