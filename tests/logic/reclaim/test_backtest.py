"""A back-test against an oracle that knows the labels: who was idle when, and therefore what has to be taken back.

The oracle is written anew, for one workload at a time, without the machine. It follows the rules of the docs: N windows
in a row that do not overlap, the grace period, an idle window at the moment of the action.
"""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.logic.reclaim.test_machine import gpu, tenant
from vgpuscope.logic.reclaim.backtest import KnownTime, Replay, step_of
from vgpuscope.logic.reclaim.parts import parts
from vgpuscope.model.analysis import Analysis, GpuUse, Stat, TenantUse, Window
from vgpuscope.model.reclaim import OpenHours, Policy

START = 1_790_000_000 // 86400 * 86400.0  # midnight
WINDOW, EVERY = 600.0, 300.0
POLICY = Policy(
    confirmations=2,
    grace=900.0,
    min_pod_age=1200.0,
    max_fleet_share=1.0,
    max_per_hour=10**6,
    max_per_namespace=10**6,
    breaker_least=10**6,
)
FREE = [gpu(1000 + number) for number in range(40)]  # so that max_fleet_share is no limit
VERDICTS = {"I": "idle", "H": "idle", "B": "in_use", "U": "unknown"}


def at(turn: int) -> float:
    return START + WINDOW + turn * EVERY


def one_gpu(number: int, label: str) -> GpuUse:
    """I idle, H idle and holding memory, B busy, U unknown, - gone, ? the GPU does not report."""
    if label in "-?":
        return gpu(number, last_seen=1.0 if label == "?" else None)
    use = tenant(f"p{number}", VERDICTS[label], use_class="idle-held" if label == "H" else "")
    return gpu(number, use)


def seen(turn: int, *gpus: GpuUse) -> Analysis:
    end = at(turn)
    window = Window(begin=end - WINDOW, end=end, interval=15.0)
    return Analysis(number=turn + 1, started=end, seconds=0.1, window=window, gpus=gpus)


def replayed(histories: list[str], policy: Policy = POLICY, *, busy_within: float = 3600.0, stop: bool = False):
    """Each text is one workload, each letter one analysis; a blank in all of them is an analysis that is missing."""
    length = len(histories[0])
    end = at(length - 1) + 1
    replay = Replay(policy, begin=START, end=end, busy_within=busy_within, stop=stop)
    for turn in range(length):
        if histories[0][turn] != " ":
            replay.follow(seen(turn, *(one_gpu(number, text[turn]) for number, text in enumerate(histories)), *FREE))
    replay.close(end)
    return replay.outcome()


# ── the oracle ───────────────────────────────────────────────────────────────────────────────────────────────────


class Act(NamedTuple):
    at: float
    end: str
    won: float
    unknown: float


def oracle(text: str, policy: Policy, busy_within: float) -> list[Act]:
    """What must be taken back from this workload, by hand."""
    acts: list[Act] = []
    proofs, free_from, first, due = 0, 0.0, None, None  # idle windows in a row; begin of the next one that counts
    acted, won, unknown = None, 0.0, 0.0
    last = START
    for turn, label in enumerate(text):
        if label == " ":
            continue
        now, begin = at(turn), at(turn) - WINDOW
        used, gone = label in "BH", label == "-"
        if acted is not None:
            if used or gone:
                kind = "ended" if gone else "false_alarm" if now - acted <= busy_within else "busy_later"
                acts.append(Act(acted, kind, won, unknown))
            elif label == "I":
                won += now - max(last, begin)
                unknown += max(0.0, begin - last)
            else:
                unknown += now - last
        if used or gone:
            proofs, free_from, first, due, acted = 0, 0.0, None, None, None
        elif label == "I":
            if first is None:
                first = begin
            if begin >= free_from and proofs < policy.confirmations:
                proofs, free_from = proofs + 1, now
            if acted is None and proofs >= policy.confirmations:
                if due is None:
                    if now - first >= policy.min_pod_age:
                        due = now + policy.grace
                elif now >= due:
                    acted, won, unknown = now, 0.0, 0.0
        elif proofs:
            proofs, free_from = 0, now
        last = now
    if acted is not None:
        acts.append(Act(acted, "still_idle", won, unknown + 1))
    return acts


# Long idle times, then something else: a random letter each time would hardly ever come as far as an action.
RUNS = st.one_of(
    st.tuples(st.just("I"), st.integers(4, 20)),
    st.tuples(st.sampled_from("BUH-?"), st.integers(1, 3)),
)
TEXTS = st.lists(RUNS, min_size=3, max_size=10).map(lambda runs: "".join(letter * times for letter, times in runs))
HISTORIES = st.lists(TEXTS, min_size=1, max_size=4).map(lambda texts: [text.ljust(60, "I")[:60] for text in texts])


@given(HISTORIES, st.sampled_from([600.0, 3600.0]), st.integers(1, 4), st.sampled_from([0.0, 900.0, 5000.0]))
def test_what_is_taken_back_and_won_is_what_the_labels_say(histories, busy_within, confirmations, grace):
    policy = Policy(**{**_fields(), "confirmations": confirmations, "grace": grace})
    outcome = replayed(histories, policy, busy_within=busy_within)
    expected = {f"p{n}": oracle(text, policy, busy_within) for n, text in enumerate(histories)}
    found = {
        name: [
            Act(one.at, one.end, one.gpu_hours * 3600, one.unknown_gpu_hours * 3600)
            for one in outcome.list
            if one.pod == name
        ][::-1]
        for name in expected
    }
    for name, acts in expected.items():
        assert [one[:2] for one in found[name]] == [one[:2] for one in acts]
        for mine, theirs in zip(found[name], acts, strict=True):
            assert mine[2:] == pytest.approx(theirs[2:], abs=0.01)
    assert outcome.gpu_hours * 3600 == pytest.approx(
        sum(act.won for acts in expected.values() for act in acts), abs=0.1
    )


@given(HISTORIES)
def test_the_sums_agree_with_the_list(histories):
    outcome = replayed(histories)
    assert outcome.actions == len(outcome.list) == sum(one.actions for one in outcome.series)
    assert outcome.false_alarms + outcome.busy_later + outcome.ended + outcome.still_idle == outcome.actions
    for name in ("gpu_hours", "unknown_gpu_hours"):
        total = getattr(outcome, name)
        for some in (outcome.series, outcome.namespaces, outcome.list):
            assert sum(getattr(one, name) for one in some) == pytest.approx(total)
    assert outcome.false_alarms == sum(one.false_alarms for one in outcome.series)


@given(HISTORIES, st.integers(1, 3))
def test_no_hour_takes_more_workloads_than_its_budget(histories, most):
    """A workload that was busy in between and is taken again counts once."""
    outcome = replayed(histories, Policy(**{**_fields(), "max_per_hour": most}))
    for last in outcome.list:
        assert len({one.pod for one in outcome.list if last.at - 3600 < one.at <= last.at}) <= most


def _fields() -> dict:
    return {name: getattr(POLICY, name) for name in POLICY.__struct_fields__}


def test_a_busy_workload_is_never_taken():
    assert replayed(["B" * 60, "IB" * 30, "U" * 60]).actions == 0


def test_a_gap_is_not_won():
    """Idle before and after a gap of 3 hours: these hours are unknown, except for the window that ends it."""
    text = "I" * 12 + " " * 36 + "I" * 3
    outcome = replayed([text])
    assert outcome.actions == 1
    assert outcome.unknown_gpu_hours * 3600 == pytest.approx(36 * EVERY + EVERY - WINDOW + 1)


def test_a_workload_that_ended_still_counts_in_its_hour():
    """Its case is forgotten later than the hour of its budget."""
    outcome = replayed(["I" * 10 + "-" * 30, "B" + "I" * 39], Policy(**{**_fields(), "max_per_hour": 1}))
    first, second = sorted(one.at for one in outcome.list)
    assert second >= first + 3600
    assert outcome.list[1].until == at(9)


def test_busy_after_exactly_the_time_is_still_soon():
    act = replayed(["I" * 20]).list[0].at
    turn = round((act - at(0)) / EVERY)
    assert replayed(["I" * (turn + 2) + "B"], busy_within=2 * EVERY).false_alarms == 1
    assert replayed(["I" * (turn + 2) + "B"], busy_within=2 * EVERY - 1).busy_later == 1


def test_with_approval_the_action_comes_one_analysis_later():
    """As it does live, if the operator agrees at once."""
    plain = replayed(["I" * 20]).list[0].at
    assert replayed(["I" * 20], Policy(**{**_fields(), "approval": True})).list[0].at == plain + EVERY


def test_stop_and_notify_take_nothing():
    assert replayed(["I" * 40], stop=True).actions == 0
    notify = replayed(["I" * 40], Policy(**{**_fields(), "action": "notify"}))
    assert (notify.actions, notify.held_back) == (0, {"notify_only": 1})


def test_outside_of_working_hours_it_waits():
    morning = OpenHours(days=frozenset(range(7)), begin=120, end=1440, tz="UTC")
    first = replayed(["I" * 40], Policy(**{**_fields(), "working_hours": (morning,)})).list[0].at
    assert first == START + 7200


def test_workloads_without_uid_are_never_taken():
    replay = Replay(POLICY, begin=START, end=at(40), busy_within=3600.0)
    for turn in range(40):
        replay.follow(seen(turn, gpu(0, tenant("p", "idle", uid=""))))
    replay.close(at(40))
    assert (replay.outcome().actions, replay.outcome().held_back) == (0, {"no_uid": 1})


def test_only_visible_namespaces_are_told():
    replay = Replay(Policy(**{**_fields(), "min_pod_age": 3600.0}), begin=START, end=at(40), busy_within=3600.0)
    for turn in range(40):
        replay.follow(seen(turn, gpu(0, tenant("p", "idle"))))
    replay.close(at(40))
    assert replay.outcome({"team"}).actions == 1
    assert replay.outcome({"team"}).held_back == {"pod_age": 1}
    hidden = replay.outcome({"other"})
    assert (hidden.actions, hidden.gpu_hours, hidden.held_back, hidden.namespaces) == (0, 0.0, {}, ())


# ── parts of GPUs, and coverage ──────────────────────────────────────────────────────────────────────────────────


def share(name: str, limit: int | None) -> TenantUse:
    base = tenant(name, "idle")
    return TenantUse(tenant=base.tenant, verdict="idle", memory_limit=limit)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ([4, 8], [0.25, 0.5]),  # of 16
        ([None, None], [0.5, 0.5]),
        ([4, None], [0.25, 0.5]),
        ([16, 16], [0.5, 0.5]),  # together never more than the GPU
        ([None], [1.0]),
    ],
)
def test_a_part_of_a_gpu(limits, expected):
    uses = [share(f"p{n}", limit) for n, limit in enumerate(limits)]
    one = gpu(0, *uses, terms={"mem_total": Stat(mean=16.0)})
    found = parts([one], {f"uid-p{n}" for n in range(len(uses))})
    assert [found[f"uid-p{n}"] for n in range(len(uses))] == expected


def test_mig_instances_are_equal_parts_and_gpus_add_up():
    gpus = [gpu(0, tenant("a", "idle"), mig="1"), gpu(0, tenant("b", "idle"), mig="2"), gpu(1, tenant("a", "idle"))]
    assert parts(gpus, {"uid-a", "uid-b"}) == {"uid-a": 1.5, "uid-b": 0.5}


@given(st.lists(st.tuples(st.integers(0, 120), st.integers(1, 30)), max_size=20))
def test_known_time_is_the_union_of_the_windows(windows):
    """The oracle counts seconds one by one."""
    begin, end = 10, 100
    ordered = sorted((last, last - length) for last, length in windows if last >= begin)
    known = KnownTime(begin, end)
    for last, first in ordered:
        known.add(Window(begin=first, end=last, interval=1))
    covered, reached = set(), begin
    for last, first in ordered:  # an analysis tells of the time since the one before it
        covered |= set(range(max(first, reached), min(last, end)))
        reached = max(reached, min(last, end))
    found = known.coverage(end)
    assert found.known_seconds == len(covered)
    gaps = {second for gap in found.gaps for second in range(int(gap.begin), int(gap.end))}
    assert gaps == set(range(begin, end)) - covered


def test_short_spans_have_hours():
    assert (step_of(86400), step_of(7 * 86400)) == (3600, 86400)


def test_scaling_an_owner_counts_as_taking_its_pods():
    """No owner is stored, so the replay cannot ask whether it could be scaled."""
    scale = Policy(**{**_fields(), "action": "scale"})
    assert replayed(["I" * 40], scale).actions == replayed(["I" * 40]).actions == 1
