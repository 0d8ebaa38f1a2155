"""Samples → a page of Prometheus text (0.0.4) or OpenMetrics (1.0).

A node's page changes in its values each second and in its series rarely, so all of it but the numbers is made once
and kept for as long as the same series come. Whoever scrapes asks for the same form each time, so
the forms that were asked for lately are made with the page: a scrape finds its bytes ready.
"""

import gzip
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, NamedTuple

from msgspec import Struct

from vgpuscope.catalog.metric import Exposed, Metric

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_GZIP_LEVEL = 1  # Prometheus asks for gzip on every scrape: most of the gain, a fifth of the time
_LATELY = 90  # pages: at one a second, longer than people let Prometheus wait between two scrapes


class Sample(Struct, frozen=True, gc=False):
    """One number of one row. None is never shown."""

    metric: Metric
    row: tuple[str, ...]
    value: float | int | None
    extra: tuple[str, ...] = ()


class Form(NamedTuple):
    """What a scraper can ask for, other than plain text."""

    openmetrics: bool
    gzipped: bool


class Block(NamedTuple):
    """All samples of one name."""

    exposed: Exposed
    lines: bytes
    series: int


class Page:
    """One rendered page in every form a scraper may ask for; a form that is not ready is made when first asked."""

    def __init__(self, blocks: list[Block], asked: Callable[[Form], None] = lambda _: None) -> None:
        self._blocks = blocks
        self._asked = asked
        self._text = _join(blocks, _text_head)
        self._forms: dict[Form, bytes] = {}

    @property
    def series(self) -> int:
        """How many samples are on the page."""
        return sum(block.series for block in self._blocks)

    def text(self) -> bytes:
        """Text format 0.0.4."""
        return self._text

    def openmetrics(self) -> bytes:
        """OpenMetrics 1.0."""
        return self._ask(Form(openmetrics=True, gzipped=False))

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
        plain = _join(self._blocks, _openmetrics_head) + b"# EOF\n" if form.openmetrics else self._text
        return gzip.compress(plain, _GZIP_LEVEL, mtime=0) if form.gzipped else plain


class _Line(NamedTuple):
    """One line of every page for as long as its series lives."""

    name: str
    template: str
    scale: float


class _Part(NamedTuple):
    """Neighbouring lines of one scale, and where in the list of values their numbers are."""

    template: str
    take: Callable[[list[Any]], tuple[Any, ...]]
    scale: float


class _Shape(NamedTuple):
    """Which series come in which order: rows, where each begins, and the metric and extra labels of each sample."""

    rows: list[tuple[str, ...]]
    begins: list[int]
    samples: list[Any]

    def each(self) -> Iterator[tuple[tuple[str, ...], Metric, tuple[str, ...]]]:
        """Row, metric and extra labels of each sample."""
        for row, (begin, end) in zip(self.rows, pairwise([*self.begins, len(self.samples)]), strict=True):
            for i in range(begin, end, 2):
                yield row, self.samples[i], self.samples[i + 1]


class Renderer:
    """Renders page after page of the same process; remembers the labels of the series that are still there.

    For as long as the same series come in the same order, a page is made by filling numbers into templates.
    """

    def __init__(self, metrics: Iterable[Metric], families: Iterable[str]) -> None:
        on = frozenset(families)
        self._plans = {metric.name: metric.exposed(on) for metric in metrics}
        self._heads: dict[str, Exposed] = {}
        for exposed in (e for plan in self._plans.values() for e in plan):
            self._heads.setdefault(exposed.name, exposed)
        self._known: dict[tuple[str, ...], dict[Any, tuple[_Line, ...]]] = {}
        self._shape = _Shape([], [], [])
        self._layout: list[tuple[Exposed, list[_Part], int]] = []
        self._asked: dict[Form, int] = {}
        self._pages = 0

    def render(self, samples: Iterable[Sample]) -> Page:
        """The page of these samples. Series that are not among them are forgotten."""
        shape = _Shape([], [], [])
        rows, begins, names = shape.rows, shape.begins, shape.samples
        values: list[Any] = []
        row: tuple[str, ...] | None = None
        for sample in samples:
            value = sample.value
            if value is None:
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
        if shape != self._shape:
            self._shape, self._layout = shape, self._lay_out(shape)
        return self._page(values)

    def _page(self, values: list[Any]) -> Page:
        blocks = [
            Block(exposed, "".join([_filled(part, values) for part in parts]).encode(), series)
            for exposed, parts, series in self._layout
        ]
        self._pages += 1
        page = Page(blocks, self._note)
        for form, when in list(self._asked.items()):
            if self._pages - when <= _LATELY:
                page.make(form)
        return page

    def _note(self, form: Form) -> None:
        self._asked[form] = self._pages

    def _lay_out(self, shape: _Shape) -> list[tuple[Exposed, list[_Part], int]]:
        """Which value goes where on the page, for samples of this shape."""
        blocks: dict[str, list[tuple[_Line, range]]] = {name: [] for name in self._heads}
        kept: dict[tuple[str, ...], dict[Any, tuple[_Line, ...]]] = {}
        at = 0
        for row, metric, extra in shape.each():
            known = kept.setdefault(row, self._known.get(row) or {})
            lines = known.get((metric.name, extra))
            if lines is None:
                lines = known[metric.name, extra] = _lines(self._plans[metric.name], row, extra)
            end = at + 1 + (len(metric.extra) if metric.volatile else 0)
            for line in lines:
                blocks[line.name].append((line, range(at, end)))
            at = end
        self._known = kept
        return [(self._heads[name], _parts(lines), len(lines)) for name, lines in blocks.items() if lines]


def _filled(part: _Part, values: list[Any]) -> str:
    """The lines with their numbers."""
    numbers = part.take(values)
    if part.scale != 1:
        numbers = tuple([round(number * part.scale, 9) for number in numbers])
    return part.template % numbers


def _parts(lines: list[tuple[_Line, range]]) -> list[_Part]:
    parts = []
    for scale, neighbours in groupby(lines, key=lambda pair: pair[0].scale):
        mine = list(neighbours)
        template = "".join([line.template for line, _ in mine])
        parts.append(_Part(template, _taker([i for _, indices in mine for i in indices]), scale))
    return parts


def _taker(indices: list[int]) -> Callable[[list[Any]], tuple[Any, ...]]:
    """Picks the values at these indices."""
    if len(indices) == 1:
        return lambda values: (values[indices[0]],)
    return itemgetter(*indices)


def _lines(plan: Iterable[Exposed], row: Any, extra: tuple[str, ...]) -> tuple[_Line, ...]:
    """The lines that one sample makes: one for each name that applies to its row."""
    prefixes = [(exposed, _prefix(exposed, row, extra)) for exposed in plan]
    return tuple(_Line(e.name, f"{prefix}%r\n", e.scale) for e, prefix in prefixes if prefix is not None)


def _prefix(exposed: Exposed, row: Any, extra: tuple[str, ...]) -> str | None:
    """A line up to its number, in the language of %; None when the alias does not apply to this row."""
    if exposed.when and not getattr(row, exposed.when):
        return None
    pairs = [(label, _escape(getattr(row, attribute))) for label, attribute in exposed.labels]
    if exposed.volatile:
        assert exposed.scale == 1, "the numbers in its labels would be scaled too"
        pairs += [(label, "%s") for label in exposed.extra]
    else:
        pairs += [(label, _escape(value)) for label, value in zip(exposed.extra, extra, strict=True)]
    pairs += [(label, _escape(value)) for label, value in exposed.const]
    shown = ",".join(f'{label}="{value}"' for label, value in pairs if value)
    return f"{exposed.name}{{{shown}}} " if shown else f"{exposed.name} "


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("%", "%%")


def _join(blocks: list[Block], head: Callable[[Exposed], str]) -> bytes:
    return b"".join([part for block in blocks for part in (head(block.exposed).encode(), block.lines)])


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _text_head(exposed: Exposed) -> str:
    return f"# HELP {exposed.name} {_help(exposed.help)}\n# TYPE {exposed.name} {exposed.type}\n"


def _openmetrics_head(exposed: Exposed) -> str:
    """OpenMetrics calls a counter without its _total, and knows no counter whose samples lack it."""
    name, kind = exposed.name, str(exposed.type)
    if kind == "counter":
        name, kind = (name.removesuffix("_total"), kind) if name.endswith("_total") else (name, "unknown")
    text = _help(exposed.help).replace('"', '\\"')
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"
