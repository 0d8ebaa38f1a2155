"""A dcgm-exporter with profiling metrics on some of the nodes: the share of SMs that were busy, over time.

The driver of an A100 does not have these metrics. One GPU runs kernels most of the time, but on few SMs: its job waits
for data. MIG instances have no other signal of work, so without such an exporter their verdict is unknown. The agent of
one node reads the exporter beside it (--dcgm); the exporter of the other is scraped by the analyzer.

/metrics         the nodes whose exporter the analyzer scrapes
/NODE/metrics    one node
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import NamedTuple

from vgpuscope.sim.driver import BUSY_SMS
from vgpuscope.sim.hardware import Instance, SimGpu
from vgpuscope.sim.jobs import Life
from vgpuscope.sim.world import World

NODES = ("hami-a", "mig-c")
BESIDE = frozenset({"mig-c"})  # nodes whose agent reads the exporter
STARVED = ("hami-a", 2)  # node and GPU
_FEW = 0.07  # share of SMs that are busy while kernels run, if there are few
_LONGEST_REQUEST = 16 * 1024
_FIELD = "DCGM_FI_PROF_"  # what the names of profiling fields begin with


@contextlib.asynccontextmanager
async def serve(worlds: Sequence[World], port: int) -> AsyncIterator[str]:
    """Serves the exporter's page while the block runs; yields its address."""
    server = await asyncio.start_server(lambda r, w: _answer(worlds, r, w), "127.0.0.1", port, limit=_LONGEST_REQUEST)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


class Activity(NamedTuple):
    """What the exporter reports for a GPU or MIG instance: shares of SMs and of time, 0-1."""

    gpu: SimGpu
    sm: float
    engine: float
    instance: Instance | None = None
    holder: Life | None = None  # the pod that has the MIG instance; the exporter names it


def activities(world: World) -> Iterator[Activity]:
    """The current values of the node's exporter; none on a node without one."""
    if world.plan.name not in NODES:
        return
    for gpu in world.gpus:
        if gpu.lost:
            continue
        if gpu.mig:
            yield from _instances(world, gpu)
        else:
            share = _FEW if (world.plan.name, gpu.index) == STARVED else BUSY_SMS
            yield Activity(gpu, sm=gpu.load.sm * share, engine=gpu.busy)


def page(worlds: Sequence[World]) -> str:
    """The page in the text format."""
    found = [(world, one) for world in worlds for one in activities(world)]
    sm, engine = f"{_FIELD}SM_ACTIVE", f"{_FIELD}GR_ENGINE_ACTIVE"
    lines = [
        f"# HELP {sm} The ratio of cycles an SM has at least 1 warp assigned (in %).",
        f"# TYPE {sm} gauge",
        *(f"{sm}{{{_labels(world, one)}}} {one.sm:.4f}" for world, one in found),
        f"# HELP {engine} Ratio of time the graphics engine is active (in %).",
        f"# TYPE {engine} gauge",
        *(f"{engine}{{{_labels(world, one)}}} {one.engine:.4f}" for world, one in found),
    ]
    return "\n".join(lines) + "\n"


def _instances(world: World, gpu: SimGpu) -> Iterator[Activity]:
    """GPU instances. One with two compute instances is skipped: the exporter cannot attribute its use."""
    numbers = [instance.gpu_instance for instance in gpu.instances]
    for instance in gpu.instances:
        if numbers.count(instance.gpu_instance) > 1:
            continue
        inside = [(life, process) for life, process in world.on_gpu(gpu) if world.instance_of(life) == instance]
        engine = min(1.0, sum(process.sm.get(gpu.index, 0.0) for _, process in inside))
        yield Activity(
            gpu, sm=engine * BUSY_SMS, engine=engine, instance=instance, holder=_holder(world, gpu, instance)
        )


def _holder(world: World, gpu: SimGpu, instance: Instance) -> Life | None:
    there = (life for life in world.lives.values() if life.job.gpus == (gpu.index,))
    return next((life for life in there if world.instance_of(life) == instance), None)


def _labels(world: World, one: Activity) -> str:
    labels = {
        "gpu": str(one.gpu.index),
        "UUID": one.gpu.uuid,
        "device": f"nvidia{one.gpu.index}",
        "modelName": one.gpu.spec.name,
        "Hostname": world.plan.name,
    }
    if one.instance:
        labels |= {"GPU_I_PROFILE": one.instance.profile, "GPU_I_ID": str(one.instance.gpu_instance)}
    if one.holder:
        job = one.holder.job
        labels |= {"container": job.container, "namespace": job.namespace, "pod": one.holder.name}
    return ",".join(f'{name}="{value}"' for name, value in labels.items())


def _asked(worlds: Sequence[World], request: bytes) -> list[World]:
    """The nodes that a request is about."""
    path = request.partition(b" ")[2].partition(b" ")[0].decode("ascii", "replace")
    node = path.strip("/").partition("/")[0]
    if node in NODES:
        return [world for world in worlds if world.plan.name == node]
    return [world for world in worlds if world.plan.name not in BESIDE]


async def _answer(worlds: Sequence[World], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        async with asyncio.timeout(5):
            request = await reader.readuntil(b"\r\n\r\n")
            body = page(_asked(worlds, request)).encode()
            head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {len(body)}\r\n"
            writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
            await writer.drain()
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass  # the client disconnected, or requested a path that is not served
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
