"""Who owns a pod in the end: the way up its controllers, as far as it is known.

A Notebook makes a StatefulSet that makes the pod; people know the Notebook. What controls an object that is not a pod
is asked of the API server, one object at a time. Where that is not known, or may not be read, the way ends.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from vgpuscope.model.allocation import Controller, PodState
from vgpuscope.model.quantity import PodUID

_HIGHEST = 8  # steps; a Knative service under an inference service has six
_FEW = 1000  # objects that may be remembered in vain
_TOPMOST = frozenset({("v1", "Node")})  # what controls static pods has no namespace, and nothing above it


class OwnerStep(NamedTuple):
    """An object of a namespace that controls another one."""

    namespace: str
    controller: Controller


class OwnerIndex:
    """The controllers of pods with devices, and what controls those in turn.

    The pods themselves are read where the cluster's state keeps them.
    """

    def __init__(self, pods: Mapping[PodUID, PodState]) -> None:
        self._pods = pods
        self._above: dict[str, Controller | None] = {}  # by UID; None: nothing, or it is not to be had
        self._asked_for: dict[str, OwnerStep] = {}  # by UID: where ways end because nobody has asked yet

    def set_pod(self, pod: PodState) -> None:
        """A pod was added or has changed."""
        self._ask_for(pod.namespace, pod.controller)

    def drop_pod(self) -> None:
        """A pod is gone from where they are kept."""
        if len(self._above) + len(self._asked_for) > 2 * _HIGHEST * len(self._pods) + _FEW:
            self._forget()

    def learn(self, one: OwnerStep, controller: Controller | None) -> None:
        """What controls this object."""
        self._above[one.controller.uid] = controller
        self._asked_for.pop(one.controller.uid, None)
        self._ask_for(one.namespace, controller)

    def unknown(self) -> list[OwnerStep]:
        """Whose controllers are to be asked for."""
        return list(self._asked_for.values())

    def owners(self) -> Iterator[tuple[str, str]]:
        """Namespace/name of each pod that has an owner, and the topmost one that is known."""
        return ((f"{pod.namespace}/{pod.name}", owner) for pod in self._pods.values() if (owner := self._top(pod)))

    def owner(self, uid: str) -> str:
        """The topmost known owner of the pod; "": it has none, or the pod is not known."""
        pod = self._pods.get(uid)
        return self._top(pod) if pod else ""

    def _ask_for(self, namespace: str, one: Controller | None) -> None:
        if one is not None and one.uid not in self._above and (one.api_version, one.kind) not in _TOPMOST:
            self._asked_for[one.uid] = OwnerStep(namespace, one)

    def _forget(self) -> None:
        """What no pod leads to any more."""
        used = {one.uid for pod in self._pods.values() for one in self._way(pod)}
        self._above = {uid: above for uid, above in self._above.items() if uid in used}
        self._asked_for = {uid: rung for uid, rung in self._asked_for.items() if uid in used}

    def _way(self, pod: PodState) -> Iterator[Controller]:
        one, steps = pod.controller, 0
        while one is not None and steps < _HIGHEST:
            yield one
            one, steps = self._above.get(one.uid), steps + 1

    def _top(self, pod: PodState) -> str:
        last = pod.controller
        for last in self._way(pod):  # noqa: B007 - the last one is what is wanted
            pass
        if last is None or last == pod.controller:
            return pod.owner  # which knows the Deployment of a ReplicaSet by the pod's labels
        return f"{last.kind}/{last.name}"
