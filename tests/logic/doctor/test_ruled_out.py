"""A verdict that a check rules out is never among the results of the same facts, whatever the facts are."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.logic.doctor import judging
from vgpuscope.logic.doctor.chain import judged
from vgpuscope.model.doctor import AnalyzerFacts, CheckOutcome, DoctorFacts, Missing, SeriesFacts, SeriesValue

GPUS = [f"GPU-{n:08d}" for n in range(40)]
RULES_OUT = ("GPM_UNSUPPORTED",)  # the checks whose cause says that a verdict cannot be found

gpu = st.fixed_dictionaries(
    {
        "info": st.sampled_from([None, ("none", "unsupported"), ("none", "hung"), ("gpm", "ok"), ("dcgm", "ok")]),
        "exporter": st.booleans(),  # another exporter reports SM activity now
        "result": st.sampled_from(["busy", "busy-unproductive", "idle-held", "unknown"]),
    }
)


def facts_of(gpus: list[dict[str, Any]], *, whole: bool, analyzer: bool) -> DoctorFacts:
    series = []
    for uuid, one in zip(GPUS, gpus, strict=False):
        if one["info"] is not None:
            source, reason = one["info"]
            labels = {"gpu_uuid": uuid, "node": "n", "source": source, "reason": reason, "instance": "agent"}
            series.append(SeriesValue(name="vgpuscope_gpu_profiling_info", labels=labels, value=1.0))
        if one["exporter"]:
            labels = {"UUID": uuid, "instance": "exporter"}
            series.append(SeriesValue(name="DCGM_FI_PROF_SM_ACTIVE", labels=labels, value=0.07))
    gone: dict[str, Any] = {
        name: Missing(fact="driver", reason="not-here")
        for name in DoctorFacts.__struct_fields__
        if name not in {"at", "place", "silent", "services"}
    }
    results = AnalyzerFacts(url="", unproductive=frozenset(unproductive(gpus)))
    known: dict[str, Any] = {"series": SeriesFacts(now=tuple(series), whole=whole)}
    return DoctorFacts(at=0.0, place="outside", **(gone | known | ({"analyzer": results} if analyzer else {})))


def unproductive(gpus: list[dict[str, Any]]) -> list[str]:
    return [uuid for uuid, one in zip(GPUS, gpus, strict=False) if one["result"] == "busy-unproductive"]


def ruled_out(facts: DoctorFacts) -> list[CheckOutcome]:
    return [check.judgement for check in judged(facts) if check.code in RULES_OUT]


@given(st.lists(gpu, max_size=len(GPUS)), st.booleans())
def test_no_gpu_of_the_results_has_a_verdict_that_a_check_rules_out(gpus: list[dict[str, Any]], whole: bool):
    limit, judging._EXAMPLES = judging._EXAMPLES, len(GPUS)
    try:
        for found in ruled_out(facts_of(gpus, whole=whole, analyzer=True)):
            named = {uuid for uuid in GPUS if any(uuid in text for text in found.examples)}
            assert not named & set(unproductive(gpus))
            if found.status == "warn":
                assert found.numbers["count"] == len(named)
    finally:
        judging._EXAMPLES = limit


@given(st.lists(gpu, max_size=len(GPUS)), st.booleans())
def test_of_a_part_of_the_series_nothing_is_ruled_out(gpus: list[dict[str, Any]], analyzer: bool):
    assert {one.status for one in ruled_out(facts_of(gpus, whole=False, analyzer=analyzer))} == {"skipped"}


def test_a_gpu_that_nothing_measures_is_named():
    blind = {"info": ("none", "unsupported"), "exporter": False, "result": "busy"}
    (found,) = ruled_out(facts_of([blind, blind | {"exporter": True}], whole=True, analyzer=True))
    assert (found.status, found.numbers, found.examples) == ("warn", {"count": 1}, (f"n {GPUS[0]}: unsupported",))
