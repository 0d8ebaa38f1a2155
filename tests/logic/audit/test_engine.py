"""Charts of a PromQL engine of one hour in two ranges: the numbers are worked out by hand."""

from typing import Any

import pytest

from tests.logic.audit.test_history import wrong
from vgpuscope.logic.audit import engine
from vgpuscope.model.consistency import PublicAnswer, Surfaces

BEGIN = 1_795_000_000 // 3600 * 3600
TEN = 600


def chart(
    step: int, source: str = "prometheus", query: dict[str, str] | None = None, /, **columns: Any
) -> PublicAnswer:
    """Of 20 minutes and the minutes after them. A column: the values of all steps, or one for all of them."""
    times = list(range(BEGIN, BEGIN + 30 * 60, step))
    shown = [
        {"quantity": name, "values": values if isinstance(values, list) else [values] * len(times), "seconds": []}
        for name, values in columns.items()
    ]
    asked = {"node": "node-1"} if query is None else query
    body = {"times": times, "step_seconds": step, "source": source, "columns": shown}
    return PublicAnswer(
        service="analyzer", surface=f"GET /series?step={step}", kind="SeriesHistory", body=body, query=asked
    )


def minutes(low: float, high: float) -> list[float]:
    return [(low, high)[number % 2] for number in range(30)]


@pytest.mark.parametrize("quantity", ["use", "memory_used", "power"])
def test_a_mean_above_or_below_all_of_its_minutes_is_found(quantity):
    short = chart(60, "prometheus", None, **{quantity: minutes(100.0, 200.0)})

    def found(mean: float) -> int:
        return len(wrong(engine.steps_of_engine, chart(TEN, "prometheus", None, **{quantity: mean}), short))

    assert found(160.0) == 0
    assert found(90.0) == found(210.0) == 2  # whole steps


def test_a_peak_that_is_not_the_highest_of_its_minutes_is_found():
    short = chart(60, use_max=minutes(0.4, 0.8))
    assert wrong(engine.steps_of_engine, chart(TEN, use_max=0.8), short) == []
    assert len(wrong(engine.steps_of_engine, chart(TEN, use_max=0.6), short)) == 2


def test_an_energy_is_the_sum_of_its_minutes_and_power_times_time():
    short = chart(60, energy=6000.0)
    assert wrong(engine.energies_of_engine, chart(TEN, energy=60_000.0, power=100.0), short) == []
    found = wrong(engine.energies_of_engine, chart(TEN, energy=78_000.0, power=100.0), short)
    assert len(found) == 4  # in each whole step, by both rules


def test_steps_with_minutes_that_were_not_measured_are_not_compared():
    short = chart(60, use=[None, *minutes(0.4, 0.8)[1:]])
    found = wrong(engine.steps_of_engine, chart(TEN, use=0.9), short)
    assert [one.first.path for one in found] == [f"use[time={BEGIN + TEN}]"]


def test_what_cannot_be_compared_is_listed_with_its_reason():
    fleet = {"range": "1h"}
    answers = (
        chart(TEN, "prometheus", fleet, power=100.0),
        chart(60, "prometheus", fleet, power=minutes(10.0, 20.0)),
        chart(3600, "hours", {"range": "30d"}, power=100.0),
    )
    left = {(one.check, one.why): one.surfaces for one in engine.uncompared(Surfaces(answers=answers))}
    assert left == {
        ("steps", "no-weights"): ("GET /series?step=600",),
        ("energies", "two-sources"): ("GET /series?step=60", "GET /series?step=600"),
    }
    assert list(engine.steps_of_engine(Surfaces(answers=answers))) == []
