"""HAMi in the cluster, as far as it can be had here: a model of its scheduler under a kube-scheduler, its plugin."""

import contextlib
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from ssl import create_default_context
from typing import Any

from tests.e2e.product import Product
from tests.native.scenario import gpu_uuid
from tests.ports import free_port
from tests.standins.hamiplugin import HamiPlugin
from tools.cluster import layout, pki
from tools.cluster.cluster import connects

NAMESPACE, ACCOUNT = "hami-system", "hami"
SCHEDULER = "hami-scheduler"
TOTAL = 40 * 1024  # MiB of each GPU
RESOURCES = ("gpu", "gpumem", "gpumem-percentage", "gpucores", "priority")


class Hami:
    """Its account, its Deployment, and its programs on this machine."""

    def __init__(self, product: Product, path: Path) -> None:
        self._product, self._path = product, path
        self._trust = create_default_context(cafile=str(layout.PKI / "ca.crt"))
        cluster = product.cluster
        subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        cluster.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": NAMESPACE}},
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "hami"},
                "roleRef": role,
                "subjects": [subject],
            },
            _deployment(),
        )
        self._token = cluster.kubectl("-n", NAMESPACE, "create", "token", ACCOUNT, "--duration=4h").stdout.strip()
        self._kubeconfig = path / "hami.kubeconfig"
        authority = {"server": layout.API, "certificate-authority": str(layout.PKI / "ca.crt")}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": authority}],
            "users": [{"name": "u", "user": {"token": self._token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }
        self._kubeconfig.write_text(json.dumps(config))

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """A request with HAMi's own account."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/merge-patch+json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(layout.API + path, data=data, headers=headers, method=method)
        with urllib.request.urlopen(request, context=self._trust, timeout=60) as answer:
            return json.loads(answer.read())

    @contextlib.contextmanager
    def plugin(self) -> Iterator[None]:
        """HAMi's plugin on the node, with three GPUs."""
        gpus = {gpu_uuid(slot): TOTAL for slot in (0, 1, 2)}
        kubelet = layout.KUBELET / "device-plugins"
        with HamiPlugin(self.call, node=layout.NODE, gpus=gpus, kubelet=kubelet, hook=layout.HOOK):
            yield

    @contextlib.contextmanager
    def scheduler(self) -> Iterator[None]:
        """HAMi's scheduler: a kube-scheduler and the program that it asks. Its Deployment has a replica meanwhile."""
        pki.issue("hami", ("localhost", "127.0.0.1"))
        port = free_port()
        extender = {
            "urlPrefix": f"https://127.0.0.1:{port}",
            "filterVerb": "filter",
            "bindVerb": "bind",
            "weight": 1,
            "enableHTTPS": True,
            "nodeCacheCapable": True,
            "httpTimeout": "30s",
            "tlsConfig": {"insecure": True},
            "managedResources": [{"name": f"nvidia.com/{name}", "ignoredByScheduler": True} for name in RESOURCES],
        }
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(self._kubeconfig)},
            "leaderElection": {"leaderElect": False},
            "profiles": [{"schedulerName": SCHEDULER}],
            "extenders": [extender],
        }
        file = self._path / "kube-scheduler.json"
        file.write_text(json.dumps(config))
        asked = [
            *(sys.executable, "-m", "tests.standins.hamischeduler", f"--http_bind=127.0.0.1:{port}"),
            *(f"--cert_file={layout.PKI}/hami.crt", f"--key_file={layout.PKI}/hami.key"),
            *(f"--metrics-bind-address=127.0.0.1:{free_port()}", f"--scheduler-name={SCHEDULER}"),
            "--device-config-file=/dev/null",
        ]
        asking = [
            *(str(self._product.cluster.control_plane / "kube-scheduler"), f"--config={file}"),
            *("--bind-address=127.0.0.1", f"--secure-port={free_port()}", f"--cert-dir={self._path}"),
        ]
        self._scale(1)
        environ = {**os.environ, "KUBECONFIG": str(self._kubeconfig)}
        with (self._path / "hami.log").open("a") as log, contextlib.ExitStack() as stack:
            for command in (asked, asking):
                program = subprocess.Popen(command, env=environ, stdout=log, stderr=log, cwd=layout.REPOSITORY)
                stack.callback(program.wait)
                stack.callback(program.terminate)
            self._product.wait("HAMi's scheduler", lambda: connects("127.0.0.1", port))
            yield
        self._scale(0)

    def _scale(self, replicas: int) -> None:
        words = ("-n", NAMESPACE, "scale", f"deployment/{SCHEDULER}", f"--replicas={replicas}")
        self._product.cluster.kubectl(*words)
        if replicas:
            ready = ("--for=condition=Available", f"deployment/{SCHEDULER}", "--timeout=120s")
            self._product.cluster.kubectl("-n", NAMESPACE, "wait", *ready)

    def remove(self) -> None:
        self._product.cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=120s")
        self._product.cluster.kubectl("delete", "clusterrolebinding", "hami")


def _deployment() -> dict[str, Any]:
    """What Helm and users see of HAMi's scheduler; the program itself runs on this machine."""
    container = {"name": "main", "image": layout.WORK_IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "86400"]}
    labels = {"app.kubernetes.io/component": "hami-scheduler"}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": SCHEDULER, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
