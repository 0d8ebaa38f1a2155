"""Single calls to the driver: a call that fails loses its own value and nothing else."""

import logging
from collections.abc import Callable, Iterable
from typing import Any

from vgpuscope.model.device import Health
from vgpuscope.sources.node.nvml.lists import raw_lists

log = logging.getLogger("vgpuscope.sources.node.nvml.driver")

SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 0, 1, 2, 3, 4, 6
DRIVER_NOT_LOADED, TIMEOUT, LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND, GPU_IS_LOST, RESET_REQUIRED = 9, 10, 12, 13, 15, 16
LIB_RM_VERSION_MISMATCH, ECC_NOT_SUPPORTED, ARGUMENT_VERSION_MISMATCH, DEPRECATED, UNKNOWN = 18, 22, 25, 26, 999

# the library has lost the driver: handles are invalid until the library is initialised again
GONE = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, LIB_RM_VERSION_MISMATCH})
# errors that stay the same until the driver or the MIG mode changes
UNSUPPORTED = frozenset(
    {NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND, ECC_NOT_SUPPORTED, ARGUMENT_VERSION_MISMATCH, DEPRECATED}
)
HEALTH_OF: dict[int, Health] = {
    GPU_IS_LOST: "lost",
    RESET_REQUIRED: "reset-required",
    NO_PERMISSION: "no-permission",
}
# the binding's structures run Python code for each attribute access; this bypasses it and is five times faster
attribute = object.__getattribute__

NEVER = float("-inf")
QUIET = 60.0  # seconds before an unsupported call is tried again: the answer changes with MIG mode and driver


class Refused(Exception):
    """The driver answered a call with an error code."""

    def __init__(self, code: int, call: str, words: str) -> None:
        super().__init__(f"{call}: {words} ({code})")
        self.code = code


class DriverGone(Exception):
    """The driver is lost; no call works before the library is initialised again."""


class GpuDown(Exception):
    """One GPU has failed; the others still work."""

    def __init__(self, health: Health) -> None:
        super().__init__(health)
        self.health = health


class Garbage(Exception):
    """The driver returned an impossible value."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NvmlQuery:
    """One query about a GPU: the first name that the library has is used. `nothing`: codes for an empty answer."""

    __slots__ = ("args", "names", "nothing")

    def __init__(self, *names: str, args: tuple[int, ...] = (), of: str = "", nothing: Iterable[int] = ()) -> None:
        # a call can be unsupported for one clock or for an instance, and supported for another: each has its own key
        self.names = tuple((name, f"{of}{name}{args or ''}") for name in names)
        self.args = args
        self.nothing = frozenset(nothing)


class Counter:
    """Distinguishes a counter that moves or was reset from one odd value, which the next reading does not confirm."""

    __slots__ = ("_at", "_odd", "_rate", "_value")

    def __init__(self, rate: float) -> None:
        self._rate = rate  # per second; no hardware counts faster
        self._value: int | None = None
        self._odd: int | None = None
        self._at = 0.0

    def check(self, value: int, at: float) -> int:
        """The value, or Garbage if it does not follow from the one before."""
        if value >= 1 << 63:
            raise Garbage("counter-wrapped")
        room = self._rate * (max(at - self._at, 0.0) + 10.0)
        before = self._value
        if before is not None and not (0 <= value - before <= room or self._confirmed(value, room)):
            self._odd = value
            raise Garbage("counter-jump" if value > before else "counter-backwards")
        self._value, self._odd, self._at = value, None, at
        return value

    def _confirmed(self, value: int, room: float) -> bool:
        return self._odd is not None and 0 <= value - self._odd <= room


class CachedValues:
    """Values that are not read at every sample."""

    __slots__ = ("at", "values")

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.at = NEVER  # when they were read


class GpuHandle:
    """What is remembered of one GPU between two reads."""

    def __init__(self, uuid: str, index: int, model: str) -> None:
        self.uuid = uuid
        self.index = index
        self.model = model
        self.serial: str | None = None
        self.minor: int | None = None
        self.pci: str | None = None
        self.handle: Any = None  # None: the driver gave no handle
        self.health: Health = "ok"
        self.forget()

    def forget(self) -> None:
        """Keep the identity; forget everything that was learned under one initialisation of the library."""
        self.handle = None
        self.static: dict[str, float] = {}
        self.places: dict[str, tuple[int | None, int, int | None]] = {}  # by MIG instance: profile id, memory slices
        self.slow, self.calm = CachedValues(), CachedValues()
        self.quiet: dict[str, float] = {}  # unsupported calls, and when that was learned
        self.counters: dict[str, Counter] = {}
        self.seen_until: int | None = None  # µs: the newest process sample taken
        self.answered = self.failed = self.denied = 0
        self.down_since: float | None = None
        self.down_tries = 0

    def identity(self) -> dict[str, Any]:
        """The fields of Gpu that stay valid while the GPU does not answer."""
        return {
            "uuid": self.uuid,
            "index": self.index,
            "model": self.model,
            "serial": self.serial,
            "minor": self.minor,
            "pci_bus_id": self.pci,
        }


class Abandoned(Exception):
    """The call returned after all, but its thread has been abandoned."""


class Calls:
    """The binding, with the current call and the rejected values. One thread only."""

    def __init__(self, binding: Any, dropped: dict[str, int] | None = None) -> None:
        self._binding = binding
        kinds = (getattr(binding, "NVMLError", None), getattr(binding, "NVMLLibraryMismatchError", None))
        # the second is not an NVMLError; the third is for a name that is not UTF-8
        self._errors: tuple[type[Exception], ...] = (*filter(None, kinds), UnicodeDecodeError)
        self._functions: dict[str, Callable[..., Any]] = {**raw_lists(binding)}
        self.memory_version: int | None = getattr(binding, "nvmlMemory_v2", None)
        self.under_way: tuple[str, str] | None = None
        self.dropped: dict[str, int] = {} if dropped is None else dropped
        self.left_with = ""  # the GPU in which an abandoned call hangs
        self.now = 0.0

    def successor(self, *, left_with: str) -> "Calls":
        """The replacement for these calls, whose thread stays with the call that hangs."""
        self.left_with = left_with
        return Calls(self._binding, self.dropped)

    def drop(self, reason: str) -> None:
        """Counts a value that was rejected as garbage."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    def call(self, name: str, *args: Any, about: str = "") -> Any:
        """The answer, or Refused."""
        function = self._function(name)
        if function is None:
            raise Refused(FUNCTION_NOT_FOUND, name, "the binding has no such function")
        self.under_way = (name, about)
        try:
            return function(*args)
        except self._errors as e:
            raise Refused(_code(e), name, str(e)) from None
        finally:
            self._returned()

    def ask(self, gpu: GpuHandle, question: NvmlQuery, *more: Any, handle: Any = None) -> Any:
        """The answer, or None if the GPU has none; () if the error code is one of the question's `nothing`."""
        for name, key in question.names:
            if key in gpu.quiet and self.quiet(gpu, key):
                continue
            code = FUNCTION_NOT_FOUND
            function = self._functions.get(name) or self._function(name)
            if function is not None:
                self.under_way = (name, gpu.uuid)
                try:
                    answer = function(gpu.handle if handle is None else handle, *question.args, *more)
                except self._errors as e:
                    code = _code(e)
                else:
                    gpu.answered += 1
                    return answer
                finally:
                    self._returned()
                if code in question.nothing:
                    gpu.answered += 1
                    return ()
            if not self.learn(gpu, key, code):
                return None
        return None

    def _returned(self) -> None:
        if self.left_with:
            raise Abandoned
        self.under_way = None

    def quiet(self, gpu: GpuHandle, key: str) -> bool:
        """Whether the GPU recently reported this call as unsupported."""
        learned = gpu.quiet.get(key)
        return learned is not None and 0.0 <= self.now - learned < QUIET

    def learn(self, gpu: GpuHandle, key: str, code: int) -> bool:
        """Handles an error code; True if it means unsupported, which is remembered."""
        if code in UNSUPPORTED:
            if key not in gpu.quiet:
                log.debug("not supported", extra={"gpu": gpu.uuid, "call": key, "nvml_code": code})
            gpu.quiet[key] = self.now
            gpu.denied += code == NO_PERMISSION
            return True
        if code in (GPU_IS_LOST, RESET_REQUIRED):
            raise GpuDown(HEALTH_OF[code])
        if code in GONE:
            raise DriverGone(f"{key}: code {code}")
        gpu.failed += 1
        return False

    def _function(self, name: str) -> Callable[..., Any] | None:
        function = getattr(self._binding, name, None)
        if function is not None:
            self._functions[name] = function
        return function


def _code(error: Exception) -> int:
    if isinstance(error, UnicodeDecodeError):
        return UNKNOWN
    code = getattr(error, "value", FUNCTION_NOT_FOUND)  # a library mismatch has no code
    return code if isinstance(code, int) else UNKNOWN
