"""Pods bound per second: a real kube-scheduler and API server, our extender, and a stand-in for the device plugins.

The stand-in serves a bound pod at once. So this is the most that scheduler, extender and API server do together on one
machine; in a cluster, the kubelet takes a second or two for each pod and holds the node's lock meanwhile.
"""

import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

from msgspec import Struct

from bench.trust_measure import say
from tests.contract.clusterrun import registered
from tests.contract.extenderrun import DevicePlugins, extender, gpu_pod, scheduler
from tests.controlplane import BUILD, ControlPlane

SIZES = ((40, 120), (200, 400), (1000, 1000))  # nodes, pods
_LONGEST = 900.0  # seconds
_REQUESTS = re.compile(
    r'^apiserver_request_total\{[^}]*resource="(?:pods|nodes|events)"[^}]*verb="(?:GET|POST|PATCH|PUT)"[^}]*\} (\S+)$',
    re.M,
)


class BoundFigures(Struct, frozen=True, kw_only=True):
    """One run of pods through the real kube-scheduler."""

    nodes: int
    pods: int
    policy: str  # of the nodes
    seconds: float  # from the first pod's creation to the last binding
    cpu: float  # seconds of CPU of the extender
    requests: int  # that the API server got about pods, nodes and events, from all programs
    load: float  # of the machine, when it was over: processes that run or want to, over the last minute

    @property
    def per_second(self) -> float:
        return self.pods / self.seconds


def run(*, quick: bool) -> tuple[BoundFigures, ...]:
    """Nothing if the control plane's programs are not built."""
    found = subprocess.run([BUILD, "--find"], capture_output=True, text=True, check=False)
    if found.returncode:
        return ()
    with (
        tempfile.TemporaryDirectory() as folder,
        ControlPlane(Path(folder) / "plane", Path(found.stdout.strip())) as cluster,
    ):
        sizes = SIZES[:1] if quick else SIZES
        return tuple(_bound(cluster, Path(folder), policy, size) for size in sizes for policy in ("spread", "binpack"))


def _bound(cluster: ControlPlane, path: Path, policy: str, size: tuple[int, int]) -> BoundFigures:
    nodes, pods = size
    say(f"scheduler: {pods:,} pods on {nodes:,} nodes, {policy}")
    cluster.reset()
    cluster.namespace("ml")
    cluster.seed(
        registered(f"gpu-{n:04d}", *(f"GPU-{n:04d}-{c}" for c in range(8)), memory=81920) for n in range(nodes)
    )
    with (
        extender(cluster.kubeconfig, path, "--node-scheduler-policy", policy) as running,
        DevicePlugins(cluster) as plugins,
        scheduler(cluster, running.url),
    ):
        began, cpu, requests = time.monotonic(), _cpu(running.process.pid), _requests(cluster)
        cluster.create_all(gpu_pod(f"p-{n}", memory=4000, cores=10) for n in range(pods))
        while len(plugins.bound) < pods:
            assert time.monotonic() < began + _LONGEST, f"{len(plugins.bound)} of {pods} pods were bound"
            time.sleep(0.05)
        assert not plugins.wrong, plugins.wrong[:3]
        return BoundFigures(
            nodes=nodes,
            pods=pods,
            policy=policy,
            seconds=max(plugins.bound.values()) - began,
            cpu=_cpu(running.process.pid) - cpu,
            requests=_requests(cluster) - requests,
            load=os.getloadavg()[0],
        )


def _cpu(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _requests(cluster: ControlPlane) -> int:
    return int(sum(float(count) for count in _REQUESTS.findall(cluster.call("GET", "/metrics"))))
