"""Rights: may each part read what it needs?"""

from vgpuscope.catalog import cluster as c
from vgpuscope.logic.doctor.judging import NamedObjects, failed, gpu_nodes, named, passed, skipped, warned
from vgpuscope.model.doctor import Absent, CheckOutcome, DoctorFacts, Missing, ObjectNames, known


def api_down(facts: DoctorFacts) -> CheckOutcome:
    """The API server does not answer."""
    found = facts.kubernetes
    if not isinstance(found, Missing):
        return passed(nodes=len(found.nodes or ()))
    return failed([found.detail], place=found.place) if found.reason == "no-answer" else skipped(found)


def rights_missing(facts: DoctorFacts) -> CheckOutcome:
    """Requests of our services that the API server rejects.

    Judged by what each service reports, and by reviews of each service's own account. What this caller may do says
    nothing about them.
    """
    found: list[str] = []
    judged = 0
    if not isinstance(facts.agents, Missing):
        judged += len(facts.agents)
        found += [
            f"{agent.node}: {message}"
            for agent in facts.agents
            for _, code, message in agent.faults
            if code == "KUBE_FORBIDDEN"
        ]
    watches = _watches(facts)
    found += [f"{kind}: watch_up 0" for kind, up in watches.items() if not up]
    kube = facts.kubernetes
    if not isinstance(kube, Missing) and kube.denied is not None:
        found += kube.denied
        judged += kube.judged
    if found:
        return failed(found, count=len(found))
    if not judged and not watches:
        if not isinstance(kube, Missing):
            raise Absent(
                Missing(fact="rights", reason="not-allowed" if kube.denied is None or kube.pods is None else "no-data")
            )
        return skipped(kube)
    return passed(kinds=len(watches), reviewed=judged)


def _watches(facts: DoctorFacts) -> dict[str, bool]:
    """The kinds that the cluster exporter watches, and whether each watch works."""
    if not isinstance(facts.cluster, Missing) and facts.cluster.page is not None:
        samples = [(seen.labels, value) for seen, value in facts.cluster.page if seen.name == c.WATCH_UP.name]
        return {labels.get("kind", "?"): value == 1 for labels, value in samples}
    if not isinstance(facts.series, Missing):
        return {one.labels.get("kind", "?"): one.value == 1 for one in named(facts.series, c.WATCH_UP.name)}
    return {}


def cluster_exporter_missing(facts: DoctorFacts) -> CheckOutcome:
    """Nothing tells why pods wait, and what is allocated."""
    found = facts.cluster
    if not isinstance(found, Missing):
        return passed(nodes=len(found.nodes), pending=sum(pod.outcome == "waiting" for pod in found.pending.pending))
    if found.reason in {"no-answer", "unreadable"}:
        return failed([found.detail], place=found.place)
    if found.reason in {"refused", "wrong-service"}:
        return passed(place=found.place)
    if isinstance(facts.series, Missing) or found.reason == "unreachable":
        return skipped(found)
    return passed() if named(facts.series, c.WATCH_UP.name) else warned([found.place] if found.place else ())


def credentials_refused(facts: DoctorFacts) -> CheckOutcome:
    """Services that reject the credentials of this caller."""
    asked = (facts.agents, facts.cluster, facts.analyzer, facts.extender, facts.plugins, facts.prometheus)
    alone = (*facts.silent, facts.cluster, facts.analyzer, facts.extender, facts.prometheus)
    refused = [f"{one.place}: {one.detail}" for one in alone if isinstance(one, Missing) and one.reason == "refused"]
    if isinstance(facts.kubernetes, Missing) and facts.kubernetes.reason == "refused":
        refused.append(f"{facts.kubernetes.place}: {facts.kubernetes.detail}")
    if refused:
        return failed(refused, count=len(refused))
    answered = [one for one in asked if not isinstance(one, Missing)]
    return passed(count=len(answered)) if answered else skipped(_first_missing(facts))


def _first_missing(facts: DoctorFacts) -> Missing:
    assert isinstance(facts.analyzer, Missing)
    return facts.analyzer


def forged_assignment(facts: DoctorFacts) -> CheckOutcome:
    """Pods whose annotations name GPUs that the scheduler did not give them, with the program that wrote them."""
    forged = [one for node in known(facts.cluster).nodes for one in node.findings if one.kind == "forged-assignment"]
    shown = [f"{one.node}: {one.namespace}/{one.pod} ({one.reason}, {one.writer or '-'})" for one in forged]
    gpus = sum(one.claimed_gpus or 0 for one in forged)
    return warned(shown, count=len(forged), gpus=gpus) if forged else passed()


def not_registered(facts: DoctorFacts) -> CheckOutcome:
    """GPU nodes that do not register their GPUs with HAMi, or whose kubelet offers none."""
    found = NamedObjects()
    listed = not isinstance(facts.kubernetes, Missing) and facts.kubernetes.nodes is not None
    if not isinstance(facts.kubernetes, Missing):
        nodes = facts.kubernetes.nodes or ()
        found |= {node.name: ObjectNames(node=node.name) for node in nodes if node.registered is False and node.ready}
        found |= {
            f"{node.name}: allocatable 0": ObjectNames(node=node.name)
            for node in nodes
            if node.registered and not node.offered and node.ready
        }
    if not isinstance(facts.cluster, Missing):
        found |= {
            f"{one.node}: {one.kind}": ObjectNames(node=one.node)
            for node in facts.cluster.nodes
            for one in node.findings
            if one.kind == "kubelet-zero" and f"{one.node}: allocatable 0" not in found
        }
    elif not listed:
        known(facts.cluster)
    if found:
        return failed(found, count=len(found))
    nodes_found = gpu_nodes(facts)
    if not nodes_found:
        return skipped(Missing(fact="cluster", reason="no-data", detail="nodes"))
    return passed(nodes=len(nodes_found))
