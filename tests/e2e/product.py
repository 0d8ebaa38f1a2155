"""The product in the cluster, and what tests compare it with: the driver, the kubelet, containerd, the API server."""

import json
import os
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
from prometheus_client.parser import text_string_to_metric_families

from tests.formats.test_podresources import pb
from tests.native.scenario import GIB, Scenario, gpu_uuid
from tools.cluster import layout
from tools.cluster.cluster import WITHIN, Cluster
from tools.cluster.containers import Container, running

NAMESPACE = "vgpuscope"
CHART = os.environ.get("VGPUSCOPE_E2E_CHART") or str(layout.REPOSITORY / "charts" / "vgpuscope")
GPUS = 4
MIG_SLOT = 3  # this GPU is divided; the others are whole
IDLE = {
    **dict.fromkeys(("memory_used", "utilization", "memory_controller", "encoder", "decoder", "jpeg", "ofa"), 0),
    "power": 56_000,
    "pcie_sent": 0,
    "pcie_received": 0,
}
SHARES = 3 * 10 + 2  # ten of each whole GPU, and one of each MIG instance


@dataclass
class Product:
    """The installed chart; the scenario of the driver that all its services read."""

    cluster: Cluster
    forced: set[str] = field(default_factory=set)  # pods deleted by force: their containers may outlive their claims
    driver: Scenario = field(default_factory=lambda: Scenario(layout.DRIVER / "state" / "state"))

    # --- installation -------------------------------------------------------------------------------------------------

    def with_gpus(self) -> "Product":
        """Three whole GPUs and one that is divided into two MIG instances, without a process."""
        for slot in range(GPUS):
            self.driver.gpu(slot, memory_total=40 * GIB, **IDLE).empty(slot)
        self.driver.mig(
            MIG_SLOT, 0, gi=1, profile="3g.20gb", slices=3, memory_total=20 * GIB, memory_used=0, placed=(9, 0)
        )
        self.driver.mig(
            MIG_SLOT, 1, gi=9, profile="1g.5gb", slices=1, memory_total=5 * GIB, memory_used=0, placed=(19, 4)
        )
        self.driver.write()
        return self

    def installed(self) -> "Product":
        """`helm install` as README has it; returns when Helm says that everything is ready."""
        self.cluster.kubectl("label", "node", layout.NODE, "gpu=on")
        self.cluster.helm(
            *("install", "vgpuscope", CHART, "--namespace", NAMESPACE, "--create-namespace", "--wait"),
            *("--timeout", "10m", "--set", f"image.repository={layout.PRODUCT_REPOSITORY}"),
        )
        return self

    def upgraded(self, *settings: str, values: Mapping[str, Any] | None = None, chart: str = CHART) -> None:
        """`helm upgrade` as docs/install.md has it."""
        words = [word for setting in settings for word in ("--set", setting)]
        words += ["--set-json", json.dumps(values)] if values else []
        self.cluster.helm(
            *("upgrade", "vgpuscope", chart, "--namespace", NAMESPACE, "--reset-then-reuse-values", "--wait"),
            *("--timeout", "10m", *words),
        )

    def scheduling(self) -> None:
        """Also the extender and the device plugin, with HAMi's library on the node."""
        library = layout.HOOK / "libvgpu.so"
        subprocess.run(["cc", "-shared", "-x", "c", "/dev/null", "-o", library], check=True)
        self.cluster.kubectl("label", "node", layout.NODE, "vgpuscope.io/plugin=on", "--overwrite")
        self.upgraded("extender.enabled=true", "plugin.enabled=true")
        self.wait("shares of the node", self.allocatable)

    # --- what it says -------------------------------------------------------------------------------------------------

    def pods(self, component: str = "") -> list[Any]:
        """The product's own pods, or those of one service."""
        selector = "app.kubernetes.io/name=vgpuscope" + (
            f",app.kubernetes.io/component={component}" if component else ""
        )
        items: list[Any] = self.cluster.get("pods", "-n", NAMESPACE, "-l", selector)
        return items

    def page(self, component: str, port: int, path: str = "/metrics") -> str:
        """What a service's pod serves; the pods can be reached from this machine."""
        address = self.pods(component)[0]["status"]["podIP"]
        with urllib.request.urlopen(f"http://{address}:{port}{path}", timeout=10) as answer:
            return str(answer.read().decode())

    def samples(self, component: str, port: int, name: str, **labels: str) -> list[Any]:
        """The samples of one metric that have these labels."""
        families = text_string_to_metric_families(self.page(component, port))
        samples = (sample for family in families for sample in family.samples if sample.name == name)
        return [sample for sample in samples if labels.items() <= sample.labels.items()]

    def ready(self, component: str, port: int) -> bool:
        try:
            self.page(component, port, "/readyz")
        except (urllib.error.URLError, IndexError, KeyError, TimeoutError):
            return False
        return True

    # --- what others say ----------------------------------------------------------------------------------------------

    @staticmethod
    def containers() -> list[Container]:
        """Running containers of pods, by what runc started them with."""
        return running()

    def container(self, pod: str, name: str = "main", *, namespace: str = "ml") -> Container:
        return next(c for c in self.containers() if (c.namespace, c.pod, c.name) == (namespace, pod, name))

    def pod_resources(self) -> dict[tuple[str, str], list[str]]:
        """The devices of nvidia.com/gpu by pod and container, as the kubelet lists them."""
        with grpc.insecure_channel(f"unix://{layout.KUBELET}/pod-resources/kubelet.sock") as channel:
            ask = channel.unary_unary(
                "/v1.PodResourcesLister/List",
                request_serializer=pb.ListPodResourcesRequest.SerializeToString,
                response_deserializer=pb.ListPodResourcesResponse.FromString,
            )
            answer = ask(pb.ListPodResourcesRequest(), timeout=10)
        return {
            (pod.name, container.name): sorted(ident for d in container.devices for ident in d.device_ids)
            for pod in answer.pod_resources
            for container in pod.containers
            if any(d.resource_name == "nvidia.com/gpu" for d in container.devices)
        }

    def checkpoint(self) -> dict[tuple[str, str], list[str]]:
        """The devices by pod UID and container in the file that the kubelet keeps across restarts."""
        text = (layout.KUBELET / "device-plugins" / "kubelet_internal_checkpoint").read_text()
        entries = json.loads(text)["Data"]["PodDeviceEntries"] or []
        return {
            (entry["PodUID"], entry["ContainerName"]): sorted(i for ids in entry["DeviceIDs"].values() for i in ids)
            for entry in entries
            if entry["ResourceName"] == "nvidia.com/gpu"
        }

    def given(self) -> dict[str, dict[tuple[str, str, str], int | None]]:
        """By GPU: the running containers of users that have it, each with its limit in MiB."""
        gpus: dict[str, dict[tuple[str, str, str], int | None]] = {}
        for container in self.containers():
            if container.namespace != "ml":
                continue
            values = container.environ
            for number, gpu in enumerate(filter(None, values.get("NVIDIA_VISIBLE_DEVICES", "").split(","))):
                limit = values.get(f"CUDA_DEVICE_MEMORY_LIMIT_{number}")
                amount = int(limit.rstrip("m")) if limit else None
                gpus.setdefault(gpu, {})[container.namespace, container.pod, container.name] = amount
        return gpus

    def audit(self) -> Iterator[dict[str, Any]]:
        """Requests of the product's service accounts, by the API server's audit log."""
        account = re.compile(rf"system:serviceaccount:{NAMESPACE}:")
        for line in layout.AUDIT.read_text().splitlines():
            event = json.loads(line)
            if account.match(event["user"].get("username", "")):
                yield event

    def allocatable(self) -> int:
        """How many shares the kubelet says the node has."""
        node = self.cluster.get("node", layout.NODE)
        return int(node["status"]["allocatable"].get("nvidia.com/gpu", 0))

    # --- pods of users ------------------------------------------------------------------------------------------------

    def run(self, pod: Mapping[str, Any], *, ready: bool = True) -> dict[str, Any]:
        """Creates a pod, and waits until it is ready; the pod as it then is."""
        name = pod["metadata"]["name"]
        self.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}}, pod)
        if ready:
            self.wait(f"pod {name} ready", lambda: self.is_ready(name))
        return self.pod(name)

    def pod(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.cluster.get("pod", name, "-n", "ml")
        return found

    def is_ready(self, name: str) -> bool:
        pod = self.pod(name)
        assert pod["status"]["phase"] != "Failed", (
            f"{name}: {pod['status'].get('reason')} {pod['status'].get('message')}"
        )
        return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ()))

    def holds_idle(self, pod: str) -> None:
        """The container's process is on its GPU from now on, with some memory, and computes nothing."""
        container = self.container(pod)
        slot = next(s for s in range(GPUS) if gpu_uuid(s) == container.environ["NVIDIA_VISIBLE_DEVICES"])
        self.driver.process(slot, container.pid, memory=GIB).sample(slot, container.pid, sm=0)
        self.driver.gpu(slot, memory_used=GIB).write()

    def tidied(self) -> None:
        """The pods of users are gone, the GPUs are well and empty, and the kubelet has everything back."""
        self.cluster.kubectl("-n", "ml", "delete", "deployments,pods", "--all", "--grace-period=1", "--timeout=120s")
        self.with_gpus()
        self.wait("the kubelet's records are empty", lambda: not self.pod_resources())

    def remove(self, *names: str) -> None:
        self.cluster.kubectl("-n", "ml", "delete", "pod", *names, "--grace-period=1", "--timeout=120s")

    def inside(self, pod: str, *command: str, container: str = "main") -> str:
        return self.cluster.kubectl("-n", "ml", "exec", pod, "-c", container, "--", *command).stdout

    def environment(self, pod: str, container: str = "main") -> dict[str, str]:
        return dict(
            line.split("=", 1) for line in self.inside(pod, "env", container=container).splitlines() if "=" in line
        )

    def events(self, pod: str) -> dict[str, str]:
        """The last message of each reason."""
        return {item["reason"]: item["message"] for item in self.all_events(pod)}

    def all_events(self, pod: str) -> list[Any]:
        """Those of this pod, and not of an earlier one of the same name."""
        uid = self.pod(pod)["metadata"]["uid"]
        items: list[Any] = self.cluster.get("events", "-n", "ml", "--field-selector", f"involvedObject.uid={uid}")
        return items

    def wait(self, what: str, condition: Callable[[], Any], *, within: float = WITHIN) -> Any:
        return self.cluster.wait(what, condition, within=within)


def gpu_pod(name: str, *, containers: Mapping[str, Mapping[str, object]] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod for our scheduler; each container with its limits, `main` with one share if none is named."""
    limits = containers or {"main": {"nvidia.com/gpu": 1}}
    init = spec.pop("init", {})
    annotations = spec.pop("annotations", {"nvidia.com/vgpu-mode": "hami-core"})
    made = {
        "schedulerName": "vgpuscope-scheduler",
        "terminationGracePeriodSeconds": 1,
        "containers": [_container(c, amounts) for c, amounts in limits.items()],
        "initContainers": [{**_container(c, amounts), "command": ["true"]} for c, amounts in init.items()],
        **spec,
    }
    meta = {"name": name, "namespace": "ml", "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": made}


def _container(name: str, limits: Mapping[str, object]) -> dict[str, Any]:
    return {
        "name": name,
        "image": layout.WORK_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sleep", "86400"],
        "resources": {"limits": {key: str(value) for key, value in limits.items()}},
    }
