"""An exporter's owner cannot make the analyzer's page grow beyond the limits, nor take the place of another target."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.catalog.limits import FLEET_GPUS, GPU_TENANTS, TARGET_GPUS
from vgpuscope.logic.fleet.limits import within_limits
from vgpuscope.model.analysis import Reading, Tenant, Track, Window
from vgpuscope.model.errors import LimitReached

pytestmark = pytest.mark.attack

WINDOW = Window(begin=0.0, end=600.0, interval=15.0)


def track(gpu, *, target="t1", tenant=None, mig=""):
    whose = Tenant(namespace="ml", pod=tenant) if tenant else None
    return Track(schema="dcgm", gpu_id=gpu, mig=mig, target=target, tenant=whose)


def limited(*tracks, own=True):
    return within_limits(Reading(window=WINDOW, tracks=tracks, own=own))


def gpus(found):
    return {one.gpu_id for one in found.reading.tracks}


def test_a_target_that_names_new_gpus_in_every_scrape_keeps_the_first_ones_and_costs_no_other_target():
    forged = [track(f"GPU-forged-{number}") for number in range(TARGET_GPUS.most + 7)]
    found = limited(*forged, track("GPU-honest", target="t2"))
    assert len(gpus(found)) == TARGET_GPUS.most + 1
    assert "GPU-honest" in gpus(found)
    assert found.omitted == {"target-limit": 7}
    (fault,) = found.faults
    assert (fault.part, fault.code, fault.terms) == ("t1", LimitReached.code, ())


def test_an_engine_may_have_all_gpus_under_one_target():
    tracks = [track(f"GPU-{number}", target="federation") for number in range(3 * TARGET_GPUS.most)]
    found = limited(*tracks, own=False)
    assert (len(gpus(found)), found.omitted, found.faults) == (len(tracks), {}, ())


def test_a_gpu_has_no_more_tenants_than_the_limit_and_keeps_its_own_numbers():
    tenants = [track("GPU-a", tenant=f"p{number}") for number in range(GPU_TENANTS.most + 5)]
    found = limited(*tenants, track("GPU-a"), track("GPU-b", tenant="p0"))
    assert found.omitted == {"gpu-limit": 5}
    assert track("GPU-a") in found.reading.tracks
    assert track("GPU-b", tenant="p0") in found.reading.tracks
    assert found.faults[0].part == "GPU-a"


@given(
    st.lists(st.builds(track, st.text(max_size=3), target=st.text(max_size=2), tenant=st.text(max_size=2)), max_size=40)
)
def test_a_reading_below_the_limits_loses_nothing(tracks):
    found = limited(*tracks)
    assert (found.reading.tracks, found.omitted, found.faults) == (tuple(tracks), {}, ())


def test_the_limits_are_above_every_real_cluster():
    assert GPU_TENANTS.most > 100
    assert TARGET_GPUS.most > 16 * 8  # GPUs and their MIG instances
    assert FLEET_GPUS.most > 5000 * 16 * 8
