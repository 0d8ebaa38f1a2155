"""The operations of taking GPUs back: cases, policy, audit log, and what an operator can do."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from vgpuscope.http.operations import HttpCall, Operation
from vgpuscope.http.parameters import NoQuery
from vgpuscope.model.audit import AuditPage
from vgpuscope.model.caller import Caller
from vgpuscope.model.console.opinion import OpinionRow
from vgpuscope.model.errors import Unknown
from vgpuscope.model.quantity import Seconds
from vgpuscope.model.reclaim import Case, State
from vgpuscope.services.analyzer.reclaim.reclaim import Reclaim
from vgpuscope.views.reclaim.api import (
    Absent,
    BreakerState,
    CaseRow,
    ChangedSetting,
    PolicyBody,
    ReclaimList,
    case_row,
    counted,
    policy_body,
)
from vgpuscope.views.reclaim.held_by import counted_brakes

_DAY: Seconds = 86400.0
_WITHOUT: dict[Absent, str] = {
    "store": "analyzer.history is not set: without a store no action is taken.",
    "kube": "kube.enabled is not set: the Kubernetes API does not show which pod holds a GPU, so no action is taken. "
    "Annotations and priority classes are not read.",
    "kube_down": "The Kubernetes API does not answer: no action is taken.",
    "prometheus": "Prometheus is not the source: requests of inference servers and lengths of queues are not read.",
    "channel": "No channel for notices is configured: owners are not notified before an action.",
}


class CasesQuery(Struct, frozen=True, kw_only=True):
    """A page of cases."""

    state: Annotated[State | None, Meta(description="Only cases in this state.")] = None
    namespace: Annotated[str | None, Meta(description="Only cases of this namespace.")] = None
    limit: Annotated[int, Meta(ge=1, le=10_000, description="Most cases to send.")] = 1000
    offset: Annotated[int, Meta(ge=0, le=10**9, description="Cases to skip.")] = 0


class CaseQuery(Struct, frozen=True, kw_only=True):
    """One case."""

    id: Annotated[str, Meta(description="The case: the UID of its pod.")]


class SnoozeQuery(CaseQuery, frozen=True, kw_only=True):
    """One case, and for how long it is snoozed."""

    seconds: Annotated[float, Meta(ge=60, le=30 * _DAY, description="How long the case rests, in seconds.")] = _DAY


class AuditQuery(Struct, frozen=True, kw_only=True):
    """A page of the audit log, newest first."""

    id: Annotated[str | None, Meta(description="Only entries of this case.")] = None
    before: Annotated[
        int, Meta(ge=0, le=10**15, description="Only entries before this number: the next page; 0: the newest.")
    ] = 0
    limit: Annotated[int, Meta(ge=1, le=1000, description="Most entries to send.")] = 100
    namespace: tuple[Annotated[str, Meta(description="Only entries of these namespaces.")], ...] = ()


class ReclaimApi:
    """The operations, as a table."""

    def __init__(
        self,
        reclaim: Callable[[], Reclaim],
        *,
        data: Callable[..., Operation],
        opinion: Callable[[str], OpinionRow | None] = lambda _: None,
    ) -> None:
        """`opinion`: that of a language model on the pod with this UID."""
        self._find, self._data, self._opinion = reclaim, data, opinion

    @property
    def _reclaim(self) -> Reclaim:
        return self._find()

    def operations(self) -> tuple[Operation, ...]:
        seen = partial(self._data, scoped=True)
        return (
            seen("/api/v1/reclaim", "idle workloads, and how far each case is", self._cases, ReclaimList),
            seen("/api/v1/reclaim/policy", "the policy in effect", self._policy, PolicyBody),
            seen("/api/v1/audit", "every step, newest first", self._audit, AuditPage, statuses=(503,)),
            self._change("/api/v1/reclaim/{id}/approve", "agree to the action", self._approve),
            self._change("/api/v1/reclaim/{id}/snooze", "leave the workload alone for a while", self._snooze),
            self._change("/api/v1/reclaim/{id}/exempt", "never take this workload's GPUs", self._exempt),
            self._change("/api/v1/reclaim/{id}/resume", "end a snooze or an exemption", self._resume),
            self._change("/api/v1/reclaim/{id}/restore", "put back what was there", self._restore),
            self._change(
                "/api/v1/reclaim/stop", "stop: no action is taken, and no notice is sent", self._stop, PolicyBody
            ),
            self._change("/api/v1/reclaim/start", "start again, with the breaker reset", self._start, PolicyBody),
        )

    def _change(self, path: str, summary: str, handler: Any, answer: Any = CaseRow) -> Operation:
        scoped = "{id}" in path  # an operator of some namespaces may act on their cases, and not on the machine
        return Operation(
            method="POST",
            path=path,
            summary=summary,
            handler=handler,
            answer=answer,
            role="operate",
            scoped=scoped,
            statuses=(404, 409, 503),
        )

    async def _cases(self, call: HttpCall[CasesQuery, None]) -> ReclaimList:
        asked, reclaim = call.asked, self._reclaim
        seen = [case for case in reclaim.cases.values() if call.caller.sees(case.namespace)]
        chosen = [
            case for case in seen if asked.state in {None, case.state} and asked.namespace in {None, case.namespace}
        ]
        chosen.sort(key=lambda case: (-case.since, case.id))
        page = chosen[asked.offset : asked.offset + asked.limit]
        policy = reclaim.policy()
        return ReclaimList(
            mode=reclaim.mode,
            stopped_by=reclaim.stopped_by or None,
            breaker=self._breaker(),
            states=counted(seen),
            brakes=counted_brakes(seen),
            changed=tuple(self._changed(call.caller)),
            total=len(chosen),
            cases=tuple(case_row(case, policy, self._opinion(case.uid)) for case in page),
        )

    async def _policy(self, call: HttpCall[NoQuery, None]) -> PolicyBody:
        """The policy, which applies to every caller's workloads; of the protected namespaces, those the caller sees."""
        policy = self._policy_now()
        return replace(policy, protected_namespaces=tuple(filter(call.caller.sees, policy.protected_namespaces)))

    async def _audit(self, call: HttpCall[AuditQuery, None]) -> AuditPage:
        asked = call.asked
        names = asked.namespace or call.caller.namespaces
        if names is not None:
            names = tuple(filter(call.caller.sees, names))
        return await self._reclaim.audit(
            case_id=asked.id or "",
            namespaces=None if names is None else frozenset(names),
            before=asked.before or None,
            limit=asked.limit,
        )

    def _changed(self, caller: Caller) -> Iterator[ChangedSetting]:
        """The settings that differ from their defaults; of the protected namespaces, those the caller sees."""
        for setting, value, default in self._reclaim.changed_settings():
            if caller.namespaces is not None and setting == "reclaim.protected_namespaces":
                continue
            yield ChangedSetting(setting=setting, value=value, default=default)

    def _row(self, case: Case) -> CaseRow:
        return case_row(case, self._reclaim.policy())

    async def _approve(self, call: HttpCall[CaseQuery, None]) -> CaseRow:
        self._visible(call.asked.id, call.caller)
        return self._row(await self._reclaim.case_actions.approve(call.asked.id, call.caller.name))

    async def _snooze(self, call: HttpCall[SnoozeQuery, None]) -> CaseRow:
        self._visible(call.asked.id, call.caller)
        return self._row(await self._reclaim.case_actions.snooze(call.asked.id, call.caller.name, call.asked.seconds))

    async def _exempt(self, call: HttpCall[CaseQuery, None]) -> CaseRow:
        self._visible(call.asked.id, call.caller)
        return self._row(await self._reclaim.case_actions.exempt(call.asked.id, call.caller.name))

    async def _resume(self, call: HttpCall[CaseQuery, None]) -> CaseRow:
        self._visible(call.asked.id, call.caller)
        return self._row(await self._reclaim.case_actions.resume(call.asked.id, call.caller.name))

    async def _restore(self, call: HttpCall[CaseQuery, None]) -> CaseRow:
        self._visible(call.asked.id, call.caller)
        return self._row(await self._reclaim.case_actions.restore(call.asked.id, call.caller.name))

    async def _stop(self, call: HttpCall[NoQuery, None]) -> PolicyBody:
        await self._reclaim.case_actions.stop(call.caller.name)
        return self._policy_now()

    async def _start(self, call: HttpCall[NoQuery, None]) -> PolicyBody:
        await self._reclaim.case_actions.stop(call.caller.name, start=True)
        return self._policy_now()

    def _visible(self, case_id: str, caller: Caller) -> Case:
        """The case; one of a hidden namespace does not exist for this caller."""
        case = self._reclaim.cases.get(case_id)
        if case is None or not caller.sees(case.namespace):
            raise Unknown(f"no case {case_id!r}", hint="/api/v1/reclaim lists all cases.")
        return case

    def _policy_now(self) -> PolicyBody:
        reclaim = self._reclaim
        return policy_body(
            reclaim.policy(),
            mode=reclaim.mode,
            stopped_by=reclaim.stopped_by,
            breaker=self._breaker(),
            without={absent: _WITHOUT[absent] for absent in self._without()},
            kube=reclaim.kube,
        )

    def _without(self) -> Iterator[Absent]:
        if self._reclaim.mode == "off":
            yield "store"
        if self._reclaim.kube != "ok":
            yield "kube" if self._reclaim.kube == "none" else "kube_down"
        if not self._reclaim.asks_prometheus:
            yield "prometheus"
        if not self._reclaim.notifies:
            yield "channel"

    def _breaker(self) -> BreakerState:
        breaker = self._reclaim.breaker
        return BreakerState(open=breaker.is_open, since=breaker.open_since, turned=breaker.turned, of=breaker.of)
