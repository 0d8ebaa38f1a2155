"""The priority feedback against traces of HAMi's own monitor."""

import json

import pytest

from tests.paths import TESTS
from vgpuscope.logic.plugin.feedback import decide
from vgpuscope.model.plugin import FeedbackRegion

SCENARIOS = json.loads((TESTS / "fixtures/monitor/hami_feedback_scenarios.json").read_text())


def region(name, *, gpu="G1", priority=1, recent=2, switch=1):
    return FeedbackRegion(path=name, devices=(gpu,), priority=priority, recent_kernel=recent, utilization_switch=switch)


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_recorded_round_of_hami_is_reproduced(name):
    containers = SCENARIOS[name]
    rounds = max(len(one["rounds"]) for one in containers.values())
    for number in range(1, rounds):
        before = [
            region(
                container,
                gpu=one["gpu"],
                priority=one["priority"],
                recent=one["rounds"][number - 1]["recent_kernel"],
                switch=one["rounds"][number - 1]["utilization_switch"],
            )
            for container, one in containers.items()
        ]
        after = {
            one.region.path: {"recent_kernel": one.recent_kernel, "utilization_switch": one.utilization_switch}
            for one in decide(before)
        }
        assert after == {container: one["rounds"][number] for container, one in containers.items()}, number


def test_moves_tell_what_changes_for_a_container():
    high, low = decide([region("high", priority=0), region("low", switch=0)])
    assert (high.moves, low.moves) == (("release",), ("block", "enforce"))
    high, low = decide([region("high", priority=0, recent=1, switch=0), region("low", recent=-1)])
    assert (high.moves, low.moves) == ((), ("unblock", "release"))


def test_a_negative_priority_blocks_nobody():
    assert [one.blocked for one in decide([region("odd", priority=-1), region("low")])] == [False, False]


def test_containers_on_different_gpus_do_not_concern_each_other():
    high, low = decide([region("high", priority=0), region("low", gpu="G2")])
    assert (low.blocked, low.utilization_switch, high.utilization_switch) == (False, 0, 0)
