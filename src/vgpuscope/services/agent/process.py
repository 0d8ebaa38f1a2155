"""The node agent: sources → ledger, once a second. A page is rendered when scraped or due; a scrape reads no source.

nvml ───────┐
regions ────┤
/proc ──────┼──► Sampler.cycle() ──► NodeSample ───► Page ──► /metrics
pods ───────┤      (a thread)            └─────────────────► /api/v1/node
podresources┘
"""

import asyncio
import gc
import logging
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from vgpuscope.config import AgentConfig, Config, SettingsFile, pods_source
from vgpuscope.formats.kube.lists import ObjectFault
from vgpuscope.http.operations import Call, links, routes
from vgpuscope.http.parameters import NoQuery
from vgpuscope.http.server import App, Readiness, make_app
from vgpuscope.logic.node.snapshot import NodeSample
from vgpuscope.model.errors import AnnotationMalformed, SourceDown
from vgpuscope.model.pod import Pod
from vgpuscope.model.usage import NodeSnapshot
from vgpuscope.runtime.heap import one_heap
from vgpuscope.runtime.log import OnChange
from vgpuscope.services import frame
from vgpuscope.services.agent.api import TITLE, operations
from vgpuscope.services.agent.sampler import Sampler
from vgpuscope.services.frame import Loops, Restartable, Service
from vgpuscope.sources.node.ratio import RatioFile
from vgpuscope.views.exposition.page import Page
from vgpuscope.worker import Worker

if TYPE_CHECKING:
    from vgpuscope.services.frame import Guard

log = logging.getLogger(__name__)

RATIO_FILE = "gpu_allocation.txt"  # where k8s-vgpu-monitor looked for it: beside the program
_RETRY = (1.0, 30.0)  # seconds: first and longest pause before a source is tried again
_GRANTS_EVERY = 10.0  # seconds; sooner when the pods of the node change
_HEAR_WITHIN = 5.0  # seconds that the first sample waits for pods and kubelet: a name that comes later is a new series
_SWITCH = 0.0001  # seconds until a scrape that arrives during a sample gets the interpreter; see docs/performance.md
_SAMPLE = "sample"  # the name of that unit of work
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


def run(config: Config, *, once: bool = False, binding: Any = None, file: SettingsFile | None = None) -> int:
    """Run the agent until a signal; with `once`, print one sample. In simulations, `binding` replaces the driver."""
    tune()
    if once:
        frame.begin(config, file)
        return asyncio.run(_once(config.agent, binding))
    return frame.run(lambda: Agent(config.agent, binding=binding), config=config, listening=config.agent, file=file)


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


async def _once(config: AgentConfig, binding: Any) -> int:
    agent = Agent(config, binding=binding)
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

    def __init__(self, config: AgentConfig, *, binding: Any = None) -> None:
        super().__init__()
        self._config = config
        self._latest: tuple[NodeSample, Page] | None = None
        self._stop = threading.Event()
        self._pods_changed = asyncio.Event()
        self._heard = {"pods": asyncio.Event(), "podresources": asyncio.Event()}  # set after the first answer or error
        self.sampler = Sampler(
            node=config.node_name,
            families=config.families,
            containers_dir=os.path.join(config.hook_path, "containers"),
            proc_root=config.proc_root,
            window=config.window,
            driver_deadline=config.driver_deadline,
            ratio=_ratio(config),
            binding=binding,
            counters=self.counters,
        )
        self._tell = OnChange(log)
        self._sampling, self._hearing = Worker("sampler"), Worker("xids")
        self._pods = _pod_source(config)
        self._grants = _grant_source(config)
        source_health = self.sampler.source_health
        if self._pods is None:
            source_health["pods"].none("--pods none")
            self._heard["pods"].set()
        if self._grants is None:
            source_health["podresources"].none("--podresources-socket none")
            self._heard["podresources"].set()
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
        return loops

    def about(self) -> dict[str, object]:
        return {"node": self._config.node_name, "families": ",".join(self._config.families)}

    def app(self, guard: "Guard | None") -> App:
        """The agent's HTTP application."""
        table = operations(self._node, protected=guard is not None)
        return make_app(
            title=TITLE,
            service=self.name,
            metrics=lambda: self._latest[1] if self._latest else _NO_PAGE,
            ready=self.readiness,
            guard=guard,
            routes=routes(table),
            links=links(table),
        )

    def readiness(self) -> Readiness:
        """Ready once a sample was taken and every source is up or known to be absent."""
        if self._latest is None:
            return Readiness(missing=("first sample",))
        if _SAMPLE in self.sampler.units.failing:
            return Readiness(missing=("a new sample",))
        down = [s.source for s in self._latest[0].outline.sources if not s.up and not s.absent]
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

    async def _node(self, call: Call[NoQuery, None]) -> NodeSnapshot:  # noqa: ARG002 - the shape of a handler
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
            began = time.monotonic()
            with self.sampler.units.isolated(_SAMPLE):  # if it fails, the last sample is shown with its own time
                self._latest = self.sampler.cycle()
                tidy(self._latest[0].outline.samples)
            pause = max(0.0, self._config.sample_interval - (time.monotonic() - began))

    async def _xids(self) -> None:
        """Listen for XIDs on a dedicated thread; an error that ends the thread ends this loop."""
        await self._hearing.do(lambda: self.sampler.nvml.listen(self._stop))

    async def _follow_pods(self) -> None:
        """Keep the pods of the node up to date; while they cannot be read, the last known ones stay."""
        assert self._pods is not None
        pause = _RETRY[0]
        while True:
            try:
                async for pods in self._pods.follow():
                    self._take_pods(pods)
                    pause = _RETRY[0]
            except SourceDown as error:
                self.sampler.failed("pods", error)
            except Exception as error:
                self.sampler.broken("pods", error)
            self._heard["pods"].set()
            await asyncio.sleep(pause)
            pause = min(pause * 2, _RETRY[1])

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
            self.sampler.grants = await self._grants.read()
            self.sampler.source_health["podresources"].good(time.perf_counter() - began)
        except SourceDown as error:
            self.sampler.failed("podresources", error, time.perf_counter() - began)
        except Exception as error:
            self.sampler.broken("podresources", error)
        self._heard["podresources"].set()

    async def _poll_grants(self) -> None:
        while True:
            await self._read_grants()
            try:
                await asyncio.wait_for(self._pods_changed.wait(), _GRANTS_EVERY)
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
    kind = pods_source(config, environ=os.environ)
    if kind == "none":
        return None
    if kind.startswith("file:"):
        from vgpuscope.sources.node.podfile import PodFile

        return PodFile(kind.removeprefix("file:"), node=config.node_name)
    if kind == "kubelet":
        from vgpuscope.sources.node.kubelet import KubeletPods

        return KubeletPods(
            url=config.kubelet_url or f"https://{config.node_name}:10250",
            ca_file=config.kubelet_ca,
            insecure=config.kubelet_insecure,
        )
    from vgpuscope.sources.kube import KubePods

    return KubePods(node=config.node_name, kubeconfig=config.kubeconfig, resync=config.resync_interval)


def _grant_source(config: AgentConfig) -> Any:
    if config.podresources_socket == "none":
        return None
    from vgpuscope.sources.node.podresources import PodResources

    return PodResources(config.podresources_socket)


_NO_PAGE = Page()
