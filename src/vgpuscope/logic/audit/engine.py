"""Charts that a PromQL engine answers: what its definitions allow to be compared.

Their values are those of the samples in a step, without the time for which each was measured. A mean over several
nodes weighs them by their scrapes, which are not shown. So the mean of a long step is known to lie between its short
steps only if all of it is of one node.
"""

from collections.abc import Iterator

from vgpuscope.logic.audit.charts import extreme_of, reading_at, subject_of, values_at
from vgpuscope.model.consistency import FigureComparison, PublicAnswer, Surfaces, Uncompared

_ENGINE = "prometheus"
_FINER = 5  # times as many steps
_LATE = 60.0  # seconds: samples of the newest steps can still arrive
_LEAST = 60.0  # seconds of a short step: several scrapes are in it
_NOISE = 0.02  # of a value: a sample on the border of two steps is in both
_EXTRAPOLATED = 0.1  # of an energy: what is added for the time between the border of a step and its first sample
_COUNTED = 0.2  # of an energy: power is a mean of windows, which end with a scrape
_RATIOS = ("use", "cores_allocated")  # sums over sums: between the short steps, whatever is added up
_SUMS = ("memory_used", "memory_allocated", "power")
_PEAKS = ("use_max", "memory_max", "power_max")


def steps_of_engine(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """A mean lies between those of the short steps in it, and a peak is the highest of theirs."""
    for long, short in _pairs(surfaces):
        for quantity in (*_RATIOS, *(_SUMS if _of_one_node(long) else ())):
            for at, value, known in _covered(long, short, quantity):
                whole = reading_at(long, quantity, at, value)
                low, high = (
                    extreme_of(reading_at(short, quantity, at, limit(known)), limit.__name__) for limit in (min, max)
                )
                for first, second in ((whole, high), (low, whole)):
                    yield FigureComparison(
                        check="steps",
                        subject=subject_of(long),
                        first=first,
                        second=second,
                        rule="at_most",
                        tolerance=_NOISE * high.value + 1e-4,
                    )
        for quantity in _PEAKS:
            for at, value, known in _covered(long, short, quantity):
                yield FigureComparison(
                    check="steps",
                    subject=subject_of(long),
                    first=reading_at(long, quantity, at, value),
                    second=extreme_of(reading_at(short, quantity, at, max(known)), "max"),
                    rule="equal",
                    tolerance=_NOISE * max(known) + 1e-4,
                )


def energies_of_engine(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """The energy of a step is the sum over its short steps, and its mean power times its length."""
    for long, short in _pairs(surfaces):
        for at, value, known in _covered(long, short, "energy"):
            yield FigureComparison(
                check="energies",
                subject=subject_of(long),
                first=reading_at(long, "energy", at, value),
                second=reading_at(short, "energy", at, sum(known), path=f"sum(energy, {len(known)})"),
                rule="sum",
                tolerance=_EXTRAPOLATED * sum(known) + 1,
            )
        watts = values_at(long, "power")
        for at, value, _ in _covered(long, short, "energy"):
            if (power := watts.get(at)) is not None:
                joules = power * float(long.body["step_seconds"])
                yield FigureComparison(
                    check="energies",
                    subject=subject_of(long),
                    first=reading_at(long, "energy", at, value),
                    second=reading_at(long, "energy", at, joules, path=f"power × step[time={at}]"),
                    rule="equal",
                    tolerance=_COUNTED * joules + 1,
                )


def uncompared(surfaces: Surfaces) -> Iterator[Uncompared]:
    """What the charts of an engine leave undecided."""
    drawn = [one for one in surfaces.answers if one.kind == "SeriesHistory"]
    stored = [one for one in drawn if one.body["source"] in {"hours", "days"}]
    summed = {long.surface for long, _ in _pairs(surfaces) if not _of_one_node(long)}
    if summed:
        yield Uncompared(check="steps", why="no-weights", surfaces=tuple(sorted(summed)))
    of_engine = [one for one in drawn if one.body["source"] == _ENGINE]
    beside = {one.surface for one in of_engine if any(subject_of(one) == subject_of(other) for other in stored)}
    if beside:
        yield Uncompared(check="energies", why="two-sources", surfaces=tuple(sorted(beside)))


def _of_one_node(chart: PublicAnswer) -> bool:
    return any(chart.query.get(name) for name in ("node", "pod", "gpu_id"))


def _pairs(surfaces: Surfaces) -> Iterator[tuple[PublicAnswer, PublicAnswer]]:
    """Charts of one subject, the one with the longer steps first."""
    charts = [one for one in surfaces.answers if one.kind == "SeriesHistory" and one.body["source"] == _ENGINE]
    for long in charts:
        for short in charts:
            whole, part = float(long.body["step_seconds"]), float(short.body["step_seconds"])
            finer = part >= _LEAST and whole >= _FINER * part and whole % part == 0
            if finer and subject_of(long) == subject_of(short):
                yield long, short


def _covered(long: PublicAnswer, short: PublicAnswer, quantity: str) -> Iterator[tuple[int, float, list[float]]]:
    """The long steps in all of whose short steps the quantity was measured: their time, value and those values."""
    many, step, part = values_at(short, quantity), long.body["step_seconds"], short.body["step_seconds"]
    newest = max((at for at, value in many.items() if value is not None), default=0)
    for at, value in values_at(long, quantity).items():
        inside = [many.get(int(at + number * part)) for number in range(int(step // part))]
        known = [one for one in inside if one is not None]
        if value is not None and len(known) == len(inside) and at + step + _LATE <= newest:
            yield at, value, known
