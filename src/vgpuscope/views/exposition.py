"""Samples → a page of Prometheus text (0.0.4) or OpenMetrics (1.0).

A node's page changes in its values each second and in its series rarely, so the part of a line before the value is
made once per series and kept for as long as the series lives. Whoever scrapes asks for the same form each time, so
the forms that were asked for lately are made with the page: a scrape finds its bytes ready.
"""

import gzip
from collections.abc import Callable, Iterable
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


class _Series(NamedTuple):
    """One line of every page for as long as the series lives, and where it goes."""

    append: Callable[[str], None]
    prefix: str
    scale: float


class Renderer:
    """Renders page after page of the same process; remembers the labels of the series that are still there."""

    def __init__(self, metrics: Iterable[Metric], families: Iterable[str]) -> None:
        on = frozenset(families)
        self._lines: dict[str, tuple[Exposed, list[str]]] = {}
        self._plans: dict[str, tuple[tuple[Exposed, Callable[[str], None]], ...]] = {}
        for metric in metrics:
            self._plans[metric.name] = tuple((e, self._block(e).append) for e in metric.exposed(on))
        self._known: dict[tuple[str, ...], dict[Any, tuple[_Series, ...]]] = {}
        self._asked: dict[Form, int] = {}
        self._pages = 0

    def render(self, samples: Iterable[Sample]) -> Page:
        """The page of these samples. Series that are not among them are forgotten."""
        known = self._known
        kept: dict[tuple[str, ...], dict[Any, tuple[_Series, ...]]] = {}
        row: tuple[str, ...] | None = None
        mine: dict[Any, tuple[_Series, ...]] = {}
        for sample in samples:
            value = sample.value
            if value is None:
                continue
            if sample.row is not row:
                row = sample.row
                mine = kept[row] = kept.get(row) or known.get(row) or {}
            metric, extra = sample.metric, sample.extra
            key = (metric.name, extra) if extra else metric.name
            series = mine.get(key)
            if series is None:
                series = self._series(metric, row, extra)
                if not metric.volatile:
                    mine[key] = series
            for append, prefix, scale in series:
                number = value if scale == 1 else round(value * scale, 9)
                append(f"{prefix}{number!r}\n")
        self._known = kept
        return self._page()

    def _page(self) -> Page:
        blocks = []
        for exposed, lines in self._lines.values():
            if lines:
                blocks.append(Block(exposed, "".join(lines).encode(), len(lines)))
                lines.clear()
        self._pages += 1
        page = Page(blocks, self._note)
        for form, when in list(self._asked.items()):
            if self._pages - when <= _LATELY:
                page.make(form)
        return page

    def _note(self, form: Form) -> None:
        self._asked[form] = self._pages

    def _block(self, exposed: Exposed) -> list[str]:
        """Samples of one name stand together, whichever metric they come from."""
        return self._lines.setdefault(exposed.name, (exposed, []))[1]

    def _series(self, metric: Metric, row: tuple[str, ...], extra: tuple[str, ...]) -> tuple[_Series, ...]:
        """The lines a sample makes: one for each name that applies to the row."""
        prefixes = [(e, append, _prefix(e, row, extra)) for e, append in self._plans[metric.name]]
        return tuple(_Series(append, prefix, e.scale) for e, append, prefix in prefixes if prefix is not None)


def _prefix(exposed: Exposed, row: Any, extra: tuple[str, ...]) -> str | None:
    """A line up to its value; None when the alias does not apply to this row."""
    if exposed.when and not getattr(row, exposed.when):
        return None
    pairs = [(label, getattr(row, attribute)) for label, attribute in exposed.labels]
    pairs += zip(exposed.extra, extra, strict=True)
    pairs += exposed.const
    shown = ",".join(f'{label}="{_escape(value)}"' for label, value in pairs if value)
    return f"{exposed.name}{{{shown}}} " if shown else f"{exposed.name} "


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


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
