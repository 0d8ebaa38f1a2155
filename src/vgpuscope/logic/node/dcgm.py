"""Pages of a dcgm-exporter → profiling values: which of two names counts, in which scale, and what is rejected."""

import math
from collections.abc import Collection, Iterable
from typing import Final

from vgpuscope.logic.node.dcgm_scale import Scale, Scales
from vgpuscope.model.activity import Activity, ActivityPlace, ActivityReading, DcgmPage, DcgmSeries
from vgpuscope.model.errors import DcgmUnusable, DcgmWithoutFields
from vgpuscope.model.quantity import DeviceUUID

_ROUNDING = 1 + 1e-6
_PERCENT = 100.0
MOST_PLACES: Final = 1024  # GPUs and instances of one page; a node has at most some hundred


class DcgmReadings:
    """Takes the pages of one exporter, one after the other; counts what it rejects."""

    def __init__(self) -> None:
        self._scales = Scales()
        self._dropped: dict[str, int] = {}

    def take(self, page: DcgmPage) -> ActivityReading:
        """The profiling values of a page; without places if it has none that can be used."""
        if page.interrupted:
            self._scales.forget()  # the next pages may have another scale
        self._scales.learn(_of_unknown_scale(page.samples), page.at)
        found: dict[ActivityPlace, dict[str, float]] = {}
        sure: set[tuple[ActivityPlace, str]] = set()
        rejected: set[str] = set()
        # first the names that are sure: of a field that has both names, the other one is not needed
        for series, value in sorted(page.samples, key=lambda sample: sample[0].by_values):
            place, field = series.place, series.field
            if series.by_values and (place, field) in sure:
                continue
            scale = self._scales.of(field) if series.by_values else "ratio"
            reason = series.reason or _fault(series, value, scale)
            if not reason and place not in found and len(found) >= MOST_PLACES:
                reason = "dcgm-too-many"
            if reason:
                self._dropped[reason] = self._dropped.get(reason, 0) + 1
                rejected.add(reason)
                continue
            if not series.by_values:
                sure.add((place, field))
            values = found.setdefault(place, {})
            # of two series the higher value is kept: work must not be hidden
            values[field] = max(_ours(series, value, scale), values.get(field, 0.0))
        places = {place: Activity(**values) for place, values in found.items()}
        return ActivityReading(source="dcgm", places=places, dropped=dict(self._dropped), rejected=frozenset(rejected))


def check_usable(found: ActivityReading, here: Collection[DeviceUUID]) -> None:
    """Whether a page has values of this node's GPUs; if not, an error that says why. Without GPUs, all are taken."""
    if not found.places:
        if not found.rejected:
            raise DcgmWithoutFields("the exporter's page has no profiling field (DCGM_FI_PROF_…)")
        raise DcgmUnusable(f"no profiling value can be used: {', '.join(sorted(found.rejected))}")
    if here and not any(gpu in here for gpu, _ in found.places):
        raise DcgmUnusable("the exporter reports no GPU of this node: it runs on another one")


def _of_unknown_scale(samples: Iterable[tuple[DcgmSeries, float]]) -> dict[str, list[float]]:
    """The values of the fields whose names do not say their scale."""
    found: dict[str, list[float]] = {}
    for series, value in samples:
        if series.by_values and not series.reason:
            found.setdefault(series.field, []).append(value)
    return found


def _ours(series: DcgmSeries, value: float, scale: Scale) -> float:
    ours = value / _PERCENT if scale == "percent" else value
    return min(1.0, ours) if series.is_ratio else ours


def _fault(series: DcgmSeries, value: float, scale: Scale) -> str:
    """Why a value cannot be used; "" if it can. DCGM's blank values are far above every bound."""
    if math.isnan(value):
        return "dcgm-nan"
    if not series.is_ratio:
        return "" if 0.0 <= value <= series.high else "dcgm-traffic-implausible"
    most = 1.0 if scale == "ratio" else _PERCENT
    if not 0.0 <= value <= most * _ROUNDING:
        return "dcgm-over-1"
    return "dcgm-scale-unclear" if scale == "unclear" else ""
