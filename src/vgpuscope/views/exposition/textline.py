"""The lines of Prometheus' text format: heads and labels, defined in one place."""

from typing import Any

from vgpuscope.catalog.metric import ExposedName
from vgpuscope.model.histogram import Histogram

HOLE = "\n\n"  # the placeholder for the number in a label; it occurs in no line


def start(exposed: ExposedName, row: Any, extra: tuple[str, ...]) -> str:
    """A line up to its value. Empty labels are omitted; labels that hold numbers have placeholders."""
    pairs = [(label, escape(getattr(row, attribute))) for label, attribute in exposed.labels]
    if exposed.volatile:
        pairs += [(label, HOLE) for label in exposed.extra]
    else:
        pairs += [(label, escape(value)) for label, value in zip(exposed.extra, extra, strict=True)]
    pairs += exposed.const
    shown = ",".join(f'{label}="{value}"' for label, value in pairs if value)
    return f"{exposed.name}{{{shown}}} " if shown else f"{exposed.name} "


def lines(exposed: ExposedName, row: Any, extra: tuple[str, ...], value: "float | Histogram") -> str:
    """All lines of one sample, with their ends."""
    before = start(exposed, row, extra)
    if isinstance(value, Histogram):
        return _histogram_lines(before, value)
    return f"{before}{scaled(value, exposed.scale)!r}\n"


def _histogram_lines(before: str, value: Histogram) -> str:
    """Cumulative buckets, sum and count; bounds are floats, as OpenMetrics requires."""
    name, _, labels = before.rstrip("} ").partition("{")
    bounds = [*map(repr, map(float, value.bounds)), "+Inf"]
    more, alone = (f"{labels},", f"{{{labels}}}") if labels else ("", "")
    buckets = zip(bounds, value.cumulative(), strict=True)
    text = "".join(f'{name}_bucket{{{more}le="{bound}"}} {count}\n' for bound, count in buckets)
    return f"{text}{name}_sum{alone} {value.sum!r}\n{name}_count{alone} {value.count}\n"


def applies(exposed: ExposedName, row: Any) -> bool:
    """Whether the name is shown for this row at all."""
    return not exposed.when or bool(getattr(row, exposed.when))


def scaled(value: float, scale: float) -> float:
    """The value in the unit of a name, without rounding errors of binary fractions."""
    return value if scale == 1 else round(value * scale, 9)


def escape(value: str) -> str:
    """A label's value, escaped for use between quotes."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def text_head(exposed: ExposedName) -> str:
    """HELP and TYPE of the text format, without the last line break."""
    return f"# HELP {exposed.name} {_help(exposed.help)}\n# TYPE {exposed.name} {exposed.type}"


def openmetrics_head(exposed: ExposedName) -> str:
    """HELP and TYPE of OpenMetrics: a counter is named without _total; a counter whose name lacks it is `unknown`."""
    name, kind = exposed.name, str(exposed.type)
    if kind == "counter":
        name, kind = (name.removesuffix("_total"), kind) if name.endswith("_total") else (name, "unknown")
    text = _help(exposed.help).replace('"', '\\"')
    return f"# HELP {name} {text}\n# TYPE {name} {kind}"


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
