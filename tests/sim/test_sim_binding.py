"""The stand-in for the driver's module: same names, same errors, same shapes, answered from a file."""

import threading
from typing import Any

import msgspec
import pynvml
import pytest

from vgpuscope.sim.binding import Binding
from vgpuscope.sim.driver import driver_state
from vgpuscope.sim.kinds import HAMI, MIG, SICK, SLICED
from vgpuscope.sim.state import DriverState
from vgpuscope.sim.world import World

BEGAN = 1_700_000_000.0
ERRORS: Any = Binding  # its error classes are made from the table of codes


def write(path, state):
    fresh = path.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(state))
    fresh.replace(path)


@pytest.fixture
def node(tmp_path):
    """Makes a binding over a plan after some seconds; the state can be replaced."""

    def make(plan, seconds=1.0):
        world = World(plan, seed=1, now=BEGAN)
        world.advance(BEGAN + seconds)
        state = driver_state(world)
        path = tmp_path / "devices.json"
        write(path, state)
        binding = Binding(path, sleep=lambda _: None)
        binding.nvmlInit()
        return binding, state, path

    return make


def change(state: DriverState, index: int, **values) -> DriverState:
    gpus = list(state.gpus)
    gpus[index] = msgspec.structs.replace(gpus[index], **values)
    return msgspec.structs.replace(state, gpus=tuple(gpus))


def public(thing):
    return {n for n in dir(thing) if n.lower().startswith("nvml")}


def test_every_name_and_constant_is_one_of_the_real_module():
    assert public(Binding) <= public(pynvml)
    numbers = {n for n in public(Binding) if isinstance(getattr(Binding, n), int)}
    assert {n: getattr(Binding, n) for n in numbers} == {n: getattr(pynvml, n) for n in numbers}


def test_every_error_class_carries_the_real_code():
    for name in (n for n in public(Binding) if n.startswith("NVMLError_")):
        code = getattr(pynvml, name)().value
        assert getattr(Binding, name)(code).value == code
        assert issubclass(getattr(Binding, name), Binding.NVMLError)
    assert not issubclass(Binding.NVMLLibraryMismatchError, Binding.NVMLError)


def test_nothing_answers_before_init(tmp_path, node):
    binding, _, _ = node(HAMI)
    binding.nvmlShutdown()
    with pytest.raises(ERRORS.NVMLError_Uninitialized):
        binding.nvmlDeviceGetCount()
    with pytest.raises(ERRORS.NVMLError_DriverNotLoaded):
        Binding(tmp_path / "nowhere.json").nvmlInit()


def test_memory_adds_up_in_both_versions(node):
    binding, _, _ = node(HAMI)
    handle = binding.nvmlDeviceGetHandleByIndex(0)
    new = binding.nvmlDeviceGetMemoryInfo(handle, version=binding.nvmlMemory_v2)
    old = binding.nvmlDeviceGetMemoryInfo(handle)
    assert new.total == new.used + new.free + new.reserved == old.used + old.free
    assert old.used == new.used + new.reserved


def test_a_replaced_file_is_the_next_answer(node):
    binding, state, path = node(HAMI)
    handle = binding.nvmlDeviceGetHandleByIndex(0)
    write(path, change(state, 0, power_mw=123456))
    assert binding.nvmlDeviceGetPowerUsage(handle) == 123456


def test_a_lost_gpu_fails_alone(node):
    binding, state, path = node(SICK)
    handle = binding.nvmlDeviceGetHandleByIndex(1)
    write(path, change(state, 1, lost=True))
    for call in (binding.nvmlDeviceGetTemperature, binding.nvmlDeviceGetClockInfo):
        with pytest.raises(ERRORS.NVMLError_GpuIsLost) as error:
            call(handle, 0)
        assert (error.value.value, str(error.value)) == (15, "GPU is lost")
    with pytest.raises(ERRORS.NVMLError_GpuIsLost):
        binding.nvmlDeviceGetHandleByIndex(1)
    assert binding.nvmlDeviceGetPowerUsage(binding.nvmlDeviceGetHandleByIndex(0)) > 0


def test_a_hung_gpu_answers_when_the_hang_is_over(node):
    binding, state, path = node(SICK)
    handle = binding.nvmlDeviceGetHandleByIndex(2)
    write(path, change(state, 2, hung=True))
    naps = threading.Semaphore(0)
    binding._sleep = lambda _: naps.release()
    answer = []
    asking = threading.Thread(target=lambda: answer.append(binding.nvmlDeviceGetPowerUsage(handle)))
    asking.start()
    assert naps.acquire(timeout=60)
    assert answer == []
    write(path, state)
    asking.join(60)
    assert answer == [state.gpus[2].power_mw]


def test_samples_are_newer_than_asked_and_none_means_not_found(node):
    binding, _, _ = node(HAMI)
    handle = binding.nvmlDeviceGetHandleByIndex(0)
    now = int((BEGAN + 1) * 1e6)
    samples = binding.nvmlDeviceGetProcessUtilization(handle, now - 1_000_000)
    assert samples
    assert all(now - 1_000_000 < s.timeStamp <= now and 0 < s.smUtil <= 100 for s in samples)
    with pytest.raises(ERRORS.NVMLError_NotFound):
        binding.nvmlDeviceGetProcessUtilization(handle, now)


def test_a_gpu_that_cannot_say_is_not_supported(node):
    binding, _, _ = node(SLICED)
    t4 = binding.nvmlDeviceGetHandleByIndex(0)
    for call in (binding.nvmlDeviceGetMigMode, binding.nvmlDeviceGetRemappedRows, binding.nvmlDeviceGetFanSpeed):
        with pytest.raises(ERRORS.NVMLError_NotSupported):
            call(t4)
    unknown, energy = binding.nvmlDeviceGetFieldValues(t4, [9999, 83])
    assert (unknown.nvmlReturn, energy.nvmlReturn) == (3, 0)
    assert energy.value.ullVal == binding.nvmlDeviceGetTotalEnergyConsumption(t4)


def test_instances_are_found_past_their_holes_and_know_their_gpu(node):
    binding, state, _ = node(MIG)
    one_gpu = binding.nvmlDeviceGetHandleByIndex(0)
    found = {}
    for index in range(binding.nvmlDeviceGetMaxMigDeviceCount(one_gpu)):
        try:
            found[index] = binding.nvmlDeviceGetMigDeviceHandleByIndex(one_gpu, index)
        except ERRORS.NVMLError_NotFound:
            continue
    assert list(found) == [0, 2, 5, 6]
    instance = found[2]
    assert binding.nvmlDeviceGetUUID(instance).startswith("MIG-")
    assert binding.nvmlDeviceGetAttributes(instance).memorySizeMB == 19968
    assert binding.nvmlDeviceGetUUID(binding.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance)) == (
        state.gpus[0].uuid
    )
    (process,) = binding.nvmlDeviceGetComputeRunningProcesses(instance)
    assert process.gpuInstanceId == binding.nvmlDeviceGetGpuInstanceId(instance)
    for call in (binding.nvmlDeviceGetUtilizationRates, binding.nvmlDeviceGetPowerUsage):
        with pytest.raises(ERRORS.NVMLError_NotSupported):
            call(instance)


def test_a_destroyed_instance_leaves_a_worthless_handle(node):
    binding, state, path = node(MIG)
    one_gpu = binding.nvmlDeviceGetHandleByIndex(0)
    handle = binding.nvmlDeviceGetMigDeviceHandleByIndex(one_gpu, 5)
    write(path, change(state, 0, instances=()))
    with pytest.raises(ERRORS.NVMLError_InvalidArgument):
        binding.nvmlDeviceGetUUID(handle)


def test_xids_come_once_each_and_only_after_registration(node):
    binding, state, path = node(SICK, seconds=31)
    assert [x.xid for x in state.xids] == [48]
    events = binding.nvmlEventSetCreate()
    one_gpu = binding.nvmlDeviceGetHandleByIndex(1)
    binding.nvmlDeviceRegisterEvents(one_gpu, binding.nvmlEventTypeXidCriticalError, events)
    with pytest.raises(ERRORS.NVMLError_Timeout):
        binding.nvmlEventSetWait_v2(events, 10)
    newer = msgspec.structs.replace(state.xids[0], number=2, xid=79)
    write(path, msgspec.structs.replace(state, xids=(*state.xids, newer)))
    event = binding.nvmlEventSetWait_v2(events, 1000)
    assert (event.device, event.eventData) == (one_gpu, 79)
    with pytest.raises(ERRORS.NVMLError_Timeout):
        binding.nvmlEventSetWait_v2(events, 10)


def test_a_mig_gpu_may_have_gpm_samples_of_its_instances_only(node):
    binding, state, path = node(MIG)
    index = next(at for at, one_gpu in enumerate(state.gpus) if one_gpu.instances)
    first = msgspec.structs.replace(state.gpus[index].instances[0], gpm={2: 50.0})
    write(path, change(state, index, gpm={2: 10.0}, gpm_instances_only=True, instances=(first,)))
    gpu, sample = binding.nvmlDeviceGetHandleByIndex(index), binding.nvmlGpmSampleAlloc()
    assert binding.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice
    with pytest.raises(ERRORS.NVMLError_NotSupported):
        binding.nvmlGpmSampleGet(gpu, sample)
    assert binding.nvmlGpmMigSampleGet(gpu, first.gpu_instance, sample) is sample
