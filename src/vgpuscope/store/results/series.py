"""The numbers under which the series of GPUs and pods are stored."""

from collections.abc import Callable, Iterable

from vgpuscope.store.results.columns import ResultSubject, SubjectDetails
from vgpuscope.store.results.rows import Named


class SeriesCache:
    """The numbers of the GPUs and pods seen today, so that each is looked up in the database once a day."""

    def __init__(self) -> None:
        self._day = 0
        self._known: dict[ResultSubject, tuple[int, SubjectDetails]] = {}

    def news(self, named: Iterable[Named], *, day: int) -> dict[ResultSubject, SubjectDetails]:
        """The series that must be written: new ones, renamed ones, and all of them on a new day."""
        if day > self._day:
            return {name: about for name, about, _ in named}
        return {name: about for name, about, _ in named if self._is_news(name, about)}

    def _is_news(self, name: ResultSubject, about: SubjectDetails) -> bool:
        known = self._known.get(name)
        return known is None or any(now and now != old for now, old in zip(about, known[1], strict=True))

    def finder(self, numbers: dict[ResultSubject, int]) -> Callable[[ResultSubject], int]:
        return lambda name: numbers[name] if name in numbers else self._known[name][0]

    def learn(self, learned: dict[ResultSubject, tuple[int, SubjectDetails]], *, day: int) -> None:
        """Add numbers whose transaction is committed."""
        if day > self._day:
            self._day, self._known = day, learned
            return
        for name, (number, about) in learned.items():
            known = self._known.get(name)
            self._known[name] = number, _filled(about, known[1]) if known else about


def _filled(about: SubjectDetails, old: SubjectDetails) -> SubjectDetails:
    return SubjectDetails(*(now or before for now, before in zip(about, old, strict=True)))
