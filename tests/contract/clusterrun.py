"""A running cluster exporter, and small makers of what it reads."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.controlplane import Object, node, pod
from tests.needed import needed
from tests.ports import free_port
from tests.services.agent.noderoot import RunningAgent, Samples
from vgpuscope.catalog.scheduling import PENDING_OLDEST

MIB = 2**20
PROGRAM = ("-m", "vgpuscope")


def registered(name: str, *gpus: str, memory: int | Mapping[str, int] = 81920, **more: object) -> Object:
    """A node whose plugin registered GPUs, of one size in MiB or each of its own."""
    sizes = dict.fromkeys(gpus, memory) if isinstance(memory, int) else memory
    gpu = {"count": 10, "devcore": 100, "type": "NVIDIA A100", "health": True, **more}
    devices = [{"id": id_, "index": index, "devmem": sizes[id_], **gpu} for index, id_ in enumerate(gpus)]
    made = node(name)
    made["metadata"].setdefault("annotations", {})["hami.io/node-nvidia-register"] = json.dumps(devices)
    return made


def holder(
    name: str, where: str, gpu: str, *, memory: int = 8000, cores: int = 30, bound: bool = True, **more: Any
) -> Object:
    """A pod that HAMi's scheduler placed; each of its containers requests a GPU."""
    more.setdefault("limits", {"nvidia.com/gpu": "1"})
    notes = {"hami.io/vgpu-node": where, "hami.io/vgpu-devices-allocated": f"{gpu},NVIDIA,{memory},{cores}:;"}
    return pod(name, node=where if bound else None, annotations=notes, **more)


def quota(namespace: str, *, name: str = "gpus", **hard: Any) -> Object:
    """Limits on NVIDIA's resources: quota("ml", gpumem="10000")."""
    limits = {f"limits.nvidia.com/{key}": value for key, value in hard.items()}
    return {"kind": "ResourceQuota", "metadata": {"name": name, "namespace": namespace}, "spec": {"hard": limits}}


@contextmanager
def exporter(
    kubeconfig: str,
    path: Path,
    *flags: str,
    ready: bool = True,
    program: Sequence[str] = PROGRAM,
    environ: Mapping[str, str] | None = None,
) -> Iterator[RunningAgent]:
    """A running exporter; it must end by itself, in time and with 0, when told to."""
    port, log = free_port(), path / f"cluster-{free_port()}.log"
    command = [sys.executable, *program, "cluster", "--listen", f"127.0.0.1:{port}"]
    with log.open("w") as out:
        words, variables = [*command, "--kubeconfig", kubeconfig, *flags], {**os.environ, **(environ or {})}
        process = subprocess.Popen(words, stdout=out, stderr=out, env=variables)
    running = RunningAgent(process, f"http://127.0.0.1:{port}", log)
    with running.until_told("/readyz" if ready else "/healthz"):
        yield running


def of_devices(page: Samples) -> dict:
    """What must be the same for everyone who looks at the same cluster, whenever he began to."""
    own = ("vgpuscope_cluster_watch", "vgpuscope_cluster_errors", "vgpuscope_build", "hami_build")
    since = ("hami_scheduler_", "vgpuscope_cluster_scheduling", "vgpuscope_cluster_binds", PENDING_OLDEST.name)
    return {key: value for key, value in page.items() if not key[0].startswith(own + since)}


def agrees_with_a_fresh_list(running: RunningAgent, kubeconfig: str, path: Path) -> None:
    with exporter(kubeconfig, path) as fresh:
        truth = of_devices(fresh.page())
    running.until(lambda page: of_devices(page) == truth)


def promtool_check(page: str) -> tuple[int, str]:
    """What promtool says of a page, which is nothing if it likes it."""
    needed("promtool", package="prometheus")
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr
