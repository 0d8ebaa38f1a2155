"""An engine on a file of its own."""

from contextlib import asynccontextmanager

from vgpuscope.store.engine.engine import Engine
from vgpuscope.store.engine.sqlite import SqliteDatabase
from vgpuscope.store.limits import LIMITS


@asynccontextmanager
async def opened(path, limits=LIMITS):
    engine = Engine(SqliteDatabase(str(path), limits=limits), limits=limits)
    try:
        yield engine
    finally:
        await engine.close()
