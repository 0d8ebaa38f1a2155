"""Draw the terminal pictures of the documentation from simulated nodes: docs/img/top-*.svg."""

import asyncio
import re
import tempfile
import time
from pathlib import Path

from rich.console import Console

from vgpuscope.model.usage import NodeSnapshot
from vgpuscope.runtime.log import setup
from vgpuscope.services.agent_sampler import Sampler
from vgpuscope.sim.binding import Binding
from vgpuscope.sim.kinds import PLANS
from vgpuscope.sim.node import Node
from vgpuscope.sources.podfile import PodFile
from vgpuscope.sources.podresources import PodResources
from vgpuscope.views import top

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "img"
WIDTH = 150
_FOREIGN_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.S)  # a picture must not load anything from elsewhere
SECONDS = 35  # into the demo's timetable: somebody is blocked, somebody was killed


async def snapshot_of(kind: str, directory: Path) -> NodeSnapshot:
    """What an agent says of a simulated node after a while, with time sped up."""
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
        clock=lambda: clock["now"],
    )
    sampler.standings["ratio"].none("no ratio file")
    pods, grants = PodFile(str(directory / "pods.json")), PodResources(str(node.socket))
    for second in range(SECONDS):
        clock["now"] = began + second
        node.tick(clock["now"])
        async for seen in pods.follow():
            sampler.pods = seen
            sampler.standings["pods"].good()
            break
        sampler.grants = await grants.read()
        sampler.standings["podresources"].good()
        snapshot, _ = await asyncio.to_thread(sampler.cycle)
    node.close()
    return snapshot


def draw(snapshot: NodeSnapshot, path: Path) -> None:
    """The node as `vgpuscope top` shows it, as a picture."""
    console = Console(record=True, width=WIDTH, file=open("/dev/null", "w"), force_terminal=True)  # noqa: SIM115
    state = top.sampled(top.State(url=""), snapshot, now=snapshot.at + 0.4)
    for line in top.page(state, WIDTH):
        console.print(line, no_wrap=True, overflow="crop")
    picture = console.export_svg(title=f"vgpuscope top — {snapshot.node}")
    path.write_text(_FOREIGN_FONTS.sub("", picture))


def main() -> None:
    """Draw them all."""
    setup(v=0, format="text")
    IMAGES.mkdir(parents=True, exist_ok=True)
    for kind in ("hami-a", "mig-c", "sick-e"):
        with tempfile.TemporaryDirectory() as directory:
            draw(asyncio.run(snapshot_of(kind, Path(directory))), IMAGES / f"top-{kind}.svg")
        print(f"docs/img/top-{kind}.svg")


if __name__ == "__main__":
    main()
