"""How a quantity went through the window: level, trend and bursts, from the means of equal parts of it."""

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Literal

from msgspec.structs import replace

from vgpuscope.model.analysis import Term
from vgpuscope.model.opinion import PartId, QuantitySummary, TenantEvidence

SLICES = 10
Courses = Mapping[PartId, Mapping[Term, tuple[float | None, ...]]]
Trend = Literal["rising", "falling", "steady"]


def with_courses(found: TenantEvidence, courses: Courses) -> TenantEvidence:
    """The evidence with the course of each quantity, as far as it is known for the tenant or for its GPU."""
    part = found.part
    whole = {} if found.tenants > 1 else courses.get(PartId(part.gpu_id, part.mig, "", "", ""), {})
    pod = courses.get(part._replace(container=""), {})
    own = {**whole, **pod, **courses.get(part, {})}
    levels = {term: replace(level, course=own[term]) if term in own else level for term, level in found.levels.items()}
    return replace(found, levels=levels)


def trend(level: QuantitySummary, *, scale: float) -> Trend | None:
    """Whether the last third of the window is above or below the first by a tenth of `scale`; None: not known."""
    values = [value for value in level.course if value is not None]
    if len(values) < 3 or not scale:
        return None
    third = max(1, len(values) // 3)
    change = (fmean(values[-third:]) - fmean(values[:third])) / scale
    return "rising" if change > 0.1 else "falling" if change < -0.1 else "steady"


def bursts(level: QuantitySummary, *, scale: float) -> int | None:
    """How many parts of the window are a tenth of `scale` above the usual level; None: not known."""
    values: Sequence[float] = [value for value in level.course if value is not None]
    if len(values) < 3 or not scale:
        return None
    usual = median(values)
    return sum(value > usual + 0.1 * scale for value in values)
