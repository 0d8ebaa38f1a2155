"""Takes GPUs of idle workloads back: one tick of the machine after each analysis, and the calls that follow from it.

analysis ─► tick ─► one transaction: cases, calls, audit ─► deliveries, each checked again ─► settled in the store

Nothing happens outside before it is stored. A call is checked again before every attempt: by the lease, by the stop
switch, and by a finding from an analysis that is not older than _FRESH.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from vgpuscope.config import Config
from vgpuscope.config.reclaim import open_hours
from vgpuscope.logic.reclaim import machine, retries
from vgpuscope.logic.reclaim.brakes import Known, World
from vgpuscope.logic.reclaim.breaker import Breaker
from vgpuscope.logic.reclaim.tick import Facts, Memory, Move, Tick, forgettable, tick
from vgpuscope.model.analysis import Analysis
from vgpuscope.model.audit import AuditEntry, AuditPage
from vgpuscope.model.errors import CallFailed, CaseUnfit, HistoryDown, NotLeader, Unknown
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.model.reclaim import Call, Case, Finding, Policy, State, Workload
from vgpuscope.runtime.heap import without_collections
from vgpuscope.runtime.log import error_fields, fields
from vgpuscope.store.reclaim import Batch, ReclaimStore

log = logging.getLogger(__name__)

MACHINE = "vgpuscope"  # the actor of what no person did
_FRESH: Seconds = 60.0  # the age of an analysis by which a call may still be made
_LOOK_EVERY: Seconds = 1.0
_AT_ONCE = 20  # calls that are looked at in one round
_KEEP_ENDED: Seconds = 7 * 86400.0
_ENDED: frozenset[State] = frozenset({"verified", "restored", "released", "failed"})
Outcome = Literal["success", "failure", "dry_run", "cancelled"]


class Delivered(NamedTuple):
    """What a call changed, as JSON, so that it can be put back."""

    result: str = ""


class Send(Protocol):
    """Makes one call; CallFailed if it was not accepted."""

    async def __call__(self, call: Call, *, now: UnixTime) -> Delivered: ...


class Lead(Protocol):
    """What is asked of the lease."""

    def may_act(self, *, lasting: Seconds = 0.0) -> bool: ...


class Counts(Struct):
    """Counters of the machine."""

    actions: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)  # action, outcome
    held_back: Counter[str] = msgspec.field(default_factory=Counter)  # brake


class Looked(NamedTuple):
    """What the last analysis found."""

    found: Mapping[str, Finding]
    end: UnixTime


def policy_of(config: Config) -> Policy:
    """The policy that the settings describe. It acts only if `control.enabled` is on and the dry run is off."""
    chosen = config.reclaim
    return Policy(
        action=chosen.action,
        dry_run=config.control.dry_run or not config.control.enabled,
        confirmations=chosen.confirmations,
        min_coverage=chosen.min_coverage,
        include_held=chosen.include_held,
        grace=chosen.grace,
        min_pod_age=chosen.min_pod_age,
        approval=chosen.approval,
        notify_first=chosen.notify_first,
        protected_namespaces=frozenset(chosen.protected_namespaces),
        protected_priorities=frozenset(chosen.protected_priorities),
        max_per_hour=chosen.max_per_hour,
        max_per_namespace=chosen.max_per_namespace,
        max_fleet_share=chosen.max_fleet_share,
        working_hours=tuple(map(open_hours, chosen.working_hours)),
        breaker_share=chosen.breaker.share,
        breaker_least=chosen.breaker.least,
        breaker_calm=chosen.breaker.calm,
    )


def _nothing_known(_: Workload) -> Known:
    return Known()


class Reclaim:
    """The machine with its store, its lease and its hands."""

    def __init__(
        self,
        config: Callable[[], Config],
        *,
        store: ReclaimStore | None,
        lead: Lead,
        send: Mapping[str, Send],
        look_again: Callable[[], Awaitable[None]],
        facts: Facts = _nothing_known,
        channel: bool = False,
        clock: Callable[[], UnixTime] = time.time,
    ) -> None:
        """`send` has one entry for each kind of call; `look_again` runs an analysis and returns when it has ended."""
        self._config, self._store, self._lead, self._send = config, store, lead, send
        self._look_again, self._facts, self._channel, self._clock = look_again, facts, channel, clock
        self._term: int | None = None  # None: this replica does not lead
        self._cases: dict[str, Case] = {}
        self._memory = Memory()
        self._stopped_by = ""
        self._looked = Looked({}, 0.0)
        self._changing = asyncio.Lock()  # one change of the cases at a time
        self.counts = Counts()
        self.changes = 0  # grows with everything that is shown

    # ── what is shown ────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def cases(self) -> Mapping[str, Case]:
        return self._cases

    @property
    def breaker(self) -> Breaker:
        return self._memory.breaker

    @property
    def stopped_by(self) -> str:
        """Who stopped the machine; the settings file can, too."""
        return self._stopped_by or ("settings" if self._config().reclaim.stop else "")

    def policy(self) -> Policy:
        return policy_of(self._config())

    @property
    def mode(self) -> Literal["live", "dry_run", "off"]:
        """off: without a store nothing is remembered, so nothing is ever done."""
        if self._store is None:
            return "off"
        return "dry_run" if self.policy().dry_run else "live"

    @property
    def notifies(self) -> bool:
        """Whether an owner can be told anything."""
        return self._channel

    async def audit(
        self,
        *,
        case_id: str = "",
        namespaces: frozenset[str] | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> AuditPage:
        if self._store is None:
            return AuditPage(entries=())
        return await self._store.audit(case_id=case_id, namespaces=namespaces, before=before, limit=limit)

    # ── after each analysis ──────────────────────────────────────────────────────────────────────────────────────

    async def follow(self, analysis: Analysis) -> None:
        """Move all cases on. Nothing changes, here or outside, unless it was stored."""
        async with self._changing:
            self._looked = Looked({}, analysis.window.end)
            if self._store is None or not self._lead.may_act():
                await self._watch(analysis)
                return
            await self._take_lead()
            assert self._term is not None
            done = await self._tick(analysis)
            batch = self._batch(done)
            try:
                await self._store.save(batch, term=self._term)
            except (HistoryDown, NotLeader):
                self._term = None  # what is stored is read again before the next tick
                raise
            self._apply(done, batch)

    async def _watch(self, analysis: Analysis) -> None:
        """Show the cases without leading: those of the leader, or, without a store, those that would be."""
        self._term = None
        if self._store is not None:
            self._cases = await self._store.cases()
            self.changes += 1
            return
        done = await self._tick(analysis)
        self._apply(done, Batch())

    async def _take_lead(self) -> None:
        assert self._store is not None
        if self._term is None:
            saved = await self._store.lead()
            self._term, self._cases, self._stopped_by = saved.term, saved.cases, saved.stopped_by
            self._memory = msgspec.json.decode(saved.memory, type=Memory) if saved.memory else Memory()

    async def _tick(self, analysis: Analysis) -> Tick:
        with without_collections():
            return await asyncio.to_thread(
                tick,
                self._cases,
                analysis,
                self._memory,
                policy=self.policy(),
                world=self._world(),
                facts=self._facts,
            )

    def _world(self) -> World:
        return World(
            now=self._clock(),
            leads=self._lead.may_act(),
            stored=self._term is not None,
            history=self._store is not None,
            stop=bool(self.stopped_by),
            breaker=self._memory.breaker.is_open,
            channel=self._channel,
        )

    def _batch(self, done: Tick) -> Batch:
        now, policy = self._clock(), self.policy()
        entries = [*_breaker_entry(self._memory.breaker, done.memory.breaker, now)]
        entries += (_entry(move, now) for move in done.moves if _worth_telling(move))
        return Batch(
            cases=[move.after for move in done.moves],
            calls=[call for move in done.moves for call in self._calls(move, now, policy)],
            cancel=[move.after.id for move in done.moves if move.wish == "cancel"],
            audit=entries,
            memory=msgspec.json.encode(done.memory).decode(),
            forget=[case.id for case in self._cases.values() if _forgotten(case, now)],
        )

    def _calls(self, move: Move, now: UnixTime, policy: Policy) -> Sequence[Call]:
        if move.wish != "act" or policy.dry_run:
            return ()
        return [control_call(move.after, gpu_id, now=now, policy=policy) for gpu_id in move.after.gpu_ids]

    def _apply(self, done: Tick, batch: Batch) -> None:
        self._memory = done.memory
        self._looked = Looked(done.found, self._looked.end)
        self._cases = {**self._cases, **{move.after.id: move.after for move in done.moves}}
        for case_id in batch.forget:
            del self._cases[case_id]
        self.counts.held_back.update(done.held_back)
        self.changes += 1
        for move in done.moves:
            self._tell(move)

    def _tell(self, move: Move) -> None:
        case = move.after
        if move.wish == "act":
            self.counts.actions[self.policy().action, "dry_run"] += case.dry_run
            word = "would take GPUs back" if case.dry_run else "takes GPUs back"
            log.warning(word, extra=fields(namespace=case.namespace, pod=case.pod, gpus=", ".join(case.gpu_ids)))
        elif _worth_telling(move):
            log.info(
                "reclaim case moved",
                extra=fields(pod=f"{case.namespace}/{case.pod}", state=case.state, reason=case.reason),
            )

    # ── deliveries ───────────────────────────────────────────────────────────────────────────────────────────────

    async def deliver_forever(self) -> None:
        """Make the calls that are due."""
        while True:
            if self._store is not None and self._term is not None and self._lead.may_act():
                try:
                    await self.deliver_due()
                except (HistoryDown, NotLeader) as e:
                    log.warning("a call was not made", extra=error_fields(e))
            await asyncio.sleep(_LOOK_EVERY)

    async def deliver_due(self) -> None:
        """One round of deliver_forever."""
        assert self._store is not None
        for call in await self._store.due(self._clock(), most=_AT_ONCE):
            await self._deliver(call)

    async def _deliver(self, call: Call) -> None:
        """Check once more, record the attempt, make it, record how it ended."""
        if self._clock() - self._looked.end > _FRESH:
            await self._look_again()
        async with self._changing:
            if not self._may_deliver(call):
                return
            assert self._store is not None
            assert self._term is not None
            now = self._clock()
            tried = replace(call, attempts=call.attempts + 1, next_at=now + retries.pause(call.attempts + 1))
            if not await self._store.attempt(tried, term=self._term):
                return
            await self._attempt(tried)

    def _may_deliver(self, call: Call) -> bool:
        case = self._cases.get(call.case_id)
        if case is None or self._term is None or not self._lead.may_act(lasting=2 * self._config().control.timeout):
            return False
        if call.kind == "restore":
            return not self.stopped_by
        if self._clock() - self._looked.end > _FRESH:
            return False
        found = self._looked.found.get(case.id, "unknown")
        known = self._facts(case.workload)
        return not machine.may_deliver(case, found, known, self.policy(), self._world())

    async def _attempt(self, call: Call) -> None:
        assert self._store is not None
        assert self._term is not None
        try:
            done = await self._send[call.kind](call, now=self._clock())
        except CallFailed as e:
            settled, case = self._failed(call, str(e))
            outcome: Outcome = "failure"
        else:
            settled, case = replace(call, status="delivered", error="", result=done.result), None
            outcome = "success"
        entry = self._call_entry(settled, outcome)
        batch = Batch(audit=[entry], cases=[case] if case else [])
        await self._store.settle(settled, batch, term=self._term)
        self.counts.actions[call.kind, outcome] += 1
        self.changes += 1
        if case is not None:
            self._cases = {**self._cases, case.id: case}

    def _failed(self, call: Call, error: str) -> tuple[Call, Case | None]:
        """The call after a failed attempt, and its case if that was the last one."""
        log.warning("a call failed", extra=fields(call=call.key, attempts=call.attempts, error=error))
        if not retries.exhausted(call.first_at, self._clock()):
            return replace(call, error=error), None
        return replace(call, status="failed", error=error), machine.failed(
            self._cases[call.case_id], self._clock(), "call_failed"
        )

    def _call_entry(self, call: Call, outcome: Outcome) -> AuditEntry:
        case = self._cases[call.case_id]
        return AuditEntry(
            at=self._clock(),
            actor=MACHINE,
            what="call_delivered" if outcome == "success" else "call_failed",
            case_id=case.id,
            namespace=case.namespace,
            pod=case.pod,
            reason=call.error,
            detail=msgspec.json.encode({"key": call.key, "gpu_id": call.gpu_id, "attempts": call.attempts}).decode(),
        )

    # ── what people do ───────────────────────────────────────────────────────────────────────────────────────────

    async def approve(self, case_id: str, by: str) -> Case:
        return await self._change(case_id, by, lambda case, now: machine.approved(case, now, by))

    async def snooze(self, case_id: str, by: str, seconds: Seconds) -> Case:
        return await self._change(case_id, by, lambda case, now: machine.snoozed(case, now, by, seconds))

    async def exempt(self, case_id: str, by: str) -> Case:
        return await self._change(case_id, by, lambda case, now: machine.exempted(case, now, by))

    async def stop(self, by: str, *, start: bool = False) -> None:
        """Stop the machine, or start it again; starting also resets the circuit breaker."""
        async with self._changing:
            store, term = self._leading()
            now = self._clock()
            entry = AuditEntry(at=now, actor=by, what="start" if start else "stop")
            await store.stop("" if start else by, entry, term=term)
            self._stopped_by = "" if start else by
            if start and self._memory.breaker.is_open:
                memory = replace(self._memory, breaker=Breaker())
                reset = AuditEntry(at=now, actor=by, what="breaker_reset")
                await store.save(Batch(memory=msgspec.json.encode(memory).decode(), audit=[reset]), term=term)
                self._memory = memory

    async def _change(self, case_id: str, by: str, change: Callable[[Case, UnixTime], Case | None]) -> Case:
        async with self._changing:
            store, term = self._leading()
            case = self._cases.get(case_id)
            if case is None:
                raise Unknown(f"no case {case_id!r}", hint="/api/v1/reclaim lists all cases.")
            now = self._clock()
            changed = change(case, now)
            if changed is None:
                raise CaseUnfit(f"the case of {case.namespace}/{case.pod} is {case.state}")
            entry = replace(_entry(Move(case, changed, ""), now), actor=by)
            cancel = [case_id] if changed.state in {"snoozed", "exempt"} else []
            await store.save(Batch(cases=[changed], audit=[entry], cancel=cancel), term=term)
            self._cases = {**self._cases, case_id: changed}
            self.changes += 1
            return changed

    def _leading(self) -> tuple[ReclaimStore, int]:
        if self._store is None:
            raise NotLeader("without a store nothing is remembered, so nothing can be changed")
        if self._term is None or not self._lead.may_act():
            raise NotLeader("another replica takes GPUs back, or the store does not answer")
        return self._store, self._term


def control_call(case: Case, gpu_id: str, *, now: UnixTime, policy: Policy) -> Call:
    """The call for one GPU of a case. Its key is that of the incarnation and the GPU: a second one is the same call."""
    share = next(one for one in case.shares if one.gpu_id == gpu_id)
    key = f"{case.uid}/{gpu_id}"
    body = {
        "gpu_id": gpu_id,
        "pod": case.pod,
        "namespace": case.namespace,
        "hostname": share.hostname,
        "score": share.score,
        "status": share.status,
        "timestamp": datetime.fromtimestamp(now, tz=UTC).isoformat(timespec="seconds").removesuffix("+00:00"),
        "idempotency_key": key,
        "evidence": {
            "pod_uid": case.uid,
            "owner": case.owner or None,
            "verdict": share.verdict,
            "class": share.use_class,
            "coverage": share.coverage,
            "idle_since": share.idle_since,
            "confirmations": case.confirmations,
        },
        "policy": {
            "grace": policy.grace,
            "confirmations": policy.confirmations,
            "approved_by": case.approved_by or None,
        },
    }
    text = msgspec.json.encode(body).decode()
    return Call(key=key, case_id=case.id, kind="control", gpu_id=gpu_id, body=text, first_at=now, next_at=now)


def _worth_telling(move: Move) -> bool:
    return move.before is None or move.before.state != move.after.state or bool(move.wish)


def _entry(move: Move, now: UnixTime) -> AuditEntry:
    case = move.after
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
        detail=msgspec.json.encode({"shares": case.shares, "held_by": case.held_by, "dry_run": case.dry_run}).decode(),
    )


def _breaker_entry(before: Breaker, after: Breaker, now: UnixTime) -> Sequence[AuditEntry]:
    if after.is_open and not before.is_open:
        reason = f"{after.turned} of {after.of} workloads turned idle at once"
        return [AuditEntry(at=now, actor=MACHINE, what="breaker_opened", reason=reason)]
    if before.is_open and not after.is_open:
        return [AuditEntry(at=now, actor=MACHINE, what="breaker_closed")]
    return ()


def _forgotten(case: Case, now: UnixTime) -> bool:
    return case.state in _ENDED and now - case.since > _KEEP_ENDED and forgettable(case, now)
