"""Lives of workloads for tests of reclaim: a fleet, replicas with a real store, a control service and an operator.

A test asks the world itself what was right: it knows what the last analysis showed, what the control service received,
and what an operator forbade.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar, cast

from tests.logic.reclaim.test_machine import analysis, gpu, tenant
from vgpuscope.config import Config
from vgpuscope.config.analyzer import SchedulerConfig
from vgpuscope.config.reclaim import ControlConfig, ReclaimConfig
from vgpuscope.logic.reclaim.brakes import WorkloadFacts
from vgpuscope.model.errors import CallFailed, CaseUnfit, HistoryDown, NotLeader
from vgpuscope.model.reclaim import PodFacts
from vgpuscope.services.analyzer.reclaim.dependencies import CallResult, ReclaimDependencies
from vgpuscope.services.analyzer.reclaim.reclaim import Reclaim
from vgpuscope.store.engine.engine import Engine, open_engine
from vgpuscope.store.reclaim import ReclaimStore

WINDOW = 600.0
LIVE = Config(
    scheduler=SchedulerConfig(interval=WINDOW),
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
    renewed: float = 15.0  # seconds that it lasts after a renewal

    def may_act(self, *, lasting: float = 0.0) -> bool:
        return self.leads

    async def lasts(self, seconds: float) -> bool:
        return self.leads and seconds < self.renewed


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
        return Reclaim(self.given(lease)), lease

    def given(self, lease: Lease) -> ReclaimDependencies:
        return ReclaimDependencies(
            config=lambda: self.config,
            store=cast(ReclaimStore, FusedStore(self.store, self.fuse)),
            lead=lease,
            send={"control": self.send},
            look_again=self.analyse,
            facts=lambda _: WorkloadFacts(pod=PodFacts(read=True)),
            kube=lambda: "ok",
            clock=lambda: self.now,
        )

    async def send(self, call, *, now):
        self.fuse.step()
        uid = call.case_id
        if self.control == "refuses":
            raise CallFailed("500")
        self.received.append(Effect(self.now, uid, call.key, self.shown.get(uid, "")))
        self.fuse.step()
        if self.control == "lost":
            raise CallFailed("timeout")
        return CallResult()

    async def analyse(self) -> None:
        self.now += 1
        gpus = [gpu(n, tenant(pod, self.verdicts[pod], uid=self.uid(pod))) for n, pod in enumerate(PODS)]
        self.shown = {self.uid(pod): self.verdicts[pod] for pod in PODS}
        for machine, _ in self.replicas:
            await self.surviving(machine, machine.ticks.follow(analysis(self.now, *gpus)))

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
                await self.surviving(machine, machine.deliveries.due())

    async def window(self) -> None:
        self.now += WINDOW
        await self.analyse()
        await self.deliver()


async def act(life: Life, what: str, of) -> None:
    """One step of a random life: `what` happens to `of`."""
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
        if lease.leads == (what == "stop_elsewhere"):  # any replica can stop; the leader does everything else
            continue
        try:
            if what == "exempt":
                await machine.case_actions.exempt(life.uid(of), "ops")
                life.forbidden.add(life.uid(of))
            else:
                await machine.case_actions.stop("ops", start=what == "go")
                life.stopped = what != "go"
        except (HistoryDown, NotLeader, CaseUnfit, Killed):
            continue
        except Exception as e:
            if type(e).__name__ != "Unknown":
                raise
            continue
        return


L = TypeVar("L", bound=Life)


@asynccontextmanager
async def begun(kind: type[L], file: Path) -> AsyncIterator[L]:
    """A life of this kind, over a new store in this file."""
    engine = open_engine(str(file))
    assert engine is not None
    try:
        yield kind(engine)
    finally:
        await engine.close()


def live(kind: type[L], story: Callable[[L], Awaitable[None]]) -> None:
    """Run a story of a life from its beginning; each example of hypothesis has a life of its own."""

    async def run(room: str) -> None:
        async with begun(kind, Path(room) / "store.db") as life:
            await story(life)

    with TemporaryDirectory() as room:
        asyncio.run(run(room))
