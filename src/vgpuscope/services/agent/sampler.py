"""One sample of a node: read every source, then draw conclusions. A source cannot delay another source or a scrape."""

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from msgspec import Struct, structs

from vgpuscope.catalog import agent as catalog
from vgpuscope.logic.node.region_repair import ContainerName, host_pids
from vgpuscope.logic.node.second_look import busier
from vgpuscope.logic.node.snapshot import NodeSample, NodeTracker, Readings, driver_pids
from vgpuscope.model.device import DeviceReading
from vgpuscope.model.errors import (
    ProfilingOff,
    RatioInvalid,
    RegionRefused,
    RegionsUnreadable,
    ScopeError,
    SourceDown,
)
from vgpuscope.model.host import HostSide
from vgpuscope.model.pod import Grant, Pod, ProcessOwner, SourceState
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.model.region import RegionReading, RejectedRegion
from vgpuscope.model.serving import ServedScrapes
from vgpuscope.model.usage import Dispute, NodeSnapshot
from vgpuscope.runtime.build import this_build
from vgpuscope.runtime.counters import Counters
from vgpuscope.runtime.log import DEBUG, DETAIL, SUMMARY, OnChange, fields
from vgpuscope.runtime.probe import Probe
from vgpuscope.runtime.units import Units
from vgpuscope.services.agent.host import HostReader
from vgpuscope.services.agent.profiling import Profiling
from vgpuscope.services.agent.waits import WAITS, SampleWaits
from vgpuscope.services.driver_probe import DriverProbe
from vgpuscope.sources import selfstat
from vgpuscope.sources.node.nvml.driver import Nvml
from vgpuscope.sources.node.proc import Proc
from vgpuscope.sources.node.ratio import RatioFile
from vgpuscope.sources.node.regions import Regions
from vgpuscope.views.build import Build
from vgpuscope.views.exposition.page import ExpositionPage, Renderer, Sample
from vgpuscope.views.node.metrics import SelfUse, node_samples

log = logging.getLogger(__name__)

LOOKS = 3  # further reads of a region that shows 0 for a process without a driver sample
_PAUSE = (0.02, 0.12)  # seconds before each further read, at random: HAMi's watcher has a cycle of 120 ms or more
_FDS_EVERY = 10  # samples; counting file descriptors costs a directory listing
_SUMMARY_EVERY = 60.0  # seconds between two summaries in the log, at least
_SUMMARY_AGAIN = 3600.0  # seconds after which a summary is logged though nothing changed

T = TypeVar("T")


class SourceHealth:
    """The state of one source: its last success and its current error."""

    def __init__(self, source: str, clock: Callable[[], float]) -> None:
        self.source = source
        self._clock = clock
        self._good_at: float | None = None
        self._error: ScopeError | None = None
        self._absent: str | None = None
        self._seconds: float | None = None

    def good(self, seconds: float | None = None) -> None:
        """A read went well."""
        self._good_at, self._error, self._absent = self._clock(), None, None
        self._seconds = seconds if seconds is not None else self._seconds

    def bad(self, error: ScopeError, seconds: float | None = None) -> None:
        """A read failed."""
        self._error, self._absent = error, None
        self._seconds = seconds if seconds is not None else self._seconds

    def none(self, why: str) -> None:
        """The source is not configured, or not needed."""
        self._absent, self._error = why, None

    def state(self) -> SourceState:
        """The state to publish."""
        error = self._error
        return SourceState(
            source=self.source,
            up=self._good_at is not None and error is None and self._absent is None,
            absent=self._absent is not None or bool(getattr(error, "absent", False)),
            read_seconds=self._seconds,
            age_seconds=None if self._good_at is None else max(0.0, self._clock() - self._good_at),
            code=error.code if error else None,
            message=str(error) if error else self._absent,
        )


class _Samples(Struct, frozen=True):
    """The samples of one page; iterated only if the page is requested."""

    sample: NodeSample
    build: Build
    self_use: SelfUse

    def __iter__(self) -> Iterator[Sample]:
        return node_samples(self.sample.complete(), build=self.build, self_use=self.self_use)


class Sampler:
    """Everything that the agent keeps between two samples."""

    def __init__(
        self,
        *,
        node: str,
        families: Iterable[str],
        containers_dir: str,
        proc_root: str,
        window: float,
        driver_deadline: float,
        ratio: float | RatioFile = 1.0,
        cgroup_root: str | None = None,
        command_line: Callable[[bytes], str] | None = None,
        binding: Any = None,
        clock: Callable[[], Seconds] = time.monotonic,
        wall: Callable[[], UnixTime] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        uniform: Callable[[float, float], float] = random.uniform,
        waits: SampleWaits = WAITS,
        counters: Counters | None = None,
    ) -> None:
        """`uniform` draws the pause before a region is read again."""
        self.nvml = Nvml(binding, clock=wall)
        self.pods: tuple[Pod, ...] | None = None
        self.grants: tuple[Grant, ...] | None = None
        self.source_health = {name: SourceHealth(name, clock) for name in _SOURCES}
        self.source_health["gpm"].none("no driver has answered yet")
        self.counters = counters or Counters()
        self.units = Units(log, self.counters.count)
        self.nvml.unexpected = self.units.failed
        self._clock, self._wall = clock, wall
        self._sleep, self._uniform = sleep, uniform
        self._regions_deadline = waits.regions
        self._driver_deadline = driver_deadline
        self._region_files = Regions(containers_dir, unexpected=self.units.failed)
        self._driver_probe = DriverProbe(self.nvml)
        self._doubtful: frozenset[ContainerName] | None = None  # None: all regions are read
        self._region_probe = Probe("regions", self._read_regions, error=RegionsUnreadable, clock=clock)
        self.profiling = Profiling(
            self.nvml,
            deadline=driver_deadline,
            good=self.source_health["gpm"].good,
            bad=self._profiling_failed,
            patience=waits.profiling,
            clock=clock,
        )
        self._proc = Proc(proc_root, command_line=command_line)
        self._host_reader = HostReader(cgroup_root=cgroup_root, proc_root=proc_root, window=window, waits=waits)
        if cgroup_root is None:
            self.source_health["cgroup"].none("--cgroup-root none")
        self._ratio_file = ratio if isinstance(ratio, RatioFile) else None
        self._ratio = ratio.read() if isinstance(ratio, RatioFile) else ratio
        self._tracker = NodeTracker(node=node, window=window)
        self._renderer = Renderer(catalog.METRICS, families)
        self._build = this_build()
        self._started = selfstat.start_time()
        self.served: Callable[[], ServedScrapes | None] = lambda: None  # what the listener has sent
        self._fds: int | None = None
        self._count = 0
        self._tell = OnChange(log)
        self._summary_due, self._summary_again = 0.0, 0.0
        self._summarised: object = None

    def cycle(self) -> tuple[NodeSample, ExpositionPage]:
        """Take one sample."""
        began = time.perf_counter()
        at = self._wall()
        regions = self._regions()
        devices = self._devices(at)
        self.profiling.begin(devices)
        regions = self._looked_again(regions, devices)
        owners = self._owners(devices, regions)
        self._reread_ratio()
        profile = self.profiling.take(devices.gpus if devices else ())
        readings = Readings(
            at=at,
            tick=self._clock(),
            devices=devices,
            regions=regions,
            owners=owners,
            pods=self.pods,
            grants=self.grants,
            profile=profile,
        )
        sample = self._tracker.conclude(readings, ratio=self._ratio)
        host = self._host(sample, owners, readings.tick)
        sample.outline = structs.replace(
            sample.outline,
            host=host,
            sources=tuple(standing.state() for standing in self.source_health.values()),
            tally=structs.replace(sample.outline.tally, errors=dict(self.counters.errors)),
            sample_seconds=time.perf_counter() - began,
        )
        page = self._renderer.render(_Samples(sample, self._build, self._self_use()))
        self._report(sample.outline, regions)
        return sample, page

    def failed(self, source: str, error: ScopeError, seconds: float | None = None) -> None:
        """Record that a source could not be read. A source that is known to be absent is not counted as an error."""
        self.source_health[source].bad(error, seconds)
        if not getattr(error, "absent", False):
            self.count(error)

    def _profiling_failed(self, error: ScopeError) -> None:
        """Record why there are no profiling values; only that they were switched off is an error, counted once."""
        if isinstance(error, ProfilingOff) and self.source_health["gpm"].state().code != error.code:
            self.count(error)
        self.source_health["gpm"].bad(error)

    def broken(self, source: str, error: Exception) -> None:
        """Record that reading a source ended with an unexpected error, which is logged and counted."""
        self.source_health[source].bad(self.units.failed(f"source {source}", error))

    def count(self, error: ScopeError) -> None:
        """Count one more of this error."""
        self.counters.count(error)

    def _read(self, source: str, read: Callable[[], T]) -> T | None:
        began = time.perf_counter()
        try:
            value = read()
        except SourceDown as error:
            self.failed(source, error, time.perf_counter() - began)
            return None
        except Exception as error:  # the sample goes on without this source
            self.broken(source, error)
            return None
        self.source_health[source].good(time.perf_counter() - began)
        return value

    def _devices(self, at: float) -> DeviceReading | None:
        """The driver's reading; while the driver does not answer, the last known GPUs without values."""
        reading = self._read("nvml", lambda: self._driver_probe.read(self._driver_deadline))
        if reading is None and self._driver_probe.left_behind():
            reading = self._read("nvml", lambda: self._driver_probe.read(self._driver_deadline))
        if reading is not None:
            return reading
        gpus = self.nvml.identities()
        return DeviceReading(at=at, gpus=gpus) if gpus else None

    def _read_regions(self) -> RegionReading:
        return self._region_files.read(self._doubtful)

    def _regions(self) -> RegionReading | None:
        return self._read("regions", lambda: self._region_probe.read(self._regions_deadline))

    def _looked_again(self, regions: RegionReading | None, devices: DeviceReading | None) -> RegionReading | None:
        """The regions after further reads of those that show 0 without a driver sample."""
        if regions is None:
            return None
        for _ in range(LOOKS):
            doubtful = self._tracker.doubtful(regions.containers, devices.gpus if devices else ())
            if not doubtful:
                break
            self._sleep(self._uniform(*_PAUSE))
            self._doubtful = doubtful
            try:
                regions = busier(regions, self._region_probe.read(self._regions_deadline))
            except Exception:
                break  # the next sample meets the same error and reports it
            finally:
                self._doubtful = None
        return regions

    def _owners(self, devices: DeviceReading | None, regions: RegionReading | None) -> dict[int, ProcessOwner] | None:
        listed = driver_pids(devices.gpus if devices else ())
        recorded = host_pids(regions.containers if regions else ())
        return self._read("proc", lambda: self._proc.owners(listed | recorded, listed=listed))

    def _host(self, sample: NodeSample, owners: dict[int, ProcessOwner] | None, tick: float) -> HostSide:
        """The node beside its GPUs; while it cannot be read, without values."""
        side = self._read("cgroup", lambda: self._host_reader.side(sample, owners, tick=tick, clock=self._clock))
        if self._host_reader.error is not None:
            self.failed("cgroup", self._host_reader.error)
        return side or HostSide()

    def _reread_ratio(self) -> None:
        """Read the ratio file again; with a bad file, the last good ratio stays."""
        if self._ratio_file is None:
            return
        try:
            self._ratio = self._ratio_file.read()
            self.source_health["ratio"].good()
        except RatioInvalid as error:
            self.failed("ratio", error)

    def _self_use(self) -> SelfUse:
        if self._count % _FDS_EVERY == 0:
            self._fds = selfstat.open_fds()
        self._count += 1
        return SelfUse(
            cpu_seconds=selfstat.cpu_seconds(),
            resident_bytes=selfstat.resident_bytes(),
            open_fds=self._fds,
            start_time=self._started,
            loop_restarts=dict(self.counters.restarts),
            served=self.served(),
        )

    def _report(self, snapshot: NodeSnapshot, regions: RegionReading | None) -> None:
        """Log each change once."""
        self._tell.sources(snapshot.sources)
        for usage in snapshot.gpus:
            level = logging.WARNING if usage.gpu.health != "ok" else DETAIL
            self._tell.tell(
                ("gpu", usage.gpu.uuid),
                usage.gpu.health,
                level=level,
                message="gpu health",
                gpu=usage.gpu.uuid,
                gpu_index=usage.gpu.index,
                health=usage.gpu.health,
            )
        for refusal in regions.refusals if regions else ():
            self._tell_refusal(refusal)
        for dispute in snapshot.disputes:
            self._tell_dispute("dispute", dispute, "region claims devices that were not assigned to its container")
        for unknown in snapshot.unknown_devices:
            self._tell_dispute("unknown", unknown, "annotation names devices that the node does not have")
        for forged in snapshot.forged_assignments:
            self._tell_dispute("forged", forged, "annotation names devices that the scheduler did not assign")
        alive: set[tuple[str, object]] = {("source", s.source) for s in snapshot.sources}
        alive |= {("gpu", c.gpu.uuid) for c in snapshot.gpus}
        alive |= {("region", r.path) for r in (regions.refusals if regions else ())}
        alive |= {("dispute", dispute.key) for dispute in snapshot.disputes}
        alive |= {("unknown", unknown.key) for unknown in snapshot.unknown_devices}
        alive |= {("forged", forged.key) for forged in snapshot.forged_assignments}
        self._tell.keep(alive)
        log.log(DEBUG, "sample", extra=fields(number=snapshot.samples, seconds=snapshot.sample_seconds))
        self._tell_summary(snapshot)

    def _tell_summary(self, snapshot: NodeSnapshot) -> None:
        """The node in one line if its GPUs, containers or sources changed, and once an hour; details once a minute."""
        now = self._clock()
        if now < self._summary_due:
            return
        self._summary_due = now + _SUMMARY_EVERY
        state = (
            [(usage.gpu.uuid, usage.gpu.health) for usage in snapshot.gpus],
            len(snapshot.containers),
            [(source.source, source.up) for source in snapshot.sources],
        )
        if state != self._summarised or now >= self._summary_again or log.isEnabledFor(DETAIL):
            self._summarised, self._summary_again = state, now + _SUMMARY_AGAIN
            _summarise(snapshot)

    def _tell_refusal(self, refusal: RejectedRegion) -> None:
        new = self._tell.tell(
            ("region", refusal.path),
            refusal.reason,
            level=logging.WARNING,
            message="region refused",
            error_code=RegionRefused.code,
            path=refusal.path,
            reason=refusal.reason,
        )
        if new:
            self.count(RegionRefused(refusal.reason))

    def _tell_dispute(self, kind: str, dispute: Dispute, message: str) -> None:
        self._tell.tell(
            (kind, dispute.key),
            kind,
            level=logging.WARNING,
            message=message,
            namespace=dispute.key.namespace,
            pod=dispute.key.pod,
            container=dispute.key.container,
            devices=dispute.devices,
            example=dispute.example[:40],
        )


_SOURCES = ("nvml", "gpm", "regions", "proc", "pods", "podresources", "claims", "dcgm", "ratio", "cgroup")


def _summarise(snapshot: NodeSnapshot) -> None:
    """The node in one line (--v 4), and a line for each GPU and container (--v 5)."""
    log.log(
        SUMMARY,
        "node",
        extra=fields(
            node=snapshot.node,
            gpus=len(snapshot.gpus),
            unhealthy=sum(usage.gpu.health != "ok" for usage in snapshot.gpus),
            containers=len(snapshot.containers),
            active=sum(usage.state == "active" for usage in snapshot.containers),
            regions=snapshot.regions,
            down=",".join(s.source for s in snapshot.sources if not s.up and not s.absent) or None,
        ),
    )
    if not log.isEnabledFor(DETAIL):
        return
    for gpu_usage in snapshot.gpus:
        memory = gpu_usage.gpu.memory
        values = fields(
            gpu=gpu_usage.gpu.uuid,
            mode=gpu_usage.mode or "free",
            health=gpu_usage.gpu.health,
            utilization=gpu_usage.gpu.utilization,
            memory_used=memory.used if memory else None,
            power=gpu_usage.gpu.power,
            sharers=gpu_usage.sharers,
        )
        log.log(DETAIL, "gpu", extra=values)
    for usage in snapshot.containers:
        values = fields(
            namespace=usage.key.namespace,
            pod=usage.key.pod,
            container=usage.key.container,
            gpu=usage.gpu,
            state=usage.state,
            memory=usage.memory,
            sm=usage.sm,
            method=usage.memory_method,
        )
        log.log(DETAIL, "container", extra=values)
