"""What reclaim is given from outside: its settings, its store, its lease, what it knows, and what sends its calls."""

import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

from vgpuscope.config import Config
from vgpuscope.config.reclaim import open_hours
from vgpuscope.logic.reclaim.brakes import Facts, WorkloadFacts
from vgpuscope.model.notices import NoticeKind
from vgpuscope.model.opinion import Opinion
from vgpuscope.model.quantity import DeviceUUID, PodUID, Seconds, UnixTime
from vgpuscope.model.reclaim import Call, Case, Policy, Workload
from vgpuscope.store.reclaim import ReclaimStore

KubeState = Literal["none", "ok", "down"]


class CallResult(NamedTuple):
    """What a call changed, as JSON, so that it can be put back."""

    result: str = ""


class CallSender(Protocol):
    """Makes one call; CallFailed if it was not accepted."""

    async def __call__(self, call: Call, *, now: UnixTime) -> CallResult: ...


class NoticeRequest(NamedTuple):
    """Something that people are told, before it is known through which channels."""

    kind: NoticeKind
    at: UnixTime
    case: Case | None = None
    owner: str = ""  # the annotation that names who is told
    turned: int = 0
    of: int = 0


class WorkloadReader(Protocol):
    """Reads what is to be known of some workloads beyond their GPUs. `seen` are all workloads of the last analysis."""

    async def __call__(self, workloads: Sequence[Workload], *, fresh: bool, seen: Collection[PodUID]) -> None: ...


class LeaseCheck(Protocol):
    """What is asked of the lease."""

    def may_act(self, *, lasting: Seconds = 0.0) -> bool: ...

    async def lasts(self, seconds: Seconds) -> bool: ...  # renews it, if it would not


def _nothing_known(_: Workload) -> WorkloadFacts:
    return WorkloadFacts()


def _tell_nobody(_: NoticeRequest) -> Sequence[Call]:
    return ()


class ReclaimDependencies(Struct, frozen=True, kw_only=True):
    """Everything outside that reclaim reads or changes."""

    config: Callable[[], Config]
    store: ReclaimStore | None  # None: nothing is remembered, so nothing is ever done
    lead: LeaseCheck
    send: Mapping[str, CallSender]  # one entry for each kind of call
    look_again: Callable[[], Awaitable[None]]  # runs an analysis, and returns when it has ended
    facts: Facts = _nothing_known  # answers from what `learn` has read
    learn: Sequence[WorkloadReader] = ()  # asked before each tick for cases that are worth it, and before each call
    opinion: Callable[[Workload, DeviceUUID], Opinion | None] = lambda _, __: None  # of a language model, on a share
    kube: Callable[[], KubeState] = lambda: "none"
    asks_prometheus: Callable[[], bool] = lambda: False
    channel: Callable[[], bool] = lambda: False  # whether an owner can be told
    notify: Callable[[NoticeRequest], Sequence[Call]] = _tell_nobody  # makes the calls that tell people
    clock: Callable[[], UnixTime] = time.time


def policy_of(config: Config) -> Policy:
    """The policy that the settings describe. It acts only if `control.enabled` is on and the dry run is off."""
    chosen = config.reclaim
    return Policy(
        action=chosen.action,
        enabled=config.control.enabled,
        dry_run=config.control.dry_run is not False or not config.control.enabled,
        confirmations=chosen.confirmations,
        min_coverage=chosen.min_coverage,
        include_held=chosen.include_held,
        include_preparing=chosen.include_preparing,
        grace=chosen.grace,
        min_pod_age=chosen.min_pod_age,
        approval=chosen.approval,
        notify_first=chosen.notify_first,
        protected_namespaces=frozenset(chosen.protected_namespaces),
        protected_priorities=frozenset(chosen.protected_priorities),
        evidence_jobs=chosen.evidence_jobs,
        max_per_hour=chosen.max_per_hour,
        max_per_namespace=chosen.max_per_namespace,
        max_fleet_share=chosen.max_fleet_share,
        working_hours=tuple(map(open_hours, chosen.working_hours)),
        breaker_share=chosen.breaker.share,
        breaker_least=chosen.breaker.least,
        breaker_calm=chosen.breaker.calm,
    )
