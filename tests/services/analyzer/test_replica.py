"""A replica renews its lease before an action that would outlast it."""

import pytest

from tests.store.test_lease import Clock, Remote
from vgpuscope.model.errors import ScopeError
from vgpuscope.services.analyzer.replica import Replica


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def remote(clock) -> Remote:
    return Remote(clock)


@pytest.mark.parametrize("length", [6.0, 9.0, 11.0])  # a call of 5 or 10 s, or a change of the cluster
@pytest.mark.parametrize("waited", [0.0, 4.9, 5.05, 9.0, 14.9])
async def test_an_action_is_possible_at_any_moment_between_two_renewals(remote, clock, length, waited):
    one = Replica(remote, failed=lambda _: None, clock=clock)
    await one.ask()
    clock.now += waited
    assert await one.lasts(length)


async def test_no_renewal_makes_a_lease_last_that_another_has_or_whose_store_is_down(remote, clock):
    errors: list[ScopeError] = []
    one, two = (Replica(remote, failed=errors.append, clock=clock) for _ in range(2))
    two.leadership.holder = "other"
    await one.ask()
    clock.now += 15.1
    await two.ask()
    turned: list[bool] = []
    one.on_turn.append(lambda: turned.append(one.leads))
    assert not await one.lasts(6.0)
    assert (one.leads, turned) == (False, [False])
    clock.now += 15.1
    assert not await one.lasts(6.0)  # the lease is free, but a replica that does not lead does not ask for it here
    await one.ask()
    remote.down = True
    clock.now += 10.0
    assert not await one.lasts(6.0)
    assert len(errors) == 1


async def test_after_a_pause_that_outlasts_the_lease_a_replica_asks_before_it_analyses(remote, clock):
    one = Replica(remote, failed=lambda _: None, clock=clock)
    turned: list[bool] = []
    worked: list[bool] = []
    one.on_turn.append(lambda: turned.append(one.leads))
    one.on_work.append(lambda: worked.append(one.analyses))
    await one.ask()
    clock.now += 3600.0
    assert (one.leads, one.analyses) == (False, False)
    assert await one.should_analyse()
    assert (turned, worked) == ([True, True], [True])  # it leads again, and never stopped analysing
    clock.now += 3600.0
    assert await remote.take("other", 15)
    assert not await one.should_analyse()
    assert (turned, worked) == ([True, True, False], [True, False])


async def test_the_log_of_a_follower_names_the_leader_and_never_itself(remote, clock, caplog):
    caplog.set_level("INFO", "vgpuscope")
    one, two = (Replica(remote, failed=lambda _: None, clock=clock) for _ in range(2))
    one.leadership.holder, two.leadership.holder = "one", "two"

    async def told(replica) -> list[tuple[str, str | None]]:
        caplog.clear()
        await replica.ask()
        return [(r.message, r.fields.get("holder")) for r in caplog.records if r.message in {"leading", "following"}]

    assert await told(one) == [("leading", "one")]
    assert await told(two) == [("following", "one")]
    assert await told(two) == []
    clock.now += 15.1
    assert await told(two) == [("leading", "two")]
    assert await told(one) == [("following", "two")]
    remote.down = True
    assert await told(one) == []


@pytest.mark.parametrize(("keeps", "lines"), [(True, ["history store is up"]), (False, [])])
async def test_the_log_speaks_of_a_store_of_results_only_where_there_is_one(remote, clock, caplog, keeps, lines):
    caplog.set_level("DEBUG", "vgpuscope")
    replica = Replica(remote, failed=lambda _: None, keeps=keeps, clock=clock)
    await replica.ask()
    assert [r.message for r in caplog.records if "store" in r.message] == lines
