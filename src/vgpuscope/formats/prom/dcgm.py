"""The page of a dcgm-exporter → profiling values by GPU and GPU instance.

    FIELD{gpu="0",UUID="GPU-…",GPU_I_PROFILE="1g.10gb",GPU_I_ID="9",…} 0.42

Profiling fields are ratios 0-1 and bytes per second. Under their names of DCGM 4.7 (…_UTIL_RATIO) some releases wrote
0-100; only the values show it (dcgm_scale). With a pod's name in the labels, one GPU may have several series of one
value.
"""

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

from vgpuscope.formats.prom.dcgm_scale import Scale, Scales
from vgpuscope.formats.prom.text import PageReader
from vgpuscope.knowledge.dcgm_fields import PROFILING_FIELDS
from vgpuscope.model.activity import Activity, ActivityPlace, ActivityReading
from vgpuscope.model.quantity import UnixTime

_ROUNDING = 1 + 1e-6
_PERCENT = 100.0
_LATE = 300.0  # seconds; a line with an older timestamp repeats an old value
MOST_PLACES: Final = 1024  # GPUs and instances of one page; a node has at most some hundred


class _Field(NamedTuple):
    field: str  # of Activity
    most: float  # 1 for a ratio, otherwise bytes per second
    by_values: bool = False  # the name does not say whether it is 0-1 or 0-100

    @property
    def ratio(self) -> bool:
        return self.most == 1.0


_FIELDS: Final[dict[str, _Field]] = {one.name: _Field(one.activity, one.high) for one in PROFILING_FIELDS} | {
    one.base_name: _Field(one.activity, one.high, by_values=True) for one in PROFILING_FIELDS if one.is_ratio
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
        self._scales = Scales()
        self._dropped: dict[str, int] = {}

    def read(self, page: bytes, *, at: UnixTime | None = None) -> ActivityReading:
        """The profiling values of a page; without places if it has none that can be used."""
        samples = self._pages.read(page, at=at, late=_LATE)
        self._scales.learn(_of_unknown_scale(samples), at)
        found: dict[ActivityPlace, dict[str, float]] = {}
        sure: set[tuple[ActivityPlace, str]] = set()
        rejected: set[str] = set()
        # first the names that are sure: of a field that has both names, the other one is not needed
        for series, value in sorted(samples, key=lambda sample: sample[0].field.by_values):
            field, place = series.field, series.place
            if field.by_values and (place, field.field) in sure:
                continue
            scale = self._scales.of(field.field) if field.by_values else "ratio"
            reason = series.reason or _fault(field, value, scale)
            if not reason and place not in found and len(found) >= MOST_PLACES:
                reason = "dcgm-too-many"
            if reason:
                self._dropped[reason] = self._dropped.get(reason, 0) + 1
                rejected.add(reason)
                continue
            if not field.by_values:
                sure.add((place, field.field))
            values = found.setdefault(place, {})
            # of two series the higher value is kept: work must not be hidden
            values[field.field] = max(_ours(field, value, scale), values.get(field.field, 0.0))
        places = {place: Activity(**values) for place, values in found.items()}
        return ActivityReading(source="dcgm", places=places, dropped=dict(self._dropped), rejected=frozenset(rejected))

    def interrupted(self) -> None:
        """The exporter did not answer, or is another one: the next pages may have another scale."""
        self._scales.forget()


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


def _of_unknown_scale(samples: Iterable[tuple[_Series, float]]) -> dict[str, list[float]]:
    """The values of the fields whose names do not say their scale."""
    found: dict[str, list[float]] = {}
    for series, value in samples:
        if series.field.by_values and not series.reason:
            found.setdefault(series.field.field, []).append(value)
    return found


def _ours(field: _Field, value: float, scale: Scale) -> float:
    ours = value / _PERCENT if scale == "percent" else value
    return min(1.0, ours) if field.ratio else ours


def _fault(field: _Field, value: float, scale: Scale) -> str:
    """Why a value cannot be used; "" if it can. DCGM's blank values are far above every bound."""
    if math.isnan(value):
        return "dcgm-nan"
    if not field.ratio:
        return "" if 0.0 <= value <= field.most else "dcgm-traffic-implausible"
    most = 1.0 if scale == "ratio" else _PERCENT
    if not 0.0 <= value <= most * _ROUNDING:
        return "dcgm-over-1"
    return "dcgm-scale-unclear" if scale == "unclear" else ""
