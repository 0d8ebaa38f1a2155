"""What the admission webhook does with a pod: completes its request for GPUs, or denies it, as HAMi's webhook does.

    only memory, percentage or cores given    one GPU
    a GPU without a limit on its memory       all cores: it shares the GPU with no other pod
    nvidia.com/priority                       the variable CUDA_TASK_PRIORITY
    a request for GPUs                        the scheduler that this extender serves

A pod is denied if a container of it is privileged, if it names its node, if an amount is impossible, or if it asks for
more than the quota of its namespace has left. Pods of other schedulers are left alone.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from vgpuscope.knowledge.request_limits import LARGEST, MOST, MOST_CORES, MOST_GPUS
from vgpuscope.knowledge.vendors import NVIDIA
from vgpuscope.model.admission import AdmissionResult, QuotaRoom, SubmittedContainer, SubmittedPod

PRIORITY, PRIORITY_VARIABLE = "nvidia.com/priority", "CUDA_TASK_PRIORITY"
_DEFAULT = "default-scheduler"
_WHOLE = 100  # percent


def admit(
    pod: SubmittedPod, *, scheduler: str, overwrite_default: bool = True, rooms: Sequence[QuotaRoom] = ()
) -> AdmissionResult:
    """The answer for one pod. `rooms`: the quotas of its namespace, as far as they are known."""
    if pod.ignored or not _ours(pod.scheduler, scheduler, overwrite_default=overwrite_default):
        return AdmissionResult()
    completed = [_completed(one) for one in pod.containers]
    asking = [one for one in completed if one.amounts.get(NVIDIA.count, 0)]
    each = (text for one in pod.containers for text in (*one.wrong, *_impossible(one)))
    wrong = next(each, "") or _too_many(asking)
    if wrong:
        return AdmissionResult(code="SCHED_REQUEST_INVALID", message=wrong)
    if not asking:
        return AdmissionResult(patch=tuple(_changes(pod, completed)))
    privileged = next((one.name for one in pod.containers if one.privileged), None)
    if privileged is not None:
        return AdmissionResult(code="SCHED_ADMISSION_DENIED", message=f"container {privileged} is privileged")
    if pod.node:
        return AdmissionResult(code="SCHED_ADMISSION_DENIED", message="pod has node assigned")
    if full := _exceeded(asking, rooms):
        return AdmissionResult(
            code="SCHED_QUOTA_EXCEEDED",
            message=f"exceeding resource quota of namespace {pod.namespace}: {full.resource} requested "
            f"{_total(asking, full.resource)}, used {full.used}, limit {full.limit}",
        )
    own = () if pod.scheduler == scheduler else ({"op": "add", "path": "/spec/schedulerName", "value": scheduler},)
    return AdmissionResult(patch=(*_changes(pod, completed), *own))


def completion(pod: SubmittedPod, *, scheduler: str, overwrite_default: bool = True) -> tuple[dict[str, Any], ...]:
    """The patch with the amounts that the pod's request implies; none for a pod that the webhook leaves alone."""
    if pod.ignored or not _ours(pod.scheduler, scheduler, overwrite_default=overwrite_default):
        return ()
    return tuple(_changes(pod, [_completed(one) for one in pod.containers]))


def _ours(named: str, scheduler: str, *, overwrite_default: bool) -> bool:
    return named in {"", scheduler} or (named == _DEFAULT and overwrite_default)


def _impossible(one: SubmittedContainer) -> Iterator[str]:
    for name, amount in one.amounts.items():
        most = MOST.get(name, LARGEST)
        if amount > most:
            yield f"container {one.name}: {name} {amount} is more than {most}"


def _too_many(asking: Sequence[SubmittedContainer]) -> str:
    total = sum(one.amounts.get(NVIDIA.count, 0) for one in asking)
    if total <= MOST_GPUS:
        return ""
    return f"{NVIDIA.count}: the pod requests {total} GPUs, at most {MOST_GPUS} are possible"


def _completed(one: SubmittedContainer) -> SubmittedContainer:
    """The container with the amounts that its request implies; unchanged if an amount of it is invalid."""
    if one.wrong:
        return one
    given, core = dict(one.amounts), str(NVIDIA.core)
    sizes = (NVIDIA.memory, NVIDIA.memory_percentage, core)
    if NVIDIA.count not in given and any(given.get(str(name), 0) for name in sizes):
        given[NVIDIA.count] = 1
    # As HAMi: a percentage decides if there is one, and an amount of 0 is a limit that has been thought of.
    percentage = given.get(str(NVIDIA.memory_percentage))
    whole = percentage == _WHOLE if percentage is not None else str(NVIDIA.memory) not in given
    if given.get(NVIDIA.count, 0) and whole and core not in given:
        given[core] = MOST_CORES
    if core in given:
        given[core] = min(given[core], MOST_CORES)  # as the filter counts them
    return replace(one, amounts=given)


def _changes(pod: SubmittedPod, completed: Iterable[SubmittedContainer]) -> Iterator[dict[str, Any]]:
    for before, after in zip(pod.containers, completed, strict=True):
        added = {name: str(amount) for name, amount in after.amounts.items() if name not in before.amounts}
        if added:
            yield from _resources(before, added)
        if PRIORITY in before.amounts and PRIORITY_VARIABLE not in (before.env or ()):
            variable = {"name": PRIORITY_VARIABLE, "value": str(before.amounts[PRIORITY])}
            if before.env is None:
                yield {"op": "add", "path": f"{before.path}/env", "value": [variable]}
            else:
                yield {"op": "add", "path": f"{before.path}/env/-", "value": variable}


def _resources(one: SubmittedContainer, added: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Extended resources must have equal limits and requests; without requests, the API server copies the limits."""
    if not (one.limits or one.requests):
        yield {"op": "add", "path": f"{one.path}/resources", "value": {"limits": added}}
        return
    for there, kind in ((one.limits, "limits"), (one.requests, "requests")):
        if there:
            for name, value in added.items():
                yield {"op": "add", "path": f"{one.path}/resources/{kind}/{name.replace('/', '~1')}", "value": value}
        elif kind == "limits":
            yield {"op": "add", "path": f"{one.path}/resources/limits", "value": added}


def _exceeded(asking: Sequence[SubmittedContainer], rooms: Sequence[QuotaRoom]) -> QuotaRoom | None:
    return next((room for room in rooms if room.used + _total(asking, room.resource) > room.limit), None)


def _total(asking: Sequence[SubmittedContainer], resource: str) -> int:
    """What all containers ask for together; a percentage of memory counts only once a GPU is chosen."""
    return sum(one.amounts.get(resource, 0) * one.amounts.get(NVIDIA.count, 0) for one in asking)
