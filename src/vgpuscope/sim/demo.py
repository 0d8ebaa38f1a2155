"""The demo: simulated nodes that live, a real agent over each, a real cluster exporter and analyzer, where to look."""

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
from vgpuscope.sim import cluster, dcgm, prometheus
from vgpuscope.sim.analyzer import SCRAPE_SECONDS, WINDOW_MINUTES
from vgpuscope.sim.kinds import PLANS
from vgpuscope.sim.kubeapi import KubeApi, Objects
from vgpuscope.sim.node import Node

AGENT = (sys.executable, "-m", "vgpuscope.sim.agent")
EXPORTER = (sys.executable, "-m", "vgpuscope.sim.exporter")
ANALYZER = (sys.executable, "-m", "vgpuscope.sim.analyzer")
BASE_PORT, EXPORTER_PORT, ANALYZER_PORT, DCGM_PORT, PROMETHEUS_PORT = 19394, 31993, 8080, 9400, 9090
_TICK = 0.5  # seconds
_READY_WITHIN = 60.0
_END_WITHIN = 3.0
_LONGEST_SOCKET = 100  # a Unix socket's path has room for 107 bytes
_PLAIN_WIDTH = 160  # without a terminal nothing needs to be folded
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(
    *, base_port: int = BASE_PORT, seed: int = 1, directory: str | None = None, window: float = WINDOW_MINUTES
) -> int:
    """Runs the demo until Ctrl-C or SIGTERM; returns 0 then, and 1 when it could not start."""
    console = _console()
    try:
        with _workspace(directory) as root:
            return asyncio.run(_demo(console, root, base_port=base_port, seed=seed, window=window))
    except _CannotStart as e:
        console.print(f"vgpuscope demo: {e}", style="red", soft_wrap=True)
        return 1


def _console() -> Console:
    # Logs and paths are printed as they are, so nothing in them may count as markup.
    width = None if sys.stdout.isatty() else _PLAIN_WIDTH
    return Console(markup=False, highlight=False, emoji=False, width=width)


class _CannotStart(Exception):
    """Why there is no demo, in words for the person who asked for one."""


async def _demo(console: Console, root: Path, *, base_port: int, seed: int, window: float) -> int:
    began = time.monotonic()
    stop = _stop_on_signal()
    nodes = [Node(root / plan.name, plan, seed=seed, now=time.time()) for plan in PLANS]
    objects = Objects()
    api = KubeApi(objects)
    ports = _Ports.found(len(nodes), base_port)
    worlds = [node.world for node in nodes]
    async with _kubelets(nodes), api.serve(), _ticking(nodes, objects, stop), dcgm.serve(worlds, ports.dcgm) as extra:
        api.write_kubeconfig(root / "kubeconfig")
        async with _children(_plans(nodes, root, ports, extra, window)) as children:
            console.print(
                f"vgpuscope demo: {len(nodes)} simulated nodes, one real agent each, a real cluster exporter and a "
                "real analyzer; no GPU, cluster or root."
            )
            if not await _first_of(_all_ready(console, children, began), stop):
                return 0
            _print_page(console, children, root)
            if await _first_of(_all_ended(console, children), stop):
                raise _CannotStart("every process has ended, so there is nothing left to see")
            console.print("\nvgpuscope demo: ending.")
    return 0


# The processes


@dataclass(frozen=True)
class _ChildPlan:
    """One process of the demo: what it is called, how it is started, and what the page says of it."""

    name: str
    title: str
    command: tuple[str, ...]
    port: int
    log: Path
    kind: str
    look_for: str
    ready: str = "/readyz"


@dataclass
class _Child:
    plan: _ChildPlan
    process: asyncio.subprocess.Process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.plan.port}"


@dataclass(frozen=True)
class _Ports:
    """Where everything listens."""

    agents: tuple[int, ...]
    exporter: int
    analyzer: int
    dcgm: int
    prometheus: int

    @classmethod
    def found(cls, agents: int, base: int) -> "_Ports":
        """The usual ports, or those that follow another base; where one is taken, any free one."""
        others = [EXPORTER_PORT, ANALYZER_PORT, DCGM_PORT, PROMETHEUS_PORT]
        if base != BASE_PORT:
            others = [base + agents + n for n in range(len(others))]
        *first, exporter, analyzer, dcgm_port, prometheus_port = _ports([*range(base, base + agents), *others])
        return cls(tuple(first), exporter, analyzer, dcgm_port, prometheus_port)


def _plans(nodes: list[Node], root: Path, ports: _Ports, dcgm_url: str, window: float) -> list[_ChildPlan]:
    """An agent for each node, the exporter, a Prometheus if one is asked for, and last the analyzer."""
    plans = [
        _ChildPlan(
            name=node.plan.name,
            title=f"the agent of {node.plan.name}",
            command=(*AGENT, str(node.directory), "--listen", f"127.0.0.1:{port}", "--while-stdin"),
            port=port,
            log=node.directory.with_suffix(".log"),
            kind=node.plan.kind,
            look_for=node.plan.look_for,
        )
        for node, port in zip(nodes, ports.agents, strict=True)
    ]
    exporter = _ChildPlan(
        name="cluster",
        title="the cluster exporter",
        command=(*EXPORTER, str(root / "kubeconfig"), "--listen", f"127.0.0.1:{ports.exporter}"),
        port=ports.exporter,
        log=root / "cluster.log",
        kind=f"the exporter of all {len(nodes)} nodes and 2 more",
        look_for=cluster.LOOK_FOR,
    )
    urls = [f"http://127.0.0.1:{port}" for port in ports.agents] + [dcgm_url]
    asked = _prometheus_plans(root, ports, [*urls, f"http://127.0.0.1:{ports.exporter}"])
    return [*plans, exporter, *asked, _analyzer_plan(root, ports, urls, window, through_prometheus=bool(asked))]


def _analyzer_plan(
    root: Path, ports: _Ports, urls: list[str], window: float, *, through_prometheus: bool
) -> _ChildPlan:
    command = [*ANALYZER, "--listen", f"127.0.0.1:{ports.analyzer}", "--targets", ",".join(urls)]
    command += ["--cluster", f"http://127.0.0.1:{ports.exporter}", "--history", str(root / "history.db")]
    command += ["--window-minutes", f"{window:g}"]
    if through_prometheus:
        command += ["--prometheus", f"http://127.0.0.1:{ports.prometheus}"]
    source = "a real Prometheus" if through_prometheus else "its own scrapes"
    return _ChildPlan(
        name="analyzer",
        title="the analyzer",
        command=tuple(command),
        port=ports.analyzer,
        log=root / "analyzer.log",
        kind=f"scores and verdicts from {source}, over {window:g} min",
        look_for="idle, idle-held, busy and busy-unproductive cards; unknown where too little is known: at first "
        "everything",
    )


def _prometheus_plans(root: Path, ports: _Ports, urls: list[str]) -> list[_ChildPlan]:
    if os.environ.get(prometheus.WANTED, "") in {"", "0"}:
        return []
    program = prometheus.found()
    if program is None:
        raise _CannotStart(f"{prometheus.WANTED} is set, but there is no {prometheus.PROGRAM}; Debian has it")
    command = prometheus.command(program, root, urls=urls, port=ports.prometheus, seconds=SCRAPE_SECONDS)
    return [
        _ChildPlan(
            name="prometheus",
            title="the Prometheus",
            command=command,
            port=ports.prometheus,
            log=root / "prometheus.log",
            kind="a real Prometheus that scrapes all of them",
            look_for="any PromQL over what is above",
            ready="/-/ready",
        )
    ]


@contextlib.asynccontextmanager
async def _children(plans: list[_ChildPlan]) -> AsyncIterator[list[_Child]]:
    """Runs the processes; at the end none is left."""
    children: list[_Child] = []
    try:
        for plan in plans:
            child = await _start(plan)
            children.append(child)
        yield children
    finally:
        await asyncio.gather(*(_end(child.process) for child in children))


async def _start(plan: _ChildPlan) -> _Child:
    with plan.log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *plan.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=out,
            stderr=out,
            start_new_session=True,  # Ctrl-C in the terminal is for us; we end the others
        )
    return _Child(plan=plan, process=process)


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _END_WITHIN)
    except TimeoutError:
        process.kill()
        await process.wait()


async def _all_ready(console: Console, children: list[_Child], began: float) -> None:
    try:
        async with asyncio.timeout(_READY_WITHIN):
            await asyncio.gather(*(_ready(console, child, began) for child in children))
    except TimeoutError:
        tails = "\n".join(_tail(child.plan.log) for child in children)
        raise _CannotStart(f"not everything was ready within {_READY_WITHIN:.0f} s\n{tails}") from None


async def _ready(console: Console, child: _Child, began: float) -> None:
    while not await _answers(child.plan.port, child.plan.ready):
        if child.process.returncode is not None:
            raise _CannotStart(_obituary(child))
        await asyncio.sleep(0.1)
    console.print(f"  {child.plan.name:8} ready after {time.monotonic() - began:.1f} s", style="dim")


async def _answers(port: int, path: str) -> bool:
    """Whether the process says 200 there."""
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


async def _all_ended(console: Console, children: list[_Child]) -> None:
    """Comes back when no process is left; says of each when it went."""
    await asyncio.gather(*(_report_end(console, child) for child in children))


async def _report_end(console: Console, child: _Child) -> None:
    await child.process.wait()
    console.print(f"vgpuscope demo: {_obituary(child)}", style="red", soft_wrap=True)


def _obituary(child: _Child) -> str:
    return f"{child.plan.title} ended with code {child.process.returncode}; its last words:\n{_tail(child.plan.log)}"


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-15:]
    return "\n".join(f"    {line}" for line in lines) or "    (nothing)"


def _ports(wanted: list[int]) -> list[int]:
    """These ports; where one is taken, any free one."""
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
    raise _CannotStart("no free port on 127.0.0.1")


# The world


@contextlib.asynccontextmanager
async def _ticking(nodes: list[Node], objects: Objects, stop: asyncio.Event) -> AsyncIterator[None]:
    """Lets the nodes live; if that fails the demo stops and says why."""
    cluster.publish(objects, [node.world for node in nodes])
    task = asyncio.create_task(_tick(nodes, objects), name="world")
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


async def _tick(nodes: list[Node], objects: Objects) -> None:
    while True:
        try:
            for node in nodes:
                node.tick(time.time())
            cluster.publish(objects, [node.world for node in nodes])
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


def _print_page(console: Console, children: list[_Child], root: Path) -> None:
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("Node", style="bold", no_wrap=True)
    table.add_column("Metrics", no_wrap=True, style="cyan")
    table.add_column("What to look for")
    for child in children:
        look = Text.assemble((child.plan.kind, "bold"), "\n", child.plan.look_for)
        table.add_row(child.plan.name, f"{child.url}/metrics", look)
    console.print()
    console.print(table)
    by_name = {child.plan.name: child.url for child in children}
    for what, command in _commands(children[0].url, by_name["cluster"], by_name["analyzer"], root):
        console.print(Text.assemble(f"  {what:22} ", (command, "green")), soft_wrap=True)
    console.print("\nCtrl-C ends everything.")
    console.file.flush()


def _commands(url: str, exporter: str, analyzer: str, root: Path) -> Iterator[tuple[str, str]]:
    program = _program()
    yield "a node, live", f"{program} top {url}"
    yield "as a table, once", f"{program} top {url} --once"
    yield "all its metrics", f"curl -s {url}/metrics"
    yield "who uses what", f"curl -s {url}/metrics | grep {catalog.CONTAINER_MEMORY_USED.name}"
    yield "HAMi's names", f"curl -s {url}/metrics | grep ^hami_"
    yield "the cluster's nodes", f"{program} nodes {exporter}"
    yield "who holds which GPU", f"{program} gpus {exporter}"
    yield "who waits, and why", f"{program} pending {exporter}"
    yield "what is idle, and why", f"{program} results {analyzer}"
    yield "the analyzer's API", f"{analyzer}/docs"
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
