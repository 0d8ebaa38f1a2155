"""What the API says about taking GPUs back."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from vgpuscope.model.console.opinion import OpinionRow
from vgpuscope.model.quantity import Ratio, Seconds, UnixTime
from vgpuscope.model.reclaim import STATES, Action, Brake, Case, Policy, Share, Signal, State
from vgpuscope.views.reclaim.held_by import HeldBy, held_by

Absent: TypeAlias = Literal["store", "kube", "kube_down", "prometheus", "channel"]  # what reclaim has to do without


class CaseRow(Struct, frozen=True, kw_only=True):
    """One workload that looked idle. Times are Unix seconds; `next_at` is when its state changes at the earliest."""

    id: str
    state: State
    namespace: str
    pod: str
    pod_uid: str | None  # null: not known, and then the workload is never acted on
    owner: str | None
    gpu_ids: tuple[str, ...]
    since: UnixTime
    next_at: UnixTime | None
    idle_since: UnixTime | None
    confirmations: int
    held_by: tuple[Brake, ...]
    brakes: tuple[HeldBy, ...] = ()  # the same, each with the setting that decides it
    actionable: bool = False  # the policy takes its GPUs, or would take them, as soon as nothing delays it any more
    reason: str
    by: str | None
    dry_run: bool
    notified_at: UnixTime | None
    acted_at: UnixTime | None
    evidence: tuple[Share, ...]
    opinion: OpinionRow | None = None  # of a language model: the one that counts for this workload
    signals: tuple[Signal, ...]  # the evidence beyond the GPU
    target: str | None  # what was changed, or would have been: Deployment/web
    restorable: bool  # what was there can be put back


class ChangedSetting(Struct, frozen=True, kw_only=True):
    """A setting of the policy that differs from its default."""

    setting: str
    value: str
    default: str


class BreakerState(Struct, frozen=True, kw_only=True):
    """The circuit breaker; open: no action is taken."""

    open: bool
    since: UnixTime | None = None
    turned: int = 0  # how many workloads turned idle when it opened
    of: int = 0


class ReclaimList(Struct, frozen=True, kw_only=True):
    """All cases, and whether anything is done about them."""

    mode: str  # live, dry_run, or off: without a store nothing is remembered
    stopped_by: str | None
    breaker: BreakerState
    states: dict[State, int]
    brakes: dict[Brake, int] = {}  # cases by brake; a case with several brakes counts for each of them
    changed: tuple[ChangedSetting, ...] = ()
    total: int
    cases: tuple[CaseRow, ...]


class PolicyBody(Struct, frozen=True, kw_only=True):
    """The policy in effect, and which brakes cannot apply here."""

    mode: str
    action: Action
    confirmations: int
    min_coverage: Ratio
    grace: Seconds
    min_pod_age: Seconds
    approval: bool
    notify_first: bool
    include_held: bool
    include_preparing: bool
    protected_namespaces: tuple[str, ...]
    protected_priorities: tuple[str, ...]
    max_per_hour: int
    max_per_namespace: int
    max_fleet_share: Ratio
    working_hours: int  # entries; 0: at any time
    stopped_by: str | None
    breaker: BreakerState
    without: tuple[str, ...]  # what cannot apply, in sentences
    without_codes: tuple[Absent, ...] = ()  # the same, for programs
    dry_run: bool = True  # by the settings; without a store a live policy does nothing either
    kube: Literal["none", "ok", "down"] = "none"  # the Kubernetes API: not configured, answers, does not answer


def case_row(case: Case, policy: Policy, opinion: OpinionRow | None = None) -> CaseRow:
    idle = [share.idle_since for share in case.shares if share.verdict == "idle"]
    whole = len(idle) == len(case.shares) and None not in idle
    return CaseRow(
        id=case.id,
        state=case.state,
        namespace=case.namespace,
        pod=case.pod,
        pod_uid=case.uid or None,
        owner=case.owner or None,
        gpu_ids=case.gpu_ids,
        since=case.since,
        next_at=case.next_at,
        idle_since=max((one for one in idle if one is not None), default=None) if whole else None,  # all of its shares
        confirmations=case.confirmations,
        held_by=case.brakes,
        brakes=held_by(case, policy),
        actionable=case.actionable,
        reason=case.reason,
        by=case.by or None,
        dry_run=case.dry_run,
        notified_at=case.notified_at,
        acted_at=case.acted_at,
        evidence=case.shares,
        opinion=opinion,
        signals=case.signals,
        target=str(case.target) if case.target else None,
        restorable=case.restorable,
    )


def counted(cases: Iterable[Case]) -> dict[State, int]:
    """The number of cases in each state; a state without cases is 0."""
    found = Counter(case.state for case in cases)
    return {state: found[state] for state in STATES}


def policy_body(
    policy: Policy,
    *,
    mode: str,
    stopped_by: str,
    breaker: BreakerState,
    without: Mapping[Absent, str],
    kube: Literal["none", "ok", "down"],
) -> PolicyBody:
    return PolicyBody(
        mode=mode,
        action=policy.action,
        confirmations=policy.confirmations,
        min_coverage=policy.min_coverage,
        grace=policy.grace,
        min_pod_age=policy.min_pod_age,
        approval=policy.approval,
        notify_first=policy.notify_first,
        include_held=policy.include_held,
        include_preparing=policy.include_preparing,
        protected_namespaces=tuple(sorted(policy.protected_namespaces)),
        protected_priorities=tuple(sorted(policy.protected_priorities)),
        max_per_hour=policy.max_per_hour,
        max_per_namespace=policy.max_per_namespace,
        max_fleet_share=policy.max_fleet_share,
        working_hours=len(policy.working_hours),
        stopped_by=stopped_by or None,
        breaker=breaker,
        without=tuple(without.values()),
        without_codes=tuple(without),
        dry_run=policy.dry_run,
        kube=kube,
    )
