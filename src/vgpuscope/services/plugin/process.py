"""The device plugin: offers this node's GPUs to the kubelet and to HAMi's scheduler, and gives them to containers.

driver ──► HealthTracker ──┬─► devices ──► kubelet (ListAndWatch)
XIDs ──────┘               └─► annotations of the node ──► HAMi's scheduler, or our extender
kubelet (Allocate) ──► Allocator ──► environment and mounts; annotations of the pod; lock of the node; event
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from vgpuscope.catalog import plugin as catalog
from vgpuscope.config import Config, PluginConfig, SettingsFile
from vgpuscope.http.app import App, Readiness
from vgpuscope.logic.plugin.devices import offered
from vgpuscope.logic.plugin.health import HealthTracker
from vgpuscope.logic.plugin.injection import LOCKS, HamiCore
from vgpuscope.logic.plugin.registration import placed
from vgpuscope.model.device import DeviceReading
from vgpuscope.model.errors import SourceDown
from vgpuscope.model.plugin import RESOURCE, GpuState, KubeletView, OfferedDevice, PluginGpu
from vgpuscope.model.quantity import DeviceUUID, Seconds, UnixTime
from vgpuscope.runtime.build import this_build
from vgpuscope.runtime.log import OnChange, error_fields, fields
from vgpuscope.runtime.units import Units
from vgpuscope.services.driver_probe import DriverProbe
from vgpuscope.services.frame import Loops, Restartable, Service, run
from vgpuscope.services.plugin.allocation import Allocator
from vgpuscope.services.plugin.cluster import ClusterSide
from vgpuscope.services.plugin.feedback import EVERY, Feedback
from vgpuscope.services.plugin.given import GivenGpus
from vgpuscope.services.plugin.leftovers import Leftovers
from vgpuscope.services.plugin.node import NodeAnnotations
from vgpuscope.services.plugin.registration import Registration
from vgpuscope.sinks.container_dirs import ContainerDirs
from vgpuscope.sources.kube import check_kubeconfig
from vgpuscope.sources.node.nvml.driver import Nvml
from vgpuscope.sources.node.podresources import PodResources
from vgpuscope.sources.plugin.kubelet import KubeletSide
from vgpuscope.sources.plugin.numa import numa_nodes
from vgpuscope.sources.seal_keys import seals
from vgpuscope.views.exposition.sharded import ShardedPage
from vgpuscope.views.plugin.metrics import PluginStatus, gpu_samples, plugin_samples
from vgpuscope.worker import Worker

if TYPE_CHECKING:
    from vgpuscope.services.frame import Guard

log = logging.getLogger(__name__)

TITLE = "vgpuscope plugin"
_DEADLINE: Seconds = 4.0  # of one read: with a pause of 5 s before it and one more read, still within 15 s
_NODE_WITHIN: Seconds = 10.0
_GRACE: Seconds = 20.0  # to end: an allocation takes several requests to the API server; the kubelet waits 30 s
_VIEW_WITHIN: Seconds = 2.0  # the kubelet waits for devices meanwhile
_RELEASE_WITHIN: Seconds = 3.0
_TRY_AGAIN: Seconds = 10.0  # at most, a GPU that is down: recovery is known within 30 s


def main(config: Config, *, file: SettingsFile | None = None) -> int:
    """`vgpuscope plugin`."""
    return run(lambda: _plugin(config.plugin), config=config, listening=config.plugin, file=file, grace=_GRACE)


def _plugin(config: PluginConfig) -> "Plugin":
    check_kubeconfig(config.kubeconfig)
    return Plugin(config)


class Plugin(Service):
    """The parts of the plugin, and what it knows of the GPUs. All but reads of the driver happens on one thread."""

    name = "device plugin"

    def __init__(
        self,
        config: PluginConfig,
        *,
        binding: Any = None,
        clock: Callable[[], Seconds] = time.monotonic,
        wall: Callable[[], UnixTime] = time.time,
    ) -> None:
        super().__init__()
        self._config = config
        self._stop = threading.Event()
        self._tell = OnChange(log)
        self._units = Units(log, self.counters.count)
        self._nvml = Nvml(binding, clock=wall, longest_wait=_TRY_AGAIN)
        self._nvml.unexpected = self._units.failed
        self._probe = DriverProbe(self._nvml)
        self._driving, self._hearing, self._feeding = Worker("driver"), Worker("xids"), Worker("feedback")
        self._driver_up: bool | None = None
        self._tracker = HealthTracker(clear_after=config.clear_faults_after, forget_after=config.forget_gpus_after)
        self._states: dict[DeviceUUID, GpuState] = {}
        self._devices: dict[str, OfferedDevice] = {}
        self._known = asyncio.Event()
        self._cluster = ClusterSide(config.node_name, config.kubeconfig, seals=seals(config.seal_keys))
        self._kubelet_view = _kubelet_view(config.podresources_socket)
        dirs = ContainerDirs(config.hook_path, LOCKS)
        self._leftovers = Leftovers(self._cluster, dirs, count=self.counters.count, clock=wall)
        self.allocator = Allocator(
            cluster=self._cluster,
            dirs=dirs,
            control=_control(config),
            states=lambda: self._states,
            devices=lambda: self._devices,
            whole=config.split_count == 1,
            count=self.counters.count,
            kubelet=self._view,
            kept=self._undo_soon,
            clock=wall,
        )
        self._side = KubeletSide(config.kubelet_dir, self.allocator)
        self._registration = Registration(
            self._side, config.kubelet_dir, ready=self._known, count=self.counters.count, clock=clock
        )
        self._node = NodeAnnotations(
            config,
            self._cluster,
            self._tracker,
            cleared=self._settle,
            count=self.counters.count,
            clock=wall,
            undo=self.allocator.undo_failed,
        )
        containers = os.path.join(config.hook_path, "containers")
        self._given = GivenGpus(self._cluster, count=self.counters.count, clock=clock)
        self._feedback = (
            Feedback(containers, gpus=self._given.of, count=self.counters.count) if config.feedback else None
        )
        self._page = ShardedPage(catalog.METRICS, catalog.FAMILIES)

    def loops(self) -> Loops:
        """The loops that run for as long as the plugin does."""
        loops: dict[str, Any] = {
            "driver": Restartable(self._follow_driver),
            "xids": Restartable(self._hear),
            "kubelet": Restartable(self._registration.run),
            "node": Restartable(self._node.run),
            "directories": Restartable(self._leftovers.run),
        }
        if self._feedback is not None:
            loops["feedback"] = Restartable(self._feed)
        return loops

    def about(self) -> dict[str, object]:
        config = self._config
        return {"node": config.node_name, "split": config.split_count, "limits": self.allocator.limits}

    def app(self, guard: "Guard | None") -> App:
        """The HTTP application."""
        return App(title=TITLE, service=self.name, metrics=self._metrics, ready=self.readiness, guard=guard)

    def readiness(self) -> Readiness:
        """Ready once the driver and the API server answer, and the kubelet follows the devices."""
        parts = {
            "the driver": self._driver_up,
            "the kubelet's registration": self._registration.up,
            "the API server": self._cluster.up,
        }
        return Readiness(missing=tuple(name for name, up in parts.items() if not up))

    async def close(self) -> None:
        """Let allocations and threads end, and take our socket from the kubelet's directory."""
        self._stop.set()
        await self._release_blocked()
        await self.allocator.drain()  # while the kubelet can still get the answer
        await self._side.close()
        await self.allocator.close()
        await self._cluster.close()

    async def _view(self) -> KubeletView | None:
        """The pods that the kubelet knows; None if it does not say."""
        if self._kubelet_view is None:
            return None
        try:
            found = await self._kubelet_view.view(RESOURCE)
        except SourceDown as e:
            values = {"error_code": e.code, "err": str(e)}
            message = "the kubelet does not say which pods it knows"
            if self._tell.tell("PodResources", e.code, level=logging.WARNING, message=message, **values):
                self.counters.count(e)
            return None
        self._tell.tell("PodResources", "up", level=logging.INFO, message="the kubelet says which pods it knows")
        return found

    def _undo_soon(self) -> None:
        self._node.changed()

    # --- the driver ---------------------------------------------------------------------------------------------------

    async def _follow_driver(self) -> None:
        while True:
            await self._read()
            self._settle()
            if self._driver_up and not self._known.is_set():
                await self._become_known()
            await asyncio.sleep(self._config.read_interval)

    async def _become_known(self) -> None:
        """Let the kubelet see the devices, with GPUs and faults from before a restart if the API server answers."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_NODE_WITHIN):
                await self._node.looked.wait()
        self._known.set()

    async def _read(self) -> None:
        try:
            reading = await self._driving.do(self._reading)
        except SourceDown as e:
            self._driver_up = False
            self.counters.count(e)
            self._tracker.miss()
            self._tell.tell("driver", e.code, level=logging.WARNING, message="driver down", **error_fields(e))
            return
        self._driver_up = True
        self._tell.tell("driver", "up", level=logging.INFO, message="driver up", gpus=len(reading.gpus))
        self._tracker.see(reading, await asyncio.to_thread(numa_nodes, reading.gpus))

    def _reading(self) -> DeviceReading:
        try:
            return self._probe.read(_DEADLINE)
        except SourceDown:
            if not self._probe.left_behind():
                raise
            return self._probe.read(_DEADLINE)

    async def _hear(self) -> None:
        """Listen for XIDs on a dedicated thread."""
        await self._hearing.do(lambda: self._nvml.listen(self._stop))

    def _settle(self) -> None:
        """Tell the kubelet and the node what has changed."""
        states = self._tracker.states
        devices = offered(states, split=self._config.split_count)
        for state in states:
            self._tell_health(state)
            self._tell_placements(state.gpu)
        for uuid in self._states.keys() - {state.gpu.uuid for state in states}:
            log.warning("GPU forgotten: the driver reports the others without it", extra=fields(gpu=uuid))
        if (changed := {state.gpu.uuid: state for state in states}) != self._states:
            self._states = changed
            self._devices = {device.id: device for device in devices}
            self._side.offer(devices)
            self._node.changed()

    def _tell_health(self, state: GpuState) -> None:
        values = {"gpu": state.gpu.uuid, "index": state.gpu.index, "reason": state.reason or None}
        level, word = (logging.INFO, "GPU healthy") if state.healthy else (logging.ERROR, "GPU unhealthy")
        self._tell.tell(("gpu", state.gpu.uuid), state.reason, level=level, message=word, **values)

    def _tell_placements(self, gpu: PluginGpu) -> None:
        """A MIG instance whose place is not known is in no profile, so the scheduler never chooses it."""
        unplaced = tuple(one.uuid for one in gpu.instances if not placed(one))
        values = {"gpu": gpu.uuid, "index": gpu.index, "instances": ",".join(unplaced) or None}
        if unplaced:
            message = "the driver does not report where these MIG instances are: pods cannot be scheduled to them"
            self._tell.tell(("placements", gpu.uuid), unplaced, level=logging.WARNING, message=message, **values)
        else:
            self._tell.forget(("placements", gpu.uuid))

    # --- feedback, page -----------------------------------------------------------------------------------------------

    async def _feed(self) -> None:
        assert self._feedback is not None
        while True:
            await self._feeding.do(self._feedback.round)
            await self._given.look(self._feedback.containers)
            await asyncio.sleep(EVERY)

    async def _release_blocked(self) -> None:
        if self._feedback is None:
            return
        try:
            await self._feeding.do(self._feedback.release, deadline=_RELEASE_WITHIN)
        except Exception:  # the allocations still have to be finished
            log.exception("blocked containers were not released")

    def _metrics(self) -> ShardedPage:
        status = PluginStatus(
            node=self._config.node_name,
            allocate=self.allocator.seconds,
            allocations=self.allocator.allocations,
            failures=self.allocator.failures,
            dirs_removed=self._leftovers.removed,
            registrations=self._registration.results,
            kubelet_up=self._registration.up,
            node_patches=self._node.patches,
            api_up=self._cluster.up,
            driver_up=self._driver_up,
            limits=self.allocator.limits,
            feedback=self._feedback.counts if self._feedback else None,
        )
        errors, restarts = self.counters.errors, self.counters.restarts
        samples = plugin_samples(
            status, build=this_build(), errors=errors, loop_restarts=restarts, gpus=len(self._states)
        )
        self._page.update("plugin", samples)
        self._page.update("gpus", gpu_samples(self._config.node_name, self._states.values()))
        return self._page


def _kubelet_view(socket: str) -> PodResources | None:
    return None if socket == "none" else PodResources(socket, timeout=_VIEW_WITHIN)


def _control(config: PluginConfig) -> HamiCore:
    return HamiCore(
        hook=config.hook_path.rstrip("/"),
        library=config.library or os.path.join(config.hook_path, "libvgpu.so"),
        preload=os.path.join(config.hook_path, "ld.so.preload"),
        oversubscribed=config.memory_scaling > 1,
        core_limits=config.core_limits,
        log_level=config.library_log_level,
    )
