"""What doctor says of the language model, of notices and of reclaim: a part that is off is skipped, never passed."""

from typing import Any

import pytest

from vgpuscope.logic.doctor.chain import judged
from vgpuscope.model.doctor import AnalyzerFacts, ChannelFacts, CheckOutcome, DoctorFacts, Missing, ReclaimFacts

CODES = ("MODEL_FAILING", "CHANNEL_FAILING", "RECLAIM_WITHOUT_HISTORY", "RECLAIM_WITHOUT_KUBE", "RECLAIM_HELD_BACK")
LIVE: dict[str, Any] = {"live": True, "stored": True, "kube": "ok"}


def judgements(**analyzer: Any) -> dict[str, CheckOutcome]:
    return judgements_of(AnalyzerFacts(url="http://analyzer", **analyzer))


def judgements_of(facts: AnalyzerFacts | Missing) -> dict[str, CheckOutcome]:
    gone: dict[str, Any] = {name: Missing(fact="driver", reason="not-here") for name in DoctorFacts.__struct_fields__}
    checks = judged(DoctorFacts(**(gone | {"at": 0.0, "place": "outside", "analyzer": facts})))
    return {check.code: check.judgement for check in checks if check.code in CODES}


def statuses(**analyzer: Any) -> dict[str, str]:
    return {code: one.status for code, one in judgements(**analyzer).items()}


def held_back(**reclaim: Any) -> CheckOutcome:
    return judgements(reclaim=ReclaimFacts(**(LIVE | reclaim)))["RECLAIM_HELD_BACK"]


def test_an_analyzer_that_says_nothing_of_these_parts_or_has_them_off_makes_all_skipped():
    assert statuses() == dict.fromkeys(CODES, "skipped")
    off = ReclaimFacts(live=False, stored=False, kube="none", stopped_by="ops", turned=9, of=10)
    assert statuses(model_error="AI_TIMEOUT", channels=(), reclaim=off) == dict.fromkeys(CODES, "skipped")


def test_what_works_passes():
    channels = (ChannelFacts(name="ops", used=True), ChannelFacts(name="ml", used=False))
    found = statuses(asks_model=True, channels=channels, reclaim=ReclaimFacts(**LIVE))
    assert found == dict.fromkeys(CODES, "pass")


def test_only_the_leader_knows_whether_the_model_answers_and_the_breaker_is_open():
    reclaim = ReclaimFacts(**LIVE, turned=9, of=10)
    found = statuses(leader=False, asks_model=True, reclaim=reclaim)
    assert (found["MODEL_FAILING"], found["RECLAIM_HELD_BACK"]) == ("skipped", "skipped")


def test_channels_without_a_message_are_not_known_to_work():
    unused = (ChannelFacts(name="ops", used=False),)
    assert statuses(channels=unused)["CHANNEL_FAILING"] == "skipped"
    failing = judgements(channels=(*unused, ChannelFacts(name="ml", used=True, error="404")))["CHANNEL_FAILING"]
    assert (failing.status, failing.examples, failing.numbers) == ("fail", ("ml: 404",), {"count": 1})


def test_without_a_store_that_alone_is_the_fault_of_reclaim():
    found = statuses(reclaim=ReclaimFacts(live=True, stored=False, kube="none", stopped_by="ops"))
    assert [found[code] for code in CODES[2:]] == ["fail", "skipped", "skipped"]


@pytest.mark.parametrize(
    ("reclaim", "status", "example"),
    [
        ({"stopped_by": "ops"}, "warn", "stop: by ops"),
        ({"turned": 9, "of": 20}, "warn", "breaker: 9 of 20 workloads turned idle at once"),
        ({"kube": "down"}, "fail", "kube_unreachable: the Kubernetes API does not answer"),
    ],
)
def test_each_brake_on_all_workloads_is_named(reclaim, status, example):
    found = held_back(**reclaim)
    assert (found.status, found.examples, found.numbers) == (status, (example,), {"count": 1})


def test_several_brakes_are_all_named():
    found = held_back(stopped_by="ops", turned=9, of=20, kube="down")
    assert (found.status, found.numbers, len(found.examples)) == ("fail", {"count": 3}, 3)
