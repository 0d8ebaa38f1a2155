"""The driver's profiling counters (GPM, Hopper and later), for each GPU and each GPU instance of a MIG GPU.

A value is the mean between two samples, so the first round has none. Some drivers hang in these calls, and on some the
memory queries of MIG instances fail while GPM is in use. So they run on a thread of their own, and a GPU whose memory
queries fail after its first sample is no longer sampled.
"""

import ctypes
import logging
import math
import struct
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from msgspec import Struct

from vgpuscope.knowledge.link_speeds import HIGHEST_NVLINK, HIGHEST_PCIE
from vgpuscope.model.activity import Activity, ActivityPlace, ActivityReading, Blind
from vgpuscope.model.device import DeviceReading, Gpu
from vgpuscope.model.quantity import MIB, DeviceUUID
from vgpuscope.sources.node.nvml.calls import (
    FUNCTION_NOT_FOUND,
    GONE,
    INVALID_ARGUMENT,
    NO_PERMISSION,
    NOT_FOUND,
    NOT_SUPPORTED,
    QUIET,
    SUCCESS,
    UNSUPPORTED,
    Calls,
    Refused,
)

log = logging.getLogger(__name__)

_ROUNDING = 1 + 1e-6  # 100.00003 % is 100 %
_VERSION = 1  # NVML_GPM_METRICS_GET_VERSION
_MEMORY_FAILURES = 2  # consecutive readings without the memory of an instance that had it before


class _Metric(NamedTuple):
    number: int  # NVML_GPM_METRIC_…
    field: str  # of Activity
    most: float | None = None  # bytes per second; None: the value is 0-100, otherwise MiB per second


_COMPUTE = (
    _Metric(1, "engine"),
    _Metric(2, "sm"),
    _Metric(3, "occupancy"),
    _Metric(5, "tensor"),
    _Metric(10, "dram"),
    _Metric(11, "fp64"),
    _Metric(12, "fp32"),
    _Metric(13, "fp16"),
)
_LINKS = (
    _Metric(20, "pcie_sent", HIGHEST_PCIE),
    _Metric(21, "pcie_received", HIGHEST_PCIE),
    _Metric(60, "nvlink_received", HIGHEST_NVLINK),
    _Metric(61, "nvlink_sent", HIGHEST_NVLINK),
)
# Of an instance no other call tells whether it decodes video; of its engines the busiest counts.
_VIDEO = tuple(
    _Metric(number, field)
    for field, first, count in (("decoder", 30, 8), ("jpeg", 40, 8), ("ofa", 50, 2))
    for number in range(first, first + count)
)
_OF_GPU = (*_COMPUTE, *_LINKS)
_OF_INSTANCE = (*_COMPUTE, *_VIDEO)  # links belong to no instance


class _Pair:
    """The two samples of one place: the earlier and the one that is taken next."""

    __slots__ = ("filled", "new", "old")

    def __init__(self, old: Any, new: Any) -> None:
        self.old, self.new = old, new
        self.filled = False  # whether `old` has been taken


class _Answers:
    """The structure in which the library returns values; made once, because it has room for hundreds of metrics."""

    def __init__(self, binding: Any, metrics: tuple[_Metric, ...]) -> None:
        kind, one = binding.c_nvmlGpmMetricsGet_t, binding.c_nvmlGpmMetric_t
        self._metrics = metrics
        self.raw = kind()
        self.raw.version = getattr(binding, "NVML_GPM_METRICS_GET_VERSION", _VERSION)
        self.raw.numMetrics = len(metrics)
        self._bytes = memoryview(self.raw).cast("B")[kind.metrics.offset :][: len(metrics) * ctypes.sizeof(one)]
        # read as plain bytes: each attribute of the binding's structures costs a call of Python code
        skipped = ctypes.sizeof(one) - one.value.offset - one.value.size
        self._layout = struct.Struct(f"={one.nvmlReturn.offset}xI{one.value.offset - 8}xd{skipped}x")
        assert self._layout.size == ctypes.sizeof(one)
        self._numbers = [(self.raw.metrics[at], metric.number) for at, metric in enumerate(metrics)]

    def between(self, pair: _Pair) -> Any:
        """The structure, ready for the values between two samples."""
        self.raw.sample1, self.raw.sample2 = pair.old, pair.new
        for metric, number in self._numbers:
            metric.metricId = number
        return self.raw

    def values(self) -> Iterable[tuple[_Metric, tuple[int, float]]]:
        """Each metric with its code and value."""
        return zip(self._metrics, self._layout.iter_unpack(self._bytes), strict=True)


class _Support(Struct):
    """Whether one GPU has GPM."""

    there: bool = False
    asked: float = float("-inf")
    blind: Blind = ""
    silent: Blind = ""  # why there are no values of it, nor of any of its instances


class _Refusal(NamedTuple):
    """The driver does not support samples of one place."""

    at: float
    why: Blind


class _MemoryWatch(Struct):
    """Whether the memory of a GPU's MIG instances can be read."""

    readable: frozenset[DeviceUUID] = frozenset()  # instances whose memory could be read
    failures: int = 0


class Gpm:
    """Samples all GPUs of one session of the library. One thread samples; another may look at the results."""

    def __init__(self, binding: Any, *, clock: Callable[[], float]) -> None:
        self._binding = binding
        self._calls = Calls(binding)
        self._clock = clock
        self._answers: dict[bool, _Answers] = {}  # of GPUs, and of instances
        self._pairs: dict[ActivityPlace, _Pair] = {}
        self._support: dict[DeviceUUID, _Support] = {}
        self._refusals: dict[ActivityPlace, _Refusal] = {}
        self._begun: set[ActivityPlace] = set()  # places with the first of two samples since this round
        self._migs: dict[ActivityPlace, set[DeviceUUID]] = {}  # the MIG UUIDs of each GPU instance at the last round
        self._sampled: frozenset[DeviceUUID] = frozenset()  # GPUs of whose instances samples were taken
        self._watches: dict[DeviceUUID, _MemoryWatch] = {}  # only for look_at()
        self._disturbed: frozenset[DeviceUUID] = frozenset()
        self._session: object = None

    @property
    def doing(self) -> str:
        """The current call and its GPU."""
        return " ".join(filter(None, self._calls.under_way or ())) or "a call"

    def round(self, session: object, handles: Iterable[tuple[DeviceUUID, Any]], gpus: Iterable[Gpu]) -> ActivityReading:
        """The values since the last round. A GPU or instance without values is absent; `blind` says why."""
        if session is not self._session:
            self._begin(session)
        self._calls.now = self._clock()
        self._begun = set()
        known = {gpu.uuid: gpu for gpu in gpus if gpu.health == "ok"}
        found: dict[ActivityPlace, Activity] = {}
        places: set[ActivityPlace] = set()
        for uuid, handle in handles:
            if uuid in known and self._sees(uuid, handle):
                places.update(self._sample(known[uuid], handle, found))
        self._forget(self._pairs.keys() - places)
        self._refusals = {place: one for place, one in self._refusals.items() if place in places}
        self._migs = {place: migs for place, migs in self._migs.items() if place in places}
        return ActivityReading(
            source="gpm",
            places=found,
            blind={uuid: blind for uuid in known if (blind := self._blind(uuid))},
            waiting=frozenset(uuid for uuid, _ in self._begun),
            dropped=dict(self._calls.dropped),
        )

    def look_at(self, reading: DeviceReading) -> DeviceUUID | None:
        """The GPU whose memory queries fail since it is sampled, if there is a new one; it is not sampled again."""
        for gpu in reading.gpus:
            if not gpu.mig_enabled or gpu.health != "ok" or gpu.uuid in self._disturbed:
                continue
            watch = self._watches.setdefault(gpu.uuid, _MemoryWatch())
            readable = frozenset(i.uuid for i in gpu.instances if i.memory is not None)
            if gpu.uuid not in self._sampled:
                watch.readable = readable
                continue
            lost = (watch.readable - readable).intersection(i.uuid for i in gpu.instances)
            watch.failures = watch.failures + 1 if lost else 0
            watch.readable |= readable
            if watch.failures >= _MEMORY_FAILURES:
                self._disturbed |= {gpu.uuid}
                return gpu.uuid
        return None

    # -- one GPU ------------------------------------------------------------------------------------------------------

    def _begin(self, session: object) -> None:
        """Start again: handles and samples belong to one initialisation of the library."""
        self._forget(list(self._pairs))
        self._session, self._support, self._refusals, self._migs = session, {}, {}, {}

    def _blind(self, uuid: DeviceUUID) -> Blind:
        if uuid in self._disturbed:
            return "disturbs-memory"
        support = self._support.get(uuid)
        return support.blind or support.silent if support else ""

    def _sees(self, uuid: DeviceUUID, handle: Any) -> bool:
        """Whether the GPU has GPM and may be sampled; a GPU without it is asked again from time to time."""
        if uuid in self._disturbed:
            return False
        support = self._support.setdefault(uuid, _Support())
        if support.there:
            return True
        if 0.0 <= self._calls.now - support.asked < QUIET:
            return False
        support.asked = self._calls.now
        try:
            told = self._calls.call("nvmlGpmQueryDeviceSupport", handle, about=uuid)
            support.there = bool(told.isSupportedDevice)
            support.blind = "" if support.there else "unsupported"
        except Refused as e:
            support.there, support.blind = False, _why(e)
        return support.there

    def _sample(self, gpu: Gpu, handle: Any, found: dict[ActivityPlace, Activity]) -> list[ActivityPlace]:
        """Add the values of a GPU and of its instances to `found`; the places that it has.

        A GPU in MIG mode may refuse samples of the whole: its instances are sampled all the same.
        """
        instances = _gpu_instances(gpu)
        if instances and gpu.uuid not in self._sampled:
            self._sampled |= {gpu.uuid}
        self._forget_replaced(gpu.uuid, instances)
        places: list[ActivityPlace] = [(gpu.uuid, None), *((gpu.uuid, number) for number in sorted(instances))]
        for place in places:
            if not self._quiet(place) and (values := self._measured(place, handle)) is not None:
                found[place] = values
        silent = not any(place in found or place in self._begun for place in places)
        self._support[gpu.uuid].silent = self._refused_all(places) or ("no-values" if silent else "")
        return places

    def _quiet(self, place: ActivityPlace) -> bool:
        """Whether the driver recently refused samples of this place."""
        refusal = self._refusals.get(place)
        return refusal is not None and 0.0 <= self._calls.now - refusal.at < QUIET

    def _refused_all(self, places: Iterable[ActivityPlace]) -> Blind:
        """Why the driver refuses samples of every one of these places; "" if it does not."""
        whys = [self._refusals[place].why if place in self._refusals else "" for place in places]
        return whys[0] if all(whys) else ""

    def _measured(self, place: ActivityPlace, handle: Any) -> Activity | None:
        """The values of one place since its last sample; None if there are none."""
        uuid, instance = place
        try:
            pair = self._pairs.get(place) or self._new_pair(place)
            if instance is None:
                self._calls.call("nvmlGpmSampleGet", handle, pair.new, about=uuid)
            else:
                self._calls.call("nvmlGpmMigSampleGet", handle, instance, pair.new, about=uuid)
            values = self._between(pair, uuid, whole=instance is None) if pair.filled else None
        except Refused as e:
            self._refused(place, e)
            return None
        self._refusals.pop(place, None)
        if not pair.filled:
            self._begun.add(place)
        pair.old, pair.new, pair.filled = pair.new, pair.old, True
        return values

    def _new_pair(self, place: ActivityPlace) -> _Pair:
        first = self._calls.call("nvmlGpmSampleAlloc", about=place[0])
        try:
            pair = _Pair(first, self._calls.call("nvmlGpmSampleAlloc", about=place[0]))
        except Refused:
            self._free(first)
            raise
        self._pairs[place] = pair
        return pair

    def _between(self, pair: _Pair, uuid: DeviceUUID, *, whole: bool) -> Activity | None:
        """The values between two samples; None if none of them can be used."""
        answers = self._answers.get(whole)
        if answers is None:
            answers = self._answers[whole] = _Answers(self._binding, _OF_GPU if whole else _OF_INSTANCE)
        self._calls.call("nvmlGpmMetricsGet", answers.between(pair), about=uuid)
        found: dict[str, float] = {}
        for metric, (code, value) in answers.values():
            if code == SUCCESS:
                self._put(found, metric, value)
        if not found:
            self._calls.drop("gpm-empty")
        return Activity(**found) if found else None

    def _put(self, found: dict[str, float], metric: _Metric, value: float) -> None:
        if math.isnan(value):
            self._calls.drop("gpm-nan")
        elif metric.most is None:
            if 0.0 <= value <= 100.0 * _ROUNDING:
                found[metric.field] = max(found.get(metric.field, 0.0), min(1.0, value / 100.0))
            else:
                self._calls.drop("gpm-over-100")
        elif 0.0 <= value * MIB <= metric.most:
            found[metric.field] = value * MIB
        else:
            self._calls.drop("gpm-traffic-implausible")

    def _refused(self, place: ActivityPlace, error: Refused) -> None:
        """Handle an error: an instance may be gone, and a call that is not supported is not tried again soon."""
        uuid, instance = place
        if pair := self._pairs.get(place):
            pair.filled = False  # the time between two samples must not include the failure
        if instance is not None and error.code in (INVALID_ARGUMENT, NOT_FOUND):
            self._calls.drop("gpm-instance-gone")
        elif error.code in UNSUPPORTED:
            self._calls.drop("gpm-refused")
            if place not in self._refusals:
                log.info("no GPM samples", extra={"gpu": uuid, "gpu_instance": instance, "reason": str(error)})
            self._refusals[place] = _Refusal(self._calls.now, _why(error))
        else:
            self._calls.drop("gpm-failed")

    # -- samples ------------------------------------------------------------------------------------------------------

    def _forget_replaced(self, gpu: DeviceUUID, instances: dict[int, set[DeviceUUID]]) -> None:
        """Forget what was sampled of an instance if another one has its number now: it must not inherit a value."""
        for number, migs in instances.items():
            before = self._migs.get((gpu, number))
            self._migs[gpu, number] = migs
            if before is not None and before.isdisjoint(migs):
                self._calls.drop("gpm-instance-gone")
                self._refusals.pop((gpu, number), None)
                self._forget({(gpu, number)} & self._pairs.keys())

    def _forget(self, places: Iterable[ActivityPlace]) -> None:
        for place in places:
            pair = self._pairs.pop(place)
            self._free(pair.old)
            self._free(pair.new)

    def _free(self, sample: Any) -> None:
        try:
            self._calls.call("nvmlGpmSampleFree", sample)
        except Refused as e:
            log.debug("a GPM sample was not freed", extra={"reason": str(e)})


def _gpu_instances(gpu: Gpu) -> dict[int, set[DeviceUUID]]:
    """The GPU instances by number, each with the MIG UUIDs of its compute instances."""
    found: dict[int, set[DeviceUUID]] = {}
    for instance in gpu.instances if gpu.mig_enabled else ():
        found.setdefault(instance.gpu_instance, set()).add(instance.uuid)
    return found


def _why(error: Refused) -> Blind:
    if error.code == FUNCTION_NOT_FOUND:
        return "no-symbols"
    if error.code == NO_PERMISSION:
        return "no-permission"
    if error.code in GONE:
        return "no-driver"
    return "unsupported" if error.code == NOT_SUPPORTED else "failed"
