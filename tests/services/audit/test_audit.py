"""The auditor against an analyzer over HTTP: what it reports, what it reads again, and what it does not decide."""

from collections.abc import Iterator

import pytest

from tests.logic.audit.fleets import AT
from tests.services.audit.served import Served, analyzer
from vgpuscope.model.consistency import AuditReport, CheckCount, FigureReading, Surfaces
from vgpuscope.services.audit.audit import ROUNDS, AuditTargets, audit


@pytest.fixture
def served() -> Served:
    return Served()


@pytest.fixture
def url(served: Served) -> Iterator[str]:
    with analyzer(served) as address:
        yield address


async def audited(url: str, **more: object) -> AuditReport:
    return await audit(AuditTargets(analyzer=url, commands=False, pause=0.0, **more))  # type: ignore[arg-type]


def check(report: AuditReport, code: str) -> CheckCount:
    return next(one for one in report.checks if one.code == code)


async def test_numbers_that_agree_are_compared_and_none_is_reported(url: str):
    report = await audited(url)
    assert report.differences == ()
    assert all(check(report, code).compared for code in ("same", "rows", "sums", "divisions", "parts"))
    assert report.asked[0].answered


async def test_a_check_without_numbers_is_not_passed_but_says_why(url: str):
    energies = check(await audited(url), "energies")
    assert (energies.compared, energies.reason) == (0, "not-shown")


async def test_a_wrong_number_is_reported_with_both_places_and_both_definitions(served: Served, url: str):
    served.answers["/api/v1/overview"]["now"]["idle_held"] = 9
    report = await audited(url)
    found = next(one for one in report.differences if one.check == "rows")
    assert (found.first.path, found.first.value) == ("now.idle_held", 9)
    assert (found.second.path, found.second.value) == ("count(rows[held][verdict=idle])", 1)
    assert found.first.definition is not None
    assert "held by a pod" in found.first.definition.en
    assert "判定为空闲" in found.first.definition.zh


async def test_a_difference_that_is_gone_when_it_is_read_again_is_not_reported(served: Served, url: str):
    right = served.answers["/api/v1/overview"]["tenants"]

    def heal(path: str) -> None:
        wrong = served.asked["/api/v1/overview"] <= 3
        served.answers["/api/v1/overview"]["tenants"] = right + wrong

    served.before = heal
    assert (await audited(url)).differences == ()
    assert served.asked["/api/v1/overview"] > 3


async def test_answers_of_an_analysis_that_is_replaced_meanwhile_are_not_compared_with_it(served: Served, url: str):
    """Every answer is of another analysis, and every number of tenants is another one: nothing can be said of it."""

    def replace(path: str) -> None:
        number = sum(served.asked.values())
        for answer in served.answers.values():
            if isinstance(answer, dict):
                answer["timestamp" if "timestamp" in answer else "at"] = f"{AT}{number}"
        served.answers["/api/v1/overview"]["tenants"] = number

    served.before = replace
    report = await audited(url)
    between = [one for one in report.differences if one.first.surface != one.second.surface]
    assert between == []


async def test_lists_are_read_to_their_last_page(served: Served, url: str):
    served.largest = 1
    report = await audited(url)
    assert report.differences == ()
    assert check(report, "rows").compared == check(await _whole(served, url), "rows").compared


async def _whole(served: Served, url: str) -> AuditReport:
    served.largest = 10**9
    return await audited(url)


async def test_what_a_caller_may_not_read_is_named(served: Served, url: str):
    served.refused["/metrics"] = 403
    report = await audited(url)
    assert any(one.what == "analyzer /metrics" and "403" in one.why for one in report.unread)


async def test_the_sums_of_a_caller_of_one_namespace_are_not_compared_with_those_of_all(served: Served, url: str):
    served.answers["/api/v1/session"]["namespaces"] = ["ml"]
    served.metrics = b"gpu_total_count 4000\n"
    found = await audited(url)
    assert {difference.check for difference in found.differences} == {
        "scope"
    }  # these answers name other namespaces, too
    assert served.asked["/metrics"] == 0


async def test_a_service_that_is_silent_is_named_and_nothing_is_passed():
    report = await audited("http://127.0.0.1:9")
    assert [(one.service, one.answered) for one in report.asked] == [("analyzer", False)]
    assert report.asked[0].message
    assert {(one.compared, one.reason) for one in report.checks} == {(0, "no-answer")}


async def test_a_difference_that_cannot_be_read_again_in_time_is_undecided(served: Served, url: str):
    served.answers["/api/v1/overview"]["tenants"] += 1
    report = await audit(AuditTargets(analyzer=url, commands=False, within=3.0, pause=60.0))
    assert report.differences == ()
    assert report.undecided > 0


async def test_readings_of_further_surfaces_are_compared_too(served: Served, url: str):
    def shown(surface: str, value: float) -> FigureReading:
        return FigureReading(surface=surface, path="tile", figure="fleet.gpus", subject=(), value=value)

    async def pages() -> Surfaces:
        return Surfaces(readings=(shown("#/", 20), shown("#/nodes", 23)))

    report = await audit(AuditTargets(analyzer=url, commands=False, pause=0.0), more=pages)
    assert [(one.first.value, one.second.value) for one in report.differences] == [(20, 23)]


async def test_a_difference_is_reported_only_after_it_was_read_several_times(served: Served, url: str):
    served.answers["/api/v1/overview"]["tenants"] += 1
    calls = 0

    async def pages() -> Surfaces:
        nonlocal calls
        calls += 1
        wrong = FigureReading(surface="#/", path="tile", figure="fleet.gpus", subject=(), value=1)
        return Surfaces(
            readings=(wrong, FigureReading(surface="b", path="b", figure="fleet.gpus", subject=(), value=2))
        )

    report = await audit(AuditTargets(analyzer=url, commands=False, pause=0.0), more=pages)
    assert calls == ROUNDS == report.rounds
    assert report.differences != ()
