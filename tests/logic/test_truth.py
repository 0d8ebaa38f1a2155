"""Cards and tenants whose truth is known for every second: what is said of them."""

from itertools import product

import pytest
from hypothesis import given

from tests.logic.test_fleet import fleet as judged_fleet
from tests.logic.test_fleet import fleets
from tests.logic.truth import card, pod, the
from vgpuscope.logic.scoring import believable
from vgpuscope.model.analysis import STATUSES, VERDICTS

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
