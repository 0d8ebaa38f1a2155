"""The driver of this node, through NVML: initialised once, kept, and initialised again when it was lost.

`calls` makes single calls, and `gpu` reads one GPU. This module has the lifetime of the library, the list of GPUs and
the XID events. No other module imports pynvml.
"""

import ctypes
import logging
import threading
import time
from collections.abc import Callable, Collection
from typing import Any

from vgpuscope.knowledge.xid import advice
from vgpuscope.model.activity import ActivityReading
from vgpuscope.model.device import DeviceReading, Gpu, Health, XidCount
from vgpuscope.model.errors import DriverAbsent, DriverFailed, DriverHung, SourceDown
from vgpuscope.model.quantity import DeviceUUID, Seconds
from vgpuscope.sources.node.nvml.calls import (
    DRIVER_NOT_LOADED,
    GONE,
    HEALTH_OF,
    LIBRARY_NOT_FOUND,
    NEVER,
    TIMEOUT,
    UNKNOWN,
    Abandoned,
    Calls,
    DriverGone,
    GpuDown,
    GpuHandle,
    NvmlQuery,
    Refused,
)
from vgpuscope.sources.node.nvml.gpm import Gpm
from vgpuscope.sources.node.nvml.gpu import read_gpu

log = logging.getLogger("vgpuscope.sources.node.nvml.driver")

_RESCAN = 60.0  # seconds between two scans for GPUs
_LONGEST_WAIT = 60.0  # seconds; maximum of every back-off, unless a reader is less patient
_LISTEN: Seconds = 1.0  # the time a listener needs to notice that it should end
_MOST_QUEUED = 1000  # events that are still counted when the GPUs change
_CLOSE = 1.0  # seconds that close() waits for a read to end
_XID_CRITICAL = 8  # nvmlEventTypeXidCriticalError
_NO_PCI = "00000000:00:00.0"  # reported by boards without PCI

_SERIAL = NvmlQuery("nvmlDeviceGetSerial")
_MINOR = NvmlQuery("nvmlDeviceGetMinorNumber")
_PCI = NvmlQuery("nvmlDeviceGetPciInfo")
_NAME = NvmlQuery("nvmlDeviceGetName")


class _Session:
    """The handles of one initialisation, for the listener."""

    def __init__(self, gpus: list[GpuHandle]) -> None:
        self.handles = tuple((gpu.uuid, gpu.handle) for gpu in gpus if gpu.handle is not None)
        self.by_handle = {_address(handle): uuid for uuid, handle in self.handles}
        self.deaf: set[str] = set()  # GPUs that make an event set fail


class Nvml:
    """The driver of this node. One thread reads; another may listen for XIDs, a third may read profiling values."""

    def __init__(
        self,
        binding: Any = None,
        *,
        clock: Callable[[], float] = time.time,
        longest_wait: float = _LONGEST_WAIT,
        listen: Seconds = _LISTEN,
    ) -> None:
        """`longest_wait`: seconds until a GPU or a driver that failed is tried again, at most.

        `listen`: how long the listener waits in one call for an event, and so the time that it needs to end.
        """
        if binding is None:
            import pynvml as binding  # noqa: PLC0415 - 8,000 lines that only a real driver needs
        self._calls = Calls(binding)
        self._ears = Calls(binding)  # the listener's own, so that its waiting is never mistaken for a hang
        self._clock = clock
        self._longest_wait, self._listen_for = longest_wait, listen
        self._gpus: list[GpuHandle] = []
        self._hidden = 0  # GPUs that the library counts but that we have no permission to read
        self._known: tuple[Gpu, ...] = ()
        self._versions: tuple[str | None, str | None] = (None, None)
        self._references = 0
        self._worked = False
        self._up_since: float | None = None
        self._scanned = 0.0
        self._tried = 0.0
        self._tries = 0
        self._failure: tuple[type[SourceDown], str] = (DriverAbsent, "not tried yet")
        self._busy = threading.Lock()
        self._stuck: set[str] = set()  # GPUs in which a call hangs; each has one abandoned thread
        self._session: _Session | None = None
        self._event_set = threading.Lock()  # held by the listener while it has an event set
        self._gpm = Gpm(binding, clock=clock)
        self._profiling = threading.Lock()  # held while profiling values are read
        self._xids: dict[tuple[str, int], int] = {}
        self._last_xid: dict[str, int] = {}
        self.unexpected: Callable[[str, Exception], object] = lambda _, __: None  # called with a GPU and its error

    @property
    def doing(self) -> str | None:
        """The current call and its GPU; None between calls."""
        under_way = self._calls.under_way
        return None if under_way is None else " ".join(filter(None, under_way))

    def identities(self) -> tuple[Gpu, ...]:
        """The GPUs that were present when the driver last answered."""
        return self._known

    def read(self) -> DeviceReading:
        """Everything that the driver reports now. Raises DriverAbsent or DriverFailed; a later read recovers."""
        calls = self._calls
        with self._busy:
            try:
                return self._read()
            except Abandoned:
                raise DriverHung(f"{calls.left_with}: the call returned after its deadline") from None
            finally:
                self._stuck.discard(calls.left_with)

    def profile(self, gpus: Collection[Gpu]) -> ActivityReading | None:
        """The profiling values of these GPUs since the last call; None while the driver is down. Own thread only."""
        with self._profiling:
            session = self._session
            return None if session is None else self._gpm.round(session, session.handles, gpus)

    @property
    def profiling(self) -> str:
        """The profiling call that is under way, and its GPU."""
        return self._gpm.doing

    def disturbed(self, reading: DeviceReading) -> DeviceUUID | None:
        """A GPU whose memory queries began to fail when profiling began, if there is a new one."""
        return self._gpm.look_at(reading)

    def leave_behind(self) -> str | None:
        """The GPU in which the current read hangs; from now on it is skipped, so that the others can be read.

        The thread stays with its call. When the call returns, the GPU is read again. None if the hanging call does not
        belong to one GPU: then no other GPU could be read either. At most one thread is lost for each GPU.
        """
        calls, under_way = self._calls, self._calls.under_way
        uuid = under_way[1] if under_way else ""
        if uuid in self._stuck or uuid not in {gpu.uuid for gpu in self._gpus}:
            return None
        self._stuck.add(uuid)
        self._calls, self._busy = calls.successor(left_with=uuid), threading.Lock()
        return uuid

    def _read(self) -> DeviceReading:
        at = self._calls.now = self._clock()
        for _ in range(2):  # a driver that was reloaded answers at the second try
            self._connect(at)
            try:
                gpus = self._sample(at)
            except DriverGone as e:
                self._give_up(f"the driver is gone: {e}")
                continue
            if gpus and all(gpu.health == "error" for gpu in gpus):
                self._give_up("every call fails on every GPU")
                continue
            return self._reading(at, gpus)
        raise self._down()

    def close(self) -> None:
        """Release the driver, unless a call hangs in it: then the end of the process releases it."""
        if self._busy.acquire(timeout=_CLOSE):
            try:
                self._let_go()
            finally:
                self._busy.release()

    # -- the library --------------------------------------------------------------------------------------------------

    def _connect(self, at: float) -> None:
        if self._up_since is not None:
            return
        if self._tries and 0.0 <= at - self._tried < self._backoff(1.0, self._tries):
            raise self._down()
        self._tried, self._tries = at, self._tries + 1
        try:
            self._calls.call("nvmlInit")
            self._references += 1
            self._versions = (self._text("nvmlSystemGetDriverVersion"), self._cuda())
            self._scan(at)
        except DriverGone as e:
            self._give_up(f"the driver is gone: {e}")
            raise self._down() from None
        except Refused as e:
            # "not installed" and "not loaded yet" look the same; a driver that worked before has failed
            absent = e.code == LIBRARY_NOT_FOUND or (e.code == DRIVER_NOT_LOADED and not self._worked)
            self._give_up(str(e), DriverAbsent if absent else DriverFailed)
            raise self._down() from None
        self._up_since = at
        self._session = _Session(self._gpus)

    def _down(self) -> SourceDown:
        kind, message = self._failure
        return kind(message)

    def _give_up(self, why: str, kind: type[SourceDown] = DriverFailed) -> None:
        self._failure = (kind, why)
        self._let_go()

    def _let_go(self) -> None:
        """End this initialisation: handles and what was learned with them are dropped, identities stay.

        Not while a call hangs: the call needs the library and the handle of its GPU.
        """
        if self._stuck:
            return
        self._session, self._up_since = None, None
        for gpu in self._gpus:
            gpu.forget()
        # the library must not be shut down while another thread still waits in it
        if self._event_set.acquire(timeout=3 * self._listen_for):
            try:
                if self._profiling.acquire(timeout=_CLOSE):
                    try:
                        self._shut_down()
                    finally:
                        self._profiling.release()
            finally:
                self._event_set.release()

    def _shut_down(self) -> None:
        while self._references > 0:
            self._references -= 1
            try:
                self._calls.call("nvmlShutdown")
            except Refused:
                self._references = 0

    def _text(self, name: str) -> str | None:
        try:
            return str(self._calls.call(name))
        except Refused as e:
            if e.code in GONE:
                raise
            return None

    def _cuda(self) -> str | None:
        number = self._text("nvmlSystemGetCudaDriverVersion_v2")
        return f"{int(number) // 1000}.{int(number) % 1000 // 10}" if number else None

    # -- the GPUs ----------------------------------------------------------------------------------------------------

    def _sample(self, at: float) -> tuple[Gpu, ...]:
        self._look_around(at)
        recovered = False
        read = []
        for gpu in self._gpus:
            before = gpu.health
            read.append(self._read_one(gpu, at))
            recovered |= before != "ok" and gpu.health == "ok"
        if recovered:
            self._session = _Session(self._gpus)
        if read and all(one.health != "ok" for one in read) and at - (self._up_since or at) >= _RESCAN:
            self._let_go()  # the library itself may be stuck: the next read initialises it again
        return tuple(read)

    def _reading(self, at: float, gpus: tuple[Gpu, ...]) -> DeviceReading:
        self._tries, self._worked = 0, True
        self._failure = (DriverFailed, "")
        return DeviceReading(
            at=at,
            driver_version=self._versions[0],
            cuda_version=self._versions[1],
            gpus=gpus,
            xids=tuple(XidCount(gpu=gpu, xid=xid, count=n) for (gpu, xid), n in self._xids.items()),
            last_xid=tuple(self._last_xid.items()),
            dropped=tuple(self._calls.dropped.items()),
        )

    def _read_one(self, gpu: GpuHandle, at: float) -> Gpu:
        """The GPU's values; only its identity and health while it is down."""
        if gpu.uuid in self._stuck:
            return Gpu(**gpu.identity(), health="unresponsive")
        if gpu.handle is None or self._waits(gpu, at):
            return Gpu(**gpu.identity(), health=gpu.health)
        try:
            read = read_gpu(self._calls, gpu, self._clock)
        except GpuDown as e:
            return self._set_down(gpu, e.health, at)
        except (Abandoned, DriverGone, Refused):
            raise
        except Exception as e:  # the other GPUs are read
            self.unexpected(f"GPU {gpu.uuid}", e)
            return self._set_down(gpu, "error", at)
        if not gpu.answered and gpu.failed:
            return self._set_down(gpu, "error", at)
        if not gpu.answered and gpu.denied:
            return self._set_down(gpu, "no-permission", at)
        if gpu.answered and gpu.health != "ok":
            gpu.health, gpu.down_since, gpu.down_tries = "ok", None, 0
        return read

    def _set_down(self, gpu: GpuHandle, health: Health, at: float) -> Gpu:
        gpu.health, gpu.down_since, gpu.down_tries = health, at, gpu.down_tries + 1
        gpu.static.clear()
        gpu.counters.clear()
        gpu.slow.at = gpu.calm.at = NEVER
        return Gpu(**gpu.identity(), health=health)

    def _backoff(self, first: float, tries: int) -> float:
        """Seconds to wait after that many failures."""
        return min(first * 2.0 ** min(tries - 1, 10), self._longest_wait)

    def _waits(self, gpu: GpuHandle, at: float) -> bool:
        """Whether a GPU that is down should not be tried yet."""
        if gpu.down_since is None:
            return False
        return 0.0 <= at - gpu.down_since < self._backoff(5.0, gpu.down_tries)

    def _look_around(self, at: float) -> None:
        """List the GPUs again if their number changed, a GPU that is down is due, or a minute has passed.

        Not while a call hangs in a GPU: a call to the same GPU would hang as well.
        """
        if self._stuck:
            return
        try:
            changed = self._calls.call("nvmlDeviceGetCount") != len(self._gpus) + self._hidden
        except Refused as e:
            if e.code in GONE:
                raise DriverGone(str(e)) from None
            changed = False
        due = any(gpu.down_since is not None and not self._waits(gpu, at) for gpu in self._gpus)
        if changed or due or not 0.0 <= at - self._scanned < _RESCAN:
            try:
                self._scan(at)
            except Refused as e:
                raise DriverGone(str(e)) from None

    def _scan(self, at: float) -> None:
        """Find the GPUs. A GPU that does not answer is identified by its index, or as one of the missing GPUs."""
        count = self._calls.call("nvmlDeviceGetCount")
        missing = {gpu.uuid: gpu for gpu in self._gpus}
        gpus: dict[int, GpuHandle] = {}
        silent: dict[int, Health] = {}
        for index in range(count):
            try:
                gpus[index] = self._meet(index, missing)
            except Refused as e:
                if e.code in GONE:
                    raise
                silent[index] = HEALTH_OF.get(e.code, "error")
            except GpuDown as e:
                silent[index] = e.health
        for index, health in silent.items():
            gpu = _guess(index, health, missing)
            if gpu is not None:
                gpu.handle = None
                self._set_down(gpu, health, at)
                gpus[index] = gpu
        self._hidden = count - len(gpus)
        self._take(at, [gpus[index] for index in sorted(gpus)])

    def _take(self, at: float, gpus: list[GpuHandle]) -> None:
        others = {gpu.uuid for gpu in gpus} != {gpu.uuid for gpu in self._gpus}
        if others and self._gpus:
            log.info("GPUs changed", extra={"gpus": len(gpus), "were": len(self._gpus)})
        self._gpus, self._scanned = gpus, at
        self._known = tuple(Gpu(**gpu.identity(), health="unresponsive") for gpu in gpus)
        if others and self._session is not None:
            self._session = _Session(gpus)

    def _meet(self, index: int, missing: dict[str, GpuHandle]) -> GpuHandle:
        """The GPU at an index, with a new handle: the known GPU with its UUID, or a new one."""
        handle = self._calls.call("nvmlDeviceGetHandleByIndex", index, about=f"index {index}")
        uuid = self._calls.call("nvmlDeviceGetUUID", handle, about=f"index {index}")
        gpu = missing.get(uuid) or self._new_gpu(uuid, index, handle)
        missing.pop(uuid, None)
        gpu.index, gpu.handle = index, handle
        return gpu

    def _new_gpu(self, uuid: str, index: int, handle: Any) -> GpuHandle:
        gpu = GpuHandle(uuid, index, "unknown")
        gpu.model = self._calls.ask(gpu, _NAME, handle=handle) or gpu.model
        gpu.serial = self._calls.ask(gpu, _SERIAL, handle=handle) or None
        gpu.minor = self._calls.ask(gpu, _MINOR, handle=handle)
        pci = self._calls.ask(gpu, _PCI, handle=handle)
        gpu.pci = pci.busId if pci is not None and pci.busId != _NO_PCI else None
        return gpu

    # -- XID events ---------------------------------------------------------------------------------------------------

    def listen(self, stop: threading.Event) -> None:
        """Count XIDs per GPU until `stop` is set. Needs its own thread; read() initialises the library."""
        while not stop.is_set():
            session = self._session
            if session is None or not self._follow(session, stop):
                stop.wait(self._listen_for)

    def _follow(self, session: _Session, stop: threading.Event) -> bool:
        """Listen as long as the session lasts; False if the driver refuses."""
        with self._event_set:
            if self._session is not session:
                return True
            try:
                events = self._ears.call("nvmlEventSetCreate")
            except Refused:
                return False
            try:
                if not self._register(session, events):
                    return False
                while self._session is session and not stop.is_set():
                    self._hear(session, events, round(1000 * self._listen_for))
                self._drain(session, events)
            except Refused as e:
                log.debug("event set failed", extra={"reason": str(e)})
                return False
            finally:
                self._free(events)
        return True

    def _register(self, session: _Session, events: Any) -> bool:
        """Whether any GPU will report to this event set; a GPU that refuses does not affect the others."""
        heard = 0
        for uuid, handle in session.handles:
            if uuid in session.deaf:
                continue
            try:
                self._ears.call("nvmlDeviceRegisterEvents", handle, _XID_CRITICAL, events)
                heard += 1
            except Refused as e:
                session.deaf.add(uuid)
                if e.code == UNKNOWN:
                    return False  # such an event set is unusable; the next one is made without this GPU
        return heard > 0

    def _drain(self, session: _Session, events: Any) -> None:
        """Count what is queued already: events that are in an event set when it is freed are lost."""
        for _ in range(_MOST_QUEUED):
            if not self._hear(session, events, 0):
                return

    def _hear(self, session: _Session, events: Any, wait_ms: int) -> bool:
        """Whether an event came within the time."""
        try:
            event = self._ears.call("nvmlEventSetWait_v2", events, wait_ms)
        except Refused as e:
            if e.code == TIMEOUT:
                return False
            raise
        uuid = session.by_handle.get(_address(event.device))
        if uuid is not None and event.eventType == _XID_CRITICAL:
            self._count_xid(uuid, int(event.eventData))
        return True

    def _count_xid(self, uuid: DeviceUUID, xid: int) -> None:
        key = (uuid, xid)
        self._xids = {**self._xids, key: self._xids.get(key, 0) + 1}
        self._last_xid = {**self._last_xid, uuid: xid}
        said = advice(xid)
        level = logging.ERROR if said.fatal else logging.WARNING
        log.log(level, "xid", extra={"gpu": uuid, "xid": xid, "action": said.action, "what": said.name})

    def _free(self, events: Any) -> None:
        try:
            self._ears.call("nvmlEventSetFree", events)
        except Refused as e:
            log.debug("event set was not freed", extra={"reason": str(e)})


def _guess(index: int, health: Health, missing: dict[str, GpuHandle]) -> GpuHandle | None:
    """The GPU that does not answer: a known one; else a placeholder, or None without permission to see the GPU."""
    gpu = next((gpu for gpu in missing.values() if gpu.index == index), None)
    if gpu is None:
        gpu = next(iter(missing.values()), None)
    if gpu is not None:
        return missing.pop(gpu.uuid)
    return None if health == "no-permission" else GpuHandle(f"unknown-{index}", index, "unknown")


def _address(handle: Any) -> Any:
    """A comparable value, equal for all handles of one GPU; the binding's pointers do not compare."""
    return ctypes.addressof(handle.contents) if hasattr(handle, "contents") else handle
