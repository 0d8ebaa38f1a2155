"""The log of decisions: newest first, bounded, and the latest word about each pod stays longest."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from tests.logic.scheduler.decided import assignment, decision, refusal
from vgpuscope.logic.scheduler.decision_log import DecisionLog
from vgpuscope.model.logged_decision import logged
from vgpuscope.model.placement import NodeVerdict

_DAY = 86400.0


def ids(entries):
    return [entry.id for entry in entries]


def test_the_newest_decision_comes_first_and_the_limit_cuts_the_oldest():
    log = DecisionLog()
    for number in range(5):
        log.add(refusal(number))
    assert ids(log.find()) == ["d4", "d3", "d2", "d1", "d0"]
    assert ids(log.find(limit=2)) == ["d4", "d3"]


def test_decisions_are_found_by_namespace_pod_and_time():
    log = DecisionLog()
    log.add(refusal(1, namespace="ml", pod="a"))
    log.add(refusal(2, namespace="ml", pod="b"))
    log.add(refusal(3, namespace="web", pod="a"))
    assert ids(log.find(namespace="ml")) == ["d2", "d1"]
    assert ids(log.find(pod="a")) == ["d3", "d1"]
    assert ids(log.find(namespace="ml", pod="a")) == ["d1"]
    assert ids(log.find(since=2.0)) == ["d3", "d2"]
    assert log.find(namespace="nobody", pod="a") == []


def test_every_nodes_verdict_comes_back_as_it_was_given():
    given_ = refusal(1, nodes=3)
    entry = DecisionLog().add(given_)
    assert entry.nodes == given_.nodes
    assert len(entry.groups) == 1


def test_a_decision_that_is_recorded_twice_is_there_once():
    log = DecisionLog()
    log.add(refusal(1))
    log.add(refusal(1))
    assert ids(log.find()) == ["d1"]


def test_after_a_day_a_decision_is_forgotten():
    log = DecisionLog()
    log.add(refusal(1, at=0.0))
    log.add(refusal(2, at=100.0))
    log.forget(_DAY + 50)
    assert ids(log.find()) == ["d2"]
    assert log.latest("ml", "train-0").id == "d2"


def test_superseded_refusals_are_dropped_before_assignments_and_latest_words():
    log = DecisionLog(most=4)
    log.add(assignment(0, pod="runs"))
    log.add(refusal(1, pod="waits-too"))
    for number in range(2, 10):
        log.add(refusal(number, pod="waits"))
    assert ids(log.find()) == ["d9", "d8", "d1", "d0"]
    assert log.dropped == 6


def test_what_is_not_superseded_is_dropped_oldest_first():
    log = DecisionLog(most=2)
    for number in range(4):
        log.add(assignment(number, pod=f"pod-{number}"))
    assert ids(log.find()) == ["d3", "d2"]
    assert log.latest("ml", "pod-0") is None


def test_the_log_never_holds_more_than_its_bytes():
    log = DecisionLog(most_bytes=100_000)
    for number in range(500):
        log.add(refusal(number, pod=f"pod-{number}", nodes=20, available=f"{number}MB"))
        assert log.bytes <= 100_000
    assert 0 < len(log) < 500


def test_one_decision_that_is_larger_than_the_bound_is_kept_alone():
    log = DecisionLog(most_bytes=2_000)
    log.add(assignment(1))
    log.add(refusal(2, nodes=5_000))
    assert ids(log.find()) == ["d2"]


def test_a_hundred_refusals_over_five_thousand_nodes_cost_little_memory():
    """One verdict object for each node and entry would be 500,000 objects, some 60 MB."""
    names = [f"gpu-{place}" for place in range(5_000)]
    log = DecisionLog()
    tracemalloc.start()
    try:
        for number in range(100):
            verdicts = tuple(
                NodeVerdict(node=name, code="SCHED_INSUFFICIENT_GPU_MEMORY", available=f"{place % 7}000MB")
                for place, name in enumerate(names)
            )
            log.add(decision(number, pod=f"pod-{number}", nodes=verdicts))
            del verdicts
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(log) == 100
    assert held < 2 * 2**20


def test_what_an_earlier_process_decided_is_merged_by_time_and_once():
    log = DecisionLog()
    log.add(refusal(5))
    assert log.merge([logged(refusal(1)), logged(refusal(5)), logged(refusal(7))]) == 2
    assert ids(log.find()) == ["d7", "d5", "d1"]
    assert log.merge([logged(refusal(1))]) == 0


entries = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from(["refused", "assigned"]), st.integers(0, 3)),
    max_size=60,
)


@given(entries, st.integers(1, 20))
def test_the_log_equals_a_plain_list_of_the_entries_that_it_has_not_dropped(history, most):
    log, every = DecisionLog(most=most), []
    for number, (pod, outcome, nodes) in enumerate(history):
        made = refusal(number, pod=pod, nodes=nodes) if outcome == "refused" else assignment(number, pod=pod)
        every.append(log.add(made))
    found = log.find(limit=100)
    assert len(found) == min(len(history), most)
    assert [one for one in reversed(every) if one.id in ids(found)] == found
    for pod in ("a", "b", "c"):
        assert log.find(namespace="ml", pod=pod, limit=100) == [one for one in found if one.pod == pod]
    assert log.dropped == len(history) - len(found)


@given(entries)
def test_an_empty_log_counts_no_bytes(history):
    log = DecisionLog()
    for number, (pod, _, nodes) in enumerate(history):
        log.add(refusal(number, pod=pod, nodes=nodes))
    log.forget(1e9)
    assert (len(log), log.bytes) == (0, 0)
