"""`make e2e-soak MINUTES=60 PODS=300`: pods come and go through the real kubelet, and nothing may be left of them.

Rounds of ten pods. At the end of a round no pod is on its way: then what the kubelet keeps, what it tells, what
containers were started with, and what the exporter counts must be the same. About a third of the pods stay for a round.
"""

import json
import os
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.more.workloads import ML
from tests.e2e.product import NAMESPACE, Product, gpu_pod
from tools.cluster import layout
from tools.cluster.cluster import Cluster
from tools.cluster.progress import say

pytestmark = pytest.mark.e2e

MINUTES, PODS = float(os.environ.get("MINUTES", "60")), int(os.environ.get("PODS", "300"))
SEED = int(os.environ.get("SEED") or 0) or random.randrange(1, 1_000_000)
ROUND = 10  # pods
GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
MIB = 1 << 20
PAGES = {"agent": 9394, "cluster": 31993, "extender": 8080, "plugin": 9396, "analyzer": 8080}
MORE_FILES = 8  # descriptors that a service may have more at the end: connections to pods and to the API server
MORE_MEMORY = 0.10  # by how much the mean of the last third of the run may be above that of the second
KINDS = ("share", "two", "pair", "mig", "init", "ends", "fails", "forced")


@dataclass
class Course:
    """What was measured at each quiet moment, by service."""

    files: dict[str, list[int]] = field(default_factory=dict)
    memory: dict[str, list[int]] = field(default_factory=dict)  # bytes
    series: dict[str, list[int]] = field(default_factory=dict)


def test_nothing_is_left_of_pods_that_came_and_went(scheduling: Product) -> None:
    dice, course = random.Random(SEED), Course()
    rounds = max(3, PODS // ROUND)
    say(f"soak: {rounds} rounds of {ROUND} pods in {MINUTES:g} minutes, seed {SEED}")
    scheduling.cluster.apply(ML)
    began = time.monotonic()
    staying: list[str] = []
    for number in range(rounds):
        leaving, staying = staying, []
        for pod, kind in _pods(dice, number):
            scheduling.cluster.apply(pod)
            if kind not in {"ends", "fails"} and dice.random() < 0.4:
                staying.append(pod["metadata"]["name"])
            if leaving and dice.random() < 0.6:
                scheduling.cluster.kubectl("-n", "ml", "delete", "pod", leaving.pop(), "--wait=false")
        _settled(scheduling)
        _leave(scheduling, dice, staying)
        quiet = _settled(scheduling)
        _same(scheduling)
        _measure(scheduling, course)
        say(f"soak: round {number + 1} of {rounds}: {quiet} pods run; {_words(course)}")
        until = began + (number + 1) * MINUTES * 60 / rounds
        scheduling.wait("the next round", partial(_is_past, until), within=MINUTES * 60)
    scheduling.cluster.kubectl("-n", "ml", "delete", "pods", "--all", "--grace-period=1", "--timeout=300s")
    _nothing_left(scheduling)
    _measure(scheduling, course)
    (layout.REPOSITORY / "build").mkdir(exist_ok=True)
    (layout.REPOSITORY / "build" / "e2e-soak.json").write_text(json.dumps({"seed": SEED, **vars(course)}))
    say(f"soak: at the end {_words(course)}")
    _no_growth(course)


def _pods(dice: random.Random, number: int) -> Iterator[tuple[dict[str, Any], str]]:
    for n in range(ROUND):
        kind = dice.choice(KINDS)
        name, amount = f"soak-{number}-{n}-{kind}", dice.randrange(200, 3000)
        one: dict[str, object] = {GPU: 1, MEMORY: amount}
        match kind:
            case "two":
                pod = gpu_pod(name, containers={"a": one, "b": {**one, MEMORY: amount + 1}})
            case "pair":
                pod = gpu_pod(name, containers={"main": {**one, GPU: 2}})
            case "mig":
                pod = gpu_pod(name, containers={"main": one}, annotations={"nvidia.com/vgpu-mode": "mig"})
            case "init":
                pod = gpu_pod(name, containers={"main": one}, init={"prepare": {**one, MEMORY: amount + 7}})
            case "ends" | "fails":
                pod = gpu_pod(name, containers={"main": one}, restartPolicy="Never")
                end = "exit 0" if kind == "ends" else "exit 3"
                pod["spec"]["containers"][0]["command"] = ["sh", "-c", f"sleep {dice.randrange(1, 15)}; {end}"]
            case _:
                pod = gpu_pod(name, containers={"main": one})
        yield pod, kind


def _leave(product: Product, dice: random.Random, staying: list[str]) -> None:
    """All pods but those that stay for a round are deleted, some of them by force."""
    for pod in product.cluster.get("pods", "-n", "ml"):
        name = pod["metadata"]["name"]
        if name in staying or "deletionTimestamp" in pod["metadata"]:
            continue
        force = ("--grace-period=0", "--force") if name.endswith("forced") and dice.random() < 0.5 else ()
        if force:
            product.forced.add(name)
        product.cluster.kubectl("-n", "ml", "delete", "pod", name, "--wait=false", *force)


def _settled(product: Product) -> int:
    """Waits until no pod is on its way: each runs, has ended, or waits for a GPU that is not there. How many run."""

    def settled() -> bool:
        pods = product.cluster.get("pods", "-n", "ml")
        names = {(pod["metadata"]["name"]) for pod in pods}
        gone = {c.pod for c in product.containers() if c.namespace == "ml"} <= names
        return gone and all(_at_rest(pod) for pod in pods)

    product.wait("a quiet moment", settled, within=300)
    product.forced.clear()
    return len({c.pod for c in product.containers() if c.namespace == "ml"})


def _at_rest(pod: dict[str, Any]) -> bool:
    status, conditions = pod["status"], {c["type"]: c for c in pod["status"].get("conditions", ())}
    if "deletionTimestamp" in pod["metadata"]:
        return False
    if status["phase"] in {"Succeeded", "Failed"}:
        return True
    if status["phase"] == "Running":
        return conditions.get("Ready", {}).get("status") == "True" and pod["spec"].get("restartPolicy") != "Never"
    return conditions.get("PodScheduled", {}).get("reason") == "Unschedulable"


def _same(product: Product) -> None:
    """The kubelet's file, its list, the containers' environment and the exporter's page say the same of every pod."""
    uids = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in product.cluster.get("pods", "-n", "ml")}

    def by_list() -> dict[tuple[str, str], list[str]]:
        return {key: _gpus(ids) for key, ids in product.pod_resources().items() if key in running()}

    def by_file() -> dict[tuple[str, str], list[str]]:
        held = {(uids.get(uid, uid), name): _gpus(ids) for (uid, name), ids in product.checkpoint().items()}
        return {key: gpus for key, gpus in held.items() if key in running()}

    def running() -> dict[tuple[str, str], list[str]]:
        containers = [c for c in product.containers() if c.namespace == "ml" and c.gpus]
        return {(c.pod, c.name): sorted(c.gpus) for c in containers}

    product.wait("the kubelet's file and list", lambda: by_list() == by_file() == running())

    def counted() -> dict[tuple[str, str], int]:
        """MiB by pod and GPU; a MIG instance is counted at its GPU with the memory of its profile."""
        samples = product.samples("cluster", PAGES["cluster"], "hami_vgpu_memory_allocated_bytes", namespace="ml")
        amounts: dict[tuple[str, str], int] = {}
        for sample in samples:
            key = sample.labels["pod"], sample.labels["device_uuid"]
            amounts[key] = amounts.get(key, 0) + int(sample.value) // MIB
        return {key: amount for key, amount in amounts.items() if not key[0].endswith(("-mig", "-init"))}

    def given() -> dict[tuple[str, str], int]:
        amounts: dict[tuple[str, str], int] = {}
        for gpu, containers in product.given().items():
            for (_, pod, _), limit in containers.items():
                if not pod.endswith(("-mig", "-init")):
                    amounts[pod, gpu] = amounts.get((pod, gpu), 0) + (limit or 0)
        return amounts

    product.wait("the exporter's sums", lambda: counted() == given())


def _gpus(ids: list[str]) -> list[str]:
    """The GPUs and MIG instances of the kubelet's ids: a share of a GPU is `<uuid>-<n>`."""
    return sorted(ident if ident.startswith("MIG-") else ident.rpartition("-")[0] for ident in ids)


def _measure(product: Product, course: Course) -> None:
    pids = Cluster.node_pids()
    for container in product.containers():
        if container.namespace == NAMESPACE and container.name in PAGES:
            process = f"/proc/{pids[container.pid]}"
            name = container.name
            if name == "extender" and container.pod != _leader(product):
                name = "standby"
            with open(f"{process}/status") as status:
                (resident,) = (int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))
            course.files.setdefault(name, []).append(len(os.listdir(f"{process}/fd")))
            course.memory.setdefault(name, []).append(resident)
    for name in PAGES:
        course.series.setdefault(name, []).append(len(list(_series(product, name))))


def _leader(product: Product) -> str:
    role = "vgpuscope.io/role"
    pods = [pod for pod in product.pods("extender") if pod["metadata"]["labels"].get(role) == "leader"]
    return pods[0]["metadata"]["name"] if pods else ""


def _series(product: Product, name: str) -> Iterator[Any]:
    for family in text_string_to_metric_families(product.page(name, PAGES[name])):
        yield from family.samples


def _nothing_left(product: Product) -> None:
    """Of any pod of the soak: at the kubelet, in HAMi's directory, on the node, on the services' pages."""
    product.wait("the kubelet's list is empty", lambda: not product.pod_resources())
    product.wait("the node is not locked", lambda: "hami.io/mutex.lock" not in _notes(product))
    folders = layout.HOOK / "containers"
    # the plugin removes what is older than five minutes, once a minute
    product.wait("no directories of regions", lambda: not list(folders.iterdir()), within=600)
    for name in PAGES:
        product.wait(f"no series at {name}", partial(_has_no_series, product, name), within=300)


def _is_past(moment: float) -> bool:
    return time.monotonic() >= moment


def _has_no_series(product: Product, name: str) -> bool:
    return not [sample for sample in _series(product, name) if "soak-" in "".join(sample.labels.values())]


def _notes(product: Product) -> dict[str, str]:
    notes: dict[str, str] = product.cluster.get("node", layout.NODE)["metadata"]["annotations"]
    return notes


def _no_growth(course: Course) -> None:
    """From the first third on, when all caches are filled."""
    for name, files in course.files.items():
        third = max(1, len(files) // 3)
        assert files[-1] <= max(files[:third]) + MORE_FILES, f"{name}: {files} open files"
        memory = course.memory[name]
        before, after = statistics.mean(memory[third : 2 * third]), statistics.mean(memory[-third:])
        assert after <= before * (1 + MORE_MEMORY), f"{name}: {[m // MIB for m in memory]} MiB"


def _words(course: Course) -> str:
    return ", ".join(
        f"{name} {files[-1]} files {course.memory[name][-1] / MIB:.0f} MiB" for name, files in course.files.items()
    )
