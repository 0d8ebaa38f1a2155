"""The driver: is it there, does it answer, and can its numbers be used?"""

from vgpuscope.catalog import agent as m
from vgpuscope.knowledge.gpu_series import (
    DCGM_PROFILING,
    DCGM_UTILIZATION,
    HAMI_CONTAINER_SM,
    HAMI_HOST_SM,
)
from vgpuscope.logic.doctor.judging import (
    NamedObjects,
    any_agent,
    failed,
    failed_if,
    gpu_nodes,
    gpu_of,
    grouped,
    named,
    nothing,
    ours,
    passed,
    target_of,
    warned,
    with_code,
)
from vgpuscope.model.doctor import CheckOutcome, DoctorFacts, Missing, ObjectNames, known

_BUSY = 0.5
_BUSY_PERCENT = 50.0


def library_missing(facts: DoctorFacts) -> CheckOutcome:
    """The driver's library cannot be loaded where there are GPUs."""
    found = []
    if not isinstance(facts.driver, Missing):
        return passed(gpus=facts.driver.gpus, version=facts.driver.version or "?")
    if facts.driver.code == "DRIVER_ABSENT":
        found.append(facts.driver.detail)
    elif facts.driver.code:
        return passed()  # it was loaded, and failed later: another check's business
    if not isinstance(facts.agents, Missing):
        with_gpus = gpu_nodes(facts)
        found += [
            f"{agent.node}: {message}"
            for agent in facts.agents
            for source, code, message in agent.faults
            if code == "DRIVER_ABSENT" and agent.node in with_gpus
        ]
    if found:
        return failed(found, count=len(found))
    any_agent(facts)
    return passed()


def driver_failed(facts: DoctorFacts) -> CheckOutcome:
    """NVML answers with errors."""
    return with_code(facts, facts.driver, "DRIVER_FAILED")


def driver_hung(facts: DoctorFacts) -> CheckOutcome:
    """A call to the driver does not return."""
    return with_code(facts, facts.driver, "DRIVER_HUNG")


def no_gpu(facts: DoctorFacts) -> CheckOutcome:
    """The driver answers, but lists no GPU."""
    driver = known(facts.driver)
    return passed(gpus=driver.gpus) if driver.gpus else failed(version=driver.version or "?")


def unhealthy(facts: DoctorFacts) -> CheckOutcome:
    """GPUs that the driver reports as lost, or in need of a reset."""
    found = NamedObjects()
    if not isinstance(facts.driver, Missing):
        found |= dict.fromkeys(facts.driver.unhealthy, ObjectNames())
    elif isinstance(facts.series, Missing):
        known(facts.driver)
    if not isinstance(facts.series, Missing):
        shown = named(facts.series, m.GPU_HEALTH.name)
        if not shown and isinstance(facts.driver, Missing):
            return nothing(facts.series, m.GPU_HEALTH.name)
        found |= {
            f"{gpu_of(one.labels)} ({one.labels.get('node', '?')}): {one.labels.get('health', '?')}": ObjectNames(
                node=one.labels.get("node", ""), gpu=gpu_of(one.labels)
            )
            for one in shown
            if one.value == 1 and one.labels.get("health") != "ok"
        }
    return failed_if(found)


def host_pid_missing(facts: DoctorFacts) -> CheckOutcome:
    """The driver lists processes, and none of them is in /proc."""
    if not isinstance(facts.processes, Missing):
        seen, listed = facts.processes.seen, facts.processes.listed
        if listed and not seen:
            return failed([facts.processes.root], listed=listed)
        if listed:
            return passed(seen=seen, listed=listed)
    series = known(facts.series)
    processes = [one for one in named(series, m.GPU_PROCESSES.name) if one.value > 0]
    held = grouped(named(series, m.CONTAINER_PROCESSES.name), lambda one: one.labels.get("node", ""))
    if not processes or not held:
        return nothing(series, m.GPU_PROCESSES.name)
    by_node = grouped(processes, lambda one: one.labels.get("node", ""))
    blind = [
        f"{node}: {sum(one.value for one in by_node[node]):g}"
        for node, found in held.items()
        if node in by_node
        and all(one.value == 0 for one in found)
        and {gpu_of(one.labels) for one in by_node[node]} <= {gpu_of(one.labels) for one in found}
    ]
    return failed(blind, listed=sum(one.value for one in processes)) if blind else passed(nodes=len(by_node))


def mig_without_profiling(facts: DoctorFacts) -> CheckOutcome:
    """MIG instances for which no profiling metric exists: NVML's utilisation is not defined for them."""
    series = known(facts.series)
    theirs = [one for one in series.now if one.labels.get("GPU_I_ID") and one.name.startswith("DCGM_")]
    ours_ = {one.labels.get("mig_uuid", ""): _own_instance(one.labels) for one in named(series, m.MIG_INFO.name)}
    if not theirs and not ours_:
        return nothing(series, "GPU_I_ID", m.MIG_INFO.name)
    profiled = {_instance(one.labels) for one in named(series, *DCGM_PROFILING)}
    measured = named(series, m.MIG_ENGINE_ACTIVE.name, m.MIG_SM_ACTIVE.name)
    profiled |= {ours_[mig] for one in measured if (mig := one.labels.get("mig_uuid", "")) in ours_}
    blind = {*(_instance(one.labels) for one in theirs), *ours_.values()} - profiled
    shown = [f"{uuid} GI {instance}" for uuid, instance in blind]
    return warned(shown, count=len(blind)) if blind else passed(count=len(profiled))


def _instance(labels: dict[str, str]) -> tuple[str, str]:
    return gpu_of(labels), labels.get("GPU_I_ID", "")


def _own_instance(labels: dict[str, str]) -> tuple[str, str]:
    return gpu_of(labels), labels.get("gpu_instance", "")


def container_sm_zero(facts: DoctorFacts) -> CheckOutcome:
    """A GPU is busy, and HAMi's monitor shows 0 for every container on it."""
    series = known(facts.series)
    mine = ours(series)
    theirs = [one for one in named(series, *HAMI_CONTAINER_SM) if target_of(one.labels) not in mine]
    if not theirs:
        return nothing(series, *HAMI_CONTAINER_SM)
    busy = {gpu_of(one.labels) for one in named(series, *HAMI_HOST_SM, DCGM_UTILIZATION) if one.value >= _BUSY_PERCENT}
    busy |= {gpu_of(one.labels) for one in named(series, m.GPU_UTILIZATION.name) if one.value >= _BUSY}
    by_gpu = grouped(theirs, lambda one: gpu_of(one.labels))
    zero = [gpu for gpu, found in by_gpu.items() if gpu in busy and all(one.value == 0 for one in found)]
    return failed_if(zero, count=len(by_gpu))
