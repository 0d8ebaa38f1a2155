"""The running containers of pods, by what runc was told and the kernel knows."""

import json
from collections.abc import Mapping
from typing import NamedTuple

from tools.cluster import layout
from tools.cluster.cluster import Cluster


class Container(NamedTuple):
    """A running container, as runc was told and the kernel knows it."""

    namespace: str
    pod: str
    name: str
    pid: int  # on the node
    environ: Mapping[str, str]

    @property
    def gpus(self) -> list[str]:
        """UUIDs of the GPUs and MIG instances that it was started with."""
        return [gpu for gpu in self.environ.get("NVIDIA_VISIBLE_DEVICES", "").split(",") if gpu.startswith(_UUIDS)]


_UUIDS = ("GPU-", "MIG-")


def running() -> list[Container]:
    """All running containers of pods, without the ones that hold a pod's namespaces."""
    pids = Cluster.node_pids()
    containers = []
    for bundle in (layout.CONTAINERD_STATE / "io.containerd.runtime.v2.task" / "k8s.io").iterdir():
        try:
            spec, pid = json.loads((bundle / "config.json").read_text()), int((bundle / "init.pid").read_text())
        except (FileNotFoundError, ValueError):  # it is being made or removed
            continue
        names = {key.removeprefix("io.kubernetes.cri."): value for key, value in spec["annotations"].items()}
        if pid in pids and names["container-type"] == "container":
            environ = dict(line.split("=", 1) for line in spec["process"]["env"])
            where = names["sandbox-namespace"], names["sandbox-name"], names["container-name"]
            containers.append(Container(*where, pid=pid, environ=environ))
    return containers
