"""What a store of results does in a database, whichever it is; one thread of its own, so that no event loop waits."""

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any, Protocol, TypeAlias, TypeVar

from vgpuscope.model.analysis import Analysis
from vgpuscope.model.errors import HistoryDown
from vgpuscope.model.history import STEP_SECONDS, HistoryPoint, Step
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.sinks import history_sql as sql
from vgpuscope.sinks.history_rows import (
    About,
    Millis,
    Name,
    Named,
    Row,
    Sums,
    added,
    millis,
    point_of_row,
    point_of_sums,
    rows,
    span,
)
from vgpuscope.sinks.migrations import MIGRATIONS, Dialect, Migration, statements
from vgpuscope.sinks.packed import pack, unpack

log = logging.getLogger(__name__)
T = TypeVar("T")
Values: TypeAlias = tuple[Any, ...]  # a row as the database gives it

_DEADLINE: Seconds = 60.0  # a database that is frozen never answers
_SOME = 5000  # rows that are made and sent at once
_BATCH = 50_000  # rows that one transaction of prune() touches: a fraction of a second
_NAMES = len(Name._fields) + len(About._fields)
_POD = frozenset({"namespace", "pod"})
_HOUR, _DAY = 3_600_000, 86_400_000  # milliseconds


class Transaction(Protocol):
    """What can be said to a database until all of it is committed or none."""

    def all(self, statement: str, **values: object) -> list[Values]:
        """Say it; the rows that come back."""

    def add_series(self, series: Sequence[Values]) -> dict[Name, int]:
        """The numbers of these, as SERIES_COLUMNS; those that are new get one."""

    def add_results(self, results: Iterator[Values]) -> None:
        """Add rows, as RESULT_COLUMNS."""


class Database(Protocol):
    """A database of one kind. Its errors are HistoryDown; all is called on one thread."""

    dialect: Dialect

    def reading(self) -> AbstractContextManager[Transaction]:
        """One moment of the database, however long it is read."""

    def writing(self) -> AbstractContextManager[Transaction]:
        """A transaction beside which nobody else writes."""

    def worth_another_try(self) -> bool:
        """Whether the last error was only that a connection from before was gone."""

    def lead(self, holder: str, seconds: Seconds) -> bool: ...
    def resign(self, holder: str) -> None: ...
    def close(self) -> None: ...


class Worker:
    """One thread that does one thing after the other; a thread that is stuck ends with the process."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._closed = False
        threading.Thread(target=self._work, name=name, daemon=True).start()

    async def do(self, job: Callable[[], T], *, deadline: Seconds) -> T:
        """What the job returns or raises; TimeoutError when it is late. A job that has not begun by then never does."""
        if self._closed:
            raise HistoryDown("the store of results is closed")
        future: Future[T] = Future()
        self._jobs.put((future, job))
        return await asyncio.wait_for(asyncio.wrap_future(future), deadline)

    def close(self) -> None:
        self._closed = True
        self._jobs.put(None)

    def _work(self) -> None:
        while (task := self._jobs.get()) is not None:
            future, job = task
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(job())
                except BaseException as e:  # it belongs to the caller, whatever it is
                    future.set_exception(e)
            del task, future, job  # while waiting, do not keep an analysis alive


class StoredHistory:
    """Results in a database."""

    def __init__(self, database: Database, *, keep_results: Seconds, keep_hours: Seconds, keep_days: Seconds) -> None:
        self._database = database
        self._worker = Worker("history")
        self._keep_results, self._keep_hours, self._keep_days = keep_results, keep_hours, keep_days
        self._keep_names = max(keep_results, keep_hours, keep_days)
        self._series = _Series()

    async def save(self, analysis: Analysis) -> None:
        """Keep it; HistoryDown when it is not kept. What is kept already is left as it is."""
        await self._do(lambda: self._save(analysis))

    async def latest(self, *, after: UnixTime = 0.0) -> Analysis | None:
        """The last analysis, whole; None when there is none begun after this, or none that this version can read."""
        return await self._do(lambda: self._latest(after))

    async def points(
        self,
        *,
        step: Step,
        begin: UnixTime,
        end: UnixTime,
        gpu_id: str | None = None,
        mig: str | None = None,
        namespace: str | None = None,
        pod: str | None = None,
        limit: int,
    ) -> list[HistoryPoint]:
        """The course of cards, or of pods where a namespace or pod is given ("": any), oldest first."""
        if limit < 1 or end <= begin:
            return []
        named = {"gpu_id": gpu_id, "mig": mig, "namespace": namespace, "pod": pod}
        wanted = {column: value for column, value in named.items() if value is not None}
        if step == "analysis":
            return await self._do(lambda: self._points(begin, end, wanted, limit))
        return await self._do(lambda: self._rolled_points(step, begin, end, wanted, limit))

    async def lead(self, holder: str, seconds: Seconds) -> bool:
        """Take or renew the lease; an answer that comes later than the lease lasts would be worth nothing."""
        return await self._do(lambda: self._database.lead(holder, seconds), deadline=min(seconds, _DEADLINE))

    async def resign(self, holder: str) -> None:
        """Give the lease back, if it is ours."""
        await self._do(lambda: self._database.resign(holder))

    async def prune(self, now: UnixTime) -> None:
        """Roll up the hours that are over, and forget what is too old; between two steps others get their turn."""
        at = millis(now)
        for step in (self._roll_up, self._drop_results, self._drop_hours, self._drop_days, self._forget_names):
            while await self._do(lambda step=step: step(at)):  # type: ignore[misc]  # a default is no free variable
                pass

    async def close(self) -> None:
        """Let go of the database; a lease that is still ours runs out by itself."""
        try:
            await self._do(self._database.close)
        finally:
            self._worker.close()

    async def _do(self, job: Callable[[], T], *, deadline: Seconds = _DEADLINE) -> T:
        try:
            return await self._worker.do(lambda: self._twice(job), deadline=deadline)
        except TimeoutError as e:
            raise HistoryDown(f"the store of results has not answered within {deadline:g} s") from e

    def _twice(self, job: Callable[[], T]) -> T:
        """Everything may be said twice, so a connection that was lost meanwhile costs nothing but a second try."""
        try:
            return job()
        except HistoryDown:
            if not self._database.worth_another_try():
                raise
        return job()

    # ── on the thread ────────────────────────────────────────────────────────────────────────────────────────────

    def _save(self, analysis: Analysis) -> None:
        packed = pack(analysis)
        time, key = millis(analysis.window.end), {"started": analysis.started, "number": analysis.number}
        with self._database.writing() as tx:
            if tx.all(sql.KNOWN_ANALYSIS, **key):
                return
            before, after = tx.all(sql.ENDS_BEFORE, time=time)[0][0], tx.all(sql.BEGINS_AFTER, time=time)[0][0]
            stands_for = span(analysis.window, before=before, after=after)
            [(number,)] = tx.all(sql.ADD_ANALYSIS, **key, time=time, stands_from=stands_for.begin)
            stored, learned = self._add_rows(tx, rows(analysis, stands_for), number=number, day=time // _DAY)
            tx.all(sql.COUNT_RESULTS, id=number, stored=stored)
            tx.all(sql.KEEP_LATEST, **key, packed=packed)
        self._series.learn(learned, day=time // _DAY)

    def _add_rows(
        self, tx: Transaction, named: Iterator[Named], *, number: int, day: int
    ) -> tuple[int, dict[Name, tuple[int, About]]]:
        """How many there were, and what is known of names now. Some at a time: memory does not grow with the fleet."""
        stored, learned = 0, dict[Name, tuple[int, About]]()
        while some := list(islice(named, _SOME)):
            news = self._series.news(some, day=day)
            numbers = tx.add_series([(*name, *about, day) for name, about in news.items()]) if news else {}
            find = self._series.finder(numbers)
            tx.add_results((number, find(name), *row) for name, _, row in some)
            learned.update({name: (numbers[name], about) for name, about in news.items()})
            stored += len(some)
        return stored, learned

    def _latest(self, after: UnixTime) -> Analysis | None:
        with self._database.reading() as tx:
            found = tx.all(sql.LATEST, after=after)
        try:
            return unpack(bytes(found[0][0])) if found else None
        except ValueError as e:
            log.warning("the last analysis was stored by another version", extra={"why": str(e)})
            return None

    def _points(self, begin: UnixTime, end: UnixTime, wanted: dict[str, str], limit: int) -> list[HistoryPoint]:
        statement = sql.points_of_analyses(_chosen(wanted), few=bool(_picked(wanted)))
        with self._database.reading() as tx:
            found = tx.all(statement, begin=millis(begin), end=millis(end), limit=limit, **wanted)
        return [point_of_row(time, rest[:_NAMES], Row(*rest[_NAMES:])) for time, _, *rest in found]

    def _rolled_points(
        self, step: Step, begin: UnixTime, end: UnixTime, wanted: dict[str, str], limit: int
    ) -> list[HistoryPoint]:
        """Every bucket that has a part of the time: what is rolled up, and what will be."""
        table: sql.Rollup = "history_hours" if step == "hour" else "history_days"
        long = STEP_SECONDS[step] * 1000
        first, last = millis(begin) // long, (millis(end) - 1) // long
        with self._database.reading() as tx:
            done = _done(tx, table, wanted, first=first, last=last, limit=limit)
            statement = sql.points_of_unrolled(_chosen(wanted), millis=long)
            open_ = tx.all(statement, begin=first * long, end=(last + 1) * long, limit=limit, **wanted)
        return _merged(step, (*done, *open_))[:limit]

    def _roll_up(self, now: Millis) -> bool:
        """Add one hour's analyses, or some of them, to its roll-ups; False when all that can be are."""
        with self._database.writing() as tx:
            [(oldest,)] = tx.all(sql.OLDEST_UNROLLED, until=now // _HOUR * _HOUR)
            if oldest is None:
                return False
            hour = oldest // _HOUR
            batch = _batch(tx.all(sql.UNROLLED, begin=hour * _HOUR, end=(hour + 1) * _HOUR))
            tx.all(sql.add_to_rollup("history_hours", analyses=batch), bucket=hour)
            tx.all(sql.add_to_rollup("history_days", analyses=batch), bucket=oldest // _DAY)
            tx.all(sql.mark_rolled(analyses=batch))
        return True

    def _drop_results(self, now: Millis) -> bool:
        with self._database.writing() as tx:
            old = tx.all(sql.EXPIRED_RESULTS, before=now - millis(self._keep_results))
            for statement in sql.drop_results(analyses=_batch(old)) if old else ():
                tx.all(statement)
        return bool(old)

    def _drop_hours(self, now: Millis) -> bool:
        return self._drop_rollup("history_hours", (now - millis(self._keep_hours)) // _HOUR)

    def _drop_days(self, now: Millis) -> bool:
        return self._drop_rollup("history_days", (now - millis(self._keep_days)) // _DAY)

    def _drop_rollup(self, table: sql.Rollup, before: int) -> bool:
        with self._database.writing() as tx:
            [(oldest, _)] = tx.all(sql.reach_of(table))
            if oldest is None or oldest >= before:
                return False
            tx.all(sql.drop_rollup(table), bucket=oldest)
        return True

    def _forget_names(self, now: Millis) -> bool:
        """Names that nothing refers to any more; a day's grace, since others may be saving under them right now."""
        before = now - millis(self._keep_names)
        with self._database.writing() as tx:
            tx.all(sql.FORGET_ANALYSES, before=before)
            tx.all(sql.FORGET_SERIES, before=before // _DAY - 1)
        return False


class _Series:
    """The numbers of the cards and pods that were seen today, so that they are asked for once a day."""

    def __init__(self) -> None:
        self._day = 0
        self._known: dict[Name, tuple[int, About]] = {}

    def news(self, named: Iterable[Named], *, day: int) -> dict[Name, About]:
        """Those that the database has to be told: new ones, renamed ones, and on a new day all."""
        if day > self._day:
            return {name: about for name, about, _ in named}
        return {name: about for name, about, _ in named if self._is_news(name, about)}

    def _is_news(self, name: Name, about: About) -> bool:
        known = self._known.get(name)
        return known is None or any(now and now != old for now, old in zip(about, known[1], strict=True))

    def finder(self, numbers: dict[Name, int]) -> Callable[[Name], int]:
        return lambda name: numbers[name] if name in numbers else self._known[name][0]

    def learn(self, learned: dict[Name, tuple[int, About]], *, day: int) -> None:
        """What is certain now that it is committed."""
        if day > self._day:
            self._day, self._known = day, learned
            return
        for name, (number, about) in learned.items():
            known = self._known.get(name)
            self._known[name] = number, _filled(about, known[1]) if known else about


def _filled(about: About, old: About) -> About:
    return About(*(now or before for now, before in zip(about, old, strict=True)))


def _chosen(wanted: dict[str, str]) -> str:
    """Cards, unless a namespace or pod is asked for; the columns' names are ours, the values stay parameters."""
    pods = not _POD.isdisjoint(wanted)
    kind = "(s.namespace <> '' OR s.pod <> '')" if pods else "s.namespace = '' AND s.pod = ''"
    return " AND ".join([kind, *(f"s.{column} = :{column}" for column in _picked(wanted))])


def _picked(wanted: dict[str, str]) -> list[str]:
    """The columns that narrow the choice; an empty namespace or pod means any."""
    return [column for column, value in wanted.items() if value or column not in _POD]


def _done(
    tx: Transaction, table: sql.Rollup, wanted: dict[str, str], *, first: int, last: int, limit: int
) -> list[Values]:
    """What is rolled up; buckets are counted through one by one, so only those that there are."""
    [(oldest, newest)] = tx.all(sql.reach_of(table))
    if oldest is None or newest < first or last < oldest:
        return []
    statement = sql.points_of_rollup(table, _chosen(wanted), few=bool(_picked(wanted)))
    return tx.all(statement, first=max(first, oldest), last=min(last, newest), limit=limit, **wanted)


def _batch(analyses: Sequence[Values]) -> str:
    """The numbers of the first of these, until enough rows are together."""
    chosen: list[str] = []
    size = 0
    for number, stored in analyses:
        if chosen and size + stored > _BATCH:
            break
        chosen.append(str(int(number)))
        size += stored
    return ", ".join(chosen)


def _merged(step: Step, found: Iterable[Values]) -> list[HistoryPoint]:
    parts: dict[tuple[int, int], tuple[Sequence[str], Sums]] = {}
    for time, series, *rest in found:
        sums, known = Sums(*rest[_NAMES:]), parts.get((time, series))
        parts[time, series] = rest[:_NAMES], added(known[1], sums) if known else sums
    long = STEP_SECONDS[step]
    return [point_of_sums(step, float(time * long), *parts[time, series]) for time, series in sorted(parts)]


def migrate(tx: Transaction, dialect: Dialect, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Bring the tables to this version; HistoryDown when a newer version has been there."""
    tx.all("CREATE TABLE IF NOT EXISTS history_migrations (version integer PRIMARY KEY)")
    [(version,)] = tx.all("SELECT coalesce(max(version), 0) FROM history_migrations")
    newest = migrations[-1].version
    if version > newest:
        raise HistoryDown(
            f"the store of results has tables of version {version}, and this vgpuscope knows them up to {newest}",
            hint="A newer vgpuscope has written to it: use that one, or give this one a store of its own.",
        )
    for migration in migrations:
        if migration.version > version:
            for statement in statements(migration, dialect):
                tx.all(statement)
            tx.all("INSERT INTO history_migrations (version) VALUES (:version)", version=migration.version)
