"""A simulated driver: the names, constants and errors of nvidia-ml-py's module, answered from devices.json.

Another process replaces the file; every call here reads the newest one.
"""
# ruff: noqa: N802, N803, N815 - the names are the driver's

import ctypes
import itertools
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar

import msgspec

from vgpuscope.sim.state import NO_INSTANCE, DriverState, GpuState, InstanceState, ProcessState, XidState

T = TypeVar("T")

_POLL = 0.05  # seconds between two reads of the state while a call waits
_GPM_METRICS = 210  # room for so many in one call, as in the binding of driver 560

_ERRORS = {
    1: ("UNINITIALIZED", "Uninitialized"),
    2: ("INVALID_ARGUMENT", "Invalid Argument"),
    3: ("NOT_SUPPORTED", "Not Supported"),
    4: ("NO_PERMISSION", "Insufficient Permissions"),
    5: ("ALREADY_INITIALIZED", "Already Initialized"),
    6: ("NOT_FOUND", "Not Found"),
    7: ("INSUFFICIENT_SIZE", "Insufficient Size"),
    8: ("INSUFFICIENT_POWER", "Insufficient External Power"),
    9: ("DRIVER_NOT_LOADED", "Driver Not Loaded"),
    10: ("TIMEOUT", "Timeout"),
    11: ("IRQ_ISSUE", "Interrupt Request Issue"),
    12: ("LIBRARY_NOT_FOUND", "NVML Shared Library Not Found"),
    13: ("FUNCTION_NOT_FOUND", "Function Not Found"),
    14: ("CORRUPTED_INFOROM", "Corrupted infoROM"),
    15: ("GPU_IS_LOST", "GPU is lost"),
    16: ("RESET_REQUIRED", "GPU requires restart"),
    17: ("OPERATING_SYSTEM", "The operating system has blocked the request."),
    18: ("LIB_RM_VERSION_MISMATCH", "RM has detected an NVML/RM version mismatch."),
    19: ("IN_USE", "In use by another client"),
    20: ("MEMORY", "Insufficient Memory"),
    21: ("NO_DATA", "No data"),
    22: ("VGPU_ECC_NOT_SUPPORTED", "The requested vgpu operation is not available, because ECC is enabled"),
    23: ("INSUFFICIENT_RESOURCES", "Ran out of critical resources"),
    24: ("FREQ_NOT_SUPPORTED", "The requested frequency is not supported"),
    25: ("ARGUMENT_VERSION_MISMATCH", "Argument version mismatch"),
    26: ("DEPRECATED", "Deprecated"),
    27: ("NOT_READY", "Not ready"),
    28: ("GPU_NOT_FOUND", "No GPUs were found"),
    29: ("INVALID_STATE", "Invalid state"),
    30: ("RESET_TYPE_NOT_SUPPORTED", "Reset type not supported"),
    999: ("UNKNOWN", "Unknown Error"),
}

# made here: msgspec resolves a type at its first use, and two threads that do so at once crash Python 3.12
_STATE = msgspec.json.Decoder(DriverState)


class NVMLError(Exception):
    """A call failed; value is the driver's code."""

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value

    def __str__(self) -> str:
        return _ERRORS[self.value][1] if self.value in _ERRORS else f"NVML Error with code {self.value}"


class NVMLLibraryMismatchError(Exception):
    """The library lacks a versioned call; not an NVMLError, as in the real binding."""


_CLASSES: dict[int, type[NVMLError]] = {
    code: type("NVMLError_" + name.title().replace("_", ""), (NVMLError,), {}) for code, (name, _) in _ERRORS.items()
}


def _error(code: int) -> NVMLError:
    return _CLASSES[code](code)


class _Handle:
    """A GPU or MIG instance by UUID; valid as long as the GPU or instance exists."""

    def __init__(self, gpu: str, instance: str | None = None) -> None:
        self.gpu, self.instance = gpu, instance

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Handle) and (self.gpu, self.instance) == (other.gpu, other.instance)

    def __hash__(self) -> int:
        return hash((self.gpu, self.instance))


class _EventSet:
    def __init__(self) -> None:
        self.gpus: set[str] = set()
        self.seen = 0


class _GpmInfo(ctypes.Structure):
    _fields_ = (("shortName", ctypes.c_char_p), ("longName", ctypes.c_char_p), ("unit", ctypes.c_char_p))


class _GpmMetric(ctypes.Structure):
    _fields_ = (
        ("metricId", ctypes.c_uint),
        ("nvmlReturn", ctypes.c_uint),
        ("value", ctypes.c_double),
        ("metricInfo", _GpmInfo),
    )


class _GpmMetricsGet(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint),
        ("numMetrics", ctypes.c_uint),
        ("sample1", ctypes.c_void_p),
        ("sample2", ctypes.c_void_p),
        ("metrics", _GpmMetric * _GPM_METRICS),
    )


class Binding:
    """Replaces the module `pynvml`."""

    NVMLError = NVMLError
    NVMLLibraryMismatchError = NVMLLibraryMismatchError

    NVML_TEMPERATURE_GPU = 0
    NVML_CLOCK_GRAPHICS, NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_CLOCK_VIDEO = 0, 1, 2, 3
    NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 0, 1
    NVML_VOLATILE_ECC, NVML_AGGREGATE_ECC = 0, 1
    NVML_FEATURE_DISABLED, NVML_FEATURE_ENABLED = 0, 1
    NVML_DEVICE_MIG_DISABLE, NVML_DEVICE_MIG_ENABLE = 0, 1
    NVML_INIT_FLAG_NO_GPUS, NVML_INIT_FLAG_NO_ATTACH = 1, 2
    NVML_FI_DEV_MEMORY_TEMP, NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION = 82, 83
    NVML_FI_DEV_POWER_AVERAGE, NVML_FI_DEV_POWER_INSTANT = 185, 186
    NVML_FI_DEV_PCIE_COUNT_TX_BYTES, NVML_FI_DEV_PCIE_COUNT_RX_BYTES = 197, 198
    NVML_VALUE_TYPE_DOUBLE, NVML_VALUE_TYPE_UNSIGNED_INT, NVML_VALUE_TYPE_UNSIGNED_LONG = 0, 1, 2
    NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, NVML_VALUE_TYPE_SIGNED_LONG_LONG = 3, 4
    NVML_VALUE_TYPE_SIGNED_INT, NVML_VALUE_TYPE_UNSIGNED_SHORT = 5, 6
    nvmlMemory_v2 = 0x02000028
    nvmlTemperature_v1 = 0x100000C
    nvmlEventTypeXidCriticalError = 8

    NVML_SUCCESS = 0

    def __init__(self, path: Path, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._path, self._sleep = path, sleep
        self._lock = threading.Lock()
        self._mark: tuple[int, int] | None = None
        self._latest: DriverState | None = None
        self._users = 0
        self._numbers = itertools.count(1)
        self._samples: dict[int, dict[int, float] | None] = {}  # of GPM

    # The library

    def nvmlInit(self) -> None:
        self.nvmlInitWithFlags(0)

    def nvmlInitWithFlags(self, flags: int) -> None:  # noqa: ARG002 - every flag is fine
        if not self._path.exists():
            raise _error(9)
        self._users += 1

    def nvmlShutdown(self) -> None:
        if not self._users:
            raise _error(1)
        self._users -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return self._state().driver

    def nvmlSystemGetNVMLVersion(self) -> str:
        return f"13.{self._state().driver}"

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        return self._state().cuda

    nvmlSystemGetCudaDriverVersion_v2 = nvmlSystemGetCudaDriverVersion

    def nvmlErrorString(self, code: int) -> str:
        return str(NVMLError(code))

    # GPUs and their identity

    def nvmlDeviceGetCount(self) -> int:
        return len(self._state().gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> _Handle:
        gpus = self._state().gpus
        if not 0 <= index < len(gpus):
            raise _error(2)
        return self._handle(gpus[index].uuid)

    def nvmlDeviceGetHandleByUUID(self, uuid: str | bytes) -> _Handle:
        wanted = uuid.decode() if isinstance(uuid, bytes) else uuid
        for gpu in self._state().gpus:
            if gpu.uuid == wanted:
                return self._handle(wanted)
            if any(instance.uuid == wanted for instance in gpu.instances):
                return _Handle(gpu.uuid, wanted)
        raise _error(6)

    def nvmlDeviceGetIndex(self, handle: _Handle) -> int:
        gpu, instance = self._look(handle)
        return instance.index if instance else gpu.index

    def nvmlDeviceGetUUID(self, handle: _Handle) -> str:
        gpu, instance = self._look(handle)
        return instance.uuid if instance else gpu.uuid

    def nvmlDeviceGetName(self, handle: _Handle) -> str:
        gpu, instance = self._look(handle)
        return instance.name if instance else gpu.name

    def nvmlDeviceGetSerial(self, handle: _Handle) -> str:
        return _said(self._gpu(handle).serial)

    def nvmlDeviceGetMinorNumber(self, handle: _Handle) -> int:
        return self._gpu(handle).index

    def nvmlDeviceGetPciInfo(self, handle: _Handle) -> SimpleNamespace:
        bus_id = self._gpu(handle).bus_id
        domain, bus, rest = bus_id.split(":")
        return SimpleNamespace(
            busId=bus_id,
            busIdLegacy=bus_id[4:],
            domain=int(domain, 16),
            bus=int(bus, 16),
            device=int(rest.split(".")[0], 16),
            pciDeviceId=0x20B210DE,
            pciSubSystemId=0x147F10DE,
        )

    nvmlDeviceGetPciInfo_v3 = nvmlDeviceGetPciInfo

    # Measurements of a GPU

    def nvmlDeviceGetMemoryInfo(self, handle: _Handle, version: int | None = None) -> SimpleNamespace:
        gpu, instance = self._look(handle)
        place = instance or gpu
        free = place.total - place.reserved - place.used
        if version:
            return SimpleNamespace(
                version=version, total=place.total, reserved=place.reserved, free=free, used=place.used
            )
        return SimpleNamespace(total=place.total, free=free, used=place.used + place.reserved)

    def nvmlDeviceGetUtilizationRates(self, handle: _Handle) -> SimpleNamespace:
        gpu = self._gpu(handle)
        return SimpleNamespace(gpu=_said(gpu.busy), memory=_said(gpu.memory_busy))

    def nvmlDeviceGetEncoderUtilization(self, handle: _Handle) -> list[int]:
        return [_said(self._gpu(handle).encoder), 167000]

    def nvmlDeviceGetDecoderUtilization(self, handle: _Handle) -> list[int]:
        return [_said(self._gpu(handle).decoder), 167000]

    def nvmlDeviceGetJpgUtilization(self, handle: _Handle) -> list[int]:
        gpu = self._gpu(handle)
        return [0 if gpu.remapped and gpu.busy is not None else _said(None), 167000]

    nvmlDeviceGetOfaUtilization = nvmlDeviceGetJpgUtilization

    def nvmlDeviceGetPowerUsage(self, handle: _Handle) -> int:
        return self._gpu(handle).power_mw

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: _Handle) -> int:
        return self._gpu(handle).limit_mw

    nvmlDeviceGetPowerManagementLimit = nvmlDeviceGetEnforcedPowerLimit
    nvmlDeviceGetPowerManagementDefaultLimit = nvmlDeviceGetEnforcedPowerLimit

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: _Handle) -> int:
        return self._gpu(handle).energy_mj

    def nvmlDeviceGetTemperature(self, handle: _Handle, sensor: int) -> int:
        if sensor != self.NVML_TEMPERATURE_GPU:
            raise _error(2)
        return self._gpu(handle).temperature

    def nvmlDeviceGetTemperatureV(self, handle: _Handle, sensor: int, version: int = nvmlTemperature_v1) -> int:
        if version != self.nvmlTemperature_v1:
            raise _error(25)
        return self.nvmlDeviceGetTemperature(handle, sensor)

    def nvmlDeviceGetClockInfo(self, handle: _Handle, type: int) -> int:  # noqa: A002
        gpu = self._gpu(handle)
        return gpu.memory_mhz if type == self.NVML_CLOCK_MEM else gpu.sm_mhz

    def nvmlDeviceGetMaxClockInfo(self, handle: _Handle, type: int) -> int:  # noqa: A002
        gpu = self._gpu(handle)
        return gpu.memory_max_mhz if type == self.NVML_CLOCK_MEM else gpu.sm_max_mhz

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: _Handle) -> int:
        return self._gpu(handle).throttle

    nvmlDeviceGetCurrentClocksThrottleReasons = nvmlDeviceGetCurrentClocksEventReasons

    def nvmlDeviceGetPowerManagementLimitConstraints(self, handle: _Handle) -> list[int]:
        limit = self._gpu(handle).limit_mw
        return [limit // 4, limit]

    def nvmlDeviceGetFanSpeed(self, handle: _Handle) -> int:
        return _said(self._gpu(handle).fan)

    def nvmlDeviceGetTotalEccErrors(self, handle: _Handle, errorType: int, counterType: int) -> int:  # noqa: ARG002
        return _said(self._gpu(handle).ecc)[errorType]

    def nvmlDeviceGetRemappedRows(self, handle: _Handle) -> tuple[int, int, int, int]:
        return _said(self._gpu(handle).remapped)

    def nvmlDeviceGetFieldValues(self, handle: _Handle, fieldIds: list[int]) -> list[SimpleNamespace]:
        gpu = self._gpu(handle)
        known = {
            82: gpu.memory_temperature if gpu.remapped else None,  # reported only by boards with HBM or new GDDR
            83: gpu.energy_mj,
            94: 0,
            185: gpu.power_mw,
            186: gpu.power_mw,
            197: gpu.sent,
            198: gpu.received,
        }
        return [_field(field, known.get(field)) for field in fieldIds]

    # Processes

    def nvmlDeviceGetComputeRunningProcesses(self, handle: _Handle) -> list[SimpleNamespace]:
        return self._processes(handle, "C")

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: _Handle) -> list[SimpleNamespace]:
        return self._processes(handle, "G")

    def nvmlDeviceGetMPSComputeRunningProcesses(self, handle: _Handle) -> list[SimpleNamespace]:
        return self._processes(handle, "M")

    nvmlDeviceGetComputeRunningProcesses_v2 = nvmlDeviceGetComputeRunningProcesses
    nvmlDeviceGetComputeRunningProcesses_v3 = nvmlDeviceGetComputeRunningProcesses
    nvmlDeviceGetGraphicsRunningProcesses_v2 = nvmlDeviceGetGraphicsRunningProcesses
    nvmlDeviceGetGraphicsRunningProcesses_v3 = nvmlDeviceGetGraphicsRunningProcesses
    nvmlDeviceGetMPSComputeRunningProcesses_v2 = nvmlDeviceGetMPSComputeRunningProcesses
    nvmlDeviceGetMPSComputeRunningProcesses_v3 = nvmlDeviceGetMPSComputeRunningProcesses

    def nvmlDeviceGetProcessUtilization(self, handle: _Handle, timeStamp: int) -> list[SimpleNamespace]:
        gpu = self._gpu(handle)
        if gpu.mig:
            raise _error(3)
        found = [_sample(p) for p in gpu.processes if p.sample and p.sample.at > timeStamp]
        if not found:
            raise _error(6)
        return found

    # MIG

    def nvmlDeviceGetMigMode(self, handle: _Handle) -> list[int]:
        mig = _said(self._gpu(handle).mig)
        return [int(mig), int(mig)]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: _Handle) -> int:
        return self._gpu(handle).max_instances

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: _Handle, index: int) -> _Handle:
        for instance in self._gpu(handle).instances:
            if instance.index == index:
                return _Handle(handle.gpu, instance.uuid)
        raise _error(6)

    def nvmlDeviceIsMigDeviceHandle(self, handle: _Handle) -> SimpleNamespace:
        return SimpleNamespace(value=int(handle.instance is not None))

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: _Handle) -> _Handle:
        self._instance(handle)
        return _Handle(handle.gpu)

    def nvmlDeviceGetGpuInstanceId(self, handle: _Handle) -> int:
        return self._instance(handle).gpu_instance

    def nvmlDeviceGetComputeInstanceId(self, handle: _Handle) -> int:
        return self._instance(handle).compute_instance

    def nvmlDeviceGetAttributes_v2(self, handle: _Handle) -> SimpleNamespace:
        instance = self._instance(handle)
        return SimpleNamespace(
            multiprocessorCount=14 * instance.slices,
            sharedCopyEngineCount=instance.slices,
            sharedDecoderCount=0,
            sharedEncoderCount=0,
            sharedJpegCount=0,
            sharedOfaCount=0,
            gpuInstanceSliceCount=instance.memory_slices,
            computeInstanceSliceCount=instance.slices,
            memorySizeMB=instance.total // (1024 * 1024),
        )

    nvmlDeviceGetAttributes = nvmlDeviceGetAttributes_v2

    # GPM: the values between two samples are those of the later one

    c_nvmlGpmMetric_t = _GpmMetric
    c_nvmlGpmMetricsGet_t = _GpmMetricsGet
    NVML_GPM_METRICS_GET_VERSION = 1

    def nvmlGpmQueryDeviceSupport(self, device: _Handle) -> SimpleNamespace:
        return SimpleNamespace(version=1, isSupportedDevice=int(self._gpu(device).gpm is not None))

    def nvmlGpmSampleAlloc(self) -> ctypes.c_void_p:
        number = next(self._numbers)
        self._samples[number] = None
        return ctypes.c_void_p(number)

    def nvmlGpmSampleFree(self, gpmSample: ctypes.c_void_p) -> None:
        self._samples.pop(gpmSample.value or 0, None)

    def nvmlGpmSampleGet(self, device: _Handle, gpmSample: ctypes.c_void_p) -> ctypes.c_void_p:
        gpu = self._gpu(device)
        self._samples[gpmSample.value or 0] = _said(None if gpu.gpm_instances_only else gpu.gpm)
        return gpmSample

    def nvmlGpmMigSampleGet(self, device: _Handle, gpuInstanceId: int, gpmSample: ctypes.c_void_p) -> ctypes.c_void_p:
        found = [one for one in self._gpu(device).instances if one.gpu_instance == gpuInstanceId]
        if not found:
            raise _error(2)
        self._samples[gpmSample.value or 0] = _said(found[0].gpm)
        return gpmSample

    def nvmlGpmMetricsGet(self, metricsGet: "_GpmMetricsGet") -> "_GpmMetricsGet":
        values = self._samples.get(metricsGet.sample2 or 0)
        if values is None or self._samples.get(metricsGet.sample1 or 0) is None:
            raise _error(2)
        for metric in metricsGet.metrics[: metricsGet.numMetrics]:
            metric.nvmlReturn = 0 if metric.metricId in values else 3
            metric.value = values.get(metric.metricId, 0.0)
        return metricsGet

    # Events

    def nvmlEventSetCreate(self) -> _EventSet:
        events = _EventSet()
        events.seen = max((x.number for x in self._state().xids), default=0)
        return events

    def nvmlDeviceRegisterEvents(self, handle: _Handle, eventTypes: int, eventSet: _EventSet) -> None:  # noqa: ARG002
        if handle.instance:
            raise _error(3)
        eventSet.gpus.add(self._gpu(handle).uuid)

    def nvmlDeviceGetSupportedEventTypes(self, handle: _Handle) -> int:
        self._gpu(handle)
        return self.nvmlEventTypeXidCriticalError

    def nvmlEventSetWait_v2(self, eventSet: _EventSet, timeoutms: int) -> SimpleNamespace:
        left = timeoutms / 1000
        while True:
            for xid in self._state().xids:
                if xid.number > eventSet.seen:
                    eventSet.seen = xid.number
                    if xid.uuid in eventSet.gpus:
                        return _event(xid)
            if left <= 0:
                raise _error(10)
            self._sleep(min(_POLL, left))
            left -= _POLL

    nvmlEventSetWait = nvmlEventSetWait_v2

    def nvmlEventSetFree(self, eventSet: _EventSet) -> None:
        eventSet.gpus.clear()

    # Reading the state

    def _state(self) -> DriverState:
        if not self._users:
            raise _error(1)
        with self._lock:
            try:
                status = os.stat(self._path)
                mark = (status.st_ino, status.st_mtime_ns)
                if self._latest is None or mark != self._mark:
                    self._latest = _STATE.decode(self._path.read_bytes())
                    self._mark = mark
            except FileNotFoundError:
                raise _error(9) from None
            return self._latest

    def _handle(self, uuid: str) -> _Handle:
        if self._awake(uuid).lost:
            raise _error(15)
        return _Handle(uuid)

    def _look(self, handle: _Handle) -> tuple[GpuState, InstanceState | None]:
        gpu = self._awake(handle.gpu)
        if gpu.lost:
            raise _error(15)
        if handle.instance is None:
            return gpu, None
        for instance in gpu.instances:
            if instance.uuid == handle.instance:
                return gpu, instance
        raise _error(2)  # the instance was destroyed, so the handle is invalid

    def _awake(self, uuid: str) -> GpuState:
        # A call to a hung driver does not fail: it returns when the hang is over.
        while True:
            gpu = next((c for c in self._state().gpus if c.uuid == uuid), None)
            if gpu is None:
                raise _error(2)
            if not gpu.hung:
                return gpu
            self._sleep(_POLL)

    def _gpu(self, handle: _Handle) -> GpuState:
        gpu, instance = self._look(handle)
        if instance:
            raise _error(3)
        return gpu

    def _instance(self, handle: _Handle) -> InstanceState:
        _, instance = self._look(handle)
        if instance is None:
            raise _error(3)
        return instance

    def _processes(self, handle: _Handle, kind: str) -> list[SimpleNamespace]:
        gpu, instance = self._look(handle)
        return [_listed(p) for p in gpu.processes if kind in p.kinds and _within(p, instance)]


for _code, (_name, _) in _ERRORS.items():
    setattr(Binding, f"NVML_ERROR_{_name}", _code)
    setattr(Binding, _CLASSES[_code].__name__, _CLASSES[_code])


def _said(value: T | None) -> T:
    if value is None:
        raise _error(3)
    return value


def _within(process: ProcessState, instance: InstanceState | None) -> bool:
    if instance is None:
        return True
    place = (process.gpu_instance, process.compute_instance)
    return place == (instance.gpu_instance, instance.compute_instance)


def _listed(process: ProcessState) -> SimpleNamespace:
    return SimpleNamespace(
        pid=process.pid,
        usedGpuMemory=process.memory,
        gpuInstanceId=process.gpu_instance,
        computeInstanceId=process.compute_instance,
    )


def _sample(process: ProcessState) -> SimpleNamespace:
    sample = process.sample
    assert sample
    return SimpleNamespace(
        pid=process.pid,
        timeStamp=sample.at,
        smUtil=sample.sm,
        memUtil=sample.memory,
        encUtil=sample.encoder,
        decUtil=sample.decoder,
    )


def _field(field: int, value: int | None) -> SimpleNamespace:
    members = dict.fromkeys(("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal"), value or 0)
    return SimpleNamespace(
        fieldId=field,
        scopeId=0,
        timestamp=0,
        latencyUsec=0,
        valueType=Binding.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
        nvmlReturn=0 if value is not None else 3,
        value=SimpleNamespace(**members),
    )


def _event(xid: XidState) -> SimpleNamespace:
    return SimpleNamespace(
        device=_Handle(xid.uuid),
        eventType=Binding.nvmlEventTypeXidCriticalError,
        eventData=xid.xid,
        gpuInstanceId=NO_INSTANCE,
        computeInstanceId=NO_INSTANCE,
    )
