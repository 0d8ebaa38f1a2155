"""Takes GPUs of idle workloads back: one tick of the machine after each analysis, and the calls that follow from it.

analysis ─► tick ─► one transaction: cases, calls, audit ─► deliveries, each checked again ─► settled in the store

Nothing happens outside before it is stored. A call is checked again before every attempt: by the lease, by the stop
switch, and by a finding from an analysis that is not older than _FRESH.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from vgpuscope.config import Config
from vgpuscope.config.reclaim import open_hours
from vgpuscope.logic.notices.kinds import of_breaker, of_move
from vgpuscope.logic.reclaim import machine, retries
from vgpuscope.logic.reclaim.brakes import Facts, Known, World
from vgpuscope.logic.reclaim.breaker import Breaker
from vgpuscope.logic.reclaim.tick import Memory, Move, Tick, forgettable, tick
from vgpuscope.model.analysis import Analysis
from vgpuscope.model.audit import AuditEntry, AuditPage
from vgpuscope.model.errors import CallFailed, CallRefused, CaseUnfit, HistoryDown, NotLeader, Unknown
from vgpuscope.model.notices import ANSWERED, OWNER, Link, Notice, NoticeKind
from vgpuscope.model.opinion import Opinion
from vgpuscope.model.quantity import DeviceUUID, PodUID, Seconds, UnixTime
from vgpuscope.model.reclaim import OPEN, Brake, Call, Case, Finding, PodFacts, Policy, State, Workload
from vgpuscope.runtime.heap import without_collections
from vgpuscope.runtime.log import error_fields, fields
from vgpuscope.services.analyzer.reclaim_calls import control_call, restore_call, scale_call
from vgpuscope.services.analyzer.reclaim_entries import MACHINE, breaker_entries, moved_entry, told_of
from vgpuscope.store.reclaim import Batch, ReclaimStore

log = logging.getLogger(__name__)

_FRESH: Seconds = 60.0  # the age of an analysis by which a call may still be made
_LOOK_EVERY: Seconds = 1.0
_HELD: Seconds = 10.0  # until a notice that may not be sent now is looked at again
_AT_ONCE = 20  # calls that are looked at in one round
_KEEP_ENDED: Seconds = 7 * 86400.0
_ENDED: frozenset[State] = frozenset({"verified", "restored", "released", "failed"})
Outcome = Literal["success", "failure", "dry_run", "cancelled"]
KubeState = Literal["none", "ok", "down"]


class Delivered(NamedTuple):
    """What a call changed, as JSON, so that it can be put back."""

    result: str = ""


class Send(Protocol):
    """Makes one call; CallFailed if it was not accepted."""

    async def __call__(self, call: Call, *, now: UnixTime) -> Delivered: ...


class Told(NamedTuple):
    """Something that people are told, before it is known through which channels."""

    kind: NoticeKind
    at: UnixTime
    case: Case | None = None
    owner: str = ""  # the annotation that names who is told
    turned: int = 0
    of: int = 0


def _tell_nobody(_: Told) -> Sequence[Call]:
    return ()


class Learn(Protocol):
    """Reads what is to be known of some workloads beyond their GPUs. `seen` are all workloads of the last analysis."""

    async def __call__(self, workloads: Sequence[Workload], *, fresh: bool, seen: Collection[PodUID]) -> None: ...


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
        opinion: Callable[[Workload, DeviceUUID], Opinion | None] = lambda _, __: None,
        learn: Sequence[Learn] = (),
        kube: Callable[[], KubeState] = lambda: "none",
        asks_prometheus: Callable[[], bool] = lambda: False,
        channel: Callable[[], bool] = lambda: False,
        notify: Callable[[Told], Sequence[Call]] = _tell_nobody,
        clock: Callable[[], UnixTime] = time.time,
    ) -> None:
        """`send` has one entry for each kind of call; `look_again` runs an analysis and returns when it has ended.

        `channel` says whether somebody can be told, and `notify` makes the calls that tell them. `facts` answers from
        what `learn` has read: before each tick for the cases that are worth it, and again before each call. `opinion`:
        that of a language model on a workload's share of a GPU.
        """
        self._opinion = opinion
        self._config, self._store, self._lead, self._send = config, store, lead, send
        self._look_again, self._facts, self._channel, self._clock = look_again, facts, channel, clock
        self._learn, self._kube, self._asks = learn, kube, asks_prometheus
        self._notify = notify
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

    def brakes(self, *, reachable: bool = True) -> Mapping[Brake, bool]:
        """The brakes on all workloads, and whether each is on; none in a dry run, or if another replica leads.

        `reachable`: the store answers. If it does not, nobody leads, and every replica says so.
        """
        if self.mode != "live" or (reachable and not self._lead.may_act()):
            return {}
        world = self._world()
        return {
            "stop": world.stop,
            "breaker": world.breaker,
            "store_down": not (reachable and world.stored),
            "kube_unreachable": world.kube == "down",
        }

    @property
    def kube(self) -> KubeState:
        """The Kubernetes API: not configured, answers, or does not answer."""
        return self._kube()

    @property
    def asks_prometheus(self) -> bool:
        """Whether signs of use are read from Prometheus."""
        return self._asks()

    @property
    def notifies(self) -> bool:
        """Whether an owner can be told anything."""
        return self._channel()

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
        if self._store is not None and self._lead.may_act():
            await self._learn_about(self._worth_learning())
        async with self._changing:
            self._looked = Looked({}, analysis.window.end)
            if self._store is None or not self._lead.may_act():
                await self._watch(analysis)
                return
            await self._move_all(self._store, analysis)

    async def _move_all(self, store: ReclaimStore, analysis: Analysis) -> None:
        await self._take_lead()
        assert self._term is not None
        await self._catch_up()
        done = await self._tick(analysis)
        batch = self._batch(done)
        try:
            await store.save(batch, term=self._term)
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

    async def _catch_up(self) -> None:
        """Read the cases again if an owner answered through another replica. The caller holds the lock."""
        if self._store is not None and self._term is not None and await self._store.answers_wait():
            self._cases = await self._store.catch_up(term=self._term)
            self.changes += 1

    def _worth_learning(self) -> Sequence[Workload]:
        """Cases that may move on with this analysis, and those that an annotation excludes."""
        almost = self.policy().confirmations - 1
        return [
            case.workload
            for case in self._cases.values()
            if (case.state in OPEN and (case.state != "candidate" or case.confirmations >= almost))
            or (case.state == "exempt" and case.reason == "annotation")
        ]

    async def _learn_about(self, workloads: Sequence[Workload], *, fresh: bool = False) -> None:
        for learn in self._learn:
            try:
                await learn(workloads, fresh=fresh, seen=self._looked.found.keys())
            except Exception:  # what is not learned is not known, and holds a case back
                log.exception("facts not read")

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
            kube=self._kube(),
            stop=bool(self.stopped_by),
            breaker=self._memory.breaker.is_open,
            channel=self._channel(),
        )

    def _batch(self, done: Tick) -> Batch:
        now, policy = self._clock(), self.policy()
        entries = [*breaker_entries(self._memory.breaker, done.memory.breaker, now)]
        entries += (self._entry(move, now) for move in done.moves if _worth_telling(move))
        return Batch(
            cases=[move.after for move in done.moves],
            calls=[
                *(call for move in done.moves for call in self._calls(move, now, policy)),
                *self._notices(done, now),
            ],
            cancel=[move.after.id for move in done.moves if move.wish == "cancel"],
            audit=entries,
            memory=msgspec.json.encode(done.memory).decode(),
            forget=[case.id for case in self._cases.values() if _forgotten(case, now)],
        )

    def _entry(self, move: Move, now: UnixTime) -> AuditEntry:
        """The entry of a move; a decision also records what the language model said, or that it did not answer."""
        if move.wish != "act":
            return moved_entry(move, now)
        return moved_entry(move, now, model=self._facts(move.after.workload).model)

    def _calls(self, move: Move, now: UnixTime, policy: Policy) -> Sequence[Call]:
        if move.wish != "act" or policy.dry_run:
            return ()
        case = move.after
        if case.target is not None:
            return [scale_call(case, case.target, now=now)]
        return [
            control_call(case, gpu_id, now=now, policy=policy, opinion=self._opinion(case.workload, gpu_id))
            for gpu_id in case.gpu_ids
        ]

    def _notices(self, done: Tick, now: UnixTime) -> Iterator[Call]:
        before, after = self._memory.breaker, done.memory.breaker
        kind = of_breaker(was_open=before.is_open, is_open=after.is_open)
        if kind is not None:
            yield from self._notify(Told(kind, now, turned=after.turned, of=after.of))
        for move in done.moves:
            yield from self._notices_of(move.before, move.after, now, tell=move.wish == "notify")

    def _notices_of(self, before: Case | None, after: Case, now: UnixTime, *, tell: bool = False) -> Sequence[Call]:
        if of_move(before, after, tell=tell, only_told=False) is None or not self._channel():
            return ()
        pod = self._facts(after.workload).pod
        only_told = self.policy().action == "notify" or pod.consent == "notify"
        kind = of_move(before, after, tell=tell, only_told=only_told)
        return () if kind is None else self._notify(Told(kind, now, case=after, owner=pod.notify))

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
            what = {"object": str(case.target)} if case.target else {}
            gpus = ", ".join(case.gpu_ids)
            log.warning(word, extra=fields(namespace=case.namespace, pod=case.pod, gpus=gpus, **what))
        elif _worth_telling(move):
            self._count_untold(move)
            log.info(
                "reclaim case moved",
                extra=fields(pod=f"{case.namespace}/{case.pod}", state=case.state, reason=case.reason),
            )

    def _count_untold(self, move: Move) -> None:
        """In a dry run the owner is not told, and it is counted that he would have been."""
        policy, case = self.policy(), move.after
        begun = case.state == "grace" and case.reason == "confirmed" and case.notified_at is None
        if begun and policy.dry_run and policy.notify_first and self._channel():
            self.counts.actions["notice", "dry_run"] += 1
            log.info("would notify the owner", extra=fields(namespace=case.namespace, pod=case.pod))

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
        async with self._changing:
            await self._catch_up()
        for call in await self._store.due(self._clock(), most=_AT_ONCE):
            await self._deliver(call)

    async def _deliver(self, call: Call) -> None:
        """Check once more, record the attempt, make it, record how it ended."""
        if call.kind != "restore":
            await self._look_closely(call)
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

    async def _look_closely(self, call: Call) -> None:
        """An analysis that is fresh, and the pod and its owner as they are now."""
        if self._clock() - self._looked.end > _FRESH:
            await self._look_again()
        case = self._cases.get(call.case_id)
        if case is not None:
            await self._learn_about([case.workload], fresh=True)

    def _may_deliver(self, call: Call) -> bool:
        case = self._cases.get(call.case_id)
        if case is None or self._term is None or not self._lead.may_act(lasting=2 * self._config().control.timeout):
            return False
        if call.kind == "restore":
            return True  # who stops the machine wants to give back, too
        if self._clock() - self._looked.end > _FRESH:
            return False
        found = self._looked.found.get(case.id, "unknown")
        known = self._facts(case.workload)
        if machine.may_deliver(case, found, known, self.policy(), self._world()):
            return False
        peers = known.pod.peers
        return call.kind != "scale" or (bool(peers) and all(self._may_end(uid, known.pod) for uid in peers))

    def _may_end(self, uid: PodUID, pod: PodFacts) -> bool:
        """Whether a pod that a change would end is decided on as well, and idle by the last analysis."""
        case = self._cases.get(uid)
        if case is None or case.state != "acting" or case.dry_run or case.target is None or pod.target is None:
            return False
        return case.target.uid == pod.target.uid and self._looked.found.get(uid) == "idle"

    async def _attempt(self, call: Call) -> None:
        assert self._store is not None
        assert self._term is not None
        try:
            done = await self._send[call.kind](call, now=self._clock())
        except CallFailed as e:
            settled, cases = self._failed(call, e)
            outcome: Outcome = "failure"
        else:
            settled, cases = replace(call, status="delivered", error="", result=done.result), self._given_back(call)
            outcome = "success"
        entry = self._call_entry(settled, outcome)
        told = [one for case in cases for one in self._notices_of(self._cases[case.id], case, self._clock())]
        await self._store.settle(settled, Batch(audit=[entry], cases=cases, calls=told), term=self._term)
        self.counts.actions[call.kind, outcome] += 1
        self.changes += 1
        self._cases = {**self._cases, **{case.id: case for case in cases}}

    def _failed(self, call: Call, error: CallFailed) -> tuple[Call, Sequence[Case]]:
        """The call after a failed attempt, and its case if there will be no other attempt."""
        text = str(error) if error.advice == error.hint else f"{error}. {error.advice}"
        log.warning("a call failed", extra=fields(call=call.key, attempts=call.attempts, error=text))
        refused = isinstance(error, CallRefused)
        if not refused and not retries.exhausted(call.first_at, self._clock()):
            return replace(call, error=text), ()
        case, now = self._cases[call.case_id], self._clock()
        if call.kind == "restore":
            after = machine.not_restored(case, now)
        else:
            after = machine.failed(case, now, "call_refused" if refused else "call_failed")
        return replace(call, status="failed", error=text), [after]

    def _given_back(self, call: Call) -> Sequence[Case]:
        """After a restore: every case whose pod was ended by the same change."""
        if call.kind != "restore":
            return ()
        case, now = self._cases[call.case_id], self._clock()
        return [after for one in self._together(case) if (after := machine.restored(one, now, case.by)) is not None]

    def _together(self, case: Case) -> Sequence[Case]:
        """The cases that one change of the case's target has settled, that one among them."""
        return [
            one
            for one in self._cases.values()
            if one.target is not None and case.target is not None and one.target.uid == case.target.uid
        ]

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
            detail=msgspec.json.encode(told_of(call)).decode(),
        )

    # ── notices ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def notices_due(self, channel: str, *, most: int) -> list[Call]:
        """The notices of a channel, or of all, that are due; none, if this replica may not send them."""
        if self._store is None or self._term is None or self.stopped_by or not self._lead.may_act():
            return []
        return await self._store.due_notices(self._clock(), channel=channel, most=most)

    async def tellable(self, calls: Sequence[Call]) -> list[tuple[Call, Notice]]:
        """The notices that are still true, by fresh data. What is no longer true is cancelled, the others wait."""
        notices = [(call, msgspec.json.decode(call.body, type=Notice)) for call in calls]
        if any(one.kind in ANSWERED for _, one in notices) and self._clock() - self._looked.end > _FRESH:
            await self._look_again()
        async with self._changing:
            await self._catch_up()
            store, term = self._leading()
            asked = [one.case.workload for _, one in notices if one.case is not None and one.kind in ANSWERED]
            await self._learn_about(asked, fresh=True)
            now, told, other = self._clock(), list[tuple[Call, Notice]](), list[Call]()
            for call, notice in notices:
                why = self._untrue(notice)
                if not why:
                    told.append((call, notice))
                elif why == "released":
                    other.append(replace(call, status="cancelled"))
                else:
                    other.append(replace(call, next_at=now + _HELD))
            if other:
                await store.settle_all(other, Batch(), term=term)
            return told

    def _untrue(self, notice: Notice) -> str:
        """Why a notice is not sent now; "": it is. Only what happens next can become untrue."""
        if notice.case is None or notice.kind not in ANSWERED:
            return ""
        case = self._cases.get(notice.case.id)
        if case is None or case.state not in {"notified", "grace"}:
            return "released"
        if self._clock() - self._looked.end > _FRESH:
            return "unconfirmed"
        found = self._looked.found.get(case.id, "unknown")
        held = machine.may_tell(case, found, self._facts(case.workload), self.policy(), self._world())
        return "held" if held else ""

    def grace_end(self, case: Case) -> UnixTime:
        """Until when the owner of a case has time, if he is told now."""
        now = self._cases.get(case.id, case)
        if now.state == "grace" and now.next_at is not None:
            return now.next_at
        return self._clock() + machine.grace_of(self._facts(case.workload), self.policy())

    async def attempt_notices(self, calls: Sequence[Call]) -> list[Call]:
        """Record an attempt before it is made; the calls that still wait."""
        async with self._changing:
            await self._catch_up()
            store, term = self._leading()
            now = self._clock()
            tried = [
                replace(one, attempts=one.attempts + 1, next_at=now + retries.pause(one.attempts + 1)) for one in calls
            ]
            return await store.attempt_all(tried, term=term)

    async def settle_notices(self, calls: Sequence[Call], *, channel: str, error: str = "") -> None:
        """Record how an attempt ended. A notice that was delivered begins the grace period of its case."""
        async with self._changing:
            await self._catch_up()
            store, term = self._leading()
            now = self._clock()
            settled = [_after_attempt(call, error, now) for call in calls]
            cases = [case for call in settled if (case := await self._case_after_notice(call, now)) is not None]
            entries = [self._notice_entry(call, channel, now) for call in settled]
            entries += (moved_entry(Move(self._cases[case.id], case, ""), now) for case in cases)
            told = [one for case in cases for one in self._notices_of(self._cases[case.id], case, now)]
            await store.settle_all(settled, Batch(cases=cases, audit=entries, calls=told), term=term)
            self._cases = {**self._cases, **{case.id: case for case in cases}}
            self.changes += 1

    async def _case_after_notice(self, call: Call, now: UnixTime) -> Case | None:
        """Its case, if the notice moved it."""
        case = self._cases.get(call.case_id)
        if case is None or case.state != "notified" or call.status == "waiting":
            return None
        if msgspec.json.decode(call.body, type=Notice).kind not in ANSWERED:
            return None
        if call.status == "delivered":
            return machine.notified(case, now, machine.grace_of(self._facts(case.workload), self.policy()))
        assert self._store is not None
        others = [one for one in await self._store.calls_of(case.id) if one.key != call.key and one.kind == "notice"]
        return None if any(one.status == "waiting" for one in others) else machine.failed(case, now, "notice_failed")

    async def replace_notices(self, calls: Sequence[Call]) -> None:
        """Send notices of channels that are no longer there through those that are."""
        async with self._changing:
            await self._catch_up()
            store, term = self._leading()
            fresh: list[Call] = []
            for call in calls:
                old = msgspec.json.decode(call.body, type=Notice)
                owner = self._facts(old.case.workload).pod.notify if old.case else ""
                fresh += self._notify(Told(old.kind, old.at, old.case, owner, old.turned, old.of))
            gone = [replace(call, status="cancelled") for call in calls]
            await store.settle_all(gone, Batch(calls=fresh), term=term)

    def _notice_entry(self, call: Call, channel: str, now: UnixTime) -> AuditEntry:
        notice = msgspec.json.decode(call.body, type=Notice)
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

    async def case_of(self, link: Link) -> tuple[Case | None, UnixTime | None]:
        """The case of an owner's link as it is stored, and when the link was used."""
        if self._store is None:
            return None, None
        return await self._store.case(link.case_id), await self._store.used_at(link)

    async def answer(self, link: Link, *, seconds: Seconds = 0.0) -> Case:
        """What an owner decided by a link; through any replica, once. LinkUsed, CaseUnfit or Unknown otherwise."""
        async with self._changing:
            if self._store is None:
                raise NotLeader("without a store nothing is remembered, so nothing can be changed")
            changed: list[Case] = []

            def decide(case: Case | None) -> Batch:
                batch = self._answered(link, case, seconds)
                changed[:] = batch.cases
                return batch

            try:
                _, term = self._leading()
                await self._store.save(decide(self._cases.get(link.case_id)), term=term)
            except NotLeader:
                await self._store.answered(link.case_id, decide)
            self._cases = {**self._cases, link.case_id: changed[0]}
            self.changes += 1
            return changed[0]

    def _answered(self, link: Link, case: Case | None, seconds: Seconds) -> Batch:
        if case is None:
            raise Unknown("the workload of this link is no longer known")
        now = self._clock()
        changed = {
            "keep": lambda: machine.exempted(case, now, OWNER),
            "snooze": lambda: machine.snoozed(case, now, OWNER, seconds),
            "release": lambda: machine.agreed(case, now, OWNER),
        }[link.action]()
        if changed is None:
            raise CaseUnfit(f"the case of {case.namespace}/{case.pod} is {case.state}")
        entry = replace(moved_entry(Move(case, changed, ""), now), actor=OWNER)
        return Batch(cases=[changed], audit=[entry], cancel=[case.id], used=link)

    # ── what people do ───────────────────────────────────────────────────────────────────────────────────────────

    async def approve(self, case_id: str, by: str) -> Case:
        return await self._change(case_id, by, lambda case, now: machine.approved(case, now, by))

    async def snooze(self, case_id: str, by: str, seconds: Seconds) -> Case:
        return await self._change(case_id, by, lambda case, now: machine.snoozed(case, now, by, seconds))

    async def exempt(self, case_id: str, by: str) -> Case:
        return await self._change(case_id, by, lambda case, now: machine.exempted(case, now, by))

    async def restore(self, case_id: str, by: str) -> Case:
        """Put back what was there. CaseUnfit if there is nothing to put back, or somebody changed it since."""
        async with self._changing:
            store, term = self._leading()
            case = self._case(case_id)
            if not case.restorable or case.target is None:
                raise CaseUnfit(f"nothing was taken from {case.namespace}/{case.pod} that could be put back from here")
            together = self._together(case)
            calls = [call for one in together for call in await store.calls_of(one.id)]
            if not any(one.kind == "scale" and one.attempts for one in calls):
                raise CaseUnfit(f"{case.target} was not changed yet", hint="Snooze the case, or exempt it.")
            before = [one for one in calls if one.kind == "restore" and one.case_id == case_id]
            call = next((one for one in before if one.status == "waiting"), None)
            if call is None:
                now = self._clock()
                call = restore_call(case, case.target, together, number=len(before) + 1, now=now)
                asked = replace(case, reason="restoring", by=by)
                entry = replace(moved_entry(Move(case, asked, ""), now), actor=by, what="restore_asked")
                cancel = [one.id for one in together]
                await store.save(Batch(cases=[asked], calls=[call], cancel=cancel, audit=[entry]), term=term)
                self._cases = {**self._cases, case_id: asked}
                self.changes += 1
        await self._deliver(call)
        return await self._restored(case_id, call)

    async def _restored(self, case_id: str, call: Call) -> Case:
        """The case after the first attempt. If the API did not answer, the case is restored later."""
        store, _ = self._leading()
        [after] = [one for one in await store.calls_of(case_id) if one.key == call.key]
        if after.status == "failed":
            raise CaseUnfit(after.error)
        return self._cases[case_id]

    async def stop(self, by: str, *, start: bool = False) -> None:
        """Stop the machine, or start it again; starting also resets the circuit breaker."""
        async with self._changing:
            await self._catch_up()
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
            await self._catch_up()
            store, term = self._leading()
            case = self._case(case_id)
            now = self._clock()
            changed = change(case, now)
            if changed is None:
                raise CaseUnfit(f"the case of {case.namespace}/{case.pod} is {case.state}")
            entry = replace(moved_entry(Move(case, changed, ""), now), actor=by)
            cancel = [case_id] if changed.state in {"snoozed", "exempt"} else []
            told = self._notices_of(case, changed, now)
            await store.save(Batch(cases=[changed], audit=[entry], cancel=cancel, calls=told), term=term)
            self._cases = {**self._cases, case_id: changed}
            self.changes += 1
            return changed

    def _case(self, case_id: str) -> Case:
        case = self._cases.get(case_id)
        if case is None:
            raise Unknown(f"no case {case_id!r}", hint="/api/v1/reclaim lists all cases.")
        return case

    def _leading(self) -> tuple[ReclaimStore, int]:
        if self._store is None:
            raise NotLeader("without a store nothing is remembered, so nothing can be changed")
        if self._term is None or not self._lead.may_act():
            raise NotLeader("another replica takes GPUs back, or the store does not answer")
        return self._store, self._term


def _forgotten(case: Case, now: UnixTime) -> bool:
    return case.state in _ENDED and now - case.since > _KEEP_ENDED and forgettable(case, now)


def _after_attempt(call: Call, error: str, now: UnixTime) -> Call:
    if not error:
        return replace(call, status="delivered", error="")
    return replace(call, status="failed" if retries.exhausted(call.first_at, now) else "waiting", error=error)


def _worth_telling(move: Move) -> bool:
    return move.before is None or move.before.state != move.after.state or bool(move.wish)
