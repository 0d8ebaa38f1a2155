"""A fleet whose numbers agree is not accused, and whichever number of it is wrong, some check finds it."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.logic.audit.fleets import AT, bodies, fleets, page, surfaces
from vgpuscope.logic.audit.checks import CHECKS, CODES, comparisons, holds
from vgpuscope.model.consistency import FigureComparison, Surfaces
from vgpuscope.views.audit.words import RULES

# Numbers that are shown once and follow from nothing else that these answers show.
ALONE = {"attention_total", "stale"}


def contradictions(read: Surfaces) -> list[FigureComparison]:
    return [one for one in comparisons(read) if not holds(one)]


@given(fleets())
def test_a_fleet_whose_numbers_agree_has_no_contradiction(fleet):
    read = surfaces(bodies(fleet), page(fleet))
    assert contradictions(read) == []
    assert {"same", "rows", "sums", "divisions"} <= {one.check for one in comparisons(read)}


@given(fleets(), st.integers(1, 8))
def test_gpus_of_which_only_the_number_is_known_are_counted_and_have_no_row(fleet, more):
    answers = bodies(fleet)
    for figures in (answers["/api/v1/overview"]["now"], answers["/api/v1/nodes"]["rows"][0]):
        figures["gpus"] += more
        figures["gpus_unlisted"] = figures.get("gpus_unlisted", 0) + more
    assert contradictions(surfaces(answers, page(fleet))) == []


@given(fleets(), st.data())
def test_whichever_number_is_wrong_some_check_finds_it(fleet, data):
    answers = bodies(fleet)
    path, steps = data.draw(st.sampled_from(numbers(answers)))
    wrong = deepcopy(answers)
    holder = wrong[path]
    for step in steps[:-1]:
        holder = holder[step]
    holder[steps[-1]] += data.draw(st.sampled_from((1, 7)) if isinstance(holder[steps[-1]], int) else st.just(0.5)) * (
        2**30 if "memory" in str(steps[-1]) else 2**10 if "_mb" in str(steps[-1]) else 1
    )
    assert contradictions(surfaces(wrong, page(fleet))) != [], (path, steps)


@given(fleets(), st.data())
def test_a_wrong_metric_is_found(fleet, data):
    lines = page(fleet).splitlines()
    number = data.draw(st.integers(0, len(lines) - 1))
    series, _, value = lines[number].rpartition(b" ")
    lines[number] = b"%s %f" % (series, float(value) + 1)
    assert contradictions(surfaces(bodies(fleet), b"\n".join(lines) + b"\n")) != []


@given(fleets(), st.data())
def test_a_row_that_is_missing_from_one_list_is_found(fleet, data):
    answers = bodies(fleet)
    lists = [path for path, body in answers.items() if isinstance(body, dict) and body.get("rows")]
    path = data.draw(st.sampled_from(lists))
    del answers[path]["rows"][data.draw(st.integers(0, len(answers[path]["rows"]) - 1))]
    assert contradictions(surfaces(answers)) != []


@pytest.mark.parametrize(
    ("mean", "found"),
    [
        (0.059, True),  # of samples between 0 and 1 of which 95 % are 0, the mean is at most 0.05
        (0.05, False),
        (0.0, False),
    ],
)
def test_a_mean_that_p95_and_peak_do_not_allow_is_found(mean, found):
    pod = {"namespace": "serving", "pod": "rerank-api-0", "use": {"mean": mean, "p95": 0.0, "max": 1.0}}
    wrong = contradictions(surfaces({"/api/v1/workloads": {"at": AT, "group_by": "pod", "rows": [pod]}}))
    assert [(one.check, one.subject) for one in wrong if one.first.figure == "workload.use"] == (
        [("parts", "pod/serving/rerank-api-0")] if found else []
    )


@given(fleets())
def test_answers_of_different_analyses_are_not_compared(fleet):
    stats = "GET /results/stats"
    answers = bodies(fleet)
    answers["/results/stats"]["total_gpus"] += 5
    read = surfaces(answers)
    later = [replace(one, moment="later") if one.surface == stats else one for one in read.readings]
    moved = contradictions(replace(read, readings=tuple(later)))
    assert any(stats in (one.first.surface, one.second.surface) for one in contradictions(read))
    assert [one for one in moved if one.first.surface != one.second.surface] == []


def test_every_check_has_a_code_and_a_rule_in_both_languages():
    assert set(CODES) == RULES.keys()
    assert {check.code for check in CHECKS} == set(CODES)
    assert all(en.endswith(".") and zh.endswith("。") for en, zh in RULES.values())


def numbers(answers: dict[str, Any]) -> list[tuple[str, tuple[Any, ...]]]:
    """Every number in these answers: the path of the answer, and the way to the number."""

    def below(value: Any, steps: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        if isinstance(value, dict):
            return [found for key, item in value.items() if key not in ALONE for found in below(item, (*steps, key))]
        if isinstance(value, list):
            return [found for index, item in enumerate(value) for found in below(item, (*steps, index))]
        return [steps] if isinstance(value, int | float) and not isinstance(value, bool) else []

    return [(path, steps) for path, body in answers.items() for steps in below(body, ())]
