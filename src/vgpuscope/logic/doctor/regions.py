"""HAMi's regions: are they there, can they be read, and what do they say?"""

from vgpuscope.catalog import agent as m
from vgpuscope.knowledge.gpu_series import (
    HAMI_ALLOCATION,
    HAMI_CONTAINER_LIMIT,
    HAMI_CONTAINER_MEMORY,
    HAMI_CONTAINER_SM,
    HAMI_WHOLE,
)
from vgpuscope.logic.doctor.judging import (
    NamedObjects,
    any_agent,
    failed,
    failed_if,
    gpu_of,
    named,
    nothing,
    passed,
    tenant_of,
    warned,
    warned_if,
    with_code,
)
from vgpuscope.model.doctor import CheckOutcome, DoctorFacts, Missing, ObjectNames, SeriesFacts, SeriesValue, known

_OVER = 1.01  # rounding is not a finding
_WHOLE = 100.0


def unreadable(facts: DoctorFacts) -> CheckOutcome:
    """The directory of regions exists, and cannot be listed."""
    return with_code(facts, facts.regions, "REGIONS_UNREADABLE")


def not_mounted(facts: DoctorFacts) -> CheckOutcome:
    """An agent sees no directory of regions on a node whose GPUs HAMi shares."""
    agents = known(facts.agents)
    shared = _shared_nodes(facts)
    found = [
        f"{agent.node}: {message}"
        for agent in agents
        for _, code, message in agent.faults
        if code == "REGIONS_ABSENT" and agent.node in shared
    ]
    return failed_if(found, nodes=len(shared))


def _shared_nodes(facts: DoctorFacts) -> set[str]:
    """Nodes on which HAMi gives parts of GPUs to containers."""
    if isinstance(facts.cluster, Missing):
        kube = facts.kubernetes
        return set() if isinstance(kube, Missing) else {node.name for node in kube.nodes or () if node.registered}
    return {node.name for node in facts.cluster.nodes if node.devices}


def layout_unknown(facts: DoctorFacts) -> CheckOutcome:
    """Region files of no known layout."""
    found: list[str] = []
    if not isinstance(facts.regions, Missing):
        found += facts.regions.refused
    if not isinstance(facts.series, Missing):
        found += [
            f"{one.labels.get('node', '?')}: {one.value:g} × {one.labels.get('reason', '?')}"
            for one in named(facts.series, m.REGIONS_REFUSED.name)
            if one.value > 0
        ]
    if found:
        return failed(found, count=len(found))
    if isinstance(facts.regions, Missing):
        any_agent(facts)
    return passed()


def not_made(facts: DoctorFacts) -> CheckOutcome:
    """Containers that hold a GPU and have not started CUDA: the region file is made by the first call."""
    found = NamedObjects()
    if not isinstance(facts.regions, Missing):
        found |= dict.fromkeys(facts.regions.without_file, ObjectNames())
    if not isinstance(facts.series, Missing):
        states = named(facts.series, m.CONTAINER_STATE.name)
        found |= {
            _name(one): _names(one) for one in states if one.value == 1 and one.labels.get("state") == "not-started"
        }
        if not states:
            if isinstance(facts.regions, Missing) and not named(facts.series, *HAMI_ALLOCATION):
                return nothing(facts.series, m.CONTAINER_STATE.name)
            found |= {
                pod: ObjectNames(namespace=pod.partition("/")[0], pod=pod.partition("/")[2])
                for pod, whole in _unseen(facts.series).items()
                if not whole
            }
    elif isinstance(facts.regions, Missing):
        known(facts.series)
    return warned_if(found)


def whole_gpu_unseen(facts: DoctorFacts) -> CheckOutcome:
    """Pods with whole GPUs, which HAMi's monitor does not show, and no agent that would."""
    series = known(facts.series)
    if named(series, m.CONTAINER_STATE.name):
        return passed()  # an agent shows them
    if not named(series, *HAMI_ALLOCATION):
        return nothing(series, *HAMI_ALLOCATION)
    found = [pod for pod, whole in _unseen(series).items() if whole]
    return warned_if(found)


def _unseen(series: SeriesFacts) -> dict[str, bool]:
    """Pods that HAMi's scheduler gave GPUs, and its monitor does not show; whether they have whole GPUs.

    Without any container of the monitor, the monitor itself is missing: another check's business.
    """
    shown = {tenant_of(one.labels)[:2] for one in named(series, *HAMI_CONTAINER_MEMORY, *HAMI_CONTAINER_SM)}
    if not shown:
        return {}
    cores = {(*tenant_of(one.labels)[:2], gpu_of(one.labels)): one.value for one in named(series, *HAMI_WHOLE)}
    unseen: dict[str, bool] = {}
    for one in named(series, *HAMI_ALLOCATION):
        namespace, pod, _ = tenant_of(one.labels)
        if pod and (namespace, pod) not in shown:
            whole = cores.get((namespace, pod, gpu_of(one.labels)), 0.0) >= _WHOLE
            unseen[f"{namespace}/{pod}"] = unseen.get(f"{namespace}/{pod}", False) or whole
    return unseen


def over_limit(facts: DoctorFacts) -> CheckOutcome:
    """Containers that use more memory than their limit."""
    series = known(facts.series)
    limits = {
        _vgpu(one): one.value for one in named(series, m.VGPU_MEMORY_LIMIT.name, *HAMI_CONTAINER_LIMIT) if one.value > 0
    }
    used = named(series, m.VGPU_MEMORY_USED.name, *HAMI_CONTAINER_MEMORY)
    judged = [(one, limits[_vgpu(one)]) for one in used if _vgpu(one) in limits]
    if not judged:
        return nothing(series, m.VGPU_MEMORY_LIMIT.name)
    over = NamedObjects(
        (f"{_name(one)}: {one.value / 2**20:.0f} MiB > {limit / 2**20:.0f} MiB", _names(one))
        for one, limit in judged
        if one.value > limit * _OVER
    )
    return warned_if(over, count=len(judged))


def orphaned(facts: DoctorFacts) -> CheckOutcome:
    """Directories of pods that are gone."""
    series = known(facts.series)
    shown = named(series, m.REGIONS_ORPHANED.name)
    if not shown:
        return nothing(series, m.REGIONS_ORPHANED.name)
    found = [f"{one.labels.get('node', '?')}: {one.value:g}" for one in shown if one.value > 0]
    return warned(found, count=sum(one.value for one in shown)) if found else passed(nodes=len(shown))


def _vgpu(one: SeriesValue) -> tuple[str, ...]:
    """A container's part of a GPU. HAMi's names have no UID, and old ones no UUID everywhere."""
    index = one.labels.get("vdevice_index") or one.labels.get("vdeviceid", "")
    return (*tenant_of(one.labels), gpu_of(one.labels), index)


def _names(one: SeriesValue) -> ObjectNames:
    namespace, pod, _ = tenant_of(one.labels)
    return ObjectNames(node=one.labels.get("node", ""), namespace=namespace, pod=pod)


def _name(one: SeriesValue) -> str:
    return "/".join(part for part in tenant_of(one.labels) if part)
