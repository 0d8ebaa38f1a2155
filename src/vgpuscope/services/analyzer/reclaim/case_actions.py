"""What people do: operators approve, snooze, exempt, resume, restore, stop; owners answer by the links of a notice."""

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from vgpuscope.logic.reclaim import machine
from vgpuscope.logic.reclaim.breaker import Breaker
from vgpuscope.logic.reclaim.tick import CaseChange
from vgpuscope.model.audit import AuditEntry
from vgpuscope.model.errors import CaseUnfit, NotLeader, Unknown
from vgpuscope.model.notices import OWNER, SignedLink
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.model.reclaim import Call, Case
from vgpuscope.services.analyzer.reclaim.calls import restore_call
from vgpuscope.services.analyzer.reclaim.deliveries import Deliveries
from vgpuscope.services.analyzer.reclaim.entries import moved_entry
from vgpuscope.services.analyzer.reclaim.shared import ReclaimState
from vgpuscope.store.reclaim import ReclaimBatch, ReclaimStore


class CaseActions:
    """Changes cases on behalf of people. NotLeader: only the replica that leads can; owners' links work anywhere."""

    def __init__(self, shared: ReclaimState, deliveries: Deliveries) -> None:
        self._shared, self._deliveries = shared, deliveries

    # ── operators ────────────────────────────────────────────────────────────────────────────────────────────────

    async def approve(self, case_id: str, by: str) -> Case:
        return await self._change(case_id, by, lambda case, now: machine.approved(case, now, by))

    async def snooze(self, case_id: str, by: str, seconds: Seconds) -> Case:
        return await self._change(case_id, by, lambda case, now: machine.snoozed(case, now, by, seconds))

    async def exempt(self, case_id: str, by: str) -> Case:
        return await self._change(case_id, by, lambda case, now: machine.exempted(case, now, by))

    async def resume(self, case_id: str, by: str) -> Case:
        """End a snooze or an exemption: the case begins again, and its owner is notified again."""
        return await self._change(case_id, by, lambda case, now: machine.resumed(case, now, by))

    async def _change(self, case_id: str, by: str, change: Callable[[Case, UnixTime], Case | None]) -> Case:
        shared = self._shared
        async with shared.changing:
            await shared.catch_up()
            store, term = shared.leading()
            case, now = shared.case(case_id), shared.now()
            changed = _fit(case, change(case, now))
            entry = replace(moved_entry(CaseChange(case, changed, ""), now, self._shared.policy()), actor=by)
            cancel = [case_id] if changed.state in {"snoozed", "exempt"} else []
            told = shared.notices_of(case, changed, now)
            await store.save(ReclaimBatch(cases=[changed], audit=[entry], cancel=cancel, calls=told), term=term)
            shared.show([changed])
            return changed

    async def stop(self, by: str, *, start: bool = False) -> None:
        """Stop the machine, or start it again; starting also resets the circuit breaker.

        A stop holds at once, before a call that is under way has ended, and through any replica. Only the leader
        starts again.
        """
        shared = self._shared
        if not start:
            shared.stored()
            shared.stopping = by
        async with shared.changing:
            await shared.catch_up()
            store, term = shared.leading() if start else (shared.stored(), None)
            now = shared.now()
            entry = AuditEntry(at=now, actor=by, what="start" if start else "stop")
            await store.stop("" if start else by, entry, term=term)
            shared.stopped_here, shared.stopping = "" if start else by, ""
            if term is not None and shared.memory.breaker.is_open:
                memory = replace(shared.memory, breaker=Breaker())
                reset = AuditEntry(at=now, actor=by, what="breaker_reset")
                await store.save(ReclaimBatch(memory=msgspec.json.encode(memory).decode(), audit=[reset]), term=term)
                shared.memory = memory

    # ── giving back ──────────────────────────────────────────────────────────────────────────────────────────────

    async def restore(self, case_id: str, by: str) -> Case:
        """Put back what was there. CaseUnfit if there is nothing to put back, or somebody changed it since."""
        async with self._shared.changing:
            store, term = self._shared.leading()
            call = await self._restore_call(case_id, by, store, term)
        await self._deliveries.deliver(call, store)
        return await self._restored(case_id, call)

    async def _restore_call(self, case_id: str, by: str, store: ReclaimStore, term: int) -> Call:
        """The call that gives back: the one that waits, or a new one, stored."""
        shared = self._shared
        case = shared.case(case_id)
        if not case.restorable or case.target is None:
            raise CaseUnfit(
                f"nothing can be restored for {case.namespace}/{case.pod}: "
                "nothing was changed for it that can be changed back"
            )
        together = shared.together(case)
        earlier = await self._calls_before(case, together, store)
        before = [one for one in earlier if one.kind == "restore" and one.case_id == case.id]
        waiting = next((one for one in before if one.status == "waiting"), None)
        if waiting is not None:
            return waiting
        now = shared.now()
        call = restore_call(case, case.target, earlier, number=len(before) + 1, now=now)
        asked = replace(case, reason=case.reason if case.state in machine.DECIDED else "restoring", by=by)
        entry = moved_entry(CaseChange(case, asked, ""), now, shared.policy())
        entry = replace(entry, actor=by, what="restore_asked")
        cancel = [one.id for one in together]
        await store.save(ReclaimBatch(cases=[asked], calls=[call], cancel=cancel, audit=[entry]), term=term)
        shared.show([asked])
        return call

    async def _calls_before(self, case: Case, together: Sequence[Case], store: ReclaimStore) -> list[Call]:
        """All calls for the object so far; CaseUnfit if nothing was taken yet."""
        calls = [call for one in together for call in await store.calls_of(one.id)]
        if not any(one.kind == "scale" and one.attempts for one in calls):
            raise CaseUnfit(f"{case.target} was not changed yet", hint="Snooze the case, or exempt it.")
        return calls

    async def _restored(self, case_id: str, call: Call) -> Case:
        """The case after the first attempt. If the API did not answer, the case is restored later."""
        store, _ = self._shared.leading()
        [after] = [one for one in await store.calls_of(case_id) if one.key == call.key]
        if after.status == "failed":
            raise CaseUnfit(after.error)
        return self._shared.cases[case_id]

    # ── owners ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def case_of(self, link: SignedLink) -> tuple[Case | None, UnixTime | None]:
        """The case of an owner's link as it is stored, and when the link was used."""
        store = self._shared.given.store
        if store is None:
            return None, None
        return await store.case(link.case_id), await store.used_at(link)

    async def answer(self, link: SignedLink, *, seconds: Seconds = 0.0) -> Case:
        """What an owner decided by a link; through any replica, once. LinkUsed, CaseUnfit or Unknown otherwise."""
        shared = self._shared
        async with shared.changing:
            store = shared.stored()
            changed: list[Case] = []

            def decide(case: Case | None) -> ReclaimBatch:
                batch = self._answered(link, case, seconds)
                changed[:] = batch.cases
                return batch

            try:
                _, term = shared.leading()
                await store.save(decide(shared.cases.get(link.case_id)), term=term)
            except NotLeader:
                await store.answered(link.case_id, decide)
            shared.show(changed)
            return changed[0]

    def _answered(self, link: SignedLink, case: Case | None, seconds: Seconds) -> ReclaimBatch:
        if case is None:
            raise Unknown("the workload of this link is no longer known")
        now = self._shared.now()
        changed = _fit(
            case,
            {
                "keep": lambda: machine.exempted(case, now, OWNER),
                "snooze": lambda: machine.snoozed(case, now, OWNER, seconds),
                "release": lambda: machine.agreed(case, now, OWNER),
            }[link.action](),
        )
        entry = replace(moved_entry(CaseChange(case, changed, ""), now, self._shared.policy()), actor=OWNER)
        return ReclaimBatch(cases=[changed], audit=[entry], cancel=[case.id], used=link)


def _fit(case: Case, changed: Case | None) -> Case:
    """The changed case; CaseUnfit if its state does not allow the change."""
    if changed is None and case.taken:
        raise CaseUnfit(
            f"the GPUs of {case.namespace}/{case.pod} were already taken",
            hint="Restore the case to put back what was there." if case.restorable else CaseUnfit.hint,
        )
    if changed is None:
        raise CaseUnfit(f"the case of {case.namespace}/{case.pod} cannot be changed: its state is {case.state}")
    return changed
