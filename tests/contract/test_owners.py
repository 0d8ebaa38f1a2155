"""Owners of pods, beside a real API server: the top of the chain with the rights that we ship, one level without."""

from typing import Any

import msgspec
import pytest

from tests.contract.clusterrun import exporter, holder, registered
from tests.paths import REPOSITORY

pytestmark = pytest.mark.real
MANIFEST = REPOSITORY / "deploy" / "cluster.yaml"
PATHS = {"StatefulSet": "apps/v1", "ReplicaSet": "apps/v1", "Deployment": "apps/v1", "Job": "batch/v1"}
TEMPLATE: dict[str, Any] = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def reference(api_version: str, kind: str, name: str, uid: str = "made-up") -> dict:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": True}


def made(cluster, kind: str, name: str, *owners: dict) -> dict:
    """An object of the cluster, and how a reference to it looks."""
    selector = {"matchLabels": {"a": "b"}}
    spec = {"template": TEMPLATE, "selector": selector} | ({"serviceName": "s"} if kind == "StatefulSet" else {})
    if kind == "Job":
        spec = {"template": {"spec": TEMPLATE["spec"] | {"restartPolicy": "Never"}}}
    body = {"apiVersion": PATHS[kind], "kind": kind, "metadata": {"name": name, "ownerReferences": list(owners)}}
    path = f"/apis/{PATHS[kind]}/namespaces/ml/{kind.lower()}s"
    found = cluster.call("POST", path, body | {"spec": spec})
    return reference(PATHS[kind], kind, name, found["metadata"]["uid"])


def owned(name: str, by: dict) -> dict:
    pod = holder(name, "gpu-1", "GPU-a")
    pod["metadata"]["ownerReferences"] = [by]
    return pod


@pytest.fixture
def cluster(empty_cluster):
    empty_cluster.create(registered("gpu-1", "GPU-a"))
    empty_cluster.namespace("ml")
    notebook = reference("kubeflow.org/v1", "Notebook", "carol")
    service = reference("serving.kserve.io/v1beta1", "InferenceService", "llama")
    nightly = reference("batch/v1", "CronJob", "nightly")
    made_here = [
        made(empty_cluster, "StatefulSet", "carol", notebook),
        made(empty_cluster, "Job", "nightly-1", nightly),
    ]
    deployment = made(empty_cluster, "Deployment", "llama-predictor", service)
    made_here.append(made(empty_cluster, "ReplicaSet", "llama-predictor-5f7", deployment))
    for name, by in zip(("carol-0", "nightly-1-x", "llama-predictor-5f7-y"), made_here, strict=True):
        empty_cluster.create(owned(name, by))
    empty_cluster.create(holder("alone", "gpu-1", "GPU-a"))
    yield empty_cluster
    kept = {"apps/v1/namespaces/ml/statefulsets/carol", "batch/v1/namespaces/ml/jobs/nightly-1"}
    kept |= {
        f"apps/v1/namespaces/ml/{kind}" for kind in ("deployments/llama-predictor", "replicasets/llama-predictor-5f7")
    }
    for path in kept:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        empty_cluster.call("DELETE", f"/apis/{path}", options)


def owners(running) -> dict[str, str]:
    return msgspec.json.decode(running.get("/api/v1/owners")[2])


def shipped_rights(**without: str) -> dict[str, list[str]]:
    (role,) = [
        found
        for text in MANIFEST.read_text().split("\n---\n")
        if (found := msgspec.yaml.decode(text))["kind"] == "ClusterRole"
    ]
    rights = {
        f"{resource}.{group}".rstrip("."): rule["verbs"]
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    return {name: verbs for name, verbs in rights.items() if not name.endswith(tuple(without.values()))}


def test_owners_are_the_top_of_the_chain_with_the_rights_that_we_ship(cluster, tmp_path):
    with exporter(cluster.user("scope", shipped_rights()), tmp_path) as running:
        running.wait(
            lambda: (
                owners(running)
                == {
                    "ml/carol-0": "Notebook/carol",
                    "ml/nightly-1-x": "CronJob/nightly",
                    "ml/llama-predictor-5f7-y": "InferenceService/llama",
                }
            )
        )
        cluster.delete("pods", "carol-0", namespace="ml")
        running.wait(lambda: "ml/carol-0" not in owners(running))


def test_a_kind_that_may_not_be_read_ends_the_chain_there_and_costs_nothing_else(cluster, tmp_path):
    with exporter(cluster.user("scope", shipped_rights(apps=".apps")), tmp_path) as running:
        running.wait(
            lambda: (
                owners(running)
                == {
                    "ml/carol-0": "StatefulSet/carol",
                    "ml/nightly-1-x": "CronJob/nightly",
                    "ml/llama-predictor-5f7-y": "ReplicaSet/llama-predictor-5f7",
                }
            )
        )
        running.wait(lambda: "owner not followed" in (log := running.log.read_text()) and "KUBE_FORBIDDEN" in log)
