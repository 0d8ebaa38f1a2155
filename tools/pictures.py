"""Draw the terminal pictures of the documentation from simulated nodes: docs/img/*.svg."""

import asyncio
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.console import Console, RenderableType

from vgpuscope.model.pending import PendingList
from vgpuscope.model.usage import NodeSnapshot
from vgpuscope.runtime.log import setup
from vgpuscope.services.agent.sampler import Sampler
from vgpuscope.sim.binding import Binding
from vgpuscope.sim.kinds import PLANS
from vgpuscope.sim.node import Node
from vgpuscope.sources.node.podfile import PodFile
from vgpuscope.sources.node.podresources import PodResources
from vgpuscope.views.cluster.pending.table import pending_table
from vgpuscope.views.fleet.results.results import ResultRow
from vgpuscope.views.fleet.results.table import results_table
from vgpuscope.views.node.top import state as top

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "img"
WIDTH = 150
_FOREIGN_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.S)  # a picture must not load anything from the network
SECONDS = 35  # time in the demo's timeline at which a container is blocked and a process was killed


async def snapshot_of(kind: str, directory: Path) -> NodeSnapshot:
    """What an agent reports for a simulated node after a while, with time sped up."""
    plan = next(plan for plan in PLANS if plan.name == kind)
    began = time.time() - SECONDS
    clock = {"now": began}
    node = Node(directory, plan, seed=1, now=began)
    await node.serve()
    sampler = Sampler(
        node=kind,
        families=("native",),
        containers_dir=str(node.hook_path / "containers"),
        proc_root=str(directory / "proc"),
        window=60.0,
        driver_deadline=1.0,
        binding=Binding(directory / "devices.json"),
        wall=lambda: clock["now"],
    )
    sampler.source_health["ratio"].none("no ratio file")
    pods, grants = PodFile(str(directory / "pods.json")), PodResources(str(node.socket))
    for second in range(SECONDS):
        clock["now"] = began + second
        node.tick(clock["now"])
        async for seen in pods.follow():
            sampler.pods = seen
            sampler.source_health["pods"].good()
            break
        sampler.grants = await grants.read()
        sampler.source_health["podresources"].good()
        sample, _ = await asyncio.to_thread(sampler.cycle)
    node.close()
    return sample.complete()


def draw(snapshot: NodeSnapshot, path: Path) -> None:
    """Draw the node as `vgpuscope top` shows it."""
    console = paper()
    state = top.sampled(top.TopState(url=""), snapshot, now=snapshot.at + 0.4)
    for line in top.page(state, WIDTH):
        console.print(line, no_wrap=True, overflow="crop")
    save(console, f"vgpuscope top — {snapshot.node}", path)


def paper() -> Console:
    """A console that records what is drawn."""
    return Console(record=True, width=WIDTH, file=open("/dev/null", "w"), force_terminal=True)


def save(console: Console, title: str, path: Path) -> None:
    """Save the drawing as a picture."""
    path.write_text(_FOREIGN_FONTS.sub("", console.export_svg(title=title)))
    print(path.relative_to(IMAGES.parents[1]))


def draw_table(table: RenderableType, title: str, path: Path) -> None:
    """Draw the output of a command."""
    console = paper()
    console.print(table)
    save(console, title, path)


class RunningDemo(NamedTuple):
    """The addresses of a demo's cluster exporter and analyzer, and the page that it printed."""

    exporter: str
    analyzer: str
    page: str


@contextmanager
def demo() -> Iterator[RunningDemo]:
    """A demo with verdicts."""
    command = [sys.executable, "-m", "vgpuscope", "demo", "--port", "23394", "--window-minutes", "0.5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        printed = ""
        while "Ctrl-C ends everything" not in printed:
            printed += process.stdout.readline()
        places = dict(re.findall(r"^ *(\w+) +(http://127\.0\.0\.1:\d+)", printed, re.MULTILINE))
        exporter, analyzer = places["cluster"], places["analyzer"]
        while not any(row.use_class == "idle-held" for row in results(analyzer)):
            time.sleep(1)
        yield RunningDemo(exporter, analyzer, printed)
        process.send_signal(signal.SIGTERM)


def results(url: str) -> list[ResultRow]:
    """The analyzer's results."""
    return msgspec.json.decode(fetched(f"{url}/results"), type=list[ResultRow])


def fetched(url: str) -> bytes:
    """The body of an HTTP answer."""
    with urllib.request.urlopen(url) as answer:
        body: bytes = answer.read()
        return body


def main() -> None:
    """Draw all pictures."""
    setup(v=0, format="text")
    IMAGES.mkdir(parents=True, exist_ok=True)
    for kind in ("hami-a", "mig-c", "sick-e"):
        with tempfile.TemporaryDirectory() as directory:
            draw(asyncio.run(snapshot_of(kind, Path(directory))), IMAGES / f"top-{kind}.svg")
    with demo() as (exporter, analyzer, _):
        draw_table(results_table(results(analyzer), WIDTH), "vgpuscope results", IMAGES / "results.svg")
        waiting = msgspec.json.decode(fetched(f"{exporter}/api/v1/pending"), type=PendingList)
        draw_table(pending_table(waiting, WIDTH, outcomes=False), "vgpuscope pending", IMAGES / "pending.svg")


if __name__ == "__main__":
    main()
