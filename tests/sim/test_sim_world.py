"""The simulated world keeps its books: whatever the seed and the pace, the numbers of a node fit together."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vgpuscope.sim.driver import driver_state
from vgpuscope.sim.hardware import A100_80
from vgpuscope.sim.jobs import Hami, Job
from vgpuscope.sim.kinds import HAMI, MIG, PLANS, SICK, SLICED, WHOLE_GPUS, KindPlan
from vgpuscope.sim.workloads import notebook, training
from vgpuscope.sim.world import World

BEGAN = 1_700_000_000.0
CROWDED = KindPlan(
    name="crowded",
    kind="",
    gpus=(A100_80,),
    jobs=(
        Job(name="limited", shape=training(sm=0.8, memory=30000), hami=Hami(memory=40000), workers=2),
        Job(name="greedy", shape=training(sm=0.9, memory=60000), hami=Hami(memory=0)),
        Job(name="late", shape=notebook(memory=9000)),
    ),
)
every_plan = pytest.mark.parametrize("plan", [*PLANS, CROWDED], ids=lambda p: p.name)


def lived(plan, *, seed=1, seconds=250.0, step=0.5):
    """The driver's view after each step."""
    world = World(plan, seed=seed, now=BEGAN)
    for n in range(1, int(seconds / step) + 1):
        world.advance(BEGAN + n * step)
        yield world, driver_state(world)


@every_plan
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), step=st.floats(0.1, 3.0))
def test_over_500_ticks_every_number_fits_the_others(plan, seed, step):
    before: dict = {}
    for world, state in lived(plan, seed=seed, seconds=500 * step, step=step):
        for gpu in state.gpus:
            check_memory(gpu)
            check_time(gpu)
            check_power(gpu, before, step)
        before = {gpu.uuid: gpu for gpu in state.gpus}
        check_limits(world)


def check_memory(gpu):
    held = sum(p.memory for p in gpu.processes)
    assert held <= gpu.used <= gpu.total - gpu.reserved
    assert gpu.used - held < 16 << 20
    for instance in gpu.instances:
        inside = [p for p in gpu.processes if p.gpu_instance == instance.gpu_instance]
        assert instance.used == sum(p.memory for p in inside) <= instance.total - instance.reserved


def check_time(gpu):
    shares = [p.sample.sm for p in gpu.processes if p.sample and p.sample.sm <= 100]
    if gpu.busy is not None:
        assert sum(shares) <= gpu.busy <= 100
    assert all(0 <= share <= 100 for share in shares)


def check_power(gpu, before, step):
    assert 0 < gpu.power_mw <= gpu.limit_mw
    assert 25 < gpu.temperature < 90
    old = before.get(gpu.uuid)
    if old and not gpu.lost and not old.lost:
        assert gpu.energy_mj - old.energy_mj == pytest.approx(gpu.power_mw * step, abs=2 + step)


def check_limits(world):
    for life in world.lives.values():
        if life.job.hami and life.job.hami.memory:
            for gpu in life.job.gpus:
                assert sum(p.memory[gpu] for p in life.running()) <= life.job.hami.memory << 20


def test_a_crowded_gpu_is_full_and_nobody_passes_the_limit():
    *_, (world, state) = lived(CROWDED, seconds=5)
    limited, greedy, late = world.lives.values()
    assert sum(p.memory[0] for p in limited.running()) == 40000 << 20
    assert greedy.running()[0].memory[0] < 60000 << 20
    assert late.running()[0].memory[0] == 0
    assert state.gpus[0].total - state.gpus[0].reserved - state.gpus[0].used < 16 << 20
    assert state.gpus[0].busy == 100


def test_the_same_seed_and_moments_give_the_same_node():
    first = [state for _, state in lived(HAMI, seed=5, seconds=60)]
    assert first == [state for _, state in lived(HAMI, seed=5, seconds=60)]
    assert first != [state for _, state in lived(HAMI, seed=6, seconds=60)]


def test_power_follows_load_and_heat_follows_power_later():
    gpus = [state.gpus[2] for _, state in lived(WHOLE_GPUS, seconds=60)]
    idle = min(gpus, key=lambda c: c.power_mw)
    busy = max(gpus, key=lambda c: c.power_mw)
    assert (idle.busy, busy.busy > 70) == (0, True)
    assert busy.power_mw > 3 * idle.power_mw
    hottest = max(range(len(gpus)), key=lambda n: gpus[n].temperature)
    assert hottest > gpus.index(busy) - 10 > 0


def test_pods_come_and_go_and_take_their_processes_along():
    seen = set()
    for world, state in lived(HAMI, seconds=200):
        seen |= {life.uid for life in world.lives.values() if life.job.name == "finetune"}
        listed = {p.pid for gpu in state.gpus for p in gpu.processes}
        assert listed == {p.pid for life in world.lives.values() for p in life.running()}
    assert len(seen) >= 4


def test_a_leak_grows_to_its_limit_and_stays_there():
    held = []
    for world, _ in lived(HAMI, seconds=180):
        leak = next((life for life in world.lives.values() if life.job.name == "etl-leaky-0"), None)
        held += [sum(p.memory[1] for p in leak.running())] if leak and leak.running() else []
    assert held[-1] == 49152 << 20
    assert held == sorted(held)


def test_a_more_important_container_stops_the_lower_one():
    blocked = set()
    for world, _ in lived(HAMI, seconds=60):
        low = next(life for life in world.lives.values() if life.job.name == "nightly-low")
        blocked.add(low.blocked)
        assert not low.blocked or all(sm == 0 for p in low.running() for sm in p.sm.values())
    assert blocked == {True, False}


def test_one_gpu_of_the_pair_stays_free_and_one_is_held_idle():
    for _, state in lived(WHOLE_GPUS, seconds=100):
        assert state.gpus[3].processes == ()
        assert state.gpus[1].processes
        assert state.gpus[1].busy == 0


def test_a_gpu_of_the_demo_runs_kernels_most_of_the_time_whichever_pods_the_scheduler_adds():
    """It is shown as busy-unproductive, which starts at a mean of 50 %."""
    busy = []
    for world, _ in lived(HAMI):
        stay = [life for life in world.lives.values() if 2 in life.job.gpus and not life.job.restarts]
        busy.append(sum(process.sm[2] for life in stay for process in life.running()))
    minutes = [sum(busy[at : at + 120]) / 120 for at in range(20, len(busy) - 120)]
    assert min(minutes) > 0.55


def test_mig_numbers_have_holes_and_an_instance_comes_and_goes():
    counts = set()
    for _, state in lived(MIG, seconds=120):
        assert [i.index for i in state.gpus[0].instances] == [0, 2, 5, 6]
        assert state.gpus[0].busy is None
        counts.add(len(state.gpus[1].instances))
    assert counts == {2, 3}


def test_mps_clients_are_listed_twice_and_their_server_once():
    *_, (_, state) = lived(SLICED, seconds=2)
    kinds = sorted(p.kinds for p in state.gpus[1].processes)
    assert kinds == [("C",), ("C", "M"), ("C", "M"), ("C", "M")]


def test_a_failing_gpu_reports_is_lost_and_comes_back_with_new_counters():
    states = [state for _, state in lived(SICK, seconds=120)]
    assert [x.xid for x in states[-1].xids] == [48, 79]
    lost = [state.gpus[1].lost for state in states]
    assert (lost[0], any(lost), lost[-1]) == (False, True, False)
    assert states[-1].gpus[1].energy_mj < states[0].gpus[1].energy_mj
    assert not any(state.gpus[0].lost or state.gpus[2].lost for state in states)


def test_a_driver_hang_lasts_eight_seconds():
    hung = [state.gpus[2].hung for _, state in lived(SICK, seconds=60)]
    assert sum(hung) * 0.5 == 8


def test_a_job_that_somebody_deletes_is_gone_and_comes_back_as_a_new_pod():
    world = World(CROWDED, seed=1, now=BEGAN)
    first = next(life for life in world.lives.values() if life.name == "limited")
    world.stopped = frozenset({"default/limited"})
    world.advance(BEGAN + 10)
    assert {life.name for life in world.lives.values()} == {"greedy", "late"}
    assert [life.name for life in world.gone] == ["limited"]
    world.stopped = frozenset()
    world.advance(BEGAN + 20)
    second = next(life for life in world.lives.values() if life.name == "limited")
    assert (second.uid != first.uid, second.born) == (True, 10.0)
