"""What follows from a verdict: the opinion of a language model, notices, and GPUs that are taken back."""

from collections.abc import Iterator

from vgpuscope.logic.doctor.judging import failed, passed, skipped, warned
from vgpuscope.model.doctor import CheckOutcome, DoctorFacts, FactName, Missing, Reason, ReclaimFacts, known


def model_failing(facts: DoctorFacts) -> CheckOutcome:
    """The language model fails."""
    found = known(facts.analyzer)
    if not found.asks_model:
        return skipped(_missing(facts, "model", "not-here"))
    if found.model_error:
        return warned([found.model_error], code=found.model_error)
    return passed() if found.leader else skipped(_missing(facts, "model", "no-data"))  # only the leader asks


def channel_failing(facts: DoctorFacts) -> CheckOutcome:
    """A service does not take the notices of its channel."""
    channels = known(facts.analyzer).channels
    if channels is None:
        return skipped(_missing(facts, "channels", "no-data"))
    if not channels:
        return skipped(_missing(facts, "channels", "not-here"))
    failing = [f"{one.name}: {one.error}" for one in channels if one.error]
    if failing:
        return failed(failing, count=len(failing))
    used = sum(one.used for one in channels)
    return passed(used=used) if used else skipped(_missing(facts, "channels", "no-data"))


def control_failing(facts: DoctorFacts) -> CheckOutcome:
    """The control service does not take reports of low GPUs."""
    found = known(facts.analyzer)
    if not found.reports_low:
        return skipped(_missing(facts, "control", "no-data" if found.reports_low is None else "not-here"))
    if found.control_error:
        return failed(code=found.control_error)
    return passed() if found.leader else skipped(_missing(facts, "control", "no-data"))  # only the leader reports


def without_history(facts: DoctorFacts) -> CheckOutcome:
    """GPUs should be taken back, and nothing remembers the cases."""
    found = _live(facts)
    return passed() if found.stored else failed(place=known(facts.analyzer).url)


def without_kube(facts: DoctorFacts) -> CheckOutcome:
    """Nothing but metrics shows which pod holds a GPU, so none is taken back."""
    found = _stored(facts)
    return warned(place=known(facts.analyzer).url) if found.kube == "none" else passed()


def held_back(facts: DoctorFacts) -> CheckOutcome:
    """A brake holds every workload back."""
    found = _stored(facts)
    if not known(facts.analyzer).leader:  # the leader's breaker counts
        return skipped(_missing(facts, "reclaim", "no-data"))
    brakes = list(_brakes(found))
    if not brakes:
        return passed()
    return (failed if found.kube == "down" else warned)(brakes, count=len(brakes))


def _brakes(found: ReclaimFacts) -> Iterator[str]:
    if found.stopped_by:
        yield f"stop: by {found.stopped_by}"
    if found.turned is not None:
        yield f"breaker: {found.turned} of {found.of} workloads turned idle at once"
    if found.kube == "down":
        yield "kube_unreachable: the Kubernetes API does not answer"


def _live(facts: DoctorFacts) -> ReclaimFacts:
    """Reclaim, if it should act; Absent otherwise."""
    found = known(facts.analyzer).reclaim
    if found is None:
        return known(_missing(facts, "reclaim", "no-data"))
    return found if found.live else known(_missing(facts, "reclaim", "not-here"))


def _stored(facts: DoctorFacts) -> ReclaimFacts:
    """Reclaim, if it should and can act; Absent otherwise."""
    found = _live(facts)
    return found if found.stored else known(_missing(facts, "history", "not-here"))


def _missing(facts: DoctorFacts, fact: FactName, reason: Reason) -> Missing:
    return Missing(fact=fact, reason=reason, place=known(facts.analyzer).url)
