"""GPUs whose work is known for every second, and the pages that exporters would show for them.

Times are seconds relative to the moment of judgement, so they are negative in the past. Nothing here depends on how the
analyzer works: the work of a GPU is a function of time, and an exporter shows what its own documentation defines.
"""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import accumulate
from math import inf
from zlib import crc32

from msgspec import Struct, field

Signal = Callable[[float], float]
Labels = tuple[tuple[str, str], ...]
Row = tuple[str, Labels, float]

MIB = 2**20
WORK = 0.05  # a signal below this share of a second is noise, such as a health check
PCIE_WORK = 1e9  # bytes a second
_BEFORE = 60  # seconds simulated before the first page


def flat(level: float) -> Signal:
    """A constant signal."""
    return lambda _: level


never = flat(0.0)


def spans(*times: tuple[float, float], level: float = 0.95) -> Signal:
    """This level from each first to each second time; otherwise 0."""
    return lambda t: level if any(begin <= t < end for begin, end in times) else 0.0


def cycle(period: float, on: float, *, level: float = 0.95, phase: float = 0.0) -> Signal:
    """At this level for `on` seconds of each period."""
    return lambda t: level if (t - phase) % period < on else 0.0


def noise(seed: int, low: float, high: float) -> Signal:
    """A new value each second, the same in every run."""
    return lambda t: low + (high - low) * ((int(t) * 2654435761 + seed * 40503) % 1009) / 1008


def ramp(begin: float, end: float, low: float, high: float) -> Signal:
    """From low to high between two times."""
    return lambda t: low + (high - low) * min(1.0, max(0.0, (t - begin) / (end - begin)))


def either(*signals: Signal) -> Signal:
    """The maximum of the signals."""
    return lambda t: max(signal(t) for signal in signals)


class Model(Struct, frozen=True, kw_only=True):
    """Data sheet values of a GPU model."""

    name: str
    limit: float  # watts
    idle: float  # watts
    memory: int  # MiB


A100 = Model(name="NVIDIA A100-SXM4-80GB", limit=400, idle=62, memory=81920)
H100 = Model(name="NVIDIA H100 80GB HBM3", limit=700, idle=118, memory=81559)
T4 = Model(name="Tesla T4", limit=70, idle=10, memory=15360)
L40S = Model(name="NVIDIA L40S", limit=350, idle=36, memory=46068)


class Tenant(Struct, kw_only=True):
    """A container on a GPU, or on an instance of it."""

    pod: str
    compute: Signal = never  # share of the GPU's (or instance's) time
    memory: Signal = never  # MiB
    namespace: str = "ml"
    container: str = "main"
    generation: int = 0  # differs between a pod and its replacement of the same name
    since: float = -inf
    until: float = inf
    limit: int | None = None  # HAMi's limit in MiB
    measured: bool = True  # False: the driver does not attribute compute to this tenant
    started: bool = True  # False: it has never called CUDA
    paused: tuple[tuple[float, float], ...] = ()  # when its container does not run
    cpu: Signal | None = None  # CPU cores of its node; None: the agent cannot read its cgroup
    launches: Signal | None = None  # kernels that HAMi's library sees; None: follows compute

    def there(self, t: float) -> bool:
        """Whether its pod holds the GPU."""
        return self.since <= t < self.until

    @property
    def key(self) -> str:
        """The key under which its signals are cached."""
        return f"sm-{self.pod}-{self.generation}"

    @property
    def uid(self) -> str:
        """The UID of its pod."""
        return f"{crc32(self.pod.encode()):08x}-0000-4000-8000-{self.generation:012x}"


class Instance(Struct, kw_only=True):
    """A MIG instance with its only tenant."""

    gi: int
    tenant: Tenant
    profile: str = "3g.40gb"
    memory: int = 40192
    compute_shown: bool = False  # the agent's driver has GPM, or dcgm-exporter has profiling metrics
    beside: bool = False  # the agent has no GPM, and shows what a dcgm-exporter on its node measures
    decoder: Signal = never

    @property
    def share(self) -> float:
        """Its part of the GPU, which has seven slices."""
        return int(self.profile[0]) / 7


class Gpu(Struct, kw_only=True):
    """One GPU and its work, independent of what an exporter shows."""

    number: int
    node: str
    model: Model = A100
    tenants: tuple[Tenant, ...] = ()
    instances: tuple[Instance, ...] = ()
    mode: str = "exclusive"
    unattributed: Signal = never  # compute that the driver does not attribute to any tenant
    encoder: Signal = never
    decoder: Signal = never
    jpeg: Signal = never
    pcie: Signal = never  # bytes a second
    copy: Signal | None = None  # memory controller; None: follows compute
    watts: Signal | None = None  # None: follows compute
    clock: float | None = None  # MHz; None: follows compute
    lost_from: float = inf  # when the GPU falls off the bus
    shows_limit: bool = True
    shows_power: bool = True
    profiling: bool = True  # dcgm-exporter has DCGM_FI_PROF_*
    collect: float = 30.0  # seconds between two collections of dcgm-exporter
    begin: float = -1000.0
    end: float = 100.0
    agent_window: float = 60.0
    restarts: tuple[float, ...] = ()  # restarts of the exporter: its own counters begin at 0 again
    seconds: dict[str, list[float]] = field(default_factory=dict)
    sums: dict[str, list[float]] = field(default_factory=dict)
    busy: dict[int, float] = field(default_factory=dict)

    @property
    def uuid(self) -> str:
        """The UUID as the driver reports it."""
        return f"GPU-{self.number:08x}-7c3a-4e5b-9d21-{self.number * 2654435761 % 2**48:012x}"

    @property
    def index(self) -> int:
        """Its index in the node."""
        return self.number % 8

    def compute(self, t: float) -> float:
        """Share of the second in which a kernel runs."""
        second = int(t)
        if second not in self.busy:
            whole = self.unattributed(second) + sum(one.compute(second) for one in self.tenants if one.there(second))
            part = sum(one.tenant.compute(second) for one in self.instances) / 2
            self.busy[second] = min(1.0, whole + part)
        return self.busy[second]

    def power(self, t: float) -> float:
        """Watts."""
        if self.watts:
            return self.watts(t)
        video = 0.12 * max(self.encoder(t), self.decoder(t), self.jpeg(t))
        return self.model.idle + (0.92 * self.model.limit - self.model.idle) * min(1.0, self.compute(t) + video)

    def traffic(self, t: float) -> float:
        """Share of time in which memory is read or written."""
        return self.copy(t) if self.copy else 0.55 * self.compute(t)

    def held(self, t: float) -> float:
        """MiB in use."""
        tenants = (*self.tenants, *(one.tenant for one in self.instances))
        return min(self.model.memory - 600.0, 4 + sum(one.memory(t) for one in tenants if one.there(t)))

    def works(self, t: float) -> bool:
        """Whether there is work in this second."""
        shares = max(self.compute(t), self.encoder(t), self.decoder(t), self.jpeg(t))
        return shares >= WORK or self.pcie(t) >= PCIE_WORK

    def total(self, name: str, signal: Signal, t: float) -> float:
        """A counter: the signal integrated since the exporter's last start."""
        if name not in self.sums:
            self.sums[name] = list(accumulate(self._each(name, signal), initial=0.0))
        sums = self.sums[name]
        return sums[self._place(t)] - (sums[self._place(start)] if (start := self._started(t)) > -inf else 0.0)

    def highest(self, name: str, signal: Signal, t: float) -> float:
        """The highest value in the agent's own window, which begins at the agent's start."""
        return max(self._own_window(name, signal, t))

    def mean(self, name: str, signal: Signal, t: float) -> float:
        """The mean value in the agent's own window."""
        seconds = self._own_window(name, signal, t)
        return sum(seconds) / len(seconds)

    def last(self, name: str, signal: Signal, t: float) -> int:
        """The last second in which the signal was above 0."""
        each, began = self._each(name, signal), int(self.begin) - _BEFORE
        return next((began + at for at in range(self._place(t), 0, -1) if each[at] > 0), began)

    def _own_window(self, name: str, signal: Signal, t: float) -> list[float]:
        begin = self._place(max(t - self.agent_window, self._started(t)))
        return self._each(name, signal)[begin : self._place(t) + 1]

    def _started(self, t: float) -> float:
        return max((at for at in self.restarts if at <= t), default=-inf)

    def _each(self, name: str, signal: Signal) -> list[float]:
        """The signal at every second."""
        if name not in self.seconds:
            self.seconds[name] = [signal(t) for t in range(int(self.begin) - _BEFORE, int(self.end) + 2)]
        return self.seconds[name]

    def _place(self, t: float) -> int:
        return max(0, min(int(t), int(self.end)) - int(self.begin) + _BEFORE)


# ── dcgm-exporter ────────────────────────────────────────────────────────────────────────────────────────────────


def dcgm_page(gpu: Gpu, t: float) -> list[Row]:
    """dcgm-exporter's default counters. It caches values, so they are those of its last collection."""
    at = t - t % gpu.collect
    if gpu.lost_from <= at:
        at = gpu.lost_from - 1  # the host engine keeps serving the values that it read last
    rows = list(_dcgm_instances(gpu, at) if gpu.instances else _dcgm_whole(gpu, at))
    xid = 79.0 if gpu.lost_from <= t else 0.0
    return [*rows, ("DCGM_FI_DEV_XID_ERRORS", rows[0][1], xid)]


def _dcgm_whole(gpu: Gpu, at: float) -> Iterator[Row]:
    holders = [one for one in gpu.tenants if one.there(at)]
    for labels in [_dcgm_labels(gpu, one) for one in holders] or [_dcgm_labels(gpu, None)]:
        yield from _dcgm_device(gpu, labels, at)
        used = gpu.held(at)
        yield "DCGM_FI_DEV_GPU_UTIL", labels, float(round(100 * gpu.compute(at)))
        yield "DCGM_FI_DEV_MEM_COPY_UTIL", labels, float(round(100 * gpu.traffic(at)))
        yield "DCGM_FI_DEV_ENC_UTIL", labels, float(round(100 * gpu.encoder(at)))
        yield "DCGM_FI_DEV_DEC_UTIL", labels, float(round(100 * gpu.decoder(at)))
        yield "DCGM_FI_DEV_FB_USED", labels, float(int(used))
        yield "DCGM_FI_DEV_FB_FREE", labels, float(gpu.model.memory - 600 - int(used))
        yield "DCGM_FI_DEV_FB_RESERVED", labels, 600.0
        if gpu.profiling:
            yield from _dcgm_profiling(gpu, labels, at, gpu.compute)


def _dcgm_device(gpu: Gpu, labels: Labels, at: float) -> Iterator[Row]:
    """Values of the whole GPU; with MIG they are repeated for each instance."""
    yield "DCGM_FI_DEV_SM_CLOCK", labels, gpu.clock or (1410.0 if gpu.compute(at) > 0 else 210.0)
    yield "DCGM_FI_DEV_GPU_TEMP", labels, 30 + gpu.power(at) // 12
    if gpu.shows_power:
        yield "DCGM_FI_DEV_POWER_USAGE", labels, round(gpu.power(at), 3)
        yield "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", labels, 1000 * gpu.total("energy", gpu.power, at)
    if gpu.shows_limit:
        yield "DCGM_FI_DEV_ENFORCED_POWER_LIMIT", labels, gpu.model.limit


def _dcgm_profiling(gpu: Gpu, labels: Labels, at: float, compute: Signal) -> Iterator[Row]:
    """Means since the last collection."""
    seconds = range(int(at - gpu.collect), max(int(at), int(at - gpu.collect) + 1))
    active = sum(map(compute, seconds)) / len(seconds)
    pcie = sum(map(gpu.pcie, seconds)) / len(seconds)
    yield "DCGM_FI_PROF_GR_ENGINE_ACTIVE", labels, round(active, 6)
    yield "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", labels, round(0.3 * active, 6)
    yield "DCGM_FI_PROF_DRAM_ACTIVE", labels, round(0.4 * active, 6)
    yield "DCGM_FI_PROF_PCIE_TX_BYTES", labels, float(round(0.02 * pcie + 4e8 * active + 9000))
    yield "DCGM_FI_PROF_PCIE_RX_BYTES", labels, float(round(pcie + 4e8 * active + 9000))


def _dcgm_instances(gpu: Gpu, at: float) -> Iterator[Row]:
    for one in gpu.instances:
        labels = _dcgm_labels(gpu, one.tenant, one)
        yield from _dcgm_device(gpu, labels, at)
        used = one.tenant.memory(at)
        yield "DCGM_FI_DEV_FB_USED", labels, float(int(used))
        yield "DCGM_FI_DEV_FB_FREE", labels, float(one.memory - int(used))
        if one.compute_shown:
            yield from _dcgm_profiling(gpu, labels, at, one.tenant.compute)


@cache
def _labels(*pairs: str) -> Labels:
    return tuple(zip(pairs[::2], pairs[1::2], strict=True))


def _dcgm_labels(gpu: Gpu, tenant: Tenant | None, instance: Instance | None = None) -> Labels:
    pairs = ["gpu", str(gpu.index), "UUID", gpu.uuid, "device", f"nvidia{gpu.index}", "modelName", gpu.model.name]
    pairs += [
        "Hostname",
        gpu.node,
        "DCGM_FI_DRIVER_VERSION",
        "550.54.15",
        "pci_bus_id",
        f"00000000:{gpu.index:02X}:00.0",
    ]
    if instance:
        pairs += ["GPU_I_ID", str(instance.gi), "GPU_I_PROFILE", instance.profile]
    if tenant:
        pairs += ["namespace", tenant.namespace, "pod", tenant.pod, "container", tenant.container]
    return _labels(*pairs)


_BASE_UNITS = {
    "DCGM_FI_DEV_GPU_UTIL": ("DCGM_FI_DEV_GPU_UTIL_RATIO", 0.01),
    "DCGM_FI_DEV_FB_USED": ("DCGM_FI_DEV_FB_USED_BYTES", MIB),
    "DCGM_FI_DEV_FB_FREE": ("DCGM_FI_DEV_FB_FREE_BYTES", MIB),
    "DCGM_FI_DEV_POWER_USAGE": ("DCGM_FI_DEV_BOARD_POWER_WATTS", 1),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", 0.001),
    "DCGM_FI_DEV_GPU_TEMP": ("DCGM_FI_DEV_GPU_TEMP_CELSIUS", 1),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("DCGM_FI_PROF_SM_UTIL_RATIO", 1),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("DCGM_FI_PROF_TENSOR_UTIL_RATIO", 1),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("DCGM_FI_PROF_DRAM_UTIL_RATIO", 1),
}


def base_unit_page(gpu: Gpu, t: float) -> list[Row]:
    """The names of DCGM 4.7 instead of the old ones."""
    page = []
    for name, labels, value in dcgm_page(gpu, t):
        new, factor = _BASE_UNITS.get(name, (name, 1))
        page.append((new, labels, value * factor))
    return page


# ── vgpuscope's agent ────────────────────────────────────────────────────────────────────────────────────────────

_HEALTH = ("ok", "lost", "reset-required", "unresponsive", "no-permission", "error")
_MODES = ("hami", "exclusive", "mig", "mps", "time-slicing", "unallocated", "free")
_STATES = ("not-started", "idle", "active", "unknown")


def agent_page(gpu: Gpu, t: float, now: float) -> list[Row]:
    """docs/metrics.md, native family; `now` is the time of the judgement, for metrics that hold a time."""
    return [*_agent_node(gpu, t, now), *_agent_gpu(gpu, t), *_agent_instances(gpu, t), *_agent_tenants(gpu, t, now)]


def _agent_node(gpu: Gpu, t: float, now: float) -> Iterator[Row]:
    node = _labels("node", gpu.node)
    yield "vgpuscope_samples_total", node, float(int(t - gpu.begin))
    yield "vgpuscope_sample_timestamp_seconds", node, now + int(t)
    for source in ("nvml", "podresources", "hami"):
        labels = _labels("node", gpu.node, "source", source)
        yield "vgpuscope_source_up", labels, 1.0
        yield "vgpuscope_source_age_seconds", labels, 0.2


def _agent_gpu(gpu: Gpu, t: float) -> Iterator[Row]:
    one_gpu = ("node", gpu.node, "gpu_uuid", gpu.uuid)
    labels = _labels(*one_gpu)
    lost = gpu.lost_from <= t
    info = ("gpu_index", str(gpu.index), "model", gpu.model.name, "driver_version", "550.54.15")
    yield "vgpuscope_gpu_info", _labels(*one_gpu, *info), 1.0
    mode = gpu.mode if any(one.there(t) for one in gpu.tenants) or gpu.instances else "free"
    for name in _HEALTH:
        yield "vgpuscope_gpu_health", _labels(*one_gpu, "health", name), float(name == ("lost" if lost else "ok"))
    for name in _MODES:
        yield "vgpuscope_gpu_mode", _labels(*one_gpu, "mode", name), float(name == mode)
    if lost:
        yield "vgpuscope_gpu_xid_errors_total", _labels(*one_gpu, "xid", "79"), 1.0
        return
    yield "vgpuscope_gpu_memory_total_bytes", labels, float(gpu.model.memory * MIB)
    yield "vgpuscope_gpu_memory_used_bytes", labels, float(int(gpu.held(t)) * MIB)
    yield "vgpuscope_gpu_memory_free_bytes", labels, float((gpu.model.memory - 600 - int(gpu.held(t))) * MIB)
    yield "vgpuscope_gpu_memory_reserved_bytes", labels, float(600 * MIB)
    yield from _agent_power(gpu, labels, t)
    if not gpu.instances:
        yield from _agent_work(gpu, labels, t)
        for owner, signal in (("system", never), ("unattributed", gpu.unattributed), ("ended", never)):
            seconds = gpu.total(f"sm-{owner}", signal, t)
            yield "vgpuscope_gpu_sm_ledger_seconds_total", _labels(*one_gpu, "owner", owner), seconds


def _agent_power(gpu: Gpu, labels: Labels, t: float) -> Iterator[Row]:
    if gpu.shows_power:
        yield "vgpuscope_gpu_power_watts", labels, round(gpu.power(t), 3)
        yield "vgpuscope_gpu_power_mean_watts", labels, round(gpu.mean("energy", gpu.power, t), 3)
        yield "vgpuscope_gpu_power_max_watts", labels, round(gpu.highest("energy", gpu.power, t), 3)
        yield "vgpuscope_gpu_energy_joules_total", labels, round(gpu.total("energy", gpu.power, t), 1)
    if gpu.shows_limit:
        yield "vgpuscope_gpu_power_limit_watts", labels, gpu.model.limit
    yield "vgpuscope_gpu_sm_clock_hertz", labels, 1e6 * (gpu.clock or (1410.0 if gpu.compute(t) > 0 else 210.0))
    yield "vgpuscope_gpu_pcie_received_bytes_total", labels, float(round(gpu.total("pcie", gpu.pcie, t)))
    yield "vgpuscope_gpu_pcie_sent_bytes_total", labels, float(round(0.02 * gpu.total("pcie", gpu.pcie, t)))


def _agent_work(gpu: Gpu, labels: Labels, t: float) -> Iterator[Row]:
    for name, signal in (("utilization", gpu.compute), ("memory_controller", gpu.traffic)):
        yield f"vgpuscope_gpu_{name}_ratio", labels, round(signal(t), 4)
        yield f"vgpuscope_gpu_{name}_mean_ratio", labels, round(gpu.mean(name, signal, t), 6)
        yield f"vgpuscope_gpu_{name}_max_ratio", labels, round(gpu.highest(name, signal, t), 4)
    yield "vgpuscope_gpu_busy_seconds_total", labels, round(gpu.total("utilization", gpu.compute, t), 3)
    yield "vgpuscope_gpu_encoder_ratio", labels, round(gpu.encoder(t), 4)
    yield "vgpuscope_gpu_decoder_ratio", labels, round(gpu.decoder(t), 4)
    yield "vgpuscope_gpu_jpeg_ratio", labels, round(gpu.jpeg(t), 4)
    yield "vgpuscope_gpu_ofa_ratio", labels, 0.0


def _agent_instances(gpu: Gpu, t: float) -> Iterator[Row]:
    for one in gpu.instances:
        mig = ("node", gpu.node, "gpu_uuid", gpu.uuid, "mig_uuid", mig_uuid(gpu, one))
        place = ("mig_index", str(one.gi - 1), "profile", one.profile, "gpu_instance", str(one.gi))
        yield "vgpuscope_mig_info", _labels(*mig, *place, "compute_instance", "0"), 1.0
        yield "vgpuscope_mig_memory_total_bytes", _labels(*mig), float(one.memory * MIB)
        yield "vgpuscope_mig_memory_used_bytes", _labels(*mig), float(int(one.tenant.memory(t)) * MIB)
        yield "vgpuscope_mig_memory_free_bytes", _labels(*mig), float((one.memory - int(one.tenant.memory(t))) * MIB)
        if one.compute_shown:
            yield from _agent_profiling(gpu, one, _labels(*mig), t)


def _agent_profiling(gpu: Gpu, one: Instance, labels: Labels, t: float) -> Iterator[Row]:
    key, signal = _measured(gpu, one)
    for name, part in (("engine_active", 1.0), ("sm_active", 0.9)):
        yield f"vgpuscope_mig_{name}_ratio", labels, round(part * signal(t), 4)
        yield f"vgpuscope_mig_{name}_mean_ratio", labels, round(part * gpu.mean(key, signal, t), 6)
        yield f"vgpuscope_mig_{name}_max_ratio", labels, round(part * gpu.highest(key, signal, t), 4)
    if not one.beside:
        yield "vgpuscope_mig_decoder_ratio", labels, round(one.decoder(t), 4)


def _measured(gpu: Gpu, one: Instance) -> tuple[str, Signal]:
    """What the agent has of an instance: GPM's mean of each second, or the mean of an exporter's last collection."""
    if not one.beside:
        return one.tenant.key, one.tenant.compute

    def collected(t: float) -> float:
        at = t - t % gpu.collect
        seconds = range(int(at - gpu.collect), max(int(at), int(at - gpu.collect) + 1))
        return sum(map(one.tenant.compute, seconds)) / len(seconds)

    return f"{one.tenant.key}-collected", collected


def mig_uuid(gpu: Gpu, one: Instance) -> str:
    """The UUID as the driver reports it."""
    return f"MIG-{gpu.number:08x}-{one.gi:04x}-5000-8000-000000000000"


def _agent_tenants(gpu: Gpu, t: float, now: float) -> Iterator[Row]:
    if gpu.lost_from <= t:
        return
    pairs: list[tuple[Tenant, Instance | None]] = [(one, None) for one in gpu.tenants]
    pairs += [(one.tenant, one) for one in gpu.instances]
    for tenant, instance in pairs:
        if tenant.there(t) and not any(begin <= t < end for begin, end in tenant.paused):
            yield from _agent_tenant(gpu, tenant, instance, t, now)


def _agent_tenant(gpu: Gpu, tenant: Tenant, instance: Instance | None, t: float, now: float) -> Iterator[Row]:
    pod = ("node", gpu.node, "namespace", tenant.namespace, "pod", tenant.pod, "pod_uid", tenant.uid)
    who = (*pod, "container", tenant.container, "gpu_uuid", gpu.uuid)
    mig = ("mig_uuid", mig_uuid(gpu, instance)) if instance else ()
    labels = _labels(*who, *mig)
    yield "vgpuscope_container_info", _labels(*who, *mig, "mode", gpu.mode, "allocated", "true"), 1.0
    for name in _STATES:
        shown = float(name == _state(gpu, tenant, instance, t))
        yield "vgpuscope_container_state", _labels(*who, *mig, "state", name), shown
    yield "vgpuscope_container_processes", labels, float(tenant.started)
    total = tenant.limit or (instance.memory if instance else gpu.model.memory)
    yield "vgpuscope_container_memory_total_bytes", labels, float(total * MIB)
    if tenant.started:
        yield "vgpuscope_container_memory_used_bytes", labels, float(int(tenant.memory(t)) * MIB)
        yield "vgpuscope_pod_memory_used_bytes", _labels(*pod, "gpu_uuid", gpu.uuid), float(int(tenant.memory(t)) * MIB)
    if tenant.started and tenant.measured and not instance:
        yield from _agent_share(gpu, tenant, labels, t)
    if tenant.started and instance and instance.compute_shown:
        yield from _agent_instance_share(gpu, instance, labels, t)
    if tenant.cpu is not None:
        yield "vgpuscope_container_cpu_cores", labels, round(gpu.mean(f"cpu-{tenant.key}", tenant.cpu, t), 4)
    if gpu.mode == "hami":
        yield from _agent_region(gpu, tenant, _labels(*who, "vdevice_index", "0"), t, now)


def _state(gpu: Gpu, tenant: Tenant, instance: Instance | None, t: float) -> str:
    if not tenant.started:
        return "not-started"
    if not tenant.measured or (instance and not instance.compute_shown):
        return "unknown"
    key, signal = _measured(gpu, instance) if instance else (tenant.key, tenant.compute)
    return "active" if gpu.highest(key, signal, t) > 0 else "idle"


def _agent_instance_share(gpu: Gpu, one: Instance, labels: Labels, t: float) -> Iterator[Row]:
    """Of the whole GPU, as in the ledger, and of the instance."""
    key, signal = _measured(gpu, one)
    for name, part in (("sm", one.share), ("instance_sm", 1.0)):
        yield f"vgpuscope_container_{name}_ratio", labels, round(part * signal(t), 4)
        yield f"vgpuscope_container_{name}_mean_ratio", labels, round(part * gpu.mean(key, signal, t), 6)
        yield f"vgpuscope_container_{name}_max_ratio", labels, round(part * gpu.highest(key, signal, t), 4)
    yield "vgpuscope_container_sm_seconds_total", labels, round(one.share * gpu.total(key, signal, t), 3)
    yield "vgpuscope_container_sm_error_bound_ratio", labels, round(0.18 * one.share * signal(t), 4)


def _agent_share(gpu: Gpu, tenant: Tenant, labels: Labels, t: float) -> Iterator[Row]:
    yield "vgpuscope_container_sm_ratio", labels, round(tenant.compute(t), 4)
    yield "vgpuscope_container_sm_mean_ratio", labels, round(gpu.mean(tenant.key, tenant.compute, t), 6)
    yield "vgpuscope_container_sm_max_ratio", labels, round(gpu.highest(tenant.key, tenant.compute, t), 4)
    yield "vgpuscope_container_sm_seconds_total", labels, round(gpu.total(tenant.key, tenant.compute, t), 3)


def _agent_region(gpu: Gpu, tenant: Tenant, labels: Labels, t: float, now: float) -> Iterator[Row]:
    if tenant.limit:
        yield "vgpuscope_vgpu_memory_limit_bytes", labels, float(tenant.limit * MIB)
    if not tenant.started:
        return
    yield "vgpuscope_vgpu_memory_used_bytes", labels, float(int(tenant.memory(t)) * MIB)
    if tenant.measured:
        yield "vgpuscope_vgpu_sm_ratio", labels, round(tenant.compute(t), 4)
    last = gpu.last(f"{tenant.key}-launches", tenant.launches or tenant.compute, t)
    yield "vgpuscope_vgpu_last_kernel_timestamp_seconds", labels, now + last
