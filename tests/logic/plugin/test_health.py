"""When a GPU may be used: what the driver says, and XIDs as NVIDIA's catalogue rates them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.logic.plugin.health import HealthTracker
from vgpuscope.model.device import DeviceReading, Gpu, Memory, MigInstance, XidCount
from vgpuscope.model.plugin import GpuFault, PluginGpu

A, B = "GPU-a", "GPU-b"
# From NVIDIA's catalogue (docs/xid.md): what belongs to the application, what to ignore, what the GPU does not survive
HARMLESS = (8, 13, 31, 68, 94, 105, 139, 14, 43, 63, 92, 137, 161, 45, 154, 159)
FATAL = (46, 62, 64, 95, 109, 119, 140, 158, 160, 151, 54, 78, 48, 74, 144, 150, 1, 61)


def gpu(uuid, health="ok", *, index=0, total=1 << 30):
    memory = Memory(total=total, used=0, free=total) if health == "ok" else None
    return Gpu(uuid=uuid, index=index, model="T4", health=health, memory=memory)


def seen(tracker, *gpus, at=0.0, **xids):
    counts = tuple(XidCount(gpu=A, xid=int(name[1:]), count=count) for name, count in xids.items())
    tracker.see(DeviceReading(at=at, gpus=gpus, xids=counts), {})
    return {state.gpu.uuid: state.reason for state in tracker.states}


@pytest.mark.parametrize("xid", HARMLESS)
def test_an_xid_of_the_application_leaves_the_gpu_healthy(xid):
    tracker = HealthTracker()
    assert seen(tracker, gpu(A), **{f"x{xid}": 1}) == {A: ""}
    assert tracker.faults == ()


@pytest.mark.parametrize("xid", FATAL)
def test_an_xid_that_asks_for_more_holds_the_gpu_until_it_is_cleared(xid):
    tracker = HealthTracker()
    assert seen(tracker, gpu(A), gpu(B, index=1), at=5.0, **{f"x{xid}": 1}) == {A: f"xid-{xid}", B: ""}
    assert seen(tracker, gpu(A), gpu(B, index=1), at=1e9, **{f"x{xid}": 1}) == {A: f"xid-{xid}", B: ""}
    assert tracker.clear([A]) == (GpuFault(gpu=A, xid=xid, since=5.0),)
    assert seen(tracker, gpu(A), **{f"x{xid}": 1})[A] == ""
    assert seen(tracker, gpu(A), at=7.0, **{f"x{xid}": 2})[A] == f"xid-{xid}"  # it happened again


def test_an_xid_that_is_not_in_the_catalogue_is_not_acted_on():
    assert seen(HealthTracker(), gpu(A), x999=1) == {A: ""}


def test_time_clears_a_fault_only_once_the_driver_reports_the_gpu():
    tracker = HealthTracker(clear_after=100.0)
    seen(tracker, gpu(A), at=1000.0, x48=1)
    assert seen(tracker, gpu(A), at=1099.0, x48=1) == {A: "xid-48"}
    assert seen(tracker, gpu(A, "reset-required"), at=1200.0, x48=1) == {A: "reset-required"}
    assert tracker.faults != ()
    assert seen(tracker, gpu(A), at=1201.0, x48=1) == {A: ""}


def test_clearing_a_fault_does_not_make_a_gpu_healthy_that_does_not_answer():
    tracker = HealthTracker()
    seen(tracker, gpu(A), x64=1)
    tracker.clear([A])
    assert seen(tracker, gpu(A, "lost"), x64=1) == {A: "lost"}


def test_a_gpu_that_fell_off_the_bus_is_healthy_when_it_answers():
    tracker = HealthTracker()
    assert seen(tracker, gpu(A), at=100.0, x79=1) == {A: "xid-79"}
    assert tracker.faults == ()  # nobody needs to clear it
    assert seen(tracker, gpu(A, "lost"), at=103.0, x79=1) == {A: "lost"}
    assert seen(tracker, gpu(A), at=160.0, x79=1) == {A: ""}


@pytest.mark.parametrize("xid", [48, 62, 95, 119])
def test_falling_off_the_bus_does_not_clear_a_fault_from_before(xid):
    tracker = HealthTracker()
    before = {f"x{xid}": 1}
    assert seen(tracker, gpu(A), at=100.0, **before) == {A: f"xid-{xid}"}
    assert seen(tracker, gpu(A, "lost"), at=103.0, **before, x79=1) == {A: "lost"}
    assert tracker.faults == (GpuFault(gpu=A, xid=xid, since=100.0),)
    assert seen(tracker, gpu(A), at=160.0, **before, x79=1) == {A: f"xid-{xid}"}
    tracker.clear([A])
    assert seen(tracker, gpu(A), at=170.0, **before, x79=1) == {A: ""}


@pytest.mark.parametrize("health", ["lost", "reset-required", "unresponsive", "no-permission", "error"])
def test_what_the_driver_says_of_one_gpu_concerns_that_gpu(health):
    tracker = HealthTracker()
    seen(tracker, gpu(A), gpu(B, index=1))
    assert seen(tracker, gpu(A, health), gpu(B, index=1)) == {A: health, B: ""}
    assert tracker.states[0].gpu.memory == 1 << 30  # known from when it answered
    assert seen(tracker, gpu(A), gpu(B, index=1)) == {A: "", B: ""}


def test_a_gpu_that_is_no_longer_listed_is_lost_and_not_forgotten():
    tracker = HealthTracker()
    seen(tracker, gpu(A), gpu(B, index=1))
    assert seen(tracker, gpu(B, index=1)) == {A: "lost", B: ""}


def test_one_missed_read_of_the_driver_changes_nothing_and_two_concern_all():
    tracker = HealthTracker()
    seen(tracker, gpu(A), gpu(B, index=1))
    tracker.miss()
    assert all(state.healthy for state in tracker.states)
    tracker.miss()
    assert [state.reason for state in tracker.states] == ["unresponsive", "unresponsive"]
    assert seen(tracker, gpu(A), gpu(B, index=1)) == {A: "", B: ""}


def test_a_gpu_that_never_answered_has_no_uuid_to_offer():
    assert seen(HealthTracker(), gpu("unknown-0", "lost")) == {}


def test_faults_from_before_a_restart_hold_but_newer_ones_win():
    tracker = HealthTracker()
    tracker.restore([GpuFault(gpu=A, xid=48, since=1.0)])
    assert seen(tracker, gpu(A)) == {A: "xid-48"}
    tracker = HealthTracker()
    seen(tracker, gpu(A), at=9.0, x64=1)
    tracker.restore([GpuFault(gpu=A, xid=48, since=1.0)])
    assert tracker.faults == (GpuFault(gpu=A, xid=64, since=9.0),)


LOST = PluginGpu(uuid=B, index=1, model="T4", memory=1 << 30)


def test_a_gpu_from_before_a_restart_that_the_driver_does_not_report_is_lost():
    tracker = HealthTracker()
    assert not tracker.expect([LOST, PluginGpu(uuid=A, index=0, model="old")])
    assert not tracker.states  # the driver was not asked yet
    assert seen(tracker, gpu(A), gpu("unknown-1", "lost", index=1)) == {A: "", B: "lost"}
    assert [state.gpu.model for state in tracker.states] == ["T4", "T4"]
    assert seen(tracker, gpu(A), gpu(B, index=1)) == {A: "", B: ""}


def test_gpus_from_before_a_restart_may_be_known_after_the_first_read():
    tracker = HealthTracker()
    seen(tracker, gpu(A))
    assert tracker.expect([LOST])
    assert [state.reason for state in tracker.states] == ["", "lost"]
    assert not tracker.expect([LOST])


def test_without_an_answer_of_the_driver_gpus_from_before_are_unhealthy():
    tracker = HealthTracker()
    tracker.expect([LOST])
    tracker.miss()
    assert not tracker.states
    tracker.miss()
    assert [state.reason for state in tracker.states] == ["unresponsive"]


def test_a_gpu_is_forgotten_when_the_others_were_reported_without_it_for_long():
    tracker = HealthTracker(forget_after=100.0)
    seen(tracker, gpu(A), gpu(B, index=1), at=1000.0)
    assert seen(tracker, gpu(B, index=1), at=1010.0, x48=1) == {A: "lost", B: ""}
    assert seen(tracker, gpu(B, index=1), at=1109.0, x48=1) == {A: "lost", B: ""}
    assert seen(tracker, gpu(B, index=1), at=1110.0, x48=1) == {B: ""}
    assert tracker.faults == ()
    assert seen(tracker, gpu(A), gpu(B, index=1), at=1200.0, x48=1) == {A: "", B: ""}


@pytest.mark.parametrize("doubt", [[gpu(B, index=1), gpu("unknown-0", "lost")], [gpu(A), gpu(B, index=1)], []])
def test_a_gpu_that_may_still_be_there_is_not_forgotten(doubt):
    tracker = HealthTracker(forget_after=100.0)
    seen(tracker, gpu(A), gpu(B, index=1), at=1000.0)
    seen(tracker, gpu(B, index=1), at=1010.0)
    seen(tracker, *doubt, at=1100.0)
    assert A in seen(tracker, gpu(B, index=1), at=1150.0)  # the time begins again
    assert A in seen(tracker, gpu(B, index=1), at=1249.0)
    assert A not in seen(tracker, gpu(B, index=1), at=1250.0)


def test_only_instances_with_a_gpu_instance_of_their_own_are_offered():
    def mig(name, gi, ci, profile):
        return MigInstance(uuid=name, index=0, gpu_instance=gi, compute_instance=ci, profile=profile)

    instances = (mig("alone", 1, 0, "1g.10gb"), mig("c0", 2, 0, "1c.2g.20gb"), mig("c1", 2, 1, "1c.2g.20gb"))
    tracker = HealthTracker()
    one = Gpu(uuid=A, index=0, model="A100", mig_enabled=True, instances=instances)
    tracker.see(DeviceReading(at=0.0, gpus=(one,)), {})
    assert [instance.uuid for instance in tracker.states[0].gpu.instances] == ["alone"]


healths = st.sampled_from(["ok", "lost", "reset-required", "unresponsive", "error"])
steps = st.lists(st.tuples(healths, st.sampled_from([13, 31, 48, 63, 64, 79, 109]), st.booleans()), max_size=12)


@given(steps)
def test_a_gpu_is_never_healthy_while_the_driver_denies_it_or_a_fault_waits(history):
    counts: dict[int, int] = {}
    tracker, held = HealthTracker(), False
    for number, (health, xid, cleared) in enumerate(history):
        counts[xid] = counts.get(xid, 0) + 1
        seen(tracker, gpu(A, health), at=100.0 * number, **{f"x{x}": n for x, n in counts.items()})
        held |= xid in {48, 64, 109}
        if cleared:
            tracker.clear([A])
            held = False
        (state,) = tracker.states
        if health != "ok" or held:
            assert not state.healthy
