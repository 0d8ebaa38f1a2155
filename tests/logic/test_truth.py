"""Cards and tenants whose truth is known for every second: what is said of them."""

from itertools import product

import pytest
from hypothesis import given

from tests.logic.test_fleet import fleet as judged_fleet
from tests.logic.test_fleet import fleets
from tests.logic.truth import card, pod, the
from vgpuscope.logic.scoring import believable
from vgpuscope.logic.verdict import VerdictRules
from vgpuscope.model.analysis import STATUSES, VERDICTS
from vgpuscope.views.evidence import sentences

# ── status never says more than verdict ──


def test_a_pod_that_encodes_video_is_not_listed_as_idle():
    use = the(card(util=0.0, copy=0.0, memory=2, total=80, watts=60, limit=400, encoder=0.6, tenant=pod("video")))
    assert (use.verdict, use.status) == ("in_use", "low")


def test_one_burst_in_the_window_keeps_a_card_from_the_status_idle():
    use = the(card(util=lambda t: 0.9 if 300 <= t < 330 else 0.0, copy=0.0, memory=1, total=80, watts=60, limit=400))
    assert use.score.value < 10
    assert (use.verdict, use.status) == ("in_use", "low")


def test_a_card_that_cannot_be_judged_is_not_listed_as_idle_or_low():
    use = the(card(begin=400, util=0.0, copy=0.0, memory=1, total=80, watts=60, limit=400))
    assert use.score.value < 10
    assert (use.verdict, use.status) == ("unknown", "unknown")


@pytest.mark.parametrize(("found", "verdict"), list(product(STATUSES, VERDICTS)))
def test_the_status_that_may_be_shown(found, verdict):
    expected = {
        ("idle", "in_use"): "low",
        ("idle", "unknown"): "unknown",
        ("low", "unknown"): "unknown",
    }
    assert believable(found, verdict) == expected.get((found, verdict), found)


@given(fleets)
def test_no_status_says_more_than_its_verdict(some):
    for use in judged_fleet(*some):
        for one in (use, *use.tenants):
            if one.status == "idle":
                assert one.verdict == "idle"
            if one.verdict == "unknown":
                assert one.status not in {"idle", "low"}


# ── power that contradicts ──


def quiet(**more):
    given = {"util": 0.0, "copy": 0.0, "memory": 20, "total": 80, **more}
    return card(tenant=pod("a"), **given)


@pytest.mark.parametrize(
    ("model", "watts", "limit", "source"),
    [
        ("NVIDIA A100-SXM4-80GB", 360, None, "400 W (table: NVIDIA A100-SXM4-80GB)"),
        ("NVIDIA A100-SXM4-80GB", 210, None, "400 W (table: NVIDIA A100-SXM4-80GB)"),
        ("NVIDIA A100-SXM4-80GB", 160, 300, "limit 300 W (metric)"),
        ("a model of tomorrow", 360, None, "250 W (default)"),
    ],
)
def test_a_card_that_shows_no_work_and_draws_much_power_is_unknown(model, watts, limit, source):
    use = the(quiet(model=model, watts=watts, **({"limit": limit} if limit else {})))
    assert (use.verdict, use.use_class, use.evidence.reasons[0]) == ("unknown", "unknown", "VERDICT_POWER_DISAGREES")
    assert source in sentences(use.evidence, "en")[0]
    assert source in sentences(use.evidence, "zh")[0]


@pytest.mark.parametrize(("model", "watts"), [("NVIDIA A100-SXM4-80GB", 200), ("NVIDIA H100 80GB HBM3", 130), ("", 90)])
def test_power_up_to_half_the_limit_contradicts_nothing(model, watts):
    assert the(quiet(model=model, watts=watts)).use_class == "idle-held"


def test_where_doubt_begins_is_a_setting():
    assert the(quiet(watts=120), rules=VerdictRules(power_contradiction=0.25)).verdict == "unknown"


# ── stalled ──


def hung(**more):
    given = {"util": 1.0, "copy": 0.01, "memory": 60, "total": 80, "watts": 90, "limit": 400, **more}
    return card(tenant=pod("train"), **given)


@pytest.mark.parametrize("more", [{}, {"sm_active": 0.02}, {"util": lambda t: 0.0 if t < 15 else 1.0}])
def test_a_job_that_hangs_in_a_collective_is_stalled_and_in_use(more):
    use = the(hung(**more))
    assert (use.verdict, use.use_class) == ("in_use", "stalled")
    assert "VERDICT_STALLED" in use.evidence.reasons
    said = " ".join(sentences(use.evidence, "en"))
    assert "22.5 %" in said
    assert "limit 400 W (metric)" in said


def test_the_tables_limit_is_good_enough_to_call_a_card_stalled_and_a_guess_is_not():
    terms = {"util": 1.0, "copy": 0.01, "watts": 55, "tenant": pod("a")}
    assert the(card(**terms)).use_class == "stalled"
    assert the(card(**terms, model="a small card of tomorrow")).use_class == "busy"


@pytest.mark.parametrize(
    "more",
    [
        {"watts": 110},  # more than a quarter of the limit
        {"util": 0.9},
        {"copy": 0.3},
        {"sm_active": 0.4},
        {"encoder": 0.5},
        {"util": lambda t: 1.0 if t < 540 else 0.0},  # it ended
    ],
)
def test_a_card_that_does_something_is_not_stalled(more):
    assert the(hung(**more)).use_class != "stalled"


def test_a_card_that_was_seen_for_half_the_window_is_not_stalled():
    assert the(hung(begin=300)).use_class == "unknown"
