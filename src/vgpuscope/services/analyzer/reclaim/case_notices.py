"""The notices of cases: which are due, which are still true, and what follows when one was delivered or failed."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from vgpuscope.logic.reclaim import machine, retries
from vgpuscope.logic.reclaim.tick import CaseChange
from vgpuscope.model.audit import AuditEntry
from vgpuscope.model.notices import ANSWERED, Notice
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.model.reclaim import Call, Case
from vgpuscope.services.analyzer.reclaim.dependencies import NoticeRequest
from vgpuscope.services.analyzer.reclaim.entries import MACHINE, moved_entry
from vgpuscope.services.analyzer.reclaim.shared import ReclaimState
from vgpuscope.store.reclaim import ReclaimBatch, ReclaimStore, cancelled_entry

_HELD: Seconds = 10.0  # until a notice that may not be sent now is looked at again


class CaseNotices:
    """Reads and settles notices in the store; sending them is left to the caller."""

    def __init__(self, shared: ReclaimState) -> None:
        self._shared, self._given = shared, shared.given

    async def due(self, channel: str, *, most: int) -> list[Call]:
        """The notices of a channel, or of all, that are due; none, if this replica may not send them."""
        shared, store = self._shared, self._given.store
        if store is None or shared.term is None or shared.stopped_by or not self._given.lead.may_act():
            return []
        return await store.due_notices(shared.now(), channel=channel, most=most)

    async def tellable(self, calls: Sequence[Call]) -> list[tuple[Call, Notice]]:
        """The notices that are still true, by fresh data. What is no longer true is cancelled, the others wait."""
        shared = self._shared
        notices = [(call, _notice(call)) for call in calls]
        if any(one.kind in ANSWERED for _, one in notices) and not shared.fresh:
            await self._given.look_again()
        async with shared.changing:
            await shared.catch_up()
            store, term = shared.leading()
            asked = [one.case.workload for _, one in notices if one.case is not None and one.kind in ANSWERED]
            await shared.learn_about(asked, fresh=True)
            now, told, other = shared.now(), list[tuple[Call, Notice]](), list[Call]()
            for call, notice in notices:
                why = self._untrue(notice)
                if not why:
                    told.append((call, notice))
                elif why == "released":
                    other.append(replace(call, status="cancelled"))
                else:
                    other.append(replace(call, next_at=now + _HELD))
            if other:
                ended = [call for call in other if call.status == "cancelled"]
                entries = [cancelled_entry(call, self._ended(call, now)) for call in ended]
                await store.settle_all(other, ReclaimBatch(audit=entries), term=term)
            return told

    def _untrue(self, notice: Notice) -> str:
        """Why a notice is not sent now; "": it is. Only what happens next can become untrue."""
        shared = self._shared
        if notice.case is None or notice.kind not in ANSWERED:
            return ""
        case = shared.cases.get(notice.case.id)
        if case is None or case.state not in {"notified", "grace"}:
            return "released"
        if not shared.fresh:
            return "unconfirmed"
        known = self._given.facts(case.workload)
        held = machine.may_tell(case, shared.found(case), known, shared.policy(), shared.world())
        return "held" if held else ""

    def _ended(self, call: Call, now: UnixTime) -> AuditEntry:
        """Why a notice is no longer true: what its case is now."""
        told = _notice(call).case
        case = self._shared.cases.get(call.case_id, told)
        namespace, pod, reason = (case.namespace, case.pod, case.reason) if case is not None else ("", "", "")
        return AuditEntry(
            at=now, actor=MACHINE, what="", case_id=call.case_id, namespace=namespace, pod=pod, reason=reason
        )

    def grace_end(self, case: Case) -> UnixTime:
        """When the grace period of a case ends, if its owner is told now."""
        now = self._shared.cases.get(case.id, case)
        if now.state == "grace" and now.next_at is not None:
            return now.next_at
        return self._shared.now() + self._grace(case)

    def _grace(self, case: Case) -> Seconds:
        return machine.grace_of(self._given.facts(case.workload), self._shared.policy())

    async def attempt(self, calls: Sequence[Call]) -> list[Call]:
        """Record an attempt before it is made; the calls that still wait."""
        shared = self._shared
        async with shared.changing:
            await shared.catch_up()
            store, term = shared.leading()
            now = shared.now()
            tried = [
                replace(one, attempts=one.attempts + 1, next_at=now + retries.pause(one.attempts + 1)) for one in calls
            ]
            return await store.attempt_all(tried, term=term)

    async def settle(self, calls: Sequence[Call], *, channel: str, error: str = "") -> None:
        """Record how an attempt ended. A notice that was delivered begins the grace period of its case."""
        shared = self._shared
        async with shared.changing:
            await shared.catch_up()
            store, term = shared.leading()
            now = shared.now()
            settled = [_after_attempt(call, error, now) for call in calls]
            cases = [case for call in settled if (case := await self._case_after(call, store, now)) is not None]
            entries = [_entry(call, channel, now) for call in settled]
            entries += (
                moved_entry(CaseChange(shared.cases[case.id], case, ""), now, self._shared.policy()) for case in cases
            )
            told = shared.notices_of_all(cases, now)
            await store.settle_all(settled, ReclaimBatch(cases=cases, audit=entries, calls=told), term=term)
            shared.show(cases)

    async def _case_after(self, call: Call, store: ReclaimStore, now: UnixTime) -> Case | None:
        """The notice's case, if the notice moved it."""
        case = self._shared.cases.get(call.case_id)
        if case is None or case.state != "notified" or call.status == "waiting":
            return None
        if _notice(call).kind not in ANSWERED:
            return None
        if call.status == "delivered":
            return machine.notified(case, now, self._grace(case))
        others = [one for one in await store.calls_of(case.id) if one.key != call.key and one.kind == "notice"]
        return None if any(one.status == "waiting" for one in others) else machine.failed(case, now, "notice_failed")

    async def reroute(self, calls: Sequence[Call]) -> None:
        """Send notices of channels that are no longer there through those that are."""
        shared = self._shared
        async with shared.changing:
            await shared.catch_up()
            store, term = shared.leading()
            fresh: list[Call] = []
            for call in calls:
                old = _notice(call)
                owner = self._given.facts(old.case.workload).pod.notify if old.case else ""
                fresh += self._given.notify(NoticeRequest(old.kind, old.at, old.case, owner, old.turned, old.of))
            gone = [replace(call, status="cancelled") for call in calls]
            await store.settle_all(gone, ReclaimBatch(calls=fresh), term=term)


def _notice(call: Call) -> Notice:
    return msgspec.json.decode(call.body, type=Notice)


def _after_attempt(call: Call, error: str, now: UnixTime) -> Call:
    if not error:
        return replace(call, status="delivered", error="")
    return replace(call, status="failed" if retries.exhausted(call.first_at, now) else "waiting", error=error)


def _entry(call: Call, channel: str, now: UnixTime) -> AuditEntry:
    notice = _notice(call)
    case = notice.case
    return AuditEntry(
        at=now,
        actor=MACHINE,
        what="notice_delivered" if call.status == "delivered" else "notice_failed",
        case_id=call.case_id,
        namespace=case.namespace if case else "",
        pod=case.pod if case else "",
        reason=call.error,
        detail=msgspec.json.encode(
            {
                "channel": channel,
                "notice": notice.kind,
                "attempts": call.attempts,
                "given_up": call.status == "failed",
            }
        ).decode(),
    )
