"""What a dcgm-exporter with profiling metrics would add on some of the nodes: how many SMs were busy.

NVML cannot tell it, so no agent does. One card runs kernels most of the time, but on few SMs: its job waits for data.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from vgpuscope.sim.world import World

NODES = ("hami-a", "whole-b")
STARVED = ("hami-a", 2)  # node and card
_BUSY, _FEW = 0.9, 0.07  # of the time in which kernels run: the share of SMs that are busy
_LONGEST_REQUEST = 16 * 1024


@contextlib.asynccontextmanager
async def serve(worlds: Sequence[World], port: int) -> AsyncIterator[str]:
    """The exporter's page for as long as the block lasts; its address."""
    server = await asyncio.start_server(lambda r, w: _answer(worlds, r, w), "127.0.0.1", port, limit=_LONGEST_REQUEST)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


def page(worlds: Sequence[World]) -> str:
    """The page in the text format."""
    lines = [
        "# HELP DCGM_FI_PROF_SM_ACTIVE The ratio of cycles an SM has at least 1 warp assigned (in %).",
        "# TYPE DCGM_FI_PROF_SM_ACTIVE gauge",
    ]
    for world in worlds:
        if world.plan.name in NODES:
            lines += _cards(world)
    return "\n".join(lines) + "\n"


def _cards(world: World) -> list[str]:
    lines = []
    for card in world.cards:
        if card.lost or card.mig:
            continue
        share = _FEW if (world.plan.name, card.index) == STARVED else _BUSY
        labels = (
            f'gpu="{card.index}",UUID="{card.uuid}",device="nvidia{card.index}",modelName="{card.spec.name}",'
            f'Hostname="{world.plan.name}"'
        )
        lines.append(f"DCGM_FI_PROF_SM_ACTIVE{{{labels}}} {card.load.sm * share:.4f}")
    return lines


async def _answer(worlds: Sequence[World], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        async with asyncio.timeout(5):
            await reader.readuntil(b"\r\n\r\n")
            body = page(worlds).encode()
            head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {len(body)}\r\n"
            writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
            await writer.drain()
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass  # whoever asked has gone, or asked for nothing that is here
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
