"""What is known of a pod and its node beside the GPUs, as the console shows it. Null: not known, which is not 0."""

from typing import Literal, TypeAlias

from msgspec import Struct

from vgpuscope.model.quantity import Bytes, Pid, Ratio, Seconds
from vgpuscope.model.usage import Certainty

BesideSource: TypeAlias = Literal["agent", "prometheus"]
Resource: TypeAlias = Literal["memory", "sm", "energy"]


class HostRow(Struct, frozen=True, kw_only=True):
    """What one container that holds a GPU uses of its node. Rates are means over `seconds` of the whole answer."""

    container: str | None
    cpu_cores: float | None = None
    cpu_limit: float | None = None  # cores; null: no limit, or not known
    throttled: Ratio | None = None  # periods in which the CPU limit stopped it; null: no limit applied, or not known
    memory: Bytes | None = None  # working set
    memory_limit: Bytes | None = None
    read_rate: float | None = None  # bytes per second, of block devices
    written_rate: float | None = None


class FigureRow(Struct, frozen=True, kw_only=True):
    """How sure one attributed figure of a container is."""

    gpu_id: str
    mig: str | None
    container: str | None
    resource: Resource
    method: str
    certainty: Certainty | None
    error: float | None = None  # how far it can be off: bytes of memory, ratio of SM time; null: no bound is known


class ProcessRow(Struct, frozen=True, kw_only=True):
    """One process of the pod on a GPU. Command lines are not shown here."""

    gpu_id: str
    mig: str | None
    container: str | None
    pid: Pid  # on the host
    user: int | None = None  # user id on the host
    command: str | None = None  # the kernel's short name
    memory: Bytes | None = None
    sm: Ratio | None = None
    started: str | None = None


class PodBeside(Struct, frozen=True, kw_only=True):
    """One pod beside its GPUs."""

    at: str | None  # when it was measured
    seconds: Seconds | None  # how long the means cover; null: there are none yet
    source: BesideSource
    containers: tuple[HostRow, ...] = ()
    received_rate: float | None = None  # bytes per second, of the pod; null on the host's network
    sent_rate: float | None = None
    figures: tuple[FigureRow, ...] = ()
    processes: tuple[ProcessRow, ...] | None = None  # null: only an agent that we scrape ourselves lists them


class NodeBeside(Struct, frozen=True, kw_only=True):
    """CPU, memory and load of a node."""

    at: str | None
    seconds: Seconds | None
    source: BesideSource
    cpus: int | None = None
    cpu_used: Ratio | None = None  # of all CPUs; waiting for a disk is not use
    iowait: Ratio | None = None
    memory_total: Bytes | None = None
    memory_available: Bytes | None = None
    load: tuple[float | None, float | None, float | None] = (None, None, None)  # over 1, 5 and 15 minutes
