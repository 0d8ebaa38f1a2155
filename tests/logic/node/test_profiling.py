"""Profiling values in the ledger: whose the work of a MIG instance is, and how sure that is."""

import pytest
from msgspec.structs import replace

from tests.logic.node.builders import (
    GIB,
    M1,
    M2,
    A,
    B,
    grant,
    instance,
    make_gpu,
    owner,
    pod,
    process,
    readings,
    region,
    share,
    slot,
)
from vgpuscope.knowledge.mig import instance_share
from vgpuscope.logic.node.profiling import Measured, Profile, Replacements, joined, strange
from vgpuscope.logic.node.snapshot import NodeTracker
from vgpuscope.model.activity import Activity, ActivityReading

H100 = "NVIDIA H100 80GB HBM3"


def profile(source="gpm", **busy):
    """Values by GPU instance: gi3=0.5 means that GPU instance 3 of GPU A computed half of the time."""
    places = {
        (A, int(name[2:])): Measured(Activity(engine=value, sm=value / 2), source) for name, value in busy.items()
    }
    return Profile(places=places)


def cut(*instances, **more):
    return make_gpu(A, mig_enabled=True, utilization=None, processes=None, instances=instances, **more)


seen = readings


def conclude(*samples):
    mind = NodeTracker(node="n", window=60)
    return [mind.conclude(one, ratio=1.0).complete() for one in samples][-1]


def rows(snapshot):
    return {u.key.pod: u for u in snapshot.containers}


def two_instances(**more):
    return cut(
        instance(M1, gi=3, profile="1g.10gb", processes=(process(1, GIB),), used=GIB, index=0),
        instance(M2, gi=5, profile="2g.20gb", processes=(process(2, GIB),), used=GIB, index=1),
        **more,
    )


WHO = {
    "owners": [owner(1, "a"), owner(2, "b")],
    "pods": [pod("a"), pod("b")],
    "grants": [grant("a", M1, resource="nvidia.com/mig-1g.10gb"), grant("b", M2, resource="nvidia.com/mig-2g.20gb")],
}


@pytest.mark.parametrize("source", ["gpm", "dcgm"])
def test_a_tenant_has_the_busy_time_of_its_instance_as_its_part_of_the_gpu(source):
    found = rows(conclude(seen(two_instances(), profile=profile(source, gi3=0.7, gi5=0.0), **WHO)))
    assert (found["a"].sm, found["b"].sm) == (pytest.approx(0.1), 0.0)
    assert (found["a"].instance_sm, found["b"].instance_sm) == (pytest.approx(0.7), 0.0)
    assert found["a"].sm_method == found["b"].sm_method == source
    assert (found["a"].state, found["b"].state) == ("active", "idle")
    assert found["a"].sm_certainty == "derived"
    assert found["a"].sm_error == pytest.approx(0.018)


def test_without_profiling_values_a_running_tenant_of_an_instance_stays_unknown():
    found = rows(conclude(seen(two_instances(), profile=Profile(), **WHO)))
    assert (found["a"].sm, found["a"].state, found["a"].instance_sm) == (None, "unknown", None)


def test_busy_time_and_energy_of_instances_are_counted_with_their_method():
    both = [
        seen(two_instances(energy=energy, power=300.0), at=at, profile=profile(gi3=0.7, gi5=0.35), **WHO)
        for at, energy in ((0.0, 0.0), (10.0, 1000.0))
    ]
    found = conclude(*both)
    by = {one.mig: one for one in found.instances}
    assert (by[M1].busy_seconds, by[M2].busy_seconds) == (pytest.approx(1.0), pytest.approx(1.0))
    assert (by[M1].energy, by[M2].energy) == (pytest.approx(500.0), pytest.approx(500.0))
    assert (by[M1].method, by[M1].energy_method) == ("gpm", "share")
    assert rows(found)["a"].energy == pytest.approx(500.0)
    assert rows(found)["a"].energy_certainty == "shared-out"
    assert found.ledgers[0].sm_seconds.total == pytest.approx(2.0)


def busy_times(*samples):
    """Of the last sample: the busy time of the GPU, of its two instances, of both tenants, and in the ledger."""
    found = conclude(*samples)
    ledger = found.ledgers[0].sm_seconds
    of = {one.mig: one.busy_seconds for one in found.instances}
    tenants = [rows(found)[name].sm_seconds for name in "ab"]
    return [found.gpus[0].busy_seconds, of[M1], of[M2], *tenants, ledger and ledger.total]


def profiled(*times, **busy):
    return [seen(two_instances(), at=at, profile=profile(**busy), **WHO) for at in times]


def test_busy_time_that_is_no_longer_measured_is_absent_and_comes_back_as_it_was():
    before = profiled(0.0, 10.0, gi3=0.7, gi5=0.35)
    known = [pytest.approx(one) for one in (2.0, 1.0, 1.0, 1.0, 1.0, 2.0)]
    assert busy_times(*before, *profiled(14.0)) == known  # one slow round does not matter
    assert busy_times(*before, *profiled(16.0)) == [None] * 6
    assert busy_times(*before, *profiled(16.0, 90.0), *profiled(90.0, gi3=0.7, gi5=0.35)) == known


def test_a_mig_gpu_has_a_busy_time_only_while_all_its_instances_are_measured():
    before = profiled(0.0, 10.0, gi3=0.7, gi5=0.35)
    gpu, first, second, tenant, other, ledger = busy_times(*before, *profiled(20.0, gi3=0.7))
    assert (gpu, second, other, ledger) == (None, None, None, None)
    assert (first, tenant) == (pytest.approx(2.0), pytest.approx(2.0))


def test_instances_that_are_measured_in_turn_are_all_measured():
    first, second = {"gi3": 0.7}, {"gi5": 0.7}
    samples = [one for at in range(0, 20, 2) for one in (*profiled(at, **first), *profiled(at + 1.0, **second))]
    assert None not in busy_times(*samples)


def test_an_instance_that_was_not_measured_has_no_method_of_its_busy_time_but_its_energy():
    found = conclude(
        *[
            seen(two_instances(energy=at, power=300.0), at=at, profile=one, **WHO)
            for at, one in ((0.0, profile(gi3=0.7, gi5=0.7)), (10.0, profile(gi3=0.7, gi5=0.7)), (20.0, Profile()))
        ]
    )
    assert [(one.method, one.energy_method) for one in found.instances] == [(None, "share")] * 2
    assert found.gpus[0].energy == pytest.approx(20.0)


def test_a_tenant_without_a_process_has_its_busy_time_without_profiling_too():
    empty = cut(instance(M1, gi=3, profile="1g.10gb"), instance(M2, gi=5, profile="2g.20gb", index=1))
    found = conclude(*profiled(0.0, 10.0, gi3=0.7, gi5=0.7), seen(empty, at=20.0, profile=Profile(), **WHO))
    assert rows(found)["a"].sm_seconds == pytest.approx(1.0)


def test_the_busy_time_of_a_gpu_without_mig_does_not_need_profiling():
    gpu = make_gpu(used=GIB, utilization=0.5, processes=(process(1, GIB, 0.5),))
    who = {"owners": [owner(1, "a")], "pods": [pod("a")]}
    samples = [seen(gpu, at=at, profile=Profile(), **who) for at in (0.0, 10.0)]
    blind = replace(gpu, utilization=None, processes=(process(1, GIB),))
    found = conclude(*samples, seen(blind, at=60.0, profile=Profile(), **who))
    assert (found.gpus[0].busy_seconds, rows(found)["a"].sm_seconds) == (5.0, 5.0)
    assert found.ledgers[0].sm_seconds.total == 5.0


def test_two_compute_instances_that_both_run_have_no_value_of_their_own():
    gpu = cut(
        instance(M1, gi=1, ci=0, profile="2c.4g.40gb", processes=(process(1, GIB),), index=0),
        instance(M2, gi=1, ci=1, profile="2c.4g.40gb", processes=(process(2, GIB),), index=1),
    )
    found = conclude(seen(gpu, profile=profile(gi1=0.5), **WHO))
    assert [u.sm for u in found.containers] == [None, None]
    assert [one.activity for one in found.instances] == [None, None]
    assert found.ledgers[0].sm_seconds is not None  # the time itself is in the ledger, as unattributed


def test_if_nothing_worked_both_compute_instances_did_nothing():
    gpu = cut(
        instance(M1, gi=1, ci=0, profile="2c.4g.40gb", processes=(process(1, GIB),), index=0),
        instance(M2, gi=1, ci=1, profile="2c.4g.40gb", processes=(process(2, GIB),), index=1),
    )
    found = conclude(seen(gpu, profile=profile(gi1=0.0), **WHO))
    assert [u.sm for u in found.containers] == [0.0, 0.0]
    assert [one.activity.engine for one in found.instances] == [0.0, 0.0]


def test_of_two_compute_instances_the_only_one_with_a_process_has_the_work():
    gpu = cut(
        instance(M1, gi=1, ci=0, profile="2c.4g.40gb", processes=(process(1, GIB),), index=0),
        instance(M2, gi=1, ci=1, profile="2c.4g.40gb", processes=(), index=1),
    )
    found = conclude(seen(gpu, profile=profile(gi1=0.7), **WHO))
    assert rows(found)["a"].sm == pytest.approx(0.4)
    assert [one.activity.engine for one in found.instances] == [0.7, 0.0]


def test_the_work_of_a_process_of_nobody_is_nobodys():
    gpu = cut(instance(M1, gi=3, processes=(process(1, GIB), process(9, GIB)), used=2 * GIB))
    found = conclude(seen(gpu, profile=profile(gi3=0.7), owners=[owner(1, "a")], pods=[pod("a")]))
    assert rows(found)["a"].sm is None


def test_a_hami_regions_zero_in_an_instance_proves_nothing():
    gpu = cut(instance(M1, gi=3, processes=(process(1, GIB),), used=GIB))
    told = region("a", slot(1, GIB, sm=0.0), uuid=M1)
    found = conclude(seen(gpu, profile=Profile(), owners=[owner(1, "a")], pods=[pod("a")], regions=[told]))
    assert (rows(found)["a"].sm, rows(found)["a"].state) == (None, "unknown")


def test_a_destroyed_instance_takes_its_account_with_it():
    mind = NodeTracker(node="n", window=60)
    for at, gpu in ((0.0, two_instances()), (1.0, cut())):
        found = mind.conclude(seen(gpu, at=at, profile=profile(gi3=0.5), **WHO), ratio=1.0).complete()
    assert found.instances == ()
    assert mind._accounts.instances == {}


def test_a_new_instance_with_the_number_of_a_destroyed_one_begins_at_zero():
    mind = NodeTracker(node="n", window=60)
    new = cut(instance("MIG-new", gi=3, profile="1g.10gb"))
    for at, gpu in ((0.0, two_instances()), (10.0, two_instances()), (20.0, new), (30.0, new)):
        one = seen(gpu, at=at, profile=profile(gi3=0.7, gi5=0.0), **WHO)
        found = mind.conclude(one, ratio=1.0).complete()
    [usage] = found.instances
    assert usage.mig == "MIG-new"
    assert usage.busy_seconds == pytest.approx(0.1 * 20)
    assert found.ledgers[0].sm_seconds.total == pytest.approx(0.1 * 30)


def test_values_from_before_an_instance_was_replaced_are_not_the_new_ones():
    replacements = Replacements()
    reading = ActivityReading(source="dcgm", places={(A, 3): Activity(sm=0.5), (A, 5): Activity(sm=0.4)})
    replacements.look_at([two_instances()], 10.0)
    assert replacements.own(reading, 9.0) == reading  # the agent has just started
    silent = make_gpu(A, health="unresponsive")
    replacements.look_at([silent], 15.0)
    other = cut(instance("MIG-new", gi=3), instance(M2, gi=5))
    replacements.look_at([other], 20.0)
    assert replacements.own(reading, 19.0).places == {(A, 5): Activity(sm=0.4)}
    assert replacements.own(reading, 20.0) == reading


def test_values_from_before_all_instances_were_replaced_are_not_the_new_ones():
    replacements = Replacements()
    reading = ActivityReading(source="dcgm", places={(A, 3): Activity(sm=0.5)})
    for now, gpu in ((10.0, two_instances()), (11.0, cut()), (12.0, two_instances())):
        replacements.look_at([gpu], now)
    assert replacements.own(reading, 10.5).places == {}


def test_the_drivers_own_values_come_before_an_exporters():
    driver = ActivityReading(source="gpm", places={(A, 3): Activity(sm=0.5)}, blind={B: "unsupported"})
    beside = ActivityReading(source="dcgm", places={(A, 3): Activity(sm=0.1), (B, None): Activity(sm=0.2)})
    found = joined(driver, beside)
    assert found.of(A, 3) == Measured(Activity(sm=0.5), "gpm")
    assert found.of(B) == Measured(Activity(sm=0.2), "dcgm")
    assert found.blind == {B: "unsupported"}


@pytest.mark.parametrize("driver", [Activity(), Activity(pcie_sent=1.0)])
def test_the_exporter_measures_what_the_driver_has_no_busy_time_of(driver):
    gpm = ActivityReading(source="gpm", places={(A, 3): driver})
    dcgm = ActivityReading(source="dcgm", places={(A, 3): Activity(sm=0.1)})
    assert joined(gpm, dcgm).of(A, 3) == Measured(Activity(sm=0.1), "dcgm")


def test_a_place_without_any_value_is_absent():
    assert joined(ActivityReading(source="gpm", places={(A, 3): Activity()})).of(A, 3) is None


def test_an_exporters_gpus_and_instances_that_the_node_does_not_have_are_counted():
    reading = ActivityReading(
        source="dcgm", places={(A, 3): Activity(sm=0.5), (A, 9): Activity(sm=0.5), ("GPU-x", None): Activity(sm=0.5)}
    )
    assert strange(reading, [two_instances()]) == {"dcgm-unknown-instance": 1, "dcgm-other-gpu": 1}


@pytest.mark.parametrize(
    ("profile", "model", "share"),
    [
        ("1g.10gb", H100, 1 / 7),
        ("1g.10gb+me", H100, 1 / 7),
        ("2c.4g.40gb", "NVIDIA A100-SXM4-80GB", 4 / 7),
        ("7g.80gb", H100, 1.0),
        ("2g.12gb", "NVIDIA A30", 0.5),
        ("4g.96gb", "NVIDIA RTX PRO 6000 Blackwell Server Edition", 1.0),
        (None, H100, None),
        ("<<<NULL>>>", H100, None),
    ],
)
def test_a_profile_says_how_much_of_the_gpu_an_instance_is(profile, model, share):
    assert instance_share(profile, model) == share


# ── how sure ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_the_driver_measured_of_a_containers_processes_is_measured_up_to_what_is_nobodys():
    gpu = make_gpu(used=5 * GIB, utilization=0.5, processes=(process(1, 3 * GIB, 0.4),))
    row = rows(conclude(seen(gpu, profile=Profile(), owners=[owner(1, "a")], pods=[pod("a")])))["a"]
    assert (row.memory_certainty, row.memory_error) == ("measured", 2 * GIB)
    assert (row.sm_certainty, row.sm_error) == ("measured", pytest.approx(0.11))


def test_the_rest_that_the_only_holder_gets_is_derived_and_may_be_off_by_that_rest():
    gpu = make_gpu(used=5 * GIB, utilization=0.5, processes=(process(1, 3 * GIB, 0.4),))
    who = {"owners": [owner(1, "a")], "pods": [pod("a")], "grants": [grant("a", A)]}
    row = rows(conclude(seen(gpu, profile=Profile(), **who)))["a"]
    assert (row.memory, row.memory_certainty, row.memory_error) == (5 * GIB, "derived", 2 * GIB)
    assert (row.sm, row.sm_certainty, row.sm_error) == (0.5, "derived", pytest.approx(0.11))


def test_figures_of_the_driver_that_contradict_each_other_may_be_off_by_all_that_is_in_use():
    gpu = make_gpu(used=2 * GIB, utilization=0.3, processes=(process(1, 2 * GIB, 0.3), process(2, 2 * GIB, 0.3)))
    who = {"owners": [owner(1, "a"), owner(2, "b")], "pods": [pod("a"), pod("b")]}
    row = rows(conclude(seen(gpu, profile=Profile(), **who)))["a"]
    assert (row.memory, row.memory_certainty, row.memory_error) == (GIB, "shared-out", GIB)
    assert (row.sm, row.sm_certainty, row.sm_error) == (0.15, "shared-out", pytest.approx(0.16))


def test_claims_that_were_cut_in_proportion_may_be_off_by_what_the_driver_leaves_over():
    gpu = make_gpu(used=40 * GIB, utilization=0.9, processes=(process(1, 30 * GIB, 0.5),))
    pods = [pod("a"), *(pod(name, shares=[share(memory=20 * GIB)]) for name in "bc")]
    regions = [region("b", slot(0, 5 * GIB, 0.2)), region("c", slot(0, 15 * GIB, 0.6))]
    readings = seen(gpu, profile=Profile(), owners=[owner(1, "a")], pods=pods, regions=regions)
    found = {name: row for name, row in rows(conclude(readings)).items() if name in "bc"}
    assert {name: row.memory / GIB for name, row in found.items()} == {"b": 2.5, "c": 7.5}
    assert {name: row.memory_error / GIB for name, row in found.items()} == {"b": 7.5, "c": 7.5}
    assert {name: row.sm for name, row in found.items()} == {"b": pytest.approx(0.1), "c": pytest.approx(0.3)}
    assert {name: row.sm_error for name, row in found.items()} == {"b": pytest.approx(0.31), "c": pytest.approx(0.31)}
    assert {(row.memory_certainty, row.sm_certainty) for row in found.values()} == {("shared-out", "shared-out")}
