"""Results in a database, stored through the engine."""

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Protocol

from vgpuscope.model.analysis import Analysis
from vgpuscope.model.history import STEP_SECONDS, HistoryPage, HistoryPoint
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.store.encoding import TIME, Millis, millis
from vgpuscope.store.engine.database import Transaction, Values
from vgpuscope.store.engine.engine import Engine
from vgpuscope.store.engine.migrations import TableSet
from vgpuscope.store.limits import LIMITS, Limits
from vgpuscope.store.results import statements as sql
from vgpuscope.store.results.columns import SUMMED, Column, ResultSubject, SubjectDetails, showing
from vgpuscope.store.results.packed import pack, unpack
from vgpuscope.store.results.points import joined_parts, points_of_parts, points_of_rows
from vgpuscope.store.results.rows import Named, rows, span
from vgpuscope.store.results.schema import ROLLUPS, TABLES, Rollup
from vgpuscope.store.results.series import SeriesCache
from vgpuscope.store.results.wanted import AnalysisKey, Covered, Cursor, HistorySelection

log = logging.getLogger(__name__)

_POD = frozenset({"namespace", "pod"})
_HOUR, _DAY = (millis(STEP_SECONDS[step]) for step in ("hour", "day"))
_LATEST_WITHIN = 30.0  # seconds; a replica that should analyse does not wait longer for the last analysis


class SavingFollower(Protocol):
    """Another table that is written in the transaction that stores an analysis; called on the thread of the store."""

    def add(self, tx: Transaction, analysis: Analysis) -> Callable[[], None]:
        """Write the rows; what is returned is called once they are committed."""

    def forget(self) -> None:
        """What was written before may be missing: the database may be another, or an analysis came twice."""


class StoredHistory:
    """Results in a database."""

    keeps = True

    def __init__(
        self,
        engine: Engine,
        *,
        followers: Sequence[SavingFollower] = (),
        keep_results: Seconds,
        keep_hours: Seconds,
        keep_days: Seconds,
        limits: Limits = LIMITS,
        tables: TableSet = TABLES,
    ) -> None:
        """`followers`: what else is written with each analysis, in the same transaction."""
        engine.register(tables)
        self._engine, self._followers, self._limits = engine, followers, limits
        self._keep_results, self._keep_hours, self._keep_days = keep_results, keep_hours, keep_days
        self._keep_names = max(keep_results, keep_hours, keep_days)
        self._series = SeriesCache()
        self._connection = 0  # on which the series were written

    async def save(self, analysis: Analysis, *, current: bool = False) -> None:
        """Store the analysis; HistoryDown if that failed. An analysis that is already stored is unchanged."""
        await self._engine.do(lambda: self._save(analysis, current=current))

    async def latest(self, *, unlike: AnalysisKey | None = None) -> Analysis | None:
        """The last analysis; None if there is none, if it is this one, or if this version cannot read it."""
        return await self._engine.do(lambda: self._latest(unlike), deadline=_LATEST_WITHIN)

    async def page(self, wanted: HistorySelection) -> HistoryPage:
        """The history of GPUs, or of pods if a namespace or pod is given ("": any), oldest first."""
        if wanted.limit < 1 or wanted.end <= wanted.begin or wanted.tenants_of == ():
            return HistoryPage()
        read = self._points if wanted.step == "analysis" else self._rolled_points
        return await self._engine.do(lambda: read(wanted), deadline=self._limits.read, purpose="read")

    async def covered(self, begin: UnixTime, end: UnixTime, *, step: Seconds, kept: bool = False) -> Covered:
        """The time that analyses stand for, by step; `kept`: only of those whose single results are still stored."""
        return await self._engine.do(
            lambda: self._covered(millis(begin), millis(end), long=millis(step), kept=kept),
            deadline=self._limits.read,
            purpose="read",
        )

    async def prune(self, now: UnixTime) -> None:
        """Roll up the hours that are over, and delete old data; other calls can run between two steps."""
        at = millis(now)
        for step in (self._roll_up, self._drop_results, self._drop_hours, self._drop_days, self._forget_names):
            while await self._engine.do(lambda step=step: step(at)):  # type: ignore[misc]  # a default is no free variable
                pass

    # ── on the thread ────────────────────────────────────────────────────────────────────────────────────────────

    def _save(self, analysis: Analysis, *, current: bool) -> None:
        packed = pack(analysis)
        time, key = millis(analysis.window.end), {"started": analysis.started, "number": analysis.number}
        with self._engine.transaction("write") as tx:
            self._forget_another_database()
            if tx.all(sql.KNOWN_ANALYSIS, **key):
                self._forget_followed()
                return
            before, after = tx.all(sql.ENDS_BEFORE, time=time)[0][0], tx.all(sql.BEGINS_AFTER, time=time)[0][0]
            stands_for = span(analysis.window, before=before, after=after)
            [(number,)] = tx.all(sql.ADD_ANALYSIS, **key, time=time, stands_from=stands_for.begin)
            stored, measured, learned = self._add_rows(tx, rows(analysis, stands_for), number=number, day=time // _DAY)
            tx.all(sql.COUNT_RESULTS, id=number, stored=stored, measured=measured)
            tx.all(sql.KEEP_LATEST if current else sql.KEEP_IF_LATER, **key, packed=packed)
            committed = [follower.add(tx, analysis) for follower in self._followers]
        self._series.learn(learned, day=time // _DAY)
        for call in committed:
            call()

    def _forget_another_database(self) -> None:
        """A new connection may be to another database: a new file, or a backup that was restored."""
        if self._engine.connection != self._connection:
            self._connection, self._series = self._engine.connection, SeriesCache()
            self._forget_followed()

    def _forget_followed(self) -> None:
        for follower in self._followers:
            follower.forget()

    def _add_rows(
        self, tx: Transaction, named: Iterator[Named], *, number: int, day: int
    ) -> tuple[int, int, dict[ResultSubject, tuple[int, SubjectDetails]]]:
        """Insert the rows in batches, to limit memory.

        Returns their number, the bits of what they have of SUMMED, and the new or changed series.
        """
        stored, measured, learned = 0, 0, dict[ResultSubject, tuple[int, SubjectDetails]]()
        while some := list(islice(named, self._limits.rows_per_insert)):
            news = self._series.news(some, day=day)
            numbers = _add_series(tx, news, day=day)
            find = self._series.finder(numbers)
            tx.insert("history_results", sql.RESULT_COLUMNS, [(number, find(name), *row) for name, _, row in some])
            learned.update({name: (numbers[name], about) for name, about in news.items()})
            stored += len(some)
            for bit, column in enumerate(SUMMED):
                if not measured & 1 << bit and any(getattr(row, column) is not None for _, _, row in some):
                    measured |= 1 << bit
        return stored, measured, learned

    def _latest(self, unlike: AnalysisKey | None) -> Analysis | None:
        with self._engine.transaction("read") as tx:
            found = tx.all(sql.LATEST_UNLIKE, **unlike._asdict()) if unlike else tx.all(sql.LATEST)
        try:
            return unpack(bytes(found[0][0])) if found else None
        except ValueError as e:
            log.warning("the last analysis was stored by another version", extra={"why": str(e)})
            return None

    def _points(self, wanted: HistorySelection) -> HistoryPage:
        after = Cursor.of(wanted.cursor) if wanted.cursor else None
        begin, end = max(millis(wanted.begin), after.time if after else 0), millis(wanted.end)
        if begin >= end:
            return HistoryPage()
        tenants = sql.tenants_in_analysis(wanted.tenants_of) if wanted.tenants_of else ""
        chosen = _chosen(wanted, sql.AFTER_ANALYSES if after else "", tenants)
        statement = sql.points_of_analyses(chosen, few=_few(wanted))
        with self._engine.transaction("read") as tx:
            found = tx.all(statement, begin=begin, end=end, limit=wanted.limit + 1, **_values(wanted, after))
        cursor = Cursor(*found[wanted.limit - 1][:3]) if len(found) > wanted.limit else None
        return _page(points_of_rows(found[: wanted.limit]), cursor)

    def _covered(self, begin: Millis, end: Millis, *, long: Millis, kept: bool) -> Covered:
        sums, longer = sql.covered(millis=long, kept=kept)
        with self._engine.transaction("read") as tx:
            after = tx.all(sql.FIRST_FROM, end=end)
            [(until,)] = tx.all(sql.LAST_BEFORE, begin=begin, end=end)
            if after and after[0][1] < end:
                until = after[0][0]
            if until is None:
                return Covered({}, begin / TIME, {})
            spent: dict[int, list[Millis]] = {
                bucket: times for bucket, *times in tx.all(sums, begin=begin, until=until)
            }
            for stands_from, time, measured in tx.all(longer, begin=begin, until=until):
                for bucket in range(stands_from // long, (time - 1) // long):
                    times = spent.setdefault(bucket, [0] * (1 + len(SUMMED)))
                    more = (bucket + 1) * long - max(stands_from, bucket * long)
                    for place in range(len(times)):
                        times[place] += more if not place or measured & 1 << place - 1 else 0
        within = [bucket for bucket in range(begin // long, -(-end // long)) if bucket in spent]
        everything, *summed = (
            {bucket: spent[bucket][place] / TIME for bucket in within} for place in range(1 + len(SUMMED))
        )
        return Covered(everything, until / TIME, dict(zip(SUMMED, summed, strict=True)))

    def _rolled_points(self, wanted: HistorySelection) -> HistoryPage:
        """Points of every bucket that overlaps the period, rolled up or not yet."""
        after = Cursor.of(wanted.cursor) if wanted.cursor else None
        long = millis(STEP_SECONDS[wanted.step])
        first = max(millis(wanted.begin) // long, after.time if after else 0)
        last = (millis(wanted.end) - 1) // long
        if first > last:
            return HistoryPage()
        columns = showing(wanted.fields)
        with self._engine.transaction("read") as tx:
            done = _done(tx, wanted, after, first=first, last=last)
            open_ = _unrolled(tx, wanted, after, columns=columns, buckets=range(first, last + 1))
        parts = joined_parts((*done, *open_), columns)
        cut = parts[wanted.limit - 1] if len(parts) > wanted.limit else None
        points = points_of_parts(wanted.step, parts[: wanted.limit], columns)
        return _page(points, Cursor(cut[0], 0, cut[1]) if cut else None)

    def _roll_up(self, now: Millis) -> bool:
        """Add one hour's analyses, or some of them, to its roll-ups; False if none is left to add."""
        with self._engine.transaction("write") as tx:
            [(oldest,)] = tx.all(sql.OLDEST_UNROLLED, until=now // _HOUR * _HOUR)
            if oldest is None:
                return False
            hour = (oldest - 1) // _HOUR * _HOUR
            found = tx.all(sql.UNROLLED, begin=hour, end=hour + _HOUR)
            chosen = self._batch(found)
            analyses = ", ".join(str(int(number)) for number, *_ in chosen)
            since = min(stands_from for _, _, stands_from in chosen)
            for table, long in zip(ROLLUPS, (_HOUR, _DAY), strict=True):
                statement = sql.add_to_rollup(table, analyses=analyses, millis=long)
                for bucket in range(min(since, hour) // long, hour // long + 1):
                    tx.all(statement, bucket=bucket)
            tx.all(sql.mark_rolled(analyses=analyses))
        return True

    def _drop_results(self, now: Millis) -> bool:
        with self._engine.transaction("write") as tx:
            old = tx.all(sql.EXPIRED_RESULTS, before=now - millis(self._keep_results))
            analyses = ", ".join(str(int(number)) for number, *_ in self._batch(old))
            for statement in sql.drop_results(analyses=analyses) if old else ():
                tx.all(statement)
        return bool(old)

    def _drop_hours(self, now: Millis) -> bool:
        return self._drop_rollup("history_hours", (now - millis(self._keep_hours)) // _HOUR)

    def _drop_days(self, now: Millis) -> bool:
        return self._drop_rollup("history_days", (now - millis(self._keep_days)) // _DAY)

    def _drop_rollup(self, table: Rollup, before: int) -> bool:
        with self._engine.transaction("write") as tx:
            [(oldest, _)] = tx.all(sql.reach_of(table))
            if oldest is None or oldest >= before:
                return False
            tx.all(sql.drop_rollup(table), bucket=oldest)
        return True

    def _forget_names(self, now: Millis) -> bool:
        """Delete unused analyses and series, a day late because another replica may be saving under them now."""
        before = now - millis(self._keep_names)
        with self._engine.transaction("write") as tx:
            tx.all(sql.FORGET_ANALYSES, before=before)
            tx.all(sql.FORGET_SERIES, before=before // _DAY - 1)
        return False

    def _batch(self, analyses: Sequence[Values]) -> Sequence[Values]:
        """The first of these analyses, up to the limit of rows for one transaction."""
        size = 0
        for place, (_, stored, *_) in enumerate(analyses):
            if place and size + stored > self._limits.rows_per_transaction:
                return analyses[:place]
            size += stored
        return analyses


def _page(points: list[HistoryPoint], cursor: Cursor | None) -> HistoryPage:
    return HistoryPage(points=points, cursor=str(cursor) if cursor else None)


def _chosen(wanted: HistorySelection, after: str, tenants: str) -> str:
    """SQL that selects GPUs, or pods if a namespace or pod is given; column names are ours, values are parameters."""
    pods = not _POD.isdisjoint(wanted.names)
    kind = "(s.namespace <> '' OR s.pod <> '')" if pods else "s.namespace = '' AND s.pod = ''"
    shared = sql.gpus_with_tenants(wanted.tenants_of) if wanted.tenants_of else ""
    picked = [f"s.{column} = :{column}" for column in _picked(wanted.names)]
    return " AND ".join([kind, *picked, *filter(None, (shared, tenants, after))])


def _values(wanted: HistorySelection, after: Cursor | None) -> dict[str, object]:
    """The parameters of _chosen."""
    position = {f"after_{name}": value for name, value in after._asdict().items()} if after else {}
    tenants = {f"tenants_{number}": name for number, name in enumerate(wanted.tenants_of or ())}
    return {**wanted.names, **position, **tenants}


def _few(wanted: HistorySelection) -> bool:
    """Whether the selection is likely of few series."""
    return bool(_picked(wanted.names) or wanted.tenants_of)


def _picked(wanted: dict[str, str]) -> list[str]:
    """The columns that narrow the choice; an empty namespace or pod means any."""
    return [column for column, value in wanted.items() if value or column not in _POD]


def _done(tx: Transaction, wanted: HistorySelection, after: Cursor | None, *, first: int, last: int) -> list[Values]:
    """The rolled-up points; the range is limited to existing buckets, because the query generates each one."""
    table = _table(wanted)
    [(oldest, newest)] = tx.all(sql.reach_of(table))
    if oldest is None or newest < first or last < oldest:
        return []
    chosen = _chosen(wanted, sql.AFTER_ROLLUP if after else "", _tenants(wanted, "r.time"))
    statement = sql.points_of_rollup(table, chosen, showing(wanted.fields), few=_few(wanted))
    span = {"first": max(first, oldest), "last": min(last, newest)}
    return tx.all(statement, limit=wanted.limit + 1, **span, **_values(wanted, after))


def _unrolled(
    tx: Transaction, wanted: HistorySelection, after: Cursor | None, *, columns: Sequence[Column], buckets: range
) -> list[Values]:
    """The points of analyses that are not rolled up yet, for some hours or days."""
    long = millis(STEP_SECONDS[wanted.step])
    [(begin, end)] = tx.all(sql.REACH_OF_UNROLLED)
    if begin is None:
        return []
    first, last = max(buckets[0], begin // long), min(buckets[-1], (end - 1) // long)
    if first > last:
        return []
    chosen = _chosen(wanted, sql.AFTER_UNROLLED if after else "", _tenants(wanted, "b.time"))
    statement = sql.points_of_unrolled(chosen, columns, few=_few(wanted), millis=long)
    return tx.all(statement, first=first, last=last, limit=wanted.limit + 1, **_values(wanted, after))


def _table(wanted: HistorySelection) -> Rollup:
    return "history_hours" if wanted.step == "hour" else "history_days"


def _tenants(wanted: HistorySelection, bucket: str) -> str:
    """SQL for `tenants_of` in hours or days; empty if it is not given."""
    long = millis(STEP_SECONDS[wanted.step])
    names = wanted.tenants_of
    return sql.tenants_in_bucket(names, _table(wanted), bucket=bucket, millis=long) if names else ""


def _add_series(tx: Transaction, news: dict[ResultSubject, SubjectDetails], *, day: int) -> dict[ResultSubject, int]:
    found = tx.upsert(sql.ADD_SERIES, [(*name, *about, day) for name, about in news.items()]) if news else []
    return {ResultSubject(*name): number for *name, number in found}
