"""What can be seen on this machine: driver, regions, processes and the kubelet's socket."""

import asyncio
import os
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from vgpuscope.model.device import DeviceReading
from vgpuscope.model.doctor import DriverFacts, FactName, Missing, ProcessFacts, RegionFacts
from vgpuscope.model.errors import ScopeError
from vgpuscope.model.quantity import Seconds
from vgpuscope.sources.doctor.missing import missing
from vgpuscope.sources.node.nvml.driver import Nvml
from vgpuscope.sources.node.podresources import PodResources
from vgpuscope.sources.node.proc import Proc
from vgpuscope.sources.node.regions import Regions
from vgpuscope.worker import Worker

T = TypeVar("T")

_SIGNS = ("/dev/nvidiactl", "/dev/nvidia0", "/proc/driver/nvidia/version")


class LocalPlaces(NamedTuple):
    """Where an agent on this machine would look."""

    hook_path: str
    proc_root: str
    podresources: str


class LocalFacts(NamedTuple):
    """What was seen."""

    driver: DriverFacts | Missing
    regions: RegionFacts | Missing
    processes: ProcessFacts | Missing
    podresources: int | Missing


def is_gpu_node(places: LocalPlaces) -> bool:
    """Whether this machine looks like a node with GPUs."""
    return any(os.path.exists(path) for path in (*_SIGNS, _containers(places)))


def nothing_here() -> LocalFacts:
    """The facts of a machine without GPUs."""
    names: tuple[FactName, ...] = ("driver", "regions", "processes", "podresources")
    driver, regions, processes, podresources = (Missing(fact=name, reason="not-here") for name in names)
    return LocalFacts(driver, regions, processes, podresources)


async def read_local(places: LocalPlaces, *, within: Seconds, binding: object = None) -> LocalFacts:
    """What is there; never raises. A call to the driver that hangs stays behind on its thread."""
    driver, regions, podresources = await asyncio.gather(
        _done("driver", lambda: _driver(binding), place="libnvidia-ml.so.1", within=within),
        _done("regions", lambda: _regions(_containers(places)), place=_containers(places), within=within),
        _podresources(places.podresources, within=within),
    )
    if isinstance(driver, Missing):
        shown: DriverFacts | Missing = driver
        processes: ProcessFacts | Missing = Missing(fact="processes", reason="no-data", place=places.proc_root)
    else:
        shown, pids = driver
        processes = await _done(
            "processes", lambda: _processes(places.proc_root, pids), place=places.proc_root, within=within
        )
    return LocalFacts(shown, regions, processes, podresources)


def _containers(places: LocalPlaces) -> str:
    return os.path.join(places.hook_path, "containers")


async def _done(fact: FactName, work: Callable[[], T], *, place: str, within: Seconds) -> T | Missing:
    worker = Worker(f"doctor {fact}")
    try:
        return await worker.do(work, deadline=within)
    except TimeoutError as e:
        found = missing(fact, e, place=place)
        return Missing(
            fact=fact, reason="no-answer", code="DRIVER_HUNG" if fact == "driver" else found.code, place=place
        )
    except ScopeError as e:
        return missing(fact, e, place=place)
    finally:
        worker.abandon()


def _driver(binding: object) -> tuple[DriverFacts, tuple[int, ...]]:
    nvml = Nvml(binding)
    try:
        reading = nvml.read()
    finally:
        nvml.close()
    return _driver_facts(reading), tuple({one.pid for gpu in reading.gpus for one in gpu.processes or ()})


def _driver_facts(reading: DeviceReading) -> DriverFacts:
    return DriverFacts(
        gpus=len(reading.gpus),
        version=reading.driver_version,
        unhealthy=tuple(f"{gpu.uuid}: {gpu.health}" for gpu in reading.gpus if gpu.health != "ok"),
    )


def _regions(directory: str) -> RegionFacts:
    reading = Regions(directory).read()
    return RegionFacts(
        directory=directory,
        containers=len(reading.containers),
        without_file=tuple(f"{one.pod_uid}/{one.container}" for one in reading.containers if one.region is None),
        refused=tuple(f"{one.path}: {one.reason}" for one in reading.refusals),
    )


def _processes(root: str, pids: tuple[int, ...]) -> ProcessFacts:
    return ProcessFacts(root=root, seen=len(Proc(root).owners(pids)), listed=len(pids))


async def _podresources(socket: str, *, within: Seconds) -> int | Missing:
    if socket == "none":
        return Missing(fact="podresources", reason="not-here", place=socket)
    source = PodResources(socket, timeout=within)
    try:
        return len(await source.read())
    except ScopeError as e:
        return missing("podresources", e, place=socket)
    finally:
        source.close()
