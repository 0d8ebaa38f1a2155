"""One case and one new analysis → where the case stands now, and what it wants to do next.

candidate ─► notified ─► grace ─► (awaiting_approval) ─► acting ─► verified ─► restored
    ▲            └───────────┴──────────────┴────────────────┴─► released      failed
 snoozed                                                                  exempt

A dry run ends in `would_act` where a live policy acts. No state after it is ever reached from there: nothing was done.

Three rules hold in every state. Work releases a case at once. Unknown moves nothing forward, and the windows that prove
idleness are counted from zero again. An act needs an idle window now, however long ago the case began.
"""

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from vgpuscope.logic.reclaim.brakes import LATE, Brakes, TickFacts, WorkloadFacts
from vgpuscope.logic.reclaim.workloads import LEFT_ALONE, WITH_IDLE
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.model.reclaim import OPEN, Brake, Case, Finding, Policy, ReclaimTarget, State, Workload

Wish: TypeAlias = Literal["", "notify", "act", "cancel"]
DECIDED: frozenset[State] = frozenset({"exempt", "snoozed"})  # their reason says who decided, so it stays
_LATE: frozenset[Brake] = frozenset(row.brake for row in LATE)


class WorkloadFinding(Struct, frozen=True, kw_only=True, gc=False):
    """What one analysis found of one workload. The window is that of the analysis."""

    found: Finding
    begin: UnixTime
    end: UnixTime
    workload: Workload | None = None  # None: it is gone
    owner_idle: bool = True  # all pods that would be stopped with it were found idle, too
    after_gap: bool = False  # nobody looked for a while before this window


class CaseStep(Struct, frozen=True, gc=False):
    """The case after an analysis, and the step it asks for. All cases together decide whether it is allowed."""

    case: Case
    wish: Wish = ""


class _Now(Struct, frozen=True, gc=False):
    seen: WorkloadFinding
    known: WorkloadFacts
    policy: Policy
    world: TickFacts
    brakes: Brakes


def opened(key: str, seen: WorkloadFinding, world: TickFacts) -> Case:
    """The case of a workload that looks idle for the first time."""
    assert seen.workload is not None
    found = seen.workload
    return Case(
        id=key,
        uid=found.uid,
        namespace=found.namespace,
        pod=found.pod,
        owner=found.owner,
        since=world.now,
        first_idle=seen.begin,
        shares=found.shares,
    )


def step(case: Case, seen: WorkloadFinding, known: WorkloadFacts, brakes: Brakes) -> CaseStep:
    """The case after this analysis. The same object comes back if nothing changed, so nothing needs to be saved."""
    now = _Now(seen, known, brakes.policy, brakes.world, brakes)
    case = _counted(case, seen, now.policy)
    if case.signals != known.signals:
        case = replace(case, signals=known.signals)
    handle = _HANDLERS.get(case.state)
    return CaseStep(case) if handle is None else handle(case, now)


def moved(
    case: Case, state: State, now: UnixTime, *, reason: str, by: str = "", next_at: UnixTime | None = None
) -> Case:
    """The case in another state. Budgets count a decision for an hour after the case has left `acting`."""
    charged = now if case.state == "acting" else case.charged_at
    return replace(case, state=state, since=now, reason=reason, by=by, next_at=next_at, held_by=(), charged_at=charged)


# ── what people and deliveries do to a case ──────────────────────────────────────────────────────────────────────


def notified(case: Case, now: UnixTime, grace: Seconds) -> Case:
    """The notice was delivered: the grace period begins now."""
    if case.state != "notified":
        return case
    return replace(moved(case, "grace", now, reason="notice_delivered", next_at=now + grace), notified_at=now)


def acted(case: Case, workload: Workload, now: UnixTime, policy: Policy, target: ReclaimTarget | None = None) -> Case:
    """The decision is made on the workload as this analysis shows it: calls are sent, or a dry run only says so."""
    case = replace(case, shares=workload.shares, acted_at=now, acted_gpus=len(workload.gpu_ids))
    case = replace(case, dry_run=policy.dry_run, target=target)
    if policy.dry_run:
        return moved(case, "would_act", now, reason="dry_run")
    return moved(case, "acting", now, reason="decided", next_at=now + policy.verify_within)


def attempted(case: Case, now: UnixTime, policy: Policy) -> Case:
    """The case after an attempt of a call: the time in which its GPUs have to be free begins again.

    So a call that fails is tried again for as long as calls are, and the GPUs have their time after the last delivery.
    """
    return _waiting(case, now, policy) if case.state == "acting" else case


def reached(case: Case, now: UnixTime) -> Case:
    """The case before an attempt to change its target. Whether that had an effect is not always known afterwards."""
    return case if case.tried_at is not None else replace(case, tried_at=now)


def taken(case: Case, now: UnixTime) -> Case:
    """The case after a call for it was accepted."""
    return case if case.taken_at is not None else replace(case, taken_at=now)


def approved(case: Case, now: UnixTime, by: str) -> Case | None:
    """The case with an operator's consent; None: it does not wait for one."""
    if case.state != "awaiting_approval":
        return None
    return replace(case, approved_by=by, by=by, since=now, reason="approved")


def snoozed(case: Case, now: UnixTime, by: str, seconds: Seconds) -> Case | None:
    """The snoozed case; None: its state no longer allows that, or its GPUs are taken."""
    if case.taken or (case.state not in OPEN and case.state != "snoozed"):
        return None
    return replace(moved(case, "snoozed", now, reason="snoozed", by=by, next_at=now + seconds), confirmations=0)


def exempted(case: Case, now: UnixTime, by: str) -> Case | None:
    """The exempt case; None: it has already ended, or its GPUs are taken."""
    if case.taken or case.state in {"verified", "restored", "exempt"}:
        return None
    return moved(case, "exempt", now, reason="exempted", by=by)


def resumed(case: Case, now: UnixTime, by: str) -> Case | None:
    """The case from zero, after a snooze or an exemption by a person; None: it has neither.

    An annotation excludes a workload as long as it is there, so removing the annotation is the only way back.
    """
    if case.state != "snoozed" and not (case.state == "exempt" and case.reason != "annotation"):
        return None
    return replace(_again(case, now, reason="resumed"), by=by)


def agreed(case: Case, now: UnixTime, by: str) -> Case | None:
    """The owner gives the GPUs back: the grace period ends now. None: its state does not allow that.

    All brakes hold as before, and the verdict is checked again from fresh data.
    """
    if case.state not in {"notified", "grace"}:
        return None
    told = now if case.notified_at is None else case.notified_at
    return replace(moved(case, "grace", now, reason="owner_agreed", by=by, next_at=now), notified_at=told)


def restored(case: Case, now: UnixTime, by: str) -> Case | None:
    """The restored case; None: nothing was taken."""
    if not case.restorable:
        return None
    return replace(moved(case, "restored", now, reason="restored", by=by), tried_at=None, taken_at=None)


def not_restored(case: Case, now: UnixTime) -> Case:
    """The case after a restore was refused: a call that waited was cancelled for it, so the case begins again."""
    if case.state == "acting":
        return moved(case, "released", now, reason="restore_refused", by=case.by)
    return case if case.state in DECIDED else replace(case, reason="restore_refused")


def failed(case: Case, now: UnixTime, reason: str) -> Case:
    return moved(case, "failed", now, reason=reason) if case.state in {"notified", "acting"} else case


def may_deliver(
    case: Case, found: Finding, known: WorkloadFacts, policy: Policy, world: TickFacts
) -> tuple[Brake | Literal["released"], ...]:
    """The brakes that forbid a call of this case now, by a finding from fresh data; (): it may be sent.

    It is asked before every delivery, retries included. All brakes of a decision hold here, too. Only budgets do not: a
    decision is charged when it is made, and stays charged as long as the case acts.
    """
    if case.state != "acting" or found in _RELEASES or _outdated(case, policy):
        return ("released",)
    return _proof_lacking(case, found, policy) + _brakes_on(case, known, Brakes(policy, world))


def may_tell(
    case: Case, found: Finding, known: WorkloadFacts, policy: Policy, world: TickFacts
) -> tuple[Brake | Literal["released"], ...]:
    """The brakes that forbid the notice to the owner now, by a finding from fresh data; (): it may be sent."""
    if case.state not in {"notified", "grace"} or found != "idle":
        return ("unconfirmed",) if found in _UNKNOWN else ("released",)
    return Brakes(policy, world).early(case, known)


# ── the states ───────────────────────────────────────────────────────────────────────────────────────────────────


def _counted(case: Case, seen: WorkloadFinding, policy: Policy) -> Case:
    """The windows in a row that prove it idle; windows that overlap count once, and counting ends when it is enough."""
    if case.state not in OPEN:
        return case
    if seen.after_gap and case.confirmations:
        case = replace(case, confirmations=0)
    if seen.found in _UNKNOWN or seen.found == "preparing":
        return case if not case.confirmations else replace(case, confirmations=0, counted_until=seen.end)
    if seen.found in LEFT_ALONE:
        return case if not case.counted_until else replace(case, confirmations=0, counted_until=0.0)
    enough = case.confirmations >= policy.confirmations
    if seen.found != "idle" or enough or seen.begin < case.counted_until:
        return case
    assert seen.workload is not None
    if case.counted_until == 0.0 and not _UNIDLE.isdisjoint(case.held_by):
        case = replace(case, first_idle=seen.begin)  # what went before was not idle in the sense of the policy
    return replace(case, confirmations=case.confirmations + 1, counted_until=seen.end, shares=seen.workload.shares)


_UNIDLE: frozenset[Brake] = frozenset({"holds_memory", "gpu_in_use", "low_coverage", "gpu_unknown"})


_UNKNOWN: frozenset[Finding] = frozenset({"unknown", "unproven", "thin"})
_RELEASES: Mapping[Finding, str] = {
    "busy": "works_again",
    "partly": "works_again",
    "held": "holds_memory",
    "preparing": "prepares_data",
    "gone": "ended",
}


def _released(case: Case, now: _Now) -> CaseStep | None:
    """A workload that works or has ended is released from every open state; waiting calls are cancelled."""
    reason = _RELEASES.get(now.seen.found)
    if reason is None:
        return None
    if case.state == "candidate" and now.seen.found in LEFT_ALONE:
        return None  # nobody was told anything yet: the case shows what holds it back
    wish: Wish = "cancel" if case.state in {"notified", "acting"} else ""
    return CaseStep(moved(case, "released", now.world.now, reason=reason), wish)


def _candidate(case: Case, now: _Now) -> CaseStep:
    if (ended := _released(case, now)) is not None:
        return ended
    if now.known.pod.consent == "never":
        return CaseStep(moved(case, "exempt", now.world.now, reason="annotation"))
    if now.seen.found != "idle":
        return CaseStep(_left_alone(case, now))
    if case.confirmations < now.policy.confirmations:
        return CaseStep(held_back(case, now.brakes.foreseen(case, now.known)))
    held = now.brakes.early(case, now.known)
    if held:
        return CaseStep(held_back(case, held))
    return _told(case, now)


def _left_alone(case: Case, now: _Now) -> Case:
    """The candidate with what keeps its windows from being counted, and the evidence for that."""
    brakes = (LEFT_ALONE.get(now.seen.found, "gpu_unknown"), *now.brakes.foreseen(case, now.known))
    if case.held_by == brakes:
        return case
    workload = now.seen.workload
    return held_back(case if workload is None else replace(case, shares=workload.shares), brakes)


def _told(case: Case, now: _Now) -> CaseStep:
    """Notify the owner first, if the policy asks for it and there is a channel."""
    at = now.world.now
    if _tells(now):
        return CaseStep(moved(case, "notified", at, reason="confirmed"), "notify")
    return CaseStep(moved(case, "grace", at, reason="confirmed", next_at=at + _grace(now)))


def _notified(case: Case, now: _Now) -> CaseStep:
    ended = _released(case, now) or _excluded(case, now)
    if ended is not None:
        return ended
    if not _tells(now):  # the last channel was removed
        return CaseStep(
            moved(case, "grace", now.world.now, reason="confirmed", next_at=now.world.now + _grace(now)), "cancel"
        )
    return CaseStep(held_back(case, now.brakes.early(case, now.known)))


def _in_grace(case: Case, now: _Now) -> CaseStep:
    ended = _released(case, now) or _excluded(case, now)
    if ended is not None:
        return ended
    held = _all_brakes(case, now)
    if case.notified_at is None and _tells(now) and not (set(held) - _LATE):
        # There was no channel before, or it was a dry run: the owner is told first.
        return CaseStep(moved(case, "notified", now.world.now, reason="confirmed"), "notify")
    if held or now.world.now < _grace_ends(case, now):
        return CaseStep(held_back(case, held))
    if now.policy.approval:
        return CaseStep(moved(case, "awaiting_approval", now.world.now, reason="grace_ended"))
    return CaseStep(case, "act")  # what held it back is settled with the budgets


def _awaiting(case: Case, now: _Now) -> CaseStep:
    ended = _released(case, now) or _excluded(case, now)
    if ended is not None:
        return ended
    held = _all_brakes(case, now)
    if not held and (case.approved_by or not now.policy.approval):
        return CaseStep(case, "act")
    return CaseStep(held_back(case, held))


def _acting(case: Case, now: _Now) -> CaseStep:
    at = now.world.now
    if now.seen.found == "gone":
        return CaseStep(moved(case, "verified", at, reason="freed"), "cancel")
    ended = _released(case, now) or _excluded(case, now)
    if ended is not None:
        return ended
    if case.target is not None and not now.seen.owner_idle:
        return CaseStep(moved(case, "released", at, reason="owner_in_use"), "cancel")
    if case.taken_at is None and (reason := _outdated(case, now.policy)) is not None:
        again: State = "awaiting_approval" if reason == "approval_needed" else "released"
        return CaseStep(moved(case, again, at, reason=reason), "cancel")
    if case.target is not None and case.taken_at is not None:  # its change was made, so nothing is left to hold back
        held: tuple[Brake, ...] = ()
        unseen = now.seen.found in _UNKNOWN
    else:
        held = _proof_lacking(case, now.seen.found, now.policy) + _brakes_on(case, now.known, now.brakes)
        unseen = False
    if held or unseen:  # no call goes out, or nobody can say whether the GPUs are free: its time does not run
        return CaseStep(held_back(_waiting(case, at, now.policy), held))
    if at >= (case.next_at or at):
        return CaseStep(moved(case, "failed", at, reason="not_freed"), "cancel")
    return CaseStep(held_back(case, ()))


def _would_act(case: Case, now: _Now) -> CaseStep:
    """A dry run frees nothing: if the workload ends, its owner ended it."""
    ended = _released(case, now) or _excluded(case, now)
    if ended is not None:
        return ended
    if not now.policy.dry_run:
        return CaseStep(_again(case, now.world.now, reason="live"))
    return CaseStep(held_back(case, _all_brakes(case, now)))


def _outdated(case: Case, policy: Policy) -> str | None:
    """Why a decision no longer fits the policy; None: it does. Its waiting calls must not be sent."""
    if policy.dry_run or policy.action != ("control" if case.target is None else "scale"):
        return "policy_changed"
    return "approval_needed" if policy.approval and not case.approved_by else None


def _waiting(case: Case, now: UnixTime, policy: Policy) -> Case:
    """The case with a new time in which its GPUs have to be free."""
    return replace(case, next_at=now + policy.verify_within)


def _at_rest(case: Case, now: _Now) -> CaseStep:
    """A snoozed or released case begins again from zero."""
    if case.state == "snoozed" and now.world.now < (case.next_at or 0.0):
        return CaseStep(case)
    if now.seen.found not in WITH_IDLE:
        return CaseStep(case)
    begun = _again(case, now.world.now, reason="idle_again")
    if now.seen.found != "idle":
        return CaseStep(_left_alone(begun, now))
    begun = _counted(replace(begun, first_idle=now.seen.begin), now.seen, now.policy)
    return CaseStep(held_back(begun, now.brakes.foreseen(begun, now.known)))


def _exempt(case: Case, now: _Now) -> CaseStep:
    """An annotation excludes a workload as long as it is there; a person's decision stays."""
    pod = now.known.pod
    lifted = case.reason == "annotation" and pod.read and pod.consent != "never" and now.world.kube == "ok"
    return CaseStep(_again(case, now.world.now, reason="annotation_gone") if lifted else case)


def _excluded(case: Case, now: _Now) -> CaseStep | None:
    if now.known.pod.consent != "never":
        return None
    wish: Wish = "cancel" if case.state in {"notified", "acting"} else ""
    return CaseStep(moved(case, "exempt", now.world.now, reason="annotation"), wish)


def _again(case: Case, now: UnixTime, *, reason: str) -> Case:
    """A candidate from zero; that it was acted on before is not forgotten."""
    case = moved(case, "candidate", now, reason=reason)
    return replace(case, confirmations=0, counted_until=0.0, notified_at=None, approved_by="", dry_run=False)


def _all_brakes(case: Case, now: _Now) -> tuple[Brake, ...]:
    others: tuple[Brake, ...] = ("owner_in_use",) if now.policy.action == "scale" and not now.seen.owner_idle else ()
    return _proof_lacking(case, now.seen.found, now.policy) + _brakes_on(case, now.known, now.brakes) + others


def _proof_lacking(case: Case, found: Finding, policy: Policy) -> tuple[Brake, ...]:
    """An act needs enough idle windows in a row, the present one among them."""
    if found == "idle":
        return () if case.confirmations >= policy.confirmations else ("unconfirmed",)
    return ("unconfirmed", LEFT_ALONE.get(found, "gpu_unknown"))


def _brakes_on(case: Case, known: WorkloadFacts, brakes: Brakes) -> tuple[Brake, ...]:
    return brakes.early(case, known) + brakes.late(case, known)


def held_back(case: Case, brakes: tuple[Brake, ...]) -> Case:
    """The case with these brakes; the same object if nothing changed.

    `recorded` changes when a brake holds the case for the first time, and when a standing one begins or ceases to. A
    workload that is idle and busy by turns would fill the audit log otherwise.
    """
    if case.held_by == brakes:
        return case
    kept = [one for one in case.recorded if one in brakes or one not in _STANDING]
    return replace(case, held_by=brakes, recorded=(*kept, *(one for one in brakes if one not in kept)))


_STANDING: frozenset[Brake] = frozenset(  # by a setting, an annotation, or the kind of workload
    {
        "no_uid",
        "no_history",
        "protected_namespace",
        "protected_priority",
        "annotation_never",
        "annotation_notify",
        "model_veto",
        "notify_only",
        "no_action",
        "preparing",
        "holds_memory",
    }
)


def _tells(now: _Now) -> bool:
    """Whether the owner is notified first; not in a dry run, because nothing will be taken."""
    return now.policy.notify_first and now.world.channel and not now.policy.dry_run


def _grace_ends(case: Case, now: _Now) -> UnixTime:
    """A longer grace period that is set after the notice applies. An owner who gives the GPUs back has none."""
    if case.reason == "owner_agreed":
        return case.next_at or 0.0
    return max(case.next_at or 0.0, case.since + (now.known.pod.idle_grace or 0.0))


def _grace(now: _Now) -> Seconds:
    return grace_of(now.known, now.policy)


def grace_of(known: WorkloadFacts, policy: Policy) -> Seconds:
    """The grace period: the owner's own, or that of the policy."""
    own = known.pod.idle_grace
    return policy.grace if own is None else own


_HANDLERS: Mapping[State, Callable[[Case, _Now], CaseStep]] = {
    "candidate": _candidate,
    "notified": _notified,
    "grace": _in_grace,
    "awaiting_approval": _awaiting,
    "acting": _acting,
    "would_act": _would_act,
    "snoozed": _at_rest,
    "released": _at_rest,
    "exempt": _exempt,
}
