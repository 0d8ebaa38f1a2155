"""A client of the engine that the engine has never heard of: a table of notes with two migrations."""

from vgpuscope.store.engine.database import Transaction, Upsert
from vgpuscope.store.engine.engine import Engine
from vgpuscope.store.engine.migrations import Migration, TableSet

FIRST = Migration(
    1,
    (
        "CREATE TABLE notes (id {id}, title text NOT NULL UNIQUE, body {bytes}, score double precision)",
        "CREATE INDEX notes_score ON notes (score)",
    ),
)
SECOND = Migration(2, ("ALTER TABLE notes ADD COLUMN read {small} NOT NULL DEFAULT 0",))
TABLES = TableSet("notes", (FIRST, SECOND))
KEEP = Upsert(
    table="notes",
    columns=(("title", "text"), ("score", "double precision")),
    conflict="(title) DO UPDATE SET score = excluded.score",
    returning=("title", "id"),
)


class Notes:
    """Reads and writes notes through the engine."""

    def __init__(self, engine: Engine, tables: TableSet = TABLES) -> None:
        engine.register(tables)
        self._engine = engine

    async def add(self, *notes: tuple) -> None:
        await self._engine.write(lambda tx: tx.insert("notes", ("title", "body", "score"), notes))

    async def keep(self, scores: dict[str, float]) -> dict[str, int]:
        return dict(await self._engine.write(lambda tx: tx.upsert(KEEP, list(scores.items()))))

    async def all(self) -> list[tuple]:
        rows = await self._engine.read(lambda tx: tx.all("SELECT title, body, score FROM notes ORDER BY id"))
        return [(title, body if body is None else bytes(body), score) for title, body, score in rows]

    async def add_then_fail(self, note: tuple) -> None:
        def job(tx: Transaction) -> None:
            tx.insert("notes", ("title", "body", "score"), [note])
            raise RuntimeError("half-way")

        await self._engine.write(job)


HARD = (  # what a bulk insert could get wrong
    ("tab\there", None, None),
    ("back\\slash\nline\r", b"\x00\xff\\x", -0.5),
    ("None", b"", 1e300),
    ("\\N", b"None", 0.1),
    ("日本 %s :x 'quoted'", None, 3.0),
)


async def assert_foreign_table_works(engine: Engine) -> None:
    """The same on every database."""
    notes = Notes(engine)
    await notes.add(*HARD)
    assert await notes.all() == list(HARD)
    numbers = await notes.keep({"None": 2.0, "new": 4.0})
    assert numbers.keys() == {"None", "new"}
    assert {title: score for title, _, score in await notes.all()}["None"] == 2.0
    assert await notes.keep({"None": 5.0}) == {"None": numbers["None"]}
    before = await notes.all()
    try:
        await notes.add_then_fail(("lost", None, None))
    except RuntimeError:
        assert await notes.all() == before
    else:
        raise AssertionError("the job's own error was swallowed")
