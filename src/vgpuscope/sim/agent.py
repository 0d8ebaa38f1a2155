"""One real agent over one simulated node: `python -m vgpuscope.sim.agent NODE_DIRECTORY --listen HOST:PORT`."""

import argparse
import sys
from pathlib import Path

from vgpuscope import config
from vgpuscope.model.service import AGENT_PORT, local
from vgpuscope.services.agent import process as agent
from vgpuscope.sim.binding import Binding
from vgpuscope.sim.leash import end_with_stdin


def main(argv: list[str]) -> int:
    """Runs until SIGTERM; with --while-stdin, also until standard input ends."""
    parser = argparse.ArgumentParser(prog="vgpuscope.sim.agent", description=__doc__)
    parser.add_argument("node", type=Path, help="the node's directory, as vgpuscope.sim.node keeps it")
    parser.add_argument("--listen", default=local(AGENT_PORT), metavar="HOST:PORT")
    parser.add_argument("--dcgm", default="none", metavar="URL", help="the dcgm-exporter beside the node")
    parser.add_argument("--while-stdin", action="store_true", help="end when standard input does")
    parser.add_argument("--once", action="store_true", help="print one sample and exit")
    chosen = parser.parse_args(argv)
    if chosen.while_stdin:
        end_with_stdin()
    loaded = config.load(flags=_flags(chosen.node, chosen.listen, chosen.dcgm), environ={})
    return agent.run(loaded.config, once=chosen.once, binding=Binding(chosen.node / "devices.json"))


def _flags(node: Path, listen: str, dcgm: str) -> dict[str, object]:
    file = node / "gpu_allocation.txt"
    return {
        "agent.dcgm": dcgm,
        "agent.listen": listen,
        "agent.node_name": node.name,
        "agent.hook_path": str(node / "vgpu"),
        "agent.proc_root": str(node / "proc"),
        "agent.cgroup_root": str(node / "cgroup"),
        "agent.pods": f"file:{node / 'pods.json'}",
        "agent.podresources_socket": str(node / "pod-resources" / "kubelet.sock"),
        "agent.families": "all",
        # never one of the working directory
        **({"agent.ratio_file": str(file)} if file.exists() else {"agent.ratio": 1.0}),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
