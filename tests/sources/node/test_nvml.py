"""The real binding on a stand-in driver: what a node's GPUs say, and what becomes of it when they lie or die."""

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.native import build
from tests.native.scenario import (
    FUNCTION_NOT_FOUND,
    GIB,
    INVALID_ARGUMENT,
    NO_PERMISSION,
    NOT_SUPPORTED,
    RESET_REQUIRED,
    UNINITIALIZED,
    UNKNOWN,
    VERSION_MISMATCH,
    Scenario,
    gpu_uuid,
    mig_uuid,
)
from tests.sources.node.wall import NOW, WallClock
from tests.waiting import wait_until
from vgpuscope.model.device import DeviceReading, Gpu, GpuProcess, Memory
from vgpuscope.model.errors import DriverAbsent, DriverFailed, DriverHung
from vgpuscope.sources.node.nvml.calls import Counter, Garbage
from vgpuscope.sources.node.nvml.driver import Nvml
from vgpuscope.sources.node.nvml.gpu import read_gpu

US = int(NOW * 1e6)


@pytest.fixture
def node(lib, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    scenario = Scenario(tmp_path / "nvml").gpu(0).gpu(1)
    monkeypatch.setenv("FAKENVML_STATE", str(scenario.path))
    return scenario


@pytest.fixture
def calls(lib) -> Callable[[str], int]:
    """How often a call reached the driver so far."""
    return lambda name: lib.fakenvml_calls(name.encode())


def by_pid(gpu: Gpu) -> dict[int, GpuProcess]:
    assert gpu.processes is not None
    return {process.pid: process for process in gpu.processes}


def dropped(reading: DeviceReading) -> dict[str, int]:
    return dict(reading.dropped)


# -- what changes rarely ----------------------------------------------------------------------------------------------


def errors(reading: DeviceReading) -> tuple[object, ...]:
    gpu = reading.gpus[0]
    return gpu.ecc_corrected, gpu.ecc_uncorrected, gpu.remapped_uncorrected, gpu.power_limit


def every_second(nvml: Nvml, clock: WallClock, seconds: int) -> list[tuple[object, ...]]:
    seen = []
    for _ in range(seconds):
        seen.append(errors(nvml.read()))
        clock.forward(1.0)
    return seen


def test_error_counts_and_limits_are_asked_for_every_ten_seconds_and_shown_in_every_sample(node, nvml, clock, calls):
    node.gpu(0, ecc_corrected=3, ecc_uncorrected=1, remap_uncorrected=5, power_limit=400_000).write()
    before = {name: calls(name) for name in SLOW_CALLS}
    assert every_second(nvml, clock, 30) == [(3, 1, 5, 400.0)] * 30
    assert {name: calls(name) - before[name] for name in SLOW_CALLS} == {
        "nvmlDeviceGetTotalEccErrors": 2 * 2 * 3,  # of two kinds, on two GPUs, three times
        "nvmlDeviceGetRemappedRows": 2 * 3,
        "nvmlDeviceGetEnforcedPowerLimit": 2 * 3,
    }


SLOW_CALLS = ("nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetEnforcedPowerLimit")


def test_a_new_error_count_shows_within_ten_seconds(node, nvml, clock):
    node.gpu(0, ecc_corrected=3, ecc_uncorrected=0, remap_uncorrected=0, power_limit=400_000).write()
    every_second(nvml, clock, 4)
    node.gpu(0, ecc_corrected=4, ecc_uncorrected=1, remap_uncorrected=2, power_limit=300_000).write()
    assert every_second(nvml, clock, 10)[-1] == (4, 1, 2, 300.0)


def test_an_error_count_that_could_not_be_read_is_asked_for_again_at_the_next_sample(node, nvml, clock):
    node.gpu(0, ecc_corrected=3, ecc_uncorrected=1, remap_uncorrected=5, power_limit=400_000)
    node.fail("nvmlDeviceGetRemappedRows", UNKNOWN).write()
    assert every_second(nvml, clock, 1) == [(3, 1, None, 400.0)]
    node.heal().write()
    assert every_second(nvml, clock, 1) == [(3, 1, 5, 400.0)]


def test_a_gpu_that_comes_back_shows_its_new_error_counts_at_once(node, nvml, clock):
    node.gpu(0, ecc_corrected=3, ecc_uncorrected=1, remap_uncorrected=5, power_limit=400_000).write()
    every_second(nvml, clock, 1)
    node.lost(0).write()
    assert every_second(nvml, clock, 1) == [(None, None, None, None)]
    node.heal().gpu(0, ecc_corrected=0, ecc_uncorrected=0, remap_uncorrected=6, power_limit=400_000).write()
    back = [seen for seen in every_second(nvml, clock, 9) if seen[0] is not None]
    assert set(back) == {(0, 0, 6, 400.0)}


# -- values ---------------------------------------------------------------------------------------------------------


def test_every_value_comes_in_base_units(node, nvml):
    node.gpu(0, serial="S1", minor=4, fan=30, throttle=0x24, ecc_corrected=3, ecc_uncorrected=1, remap_pending=1)
    node.gpu(0, remap_corrected=2, remap_uncorrected=5).write()
    reading = nvml.read()
    assert reading.at == NOW
    assert (reading.driver_version, reading.cuda_version, reading.dropped) == ("550.54.15", "12.4", ())
    assert reading.gpus[0] == Gpu(
        uuid=gpu_uuid(0),
        index=0,
        model="NVIDIA A100-SXM4-80GB",
        serial="S1",
        minor=4,
        pci_bus_id="00000000:01:00.0",
        mig_enabled=False,
        memory=Memory(total=80 * GIB, used=8 * GIB, free=71 * GIB, reserved=GIB),
        utilization=0.4,
        memory_controller=0.2,
        encoder=0.05,
        decoder=0.06,
        jpeg=0.07,
        ofa=0.08,
        power=250.0,
        power_limit=400.0,
        power_limit_max=450.0,
        energy=5000.0,
        temperature=55.0,
        memory_temperature=62.0,
        sm_clock=1.41e9,
        memory_clock=1.593e9,
        sm_clock_max=1.41e9,
        memory_clock_max=1.593e9,
        fan=0.3,
        throttle=frozenset({"sw-power-cap", "sw-thermal"}),
        pcie_sent=1_000_000,
        pcie_received=2_000_000,
        pcie_replays=3,
        ecc_corrected=3,
        ecc_uncorrected=1,
        remapped_corrected=2,
        remapped_uncorrected=5,
        remap_pending=True,
        remap_failed=False,
        processes=(),
    )


def test_a_gpu_that_supports_nothing_is_still_listed(node, nvml):
    absent = dict.fromkeys(("power", "energy", "temperature", "sm_clock", "throttle", "fan", "utilization"))
    node.gpu(0, memory_total=None, mig_mode=None, serial=None, pci="00000000:00:00.0", **absent).write()
    one_gpu = nvml.read().gpus[0]
    assert one_gpu.health == "ok"
    assert (one_gpu.memory, one_gpu.power, one_gpu.energy, one_gpu.temperature, one_gpu.utilization) == (None,) * 5
    assert (one_gpu.sm_clock, one_gpu.throttle, one_gpu.mig_enabled, one_gpu.serial, one_gpu.pci_bus_id) == (None,) * 5


def test_an_unsupported_call_is_not_repeated_for_a_minute(node, nvml, clock, calls):
    node.gpu(0, power=None).remove(1).write()
    nvml.read()
    before = calls("nvmlDeviceGetPowerUsage")
    clock.forward(1)
    node.gpu(0, power=100_000).write()
    assert nvml.read().gpus[0].power is None
    assert calls("nvmlDeviceGetPowerUsage") == before
    clock.forward(60)
    assert nvml.read().gpus[0].power == 100.0


def test_an_unknown_error_costs_one_value_of_one_sample(node, nvml, calls):
    node.fail("nvmlDeviceGetPowerUsage", UNKNOWN, slot=0).write()
    begun = calls("nvmlInitWithFlags")
    one_gpu = nvml.read().gpus[0]
    assert (one_gpu.health, one_gpu.power, one_gpu.temperature) == ("ok", None, 55.0)
    node.heal().write()
    assert nvml.read().gpus[0].power == 250.0
    assert calls("nvmlInitWithFlags") == begun + 1


@pytest.mark.parametrize("code", [NOT_SUPPORTED, INVALID_ARGUMENT])
def test_field_values_that_the_driver_lacks_are_not_asked_for_again(node, nvml, clock, calls, code):
    node.gpu(0, memory_temperature=None, pcie_sent=None, pcie_received=None, pcie_replays=None, field_code=code).remove(
        1
    ).write()
    one_gpu = nvml.read().gpus[0]
    assert (one_gpu.memory_temperature, one_gpu.pcie_sent, one_gpu.pcie_received) == (None, None, None)
    assert one_gpu.pcie_replays is None
    before = calls("nvmlDeviceGetFieldValues")
    clock.forward(1)
    nvml.read()
    assert calls("nvmlDeviceGetFieldValues") == before


def test_a_memory_sensor_that_is_not_there_measures_nothing(node, nvml):
    node.gpu(0, memory_temperature=0).write()
    assert nvml.read().gpus[0].memory_temperature is None


def test_older_drivers_are_asked_by_older_names(node, nvml):
    newer = ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetTemperatureV", "nvmlDeviceGetCurrentClocksEventReasons")
    lists = tuple(f"nvmlDeviceGet{kind}RunningProcesses_v3" for kind in ("Compute", "Graphics", "MPSCompute"))
    for name in (*newer, *lists, "nvmlDeviceGetProcessesUtilizationInfo"):
        node.fail(name, FUNCTION_NOT_FOUND)
    node.process(0, 7).sample(0, 7, sm=9, at=US - 10).gpu(0, throttle=1).write()
    one_gpu = nvml.read().gpus[0]
    assert one_gpu.memory == Memory(total=80 * GIB, used=9 * GIB, free=71 * GIB, reserved=None)
    assert (one_gpu.temperature, one_gpu.throttle) == (55.0, frozenset({"idle"}))
    assert by_pid(one_gpu)[7].sm == 0.09


def test_a_moment_without_memory_v2_does_not_mix_in_v1(node, nvml):
    node.write()
    nvml.read()
    node.fail("nvmlDeviceGetMemoryInfo_v2", UNKNOWN).write()
    assert nvml.read().gpus[0].memory is None


def test_pcie_is_never_measured_by_the_call_that_blocks(node, nvml, calls):
    node.write()
    nvml.read()
    assert calls("nvmlDeviceGetPcieThroughput") == 0


def test_identity_is_read_once(node, nvml, clock, calls):
    node.write()
    nvml.read()
    before = calls("nvmlDeviceGetName"), calls("nvmlDeviceGetMaxClockInfo"), calls("nvmlInitWithFlags")
    clock.forward(1)
    nvml.read()
    assert (calls("nvmlDeviceGetName"), calls("nvmlDeviceGetMaxClockInfo"), calls("nvmlInitWithFlags")) == before


# -- garbage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_value", "field", "reason"),
    [
        ({"utilization": 4294967280}, "utilization", "percent-over-100"),
        ({"encoder": 101}, "encoder", "percent-over-100"),
        ({"memory_used": 81 * GIB, "memory_free": 0}, "memory", "memory-over-total"),
        ({"memory_used": 2**64 - GIB, "memory_free": 0}, "memory", "memory-over-total"),
        ({"memory_total": 0}, "memory", "memory-without-total"),
        ({"power": 0xFFFFFFFF}, "power", "power-implausible"),
        ({"temperature": 255000}, "temperature", "temperature-implausible"),
        ({"sm_clock": 0xFFFFFFFF}, "sm_clock", "clock-implausible"),
        ({"energy": 2**64 - 1}, "energy", "counter-wrapped"),
        ({"pcie_sent": 2**64 - 5}, "pcie_sent", "counter-wrapped"),
        ({"ecc_corrected": 2**64 - 1}, "ecc_corrected", "counter-wrapped"),
        ({"remap_corrected": 0xFFFFFFFF}, "remapped_corrected", "counter-wrapped"),
    ],
)
def test_what_cannot_be_true_is_dropped_and_counted(node, nvml, given_value, field, reason):
    node.gpu(0, **given_value).write()
    nvml.read()
    reading = nvml.read()
    assert getattr(reading.gpus[0], field) is None
    assert getattr(reading.gpus[1], field) is not None
    assert dropped(reading) == {reason: 2}


def test_a_single_odd_energy_value_is_dropped(node, nvml, clock):
    node.write()
    nvml.read()
    for odd, reason in ((12, "counter-backwards"), (2**60, "counter-jump")):
        clock.forward(1)
        node.gpu(0, energy=odd).write()
        reading = nvml.read()
        assert reading.gpus[0].energy is None
        assert dropped(reading)[reason] == 1
        clock.forward(1)
        node.gpu(0, energy=5_000_500).write()
        assert nvml.read().gpus[0].energy == 5000.5


def test_a_counter_that_stays_reset_is_believed(node, nvml, clock):
    node.write()
    nvml.read()
    clock.forward(1)
    node.gpu(0, energy=100).write()
    nvml.read()
    clock.forward(1)
    node.gpu(0, energy=350).write()
    assert nvml.read().gpus[0].energy == 0.35


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1), st.integers(0, 2**62))
def test_a_counter_never_stays_refused(garbage, truth):
    counter = Counter(1000.0)
    for at, value in enumerate([*garbage, truth, truth]):
        try:
            counter.check(value, float(at))
        except Garbage:
            assert value != truth or at < len(garbage) + 1


# -- processes ------------------------------------------------------------------------------------------------------


def test_a_process_in_two_lists_is_one_process_with_its_memory_once(node, nvml):
    node.process(0, 7, kinds="CG", memory=2 * GIB).process(0, 8, kinds="M", memory=GIB).process(0, 9, kinds="G").write()
    processes = by_pid(nvml.read().gpus[0])
    assert {pid: process.kinds for pid, process in processes.items()} == {
        7: {"compute", "graphics"},
        8: {"mps"},
        9: {"graphics"},
    }
    assert (processes[7].memory, processes[8].memory) == (2 * GIB, GIB)


def test_memory_that_the_driver_does_not_tell_is_absent(node, nvml):
    node.process(0, 7, memory=None).write()
    assert by_pid(nvml.read().gpus[0])[7].memory is None


def test_garbage_processes_are_dropped_and_garbage_memory_is_absent(node, nvml):
    node.process(0, 0).process(0, 4294967295).process(0, 7, memory=90 * GIB).write()
    reading = nvml.read()
    assert [(p.pid, p.memory) for p in reading.gpus[0].processes] == [(7, None)]
    assert dropped(reading) == {"process-pid": 2, "process-memory-over-total": 1}


def test_a_list_that_cannot_be_read_is_not_an_empty_list(node, nvml):
    node.process(0, 7).fail("nvmlDeviceGetComputeRunningProcesses_v3", UNKNOWN, slot=0).write()
    assert nvml.read().gpus[0].processes is None
    assert nvml.read().gpus[1].processes == ()


def test_a_missing_graphics_list_leaves_the_others(node, nvml):
    node.process(0, 7).fail("nvmlDeviceGetGraphicsRunningProcesses_v3", NOT_SUPPORTED)
    node.fail("nvmlDeviceGetGraphicsRunningProcesses_v2", NOT_SUPPORTED).write()
    assert list(by_pid(nvml.read().gpus[0])) == [7]


# -- what processes use ---------------------------------------------------------------------------------------------


def test_a_process_gets_its_newest_sample_and_a_silent_one_zero(node, nvml):
    node.process(0, 7).process(0, 8)
    node.sample(0, 7, sm=10, at=US - 500_000).sample(0, 7, sm=30, enc=5, dec=6, at=US - 100_000)
    node.sample(0, 7, sm=20, at=US - 300_000).sample(0, 99, sm=50, at=US - 100).write()
    processes = by_pid(nvml.read().gpus[0])
    assert (processes[7].sm, processes[7].encoder, processes[7].decoder) == (0.3, 0.05, 0.06)
    assert (processes[8].sm, processes[8].encoder, processes[8].decoder) == (0.0, 0.0, 0.0)


def test_history_before_the_first_second_is_not_the_present(node, nvml):
    node.process(0, 7).sample(0, 7, sm=80, at=US - 1_500_000).write()
    assert by_pid(nvml.read().gpus[0])[7].sm == 0.0


def test_a_sample_counts_once(node, nvml, clock):
    node.process(0, 7).sample(0, 7, sm=80, at=US - 100).write()
    assert by_pid(nvml.read().gpus[0])[7].sm == 0.8
    clock.forward(1)
    assert by_pid(nvml.read().gpus[0])[7].sm == 0.0


def test_a_driver_that_ignores_the_time_stamp_does_not_repeat_history(node, nvml, clock):
    node.gpu(0, samples_all=1).process(0, 7).sample(0, 7, sm=80, at=US - 100).write()
    nvml.read()
    clock.forward(1)
    assert by_pid(nvml.read().gpus[0])[7].sm == 0.0


def test_a_clock_that_was_set_back_does_not_silence_processes(node, nvml, clock):
    node.process(0, 7).sample(0, 7, sm=80, at=US - 100).write()
    nvml.read()
    clock.forward(-3600)
    nvml.read()
    clock.forward(1)
    node.idle(0).sample(0, 7, sm=40, at=int(clock.now * 1e6) - 500_000).write()
    assert by_pid(nvml.read().gpus[0])[7].sm == 0.4


@pytest.mark.parametrize("silent", [None, 1])
def test_no_samples_mean_that_nobody_did_anything(node, nvml, silent):
    node.gpu(0, samples_silent=silent).process(0, 7).write()
    assert by_pid(nvml.read().gpus[0])[7].sm == 0.0


def test_use_that_is_not_supported_is_absent(node, nvml):
    node.process(0, 7)
    for name in ("nvmlDeviceGetProcessesUtilizationInfo", "nvmlDeviceGetProcessUtilization"):
        node.fail(name, NOT_SUPPORTED)
    node.write()
    assert by_pid(nvml.read().gpus[0])[7].sm is None


def test_a_garbage_sample_is_dropped_and_is_not_zero(node, nvml):
    node.process(0, 7).process(0, 8).process(0, 9)
    node.sample(0, 7, sm=4294967280, at=US - 100).sample(0, 8, sm=5, at=US + 3_600_000_000)
    node.sample(0, 9, sm=300, at=US - 50).sample(0, 9, sm=25, at=US - 100).write()
    reading = nvml.read()
    processes = by_pid(reading.gpus[0])
    assert (processes[7].sm, processes[8].sm, processes[9].sm) == (None, None, 0.25)
    assert dropped(reading) == {"process-percent-over-100": 2, "process-time": 1}


def test_a_sample_from_the_future_does_not_hide_those_that_follow(node, nvml, clock):
    node.process(0, 7).sample(0, 7, sm=5, at=US + 3_600_000_000).write()
    nvml.read()
    clock.forward(1)
    node.idle(0).sample(0, 7, sm=60, at=US + 500_000).write()
    assert by_pid(nvml.read().gpus[0])[7].sm == 0.6


# -- MIG ------------------------------------------------------------------------------------------------------------


def test_instances_are_found_behind_holes(node, nvml):
    node.mig(0, 2, gi=3).mig(0, 5, gi=9, profile="3g.40gb", slices=3, memory_total=40 * GIB, memory_used=2 * GIB)
    node.process(0, 7, gi=9, ci=0, memory=GIB).write()
    one_gpu = nvml.read().gpus[0]
    assert (one_gpu.mig_enabled, one_gpu.utilization, one_gpu.encoder, one_gpu.power) == (True, None, None, 250.0)
    assert [(i.index, i.uuid, i.gpu_instance, i.profile, i.slices) for i in one_gpu.instances] == [
        (2, mig_uuid(0, 2), 3, "1g.10gb", 1),
        (5, mig_uuid(0, 5), 9, "3g.40gb", 3),
    ]
    assert one_gpu.instances[0].processes == ()
    assert one_gpu.instances[1].memory == Memory(total=40 * GIB, used=2 * GIB, free=38 * GIB, reserved=0)
    assert one_gpu.instances[1].processes == one_gpu.processes
    assert one_gpu.processes == (
        GpuProcess(pid=7, kinds=frozenset({"compute"}), memory=GIB, gpu_instance=9, compute_instance=0),
    )


def test_two_compute_instances_of_one_gpu_instance_are_two(node, nvml):
    for index, ci in ((0, 0), (1, 1)):
        node.mig(0, index, gi=1, ci=ci, profile="1c.3g.40gb", slices=3, ci_slices=1, memory_total=40 * GIB)
        node.process(0, 70 + ci, gi=1, ci=ci)
    node.write()
    first, second = nvml.read().gpus[0].instances
    assert (first.gpu_instance, first.compute_instance) == (1, 0)
    assert (second.gpu_instance, second.compute_instance) == (1, 1)
    assert (first.profile, first.slices) == ("1c.3g.40gb", 1)
    assert [[p.pid for p in i.processes] for i in (first, second)] == [[70], [71]]


def test_a_profile_is_told_from_the_sizes_if_the_name_does_not(node, nvml):
    node.mig(0, 0, gi=1, slices=3, ci_slices=1, memory_total=40 * GIB)
    node.fail("nvmlDeviceGetName", NOT_SUPPORTED, slot=0, mig=0).write()
    assert nvml.read().gpus[0].instances[0].profile == "1c.3g.40gb"


def test_an_instance_that_was_replaced_is_not_taken_for_the_old_one(node, nvml):
    node.mig(0, 1, gi=3).mig(0, 2, gi=4).write()
    nvml.read()
    node.unmig(0, 1).mig(0, 2, gi=5, uuid="MIG-new", profile="2g.20gb", memory_total=20 * GIB).write()
    (instance,) = nvml.read().gpus[0].instances
    assert (instance.uuid, instance.gpu_instance, instance.memory.total) == ("MIG-new", 5, 20 * GIB)


def test_an_instance_that_dies_while_we_look_leaves_the_others(node, nvml):
    node.mig(0, 1, gi=3).mig(0, 2, gi=4).fail("nvmlDeviceGetGpuInstanceId", 2, slot=0, mig=1).write()
    one_gpu = nvml.read().gpus[0]
    assert (one_gpu.health, [i.index for i in one_gpu.instances]) == ("ok", [2])


def test_instances_tell_their_processes_when_the_gpu_may_not(node, nvml):
    node.mig(0, 1, gi=3).process(0, 7, gi=3, ci=0)
    for kind in ("Compute", "Graphics", "MPSCompute"):
        for version in ("v2", "v3"):
            name = f"nvmlDeviceGet{kind}RunningProcesses_{version}"
            node.fail(name, NO_PERMISSION, slot=0).fail(name, 0, slot=0, mig=1)
    node.write()
    one_gpu = nvml.read().gpus[0]
    assert one_gpu.processes is None
    assert [p.pid for p in one_gpu.instances[0].processes] == [7]


def test_the_place_of_an_instance_on_its_gpu_is_asked_for_once(node, nvml, calls):
    node.mig(0, 1, gi=11, placed=(19, 4)).mig(0, 2, gi=12, placed=(19, 5)).write()
    before = calls("nvmlGpuInstanceGetInfo")
    places = [[(i.profile_id, i.start) for i in nvml.read().gpus[0].instances] for _ in range(3)]
    assert places == [[(19, 4), (19, 5)]] * 3
    assert calls("nvmlGpuInstanceGetInfo") - before == 2


def test_an_instance_whose_place_the_driver_does_not_tell_is_shown_without_it(node, nvml):
    node.mig(0, 1, gi=11, placed=(19, 4)).fail("nvmlDeviceGetGpuInstanceById", NO_PERMISSION, slot=0).write()
    one_gpu = nvml.read().gpus[0]
    assert [(i.uuid, i.profile_id, i.start) for i in one_gpu.instances] == [(mig_uuid(0, 1), None, None)]
    assert one_gpu.health == "ok"


def test_utilisation_is_back_when_mig_is_turned_off(node, nvml, clock):
    node.mig(0, 1, gi=3).write()
    assert nvml.read().gpus[0].utilization is None
    node.unmig(0, 1).gpu(0, mig_mode=0).write()
    clock.forward(1)
    one_gpu = nvml.read().gpus[0]
    assert (one_gpu.mig_enabled, one_gpu.instances, one_gpu.utilization) == (False, (), 0.4)


# -- GPUs that fail ------------------------------------------------------------------------------------------------


def test_a_lost_gpu_keeps_its_identity_and_leaves_the_others_readable(node, nvml):
    node.write()
    before = nvml.read().gpus[0]
    node.lost(0).write()
    lost, other = nvml.read().gpus
    assert lost == Gpu(
        uuid=before.uuid,
        index=0,
        model=before.model,
        serial=before.serial,
        minor=before.minor,
        pci_bus_id=before.pci_bus_id,
        health="lost",
    )
    assert (other.health, other.power) == ("ok", 250.0)


def test_a_lost_gpu_is_asked_again_slowly_and_comes_back(node, nvml, clock, calls):
    node.write()
    nvml.read()
    node.lost(0).write()
    nvml.read()
    asked = calls("nvmlDeviceGetMigMode")
    clock.forward(1)
    nvml.read()
    assert calls("nvmlDeviceGetMigMode") == asked + 1  # the healthy one
    node.heal().gpu(0, energy=7).write()  # a reset is what brings it back
    clock.forward(5)
    assert [(gpu.health, gpu.energy) for gpu in nvml.read().gpus] == [("ok", 0.007), ("ok", 5000.0)]


def test_a_gpu_lost_before_we_came_is_shown_without_a_name(node, nvml):
    node.lost(1).write()
    assert [(gpu.uuid, gpu.health) for gpu in nvml.read().gpus] == [(gpu_uuid(0), "ok"), ("unknown-1", "lost")]


def test_a_node_whose_only_gpu_is_lost_says_so_and_tries_the_library_anew(node, nvml, clock, calls):
    node.remove(1).write()
    nvml.read()
    begun = calls("nvmlInitWithFlags")
    node.lost(0).write()
    for _ in range(3):
        assert [gpu.health for gpu in nvml.read().gpus] == ["lost"]
        clock.forward(61)
    assert calls("nvmlInitWithFlags") > begun
    node.heal().write()
    clock.forward(61)
    assert [gpu.health for gpu in nvml.read().gpus] == ["ok"]


def test_a_gpu_that_needs_a_reset_says_so(node, nvml):
    node.fail("nvmlDeviceGetMemoryInfo_v2", RESET_REQUIRED, slot=1).write()
    assert [gpu.health for gpu in nvml.read().gpus] == ["ok", "reset-required"]


def test_a_gpu_of_which_every_call_fails_is_an_error_of_that_gpu_alone(node, nvml):
    node.write()
    nvml.read()
    node.fail("*", UNKNOWN, slot=1).write()
    assert [gpu.health for gpu in nvml.read().gpus] == ["ok", "error"]


def test_a_gpu_we_may_not_see_is_left_out(node, nvml, clock, calls):
    node.fail("nvmlDeviceGetHandleByIndex_v2", NO_PERMISSION, slot=0).write()
    assert [(gpu.uuid, gpu.index) for gpu in nvml.read().gpus] == [(gpu_uuid(1), 1)]
    asked = calls("nvmlDeviceGetHandleByIndex_v2")
    clock.forward(1)
    nvml.read()
    assert calls("nvmlDeviceGetHandleByIndex_v2") == asked


def test_a_gpu_we_knew_and_may_not_see_any_more_says_so(node, nvml, clock):
    node.write()
    nvml.read()
    node.fail("*", NO_PERMISSION, slot=0).write()
    clock.forward(61)
    assert [(gpu.uuid, gpu.health) for gpu in nvml.read().gpus] == [
        (gpu_uuid(0), "no-permission"),
        (gpu_uuid(1), "ok"),
    ]


def test_a_gpu_whose_every_call_is_forbidden_stays_forbidden(node, nvml, clock):
    node.write()
    nvml.read()
    node.fail("*", NO_PERMISSION, slot=0).write()
    for _ in range(3):
        assert [gpu.health for gpu in nvml.read().gpus] == ["no-permission", "ok"]
        clock.forward(1)


def test_a_gpu_that_was_pulled_out_is_gone_and_the_others_keep_their_names(node, nvml):
    node.gpu(2).write()
    nvml.read()
    node.remove(0).write()
    assert [(gpu.uuid, gpu.index, gpu.health) for gpu in nvml.read().gpus] == [
        (gpu_uuid(1), 0, "ok"),
        (gpu_uuid(2), 1, "ok"),
    ]
    assert [gpu.uuid for gpu in nvml.identities()] == [gpu_uuid(1), gpu_uuid(2)]


def test_a_gpu_that_was_put_in_appears(node, nvml):
    node.write()
    nvml.read()
    node.gpu(2).write()
    assert [gpu.uuid for gpu in nvml.read().gpus] == [gpu_uuid(slot) for slot in range(3)]


def test_a_gpu_that_was_swapped_is_noticed_within_a_minute(node, nvml, clock):
    node.write()
    nvml.read()
    node.gpu(1, uuid="GPU-other").write()
    clock.forward(61)
    assert [gpu.uuid for gpu in nvml.read().gpus] == [gpu_uuid(0), "GPU-other"]


# -- a driver that hangs, is slow, goes away -------------------------------------------------------------------------


def test_a_hanging_call_can_be_named_and_the_read_goes_on_when_it_returns(node, nvml):
    node.hang("nvmlDeviceGetPowerUsage", slot=1).write()
    result: list[DeviceReading] = []
    thread = threading.Thread(target=lambda: result.append(nvml.read()))
    thread.start()
    try:
        wait_until(lambda: nvml.doing == f"nvmlDeviceGetPowerUsage {gpu_uuid(1)}")
        assert [(gpu.uuid, gpu.health) for gpu in nvml.identities()] == [
            (gpu_uuid(0), "unresponsive"),
            (gpu_uuid(1), "unresponsive"),
        ]
        assert not result
    finally:
        node.heal().write()
        thread.join(timeout=60)
    assert [gpu.power for gpu in result[0].gpus] == [250.0, 250.0]
    assert nvml.doing is None


def test_a_gpu_in_which_a_call_hangs_is_left_behind_and_comes_back(node, nvml):
    node.hang("nvmlDeviceGetPowerUsage", slot=1).write()
    lost: list[Exception] = []

    def stuck():
        try:
            nvml.read()
        except DriverHung as e:
            lost.append(e)

    thread = threading.Thread(target=stuck)
    thread.start()
    wait_until(lambda: nvml.doing == f"nvmlDeviceGetPowerUsage {gpu_uuid(1)}")
    assert nvml.leave_behind() == gpu_uuid(1)
    reading = nvml.read()
    assert [(gpu.health, gpu.power) for gpu in reading.gpus] == [("ok", 250.0), ("unresponsive", None)]
    assert nvml.leave_behind() is None
    node.heal().write()
    thread.join(timeout=60)
    assert len(lost) == 1
    assert [gpu.health for gpu in nvml.read().gpus] == ["ok", "ok"]


def test_a_hang_that_is_not_one_gpus_leaves_nobody_behind(node, nvml):
    node.write()
    nvml.read()
    node.hang("nvmlDeviceGetCount_v2").write()
    thread = threading.Thread(target=nvml.read)
    thread.start()
    wait_until(lambda: nvml.doing and nvml.doing.startswith("nvmlDeviceGetCount"))
    assert nvml.leave_behind() is None
    node.heal().write()
    thread.join(timeout=60)
    assert not thread.is_alive()


def test_close_does_not_pull_the_library_from_under_a_call_that_hangs(node, nvml, lib):
    node.hang("nvmlDeviceGetPowerUsage").write()
    thread = threading.Thread(target=nvml.read)
    thread.start()
    wait_until(lambda: nvml.doing and nvml.doing.startswith("nvmlDeviceGetPowerUsage"))
    nvml.close()
    assert lib.fakenvml_references() == 1
    assert thread.is_alive()
    node.heal().write()
    thread.join(timeout=60)
    assert not thread.is_alive()


def test_a_slow_call_is_waited_for(node, nvml):
    node.slow("nvmlDeviceGetPowerUsage", 30, slot=0).write()
    assert nvml.read().gpus[0].power == 250.0


def test_a_reloaded_driver_is_taken_up_in_the_same_read(node, nvml, lib, clock):
    node.write()
    nvml.read()
    node.reload().driver(version="560.28.03", cuda=12060).gpu(0, energy=7).write()
    clock.forward(1)
    reading = nvml.read()
    assert (reading.driver_version, reading.cuda_version) == ("560.28.03", "12.6")
    assert [gpu.health for gpu in reading.gpus] == ["ok", "ok"]
    assert reading.gpus[0].energy == 0.007
    assert lib.fakenvml_references() == 1


def test_a_driver_that_went_away_has_failed_until_it_is_back(node, nvml, clock, calls):
    node.write()
    nvml.read()
    node.reload().fail("nvmlInitWithFlags", VERSION_MISMATCH).write()
    with pytest.raises(DriverFailed, match="18"):
        nvml.read()
    assert [gpu.uuid for gpu in nvml.identities()] == [gpu_uuid(0), gpu_uuid(1)]
    node.heal().write()
    clock.forward(2)
    assert [gpu.health for gpu in nvml.read().gpus] == ["ok", "ok"]


def test_a_driver_that_is_not_loaded_is_absent_until_it_was_there_once(node, nvml, clock):
    node.fail("nvmlInitWithFlags", 9).write()
    with pytest.raises(DriverAbsent):
        nvml.read()
    node.heal().write()
    clock.forward(2)
    nvml.read()
    node.reload().fail("nvmlInitWithFlags", 9).write()
    with pytest.raises(DriverFailed):
        nvml.read()


def test_an_absent_driver_is_tried_less_and_less_often(node, nvml, clock, calls):
    node.fail("nvmlInitWithFlags", 9).write()
    before = calls("nvmlInitWithFlags")
    for _ in range(300):
        with pytest.raises(DriverAbsent):
            nvml.read()
        clock.forward(1)
    assert 8 <= calls("nvmlInitWithFlags") - before <= 12


def test_a_driver_that_stays_away_for_days_is_still_only_absent(node, nvml, clock):
    node.fail("nvmlInitWithFlags", 9).write()
    for _ in range(1500):
        with pytest.raises(DriverAbsent):
            nvml.read()
        clock.forward(61)


def test_a_gpu_that_stays_lost_for_days_is_still_only_lost(node, nvml, clock):
    node.write()
    nvml.read()
    node.lost(0).write()
    for _ in range(1500):
        assert [gpu.health for gpu in nvml.read().gpus] == ["lost", "ok"]
        clock.forward(61)


def test_when_every_call_fails_on_every_gpu_the_library_is_begun_anew(node, nvml, clock, calls):
    node.write()
    nvml.read()
    begun = calls("nvmlInitWithFlags")
    node.fail("*", UNKNOWN, slot=0).fail("*", UNKNOWN, slot=1).write()
    with pytest.raises(DriverFailed):
        nvml.read()
    assert calls("nvmlInitWithFlags") == begun + 1
    node.heal().write()
    clock.forward(2)
    assert [gpu.health for gpu in nvml.read().gpus] == ["ok", "ok"]


def test_a_library_that_loses_the_driver_in_the_middle_of_a_read_is_begun_anew(node, nvml, clock, calls):
    node.write()
    nvml.read()
    begun = calls("nvmlInitWithFlags")
    node.fail("nvmlDeviceGetPowerUsage", UNINITIALIZED, slot=1).write()
    with pytest.raises(DriverFailed):
        nvml.read()
    assert calls("nvmlInitWithFlags") == begun + 1


def test_close_gives_the_driver_back(node, nvml, lib):
    node.write()
    nvml.read()
    assert lib.fakenvml_references() == 1
    nvml.close()
    assert lib.fakenvml_references() == 0


def test_a_node_without_the_library_has_no_driver_until_it_appears(tmp_path):
    library = build.library_or_skip()
    Scenario(tmp_path / "nvml").gpu(0).write()
    program = """
        import os, sys
        from vgpuscope.model.errors import DriverAbsent
        from vgpuscope.sources.node.nvml.driver import Nvml
        now = 0.0
        nvml = Nvml(clock=lambda: now)
        try:
            nvml.read()
        except DriverAbsent as e:
            print(e.code, e)
        os.symlink(sys.argv[1], sys.argv[2])
        now = 2.0
        print([gpu.power for gpu in nvml.read().gpus])
    """
    late = tmp_path / "late"
    late.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), library, late / build.SONAME],
        env={**os.environ, **build.environment(late / build.SONAME, tmp_path / "nvml")},
        capture_output=True,
        text=True,
        check=True,
    )
    first, second = done.stdout.splitlines()
    assert first.startswith("DRIVER_ABSENT nvmlInit: NVML Shared Library Not Found")
    assert second == "[250.0]"


# -- XIDs -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def listener(nvml: Nvml) -> Iterator[threading.Thread]:
    stop = threading.Event()
    thread = threading.Thread(target=nvml.listen, args=(stop,))
    thread.start()
    yield thread
    stop.set()
    thread.join(timeout=60)
    assert not thread.is_alive()


def xids(reading: DeviceReading) -> dict[tuple[str, int], int]:
    return {(x.gpu, x.xid): x.count for x in reading.xids}


def registered(calls: Callable[[str], int], since: int, gpus: int) -> Callable[[], bool]:
    return lambda: calls("nvmlDeviceRegisterEvents") >= since + gpus


def test_xids_are_counted_per_gpu(node, nvml, calls, listener):
    before = calls("nvmlDeviceRegisterEvents")
    node.xid(0, 13).write()  # before anyone listened: not ours
    assert nvml.read().xids == ()
    wait_until(registered(calls, before, 2))
    node.xid(1, 79).xid(0, 31).xid(1, 79).xid(0, 99, event_type=1).write()
    wait_until(lambda: sum(xids(nvml.read()).values()) == 3)
    reading = nvml.read()
    assert xids(reading) == {(gpu_uuid(1), 79): 2, (gpu_uuid(0), 31): 1}
    assert dict(reading.last_xid) == {gpu_uuid(1): 79, gpu_uuid(0): 31}


def test_xids_are_heard_after_a_reload_and_add_up(node, nvml, calls, listener, clock):
    before = calls("nvmlDeviceRegisterEvents")
    node.write()
    nvml.read()
    wait_until(registered(calls, before, 2))
    node.xid(0, 48).write()
    wait_until(lambda: xids(nvml.read()))
    node.reload().write()
    clock.forward(1)
    nvml.read()
    wait_until(registered(calls, before, 4))
    node.xid(0, 48).write()
    wait_until(lambda: xids(nvml.read()) == {(gpu_uuid(0), 48): 2})


@pytest.mark.parametrize("code", [NOT_SUPPORTED, UNKNOWN])
def test_a_gpu_that_reports_no_events_leaves_the_others_audible(node, nvml, calls, listener, code):
    node.fail("nvmlDeviceRegisterEvents", code, slot=0).write()
    before = calls("nvmlDeviceRegisterEvents")
    nvml.read()
    wait_until(registered(calls, before, 2))
    wait_until(lambda: calls("nvmlEventSetWait_v2") > 0)
    node.xid(1, 74).write()
    wait_until(lambda: xids(nvml.read()) == {(gpu_uuid(1), 74): 1})


def test_a_gpu_that_came_back_is_heard_again(node, nvml, calls, listener, clock):
    node.write()
    nvml.read()
    before = calls("nvmlDeviceRegisterEvents")
    node.lost(0).reload().write()
    nvml.read()
    wait_until(registered(calls, before, 1))
    node.heal().write()
    clock.forward(5)
    nvml.read()
    wait_until(registered(calls, before, 3))
    node.xid(0, 62).write()
    wait_until(lambda: xids(nvml.read()) == {(gpu_uuid(0), 62): 1})


def test_xids_that_are_queued_when_the_gpus_change_are_counted(node, nvml, monkeypatch):
    node.write()
    nvml.read()
    register, hear = nvml._register, nvml._hear

    def then_three_xids(session, events):
        heard = register(session, events)
        node.xid(0, 31).xid(1, 43).xid(0, 48).write()
        return heard

    def then_other_gpus(session, events, wait_ms):
        heard = hear(session, events, wait_ms)
        nvml._session = None
        return heard

    monkeypatch.setattr(nvml, "_register", then_three_xids)
    monkeypatch.setattr(nvml, "_hear", then_other_gpus)
    assert nvml._follow(nvml._session, threading.Event())
    assert nvml._xids == {(gpu_uuid(0), 31): 1, (gpu_uuid(1), 43): 1, (gpu_uuid(0), 48): 1}


def test_a_listener_that_waits_is_not_a_call_that_hangs(node, nvml, calls, listener):
    waits = calls("nvmlEventSetWait_v2")
    node.write()
    nvml.read()
    wait_until(lambda: calls("nvmlEventSetWait_v2") > waits)
    assert nvml.doing is None


def test_the_library_is_not_shut_down_under_a_listener(node, nvml, calls, listener, lib):
    waits, pulled = calls("nvmlEventSetWait_v2"), lib.fakenvml_pulled()
    node.write()
    nvml.read()
    wait_until(lambda: calls("nvmlEventSetWait_v2") > waits)
    nvml.close()
    assert (lib.fakenvml_references(), lib.fakenvml_pulled()) == (0, pulled)


# -- any binding ----------------------------------------------------------------------------------------------------


class _Foreign(Exception):
    def __init__(self, value: int) -> None:
        self.value = value


def test_a_binding_that_knows_little_gives_what_it_has():
    binding = SimpleNamespace(
        NVMLError=_Foreign,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUUID=lambda handle: "GPU-small",
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(total=10, used=4, free=6),
    )
    nvml = Nvml(binding)
    reading = nvml.read()
    assert reading.gpus == (Gpu(uuid="GPU-small", index=0, model="unknown", memory=Memory(total=10, used=4, free=6)),)
    assert (reading.driver_version, reading.cuda_version) == (None, None)
    nvml.close()


@pytest.mark.attack
def test_an_unexpected_error_in_one_gpu_is_its_own_with_its_name(node, nvml, monkeypatch):
    node.write()
    assert {gpu.health for gpu in nvml.read().gpus} == {"ok"}
    told = []
    nvml.unexpected = lambda unit, error: told.append((unit, type(error)))

    def broken(calls, one_gpu, clock):
        if one_gpu.uuid == gpu_uuid(0):
            raise ZeroDivisionError("a broken promise of our own")
        return read_gpu(calls, one_gpu, clock)

    monkeypatch.setattr("vgpuscope.sources.node.nvml.driver.read_gpu", broken)
    health = {gpu.uuid: gpu.health for gpu in nvml.read().gpus}
    assert health == {gpu_uuid(0): "error", gpu_uuid(1): "ok"}
    assert told == [(f"GPU {gpu_uuid(0)}", ZeroDivisionError)]
