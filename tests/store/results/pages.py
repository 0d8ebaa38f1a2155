"""What holds of every store that returns its history page by page, to be asked of any."""

from typing import Any

from tests.store.fleets import NOON
from vgpuscope.model.history import HistoryPage, HistoryPoint, Step
from vgpuscope.store.results.history import History
from vgpuscope.store.results.wanted import HistorySelection

STEPS: tuple[Step, ...] = ("analysis", "hour", "day")
WHOSE: tuple[dict[str, Any], ...] = (
    {},
    {"tenants_of": ("ml", "")},
    {"namespace": ""},
    {"namespace": "ml"},
    {"gpu_id": "GPU-00000000-0000-4000-8000-000000000000"},
)


async def pages(store: History, *, step: Step, limit: int, **whose: Any) -> list[HistoryPage]:
    """All pages, each from the cursor of the one before."""
    found: list[HistoryPage] = []
    cursor: str | None = None
    while not found or cursor:
        found.append(
            await store.page(HistorySelection(step=step, begin=0, end=2 * NOON, limit=limit, cursor=cursor, **whose))
        )
        cursor = found[-1].cursor
    return found


async def assert_pages_are_the_whole(store: History, *, limit: int) -> None:
    """Page by page nothing is missing, nothing comes twice, and only the last page may be short."""
    for step in STEPS:
        for whose in WHOSE:
            [whole] = await pages(store, step=step, limit=10**6, **whose)
            found = await pages(store, step=step, limit=limit, **whose)
            joined: list[HistoryPoint] = [point for page in found for point in page.points]
            assert joined == whole.points
            assert all(len(page.points) == limit for page in found[:-1])
            assert found[-1].points or not whole.points
