"""The page of a dcgm-exporter → samples of profiling fields by GPU and GPU instance.

    FIELD{gpu="0",UUID="GPU-…",GPU_I_PROFILE="1g.10gb",GPU_I_ID="9",…} 0.42

Profiling fields are ratios 0-1 and bytes per second. Under their names of DCGM 4.7 (…_UTIL_RATIO) some releases wrote
0-100. With a pod's name in the labels, one GPU may have several series of one value.
"""

from typing import Final

from vgpuscope.formats.prom.text import PageReader
from vgpuscope.knowledge.dcgm_fields import PROFILING_FIELDS, DcgmField
from vgpuscope.model.activity import ActivityPlace, DcgmSeries
from vgpuscope.model.quantity import UnixTime

_LATE = 300.0  # seconds; a line with an older timestamp repeats an old value
_FIELDS: Final[dict[str, tuple[DcgmField, bool]]] = {one.name: (one, False) for one in PROFILING_FIELDS} | {
    one.base_name: (one, True) for one in PROFILING_FIELDS if one.is_ratio
}


class DcgmPages:
    """Reads the pages of one exporter, one after the other: the meaning of a series is decoded once."""

    def __init__(self) -> None:
        self._pages = PageReader(wanted=frozenset(_FIELDS), meaning=_meaning)

    def read(self, page: bytes, *, at: UnixTime | None = None) -> list[tuple[DcgmSeries, float]]:
        """The samples of profiling fields; NaN for a value that is not a number, or not current."""
        return self._pages.read(page, at=at, late=_LATE)


def _meaning(name: str, labels: dict[str, str]) -> DcgmSeries:
    field, by_values = _FIELDS[name]
    place, reason = _place(labels)
    return DcgmSeries(place, field.activity, field.high, by_values, reason)


def _place(labels: dict[str, str]) -> tuple[ActivityPlace, str]:
    """The GPU or GPU instance, and why it cannot be used; "" if it can."""
    uuid = labels.get("UUID") or labels.get("exported_UUID") or ""
    if not uuid.startswith("GPU-"):
        return ("", None), "dcgm-no-uuid"
    number = labels.get("GPU_I_ID", "")
    if not number:
        return (uuid, None), ""
    if not (number.isascii() and number.isdigit() and len(number) < 6):
        return (uuid, None), "dcgm-bad-instance"
    return (uuid, int(number)), ""
