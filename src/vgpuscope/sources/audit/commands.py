"""What commands print with `--json`: each runs as a process of its own, as a user would run it."""

import asyncio
import sys
from typing import Any

import msgspec

from vgpuscope.sources.audit.client import Unanswered

_LARGEST = 256 * 2**20  # bytes of output


async def printed(arguments: tuple[str, ...], *, within: float) -> Any:
    """The plain value that `vgpuscope ARGUMENTS --json` prints; Unanswered if it fails or takes too long."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "vgpuscope", *arguments, "--json"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=_LARGEST,
    )
    try:
        async with asyncio.timeout(within):
            output, _ = await process.communicate()
    except TimeoutError as e:
        process.kill()
        await process.wait()
        raise Unanswered(f"vgpuscope {arguments[0]}: no output within {within:g} s") from e
    except asyncio.CancelledError:
        process.kill()
        raise
    try:
        return msgspec.json.decode(output)
    except msgspec.MsgspecError as e:
        raise Unanswered(f"vgpuscope {arguments[0]}: exit code {process.returncode}") from e
