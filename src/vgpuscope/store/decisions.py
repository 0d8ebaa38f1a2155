"""Decisions of the scheduler extender, kept for a day so that they survive a restart, and unsaved ones in memory."""

import zlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from vgpuscope.model.errors import RowRefused
from vgpuscope.model.logged_decision import LoggedDecision
from vgpuscope.model.quantity import Bytes, Seconds, UnixTime
from vgpuscope.store.engine.database import Transaction, Upsert, Values
from vgpuscope.store.engine.engine import Engine
from vgpuscope.store.engine.migrations import Migration, TableSet

KEEP: Seconds = 86400.0
MOST = 20_000  # entries in the store
MOST_BYTES: Bytes = 256 * 2**20  # of their compressed bodies
MOST_UNSAVED = 2_000  # entries in memory while the store is down
BATCH = 200  # entries of one transaction
_PAGE = 500  # entries that are read at once
_LARGEST: Bytes = 32 * 2**20  # of one body, unpacked; a row from elsewhere cannot fill the memory
_AT_ONCE = 5_000  # rows that one transaction deletes

TABLES = TableSet(
    "decisions",
    (
        Migration(
            1,
            (
                """
CREATE TABLE decisions (
    number {id},
    id text NOT NULL UNIQUE,
    at double precision NOT NULL,
    size integer NOT NULL,
    body {bytes} NOT NULL
)
""",
                "CREATE INDEX decisions_at ON decisions (at)",
            ),
        ),
    ),
)
# An entry whose commit was not seen is written again under the same id.
_ADD = Upsert(
    table="decisions",
    columns=(("id", "text"), ("at", "double precision"), ("size", "integer"), ("body", "bytea")),
    conflict="(id) DO UPDATE SET at = excluded.at",
    returning=("id",),
)
_AFTER = "SELECT number, body FROM decisions WHERE number > :number AND at >= :since ORDER BY number LIMIT :most"
_EXPIRED = "DELETE FROM decisions WHERE number IN (SELECT number FROM decisions WHERE at < :before LIMIT :some)"
_BEYOND = (
    "DELETE FROM decisions WHERE number IN (SELECT number FROM (SELECT number, "
    "row_number() OVER (ORDER BY number DESC) AS place, sum(size) OVER (ORDER BY number DESC) AS total "
    "FROM decisions) AS ranked WHERE place > :most OR total > :bytes ORDER BY number LIMIT :some)"
)
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(LoggedDecision)


class DecisionsPage(NamedTuple):
    """Some entries, oldest first, and the number of the last row that was read."""

    entries: list[LoggedDecision]
    number: int
    whole: bool  # nothing is left to read


class DecisionStore:
    """Decisions in a table of the store. Every call may raise HistoryDown."""

    def __init__(
        self, engine: Engine, *, keep: Seconds = KEEP, most: int = MOST, most_bytes: Bytes = MOST_BYTES
    ) -> None:
        engine.register(TABLES)
        self._engine, self._keep, self._most, self._most_bytes = engine, keep, most, most_bytes

    async def add(self, entries: Sequence[LoggedDecision]) -> None:
        """Save entries; one that is saved already is unchanged. Packing happens on the thread of the store."""
        await self._engine.write(lambda tx: _add(tx, entries))

    async def after(self, number: int, *, now: UnixTime) -> DecisionsPage:
        """The entries of the last day after a row, of all replicas."""
        since = float(now - self._keep)

        def job(tx: Transaction) -> DecisionsPage:
            rows = tx.all(_AFTER, number=number, since=since, most=_PAGE)
            last = rows[-1][0] if rows else number
            return DecisionsPage(list(_entries(rows)), int(last), len(rows) < _PAGE)

        return await self._engine.read(job)

    async def prune(self, now: UnixTime) -> None:
        """Delete what is too old, and what is too much."""

        def job(tx: Transaction) -> None:
            tx.all(_EXPIRED, before=float(now - self._keep), some=_AT_ONCE)
            tx.all(_BEYOND, most=self._most, bytes=self._most_bytes, some=_AT_ONCE)

        await self._engine.write(job)

    async def close(self) -> None:
        await self._engine.close()


class Unsaved:
    """Entries that wait to be saved, so that no decision has to wait for the store.

    Where there are too many, refusals that a later decision about the same pod supersedes are dropped first.
    """

    def __init__(self, *, most: int = MOST_UNSAVED) -> None:
        self._most = most
        self._waiting: OrderedDict[str, LoggedDecision] = OrderedDict()
        self._refusals: dict[tuple[str, str], str] = {}  # the last refusal of each pod that waits here
        self._superseded: OrderedDict[str, None] = OrderedDict()
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, entry: LoggedDecision) -> None:
        """Keep an entry until it is saved."""
        pod = (entry.namespace, entry.pod)
        before = self._refusals.pop(pod, None)
        if before is not None:
            self._superseded[before] = None
        if entry.outcome == "refused":
            self._refusals[pod] = entry.id
        self._waiting[entry.id] = entry
        while len(self._waiting) > self._most:
            self._remove(next(iter(self._superseded), None) or next(iter(self._waiting)))
            self.dropped += 1

    async def flush(self, store: DecisionStore) -> int:
        """Save one batch; returns how many entries were saved. HistoryDown if they have to wait.

        An entry that the database rejects is dropped alone.
        """
        batch = [entry for _, entry in zip(range(BATCH), self._waiting.values(), strict=False)]
        if not batch:
            return 0
        try:
            await store.add(batch)
        except RowRefused:
            return await self._one_by_one(store, batch)
        for entry in batch:
            self._remove(entry.id)
        return len(batch)

    async def _one_by_one(self, store: DecisionStore, batch: Sequence[LoggedDecision]) -> int:
        saved = 0
        for entry in batch:
            try:
                await store.add([entry])
                saved += 1
            except RowRefused:
                self.dropped += 1
            self._remove(entry.id)
        return saved

    def _remove(self, key: str) -> None:
        entry = self._waiting.pop(key, None)  # it may have been dropped while it was saved
        self._superseded.pop(key, None)
        if entry is not None and self._refusals.get((entry.namespace, entry.pod)) == key:
            del self._refusals[entry.namespace, entry.pod]


def _add(tx: Transaction, entries: Sequence[LoggedDecision]) -> None:
    once = {entry.id: entry for entry in entries}  # one statement cannot write a row twice
    rows = [(entry.id, float(entry.at), len(body), body) for entry in once.values() for body in (_packed(entry),)]
    tx.upsert(_ADD, rows)


def _packed(entry: LoggedDecision) -> bytes:
    return zlib.compress(_ENCODER.encode(entry), 1)


def _entries(rows: Iterable[Values]) -> Iterable[LoggedDecision]:
    """The entries of rows; one that this version cannot read is left out."""
    for _, body in rows:
        try:
            unpacker = zlib.decompressobj()
            content = unpacker.decompress(bytes(body), _LARGEST)
            yield _DECODER.decode(content)
        except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError):
            continue
