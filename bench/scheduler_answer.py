"""How long `/filter` takes on few nodes, against the shortest exchange that could answer it, in the same run.

    python -m bench.scheduler_answer [NODES]...          # 3 and 7 unless given
    python -m bench.scheduler_answer api [NODES]...      # through a real API server

The extender's own frame, decision, write and log of decisions run in one process. Its API server answers at once, so
that its time is not counted. The lower bound reads the same request from a socket, in asyncio as well, decodes it, and
sends an answer of the same length. Both are asked in turn, on one connection each. Printed are medians in milliseconds,
of the time that the client waits and of the CPU of the server, and the ratio of CPU.

With `api` the extender is a whole process beside a real API server. It filters and binds one pod after the other; in
turn with it, the bench itself patches a pod of the same size, which is the least that a filter has to wait for.
"""

import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from bench.scheduler_cluster import half_full
from tests.contract.clusterrun import registered
from tests.contract.extenderrun import extender, gpu_pod
from tests.controlplane import BUILD, ControlPlane
from vgpuscope.http import address
from vgpuscope.http.app import App, Readiness
from vgpuscope.http.peers import Peers
from vgpuscope.http.server import HttpServer
from vgpuscope.model.placement import Policies
from vgpuscope.services.extender.cache import Cache
from vgpuscope.services.extender.counters import ExtenderCounters
from vgpuscope.services.extender.deciding import Decider
from vgpuscope.services.extender.decision_keeping import DecisionKeeper
from vgpuscope.services.extender.pods import PodWriter
from vgpuscope.services.extender.protocol import LIMITS, ExtenderPaths
from vgpuscope.sinks.kube.writer import KubeWriter

SIZES = (3, 7)
ROUNDS, AT_ONCE = 12, 25


def body(nodes: int, number: int) -> bytes:
    """A request as kube-scheduler sends it, with a pod of usual length."""
    managed = [{"manager": f"m{at}", "operation": "Update", "fieldsV1": {"f:spec": {}}} for at in range(8)]
    meta = {"name": f"p{number}", "namespace": "ml", "uid": f"u{number}", "resourceVersion": "1"}
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(1000 + number % 97)}
    spec = {"containers": [{"name": "main", "image": "x", "resources": {"limits": limits}}]}
    names = [f"node-{at:05}" for at in range(nodes)]
    return json.dumps(
        {"Pod": {"metadata": {**meta, "managedFields": managed}, "spec": spec}, "NodeNames": names}
    ).encode()


class _Answering:
    """An API server that answers at once."""

    async def find(self, *_: Any, **__: Any) -> bytes:
        return b'{"metadata":{"name":"p","uid":"u"}}'

    async def send(self, *_: Any, **__: Any) -> tuple[int, bytes]:
        return 200, b'{"metadata":{"resourceVersion":"2"}}'


class _NoPage:
    def text(self) -> bytes:
        return b""

    def openmetrics(self) -> bytes:
        return b"# EOF\n"

    def gzipped(self, _: bool) -> bytes:
        return b""


async def _extender(nodes: int) -> None:
    cache, keeper = Cache(resync=1800.0), DecisionKeeper()
    cache.state = half_full(nodes, Random(nodes))
    api, tally = _Answering(), ExtenderCounters()

    def decided(found: Any) -> None:
        keeper.add(found.decision)
        cache.forget(found.pod.uid)  # each pod finds the same cluster

    decider = Decider(
        cache,
        PodWriter(api, KubeWriter(api, component="c", instance="i")),  # type: ignore[arg-type]
        policies=Policies(),
        tally=tally,
        check=lambda: None,
        decided=decided,
    )
    paths = ExtenderPaths(decider, peers=Peers(None, ()), tally=tally, failed=lambda _: None)  # type: ignore[arg-type]
    app = App(title="x", metrics=_NoPage, ready=Readiness, routes=paths.routes(), service="extender", longest=LIMITS)
    server = HttpServer(app, sock=address.bind("127.0.0.1:0"))
    print(server.url.rpartition(":")[2], flush=True)
    await server.run()


async def _bare(length: int) -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % length + b" " * length

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            json.loads(await reader.readexactly(size))
            writer.write(answer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


class _Server:
    """A server in a process of its own, and one connection to it."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "bench.scheduler_answer", "--serve", *arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        port = int(self._process.stdout.readline())
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(30)

    def ask(self, sent: bytes) -> tuple[float, int]:
        """Seconds until the answer is there, and its length."""
        head = (
            b"POST /filter HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        )
        began = time.perf_counter()
        self._socket.sendall(head % len(sent) + sent)
        answer = HTTPResponse(self._socket)
        answer.begin()
        read = answer.read()
        took = time.perf_counter() - began
        assert answer.status == 200, read[:300]
        return took, len(read)

    def cpu(self) -> float:
        """Seconds of CPU of the process until now, of the kernel for it included."""
        return sum(int(one) for one in Path(f"/proc/{self._process.pid}/schedstat").read_text().split()[:1]) / 1e9

    def close(self) -> None:
        self._socket.close()
        self._process.terminate()
        self._process.wait()


def measure(nodes: int) -> dict[str, float]:
    """Medians in milliseconds of both, and the ratio of their CPU."""
    with ExitStack() as servers:
        ours = servers.enter_context(closing(_Server("extender", str(nodes))))
        _, length = ours.ask(body(nodes, 0))
        bare = servers.enter_context(closing(_Server("bare", str(length))))
        return _compared(ours, bare, nodes)


def _compared(ours: _Server, bare: _Server, nodes: int) -> dict[str, float]:
    waits: dict[str, list[float]] = {"extender": [], "bare": []}
    busy: dict[str, list[float]] = {"extender": [], "bare": []}
    number = 1
    for _ in range(ROUNDS):
        for name, server in (("extender", ours), ("bare", bare)):
            before = server.cpu()
            for _ in range(AT_ONCE):
                waits[name].append(server.ask(body(nodes, number))[0])
                number += 1
            busy[name].append((server.cpu() - before) / AT_ONCE)
    found = {f"{name} waits": 1000 * median(times) for name, times in waits.items()}
    found |= {f"{name} CPU": 1000 * median(times) for name, times in busy.items()}
    return found | {"CPU ratio": found["extender CPU"] / found["bare CPU"]}


def measure_api(nodes: int) -> dict[str, float]:
    """Medians in milliseconds of a filter and of one patch of a pod at the same API server, and their ratio."""
    programs = subprocess.run([BUILD, "--find"], capture_output=True, text=True, check=True).stdout.strip()
    with (
        tempfile.TemporaryDirectory() as folder,
        ControlPlane(Path(folder) / "plane", Path(programs)) as cluster,
    ):
        cluster.namespace("ml")
        names = [f"gpu-{at}" for at in range(nodes)]
        cluster.seed(registered(name, *(f"GPU-{name}-{at}" for at in range(8)), memory=81920) for name in names)
        pods = cluster.create_all(gpu_pod(f"p{at}", memory=500) for at in range(2 * ROUNDS * AT_ONCE // 3))
        waits, patches = list[float](), list[float]()
        with extender(cluster.kubeconfig, Path(folder)) as running:
            connection = HTTPConnection(running.url.partition("//")[2])
            for pod, other in zip(pods[::2], pods[1::2], strict=True):
                meta, began = pod["metadata"], time.perf_counter()
                node = _asked(connection, "/filter", {"Pod": pod, "NodeNames": names})["NodeNames"][0]
                waits.append(time.perf_counter() - began)
                target = {"PodName": meta["name"], "PodNamespace": "ml", "PodUID": meta["uid"], "Node": node}
                assert not _asked(connection, "/bind", target)["Error"]
                cluster.patch("nodes", node, {"metadata": {"annotations": {"hami.io/mutex.lock": None}}})
                began, change = time.perf_counter(), {"metadata": {"annotations": {"bench": "1" * 200}}}
                cluster.patch("pods", other["metadata"]["name"], change, namespace="ml")
                patches.append(time.perf_counter() - began)
    filtered, patched = 1000 * median(waits), 1000 * median(patches)
    return {"filter waits": filtered, "patch waits": patched, "ratio": filtered / patched}


def _asked(connection: HTTPConnection, path: str, sent: dict[str, Any]) -> dict[str, Any]:
    connection.request("POST", path, json.dumps(sent), {"content-type": "application/json"})
    answer: dict[str, Any] = json.loads(connection.getresponse().read())
    return answer


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--serve"]:
        serve = _extender if arguments[1] == "extender" else _bare
        asyncio.run(serve(int(arguments[2])))
        return
    figures = measure_api if arguments[:1] == ["api"] else measure
    for nodes in [int(one) for one in arguments if one != "api"] or SIZES:
        print(f"{nodes} nodes: " + ", ".join(f"{name} {value:.2f}" for name, value in figures(nodes).items()))


if __name__ == "__main__":
    main(sys.argv[1:])
