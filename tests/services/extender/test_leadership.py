"""Leader election: at most one replica decides at any moment, whatever clocks, requests and processes do."""

import json
import random

import msgspec
import pytest

from vgpuscope.formats.kube.lease import LeaseRecord, decode_lease, lease_spec
from vgpuscope.model.errors import KubeConflict, KubeUnreadable, KubeUnwritten
from vgpuscope.services.extender.leadership import KubeLeadership

DURATION = 15.0


class SharedLease:
    """A Lease at an API server that compares versions; requests can fail before or after they take effect."""

    def __init__(self):
        self.record, self.version, self.fails = None, 0, None

    async def read(self):
        self._maybe("before")
        return self.record

    async def write(self, record):
        self._maybe("before")
        if record.version != (self.record.version if self.record else ""):
            raise KubeConflict("another version")
        self.version += 1
        self.record = msgspec.structs.replace(record, version=str(self.version))
        self._maybe("after")
        return self.record

    def _maybe(self, when):
        if self.fails == when:
            raise (KubeUnreadable if when == "before" else KubeUnwritten)("no answer")


class Replica:
    """A replica with a clock of its own."""

    def __init__(self, lease, name, skew=0.0):
        self.now, self.skew, self.name = 0.0, skew, name
        self.leadership = KubeLeadership(
            lease, identity=name, duration=DURATION, clock=lambda: self.now + skew, wall=lambda: 1e9 + self.now - skew
        )

    async def at(self, now):
        self.now = now
        await self.leadership.ask()
        return self.leadership.leads


@pytest.fixture
def lease():
    return SharedLease()


async def test_the_first_leads_and_the_second_waits(lease):
    one, two = Replica(lease, "one"), Replica(lease, "two")
    assert await one.at(0)
    assert not await two.at(0)
    assert two.leadership.holder == "one"
    assert await one.at(2)
    assert not await two.at(16)  # it was renewed since


async def test_a_leader_that_is_gone_is_replaced_after_the_duration_and_not_before(lease):
    one, two = Replica(lease, "one"), Replica(lease, "two")
    await one.at(0)
    await two.at(1)
    assert not await two.at(1 + DURATION)
    assert await two.at(1.1 + DURATION)
    assert two.leadership.takes_over
    assert two.leadership.transitions == 1


async def test_a_leader_that_cannot_renew_stops_by_time_alone_before_another_begins(lease):
    one, two = Replica(lease, "one"), Replica(lease, "two")
    await one.at(0)
    await two.at(0)
    lease.fails = "before"
    await one.at(5)
    one.now = 9.9
    assert one.leadership.leads
    one.now = 10.1  # nothing was called: the process may have been paused
    assert not one.leadership.leads


async def test_a_renewal_without_an_answer_is_not_taken_for_lost(lease):
    one = Replica(lease, "one")
    await one.at(0)
    lease.fails = "after"
    assert await one.at(2)  # still valid since 0
    lease.fails = None
    assert await one.at(4)
    assert one.leadership.term == 1


async def test_a_released_lease_is_taken_at_once_and_nothing_is_fenced(lease):
    one, two = Replica(lease, "one"), Replica(lease, "two")
    await one.at(0)
    await two.at(0)
    await one.leadership.release()
    assert not one.leadership.leads
    assert await two.at(1)
    assert not two.leadership.takes_over


async def test_a_lease_that_was_lost_begins_a_new_term(lease):
    one, two = Replica(lease, "one"), Replica(lease, "two")
    turns = []
    one.leadership.on_turn.append(lambda: turns.append((one.leadership.leads, one.leadership.term)))
    await one.at(0)
    await two.at(0)
    assert await two.at(20)
    assert not await one.at(21)
    assert not await one.at(36)  # it sees the other's record for the first time
    assert await one.at(52)
    assert turns[0] == (True, 1)
    assert turns[-1] == (True, 2)


async def test_without_election_it_always_leads_and_shows_itself_in_the_lease(lease):
    one = KubeLeadership(lease, identity="one", duration=DURATION, elect=False, clock=lambda: 0.0)
    assert one.leads
    await one.ask()
    assert (lease.record.holder, one.leads, one.term) == ("one", True, 0)


@pytest.mark.parametrize("seed", range(60))
async def test_two_never_lead_at_once_whatever_fails(lease, seed):
    """Random pauses, failures before and after the write, and clocks that run apart by hours."""
    pick = random.Random(seed)
    replicas = [Replica(lease, name, skew=pick.uniform(-7200, 7200)) for name in ("one", "two", "three")]
    now = 0.0
    for _ in range(300):
        now += pick.choice([0.1, 1.0, 2.0, 6.0, 16.0])
        for replica in replicas:
            replica.now = now
        lease.fails = pick.choice([None, None, None, "before", "after"])
        await pick.choice(replicas).at(now)
        leading = [replica.name for replica in replicas if replica.leadership.leads]
        assert len(leading) <= 1, leading


def test_the_record_is_client_gos():
    record = LeaseRecord(holder="a", seconds=15, acquired=1794767070.25, renewed=1794767071.5, transitions=3)
    spec = lease_spec(record)
    assert spec == {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-11-15T18:24:30.250000Z",
        "renewTime": "2026-11-15T18:24:31.500000Z",
        "leaseTransitions": 3,
    }
    body = json.dumps({"kind": "Lease", "metadata": {"resourceVersion": "7"}, "spec": spec}).encode()
    found = decode_lease(body)
    assert (found.holder, found.transitions, found.version, found.renewed) == ("a", 3, "7", 1794767071.5)


async def test_a_lease_that_lapsed_before_its_renewal_begins_a_new_turn(lease):
    """A take-over that saw the lapse has given up: nothing else would begin it again."""
    one, turns = Replica(lease, "one"), list[bool]()
    one.leadership.on_turn.append(lambda: turns.append(one.leadership.leads))
    await one.at(0)
    await one.at(2)
    assert turns == [True]
    await one.at(2 + DURATION * 2 / 3 + 0.1)
    assert (turns, one.leadership.term) == ([True, False, True], 1)


async def told(caplog, replica, now) -> list[tuple[str, str | None]]:
    caplog.clear()
    await replica.at(now)
    return [
        (record.message, record.fields.get("holder")) for record in caplog.records if record.message != "lease works"
    ]


async def test_the_log_of_a_follower_names_the_leader_and_never_itself(lease, caplog):
    caplog.set_level("INFO", "vgpuscope")
    one, two = Replica(lease, "one"), Replica(lease, "two")
    assert await told(caplog, one, 0) == [("leading", None)]
    assert await told(caplog, two, 1) == [("following", "one")]
    assert await told(caplog, two, 3) == []
    assert await told(caplog, two, 1.1 + DURATION) == [("leading", None)]
    assert await told(caplog, one, 2 + DURATION) == [("no longer leading", None)]
    assert await told(caplog, one, 4 + DURATION) == [("following", "two")]
    assert await told(caplog, one, 6 + DURATION) == []


async def test_a_leader_whose_lease_lapses_does_not_say_that_it_follows_itself(lease, caplog):
    caplog.set_level("INFO", "vgpuscope")
    one = Replica(lease, "one")
    await one.at(0)
    lease.fails = "before"
    assert [message for message, _ in await told(caplog, one, DURATION)] == ["lease failed", "no longer leading"]
    lease.fails = None
    assert [message for message, _ in await told(caplog, one, DURATION + 1)] == ["leading"]
