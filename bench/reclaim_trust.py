"""The labelled workloads of the trust bench through the whole machine: analyses, cases, store, calls.

The policy is the most eager one that there is: one idle window, no grace period, no budgets. What is not acted on here
is not acted on with any other policy.
"""

import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from msgspec import Struct

from bench import trust_feed
from bench.trust_case import BUSY, EITHER, IDLE, PREPARING, UNPROVEN, Case, Subject
from bench.trust_feed import World
from bench.trust_judge import truth_of
from bench.trust_measure import HOLES, PROMETHEUS, Service, say, service
from bench.trust_world import Gpu, Tenant

GONE = "gone"  # the pod has left: another one has its GPU
_LATE = 0.12  # share of the window by which the last look may be late
_ATTEMPTS = 4
_ANALYSES = 3
_QUIET = 4.0  # seconds
_POLICY = """
analyzer: {history: cases.db, kubeconfig: %s}
kube: {enabled: true}
control: {enabled: true, dry_run: false, api_url: "%s"}
reclaim:
  confirmations: 1
  grace: 0s
  min_pod_age: 0s
  include_held: true
  max_per_hour: 1000000
  max_per_namespace: 1000000
  max_fleet_share: 1
  protected_namespaces: []
  breaker: {share: 1, least: 1000000, calm: 1}
"""


_KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: bench
contexts: [{name: bench, context: {cluster: bench, user: bench}}]
clusters: [{name: bench, cluster: {server: "%s"}}]
users: [{name: bench, user: {token: none}}]
"""


class Taken(Struct, frozen=True, kw_only=True):
    """One workload, its truth, and whether it was acted on."""

    kind: str
    setup: str
    truth: str
    uid: bool  # the source reports the UID of its pod
    acted: bool


class TrustFigures(Struct, frozen=True, kw_only=True):
    """All workloads."""

    workloads: int
    acted: int
    wrong: int  # busy, preparing data, unproven or gone, and acted on
    without_uid: int  # acted on without a UID
    idle: int  # provably idle, and with a UID
    found: int  # of these, acted on
    calls: int
    wrong_kinds: tuple[str, ...] = ()
    missed_kinds: tuple[str, ...] = ()

    @property
    def recall(self) -> float:
        return self.found / self.idle if self.idle else 0.0


def run(*, quick: bool) -> TrustFigures:
    """Every world of the trust bench in a Prometheus, through a live analyzer."""
    found: list[Taken] = []
    calls = 0
    with tempfile.TemporaryDirectory(prefix="vgpuscope-reclaim-") as folder:
        for world in _worlds(quick=quick):
            some, sent = _in_time(world, Path(folder))
            found += some
            calls += sent
    return figures(found, calls)


def figures(found: list[Taken], calls: int) -> TrustFigures:
    wrong = [one for one in found if one.acted and one.truth in (BUSY, PREPARING, UNPROVEN, GONE)]
    idle = [one for one in found if one.truth == IDLE and one.uid]
    return TrustFigures(
        workloads=len(found),
        acted=sum(one.acted for one in found),
        wrong=len(wrong),
        without_uid=sum(one.acted and not one.uid for one in found),
        idle=len(idle),
        found=sum(one.acted for one in idle),
        calls=calls,
        wrong_kinds=tuple(sorted({f"{one.kind} ({one.setup}): {one.truth}" for one in wrong})),
        missed_kinds=tuple(sorted({f"{one.kind} ({one.setup})" for one in idle if not one.acted})),
    )


def _worlds(*, quick: bool) -> Iterator[World]:
    yield trust_feed.world("usual")
    if not quick:
        yield trust_feed.world("long", window=1800.0)
        for name in HOLES:
            yield trust_feed.world(name)


def _in_time(world: World, folder: Path) -> tuple[list[Taken], int]:
    say(f"reclaim: {world.name}, {len(world.cases)} cases")
    for attempt in range(_ATTEMPTS):
        path = folder / f"{world.name}-{attempt}"
        path.mkdir()
        lead = (6.0 + 0.07 * len(world.cases)) * 1.7**attempt
        with trust_feed.engine(PROMETHEUS, path / "prometheus") as url, _control() as control:
            now = time.time() + lead
            trust_feed.fill(url, world.cases, now)
            if time.time() > now:
                continue
            time.sleep(max(0.0, now - time.time()))
            acted = _acted(world, url, path, control)
            if time.time() < now + _LATE * world.window:
                return taken(world.cases, acted), len(control.received)
    raise SystemExit(f"bench: {world.name} could not be judged in time; is the machine busy?")


def _acted(world: World, url: str, path: Path, control: "Control") -> set[str]:
    """The workloads that the machine took GPUs from: by its own word, and by the calls that arrived."""
    settings = path / "settings.yaml"
    kubeconfig = path / "kubeconfig"
    kubeconfig.write_text(_KUBECONFIG % control.api)
    control.objects = dict(_objects(world.cases))
    settings.write_text(_POLICY % (kubeconfig, control.url))
    flags = ("--config", str(settings), "--prometheus-url", url, "--window-minutes", world.minutes)
    with service(path, *flags) as analyzer:
        for _ in range(_ANALYSES - 1):
            analyzer.analyse()
        quiet = Quiet()
        analyzer.wait(lambda: quiet.holds(_delivered(analyzer, control)))
    return {body["evidence"]["pod_uid"] for body in control.received}


def _delivered(analyzer: Service, control: "Control") -> bool:
    """Whether every case that was decided has had its calls."""
    cases = analyzer.get("/api/v1/reclaim?limit=10000")["cases"]
    wanted = {(case["id"], gpu) for case in cases if case["acted_at"] for gpu in case["gpu_ids"]}
    sent = {(body["evidence"]["pod_uid"], body["gpu_id"]) for body in control.received}
    return wanted == sent


class Quiet:
    """Whether something has held for a while: a world may have no case at all, and calls go out every second."""

    def __init__(self) -> None:
        self._since: float | None = None

    def holds(self, now: bool) -> bool:
        if not now:
            self._since = None
            return False
        self._since = self._since or time.monotonic()
        return time.monotonic() - self._since >= _QUIET


def taken(cases: list[Case], acted: set[str]) -> list[Taken]:
    """Every workload of every case."""
    return [one for case in cases for one in _of_case(case, acted)]


def _of_case(case: Case, acted: set[str]) -> Iterator[Taken]:
    holdings: dict[str, list[str]] = {}
    for gpu in case.gpus:
        for tenant, instance in _tenants(gpu):
            truth = truth_of(case, Subject(gpu.uuid, instance, tenant.pod)) if tenant.there(0.0) else GONE
            holdings.setdefault(tenant.uid, []).append(truth)
    for uid, truths in holdings.items():
        yield Taken(
            kind=case.kind.name, setup=case.setup.name, truth=_worst(truths), uid=case.agent, acted=uid in acted
        )


def _tenants(gpu: Gpu) -> Iterator[tuple[Tenant, str]]:
    yield from ((tenant, "") for tenant in gpu.tenants)
    yield from ((one.tenant, str(one.gi)) for one in gpu.instances)


def _worst(truths: list[str]) -> str:
    """The truth of a workload with several GPUs: it is idle only if all of them are."""
    return next(one for one in (BUSY, UNPROVEN, PREPARING, EITHER, GONE, IDLE) if one in truths)


def _objects(cases: list[Case]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What the Kubernetes API shows at the end of the window, by path: the pods with GPUs, and their namespaces."""
    spec = {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
    for gpu in (gpu for case in cases for gpu in case.gpus):
        for tenant in (tenant for tenant, _ in _tenants(gpu) if tenant.there(0.0)):
            meta = {"name": tenant.pod, "namespace": tenant.namespace, "uid": tenant.uid}
            place = f"/api/v1/namespaces/{tenant.namespace}"
            yield place, {"kind": "Namespace", "metadata": {"name": tenant.namespace, "uid": tenant.namespace}}
            yield f"{place}/pods/{tenant.pod}", {"kind": "Pod", "metadata": meta, "spec": spec | {"nodeName": gpu.node}}


class Control:
    """A control service that accepts and remembers every call, and an API server that shows who holds GPUs."""

    def __init__(self, api: str) -> None:
        self.api, self.url = api, f"{api}/api/optimize"
        self.received: list[dict[str, Any]] = []
        self.objects: dict[str, dict[str, Any]] = {}


@contextmanager
def _control() -> Iterator[Control]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            control.received.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def do_GET(self) -> None:
            found = control.objects.get(self.path)
            self.send_response(404 if found is None else 200)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(found or {"kind": "Status", "message": "not found"}).encode())

        def log_message(self, *_: object) -> None:
            """Calls are counted, not logged."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    control = Control(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield control
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
