"""After each analysis: every case moves on by one tick, in one transaction.

Nothing changes, here or outside, unless it was stored.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence

import msgspec

from vgpuscope.logic.notices.kinds import of_breaker
from vgpuscope.logic.reclaim.tick import CaseChange, TickResult, tick
from vgpuscope.logic.reclaim.unseen import forgotten, marked
from vgpuscope.logic.reclaim.workloads import NOT_IDLE, findings
from vgpuscope.model.analysis import Analysis
from vgpuscope.model.audit import AuditEntry
from vgpuscope.model.errors import HistoryDown, NotLeader
from vgpuscope.model.quantity import UnixTime
from vgpuscope.model.reclaim import DELAYS, OPEN, Brake, Call, Policy, Workload
from vgpuscope.runtime.heap import without_collections
from vgpuscope.runtime.log import fields
from vgpuscope.services.analyzer.reclaim.calls import control_call, scale_call
from vgpuscope.services.analyzer.reclaim.dependencies import NoticeRequest
from vgpuscope.services.analyzer.reclaim.entries import breaker_entries, held_entry, moved_entry
from vgpuscope.services.analyzer.reclaim.shared import LastFindings, ReclaimState
from vgpuscope.store.reclaim import ReclaimBatch, ReclaimStore

log = logging.getLogger(__name__)


class Ticks:
    """Moves the cases on."""

    def __init__(self, shared: ReclaimState) -> None:
        self._shared, self._given = shared, shared.given

    async def follow(self, analysis: Analysis) -> None:
        """One tick of all cases; HistoryDown or NotLeader if it could not be stored."""
        try:
            await self._follow(analysis)
        except (HistoryDown, NotLeader):
            await self._remember_work(analysis)
            raise

    async def _follow(self, analysis: Analysis) -> None:
        shared, store = self._shared, self._given.store
        if store is not None and self._given.lead.may_act():
            await shared.learn_about(self._worth_learning())
        async with shared.changing:
            shared.last_findings = LastFindings({}, analysis.window.end)
            if store is None or not self._given.lead.may_act():
                await self._watch(analysis)
                return
            await self._move_all(store, analysis)

    async def _move_all(self, store: ReclaimStore, analysis: Analysis) -> None:
        shared = self._shared
        term = await self._take_lead(store)
        await shared.catch_up()
        done = await asyncio.to_thread(marked, shared.cases, await self._tick(analysis), shared.now())
        batch = self._batch(done)
        try:
            await store.save(batch, term=term)
        except (HistoryDown, NotLeader):
            shared.term = None  # what is stored is read again before the next tick
            raise
        shared.missed = {}
        self._apply(done, batch)

    async def _remember_work(self, analysis: Analysis) -> None:
        """Work that was seen while the store was down: the next tick that can be stored releases its cases."""
        shared, policy = self._shared, self._shared.policy()
        found = await asyncio.to_thread(findings, analysis, shared.cases.keys(), shared.memory.held, policy)
        shared.missed |= {key: what for key, what in found.items() if what in NOT_IDLE}

    async def _watch(self, analysis: Analysis) -> None:
        """Show the cases without leading: those of the leader, or, without a store, those that would be."""
        shared, store = self._shared, self._given.store
        shared.term = None
        if store is not None:
            shared.take(await store.look())
            return
        done = await self._tick(analysis)
        self._apply(done, ReclaimBatch())

    async def _take_lead(self, store: ReclaimStore) -> int:
        """The term in which this replica leads. What an earlier leader stored is read first."""
        shared = self._shared
        if shared.term is None:
            saved = await store.lead()
            shared.take(saved)
            shared.term = saved.term
        return shared.term

    def _worth_learning(self) -> Sequence[Workload]:
        """Cases that may move on with this analysis, and those that an annotation excludes."""
        almost = self._shared.policy().confirmations - 1
        return [
            case.workload
            for case in self._shared.cases.values()
            if case.unseen_since is None
            and (
                (case.state in OPEN and case.state != "candidate")
                or (case.state == "candidate" and case.confirmations >= almost and _UNREAD.isdisjoint(case.held_by))
                or (case.state == "exempt" and case.reason == "annotation")
            )
        ]

    async def _tick(self, analysis: Analysis) -> TickResult:
        shared = self._shared
        with without_collections():
            return await asyncio.to_thread(
                tick,
                shared.cases,
                analysis,
                shared.memory,
                policy=shared.policy(),
                world=shared.world(),
                facts=self._given.facts,
                missed=shared.missed,
            )

    # ── what is stored ───────────────────────────────────────────────────────────────────────────────────────────

    def _batch(self, done: TickResult) -> ReclaimBatch:
        shared = self._shared
        now, policy = shared.now(), shared.policy()
        entries = [*breaker_entries(shared.memory.breaker, done.memory.breaker, now)]
        entries += (one for move in done.moves if (one := self._entry(move, now, policy)) is not None)
        return ReclaimBatch(
            cases=[move.after for move in done.moves],
            calls=[
                *(call for move in done.moves for call in self._calls(move, now, policy)),
                *self._notices(done, now),
            ],
            cancel=[move.after.id for move in done.moves if move.wish == "cancel"],
            audit=entries,
            memory=msgspec.json.encode(done.memory).decode(),
            forget=list(forgotten(shared.cases, done, now)),
        )

    def _entry(self, move: CaseChange, now: UnixTime, policy: Policy) -> AuditEntry | None:
        """The entry of a move; a decision also records what the language model said, or that it did not answer."""
        if move.wish == "act":
            return moved_entry(move, now, policy, model=self._given.facts(move.after.workload).model)
        if _worth_telling(move):
            return moved_entry(move, now, policy)
        begins = move.before is not None and move.before.recorded != move.after.recorded
        return held_entry(move, now, policy) if begins else None

    def _calls(self, move: CaseChange, now: UnixTime, policy: Policy) -> Sequence[Call]:
        if move.wish != "act" or policy.dry_run:
            return ()
        case = move.after
        if case.target is not None:
            return [scale_call(case, case.target, now=now)]
        language = self._given.config().ai.language
        return [
            control_call(
                case,
                gpu_id,
                now=now,
                policy=policy,
                opinion=self._given.opinion(case.workload, gpu_id),
                language=language,
            )
            for gpu_id in case.gpu_ids
        ]

    def _notices(self, done: TickResult, now: UnixTime) -> Iterator[Call]:
        before, after = self._shared.memory.breaker, done.memory.breaker
        kind = of_breaker(was_open=before.is_open, is_open=after.is_open)
        if kind is not None:
            yield from self._given.notify(NoticeRequest(kind, now, turned=after.turned, of=after.of))
        for move in done.moves:
            yield from self._shared.notices_of(move.before, move.after, now, tell=move.wish == "notify")

    # ── what is shown ────────────────────────────────────────────────────────────────────────────────────────────

    def _apply(self, done: TickResult, batch: ReclaimBatch) -> None:
        shared = self._shared
        shared.memory = done.memory
        shared.last_findings = LastFindings(done.found, shared.last_findings.end)
        shared.show(move.after for move in done.moves)
        for case_id in batch.forget:
            del shared.cases[case_id]
        shared.counts.held_back.update(done.held_back)
        for move in done.moves:
            self._tell(move)

    def _tell(self, move: CaseChange) -> None:
        case, shared = move.after, self._shared
        if move.wish == "act":
            shared.counts.actions[shared.policy().action, "dry_run"] += case.dry_run
            word = "would take GPUs back" if case.dry_run else "takes GPUs back"
            what = {"object": str(case.target)} if case.target else {}
            gpus = ", ".join(case.gpu_ids)
            log.warning(word, extra=fields(namespace=case.namespace, pod=case.pod, gpus=gpus, **what))
        elif _worth_telling(move):
            self._count_untold(move)
            log.info(
                "reclaim case moved",
                extra=fields(pod=f"{case.namespace}/{case.pod}", state=case.state, reason=case.reason or None),
            )

    def _count_untold(self, move: CaseChange) -> None:
        """In a dry run the owner is not notified; the notice that would have been sent is counted."""
        policy, case = self._shared.policy(), move.after
        begun = case.state == "grace" and case.reason == "confirmed" and case.notified_at is None
        if begun and policy.dry_run and policy.notify_first and self._given.channel():
            self._shared.counts.actions["notice", "dry_run"] += 1
            log.info("would notify the owner", extra=fields(namespace=case.namespace, pod=case.pod))


_UNREAD: frozenset[Brake] = frozenset({"holds_memory", "gpu_in_use"})  # of such a candidate, nothing has to be read


def _worth_telling(move: CaseChange) -> bool:
    """Whether it is recorded. What a brake leaves alone may be idle and busy by turns: the first time is enough."""
    before, after = move.before, move.after
    if before is None or move.wish:
        return True
    if (before.state, after.state) == ("candidate", "released"):
        return before.reason != "idle_again" or DELAYS.issuperset(before.held_by)
    if (before.state, after.state) == ("released", "candidate"):
        return DELAYS.issuperset(after.held_by) or before.recorded != after.recorded
    return before.state != after.state
