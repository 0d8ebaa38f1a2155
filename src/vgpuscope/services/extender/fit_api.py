"""What if: whether a pod would fit, from the state of this moment. Nothing is created or held."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, structs

from vgpuscope.formats.kube.admission import submitted_pod
from vgpuscope.formats.kube.manifests import MOST_REPLICAS, patched, wanted_pods
from vgpuscope.formats.kube.placement_request import placement_request
from vgpuscope.http.operations import HttpCall, Operation
from vgpuscope.http.parameters import NoQuery
from vgpuscope.http.request_places import Places
from vgpuscope.logic.scheduler.decision_log import DecisionLog
from vgpuscope.logic.scheduler.fit import fit
from vgpuscope.logic.scheduler.state import SchedulerState
from vgpuscope.model.admission import SubmittedPod
from vgpuscope.model.decision_answers import FitAnswer, seen_by
from vgpuscope.model.errors import BodyInvalid, Forbidden, Unknown
from vgpuscope.model.fit import FitReport
from vgpuscope.model.placement import PlacementRequest, Policies
from vgpuscope.model.quantity import PodUID, Seconds
from vgpuscope.services.extender.idle_workloads import IdleNow
from vgpuscope.views.scheduler.decisions import asks_of, constraints_of

FIT = "/api/v1/fit"
_WAITING = 7  # questions that wait for their turn; one is answered at a time
_WITHIN: Seconds = 10.0  # for one answer: others wait for it
_KEPT: Seconds = 10.0  # an answer about a pod is given again for so long
_KEPT_PODS = 64
Free = dict[str, Any]  # a part of a manifest: its shape is Kubernetes' own, and formats/kube reads it


class FitQuery(Struct, frozen=True, kw_only=True):
    """Selects a pod that the extender has decided about."""

    namespace: Annotated[str, Meta(description="The pod's namespace.")]
    pod: Annotated[str, Meta(description="The pod's name.")]


class FitRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A manifest of a Pod, or of a workload with a template of pods: in `pod`, or as the body itself."""

    pod: Free | UnsetType = UNSET
    replicas: Annotated[int, Meta(ge=1, le=MOST_REPLICAS)] | None = None  # null: as the manifest says, or 1
    kind: str | None = None  # null: Pod
    metadata: Free | None = None
    spec: Free | UnsetType = UNSET
    items: Annotated[list[Free], Meta(min_length=1)] | UnsetType = UNSET  # of a list with one manifest


FitBody = Annotated[
    FitRequest, Meta(extra_json_schema={"anyOf": [{"required": [name]} for name in ("pod", "spec", "items")]})
]


class FitApi:
    """Answers from a copy of the state, on a thread, so that no decision waits for the search."""

    def __init__(
        self,
        state: Callable[[], SchedulerState],
        log: DecisionLog,
        *,
        policies: Policies,
        idle: Callable[[], IdleNow],
        completion: Callable[[SubmittedPod], Iterable[Mapping[str, Any]]],
        check: Callable[[], None] = lambda: None,
        clock: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        """`completion` is the webhook's patch of a new pod. `check` raises while the state is not complete."""
        self._state, self._log, self._policies, self._idle, self._check = state, log, policies, idle, check
        self._completion = completion
        self._clock, self._turn = clock, Places(1, waiting=_WAITING)
        self._kept: dict[tuple[str, str], tuple[Seconds, FitAnswer]] = {}

    def operations(self) -> tuple[Operation, ...]:
        shared: dict[str, Any] = {"path": FIT, "answer": FitAnswer, "scoped": True}
        return (
            Operation(
                method="GET",
                summary="whether a pod that the extender knows would fit now, and what would make it fit",
                handler=self._of_pod,
                statuses=(404, 503),
                **shared,
            ),
            Operation(
                method="POST",
                summary="whether a pod would fit, where its replicas would go, and what would make it fit",
                handler=self._of_manifest,
                statuses=(503,),
                **shared,
            ),
        )

    async def _of_pod(self, call: HttpCall[FitQuery, None]) -> FitAnswer:
        namespace, pod = call.asked.namespace, call.asked.pod
        last = self._log.latest(namespace, pod) if call.caller.sees(namespace) else None
        request = next((one.request for one in self._log.each(namespace, pod) if one.request), None) if last else None
        if request is None:
            raise Unknown(f"the extender has decided nothing about {namespace}/{pod} in the last day")
        known = self._kept.get((namespace, pod))
        if known is None or self._clock() >= known[0] + _KEPT:
            answer = await self._answer(request, 1)
            self._kept.pop((namespace, pod), None)
            self._kept[namespace, pod] = known = (self._clock(), answer)
            while len(self._kept) > _KEPT_PODS:
                del self._kept[next(iter(self._kept))]
        return seen_by(known[1], call.caller.sees)

    async def _of_manifest(self, call: HttpCall[NoQuery, FitBody]) -> FitAnswer:
        manifest, replicas = asked(call.body)
        request = placement_request(msgspec.json.encode(self._completed(manifest)))
        meta = manifest.get("metadata") or {}
        namespace = request.namespace if request else str(meta.get("namespace") or "default")
        if not call.caller.sees(namespace):
            raise Forbidden(f"{call.caller.name!r} may not ask about the namespace {namespace}")
        if request is None:
            name = str(meta.get("name") or "")
            return FitAnswer(namespace=namespace, name=name, replicas=replicas, fitting=replicas)
        return seen_by(await self._answer(request, replicas), call.caller.sees)

    def _completed(self, manifest: Free) -> Free:
        """The pod as the webhook would have completed it: the filter sees no other."""
        return patched(manifest, self._completion(submitted_pod(msgspec.json.encode(manifest))))

    async def _answer(self, request: PlacementRequest, replicas: int) -> FitAnswer:
        self._check()
        async with self._turn:
            idle, state = self._idle(), self._state().copy()
            report = await asyncio.to_thread(self._report, state, request, replicas, idle)
        return FitAnswer(
            **structs.asdict(report),
            asks=asks_of(request),
            constraints=constraints_of(request),
            idle_state=idle.state,
            idle_reason=idle.reason,
        )

    def _report(self, state: SchedulerState, request: PlacementRequest, replicas: int, idle: IdleNow) -> FitReport:
        uids, until = idle_uids(state, idle), self._clock() + _WITHIN
        return fit(
            state,
            request,
            replicas=replicas,
            policies=self._policies,
            idle=uids,
            expired=lambda: self._clock() >= until,
        )


def idle_uids(state: SchedulerState, idle: IdleNow) -> tuple[PodUID, ...]:
    """The idle workloads among the pods of the state: by UID, or by name where the metrics have no UID."""
    names = {(one.namespace, one.pod) for one in idle.workloads if not one.pod_uid}
    uids = {one.pod_uid for one in idle.workloads if one.pod_uid}
    if not names:
        return tuple(sorted(uids & state.pods.keys()))
    return tuple(sorted(uid for uid, pod in state.pods.items() if uid in uids or (pod.namespace, pod.name) in names))


def asked(body: FitRequest) -> tuple[Free, int]:
    """The pod and its replicas: a manifest, or {pod, replicas}; BodyInvalid for anything else."""
    wrapped = body.spec is UNSET and body.pod is not UNSET
    given = body.replicas if wrapped else None
    found = list(wanted_pods(body.pod if wrapped else msgspec.to_builtins(body)))
    if len(found) != 1:
        reason = "has no pod" if not found else f"has {len(found)} pods"
        raise BodyInvalid(
            f"the manifest {reason}", hint="Send one Pod, Deployment, StatefulSet, Job, CronJob or DaemonSet."
        )
    return found[0].pod, given if given is not None else found[0].replicas or 1
