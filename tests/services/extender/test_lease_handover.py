"""The lease goes to the replica that a scheduler asks, and never do two lead at once."""

import asyncio

from msgspec.structs import replace

from vgpuscope.formats.kube.lease import LeaseRecord
from vgpuscope.model.errors import KubeConflict, KubeForbidden, KubeUnwritten, ScopeError
from vgpuscope.services.extender.leadership import KubeLeadership
from vgpuscope.services.extender.scheduler_lease import SchedulerLease

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


# ── the kube-schedulers beside the replicas have a lease, too ────────────────────────────────────────────────────


class Pairs:
    """Two pods on one clock, each with a replica and a kube-scheduler; the pods' host names are a and b."""

    def __init__(self):
        self.now, self.lease, self.schedulers = 1000.0, SharedLease(), SharedLease()
        self.unfinished = False  # whether a pod is still being bound by a
        self.a, self.b = (self._replica(host) for host in "ab")
        self.down: set = set()
        self.led: list = []  # by whom, at each second

    def _replica(self, host):
        follows = SchedulerLease(self.schedulers, host=host, clock=lambda: self.now)
        return KubeLeadership(
            self.lease,
            identity=f"{host}_replica",
            duration=DURATION,
            scheduler=follows,
            finished=self._finished,
            clock=lambda: self.now,
            wall=lambda: self.now,
        )

    async def _finished(self):
        if self.unfinished:
            raise TimeoutError

    def scheduler(self, host):
        """The kube-scheduler of this pod schedules from now on; as client-go writes the record."""
        self.scheduling = host
        self.schedulers.record = LeaseRecord(holder=f"{host}_5b8ddb7e-1b0c-4d2a-9f1e-1f2e3d4c5b6a", renewed=self.now)

    def pass_time(self, seconds, *, asked=True):
        for _ in range(round(seconds / STEP)):
            self.now += STEP
            held = self.schedulers.record
            if held is not None and held.holder:
                self.schedulers.record = replace(held, renewed=self.now)
            for host, one in (("a", self.a), ("b", self.b)):
                if asked and held is not None and held.holder.startswith(f"{host}_") and not one.leads:
                    one.want()
                if one not in self.down:
                    asyncio.run(one.ask())
                assert not (self.a.leads and self.b.leads), f"both lead at {self.now}"
            self.led.append(self.a if self.a.leads else self.b if self.b.leads else None)


def test_the_lease_follows_the_kube_scheduler_that_schedules_within_seconds():
    pairs = Pairs()
    pairs.pass_time(2)
    assert pairs.a.leads  # at once: no kube-scheduler schedules yet
    pairs.scheduler("b")
    pairs.pass_time(3)
    assert (pairs.a.leads, pairs.b.leads) == (False, True)
    pairs.scheduler("a")
    pairs.pass_time(3)
    assert (pairs.a.leads, pairs.b.leads) == (True, False)


def test_it_follows_before_any_pod_waits():
    pairs = Pairs()
    pairs.scheduler("b")
    pairs.pass_time(3, asked=False)
    assert (pairs.a.leads, pairs.b.leads) == (False, True)


def test_a_replica_without_its_partner_leads_again_after_a_while_and_does_not_toss_the_lease():
    pairs = Pairs()
    pairs.pass_time(2)
    pairs.down.add(pairs.b)
    pairs.scheduler("b")  # its extender is being restarted, so nobody takes the lease
    pairs.pass_time(120)
    assert pairs.led.count(None) <= 1.5 * DURATION + 2
    assert pairs.led[-60:] == [pairs.a] * 60
    pairs.down.clear()
    pairs.pass_time(40)  # it is asked, takes the lease, and waits until a has stopped
    assert pairs.b.leads


def test_a_holder_that_has_not_finished_keeps_the_lease_until_it_expires():
    pairs = Pairs()
    pairs.pass_time(2)
    pairs.unfinished = True
    pairs.scheduler("b")
    pairs.pass_time(2, asked=False)
    assert (pairs.a.leads, pairs.b.leads, pairs.lease.record.holder) == (False, False, "a_replica")
    pairs.pass_time(DURATION + 2, asked=False)
    assert pairs.b.leads
    assert pairs.b.takes_over  # so it fences what a may still write


def test_a_stale_lease_of_kube_schedulers_that_are_gone_counts_for_nothing():
    pairs = Pairs()
    pairs.schedulers.record = LeaseRecord(holder="gone_5b8ddb7e", renewed=1.0)
    follows = SchedulerLease(pairs.schedulers, host="a", clock=lambda: pairs.now)
    asyncio.run(follows.look())
    assert follows.elsewhere  # it may be alive
    pairs.now += 16
    asyncio.run(follows.look())
    assert (follows.holder, follows.elsewhere, follows.here_for) == (None, False, None)


def test_without_the_right_to_read_it_replicas_elect_as_before():
    class Forbidden:
        async def read(self):
            raise KubeForbidden("leases is forbidden")

    lease = SharedLease()
    counted: list[ScopeError] = []
    follows = SchedulerLease(Forbidden(), host="a", failed=counted.append)
    replica = KubeLeadership(lease, identity="a", duration=DURATION, scheduler=follows)
    asyncio.run(replica.ask())
    assert replica.leads
    assert {error.code for error in counted} == {"KUBE_FORBIDDEN"}
