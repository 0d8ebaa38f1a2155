"""The frames that back-tests replay, on SQLite."""

import pytest

from tests.store.past_laws import LAWS
from vgpuscope.store.engine.engine import open_engine


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__.removeprefix("assert_"))
async def test_on_sqlite(law, tmp_path):
    engine = open_engine(str(tmp_path / "store.db"))
    assert engine is not None
    try:
        await law(engine)
    finally:
        await engine.close()
