"""Whether an exporter's fields of DCGM 4.7 (…_UTIL_RATIO) are ratios or percent: 0.9 is a busy GPU or an idle one.

Their names say 0-1, but some releases wrote 0-100. Only the values show it, and single values may be garbage. So a
field is used after several pages that agree, and not while they contradict each other.
"""

from collections.abc import Collection, Mapping
from typing import Final, Literal

from vgpuscope.model.quantity import Seconds, UnixTime

Scale = Literal["ratio", "percent", "unclear"]

_ROUNDING: Final = 1 + 1e-6
_PERCENT: Final = 100.0
_CLEARLY_PERCENT: Final = 2.0  # a ratio is never so far above 1, except as garbage
_CLEARLY_RATIO: Final = 0.5  # if that were percent, every GPU would be idle, and one of them still almost at 1 %
_PAGES: Final = 3  # so many pages decide
_PAGES_AGAINST: Final = 10  # so many decide against what was known before
_COLLECTED: Final[Seconds] = 30.0  # an exporter collects so often by default: until then an equal page is the same one


class Scales:
    """What the pages of one exporter have shown so far.

    A field is percent after pages on which most of its values are above 2. It is a ratio after pages on which no field
    of the exporter is above 1 and one is near it. Otherwise it is unclear, also if other fields are in percent. If an
    exporter in percent has a page without a value above 1, that page is unclear: a new release may look like that.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start again: the next page may be another exporter's."""
        self._percent: set[str] = set()
        self._high: dict[str, int] = {}  # pages in a row on which a field looks like percent
        self._near: int = 0  # pages in a row that look like ratios
        self._low: int = 0  # pages in a row without a value above 1
        self._needed: int = _PAGES
        self._top: float = 0.0  # of the last page
        self._last: tuple[Mapping[str, Collection[float]], UnixTime | None] = {}, None

    def of(self, field: str) -> Scale:
        """The scale of a field."""
        if field in self._percent:
            return "percent" if self._top == 0.0 or self._top > _ROUNDING else "unclear"
        return "ratio" if self._ratios and not self._percent else "unclear"

    def learn(self, page: Mapping[str, Collection[float]], at: UnixTime | None) -> None:
        """Take in the values of each field on one page, read at this time."""
        values = {field: [one for one in some if 0.0 < one <= _PERCENT] for field, some in page.items()}
        known, before = self._last
        if values == known and at is not None and before is not None and abs(at - before) < _COLLECTED:
            return
        self._last = values, at
        self._top = max((one for some in values.values() for one in some), default=0.0)
        if self._top == 0.0:
            return  # the same in both
        for field, some in values.items():
            if some:
                self._learn_percent(field, some)
        self._learn_ratio(self._top)

    @property
    def _ratios(self) -> bool:
        return self._near >= self._needed

    def _learn_percent(self, field: str, values: Collection[float]) -> None:
        most = 2 * sum(one > _CLEARLY_PERCENT for one in values) > len(values)
        self._high[field] = self._high.get(field, 0) + 1 if most else 0
        if self._ratios and self._high[field] >= _PAGES:
            self._doubt()
        elif not self._ratios and self._high[field] >= self._needed:
            self._percent.add(field)

    def _learn_ratio(self, top: float) -> None:
        self._low = self._low + 1 if top <= _ROUNDING else 0
        if self._percent:
            self._near = 0
            if self._low >= _PAGES_AGAINST:
                self._doubt()
        elif self._low and top >= _CLEARLY_RATIO:
            self._near += 1
        elif not self._low and not self._ratios:
            self._near = 0

    def _doubt(self) -> None:
        """What was known is contradicted: it takes more pages to know it again."""
        self._percent.clear()
        self._near, self._needed = 0, _PAGES_AGAINST
