"""A day of history for the console's bench: the hours before are copies of the first analysis."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from vgpuscope.store.results.columns import ROLLUP, aggregate

_HOURS = 48  # the console compares the last day with the one before
_SHOWN = 6  # windows of ten minutes in an hour
_HOUR = 3600
_WITHIN = 300.0  # seconds


def fill(database: Path, rows: int) -> None:
    """Add the hours; the first analysis must have been stored, or is being stored."""
    with closing(sqlite3.connect(database, timeout=60)) as store:
        deadline = time.monotonic() + _WITHIN
        while store.execute("SELECT count(*) FROM history_results").fetchone()[0] < rows:
            if time.monotonic() > deadline:
                raise RuntimeError("the first analysis was not stored")
            time.sleep(0.5)
        now = int(time.time()) // _HOUR
        with store:
            store.execute(_FIRST, (now - 1,))
            for age in range(2, _HOURS + 1):
                store.execute(_COPY, (now - age, now - 1))


_NAMES = ", ".join(column.name for column in ROLLUP)
_FIRST = (
    f"INSERT INTO history_hours (time, series, {_NAMES}) SELECT ?, r.series, "
    + ", ".join(aggregate(column) for column in ROLLUP)
    + " FROM (SELECT *, 1 AS ends, 0 AS passed, seconds AS reached, seconds AS spent"
    + " FROM history_results WHERE analysis = (SELECT min(analysis) FROM history_results)) r "
    + f"CROSS JOIN (VALUES {', '.join(['(0)'] * _SHOWN)}) GROUP BY r.series"
)
_COPY = (
    f"INSERT INTO history_hours (time, series, {_NAMES}) SELECT ?, series, {_NAMES} FROM history_hours WHERE time = ?"
)
