"""Workloads of users that own pods."""

from collections.abc import Mapping
from typing import Any

from tests.e2e.product import Product, gpu_pod

ML = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}}


def deployment(name: str, *, replicas: int = 1, **pod: Any) -> dict[str, Any]:
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": _template(name, **pod)}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": _meta(name), "spec": spec}


def stateful_set(name: str, *, replicas: int = 1, **pod: Any) -> dict[str, Any]:
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": _template(name, **pod)}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": _meta(name), "spec": spec}


def job(name: str, **pod: Any) -> dict[str, Any]:
    spec = {"template": _template(name, restartPolicy="Never", **pod), "backoffLimit": 0}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _meta(name), "spec": spec}


def running_pods(product: Product, name: str) -> list[str]:
    """Of a workload, by its label: those that run and are not being deleted."""
    pods = product.cluster.get("pods", "-n", "ml", "-l", f"app={name}", "--field-selector=status.phase=Running")
    return [pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"] and ready(pod)]


def is_ready(product: Product, name: str, replicas: int = 1) -> bool:
    return len(running_pods(product, name)) == replicas


def ready(pod: Mapping[str, Any]) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ()))


def _template(name: str, **pod: Any) -> dict[str, Any]:
    made = gpu_pod(name, **pod)
    return {
        "metadata": {"labels": {"app": name}, "annotations": made["metadata"]["annotations"]},
        "spec": made["spec"],
    }


def _meta(name: str) -> dict[str, str]:
    return {"name": name, "namespace": "ml"}
