"""Makes the calls that take GPUs back or give them back.

A call is checked again before every attempt: by the lease, by the stop switch, and by a fresh analysis. The attempt is
recorded before it is made.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

import msgspec
from msgspec.structs import replace

from vgpuscope.logic.reclaim import machine, retries
from vgpuscope.logic.reclaim.brakes import Brakes
from vgpuscope.model.audit import AuditEntry
from vgpuscope.model.errors import CallFailed, CallRefused, HistoryDown, NotLeader
from vgpuscope.model.quantity import PodUID, Seconds
from vgpuscope.model.reclaim import Call, Case, PodFacts
from vgpuscope.runtime.log import error_fields, fields
from vgpuscope.services.analyzer.reclaim.calls import CHANGE_WITHIN
from vgpuscope.services.analyzer.reclaim.entries import MACHINE, told_of
from vgpuscope.services.analyzer.reclaim.shared import ReclaimState
from vgpuscope.store.reclaim import ReclaimBatch, ReclaimStore

log = logging.getLogger(__name__)

_LOOK_EVERY: Seconds = 1.0
_MARGIN: Seconds = 1.0  # between the end of an attempt and the end of the lease
_AT_ONCE = 20  # calls that are looked at in one round
_HELD: Seconds = 10.0  # until a call that may not be made now is looked at again
Outcome = Literal["success", "failure"]


class Deliveries:
    """Delivers the calls that are due."""

    def __init__(self, shared: ReclaimState) -> None:
        self._shared, self._given = shared, shared.given

    async def forever(self) -> None:
        while True:
            await self.round()
            await asyncio.sleep(_LOOK_EVERY)

    async def round(self) -> None:
        """Deliver what is due; a replica that does not lead, or has not begun to, shows what is stored."""
        store = self._given.store
        if store is None:
            return
        if self._shared.term is not None and self._given.lead.may_act():
            try:
                await self.due()
            except (HistoryDown, NotLeader) as e:
                log.warning("a call was not made", extra=error_fields(e))
            return
        async with self._shared.changing:
            with suppress(HistoryDown):  # the renewal of the lease logs it
                await self._shared.watch(store)

    async def due(self) -> None:
        """One round of `forever`."""
        store = self._given.store
        assert store is not None
        async with self._shared.changing:
            await self._shared.catch_up()
        for call in await store.due(self._shared.now(), most=_AT_ONCE):
            await self.deliver(call, store)

    async def deliver(self, call: Call, store: ReclaimStore) -> None:
        """Check once more, record the attempt, make it, record how it ended."""
        shared = self._shared
        takes = call.kind != "restore"  # who stops reclaim wants to give back, too
        worth_looking = takes and not self._is_held_anyway(call)
        if worth_looking:
            await self._look_closely(call)
        async with shared.changing:
            if shared.term is None or call.case_id not in shared.cases or not self._given.lead.may_act():
                return
            if takes and not (worth_looking and self._may_deliver(call)):
                await store.settle_all([replace(call, next_at=shared.now() + _HELD)], ReclaimBatch(), term=shared.term)
                return
            now, attempts = shared.now(), call.attempts + 1
            tried = replace(call, attempts=attempts, next_at=now + retries.pause(attempts))
            reached = [machine.reached(one, now) for one in self._settles(call)] if call.kind == "scale" else []
            if await store.attempt(tried, ReclaimBatch(cases=reached), term=shared.term):
                shared.show(reached)
                await self._attempt(tried, store, shared.term)

    # ── may it be made? ──────────────────────────────────────────────────────────────────────────────────────────

    def _is_held_anyway(self, call: Call) -> bool:
        """Whether no closer look at the workload could let this call go out now. An analysis costs more than a call."""
        shared = self._shared
        case, policy = shared.cases.get(call.case_id), shared.policy()
        proven = case is not None and case.confirmations >= policy.confirmations
        return not proven or bool(Brakes(policy, shared.world()).on_all())

    async def _look_closely(self, call: Call) -> None:
        """An analysis that is fresh, and the pod, its owner and the other pods of its owner as they are now."""
        shared = self._shared
        if not shared.fresh:
            await self._given.look_again()
        case = shared.cases.get(call.case_id)
        if case is not None:
            await shared.learn_about([case.workload], fresh=True)
            peers = [shared.cases[uid].workload for uid in self._peers(case) if uid in shared.cases]
            await shared.learn_about(peers, fresh=True)

    def _may_deliver(self, call: Call) -> bool:
        """Whether GPUs may be taken, by what was just read: of this workload, and of all that the call would end."""
        shared = self._shared
        case = shared.cases.get(call.case_id)
        if case is None or not shared.fresh or not self._may_take(case):
            return False
        if call.kind != "scale":
            return True
        pod = self._given.facts(case.workload).pod
        return bool(pod.peers) and all(self._may_end(uid, pod) for uid in pod.peers)

    def _may_end(self, uid: PodUID, pod: PodFacts) -> bool:
        """Whether a pod that a change would end is decided on as well, and no brake holds it."""
        case = self._shared.cases.get(uid)
        if case is None or case.target is None or pod.target is None or case.target.uid != pod.target.uid:
            return False
        return self._may_take(case)

    def _may_take(self, case: Case) -> bool:
        shared = self._shared
        known = self._given.facts(case.workload)
        return not machine.may_deliver(case, shared.found(case), known, shared.policy(), shared.world())

    def _peers(self, case: Case) -> Sequence[PodUID]:
        return [uid for uid in self._given.facts(case.workload).pod.peers if uid != case.uid]

    # ── the attempt ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _attempt(self, call: Call, store: ReclaimStore, term: int) -> None:
        shared = self._shared
        try:
            await self._hold_lease(call)
            done = await self._given.send[call.kind](call, now=shared.now())
        except CallFailed as e:
            settled, cases = self._failed(call, e)
            outcome: Outcome = "failure"
        else:
            settled, cases = replace(call, status="delivered", error="", result=done.result), self._delivered(call)
            outcome = "success"
        entry, told = self._entry(settled, outcome), shared.notices_of_all(cases, shared.now())
        await store.settle(settled, ReclaimBatch(audit=[entry], cases=cases, calls=told), term=term)
        shared.counts.actions[call.kind, outcome] += 1
        shared.show(cases)

    async def _hold_lease(self, call: Call) -> None:
        """CallFailed if this replica could lose the lease before the attempt has ended."""
        length = CHANGE_WITHIN if call.kind in {"scale", "restore"} else self._given.config().control.timeout
        if not await self._given.lead.lasts(length + _MARGIN):
            raise CallFailed(f"the lease of this replica could not be renewed for {length + _MARGIN:g} s")

    def _failed(self, call: Call, error: CallFailed) -> tuple[Call, Sequence[Case]]:
        """The call after a failed attempt, and the cases that it concerns."""
        text = str(error) if error.advice == error.hint else f"{error}. {error.advice}"
        log.warning("a call failed", extra=fields(call=call.key, attempts=call.attempts, error=text))
        case, now = self._shared.cases[call.case_id], self._shared.now()
        refused = isinstance(error, CallRefused)
        if not refused and not retries.exhausted(call.first_at, now):
            return replace(call, error=text), self._tried(call)
        if call.kind == "restore":
            after = machine.not_restored(case, now)
        else:
            after = machine.failed(case, now, "call_refused" if refused else "call_failed")
        return replace(call, status="failed", error=text), [after]

    def _tried(self, call: Call) -> Sequence[Case]:
        """After an attempt to take GPUs: the cases that it settles, with a new time to be free in."""
        shared = self._shared
        return [machine.attempted(one, shared.now(), shared.policy()) for one in self._settles(call)]

    def _settles(self, call: Call) -> Sequence[Case]:
        """The cases that a call to take GPUs settles: a change of the cluster ends all pods of its target."""
        if call.kind == "restore":
            return ()
        case = self._shared.cases[call.case_id]
        return [one for one in self._shared.together(case) or [case] if one.state == "acting"]

    def _delivered(self, call: Call) -> Sequence[Case]:
        """After a restore: every case whose pod was ended by the same change."""
        if call.kind != "restore":
            return [machine.taken(one, self._shared.now()) for one in self._tried(call)]
        case, now = self._shared.cases[call.case_id], self._shared.now()
        together = self._shared.together(case)
        return [after for one in together if (after := machine.restored(one, now, case.by)) is not None]

    def _entry(self, call: Call, outcome: Outcome) -> AuditEntry:
        case = self._shared.cases[call.case_id]
        return AuditEntry(
            at=self._shared.now(),
            actor=MACHINE,
            what="call_delivered" if outcome == "success" else "call_failed",
            case_id=case.id,
            namespace=case.namespace,
            pod=case.pod,
            reason=call.error,
            detail=msgspec.json.encode(told_of(call)).decode(),
        )
