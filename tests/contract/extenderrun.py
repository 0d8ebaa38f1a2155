"""A running extender, a kube-scheduler that asks it, and a stand-in for all device plugins that watches what it does.

The stand-in reads every change of every pod in the order in which the API server made them. It adds up the annotations
by itself, so that no GPU can be over its memory, cores or slots even for a moment without being noticed. It serves pods
that are bound, as HAMi's device plugin does: phase `success`, and the node's lock removed.
"""

import json
import os
import ssl
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2

from tests.contract.clusterrun import PROGRAM
from tests.controlplane import ApiError, ControlPlane, Object, pod
from tests.ports import free_port
from tests.services.agent.noderoot import RunningAgent

SCHEDULER = "hami-scheduler"
ALLOCATED, LOCK, PHASE = "hami.io/vgpu-devices-allocated", "hami.io/mutex.lock", "hami.io/bind-phase"
RESOURCES = ("gpu", "gpumem", "gpumem-percentage", "gpucores", "priority")
# what docs/extender.md lists under "Rights"
RIGHTS = {
    "nodes": ["get", "list", "watch", "patch"],
    "pods": ["get", "list", "watch", "patch"],
    "pods/binding": ["create"],
    "resourcequotas": ["list", "watch"],
    "resourceslices.resource.k8s.io": ["list", "watch"],
    "resourceclaims.resource.k8s.io": ["list", "watch"],
    "events.events.k8s.io": ["create", "patch"],
    "leases.coordination.k8s.io": ["get", "create", "patch"],
}


def gpu_pod(name: str, *, memory: int | None = None, cores: int | None = None, count: int = 1, **more: Any) -> Object:
    """A pod that asks for GPUs, as it is after the webhook."""
    limits = {"nvidia.com/gpu": str(count)}
    if memory is not None:
        limits["nvidia.com/gpumem"] = str(memory)
    if cores is not None:
        limits["nvidia.com/gpucores"] = str(cores)
    return pod(name, limits=limits, schedulerName=SCHEDULER, **more)


_ELSEWHERE = """
import runpy, socket
socket.gethostname = lambda: {!r}
runpy.run_module("vgpuscope", run_name="__main__", alter_sys=True)
"""
SHORT_LEASE = {"VGPUSCOPE_EXTENDER_LEASE_DURATION": "6s"}  # for elections; a busy machine may lose such a lease


@contextmanager
def extender(
    kubeconfig: str, path: Path, *flags: str, environ: dict[str, str] | None = None, host: str = ""
) -> Iterator[RunningAgent]:
    """An extender that decides; it must end by itself, in time and with 0, unless the test has killed it."""
    port = free_port()
    running = start_extender(kubeconfig, path, port, *flags, environ=environ, host=host)
    try:
        running.wait(lambda: "ready to decide" in running.log.read_text())
        yield running
        if running.process.poll() is None:
            running.process.terminate()
            assert running.process.wait(60) == 0, running.log.read_text()
        assert "Traceback" not in running.log.read_text(), running.log.read_text()
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()


def start_extender(
    kubeconfig: str, path: Path, port: int, *flags: str, environ: dict[str, str] | None = None, host: str = ""
) -> RunningAgent:
    """`host`: the host name of its pod, if it is not that of this machine."""
    log = path / f"extender-{free_port()}.log"
    program = ("-c", _ELSEWHERE.format(host)) if host else PROGRAM
    command = [sys.executable, *program, "extender", "--config", "none", "--listen", f"127.0.0.1:{port}"]
    command += ["--kubeconfig", kubeconfig, "--lease-namespace", "default", *flags]
    variables = {**os.environ, **(environ or {})}
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=variables)
    return RunningAgent(process, f"http://127.0.0.1:{port}", log)


def configuration(urls: Sequence[str], *, cached: bool = True, timeout: str = "30s") -> Object:
    """A KubeSchedulerConfiguration whose extender is ours; HAMi's chart has the same."""
    managed = [{"name": f"nvidia.com/{name}", "ignoredByScheduler": True} for name in RESOURCES]
    return {
        "clientConnection": {"qps": 500, "burst": 1000},
        "profiles": [{"schedulerName": SCHEDULER}],
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 2,
        "extenders": [
            {
                "urlPrefix": url,
                "filterVerb": "filter",
                "prioritizeVerb": "prioritize",
                "bindVerb": "bind",
                "weight": 1,
                "nodeCacheCapable": cached,
                "httpTimeout": timeout,
                "managedResources": managed,
            }
            for url in urls
        ],
    }


@contextmanager
def scheduler(cluster: ControlPlane, *urls: str, **more: Any) -> Iterator[None]:
    """A real kube-scheduler that asks the extender."""
    made = configuration(urls, **more)
    made["clientConnection"]["kubeconfig"] = cluster.kubeconfig
    with cluster.scheduler(made):
        yield


class DevicePlugins:
    """All device plugins, and the auditor of what they are given."""

    def __init__(self, cluster: ControlPlane) -> None:
        self._cluster = cluster
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="device plugins", daemon=True)
        self._pods: dict[str, tuple[str, list[tuple[str, int, int]]]] = {}  # uid → node, shares
        self._capacity: dict[str, tuple[int, int, int]] = {}  # GPU → MiB, cores, slots
        self._due: dict[tuple[str, str], str] = {}  # bound pods that are not served yet → their nodes
        self.wrong: list[str] = []
        self.bound: dict[str, float] = {}  # pod → when it was seen to be bound
        self.frozen = False  # True: pods are not served, so locks stay

    def __enter__(self) -> "DevicePlugins":
        for found in self._cluster.list("nodes"):
            text = found["metadata"].get("annotations", {}).get("hami.io/node-nvidia-register", "[]")
            for gpu in json.loads(text):
                self._capacity[gpu["id"]] = (gpu["devmem"], gpu["devcore"], gpu["count"])
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        trust = ssl.create_default_context(cafile=str(self._cluster.path / "ca.crt"))
        version = ""
        with httpx2.Client(verify=trust, timeout=httpx2.Timeout(30.0, read=2.0)) as http:
            while not self._stop.is_set():
                try:
                    version = version or self._list(http)
                    version = self._watch(http, version)
                except (httpx2.HTTPError, OSError, KeyError):
                    time.sleep(0.1)  # between two tries; the API server may be down

    def _get(self, http: httpx2.Client, **params: str) -> Any:
        headers = {"authorization": f"Bearer {self._cluster.token}"}
        return http.stream("GET", f"{self._cluster.url}/api/v1/pods", params=params, headers=headers)

    def _list(self, http: httpx2.Client) -> str:
        with self._get(http) as answer:
            answer.read()
            found = answer.json()
        gone = set(self._pods) - {one["metadata"]["uid"] for one in found["items"]}
        for uid in gone:
            self._pods.pop(uid)
        for one in found["items"]:
            self._take(one)
        return found["metadata"]["resourceVersion"]

    def _watch(self, http: httpx2.Client, version: str) -> str:
        with self._get(http, watch="1", resourceVersion=version, allowWatchBookmarks="true") as answer:
            if answer.status_code != 200:
                return ""
            with suppress(httpx2.ReadTimeout):
                for line in answer.iter_lines():
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        return ""
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] == "DELETED":
                        self._pods.pop(event["object"]["metadata"]["uid"], None)
                    elif event["type"] != "BOOKMARK":
                        self._take(event["object"])
                    self._serve_all()
                    if self._stop.is_set():
                        break
        self._serve_all()
        return version

    def _take(self, found: Object) -> None:
        meta, notes = found["metadata"], found["metadata"].get("annotations") or {}
        over = found.get("status", {}).get("phase") in {"Succeeded", "Failed"}
        shares = [] if over else list(read_shares(notes.get(ALLOCATED, "")))
        self._pods[meta["uid"]] = (notes.get("hami.io/vgpu-node", ""), shares)
        self._audit({uuid for uuid, _, _ in shares}, meta["name"])
        node = found["spec"].get("nodeName")
        if node and notes.get(ALLOCATED):
            self.bound.setdefault(f"{meta['namespace']}/{meta['name']}", time.monotonic())
            if notes.get("hami.io/vgpu-node") != node:
                self.wrong.append(f"{meta['name']} is bound to {node}, assigned to {notes.get('hami.io/vgpu-node')}")
            if notes.get(PHASE) == "allocating":
                self._due[meta["namespace"], meta["name"]] = node

    def _audit(self, gpus: set[str], name: str) -> None:
        used: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        for _, shares in self._pods.values():
            for uuid, memory, cores in shares:
                if uuid in gpus:
                    used[uuid][0] += memory
                    used[uuid][1] += cores
                    used[uuid][2] += 1
        for uuid, amounts in used.items():
            if uuid not in self._capacity:
                self.wrong.append(f"{name} got {uuid}, which no node has")
            elif any(amount > most for amount, most in zip(amounts, self._capacity[uuid], strict=True)):
                self.wrong.append(f"{uuid} has {self._capacity[uuid]}, {amounts} are assigned ({name})")

    def _serve_all(self) -> None:
        for (namespace, name), node in list(self._due.items()):
            if self.frozen:
                return
            with suppress(httpx2.HTTPError, ApiError):  # an API server that is down is back later
                self._serve(namespace, name, node)
                del self._due[namespace, name]

    def _serve(self, namespace: str, name: str, node: str) -> None:
        """What HAMi's device plugin does at the end of Allocate."""
        change = {"metadata": {"annotations": {PHASE: "success"}}}
        with _unless_gone():
            self._cluster.patch("pods", name, change, namespace=namespace)
        lock = self._cluster.get("nodes", node)["metadata"].get("annotations", {}).get(LOCK, "")
        if lock.endswith(f",{namespace},{name}"):
            self._cluster.patch("nodes", node, {"metadata": {"annotations": {LOCK: None}}})


@contextmanager
def _unless_gone() -> Iterator[None]:
    try:
        yield
    except ApiError as e:
        if e.status != 404:
            raise


def read_shares(text: str) -> Iterator[tuple[str, int, int]]:
    """(uuid, MiB, percent) of each device in an assignment, read by nobody's code but this."""
    for container in text.split(";"):
        for device in container.split(":"):
            if device:
                uuid, _, memory, cores = device.split(",")
                yield uuid, int(memory), int(cores)


def decisions(running: RunningAgent, name: str, namespace: str = "ml") -> list[Object]:
    """What the extender says that it decided about a pod, newest first."""
    return json.loads(running.get(f"/api/v1/decisions?namespace={namespace}&pod={name}")[2])
