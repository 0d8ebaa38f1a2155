"""Entries of the audit log: moves of cases, what calls did, and the circuit breaker."""

from collections.abc import Sequence

import msgspec

from vgpuscope.logic.reclaim.breaker import Breaker
from vgpuscope.logic.reclaim.tick import CaseChange
from vgpuscope.model.audit import AuditEntry
from vgpuscope.model.opinion import Stance
from vgpuscope.model.quantity import UnixTime
from vgpuscope.model.reclaim import Call, Case, Policy
from vgpuscope.views.reclaim.held_by import held_by

MACHINE = "vgpuscope"  # the actor of what no person did


def moved_entry(move: CaseChange, now: UnixTime, policy: Policy, *, model: Stance = "off") -> AuditEntry:
    case = move.after
    detail = evidence(case, policy)
    if model != "off":
        detail["model"] = model  # silent: it did not answer, and the numbers decided
    return AuditEntry(
        at=now,
        actor=MACHINE,
        what="moved",
        case_id=case.id,
        namespace=case.namespace,
        pod=case.pod,
        before=move.before.state if move.before else "",
        after=case.state,
        reason=case.reason or "idle",
        detail=msgspec.json.encode(detail).decode(),
    )


def held_entry(move: CaseChange, now: UnixTime, policy: Policy) -> AuditEntry:
    """A brake begins to hold a case that stays in its state, or ceases to."""
    case, before = move.after, move.before.held_by if move.before else ()
    begins = [one for one in case.held_by if one not in before]
    ends = [one for one in before if one not in case.held_by]
    return AuditEntry(
        at=now,
        actor=MACHINE,
        what="held" if begins else "lifted",
        case_id=case.id,
        namespace=case.namespace,
        pod=case.pod,
        before=case.state,
        after=case.state,
        reason=" ".join(begins or ends),
        detail=msgspec.json.encode(evidence(case, policy)).decode(),
    )


def told_of(call: Call) -> dict[str, object]:
    told: dict[str, object] = {"key": call.key, "gpu_id": call.gpu_id, "attempts": call.attempts}
    return told | ({"result": msgspec.Raw(call.result.encode())} if call.result else {})


def evidence(case: Case, policy: Policy) -> dict[str, object]:
    known: dict[str, object] = {"shares": case.shares, "held_by": case.held_by, "dry_run": case.dry_run}
    more = {"brakes": held_by(case, policy), "signals": case.signals, "target": case.target}
    return known | {name: value for name, value in more.items() if value}


def breaker_entries(before: Breaker, after: Breaker, now: UnixTime) -> Sequence[AuditEntry]:
    if after.is_open and not before.is_open:
        reason = f"{after.turned} of {after.of} workloads turned idle at once"
        return [AuditEntry(at=now, actor=MACHINE, what="breaker_opened", reason=reason)]
    if before.is_open and not after.is_open:
        return [AuditEntry(at=now, actor=MACHINE, what="breaker_closed")]
    return ()
