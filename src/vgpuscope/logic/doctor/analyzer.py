"""The analyzer, and its store of results."""

from vgpuscope.logic.doctor.judging import (
    ANSWERS,
    failed,
    failed_if,
    passed,
    skipped,
    warned,
)
from vgpuscope.model.doctor import AnalyzerFacts, CheckOutcome, DoctorFacts, Missing, known

_MOST_UNKNOWN = 0.5
_FEW_GPUS = 2
_NOT_SOURCE = frozenset({"", "ANSWER_UNREADABLE", "METRICS_ABSENT"})  # these have checks of their own


def down(facts: DoctorFacts) -> CheckOutcome:
    """The analyzer does not answer."""
    found = facts.analyzer
    if not isinstance(found, Missing):
        return passed(url=found.url)
    if found.reason in {"no-answer", "unreadable"}:
        return failed([found.detail], place=found.place)
    return passed(place=found.place) if found.reason in ANSWERS else skipped(found)


def source_down(facts: DoctorFacts) -> CheckOutcome:
    """The analyzer cannot read its source."""
    found = known(facts.analyzer)
    if found.error_code in _NOT_SOURCE:
        return passed() if found.source_up or found.error_code else failed([found.error], code="?")
    return passed() if found.source_up else failed([found.error], code=found.error_code)


def stopped(facts: DoctorFacts) -> CheckOutcome:
    """No analysis for a long time, though the source answers."""
    found = known(facts.analyzer)
    if not found.analysed and not found.error_code:
        return skipped(Missing(fact="analyzer", reason="no-data", place=found.url))
    if found.old and not found.error_code:
        return failed([found.error] if found.error else (), interval=found.interval or 0)
    return passed(interval=found.interval or 0)


def verdicts_unknown(facts: DoctorFacts) -> CheckOutcome:
    """Most GPUs are judged unknown, though the source answers."""
    found = known(facts.analyzer)
    ratio = found.unknown_ratio
    if ratio is None or found.old or found.error_code:
        return skipped(Missing(fact="analyzer", reason="no-data", place=found.url))
    unknown, gpus = found.unknown or 0, found.gpus or 0
    bad = ratio > _MOST_UNKNOWN and gpus >= _FEW_GPUS
    return warned(unknown=unknown, gpus=gpus) if bad else passed(unknown=unknown, gpus=gpus)


def follower_failing(facts: DoctorFacts) -> CheckOutcome:
    """Something that follows from an analysis fails: its page, its log, its store."""
    found = known(facts.analyzer)
    failing = [one for one in found.failing if "HISTORY" not in one]
    return failed_if(failing)


def history_off(facts: DoctorFacts) -> CheckOutcome:
    """Results are not stored."""
    found = known(facts.analyzer)
    return warned(place=found.url) if found.stored is None else passed()


def history_down(facts: DoctorFacts) -> CheckOutcome:
    """The store of results cannot be read or written."""
    found = _stored(facts)
    failing = [one for one in found.failing if "HISTORY" in one]
    if found.stored is False or failing:
        return failed(failing, place=found.url)
    return passed()


def not_leader(facts: DoctorFacts) -> CheckOutcome:
    """This replica follows another one."""
    found = _stored(facts)
    return passed() if found.leader or not found.stored else warned(place=found.url)


def _stored(facts: DoctorFacts) -> AnalyzerFacts:
    """The analyzer, if it stores results; Absent otherwise."""
    found = known(facts.analyzer)
    if found.stored is None:
        known(Missing(fact="history", reason="not-here", place=found.url))
    return found
