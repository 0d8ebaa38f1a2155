"""The demo: simulated nodes, a real agent on each, a real exporter, extender and analyzer, and a page of addresses."""

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from vgpuscope.model.doctor import ServiceCode
from vgpuscope.model.service import AGENT_PORT
from vgpuscope.services.doctor.demos import DemoService, announced
from vgpuscope.sim import cluster, controllers, dcgm, model, policy, posts, screen
from vgpuscope.sim.analyzer import WINDOW_MINUTES
from vgpuscope.sim.control_service import ControlService, new_secret
from vgpuscope.sim.inbox import Inbox
from vgpuscope.sim.kinds import PLANS
from vgpuscope.sim.kubeapi import KubeApi, Objects
from vgpuscope.sim.news import NewsAnswers, NewsEvent, Reporter, findings
from vgpuscope.sim.node import Node
from vgpuscope.sim.past import SOURCE
from vgpuscope.sim.processes import CannotStart, Child, Ports, ProcessPast, all_ended, all_ready, plans, running
from vgpuscope.sim.scheduler import KubeScheduler, allocate
from vgpuscope.sim.world import World

_TICK = 0.5  # seconds
STOPPED = "stopped"  # a file of the directory; whoever writes NAMESPACE/NAME of workloads into it deletes them
POD_FILE = "pod.yaml"  # a file of the directory: a pod that one may ask about
_POD = """# `vgpuscope fit -f` says where this pod would go, or what would make it fit. Nothing is created.
apiVersion: v1
kind: Pod
metadata:
  name: try-me
  namespace: research
spec:
  schedulerName: hami-scheduler
  containers:
    - name: main
      image: registry.example/main:1
      resources:
        limits:
          nvidia.com/gpu: 2
          nvidia.com/gpumem: 90000
          nvidia.com/gpucores: 50
"""
_LONGEST_SOCKET = 100  # a Unix socket's path has room for 107 bytes
_TELLING_WITHIN = 60.0  # seconds that the page waits for the analyzer's first findings
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(
    *,
    base_port: int = AGENT_PORT,
    seed: int = 1,
    directory: str | None = None,
    window: float = WINDOW_MINUTES,
    live: policy.Hand | None = None,
) -> int:
    """Runs the demo until Ctrl-C or SIGTERM; returns 0 then, and 1 when it could not start.

    `live`: who really takes GPUs of idle pods back; None: nobody, it is a dry run.
    """
    console = screen.console()
    try:
        with _workspace(directory) as root:
            return asyncio.run(_demo(console, root, base_port=base_port, seed=seed, window=window, live=live))
    except CannotStart as e:
        console.print(f"vgpuscope demo: {e}", style="red", soft_wrap=True)
        return 1


async def _demo(
    console: Console, root: Path, *, base_port: int, seed: int, window: float, live: policy.Hand | None
) -> int:
    stop, began = _stop_on_signal(), time.time()
    nodes = [Node(root / plan.name, plan, seed=seed, now=began) for plan in PLANS]
    objects = Objects()
    api = KubeApi(objects)
    worlds = [node.world for node in nodes]
    for world in worlds:
        world.scheduled = True
    (root / POD_FILE).write_text(_POD)
    ticking = _ticking(nodes, objects, root / STOPPED, stop)
    async with _kubelets(nodes), api.serve(), ticking, _settings(console, root, worlds, live=live):
        api.write_kubeconfig(root / "kubeconfig")
        ports = Ports.found(len(nodes), base_port)  # after the servers above, which take any port that is free
        past = ProcessPast(seed, began, window)
        async with (
            dcgm.serve(worlds, ports.dcgm) as extra,
            running(plans(nodes, root, ports, extra, past)) as children,
        ):
            with screen.starting(console) as waiting:
                if not await _first_of(all_ready(children, waiting), stop):
                    return 0
            async with _scheduling(objects, ports.extender, stop), _reporter(children) as reporter:
                with announced(_addresses(children), os.environ, now=began):
                    if not await _first_of(_show(console, reporter, children, root, ports), stop):
                        console.print("vgpuscope demo: ending.")
                        return 0
    raise CannotStart("every process has ended, so there is nothing left to see")


async def _show(console: Console, reporter: Reporter, children: list[Child], root: Path, ports: Ports) -> None:
    """Shows the page, and then events; returns when no process is left."""
    look = await _telling(reporter)
    screen.print_page(console, children, root, ports, findings(look, now=time.time()))
    for words in policy.DIFFERS:
        screen.print_event(console, NewsEvent("reclaim", words))
    ended = asyncio.create_task(all_ended(console, children), name="processes")
    events = asyncio.create_task(_report_events(console, reporter, look), name="events")
    try:
        await asyncio.wait({ended, events}, return_when=asyncio.FIRST_COMPLETED)
        if events.done():
            await events  # raises: the events never end
    finally:
        for task in (ended, events):
            task.cancel()
        await asyncio.gather(ended, events, return_exceptions=True)


async def _telling(reporter: Reporter) -> NewsAnswers:
    """Answers of both services, with an idle verdict from real scrapes; or, after the time limit, what is answered."""
    until = time.monotonic() + _TELLING_WITHIN
    while time.monotonic() < until:
        if await reporter.judged_by() not in {"", SOURCE}:
            look = await reporter.look()
            if look.waiting is not None and any(row.verdict == "idle" for row in look.rows or ()):
                return look
        await asyncio.sleep(_TICK)
    return await reporter.look()


async def _report_events(console: Console, reporter: Reporter, look: NewsAnswers) -> None:
    async for event in reporter.events(look):
        screen.print_event(console, event)


def _reporter(children: list[Child]) -> Reporter:
    urls = {child.plan.name: child.url for child in children}
    agents = [child.url for child in children if child.plan.agent]
    return Reporter(analyzer=urls["analyzer"], cluster=urls["cluster"], agents=agents)


def _addresses(children: list[Child]) -> tuple[DemoService, ...]:
    """The services of the demo, for `vgpuscope doctor`."""
    codes: dict[str, ServiceCode] = {
        "analyzer": "analyzer",
        "cluster": "cluster",
        "extender": "extender",
        "prometheus": "prometheus",
    }
    agents = [
        DemoService(service="agent", url=child.url, name=child.plan.name) for child in children if child.plan.agent
    ]
    others = [
        DemoService(service=codes[child.plan.name], url=child.url) for child in children if child.plan.name in codes
    ]
    return (*others, *agents)


# Running the simulation


@contextlib.asynccontextmanager
async def _settings(
    console: Console, root: Path, worlds: list[World], *, live: policy.Hand | None
) -> AsyncIterator[None]:
    """Runs what the analyzer calls (control service, model, channel of notices), and writes its settings."""
    secret = new_secret()
    service = ControlService(worlds, root / STOPPED, secret=secret)
    inbox = Inbox(lambda title: screen.print_event(console, NewsEvent("notice", title)))
    async with (
        posts.serve(service.answer) as control,
        posts.serve(model.answer) as asked,
        posts.serve(inbox.answer) as notices,
    ):
        policy.write(root, policy.Places(control=control, model=asked, notices=notices), secret=secret, live=live)
        yield


@contextlib.asynccontextmanager
async def _scheduling(objects: Objects, port: int, stop: asyncio.Event) -> AsyncIterator[None]:
    """Runs the kube-scheduler that asks the extender; if that fails, the demo stops and prints the reason."""
    task = asyncio.create_task(KubeScheduler(objects, port).run(), name="kube-scheduler")
    task.add_done_callback(lambda _: stop.set())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def _ticking(nodes: list[Node], objects: Objects, stopped: Path, stop: asyncio.Event) -> AsyncIterator[None]:
    """Advances the nodes regularly; if that fails, the demo stops and prints the reason."""
    worlds = [node.world for node in nodes]
    cluster.publish(objects, worlds)
    controllers.publish(objects, worlds)
    task = asyncio.create_task(_tick(nodes, objects, stopped), name="world")
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


async def _tick(nodes: list[Node], objects: Objects, stopped: Path) -> None:
    while True:
        try:
            worlds = [node.world for node in nodes]
            names = _names(stopped) | controllers.ended(objects, worlds)
            for node in nodes:
                node.world.stopped = names
                node.tick(time.time())
            allocate(objects, worlds)
            cluster.publish(objects, worlds)
        except OSError as e:
            raise CannotStart(f"the nodes' files cannot be written: {e}") from e
        await asyncio.sleep(_TICK)


def _names(file: Path) -> frozenset[str]:
    return frozenset(file.read_text().split()) if file.exists() else frozenset()


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
    """A directory for the nodes: a temporary one that is removed at the end, or the given one, which is kept."""
    if directory is None:
        base = tempfile.gettempdir()
        # Paths of sockets must be short; /tmp is the shortest directory that every system has.
        own = Path(tempfile.mkdtemp(prefix="vgpuscope-demo-", dir=base if len(base) < 40 else "/tmp"))
        try:
            yield own
        finally:
            shutil.rmtree(own, ignore_errors=True)
        return
    root = Path(directory).absolute()
    if len(str(root / PLANS[0].name / "pod-resources" / "kubelet.sock")) > _LONGEST_SOCKET:
        raise CannotStart(f"{root} is too long for Unix sockets; use a shorter path")
    try:
        root.mkdir(parents=True, exist_ok=True)
        if any(root.iterdir()):
            raise CannotStart(f"{root} is not empty; use another directory, or omit --directory")
    except OSError as e:
        raise CannotStart(f"{root}: {e.strerror}") from e
    yield root


def _stop_on_signal() -> asyncio.Event:
    stop = asyncio.Event()
    for number in _SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def _first_of(work: Coroutine[Any, Any, None], stop: asyncio.Event) -> bool:
    """True when the work is done, False when the user stops the demo; errors of the work are raised."""
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
