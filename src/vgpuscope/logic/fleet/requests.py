"""Several queries to a PromQL engine in one request, and which part of the answer belongs to which query.

Statistics of different metrics come as one vector, in which a label on each row names its query. Samples of different
metrics come as one matrix, in which the metrics keep their names.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from vgpuscope.formats.prom.promql import MatrixRow, VectorRow, decode_named, one_of, selector, window
from vgpuscope.knowledge.exporters import Group
from vgpuscope.logic.fleet.queries import StatisticsQuery, gathered
from vgpuscope.model.quantity import Seconds

T = TypeVar("T")

_LABEL = "zz_vgpuscope_part"
_MARK = f'"{_LABEL}":"'.encode()
_NAME = b'"__name__":"'
_SHORT = 40  # samples of a series that take about as much space as its labels, which each statistic repeats
_SHORT_GAIN = 8  # factor for the limit on samples, if series are so short
_QUESTIONS = 8  # queries that are sent one by one; more are bundled
_ROWS = 50_000  # rows of an answer to bundled queries


class QueryBatch(NamedTuple):
    """Queries that are sent in one request: all for samples with the same matchers, or all for statistics."""

    asks: tuple[StatisticsQuery, ...]

    @property
    def raw(self) -> bool:
        return self.asks[0].raw

    @property
    def part(self) -> str:
        """What is missing if the request fails."""
        return ", ".join(ask.part for ask in self.asks)

    def query(self, seconds: Seconds) -> str:
        within = window(seconds)
        if len(self.asks) == 1:
            return self.asks[0].query(within)
        if self.raw:
            names = one_of("__name__", sorted({ask.name for ask in self.asks}))
            return f"{selector('', (names, *self.asks[0].matchers))}[{within}]"
        parts = [f'label_replace({ask.query(within)},"{_LABEL}","{at}","","")' for at, ask in enumerate(self.asks)]
        return _union(parts)


class FleetSize(NamedTuple):
    """How large answers will be, as far as earlier answers tell."""

    series: Callable[[Group], int]  # series of a group; 0 if that is unknown
    known: bool  # whether the number of series of any group is known
    seconds: Seconds  # the window
    interval: Seconds  # the longest time between two samples of a series
    pace: Seconds | None  # the shortest time between two samples; None: not known yet

    @property
    def expected(self) -> float:
        """The samples of one series."""
        return self.seconds / (self.pace or self.interval)


def requests(
    plans: Iterable[list[StatisticsQuery]], size: FleetSize, *, most_samples: int, sparing: bool
) -> list[QueryBatch]:
    """The requests to send: one for each query, or fewer if there are many queries and answers are small.

    `plans`: the queries of each group. `sparing`: samples are not queried, because the engine rejected such queries.
    """
    asks: list[StatisticsQuery] = []
    for wanted in plans:
        by_samples = bool(wanted) and not sparing and prefers_samples(wanted[0].group, size, most=most_samples)
        asks += gathered(wanted) if by_samples else wanted
    several = Counter((id(ask.group), ask.quantity) for ask in asks)
    asks.sort(key=lambda ask: several[id(ask.group), ask.quantity])  # a slow quantity holds up as few as possible
    if len(asks) <= _QUESTIONS or not size.known:  # answers of unknown size are not bundled
        return [QueryBatch((ask,)) for ask in asks]
    return bundled(
        asks,
        size=lambda ask: max(1, size.series(ask.group)),
        most_rows=min(_ROWS, most_samples),
        most_samples=most_samples,
        expected=size.expected,
    )


def prefers_samples(group: Group, size: FleetSize, *, most: int) -> bool:
    """Whether samples are queried if several statistics of a metric are wanted: if there are few in all."""
    limit = most * (_SHORT_GAIN if size.pace and size.expected <= _SHORT else 1)
    return 0 < size.series(group) * size.expected <= limit


def bundled(
    asks: Sequence[StatisticsQuery],
    *,
    size: Callable[[StatisticsQuery], int],
    most_rows: int,
    most_samples: int,
    expected: float,
) -> list[QueryBatch]:
    """The same queries in as few requests as the limits on answer size allow; `size`: series of a query."""
    raw = _parcels([ask for ask in asks if ask.raw], lambda ask: round(size(ask) * expected), most_samples)
    return [*raw, *_parcels([ask for ask in asks if not ask.raw], size, most_rows)]


def _parcels(
    asks: Iterable[StatisticsQuery], weight: Callable[[StatisticsQuery], int], most: int
) -> Iterator[QueryBatch]:
    """Bundles of queries of one kind, each as large as the limit allows."""
    kinds: dict[object, list[StatisticsQuery]] = {}
    for ask in asks:
        kinds.setdefault(ask.matchers if ask.raw else None, []).append(ask)
    for alike in kinds.values():
        parcel: list[StatisticsQuery] = []
        filled = 0
        for ask in alike:
            if parcel and filled + weight(ask) > most:
                yield QueryBatch(tuple(parcel))
                parcel, filled = [], 0
            parcel.append(ask)
            filled += weight(ask)
        if parcel:
            yield QueryBatch(tuple(parcel))


def _union(parts: Sequence[str]) -> str:
    """The parts joined by `or`, as a balanced tree: an engine compares the two sides of each `or`."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return f"({_union(parts[:half])} or {_union(parts[half:])})"


def rows_by_ask(bundle: QueryBatch, rows: Iterable[VectorRow]) -> dict[int, list[VectorRow]]:
    """The rows of each query, by its position in the bundle, without the label that marks the query."""
    found: dict[int, list[VectorRow]] = {at: [] for at in range(len(bundle.asks))}
    for row in rows:
        at, metric = _unmarked(bytes(row.metric))
        if at in found:
            found[at].append(VectorRow(metric, row.value))
    return found


def lines_by_name(lines: Iterable[MatrixRow]) -> dict[str, list[MatrixRow]]:
    """The series of each metric."""
    found: dict[str, list[MatrixRow]] = {}
    for line in lines:
        found.setdefault(_name(bytes(line.metric)), []).append(line)
    return found


def _unmarked(raw: bytes) -> tuple[int, msgspec.Raw]:
    begin = raw.find(_MARK)
    end = raw.find(b'"', begin + len(_MARK))
    number = raw[begin + len(_MARK) : end]
    if begin < 0 or not number.isdigit():
        return -1, msgspec.Raw(raw)
    before, after = raw[:begin], raw[end + 1 :]
    if after.startswith(b","):
        after = after[1:]
    elif before.endswith(b","):
        before = before[:-1]
    return int(number), msgspec.Raw(before + after)


def _name(raw: bytes) -> str:
    """The metric's name; metric names have no character that JSON escapes."""
    begin = raw.find(_NAME)
    if begin < 0:
        return decode_named(raw)[0]
    return raw[begin + len(_NAME) : raw.find(b'"', begin + len(_NAME))].decode("ascii", "replace")
