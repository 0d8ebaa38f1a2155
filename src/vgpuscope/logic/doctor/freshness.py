"""Freshness: is what is shown still so?"""

from vgpuscope.catalog import agent as m
from vgpuscope.knowledge.gpu_series import HAMI_CONTAINER_MEMORY, HAMI_CONTAINER_SM
from vgpuscope.logic.doctor.judging import (
    failed_if,
    named,
    nothing,
    passed,
    sample_ages,
    skipped,
    tenant_of,
    warned,
    warned_if,
)
from vgpuscope.model.cluster import Finding
from vgpuscope.model.doctor import CheckOutcome, DoctorFacts, Job, Missing, known
from vgpuscope.model.quantity import Seconds

_LATE: Seconds = 120.0
_MISSED = 4  # scrapes
_SKEW: Seconds = 5.0
_FUTURE: Seconds = 60.0  # a sample's time in Prometheus


def series_old(facts: DoctorFacts) -> CheckOutcome:
    """A target answers, and its GPU series are old: the exporter repeats them with a timestamp, or has lost them."""
    jobs = [job for job in known(facts.prometheus).jobs if job.age is not None]
    if not jobs:
        return skipped(Missing(fact="prometheus", reason="no-data", place=known(facts.prometheus).url))
    old = [f"{job.name}: {job.age:.0f} s" for job in jobs if _is_old(job)]
    return failed_if(old, jobs=len(jobs))


def _is_old(job: Job) -> bool:
    return job.age is not None and job.age > max(_LATE, _MISSED * (job.interval or 0.0))


def completed_pods(facts: DoctorFacts) -> CheckOutcome:
    """Series of pods that have ended."""
    series = known(facts.series)
    ended = _ended(facts)
    names = (m.CONTAINER_STATE.name, *HAMI_CONTAINER_MEMORY, *HAMI_CONTAINER_SM)
    shown = named(series, *names)
    if not shown:
        return nothing(series, *names)
    found = {
        f"{namespace}/{pod}"
        for one in shown
        for namespace, pod, _ in [tenant_of(one.labels)]
        if (namespace, pod) in ended
    }
    return warned_if(found, ended=len(ended))


def _ended(facts: DoctorFacts) -> set[tuple[str, str]]:
    """Pods that have ended, by the API server or by the cluster exporter; Absent if neither is known."""
    ended = None if isinstance(facts.kubernetes, Missing) else facts.kubernetes.ended
    if ended is None:
        known(facts.cluster)
    kube = set(ended or ())
    return kube | {
        (one.namespace, one.pod) for one in _findings(facts) if one.kind == "ghost" and one.reason == "ended"
    }


def ghost_allocation(facts: DoctorFacts) -> CheckOutcome:
    """Devices that are held for pods that do not use them, or cannot."""
    known(facts.cluster)
    ghosts = [one for one in _findings(facts) if one.kind == "ghost"]
    shown = [f"{one.node}: {one.namespace}/{one.pod} ({one.reason})" for one in ghosts]
    return warned(shown, count=len(ghosts)) if ghosts else passed()


def _findings(facts: DoctorFacts) -> list[Finding]:
    if isinstance(facts.cluster, Missing):
        return []
    return [one for node in facts.cluster.nodes for one in node.findings]


def clock_skew(facts: DoctorFacts) -> CheckOutcome:
    """Clocks that differ."""
    found = []
    if not isinstance(facts.agents, Missing):
        found += [
            f"{agent.node or agent.url}: {agent.clock_offset:+.0f} s"
            for agent in facts.agents
            if abs(agent.clock_offset) > _SKEW
        ]
    if not isinstance(facts.analyzer, Missing) and abs(facts.analyzer.clock_offset) > _SKEW:
        found.append(f"{facts.analyzer.url}: {facts.analyzer.clock_offset:+.0f} s")
    ages = sample_ages(facts, facts.agents, facts.analyzer)
    found += [f"{node}: {-age:+.0f} s" for node, age in ages if -age > _FUTURE]
    return failed_if(found)
