"""Sources of the cluster exporter's objects: a real control plane, or a stand-in that is filled immediately."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import cluster_objects as objects
from bench.cluster_objects import Place
from tests.controlplane import BUILD, ControlPlane

Changes = Sequence[tuple[Place, int]]  # pods with their new memory in MiB


@dataclass(frozen=True)
class Feed:
    """An API server with all objects."""

    name: str
    kubeconfig: str
    change: Callable[[Changes], None]  # returns when the server has the changes


@contextmanager
def control_plane(root: Path, nodes: int) -> Iterator[Feed]:
    """A real kube-apiserver."""
    programs = subprocess.run([BUILD], capture_output=True, text=True, check=True).stdout.split()[-1]
    with ControlPlane(root / "controlplane", Path(programs)) as plane:
        plane.seed(objects.nodes(nodes))
        plane.seed(objects.pods(nodes))
        while len(plane.list("pods", resourceVersion="0")) < nodes * objects.PODS:
            time.sleep(1)  # until its watch cache is complete

        def change(changes: Changes) -> None:
            plane.seed(objects.pod(place, memory=memory) for place, memory in changes)

        yield Feed("kube-apiserver", plane.kubeconfig, change)


@contextmanager
def stand_in(root: Path, nodes: int) -> Iterator[Feed]:
    """bench.cluster_api, in its own process."""
    command = [sys.executable, "-m", "bench.cluster_api", str(nodes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        into, out = process.stdin, process.stdout
        kubeconfig = root / "kubeconfig"
        kubeconfig.write_text(_kubeconfig(int(out.readline())))

        def change(changes: Changes) -> None:
            into.write(json.dumps([(*place, memory) for place, memory in changes]) + "\n")
            into.flush()
            if not out.readline():
                raise RuntimeError("the stand-in has ended")

        yield Feed("stand-in", str(kubeconfig), change)
        into.close()


def _kubeconfig(port: int) -> str:
    cluster = {"server": f"http://127.0.0.1:{port}"}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "bench",
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
            "clusters": [{"name": "bench", "cluster": cluster}],
            "users": [{"name": "bench", "user": {"token": "any"}}],
        }
    )
