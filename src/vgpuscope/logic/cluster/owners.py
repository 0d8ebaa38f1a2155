"""Finds the owner of a pod: follows the chain of controllers upwards, as far as it is known.

A Notebook creates a StatefulSet, which creates the pod; users know the Notebook. The controller of an object other
than a pod is read from the API server, one object at a time. The chain ends where it is unknown or not readable.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from vgpuscope.model.allocation import Controller, PodState
from vgpuscope.model.quantity import PodUID

_HIGHEST = 8  # steps; a Knative service under an inference service has six
_FEW = 1000  # objects that may be cached although no pod needs them any more
_TOPMOST = frozenset({("v1", "Node")})  # controls static pods; it has no namespace and no controller


class OwnerStep(NamedTuple):
    """A controller, and the namespace it is in."""

    namespace: str
    controller: Controller


class OwnerIndex:
    """The chain of controllers above every pod with devices.

    The pods themselves are kept by the cluster's state; this index reads them there.
    """

    def __init__(self, pods: Mapping[PodUID, PodState]) -> None:
        self._pods = pods
        # by the whole reference and not by UID: a pod's author can write another object's UID under any name
        self._above: dict[OwnerStep, Controller | None] = {}  # None: no controller, or it could not be read
        self._asked_for: dict[OwnerStep, None] = {}  # objects whose controller was not read yet

    def set_pod(self, pod: PodState) -> None:
        """A pod was added or has changed."""
        self._ask_for(pod.namespace, pod.controller)

    def drop_pod(self) -> None:
        """A pod was removed from the cluster's state."""
        if len(self._above) + len(self._asked_for) > 2 * _HIGHEST * len(self._pods) + _FEW:
            self._forget()

    def learn(self, one: OwnerStep, controller: Controller | None) -> None:
        """Store the controller of this object; None: it has none, or it could not be read."""
        self._above[one] = controller
        self._asked_for.pop(one, None)
        self._ask_for(one.namespace, controller)

    def unknown(self) -> list[OwnerStep]:
        """The objects whose controllers are still to be read."""
        return list(self._asked_for)

    def owners(self) -> Iterator[tuple[str, str]]:
        """Namespace/name of each pod that has an owner, and its topmost known owner."""
        return ((f"{pod.namespace}/{pod.name}", owner) for pod in self._pods.values() if (owner := self._top(pod)))

    def owner(self, uid: str) -> str:
        """The topmost known owner of the pod; "": the pod has no owner or is unknown."""
        pod = self._pods.get(uid)
        return self._top(pod) if pod else ""

    def _ask_for(self, namespace: str, one: Controller | None) -> None:
        if one is None or (one.api_version, one.kind) in _TOPMOST:
            return
        step = OwnerStep(namespace, one)
        if step not in self._above:
            self._asked_for[step] = None

    def _forget(self) -> None:
        """Forget the objects that are in no pod's chain any more."""
        used = {OwnerStep(pod.namespace, one) for pod in self._pods.values() for one in self._way(pod)}
        self._above = {step: above for step, above in self._above.items() if step in used}
        self._asked_for = {step: None for step in self._asked_for if step in used}

    def _way(self, pod: PodState) -> Iterator[Controller]:
        one, steps = pod.controller, 0
        while one is not None and steps < _HIGHEST:
            yield one
            one, steps = self._above.get(OwnerStep(pod.namespace, one)), steps + 1

    def _top(self, pod: PodState) -> str:
        last = pod.controller
        for last in self._way(pod):  # noqa: B007 - only the last one is needed
            pass
        if last is None or last == pod.controller:
            return pod.owner  # knows the Deployment of a ReplicaSet from the pod's labels
        return f"{last.kind}/{last.name}"
