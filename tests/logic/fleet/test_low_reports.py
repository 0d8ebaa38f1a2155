"""Which low parts are reported: each change once, again when it is time, and none twice for missing numbers."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.logic.fleet.low_reports import LowReports, LowState, reports
from vgpuscope.model.opinion import PartId

HOUR = 3600.0
A, B = (PartId(f"GPU-{name}", "", "ml", name, "main") for name in "ab")
_NOTHING: LowReports = {}
LOW, IDLE = LowState("low", "in_use"), LowState("idle", "idle")


def course(*analyses, repeat=HOUR):
    """The parts that are reported after each analysis: (time, low parts, parts in use)."""
    before, due = _NOTHING, list[Any]()
    for now, low, in_use in analyses:
        before, parts = reports(before, low, in_use, now=now, repeat=repeat)
        due.append(parts)
    return due


def test_a_part_that_stays_low_is_reported_once_until_it_is_time_again():
    assert course((0, {A: LOW}, ()), (300, {A: LOW}, ()), (HOUR, {A: LOW}, ()), (HOUR + 300, {A: LOW}, ())) == [
        [A],
        [],
        [A],
        [],
    ]


def test_a_change_from_low_to_idle_is_reported_and_so_is_a_part_that_was_in_use_between():
    assert course((0, {A: LOW}, ()), (300, {A: IDLE}, ())) == [[A], [A]]
    assert course((0, {A: LOW}, ()), (300, {}, {A}), (600, {A: LOW}, ())) == [[A], [], [A]]


def test_missing_numbers_are_no_change():
    assert course((0, {A: LOW}, ()), (300, {}, ()), (600, {A: LOW}, ())) == [[A], [], []]


def test_without_a_pause_each_analysis_reports_as_gpu_oour_does():
    assert course((0, {A: LOW, B: IDLE}, ()), (300, {A: LOW}, ()), repeat=0.0) == [[A, B], [A]]


@given(st.lists(st.tuples(st.integers(1, 5000), st.sets(st.sampled_from([A, B])), st.booleans()), max_size=30))
def test_a_part_in_one_state_is_never_reported_twice_within_the_pause_unless_it_was_in_use(steps):
    now, before, last = 0.0, _NOTHING, dict[PartId, float]()
    for after, low, rest_in_use in steps:
        now += after
        in_use = {A, B} - low if rest_in_use else set()
        before, due = reports(before, dict.fromkeys(sorted(low), LOW), in_use, now=now, repeat=HOUR)
        for part in in_use:
            last.pop(part, None)
        for part in due:
            assert part in low
            assert now - last.get(part, -HOUR) >= HOUR
            last[part] = now
        assert all(now - last[part] < HOUR for part in low)
