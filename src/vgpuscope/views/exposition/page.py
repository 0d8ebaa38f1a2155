"""Samples → a page of Prometheus text (0.0.4) or OpenMetrics (1.0).

The values of a node's page change each second, but its series change rarely. So everything except the numbers is built
once and kept as long as the series stay the same. Most pages are never scraped, so a page is rendered when it is first
requested. A scraper requests the same form at regular intervals. When a form is due, the sampler renders it in advance,
and the scrape finds its bytes ready.
"""

import gzip
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct

from vgpuscope.catalog.metric import ExposedName, Merge, Metric
from vgpuscope.model.histogram import Histogram
from vgpuscope.views.exposition import textline

_GZIP_LEVEL = 1  # Prometheus asks for gzip on every scrape; this level has most of the gain in a fifth of the time
_GAPS = 4  # gaps that a habit remembers: two scrapers with the same interval cause two


class Sample(Struct, frozen=True, gc=False):
    """One number of one row. A None is never shown; a sum with a None among its parts is not shown either."""

    metric: Metric
    row: tuple[str, ...]
    value: float | int | Histogram | None  # histograms only on sharded pages
    extra: tuple[str, ...] = ()


class Form(NamedTuple):
    """One of the forms that a scraper can request."""

    openmetrics: bool = False
    gzipped: bool = False


PLAIN = Form()


class ExpositionPage:
    """One page in every form that a scraper may request; a missing form is rendered at the first request, and kept.

    `render` returns the plain text and the heads that OpenMetrics uses instead. It is called when a form is needed.
    This can be at any later time, in the thread of the request. The plain text is kept only if it was requested:
    Prometheus asks for a compressed page, and the text takes a megabyte.
    """

    def __init__(
        self,
        render: Callable[[], tuple[bytes, Sequence[bytes]]] = lambda: (b"", ()),
        asked: Callable[[Form], None] = lambda _: None,
    ) -> None:
        self._render = render
        self._asked = asked
        self._heads: Sequence[bytes] = ()
        self._forms: dict[Form, bytes] = {}

    @property
    def series(self) -> int:
        """How many samples are on the page."""
        return self.make(PLAIN).count(b"\n") - 2 * len(self._heads)

    def text(self) -> bytes:
        """Text format 0.0.4."""
        return self._ask(PLAIN)

    def openmetrics(self) -> bytes:
        """OpenMetrics 1.0."""
        return self._ask(Form(openmetrics=True))

    def gzipped(self, openmetrics: bool) -> bytes:
        """Either form, compressed."""
        return self._ask(Form(openmetrics=openmetrics, gzipped=True))

    def make(self, form: Form) -> bytes:
        """The page in this form, which is kept."""
        if form not in self._forms:
            self._forms[form] = self._made(form)
        return self._forms[form]

    def _ask(self, form: Form) -> bytes:
        self._asked(form)
        return self.make(form)

    def _made(self, form: Form) -> bytes:
        text = self._forms.get(PLAIN)
        if text is None:
            text, self._heads = self._render()
        shown = _openmetrics(text, self._heads) if form.openmetrics else text
        return gzip.compress(shown, _GZIP_LEVEL, mtime=0) if form.gzipped else shown


class _Line(NamedTuple):
    """One line of every page, as long as its series exists."""

    name: str
    text: str | tuple[str, ...]  # before its value, or before each of several; begins with the last line's line break
    scale: float
    merge: Merge

    @property
    def pieces(self) -> tuple[str, ...]:
        return (self.text,) if isinstance(self.text, str) else self.text


class _Series(NamedTuple):
    """A line of a page with the positions of its values: several if its labels do not distinguish some rows."""

    line: _Line
    at: tuple[int, ...]


class _Shape(NamedTuple):
    """The series and their order: rows, where each begins, and the metric and extra labels of each sample."""

    rows: list[tuple[str, ...]]
    begins: list[int]
    samples: list[Any]
    unknown: list[tuple[tuple[str, ...], Metric, tuple[str, ...]]]  # parts of sums that were not measured

    def each(self) -> Iterator[tuple[tuple[str, ...], Metric, tuple[str, ...]]]:
        """Row, metric and extra labels of each sample."""
        for row, (begin, end) in zip(self.rows, pairwise([*self.begins, len(self.samples)]), strict=True):
            for i in range(begin, end, 2):
                yield row, self.samples[i], self.samples[i + 1]


class _Layout:
    """A page without its values, for samples of one shape."""

    def __init__(self, blocks: Sequence[tuple[ExposedName, Sequence[_Series]]], values: int) -> None:
        self.heads = [textline.openmetrics_head(exposed).encode() for exposed, _ in blocks]
        self._merged: list[tuple[Callable[[Iterable[Any]], Any], list[int]]] = []
        self._scaled: list[tuple[int, float]] = []
        after = values + sum(len(line.pieces) for _, lines in blocks for line, at in lines if len(at) > 1)
        fixed: list[str] = []
        wanted: list[int] = []
        for exposed, lines in blocks:
            head = len(fixed)
            for line, at in lines:
                fixed += line.pieces
                first = at[0] if len(at) == 1 else values + len(self._merged)
                if len(at) > 1:
                    self._merged += [(_MERGES[line.merge], [one + i for one in at]) for i in range(len(line.pieces))]
                wanted += range(first, first + len(line.pieces))
                if line.scale != 1:
                    wanted[-1] = after + len(self._scaled)
                    self._scaled.append((first, line.scale))
            fixed[head] = f"\n{textline.text_head(exposed)}" + fixed[head]
        self._take = itemgetter(*wanted, 0, 0)  # at least two indexes, because with one itemgetter returns no tuple
        self._fixed = [piece for text in fixed for piece in (text, "")]
        if self._fixed:
            self._fixed[0] = self._fixed[0].removeprefix("\n")
            self._fixed.append("\n")

    def text(self, values: list[Any]) -> bytes:
        """The page with these values."""
        if not self._fixed:
            return b""
        if self._merged:
            values = values + [merge(_number(values[one]) for one in at) for merge, at in self._merged]
        scaled = [textline.scaled(values[at], scale) for at, scale in self._scaled]
        pieces = self._fixed.copy()  # a copy, because another thread may be rendering another page with this layout
        pieces[1::2] = map(str, self._take(values + scaled)[:-2])
        return "".join(pieces).encode()


# By row; by metric, or metric and extra labels. There are thousands of series, and most have one name and no extra
# label: a tuple around each of these would take a megabyte.
_Lines: TypeAlias = dict[tuple[str, ...], dict[Any, "_Line | list[_Line]"]]


class _Last(NamedTuple):
    """What is remembered of the last rendered page."""

    shape: _Shape
    layout: _Layout
    lines: _Lines


_MERGES: dict[Merge, Callable[[Iterable[Any]], Any]] = {"sum": sum, "max": max, "min": min}


def _number(value: float | str) -> float:
    """A value, or the number in a label."""
    return int(value) if isinstance(value, str) else value


class _ScrapeRhythm:
    """After how many pages one form is requested again; updated by the server, read by the renderer."""

    __slots__ = ("_gaps", "_last")

    def __init__(self, page: int) -> None:
        self._last = page
        self._gaps: tuple[int, ...] = ()

    def ask(self, page: int) -> None:
        """Record a request for the form on this page."""
        if page > self._last:
            self._gaps = (*self._gaps[1 - _GAPS :], page - self._last)
            self._last = page

    def due(self, page: int) -> bool:
        """Whether the form may be requested on this page, judged by the recent gaps.

        A form rendered in vain costs as much as a scrape. With steady clocks the gap between two scrapes varies by one,
        so both gaps are among those remembered.
        """
        return page - self._last in self._gaps


class Renderer:
    """Renders page after page of the same process; remembers the labels of the current series.

    As long as the same series come in the same order, a page is made by inserting the numbers into the fixed text. The
    sampler may render a page that is due while a scrape has an earlier page rendered. The remembered state is one value
    that is replaced as a whole, so each page is correct whatever the other thread does.
    """

    def __init__(self, metrics: Iterable[Metric], families: Iterable[str]) -> None:
        on = frozenset(families)
        self._plans = {metric.name: metric.exposed(on) for metric in metrics}
        self._names: dict[str, ExposedName] = {}
        for exposed in (e for plan in self._plans.values() for e in plan if not e.part_of):
            self._names.setdefault(exposed.name, exposed)
        self._last = _Last(_Shape([], [], [], []), _Layout([], 0), {})
        self._habits: dict[Form, _ScrapeRhythm] = {}
        self._pages = 0

    def render(self, samples: Iterable[Sample]) -> ExpositionPage:
        """The page of these samples, which are iterated at the first request, or now if a form is due."""
        self._pages += 1
        page = ExpositionPage(lambda: self._text(samples), self._note)
        for form, habit in list(self._habits.items()):
            if habit.due(self._pages):
                page.make(form)
        return page

    def _text(self, samples: Iterable[Sample]) -> tuple[bytes, Sequence[bytes]]:
        """The plain page and the heads of OpenMetrics. Series that are not among these samples are forgotten."""
        shape = _Shape([], [], [], [])
        rows, begins, names = shape.rows, shape.begins, shape.samples
        values: list[Any] = []
        row: tuple[str, ...] | None = None
        for sample in samples:
            value = sample.value
            if value is None:
                if sample.metric.merge == "sum":
                    shape.unknown.append((sample.row, sample.metric, sample.extra))
                continue
            if sample.row is not row:
                row = sample.row
                rows.append(row)
                begins.append(len(names))
            metric, extra = sample.metric, sample.extra
            if extra and metric.volatile:
                values += extra
                extra = ()
            names.append(metric)
            names.append(extra)
            values.append(value)
        last = self._last
        if shape != last.shape:
            last = self._last = self._lay_out(shape, len(values), last.lines)
        return last.layout.text(values), last.layout.heads

    def _note(self, form: Form) -> None:
        self._habits.setdefault(form, _ScrapeRhythm(self._pages)).ask(self._pages)

    def _lay_out(self, shape: _Shape, values: int, before: _Lines) -> "_Last":
        """Samples of one name are placed together, even from different metrics; samples of one series are merged."""
        blocks: dict[str, dict[str | tuple[str, ...], _Series]] = {name: {} for name in self._names}
        kept: _Lines = {}
        at = 0
        for row, metric, extra in shape.each():
            known = kept.setdefault(row, before.get(row) or {})
            key = (metric.name, extra) if extra else metric.name
            lines = known.get(key)
            if lines is None:
                made = _lines(self._plans[metric.name], row, extra)
                lines = known[key] = made[0] if len(made) == 1 else made
            for line in (lines,) if isinstance(lines, _Line) else lines:
                block = blocks[line.name]
                same = block.get(line.text)
                block[line.text] = _Series(line, (at,)) if same is None else same._replace(at=(*same.at, at))
            at += 1 + (len(metric.extra) if metric.volatile else 0)
        for row, metric, extra in shape.unknown:
            for line in _lines(self._plans[metric.name], row, extra):
                series = blocks[line.name].get(line.text)
                if series is not None and series.line.merge == "sum":
                    del blocks[line.name][line.text]
        shown = [(self._names[name], list(block.values())) for name, block in blocks.items() if block]
        return _Last(shape, _Layout(shown, values), kept)


def _lines(plan: Iterable[ExposedName], row: Any, extra: tuple[str, ...]) -> list[_Line]:
    """The lines of one sample: one for each name that applies to its row."""
    return [
        _Line(e.part_of or e.name, _line(e, row, extra), e.scale, e.merge) for e in plan if textline.applies(e, row)
    ]


def _line(exposed: ExposedName, row: Any, extra: tuple[str, ...]) -> str | tuple[str, ...]:
    """A line without its value, and without the values of labels that hold numbers."""
    assert not exposed.volatile or exposed.scale == 1, "the numbers in its labels would be scaled too"
    line = "\n" + textline.start(exposed, row, extra)
    return tuple(line.split(textline.HOLE)) if exposed.volatile else line


def _openmetrics(text: bytes, heads: Sequence[bytes]) -> bytes:
    """The page with the heads of OpenMetrics."""
    blocks = text.split(b"\n# HELP ") if text else []
    parts = [part for head, block in zip(heads, blocks, strict=True) for part in (head, block.split(b"\n", 2)[2])]
    return b"\n".join(parts) + b"# EOF\n"
