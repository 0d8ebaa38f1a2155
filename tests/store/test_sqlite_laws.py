"""The stores of reclaim and of back-tests, on SQLite; tests/contract has the same laws on PostgreSQL."""

import pytest

from tests.store import past_laws, reclaim_laws
from vgpuscope.store.engine.engine import open_engine


@pytest.mark.parametrize(
    "law", [*reclaim_laws.LAWS, *past_laws.LAWS], ids=lambda law: law.__name__.removeprefix("assert_")
)
async def test_on_sqlite(law, tmp_path):
    engine = open_engine(str(tmp_path / "store.db"))
    assert engine is not None
    try:
        await law(engine)
    finally:
        await engine.close()
