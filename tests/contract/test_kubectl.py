"""The real kubectl on the simulated Kubernetes API: it prints what it prints of a real one with the same objects."""

import asyncio
import re
import shlex
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from tests.controlplane import ControlPlane, Object, programs_or_skip
from tests.environment import bare
from vgpuscope.sim import cluster
from vgpuscope.sim.kinds import PLANS
from vgpuscope.sim.kubeapi import KubeApi, Objects
from vgpuscope.sim.kubekinds import KINDS
from vgpuscope.sim.pods import stamp
from vgpuscope.sim.world import World
from vgpuscope.sources.kube import open_client

pytestmark = pytest.mark.real
WITHIN = 120.0
AGO = 11 * 3600  # ages of hours change rarely while two servers are asked
EVENT = {
    "metadata": {"name": "sweep-12.1", "namespace": "ml-team", "uid": "e1"},
    "involvedObject": {"kind": "Pod", "namespace": "ml-team", "name": "sweep-12", "apiVersion": "v1"},
    "type": "Warning",
    "reason": "FailedScheduling",
    "message": "0/6 nodes are available: 6 quota exceeded (namespace ml-team).",
    "source": {"component": "hami-scheduler"},
    "count": 7,
}


@pytest.fixture(scope="module")
def objects() -> Objects:
    """The demo's cluster at one moment, with an event."""
    began = time.time() - AGO
    found = Objects()
    cluster.publish(found, [World(plan, seed=1, now=began) for plan in PLANS])
    at = stamp(began)
    found.create("events", EVENT | {"firstTimestamp": at, "lastTimestamp": at})
    return found


@pytest.fixture(scope="module")
def real(control_plane: ControlPlane, objects: Objects) -> ControlPlane:
    """A real API server with the same objects."""
    control_plane.reset(
        "--allow-privileged=true"
    )  # pods of the demo that use a GPU without an allocation are privileged
    for plural in ("namespaces", "nodes", "pods", "resourcequotas", "events"):
        control_plane.seed(one | {"kind": KINDS[plural].kind} for one in objects.contents(plural))
    return control_plane


@asynccontextmanager
async def served(path: Path, objects: Objects) -> AsyncIterator[Path]:
    """A kubeconfig of the simulated API."""
    api = KubeApi(objects)
    async with api.serve():
        api.write_kubeconfig(path / "kubeconfig")
        yield path / "kubeconfig"


async def started(kubeconfig: Path | str, command: str, home: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        programs_or_skip() / "kubectl",
        *shlex.split(command),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=bare(KUBECONFIG=str(kubeconfig), HOME=str(home)),
    )


async def kubectl(kubeconfig: Path | str, command: str, home: Path) -> str:
    """What it prints, without what no two servers have in common."""
    async with asyncio.timeout(WITHIN):
        process = await started(kubeconfig, command, home)
        out, err = await process.communicate()
    return re.sub(r'(resourceVersion"?: ).*', r"\1", out.decode() + err.decode())


@pytest.mark.parametrize(
    "command",
    [
        "get nodes",
        "get nodes -o wide",
        "get nodes -l gpu=on,gpu-sharing!=hami,kubernetes.io/hostname",
        "get nodes -l 'kubernetes.io/hostname in (hami-a, mig-c), gpu-sharing notin (none)'",
        "get nodes --show-labels",
        "get no -L nvidia.com/gpu.product",
        "get nodes -o custom-columns=N:.metadata.name,T:.metadata.creationTimestamp",
        "get pods -A",
        "get po --all-namespaces -o wide",
        "get pods -A --field-selector spec.nodeName=hami-a,status.phase!=Pending",
        "get pods -A --field-selector spec.hostIP=x",
        "get pods -A --sort-by=.spec.nodeName",
        "get pods -A --chunk-size=7",
        "get pods -n ml-team -o name",
        "get pods -n ml-team -l 'app=train-bert-0,!job'",
        "get pod -n ml-team sweep-12 -o jsonpath={.spec.containers[0].resources.limits}",
        "get pods",
        "get pod -n ml-team nobody",
        "get events -A",
        "get ev -n ml-team -o wide --field-selector involvedObject.name=sweep-12,type=Warning",
        "get quota -A",
        "get ns ml-team research",
        "describe nodes",
        "describe node hami-a worn-f",
        "describe pod -n ml-team sweep-12",
        "describe pods -n research",
        "describe quota -n ml-team",
        "get nodes,pods,events -A",
        "auth can-i list pods -n ml-team",
        "auth can-i get nodes/hami-a",
        "auth can-i watch no",
    ],
)
async def test_kubectl_shows_of_the_demo_what_it_shows_of_a_real_cluster(tmp_path, objects, real, command):
    async with served(tmp_path, objects) as kubeconfig:
        end = time.monotonic() + WITHIN
        while (mine := await kubectl(kubeconfig, command, tmp_path)) != (
            its := await kubectl(real.kubeconfig, command, tmp_path)
        ):
            assert time.monotonic() < end, f"{mine}\n--- of the real one:\n{its}"  # an age can change between the two
    assert mine


async def test_the_columns_of_nodes_are_all_known(tmp_path, objects):
    """Version, address, system, kernel and runtime: a real server prints <unknown> of a node that lacks them, too."""
    async with served(tmp_path, objects) as kubeconfig:
        head, *rows = (await kubectl(kubeconfig, "get nodes -o wide", tmp_path)).splitlines()
    assert {"VERSION", "INTERNAL-IP", "OS-IMAGE", "KERNEL-VERSION", "CONTAINER-RUNTIME"} <= set(head.split())
    assert len(rows) == 6
    assert [row for row in rows if "<unknown>" in row] == []


@pytest.mark.parametrize(("question", "answer"), [("delete pods", "no"), ("list events", "yes"), ("get secrets", "no")])
async def test_kubectl_is_told_what_the_demo_serves(tmp_path, objects, question, answer):
    async with served(tmp_path, objects) as kubeconfig:
        found = await kubectl(kubeconfig, f"auth can-i {question}", tmp_path)
    assert found.split()[0] == answer, found


async def test_every_object_of_the_demo_is_one_that_a_real_api_server_accepts(objects, real):
    """As they would be created: fields that the API does not have, and values that it does not allow, are refused."""
    for plural in ("namespaces", "nodes", "pods", "resourcequotas", "events"):
        for one in objects.contents(plural):
            meta = {"uid": None, "name": f"{one['metadata']['name']}-new"}
            new = one | {"kind": KINDS[plural].kind, "apiVersion": "v1", "metadata": one["metadata"] | meta}
            where = f"namespaces/{meta_of}/" if (meta_of := one["metadata"].get("namespace")) else ""
            strictly = {"dryRun": "All", "fieldValidation": "Strict"}
            assert real.call("POST", f"/api/v1/{where}{plural}", new, params=strictly)


async def watched(kubeconfig: Path | str, home: Path, publish: Callable[[Object], None]) -> list[str]:
    """What `kubectl get --watch` prints while a pod gets a node, runs and fails, but for its age."""
    command = "get pods -n moves --watch --output-watch-events --field-selector spec.nodeName=n,status.phase!=Failed"
    lines: list[str] = []
    process = await started(kubeconfig, command, home)
    assert process.stdout
    try:
        async with asyncio.timeout(WITHIN):
            for phase in ("Pending", "Running", "Failed"):
                status = {"phase": phase}
                metadata = {
                    "namespace": "moves",
                    "name": "one",
                    "uid": "u",
                    "creationTimestamp": "2026-01-01T00:00:00Z",
                }
                spec = {"nodeName": "n", "containers": [{"name": "main", "image": "none"}]}
                publish({"kind": "Pod", "metadata": metadata, "spec": spec, "status": status})
                while not (line := await process.stdout.readline()).startswith((b"ADDED", b"MODIFIED", b"DELETED")):
                    assert line, await process.stderr.read() if process.stderr else ""
                lines.append(" ".join(line.decode().split()[:-1]))
    finally:
        process.kill()
        await process.communicate()
    return lines


async def test_a_watch_of_kubectl_follows_what_a_selector_selects(tmp_path, real):
    """A pod that the selector no longer selects is deleted, with its last state, for who watches."""
    objects = Objects()
    async with served(tmp_path, objects) as kubeconfig:
        mine = await watched(kubeconfig, tmp_path, lambda one: objects.replace("pods", [one]))
    real.namespace("moves")
    assert mine == await watched(real.kubeconfig, tmp_path, lambda one: real.seed([one]))
    assert [line.split()[0] for line in mine] == ["ADDED", "MODIFIED", "DELETED"]


async def test_a_watch_that_begins_with_all_objects_says_where_the_beginning_ends(tmp_path, objects, real):
    """As the informers of client-go ask since 1.35."""
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    path = f"/api/v1/nodes?{query}"

    async def beginning(kubeconfig: Path | str) -> list[tuple[str, str, Object]]:
        seen: list[tuple[str, str, Object]] = []
        async with (
            asyncio.timeout(WITHIN),
            open_client(str(kubeconfig)) as client,
            client.stream("GET", path) as answer,
        ):
            async for line in answer.aiter_lines():
                event = msgspec.json.decode(line)
                meta = event["object"]["metadata"]
                if event["type"] == "BOOKMARK":
                    return [*sorted(seen), ("BOOKMARK", meta.get("name", ""), meta["annotations"])]
                seen.append((event["type"], meta["name"], {}))
        return seen

    async with served(tmp_path, objects) as kubeconfig:
        mine = await beginning(kubeconfig)
    assert mine == await beginning(real.kubeconfig)
    assert len(mine) == 7
