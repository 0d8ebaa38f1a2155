"""Which object is changed to free a workload, which pods that ends, and whether it can be put back.

The topmost controller decides. If it is none of these kinds, nothing is changed: its controller would change it back.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from vgpuscope.knowledge.stops import STOPS
from vgpuscope.model.kube_object import Autoscaler, KubeObject, KubePod
from vgpuscope.model.quantity import PodUID
from vgpuscope.model.reclaim import ReclaimTarget, Share

_SCALABLE = {"Deployment", "StatefulSet", "ReplicaSet"}
_WITHOUT_TEMPLATE = {"Notebook", "InferenceService"}  # of which only metadata is read
_KUEUE = "kueue.x-k8s.io/queue-name"  # Kueue resumes what it has admitted
_KSERVE_PODS, _NOTEBOOK_PODS = "serving.kserve.io/inferenceservice", "notebook-name"


class ChosenTarget(NamedTuple):
    """The object to be changed, and how its pods are found; a pod without an owner has no selector."""

    target: ReclaimTarget
    selector: str


def chosen(pod: KubePod, owners: Sequence[KubeObject], *, complete: bool) -> ChosenTarget | None:
    """What is changed; None: nothing can be. `complete`: the last owner has no controller itself."""
    if pod.controller is None:
        return ChosenTarget(ReclaimTarget(api_version="v1", kind="Pod", name=pod.name, uid=pod.uid), "")
    top = _acted_on(owners) if complete and owners else None
    if top is None or (selector := _selector(top)) == "":
        return None
    target = ReclaimTarget(api_version=top.api_version, kind=top.kind, name=top.name, uid=top.uid, version=top.version)
    return ChosenTarget(target, selector)


def _acted_on(owners: Sequence[KubeObject]) -> KubeObject | None:
    """The topmost owner; the Job of a CronJob, which makes the next one in time.

    The owner's own template has to ask for devices. A pod can name any owner, and whoever may create pods could have a
    service stopped that has no GPU. Where only metadata is read, the template is that of the controller which it made.
    """
    top = owners[-1]
    if (top.group, top.kind) == ("batch", "CronJob") and len(owners) > 1:
        top = owners[-2]
    fit = (top.group, top.kind) in STOPS and _KUEUE not in top.labels
    template = owners[0] if top.kind in _WITHOUT_TEMPLATE else top
    return top if fit and template.wants_devices else None


def _selector(top: KubeObject) -> str:
    if top.kind == "InferenceService":
        return f"{_KSERVE_PODS}={top.name}"
    return f"{_NOTEBOOK_PODS}={top.name}" if top.kind == "Notebook" else top.selector


def has_no_template(target: ReclaimTarget) -> bool:
    """Whether only its pods show what it controls: `proven` has to hold for each of them."""
    return target.kind in _WITHOUT_TEMPLATE


def proven(target: ReclaimTarget, owners: Sequence[KubeObject], *, complete: bool) -> bool:
    """Whether the owners of a pod, as the API has them, end at the target, with a controller of its own between them.

    A label is no proof, and neither is a reference of the pod itself: its author writes both.
    """
    return complete and len(owners) > 1 and owners[0].selector != "" and owners[-1].uid == target.uid


def peers(pods: Iterable[KubePod], seen: Iterable[PodUID] = ()) -> tuple[PodUID, ...]:
    """The pods that a change would end, and that have or want a GPU, by their spec or because one was `seen` there."""
    known = frozenset(seen)
    return tuple(one.uid for one in pods if not one.ends and (one.wants_devices or one.uid in known))


def unheld(pod: KubePod, shares: Iterable[Share]) -> Share | None:
    """A share that the API does not show the pod to hold: a page of a stranger may name any pod.

    The pod asks for devices, is on the node of the GPU, and was assigned this GPU if its scheduler names GPUs.
    """
    for share in shares:
        held = pod.wants_devices and (pod.devices is None or share.gpu_id in pod.devices)
        if not held or not _same_host(pod.node, share.hostname):
            return share
    return None


def _same_host(node: str, hostname: str) -> bool:
    """Whether both name one machine: one of them may lack the domain."""
    long, short = sorted((node.lower(), hostname.lower()), key=len, reverse=True)
    return bool(short) and (long == short or (long.startswith(f"{short}.") and not short.isdigit()))


def fought_over(target: ReclaimTarget, autoscalers: Iterable[Autoscaler]) -> bool:
    """Whether KEDA scales the target, and would scale it back. An HPA pauses while its target has 0 replicas."""
    return target.kind in _SCALABLE and any(
        one.keda and (one.kind, one.of) == (target.kind, target.name) for one in autoscalers
    )


def reversible(target: ReclaimTarget) -> bool:
    return target.kind != "Pod"
