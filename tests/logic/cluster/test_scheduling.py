"""Everything that schedulers do is counted once, however it comes to be seen."""

import gc
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.cputime import seconds
from vgpuscope.logic.cluster import scheduling
from vgpuscope.logic.cluster.scheduling import MOST_SCHEDULERS, SchedulingTimes
from vgpuscope.model.allocation import PodState, PodTimes, UnschedulableCondition
from vgpuscope.model.pending import PodEvent
from vgpuscope.model.scheduling import BOUNDS, STEPS
from vgpuscope.model.scheduling_codes import CODES, Reason

MEMORY, LOCKED, ALLOCATE = "SCHED_INSUFFICIENT_GPU_MEMORY", "SCHED_NODE_LOCKED", "SCHED_ALLOCATE_FAILED"


def pod(uid="u", *, scheduler="hami-scheduler", refused=None, created=1000.0, node=None, **times):
    bound = "n1" if times.get("scheduled") is not None else ""
    return PodState(
        uid=uid,
        namespace="ml",
        name=uid,
        scheduler=scheduler,
        node=bound if node is None else node,
        times=PodTimes(created=created, **times),
        refusal=None if refused is None else UnschedulableCondition(reason="Unschedulable", at=refused),
    )


def event(*codes, uid="e", of="u", reason="FailedScheduling", instance="", count=1, last=None):
    said = tuple(Reason(code=code) for code in codes)
    who = {"pod_uid": of, "namespace": "ml", "pod": of, "component": "x", "instance": instance}
    return PodEvent(uid=uid, reason=reason, said=said, count=count, last=last, **who)


def book(*seen, begin=(), begin_events=()):
    """What a book says after these pods and events, in this order."""
    made = SchedulingTimes()
    made.begin(begin)
    made.begin_events(begin_events)
    show(made, seen)
    return made


def show(made, seen):
    for one in seen:
        made.set_pod(one) if isinstance(one, PodState) else made.set_event(one)


def took(made, scheduler="hami-scheduler"):
    """For each stage, how often and how long altogether."""
    one = next(one for one in made.result().schedulers if one.scheduler == scheduler)
    return {step: (h.count, h.sum) for step, h in one.steps.items() if h.count}


def refusals(made):
    return {code: n for one in made.result().schedulers for code, n in one.refusals.items()}


# ── the life of one pod: filtered and bound once or more often, each attempt but the last failing ────────────────────
LATE = st.integers(1, 90)


@st.composite
def lives(draw):
    """The states of one pod, oldest first. HAMi leaves the stamps of an attempt until the next one writes its own."""
    at, stamps, states = 1000.0, {}, [pod()]
    for _ in range(draw(st.integers(1, 3))):
        for stamp in ("filtered", "bind_begun"):
            at += draw(LATE)
            stamps[stamp] = at
            states.append(pod(**stamps))
    for stamp in ("scheduled", "started"):
        at += draw(LATE)
        stamps[stamp] = at
        states.append(pod(**stamps))
    return states


@st.composite
def sights(draw):
    """A life with what was seen of it: some states not, some twice, all in order."""
    states = draw(lives())
    picks = sorted(draw(st.lists(st.integers(0, len(states) - 1), max_size=12)))
    return states, [states[i] for i in picks]


def ends(states):
    """The ends of stages that these states show."""
    return {
        "filter": {s.times.filtered for s in states} - {None},
        "lock": {
            s.times.bind_begun for s in states if s.times.bind_begun and s.times.bind_begun >= s.times.filtered - 1
        },
        **{step: {s.times.scheduled for s in states} - {None} for step in ("bind", "schedule")},
        "start": {s.times.started for s in states} - {None},
    }


@given(sights())
def test_each_stage_that_was_seen_to_end_is_counted_once(life):
    _, seen = life
    counts = {step: n for step, (n, _) in took(book(*seen)).items()} if seen else {}
    assert counts == {step: len(found) for step, found in ends(seen).items() if found}


@given(lives(), st.randoms(use_true_random=False), st.integers(1, 3))
def test_no_order_and_no_repetition_counts_a_stage_twice(states, random, times):
    seen = states * times
    random.shuffle(seen)
    counts = took(book(*seen))
    assert all(counts[step][0] <= len(found) for step, found in ends(states).items() if step in counts)
    assert counts["schedule"] == took(book(*states))["schedule"]
    assert book(*seen).result().bound == 1


@given(lives())
def test_stages_that_pass_unseen_are_counted_from_their_times(states):
    last = states[-1]
    at = last.times
    expected = {
        "filter": at.filtered - at.created,
        "lock": at.bind_begun - at.filtered,
        "bind": at.scheduled - at.bind_begun,
        "schedule": at.scheduled - at.created,
        "start": at.started - at.scheduled,
    }
    assert took(book(last)) == {step: (1, seconds) for step, seconds in expected.items()}


@given(sights(), st.integers(0, 12))
def test_two_exporters_one_after_the_other_count_as_much_as_one(life, cut):
    _, seen = life
    whole, first = book(*seen).result(), book(*seen[:cut]).result()
    second = book(*seen[cut:], begin=seen[:cut][-1:]).result()
    assert first.bound + second.bound == whole.bound
    for name in ("filtering", "binding"):
        parts = [getattr(first, name), getattr(second, name)]
        assert sum(h.count for h in parts) == getattr(whole, name).count
        assert sum(h.sum for h in parts) == getattr(whole, name).sum


@given(lives())
def test_what_the_first_list_shows_as_over_is_never_counted(states):
    for state in states:
        result = book(*[state] * 2, begin=[state]).result()
        assert (result.filtering.count, result.binding.count, result.bound, result.failed) == (0, 0, 0, 0)
        assert not any(h.count for one in result.schedulers for h in one.steps.values())


def test_a_pod_between_two_stages_at_the_first_list_has_the_later_ones_counted():
    between = pod(filtered=1010.0, bind_begun=1012.0)
    done = pod(filtered=1010.0, bind_begun=1012.0, scheduled=1013.0, started=1020.0)
    assert took(book(done, begin=[between])) == {"bind": (1, 1.0), "schedule": (1, 13.0), "start": (1, 7.0)}


# ── what a stage is ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_waiting_for_the_lock_is_part_of_the_handbooks_binding():
    result = book(pod(filtered=1010.0, bind_begun=1040.0, scheduled=1041.0)).result()
    assert (result.filtering.sum, result.binding.sum) == (10.0, 31.0)


def test_a_pod_that_is_filtered_again_is_a_new_attempt_that_begins_with_the_old():
    first, again = pod(filtered=1010.0, bind_begun=1012.0), pod(filtered=1030.0, bind_begun=1012.0)
    assert took(book(first, again)) == {"filter": (2, 10.0 + 18.0), "lock": (1, 2.0)}


@pytest.mark.parametrize("order", [0, 1])
def test_filtering_begins_with_the_last_refusal_that_was_before_it(order):
    refused = [event(MEMORY, last=1500.0, uid="e1"), event(LOCKED, last=1520.0, uid="e2")]
    chosen = pod(filtered=1510.0)
    seen = [pod(), *refused, chosen] if order else [*refused, pod(refused=1100.0), chosen]
    assert took(book(*seen))["filter"] == (1, 10.0)


def test_the_pods_own_word_on_its_refusal_counts_where_there_are_no_events():
    assert took(book(pod(refused=1600.0, filtered=1604.0)))["filter"] == (1, 4.0)


@pytest.mark.parametrize("pods_first", [True, False])
def test_a_refusal_known_from_the_first_lists_counts_too(pods_first):
    made = SchedulingTimes()
    lists = [lambda: made.begin([pod()]), lambda: made.begin_events([event(MEMORY, last=1700.0)])]
    for begin in lists if pods_first else reversed(lists):
        begin()
    made.set_pod(pod(filtered=1702.0))
    assert (took(made)["filter"], refusals(made)) == ((1, 2.0), {})


def test_other_schedulers_than_hami_have_two_stages():
    made = book(pod(scheduler="volcano", scheduled=1003.0, started=1008.0))
    assert took(made, "volcano") == {"schedule": (1, 3.0), "start": (1, 5.0)}
    assert [step for one in made.result().schedulers for step in one.steps] == ["schedule", "start"]
    assert made.result().binding.count == 0


def test_a_scheduler_has_its_stages_with_nothing_in_them_before_the_first_is_counted():
    result = book(begin=[pod(filtered=1001.0)]).result()
    assert {step: h.count for one in result.schedulers for step, h in one.steps.items()} == dict.fromkeys(STEPS, 0)


# ── times that cannot be ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_second_in_the_wrong_order_is_no_time_at_all():
    made = book(pod(filtered=999.0, bind_begun=999.0, scheduled=998.0, started=997.0, created=999.0))
    assert took(made) == dict.fromkeys(STEPS, (1, 0.0))
    assert made.result().skipped == 0


def test_what_ends_long_before_it_begins_is_skipped_and_the_rest_is_counted():
    made = book(pod(filtered=1010.0, bind_begun=1012.0, scheduled=1020.0, started=1010.0))
    assert set(took(made)) == {"filter", "lock", "bind", "schedule"}
    assert made.result().skipped == 1


def test_a_time_that_somebody_made_up_spoils_no_sum():
    made = book(pod(filtered=999999999999.0), pod(filtered=999999999999.0, scheduled=1003.0))
    assert took(made) == {"schedule": (1, 3.0)}
    assert made.result().skipped == 2


def test_what_a_pod_inherited_from_the_one_it_was_copied_from_is_not_its_own():
    copied = {"filtered": 500.0, "bind_begun": 502.0, "bind_phase": "failed"}
    real = {"filtered": 1004.0, "bind_begun": 1004.0, "scheduled": 1005.0}
    made = book(pod(**copied), pod(**{**copied, "filtered": 1004.0}), pod(**real), pod(**real, bind_phase="failed"))
    assert took(made) == {"filter": (1, 4.0), "lock": (1, 0.0), "bind": (1, 1.0), "schedule": (1, 5.0)}
    assert (made.result().bound, made.result().failed) == (1, 1)


def test_a_copy_that_another_way_led_to_its_node_has_no_stage_of_hamis():
    made = book(pod(filtered=500.0, bind_begun=502.0, bind_phase="failed", scheduled=1003.0))
    assert (took(made), made.result().binding.count, made.result().failed) == ({"schedule": (1, 3.0)}, 0, 0)


def test_the_last_attempts_lock_is_not_mistaken_for_this_ones():
    made = book(pod(filtered=1030.0, bind_begun=1012.0))
    assert (took(made), made.result().skipped) == ({"filter": (1, 30.0 - 12.0)}, 0)


# ── failures ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.lists(st.integers(1, 20), max_size=8), st.integers(0, 8))
def test_an_event_counts_as_often_as_it_happened_and_a_restart_counts_no_more(counts, cut):
    events = [event(MEMORY, LOCKED, count=n) for n in counts]
    whole = book(pod(), *events)
    first = book(pod(), *events[:cut])
    noted = [event(MEMORY, LOCKED, count=max(counts[:cut]))] if counts[:cut] else []
    second = book(*events[cut:], begin=[pod()], begin_events=noted)
    assert whole.result().failed == max(counts, default=0)
    assert first.result().failed + second.result().failed == whole.result().failed
    assert refusals(whole) == (dict.fromkeys((LOCKED, MEMORY), max(counts)) if counts else {})


def test_a_new_event_of_the_same_kind_adds_to_the_one_that_expired():
    made = book(pod(), event(LOCKED, count=3))
    made.drop_event("e")
    made.set_event(event(LOCKED, uid="e2", count=2))
    assert made.result().failed == 5


@given(st.lists(st.tuples(st.sampled_from("HK"), st.integers(1, 9)), max_size=12))
def test_of_two_who_tell_of_the_same_attempts_the_one_who_tells_more_counts(told):
    words = {"H": ("BindingFailed", LOCKED), "K": ("FailedScheduling", "SCHED_BIND_FAILED")}
    made = book(pod(), *(event(words[who][1], uid=who, reason=words[who][0], count=n) for who, n in told))
    highest = [max((n for one, n in told if one == who), default=0) for who in "HK"]
    assert made.result().failed == max(highest)
    assert sum(refusals(made).values()) == sum(highest)  # two words: each is one code's


def test_attempts_that_a_scheduler_and_its_extender_report_under_one_name_count_once():
    told = [event(MEMORY, uid=who, instance=who, count=n) for who, n in (("kube", 4), ("extender", 3))]
    assert refusals(book(pod(), *told)) == {MEMORY: 4}


def test_reasons_of_one_attempt_that_share_a_code_are_one_failure():
    assert refusals(book(pod(), event(MEMORY, MEMORY, count=2))) == {MEMORY: 2}


def test_not_to_fit_is_a_refusal_and_no_failure_to_bind():
    made = book(pod(), event(MEMORY))
    assert (made.result().failed, refusals(made)) == (0, {MEMORY: 1})


@pytest.mark.parametrize("order", [1, -1])
def test_an_allocation_that_both_the_pod_and_the_kubelet_report_failed_once(order):
    failed = pod(filtered=1001.0, bind_begun=1001.0, scheduled=1002.0, bind_phase="failed")
    seen = [failed, event(ALLOCATE, reason="UnexpectedAdmissionError")][::order]
    made = book(pod(), *seen, failed)
    assert (made.result().bound, made.result().failed, refusals(made)) == (1, 1, {ALLOCATE: 1})


def test_events_that_come_before_their_pod_count_when_it_comes():
    made = book(event(MEMORY, count=2), event(MEMORY, count=3), event(MEMORY, count=1), pod())
    assert refusals(made) == {MEMORY: 3}


@given(lives(), st.lists(st.integers(1, 9), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_which_of_the_two_watches_is_ahead_makes_no_difference(states, counts, random):
    pods, events, seen = list(states), [event(MEMORY, LOCKED, count=n) for n in counts], []
    while pods or events:
        seen.append(random.choice([queue for queue in (pods, events) if queue]).pop(0))
    made = book(*seen)
    assert (made.result().failed, refusals(made)) == (max(counts), dict.fromkeys((MEMORY, LOCKED), max(counts)))


def test_events_of_pods_without_devices_count_nothing():
    assert book(event(LOCKED, of="plain")).result().failed == 0


def test_a_code_that_is_in_no_table_makes_no_label():
    assert refusals(book(pod(), event("SCHED_MADE_UP"))) == {"SCHED_OTHER": 1}


# ── bounds ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_tenants_cannot_make_more_schedulers_than_there_may_be():
    names = [f"mine-{i}" for i in range(100)]
    made = book(*(pod(name, scheduler=name, scheduled=1001.0) for name in [*names, "hami-scheduler", "volcano"]))
    shown = {one.scheduler: one.bound for one in made.result().schedulers}
    assert len(shown) <= MOST_SCHEDULERS
    assert sum(shown.values()) == 102
    assert (shown["hami-scheduler"], shown["volcano"]) == (1, 1)


def size(made):
    early = made._early
    return len(made._pods) + len(made._events) + len(early._events) + len(early._of)


def test_what_is_gone_leaves_nothing_behind():
    made = SchedulingTimes()
    for i in range(50):
        show(made, [event(MEMORY, uid=f"before{i}", of=f"p{i}"), pod(f"p{i}", scheduled=1001.0)])
        show(made, [event(MEMORY, uid=f"e{i}", of=f"p{i}"), event(MEMORY, uid=f"x{i}", of="plain")])
        made.drop_pod(f"p{i}")
        for uid in (f"before{i}", f"e{i}", f"x{i}", "unknown"):
            made.drop_event(uid)
    assert size(made) == 0


def test_events_of_unknown_pods_are_bounded(monkeypatch):
    monkeypatch.setattr(scheduling, "_EARLY", 10)
    made = book(*(event(MEMORY, uid=f"e{i}", of=f"p{i}") for i in range(100)))
    assert size(made) == 20
    show(made, [pod("p0"), pod("p99")])
    assert refusals(made) == {MEMORY: 1}


def test_who_invents_reasons_for_events_gets_no_more_memory():
    made = book(pod(), *(event(MEMORY, uid=f"e{i}", reason=f"r{i}") for i in range(1000)))
    assert len(made._pods["u"].reports) <= 64 + len(CODES)


def test_refusals_are_remembered_for_as_long_as_a_pod_waits_and_only_the_latest():
    made = book(pod(), *(event(MEMORY, count=n, last=1000.0 + n) for n in range(1, 100)))
    assert len(made._pods["u"].refused) < 10
    show(made, [pod(scheduled=2000.0), event(MEMORY, count=100, last=1999.0)])
    assert made._pods["u"].refused == ()


def test_bounds_are_whole_seconds_up_to_an_hour():
    assert all(bound == int(bound) for bound in BOUNDS)
    assert (BOUNDS[0], BOUNDS[-1]) == (1.0, 3600.0)


# ── cost ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
MANY = 5000


def running(i):
    return pod(f"uid-{i}", filtered=1001.0 + i, bind_begun=1002.0 + i, scheduled=1003.0 + i, started=1009.0 + i)


def test_a_pod_of_which_nothing_is_new_costs_less_than_5_microseconds():
    pods = [running(i) for i in range(MANY)]
    made = book(*pods)
    again = [replace(one, phase="Running") for one in pods]
    assert seconds(lambda: show_pods(made, again)) / MANY < 5e-6


def show_pods(made, pods):
    for one in pods:
        made.set_pod(one)


def test_a_pod_costs_less_than_300_bytes_beside_itself():
    pods = [running(i) for i in range(MANY)]
    gc.collect()
    tracemalloc.start()
    try:
        made = book(*pods)
        assert tracemalloc.get_traced_memory()[0] / MANY < 300
    finally:
        tracemalloc.stop()
    assert made.result().bound == MANY
