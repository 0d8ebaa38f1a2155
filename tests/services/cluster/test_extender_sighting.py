"""An extender is known by its lease: renewed in the last minute, by our own clock."""

import pytest

from vgpuscope.catalog import scheduling as m
from vgpuscope.config import ClusterConfig
from vgpuscope.formats.kube.lease import LeaseRecord, SeenLease
from vgpuscope.model.scheduling import SchedulingResult
from vgpuscope.services.cluster.extender_sighting import ExtenderSighting
from vgpuscope.services.cluster.process import ClusterExporter
from vgpuscope.views.cluster.scheduling_metrics import scheduling_samples

WALL = 1_794_767_070.0
HANDBOOK = {m.FILTER_SECONDS, m.BIND_SECONDS, m.BIND_SUCCESS, m.BIND_FAILURE}


class Clock:
    now = 1000.0


@pytest.fixture
def sighting():
    made = ExtenderSighting(namespace="kube-system", resync=1800.0, clock=lambda: Clock.now, wall=lambda: WALL)
    Clock.now = 1000.0
    return made


def lease(age=1.0, holder="a", version="1"):
    record = LeaseRecord(holder=holder, renewed=WALL - age, version=version)
    return SeenLease(key="kube-system/vgpuscope-extender", record=record)


def test_a_lease_that_is_renewed_is_an_extender(sighting):
    assert not sighting.running
    sighting.see(lease())
    assert sighting.running


def test_a_lease_that_was_left_behind_is_none(sighting):
    sighting.see(lease(age=3600))
    assert not sighting.running
    sighting.see(lease(age=3600, version="2"))  # renewed, by a clock that is an hour behind
    assert sighting.running


def test_a_lease_that_is_not_renewed_for_a_minute_is_none(sighting):
    sighting.see(lease())
    Clock.now += 58
    assert sighting.running
    Clock.now += 3
    assert not sighting.running


def test_a_lease_that_a_fresh_list_repeats_was_not_renewed(sighting):
    for _ in range(2):
        sighting.kind._take_list({lease().key: lease()})
        Clock.now += 58
    assert not sighting.running
    sighting.kind._take_list({lease().key: lease(version="2")})
    assert sighting.running


def test_a_released_lease_is_none(sighting):
    sighting.see(lease())
    sighting.see(lease(holder="", version="2"))
    assert not sighting.running


@pytest.mark.parametrize(
    ("asked", "running", "published"),
    [("auto", False, True), ("auto", True, False), ("on", True, True), ("off", False, False)],
)
async def test_the_exporter_leaves_the_names_to_the_extender_unless_it_is_told_otherwise(asked, running, published):
    exporter = ClusterExporter(ClusterConfig(scheduler_metrics=asked))
    if running:
        record = LeaseRecord(holder="a", renewed=2e10, version="1")
        exporter._extender.see(SeenLease(key="k/l", record=record))
    assert exporter._estimates is published
    shown = {sample.metric for sample in scheduling_samples(SchedulingResult(), estimates=exporter._estimates)}
    assert (shown >= HANDBOOK, HANDBOOK.isdisjoint(shown)) == (published, not published)
    assert m.STAGES_SKIPPED in shown  # names of our own stay
