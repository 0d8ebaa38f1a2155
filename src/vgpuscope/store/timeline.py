"""The events of the timeline, kept in the store so that they survive a restart."""

from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import islice
from typing import Protocol

import msgspec

from vgpuscope.model.console.timeline import TimelineEvent
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.store.encoding import millis
from vgpuscope.store.engine.database import Transaction, Upsert
from vgpuscope.store.engine.engine import Engine
from vgpuscope.store.engine.migrations import Migration, TableSet

MOST_EVENTS = 20_000  # kept in the store
MOST_IN_MEMORY = 5_000
_LARGEST = 4096  # bytes of one event; names and messages come from scraped pages
TABLES = TableSet(
    "timeline",
    (
        Migration(
            1,
            (
                """
CREATE TABLE timeline_events (
    number {id},
    id text NOT NULL UNIQUE,
    time bigint NOT NULL,
    event text NOT NULL
)
""",
                "CREATE INDEX timeline_events_time ON timeline_events (time)",
            ),
        ),
    ),
)
# An event whose commit was not seen is written again under the same id.
_ADD = Upsert(
    table="timeline_events",
    columns=(("id", "text"), ("time", "bigint"), ("event", "text")),
    conflict="(id) DO UPDATE SET time = excluded.time",
    returning=("id",),
)
_NEWEST = "SELECT event FROM timeline_events ORDER BY time DESC, number DESC LIMIT :most"
_EXPIRED = "DELETE FROM timeline_events WHERE time < :before"
_BEYOND = (
    "DELETE FROM timeline_events WHERE number IN "
    "(SELECT number FROM timeline_events ORDER BY time DESC, number DESC LIMIT :some OFFSET :most)"
)
_AT_ONCE = 10_000  # rows that one transaction deletes


class EventLog(Protocol):
    """Where events are recorded. Every call may raise HistoryDown."""

    async def add(self, events: Sequence[TimelineEvent]) -> None:
        """Record events; one that is recorded already is unchanged."""

    async def newest(self, most: int) -> list[TimelineEvent]:
        """The last events, newest first."""

    async def prune(self, now: UnixTime) -> None:
        """Delete what is too old, and what is too much."""


class LocalEvents:
    """Events of this process only."""

    def __init__(self) -> None:
        self._events: deque[TimelineEvent] = deque(maxlen=MOST_IN_MEMORY)

    async def add(self, events: Sequence[TimelineEvent]) -> None:
        self._events.extend(events)

    async def newest(self, most: int) -> list[TimelineEvent]:
        return list(islice(reversed(self._events), most))

    async def prune(self, now: UnixTime) -> None:
        """A deque is bounded without help."""


class StoredEvents:
    """Events in a table of the store."""

    def __init__(self, engine: Engine, *, keep: Seconds, most: int = MOST_EVENTS) -> None:
        engine.register(TABLES)
        self._engine, self._keep, self._most = engine, keep, most

    async def add(self, events: Sequence[TimelineEvent]) -> None:
        rows = list(_rows(events))
        if rows:
            await self._engine.write(lambda tx: tx.upsert(_ADD, rows))

    async def newest(self, most: int) -> list[TimelineEvent]:
        found = await self._engine.read(lambda tx: tx.all(_NEWEST, most=most))
        return [msgspec.json.decode(event, type=TimelineEvent) for (event,) in found]

    async def prune(self, now: UnixTime) -> None:
        before = millis(now - self._keep)
        await self._engine.write(lambda tx: self._prune(tx, before))

    def _prune(self, tx: Transaction, before: int) -> None:
        tx.all(_EXPIRED, before=before)
        tx.all(_BEYOND, most=self._most, some=_AT_ONCE)


def _rows(events: Iterable[TimelineEvent]) -> Iterable[tuple[str, int, str]]:
    """Each id once: one statement cannot write a row twice."""
    for event in {event.id: event for event in events}.values():
        body = msgspec.json.encode(event)
        if len(body) <= _LARGEST:
            yield event.id, millis(datetime.fromisoformat(event.at).timestamp()), body.decode()
