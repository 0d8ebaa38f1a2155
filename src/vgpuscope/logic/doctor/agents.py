"""The agents and the other parts that run in the cluster."""

from vgpuscope.catalog import agent as m
from vgpuscope.logic.doctor.judging import (
    Judge,
    NamedObjects,
    any_agent,
    failed,
    failed_if,
    few,
    named,
    passed,
    sample_ages,
    skipped,
    sources_down,
    warned,
    warned_if,
)
from vgpuscope.model.doctor import Absent, CheckOutcome, ComponentPod, DoctorFacts, Missing, ObjectNames, known
from vgpuscope.model.quantity import Seconds

_OLD: Seconds = 60.0  # an agent samples each second
_OLD_STORED: Seconds = 600.0  # a sample's time in Prometheus; clocks and scrapes have their share in it
_MANY_RESTARTS = 5


def down(facts: DoctorFacts) -> CheckOutcome:
    """An agent does not answer."""
    silent = [one for one in facts.silent if one.fact == "agent" and one.reason in {"no-answer", "unreadable"}]
    if silent:
        places = ", ".join(few(f"{one.place} ({one.name})" if one.name else one.place for one in silent))
        return failed((one.detail for one in silent), count=len(silent), place=places)
    if not isinstance(facts.agents, Missing):
        return passed(count=len(facts.agents))
    if facts.agents.reason in {"refused", "wrong-service"}:
        return passed(place=facts.agents.place)  # something answers: another check's business
    return skipped(facts.agents)


def wrong_service(facts: DoctorFacts) -> CheckOutcome:
    """An address was given, and another service answers there."""
    asked = (facts.agents, facts.cluster, facts.analyzer, facts.extender, facts.plugins)
    missing = [*facts.silent, *(one for one in asked[1:4] if isinstance(one, Missing))]
    wrong = {f"{one.place}: {one.detail}" for one in missing if one.reason == "wrong-service"}
    if wrong:
        return failed(wrong, count=len(wrong))
    if all(isinstance(one, Missing) for one in asked):
        known(facts.analyzer)
    return passed()


def sample_old(facts: DoctorFacts) -> CheckOutcome:
    """An agent answers, and its last sample is old."""
    found = []
    if not isinstance(facts.agents, Missing):
        found += [
            f"{agent.node}: {agent.sample_age:.0f} s"
            for agent in facts.agents
            if agent.sample_age is not None and agent.sample_age > _OLD
        ]
    found += [f"{node}: {age:.0f} s" for node, age in sample_ages(facts, facts.agents) if age > _OLD_STORED]
    return failed_if(found)


def _source_is_read(source: str) -> Judge:
    def judge(facts: DoctorFacts) -> CheckOutcome:
        any_agent(facts)
        return failed_if(sources_down(facts, source))

    return judge


pods_unknown = _source_is_read("pods")  # without pods, an agent's series have no names of pods
claims_unknown = _source_is_read("claims")  # containers have ResourceClaims
proc_unreadable = _source_is_read("proc")  # of the host


def podresources_down(facts: DoctorFacts) -> CheckOutcome:
    """The kubelet's PodResources socket does not answer."""
    found = []
    if isinstance(facts.podresources, Missing) and facts.podresources.code == "PODRESOURCES_DOWN":
        found.append(facts.podresources.detail)
    if isinstance(facts.podresources, Missing):
        if not found:
            any_agent(facts)
        found += sources_down(facts, "podresources")
    return failed_if(found)


def _pods(facts: DoctorFacts) -> tuple[ComponentPod, ...]:
    """The pods of HAMi and vgpuscope; Absent if there are none, or the caller may not list them."""
    pods = known(facts.kubernetes).pods
    if pods is None:
        raise Absent(Missing(fact="kubernetes", reason="not-allowed", code="KUBE_FORBIDDEN", detail="list pods"))
    if not pods:
        raise Absent(Missing(fact="kubernetes", reason="no-data", detail="pods of HAMi or vgpuscope"))
    return pods


def not_running(facts: DoctorFacts) -> CheckOutcome:
    """Pods of HAMi or vgpuscope that do not run."""
    pods = _pods(facts)
    found = NamedObjects(
        (
            f"{pod.namespace}/{pod.name}: {pod.waiting or 'not ready'}",
            ObjectNames(namespace=pod.namespace, pod=pod.name),
        )
        for pod in pods
        if not pod.ready
    )
    return failed_if(found, count=len(pods))


def restarts(facts: DoctorFacts) -> CheckOutcome:
    """Exporters that were killed for their memory, or restart again and again."""
    pods = _pods(facts)
    found = [
        f"{pod.namespace}/{pod.name}: {pod.restarts} × {pod.ended_by or 'restart'}"
        for pod in pods
        if pod.ended_by == "OOMKilled" or pod.restarts >= _MANY_RESTARTS
    ]
    return warned_if(found, count=len(pods))


def versions_differ(facts: DoctorFacts) -> CheckOutcome:
    """Parts of different versions."""
    versions: dict[str, set[str]] = {}
    if not isinstance(facts.series, Missing):
        for one in named(facts.series, m.BUILD_INFO.name):
            versions.setdefault(one.labels.get("version", "?"), set()).add(one.labels.get("instance", "?"))
    if not isinstance(facts.agents, Missing):
        for agent in facts.agents:
            if agent.version:
                versions.setdefault(agent.version, set()).add(agent.url)
    if not isinstance(facts.analyzer, Missing) and facts.analyzer.version:
        versions.setdefault(facts.analyzer.version, set()).add(facts.analyzer.url)
    if not versions:
        return skipped(facts.agents if isinstance(facts.agents, Missing) else _unversioned())
    shown = [f"{version}: {len(places)}" for version, places in versions.items()]
    return warned(shown, versions=len(versions)) if len(versions) > 1 else passed(version=next(iter(versions)))


def _unversioned() -> Missing:
    return Missing(fact="agent", reason="no-data", detail=m.BUILD_INFO.name)
