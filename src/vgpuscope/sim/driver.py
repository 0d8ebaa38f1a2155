"""The state that the driver reports for a world, in the driver's units."""

from vgpuscope.sim.hardware import Instance, SimGpu
from vgpuscope.sim.jobs import Life, Process
from vgpuscope.sim.state import NO_INSTANCE, DriverState, GpuState, InstanceState, ProcessState, Utilization
from vgpuscope.sim.world import World, engine_time

_GARBAGE = 4294967280  # the value that real drivers return for zombies
_MAX_INSTANCES = 7
BUSY_SMS = 0.9  # share of SMs that are busy while kernels run


def driver_state(world: World) -> DriverState:
    """The state of the whole driver now."""
    gpus = tuple(_gpu(world, gpu) for gpu in world.gpus)
    return DriverState(driver=world.plan.driver, cuda=world.plan.cuda, gpus=gpus, xids=tuple(world.xids))


def _gpu(world: World, gpu: SimGpu) -> GpuState:
    spec, load = gpu.spec, gpu.load
    measured = not gpu.mig  # with MIG on, the GPU's own utilisation is not supported
    return GpuState(
        index=gpu.index,
        uuid=gpu.uuid,
        name=spec.name,
        serial=gpu.serial,
        bus_id=gpu.bus_id,
        total=gpu.total,
        reserved=gpu.reserved,
        used=gpu.used,
        busy=round(gpu.busy * 100) if measured else None,
        memory_busy=round(gpu.busy * 58) if measured else None,
        encoder=round(load.encoder * 100) if measured else None,
        decoder=round(load.decoder * 100) if measured else None,
        power_mw=round(gpu.power * 1000),
        limit_mw=round(spec.limit_watts * 1000),
        energy_mj=int(gpu.energy * 1000),
        temperature=round(gpu.temperature),
        memory_temperature=round(gpu.temperature + 7),
        sm_mhz=round(gpu.sm_clock),
        sm_max_mhz=spec.sm_clock,
        memory_mhz=spec.memory_clock,
        memory_max_mhz=spec.memory_clock,
        throttle=gpu.throttle,
        sent=int(gpu.sent),
        received=int(gpu.received),
        ecc=(0, gpu.ecc_uncorrected),
        remapped=(0, gpu.ecc_uncorrected, int(gpu.remap_pending), 0) if spec.remapping else None,
        mig=gpu.mig if spec.mig else None,
        max_instances=_MAX_INSTANCES if gpu.mig else 0,
        instances=tuple(_instance(world, gpu, i) for i in gpu.instances),
        processes=_processes(world, gpu),
        lost=gpu.lost,
        hung=gpu.hung,
        gpm=_gpm(gpu.busy, gpu.load.sm * BUSY_SMS, links=gpu.busy) if spec.gpm else None,
    )


def _instance(world: World, gpu: SimGpu, instance: Instance) -> InstanceState:
    used = sum(
        world.driver_memory(life, process, gpu)
        for life, process in world.on_gpu(gpu)
        if (place := world.instance_of(life)) and place.gpu_instance == instance.gpu_instance
    )
    engine = engine_time(world, gpu, instance.gpu_instance)
    return InstanceState(
        index=instance.index,
        uuid=instance.uuid,
        name=f"{gpu.spec.name} MIG {instance.profile}",
        gpu_instance=instance.gpu_instance,
        compute_instance=instance.compute_instance,
        total=instance.total,
        reserved=instance.reserved,
        used=used,
        slices=instance.slices,
        memory_slices=int(instance.profile.split("g.")[0][-1]),
        gpm=_gpm(engine, engine * BUSY_SMS) if gpu.spec.gpm else None,
    )


def _gpm(engine: float, sm: float, *, links: float | None = None) -> dict[int, float]:
    """What GPM measures of a GPU or GPU instance: percent, and MiB/s for links."""
    percent = min(1.0, sm) * 100
    found = {1: engine * 100, 2: percent, 3: percent * 0.5, 5: percent * 0.4, 10: engine * 58}
    found |= {11: 0.0, 12: percent * 0.2, 13: percent * 0.1}
    if links is not None:
        found |= {20: links * 1335, 21: links * 2766, 60: links * 9000, 61: links * 9000}
    return found


def _processes(world: World, gpu: SimGpu) -> tuple[ProcessState, ...]:
    garbage = world.garbage(gpu)
    return tuple(
        _process(world, gpu, life, process, garbage=garbage and number == 0)
        for number, (life, process) in enumerate(world.on_gpu(gpu))
    )


def _process(world: World, gpu: SimGpu, life: Life, process: Process, *, garbage: bool) -> ProcessState:
    place = world.instance_of(life)
    return ProcessState(
        pid=process.pid,
        kinds=("C", "M") if life.job.kind == "M" else (life.job.kind,),
        memory=world.driver_memory(life, process, gpu),
        gpu_instance=place.gpu_instance if place else NO_INSTANCE,
        compute_instance=place.compute_instance if place else NO_INSTANCE,
        sample=_sample(world, gpu, process, garbage=garbage),
    )


def _sample(world: World, gpu: SimGpu, process: Process, *, garbage: bool) -> Utilization | None:
    sm = _GARBAGE if garbage else int(process.sm.get(gpu.index, 0.0) * 100)
    encoder, decoder = int(process.demand.encoder * 100), int(process.demand.decoder * 100)
    if not (sm or encoder or decoder):
        return None
    at = int(world.now * 1e6) - process.pid % 100 * 997  # the driver samples processes one after the other
    return Utilization(at=at, sm=sm, memory=min(sm, 100) * 58 // 100, encoder=encoder, decoder=decoder)
