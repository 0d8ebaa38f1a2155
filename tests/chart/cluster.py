"""A cluster as `helm install` finds it: objects of any kind, tokens of service accounts, nodes, and a kubelet."""

import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec

from tests.chart.helmrun import CHART, CRDS, helm
from tests.controlplane import WITHIN, ApiError, ControlPlane, node, until

Object = dict[str, Any]


class Cluster:
    """A control plane, and what the tests of the chart do with it."""

    def __init__(self, plane: ControlPlane, audit_log: Path) -> None:
        self.plane, self.audit_log = plane, audit_log
        self.call = plane.call

    # --- objects of any kind ------------------------------------------------------------------------------------------

    def path(self, item: Object) -> str:
        """The path of an object, by what the server says of its kind."""
        version, meta = item["apiVersion"], item["metadata"]
        plural, namespaced = self._kinds(version)[item["kind"]]
        where = f"namespaces/{meta['namespace']}/" if namespaced else ""
        return f"/{'apis' if '/' in version else 'api'}/{version}/{where}{plural}"

    @cache  # noqa: B019 - one for a session
    def _kinds(self, version: str) -> dict[str, tuple[str, bool]]:
        found = self.call("GET", f"/{'apis' if '/' in version else 'api'}/{version}")["resources"]
        return {one["kind"]: (one["name"], one["namespaced"]) for one in found if "/" not in one["name"]}

    def create(self, item: Object, **params: str) -> Object:
        return self.call("POST", self.path(item), item, params=params)

    def get(self, item: Object) -> Object | None:
        """The object as the server has it now."""
        try:
            return self.call("GET", f"{self.path(item)}/{item['metadata']['name']}")
        except ApiError as e:
            if e.status != 404:
                raise
            return None

    def all(self, api: str, namespace: str) -> list[Object]:
        """All of a kind in a namespace: all("apps/v1/deployments", "ml")."""
        version, _, plural = api.rpartition("/")
        root = "apis" if "/" in version else "api"
        return self.call("GET", f"/{root}/{version}/namespaces/{namespace}/{plural}")["items"]

    def define(self, definitions: Iterable[Object]) -> None:
        """Custom resources; they are served when this returns."""
        for item in definitions:
            if self.get(item) is None:
                self.create(item)
            until(partial(self._established, item))
            until(partial(self._discovered_whole, item))
            spec = item["spec"]
            for version in spec["versions"]:
                path = f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}"
                until(partial(self._served, path))

    def discovered(self, item: Object) -> list[str]:
        """The versions of a custom resource that the server lists, as Helm asks; the list follows a moment later."""
        spec, found = item["spec"], []
        for version in (one["name"] for one in spec["versions"]):
            with contextlib.suppress(ApiError):
                kinds = self.call("GET", f"/apis/{spec['group']}/{version}")["resources"]
                found += [version] if spec["names"]["plural"] in {one["name"] for one in kinds} else []
        return found

    def _discovered_whole(self, item: Object) -> bool:
        return len(self.discovered(item)) == len(item["spec"]["versions"])

    def _established(self, item: Object) -> bool:
        now = self.get(item) or {}
        conditions = now.get("status", {}).get("conditions") or ()
        return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

    def _served(self, path: str) -> bool:
        try:
            self.call("GET", path)
        except ApiError:
            return False
        return True

    def operators(self) -> None:
        """The custom resources of the Prometheus Operator and of the Gateway API."""
        self.define(msgspec.yaml.decode(file.read_bytes()) for file in sorted(CRDS.glob("*.yaml")))

    def namespace(self, name: str, labels: Mapping[str, str] | None = None) -> str:
        item = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels or {})}}
        if self.get(item) is None:
            self.create(item)
        return name

    # --- Helm ---------------------------------------------------------------------------------------------------------

    def helm(self, *words: str, namespace: str, values: Mapping[str, Any] | None = None) -> str:
        """One command that must succeed; its output."""
        done = helm(*words, "--namespace", namespace, "--kubeconfig", self.plane.kubeconfig, values=values)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def install(
        self, release: str, namespace: str, values: Mapping[str, Any], *flags: str, chart: Path = CHART
    ) -> list[Object]:
        """Installs the chart and returns the objects of the release."""
        self.namespace(namespace)
        self.helm("install", release, str(chart), *flags, namespace=namespace, values=values)
        return self.objects(release, namespace)

    def objects(self, release: str, namespace: str) -> list[Object]:
        """The objects of a release, by Helm's own record."""
        text = self.helm("get", "manifest", release, namespace=namespace)
        return [msgspec.yaml.decode(part) for part in text.split("\n---\n") if part.strip()]

    def notes(self, release: str, namespace: str) -> str:
        return self.helm("get", "notes", release, namespace=namespace)

    # --- service accounts ---------------------------------------------------------------------------------------------

    def kubeconfig(self, account: str, namespace: str) -> str:
        """Of a pod with this service account."""
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        return self.plane.kubeconfig_of(f"{namespace}-{account}", self.call("POST", path, asked)["status"]["token"])

    # --- nodes --------------------------------------------------------------------------------------------------------

    def add_node(self, name: str, labels: Mapping[str, str], annotations: Mapping[str, str] | None = None) -> None:
        made = node(name, annotations=annotations)
        made["metadata"]["labels"] |= labels
        made["apiVersion"] = "v1"
        if self.get(made) is None:
            self.create(made)

    @contextmanager
    def running(self) -> Iterator["Kubelets"]:
        """Scheduler, controllers and kubelets for as long as the block lasts."""
        with (
            self.plane.scheduler(),
            self.plane.controllers(*(f"{name}-controller" for name in _CONTROLLERS)),
            Kubelets(self) as kubelets,
        ):
            yield kubelets


_CONTROLLERS = (
    "deployment",
    "replicaset",
    "statefulset",
    "job",
    "daemonset",
    "endpointslice",
    "garbage-collector",
    "disruption",
    "persistentvolume-binder",
)


class Kubelets:
    """Starts and ends the containers of all nodes, as far as the API server can tell."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ended = threading.Event()
        self._error: Exception | None = None
        self._addresses: dict[str, str] = {}
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> "Kubelets":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(WITHIN)
        if self._error:
            raise self._error

    def _work(self) -> None:
        while not self._ended.wait(0.1):  # between two looks, not in place of one
            try:
                for pod in self._cluster.call("GET", "/api/v1/pods")["items"]:
                    self._look_at(pod)
            except Exception as e:
                self._error = e
                return

    def _look_at(self, pod: Object) -> None:
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        try:
            if not pod["spec"].get("nodeName"):
                return
            if "deletionTimestamp" in meta:
                self._cluster.call("DELETE", path, params={"gracePeriodSeconds": "0"})
            elif pod["status"].get("phase") != "Running":
                self._cluster.call("PATCH", f"{path}/status", {"status": self._started(pod)})
        except ApiError as e:
            if e.status not in {404, 409}:  # somebody else was quicker
                raise

    def _started(self, pod: Object) -> Object:
        address = self._addresses.setdefault(pod["metadata"]["uid"], f"10.244.0.{len(self._addresses) + 10}")
        now = pod["metadata"]["creationTimestamp"]
        ready = ({"type": kind, "status": "True", "lastTransitionTime": now} for kind in ("Ready", "ContainersReady"))
        containers = [
            {
                "name": one["name"],
                "image": one["image"],
                "imageID": "",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": now}},
            }
            for one in pod["spec"]["containers"]
        ]
        return {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "hostIP": "10.0.0.1",
            "startTime": now,
            "conditions": [*pod["status"].get("conditions", []), *ready],
            "containerStatuses": containers,
        }


def ready(pod: Object) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ()))


def definition(group: str, version: str, kind: str, plural: str) -> Object:
    """A custom resource that accepts everything."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    versions = [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}]
    names = {"kind": kind, "plural": plural, "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": versions},
    }
