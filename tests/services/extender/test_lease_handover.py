"""The lease goes to the replica that a scheduler asks, and never do two lead at once."""

import asyncio

from msgspec.structs import replace

from vgpuscope.formats.kube.lease import LeaseRecord
from vgpuscope.model.errors import KubeConflict, KubeUnwritten
from vgpuscope.services.extender.leadership import KubeLeadership

DURATION = 15.0
STEP = 1.0  # seconds between two rounds of each replica here


class SharedLease:
    """A lease as the API server keeps it: a write names the version that was read."""

    def __init__(self) -> None:
        self.record: LeaseRecord | None = None
        self.version = 0
        self.lost_answers = 0  # of writes that take place

    async def read(self):
        return self.record

    async def write(self, record):
        if self.record is not None and record.version != self.record.version:
            raise KubeConflict("the object has been modified")
        self.version += 1
        self.record = replace(record, version=str(self.version))
        if self.lost_answers:
            self.lost_answers -= 1
            raise KubeUnwritten("no answer")
        return self.record


class Replicas:
    """Two replicas on one clock. Fails as soon as both lead."""

    def __init__(self, lease):
        self.now, self.lease = 1000.0, lease
        self.a, self.b = (
            KubeLeadership(lease, identity=name, duration=DURATION, clock=lambda: self.now, wall=lambda: self.now)
            for name in ("a", "b")
        )
        self.stopped: set = set()

    def pass_time(self, seconds, wanted=None):
        for _ in range(round(seconds / STEP)):
            self.now += STEP
            assert not (self.a.leads and self.b.leads), f"both lead at {self.now}"
            for one in (self.a, self.b):
                if one is wanted and not one.leads:
                    one.want()
                if one not in self.stopped:
                    asyncio.run(one.ask())
                assert not (self.a.leads and self.b.leads), f"both lead at {self.now}"


def test_one_replica_leads_and_the_other_follows():
    replicas = Replicas(SharedLease())
    replicas.pass_time(60)
    assert (replicas.a.leads, replicas.b.leads) == (True, False)


def test_the_replica_that_a_scheduler_asks_takes_the_lease_and_waits_until_the_holder_has_stopped():
    replicas = Replicas(SharedLease())
    replicas.pass_time(60)
    replicas.pass_time(STEP, wanted=replicas.b)
    assert (replicas.lease.record.holder, replicas.b.leads) == ("b", False)
    replicas.pass_time(DURATION)
    assert (replicas.a.leads, replicas.b.leads) == (False, True)
    assert replicas.b.takes_over  # so it fences what the last holder may still write


def test_a_holder_that_hears_nothing_more_has_stopped_before_the_other_begins():
    replicas = Replicas(SharedLease())
    replicas.pass_time(60)
    replicas.stopped.add(replicas.a)  # it is asked still, but cannot reach the API server
    replicas.pass_time(40, wanted=replicas.b)
    assert (replicas.a.leads, replicas.b.leads) == (False, True)


def test_a_lost_answer_does_not_make_the_new_holder_begin_early():
    lease = SharedLease()
    replicas = Replicas(lease)
    replicas.pass_time(60)
    replicas.stopped.add(replicas.a)
    lease.lost_answers = 1
    replicas.pass_time(60, wanted=replicas.b)
    assert replicas.b.leads


def test_two_schedulers_that_both_ask_do_not_toss_the_lease():
    replicas = Replicas(SharedLease())
    replicas.pass_time(60)
    before = replicas.lease.record.transitions
    for _ in range(120):
        wanted = replicas.b if replicas.a.leads else replicas.a
        replicas.pass_time(STEP, wanted=wanted)
    assert replicas.lease.record.transitions - before <= 120 / (2 * DURATION) + 1


def test_without_being_asked_a_replica_leaves_the_lease_alone():
    replicas = Replicas(SharedLease())
    replicas.pass_time(300)
    assert (replicas.a.leads, replicas.lease.record.transitions) == (True, 0)
