"""What holds for decisions in any database; SQLite and PostgreSQL run the same."""

from tests.logic.scheduler.decided import assignment, refusal
from vgpuscope.model.logged_decision import logged
from vgpuscope.store.decisions import DecisionStore

_DAY = 86400.0


def entries(*decisions):
    return [logged(one) for one in decisions]


async def assert_decisions_are_kept(store: DecisionStore) -> None:
    """Saved once, read in order, with every verdict, GPU and term."""
    some = entries(refusal(1, nodes=3, terms={"memory": 1.5}), assignment(2))
    await store.add(some)
    await store.add(some)  # a commit that was not seen
    page = await store.after(0, now=10.0)
    assert page.entries == some
    assert page.whole
    more = entries(refusal(3))
    await store.add(more)
    assert (await store.after(page.number, now=10.0)).entries == more


async def assert_old_and_too_many_are_deleted(store: DecisionStore) -> None:
    """`store` keeps a day, and three entries."""
    await store.add(entries(*(refusal(number, at=1e6 + number) for number in range(6))))
    await store.prune(1e6)
    assert [one.id for one in (await store.after(0, now=1e6)).entries] == ["d3", "d4", "d5"]
    assert [one.id for one in (await store.after(0, now=1e6 + 4.5 + _DAY)).entries] == ["d5"]
    await store.prune(1e6 + 4.5 + _DAY)
    assert [one.id for one in (await store.after(0, now=1e6)).entries] == ["d5"]
