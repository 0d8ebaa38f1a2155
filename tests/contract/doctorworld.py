"""A small GPU cluster as doctor sees it from outside, healthy, and what is wrong with it in the field.

Everything here is written by hand, from the documentation and the public threads that each problem names: series as
Prometheus stores them, the answers of our services, and those of an API server. Nothing is made by our own code.
"""

import copy
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

GIB = 2**30
STEP = 30
SPAN = 2400  # seconds of samples before now,
AHEAD = 900  # and after it: tests take their time, and must not find old series because of that
NODES = {"node-a": "GPU-aaaaaaaa-0000-0000-0000-000000000001", "node-b": "GPU-bbbbbbbb-0000-0000-0000-000000000002"}
POD = {"namespace": "ml", "pod": "train-0", "container": "main"}


class Line(NamedTuple):
    """One series: name, labels, and its value at a moment; None where it has no sample then."""

    name: str
    labels: dict[str, str]
    value: Callable[[float], float | None]


class World:
    """Everything outside of doctor. `now` is the moment at which it is written down."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.lines: list[Line] = []
        self.step = STEP
        self.condition = ""
        self.agent: dict[str, Any] | None = agent_answer(now)
        self.cluster: dict[str, Any] | None = {"nodes": [ledger(name, gpu) for name, gpu in NODES.items()], "watch": {}}
        self.analyzer: dict[str, Any] | None = analyzer_answers()
        self.kube: dict[str, Any] | None = kube_answers()
        self.extender: dict[str, Any] | None = {"missing": [], "leader": 1, "filters": 12}
        self.pending: list[dict[str, Any]] = []  # pods that wait
        self.date = 0.0  # seconds that the agent's clock is ahead
        self.refuse: set[str] = set()  # services that reject the credentials
        self.prometheus = "real"  # or none, another, empty, self
        for name, gpu in NODES.items():
            self.node(name, gpu)
        self.cluster_exporter()
        self.scheduling()

    def add(self, name: str, value: float | Callable[[float], float | None], **labels: str) -> None:
        self.lines.append(Line(name, labels, value if callable(value) else _always(value)))

    def drop(self, *names: str) -> None:
        self.lines = [line for line in self.lines if line.name not in names]

    def of(self, name: str) -> list[Line]:
        return [line for line in self.lines if line.name == name]

    def node(self, name: str, gpu: str) -> None:
        """One node with one GPU, its agent and its dcgm-exporter, both scraped with honor_labels."""
        at = {"job": "vgpuscope-agent", "instance": f"{name}:9394", "node": name}
        self.add("up", 1, job=at["job"], instance=at["instance"])
        self.add("vgpuscope_build_info", 1, version="0.1.0", **at)
        self.add("vgpuscope_sample_timestamp_seconds", lambda t: t - 0.5, **at)
        for source in ("nvml", "regions", "proc", "pods", "podresources", "ratio"):
            self.add("vgpuscope_source_up", 1, source=source, **at)
            self.add("vgpuscope_source_absent", 0, source=source, **at)
        for source, up in (("gpm", 1), ("cgroup", 1), ("dcgm", 0)):  # no dcgm-exporter is configured
            self.add("vgpuscope_source_up", up, source=source, **at)
            self.add("vgpuscope_source_absent", 1 - up, source=source, **at)
        self.add("vgpuscope_gpu_profiling_info", 1, gpu_uuid=gpu, source="gpm", reason="", **at)
        self.add("vgpuscope_regions_orphaned", 0, **at)
        self.add("vgpuscope_gpu_info", 1, gpu_uuid=gpu, gpu_index="0", **at)
        self.add("vgpuscope_gpu_health", 1, gpu_uuid=gpu, health="ok", **at)
        self.add("vgpuscope_gpu_utilization_ratio", 0.62, gpu_uuid=gpu, **at)
        self.add("vgpuscope_gpu_processes", 2, gpu_uuid=gpu, **at)
        pod = {**POD, "pod": f"train-{name[-1]}", "pod_uid": f"uid-{name[-1]}", "gpu_uuid": gpu}
        self.add("vgpuscope_container_processes", 2, **pod, **at)
        self.add("vgpuscope_container_state", 1, state="active", **pod, **at)
        self.add("vgpuscope_container_sm_ratio", 0.6, **pod, **at)
        self.add("vgpuscope_vgpu_memory_used_bytes", 9 * GIB, vdevice_index="0", **pod, **at)
        self.add("vgpuscope_vgpu_memory_limit_bytes", 10 * GIB, vdevice_index="0", **pod, **at)
        hami = {"node": name, "device_index": "0", "device_uuid": gpu, "device_type": "NVIDIA-A100"}
        self.add("hami_host_gpu_memory_used_bytes", 10 * GIB, **hami, job=at["job"], instance=at["instance"])
        dcgm = {"job": "dcgm-exporter", "instance": f"{name}:9400", "UUID": gpu, "gpu": "0", "Hostname": name}
        self.add("up", 1, job=dcgm["job"], instance=dcgm["instance"])
        self.add("DCGM_FI_DEV_GPU_UTIL", 62, **dcgm, **{**POD, "pod": f"train-{name[-1]}"})
        self.add("DCGM_FI_DEV_POWER_USAGE", 250.5, **dcgm, **{**POD, "pod": f"train-{name[-1]}"})

    def cluster_exporter(self) -> None:
        at = {"job": "vgpuscope-cluster", "instance": "cluster:31993"}
        self.add("up", 1, **at)
        self.add("vgpuscope_build_info", 1, version="0.1.0", **at)
        for kind in ("nodes", "pods", "resourcequotas", "events"):
            self.add("vgpuscope_cluster_watch_up", 1, kind=kind, **at)
        for name, gpu in NODES.items():
            self.add("hami_gpu_memory_allocated_bytes", 20 * GIB, node=name, device_uuid=gpu, **at)

    def scheduling(self) -> None:
        """An extender, and a device plugin on each node."""
        at = {"job": "vgpuscope-extender", "instance": "extender:8080"}
        self.add("up", 1, **at)
        self.add("vgpuscope_extender_leader", 1, **at)
        self.add("hami_scheduler_bind_success_total", 40, **at)
        for name, gpu in NODES.items():
            on = {"job": "vgpuscope-plugin", "instance": f"{name}:9396", "node": name}
            self.add("up", 1, job=on["job"], instance=on["instance"])
            self.add("vgpuscope_plugin_kubelet_up", 1, **on)
            self.add("vgpuscope_plugin_limits_enforced", 1, **on)
            self.add("hami_device_plugin_healthy_status", 1, device=gpu, **on)

    def samples(self, world: str) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        """All series for a remote write, with a label that tells this world from the others."""
        times = [self.now - SPAN + n * self.step for n in range(int((SPAN + AHEAD) / self.step) + 1)]
        found = []
        for line in self.lines:
            values = [(t, value) for t in times if (value := line.value(t)) is not None]
            if values:
                found.append(({"__name__": line.name, "world": world, **line.labels}, values))
        return found


def _always(value: float) -> Callable[[float], float | None]:
    return lambda _: value


# ── the healthy answers of the services ──────────────────────────────────────────────────────────────────────────


def agent_answer(now: float) -> dict[str, Any]:
    names = ("nvml", "gpm", "regions", "proc", "pods", "podresources", "ratio", "cgroup")
    up: list[dict[str, Any]] = [{"source": name, "up": True} for name in names]
    absent = [
        {"source": "claims", "up": False, "absent": True, "message": "no container has a ResourceClaim"},
        {"source": "dcgm", "up": False, "absent": True, "message": "--dcgm none"},
    ]
    return {"at": now, "node": "node-a", "ratio": 1.0, "sources": [*up, *absent]}


def ledger(name: str, gpu: str) -> dict[str, Any]:
    offer = {"offer": {"resource": "nvidia.com/gpu", "mode": "whole", "capacity": 1, "allocatable": 1, "replicas": 1}}
    return {"name": name, "offers": [offer], "gpu": gpu}


def analyzer_answers() -> dict[str, Any]:
    health = {
        "status": "healthy",
        "prometheus_connected": True,
        "last_analysis": "2026-11-16T10:00:00Z",
        "analysis_timeout": False,
        "interval": 300,
        "leader": True,
        "history": True,
        "error": None,
        "targets_up": None,
        "targets_down": None,
        "failing": [],
        "ai_enabled": True,
        "ai_error": None,
        "control_error": None,
    }
    return {
        "/health": health,
        "/": {"version": "0.1.0", "config": {"prometheus_url": "", "time_window_min": 10}},
        "/config": {"prometheus": {"query_condition": ""}},
        "/results/stats": {"total_gpus": 2, "unknown_count": 0},
        "/api/v1/parts": {"parts": [{"name": "history", "state": "ok"}]},
        "/api/v1/notices": {
            "channels": [
                {"name": "ops", "state": "works", "error": None},
                {"name": "ml", "state": "unused", "error": None},
            ]
        },
        "/api/v1/reclaim/policy": {
            "mode": "live",
            "dry_run": False,
            "kube": "ok",
            "stopped_by": None,
            "breaker": {"open": False, "since": None, "turned": 0, "of": 0},
        },
    }


def kube_answers() -> dict[str, Any]:
    nodes = [
        {
            "metadata": {
                "name": name,
                "labels": {"gpu": "on"},
                "annotations": {"hami.io/node-nvidia-register": "[]"},
            },
            "spec": {},
            "status": {"allocatable": {"nvidia.com/gpu": "10"}, "conditions": [{"type": "Ready", "status": "True"}]},
        }
        for name in NODES
    ]
    pods = [
        {
            "metadata": {"name": name, "namespace": "hami-system", "labels": {"app.kubernetes.io/name": "hami"}},
            "spec": {"nodeName": "node-a"},
            "status": {"phase": "Running", "containerStatuses": [{"ready": True, "restartCount": 0, "state": {}}]},
        }
        for name in ("hami-scheduler-0", "hami-device-plugin-x")
    ]
    labels = {"app.kubernetes.io/name": "vgpuscope", "app.kubernetes.io/component": "cluster"}
    exporter: dict[str, Any] = copy.deepcopy(pods[0])
    exporter["metadata"] = {"name": "vgpuscope-cluster-0", "namespace": "vgpuscope", "labels": labels}
    exporter["spec"]["serviceAccountName"] = "vgpuscope-cluster"
    pods.append(exporter)
    return {"nodes": nodes, "pods": pods, "Succeeded": [], "Failed": [], "denied": set()}


# ── serving them ─────────────────────────────────────────────────────────────────────────────────────────────────

Route = Callable[[str, str, dict[str, str], bytes], tuple[int, bytes, dict[str, str]]]


@contextmanager
def serving(route: Route) -> Iterator[str]:
    """A server that answers by `route` (method, path, query, body); its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            status, content, headers = route(self.command, parts.path, query, body)
            self.send_response_only(status)
            for name, value in {"content-length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def handle(self) -> None:
            with suppress(ConnectionError):  # a client that has left
                super().handle()

        do_GET = do_POST = _answer  # noqa: N815 - as the base class wants them

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _json(content: Any, status: Any = 200, **headers: Any) -> tuple[int, bytes, dict[str, str]]:
    return status, json.dumps(content).encode(), {"content-type": "application/json", **headers}


def agent_route(world: World) -> Route:
    def route(_: str, path: str, __: dict[str, str], ___: bytes) -> tuple[int, bytes, dict[str, str]]:
        headers = {"x-vgpuscope-service": "agent", "date": formatdate(time.time() + world.date, usegmt=True)}
        if "agent" in world.refuse:
            return _json({"error": {"message": "no"}}, 401, **headers)
        if path == "/metrics":
            return 200, b'vgpuscope_build_info{version="0.1.0"} 1\n', {}
        return _json({**(world.agent or {}), "at": time.time() + world.date - world.agent.get("age", 0)}, **headers)

    return route


def cluster_route(world: World) -> Route:
    def route(_: str, path: str, __: dict[str, str], ___: bytes) -> tuple[int, bytes, dict[str, str]]:
        found = world.cluster or {}
        headers = {"x-vgpuscope-service": found.get("service", "cluster exporter")}
        watch = dict.fromkeys(("nodes", "pods", "resourcequotas", "events"), 1) | found["watch"]
        if path == "/metrics":
            lines = (f'vgpuscope_cluster_watch_up{{kind="{k}"}} {v}\n' for k, v in watch.items())
            return 200, "".join(lines).encode(), {}
        if path == "/readyz":
            waiting = found.get("missing")
            return _json({"missing": waiting or []}, 503 if waiting else 200, **headers)
        if path == "/api/v1/nodes":
            return _json([{k: v for k, v in node.items() if k != "gpu"} for node in found["nodes"]], **headers)
        return _json({"now": time.time(), "pending": world.pending}, **headers)

    return route


def extender_route(world: World) -> Route:
    def route(_: str, path: str, __: dict[str, str], ___: bytes) -> tuple[int, bytes, dict[str, str]]:
        found = world.extender or {}
        if path == "/readyz":
            state = {"ready": not found["missing"], "missing": found["missing"]}
            return _json(state, 503 if found["missing"] else 200, **{"x-vgpuscope-service": "extender"})
        page = f"vgpuscope_extender_leader {found['leader']}\n"
        page += f"hami_scheduler_filter_duration_seconds_count {found['filters']}\n"
        return 200, page.encode(), {}

    return route


def analyzer_route(world: World) -> Route:
    def route(_: str, path: str, __: dict[str, str], ___: bytes) -> tuple[int, bytes, dict[str, str]]:
        headers = {"x-vgpuscope-service": "analyzer", "date": formatdate(usegmt=True)}
        found = (world.analyzer or {}).get(path)
        return _json(found, **headers) if found is not None else _json({}, 404, **headers)

    return route


def kube_route(world: World) -> Route:
    def route(method: str, path: str, query: dict[str, str], body: bytes) -> tuple[int, bytes, dict[str, str]]:
        found = world.kube or {}
        if method == "POST":
            review = json.loads(body)
            assert review["kind"] == "SubjectAccessReview"
            assert review["spec"]["user"] == "system:serviceaccount:vgpuscope:vgpuscope-cluster"
            asked = review["spec"]["resourceAttributes"]
            return _json({"status": {"allowed": f"{asked['verb']} {asked['resource']}" not in found["denied"]}}, 201)
        if f"list {path.rpartition('/')[2]}" in found["denied"]:
            return _json({"kind": "Status", "message": "forbidden", "code": 403}, 403)
        if path == "/api/v1/nodes":
            return _json({"items": found["nodes"], "metadata": {}})
        if "fieldSelector" in query:
            return _json({"items": found[query["fieldSelector"].rpartition("=")[2]], "metadata": {}})
        return _json({"items": found["pods"] if "hami" in query["labelSelector"] else [], "metadata": {}})

    return route


def login_page(*_: object) -> tuple[int, bytes, dict[str, str]]:
    """What stands before many a Prometheus."""
    return 200, b"<html><title>Log in</title></html>", {"content-type": "text/html"}


# ── what goes wrong in the field ─────────────────────────────────────────────────────────────────────────────────


class Problem(NamedTuple):
    """One known problem: what doctor must call it, where it is documented, and how the world differs."""

    code: str
    source: str
    change: Callable[[World], None]
    also: tuple[str, ...] = ()  # codes that follow from it, and so are right too


PROBLEMS: dict[str, Problem] = {}


def problem(code: str, source: str, *also: str) -> Callable[[Callable[[World], None]], Callable[[World], None]]:
    def named(change: Callable[[World], None]) -> Callable[[World], None]:
        PROBLEMS[change.__name__] = Problem(code, source, change, also)
        return change

    return named


A, B = NODES.values()
DCGM_A = {"job": "dcgm-exporter", "instance": "node-a:9400", "UUID": A, "gpu": "0", "Hostname": "node-a"}
HAMI_A = {"job": "hami-monitor", "instance": "node-a:9395"}
OUTSIDE = {"job": "dcgm-exporter", "instance": "node-a:9400"}


def relabelled(world: World, name: str, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
    world.lines = [
        line._replace(labels=change(dict(line.labels))) if line.name.startswith(name) else line for line in world.lines
    ]


@problem("HONOR_LABELS_OFF", "NVIDIA/dcgm-exporter#85, #340")
def honor_labels_off(world: World) -> None:
    def displaced(labels: dict[str, str]) -> dict[str, str]:
        moved = {f"exported_{name}": labels[name] for name in POD if name in labels}
        return labels | moved | {"namespace": "gpu", "pod": "dcgm-exporter-x7k2p", "container": "exporter"}

    relabelled(world, "DCGM_", displaced)


@problem("POD_LABELS_MISSING", "NVIDIA/dcgm-exporter#411, #477")
def pod_labels_missing(world: World) -> None:
    relabelled(world, "DCGM_", lambda labels: {k: v for k, v in labels.items() if k not in POD})


@problem("LABELS_FLAPPING", "NVIDIA/dcgm-exporter#342")
def labels_flapping(world: World) -> None:
    """Every ten minutes the pod is lost, and five to ten minutes later it is found again."""
    world.lines = [
        line for line in world.lines if not (line.name == "DCGM_FI_DEV_GPU_UTIL" and line.labels["UUID"] == A)
    ]
    labelled = lambda t: int((world.now - t) // 420) % 2 == 0  # noqa: E731
    world.add("DCGM_FI_DEV_GPU_UTIL", lambda t: 62 if labelled(t) else None, **DCGM_A, **POD)
    world.add("DCGM_FI_DEV_GPU_UTIL", lambda t: None if labelled(t) else 62, **DCGM_A)


@problem("SHARED_SAME_NUMBER", "NVIDIA/dcgm-exporter#587, #474")
def time_slicing_copies_the_value(world: World) -> None:
    for pod in ("train-1", "train-2"):
        world.add("DCGM_FI_DEV_GPU_UTIL", 62, **DCGM_A, **{**POD, "pod": pod})


@problem("MIG_WITHOUT_PROFILING", "NVIDIA/dcgm-exporter#430, #512")
def mig_without_profiling(world: World) -> None:
    world.add("DCGM_FI_DEV_FB_USED", 900, **DCGM_A, **POD, GPU_I_ID="1", GPU_I_PROFILE="1g.10gb")
    world.add("DCGM_FI_DEV_POWER_USAGE", 250.5, **DCGM_A, **POD, GPU_I_ID="1", GPU_I_PROFILE="1g.10gb")


@problem("MIG_WITHOUT_PROFILING", "an A100 whose agent reads no dcgm-exporter")
def mig_that_the_agent_cannot_measure(world: World) -> None:
    at = {"job": "vgpuscope-agent", "instance": "node-a:9394", "node": "node-a", "gpu_uuid": A}
    for instance in ("1", "2"):
        world.add("vgpuscope_mig_info", 1, mig_uuid=f"MIG-{instance}", gpu_instance=instance, profile="1g.10gb", **at)
    world.add("vgpuscope_mig_engine_active_ratio", 0.4, mig_uuid="MIG-2", **at)


@problem("MIG_REPEATED", "NVIDIA/dcgm-exporter#353")
def mig_repeats_the_power(world: World) -> None:
    for instance in ("1", "2"):
        for name, value in (
            ("DCGM_FI_DEV_POWER_USAGE", 250.5),
            ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.3 + 0.1 * int(instance)),
        ):
            world.add(name, value, **DCGM_A, **POD, GPU_I_ID=instance, GPU_I_PROFILE="1g.10gb")


@problem("REGION_NOT_MADE", "Project-HAMi/HAMi#1814, #1794")
def cuda_not_started(world: World) -> None:
    at = {"job": "vgpuscope-agent", "instance": "node-a:9394", "node": "node-a", "gpu_uuid": A}
    world.add("vgpuscope_container_state", 1, state="not-started", namespace="ml", pod="notebook", container="nb", **at)


def without_agents(world: World) -> None:
    """A cluster with HAMi's own exporters only."""
    world.lines = [line for line in world.lines if not line.labels["job"].startswith("vgpuscope")]
    world.agent = None
    world.add("up", 1, **HAMI_A)
    world.add("HostCoreUtilization", 30, nodeid="node-a", deviceuuid=A, deviceidx="0", **HAMI_A)
    world.add(
        "vGPU_device_memory_usage_in_bytes",
        4 * GIB,
        podnamespace="ml",
        podname="train-a",
        ctrname="main",
        vdeviceid="0",
        deviceuuid=A,
        **HAMI_A,
    )
    world.add(
        "vGPUMemoryAllocated",
        8 * GIB,
        podnamespace="ml",
        podname="train-a",
        nodename="node-a",
        containeridx="0",
        deviceuuid=A,
        **HAMI_A,
    )


@problem("WHOLE_GPU_UNSEEN", "Project-HAMi/HAMi#931")
def whole_gpu_unseen(world: World) -> None:
    without_agents(world)
    held = {
        "podnamespace": "ml",
        "podname": "whole-0",
        "nodename": "node-b",
        "containeridx": "0",
        "deviceuuid": B,
        **HAMI_A,
    }
    world.add("vGPUMemoryAllocated", 80 * GIB, **held)
    world.add("vGPUCoreAllocated", 100, **held)


@problem("CONTAINER_SM_ZERO", "Project-HAMi/HAMi#2015, HAMi-core#218")
def blackwell_shows_zero(world: World) -> None:
    world.add("up", 1, **HAMI_A)
    world.add(
        "Device_utilization_desc_of_container",
        0,
        podnamespace="ml",
        podname="train-a",
        ctrname="main",
        vdeviceid="0",
        deviceuuid=A,
        **HAMI_A,
    )


@problem("UTILIZATION_ABOVE_100", "Project-HAMi/HAMi#555")
def utilization_above_100(world: World) -> None:
    world.add("up", 1, **HAMI_A)
    world.add(
        "Device_utilization_desc_of_container",
        143,
        podnamespace="ml",
        podname="train-a",
        ctrname="main",
        vdeviceid="0",
        deviceuuid=A,
        **HAMI_A,
    )


@problem("UUID_UNREADABLE", "Project-HAMi/HAMi#1811")
def binary_uuid(world: World) -> None:
    world.add("up", 1, **HAMI_A)
    world.add(
        "vGPU_device_memory_usage_in_bytes",
        1,
        podnamespace="ml",
        podname="train-a",
        ctrname="main",
        vdeviceid="0",
        deviceuuid="\x01\x02\x03\x7f",
        **HAMI_A,
    )


@problem("REGION_LAYOUT_UNKNOWN", "Project-HAMi/HAMi#1811")
def region_layout_unknown(world: World) -> None:
    world.add(
        "vgpuscope_regions_refused",
        2,
        job="vgpuscope-agent",
        instance="node-a:9394",
        node="node-a",
        reason="unknown_size",
    )


@problem("MEMORY_OVER_LIMIT", "Project-HAMi/HAMi#1026")
def memory_over_limit(world: World) -> None:
    world.drop("vgpuscope_vgpu_memory_used_bytes")
    at = {"job": "vgpuscope-agent", "instance": "node-a:9394", "node": "node-a", "vdevice_index": "0", "gpu_uuid": A}
    world.add("vgpuscope_vgpu_memory_used_bytes", 10.5 * GIB, **at, **{**POD, "pod": "train-a"}, pod_uid="uid-a")


@problem("REGIONS_ORPHANED", "Project-HAMi/HAMi#128")
def memory_of_a_pod_that_is_gone(world: World) -> None:
    world.drop("vgpuscope_regions_orphaned")
    world.add("vgpuscope_regions_orphaned", 3, job="vgpuscope-agent", instance="node-a:9394", node="node-a")


@problem("GHOST_ALLOCATION", "Project-HAMi/HAMi#1458")
def ghost_allocation(world: World) -> None:
    ghost = {"kind": "ghost", "node": "node-a", "reason": "unbound", "device": A, "namespace": "ml", "pod": "gone-0"}
    world.cluster["nodes"][0]["findings"] = [ghost]


@problem("COMPLETED_POD_SERIES", "Project-HAMi/volcano-vgpu-device-plugin#130")
def completed_pod_exports(world: World) -> None:
    world.add("up", 1, **HAMI_A)
    world.add(
        "vGPU_device_memory_usage_in_bytes",
        GIB,
        podnamespace="ml",
        podname="done-1",
        ctrname="main",
        vdeviceid="0",
        deviceuuid=A,
        **HAMI_A,
    )
    world.kube["Succeeded"] = [{"metadata": {"namespace": "ml", "name": "done-1"}}]


@problem("EXPORTER_RESTARTS", "NVIDIA/dcgm-exporter#702, pytorch/ci-infra#1011")
def exporter_killed_for_memory(world: World) -> None:
    world.kube["pods"][1]["status"]["containerStatuses"][0] |= {
        "restartCount": 4,
        "lastState": {"terminated": {"reason": "OOMKilled"}},
    }


@problem("RATIO_SCALE_MIXED", "Project-HAMi/HAMi#2460, #2639")
def ratio_scale_mixed(world: World) -> None:
    world.add("up", 1, **HAMI_A)
    world.add("hami_node_gpu_memory_allocated_ratio", 0.5, node="node-a", device_uuid=A, **HAMI_A)
    world.add("hami_gpu_core_allocated_ratio", 50, node="node-a", device_uuid=A, **HAMI_A)


@problem("ABSURD_VALUE", "NVIDIA/dcgm-exporter#418, NVIDIA/DCGM#199")
def absurd_value(world: World) -> None:
    world.lines = [
        line for line in world.lines if not (line.name == "DCGM_FI_DEV_GPU_UTIL" and line.labels["UUID"] == A)
    ]
    world.add("DCGM_FI_DEV_GPU_UTIL", 808334905, **DCGM_A, **{**POD, "pod": "train-a"})


@problem("CLUSTER_EXPORTER_MISSING", "Project-HAMi/HAMi#2286, #2341")
def pending_unexplained(world: World) -> None:
    world.cluster = None
    world.lines = [line for line in world.lines if line.labels["job"] != "vgpuscope-cluster"]


@problem("NODES_WITHOUT_AGENT", "Project-HAMi/HAMi-WebUI#5")
def node_without_label(world: World) -> None:
    world.lines = [
        line for line in world.lines if "node-b" not in line.labels.values() and "node-b" not in line.labels["instance"]
    ]
    world.kube["nodes"][1]["metadata"]["labels"] = {}


def source_down(world: World, source: str, code: str, message: str = "no") -> None:
    for one in world.agent["sources"]:
        if one["source"] == source:
            one |= {"up": False, "absent": code.endswith("_ABSENT"), "code": code, "message": message}


@problem("DRIVER_LIBRARY_MISSING", "NVIDIA Container Toolkit's documentation: driver capabilities")
def driver_library_not_mounted(world: World) -> None:
    source_down(world, "nvml", "DRIVER_ABSENT", "libnvidia-ml.so.1: cannot open shared object file")


@problem("DRIVER_FAILED", "nvidia-smi: Driver/library version mismatch")
def driver_version_mismatch(world: World) -> None:
    source_down(world, "nvml", "DRIVER_FAILED", "Driver/library version mismatch")


@problem("DRIVER_HUNG", "NVIDIA's XID catalogue: 119, GSP RPC timeout")
def driver_hangs(world: World) -> None:
    source_down(world, "nvml", "DRIVER_HUNG", "nvmlDeviceGetUtilizationRates did not return")


@problem("GPU_UNHEALTHY", "NVIDIA's XID catalogue: 79, fallen off the bus")
def gpu_lost(world: World) -> None:
    world.drop("vgpuscope_gpu_health")
    world.add(
        "vgpuscope_gpu_health",
        1,
        job="vgpuscope-agent",
        instance="node-a:9394",
        node="node-a",
        gpu_uuid=A,
        health="lost",
    )


@problem("HOST_PID_MISSING", "NVML's documentation: processes are named by the host's pids")
def host_pid_missing(world: World) -> None:
    world.lines = [
        line._replace(value=lambda _: 0.0) if line.name == "vgpuscope_container_processes" else line
        for line in world.lines
    ]


@problem("REGIONS_NOT_MOUNTED", "HAMi handbook 7.2: no container metrics")
def regions_not_mounted(world: World) -> None:
    source_down(world, "regions", "REGIONS_ABSENT", "/usr/local/vgpu/containers does not exist")
    world.cluster["nodes"][0]["devices"] = [{"device": device(A)}]


def device(uuid: str) -> dict[str, Any]:
    return {
        "id": uuid,
        "healthy": True,
        "index": 0,
        "vendor": "NVIDIA",
        "type": "A100",
        "slots": 10,
        "memory": 80 * GIB,
        "cores": 100,
    }


@problem("REGIONS_UNREADABLE", "HAMi handbook 7.2: no container metrics")
def regions_unreadable(world: World) -> None:
    source_down(world, "regions", "REGIONS_UNREADABLE", "cannot list /usr/local/vgpu/containers: Permission denied")


@problem("PODS_UNKNOWN", "NVIDIA/dcgm-exporter#477")
def kubelet_source_down(world: World) -> None:
    source_down(world, "pods", "KUBE_UNREADABLE", "https://node-a:10250/pods: connection refused")


@problem("PODRESOURCES_DOWN", "NVIDIA/dcgm-exporter#411")
def podresources_down(world: World) -> None:
    source_down(world, "podresources", "PODRESOURCES_DOWN", "connection refused")


@problem("CLAIMS_UNKNOWN", "NVIDIA/gpu-operator#2697", "RIGHTS_MISSING")
def claims_forbidden(world: World) -> None:
    refused = 'resourceslices.resource.k8s.io is forbidden: User "agent" cannot list resource "resourceslices"'
    source_down(world, "claims", "KUBE_FORBIDDEN", refused)


@problem("PROC_UNREADABLE", "proc(5): hidepid")
def proc_unreadable(world: World) -> None:
    source_down(world, "proc", "SOURCE_DOWN", "the proc root /host/proc does not exist")


@problem("RIGHTS_MISSING", "Kubernetes' documentation: RBAC")
def rights_missing(world: World) -> None:
    world.kube["denied"] = {"list events", "watch events"}
    world.cluster["watch"] = {"events": 0}


@problem("CLOCK_SKEW", "Prometheus' documentation: clocks must be synchronised")
def clock_skew(world: World) -> None:
    world.date = 90.0


@problem("HAMI_BESIDE_OURS", "HAMi's own monitor is scraped, too")
def hami_scraped_beside_ours(world: World) -> None:
    world.add("up", 1, **HAMI_A)
    hami = {"node": "node-a", "device_index": "0", "device_uuid": A, "device_type": "NVIDIA-A100"}
    world.add("hami_host_gpu_memory_used_bytes", 10 * GIB, **hami, **HAMI_A)


@problem("SCRAPE_INTERVAL_LONG", "the analyzer's window has five samples at least")
def scraped_every_three_minutes(world: World) -> None:
    world.step = 180


@problem("DCGM_RATIO_IS_PERCENT", "DCGM before 4.7: _RATIO names with values of 0-100")
def dcgm_ratio_is_percent(world: World) -> None:
    world.add("DCGM_FI_DEV_GPU_UTIL_RATIO", 62, **DCGM_A, **{**POD, "pod": "train-a"})


@problem("CLUSTERS_WITHOUT_LABEL", "Thanos' documentation: external labels")
def two_clusters_without_a_label(world: World) -> None:
    other = {**DCGM_A, "UUID": "GPU-cccccccc-0000-0000-0000-000000000003", "instance": "10.9.0.4:9400"}
    world.add("up", 1, job=other["job"], instance=other["instance"])
    world.add("DCGM_FI_DEV_GPU_UTIL", 12, **other, **{**POD, "pod": "infer-0"})


@problem("REPLICAS_DOUBLE", "prometheus-operator's documentation: replicas")
def two_replicas_of_prometheus(world: World) -> None:
    world.lines = [
        line._replace(labels=line.labels | {"prometheus_replica": replica})
        for line in world.lines
        for replica in ("prometheus-0", "prometheus-1")
    ]


@problem("SCRAPED_TWICE", "product experience: ServiceMonitor and prometheus.io/scrape")
def scraped_by_two_jobs(world: World) -> None:
    for line in [*world.of("DCGM_FI_DEV_GPU_UTIL"), *world.of("up")]:
        if line.labels["job"] == "dcgm-exporter":
            world.lines.append(line._replace(labels=line.labels | {"job": "kubernetes-pods"}))


@problem("HOSTNAME_IS_POD", "NVIDIA/dcgm-exporter#655")
def hostname_is_the_pod(world: World) -> None:
    relabelled(world, "DCGM_", lambda labels: labels | {"Hostname": f"dcgm-exporter-x{labels['instance'][5]}k2p"})


@problem("CONTAINERS_NAMELESS", "NVIDIA/dcgm-exporter#718")
def only_uids_are_known(world: World) -> None:
    relabelled(world, "vgpuscope_container_state", lambda labels: {k: v for k, v in labels.items() if k not in POD})


@problem("CONDITION_MATCHES_NOTHING", "gpu-oour's configuration: query_condition")
def condition_matches_nothing(world: World) -> None:
    world.condition = 'cluster="prod"'


@problem("SERIES_OLD", "NVIDIA/dcgm-exporter#140, #611")
def exporter_has_lost_its_gpus(world: World) -> None:
    """The target answers, and has had no GPU series for twenty minutes."""
    world.lines = [
        line._replace(value=_until(line.value, world.now - 1200)) if line.name.startswith("DCGM_") else line
        for line in world.lines
    ]


def _until(value: Callable[[float], float | None], end: float) -> Callable[[float], float | None]:
    return lambda t: value(t) if t <= end else None


@problem("AGENT_SAMPLE_OLD", "an agent whose sampler has stopped")
def agent_stopped_sampling(world: World) -> None:
    world.agent["age"] = 400


@problem("TARGETS_DOWN", "HAMi handbook 7.1: metrics are not visible")
def target_down(world: World) -> None:
    """The exporter was killed; Prometheus marks its series as ended."""
    world.lines = [
        line._replace(value=_until(line.value, world.now - 600) if line.name != "up" else lambda _: 0.0)
        if line.labels["instance"] == "node-b:9400"
        else line
        for line in world.lines
    ]


@problem("USED_ABOVE_ALLOCATED", "HAMi handbook 7.3, HAMi#1081")
def memory_in_use_that_nobody_allocated(world: World) -> None:
    world.drop("hami_gpu_memory_allocated_bytes")
    at = {"job": "vgpuscope-cluster", "instance": "cluster:31993"}
    world.add("hami_gpu_memory_allocated_bytes", 0, node="node-a", device_uuid=A, **at)


@problem("VERSIONS_DIFFER", "an upgrade that stopped half-way")
def versions_differ(world: World) -> None:
    world.add("vgpuscope_build_info", 1, version="0.0.9", job="vgpuscope-agent", instance="node-c:9394")


@problem("DEVICES_NOT_REGISTERED", "HAMi handbook, monitoring chapter: device registration")
def device_plugin_does_not_register(world: World) -> None:
    world.kube["nodes"][1]["metadata"]["annotations"] = {}


@problem("FORGED_ASSIGNMENT", "docs/reconciliation.md: forged-assignment")
def a_tenant_writes_that_it_has_a_gpu(world: World) -> None:
    about = {"kind": "forged-assignment", "node": "node-a", "reason": "unsealed", "namespace": "ml", "pod": "greedy"}
    claim = {"claimed_gpus": 4, "claimed_memory": 2**36, "writer": "kubectl-patch"}
    world.cluster["nodes"][0]["findings"] = [about | claim]


@problem("COMPONENT_NOT_RUNNING", "HAMi handbook, monitoring chapter: component status")
def scheduler_crashes(world: World) -> None:
    world.kube["pods"][0]["status"]["containerStatuses"][0] |= {
        "ready": False,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    }


@problem("KUBE_API_DOWN", "kubectl: connection refused")
def api_server_down(world: World) -> None:
    world.kube = None


@problem("CREDENTIALS_REFUSED", "docs/security.md: protected listeners")
def credentials_refused(world: World) -> None:
    world.refuse = {"agent"}


@problem("AGENT_DOWN", "HAMi handbook 7.1: the exporter's pod does not run")
def agent_down(world: World) -> None:
    world.agent = {}


@problem("WRONG_SERVICE", "a Service that selects the wrong pods")
def wrong_service(world: World) -> None:
    world.cluster["service"] = "agent"


@problem("PROMETHEUS_DOWN", "gpu-oour's table: Prometheus cannot be reached")
def prometheus_down(world: World) -> None:
    world.prometheus = "none"


@problem("PROMETHEUS_WRONG_SERVICE", "gpu-oour's table: the URL is wrong")
def prometheus_is_a_login_page(world: World) -> None:
    world.prometheus = "another"


@problem("PROMETHEUS_EMPTY", "prometheus-operator's troubleshooting: no targets")
def prometheus_empty(world: World) -> None:
    world.prometheus = "empty"


@problem("GPU_METRICS_ABSENT", "gpu-oour's table: no GPU data")
def no_gpu_exporter(world: World) -> None:
    world.prometheus = "self"


@problem("RULE_NAMES_UNKNOWN", "Project-HAMi/HAMi#410, #498")
def dashboard_names_do_not_match(world: World) -> None:
    world.prometheus = "rules"


def with_error(world: World, code: str, message: str, *, connected: bool) -> None:
    world.analyzer["/health"] |= {"prometheus_connected": connected, "error": {"code": code, "message": message}}


@problem("ANALYZER_SOURCE_DOWN", "gpu-oour's table: Prometheus cannot be reached")
def analyzer_cannot_reach_prometheus(world: World) -> None:
    with_error(world, "QUERY_FAILED", "connection refused", connected=False)


@problem("ANALYSES_STOPPED", "gpu-oour's table: metrics are not updated")
def analyses_stopped(world: World) -> None:
    world.analyzer["/health"] |= {"analysis_timeout": True, "status": "warning"}


@problem("VERDICTS_UNKNOWN", "no data is not idleness")
def verdicts_unknown(world: World) -> None:
    world.analyzer["/results/stats"] = {"total_gpus": 8, "unknown_count": 7}


@problem("FOLLOWER_FAILING", "docs/errors.md: FOLLOWER_LATE")
def page_is_late(world: World) -> None:
    world.analyzer["/health"]["failing"] = ["page: FOLLOWER_LATE"]


@problem("ANALYZER_DOWN", "gpu-oour's table: the service does not start")
def analyzer_down(world: World) -> None:
    world.analyzer = None


@problem("MODEL_FAILING", "docs/ai.md: the provider rejects the key")
def key_is_rejected(world: World) -> None:
    world.analyzer["/health"]["ai_error"] = "AI_REJECTED"


@problem("CHANNEL_FAILING", "docs/notices.md: a webhook that was deleted")
def channel_takes_nothing(world: World) -> None:
    world.analyzer["/api/v1/notices"]["channels"][1] |= {"state": "fails", "error": "slack answers 404"}


@problem("CONTROL_FAILING", "docs/reclaim.md: the control service fails, and reports wait")
def control_takes_no_reports(world: World) -> None:
    world.analyzer["/health"]["control_error"] = "CALL_FAILED"


@problem("RECLAIM_WITHOUT_HISTORY", "docs/reclaim.md: without a store nothing is done", "HISTORY_OFF")
def reclaim_without_history(world: World) -> None:
    history_off(world)
    world.analyzer["/api/v1/reclaim/policy"] |= {"mode": "off", "dry_run": False}


@problem("RECLAIM_WITHOUT_KUBE", "docs/reclaim.md: without a Kubernetes API annotations are not read")
def reclaim_without_kube(world: World) -> None:
    world.analyzer["/api/v1/reclaim/policy"] |= {"kube": "none"}


@problem("RECLAIM_HELD_BACK", "docs/reclaim.md: the circuit breaker")
def breaker_is_open(world: World) -> None:
    world.analyzer["/api/v1/reclaim/policy"]["breaker"] |= {"open": True, "since": world.now, "turned": 9, "of": 20}


@problem("HISTORY_OFF", "docs/history.md")
def history_off(world: World) -> None:
    world.analyzer["/health"]["history"] = False
    world.analyzer["/api/v1/parts"] = {"parts": [{"name": "history", "state": "absent"}]}
    world.analyzer["/api/v1/reclaim/policy"] |= {"mode": "off", "dry_run": True}


@problem("HISTORY_DOWN", "docs/history.md")
def history_not_writable(world: World) -> None:
    world.analyzer["/health"] |= {"history": False, "failing": ["store: HISTORY_DOWN"]}
    world.analyzer["/api/v1/parts"] = {"parts": [{"name": "history", "state": "down"}]}


@problem("NOT_LEADER", "docs/history.md")
def not_leader(world: World) -> None:
    world.analyzer["/health"]["leader"] = False


def world_of(name: str, now: float) -> World:
    """The healthy world, or one with a problem."""
    world = World(now)
    if name != "healthy":
        copy.deepcopy(PROBLEMS[name].change)(world)
    return world


# ── scheduling ───────────────────────────────────────────────────────────────────────────────────────────────────


def scheduling_line(world: World, name: str, value: float, **labels: str) -> None:
    """One series of the scheduling parts with another value."""
    world.lines = [
        line._replace(value=_always(value)) if line.name == name and labels.items() <= line.labels.items() else line
        for line in world.lines
    ]


@problem("EXTENDER_DOWN", "the extender's pod is gone: kube-scheduler logs `extender … connection refused`")
def extender_gone(world: World) -> None:
    world.extender = {}


@problem("EXTENDER_NOT_READY", "the ClusterRole lacks resourcequotas: /readyz names the kind")
def extender_may_not_list(world: World) -> None:
    world.extender = {"missing": ["resourcequotas"], "leader": 1, "filters": 12}


@problem("EXTENDER_NO_LEADER", "the Role lacks leases: no replica can write its lease")
def extender_without_a_lease(world: World) -> None:
    world.extender = {"missing": ["lease: held by nobody"], "leader": 0, "filters": 0}
    scheduling_line(world, "vgpuscope_extender_leader", 0)


@problem("EXTENDER_NOT_ASKED", "pods name a scheduler whose configuration has no extender")
def no_scheduler_asks_the_extender(world: World) -> None:
    world.extender = {"missing": [], "leader": 1, "filters": 0}
    world.pending = [
        {
            "namespace": "ml",
            "pod": "train-9",
            "pod_uid": "u",
            "scheduler": "default-scheduler",
            "created": world.now - 600,
            "outcome": "waiting",
        }
    ]


@problem("SCHEDULER_METRICS_DOUBLE", "--scheduler-metrics on beside an extender")
def estimates_beside_measurements(world: World) -> None:
    world.add("hami_scheduler_bind_success_total", 39, job="vgpuscope-cluster", instance="cluster:31993")


@problem("PLUGIN_NOT_REGISTERED", "the kubelet's directory is not the default one")
def kubelet_does_not_know_the_plugin(world: World) -> None:
    scheduling_line(world, "vgpuscope_plugin_kubelet_up", 0, node="node-b")


@problem("PLUGIN_GPU_UNHEALTHY", "NVIDIA XID catalogue: 79, GPU has fallen off the bus")
def plugin_has_lost_a_gpu(world: World) -> None:
    scheduling_line(world, "hami_device_plugin_healthy_status", 0, node="node-a")
    on = {"job": "vgpuscope-plugin", "instance": "node-a:9396", "node": "node-a"}
    world.add("vgpuscope_plugin_gpu_unhealthy", 1, gpu_uuid=A, reason="xid-79", **on)


@problem("PLUGIN_LIBRARY_MISSING", "libvgpu.so was never copied to the node")
def library_was_never_copied(world: World) -> None:
    scheduling_line(world, "vgpuscope_plugin_limits_enforced", 0, node="node-a")


# ── profiling counters, the dcgm-exporter beside an agent, cgroups ───────────────────────────────────────────────


def blind(world: World, reason: str, node: str = "node-a") -> None:
    """The driver has no counters of a node's GPU."""
    at = {"job": "vgpuscope-agent", "instance": f"{node}:9394", "node": node}
    name = "vgpuscope_gpu_profiling_info"
    world.lines = [line for line in world.lines if line.name != name or line.labels["node"] != node]
    world.add(name, 1, gpu_uuid=NODES[node], source="none", reason=reason, **at)


def source_fails(world: World, source: str, code: str, node: str = "node-b", *, absent: int = 0) -> None:
    """A source of the agent of a node that only Prometheus knows."""
    at = {"job": "vgpuscope-agent", "instance": f"{node}:9394", "node": node, "source": source}
    scheduling_line(world, "vgpuscope_source_up", 0, node=node, source=source)
    scheduling_line(world, "vgpuscope_source_absent", absent, node=node, source=source)
    world.add("vgpuscope_source_error_info", 1, code=code, **at)


def asked_agent_fails(world: World, source: str, code: str, message: str, *, absent: bool = False) -> None:
    """The same of the agent that doctor asks itself."""
    others = [one for one in world.agent["sources"] if one["source"] != source]
    failing = {"source": source, "up": False, "absent": absent, "code": code, "message": message}
    world.agent["sources"] = [*others, failing]


@problem("GPM_UNSUPPORTED", "NVIDIA's NVML documentation: GPM is supported on Hopper and later")
def ampere_without_an_exporter_of_profiling_fields(world: World) -> None:
    blind(world, "unsupported")


@problem("GPM_REFUSED", "NVIDIA's NVML documentation: NVML_ERROR_FUNCTION_NOT_FOUND of a driver before GPM")
def driver_without_gpm_symbols(world: World) -> None:
    blind(world, "no-symbols", "node-b")


@problem("GPM_REFUSED", "NVIDIA's ERR_NVGPUCTRPERM: profiling is restricted to administrators")
def counters_are_for_administrators(world: World) -> None:
    blind(world, "no-permission")


@problem("GPM_HUNG", "a driver call that waits for a GPU in reset")
def gpm_call_hangs(world: World) -> None:
    blind(world, "hung")
    source_fails(world, "gpm", "PROFILING_OFF", "node-a", absent=1)


@problem("GPM_DISTURBS_MEMORY", "memory queries of MIG instances that fail while counters are read, on some drivers")
def gpm_disturbs_memory(world: World) -> None:
    blind(world, "disturbs-memory", "node-b")


@problem("DCGM_NO_ANSWER", "curl: connection refused, as an exporter that listens on localhost only")
def exporter_beside_the_agent_is_gone(world: World) -> None:
    asked_agent_fails(world, "dcgm", "PROFILING_UNREADABLE", "http://10.0.0.7:9400/metrics: no answer within 5 s")


@problem("DCGM_NO_ANSWER", "the same, of a node whose agent was not asked")
def exporter_of_another_node_is_gone(world: World) -> None:
    source_fails(world, "dcgm", "PROFILING_UNREADABLE")


@problem("DCGM_NOT_FOUND", "gpu-operator: two exporters on one node after a half upgrade")
def two_exporters_on_one_node(world: World) -> None:
    why = "2 pods of this node run dcgm-exporter (a, b); choose one with --dcgm URL"
    asked_agent_fails(world, "dcgm", "PROFILING_NOT_FOUND", why, absent=True)


@problem("DCGM_WITHOUT_FIELDS", "NVIDIA/dcgm-exporter#22: fields of the list are skipped, metric not enabled")
def exporter_with_its_default_list(world: World) -> None:
    source_fails(world, "dcgm", "PROFILING_FIELDS_MISSING")


@problem("DCGM_UNUSABLE", "relabelling that drops UUID")
def exporter_without_uuids(world: World) -> None:
    why = "no profiling value can be used: dcgm-no-uuid"
    asked_agent_fails(world, "dcgm", "PROFILING_UNUSABLE", why)


@problem("DCGM_UNUSABLE", "a collector that counts percent under the name of a ratio")
def some_fields_are_percent(world: World) -> None:
    at = {"job": "vgpuscope-agent", "instance": "node-b:9394", "node": "node-b"}
    world.add("vgpuscope_dropped_values_total", 40, reason="dcgm-over-1", **at)


@problem("CGROUPS_ABSENT", "a DaemonSet without the mount of /sys/fs/cgroup")
def cgroups_are_not_mounted(world: World) -> None:
    source_fails(world, "cgroup", "CGROUPS_ABSENT", absent=1)


@problem("CGROUPS_UNREADABLE", "AppArmor: apparmor=DENIED operation=open name=/sys/fs/cgroup/")
def cgroups_may_not_be_read(world: World) -> None:
    why = "/host/sys/fs/cgroup: Permission denied"
    asked_agent_fails(world, "cgroup", "CGROUPS_UNREADABLE", why, absent=True)


@problem("CGROUPS_UNKNOWN", "--cgroup-root set to kubepods.slice")
def cgroup_root_is_a_part(world: World) -> None:
    source_fails(world, "cgroup", "CGROUPS_UNKNOWN", absent=1)
