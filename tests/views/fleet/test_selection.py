"""Rows as they were asked for."""

import csv
import io

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.views.fleet.selection import RowSelection, as_csv, as_json, select


class Row(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    score: float | None
    shared: bool = False
    tenants: tuple = ()


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
some_rows = st.lists(st.builds(Row, name=texts, score=st.none() | st.floats(0, 100)), max_size=12)


@given(some_rows, st.integers(0, 15), st.none() | st.integers(0, 15))
def test_pages_put_together_are_everything(rows, offset, limit):
    page, total = select(rows, RowSelection(offset=offset, limit=limit))
    assert total == len(rows)
    assert list(page) == rows[offset:][: len(rows) if limit is None else limit]


@given(some_rows, st.sampled_from(["score", "-score", "name", "-name"]))
def test_sorting_loses_nothing_and_puts_what_is_not_known_last(rows, sort):
    page, _ = select(rows, RowSelection(sort=sort))
    assert sorted(map(repr, page)) == sorted(map(repr, rows))
    values = [getattr(row, sort.lstrip("-")) for row in page]
    known = [value for value in values if value is not None]
    assert known == sorted(known, reverse=sort.startswith("-"))
    assert values[len(known) :] == [None] * (len(values) - len(known))


@given(some_rows, st.floats(0, 100), st.floats(0, 100))
def test_bounds_leave_out_what_is_not_known(rows, least, most):
    page, total = select(rows, RowSelection(least={"score": least}, most={"score": most}))
    assert list(page) == [row for row in rows if row.score is not None and least <= row.score <= most]
    assert total == len(page)
    for one in (RowSelection(least={"score": 0}), RowSelection(most={"score": 100})):
        assert list(select(rows, one)[0]) == [row for row in rows if row.score is not None]


def test_filters_hold_all_at_once():
    rows = [Row(name=name, score=1, shared=shared) for name in "ab" for shared in (False, True)]
    assert list(select(rows, RowSelection(equal={"name": "a", "shared": True}))[0]) == [rows[1]]


def test_a_search_finds_parts_of_names_in_any_case():
    rows = [Row(name="Train-1", score=None), Row(name="web", score=None)]
    assert list(select(rows, RowSelection(search="RAIN"))[0]) == rows[:1]


@given(some_rows)
def test_csv_reads_back(rows):
    found = list(csv.reader(io.StringIO(as_csv(rows, ("name", "score")).decode(), newline="")))
    assert found[0] == ["name", "score"]
    assert len(found) == len(rows) + 1
    for row, (name, score) in zip(rows, found[1:], strict=True):
        assert name.removeprefix("'") == row.name.removeprefix("'")
        assert score == ("" if row.score is None else repr(row.score))


@pytest.mark.parametrize("evil", ["=1+1", "+1", "-1", "@x", "\tx", "\r=1"])
def test_no_cell_is_run_by_a_spreadsheet(evil):
    text = as_csv([Row(name=evil, score=None)], ("name",)).decode()
    assert next(csv.reader(io.StringIO(text.partition("\r\n")[2], newline="")))[0].startswith("'")


def test_nested_values_are_json_in_csv():
    text = as_csv([Row(name="a", score=1.5, shared=True, tenants=({"pod": "x"},))], Row.__struct_fields__).decode()
    assert next(csv.DictReader(io.StringIO(text))) == {
        "name": "a",
        "score": "1.5",
        "shared": "true",
        "tenants": '[{"pod":"x"}]',
    }


def test_only_the_fields_asked_for_are_sent_in_their_order():
    assert as_json([Row(name="a", score=1.0)], ("score", "name")) == b'[{"score":1.0,"name":"a"}]'
    assert msgspec.json.decode(as_json([Row(name="a", score=None)]))[0].keys() == set(Row.__struct_fields__)
