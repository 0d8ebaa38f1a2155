"""A planned fleet in this process: real agents, a real cluster exporter and a real analyzer, over small stand-ins.

The hardware is files, the API server is the demo's, and all clocks are one clock that runs ahead hour by hour until it
is right. The hours of the past are read from the plan and saved by the analyzer itself; the last hour is scraped.
"""

import asyncio
import contextlib
import hashlib
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx2

from tests.audit.hardware import Hardware, node_object, pod_object, quota_object, waiting_object
from tests.audit.past import SAMPLES, reading
from tests.audit.plan import Plan
from tests.http.serving import SOON, until
from tests.services.analyzer.analyzing import Running
from vgpuscope import config as configuration
from vgpuscope.http import address
from vgpuscope.http.server import HttpServer
from vgpuscope.model.analysis import Reading
from vgpuscope.model.consistency import AuditReport
from vgpuscope.runtime.lifecycle import Lifecycle
from vgpuscope.services.agent.process import Agent
from vgpuscope.services.agent.waits import SampleWaits
from vgpuscope.services.analyzer.process import Analyzer
from vgpuscope.services.analyzer.settings.settings import Settings
from vgpuscope.services.analyzer.sources.own_scrapes import ScrapeSource
from vgpuscope.services.analyzer.sources.sources import Sources
from vgpuscope.services.audit import audit as auditor
from vgpuscope.services.cluster import process as cluster
from vgpuscope.services.frame import Frame
from vgpuscope.sim import podresources
from vgpuscope.sim.agent import _flags as agent_flags
from vgpuscope.sim.binding import Binding
from vgpuscope.sim.kubeapi import KubeApi, Objects
from vgpuscope.sources.fleet.targets import StaticTargets
from vgpuscope.sources.node.podfile import PodFile

HOUR = 3600.0
TOKEN = "a-token-of-the-worlds"
PATIENT = SampleWaits(regions=SOON, profiling=SOON, host=SOON)


class Clock:
    """The one clock of a world: `behind` seconds late."""

    def __init__(self) -> None:
        self.behind = 0.0

    def __call__(self) -> float:
        return time.time() - self.behind


class Node:
    """One node with its agent, which takes a sample when it is told to."""

    def __init__(self, hardware: Hardware, clock: Clock) -> None:
        self.hardware, self.root = hardware, hardware.root
        self.name, self.agent_state = hardware.node.name, hardware.node.agent
        flags = agent_flags(self.root, "127.0.0.1:0", "none")
        loaded = configuration.load(flags=flags | {"agent.driver_deadline": SOON}, environ={})
        hardware.tick(clock())
        binding = Binding(self.root / "devices.json")
        self.agent = Agent(loaded.config.agent, binding=binding, waits=PATIENT, clock=clock, wall=clock)
        self._clock = clock

    async def sample(self) -> None:
        self.hardware.tick(self._clock())
        await self.agent._read_grants()
        self.agent._latest = await asyncio.to_thread(self.agent.sampler.cycle)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """The URL of its agent."""
        kubelet = await podresources.serve(self.root / "pod-resources" / "kubelet.sock", self.hardware.grants)
        pods = PodFile(str(self.root / "pods.json"), node=self.hardware.node.name)
        pods._refresh()
        self.agent._take_pods(pods._page.items)
        try:
            async with _served(self.agent.app(None)) as url:
                yield url
        finally:
            await self.agent.close()
            kubelet.close()
            await kubelet.wait_closed()


class PlannedSource(ScrapeSource):
    """Reads the past from the plan, and the last hour from scrapes that are made when it is told to."""

    hour: int | None = None  # None: the last one

    def __init__(self, plan: Plan, urls: dict[str, str], clock: Clock) -> None:
        """`urls` are the addresses of the agents, by node."""
        super().__init__(
            targets=StaticTargets(tuple(urls.values())),
            interval=HOUR / SAMPLES,
            keep=HOUR,
            timeout=SOON,
            clock=clock,
        )
        self._plan, self._urls = plan, urls

    @property
    def tried(self) -> bool:
        return True

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def ready(self) -> None:
        return None

    async def begin(self) -> None:
        """Know the targets; none of them is scraped by itself."""
        async with asyncio.TaskGroup() as tasks:
            self._follow = _never  # type: ignore[method-assign,assignment]
            await self._refresh(tasks)

    async def scrape(self) -> None:
        await asyncio.gather(*(self._scrape(target) for target in self._known.values()))

    async def read(self, *, end: float, seconds: float) -> Reading:
        if self.hour is None:
            return await super().read(end=end, seconds=seconds)
        return reading(self._plan, self.hour, end=end, seconds=seconds, targets=self._urls)


async def _never(_: object) -> None:
    return None


@dataclass
class World:
    """A running fleet, and how one asks it."""

    plan: Plan
    clock: Clock
    analyzer: Running
    agents: list[str]  # URLs, also of agents that do not answer
    cluster: str
    history: Path
    admin: dict[str, str] = field(default_factory=dict)  # headers
    mine: dict[str, str] = field(default_factory=dict)  # of a caller who sees one namespace
    namespace: str = ""  # that one

    @property
    def url(self) -> str:
        return str(self.analyzer.client.base_url).rstrip("/")

    async def renew(self) -> None:
        """Another analysis; nothing that was made before is shown again."""
        self.analyzer.analyzer.console._charts.clear()
        await self.analyzer.analyse()

    async def get(self, path: str, headers: dict[str, str] | None = None) -> Any:
        answer = await self.analyzer.get(path, headers=self.admin if headers is None else headers)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text}"
        return answer.json()


Caller = Literal["all", "mine", "two"]  # who sees all namespaces, one of them, or two


async def audited(found: World, *, caller: Caller = "all") -> AuditReport:
    """What the auditor says to a caller. The fleet stands still: one look."""
    targets = auditor.AuditTargets(
        analyzer=found.url,
        cluster=found.cluster if caller == "all" else None,
        agents=tuple(found.agents) if caller == "all" else (),
        token=f"{TOKEN}-{caller}",
        within=10 * SOON,
        commands=False,
    )
    return await auditor.audit(targets, rounds=1)


@contextlib.asynccontextmanager
async def world(plan: Plan) -> AsyncIterator[World]:
    """The fleet of a plan, after its last analysis."""
    async with contextlib.AsyncExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp")))  # short: for the names of sockets
        clock = Clock()
        nodes = [
            Node(Hardware(_made(root / one.name), one, plan), clock) for one in plan.nodes if one.agent != "absent"
        ]
        urls = [await stack.enter_async_context(node.serving()) for node in nodes]
        exporter = await stack.enter_async_context(_exporter(plan, root, clock))
        targets = {node.name: url for node, url in zip(nodes, urls, strict=True)}
        targets |= {node.name: f"http://127.0.0.1:9/{node.name}" for node in nodes if node.agent_state == "dead"}
        found = await stack.enter_async_context(_analyzer(plan, root, clock, targets, exporter))
        await _lived(plan, nodes, found, clock)
        yield found


def _made(path: Path) -> Path:
    (path / "pod-resources").mkdir(parents=True)
    return path


async def _lived(plan: Plan, nodes: list[Node], found: World, clock: Clock) -> None:
    """Let the hours go by: those of the past, which are planned, and the last one, which is scraped."""
    source = found.analyzer.analyzer.source()
    assert isinstance(source, PlannedSource)
    await found.analyzer.analysed()
    for hour in range(-plan.hours + 1, 0):
        if hour not in plan.missing:
            source.hour, clock.behind = hour, -hour * HOUR
            await found.analyzer.analyse()
    source.hour = None
    await source.begin()
    stopped = {node for node in nodes if node.agent_state == "stopped"}
    for number in range(SAMPLES + 1):
        clock.behind = HOUR - number * HOUR / SAMPLES
        await asyncio.gather(*(node.sample() for node in nodes if number == 0 or node not in stopped))
        await source.scrape()
    await found.analyzer.analyse()


@contextlib.asynccontextmanager
async def _exporter(plan: Plan, root: Path, clock: Clock) -> AsyncIterator[str]:
    objects = Objects()
    objects.replace("nodes", [node_object(node) for node in plan.nodes])
    pods = [pod_object(plan, pod) for pod in plan.current if pod.listed]
    objects.replace("pods", [*pods, *(waiting_object(plan, number) for number in range(len(plan.waiting)))])
    objects.replace("resourcequotas", [quota_object(name, memory) for name, memory in plan.quotas.items()])
    api = KubeApi(objects)
    async with api.serve():
        api.write_kubeconfig(root / "kubeconfig")
        flags = {
            "cluster.listen": "127.0.0.1:0",
            "cluster.kubeconfig": str(root / "kubeconfig"),
            "cluster.families": "all",
        }
        config = configuration.load(flags=flags, environ={}).config.cluster
        exporter = cluster.ClusterExporter(config, wall=clock)
        async with _running(exporter, config) as url:
            await until(lambda: not exporter.readiness().missing)
            yield url


@contextlib.asynccontextmanager
async def _served(app: Any) -> AsyncIterator[str]:
    server = HttpServer(app, sock=address.bind("127.0.0.1:0"))
    task = asyncio.create_task(server.run())
    try:
        await server.started()
        yield server.url
    finally:
        server.stop()
        async with asyncio.timeout(SOON):
            await task


@contextlib.asynccontextmanager
async def _running(service: Any, config: Any) -> AsyncIterator[str]:
    life = Lifecycle(drain=0.0)
    frame = Frame(service, life, config)
    task = asyncio.create_task(frame.run())
    try:
        await frame.server.started()
        yield frame.server.url
    finally:
        life.stop()
        async with asyncio.timeout(SOON):
            with contextlib.suppress(asyncio.CancelledError):
                await task


@contextlib.asynccontextmanager
async def _analyzer(
    plan: Plan, root: Path, clock: Clock, targets: dict[str, str], exporter: str
) -> AsyncIterator[World]:
    namespaces = plan.tenant_namespaces or ["nobody"]
    tokens = "".join(
        f"  - {{name: {name}, sha256: {hashlib.sha256(f'{TOKEN}-{name}'.encode()).hexdigest()}, role: admin{more}}}\n"
        for name, more in (
            ("mine", f", namespaces: [{namespaces[0]}]"),
            ("two", f", namespaces: [{', '.join(namespaces[:2])}]"),
            ("all", ""),
        )
    )
    (root / "web.yaml").write_text(f"bearer_tokens:\n{tokens}")
    flags: dict[str, object] = {
        "analyzer.listen": "127.0.0.1:0",
        "analyzer.targets": list(targets.values()),
        "analyzer.cluster_url": exporter,
        "analyzer.history": str(root / "history.db"),
        "analyzer.web_config_file": str(root / "web.yaml"),
        "analyzer.scrape_interval": HOUR / SAMPLES,
        "prometheus.query_condition": "{}",
        "prometheus.time_window_min": 60,
        "scheduler.interval": HOUR,
    }
    settings = Settings(flags=flags, environ={}, file=None)
    source = PlannedSource(plan, targets, clock)
    if plan.hours:
        source.hour, clock.behind = -plan.hours, plan.hours * HOUR
    else:
        source.hour, clock.behind = -1, HOUR
    analyzer = Analyzer(settings, sources=Sources(settings.config, make=lambda _: source), lease=HOUR, wall=clock)
    async with _running(analyzer, settings.config.analyzer) as url:
        client = httpx2.AsyncClient(base_url=url, timeout=SOON)
        async with client:
            yield World(
                plan=plan,
                clock=clock,
                analyzer=Running(analyzer, client, source, Lifecycle()),  # type: ignore[arg-type]
                agents=list(targets.values()),
                cluster=exporter,
                history=root / "history.db",
                admin={"authorization": f"Bearer {TOKEN}-all"},
                mine={"authorization": f"Bearer {TOKEN}-mine"},
                namespace=namespaces[0],
            )
