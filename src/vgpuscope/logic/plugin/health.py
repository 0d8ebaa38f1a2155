"""Which GPUs of a node can be used: what the driver says of each, and XIDs after which a GPU must not be used.

An XID makes a GPU unhealthy if NVIDIA's catalogue says that work on it cannot continue. It stays so until the driver
reports the GPU and somebody, or the time, clears the fault. A GPU that fell off the bus is healthy when it answers.
A GPU that the driver does not report is lost, also if it was registered only before a restart. It is forgotten when the
driver has reported the others without it for long enough: then it was taken out.
"""

from collections.abc import Iterable, Mapping

from vgpuscope.knowledge.xid import advice
from vgpuscope.model.device import DeviceReading, Gpu, Health, MigInstance
from vgpuscope.model.plugin import GpuFault, GpuState, PluginGpu, StaticInstance
from vgpuscope.model.quantity import DeviceUUID, Seconds, UnixTime

_FELL_OFF = 79
_FELL_OFF_FOR: Seconds = 6.0  # the XID comes a moment before the driver's own calls fail
_SILENT = 2  # reads without an answer of the driver before its GPUs are unhealthy: a reload takes one
_NO_UUID = "unknown-"  # a GPU that never answered has a name of our own, which nobody else knows


class HealthTracker:
    """The GPUs that were ever seen, and the state of each. A fold: readings in, states out."""

    def __init__(self, *, clear_after: Seconds = 0.0, forget_after: Seconds = 0.0) -> None:
        """`clear_after`: age at which a fault is cleared; `forget_after`: time without a GPU; 0: never."""
        self._clear_after, self._forget_after = clear_after, forget_after
        self._gpus: dict[DeviceUUID, PluginGpu] = {}
        self._driver: dict[DeviceUUID, Health] = {}
        self._faults: dict[DeviceUUID, GpuFault] = {}  # that wait to be cleared
        self._fallen: dict[DeviceUUID, GpuFault] = {}  # that end with the GPU's answer; they must not hide the others
        self._counted: dict[tuple[DeviceUUID, int], int] = {}
        self._expected: dict[DeviceUUID, PluginGpu] = {}  # from before a restart, until the driver is read
        self._missing: dict[DeviceUUID, UnixTime] = {}  # GPUs that the driver does not report, and since when
        self._answered = False
        self._silent = 0

    @property
    def states(self) -> tuple[GpuState, ...]:
        """Every GPU, by its index."""
        return tuple(
            GpuState(gpu=gpu, driver=self._driver[gpu.uuid], fault=self._fault(gpu.uuid))
            for gpu in sorted(self._gpus.values(), key=lambda gpu: (gpu.index, gpu.uuid))
        )

    @property
    def faults(self) -> tuple[GpuFault, ...]:
        """The faults that wait to be cleared. One that ends with the GPU's answer needs nobody."""
        return tuple(fault for _, fault in sorted(self._faults.items()))

    def restore(self, faults: Iterable[GpuFault]) -> None:
        """Take faults from before a restart. A fault that was seen since then is newer."""
        for fault in faults:
            self._slots(fault.xid).setdefault(fault.gpu, fault)

    def expect(self, gpus: Iterable[PluginGpu]) -> bool:
        """Take GPUs from before a restart, as far as the driver does not report them; whether a state changes now."""
        self._expected = {gpu.uuid: gpu for gpu in gpus}
        return self._answered and self._adopt("lost")

    def clear(self, gpus: Iterable[DeviceUUID]) -> tuple[GpuFault, ...]:
        """Clear the faults of these GPUs; those that there were."""
        return tuple(self._faults.pop(uuid) for uuid in gpus if uuid in self._faults)

    def see(self, reading: DeviceReading, numa: Mapping[DeviceUUID, int]) -> None:
        """Take one reading of the driver."""
        self._silent = 0
        present = {gpu.uuid: gpu for gpu in reading.gpus if not gpu.uuid.startswith(_NO_UUID)}
        for uuid, gpu in present.items():
            self._driver[uuid] = gpu.health
            self._gpus[uuid] = _known(gpu, self._gpus.get(uuid), numa.get(uuid))
        self._answered = True
        self._adopt("lost")
        missing = self._gpus.keys() - present.keys()
        self._driver.update(dict.fromkeys(missing, "lost"))
        nameless = len(present) < len(reading.gpus)  # one that answers with no UUID may be the missing one
        self._forget(missing if present and not nameless else (), reading.at)
        for one in reading.xids:
            before = self._counted.get((one.gpu, one.xid), 0)
            self._counted[one.gpu, one.xid] = one.count
            if one.count > before and advice(one.xid).fatal:
                fault = GpuFault(gpu=one.gpu, xid=one.xid, since=float(int(reading.at)))
                self._slots(one.xid)[one.gpu] = fault
        self._pass_time(reading.at)

    def miss(self) -> None:
        """The driver did not answer at all, which concerns every GPU."""
        self._silent += 1
        if self._silent >= _SILENT:
            self._adopt("unresponsive")
            self._driver = dict.fromkeys(self._driver, "unresponsive")

    def _adopt(self, health: Health) -> bool:
        """Add the expected GPUs that are not known; whether there were any."""
        new = {uuid: gpu for uuid, gpu in self._expected.items() if uuid not in self._gpus}
        self._expected = {}
        self._gpus.update(new)
        self._driver.update(dict.fromkeys(new, health))
        return bool(new)

    def _forget(self, missing: Iterable[DeviceUUID], at: UnixTime) -> None:
        self._missing = {uuid: self._missing.get(uuid, at) for uuid in missing}
        for uuid, since in self._missing.items():
            if 0 < self._forget_after <= at - since:
                for known in (self._gpus, self._driver, self._faults, self._fallen):
                    known.pop(uuid, None)

    def _slots(self, xid: int) -> dict[DeviceUUID, GpuFault]:
        return self._fallen if xid == _FELL_OFF else self._faults

    def _fault(self, uuid: DeviceUUID) -> GpuFault | None:
        return self._faults.get(uuid) or self._fallen.get(uuid)

    def _pass_time(self, at: UnixTime) -> None:
        for uuid, health in self._driver.items():
            if health != "ok":
                continue
            if uuid in self._fallen and at - self._fallen[uuid].since >= _FELL_OFF_FOR:
                del self._fallen[uuid]
            if uuid in self._faults and 0 < self._clear_after <= at - self._faults[uuid].since:
                del self._faults[uuid]


def _known(gpu: Gpu, before: PluginGpu | None, numa: int | None) -> PluginGpu:
    """The GPU; while it does not answer, with the values of the last time that it did."""
    if gpu.health != "ok" and before is not None:
        return before
    memory = gpu.memory.total if gpu.memory else before.memory if before else None
    return PluginGpu(
        uuid=gpu.uuid,
        index=gpu.index,
        model=gpu.model,
        memory=memory,
        numa=numa,
        mig=bool(gpu.mig_enabled),
        instances=tuple(_instances(gpu.instances)),
    )


def _instances(found: Iterable[MigInstance]) -> Iterable[StaticInstance]:
    """The MIG instances that have their GPU instance for themselves; several of one share its memory."""
    by_gpu_instance: dict[int, list[MigInstance]] = {}
    for one in found:
        by_gpu_instance.setdefault(one.gpu_instance, []).append(one)
    for alone in by_gpu_instance.values():
        if len(alone) == 1 and "c." not in (alone[0].profile or ""):
            yield _static(alone[0])


def _static(one: MigInstance) -> StaticInstance:
    return StaticInstance(
        uuid=one.uuid,
        gpu_instance=one.gpu_instance,
        compute_instance=one.compute_instance,
        profile=one.profile,
        memory=one.memory.total if one.memory else None,
        slices=one.slices,
        start=one.start,
        size=one.size,
    )
