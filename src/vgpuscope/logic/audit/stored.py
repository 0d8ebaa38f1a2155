"""What an analysis showed, its stored points, the hours and days made of them, and the charts drawn from them."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec import structs

from vgpuscope.logic.audit.charts import reading_at, subject_of, values_at
from vgpuscope.model.consistency import FigureComparison, FigureReading, PublicAnswer, Surfaces

_INSTANT = 0.001  # seconds: an analysis that ends with a step is in this step
_LENGTHS = {"hour": 3600.0, "day": 86400.0}
_PEAKS = {"use_max": "util_max", "memory_max": "memory_max", "power_max": "power_max"}
_OF_WHOLE_GPUS = frozenset({"power_max"})  # exporters report it of the whole GPU
_SHOWN = (  # field of a point, path in the row of the GPU, figure, how far rounding moves it
    ("util", "use.mean", "gpu.use", 0.0006),
    ("util_max", "use.max", "gpu.use_max", 0.0006),
    ("memory_used", "memory_used", "gpu.memory_used", 1.0),
    ("memory_max", "memory_max", "gpu.memory_max", 1.0),
    ("power", "power", "gpu.power", 0.06),
    ("score", "score", "gpu.score", 0.06),
)
_CODES = {  # field of a point → the end of the code of its figure
    "util": "use",
    "util_max": "use_max",
    "memory_used": "memory",
}
_MEANS = (("util", "util_seconds", 0.0006), ("memory_used", "memory_seconds", 2.0), ("power", "power_seconds", 0.06))


class _Device(NamedTuple):
    gpu_id: str
    mig: str

    @property
    def name(self) -> str:
        return "/".join(part for part in self if part)


class _Point(NamedTuple):
    """A stored point of a GPU or MIG instance, and the answer that it is in."""

    answer: PublicAnswer
    place: int
    fields: dict[str, Any]

    def reading(self, field: str, figure: str, value: float) -> FigureReading:
        return FigureReading(
            surface=self.answer.surface,
            path=f"[{self.place}].{field}",
            figure=figure,
            subject=(),
            value=value,
            moment=self.answer.moment,
        )


def shown_and_stored(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """What the page of a GPU shows of an analysis is what was stored of it."""
    analyses = {
        (device, round(1000 * point.fields["time"])): point
        for device, points in _points(surfaces, "analysis").items()
        for point in points
    }
    for answer in surfaces.answers:
        if answer.kind != "GpuDetail" or answer.body["stale"] or answer.body["evidence"] is None:
            continue
        row = answer.body["gpu"]
        device = _Device(row["gpu_id"], row["mig"] or "")
        point = analyses.get((device, round(1000 * answer.body["evidence"]["window_end"])))
        if point is not None:
            first = FigureReading(
                surface=answer.surface,
                path=f"gpu.use_class={row['use_class']}",
                figure="fleet.by_use_class",
                subject=(),
                value=1.0,
                moment=answer.moment,
            )
            same = float(point.fields["use_class"] == row["use_class"])
            yield _compared(
                device, first, point.reading(f"use_class={row['use_class']}", "judged.step_by_class", same), 0
            )
        for field, path, figure, margin in _SHOWN if point else ():
            shown: Any = row
            for part in path.split("."):
                shown = shown[part]
            stored = point.fields[field] if point else None
            whole = not row["mig"] or field != "power"  # an instance has an equal part of the power of its GPU
            if point is None or shown is None or stored is None or not whole:
                continue
            first = FigureReading(
                surface=answer.surface,
                path=f"gpu.{path}",
                figure=figure,
                subject=(),
                value=shown,
                moment=answer.moment,
            )
            code = f"judged.step_{_CODES.get(field, field)}"
            yield _compared(device, first, point.reading(field, code, stored), margin)


def hours_of_analyses(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """A stored hour is made of its analyses, and a stored day of its hours: time, energy, means and peaks."""
    for long, short in (("hour", "analysis"), ("day", "hour")):
        parts = _points(surfaces, short)
        for device, points in _points(surfaces, long).items():
            for point in points:
                if point.answer.sees is not None:
                    continue  # a caller of some namespaces gets a GPU's points of the steps in which they held it
                inside = _inside(point, parts.get(device, []))
                if inside:
                    yield from _made_of(device, point, inside)


def _inside(long: _Point, parts: list[_Point]) -> list[tuple[_Point, float]]:
    """The points that a stored hour or day is made of, each with the part of it that is inside; [] if some are missing.

    An analysis is divided among the hours that it stands for.
    """
    begin, end = long.fields["time"], long.fields["time"] + _LENGTHS[long.fields["step"]]
    spans = [(point, *_span(point)) for point in parts]
    if not spans or min(span[1] for span in spans) > begin or max(span[2] for span in spans) < end:
        return []
    return [
        (point, (min(end, until) - max(begin, since)) / (until - since))
        for point, since, until in spans
        if min(end, until) - max(begin, since) > _INSTANT
    ]


def _span(point: _Point) -> tuple[float, float]:
    step, time = point.fields["step"], point.fields["time"]
    if step in _LENGTHS:
        return time, time + _LENGTHS[step]
    return time - max(point.fields["analysis_seconds"] or point.fields["seconds"], _INSTANT), time


def _made_of(device: _Device, long: _Point, inside: list[tuple[_Point, float]]) -> Iterator[FigureComparison]:
    first, length = inside[0][0], _LENGTHS[long.fields["step"]]

    def made(field: str, value: float, margin: float) -> FigureComparison:
        figure = f"judged.step_{_CODES.get(field, field)}"
        parts = first.reading(field, figure, value)
        path = f"{field} of {len(inside)} points, step={first.fields['step']}"
        return _compared(
            device, long.reading(field, figure, long.fields[field]), structs.replace(parts, path=path), margin
        )

    yield made("seconds", sum(point.fields["seconds"] * part for point, part in inside), 0.01 * length)
    energies = [point.fields["energy"] * part for point, part in inside if point.fields["energy"] is not None]
    if energies and long.fields["energy"] is not None:
        yield made("energy", sum(energies), 0.02 * sum(energies) + 1)
    for field, measured, margin in _MEANS:
        weighed = [(point.fields[field], point.fields[measured] * part) for point, part in inside]
        known = [(value, weight) for value, weight in weighed if value is not None and weight]
        total = sum(weight for _, weight in known)
        if total and long.fields[field] is not None:
            mean = sum(value * weight for value, weight in known) / total
            yield made(field, mean, margin + 0.01 * max(value for value, _ in known))
    for field in _PEAKS.values():
        peaks = [point.fields[field] for point, _ in inside if point.fields[field] is not None]
        if peaks and long.fields[field] is not None:
            yield made(field, max(peaks), 0.001 * max(peaks) + 1e-6)


def peaks_of_charts(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """The peak in a step of the chart of a GPU is at least that of each stored analysis in this step."""
    analyses = _points(surfaces, "analysis")
    for chart in surfaces.answers:
        if chart.kind != "SeriesHistory" or chart.body["source"] not in {"analyses", "hours", "days"}:
            continue
        if chart.sees is not None:
            continue  # a caller of some namespaces gets the chart of their pods on this GPU
        device = _Device(chart.query.get("gpu_id", ""), chart.query.get("mig", ""))
        step = chart.body["step_seconds"]
        for quantity, field in _PEAKS.items():
            drawn = values_at(chart, quantity)
            for point in analyses.get(device, []):
                value = point.fields[field]
                at = int((point.fields["time"] - _INSTANT) // step * step)
                shown = drawn.get(at)
                if value is None or shown is None or (device.mig and quantity in _OF_WHOLE_GPUS):
                    continue
                yield FigureComparison(
                    check="stored",
                    subject=subject_of(chart),
                    first=point.reading(field, f"judged.step_{_CODES.get(field, field)}", value),
                    second=reading_at(chart, quantity, at, shown),
                    rule="at_most",
                    tolerance=0.001 * value + 0.06,
                )


def _points(surfaces: Surfaces, step: str) -> dict[_Device, list[_Point]]:
    """Each once: periods that were asked for can overlap."""
    found: dict[_Device, dict[float, _Point]] = {}
    for answer in surfaces.answers:
        if answer.kind == "HistoryPoint[]":
            for index, fields in enumerate(answer.body):
                if fields["step"] == step and not fields["pod"] and not fields["namespace"]:
                    device = _Device(fields["gpu_id"], fields["mig"])
                    found.setdefault(device, {})[fields["time"]] = _Point(answer, index, fields)
    return {device: list(points.values()) for device, points in found.items()}


def _compared(device: _Device, first: FigureReading, second: FigureReading, margin: float) -> FigureComparison:
    return FigureComparison(
        check="stored", subject=device.name, first=first, second=second, rule="equal", tolerance=margin
    )
