"""The laws of the book of pods that wait."""

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.logic.cluster.builders import asks
from tests.logic.cluster.waiting import WaitingPods
from vgpuscope.logic.cluster.pending.reports import (
    _COUNTED_GPUS,
    _GENERAL,
    _LOST_GPUS,
    _VAGUE,
    MOST_EVENTS,
    MOST_NODES,
    MOST_SAID,
)
from vgpuscope.model.allocation import PodState, PodTimes, UnschedulableCondition
from vgpuscope.model.cluster_event import PodGone
from vgpuscope.model.pending import PodEvent
from vgpuscope.model.scheduling_codes import BY_CODE, Reason

NOW = 1_800_000_000.0
HOUR = 3600.0
MEMORY, TAINT, CPU = "SCHED_INSUFFICIENT_GPU_MEMORY", "SCHED_TAINT", "SCHED_INSUFFICIENT_CPU"
COUNT = "SCHED_INSUFFICIENT_GPU_COUNT"
LOCKED, ALLOCATE, VAGUE = "SCHED_NODE_LOCKED", "SCHED_ALLOCATE_FAILED", "SCHED_NO_NODE_FITS"


def reason(code=MEMORY, count=1, *nodes, **more):
    return Reason(code=code, nodes=nodes, node_count=count, **{"detail": code.lower(), **more})


def refusal(*said, why="Unschedulable", at=NOW - 100):
    return UnschedulableCondition(reason=why, message="as they said", at=at, said=said)


def pod(uid="a", *, created=NOW - 200, refused=None, times=None, **more):
    named = {"namespace": "ml", "name": f"train-{uid}", "asks": asks({"nvidia.com/gpu": 1})}
    return PodState(uid=uid, times=PodTimes(created=created, **(times or {})), refusal=refused, **(named | more))


def bound(uid="a", at=NOW - 10, **times):
    return pod(uid, node="n1", phase="Running", times={"scheduled": at, **times})


def event(*said, of="a", uid="e1", reason="FilteringFailed", count=1, last=NOW - 60, first=None, **more):
    return PodEvent(
        uid=uid,
        pod_uid=of,
        namespace="ml",
        pod=f"train-{of}",
        component=more.pop("component", "hami-scheduler"),
        reason=reason,
        said=said,
        count=count,
        first=last if first is None else first,
        last=last,
        **more,
    )


def book(*things, now=NOW, **bounds):
    made = WaitingPods(**bounds)
    for thing in things:
        tell(made, thing, now)
    return made


def tell(made, thing, now=NOW):
    if isinstance(thing, PodState):
        made.set_pod(thing, now)
    elif isinstance(thing, PodEvent):
        made.set_event(thing)
    else:
        made.drop_pod(thing, now)


def only(made):
    (found,) = made.pods(all=True)
    return found


def codes(found, *, current=None):
    return [one.reason.code for one in found.said if current is None or one.current is current]


# --- which pods -------------------------------------------------------------------------------------------------------


def test_a_pod_that_nobody_has_looked_at_waits_with_a_code_of_its_own():
    found = only(book(pod()))
    assert (found.outcome, found.code, found.attempts, found.said) == ("waiting", "SCHED_NOT_TRIED", 0, ())
    assert found.code in BY_CODE


def test_a_refused_pod_that_got_its_node_is_remembered_and_no_longer_waits():
    made = book(pod(refused=refusal(reason())), bound())
    assert made.pods() == []
    found = only(made)
    assert (found.outcome, found.node, found.ended, found.code) == ("scheduled", "n1", NOW - 10, MEMORY)


def test_a_pod_that_was_bound_at_once_is_nothing_to_tell():
    assert book(pod(), bound()).pods(all=True) == []
    assert book(bound()).pods(all=True) == []


def test_a_pod_that_was_deleted_while_it_waited_is_remembered():
    found = only(book(pod(refused=refusal(reason())), "a"))
    assert (found.outcome, found.ended, found.code) == ("deleted", NOW, MEMORY)
    assert only(book(pod(), pod(deleting=True), "a")).outcome == "deleted"


def test_a_pod_that_its_kubelet_refused_has_failed():
    refused = event(reason(ALLOCATE), reason="UnexpectedAdmissionError", component="kubelet")
    failed = pod(node="n1", phase="Failed", times={"scheduled": NOW - 60})
    for history in ((pod(), failed, refused), (pod(), refused, failed), (refused, failed), (failed, refused)):
        found = only(book(*history))
        assert (found.outcome, found.code, found.node) == ("failed", ALLOCATE, "n1")


def test_a_pod_that_ran_and_failed_later_was_scheduled():
    ran = pod(node="n1", phase="Failed", times={"scheduled": NOW - 60, "started": NOW - 50})
    assert only(book(pod(refused=refusal(reason())), ran)).outcome == "scheduled"


def test_a_plugin_that_says_so_on_the_pod_is_believed_without_events():
    before = pod(refused=refusal(reason(MEMORY, 9)))
    found = only(book(before, pod(node="n1", times={"scheduled": NOW - 5, "bind_phase": "failed"})))
    assert (found.outcome, found.code) == ("failed", ALLOCATE)
    assert found.said[0].component == "hami-device-plugin"
    assert found.said[0].reason.nodes == ("n1",)
    assert codes(found, current=False) == [MEMORY]


def test_a_pod_that_has_run_for_long_costs_nothing():
    assert book(bound(at=NOW - 2 * HOUR)).size == 0


def test_waiting_pods_come_oldest_first_and_then_the_others_newest_first():
    made = book(
        pod("young", created=NOW - 1),
        pod("old", created=NOW - 99),
        pod("x", refused=refusal(reason())),
        pod("y", refused=refusal(reason())),
        bound("x", at=NOW - 50),
        bound("y", at=NOW - 5),
        pod("unborn", created=None),
    )
    assert [found.pod_uid for found in made.pods()] == ["old", "young", "unborn"]
    assert [found.pod_uid for found in made.pods(all=True)] == ["old", "young", "unborn", "y", "x"]


def test_pods_are_found_by_namespace_and_name():
    made = book(pod("a"), pod("b", namespace="web"))
    assert [found.pod_uid for found in made.pods(namespace="web")] == ["b"]
    assert [found.pod_uid for found in made.pods(name="train-a")] == ["a"]
    assert made.pods(namespace="web", name="train-a") == []


# --- what is said -----------------------------------------------------------------------------------------------------


def test_the_condition_alone_explains_a_pod():
    found = only(book(pod(refused=refusal(reason(TAINT, 7), reason(MEMORY, 2)))))
    assert (found.code, found.attempts) == (MEMORY, 1)
    assert codes(found) == [MEMORY, TAINT]
    assert {one.component for one in found.said} == {"default-scheduler"}


def test_gates_are_no_attempt():
    assert only(book(pod(refused=refusal(reason("SCHED_GATED", None), why="SchedulingGated")))).attempts == 0


@pytest.mark.parametrize(
    ("said", "main"),
    [
        ([reason(TAINT, 90), reason(MEMORY, 1)], MEMORY),
        ([reason(MEMORY, 1), reason("SCHED_DEVICE_TYPE_MISMATCH", 2)], "SCHED_DEVICE_TYPE_MISMATCH"),
        ([reason("SCHED_DEVICE_TYPE_MISMATCH", 1, cards="1/4"), reason(MEMORY, 1, cards="3/4")], MEMORY),
        ([reason(COUNT, 90), reason(MEMORY, 1)], MEMORY),
        ([reason(COUNT, 1), reason(CPU, 9)], COUNT),
        ([reason(VAGUE, 9), reason(TAINT, 1)], TAINT),
        ([reason(MEMORY, 9), reason(LOCKED, 1)], LOCKED),
        ([reason(MEMORY, None, "n1", "n2"), reason("SCHED_SLOTS_EXHAUSTED", 1)], MEMORY),
        ([reason("SCHED_OF_TOMORROW", 9), reason(TAINT, 1)], TAINT),
        ([reason("SCHED_DEVICE_CORDONED", 3), reason(MEMORY, 1)], MEMORY),
        ([reason("SCHED_DEVICE_CORDONED", 3, "n1"), reason(COUNT, 1, "n2")], COUNT),
        ([reason(COUNT, 9, "n1", detail="NodeInsufficientDevice"), reason(MEMORY, 1)], MEMORY),
    ],
)
def test_what_is_said_of_gpus_counts_more_than_what_is_said_of_nodes(said, main):
    assert only(book(pod(), event(*said))).code == main
    assert only(book(pod(refused=refusal(*said)))).code == main


def test_every_code_that_is_weighed_exists():
    assert BY_CODE.keys() >= _GENERAL | _VAGUE | _LOST_GPUS | {_COUNTED_GPUS}


def test_a_pod_of_which_only_its_annotation_says_that_binding_failed_was_tried():
    assert only(book(pod(times={"bind_phase": "failed"}))).code == "SCHED_BIND_FAILED"
    assert only(book(pod())).code == "SCHED_NOT_TRIED"


def test_what_the_latest_attempt_no_longer_says_is_history():
    made = book(pod(), event(reason(MEMORY, 5), last=NOW - 300), event(reason(CPU, 1), uid="e2", last=NOW - 60))
    found = only(made)
    assert found.code == CPU
    assert (codes(found, current=True), codes(found, current=False)) == ([CPU], [MEMORY])


def test_events_of_one_attempt_belong_together():
    made = book(pod(), event(reason(TAINT, 5), last=NOW - 61), event(reason(MEMORY, 1), uid="e2", last=NOW - 60))
    assert codes(only(made), current=True) == [MEMORY, TAINT]


def test_the_condition_is_newer_than_the_text_of_a_series():
    series = event(reason(MEMORY, 2), reason="FailedScheduling", component="default-scheduler", count=9, last=NOW)
    found = only(book(pod(refused=refusal(reason(CPU, 2))), series))
    assert (found.code, found.attempts) == (CPU, 9)
    assert codes(found, current=False) == [MEMORY]


def test_the_extenders_own_words_stand_beside_the_condition():
    found = only(book(pod(refused=refusal(reason(VAGUE, 2))), event(reason(MEMORY, 2, "n1", "n2"))))
    assert codes(found, current=True) == [MEMORY, VAGUE]
    assert found.said[0].reason.nodes == ("n1", "n2")


def test_what_is_said_now_is_not_told_as_history_too_whoever_repeats_it():
    """HAMi names its nodes; the kube-scheduler repeats HAMi's words with counts, under another component."""
    named, counted = reason(MEMORY, 2, "gpu-1", "gpu-2"), reason(MEMORY, 2)
    found = only(
        book(
            pod(refused=refusal(counted, reason(TAINT, 3)), scheduler="hami-scheduler"),
            event(named, uid="h", count=7, last=NOW - 20),
            event(
                counted, reason(TAINT, 3), uid="k", reason="FailedScheduling", component="default-scheduler", count=9
            ),
            event(reason(CPU), uid="old", last=NOW - 500),
        )
    )
    assert codes(found, current=True) == [MEMORY, TAINT]
    assert codes(found, current=False) == [CPU]
    memory, taint = found.said[:2]
    assert (memory.reason.nodes, memory.component, memory.count, memory.last) == (
        ("gpu-1", "gpu-2"),
        "hami-scheduler",
        9,
        NOW - 20,
    )
    assert (taint.count, taint.last) == (9, NOW - 60)  # the condition knows neither


def test_a_condition_whose_words_change_leaves_the_old_ones_in_history():
    made = book(pod(refused=refusal(reason(MEMORY))))
    made.set_pod(pod(refused=refusal(reason(CPU))), NOW + 50)
    made.set_pod(pod(refused=refusal(reason(CPU))), NOW + 90)
    found = only(made)
    assert (codes(found, current=True), codes(found, current=False)) == ([CPU], [MEMORY])
    assert (found.said[0].first, found.said[1].first) == (NOW + 50, NOW - 100)


def test_counts_add_up_over_objects_and_not_over_repetitions():
    first = event(reason(), count=3, last=NOW - 90)
    again = structs.replace(first, count=5, last=NOW - 80)
    found = only(book(pod(), first, again, first, again, event(reason(), uid="e2", count=2)))
    (said,) = found.said
    assert (said.count, said.first, said.last, found.attempts) == (7, NOW - 90, NOW - 60, 7)


def test_two_who_speak_of_the_same_attempts_are_not_added_up():
    words = [event(reason(), reason=why, uid=why, count=4) for why in ("FilteringFailed", "FailedScheduling")]
    assert only(book(pod(), *words)).said[0].count == 4


def test_a_scheduler_and_its_extender_under_one_name_report_the_same_attempts():
    told = {"instance": "hami-scheduler-node-1", "uid": "kube"}, {"instance": "vgpuscope-extender-0", "uid": "ours"}
    said = [
        event(reason(detail=one["uid"]), reason="FailedScheduling", count=4 - n, **one) for n, one in enumerate(told)
    ]
    found = only(book(pod(), *said))
    assert (found.attempts, sorted(one.count for one in found.said)) == (4, [3, 4])
    later = event(reason(detail="kube"), reason="FailedScheduling", uid="later", instance="hami-scheduler-node-1")
    assert only(book(pod(), *said, later)).attempts == 5


def test_a_pod_whose_binding_failed_had_an_attempt_although_no_event_of_it_is_left():
    found = only(book(pod(times={"bind_phase": "failed"})))
    assert (found.code, found.attempts) == ("SCHED_BIND_FAILED", 1)


def test_several_events_of_one_attempt_are_one_attempt():
    said = [event(reason(code), uid=code, count=4) for code in (MEMORY, TAINT, VAGUE)]
    assert only(book(pod(), *said)).attempts == 4


def test_a_combined_event_counts_each_of_its_texts_once():
    texts = [event(reason(detail=str(n)), count=10 + n, last=NOW - 9 + n, combined=True) for n in range(3)]
    found = only(book(pod(), *texts, *texts))
    assert [one.count for one in found.said] == [1, 1, 1]
    assert found.attempts == 3


def test_one_reason_said_of_nodes_in_several_ways_is_one():
    found = only(book(pod(), event(reason(MEMORY, 2, "a", "b", cards="2/2"), reason(MEMORY, 1, "c", cards="1/2"))))
    (said,) = found.said
    assert (said.reason.nodes, said.reason.node_count, said.reason.cards) == (("a", "b", "c"), 3, "")


def test_what_went_well_says_nothing_against_a_pod():
    made = book(pod(), event(reason="FilteringSucceed"))
    assert only(made).code == "SCHED_NOT_TRIED"
    assert book(event(reason="Scheduled")).size == 0


# --- any order --------------------------------------------------------------------------------------------------------

said_of = st.lists(
    st.builds(
        Reason,
        code=st.sampled_from((MEMORY, TAINT, LOCKED, VAGUE)),
        nodes=st.lists(st.sampled_from(("n1", "n2")), max_size=2, unique=True).map(tuple),
        node_count=st.none() | st.integers(0, 3),
        cards=st.sampled_from(("", "1/2")),
        detail=st.sampled_from(("x", "y")),
    ),
    max_size=2,
).map(tuple)
times = st.none() | st.integers(0, 40).map(lambda n: NOW - n)
uids = st.sampled_from(("a", "b"))
spoken = st.builds(
    PodEvent,
    uid=st.sampled_from(("e1", "e2", "e3")),
    pod_uid=uids,
    namespace=st.just("ml"),
    pod=st.just("train"),
    component=st.sampled_from(("hami-scheduler", "default-scheduler", "kubelet")),
    reason=st.sampled_from(("FilteringFailed", "FailedScheduling", "BindingFailed")),
    said=said_of,
    combined=st.booleans(),
    count=st.integers(1, 9),
    first=times,
    last=times,
)


@st.composite
def one_event(draw):
    """One event as it counts upwards: its reasons stay, unless it is a combined one."""
    first, versions = draw(spoken), []
    for step in range(draw(st.integers(1, 3))):
        text = draw(said_of) if first.combined else first.said
        last = None if first.last is None else first.last + step
        versions.append(structs.replace(first, said=text, count=first.count + step, last=last))
    return versions


@st.composite
def one_life(draw, uid):
    """A pod as its watch tells it, in order."""
    refusals = draw(st.lists(said_of, max_size=3))
    states = [pod(uid), *(pod(uid, refused=refusal(*said)) for said in refusals)]
    end = draw(st.sampled_from(("waits", "waits", "waits", "bound", "failed", "deleted")))
    if end == "bound":
        states.append(bound(uid))
    if end == "failed":
        states.append(pod(uid, node="n1", phase="Failed", times={"scheduled": NOW - 3}))
    return [*states, uid] if end == "deleted" else states


@st.composite
def histories(draw):
    """The same things twice: in order, and mixed, with what is repeated; the watch of pods keeps its own order."""
    lives = [draw(one_life(uid)) for uid in ("a", "b")]
    events = {made[0].uid: made for made in draw(st.lists(one_event(), max_size=4))}
    versions = [version for made in events.values() for version in made]
    orderly = [*(state for life in lives for state in life), *versions]
    mixed = draw(st.permutations([*versions, *draw(st.lists(st.sampled_from(versions)) if versions else st.just([]))]))
    for life in lives:
        at = 0
        for state in life:
            at = draw(st.integers(at, len(mixed)))
            mixed.insert(at, state)
            at += 1
            if isinstance(state, PodState) and draw(st.booleans()):
                mixed.insert(at, state)
                at += 1
    return orderly, mixed


@given(histories())
def test_any_order_and_repetition_ends_in_the_same_book(both):
    orderly, mixed = (book(*things) for things in both)
    assert mixed.pods() == orderly.pods()
    assert mixed.counts(NOW) == orderly.counts(NOW)
    assert mixed.pods(all=True) == orderly.pods(all=True)


def test_two_forms_of_a_reason_from_the_same_second_end_in_one_of_them_whatever_the_order():
    forms = [event(reason(MEMORY, 1, node), uid=node) for node in ("n1", "n2")]
    assert book(pod(), *forms).pods() == book(pod(), *reversed(forms)).pods()


# --- how long ---------------------------------------------------------------------------------------------------------


def pass_hours(made, hours, start=NOW):
    for hour in range(1, hours + 1):
        made.pass_time(start + hour * HOUR)


def test_what_ended_is_kept_for_a_day_and_no_longer():
    made = book(pod(refused=refusal(reason())), "a")
    pass_hours(made, 24)
    assert only(made).outcome == "deleted"
    pass_hours(made, 1, start=NOW + 24 * HOUR)
    assert made.size == 0


def test_what_still_waits_is_never_forgotten():
    made = book(pod(), event(reason()))
    pass_hours(made, 100)
    assert only(made).code == MEMORY


def test_a_clock_that_jumps_ahead_costs_an_hour_of_memory_and_one_that_jumps_back_none():
    made = book(pod(refused=refusal(reason())), "a")
    made.pass_time(NOW + 365 * 24 * HOUR)
    made.pass_time(NOW - 365 * 24 * HOUR)
    assert only(made).code == MEMORY


def test_events_of_pods_that_never_come_are_forgotten_with_their_objects():
    made = book(event(reason(), of="nobody"), bound("b"))
    assert made.size == 2
    pass_hours(made, 2)
    assert made.size == 0


def test_an_event_that_comes_before_its_pod_is_not_lost():
    assert only(book(event(reason()), pod())).code == MEMORY


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_the_oldest_that_ended_go_first_and_those_that_wait_never():
    made = WaitingPods(most=3)
    for n in range(5):
        tell(made, pod(f"past-{n}", refused=refusal(reason())))
        tell(made, f"past-{n}", NOW + n)
    assert [found.pod_uid for found in made.pods(all=True)] == ["past-4", "past-3", "past-2"]
    for n in range(5):
        tell(made, pod(f"now-{n}", created=NOW + n))
        tell(made, event(reason(), of=f"now-{n}"))
    assert [found.pod_uid for found in made.pods(all=True)] == [f"now-{n}" for n in range(5)]
    assert made.size == 5


def test_beyond_the_bound_a_waiting_pod_has_its_condition_and_no_history():
    made = book(pod("a"), pod("b"), pod("c", refused=refusal(reason(TAINT))), event(reason(), of="c"), most=2)
    (found,) = made.pods(name="train-c")
    assert (found.code, codes(found), found.said_cut) == (TAINT, [TAINT], 1)


def test_strangers_and_quickly_bound_pods_are_bounded():
    made = WaitingPods(most=10)
    for n in range(100):
        tell(made, event(reason(), of=f"stranger-{n}"))
        tell(made, bound(f"quick-{n}"))
    assert made.size == 20


def test_what_is_kept_of_one_pod_is_bounded_and_what_is_cut_is_counted():
    made = book(pod())
    for n in range(500):
        nodes = [f"node-{n}-{m}" for m in range(200)]
        tell(made, event(reason(MEMORY, 200, *nodes, detail=f"{n:03}"), uid=f"e{n}", last=NOW - 500 + n))
    found = only(made)
    assert len(found.said) == MOST_SAID
    assert found.said_cut == 500 - MOST_SAID
    assert {len(one.reason.nodes) for one in found.said} == {MOST_NODES}
    assert found.said[0].reason.detail == "499"
    assert (found.said[0].reason.node_count, found.attempts) == (200, 500)


def test_events_beyond_those_told_apart_still_count():
    made = book(pod(), *(event(reason(), uid=f"e{n}", last=NOW - 200 + n) for n in range(2 * MOST_EVENTS)))
    found = only(made)
    assert (found.said[0].count, found.attempts) == (2 * MOST_EVENTS, 2 * MOST_EVENTS)
    assert found.said[0].first == NOW - 200


def test_a_message_is_not_kept_when_the_waiting_is_over():
    long = structs.replace(refusal(reason()), message="x" * 8192)
    made = book(pod(refused=long), "a")
    (wait,) = made._past.values()
    assert wait.record is not None
    assert wait.record.refusal is wait.refusal
    assert sys.getsizeof(wait.refusal.message) < 100


@pytest.mark.parametrize("before", [(), (pod(refused=refusal(reason())),), (event(reason()),)])
def test_a_bound_pod_is_kept_by_the_state_until_it_is_deleted_and_shown_alike_after(before):
    made = book(*before, bound())
    wait: Any = next(iter([*made._past.values(), *made._bound.values()]))
    assert wait.record is None
    made.set_pod(structs.replace(bound(), owner="Job/train"), NOW)
    shown = made.pods(all=True)
    made.drop_pod("a", NOW)
    assert wait.record is not None
    assert (made.pods(all=True), "a" in made.state.pods) == (shown, False)
    assert all(one.owner == "Job/train" for one in shown)
    made.set_pod(bound(), NOW)  # listed again after all
    assert wait.record is None


def test_a_pod_that_is_gone_without_notice_is_left_out():
    made = book(pod(), pod("b"))
    made.state.apply(PodGone("a"))
    assert [one.pod_uid for one in made.pods()] == ["b"]
    assert sum(one.pods for one in made.counts(NOW)) == 1


def test_a_waiting_pod_is_kept_by_the_state_alone():
    made = book(pod(refused=refusal(reason())))
    (wait,) = made._waiting.values()
    assert wait.record is None
    tell(made, bound())
    assert made.pods() == []


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_pods_are_counted_by_namespace_and_code_with_the_oldest_age():
    made = book(
        pod("a", created=NOW - 50, refused=refusal(reason())),
        pod("b", created=NOW - 70, refused=refusal(reason())),
        pod("c", namespace="web", created=NOW + 10),
        pod("d", namespace="lab", created=None),
        pod("e", refused=refusal(reason())),
        bound("e"),
    )
    assert [(one.namespace, one.code, one.pods, one.oldest) for one in made.counts(NOW)] == [
        ("lab", "SCHED_NOT_TRIED", 1, None),
        ("ml", MEMORY, 2, 70.0),
        ("web", "SCHED_NOT_TRIED", 1, 0.0),
    ]


def test_beyond_so_many_pairs_the_smallest_are_told_by_code_alone():
    names = ("big", "big", "x", "y", "z")
    made = book(*(pod(str(n), namespace=name, created=NOW - n) for n, name in enumerate(names)))
    counts = [(one.namespace, one.pods, one.oldest) for one in made.counts(NOW, most=2)]
    assert counts == [("big", 2, 1.0), ("x", 1, 2.0), ("", 2, 4.0)]


def test_a_code_that_changes_moves_its_pod():
    made = book(pod())
    assert [one.code for one in made.counts(NOW)] == ["SCHED_NOT_TRIED"]
    tell(made, event(reason()))
    assert [one.code for one in made.counts(NOW)] == [MEMORY]
    tell(made, bound())
    assert made.counts(NOW) == []
