"""The laws of the ledger, over random nodes and random histories."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.logic.node.builders import (
    GIB,
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
from vgpuscope.logic.node.profiling import Measured, Profile
from vgpuscope.logic.node.snapshot import NodeTracker
from vgpuscope.model.activity import Activity
from vgpuscope.model.device import Memory

PODS = ("a", "b", "c", "d")
MIGS = ("MIG-11111111-0000-0000-0000-000000000000", "MIG-22222222-0000-0000-0000-000000000000")
ratios = st.floats(0, 1, allow_nan=False)
bytes_ = st.integers(0, 20 * GIB)
maybe_bytes = st.none() | bytes_
maybe_ratio = st.none() | ratios


@st.composite
def pools(draw):
    """Total, used and reserved as a driver may give them, even when they do not fit what processes claim."""
    total = draw(st.integers(1 * GIB, 80 * GIB))
    reserved = draw(st.none() | st.integers(0, total // 4))
    used = draw(st.integers(0, total - (reserved or 0)))
    return Memory(total=total, used=used, reserved=reserved, free=total - used - (reserved or 0))


def processes(first):
    one = st.builds(process, st.integers(first, first + 6), maybe_bytes, maybe_ratio)
    return st.lists(one, max_size=6, unique_by=lambda p: p.pid).map(tuple)


@st.composite
def gpus(draw, uuid, index, first_pid):
    if draw(st.integers(0, 3)) == 0:
        made = tuple(
            instance(MIGS[i], gi=draw(st.integers(0, 1)), ci=i, index=i, processes=draw(processes(first_pid + i * 10)))
            for i in range(draw(st.integers(0, 2)))
        )
        energy = draw(st.none() | st.floats(0, 1e6))
        return make_gpu(uuid, index, mig_enabled=True, utilization=None, processes=None, instances=made, energy=energy)
    return make_gpu(
        uuid,
        index,
        memory=draw(st.none() | pools()),
        utilization=draw(maybe_ratio),
        energy=draw(st.none() | st.floats(0, 1e6)),
        power=draw(st.none() | st.floats(0, 700)),
        processes=draw(st.none() | processes(first_pid)),
    )


def owners():
    """Whose each pid is: a pod's, the host's, or (missing) nobody's that we can see."""
    who = st.sampled_from((*PODS, None, "gone"))
    made = st.lists(who, min_size=27, max_size=27)
    return made.map(lambda names: [owner(pid, n) for pid, n in enumerate(names, start=1) if n != "gone"])


def grants():
    devices = (A, B, f"{A}::0", f"{A}::1", *MIGS, f"{A}-3", "0", "garbage")
    return st.lists(st.builds(grant, st.sampled_from(PODS), st.sampled_from(devices)), max_size=5)


def regions():
    slots = st.lists(st.builds(slot, st.integers(0, 40), bytes_, ratios, status=st.integers(0, 2)), max_size=3)
    one = st.tuples(st.sampled_from(PODS), slots, st.sampled_from((A, B))).map(lambda r: region(r[0], *r[1], uuid=r[2]))
    return st.lists(one, max_size=3, unique_by=lambda r: r.pod_uid)


def activities():
    return st.builds(Activity, engine=maybe_ratio, sm=maybe_ratio)


def profiles():
    """Profiling values of some GPUs and GPU instances, from either source."""
    places = st.tuples(st.sampled_from((A, B)), st.none() | st.integers(0, 1))
    measured = st.builds(Measured, activities(), st.sampled_from(("gpm", "dcgm")))
    return st.dictionaries(places, measured, max_size=6).map(lambda found: Profile(places=found))


@st.composite
def samples(draw, at):
    known = st.none() | st.lists(st.sampled_from(PODS), unique=True).map(
        lambda n: [pod(p, shares=[share()]) for p in n]
    )
    more = {} if draw(st.booleans()) else {"owners": None}
    made = readings(
        draw(gpus(A, 0, 1)),
        draw(gpus(B, 1, 20)),
        at=at,
        regions=draw(regions()),
        owners=draw(owners()),
        pods=draw(known),
        grants=draw(st.none() | grants()),
        profile=draw(profiles()),
    )
    return made if not more else type(made)(**{f: getattr(made, f) for f in made.__struct_fields__} | more)


@st.composite
def histories(draw):
    at, made = 1000.0, []
    for _ in range(draw(st.integers(1, 4))):
        at += draw(st.floats(0.1, 30))
        made.append(draw(samples(at)))
    return made


def replay(history):
    mind = NodeTracker(node="n", window=60)
    return [mind.conclude(r, ratio=1.0).complete() for r in history]


def parts(split):
    return [p for p in (split.containers, split.system, split.unattributed, split.free, split.ended) if p is not None]


def close(a, b):
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-6)


@given(histories())
def test_memory_adds_up_exactly_and_nothing_is_negative(history):
    for snapshot in replay(history):
        for entry in snapshot.ledgers:
            if entry.memory is not None:
                assert sum(parts(entry.memory)) == entry.memory.total
                assert all(part >= 0 for part in parts(entry.memory))


@given(histories())
def test_what_containers_have_is_the_sum_of_their_rows(history):
    for snapshot in replay(history):
        for entry in snapshot.ledgers:
            rows = [u for u in snapshot.containers if u.gpu == entry.gpu]
            if entry.mig is None and entry.memory is not None:
                assert entry.memory.containers == sum(u.memory or 0 for u in rows)


@given(histories())
def test_busy_time_adds_up_over_any_history(history):
    for snapshot in replay(history):
        for entry in snapshot.ledgers:
            if entry.sm_seconds is not None:
                assert close(sum(parts(entry.sm_seconds)), entry.sm_seconds.total)
                assert all(part >= 0 for part in parts(entry.sm_seconds))


@given(histories())
def test_energy_adds_up_over_any_history(history):
    for snapshot in replay(history):
        for entry in snapshot.ledgers:
            if entry.energy is not None:
                assert close(sum(parts(entry.energy)), entry.energy.total)
                assert all(part >= -1e-9 for part in parts(entry.energy))


@given(histories())
def test_no_row_is_negative_or_more_than_its_gpu(history):
    for snapshot in replay(history):
        totals = {c.gpu.uuid: c.gpu for c in snapshot.gpus}
        for row in snapshot.containers:
            gpu = totals.get(row.gpu)
            assert row.memory is None or row.memory >= 0
            assert row.sm is None or row.sm >= 0
            if gpu and not gpu.mig_enabled and gpu.memory and row.memory is not None:
                assert row.memory <= gpu.memory.used
            if gpu and gpu.utilization is not None and row.sm is not None:
                assert row.sm <= gpu.utilization + 1e-9


@given(histories())
def test_every_value_that_is_there_says_how_it_was_found_out(history):
    for snapshot in replay(history):
        for row in snapshot.containers:
            assert (row.memory is None) == (row.memory_method is None)
            assert (row.sm is None) == (row.sm_method is None)
            assert (row.energy is None) == (row.energy_method is None)
            assert (row.memory is None) == (row.memory_certainty is None)
            assert (row.sm is None) == (row.sm_certainty is None)
            assert (row.energy is None) == (row.energy_certainty is None)


@given(histories())
def test_a_bound_is_never_negative_and_every_figure_that_was_cut_has_one_that_reaches_down_to_nothing(history):
    for snapshot in replay(history):
        for row in snapshot.containers:
            for value, error, certainty in (
                (row.memory, row.memory_error, row.memory_certainty),
                (row.sm, row.sm_error, row.sm_certainty),
            ):
                assert error is None or (value is not None and error >= 0)
                assert certainty != "shared-out" or error is not None
            if row.sm_certainty == "shared-out":
                assert row.sm_error >= row.sm  # a cut figure is proven by nothing
                assert row.sm_error <= 1


@given(histories())
def test_instances_never_have_more_than_their_gpu_and_tenants_never_more_than_their_instance(history):
    for snapshot in replay(history):
        for gpu_ in snapshot.gpus:
            mine = [one for one in snapshot.instances if one.gpu == gpu_.gpu.uuid]
            for what in ("busy_seconds", "energy"):
                parts_, total = [getattr(one, what) for one in mine], getattr(gpu_, what)
                measured = [part for part in parts_ if part is not None]
                if total is not None:
                    assert sum(measured) <= total + 1e-6
                else:  # the sum of instances that were not all measured would be too low
                    assert not measured or (what == "busy_seconds" and None in parts_)
        for row in snapshot.containers:
            if row.instance_sm is not None:
                assert row.mig is not None
                assert row.sm - 1e-9 <= row.instance_sm <= 1 + 1e-9


@given(histories())
def test_every_container_stands_once_on_a_gpu(history):
    for snapshot in replay(history):
        places = [(u.key, u.gpu, u.mig) for u in snapshot.containers]
        assert len(places) == len(set(places))


@given(histories())
def test_a_process_is_counted_for_one_container_only(history):
    for snapshot in replay(history):
        for entry in snapshot.gpus:
            if entry.gpu.mig_enabled or entry.gpu.processes is None:
                continue
            in_regions = {(vgpu.key, vgpu.gpu) for vgpu in snapshot.vgpus}  # which count processes of their own
            rows = [u for u in snapshot.containers if u.gpu == entry.gpu.uuid and (u.key, u.gpu) not in in_regions]
            assert sum(u.processes for u in rows) <= len({p.pid for p in entry.gpu.processes})


@given(histories())
def test_counters_never_fall_while_their_container_lives(history):
    before: dict = {}
    for snapshot in replay(history):
        now = {(u.key, u.gpu, u.mig): (u.sm_seconds, u.energy) for u in snapshot.containers}
        for place, values in now.items():
            for old, new in zip(before.get(place, (None, None)), values, strict=True):
                assert old is None or new >= old
        before = now


@given(histories())
def test_the_same_history_gives_the_same_snapshots(history):
    assert replay(history) == replay(history)


def test_a_process_of_the_host_is_the_systems_and_taken_from_nobody_else():
    gpu = make_gpu(used=10 * GIB, processes=(process(1, 3 * GIB), process(2, 2 * GIB)))
    seen = readings(gpu, owners=[owner(1, "a"), owner(2)], pods=[pod("a")])
    split = NodeTracker(node="n", window=60).conclude(seen, ratio=1.0).complete().ledgers[0].memory
    assert (split.containers, split.system, split.unattributed, split.free) == (3 * GIB, 3 * GIB, 5 * GIB, 69 * GIB)
    assert sum(parts(split)) == split.total


def test_a_driver_reload_neither_loses_nor_invents_energy():
    mind = NodeTracker(node="n", window=60)
    totals = [
        mind.conclude(readings(make_gpu(energy=energy), at=at), ratio=1.0).complete().gpus[0].energy
        for at, energy in enumerate((1000.0, 1300.0, 5.0, 25.0), start=1)
    ]
    assert totals == [0.0, 300.0, 300.0, 320.0]


def test_energy_goes_by_sm_time_and_when_nothing_runs_by_memory():
    mind = NodeTracker(node="n", window=60)
    who = {"owners": [owner(1, "a"), owner(2, "b")], "pods": [pod("a"), pod("b")]}

    def draw(energy, at, sm_a, sm_b):
        gpu = make_gpu(
            used=4 * GIB,
            utilization=sm_a + sm_b,
            energy=energy,
            processes=(process(1, GIB, sm_a), process(2, 3 * GIB, sm_b)),
        )
        rows = mind.conclude(readings(gpu, at=at, **who), ratio=1.0).complete().containers
        return {u.key.pod: u.energy for u in rows}

    draw(0.0, 1.0, 0.0, 0.0)
    assert draw(100.0, 2.0, 0.6, 0.2) == pytest.approx({"a": 75.0, "b": 25.0})
    assert draw(200.0, 3.0, 0.0, 0.0) == pytest.approx({"a": 100.0, "b": 100.0})


def test_an_idle_gpu_that_nobody_holds_keeps_its_energy_unattributed():
    mind = NodeTracker(node="n", window=60)
    mind.conclude(readings(make_gpu(energy=10.0), at=1.0), ratio=1.0)
    split = mind.conclude(readings(make_gpu(energy=70.0), at=2.0), ratio=1.0).complete().ledgers[0].energy
    assert (split.total, split.unattributed) == (60.0, 60.0)


def test_what_an_ended_container_used_stays_in_the_books():
    mind = NodeTracker(node="n", window=60)
    gpu = make_gpu(used=GIB, utilization=0.5, energy=0.0, processes=(process(1, GIB, 0.5),))
    who = {"owners": [owner(1, "a")], "pods": [pod("a")], "grants": [grant("a", A)]}
    mind.conclude(readings(gpu, at=0.0, **who), ratio=1.0)
    mind.conclude(readings(gpu, at=10.0, **who), ratio=1.0)
    split = mind.conclude(readings(make_gpu(), at=11.0), ratio=1.0).complete().ledgers[0].sm_seconds
    assert (split.ended, split.containers) == (5.0, 0)
