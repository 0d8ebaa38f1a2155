"""No content of an analysis stops the analyses behind it from being saved."""

from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.store.fleets import DAY, NOON, analysis, gpu, points, tenant
from vgpuscope.model.errors import HistoryDown, RowRefused
from vgpuscope.store.opening import open_store
from vgpuscope.store.results.rows import storable
from vgpuscope.store.results.unsaved import Outbox

pytestmark = pytest.mark.attack
ALL = {"begin": 0, "end": 2 * NOON, "limit": 1000}
KEEP: dict[str, Any] = {"keep_results": DAY, "keep_hours": 30 * DAY, "keep_days": 400 * DAY}
names = st.text(st.characters(exclude_categories=()), max_size=20) | st.text(max_size=3).map(lambda s: s * 500)


@asynccontextmanager
async def history(path):
    store = open_store(str(path), **KEEP)
    try:
        yield store.results
    finally:
        await store.close()


@given(names)
@example("a\0b")
@example("é\0")
@example("\ud800")
@example("é" * 300)
@example("x" * 513)
def test_a_stored_name_is_valid_text_that_fits_into_an_index(name):
    stored = storable(name)
    assert "\0" not in stored
    assert len(stored.encode()) <= 512
    assert storable(stored) == stored
    if name.isprintable() and len(name.encode(errors="replace")) <= 512:
        assert stored == name


def test_long_names_that_begin_alike_stay_apart():
    assert storable("x" * 10_000) != storable("x" * 10_001)


async def test_names_that_become_the_same_are_stored_once(tmp_path):
    pods = (tenant("a\0"), tenant("a\ufffd"))
    async with history(tmp_path / "h.db") as store:
        await store.save(analysis(NOON, gpu(gpu_id="GPU-\0", tenants=pods), gpu(gpu_id="GPU-\ufffd")))
        assert [p.gpu_id for p in await points(store, step="analysis", **ALL)] == ["GPU-\ufffd"]
        assert [p.pod for p in await points(store, step="analysis", **ALL, namespace="ml")] == ["a\ufffd"]


class Picky:
    """A store that rejects some analyses, and is down at times."""

    def __init__(self, *bad: int, error: Exception) -> None:
        self.bad, self.error, self.down = bad, error, False
        self.saved: list[tuple[int, bool]] = []

    async def save(self, found, *, current=False) -> None:
        if self.down:
            raise HistoryDown("down")
        if found.number in self.bad:
            raise self.error
        self.saved.append((found.number, current))


@pytest.mark.parametrize("error", [RowRefused("NUL"), UnicodeEncodeError("utf-8", "\ud800", 0, 1, "no"), KeyError("x")])
async def test_an_analysis_that_is_rejected_is_dropped_alone(error):
    store: Any = Picky(0, 2, error=error)
    outbox = Outbox(store)
    store.down = True
    for number in range(5):
        with pytest.raises(HistoryDown):
            await outbox.save(analysis(NOON + number, number=number))
    store.down = False
    for left in (4, 2):  # the first, then the one between the others
        with pytest.raises(type(error)):
            await outbox.flush()
        assert outbox.waiting == left
        assert outbox.busy  # whoever saves goes on by itself
    await outbox.flush()
    assert store.saved == [(1, False), (3, False), (4, True)]
    assert (outbox.waiting, outbox.saved, outbox.busy) == (0, 3, False)


async def test_an_analysis_that_cannot_even_be_packed_is_dropped_alone(tmp_path):
    async with history(tmp_path / "h.db") as store:
        outbox = Outbox(store)
        await outbox.put(analysis(NOON, gpu(hostname="\ud800")))
        await outbox.put(analysis(NOON + 60, gpu(), number=2))
        with pytest.raises(UnicodeEncodeError):
            await outbox.flush()
        await outbox.flush()
        assert [p.time for p in await points(store, step="analysis", **ALL)] == [NOON + 60]
