"""The reclaim machine with a real store, over random lives of workloads, crashes, faults and two replicas.

The oracle is the world itself: for every moment it knows whether a workload really works, what the control service
received, and what an operator forbade. The machine sees only analyses.
"""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.logic.reclaim.test_machine import analysis, gpu, tenant
from vgpuscope.config import Config
from vgpuscope.config.reclaim import ControlConfig, ReclaimConfig
from vgpuscope.logic.reclaim.breaker import Breaker
from vgpuscope.model.errors import CallFailed, CaseUnfit, HistoryDown, NotLeader
from vgpuscope.services.analyzer.reclaim import Delivered, Reclaim
from vgpuscope.store.engine.engine import Engine, open_engine
from vgpuscope.store.reclaim import ReclaimStore

WINDOW = 600.0
LIVE = Config(
    control=ControlConfig(enabled=True, dry_run=False, api_url="http://control"),
    reclaim=ReclaimConfig(
        confirmations=2, grace=0.0, min_pod_age=0.0, max_fleet_share=1.0, max_per_hour=1000, max_per_namespace=1000
    ),
)
PODS = ("a", "b", "c")


class Killed(BaseException):
    """The process ends here, as by kill -9."""


class Fuse:
    """Ends the process after so many steps, or makes the store fail."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.down = False

    def step(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise Killed


class FusedStore:
    """The real store; the process may die before or after each of its transactions."""

    def __init__(self, store: ReclaimStore, fuse: Fuse) -> None:
        self._store, self._fuse = store, fuse

    def __getattr__(self, name):
        method = getattr(self._store, name)

        async def call(*args, **more):
            self._fuse.step()
            if self._fuse.down:
                raise HistoryDown("the database is gone")
            done = await method(*args, **more)
            self._fuse.step()
            return done

        return call


@dataclass
class Lease:
    leads: bool = True

    def may_act(self, *, lasting: float = 0.0) -> bool:
        return self.leads


@dataclass
class Effect:
    at: float
    uid: str
    key: str
    looked: str  # what the last analysis showed of it


@dataclass
class Life:
    """A fleet of three pods on three GPUs, with replicas, a control service and an operator."""

    engine: Engine
    config: Config = LIVE
    now: float = 100_000.0
    verdicts: dict[str, str] = field(default_factory=lambda: dict.fromkeys(PODS, "in_use"))
    births: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PODS, 0))
    fuse: Fuse = field(default_factory=Fuse)
    control: str = "ok"  # ok, refuses, lost (it acts, but the answer is lost)
    received: list[Effect] = field(default_factory=list)
    forbidden: set[str] = field(default_factory=set)
    stopped: bool = False
    replicas: list = field(default_factory=list)
    shown: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = ReclaimStore(self.engine)
        self.replicas = [self.start(leads=True), self.start(leads=False)]

    def uid(self, pod: str) -> str:
        return f"uid-{pod}-{self.births[pod]}"

    def start(self, *, leads: bool):
        lease = Lease(leads)
        machine = Reclaim(
            lambda: self.config,
            store=cast(ReclaimStore, FusedStore(self.store, self.fuse)),
            lead=lease,
            send={"control": self.send},
            look_again=self.analyse,
            clock=lambda: self.now,
        )
        return machine, lease

    async def send(self, call, *, now):
        self.fuse.step()
        uid = call.case_id
        if self.control == "refuses":
            raise CallFailed("500")
        self.received.append(Effect(self.now, uid, call.key, self.shown.get(uid, "")))
        self.fuse.step()
        if self.control == "lost":
            raise CallFailed("timeout")
        return Delivered()

    async def analyse(self) -> None:
        self.now += 1
        gpus = [gpu(n, tenant(pod, self.verdicts[pod], uid=self.uid(pod))) for n, pod in enumerate(PODS)]
        self.shown = {self.uid(pod): self.verdicts[pod] for pod in PODS}
        for machine, _ in self.replicas:
            await self.surviving(machine, machine.follow(analysis(self.now, *gpus)))

    async def surviving(self, machine, work) -> None:
        try:
            await work
        except Killed:
            self.replicas = [
                self.start(leads=lease.leads) if one is machine else (one, lease) for one, lease in self.replicas
            ]
        except (HistoryDown, NotLeader):
            pass

    async def deliver(self) -> None:
        for machine, lease in list(self.replicas):
            if lease.leads:
                await self.surviving(machine, machine.deliver_due())

    async def window(self) -> None:
        self.now += WINDOW
        await self.analyse()
        await self.deliver()


ACTIONS = st.one_of(
    st.tuples(st.just("idle"), st.sampled_from(PODS)),
    st.tuples(st.just("window"), st.just("")),
    st.tuples(st.just("window"), st.just("")),
    st.tuples(st.just("window"), st.just("")),
    st.tuples(st.sampled_from(["busy", "unknown", "reborn", "exempt"]), st.sampled_from(PODS)),
    st.tuples(
        st.sampled_from(["refuses", "ok", "lost", "down", "up", "swap", "both", "stop", "go", "wait"]), st.just("")
    ),
    st.tuples(st.just("kill"), st.integers(0, 8)),
)


async def act(life: Life, what: str, of) -> None:

    if what in {"idle", "busy", "unknown"}:
        life.verdicts[of] = {"idle": "idle", "busy": "in_use", "unknown": "unknown"}[what]
    elif what == "reborn":
        life.births[of] += 1
    elif what in {"refuses", "ok", "lost"}:
        life.control = what
    elif what in {"down", "up"}:
        life.fuse.down = what == "down"
    elif what == "kill":
        life.fuse.left = of
    elif what == "swap":
        for _, one in life.replicas:
            one.leads = not one.leads
    elif what == "both":  # a replica that does not know yet that it lost the lease
        for _, one in life.replicas:
            one.leads = True
    elif what == "wait":
        life.now += 400.0
        await life.deliver()
    elif what == "window":
        await life.window()
    else:
        await told(life, what, of)


async def told(life: Life, what: str, of) -> None:
    """An operator's word counts from the moment it was accepted."""
    for machine, lease in life.replicas:
        if not lease.leads:
            continue
        try:
            if what == "exempt":
                await machine.exempt(life.uid(of), "ops")
                life.forbidden.add(life.uid(of))
            else:
                await machine.stop("ops", start=what == "go")
                life.stopped = what == "stop"
        except (HistoryDown, NotLeader, CaseUnfit, Killed):
            continue
        except Exception as e:
            if type(e).__name__ != "Unknown":
                raise
            continue
        return


@given(st.lists(ACTIONS, min_size=10, max_size=45))
@settings(deadline=None, max_examples=60)
def test_no_history_crash_or_fault_takes_a_gpu_that_must_not_be_taken(actions):
    async def live(room: str) -> None:
        engine = open_engine(str(Path(room) / "store.db"))
        life = Life(engine)
        try:
            for what, of in actions:
                before = len(life.received)
                forbidden, stopped = set(life.forbidden), life.stopped
                await act(life, what, of)
                for effect in life.received[before:]:
                    assert effect.looked == "idle", "acted on a workload that the last analysis did not show idle"
                    assert effect.uid not in forbidden, "acted on an exempt workload"
                    assert not stopped, "acted while stopped"
            for effect in life.received:
                assert effect.key == f"{effect.uid}/GPU-{PODS.index(effect.uid.split('-')[1])}"
            assert len({e.key for e in life.received}) == len({e.uid for e in life.received})
        finally:
            await engine.close()

    with TemporaryDirectory() as room:
        asyncio.run(live(room))


@pytest.fixture
async def life(tmp_path):
    engine = open_engine(str(tmp_path / "store.db"))
    assert engine is not None
    yield Life(engine)
    await engine.close()


async def idle_until_acted(life: Life, *, pod: str = "a", windows: int = 4) -> None:
    life.verdicts[pod] = "idle"
    for _ in range(windows):
        await life.window()


async def test_an_idle_workload_is_acted_on_once(life):
    await idle_until_acted(life, windows=8)
    assert [(effect.uid, effect.looked) for effect in life.received] == [("uid-a-0", "idle")]


async def test_a_call_is_tried_again_until_it_is_accepted_with_the_same_key(life):
    life.control = "lost"  # it acts, but the answer is lost
    await idle_until_acted(life)
    assert life.received
    life.control = "ok"
    for _ in range(4):
        await life.window()
    assert len({effect.key for effect in life.received}) == 1
    [call] = await life.store.calls_of("uid-a-0")
    assert (call.status, call.attempts) == ("delivered", len(life.received))


async def test_a_workload_that_works_again_is_not_called_for_any_more(life):
    life.control = "refuses"
    await idle_until_acted(life)
    life.verdicts["a"] = "in_use"
    life.control = "ok"
    for _ in range(3):
        await life.window()
    assert life.received == []
    [call] = await life.store.calls_of("uid-a-0")
    assert call.status == "cancelled"


async def test_it_is_looked_at_again_before_a_retry(life):
    """The workload works again between two analyses: the analysis before the retry sees it."""
    life.control = "refuses"
    await idle_until_acted(life)
    life.verdicts["a"] = "in_use"
    life.control = "ok"
    life.now += 400.0
    await life.deliver()
    assert life.received == []


async def test_a_replica_that_lost_the_lease_without_knowing_makes_no_call(life):
    life.control = "refuses"
    await idle_until_acted(life)
    (old, _), (new, lease) = life.replicas
    lease.leads = True
    await new.follow(analysis(life.now, gpu(0, tenant("a", "idle", uid="uid-a-0"))))
    life.control = "ok"
    life.now += 400.0
    with pytest.raises(NotLeader):
        await old.follow(analysis(life.now, gpu(0, tenant("a", "idle", uid="uid-a-0"))))
    assert life.received == []


async def test_a_crash_after_any_step_loses_nothing_and_doubles_nothing(tmp_path):
    """The process dies after the n-th step of its life, for every n; then it lives on."""
    for steps in range(40):
        engine = open_engine(str(tmp_path / f"{steps}.db"))
        assert engine is not None
        life = Life(engine)
        life.fuse.left = steps
        await idle_until_acted(life, windows=10)
        assert {effect.key for effect in life.received} == {"uid-a-0/GPU-0"}, steps
        [call] = await life.store.calls_of("uid-a-0")
        assert call.status == "delivered", steps
        await engine.close()


async def test_a_call_that_fails_for_a_day_is_given_up(life):
    life.control = "refuses"
    life.config = replace(LIVE, reclaim=replace(LIVE.reclaim, confirmations=1))
    await idle_until_acted(life, windows=2)
    machine = life.replicas[0][0]
    for _ in range(30):  # 25 hours
        assert life.received == []
        life.now += 3000.0
        await life.deliver()
    assert machine.cases["uid-a-0"].state == "failed"


async def test_a_dry_run_calls_nobody_and_counts_what_it_would_have_done(life):
    life.config = replace(LIVE, control=replace(LIVE.control, dry_run=True))
    await idle_until_acted(life, windows=8)
    assert life.received == []
    assert life.replicas[0][0].counts.actions == {("control", "dry_run"): 1}


async def test_the_stop_switch_holds_back_retries_and_survives_a_restart(life):
    life.control = "refuses"
    await idle_until_acted(life)
    await life.replicas[0][0].stop("ops")
    life.control = "ok"
    life.replicas[0] = life.start(leads=True)
    for _ in range(3):
        await life.window()
    assert life.received == []
    assert life.replicas[0][0].stopped_by == "ops"
    await life.replicas[0][0].stop("ops", start=True)
    for _ in range(2):
        await life.window()
    assert [effect.uid for effect in life.received] == ["uid-a-0"]


async def test_only_who_would_act_says_which_brakes_are_on(life):
    await life.window()
    machine, lead = life.replicas[0]
    nothing = dict.fromkeys(("stop", "breaker", "store_down", "kube_unreachable"), False)
    assert machine.brakes() == nothing
    machine._memory = replace(machine._memory, breaker=Breaker(open_since=life.now, turned=9, of=10))
    assert machine.brakes() == nothing | {"breaker": True}
    lead.leads = False
    assert machine.brakes() == {}
    assert machine.brakes(reachable=False) == nothing | {"breaker": True, "store_down": True}
    life.config = replace(LIVE, control=replace(LIVE.control, dry_run=True))
    assert machine.brakes(reachable=False) == {}


async def test_every_step_is_in_the_audit_log(life):
    await idle_until_acted(life)
    page = await life.replicas[0][0].audit()
    steps = [(one.what, one.after or one.reason) for one in reversed(page.entries)]
    assert steps == [("moved", "candidate"), ("moved", "grace"), ("moved", "acting"), ("call_delivered", "")]
    assert all(one.actor == "vgpuscope" and one.pod == "a" for one in page.entries)
