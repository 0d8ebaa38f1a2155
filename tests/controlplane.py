"""A real Kubernetes control plane on loopback: etcd, kube-apiserver; scheduler and controllers when asked for.

    def test_something(empty_cluster):
        kubeconfig = empty_cluster.user("agent", {"pods": ["list", "watch"]})
        empty_cluster.create(pod("train", node="node-a"))
        empty_cluster.patch("pods", "train", {"status": {"phase": "Running"}}, namespace="ml", subresource="status")

There is no kubelet, and no controller unless a test starts some: a pod is where its spec.nodeName says, its status is
what a test makes it, and nothing happens by itself. The programs come from tools/controlplane/build. Tests that use it
share one control plane: they belong into tests/contract, which one worker runs.
"""

import base64
import json
import os
import secrets
import shutil
import ssl
import subprocess
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
import trustme

from tests.ports import free_port
from tests.waiting import wait_until

BUILD = Path(__file__).parents[1] / "tools" / "controlplane" / "build"
WITHIN = 120.0  # seconds: how long a start may take on a busy machine

Object = dict[str, Any]


class ApiError(Exception):
    """The API server refused."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status} {message}")
        self.status = status


class ControlPlane:
    """A running control plane; what it leaves behind is removed when it ends."""

    def __init__(self, path: Path, programs: Path, *flags: str) -> None:
        self.path, self._programs, self._flags = path, programs, flags
        self._cleanup = ExitStack()
        self._apiserver: subprocess.Popen | None = None
        self._extra_flags: tuple[str, ...] = ()

    def __enter__(self) -> "ControlPlane":
        with ExitStack() as unless_started:
            unless_started.callback(self._cleanup.close)
            self._start()
            unless_started.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def _start(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        self._cleanup.callback(shutil.rmtree, self.path, ignore_errors=True)
        authority = trustme.CA()
        self._authority, self._certificate, self._key = (self.path / name for name in ("ca.crt", "tls.crt", "tls.key"))
        authority.cert_pem.write_to_path(self._authority)
        own = authority.issue_cert("127.0.0.1")
        own.cert_chain_pems[0].write_to_path(self._certificate)
        own.private_key_pem.write_to_path(self._key)
        self.token = secrets.token_hex(16)
        (self.path / "tokens.csv").write_text(f'{self.token},admin,admin,"system:masters"\n')
        self.url = f"https://127.0.0.1:{free_port()}"
        self.etcd_url = f"http://127.0.0.1:{free_port()}"
        self.kubeconfig = self.kubeconfig_of("admin", self.token)
        self._http = httpx2.Client(verify=_trusting(self._authority), timeout=30.0)
        self._cleanup.callback(self._http.close)
        self._group = self._cleanup.enter_context(_group_that_falls_with_us())
        etcd = self._run("etcd", *self._etcd_flags())
        self._cleanup.callback(_end, etcd)
        self._cleanup.callback(self.stop_apiserver)
        self._until(etcd, lambda: self._etcd("maintenance/status", {}), "etcd")
        self.start_apiserver()

    # --- the processes ------------------------------------------------------------------------------------------------

    def start_apiserver(self, *flags: str) -> None:
        """Returns when it is ready."""
        assert self._apiserver is None
        self._extra_flags = flags
        self._apiserver = self._run("kube-apiserver", *self._flags_of_apiserver(), *flags)
        self._until(self._apiserver, lambda: self.call("GET", "/readyz"), "kube-apiserver")

    def stop_apiserver(self) -> None:
        """At once: connections are cut in the middle of whatever they carry."""
        if self._apiserver is not None:
            _end(self._apiserver)
            self._apiserver = None

    def restart_apiserver(self, *flags: str) -> None:
        """The same server at the same address, with these flags beside the usual ones."""
        self.stop_apiserver()
        self.start_apiserver(*flags)

    @contextmanager
    def scheduler(self, configuration: Mapping[str, Any] | None = None) -> Iterator[None]:
        """A kube-scheduler for as long as the block lasts, with this KubeSchedulerConfiguration."""
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": self.kubeconfig},
            "leaderElection": {"leaderElect": False},
            **(configuration or {}),
        }
        file, port = self.path / "scheduler.json", free_port()
        file.write_text(json.dumps(config))
        address = ("--bind-address=127.0.0.1", f"--secure-port={port}", f"--cert-dir={self.path / 'scheduler'}")
        process = self._run("kube-scheduler", f"--config={file}", *address)
        try:
            with httpx2.Client(verify=False) as http:
                ready = f"https://127.0.0.1:{port}/readyz"
                self._until(process, lambda: http.get(ready).raise_for_status(), "kube-scheduler")
            yield
        finally:
            _end(process)

    @contextmanager
    def controllers(self, *names: str) -> Iterator[None]:
        """A kube-controller-manager with these controllers for as long as the block lasts."""
        port = free_port()
        flags = [f"--kubeconfig={self.kubeconfig}", f"--controllers={','.join(names)}", "--leader-elect=false"]
        flags += ["--bind-address=127.0.0.1", f"--secure-port={port}", f"--cert-dir={self.path / 'controllers'}"]
        process = self._run("kube-controller-manager", *flags)
        try:
            with httpx2.Client(verify=False) as http:
                ready = f"https://127.0.0.1:{port}/healthz"
                self._until(process, lambda: http.get(ready).raise_for_status(), "kube-controller-manager")
            yield
        finally:
            _end(process)

    def _run(self, program: str, *flags: str) -> subprocess.Popen:
        with (self.path / f"{program}.log").open("a") as log:
            command = [str(self._programs / program), *flags]
            return subprocess.Popen(command, stdout=log, stderr=log, process_group=self._group.pid)

    def _until(self, process: subprocess.Popen, ready: Callable[[], object], program: str) -> None:
        def log() -> str:
            return f"{program}:\n{(self.path / f'{program}.log').read_text()[-4000:]}"

        def is_ready() -> bool:
            assert process.poll() is None, log()
            return _succeeds(ready)

        wait_until(is_ready, within=WITHIN, every=0.05, why=log)

    def _etcd_flags(self) -> list[str]:
        peer = f"http://127.0.0.1:{free_port()}"
        return [
            f"--data-dir={self.path / 'etcd'}",
            f"--listen-client-urls={self.etcd_url}",
            f"--advertise-client-urls={self.etcd_url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",  # nothing here outlives the tests
            "--log-level=warn",
        ]

    def _flags_of_apiserver(self) -> list[str]:
        return [
            f"--etcd-servers={self.etcd_url}",
            "--etcd-compaction-interval=0",  # the tests say when
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self.url.rpartition(':')[2]}",
            f"--tls-cert-file={self._certificate}",
            f"--tls-private-key-file={self._key}",
            f"--token-auth-file={self.path / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._key}",
            f"--service-account-signing-key-file={self._key}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--endpoint-reconciler-type=none",
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",  # both wait for controllers
            "--enable-priority-and-fairness=false",
            "--delete-collection-workers=8",
            *self._flags,
        ]

    # --- who may do what ----------------------------------------------------------------------------------------------

    def user(self, name: str, rights: Mapping[str, Sequence[str]] | None = None) -> str:
        """The kubeconfig of a service account with these rights: {"pods": ["list"], "leases.coordination.k8s.io": …}.

        They hold when this returns. A name that comes again gets these rights and loses the others. The server learns
        of the role by a watch of its own; one right more, of this call alone, shows that it has read this version.
        """
        rules = [
            {"apiGroups": [group], "resources": [kind], "verbs": list(verbs)}
            for resource, verbs in (rights or {}).items()
            for kind, _, group in [resource.partition(".")]
        ]
        subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
        mark = {"apiGroups": ["tests.vgpuscope.io"], "resources": [secrets.token_hex(8)], "verbs": ["get"]}
        bound = {"kind": "ClusterRoleBinding", "metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
        for same in (bound, {"kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}}):
            with _except_for(409):
                self.create(same)
        self._replace({"kind": "ClusterRole", "metadata": {"name": name}, "rules": [*rules, mark]})
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        answer = self.call("POST", f"/api/v1/namespaces/default/serviceaccounts/{name}/token", asked)
        token = answer["status"]["token"]
        self._until_allowed(token, mark)
        return self.kubeconfig_of(name, token)

    def kubeconfig_of(self, name: str, token: str) -> str:
        """Writes a kubeconfig that says this token, right or wrong."""
        cluster = {"server": self.url, "certificate-authority": str(self._authority)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "loopback",
            "contexts": [{"name": "loopback", "context": {"cluster": "loopback", "user": name}}],
            "clusters": [{"name": "loopback", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token}}],
        }
        path = self.path / f"{name}.kubeconfig"
        path.write_text(json.dumps(config))
        return str(path)

    def _replace(self, item: Object) -> None:
        kind, meta = _PLURAL[item["kind"]], item["metadata"]
        with _except_for(404):
            self.delete(kind, meta["name"], namespace=meta.get("namespace"))
        self.create(item)

    def _until_allowed(self, token: str, rule: Object) -> None:
        review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        asked = {"verb": rule["verbs"][-1], "resource": rule["resources"][0], "group": rule["apiGroups"][0]}
        body: Object = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        body["spec"] = {"resourceAttributes": asked}
        until(lambda: self.call("POST", review, body, token=token)["status"]["allowed"])

    # --- objects ------------------------------------------------------------------------------------------------------

    def create(self, item: Object) -> Object:
        """Creates the object, and its namespace if need be; the answer has its uid and version."""
        kind = _PLURAL[item["kind"]]
        path = _path(kind, namespace=item["metadata"].get("namespace"))
        body = {"apiVersion": _KINDS[kind].group_version, **item}
        try:
            return self.call("POST", path, body)
        except ApiError as e:
            if e.status != 404 or "namespaces" not in path:
                raise
        self.namespace(item["metadata"]["namespace"])
        return self.call("POST", path, body)

    def create_all(self, items: Iterable[Object], *, at_once: int = 8) -> list[Object]:
        """Creates many objects through the API, several at a time."""
        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(self.create, items))

    def namespace(self, name: str) -> None:
        """Makes sure that it exists; there is no controller that could remove one."""
        with _except_for(409):
            self.create({"kind": "Namespace", "metadata": {"name": name}})

    def get(self, kind: str, name: str, *, namespace: str | None = None) -> Object:
        return self.call("GET", _path(kind, name, namespace=namespace))

    def list(self, kind: str, *, namespace: str | None = None, **params: str) -> list[Object]:
        """All of a kind, of all namespaces unless one is named, as they are at this moment."""
        return self.call("GET", _path(kind, namespace=namespace), params=params)["items"]

    def patch(
        self, kind: str, name: str, change: Object, *, namespace: str | None = None, subresource: str = ""
    ) -> Object:
        """A merge patch: null removes a field, a list replaces the whole list."""
        return self.call("PATCH", _path(kind, name, namespace=namespace, subresource=subresource), change)

    def delete(self, kind: str, name: str, *, namespace: str | None = None) -> None:
        """At once: nobody is here to end containers gracefully."""
        self.call("DELETE", _path(kind, name, namespace=namespace), params={"gracePeriodSeconds": "0"})

    def clear(self) -> None:
        """Removes all objects of the kinds that tests make, past the API server: thousands cost no time."""
        for kind in _CLEARED:
            prefix = f"/registry/{_STORED_AS.get(kind, kind)}"
            self._etcd("kv/deleterange", {"key": _base64(f"{prefix}/"), "range_end": _base64(f"{prefix}0")})

            def gone(kind: str = kind) -> bool:
                return not self.list(kind, resourceVersion="0")

            until(gone)  # what the server has in memory follows

    def reset(self, *flags: str) -> None:
        """As it was after the start, whatever a test did to it, with these flags beside the usual ones.

        A server that has these flags goes on: a start costs several seconds.
        """
        if self._apiserver is None or self._apiserver.poll() is not None or self._extra_flags != flags:
            self.restart_apiserver(*flags)
        self.clear()

    def seed(self, items: Iterable[Object]) -> None:
        """Puts objects of the API's v1 into etcd past the API server: fast, and nothing is checked or defaulted.

        The server sees them by its own watch, as it sees what another server wrote. Each is a put of its own, because
        to Kubernetes a revision is one change: of several in one, a watch that is resumed may miss some.
        """
        import grpc

        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        with grpc.insecure_channel(self.etcd_url.removeprefix("http://")) as channel:
            put = channel.unary_unary("/etcdserverpb.KV/Put")
            under_way: deque[grpc.Future] = deque()
            for item in items:
                under_way.append(put.future(_put_request(item, now)))
                if len(under_way) > 200:
                    under_way.popleft().result()
            for answer in under_way:
                answer.result()

    def compact(self) -> int:
        """Makes etcd forget everything before its current revision, which is returned.

        An API server answers for what it saw since it started from its own memory: only after a restart, or with
        --watch-cache-sizes=pods#0, does it say 410.
        """
        revision = int(self._etcd("maintenance/status", {})["header"]["revision"])
        self._etcd("kv/compaction", {"revision": revision, "physical": True})
        return revision

    def call(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        params: Mapping[str, str] | None = None,
        token: str | None = None,
    ) -> Any:
        """One request as the admin, or with the token: JSON, or text (also of a watch); ApiError unless it succeeds."""
        media = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"authorization": f"Bearer {token or self.token}", "content-type": media}
        answer = self._http.request(
            method,
            self.url + path,
            params=dict(params or {}),
            headers=headers,
            content=json.dumps(body) if body else None,
        )
        return _content(answer)

    def _etcd(self, call: str, body: Object) -> Any:
        return _content(self._http.post(f"{self.etcd_url}/v3/{call}", content=json.dumps(body)))


def pod(
    name: str,
    *,
    node: str | None = None,
    namespace: str = "ml",
    containers: Sequence[str] = ("main",),
    limits: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: object,
) -> Object:
    """A pod as a user writes it, bound to a node if one is named; each container has the limits."""
    resources = {"limits": dict(limits)} if limits else {}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": dict(annotations or {})},
        "spec": {
            "containers": [{"name": c, "image": "none", "resources": resources} for c in containers],
            **({"nodeName": node} if node else {}),
            **spec,
        },
    }


def node(
    name: str, *, capacity: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None
) -> Object:
    """A node that a scheduler accepts pods for."""
    room = {"cpu": "64", "memory": "512Gi", "pods": "250", **(capacity or {})}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
    return {
        "kind": "Node",
        "metadata": {"name": name, "annotations": dict(annotations or {}), "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": room, "allocatable": room, "conditions": [ready]},
    }


def until(condition: Callable[[], object], *, within: float = WITHIN) -> None:
    """Returns as soon as the condition holds."""
    wait_until(condition, within=within)


# --- for pytest -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One control plane for all tests of a session; they see what others left."""
    with ControlPlane(tmp_path_factory.mktemp("controlplane"), programs_or_skip()) as plane:
        yield plane


@pytest.fixture
def empty_cluster(control_plane: ControlPlane) -> ControlPlane:
    """The control plane without any object of an earlier test."""
    control_plane.reset()
    return control_plane


# what a test's path starts with, and what its worker has to start for it; the first that fits counts
_TOGETHER = (
    ("contract/test_gpu_oour_defects", "Prometheus of gpu-oour"),
    ("contract/test_postgres", "PostgreSQL"),
    ("contract/test_analyzer_replicas", "PostgreSQL"),
    ("contract/test_doctor_problems", "parts with problems"),
    ("attack/test_admission", "control plane, Prometheus"),
    ("attack/test_fuzzing_tenant", "control plane, Prometheus"),
    ("contract", "control plane, Prometheus"),
    ("chart", "control plane of the chart"),
    ("console", "browser and demo"),
    ("dashboards", "demo and Prometheus"),
    ("seeds/test_handbook_kubectl", "control plane of the chart"),
    ("seeds/test_hami", "demo under the handbook's names"),
    ("release", "image"),
    ("sim/test_usual_demo", "demo"),
    ("repo/test_site", "site"),
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """With --dist loadgroup tests that share a server run in one worker, so that it starts once there.

    xdist 3.8 loses the groups of xdist_group under pytest 9.2 (pytest-dev/pytest-xdist#1386), and says nothing.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ServersOnce(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((scope for start, scope in _TOGETHER if nodeid.startswith(f"tests/{start}")), nodeid)

    return ServersOnce(config, log) if config.getvalue("dist") == "loadgroup" else None


def programs_or_skip() -> Path:
    """Where the programs are; where they were not built a developer's test is skipped, but CI fails."""
    found = subprocess.run([BUILD, "--find"], capture_output=True, text=True, check=False)
    if found.returncode == 0:
        return Path(found.stdout.strip())
    if os.environ.get("CI") == "true":
        pytest.fail(f"no control plane in CI: {found.stdout.strip()}{found.stderr.strip()}")
    pytest.skip(found.stdout.strip() or found.stderr.strip())


# --- small parts ------------------------------------------------------------------------------------------------------


class _Kind(NamedTuple):
    kind: str
    group_version: str
    namespaced: bool


_RBAC = "rbac.authorization.k8s.io/v1"
_KINDS = {
    "pods": _Kind("Pod", "v1", True),
    "nodes": _Kind("Node", "v1", False),
    "namespaces": _Kind("Namespace", "v1", False),
    "events": _Kind("Event", "v1", True),
    "resourcequotas": _Kind("ResourceQuota", "v1", True),
    "serviceaccounts": _Kind("ServiceAccount", "v1", True),
    "clusterroles": _Kind("ClusterRole", _RBAC, False),
    "clusterrolebindings": _Kind("ClusterRoleBinding", _RBAC, False),
    "resourceslices": _Kind("ResourceSlice", "resource.k8s.io/v1", False),
    "resourceclaims": _Kind("ResourceClaim", "resource.k8s.io/v1", True),
    "deviceclasses": _Kind("DeviceClass", "resource.k8s.io/v1", False),
    "leases": _Kind("Lease", "coordination.k8s.io/v1", True),
}
_PLURAL = {found.kind: plural for plural, found in _KINDS.items()}
_CLEARED = (
    "pods",
    "nodes",
    "events",
    "resourcequotas",
    "resourceslices",
    "resourceclaims",
    "deviceclasses",
    "leases",
)
_STORED_AS = {"nodes": "minions"}


def _path(kind: str, name: str = "", *, namespace: str | None = None, subresource: str = "") -> str:
    found = _KINDS[kind]
    root = "api" if "/" not in found.group_version else "apis"
    where = ["namespaces", namespace] if found.namespaced and namespace else []
    return "/".join(["", root, found.group_version, *where, kind, *filter(None, (name, subresource))])


def _content(answer: httpx2.Response) -> Any:
    if answer.is_success:
        whole = "json" in answer.headers.get("content-type", "") and answer.request.url.params.get("watch") is None
        return answer.json() if whole else answer.text
    try:
        message = answer.json()["message"]
    except (ValueError, KeyError, TypeError):
        message = answer.text[:200]
    raise ApiError(answer.status_code, message)


def _succeeds(request: Callable[[], object]) -> bool:
    try:
        request()
    except (httpx2.HTTPError, ApiError):
        return False
    return True


@contextmanager
def _except_for(status: int) -> Iterator[None]:
    """Lets this one refusal pass."""
    try:
        yield
    except ApiError as e:
        if e.status != status:
            raise


def _trusting(authority: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority))


@contextmanager
def _group_that_falls_with_us() -> Iterator[subprocess.Popen]:
    """The leader of a process group that is killed when its input ends, which it does even when we are killed."""
    leader = subprocess.Popen(["sh", "-c", "read -r _; kill -KILL 0"], stdin=subprocess.PIPE, process_group=0)
    with leader:
        yield leader


def _end(process: subprocess.Popen) -> None:
    process.kill()
    process.wait()


def _put_request(item: Object, now: str) -> bytes:
    """An etcdserverpb.PutRequest: field 1 is the key, field 2 the value."""
    kind = _PLURAL[item["kind"]]
    meta = {"uid": str(uuid.uuid4()), "creationTimestamp": now, **item["metadata"]}
    key = "/".join(filter(None, ("/registry", _STORED_AS.get(kind, kind), meta.get("namespace"), meta["name"])))
    value = json.dumps({"apiVersion": "v1", **item, "metadata": meta})
    return _bytes_field(1, key.encode()) + _bytes_field(2, value.encode())


def _bytes_field(number: int, data: bytes) -> bytes:
    length, rest = bytearray(), len(data)
    while rest > 0x7F:
        length.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([number << 3 | 2, *length, rest]) + data


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
