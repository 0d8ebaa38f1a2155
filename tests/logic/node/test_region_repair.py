"""False zeros are bridged, the dead are left out, and nothing is corrected that cannot be known."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.logic.node.builders import GIB, owner, region, slot
from vgpuscope.logic.node.region_repair import PATIENCE, RegionHistory, repair


def mend(*containers, history=None, owners=(), driver_pids=(), driver_sm=None):
    return repair(
        containers,
        history=history or RegionHistory(),
        owners=None if owners is None else {o.pid: o for o in owners},
        driver_pids=driver_pids,
        driver_sm=driver_sm or {},
    )


def sm_of(repaired):
    return [d.sm for c in repaired.containers for s in c.region.slots for d in s.devices]


def follow(values):
    """The sm of one process, sample by sample, as it comes out."""
    history, seen = RegionHistory(), []
    for value in values:
        done = mend(region("a", slot(5, GIB, value, driver_used=GIB)), history=history)
        history = done.history
        seen += sm_of(done)
    return seen


def test_a_zero_between_two_readings_is_bridged():
    assert follow([0.5, 0.0, 0.6]) == [0.5, 0.5, 0.6]


def test_a_process_that_really_stops_shows_it_after_a_few_samples():
    assert follow([0.5] + [0.0] * (PATIENCE + 2)) == [0.5] * (PATIENCE + 1) + [0.0] * 2


def test_a_process_that_never_ran_stays_at_zero():
    assert follow([0.0, 0.0, 0.0]) == [0.0, 0.0, 0.0]


@given(st.lists(st.floats(0.01, 1), min_size=1))
def test_without_zeros_nothing_is_changed(values):
    assert follow(values) == values


@given(st.lists(st.sampled_from([0.0, 0.3, 0.9])))
def test_bridging_only_repeats_what_was_read_before(values):
    for i, out in enumerate(follow(values)):
        assert out == values[i] or out in values[:i]


def test_bridged_zeros_are_counted():
    first = mend(region("a", slot(5, GIB, 0.5)))
    assert mend(region("a", slot(5, GIB, 0.0)), history=first.history).false_zeros == 1


def test_the_history_of_processes_that_are_gone_is_forgotten():
    idle = mend(region("a", slot(5, GIB, 0.0)))
    assert len(idle.history.zeros) == 1
    assert mend(region("a"), history=idle.history).history.zeros == {}
    busy = mend(region("a", slot(5, GIB, 0.5)))
    gone = mend(region("a"), history=busy.history)
    assert sm_of(mend(region("a", slot(5, GIB, 0.0)), history=gone.history)) == [0.0]
    assert mend(history=busy.history).history == RegionHistory()


def test_another_process_in_the_same_slot_inherits_nothing():
    first = mend(region("a", slot(5, GIB, 0.5)))
    assert sm_of(mend(region("a", slot(6, GIB, 0.0)), history=first.history)) == [0.0]


def test_a_killed_process_is_left_out_where_host_pids_can_be_seen():
    done = mend(region("a", slot(5, GIB), slot(6, GIB)), owners=[owner(5, "a")])
    assert ([s.host_pid for s in done.containers[0].region.slots], done.dead_processes) == ([5], 1)


def test_the_drivers_pids_are_a_sign_that_host_pids_can_be_seen():
    done = mend(region("a", slot(6, GIB)), owners=[owner(77)], driver_pids=[77])
    assert done.dead_processes == 1


def test_where_no_host_pid_can_be_seen_the_region_is_taken_at_its_word():
    alone = region("a", slot(5, GIB), slot(6, GIB))
    assert mend(alone, owners=[]).containers == (alone,)
    assert mend(alone, owners=[owner(77)], driver_pids=[78]).containers == (alone,)
    assert mend(alone, owners=None, driver_pids=[5]).containers == (alone,)


def test_a_pid_that_another_pod_has_by_now_is_dead():
    assert mend(region("a", slot(5, GIB)), owners=[owner(5, "b")]).dead_processes == 1


def test_a_process_whose_host_pid_is_not_known_yet_is_kept():
    done = mend(region("a", slot(0, GIB), slot(5, GIB)), owners=[owner(5, "a")])
    assert len(done.containers[0].region.slots) == 2


def test_a_process_that_said_goodbye_is_neither_dead_nor_bridged():
    gone = structs.replace(slot(9, GIB, 0.5), status=0)
    done = mend(region("a", gone, slot(5, GIB)), owners=[owner(5, "a")])
    assert (done.dead_processes, done.false_zeros) == (0, 0)


def test_a_directory_without_a_region_passes_through():
    empty = structs.replace(region("a"), region=None)
    assert mend(empty).containers == (empty,)
