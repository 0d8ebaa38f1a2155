"""Idle is what is left when everything was seen and nothing shows work; whatever falls short is unknown."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from vgpuscope.logic.fleet.verdict import ACTIVITY, VerdictRules, coverage, judge
from vgpuscope.model.analysis import SIGNALS, STATUSES, VERDICTS, Hole, Stat, Window

MIB = 2**20
WINDOW = Window(begin=1_000_000.0, end=1_000_600.0, interval=30.0)  # 20 samples
RULES = VerdictRules()
FULL = {"first": WINDOW.begin + 10, "last": WINDOW.end - 20}


def unseen(begin, end):
    return Hole(WINDOW.begin + begin, WINDOW.begin + end)


def seen(most, mean=None, samples=20, **more):
    return Stat(mean=most / 2 if mean is None else mean, max=most, p95=most, samples=samples, **more)


def found(terms, **more):
    given = {
        "window": WINDOW,
        "previous": None,
        "rules": RULES,
        "status": "idle",
        "schema": "dcgm",
        "source": "test",
        **FULL,
        **more,
    }
    return judge(terms, **given)


def verdict(terms, **more):
    return found(terms, **more)[0]


def reason(terms, **more):
    return found(terms, **more)[2].reasons[0]


IDLE = {"gpu_util": seen(0.0), "mem_copy": seen(0.0), "mem_used": seen(0.0), "power": seen(60.0)}

# ── laws over anything that a source could say ──

numbers = st.one_of(st.none(), st.sampled_from((nan, inf, -inf, -1.0, 0.0, 0.05, 0.1, 1.0, 5.0)), st.floats(0, 1))
stats = st.builds(Stat, mean=numbers, max=numbers, p95=numbers, samples=st.integers(0, 25), dropped=st.integers(0, 5))
quiet = st.floats(0, 0.049).map(seen)
readings = st.one_of(
    st.dictionaries(st.sampled_from(ACTIVITY), stats, max_size=7),
    st.dictionaries(st.sampled_from(ACTIVITY), quiet, min_size=1, max_size=7),
    st.tuples(
        st.dictionaries(st.sampled_from(ACTIVITY), quiet, min_size=1, max_size=7),
        st.dictionaries(st.sampled_from(ACTIVITY), stats, max_size=1),
    ).map(lambda both: {**both[0], **both[1]}),
)
times = st.one_of(st.none(), st.floats(WINDOW.begin - 100, WINDOW.end + 200), st.just(nan))
circumstances = st.fixed_dictionaries(
    {
        "first": st.one_of(st.just(FULL["first"]), times),
        "last": st.one_of(st.just(FULL["last"]), times),
        "previous": st.sampled_from((None, *VERDICTS)),
        "status": st.sampled_from(STATUSES),
        "partial": st.booleans(),
        "failed": st.frozensets(st.sampled_from(ACTIVITY), max_size=1),
        "handed_over": st.one_of(st.none(), times),
        "beside": st.one_of(st.none(), st.floats(0, 1)),
    }
)


@given(readings, circumstances, st.floats(0, 1))
def test_below_the_least_coverage_the_verdict_is_unknown(terms, around, least):
    rules = replace(RULES, min_coverage=least)
    signals = [terms[name].samples / WINDOW.expected for name in SIGNALS if name in terms]
    said, use_class, evidence = found(terms, **{**around, "rules": rules})
    if all(share < least for share in signals) or (evidence.coverage is not None and evidence.coverage < least):
        assert (said, use_class) == ("unknown", "unknown")


@given(readings, circumstances)
def test_a_gpu_of_which_anything_showed_work_is_never_idle(terms, around):
    said = verdict(terms, **around)
    tops = [stat.max for stat in terms.values() if stat.max is not None]
    if any(top >= RULES.idle_leave for top in tops) or (around["beside"] or 0) >= RULES.idle_leave:
        assert said != "idle"


@given(readings, circumstances)
def test_a_gpu_without_a_maximum_is_never_idle(terms, around):
    blind = {name: replace(stat, max=None) for name, stat in terms.items()}
    assert verdict(blind, **around) != "idle"


@given(readings, circumstances, st.data())
def test_samples_that_are_dropped_only_lead_to_unknown(terms, around, data):
    before = verdict(terms, **around)
    fewer = {}
    for name, stat in terms.items():
        lost = data.draw(st.integers(0, stat.samples))
        fewer[name] = replace(stat, samples=stat.samples - lost, dropped=stat.dropped + lost)
    assert verdict(fewer, **around) in {before, "unknown"}


@given(readings, circumstances, st.sampled_from(ACTIVITY), st.floats(0, 1))
def test_more_work_never_makes_a_gpu_idle(terms, around, name, more):
    if name in terms and verdict(terms, **around) != "idle" and (top := terms[name].max) is not None and top <= more:
        assert verdict({**terms, name: replace(terms[name], max=more)}, **around) != "idle"


@given(readings, circumstances)
def test_the_same_question_has_the_same_answer(terms, around):
    assert found(terms, **around)[:2] == found(dict(reversed(terms.items())), **around)[:2]


@given(readings, circumstances)
def test_class_and_verdict_agree(terms, around):
    said, use_class, evidence = found(terms, **around)
    classes = {"idle": {"idle", "idle-held"}, "in_use": {"busy", "low", "busy-unproductive"}, "unknown": {"unknown"}}
    assert use_class in classes[said]
    assert evidence.reasons


@given(readings, circumstances)
def test_evidence_holds_only_numbers_that_can_be_true(terms, around):
    evidence = found(terms, **around)[2]
    for value in (evidence.signal_mean, evidence.signal_max, evidence.signal_p95, evidence.coverage):
        assert value is None or 0 <= value <= 1 + 1e-6
    assert evidence.freshness is None or evidence.freshness == evidence.freshness


@given(st.lists(st.floats(0.05, 0.0999), min_size=1, max_size=30), st.sampled_from((None, *VERDICTS)))
def test_a_signal_between_the_two_thresholds_changes_nothing(tops, start):
    said = start
    heard = []
    for top in tops:
        said = verdict({"gpu_util": seen(top)}, previous=said)
        heard.append(said)
    assert set(heard) == {"idle" if start == "idle" else "in_use"}


# ── what makes a GPU idle, or not ──


def test_a_gpu_that_did_nothing_all_the_time_is_idle():
    said, use_class, evidence = found(IDLE)
    assert (said, use_class, evidence.reasons) == ("idle", "idle", ("VERDICT_IDLE_NO_WORK",))
    assert (evidence.signal, evidence.coverage, evidence.freshness) == ("gpu_util", 1.0, 20.0)
    assert (evidence.samples, evidence.expected, evidence.schema, evidence.source) == (20, 20, "dcgm", "test")


def test_one_burst_in_the_window_is_use_whatever_the_mean():
    assert verdict({**IDLE, "gpu_util": seen(0.9, mean=0.01)}) == "in_use"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("mem_copy", "VERDICT_MEMORY_TRAFFIC"),
        ("encoder", "VERDICT_VIDEO_WORK"),
        ("decoder", "VERDICT_VIDEO_WORK"),
        ("sm_active", "VERDICT_IN_USE"),
        ("engine_active", "VERDICT_IN_USE"),
    ],
)
def test_work_that_the_utilisation_does_not_show_is_work(name, code):
    assert verdict({**IDLE, name: seen(0.5)}) == "in_use"
    assert reason({**IDLE, name: seen(0.5)}) == code


def test_kernels_that_hardly_use_the_sms_are_use():
    terms = {**IDLE, "sm_active": seen(0.01), "gpu_util": seen(1.0, mean=0.99)}
    said, use_class, evidence = found(terms)
    assert (said, use_class) == ("in_use", "busy-unproductive")
    assert evidence.reasons == ("VERDICT_KERNELS_RAN", "VERDICT_FEW_SMS")
    assert (evidence.signal, evidence.other, evidence.other_max) == ("sm_active", "gpu_util", 1.0)


def test_a_tenants_own_work_is_the_gpus():
    assert found(IDLE, beside=0.4)[2].reasons[0] == "VERDICT_TENANT_WORKS"


def test_the_best_signal_that_covers_the_window_is_the_one_judged_by():
    assert found({**IDLE, "sm_active": seen(0.01)})[2].signal == "sm_active"
    assert found({**IDLE, "sm_active": seen(0.01, samples=3)})[2].signal == "gpu_util"
    assert found({"sm_active": seen(0.01, samples=3)})[2].signal == "sm_active"


def test_a_track_of_half_the_window_does_not_cover_it_however_dense_it_is():
    late = WINDOW.begin + 300
    assert coverage(seen(0.0, samples=40), window=WINDOW, first=late, last=WINDOW.end) < 0.6
    assert reason({"gpu_util": seen(0.0, samples=40)}, first=late) == "VERDICT_LOW_COVERAGE"


@pytest.mark.parametrize(
    ("terms", "around", "code"),
    [
        ({}, {}, "VERDICT_NO_SIGNAL"),
        ({"power": seen(60.0), "mem_used": seen(0.0)}, {}, "VERDICT_NO_SIGNAL"),
        ({"gpu_util": Stat(mean=nan, max=nan, samples=20)}, {}, "VERDICT_NO_SIGNAL"),
        (IDLE, {"last": None}, "VERDICT_NO_AGE"),
        (IDLE, {"last": WINDOW.end - 91}, "VERDICT_STALE"),
        ({"gpu_util": seen(0.0, samples=15)}, {}, "VERDICT_LOW_COVERAGE"),
        ({"gpu_util": seen(0.9, samples=15)}, {}, "VERDICT_LOW_COVERAGE"),
        (
            {"gpu_util": seen(0.0, samples=10)},
            {"first": WINDOW.begin + 300, "handed_over": WINDOW.begin + 300},
            "VERDICT_HANDOVER_YOUNG",
        ),
        (IDLE, {"handed_over": WINDOW.begin + 300}, "VERDICT_HANDOVER_YOUNG"),
        ({"gpu_util": Stat(mean=0.0, samples=20)}, {}, "VERDICT_NO_MAX"),
        ({**IDLE, "mem_copy": Stat(mean=0.0, samples=20)}, {}, "VERDICT_NO_MAX"),
        (IDLE, {"failed": frozenset({"encoder"}), "partial": True}, "VERDICT_PARTIAL_READING"),
        (
            {**IDLE, "power": seen(300.0, mean=260.0), "power_limit": seen(400.0, mean=400.0)},
            {},
            "VERDICT_POWER_DISAGREES",
        ),
        (
            {**IDLE, "energy": Stat(mean=266.0, samples=20), "power_limit": seen(400.0, mean=400.0)},
            {},
            "VERDICT_POWER_DISAGREES",
        ),
        ({**IDLE, "pcie_in": Stat(mean=5e8, samples=20)}, {}, "VERDICT_PCIE_TRAFFIC"),
        ({**IDLE, "gpu_util": seen(0.0, holes=(unseen(100, 250),))}, {}, "VERDICT_HOLE"),
        ({**IDLE, "gpu_util": seen(0.0, holes=(unseen(0, 300),))}, {}, "VERDICT_LOW_COVERAGE"),
        ({**IDLE, "gpu_util": seen(0.0, samples=31)}, {}, "VERDICT_HOLE"),  # at another pace than was learned
    ],
)
def test_what_falls_short_is_unknown_and_says_why(terms, around, code):
    assert (verdict(terms, **around), reason(terms, **around)) == ("unknown", code)


@pytest.mark.parametrize(
    "terms",
    [
        {**IDLE, "gpu_util": seen(0.0, holes=())},
        {**IDLE, "gpu_util": seen(0.0, holes=(unseen(100, 160), unseen(400, 460)))},  # a scrape was missed, twice
        {**IDLE, "pcie_in": Stat(mean=9000.0, samples=20), "energy": Stat(mean=60.0, samples=20)},
        {**IDLE, "energy": Stat(mean=5000.0, samples=20), "power_limit": seen(400.0, mean=400.0)},  # a counter's jump
    ],
)
def test_what_is_seen_well_enough_is_idle(terms):
    assert verdict(terms) == "idle"


def test_samples_after_the_windows_end_are_no_reason_for_doubt():
    assert verdict(IDLE, last=WINDOW.end + 3600) == "idle"


def test_a_hole_before_the_present_tenant_came_does_not_concern_it():
    terms = {**IDLE, "gpu_util": seen(0.0, holes=(unseen(0, 100),))}
    assert reason(terms) == "VERDICT_HOLE"
    assert verdict(terms, handed_over=WINDOW.begin + 95) == "idle"


@pytest.mark.parametrize("engine", ["jpeg", "ofa"])
def test_pictures_and_optical_flow_are_work(engine):
    assert verdict({**IDLE, engine: seen(0.5)}) == "in_use"


def test_a_partial_reading_says_so_even_where_it_decides_nothing():
    assert found(IDLE, partial=True)[2].reasons == ("VERDICT_IDLE_NO_WORK", "VERDICT_PARTIAL_READING")


def test_power_near_the_gpus_idle_draw_contradicts_nothing():
    assert verdict({**IDLE, "power": seen(80.0, mean=70.0), "power_limit": seen(400.0, mean=400.0)}) == "idle"


def test_a_former_idle_gpu_stays_idle_up_to_the_upper_threshold():
    terms = {"gpu_util": seen(0.07)}
    assert verdict(terms) == "in_use"
    assert found(terms, previous="idle")[2].reasons == ("VERDICT_IDLE_NO_WORK", "VERDICT_IDLE_KEPT")
    assert verdict({"gpu_util": seen(0.10)}, previous="idle") == "in_use"


def test_steadiness_counts_the_cycles_of_one_verdict():
    assert found(IDLE, previous="idle", steady=4)[2].steady_for == 5
    assert found(IDLE, previous="in_use", steady=4)[2].steady_for == 1


# ── classes ──


@pytest.mark.parametrize(
    ("used", "total", "use_class"),
    [
        (40_000 * MIB, 80_000 * MIB, "idle-held"),
        (4_000 * MIB, 80_000 * MIB, "idle-held"),
        (600 * MIB, 80_000 * MIB, "idle"),  # a context, or what the driver keeps
        (400 * MIB, 4_000 * MIB, "idle"),
        (600 * MIB, None, "idle-held"),
        (None, 80_000 * MIB, "idle"),
        (nan, 80_000 * MIB, "idle"),
    ],
)
def test_an_idle_gpu_with_much_memory_taken_is_held(used, total, use_class):
    memory = {"mem_used": Stat(mean=used, samples=20), "mem_total": Stat(mean=total, samples=20)}
    assert found({"gpu_util": seen(0.0), **memory})[:2] == ("idle", use_class)


@pytest.mark.parametrize(
    ("status", "use_class"),
    [("idle", "low"), ("low", "low"), ("normal", "busy"), ("high", "busy"), ("unknown", "busy")],
)
def test_a_gpu_in_use_is_low_or_busy_by_its_status(status, use_class):
    assert found({"gpu_util": seen(0.6)}, status=status)[:2] == ("in_use", use_class)


def test_few_busy_sms_need_to_be_seen_throughout_to_be_called_unproductive():
    terms = {"gpu_util": seen(1.0, mean=0.9), "sm_active": seen(0.2, mean=0.05)}
    assert found(terms, status="high")[1] == "busy-unproductive"
    assert found({**terms, "sm_active": seen(0.2, mean=0.05, samples=2)}, status="high")[1] == "busy"
    assert found({**terms, "sm_active": seen(0.2, mean=0.1)}, status="high")[1] == "busy"


@pytest.mark.parametrize(
    "bad",
    [
        {"min_coverage": 1.1},
        {"min_coverage": nan},
        {"idle_enter": 0.2},
        {"idle_leave": nan},
        {"max_age_intervals": 0},
        {"held_bytes": -1},
        {"power_contradiction": nan},
    ],
)
def test_rules_that_make_no_sense_are_refused(bad):
    with pytest.raises(ValueError):
        VerdictRules(**bad)
