"""The processes of the demo: real agents, exporter, extender and analyzer, started and ended together."""

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from vgpuscope.model.service import AGENT_PORT, ANALYZER_PORT, CLUSTER_PORT
from vgpuscope.sim import prometheus
from vgpuscope.sim.analyzer import SCRAPE_SECONDS
from vgpuscope.sim.dcgm import BESIDE
from vgpuscope.sim.extender import EXTENDER_PORT
from vgpuscope.sim.node import Node
from vgpuscope.sim.policy import SETTINGS_FILE

AGENT = (sys.executable, "-m", "vgpuscope.sim.agent")
EXPORTER = (sys.executable, "-m", "vgpuscope.sim.exporter")
EXTENDER = (sys.executable, "-m", "vgpuscope.sim.extender")
ANALYZER = (sys.executable, "-m", "vgpuscope.sim.analyzer")
DCGM_PORT, PROMETHEUS_PORT = 9400, 9090
_READY_WITHIN = 300.0  # seconds; on a quiet machine the start takes about ten
_END_WITHIN = 3.0


class CannotStart(Exception):
    """The reason why the demo cannot start, for the user."""


class ProcessPast(NamedTuple):
    """What the analyzer needs to simulate the day before."""

    seed: int
    began: float
    window: float  # minutes


@dataclass(frozen=True)
class ChildPlan:
    """One process of the demo: its name, its command, and its description on the page."""

    name: str
    title: str
    command: tuple[str, ...]
    port: int
    log: Path
    kind: str
    agent: bool = False
    ready: str = "/readyz"


@dataclass
class Child:
    plan: ChildPlan
    process: asyncio.subprocess.Process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.plan.port}"


@dataclass(frozen=True)
class Ports:
    """The ports of all processes."""

    agents: tuple[int, ...]
    exporter: int
    analyzer: int
    extender: int
    dcgm: int
    prometheus: int
    moved: tuple[int, ...] = ()  # default ports that are in use by others

    @classmethod
    def found(cls, agents: int, base: int) -> "Ports":
        """The default ports, or those that follow another base; a port in use is replaced by any free one."""
        others = [CLUSTER_PORT, ANALYZER_PORT, EXTENDER_PORT, DCGM_PORT, PROMETHEUS_PORT]
        if base != AGENT_PORT:
            others = [base + agents + n for n in range(len(others))]
        wanted = [*range(base, base + agents), *others]
        found = _ports(wanted)
        *first, exporter, analyzer, extender, dcgm_port, prometheus_port = found
        moved = tuple(want for want, port in zip(wanted[: agents + 2], found, strict=False) if want != port)
        return cls(tuple(first), exporter, analyzer, extender, dcgm_port, prometheus_port, moved)


def plans(nodes: list[Node], root: Path, ports: Ports, dcgm_url: str, past: ProcessPast) -> list[ChildPlan]:
    """An agent for each node, the exporter, a Prometheus if it was requested, and the analyzer."""
    plans = [
        ChildPlan(
            name=node.plan.name,
            title=f"the agent of {node.plan.name}",
            command=(
                *(*AGENT, str(node.directory), "--listen", f"127.0.0.1:{port}", "--while-stdin"),
                *(("--dcgm", f"{dcgm_url}/{node.plan.name}/metrics") if node.plan.name in BESIDE else ()),
            ),
            port=port,
            log=node.directory.with_suffix(".log"),
            kind=node.plan.kind,
            agent=True,
        )
        for node, port in zip(nodes, ports.agents, strict=True)
    ]
    exporter = ChildPlan(
        name="cluster",
        title="the cluster exporter",
        command=(*EXPORTER, str(root / "kubeconfig"), "--listen", f"127.0.0.1:{ports.exporter}"),
        port=ports.exporter,
        log=root / "cluster.log",
        kind="who holds GPUs, who waits, why",
    )
    urls = [f"http://127.0.0.1:{port}" for port in ports.agents] + [dcgm_url]
    services = [f"http://127.0.0.1:{port}" for port in (ports.exporter, ports.extender)]
    asked = _prometheus_plans(root, ports, [*urls, *services])
    analyzer = _analyzer_plan(root, ports, urls, past, through_prometheus=bool(asked))
    return [analyzer, _extender_plan(root, ports), *plans, exporter, *asked]  # the analyzer takes longest


def _extender_plan(root: Path, ports: Ports) -> ChildPlan:
    command = [*EXTENDER, str(root / "kubeconfig"), "--listen", f"127.0.0.1:{ports.extender}"]
    command += ["--analyzer", f"http://127.0.0.1:{ports.analyzer}", "--state", str(root / "decisions.db")]
    return ChildPlan(
        name="extender",
        title="the scheduler extender",
        command=tuple(command),
        port=ports.extender,
        log=root / "extender.log",
        kind="which GPU a pod gets, and why",
    )


def _analyzer_plan(
    root: Path, ports: Ports, urls: list[str], past: ProcessPast, *, through_prometheus: bool
) -> ChildPlan:
    command = [*ANALYZER, "--listen", f"127.0.0.1:{ports.analyzer}", "--targets", ",".join(urls)]
    command += ["--cluster", f"http://127.0.0.1:{ports.exporter}", "--history", str(root / "history.db")]
    command += ["--extender", f"http://127.0.0.1:{ports.extender}"]
    command += ["--window-minutes", f"{past.window:g}", "--began", repr(past.began), "--seed", str(past.seed)]
    command += ["--config", str(root / SETTINGS_FILE)]
    if through_prometheus:
        command += ["--prometheus", f"http://127.0.0.1:{ports.prometheus}"]
    return ChildPlan(
        name="analyzer",
        title="the analyzer",
        command=tuple(command),
        port=ports.analyzer,
        log=root / "analyzer.log",
        kind="who is idle, and since when",
    )


def _prometheus_plans(root: Path, ports: Ports, urls: list[str]) -> list[ChildPlan]:
    if os.environ.get(prometheus.WANTED, "") in {"", "0"}:
        return []
    program = prometheus.found()
    if program is None:
        raise CannotStart(f"{prometheus.WANTED} is set, but there is no {prometheus.PROGRAM}; Debian has it")
    command = prometheus.command(program, root, urls=urls, port=ports.prometheus, seconds=SCRAPE_SECONDS)
    return [
        ChildPlan(
            name="prometheus",
            title="the Prometheus",
            command=command,
            port=ports.prometheus,
            log=root / "prometheus.log",
            kind="scrapes all of them",
            ready="/-/ready",
        )
    ]


@contextlib.asynccontextmanager
async def running(plans: list[ChildPlan]) -> AsyncIterator[list[Child]]:
    """Runs the processes; at the end all are stopped."""
    children: list[Child] = []
    try:
        for plan in plans:
            child = await _start(plan)
            children.append(child)
        yield children
    finally:
        await asyncio.gather(*(_end(child.process) for child in children))


async def _start(plan: ChildPlan) -> Child:
    with plan.log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *plan.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=out,
            stderr=out,
            start_new_session=True,  # Ctrl-C in the terminal reaches only this process, which stops the others
        )
    return Child(plan=plan, process=process)


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(_END_WITHIN):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


async def all_ready(children: list[Child], waiting: Callable[[set[str]], None]) -> None:
    """Returns when all answer; `waiting` is called with the names of those that do not answer yet."""
    waited_for = {child.plan.name for child in children}

    async def wait(child: Child) -> None:
        await _ready(child)
        waited_for.discard(child.plan.name)
        waiting(waited_for)

    waits = [asyncio.create_task(wait(child), name=f"start of {child.plan.name}") for child in children]
    try:
        async with asyncio.timeout(_READY_WITHIN):
            await asyncio.gather(*waits)
    except TimeoutError:
        tails = "\n".join(_tail(child.plan.log) for child in children)
        raise CannotStart(f"not everything was ready within {_READY_WITHIN:.0f} s\n{tails}") from None
    finally:
        for task in waits:
            task.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


async def _ready(child: Child) -> None:
    while not await _answers(child.plan.port, child.plan.ready):
        if child.process.returncode is not None:
            raise CannotStart(_obituary(child))
        await asyncio.sleep(0.1)


async def _answers(port: int, path: str) -> bool:
    """Whether the process answers with status 200."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        async with asyncio.timeout(2):
            status = await reader.readline()
        return b" 200 " in status
    except (OSError, TimeoutError):
        return False
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def all_ended(console: Console, children: list[Child]) -> None:
    """Returns when no process is left; prints when each one ended."""
    await asyncio.gather(*(_report_end(console, child) for child in children))


async def _report_end(console: Console, child: Child) -> None:
    await child.process.wait()
    console.print(f"vgpuscope demo: {_obituary(child)}", style="red", soft_wrap=True)


def _obituary(child: Child) -> str:
    return f"{child.plan.title} ended with code {child.process.returncode}; its last words:\n{_tail(child.plan.log)}"


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-15:]
    return "\n".join(f"    {line}" for line in lines) or "    (nothing)"


def _ports(wanted: list[int]) -> list[int]:
    """These ports; a port in use is replaced by any free one."""
    with contextlib.ExitStack() as held:
        return [_port(held, port) for port in wanted]


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
    raise CannotStart("no free port on 127.0.0.1")
