"""One panel as HTML."""

import html
import re
from collections.abc import Callable
from itertools import cycle
from math import isnan
from typing import Any

from tools.dashboards.preview.data import Series, shown

Json = dict[str, Any]
Answers = list[list[Series]]
PALETTE = ("#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#5794f2", "#b877d9", "#705da0", "#37872d", "#fade2a")
_TEXT = "#ccccdc"
W, H = 1000.0, 300.0  # of a drawing, which is stretched to its panel


def picture(panel: Json, answers: Answers) -> str:
    """The inside of a panel; without data, the text that says why."""
    if not any(answers):
        return f"<div class=none>{html.escape(panel['fieldConfig']['defaults']['noValue'])}</div>"
    return _KINDS[panel["type"]](panel, answers)


def _unit(panel: Json) -> tuple[str, int | None]:
    defaults = panel["fieldConfig"]["defaults"]
    return defaults["unit"], defaults.get("decimals")


def _named(panel: Json, answers: Answers) -> list[tuple[str, str, Series]]:
    """Name and colour of each series, after the overrides."""
    overrides = {one["matcher"]["options"]: one["properties"] for one in panel["fieldConfig"]["overrides"]}
    found, colours = [], cycle(PALETTE)
    for query, series in zip(panel["targets"], answers, strict=True):
        for one in series:
            template = query.get("legendFormat", "")
            name = _legend(template, one.labels)
            own = {part["id"]: part["value"] for part in overrides.get(name, ())}
            colour = own["color"]["fixedColor"] if "color" in own else next(colours)
            found.append((own.get("displayName", name), colour, one))
    return found


def _legend(template: str, labels: dict[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda label: labels.get(label[1], ""), template)


def _level(panel: Json, value: float) -> str:
    """The colour of a value by its thresholds."""
    steps = panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", [])
    reached = [step["color"] for step in steps if step["value"] is None or value >= step["value"]]
    return _css(reached[-1]) if reached else _TEXT


def _css(colour: str) -> str:
    return _TEXT if colour == "text" else colour


def _stat(panel: Json, answers: Answers) -> str:
    value = answers[0][0].last
    return f'<div class=big style="color:{_level(panel, value)}">{shown(value, *_unit(panel))}</div>'


def _lines(panel: Json, answers: Answers) -> str:
    named = _named(panel, answers)
    stacked = panel["fieldConfig"]["defaults"]["custom"].get("stacking", {}).get("mode") == "normal"
    times = sorted({at for _, _, one in named for at, _ in one.points})
    first, span = times[0], (times[-1] - times[0]) or 1
    rows = [(colour, {at: value for at, value in one.points if not isnan(value)}) for _, colour, one in named]
    top = _top(panel, rows, times, stacked=stacked)
    below = dict.fromkeys(times, 0.0)
    drawn = []
    for colour, values in rows:
        points = [
            (W * (at - first) / span, values[at] + (below[at] if stacked else 0), below[at])
            for at in times
            if at in values
        ]
        path = " ".join(f"{x:.1f},{H - H * y / top:.1f}" for x, y, _ in points)
        if stacked:
            path += " " + " ".join(f"{x:.1f},{H - H * y / top:.1f}" for x, _, y in reversed(points))
            drawn.append(f'<polygon points="{path}" fill="{colour}" opacity="0.75"/>')
            below.update({at: below[at] + values[at] for at in times if at in values})
        else:
            drawn.append(
                f'<polyline points="{path}" fill="none" stroke="{colour}" vector-effect="non-scaling-stroke"/>'
            )
    unit = _unit(panel)
    axis = f"<span class=top>{shown(top, *unit)}</span>"
    plot = f'<svg viewBox="0 0 {W:g} {H:g}" preserveAspectRatio="none">{"".join(drawn)}</svg>'
    legend = "".join(
        f'<div><i style="background:{colour}"></i>{html.escape(name)}<u>{shown(one.last, *unit)}</u></div>'
        for name, colour, one in named
    )
    return f"<div class=plot>{axis}{plot}</div><div class=legend>{legend}</div>"


def _top(panel: Json, rows: list[tuple[str, dict[float, float]]], times: list[float], *, stacked: bool) -> float:
    if stacked:
        highest = max(sum(values.get(at, 0) for _, values in rows) for at in times)
    else:
        highest = max((value for _, values in rows for value in values.values()), default=1)
    most = panel["fieldConfig"]["defaults"].get("max")
    return float(max(most or 0, highest)) * (1 if most else 1.05) or 1.0


def _bars(panel: Json, answers: Answers) -> str:
    named = _named(panel, answers)
    top = panel["fieldConfig"]["defaults"].get("max") or max(one.last for _, _, one in named) or 1
    fixed = panel["fieldConfig"]["defaults"].get("color", {}).get("fixedColor")
    words = {override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]}
    return "".join(
        f"<div class=bar><span>{html.escape(name)}</span>"
        f'<em><b style="width:{100 * min(1, one.last / top):.1f}%;'
        f'background:{colour if words else fixed or _level(panel, one.last)}"></b></em>'
        f"<u>{shown(one.last, *_unit(panel))}</u></div>"
        for name, colour, one in named
    )


def _table(panel: Json, answers: Answers) -> str:
    (order,) = [one["options"] for one in panel["transformations"] if one["id"] == "organize"]
    rows: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    single = len(answers) == 1
    for query, series in zip(panel["targets"], answers, strict=True):
        field = "Value" if single else f"Value #{query['refId']}"
        for one in series:
            row = rows.setdefault(tuple(sorted(one.labels.items())), dict(one.labels))
            row[field] = one.last
    present = {name for row in rows.values() for name in row}
    placed = sorted(order["indexByName"], key=order["indexByName"].__getitem__)
    fields = [name for name in placed if name in present and not order["excludeByName"].get(name)]
    headers = [order["renameByName"].get(name, name) for name in fields]
    sort = panel.get("options", {}).get("sortBy") or []
    listed = list(rows.values())
    for by in sort:
        at = fields[headers.index(by["displayName"])] if by["displayName"] in headers else ""
        listed = sorted(listed, key=_by(at), reverse=by["desc"])
    own = {one["matcher"]["options"]: one["properties"] for one in panel["fieldConfig"]["overrides"]}
    head = "".join(f"<th>{html.escape(name)}</th>" for name in headers)
    body = "".join(
        "<tr>"
        + "".join(_cell(row.get(f), own.get(h, []), panel) for f, h in zip(fields, headers, strict=True))
        + "</tr>"
        for row in listed[:40]
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _by(field: str) -> Callable[[Json], Any]:
    return lambda row: row.get(field, float("-inf"))


def _cell(value: Any, properties: list[Json], panel: Json) -> str:
    if value is None:
        return "<td></td>"
    own = {one["id"]: one["value"] for one in properties}
    key = value if isinstance(value, str) else f"{value:g}"
    for mapping in own.get("mappings", ()):
        if key in mapping["options"]:
            word = mapping["options"][key]
            behind = own.get("custom.cellOptions", {}).get("type") == "color-background"
            style = f"background:{word['color']};color:#fff" if behind else f"color:{_css(word['color'])}"
            return f'<td style="{style}">{html.escape(word["text"])}</td>'
    if isinstance(value, str):
        return f"<td class={'link' if 'links' in own else 'text'}>{html.escape(value)}</td>"
    text = shown(value, own.get("unit", _unit(panel)[0]), own.get("decimals"))
    steps = own.get("thresholds", {}).get("steps", [])
    colour = next((s["color"] for s in reversed(steps) if s["value"] is None or value >= s["value"]), "#5794f2")
    if own.get("custom.cellOptions", {}).get("type") == "gauge":
        return f'<td><em><b style="width:{100 * min(1, value):.0f}%;background:{colour}"></b></em>{text}</td>'
    return f'<td style="color:{_css(colour) if steps else "inherit"}">{text}</td>'


def _histogram(panel: Json, answers: Answers) -> str:
    size = panel["options"]["bucketSize"]
    counts = [0] * (100 // size + 1)
    for one in answers[0]:
        counts[int(one.last // size)] += 1
    return _upright([(f"{at * size}", float(count)) for at, count in enumerate(counts)], panel)


def _columns(panel: Json, answers: Answers) -> str:
    label = next(iter(name for name in _order(panel) if name not in {"cluster", "Value"}))
    return _upright([(one.labels.get(label, ""), one.last) for one in answers[0]], panel)


def _order(panel: Json) -> dict[str, int]:
    (options,) = [one["options"] for one in panel["transformations"] if one["id"] == "organize"]
    order: dict[str, int] = options["indexByName"]
    return order


def _upright(bars: list[tuple[str, float]], panel: Json) -> str:
    top = max(value for _, value in bars) or 1
    drawn = [
        f'<div><u>{shown(value, *_unit(panel))}</u><b style="height:{80 * value / top:.0f}%"></b>'
        f"<span>{html.escape(name)}</span></div>"
        for name, value in bars
    ]
    return f"<div class=upright>{''.join(drawn)}</div>"


def _timeline(panel: Json, answers: Answers) -> str:
    words = panel["fieldConfig"]["defaults"]["mappings"][0]["options"]
    lines = []
    for name, _, one in _named(panel, answers):
        cells = "".join(f'<b style="background:{words[f"{value:g}"]["color"]}"></b>' for _, value in one.points[-60:])
        lines.append(f"<div class=time><span>{html.escape(name)}</span><em>{cells}</em></div>")
    return "".join(lines)


def _heatmap(panel: Json, answers: Answers) -> str:
    del panel
    rows = sorted(answers[0], key=lambda one: float(one.labels["le"].replace("+Inf", "inf")), reverse=True)
    lower = [*rows[1:], None]  # buckets are cumulative: Grafana subtracts the next lower one
    rows = [one if below is None else _minus(one, below) for one, below in zip(rows, lower, strict=True)]
    most = max((value for one in rows for _, value in one.points), default=1) or 1
    lines = [
        f"<div class=time><span>{one.labels['le']}</span><em>"
        + "".join(f'<b style="background:#3274d9;opacity:{value / most:.2f}"></b>' for _, value in one.points[-60:])
        + "</em></div>"
        for one in rows
    ]
    return "".join(lines)


def _minus(one: Series, below: Series) -> Series:
    known = dict(below.points)
    return Series(one.labels, [(at, max(0.0, value - known.get(at, 0))) for at, value in one.points])


_KINDS: dict[str, Callable[[Json, Answers], str]] = {
    "stat": _stat,
    "timeseries": _lines,
    "bargauge": _bars,
    "table": _table,
    "histogram": _histogram,
    "barchart": _columns,
    "state-timeline": _timeline,
    "heatmap": _heatmap,
}
