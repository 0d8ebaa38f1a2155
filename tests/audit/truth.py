"""What pages must show of a planned fleet, added up by hand from the plan; a figure that cannot be is left out."""

import math
from collections import defaultdict
from collections.abc import Iterator

from tests.audit.hardware import MIB, busy, watts
from tests.audit.past import SAMPLES
from tests.audit.plan import Gpu, Node, Plan, Pod, Use

Figures = dict[str, float]


def fleet(plan: Plan) -> Figures:
    """`now` of /api/v1/overview."""
    listed = list(_listed(plan))
    held = {use.gpu for _, use in tenants(plan)}
    found: Figures = {
        "gpus": len(listed) + _counted(plan),
        "gpus_unlisted": _counted(plan),
        "gpus_divided": sum(bool(gpu.instances) for _, gpu in listed),
        "gpus_held": len(held),
        "gpus_healthy": sum(gpu.healthy for _, gpu in listed),
        "mig_instances": sum(len(gpu.instances) for _, gpu in listed),
        "gpus_or_instances": sum(len(gpu.instances) or 1 for _, gpu in listed),
        "pending_pods": len(plan.waiting),
    }
    drawn = [gpu for node, gpu in listed if node.seen]
    if drawn:
        found["power"] = round(sum(watts(gpu, busy(plan, gpu, 0)) for gpu in drawn), 1)
    registered = [(node, gpu) for node, gpu in listed if node.hami]
    if registered:
        found["memory_capacity"] = sum(gpu.model.memory * node.scaling for node, gpu in registered) * MIB
    if registered and not any(pod.init for pod in plan.current):
        found["memory_allocated"] = sum(use.allocated or 0 for _, use in plan.uses()) * MIB
    # the best signal: SM activity where the driver profiles, which is 90 % of the time in which kernels run
    whole = [
        busy(plan, gpu, 0) / 100 * (0.9 if gpu.model.profiled else 1.0)
        for node, gpu in listed
        if node.seen and not gpu.instances
    ]
    if whole and not any(gpu.instances for node, gpu in listed if node.seen):
        found["use"] = sum(whole) / len(whole)
        found["gpus_measured"] = len(whole)
    if all(_judged(plan, use) for _, use in tenants(plan)):
        found["tenants_idle"] = sum(_verdict(plan, pod, use) == "idle" for pod, use in tenants(plan))
    return found


def counts(plan: Plan) -> Figures:
    """The counts of /api/v1/overview."""
    return {"nodes": len(plan.nodes), "namespaces": len(namespace_names(plan)), "tenants": len(tenants(plan))}


def nodes(plan: Plan) -> dict[str, Figures]:
    """The rows of /api/v1/nodes."""
    found: dict[str, Figures] = {}
    for node in plan.nodes:
        here = [(pod, use) for pod, use in tenants(plan) if use.node == node.name]
        rows: Figures = {
            "gpus": len(node.gpus),
            "gpus_unlisted": len(node.gpus) if node.kind == "counted" else 0,
            "mig_instances": sum(len(gpu.instances) for gpu in node.gpus),
            "tenants": len(here),
            "pods": len({(pod.namespace, pod.name) for pod, _ in here}),
        }
        drawn = [gpu for gpu in node.gpus if node.seen]
        if drawn:
            rows["power"] = round(sum(watts(gpu, busy(plan, gpu, 0)) for gpu in drawn), 1)
        if node.hami:
            rows["memory_capacity"] = sum(gpu.model.memory * node.scaling for gpu in node.gpus) * MIB
            rows["slots_capacity"] = 10 * len(node.gpus)
            if not any(pod.init for pod, _ in here):
                rows["memory_allocated"] = sum(use.allocated or 0 for _, use in here) * MIB
        found[node.name] = rows
    return found


def namespaces(plan: Plan) -> dict[str, Figures]:
    """The rows of /api/v1/namespaces."""
    groups: dict[str, list[tuple[Pod, Use]]] = defaultdict(list)
    for pod, use in tenants(plan):
        groups[_namespace_of(pod)].append((pod, use))
    found = {name: _namespace(plan, groups[name]) for name in namespace_names(plan)}
    for name, rows in found.items():
        rows["pending_pods"] = sum(one.namespace == name for one in plan.waiting)
    return found


def _namespace(plan: Plan, held: list[tuple[Pod, Use]]) -> Figures:
    rows: Figures = {
        "gpus": len({use.gpu for _, use in held}),
        "gpus_or_instances": len({(use.gpu, use.instance) for _, use in held}),
        "pods": len({pod.name for pod, _ in held}),
        "tenants": len(held),
    }
    measured = [use for _, use in held if _seen(plan, use) and use.used]
    if measured:
        rows["memory_used"] = sum(use.used for use in measured) * MIB
    if any(use.allocated for _, use in held) and not any(pod.init for pod, _ in held):
        rows["memory_allocated"] = sum(use.allocated or 0 for _, use in held) * MIB
    if held and all(_judged(plan, use) for _, use in held):
        for verdict in ("idle", "in_use", "unknown"):
            rows[f"by_verdict.{verdict}"] = sum(_verdict(plan, pod, use) == verdict for pod, use in held)
    drawn = [_drawn(plan, use) for _, use in held if _seen(plan, use)]
    if drawn and not math.isnan(sum(drawn)) and sum(drawn):
        rows["power"] = sum(drawn)
    return rows


def _drawn(plan: Plan, use: Use) -> float:
    """A tenant's part of the power of its GPU: all if it is alone there, else by SM time; NaN: it does not follow."""
    node = plan.node(use.node)
    gpu = next(gpu for gpu in node.gpus if gpu.uuid == use.gpu)
    power = watts(gpu, busy(plan, gpu, 0))
    if node.kind == "whole":
        return power
    size = {one.uuid: one.slices for one in gpu.instances}
    together = sum(other.sm * size.get(other.instance or "", 1) for _, other in plan.uses() if other.gpu == use.gpu)
    if not together or (gpu.instances and not gpu.model.profiled):
        return math.nan
    return power * use.sm * size.get(use.instance or "", 1) / together


def analysed_hours(plan: Plan) -> list[int]:
    return [hour for hour in range(-max(1, plan.hours), 1) if hour not in plan.missing]


def gpu_hours(plan: Plan) -> float:
    """All GPU-hours of the history."""
    return len(analysed_hours(plan)) * float(len(list(_listed(plan))))


def held_hours(plan: Plan) -> dict[str, tuple[float, float]]:
    """Held and idle GPU-hours of the namespaces whose pods always had whole GPUs to themselves."""
    found: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for hour in analysed_hours(plan):
        for pod, use in plan.uses(hour):
            if not pod.listed:
                found[pod.namespace][0] = float("nan")
            node = plan.node(use.node)
            alone = node.kind == "whole"
            hours = 1.0 if alone else float("nan")
            if hour == 0 and not _seen(plan, use):
                # the page of an agent that stopped is believed for one scrape more, and nobody knows what was done then
                if node.agent == "stopped" and alone:
                    found[pod.namespace][0] += 1 / SAMPLES
                continue
            found[pod.namespace][0] += hours
            found[pod.namespace][1] += hours if pod.sm(use, hour) == 0 and _started(pod, use) else 0.0
    return {name: (held, idle) for name, (held, idle) in found.items() if not math.isnan(held)}


def tenants(plan: Plan) -> list[tuple[Pod, Use]]:
    """The tenants of now: those that an agent sees, and where none does, those that HAMi's scheduler placed.

    A pod that is in no list of pods is seen by its process only.
    """
    known = ((pod, use) for pod, use in plan.uses() if pod.listed or use.used)
    return [(pod, use) for pod, use in known if plan.node(use.node).seen or plan.node(use.node).hami]


def namespace_names(plan: Plan) -> set[str]:
    now = {_namespace_of(pod) for pod, _ in tenants(plan)}
    return now | set(plan.quotas) | {one.namespace for one in plan.waiting} | _of_the_day(plan)


def _of_the_day(plan: Plan) -> set[str]:
    """The namespaces whose pods held GPUs in the last day, also if they have gone."""
    return {
        pod.namespace
        for hour in analysed_hours(plan)
        if -24 < hour < 0
        for pod, use in plan.uses(hour)
        if plan.node(use.node).agent != "absent"
    }


def _namespace_of(pod: Pod) -> str:
    """ "": a process of a pod that is in no list of pods, so that only its GPU is known."""
    return pod.namespace if pod.listed else ""


def _listed(plan: Plan) -> Iterator[tuple[Node, Gpu]]:
    """The GPUs whose names are known."""
    return ((node, gpu) for node in plan.nodes if node.kind != "counted" for gpu in node.gpus)


def _counted(plan: Plan) -> int:
    return sum(len(node.gpus) for node in plan.nodes if node.kind == "counted")


def _seen(plan: Plan, use: Use) -> bool:
    return plan.node(use.node).seen


def _verdict(plan: Plan, pod: Pod, use: Use) -> str:
    """Unknown where nothing is measured, or where the container has not started CUDA."""
    if not _seen(plan, use) or not _started(pod, use):
        return "unknown"
    return "in_use" if pod.sm(use, 0) else "idle"


def _started(pod: Pod, use: Use) -> bool:
    """Whether the container uses memory of any of its GPUs."""
    return any(other.used for other in pod.uses if other.container == use.container)


def _judged(plan: Plan, use: Use) -> bool:
    """Whether the verdict on a tenant follows from the plan: its use is measured, or nothing is."""
    node = plan.node(use.node)
    gpu = next(gpu for gpu in node.gpus if gpu.uuid == use.gpu)
    return not node.seen or node.kind in {"hami", "whole"} or (node.kind == "mig" and gpu.model.profiled)
