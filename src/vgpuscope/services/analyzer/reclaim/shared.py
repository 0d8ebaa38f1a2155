"""What all parts of reclaim share: the cases of now, what is remembered, who leads, and the lock of changes."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct

from vgpuscope.logic.notices.kinds import of_move
from vgpuscope.logic.reclaim.brakes import TickFacts
from vgpuscope.logic.reclaim.tick import ReclaimMemory
from vgpuscope.model.errors import NotLeader, Unknown
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.model.reclaim import Call, Case, Finding, Policy, Workload
from vgpuscope.services.analyzer.reclaim.dependencies import NoticeRequest, ReclaimDependencies, policy_of
from vgpuscope.store.reclaim import ReclaimStore, SavedReclaim

log = logging.getLogger(__name__)

_WATCH_ALL: Seconds = 60.0
_FRESH: Seconds = 60.0  # the age of an analysis by which a call may still be made


class ReclaimCounts(Struct):
    """Counters of the machine."""

    actions: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)  # action, outcome
    held_back: Counter[str] = msgspec.field(default_factory=Counter)  # brake


class LastFindings(NamedTuple):
    """What the last analysis found."""

    found: Mapping[str, Finding]
    end: UnixTime


class _Watched(NamedTuple):
    """What a replica that does not lead has read, and when."""

    mark: str
    at: UnixTime


class ReclaimState:
    """The state of reclaim in this process. Who changes cases holds `changing`, and stores them before `show`."""

    def __init__(self, given: ReclaimDependencies) -> None:
        self.given = given
        self.term: int | None = None  # None: this replica does not lead
        self.cases: dict[str, Case] = {}
        self.memory = ReclaimMemory()
        self.stopped_here = ""  # who stopped reclaim by the API, as it is stored
        self.stopping = ""  # who asked to stop; it holds here at once, also if it cannot be stored
        self.last_findings = LastFindings({}, 0.0)
        self.missed: dict[str, Finding] = {}  # of cases: work that was found while nothing could be stored
        self.changing = asyncio.Lock()  # one change of the cases at a time
        self.counts = ReclaimCounts()
        self.changes = 0  # grows with everything that is shown
        self._watched = _Watched("", 0.0)

    # ── what is true now ─────────────────────────────────────────────────────────────────────────────────────────

    def now(self) -> UnixTime:
        return self.given.clock()

    def policy(self) -> Policy:
        return policy_of(self.given.config())

    @property
    def stopped_by(self) -> str:
        """Who stopped reclaim; the settings file can, too."""
        return self.stopping or self.stopped_here or ("settings" if self.given.config().reclaim.stop else "")

    def world(self) -> TickFacts:
        return TickFacts(
            now=self.now(),
            leads=self.given.lead.may_act(),
            stored=self.term is not None,
            history=self.given.store is not None,
            kube=self.given.kube(),
            stop=bool(self.stopped_by),
            breaker=self.memory.breaker.is_open,
            channel=self.given.channel(),
            interval=self.given.config().scheduler.interval,
        )

    @property
    def fresh(self) -> bool:
        """Whether the last analysis is recent enough to act on."""
        return self.now() - self.last_findings.end <= _FRESH

    def found(self, case: Case) -> Finding:
        return self.last_findings.found.get(case.id, "unknown")

    def case(self, case_id: str) -> Case:
        case = self.cases.get(case_id)
        if case is None:
            raise Unknown(f"no case {case_id!r}", hint="/api/v1/reclaim lists all cases.")
        return case

    def together(self, case: Case) -> Sequence[Case]:
        """The cases that one change of the case's target has settled, that one among them."""
        return [
            one
            for one in self.cases.values()
            if one.target is not None and case.target is not None and one.target.uid == case.target.uid
        ]

    # ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────

    def leading(self) -> tuple[ReclaimStore, int]:
        """The store and the term by which it may be written; NotLeader if this replica may not."""
        store = self.stored()
        if self.term is None or not self.given.lead.may_act():
            raise NotLeader("this replica does not lead, or the store does not answer")
        return store, self.term

    def stored(self) -> ReclaimStore:
        """The store; NotLeader without one."""
        if self.given.store is None:
            raise NotLeader("cases cannot be changed: analyzer.history is not set")
        return self.given.store

    async def catch_up(self) -> None:
        """Read what people decided through another replica. The caller holds the lock."""
        store = self.given.store
        if store is None or self.term is None:
            return
        news = await store.news()
        if news.answered:
            self.cases = await store.catch_up(term=self.term)
        if news.answered or news.stopped_by != self.stopped_here:
            self.stopped_here = news.stopped_by
            self.changes += 1

    async def watch(self, store: ReclaimStore) -> None:
        """Read what the leader stored, if that changed, or if the last time was long ago. The caller holds the lock.

        Counted windows change a case without a mark, so all is read again after a while.
        """
        news, now = await store.news(), self.now()
        if news.mark == self._watched.mark and now < self._watched.at + _WATCH_ALL:
            return
        self.take(await store.look())
        self._watched = _Watched(news.mark, now)

    def take(self, saved: SavedReclaim) -> None:
        """Show what is stored."""
        self.cases, self.stopped_here = saved.cases, saved.stopped_by
        self.memory = msgspec.json.decode(saved.memory, type=ReclaimMemory) if saved.memory else ReclaimMemory()
        self.changes += 1

    def show(self, cases: Iterable[Case]) -> None:
        """Show changed cases, which are stored by now."""
        self.cases = {**self.cases, **{case.id: case for case in cases}}
        self.changes += 1

    async def learn_about(self, workloads: Sequence[Workload], *, fresh: bool = False) -> None:
        for learn in self.given.learn:
            try:
                await learn(workloads, fresh=fresh, seen=self.last_findings.found.keys())
            except Exception:  # what is not learned is not known, and holds a case back
                log.exception("facts not read")

    def notices_of(self, before: Case | None, after: Case, now: UnixTime, *, tell: bool = False) -> Sequence[Call]:
        """The notices that follow from a move; `tell`: the owner is to be told before anything happens."""
        if of_move(before, after, tell=tell, only_told=False) is None or not self.given.channel():
            return ()
        pod = self.given.facts(after.workload).pod
        only_told = self.policy().action == "notify" or pod.consent == "notify"
        kind = of_move(before, after, tell=tell, only_told=only_told)
        return () if kind is None else self.given.notify(NoticeRequest(kind, now, case=after, owner=pod.notify))

    def notices_of_all(self, cases: Iterable[Case], now: UnixTime) -> list[Call]:
        """The notices that follow from changed cases that are not shown yet."""
        return [one for case in cases for one in self.notices_of(self.cases[case.id], case, now)]
