"""What containers that hold a GPU use of their node beside it, the node itself, and the processes on GPUs.

None: not measured, which is not 0.
"""

from msgspec import Struct

from vgpuscope.model.container_key import ContainerKey
from vgpuscope.model.quantity import Bytes, DeviceUUID, Pid, PodUID, Ratio, Seconds, UnixTime


class SoughtContainer(Struct, frozen=True, kw_only=True):
    """A container whose cgroup is looked for: all that is known of where it may be."""

    key: ContainerKey
    pod_uids: tuple[PodUID, ...] = ()  # a static pod's cgroup has the hash of its configuration
    container_id: str = ""  # 64 digits; "": not known
    pids: tuple[Pid, ...] = ()  # its processes on GPUs


class CgroupCounts(Struct, frozen=True, kw_only=True):
    """What the kernel counted of one container at one moment."""

    place: str  # the cgroup: another one is another container, whose counters begin at 0
    cpu_seconds: Seconds | None = None
    cpu_limit: float | None = None  # cores; None: no limit, or not read
    periods: int | None = None  # in which the CPU limit applied
    throttled_periods: int | None = None
    throttled_seconds: Seconds | None = None
    memory: Bytes | None = None  # with page cache
    memory_inactive: Bytes | None = None  # page cache that the kernel can take back at once
    memory_limit: Bytes | None = None  # None: no limit, or not read
    read_bytes: Bytes | None = None
    written_bytes: Bytes | None = None
    received_bytes: Bytes | None = None  # of the pod's network; None on the host's network
    sent_bytes: Bytes | None = None


class HostUse(Struct, frozen=True, kw_only=True):
    """What one container that holds a GPU uses of its node."""

    key: ContainerKey
    cpu_seconds: Seconds | None = None
    cpu_cores: float | None = None  # mean over the agent's window
    cpu_limit: float | None = None  # cores; None: no limit, or not read
    periods: int | None = None
    throttled_periods: int | None = None
    throttled_seconds: Seconds | None = None
    memory: Bytes | None = None  # with page cache
    memory_working_set: Bytes | None = None  # without page cache that the kernel can take back at once
    memory_limit: Bytes | None = None
    read_bytes: Bytes | None = None
    written_bytes: Bytes | None = None
    received_bytes: Bytes | None = None
    sent_bytes: Bytes | None = None
    over: Seconds | None = None  # how long the means cover: `cpu_cores` and those below; None: there are none yet
    throttled: Ratio | None = None  # periods in which the CPU limit stopped it; None: no limit applied
    read_rate: float | None = None  # bytes per second, likewise the next three
    written_rate: float | None = None
    received_rate: float | None = None
    sent_rate: float | None = None


class CpuTimes(Struct, frozen=True, kw_only=True):
    """How long the CPUs of the node spent on what, since boot, all CPUs together."""

    user: Seconds
    system: Seconds
    iowait: Seconds
    steal: Seconds
    idle: Seconds


class NodeHost(Struct, frozen=True, kw_only=True):
    """CPU, memory and load of the node."""

    cpus: int | None = None
    cpu: CpuTimes | None = None
    memory_total: Bytes | None = None
    memory_available: Bytes | None = None
    load: tuple[float, float, float] | None = None  # means over 1, 5 and 15 minutes
    booted: UnixTime | None = None
    over: Seconds | None = None  # how long the two means below cover
    cpu_used: Ratio | None = None  # of all CPUs; waiting for a disk is not use
    iowait: Ratio | None = None


class HostSide(Struct, frozen=True, kw_only=True):
    """The node beside its GPUs, as of the last reading."""

    node: NodeHost = NodeHost()
    containers: tuple[HostUse, ...] = ()
    faults: dict[str, int] = {}  # values that could not be had since the agent started, by reason


class ProcessUse(Struct, frozen=True, kw_only=True):
    """One process that the driver lists on a GPU or MIG instance."""

    gpu: DeviceUUID
    mig: DeviceUUID | None = None
    pid: Pid
    key: ContainerKey | None = None  # None: it belongs to no container
    uid: int | None = None  # effective user id on the host; names would be those of another user database
    command: str | None = None  # the kernel's short name
    command_line: str | None = None  # None: hidden, or not readable
    memory: Bytes | None = None
    sm: Ratio | None = None
    started: UnixTime | None = None
