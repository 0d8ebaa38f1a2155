"""The node agent: sources → ledger, once a second. A page is rendered when scraped or due; a scrape reads no source.

nvml ───────┐
regions ────┤
/proc ──────┼──► Sampler.cycle() ──► NodeSample ───► ExpositionPage ──► /metrics
pods ───────┤      (a thread)            └───────────────────────────► /api/v1/node
podresources┤  (with slices and claims of the API server, where containers have claims)
profiling ──┘  (the driver's own counters, or a dcgm-exporter on the node)
"""

import asyncio
import gc
import logging
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from vgpuscope.config import AgentConfig, Config, SettingsFile, pods_source
from vgpuscope.formats.kube.lists import ObjectFault
from vgpuscope.http.app import App, Readiness
from vgpuscope.http.operations import HttpCall, links, routes
from vgpuscope.http.parameters import NoQuery
from vgpuscope.logic.node.snapshot import NodeSample
from vgpuscope.model.activity import DcgmPage
from vgpuscope.model.errors import AnnotationMalformed, SourceDown
from vgpuscope.model.pod import Grant, Pod
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.model.service import KUBELET_PORT
from vgpuscope.model.usage import NodeSnapshot
from vgpuscope.runtime.heap import one_heap
from vgpuscope.runtime.log import OnChange
from vgpuscope.services import frame
from vgpuscope.services.agent import command_lines
from vgpuscope.services.agent.api import TITLE, operations
from vgpuscope.services.agent.claims import Claims, ClaimSource
from vgpuscope.services.agent.sampler import Sampler
from vgpuscope.services.agent.waits import WAITS, SampleWaits
from vgpuscope.services.frame import Loops, Restartable, Service
from vgpuscope.sources.node.ratio import RatioFile
from vgpuscope.views.exposition.page import ExpositionPage
from vgpuscope.worker import Worker

if TYPE_CHECKING:
    from vgpuscope.services.frame import Guard
    from vgpuscope.sources.node.dcgm import DcgmExporter

T = TypeVar("T")
log = logging.getLogger(__name__)

RATIO_FILE = "gpu_allocation.txt"  # where k8s-vgpu-monitor looked for it: beside the program
_RETRY = (1.0, 30.0)  # seconds: first and longest pause before a source is tried again
_GRANTS_EVERY = 10.0  # seconds; sooner when the pods of the node change
_HEAR_WITHIN = 5.0  # seconds that the first sample waits for pods and kubelet: a name that comes later is a new series
_SWITCH = 0.0001  # seconds until a scrape that arrives during a sample gets the interpreter; see docs/performance.md
_SAMPLE = "sample"  # the name of that unit of work
_SUBSTITUTED = {"claims"}  # without the API server, devices of claims are identified by their names
_TIDY_EVERY = 60  # samples
_GC_EVERY = 10_000  # objects, in case that many accumulate before tidy() runs


class PodSource(Protocol):
    """A source of the pods of this node: API server, kubelet or file."""

    @property
    def faults(self) -> tuple[ObjectFault, ...]:
        """What could not be read in the current pods."""

    def follow(self) -> AsyncIterator[tuple[Pod, ...]]:
        """The complete set of pods, again at every change or poll; raises when it cannot be read."""


def main(config: Config, *, once: bool, file: SettingsFile) -> int:
    """`vgpuscope agent`."""
    return run(config, once=once, file=file)


def run(
    config: Config,
    *,
    once: bool = False,
    binding: Any = None,
    file: SettingsFile | None = None,
    waits: SampleWaits = WAITS,
) -> int:
    """Run the agent until a signal; with `once`, print one sample. In simulations, `binding` replaces the driver."""
    tune()
    if once:
        frame.begin(config, file)
        return asyncio.run(_once(Agent(config.agent, binding=binding, waits=waits)))
    return frame.run(
        lambda: Agent(config.agent, binding=binding, waits=waits), config=config, listening=config.agent, file=file
    )


def tune() -> None:
    """Tune the interpreter and the C library for this process."""
    sys.setswitchinterval(_SWITCH)
    gc.set_threshold(_GC_EVERY)
    gc.freeze()  # imported objects stay, so tidy() need not scan them
    one_heap()  # saves 1 to 2 MB


def tidy(sample: int) -> None:
    """Between two samples, from time to time, collect garbage in cycles: the driver's binding leaves some."""
    if sample % _TIDY_EVERY == 0:
        gc.collect()


async def _once(agent: "Agent") -> int:
    listening = [asyncio.ensure_future(loop.run()) for loop in agent.listeners().values()]
    try:
        await agent.heard()
        _, page = await asyncio.to_thread(agent.sampler.cycle)
    finally:
        for task in listening:
            task.cancel()
        await agent.close()
    sys.stdout.buffer.write(page.text())
    sys.stdout.buffer.flush()
    return 0


class Agent(Service):
    """The parts of one agent, and its last sample."""

    name = "agent"

    def __init__(
        self,
        config: AgentConfig,
        *,
        binding: Any = None,
        retry: tuple[Seconds, Seconds] = _RETRY,
        waits: SampleWaits = WAITS,
        clock: Callable[[], Seconds] = time.monotonic,
        wall: Callable[[], UnixTime] = time.time,
    ) -> None:
        """`retry` is the first and the longest pause before pods or the dcgm-exporter are read again."""
        super().__init__()
        self._config, self._retry = config, retry
        self._clock, self._wall = clock, wall
        self._latest: tuple[NodeSample, ExpositionPage] | None = None
        self._stop = threading.Event()
        self._pods_changed = asyncio.Event()
        # each is set after the first answer or error
        self._heard = {name: asyncio.Event() for name in ("pods", "podresources", "dcgm")}
        self.sampler = Sampler(
            node=config.node_name,
            families=config.families,
            containers_dir=os.path.join(config.hook_path, "containers"),
            proc_root=config.proc_root,
            window=config.window,
            driver_deadline=config.driver_deadline,
            ratio=_ratio(config),
            cgroup_root=None if config.cgroup_root == "none" else config.cgroup_root,
            command_line=command_lines.reader(config),
            binding=binding,
            clock=clock,
            wall=wall,
            waits=waits,
            counters=self.counters,
        )
        self._tell = OnChange(log)
        self._sampling, self._hearing = Worker("sampler"), Worker("xids")
        self._pods = _pod_source(config)
        self._grants = _grant_source(config)
        self._claims = Claims(
            _claim_source(config),
            node=config.node_name,
            resync=config.resync_interval,
            health=self.sampler.source_health["claims"],
            failed=lambda error: self.sampler.failed("claims", error),
            clock=clock,
        )
        self._dcgm = self._exporter(config)
        source_health = self.sampler.source_health
        if self._pods is None:
            source_health["pods"].none("--pods none")
            self._heard["pods"].set()
        if self._grants is None:
            source_health["podresources"].none("--podresources-socket none")
            self._heard["podresources"].set()
        if self._dcgm is None:
            source_health["dcgm"].none("--dcgm none")
            self._heard["dcgm"].set()
        if not isinstance(_ratio(config), RatioFile):
            source_health["ratio"].none("no ratio file")

    def loops(self) -> Loops:
        """The loops that run as long as the agent does."""
        return {"sampler": self._sample, "xids": Restartable(self._xids), **self.listeners()}

    def listeners(self) -> Mapping[str, Restartable]:
        """The loops that keep pods and grants up to date; while a loop is down, the last known values stay."""
        loops = {}
        if self._pods is not None:
            loops["pods"] = Restartable(self._follow_pods)
        if self._grants is not None:
            loops["podresources"] = Restartable(self._poll_grants)
        if self._dcgm is not None:
            loops["dcgm"] = Restartable(self._follow_dcgm)
        return loops

    def about(self) -> dict[str, object]:
        return {"node": self._config.node_name, "families": ",".join(self._config.families)}

    def app(self, guard: "Guard | None") -> App:
        """The agent's HTTP application."""
        table = operations(self._node, guarded=lambda: guard is not None and guard.guarded)
        app = App(
            title=TITLE,
            service=self.name,
            metrics=lambda: self._latest[1] if self._latest else _NO_PAGE,
            ready=self.readiness,
            guard=guard,
            routes=routes(table),
            links=links(table),
        )
        self.sampler.served = app.scrapes.served
        return app

    def readiness(self) -> Readiness:
        """Ready once a sample was taken and every source is up, known to be absent, or has a substitute."""
        if self._latest is None:
            return Readiness(missing=("first sample",))
        if _SAMPLE in self.sampler.units.failing:
            return Readiness(missing=("a new sample",))
        sources = self._latest[0].outline.sources
        down = [s.source for s in sources if not s.up and not s.absent and s.source not in _SUBSTITUTED]
        return Readiness(missing=tuple(f"source {source}" for source in down))

    async def heard(self) -> None:
        """Wait until pods and kubelet have answered once, with or without success, but only for a limited time."""
        waits = [asyncio.ensure_future(event.wait()) for event in self._heard.values()]
        _, late = await asyncio.wait(waits, timeout=_HEAR_WITHIN)
        for wait in late:
            wait.cancel()

    async def close(self) -> None:
        """Let the threads end."""
        self._stop.set()
        await self._claims.close()

    async def _node(self, call: HttpCall[NoQuery, None]) -> NodeSnapshot:  # noqa: ARG002 - the shape of a handler
        if self._latest is None:
            raise SourceDown("no sample has been taken yet", hint="Retry after 1 s.")
        return self._latest[0].complete()

    async def _sample(self) -> None:
        """Take samples on a dedicated thread, one after the other."""
        await self.heard()
        try:
            await self._sampling.do(self._beat)
        finally:
            self._stop.set()

    def _beat(self) -> None:
        pause = 0.0
        while not self._stop.wait(pause):
            began = self._clock()
            with self.sampler.units.isolated(_SAMPLE):  # if it fails, the last sample is shown with its own time
                self._latest = self.sampler.cycle()
                tidy(self._latest[0].outline.samples)
            pause = max(0.0, self._config.sample_interval - (self._clock() - began))

    async def _xids(self) -> None:
        """Listen for XIDs on a dedicated thread; an error that ends the thread ends this loop."""
        await self._hearing.do(lambda: self.sampler.nvml.listen(self._stop))

    async def _follow_pods(self) -> None:
        """Keep the pods of the node up to date; while they cannot be read, the last known ones stay."""
        assert self._pods is not None
        await self._follow("pods", self._pods.follow, self._take_pods)

    async def _follow_dcgm(self) -> None:
        """Keep the profiling values of a dcgm-exporter up to date; values that are too old are no longer shown."""
        assert self._dcgm is not None
        await self._follow("dcgm", self._dcgm.follow, self._take_dcgm)

    async def _follow(self, name: str, follow: Callable[[], AsyncIterator[T]], take: Callable[[T], None]) -> None:
        """Pass on what a source yields, for ever; after a failure, try again after a growing pause."""
        pause = self._retry[0]
        while True:
            try:
                async for found in follow():
                    take(found)
                    pause = self._retry[0]
            except SourceDown as error:
                self.sampler.failed(name, error)
            except Exception as error:
                self.sampler.broken(name, error)
            self._heard[name].set()
            await asyncio.sleep(pause)
            pause = min(pause * 2, self._retry[1])

    def _take_dcgm(self, page: DcgmPage) -> None:
        from vgpuscope.logic.node.dcgm import check_usable

        # first: what is rejected is counted, even if that is everything
        found = self.sampler.profiling.take_dcgm(page)
        check_usable(found, {gpu.uuid for gpu in self.sampler.nvml.identities()})
        self.sampler.source_health["dcgm"].good()
        self._heard["dcgm"].set()

    def _exporter(self, config: AgentConfig) -> "DcgmExporter | None":
        """The configured dcgm-exporter. Its module is imported only when needed: an HTTP client costs memory."""
        if config.dcgm == "none":
            return None
        from vgpuscope.sources.node.dcgm import DcgmExporter, exporter_url, page_url

        auto, _, namespace = config.dcgm.partition(":")
        if auto == "auto":
            return DcgmExporter(lambda: exporter_url(self.sampler.pods, namespace=namespace), clock=self._wall)
        url = page_url(config.dcgm)
        return DcgmExporter(lambda: url, clock=self._wall)

    def _take_pods(self, pods: tuple[Pod, ...]) -> None:
        if pods != self.sampler.pods:
            self._pods_changed.set()
        self.sampler.pods = pods
        self.sampler.source_health["pods"].good()
        self._tell_faults()
        self._heard["pods"].set()

    def _tell_faults(self) -> None:
        """Log and count each annotation that cannot be read, once."""
        assert self._pods is not None
        for fault in self._pods.faults:
            message = f"{fault.object}: {fault.reason}"
            if self._tell.tell(fault.uid, message, level=logging.WARNING, message="malformed", **_what(fault)):
                self.sampler.count(AnnotationMalformed(message))
        self._tell.keep({fault.uid for fault in self._pods.faults})

    async def _read_grants(self) -> None:
        assert self._grants is not None
        began = time.perf_counter()
        try:
            grants = await self._grants.read()
            self.sampler.source_health["podresources"].good(time.perf_counter() - began)
            self.sampler.grants = await self._resolved(grants)
        except SourceDown as error:
            self.sampler.failed("podresources", error, time.perf_counter() - began)
        except Exception as error:
            self.sampler.broken("podresources", error)
        self._heard["podresources"].set()

    async def _resolved(self, grants: tuple[Grant, ...]) -> tuple[Grant, ...]:
        try:
            return await self._claims.resolve(grants)
        except Exception as error:
            self.sampler.broken("claims", error)
            return grants

    async def _poll_grants(self) -> None:
        while True:
            await self._read_grants()
            try:
                async with asyncio.timeout(_GRANTS_EVERY):
                    await self._pods_changed.wait()
                await asyncio.sleep(1.0)  # the kubelet allocates shortly after the pod was bound
            except TimeoutError:
                pass
            self._pods_changed.clear()


def _what(fault: ObjectFault) -> dict[str, str]:
    return {"error_code": AnnotationMalformed.code, "object": fault.object, "reason": fault.reason}


def _ratio(config: AgentConfig) -> float | RatioFile:
    """The ratio of the flag, of the configured file, or of gpu_allocation.txt if it exists; else 1."""
    if config.ratio is not None:
        return config.ratio
    if config.ratio_file is not None:
        return RatioFile(config.ratio_file)
    return RatioFile(RATIO_FILE) if os.path.exists(RATIO_FILE) else 1.0


def _pod_source(config: AgentConfig) -> PodSource | None:
    """The configured source of pods. Its module is imported only when needed: an HTTP client costs memory."""
    kind, keys = pods_source(config, environ=os.environ), None
    if kind == "none":
        return None
    if config.seal_keys != "none":
        from vgpuscope.sources.seal_keys import seals

        keys = seals(config.seal_keys)
    if kind.startswith("file:"):
        from vgpuscope.sources.node.podfile import PodFile

        return PodFile(kind.removeprefix("file:"), node=config.node_name, seals=keys)
    if kind == "kubelet":
        from vgpuscope.sources.node.kubelet import KubeletPods

        return KubeletPods(
            url=config.kubelet_url or f"https://{config.node_name}:{KUBELET_PORT}",
            ca_file=config.kubelet_ca,
            insecure=config.kubelet_insecure,
            seals=keys,
        )
    from vgpuscope.sources.kube import KubePods

    return KubePods(node=config.node_name, kubeconfig=config.kubeconfig, resync=config.resync_interval, seals=keys)


def _claim_source(config: AgentConfig) -> Callable[[], ClaimSource] | None:
    """Opens the source of slices and claims; None: the agent has no access to an API server."""
    if pods_source(config, environ=os.environ) != "kube":
        return None

    def opened() -> ClaimSource:
        from vgpuscope.sources.node.claims import KubeClaims

        return KubeClaims(node=config.node_name, kubeconfig=config.kubeconfig)

    return opened


def _grant_source(config: AgentConfig) -> Any:
    if config.podresources_socket == "none":
        return None
    from vgpuscope.sources.node.podresources import PodResources

    return PodResources(config.podresources_socket)


_NO_PAGE = ExpositionPage()
