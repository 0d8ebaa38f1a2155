"""Charts and stored hours: the same hour has the same mean and the same energy in every range."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from typing import Any

from vgpuscope.logic.audit.charts import extreme_of, reading_at, subject_of, values_at
from vgpuscope.model.consistency import FigureComparison, FigureReading, PublicAnswer, Surfaces

_MEANS = ("use", "cores_allocated", "memory_used", "memory_allocated", "score", "power")
_PEAKS = ("use_max", "memory_max", "power_max")
_HOUR = 3600
_SAVED = 300.0  # seconds: the newest analyses may not be saved yet when one of two charts is read
_STORE = frozenset({"analyses", "hours", "days"})
_LIVED = 600.0  # seconds: a pod that has just begun changes while its charts are read
_FINER = 10  # times as many steps: then the seams between them do not matter
_NOISE = 0.02  # of a value: an analysis that ends in one step can begin in the one before
_DIGITS = {"power": 0.1, "score": 0.1, "memory_used": 1.0, "memory_allocated": 1.0}  # how far a chart rounds a value
_WIDEST = 0.1  # of a step: what analyses that cross its borders may stand for, or nothing follows from a sum or peak


def steps(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """The mean of a long step is that of its short steps, weighted by the time measured; no short peak is above it."""
    seams = _seams(surfaces)
    for long, short in _pairs(surfaces, "SeriesHistory"):
        for quantity in _MEANS:
            yield from _weighted(long, short, quantity)
        for quantity in _PEAKS:
            yield from _peaks(long, short, quantity, seams)


def means_and_peaks(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """In no step of a chart is a mean above the peak."""
    for answer in surfaces.answers:
        if answer.kind != "SeriesHistory":
            continue
        for mean, peak in (("use", "use_max"), ("memory_used", "memory_max"), ("power", "power_max")):
            peaks = values_at(answer, peak)
            for at, value in values_at(answer, mean).items():
                most = peaks.get(at)
                if value is not None and most is not None:
                    yield FigureComparison(
                        check="steps",
                        subject=subject_of(answer),
                        first=reading_at(answer, mean, at, value),
                        second=reading_at(answer, peak, at, most),
                        rule="at_most",
                        tolerance=_NOISE * most + _DIGITS.get(mean, 1e-3),
                    )


def energies(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """The energy of a long step is the sum of the energies of the short steps in it."""
    seams = _seams(surfaces)
    for long, short in _pairs(surfaces, "SeriesHistory"):
        many, few = values_at(short, "energy"), values_at(long, "energy")
        for at, value in few.items():
            inside = _inside(long, short, at, many, margin=0.0)
            if inside is None or value is None or at == max(few):  # the newest step still grows
                continue
            known = [one for one in inside if one is not None]
            if len(known) < 2 or inside[-1] is None:
                continue  # an analysis after the end of the chart stands for the rest
            total, seam = sum(known), _seam(seams, at, long) / float(long.body["step_seconds"])
            if seam > _WIDEST:
                continue
            yield FigureComparison(
                check="energies",
                subject=subject_of(long),
                first=reading_at(long, "energy", at, value),
                second=reading_at(short, "energy", at, total, path=f"sum(energy, {len(known)})"),
                rule="sum",
                tolerance=(_NOISE + 2 * seam) * max(total, value) + 2 * max(known),
            )


def energy_of_power(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """The energy of a step is the mean power in it times the time in which it was measured.

    Of a GPU that comes and goes it is less: an analysis has the mean power of the samples in its window, and the energy
    that was counted in it.
    """
    for answer in surfaces.answers:
        if answer.kind != "SeriesHistory" or answer.body["source"] not in _STORE:
            continue
        power, spent, energy = (
            values_at(answer, "power"),
            values_at(answer, "power", "seconds"),
            values_at(answer, "energy"),
        )
        for at, value in energy.items():
            watts, seconds = power.get(at), spent.get(at)
            if value is None or watts is None or not seconds or seconds < _LIVED:
                continue
            drawn = reading_at(answer, "energy", at, value)
            made = reading_at(answer, "energy", at, watts * seconds, path=f"power × seconds[time={at}]")
            always = seconds >= _ALWAYS * float(answer.body["step_seconds"])
            bounds = ((drawn, made, _COUNTED), *(((made, drawn, _UNCOUNTED),) if always else ()))
            for first, second, slack in bounds:
                yield FigureComparison(
                    check="energies",
                    subject=subject_of(answer),
                    first=first,
                    second=second,
                    rule="at_most",
                    tolerance=slack * made.value + 1,
                )


_COUNTED = 0.15  # of the energy: its counter also covers the time between samples of power
_UNCOUNTED = 0.4  # the same, and the time in which one of the GPUs was away for less than a window
_ALWAYS = 0.95  # of a step: power was measured in all of it


def classes(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """The GPUs by class of a long step lie between those of the short steps in it."""
    for long, short in _pairs(surfaces, "ClassHistory"):
        many = _all_classes(short)
        for at, value in _all_classes(long).items():
            inside = _inside(long, short, at, many, margin=3 * float(short.body["step_seconds"]))
            known = [one for one in inside or () if one is not None]
            if value is None or not _settled(known, short):
                continue
            whole = reading_at(long, "gpus", at, value)
            low, high = (reading_at(short, "gpus", at, limit(known)) for limit in (min, max))
            for first, second in ((whole, extreme_of(high, "max")), (extreme_of(low, "min"), whole)):
                yield FigureComparison(
                    check="classes",
                    subject=subject_of(long),
                    first=first,
                    second=second,
                    rule="at_most",
                    tolerance=_NOISE * max(high.value, value) + 1e-6,
                )


def part_of_fleet(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """In no step of a chart does a namespace, node or pod use more than the fleet, nor do several of them together."""
    answers = [one for one in surfaces.answers if one.kind == "SeriesHistory"]
    fleets = {
        (one.body["step_seconds"], one.body["source"], one.query.get("end", "")): one
        for one in answers
        if not subject_of(one)
    }
    together: dict[tuple[str, int], list[PublicAnswer]] = {}  # no GPU is in two nodes, and no pod in two namespaces
    for part in answers:
        whole = fleets.get((part.body["step_seconds"], part.body["source"], part.query.get("end", "")))
        if not subject_of(part) or whole is None or part.body["source"] == "none":
            continue
        yield from _at_most_fleet([part], whole, _ADDED["node"])
        kinds = [kind for kind in ("node", "namespace") if part.query.get(kind) == subject_of(part)]
        for kind in kinds:
            together.setdefault((kind, answers.index(whole)), []).append(part)
    for (kind, place), parts in together.items():
        if len(parts) > 1:
            yield from _at_most_fleet(parts, answers[place], _ADDED[kind])


_ADDED = {
    "node": ("memory_used", "memory_allocated", "power", "energy"),
    "namespace": ("memory_used", "memory_allocated"),  # the power of pods is sampled, that of GPUs a mean
}


def _at_most_fleet(
    parts: list[PublicAnswer], whole: PublicAnswer, quantities: tuple[str, ...]
) -> Iterator[FigureComparison]:
    for quantity in quantities:
        totals, of_parts = values_at(whole, quantity), [values_at(part, quantity) for part in parts]
        newest = max((at for at, value in totals.items() if value is not None), default=0)
        step = float(whole.body["step_seconds"])
        growing = step >= _HOUR and quantity != "energy"  # a mean of an hour hardly changes while charts are read
        for at, total in totals.items():
            known = [value for values in of_parts if (value := values.get(at)) is not None]
            settled = growing or at + step <= newest - (_SAVED if step < _HOUR else 0)
            if known and total is not None and settled:
                path = f"sum({quantity}, {len(parts)})[time={at}]" if len(parts) > 1 else ""
                yield FigureComparison(
                    check="chart-parts",
                    subject=", ".join(map(subject_of, parts)),
                    first=reading_at(parts[0], quantity, at, sum(known), path=path),
                    second=reading_at(whole, quantity, at, total),
                    rule="at_most",
                    tolerance=_NOISE * total,
                )


def groups_of_classes(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """The GPUs of all namespaces together are at most those that are not free: pods divide the GPU that they share."""
    answers = [one for one in surfaces.answers if one.kind == "ClassHistory" and not one.query.get("end")]
    for parts in answers:
        for whole in answers:
            alike = all(parts.body[name] == whole.body[name] for name in ("step_seconds", "source", "times"))
            if parts.query.get("group_by") != "namespace" or whole.query.get("group_by") or not alike:
                continue
            totals, free = _all_classes(whole), _all_classes(whole, only="unallocated")
            for at, value in list(_all_classes(parts).items())[:-1]:  # the newest step still grows
                total = totals.get(at)
                if value is not None and total is not None:
                    yield FigureComparison(
                        check="classes",
                        subject="",
                        first=reading_at(parts, "gpus", at, value),
                        second=reading_at(whole, "gpus", at, total - (free.get(at) or 0.0)),
                        rule="at_most",
                        tolerance=_NOISE * total + 0.05,
                    )


def chart_and_tile(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """The classes of a chart's newest whole step add up to the GPUs that the fleet has now."""
    now = next((one for one in surfaces.readings if one.figure == "fleet.gpus" and not one.scope), None)
    unlisted = next((one.value for one in surfaces.readings if one.figure == "fleet.gpus_unlisted"), 0.0)
    if now is None:
        return
    for answer in surfaces.answers:
        if answer.kind != "ClassHistory" or answer.scope or answer.query.get("end") or not _fine(answer):
            continue
        known = [(at, value) for at, value in _all_classes(answer).items() if value is not None]
        if len(known) < 3:
            continue
        at, value = known[-2]
        tolerance = 0.02 * now.value + 0.05
        if any(abs(other - value) > tolerance for _, other in known[-3:]):
            continue  # GPUs come or go, such as those of an agent that has ended
        end = datetime.fromisoformat(answer.body["end"]).timestamp()
        if known[-1][0] + 2 * answer.body["step_seconds"] < end:
            continue  # the analysis of the tile is not in the chart yet
        yield FigureComparison(
            check="chart-tile",
            subject="",
            first=FigureReading(
                surface=now.surface,
                path=now.path,
                figure=now.figure,
                subject=(),
                value=now.value - unlisted,
                moment=answer.moment,
            ),
            second=reading_at(answer, "gpus", at, value),
            rule="equal",
            tolerance=tolerance,
        )


def classes_of_hours(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """The GPUs by class in an hour of a chart are the stored hours of its GPUs, each instance a part of its GPU."""
    hours: dict[int, list[tuple[PublicAnswer, dict[str, Any]]]] = {}
    for answer in surfaces.answers:
        if answer.kind == "HistoryPoint[]":
            for point in answer.body:
                if point["step"] == "hour" and not point["pod"] and answer.query.get("gpu_id") is None:
                    hours.setdefault(int(point["time"]), []).append((answer, point))
    for chart in surfaces.answers:
        if chart.kind != "ClassHistory" or chart.query.get("group_by") or chart.body["step_seconds"] != _HOUR:
            continue
        totals = _all_classes(chart)
        for at, found in hours.items():
            answer, points = found[0][0], [point for _, point in found]
            longest = max(point["seconds"] for point in points)
            if totals.get(at) is None or at == max(totals) or min(point["seconds"] for point in points) < longest - 1:
                continue  # it still grows, or a GPU was not there all the time
            for name, gpus in _gpus_by_class(points).items():
                drawn = (_all_classes(chart, only=name).get(at) or 0.0) if name else totals[at] or 0.0
                yield FigureComparison(
                    check="classes",
                    subject=name,
                    first=reading_at(chart, "gpus", at, drawn, path=f"gpus[use_class={name}][time={at}]"),
                    second=reading_at(answer, "gpus", at, gpus, path=f"sum(by_class[{name}] / seconds)[time={at}]"),
                    rule="equal",
                    tolerance=_NOISE * len(points) + 0.05,
                )


def _gpus_by_class(points: list[dict[str, Any]]) -> dict[str, float]:
    """By the rule that an idle GPU is unallocated while no pod holds it; every class that a chart can have."""
    instances = Counter(point["gpu_id"] for point in points)
    found: dict[str, float] = dict.fromkeys(("unallocated", "unknown"), 0.0)
    for point in points:
        seconds, part = point["seconds"], 1 / instances[point["gpu_id"]]
        free = min(point["by_class"].get("idle", 0.0), seconds - point["held_seconds"])
        for name, spent in point["by_class"].items():
            spent_held = spent - free if name == "idle" else spent
            found[name] = found.get(name, 0.0) + part * spent_held / seconds
        found["unallocated"] += part * free / seconds
    return found


def stored_seconds(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """A stored hour or day of a GPU never stands for more seconds than it has, and its parts add up to it."""
    lengths = {"hour": 3600.0, "day": 86400.0}
    for answer in surfaces.answers:
        if answer.kind != "HistoryPoint[]":
            continue
        for index, point in enumerate(answer.body):
            if point["pod"] or point["step"] not in lengths:
                continue
            subject = "/".join(part for part in (point["gpu_id"], point["mig"]) if part)

            def place(path: str, value: float, index: int = index, answer: PublicAnswer = answer) -> FigureReading:
                return FigureReading(
                    surface=answer.surface,
                    path=f"[{index}].{path}",
                    figure="judged.step_seconds",
                    subject=(),
                    value=value,
                )

            seconds, length = float(point["seconds"]), lengths[point["step"]]
            yield FigureComparison(
                check="seconds",
                subject=subject,
                first=place("seconds", seconds),
                second=place(f"{length:g}", length),
                rule="at_most",
                tolerance=0.01 * length,
            )
            for field in ("by_status", "by_verdict", "by_class"):
                yield FigureComparison(
                    check="seconds",
                    subject=subject,
                    first=place("seconds", seconds),
                    second=place(f"sum({field})", sum(point[field].values())),
                    rule="sum",
                    tolerance=0.001 * length + 1,
                )


def _pairs(surfaces: Surfaces, kind: str) -> Iterator[tuple[PublicAnswer, PublicAnswer]]:
    """Charts of one subject, the one with the longer steps first."""
    charts: dict[tuple[str, str], list[PublicAnswer]] = {}
    for answer in surfaces.answers:
        if answer.kind == kind and answer.body["source"] in _STORE:
            charts.setdefault((subject_of(answer), answer.query.get("group_by", "")), []).append(answer)
    for some in charts.values():
        for long in some:
            for short in some:
                whole, part = int(long.body["step_seconds"]), int(short.body["step_seconds"])
                if part and whole >= _FINER * part and whole % part == 0 and long.moment == short.moment:
                    yield long, short


def _weighted(long: PublicAnswer, short: PublicAnswer, quantity: str) -> Iterator[FigureComparison]:
    """A step in which nothing of this GPU, pod or namespace was measured, but of others, is a part of the time, too."""
    many, spent = values_at(short, quantity), values_at(short, quantity, "seconds")
    lengths = values_at(long, quantity, "seconds")
    for at, value in values_at(long, quantity).items():
        inside, seconds = (_inside(long, short, at, of_short, margin=0.0) for of_short in (many, spent))
        if value is None or not inside or not seconds:
            continue
        known = [one for one in inside if one is not None]
        weight, length = sum(one or 0.0 for one in seconds), lengths.get(at) or 0.0
        if not weight or not length or not _settled(known, short):
            continue
        mean = sum((one or 0.0) * (of or 0.0) for one, of in zip(inside, seconds, strict=True)) / weight
        # the two charts are read one after the other: the newest step of one can have more analyses than in the other
        apart = abs(weight - length) / max(weight, length)
        yield FigureComparison(
            check="steps",
            subject=subject_of(long),
            first=reading_at(long, quantity, at, value),
            second=extreme_of(reading_at(short, quantity, at, mean), "mean"),
            rule="equal",
            tolerance=_NOISE * max(abs(mean), abs(value)) + apart * max(known) + _DIGITS.get(quantity, 1e-3),
        )


def _peaks(
    long: PublicAnswer, short: PublicAnswer, quantity: str, seams: dict[int, float]
) -> Iterator[FigureComparison]:
    many = values_at(short, quantity)
    for at, value in values_at(long, quantity).items():
        seam = _seam(seams, at, long)
        if seam > _WIDEST * float(long.body["step_seconds"]):
            continue
        inside = _inside(long, short, at, many, margin=-2 * max(seam, float(short.body["step_seconds"])))
        known = [one for one in inside or () if one is not None]
        if value is not None and _settled(known, short):
            yield FigureComparison(
                check="steps",
                subject=subject_of(long),
                first=extreme_of(reading_at(short, quantity, at, max(known)), "max"),
                second=reading_at(long, quantity, at, value),
                rule="at_most",
                tolerance=_NOISE * abs(value) + 1e-6,
            )


def _settled(known: list[float], short: PublicAnswer) -> bool:
    return len(known) > 1 and len(known) * float(short.body["step_seconds"]) >= _LIVED


def _inside(
    long: PublicAnswer, short: PublicAnswer, at: int, many: dict[int, float | None], *, margin: float
) -> list[float | None] | None:
    """The values of the short steps in one long step; None if the short ones do not cover it."""
    step = float(long.body["step_seconds"])
    times = list(many)
    if not times or times[0] > at or len(times) < 2:
        return None
    newest = max((one for one, value in many.items() if value is not None), default=0)
    end = times[-1] + float(short.body["step_seconds"])
    open_step = at == max(long.body["times"], default=0) and not short.query.get("end")
    if end < at + step and not (open_step and newest >= end - 3 * float(short.body["step_seconds"])):
        return None
    return [value for one, value in many.items() if at - margin <= one < at + step + margin]


def _seams(surfaces: Surfaces) -> dict[int, float]:
    """The longest time that one analysis stands for, by the stored hour: so much can be counted in the next hour."""
    found: dict[int, float] = {}
    for answer in surfaces.answers:
        if answer.kind == "HistoryPoint[]":
            for point in answer.body:
                if point["step"] == "hour" and point["samples"]:
                    at = int(point["time"])
                    found[at] = max(found.get(at, 0.0), float(point["seconds"]) / point["samples"])
    return found


def _seam(seams: dict[int, float], at: int, long: PublicAnswer) -> float:
    """For a long step: of its own first hour and of the hours around it; an hour if nothing is known."""
    if float(long.body["step_seconds"]) > _HOUR:
        return _HOUR
    return max(seams.get(hour, 0.0) for hour in (at - _HOUR, at, at + _HOUR)) or _HOUR


def _all_classes(answer: PublicAnswer, *, only: str = "") -> dict[int, float | None]:
    """The sum over all classes, or of one class, at each time; None: nothing was analysed."""
    columns = [column["gpus"] for column in answer.body["columns"] if only in {"", column.get("use_class")}]
    sums: dict[int, float | None] = {}
    for index, at in enumerate(answer.body["times"]):
        known = [column[index] for column in columns if column[index] is not None]
        sums[at] = sum(known) if known else None
    return sums


def _fine(answer: PublicAnswer) -> bool:
    times = answer.body["times"]
    return all(after > before for before, after in pairwise(times)) and float(answer.body["step_seconds"]) <= 600
