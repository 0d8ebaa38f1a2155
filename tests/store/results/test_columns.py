"""The table of columns: schema, SQL and points follow from it, and released migrations stay as they are."""

from types import NoneType
from typing import get_args, get_type_hints

import pytest

from tests.paths import TESTS
from vgpuscope.model.history import HistoryPoint
from vgpuscope.store import encoding, lease
from vgpuscope.store.engine.migrations import statements
from vgpuscope.store.results import schema
from vgpuscope.store.results.columns import ROLLUP, StoredResult, showing
from vgpuscope.store.results.points import NAMES


def released(dialect):
    """Version → its statements, as they were when the lease was part of the history tables."""
    found: dict = {}
    for line in (TESTS / f"fixtures/history/migrations-{dialect}.sql").read_text().splitlines(keepends=True):
        if line.startswith("-- "):
            text = found.setdefault(int(line[3:]), [""])
        else:
            text[-1] += line
            if line.endswith(";\n"):
                text.append("")
    return {version: [one.strip().removesuffix(";") for one in text if one] for version, text in found.items()}


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_the_released_migrations_make_the_same_tables_as_ever(dialect):
    ours = {m.version: [s.strip() for s in statements(m, dialect)] for m in schema.MIGRATIONS}
    leases = [s.strip().replace("IF NOT EXISTS ", "") for s in statements(lease.TABLES.migrations[0], dialect)]
    ours[1] += leases
    assert {version: ours[version] for version in (1, 2, 3, 4, 5)} == released(dialect)


def test_stored_words_keep_their_codes():
    assert encoding.STATUS_CODES == ("idle", "low", "normal", "high", "unknown")
    assert encoding.VERDICT_CODES == ("in_use", "idle", "unknown")
    classes = "busy busy-unproductive low idle idle-held unknown stalled not-started idle-preparing"
    assert tuple(classes.split()) == encoding.CLASS_CODES


def test_every_field_of_a_point_is_filled_by_one_column_or_by_a_name():
    filled = [column.field for column in ROLLUP if column.field and not column.word]
    words = {column.field for column in ROLLUP if column.word}
    own = {"step", "time", "status", "verdict", "use_class", "analysis_seconds"}  # not of a roll-up
    assert sorted([*filled, *words, *own, *NAMES]) == sorted(HistoryPoint.__struct_fields__)


def test_a_field_that_no_column_shows_is_a_mistake():
    with pytest.raises(ValueError, match="shows held_second, verdict"):
        showing(frozenset({"seconds", "held_second", "verdict"}))


@pytest.mark.parametrize("column", [column for column in ROLLUP if column.field], ids=lambda column: column.name)
def test_a_field_may_be_missing_exactly_if_its_column_may_be(column):
    """A mean without values and what was not measured are None; sums and counts are numbers."""
    [hint] = [hint for name, hint in get_type_hints(HistoryPoint).items() if name == column.field]
    assert (NoneType in get_args(hint)) == (column.optional or bool(column.over))


def test_every_column_is_computed_from_columns_of_the_results():
    assert {column.of for column in ROLLUP} - {""} == set(StoredResult._fields)
    names = [column.name for column in ROLLUP]
    assert len(set(names)) == len(names)
    assert {column.over for column in ROLLUP} - {""} <= set(names)
