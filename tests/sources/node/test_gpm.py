"""The driver's profiling counters through the real binding: what they say, and what becomes of it when they do not."""

import math
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.native.scenario import FUNCTION_NOT_FOUND, GIB, NO_PERMISSION, NOT_SUPPORTED, UNKNOWN, Scenario, gpu_uuid
from tests.sources.node.wall import WallClock
from tests.waiting import wait_until
from vgpuscope.model.activity import Activity, ActivityReading
from vgpuscope.sources.node.nvml.driver import Nvml

A, B = gpu_uuid(0), gpu_uuid(1)
ENGINE, SM, OCCUPANCY, TENSOR, DRAM, FP64, FP32, FP16 = 1, 2, 3, 5, 10, 11, 12, 13
PCIE_TX, PCIE_RX, NVLINK_RX, NVLINK_TX = 20, 21, 60, 61
MIB = 1024 * 1024


@pytest.fixture
def node(lib, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    scenario = Scenario(tmp_path / "nvml").gpu(0, name="NVIDIA H100 80GB HBM3")
    monkeypatch.setenv("FAKENVML_STATE", str(scenario.path))
    return scenario


@pytest.fixture
def rounds(nvml: Nvml, clock: WallClock) -> Callable[..., ActivityReading]:
    """The profiling values after some rounds, each a second after the one before."""

    def taken(count: int = 2) -> ActivityReading:
        found = None
        for _ in range(count):
            found = nvml.profile(nvml.read().gpus)
            clock.now += 1.0
        assert found is not None
        return found

    return taken


def test_percent_and_mebibytes_become_ratios_and_bytes(node, rounds):
    values = {ENGINE: 50.0, SM: 25.0, OCCUPANCY: 12.5, TENSOR: 10.0, DRAM: 75.0, FP64: 1.0, FP32: 2.0, FP16: 4.0}
    node.gpm(0, {**values, PCIE_TX: 2.0, PCIE_RX: 3.0, NVLINK_TX: 4.0, NVLINK_RX: 5.0}).write()
    assert rounds().places[A, None] == Activity(
        engine=0.5,
        sm=0.25,
        occupancy=0.125,
        tensor=0.1,
        dram=0.75,
        fp64=0.01,
        fp32=0.02,
        fp16=0.04,
        pcie_sent=2 * MIB,
        pcie_received=3 * MIB,
        nvlink_sent=4 * MIB,
        nvlink_received=5 * MIB,
    )


def test_the_first_round_has_no_values_because_a_value_lies_between_two_samples(node, rounds):
    node.gpm(0, {SM: 25.0}).write()
    first = rounds(1)
    assert (first.places, first.blind, first.waiting) == ({}, {}, {A})
    assert rounds(1).waiting == set()


def test_a_metric_that_the_driver_does_not_have_is_absent_and_the_others_are_there(node, rounds):
    node.gpm(0, {SM: 0.0}).write()
    assert rounds().places[A, None] == Activity(sm=0.0)


@pytest.mark.parametrize("value", [100.1, 4294967280.0, -1.0, math.inf, math.nan])
def test_an_impossible_value_is_absent_and_counted_never_clamped(node, rounds, value):
    node.gpm(0, {SM: value, ENGINE: 40.0, PCIE_TX: value * 1e12}).write()
    found = rounds()
    assert found.places[A, None] == Activity(engine=0.4)
    assert sum(found.dropped.values()) == 2


def test_each_gpu_instance_has_its_own_values_and_links_belong_to_the_gpu(node, rounds):
    node.mig(0, 0, gi=3, profile="1g.10gb").mig(0, 1, gi=5, profile="2g.20gb", slices=2)
    node.gpm(0, {SM: 30.0, PCIE_TX: 1.0}).gpm(0, {SM: 90.0, PCIE_TX: 1.0}, index=0).gpm(0, {SM: 0.0}, index=1).write()
    assert rounds().places == {
        (A, None): Activity(sm=0.3, pcie_sent=MIB),
        (A, 3): Activity(sm=0.9),
        (A, 5): Activity(sm=0.0),
    }


def test_of_the_video_engines_of_an_instance_the_busiest_counts(node, rounds):
    node.mig(0, 0, gi=3).gpm(0, {SM: 0.0}).gpm(0, {SM: 0.0, 30: 10.0, 31: 60.0, 40: 0.0, 50: 5.0}, index=0).write()
    assert rounds().places[A, 3] == Activity(sm=0.0, decoder=0.6, jpeg=0.0, ofa=0.05)


def test_two_compute_instances_of_a_gpu_instance_are_sampled_once(node, rounds, lib):
    node.mig(0, 0, gi=1, ci=0, profile="2c.4g.40gb").mig(0, 1, gi=1, ci=1, profile="2c.4g.40gb")
    node.gpm(0, {SM: 30.0}).gpm(0, {SM: 60.0}, index=0).write()
    before = lib.fakenvml_calls(b"nvmlGpmMigSampleGet")
    assert rounds(3).places[A, 1] == Activity(sm=0.6)
    assert lib.fakenvml_calls(b"nvmlGpmMigSampleGet") - before == 3


def test_a_gpu_without_gpm_says_so_and_is_asked_once_a_minute(node, rounds, lib):
    node.write()
    before = lib.fakenvml_calls(b"nvmlGpmQueryDeviceSupport")
    found = rounds(20)
    assert (found.places, found.blind) == ({}, {A: "unsupported"})
    assert lib.fakenvml_calls(b"nvmlGpmQueryDeviceSupport") - before == 1
    rounds(60)
    assert lib.fakenvml_calls(b"nvmlGpmQueryDeviceSupport") - before == 2


@pytest.mark.parametrize(
    ("call", "code", "reason"),
    [
        ("nvmlGpmQueryDeviceSupport", FUNCTION_NOT_FOUND, "no-symbols"),
        ("nvmlGpmSampleGet", FUNCTION_NOT_FOUND, "no-symbols"),
        ("nvmlGpmQueryDeviceSupport", NO_PERMISSION, "no-permission"),
        ("nvmlGpmSampleGet", NO_PERMISSION, "no-permission"),
        ("nvmlGpmQueryDeviceSupport", UNKNOWN, "failed"),
    ],
)
def test_a_driver_that_refuses_is_explained(node, rounds, call, code, reason):
    node.gpm(0, {SM: 25.0}).fail(call, code).write()
    found = rounds(3)
    assert (found.places, found.blind) == ({}, {A: reason})


def two_instances(node: Scenario) -> Scenario:
    node.mig(0, 0, gi=3).mig(0, 1, gi=5)
    return node.gpm(0, {SM: 30.0}).gpm(0, {SM: 90.0}, index=0).gpm(0, {SM: 80.0}, index=1)


def test_a_mig_gpu_that_refuses_samples_of_the_whole_has_those_of_its_instances(node, rounds, lib):
    two_instances(node).fail("nvmlGpmSampleGet", NOT_SUPPORTED, slot=0).write()
    before = lib.fakenvml_calls(b"nvmlGpmSampleGet")
    found = rounds(10)
    assert found.places == {(A, 3): Activity(sm=0.9), (A, 5): Activity(sm=0.8)}
    assert found.blind == {}
    assert found.dropped["gpm-refused"] == lib.fakenvml_calls(b"nvmlGpmSampleGet") - before == 1


def test_an_instance_whose_samples_are_refused_is_counted_and_asked_once_a_minute(node, rounds, lib):
    two_instances(node).fail("nvmlGpmMigSampleGet", NOT_SUPPORTED, slot=0, mig=1).write()
    before = lib.fakenvml_calls(b"nvmlGpmMigSampleGet")
    found = rounds(10)
    assert found.places == {(A, None): Activity(sm=0.3), (A, 3): Activity(sm=0.9)}
    assert (found.blind, found.dropped["gpm-refused"]) == ({}, 1)
    assert lib.fakenvml_calls(b"nvmlGpmMigSampleGet") - before == 11
    node.heal().write()
    assert (A, 5) in rounds(60).places


def test_a_mig_gpu_is_blind_if_all_its_samples_are_refused(node, rounds):
    two_instances(node).fail("nvmlGpmSampleGet", NOT_SUPPORTED).fail("nvmlGpmMigSampleGet", NO_PERMISSION).write()
    found = rounds(3)
    assert (found.places, found.blind) == ({}, {A: "unsupported"})


def test_a_gpu_without_any_usable_value_is_absent_counted_and_explained(node, rounds):
    node.gpm(0, {SM: math.nan, ENGINE: 4294967280.0}).write()
    assert rounds(1).blind == {}  # there is no value yet
    found = rounds(2)
    assert (found.places, found.blind) == ({}, {A: "no-values"})
    assert found.dropped == {"gpm-nan": 2, "gpm-over-100": 2, "gpm-empty": 2}
    node.gpm(0, {SM: 25.0}).write()
    assert rounds(1).blind == {}


def test_an_instance_without_any_usable_value_is_absent_and_counted(node, rounds):
    two_instances(node).gpm(0, {SM: math.nan}, index=1).write()
    found = rounds()
    assert found.places == {(A, None): Activity(sm=0.3), (A, 3): Activity(sm=0.9)}
    assert (found.blind, found.dropped["gpm-empty"]) == ({}, 1)


def test_a_binding_without_gpm_is_a_driver_without_the_symbols(node):
    class Old:
        """An nvidia-ml-py from before GPM."""

        def __getattr__(self, name: str) -> object:
            import pynvml

            if "Gpm" in name:
                raise AttributeError(name)
            return getattr(pynvml, name)

    node.gpm(0, {SM: 25.0}).write()
    source = Nvml(Old())
    try:
        found = source.profile(source.read().gpus)
    finally:
        source.close()
    assert found is not None
    assert found.blind == {A: "no-symbols"}


def test_one_gpu_without_values_does_not_cost_the_other_its_own(node, rounds):
    node.gpu(1).gpm(0, {SM: 25.0}).gpm(1, {SM: 50.0}).fail("nvmlGpmSampleGet", UNKNOWN, slot=0).write()
    found = rounds(3)
    assert found.places == {(B, None): Activity(sm=0.5)}
    assert found.dropped["gpm-failed"] == 3


def test_an_instance_that_is_destroyed_while_it_is_sampled_is_absent_and_counted(node, nvml, clock):
    node.mig(0, 0, gi=3).mig(0, 1, gi=5)
    node.gpm(0, {SM: 30.0}).gpm(0, {SM: 90.0}, index=0).gpm(0, {SM: 80.0}, index=1).write()
    gpus = nvml.read().gpus
    nvml.profile(gpus)
    node.unmig(0, 1).write()
    found = nvml.profile(gpus)  # the list of instances is from before
    assert found is not None
    assert found.places == {(A, None): Activity(sm=0.3), (A, 3): Activity(sm=0.9)}
    assert found.dropped["gpm-instance-gone"] == 1


def test_a_new_instance_with_the_number_of_a_destroyed_one_does_not_inherit_its_time(node, rounds):
    node.mig(0, 0, gi=3).gpm(0, {SM: 30.0}).gpm(0, {SM: 90.0}, index=0).write()
    assert (A, 3) in rounds().places
    node.unmig(0, 0).write()
    assert (A, 3) not in rounds(1).places
    node.mig(0, 0, gi=3, uuid="MIG-new").gpm(0, {SM: 10.0}, index=0).write()
    assert (A, 3) not in rounds(1).places
    assert rounds(1).places[A, 3] == Activity(sm=0.1)


def test_an_instance_that_is_replaced_between_two_rounds_does_not_leave_its_sample_to_the_new_one(node, rounds):
    two_instances(node).write()
    rounds()
    node.mig(0, 0, gi=3, uuid="MIG-new").gpm(0, {SM: 10.0}, index=0).write()
    found = rounds(1)
    assert found.places == {(A, None): Activity(sm=0.3), (A, 5): Activity(sm=0.8)}
    assert found.dropped == {"gpm-instance-gone": 1}
    assert rounds(1).places[A, 3] == Activity(sm=0.1)


def test_a_second_compute_instance_does_not_make_another_gpu_instance(node, rounds):
    node.mig(0, 0, gi=3, ci=0).gpm(0, {SM: 30.0}).gpm(0, {SM: 90.0}, index=0).write()
    rounds()
    node.mig(0, 1, gi=3, ci=1).write()
    assert rounds(1).places[A, 3] == Activity(sm=0.9)


def test_a_failed_round_is_no_part_of_the_time_of_a_value(node, rounds):
    node.gpm(0, {SM: 25.0}).write()
    rounds()
    node.fail("nvmlGpmMetricsGet", UNKNOWN).write()
    assert rounds(1).places == {}
    node.heal().write()
    assert rounds(1).places == {}
    assert rounds(1).places[A, None] == Activity(sm=0.25)


def test_samples_are_freed_with_their_instances(node, rounds, lib):
    before = lib.fakenvml_gpm_samples()
    node.mig(0, 0, gi=3).mig(0, 1, gi=5).gpm(0, {SM: 30.0}).write()
    rounds()
    assert lib.fakenvml_gpm_samples() - before == 6
    node.unmig(0, 1).write()
    rounds()
    assert lib.fakenvml_gpm_samples() - before == 4


def test_a_reloaded_driver_is_sampled_again(node, rounds):
    node.gpm(0, {SM: 25.0}).write()
    rounds()
    node.reload().write()
    assert rounds(3).places[A, None] == Activity(sm=0.25)


def test_a_lost_gpu_has_no_values(node, rounds):
    node.gpm(0, {SM: 25.0}).write()
    rounds()
    node.lost(0).write()
    assert rounds(2).places == {}


def test_memory_queries_that_fail_once_an_instance_is_sampled_end_the_sampling_of_that_gpu(node, nvml, clock, rounds):
    node.gpu(0, gpm_disturbs=1).mig(0, 0, gi=3, memory_used=GIB).gpm(0, {SM: 30.0}).gpm(0, {SM: 90.0}, index=0)
    node.gpu(1).gpm(1, {SM: 50.0}).write()
    said = []
    for _ in range(6):
        reading = nvml.read()
        said.append(nvml.disturbed(reading))
        found = nvml.profile(reading.gpus)
        clock.now += 1.0
    assert [one for one in said if one] == [A]
    assert found is not None
    assert found.blind == {A: "disturbs-memory"}
    assert found.places == {(B, None): Activity(sm=0.5)}


def test_memory_that_was_never_readable_is_not_the_fault_of_profiling(node, nvml, clock):
    node.mig(0, 0, gi=3).gpm(0, {SM: 30.0}).gpm(0, {SM: 90.0}, index=0)
    node.fail("nvmlDeviceGetMemoryInfo", UNKNOWN, slot=0, mig=0).fail(
        "nvmlDeviceGetMemoryInfo_v2", UNKNOWN, slot=0, mig=0
    ).write()
    for _ in range(6):
        reading = nvml.read()
        assert nvml.disturbed(reading) is None
        nvml.profile(reading.gpus)
        clock.now += 1.0


def test_a_call_that_hangs_keeps_only_its_own_thread(node, nvml):
    node.gpm(0, {SM: 25.0}).hang("nvmlGpmSampleGet").write()
    gpus = nvml.read().gpus
    thread = threading.Thread(target=lambda: nvml.profile(gpus), daemon=True)
    thread.start()
    wait_until(lambda: "nvmlGpmSampleGet" in nvml.profiling)
    assert nvml.profiling == f"nvmlGpmSampleGet {A}"
    assert nvml.read().gpus[0].power is not None
    node.heal().write()
    thread.join(60)
    assert not thread.is_alive()
