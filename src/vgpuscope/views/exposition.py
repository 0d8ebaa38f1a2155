"""Samples → a page of Prometheus text (0.0.4) or OpenMetrics (1.0).

A node's page changes in its values each second and in its series rarely, so the part of a line before the value is
made once per series and kept for as long as the series lives.
"""

import gzip
from collections.abc import Iterable
from typing import Any, NamedTuple

from vgpuscope.catalog.metric import Exposed, Metric

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_GZIP_LEVEL = 1  # Prometheus asks for gzip on every scrape: most of the gain, a fifth of the time


class Sample(NamedTuple):
    """One number of one row. None is never shown."""

    metric: Metric
    row: tuple[str, ...]
    value: float | int | None
    extra: tuple[str, ...] = ()


class Page:
    """One rendered page in every form a scraper may ask for; the rarer forms are made when first asked."""

    def __init__(self, blocks: list[tuple[Exposed, list[str]]]) -> None:
        self._blocks = blocks
        self._text = _join(blocks, _text_head).encode()
        self._openmetrics: bytes | None = None
        self._gzipped: dict[bool, bytes] = {}

    @property
    def series(self) -> int:
        """How many samples are on the page."""
        return sum(len(lines) for _, lines in self._blocks)

    def text(self) -> bytes:
        """Text format 0.0.4."""
        return self._text

    def openmetrics(self) -> bytes:
        """OpenMetrics 1.0."""
        if self._openmetrics is None:
            self._openmetrics = _join(self._blocks, _openmetrics_head).encode() + b"# EOF\n"
        return self._openmetrics

    def gzipped(self, openmetrics: bool) -> bytes:
        """Either form, compressed."""
        if openmetrics not in self._gzipped:
            plain = self.openmetrics() if openmetrics else self.text()
            self._gzipped[openmetrics] = gzip.compress(plain, _GZIP_LEVEL, mtime=0)
        return self._gzipped[openmetrics]


class Renderer:
    """Renders page after page of the same process; remembers the labels of the series that are still there."""

    def __init__(self, metrics: Iterable[Metric], families: Iterable[str]) -> None:
        on = frozenset(families)
        self._blocks: dict[str, tuple[Exposed, int]] = {}
        self._plans: dict[str, tuple[tuple[int, Exposed], ...]] = {}
        for metric in metrics:
            self._plans[metric.name] = tuple((self._block(e), e) for e in metric.exposed(on))
        self._known: dict[tuple[str, ...], dict[Any, str | None]] = {}

    def render(self, samples: Iterable[Sample]) -> Page:
        """The page of these samples. Series that are not among them are forgotten."""
        lines: list[list[str]] = [[] for _ in self._blocks]
        known, plans = self._known, self._plans
        kept: dict[tuple[str, ...], dict[Any, str | None]] = {}
        row: tuple[str, ...] | None = None
        prefixes: dict[Any, str | None] = {}
        for metric, its_row, value, extra in samples:
            if value is None:
                continue
            if its_row is not row:
                row = its_row
                prefixes = kept[row] = known.get(row) or {}
            for block, exposed in plans[metric.name]:
                key = (block, extra) if extra else block
                prefix = prefixes.get(key, "")
                if prefix is None:
                    continue
                if not prefix:
                    prefix = _prefix(exposed, row, extra)
                    if not exposed.volatile:
                        prefixes[key] = prefix
                    if prefix is None:
                        continue
                number = value if exposed.scale == 1 else round(value * exposed.scale, 9)
                lines[block].append(f"{prefix}{number!r}\n")
        self._known = kept
        return Page([(exposed, lines[i]) for exposed, i in self._blocks.values() if lines[i]])

    def _block(self, exposed: Exposed) -> int:
        """Samples of one name stand together, whichever metric they come from."""
        return self._blocks.setdefault(exposed.name, (exposed, len(self._blocks)))[1]


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


def _join(blocks: list[tuple[Exposed, list[str]]], head: Any) -> str:
    parts: list[str] = []
    for exposed, lines in blocks:
        parts.append(head(exposed))
        parts.extend(lines)
    return "".join(parts)


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
