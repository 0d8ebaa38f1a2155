"""One GPU, read once: NVML's units and names are converted to ours, and impossible values are dropped."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from vgpuscope.model.device import (
    THROTTLE_REASONS,
    Gpu,
    GpuProcess,
    Memory,
    MigInstance,
    ThrottleReason,
)
from vgpuscope.sources.node.nvml.calls import (
    INVALID_ARGUMENT,
    NEVER,
    NOT_FOUND,
    NOT_SUPPORTED,
    SUCCESS,
    CachedValues,
    Calls,
    Counter,
    Garbage,
    GpuHandle,
    NvmlQuery,
    attribute,
)
from vgpuscope.sources.node.nvml.processes import process_lists, read_processes, with_use, without_use

Convert = Callable[[Any], Any]

SLOW = 10.0  # seconds between two reads of values that change rarely
CALM = 5.0  # seconds between two reads of slow values; they have no mean or maximum, so a scrape loses nothing
_NONE = 0xFFFFFFFF  # value of a 32-bit counter that means "none"


# -- conversions: raw value in, ours out, or Garbage ------------------------------------------------------------------


def _percent(value: int) -> float:
    if not 0 <= value <= 100:
        raise Garbage("percent-over-100")
    return value / 100


def _engine(value: Any) -> float:
    return _percent(value[0])  # [percent, sampling period]


def _bounded(reason: str, most: float, *, least: float = 0.0, times: float = 1.0, per: float = 1.0) -> Convert:
    def convert(value: float) -> float:
        if not least <= value <= most:
            raise Garbage(reason)
        return value * times / per

    return convert


def _count(value: int) -> int:
    if not 0 <= value < _NONE:
        raise Garbage("counter-wrapped")
    return value


def _throttle(mask: int) -> frozenset[ThrottleReason]:
    return _THROTTLE.get(mask) or frozenset(r for i, r in enumerate(THROTTLE_REASONS) if mask >> i & 1)


_THROTTLE = {1 << i: frozenset({reason}) for i, reason in enumerate(THROTTLE_REASONS)}

_watts = _bounded("power-implausible", 100_000_000, per=1000)  # mW; no GPU draws 100 kW


def _highest_watts(constraints: Sequence[int]) -> Any:
    return _watts(constraints[1])


_celsius = _bounded("temperature-implausible", 250, least=-100)
_hertz = _bounded("clock-implausible", 100_000, times=1e6)  # MHz
_fan = _bounded("fan-implausible", 200, per=100)  # the intended speed, which may exceed 100 %


# -- what is asked ----------------------------------------------------------------------------------------------------

_SM, _MEMORY = (1,), (2,)
_CORRECTED, _UNCORRECTED = (0, 0), (1, 0)  # volatile: since the driver was loaded

_VALUES: tuple[tuple[str, NvmlQuery, Convert], ...] = (
    ("power", NvmlQuery("nvmlDeviceGetPowerUsage"), _watts),
    ("sm_clock", NvmlQuery("nvmlDeviceGetClockInfo", args=_SM), _hertz),
    (
        "throttle",
        NvmlQuery("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"),
        _throttle,
    ),
)
# read every CALM seconds, with the fields below
_CALM: tuple[tuple[str, NvmlQuery, Convert], ...] = (
    ("temperature", NvmlQuery("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature", args=(0,)), _celsius),
    ("memory_clock", NvmlQuery("nvmlDeviceGetClockInfo", args=_MEMORY), _hertz),
    ("fan", NvmlQuery("nvmlDeviceGetFanSpeed"), _fan),
)
# on a GPU with MIG instances, the engines belong to the instances
_ENGINES: tuple[tuple[str, NvmlQuery, Convert], ...] = (
    ("encoder", NvmlQuery("nvmlDeviceGetEncoderUtilization"), _engine),
    ("decoder", NvmlQuery("nvmlDeviceGetDecoderUtilization"), _engine),
    ("jpeg", NvmlQuery("nvmlDeviceGetJpgUtilization"), _engine),
    ("ofa", NvmlQuery("nvmlDeviceGetOfaUtilization"), _engine),
)
_STATIC: tuple[tuple[str, NvmlQuery, Convert], ...] = (
    ("sm_clock_max", NvmlQuery("nvmlDeviceGetMaxClockInfo", args=_SM), _hertz),
    ("memory_clock_max", NvmlQuery("nvmlDeviceGetMaxClockInfo", args=_MEMORY), _hertz),
    ("power_limit_max", NvmlQuery("nvmlDeviceGetPowerManagementLimitConstraints"), _highest_watts),
)
# rare changes, and costly for the driver; read every SLOW seconds, with the remapped rows
_SLOW: tuple[tuple[str, NvmlQuery, Convert], ...] = (
    ("power_limit", NvmlQuery("nvmlDeviceGetEnforcedPowerLimit"), _watts),
    ("ecc_corrected", NvmlQuery("nvmlDeviceGetTotalEccErrors", args=_CORRECTED), _count),
    ("ecc_uncorrected", NvmlQuery("nvmlDeviceGetTotalEccErrors", args=_UNCORRECTED), _count),
)
_ENERGY = NvmlQuery("nvmlDeviceGetTotalEnergyConsumption")
_UTILIZATION = NvmlQuery("nvmlDeviceGetUtilizationRates")
_REMAPPED = NvmlQuery("nvmlDeviceGetRemappedRows")
_FIELDS = NvmlQuery("nvmlDeviceGetFieldValues")
_MIG_MODE = NvmlQuery("nvmlDeviceGetMigMode")
_MIG_COUNT = NvmlQuery("nvmlDeviceGetMaxMigDeviceCount")
_MIG_HANDLE = NvmlQuery("nvmlDeviceGetMigDeviceHandleByIndex")
_MEMORY_TEMPERATURE, _PCIE_REPLAYS, _PCIE_SENT, _PCIE_RECEIVED = 82, 94, 197, 198
_FIELD_IDS = tuple(
    (field, f"field {field}") for field in (_MEMORY_TEMPERATURE, _PCIE_REPLAYS, _PCIE_SENT, _PCIE_RECEIVED)
)
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # of the value union, by value type

_RATES = {"energy": 1e8, "pcie_sent": 1e12, "pcie_received": 1e12}  # mJ and bytes per second: physical maxima


class _Holder:
    """The questions for both a GPU and a MIG instance; each remembers separately what is not supported."""

    def __init__(self, of: str) -> None:
        self.memory2 = NvmlQuery("nvmlDeviceGetMemoryInfo", of=f"{of}v2 ")
        self.memory1 = NvmlQuery("nvmlDeviceGetMemoryInfo", of=f"{of}v1 ")
        self.lists = process_lists(of)


_GPU = _Holder("")
_INSTANCE = _Holder("instance ")
_UUID = NvmlQuery("nvmlDeviceGetUUID", of="instance ")
_NAME = NvmlQuery("nvmlDeviceGetName", of="instance ")
_ATTRIBUTES = NvmlQuery("nvmlDeviceGetAttributes", of="instance ")
_GPU_INSTANCE = NvmlQuery("nvmlDeviceGetGpuInstanceId", of="instance ")
_BY_ID = NvmlQuery("nvmlDeviceGetGpuInstanceById", nothing=(NOT_FOUND,))
_INFO = NvmlQuery("nvmlGpuInstanceGetInfo", of="instance ")
_COMPUTE_INSTANCE = NvmlQuery("nvmlDeviceGetComputeInstanceId", of="instance ")


def read_gpu(calls: Calls, gpu: GpuHandle, clock: Callable[[], float]) -> Gpu:
    """Everything that the GPU reports now. Raises GpuDown or DriverGone; any other failure is one missing value."""
    gpu.answered = gpu.failed = gpu.denied = 0
    mode = calls.ask(gpu, _MIG_MODE)
    mig = None if mode is None else mode[0] == 1
    memory = _memory(calls, gpu, _GPU)
    listed = read_processes(calls, gpu, _GPU.lists, memory)
    processes = None
    if listed is not None:
        processes = with_use(calls, gpu, listed, clock) if listed and not mig else without_use(listed)
    values: dict[str, Any] = {}
    _fill(calls, gpu, _VALUES, values)
    if not mig:
        _fill(calls, gpu, _ENGINES, values)
        _utilization(calls, gpu, values)
    _static(calls, gpu, values)
    _energy(calls, gpu, values)
    values |= _kept(calls, gpu, gpu.calm, CALM, partial(_read_calm, calls, gpu))
    values |= _kept(calls, gpu, gpu.slow, SLOW, partial(_read_slow, calls, gpu))
    return Gpu(
        **gpu.identity(),
        **values,
        mig_enabled=mig,
        memory=memory,
        processes=processes,
        instances=_instances(calls, gpu) if mig else (),
    )


# -- values of a GPU -------------------------------------------------------------------------------------------------


def _fill(
    calls: Calls, gpu: GpuHandle, table: tuple[tuple[str, NvmlQuery, Convert], ...], values: dict[str, Any]
) -> None:
    ask = calls.ask
    for field, question, convert in table:
        _put(calls, values, field, ask(gpu, question), convert)


def _put(calls: Calls, values: dict[str, Any], field: str, raw: Any, convert: Convert) -> None:
    if raw is None:
        return
    try:
        values[field] = convert(raw)
    except Garbage as e:
        calls.drop(e.reason)


def _static(calls: Calls, gpu: GpuHandle, values: dict[str, Any]) -> None:
    if len(gpu.static) < len(_STATIC):
        _fill(calls, gpu, tuple(row for row in _STATIC if row[0] not in gpu.static), gpu.static)
    values.update(gpu.static)


def _kept(
    calls: Calls,
    gpu: GpuHandle,
    kept: CachedValues,
    seconds: float,
    read: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    """The values of the last read, unless it is too long ago. A read with a failure or garbage is not kept."""
    if not 0.0 <= calls.now - kept.at < seconds:
        before, kept.values = _faults(calls, gpu), {}
        read(kept.values)
        kept.at = calls.now if _faults(calls, gpu) == before else NEVER
    return kept.values


def _read_slow(calls: Calls, gpu: GpuHandle, values: dict[str, Any]) -> None:
    _fill(calls, gpu, _SLOW, values)
    _remapped(calls, gpu, values)


def _read_calm(calls: Calls, gpu: GpuHandle, values: dict[str, Any]) -> None:
    _fill(calls, gpu, _CALM, values)
    _fields(calls, gpu, values)


def _faults(calls: Calls, gpu: GpuHandle) -> int:
    return gpu.failed + sum(calls.dropped.values())


def _utilization(calls: Calls, gpu: GpuHandle, values: dict[str, Any]) -> None:
    rates = calls.ask(gpu, _UTILIZATION)
    if rates is None:
        return
    _put(calls, values, "utilization", rates.gpu, _percent)
    _put(calls, values, "memory_controller", rates.memory, _percent)


def _energy(calls: Calls, gpu: GpuHandle, values: dict[str, Any]) -> None:
    millijoules = calls.ask(gpu, _ENERGY)
    if millijoules is not None and _counts(calls, gpu, "energy", millijoules):
        values["energy"] = millijoules / 1000


def _counts(calls: Calls, gpu: GpuHandle, field: str, value: int) -> bool:
    counter = gpu.counters.get(field)
    if counter is None:
        counter = gpu.counters[field] = Counter(_RATES[field])
    try:
        counter.check(value, calls.now)
    except Garbage as e:
        calls.drop(e.reason)
        return False
    return True


def _remapped(calls: Calls, gpu: GpuHandle, values: dict[str, Any]) -> None:
    rows = calls.ask(gpu, _REMAPPED)
    if rows is None:
        return
    corrected, uncorrected, pending, failed = rows
    try:
        counts = {"remapped_corrected": _count(corrected), "remapped_uncorrected": _count(uncorrected)}
    except Garbage as e:
        calls.drop(e.reason)
        return
    values.update(counts, remap_pending=bool(pending), remap_failed=bool(failed))


def _fields(calls: Calls, gpu: GpuHandle, values: dict[str, Any]) -> None:
    wanted = [(field, key) for field, key in _FIELD_IDS if not calls.quiet(gpu, key)]
    answers = calls.ask(gpu, _FIELDS, [field for field, _ in wanted]) if wanted else None
    for (field, key), answer in zip(wanted, answers or (), strict=False):
        code = attribute(answer, "nvmlReturn")
        if code != SUCCESS:
            # an older driver answers "invalid argument" for a field that it does not know
            calls.learn(gpu, key, NOT_SUPPORTED if code == INVALID_ARGUMENT else code)
            continue
        kind = attribute(answer, "valueType")
        if 0 <= kind < len(_MEMBERS):
            _field(calls, gpu, field, getattr(attribute(answer, "value"), _MEMBERS[kind]), values)


def _field(calls: Calls, gpu: GpuHandle, field: int, value: Any, values: dict[str, Any]) -> None:
    if field == _MEMORY_TEMPERATURE:
        # boards without the sensor answer 0 °C
        _put(calls, values, "memory_temperature", value or None, _celsius)
        return
    if field == _PCIE_REPLAYS:
        _put(calls, values, "pcie_replays", int(value), _count)
        return
    name = "pcie_sent" if field == _PCIE_SENT else "pcie_received"
    if _counts(calls, gpu, name, int(value)):
        values[name] = int(value)


# -- memory -----------------------------------------------------------------------------------------------------------


def _memory(calls: Calls, gpu: GpuHandle, holder: _Holder, handle: Any = None) -> Memory | None:
    version, key = calls.memory_version, holder.memory2.names[0][1]
    if version is not None and not calls.quiet(gpu, key):
        info = calls.ask(gpu, holder.memory2, version, handle=handle)
        # a temporary failure must not switch the series to v1, which counts reserved memory as used
        if info is not None or not calls.quiet(gpu, key):
            return None if info is None else _checked(calls, info, reserved=attribute(info, "reserved"))
    info = calls.ask(gpu, holder.memory1, handle=handle)
    return None if info is None else _checked(calls, info, reserved=None)


def _checked(calls: Calls, info: Any, *, reserved: int | None) -> Memory | None:
    total, used, free = attribute(info, "total"), attribute(info, "used"), attribute(info, "free")
    if total <= 0:
        calls.drop("memory-without-total")
        return None
    if max(used, free, reserved or 0) > total or min(used, free) < 0:
        calls.drop("memory-over-total")
        return None
    return Memory(total=total, used=used, free=free, reserved=reserved)


# -- MIG --------------------------------------------------------------------------------------------------------------


def _instances(calls: Calls, gpu: GpuHandle) -> tuple[MigInstance, ...]:
    """All MIG instances; handles are read each time, since that of a destroyed instance may be reused for another."""
    found = []
    for index in range(calls.ask(gpu, _MIG_COUNT) or 0):
        handle = calls.ask(gpu, _MIG_HANDLE, index)
        if handle is not None:  # numbers have gaps
            found.append(_instance(calls, gpu, index, handle))
    instances = tuple(instance for instance in found if instance is not None)
    gpu.places = {i.uuid: (i.profile_id, i.start, i.size) for i in instances if i.start is not None}
    return instances


def _instance(calls: Calls, gpu: GpuHandle, index: int, handle: Any) -> MigInstance | None:
    """One MIG instance, or None if it was destroyed meanwhile."""
    uuid = calls.ask(gpu, _UUID, handle=handle)
    gi = calls.ask(gpu, _GPU_INSTANCE, handle=handle)
    ci = calls.ask(gpu, _COMPUTE_INSTANCE, handle=handle)
    if uuid is None or gi is None or ci is None:
        return None
    memory = _memory(calls, gpu, _INSTANCE, handle)
    listed = read_processes(calls, gpu, _INSTANCE.lists, memory, handle)
    attributes = calls.ask(gpu, _ATTRIBUTES, handle=handle)
    profile_id, start, size = gpu.places.get(uuid) or _place(calls, gpu, gi)
    return MigInstance(
        uuid=uuid,
        index=index,
        gpu_instance=gi,
        compute_instance=ci,
        profile=_profile(calls.ask(gpu, _NAME, handle=handle), attributes),
        memory=memory,
        processes=None if listed is None else tuple(_placed(p, gi, ci) for p in without_use(listed)),
        slices=None if attributes is None else attributes.computeInstanceSliceCount or None,
        profile_id=profile_id,
        start=start,
        size=size,
    )


def _place(calls: Calls, gpu: GpuHandle, gi: int) -> tuple[int | None, int | None, int | None]:
    """Profile id and memory slices of a GPU instance, which never change; some drivers give them only to root."""
    handle = calls.ask(gpu, _BY_ID, gi)
    info = calls.ask(gpu, _INFO, handle=handle) if handle else None
    return (info.profileId, info.placement.start, info.placement.size) if info is not None else (None, None, None)


def _placed(process: GpuProcess, gi: int, ci: int) -> GpuProcess:
    """The process with the instance it was listed on."""
    if process.gpu_instance == gi and process.compute_instance == ci:
        return process
    return GpuProcess(pid=process.pid, kinds=process.kinds, memory=process.memory, gpu_instance=gi, compute_instance=ci)


def _profile(name: str | None, attributes: Any) -> str | None:
    """ "1g.10gb" from "NVIDIA A100-SXM4-80GB MIG 1g.10gb", or else from the sizes."""
    found = re.search(r"\bMIG (\S+)$", name or "")
    if found:
        return found[1]
    if attributes is None or not attributes.gpuInstanceSliceCount:
        return None
    gi, ci = attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount
    part = f"{ci}c." if 0 < ci < gi else ""
    return f"{part}{gi}g.{round(attributes.memorySizeMB / 1024)}gb"
