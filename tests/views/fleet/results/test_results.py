"""Rows and sums: gpu-oour's digits, null for what was not measured, and nothing concluded from what is old."""

import json
import math
from datetime import datetime, timedelta

import msgspec
import pytest
from hypothesis import given

from tests.store import fleets
from vgpuscope.model.analysis import Score, Stat
from vgpuscope.views.fleet.api import summary, whole
from vgpuscope.views.fleet.results.results import ResultRow, iso, low, rows, stats

GIB = 1024**3


def stat(value: float) -> Stat:
    return Stat(mean=value, max=value, samples=1)


def test_numbers_have_the_units_and_digits_of_gpu_oour():
    terms = {
        "gpu_util": stat(0.123456),
        "mem_copy": stat(0.98765),
        "mem_used": stat(1.23456 * GIB),
        "mem_total": stat(80.0 * GIB),
        "power": stat(123.456),
        "sm_clock": stat(1.4104e9),
    }
    (row,) = rows(fleets.analysis(fleets.NOON, fleets.gpu(0, terms=terms, score=Score(value=12.345, confidence=1))))
    assert (row.gpu_util, row.mem_copy) == (12.35, 98.77)
    assert (row.mem_used_mb, row.mem_total_mb, row.mem_usage_percent) == (1264.2, 81920.0, 1.54)
    assert (row.power_usage, row.sm_clock, row.score) == (123.5, 1410.0, 12.3)


def test_what_was_not_measured_is_none():
    (row,) = rows(fleets.analysis(fleets.NOON, fleets.gpu(0)))
    assert {row.gpu_util, row.mem_used_mb, row.mem_usage_percent, row.power_usage, row.score, row.coverage} == {None}


def test_memory_beyond_all_there_is_counts_as_all():
    terms = {"mem_used": stat(90.0), "mem_total": stat(80.0)}
    (row,) = rows(fleets.analysis(fleets.NOON, fleets.gpu(0, terms=terms)))
    assert row.mem_usage_percent == 100


@given(fleets.analyses())
def test_rows_rise_by_score_and_those_without_come_last(analysis):
    scores = [row.score for row in rows(analysis)]
    known = [score for score in scores if score is not None]
    assert scores == sorted(known) + [None] * (len(scores) - len(known))


@given(fleets.analyses())
def test_nothing_is_concluded_from_what_is_old(analysis):
    for row in rows(analysis, stale=True):
        assert (row.verdict, row.use_class, row.status, row.stale) == ("unknown", "unknown", "unknown", True)
        assert {tenant.verdict for tenant in row.tenants} <= {"unknown"}


@given(fleets.analyses())
def test_sums_add_up(analysis):
    made = rows(analysis)
    sums = stats(made, threshold=20, timestamp=None)
    for counts in (sums.by_status, sums.by_verdict, sums.by_class):
        assert sum(counts.values()) == sums.total_gpus == len(made)
    assert sums.unknown_count == sums.by_verdict.get("unknown", 0)
    assert sums.low_utilization_count == sum(
        (r.score or 0) < 20 for r in made if r.score is not None and r.status != "unknown"
    )
    assert sums.min_score <= sums.avg_score + 0.05
    assert sums.avg_score <= sums.max_score + 0.05
    assert sums.scored == sum(row.score is not None for row in made)
    assert set(sums.by_namespace) == {tenant.namespace for row in made for tenant in row.tenants}


def test_a_score_that_is_not_known_is_not_low():
    gpus = (
        fleets.gpu(0),
        fleets.gpu(1, score=Score(value=19.94), status="low"),
        fleets.gpu(2, score=Score(value=0.0), status="unknown"),
    )
    assert [row.score for row in low(rows(fleets.analysis(fleets.NOON, *gpus)), threshold=20)] == [19.9]


@given(fleets.analyses())
def test_rows_are_json_that_reads_back(analysis):
    made = rows(analysis)
    encoded = msgspec.json.encode(made)
    json.loads(encoded, parse_constant=pytest.fail)
    assert tuple(msgspec.json.decode(encoded, type=list[ResultRow])) == made


@given(fleets.analyses())
def test_the_summary_counts_every_row(analysis):
    made = rows(analysis)
    assert summary(analysis, made, stats(made, threshold=0, timestamp=None), stale=False, errors=0).rows == len(made)


def test_times_carry_their_zone():
    assert iso(0) == "1970-01-01T00:00:00Z"
    assert datetime.fromisoformat(iso(1.79e9)).utcoffset() == timedelta(0)


def test_whole_numbers_are_whole():
    assert [(value, type(value)) for value in map(whole, (20.0, 20, 0.5))] == [(20, int), (20, int), (0.5, float)]
    assert not math.isnan(whole(1e300))
