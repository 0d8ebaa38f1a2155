"""Laws of the reclaim store, the same for every database."""

import asyncio

import msgspec
import pytest
from msgspec.structs import replace

from vgpuscope.model.audit import AuditEntry
from vgpuscope.model.errors import LinkUsed, NotLeader
from vgpuscope.model.notices import SignedLink
from vgpuscope.model.reclaim import Call, Case, ReclaimTarget, Share
from vgpuscope.store.engine.engine import Engine
from vgpuscope.store.reclaim import ReclaimBatch, ReclaimStore

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
TARGET = ReclaimTarget(api_version="apps/v1", kind="Deployment", name="web", uid="uid-web")
CALL = Call(key="k1", case_id="uid-1", kind="control", gpu_id="GPU-1", body="{}", first_at=10.0, next_at=10.0)


def entry(number: int, **more) -> AuditEntry:
    return AuditEntry(at=float(number), actor="vgpuscope", what="moved", namespace="team", **more)


async def assert_what_is_saved_comes_back(engine: Engine) -> None:
    store = ReclaimStore(engine)
    term = (await store.lead()).term
    await store.save(
        ReclaimBatch(cases=[CASE], calls=[CALL], audit=[entry(1, case_id="uid-1")], memory='{"a":1}'), term=term
    )
    saved = await store.lead()
    assert (saved.cases, saved.memory, saved.stopped_by) == ({"uid-1": CASE}, '{"a":1}', "")
    assert await store.due(9.9, most=10) == []
    assert await store.due(10.0, most=10) == [CALL]
    assert (await store.look()).cases == {"uid-1": CASE}


async def assert_a_case_that_an_older_release_stored_is_read(engine: Engine) -> None:
    store = ReclaimStore(engine)
    term = (await store.lead()).term
    acting = replace(CASE, state="verified", acted_at=5.0, target=TARGET)
    await store.save(ReclaimBatch(cases=[acting]), term=term)
    old = {key: value for key, value in msgspec.to_builtins(acting).items() if key not in {"tried_at", "taken_at"}}
    await engine.write(
        lambda tx: tx.all("UPDATE reclaim_cases SET body = :body", body=msgspec.json.encode(old).decode())
    )
    assert (await store.case("uid-1")) == acting
    assert acting.restorable


async def assert_a_dry_run_that_an_older_release_stored_as_acting_is_no_action(engine: Engine) -> None:
    store = ReclaimStore(engine)
    term = (await store.lead()).term
    await store.save(ReclaimBatch(cases=[replace(CASE, state="acting", dry_run=True, next_at=9.0)]), term=term)
    [case] = (await store.look()).cases.values()
    assert (case.state, case.next_at, case.dry_run) == ("would_act", None, True)
    assert await store.case("uid-1") == case


async def assert_an_attempt_and_what_it_may_change_are_stored_together(engine: Engine) -> None:
    store = ReclaimStore(engine)
    term = (await store.lead()).term
    await store.save(ReclaimBatch(cases=[CASE], calls=[CALL]), term=term)
    tried, case = replace(CALL, attempts=1), replace(CASE, tried_at=3.0)
    assert await store.attempt(tried, ReclaimBatch(cases=[case]), term=term)
    assert await store.case("uid-1") == case
    await store.save(ReclaimBatch(cancel=["uid-1"]), term=term)
    assert not await store.attempt(tried, ReclaimBatch(cases=[replace(case, tried_at=9.0)]), term=term)
    assert await store.case("uid-1") == case


async def assert_a_replica_of_an_earlier_term_writes_nothing(engine: Engine) -> None:
    store = ReclaimStore(engine)
    old = (await store.lead()).term
    await store.save(ReclaimBatch(cases=[CASE], calls=[CALL]), term=old)
    new = (await store.lead()).term
    changed = replace(CASE, state="acting")
    writes = (
        lambda: store.save(ReclaimBatch(cases=[changed]), term=old),
        lambda: store.attempt(replace(CALL, attempts=1), term=old),
        lambda: store.settle(replace(CALL, status="delivered"), ReclaimBatch(cases=[changed]), term=old),
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
    await store.save(ReclaimBatch(calls=[CALL, replace(CALL, key="k2", next_at=5.0)]), term=term)
    assert [call.key for call in await store.due(10.0, most=10)] == ["k2", "k1"]
    tried = replace(CALL, attempts=1)
    assert await store.attempt(tried, term=term)
    await store.settle(replace(tried, status="delivered"), ReclaimBatch(cases=[CASE]), term=term)
    assert not await store.attempt(tried, term=term)
    await store.save(ReclaimBatch(cancel=["uid-1"]), term=term)
    assert {call.key: call.status for call in await store.calls_of("uid-1")} == {"k1": "delivered", "k2": "cancelled"}
    # The same key is the same call: what was delivered does not wait once more, and what was cancelled may.
    await store.save(ReclaimBatch(calls=[CALL, replace(CALL, key="k2", next_at=20.0)]), term=term)
    assert [call.key for call in await store.due(99.0, most=10)] == ["k2"]


async def assert_every_cancelled_call_is_in_the_audit_log(engine: Engine) -> None:
    store = ReclaimStore(engine)
    term = (await store.lead()).term
    calls = [replace(CALL, attempts=3), replace(CALL, key="k2"), replace(CALL, key="k3", status="delivered")]
    await store.save(ReclaimBatch(cases=[CASE], calls=calls), term=term)
    released = replace(CASE, state="released", reason="works_again")
    moved = replace(entry(7, case_id="uid-1", pod=CASE.pod, reason="works_again"), actor="alice")
    await store.save(ReclaimBatch(cases=[released], cancel=["uid-1"], audit=[moved]), term=term)
    *cancelled, first = (await store.audit()).entries
    assert first.what == "moved"
    assert [(one.what, one.at, one.actor, one.case_id, one.namespace, one.pod, one.reason) for one in cancelled] == [
        ("call_cancelled", 7.0, "alice", "uid-1", "team", CASE.pod, "works_again")
    ] * 2
    assert [msgspec.json.decode(one.detail) for one in cancelled] == [
        {"key": "k2", "gpu_id": "GPU-1", "attempts": 0},
        {"key": "k1", "gpu_id": "GPU-1", "attempts": 3},
    ]
    # Cancelled together with another case, which is stored: its own reason is not known here.
    await store.save(ReclaimBatch(calls=[replace(CALL, key="k4")]), term=term)
    await store.save(ReclaimBatch(cancel=["uid-1"], audit=[entry(8, case_id="uid-2", reason="restoring")]), term=term)
    newest = (await store.audit()).entries[0]
    assert (newest.what, newest.at, newest.pod, newest.reason) == ("call_cancelled", 8.0, CASE.pod, "restoring")


async def assert_the_stop_switch_survives(engine: Engine) -> None:
    store = ReclaimStore(engine)
    term = (await store.lead()).term
    await store.stop("alice", entry(1, reason="maintenance"), term=term)
    assert (await store.lead()).stopped_by == "alice"
    assert [one.reason for one in (await store.audit()).entries] == ["maintenance"]


async def assert_a_stop_by_any_replica_is_read_by_all_and_nothing_is_sent(engine: Engine) -> None:
    store = ReclaimStore(engine)
    term = (await store.lead()).term
    notice = replace(CALL, key="notice/a/uid-1/soon/1", kind="notice")
    restore = replace(CALL, key="uid-1/restore/1", kind="restore")
    await store.save(ReclaimBatch(cases=[CASE], calls=[CALL, notice, restore], memory='{"a":1}'), term=term)
    await store.stop("bob", entry(1), term=None)
    assert (await store.news()).stopped_by == "bob"
    seen = await store.look()
    assert (seen.term, seen.cases, seen.memory, seen.stopped_by) == (term, {"uid-1": CASE}, '{"a":1}', "bob")
    assert not await store.attempt(replace(CALL, attempts=1), term=term)
    assert await store.attempt_all([replace(notice, attempts=1)], term=term) == []
    assert await store.attempt(replace(restore, attempts=1), term=term)  # who stops wants to give back, too
    await store.stop("", entry(2), term=term)
    assert ((await store.news()).stopped_by, (await store.look()).stopped_by) == ("", "")
    assert await store.attempt(replace(CALL, attempts=1), term=term)


async def assert_what_is_shown_is_read_again_only_if_it_changed(engine: Engine) -> None:
    store = ReclaimStore(engine)
    term = (await store.lead()).term
    first = (await store.news()).mark
    assert (await store.news()).mark == first
    await store.save(ReclaimBatch(memory='{"a":1}'), term=term)
    assert (await store.news()).mark == first  # that of a large fleet is megabytes
    await store.save(ReclaimBatch(memory='{"a":2}', audit=[entry(0)]), term=term)  # the breaker turned
    second = (await store.news()).mark
    await store.save(ReclaimBatch(cases=[CASE], audit=[entry(1)]), term=term)
    third = (await store.news()).mark
    await store.stop("bob", entry(2), term=None)
    assert len({first, second, third, (await store.news()).mark}) == 4


async def assert_the_audit_log_is_paged_and_scoped(engine: Engine) -> None:
    store = ReclaimStore(engine)
    term = (await store.lead()).term
    for number in range(1, 6):
        one = replace(entry(number, case_id=f"uid-{number % 2}"), namespace="a" if number < 3 else "b")
        await store.save(ReclaimBatch(audit=[one]), term=term)
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
            await store.save(ReclaimBatch(cases=[replace(CASE, by=str(term))]), term=term)
        except NotLeader:
            continue
        wrote.append(term)
    assert wrote == [max(terms)]


async def assert_notices_wait_apart_and_by_channel(engine: Engine) -> None:
    store = ReclaimStore(engine)
    term = (await store.lead()).term
    notices = [
        replace(CALL, key=f"notice/{name}/uid-1/soon/{n}", kind="notice") for n, name in enumerate(["a_b", "axb"])
    ]
    await store.save(ReclaimBatch(cases=[CASE], calls=[CALL, *notices]), term=term)
    assert await store.due(10.0, most=10) == [CALL]
    assert await store.due_notices(10.0, most=10) == notices
    assert await store.due_notices(10.0, channel="a_b", most=10) == notices[:1]
    tried = [replace(one, attempts=1, next_at=20.0) for one in notices]
    await store.save(ReclaimBatch(cancel=["uid-1"]), term=term)
    assert await store.attempt_all(tried, term=term) == []  # they were cancelled meanwhile
    await store.save(ReclaimBatch(calls=notices), term=term)
    assert await store.attempt_all(tried, term=term) == tried
    assert await store.due_notices(19.0, most=10) == []
    await store.settle_all([replace(tried[0], status="delivered")], ReclaimBatch(cases=[CASE]), term=term)
    assert await store.due_notices(20.0, most=10) == tried[1:]
    await store.save(ReclaimBatch(cancel=["uid-1"]), term=term)
    await store.settle_all([replace(tried[1], status="delivered")], ReclaimBatch(), term=term)
    assert sorted(call.status for call in await store.calls_of("uid-1")) == ["cancelled", "cancelled", "delivered"]


async def assert_a_case_that_ends_can_still_be_told_of(engine: Engine) -> None:
    store = ReclaimStore(engine)
    term = (await store.lead()).term
    new = replace(CALL, key="notice/a/uid-1/taken/1", kind="notice")
    await store.save(ReclaimBatch(calls=[CALL]), term=term)
    await store.save(ReclaimBatch(calls=[new], cancel=["uid-1"]), term=term)
    assert (await store.due(10.0, most=10), await store.due_notices(10.0, most=10)) == ([], [new])


async def assert_a_link_is_used_once_and_with_it_all_or_nothing(engine: Engine) -> None:
    store = ReclaimStore(engine)
    term = (await store.lead()).term
    link = SignedLink(case_id="uid-1", action="keep", expires=100, nonce="n1")
    await store.save(ReclaimBatch(cases=[CASE]), term=term)
    assert await store.used_at(link) is None
    await store.save(ReclaimBatch(cases=[replace(CASE, state="exempt")], used=link, audit=[entry(7)]), term=term)
    assert await store.used_at(link) == 7.0
    with pytest.raises(LinkUsed):
        await store.save(ReclaimBatch(cases=[replace(CASE, state="snoozed")], used=link, audit=[entry(8)]), term=term)
    assert (await store.case("uid-1")) == replace(CASE, state="exempt")
    assert len((await store.audit()).entries) == 1
    other = replace(link, nonce="n2", expires=999)
    await store.save(ReclaimBatch(used=other, audit=[entry(200)]), term=term)
    assert await store.used_at(link) is None  # it has expired, so nobody can use it
    assert await store.used_at(other) == 200.0


async def assert_until_the_leader_reads_an_answer_of_another_replica_it_writes_nothing(engine: Engine) -> None:
    store = ReclaimStore(engine)
    term = (await store.lead()).term
    await store.save(ReclaimBatch(cases=[CASE]), term=term)
    link = SignedLink(case_id="uid-1", action="keep", expires=100, nonce="n1")

    def decide(case: Case | None) -> ReclaimBatch:
        assert case == CASE
        return ReclaimBatch(cases=[replace(CASE, state="exempt")], used=link, audit=[entry(7)])

    assert not (await store.news()).answered
    await store.answered("uid-1", decide)
    assert (await store.news()).answered
    changed = replace(CASE, state="acting")
    writes = (
        lambda: store.save(ReclaimBatch(cases=[changed]), term=term),
        lambda: store.attempt(CALL, term=term),
        lambda: store.attempt_all([CALL], term=term),
        lambda: store.settle_all([CALL], ReclaimBatch(cases=[changed]), term=term),
        lambda: store.stop("me", entry(1), term=term),
    )
    for write in writes:
        with pytest.raises(NotLeader):
            await write()
    with pytest.raises(NotLeader):
        await store.catch_up(term=term - 1)
    exempt = replace(CASE, state="exempt")
    assert await store.catch_up(term=term) == {"uid-1": exempt}
    await store.save(ReclaimBatch(cases=[exempt]), term=term)
    with pytest.raises(LinkUsed):
        await store.answered("uid-1", lambda _: ReclaimBatch(used=link, audit=[entry(8)]))
    assert not (await store.news()).answered


LAWS = [law for name, law in sorted(globals().items()) if name.startswith("assert_")]
