"""Opinions of a language model, in the store: they hold across restarts, and other replicas show them.

Requests are counted by hours, so that a restart does not renew the budget of a day.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from vgpuscope.model.opinion import Opinion
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.store.engine.database import Transaction, Upsert
from vgpuscope.store.engine.engine import Engine
from vgpuscope.store.engine.migrations import Migration, TableSet

TABLES = TableSet(
    "opinions",
    (
        Migration(
            1,
            (
                "CREATE TABLE opinions (key text PRIMARY KEY, at double precision NOT NULL, body text NOT NULL)",
                "CREATE INDEX opinions_at ON opinions (at)",
                "CREATE TABLE opinion_requests (hour integer PRIMARY KEY, requests integer NOT NULL)",
            ),
        ),
    ),
)
_OPINIONS = Upsert(
    table="opinions",
    columns=(("key", "text"), ("at", "double precision"), ("body", "text")),
    conflict="(key) DO UPDATE SET at = excluded.at, body = excluded.body",
    returning=("key",),
)
_REQUESTS = Upsert(
    table="opinion_requests",
    columns=(("hour", "integer"), ("requests", "integer")),
    conflict="(hour) DO UPDATE SET requests = excluded.requests",
    returning=("hour",),
)
KEEP: Seconds = 30 * 86400.0  # an opinion that was given longer ago is asked for again
_MOST = 50_000  # opinions that are read


class SavedOpinions(NamedTuple):
    """What the store knows."""

    opinions: dict[str, Opinion]
    requests: dict[int, int]  # by hour since 1970


class OpinionStore:
    """Reads and writes through the engine; every call may raise HistoryDown."""

    def __init__(self, engine: Engine) -> None:
        engine.register(TABLES)
        self._engine = engine

    async def load(self, now: UnixTime) -> SavedOpinions:
        """The newest opinions, and the requests of each hour."""

        def job(tx: Transaction) -> SavedOpinions:
            rows = tx.all(
                "SELECT body FROM opinions WHERE at >= :since ORDER BY at DESC LIMIT :most",
                since=float(now - KEEP),
                most=_MOST,
            )
            found = [msgspec.json.decode(body, type=Opinion) for (body,) in rows]
            requests = tx.all("SELECT hour, requests FROM opinion_requests")
            return SavedOpinions({one.key: one for one in found}, {int(hour): int(count) for hour, count in requests})

        return await self._engine.read(job)

    async def save(self, opinions: Sequence[Opinion], requests: Mapping[int, int], *, now: UnixTime) -> None:
        """Add opinions, replace the counts of requests, and delete what is too old."""

        def job(tx: Transaction) -> None:
            if opinions:
                tx.upsert(_OPINIONS, [(one.key, float(one.at), _text(one)) for one in opinions])
            if requests:
                tx.upsert(_REQUESTS, list(requests.items()))
                tx.all("DELETE FROM opinion_requests WHERE hour < :first", first=min(requests))
            tx.all("DELETE FROM opinions WHERE at < :since", since=float(now - KEEP))

        await self._engine.write(job)


def _text(opinion: Opinion) -> str:
    return msgspec.json.encode(opinion).decode()
