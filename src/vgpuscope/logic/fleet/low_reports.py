"""Which low GPUs and tenants are reported now: each change once, then again at most every `repeat` seconds.

A part whose numbers are missing has not changed: it is remembered until it is due again. A part in use is forgotten.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple, TypeAlias

from vgpuscope.model.analysis import Status, Verdict
from vgpuscope.model.opinion import PartId
from vgpuscope.model.quantity import Seconds, UnixTime


class LowState(NamedTuple):
    """What a low GPU or tenant is; another one is a change."""

    status: Status
    verdict: Verdict


class LowReport(NamedTuple):
    """The last report of a part."""

    state: LowState
    at: UnixTime


LowReports: TypeAlias = Mapping[PartId, LowReport]


def reports(
    before: LowReports,
    low: Mapping[PartId, LowState],
    in_use: Collection[PartId],
    *,
    now: UnixTime,
    repeat: Seconds,
) -> tuple[LowReports, list[PartId]]:
    """What is remembered from now on, and the parts to report, in the order of `low`."""
    due = [
        part
        for part, state in low.items()
        if (last := before.get(part)) is None or last.state != state or abs(now - last.at) >= repeat
    ]
    kept = {
        part: last for part, last in before.items() if part not in in_use and (part in low or now - last.at < repeat)
    }
    return kept | {part: LowReport(low[part], now) for part in due}, due
