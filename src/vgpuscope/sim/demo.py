"""The demo: simulated nodes that live, one real agent process over each, and a page that says where to look."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vgpuscope.catalog import node as catalog
from vgpuscope.sim.kinds import PLANS
from vgpuscope.sim.node import Node

AGENT = (sys.executable, "-m", "vgpuscope.sim.agent")
_TICK = 0.5  # seconds
_READY_WITHIN = 60.0
_END_WITHIN = 3.0
_LONGEST_SOCKET = 100  # a Unix socket's path has room for 107 bytes
_PLAIN_WIDTH = 160  # without a terminal nothing needs to be folded
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(*, base_port: int = 19394, seed: int = 1, directory: str | None = None) -> int:
    """Runs the demo until Ctrl-C or SIGTERM; returns 0 then, and 1 when it could not start."""
    console = _console()
    try:
        with _workspace(directory) as root:
            return asyncio.run(_demo(console, root, base_port=base_port, seed=seed))
    except _CannotStart as e:
        console.print(f"vgpuscope demo: {e}", style="red", soft_wrap=True)
        return 1


def _console() -> Console:
    # Logs and paths are printed as they are, so nothing in them may count as markup.
    width = None if sys.stdout.isatty() else _PLAIN_WIDTH
    return Console(markup=False, highlight=False, emoji=False, width=width)


class _CannotStart(Exception):
    """Why there is no demo, in words for the person who asked for one."""


async def _demo(console: Console, root: Path, *, base_port: int, seed: int) -> int:
    began = time.monotonic()
    stop = _stop_on_signal()
    nodes = [Node(root / plan.name, plan, seed=seed, now=time.time()) for plan in PLANS]
    async with _kubelets(nodes), _ticking(nodes, stop), _agents(nodes, base_port) as agents:
        console.print(f"vgpuscope demo: {len(nodes)} simulated nodes, one real agent each; no GPU, cluster or root.")
        if not await _first_of(_all_ready(console, agents, began), stop):
            return 0
        _print_page(console, agents, root)
        if await _first_of(_all_ended(console, agents), stop):
            raise _CannotStart("every agent has ended, so there is nothing left to see")
        console.print("\nvgpuscope demo: ending.")
    return 0


# The agents


@dataclass
class _Agent:
    node: Node
    port: int
    log: Path
    process: asyncio.subprocess.Process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextlib.asynccontextmanager
async def _agents(nodes: list[Node], base_port: int) -> AsyncIterator[list[_Agent]]:
    """Runs an agent process per node; at the end none is left."""
    agents: list[_Agent] = []
    try:
        for node, port in zip(nodes, _ports(len(nodes), base_port), strict=True):
            agents.append(await _start(node, port))
        yield agents
    finally:
        await asyncio.gather(*(_end(agent.process) for agent in agents))


async def _start(node: Node, port: int) -> _Agent:
    log = node.directory.with_suffix(".log")
    arguments = [str(node.directory), "--listen", f"127.0.0.1:{port}", "--while-stdin"]
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *AGENT,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=out,
            stderr=out,
            start_new_session=True,  # Ctrl-C in the terminal is for us; we end the agents
        )
    return _Agent(node=node, port=port, log=log, process=process)


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _END_WITHIN)
    except TimeoutError:
        process.kill()
        await process.wait()


async def _all_ready(console: Console, agents: list[_Agent], began: float) -> None:
    try:
        async with asyncio.timeout(_READY_WITHIN):
            await asyncio.gather(*(_ready(console, agent, began) for agent in agents))
    except TimeoutError:
        tails = "\n".join(_tail(agent.log) for agent in agents)
        raise _CannotStart(f"not every agent was ready within {_READY_WITHIN:.0f} s\n{tails}") from None


async def _ready(console: Console, agent: _Agent, began: float) -> None:
    while not await _answers(agent.port, "/readyz"):
        if agent.process.returncode is not None:
            raise _CannotStart(_obituary(agent))
        await asyncio.sleep(0.1)
    console.print(f"  {agent.node.plan.name:8} ready after {time.monotonic() - began:.1f} s", style="dim")


async def _answers(port: int, path: str) -> bool:
    """Whether the agent says 200 there."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        status = await asyncio.wait_for(reader.readline(), 2)
        return b" 200 " in status
    except (OSError, TimeoutError):
        return False
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _all_ended(console: Console, agents: list[_Agent]) -> None:
    """Comes back when no agent is left; says of each when it went."""
    await asyncio.gather(*(_report_end(console, agent) for agent in agents))


async def _report_end(console: Console, agent: _Agent) -> None:
    await agent.process.wait()
    console.print(f"vgpuscope demo: {_obituary(agent)}", style="red", soft_wrap=True)


def _obituary(agent: _Agent) -> str:
    name = agent.node.plan.name
    return f"the agent of {name} ended with code {agent.process.returncode}; its last words:\n{_tail(agent.log)}"


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-15:]
    return "\n".join(f"    {line}" for line in lines) or "    (nothing)"


def _ports(count: int, base: int) -> list[int]:
    """Ports from the base on; where one is taken, any free one."""
    with contextlib.ExitStack() as held:
        return [_port(held, base + n) for n in range(count)]


def _port(held: contextlib.ExitStack, wanted: int) -> int:
    for port in (wanted, 0):
        sock = held.enter_context(socket.socket())
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            continue
        found: int = sock.getsockname()[1]
        return found
    raise _CannotStart("no free port on 127.0.0.1")


# The world


@contextlib.asynccontextmanager
async def _ticking(nodes: list[Node], stop: asyncio.Event) -> AsyncIterator[None]:
    """Lets the nodes live; if that fails the demo stops and says why."""
    task = asyncio.create_task(_tick(nodes), name="world")
    task.add_done_callback(lambda _: stop.set())
    try:
        yield
    finally:
        task.cancel()
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        finally:
            for node in nodes:
                node.close()


async def _tick(nodes: list[Node]) -> None:
    while True:
        try:
            for node in nodes:
                node.tick(time.time())
        except OSError as e:
            raise _CannotStart(f"the nodes' files cannot be written: {e}") from e
        await asyncio.sleep(_TICK)


@contextlib.asynccontextmanager
async def _kubelets(nodes: list[Node]) -> AsyncIterator[None]:
    servers = [await node.serve() for node in nodes]
    try:
        yield
    finally:
        for server in servers:
            server.close()
        await asyncio.gather(*(server.wait_closed() for server in servers))


@contextlib.contextmanager
def _workspace(directory: str | None) -> Iterator[Path]:
    """A directory for the nodes: one of our own that goes at the end, or the given one, which stays."""
    if directory is None:
        base = tempfile.gettempdir()
        # Sockets need a short path; /tmp is the shortest that everybody has.
        own = Path(tempfile.mkdtemp(prefix="vgpuscope-demo-", dir=base if len(base) < 40 else "/tmp"))
        try:
            yield own
        finally:
            shutil.rmtree(own, ignore_errors=True)
        return
    root = Path(directory).absolute()
    if len(str(root / PLANS[0].name / "pod-resources" / "kubelet.sock")) > _LONGEST_SOCKET:
        raise _CannotStart(f"{root} is too long a path for Unix sockets; say a shorter one")
    try:
        root.mkdir(parents=True, exist_ok=True)
        if any(root.iterdir()):
            raise _CannotStart(f"{root} is not empty; say another directory, or none")
    except OSError as e:
        raise _CannotStart(f"{root}: {e.strerror}") from e
    yield root


# What people see


def _print_page(console: Console, agents: list[_Agent], root: Path) -> None:
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("Node", style="bold", no_wrap=True)
    table.add_column("Metrics", no_wrap=True, style="cyan")
    table.add_column("What to look for")
    for agent in agents:
        plan = agent.node.plan
        look = Text.assemble((plan.kind, "bold"), "\n", plan.look_for)
        table.add_row(plan.name, f"{agent.url}/metrics", look)
    console.print()
    console.print(table)
    for what, command in _commands(agents[0].url, root):
        console.print(Text.assemble(f"  {what:22} ", (command, "green")), soft_wrap=True)
    console.print("\nCtrl-C ends everything.")
    console.file.flush()


def _commands(url: str, root: Path) -> Iterator[tuple[str, str]]:
    program = _program()
    yield "a node, live", f"{program} top {url}"
    yield "as a table, once", f"{program} top {url} --once"
    yield "all its metrics", f"curl -s {url}/metrics"
    yield "who uses what", f"curl -s {url}/metrics | grep {catalog.CONTAINER_MEMORY_USED.name}"
    yield "HAMi's names", f"curl -s {url}/metrics | grep ^hami_"
    yield "what the agents read", f"ls {root}/*"


def _program() -> str:
    """How this program is called from where the person stands."""
    if shutil.which("vgpuscope"):
        return "vgpuscope"
    beside = Path(sys.executable).parent / "vgpuscope"
    return os.path.relpath(beside) if beside.exists() else f"{sys.executable} -m vgpuscope"


def _stop_on_signal() -> asyncio.Event:
    stop = asyncio.Event()
    for number in _SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def _first_of(work: Coroutine[Any, Any, None], stop: asyncio.Event) -> bool:
    """True when the work is done, False when the person wants to stop; errors of the work are raised."""
    task = asyncio.create_task(work, name="work")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
            return True
        return False
    finally:
        task.cancel()
        stopping.cancel()
        await asyncio.gather(task, stopping, return_exceptions=True)
