"""What a container gets: the GPUs that it sees, and if HAMi's library is there, its limits and the region."""

from collections.abc import Sequence

from msgspec import Struct

from vgpuscope.model.plugin import Assigned, Injection, Mount
from vgpuscope.model.quantity import DeviceUUID

PRELOAD = "/etc/ld.so.preload"
LOCKS = "/tmp/vgpulock"  # noqa: S108 - where HAMi's library looks for it, in every container


class HamiCore(Struct, frozen=True, kw_only=True):
    """HAMi's library on this node, and how it is set up."""

    hook: str  # the same directory on the host and in the container
    library: str  # on the host
    preload: str  # on the host: the file that names the library
    oversubscribed: bool = False  # more memory is allocated than the GPUs have
    core_limits: bool = True
    log_level: int | None = None  # of the library; None: its own default


def visible(devices: Sequence[DeviceUUID]) -> Injection:
    """GPUs or MIG instances without any limit."""
    return Injection(envs={"NVIDIA_VISIBLE_DEVICES": ",".join(devices)})


def controlled(devices: Sequence[Assigned], control: HamiCore, *, directory: str, region: str) -> Injection:
    """Shares of GPUs that HAMi's library limits.

    `directory` is the container's own on the host, `region` the name of a file in it that no other container has had.
    """
    envs = dict(visible([device.gpu for device in devices]).envs)
    for number, device in enumerate(devices):
        envs[f"CUDA_DEVICE_MEMORY_LIMIT_{number}"] = f"{device.memory}m"
    envs["CUDA_DEVICE_SM_LIMIT"] = str(devices[0].cores)  # HAMi has one limit for all GPUs of a container
    envs["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = f"{control.hook}/{region}"
    if control.oversubscribed:
        envs["CUDA_OVERSUBSCRIBE"] = "true"
    if control.log_level is not None:
        envs["LIBCUDA_LOG_LEVEL"] = str(control.log_level)
    if not control.core_limits:
        envs["GPU_CORE_UTILIZATION_POLICY"] = "disable"
    mounts = [
        Mount(container=f"{control.hook}/libvgpu.so", host=control.library, read_only=True),
        Mount(container=control.hook, host=directory),
        Mount(container=LOCKS, host=LOCKS),
        Mount(container=PRELOAD, host=control.preload, read_only=True),
    ]
    return Injection(envs=envs, mounts=tuple(mounts))
