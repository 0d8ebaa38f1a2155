"""The page of a dcgm-exporter → profiling values by GPU and GPU instance.

    FIELD{gpu="0",UUID="GPU-…",GPU_I_PROFILE="1g.10gb",GPU_I_ID="9",…} 0.42

Profiling fields are ratios 0-1 and bytes per second. Under their names of DCGM 4.7 (…_UTIL_RATIO) some releases wrote
0-100; only the values show it. With a pod's name in the labels, one GPU may have several series of the same value.
"""

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

from vgpuscope.catalog import node as m
from vgpuscope.catalog.metric import Metric
from vgpuscope.formats.prom.text import PageReader
from vgpuscope.model.activity import Activity, ActivityPlace, ActivityReading
from vgpuscope.model.quantity import UnixTime

_MOST_TRAFFIC = 1e13  # bytes per second; no link is as fast
_ROUNDING = 1 + 1e-6
_PERCENT = 100.0
_LATE = 300.0  # seconds; a line with an older timestamp repeats an old value
MOST_PLACES: Final = 1024  # GPUs and instances of one page; a node has at most some hundred


class _Field(NamedTuple):
    field: str  # of Activity
    ratio: bool = True  # otherwise bytes per second
    by_values: bool = False  # the name does not say whether it is 0-1 or 0-100


_METRICS: Final[tuple[tuple[Metric, _Field], ...]] = (  # under the names that our agent publishes them as, too
    (m.GPU_ENGINE_ACTIVE, _Field("engine")),
    (m.GPU_SM_ACTIVE, _Field("sm")),
    (m.GPU_SM_OCCUPANCY, _Field("occupancy")),
    (m.GPU_TENSOR_ACTIVE, _Field("tensor")),
    (m.GPU_FP64_ACTIVE, _Field("fp64")),
    (m.GPU_FP32_ACTIVE, _Field("fp32")),
    (m.GPU_FP16_ACTIVE, _Field("fp16")),
    (m.GPU_DRAM_ACTIVE, _Field("dram")),
    (m.GPU_PCIE_SENT_RATE, _Field("pcie_sent", ratio=False)),
    (m.GPU_PCIE_RECEIVED_RATE, _Field("pcie_received", ratio=False)),
    (m.GPU_NVLINK_SENT_RATE, _Field("nvlink_sent", ratio=False)),
    (m.GPU_NVLINK_RECEIVED_RATE, _Field("nvlink_received", ratio=False)),
)
_FIELDS: Final[dict[str, _Field]] = {metric.alias("dcgm").name: field for metric, field in _METRICS} | {
    "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": _Field("engine", by_values=True),
    "DCGM_FI_PROF_SM_UTIL_RATIO": _Field("sm", by_values=True),
    "DCGM_FI_PROF_SM_OCCUPANCY_RATIO": _Field("occupancy", by_values=True),
    "DCGM_FI_PROF_TENSOR_UTIL_RATIO": _Field("tensor", by_values=True),
    "DCGM_FI_PROF_FP64_UTIL_RATIO": _Field("fp64", by_values=True),
    "DCGM_FI_PROF_FP32_UTIL_RATIO": _Field("fp32", by_values=True),
    "DCGM_FI_PROF_FP16_UTIL_RATIO": _Field("fp16", by_values=True),
    "DCGM_FI_PROF_DRAM_UTIL_RATIO": _Field("dram", by_values=True),
}


class _Series(NamedTuple):
    """What a series means; with a reason, it is rejected."""

    place: ActivityPlace
    field: _Field
    reason: str = ""


class DcgmPages:
    """Reads the pages of one exporter, one after the other; counts what it rejects."""

    def __init__(self) -> None:
        self._pages = PageReader(wanted=frozenset(_FIELDS), meaning=_meaning)
        self._dropped: dict[str, int] = {}

    def read(self, page: bytes, *, at: UnixTime | None = None) -> ActivityReading:
        """The profiling values of a page; without places if it has none that can be used."""
        samples = self._pages.read(page, at=at, late=_LATE)
        percent = _percents(samples)
        found: dict[ActivityPlace, dict[str, float]] = {}
        rejected: set[str] = set()
        for series, value in samples:
            reason = series.reason or _fault(series, value, percent=series.field in percent)
            if not reason and series.place not in found and len(found) >= MOST_PLACES:
                reason = "dcgm-too-many"
            if reason:
                self._dropped[reason] = self._dropped.get(reason, 0) + 1
                rejected.add(reason)
                continue
            ours = value / _PERCENT if series.field in percent else value
            ours = min(1.0, ours) if series.field.ratio else ours
            values = found.setdefault(series.place, {})
            # of two series the higher value is kept: work must not be hidden
            values[series.field.field] = max(ours, values.get(series.field.field, 0.0))
        places = {place: Activity(**values) for place, values in found.items()}
        return ActivityReading(source="dcgm", places=places, dropped=dict(self._dropped), rejected=frozenset(rejected))


def _meaning(name: str, labels: dict[str, str]) -> _Series:
    field = _FIELDS[name]
    uuid = labels.get("UUID") or labels.get("exported_UUID") or ""
    if not uuid.startswith("GPU-"):
        return _Series(("", None), field, "dcgm-no-uuid")
    number = labels.get("GPU_I_ID", "")
    if not number:
        return _Series((uuid, None), field)
    if not (number.isascii() and number.isdigit() and len(number) < 6):
        return _Series((uuid, None), field, "dcgm-bad-instance")
    return _Series((uuid, int(number)), field)


def _percents(samples: Iterable[tuple[_Series, float]]) -> frozenset[_Field]:
    """The fields whose values show that they are 0-100 though their names say ratio."""
    return frozenset(
        series.field for series, value in samples if series.field.by_values and _ROUNDING < value <= _PERCENT
    )


def _fault(series: _Series, value: float, *, percent: bool) -> str:
    """Why a value cannot be used; "" if it can. DCGM's blank values are far above every bound."""
    if math.isnan(value):
        return "dcgm-nan"
    if series.field.ratio:
        most = _PERCENT if percent else 1.0
        return "" if 0.0 <= value <= most * _ROUNDING else "dcgm-over-1"
    return "" if 0.0 <= value <= _MOST_TRAFFIC else "dcgm-traffic-implausible"
