"""The processes on the GPUs of a node, each with its container, user and start."""

from collections.abc import Collection, Iterator, Mapping

from vgpuscope.logic.node.attribution import GpuPool
from vgpuscope.model.container_key import ContainerKey
from vgpuscope.model.device import GpuProcess
from vgpuscope.model.host import ProcessUse
from vgpuscope.model.pod import ProcessOwner
from vgpuscope.model.quantity import DeviceUUID, Pid, UnixTime
from vgpuscope.model.usage import NodeSnapshot

TICKS = 100  # a second: the unit of start times in /proc, the same on all architectures that have GPUs

_Listed = tuple[DeviceUUID, DeviceUUID | None, GpuProcess]


def process_list(
    outline: NodeSnapshot, owners: Mapping[Pid, ProcessOwner] | None, pools: Collection[GpuPool]
) -> tuple[ProcessUse, ...]:
    """Every process that the driver lists, by GPU and MIG instance."""
    keys = {(pool.gpu, pid): key for pool in pools for pid, key in pool.keys.items()}
    booted = outline.host.node.booted
    return tuple(
        [
            _use(
                gpu, mig, process, owner=(owners or {}).get(process.pid), key=keys.get((gpu, process.pid)), boot=booted
            )
            for gpu, mig, process in _listed(outline)
        ]
    )


def _listed(outline: NodeSnapshot) -> Iterator[_Listed]:
    for usage in outline.gpus:
        inside = set()
        for instance in usage.gpu.instances:
            for process in instance.processes or ():
                inside.add(process.pid)
                yield usage.gpu.uuid, instance.uuid, process
        for process in usage.gpu.processes or ():
            if process.pid not in inside:  # a GPU lists the processes of its instances, too
                yield usage.gpu.uuid, None, process


def _use(
    gpu: DeviceUUID,
    mig: DeviceUUID | None,
    process: GpuProcess,
    *,
    owner: ProcessOwner | None,
    key: ContainerKey | None,
    boot: UnixTime | None,
) -> ProcessUse:
    return ProcessUse(
        gpu=gpu,
        mig=mig,
        pid=process.pid,
        key=key,
        uid=owner.uid if owner else None,
        command=owner.command if owner else None,
        command_line=owner.command_line if owner else None,
        memory=process.memory,
        sm=process.sm,
        started=boot + owner.start_time / TICKS if owner and boot is not None else None,
    )
