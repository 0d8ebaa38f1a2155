"""Ages of samples: of agents that were asked, and by their series. What nobody could be asked about is skipped."""

from typing import Any

import pytest

from vgpuscope.catalog.agent import SAMPLE_TIME
from vgpuscope.logic.doctor.chain import judged
from vgpuscope.model.doctor import (
    AgentFacts,
    AnalyzerFacts,
    CheckOutcome,
    DoctorFacts,
    Missing,
    SeriesFacts,
    SeriesValue,
)

NOW = 10_000.0
HERE = AgentFacts(url="http://a", node="a", sample_age=1.0)


def outcome(code: str, **facts: Any) -> CheckOutcome:
    gone: dict[str, Any] = {name: Missing(fact="driver", reason="not-here") for name in DoctorFacts.__struct_fields__}
    checks = judged(DoctorFacts(**(gone | {"at": NOW, "place": "outside"} | facts)))
    return next(check.judgement for check in checks if check.code == code)


def series(*ages: float) -> SeriesFacts:
    shown = (SeriesValue(name=SAMPLE_TIME.name, labels={"node": "b"}, value=NOW - age) for age in ages)
    return SeriesFacts(now=tuple(shown))


@pytest.mark.parametrize(
    ("code", "age", "example"), [("AGENT_SAMPLE_OLD", 700.0, "b: 700 s"), ("CLOCK_SKEW", -90.0, "b: +90 s")]
)
def test_a_time_in_the_series_that_is_far_from_now_fails(code: str, age: float, example: str):
    found = outcome(code, series=series(0.0, age))
    assert (found.status, found.examples, found.numbers) == ("fail", (example,), {"count": 1})
    assert outcome(code, series=series(0.0, -age)).status == "pass"


@pytest.mark.parametrize("code", ["AGENT_SAMPLE_OLD", "CLOCK_SKEW"])
def test_without_a_time_in_the_series_an_agent_that_was_asked_is_judged(code: str):
    assert outcome(code, series=series(), agents=(HERE,)).status == "pass"
    assert outcome(code, agents=(HERE,)).status == "pass"
    nothing = outcome(code, series=series())
    assert (nothing.status, nothing.missing and nothing.missing.detail) == ("skipped", SAMPLE_TIME.name)
    assert outcome(code).status == "skipped"


def test_clocks_can_be_compared_with_that_of_the_analyzer():
    assert outcome("CLOCK_SKEW", analyzer=AnalyzerFacts(url="http://x")).status == "pass"
    assert outcome("CLOCK_SKEW", series=series(), analyzer=AnalyzerFacts(url="http://x")).status == "pass"
