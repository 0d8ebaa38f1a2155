"""The table of codes is a contract, so it must be whole."""

import re

import msgspec
import pytest

from vgpuscope.model.scheduling_codes import BY_CODE, CODES, Reason

each = pytest.mark.parametrize("row", CODES, ids=lambda row: row.code)


def test_every_code_is_there_once():
    assert len(BY_CODE) == len(CODES)
    assert {code: row.code for code, row in BY_CODE.items()} == {row.code: row.code for row in CODES}


@each
def test_a_code_is_one_word_in_capitals_that_says_where_it_belongs(row):
    assert re.fullmatch(r"SCHED(_[A-Z]+)+", row.code)


@each
def test_a_code_says_what_is_so_and_what_to_do(row):
    assert row.meaning.endswith(".")
    assert row.runbook.strip()
    assert "\n" not in row.meaning + row.runbook


def test_reasons_keep_their_fields_in_json():
    said = Reason(code="SCHED_TAINT", nodes=("a",), node_count=1, cards="", detail="x")
    assert msgspec.json.decode(msgspec.json.encode(said), type=Reason) == said
