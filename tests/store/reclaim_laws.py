"""Laws of the reclaim store, the same for every database."""

import asyncio

import pytest
from msgspec.structs import replace

from vgpuscope.model.audit import AuditEntry
from vgpuscope.model.errors import NotLeader
from vgpuscope.model.reclaim import Call, Case, Share
from vgpuscope.store.engine.engine import Engine
from vgpuscope.store.reclaim import Batch, ReclaimStore

CASE = Case(
    id="uid-1",
    uid="uid-1",
    namespace="team",
    pod="诸葛 'quoted' \\ %s",
    since=1.0,
    first_idle=0.5,
    held_by=("stop",),
    shares=(Share(gpu_id="GPU-1", score=None, coverage=1.0),),
)
CALL = Call(key="k1", case_id="uid-1", kind="control", gpu_id="GPU-1", body="{}", first_at=10.0, next_at=10.0)


def entry(number: int, **more) -> AuditEntry:
    return AuditEntry(at=float(number), actor="vgpuscope", what="moved", namespace="team", **more)


async def assert_what_is_saved_comes_back(engine: Engine) -> None:
    store = ReclaimStore(engine)
    term = (await store.lead()).term
    await store.save(Batch(cases=[CASE], calls=[CALL], audit=[entry(1, case_id="uid-1")], memory='{"a":1}'), term=term)
    saved = await store.lead()
    assert (saved.cases, saved.memory, saved.stopped_by) == ({"uid-1": CASE}, '{"a":1}', "")
    assert await store.due(9.9, most=10) == []
    assert await store.due(10.0, most=10) == [CALL]
    assert await store.cases() == {"uid-1": CASE}


async def assert_a_replica_of_an_earlier_term_writes_nothing(engine: Engine) -> None:
    store = ReclaimStore(engine)
    old = (await store.lead()).term
    await store.save(Batch(cases=[CASE], calls=[CALL]), term=old)
    new = (await store.lead()).term
    changed = replace(CASE, state="acting")
    writes = (
        lambda: store.save(Batch(cases=[changed]), term=old),
        lambda: store.attempt(replace(CALL, attempts=1), term=old),
        lambda: store.settle(replace(CALL, status="delivered"), Batch(cases=[changed]), term=old),
        lambda: store.stop("me", entry(1), term=old),
    )
    for write in writes:
        with pytest.raises(NotLeader):
            await write()
    saved = await store.lead()
    assert (saved.cases, saved.stopped_by, saved.term) == ({"uid-1": CASE}, "", new + 1)
    assert await store.due(10.0, most=10) == [CALL]
    assert (await store.audit()).entries == ()


async def assert_a_call_is_made_once_and_not_after_it_was_cancelled(engine: Engine) -> None:
    store = ReclaimStore(engine)
    term = (await store.lead()).term
    await store.save(Batch(calls=[CALL, replace(CALL, key="k2", next_at=5.0)]), term=term)
    assert [call.key for call in await store.due(10.0, most=10)] == ["k2", "k1"]
    tried = replace(CALL, attempts=1)
    assert await store.attempt(tried, term=term)
    await store.settle(replace(tried, status="delivered"), Batch(cases=[CASE]), term=term)
    assert not await store.attempt(tried, term=term)
    await store.save(Batch(cancel=["uid-1"]), term=term)
    assert {call.key: call.status for call in await store.calls_of("uid-1")} == {"k1": "delivered", "k2": "cancelled"}
    # The same key is the same call: what was delivered does not wait once more, and what was cancelled may.
    await store.save(Batch(calls=[CALL, replace(CALL, key="k2", next_at=20.0)]), term=term)
    assert [call.key for call in await store.due(99.0, most=10)] == ["k2"]


async def assert_the_stop_switch_survives(engine: Engine) -> None:
    store = ReclaimStore(engine)
    term = (await store.lead()).term
    await store.stop("alice", entry(1, reason="maintenance"), term=term)
    assert (await store.lead()).stopped_by == "alice"
    assert [one.reason for one in (await store.audit()).entries] == ["maintenance"]


async def assert_the_audit_log_is_paged_and_scoped(engine: Engine) -> None:
    store = ReclaimStore(engine)
    term = (await store.lead()).term
    for number in range(1, 6):
        one = replace(entry(number, case_id=f"uid-{number % 2}"), namespace="a" if number < 3 else "b")
        await store.save(Batch(audit=[one]), term=term)
    first = await store.audit(limit=2)
    assert [one.at for one in first.entries] == [5.0, 4.0]
    rest = await store.audit(limit=10, before=first.next_before)
    assert ([one.at for one in rest.entries], rest.next_before) == ([3.0, 2.0, 1.0], None)
    assert [one.at for one in (await store.audit(namespaces=frozenset({"a"}))).entries] == [2.0, 1.0]
    assert (await store.audit(namespaces=frozenset())).entries == ()
    assert [one.at for one in (await store.audit(case_id="uid-0")).entries] == [4.0, 2.0]


async def assert_two_leaders_at_once_leave_one(engine: Engine) -> None:
    """Both take a term at the same time; exactly one of them may write afterwards."""
    store = ReclaimStore(engine)
    terms = [saved.term for saved in await asyncio.gather(*(store.lead() for _ in range(5)))]
    assert len(set(terms)) == 5
    wrote = []
    for term in terms:
        try:
            await store.save(Batch(cases=[replace(CASE, by=str(term))]), term=term)
        except NotLeader:
            continue
        wrote.append(term)
    assert wrote == [max(terms)]


LAWS = [law for name, law in sorted(globals().items()) if name.startswith("assert_")]
