"""The chart's admission policies in a real API server, for as long as a block lasts."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.chart.helmrun import template
from tests.controlplane import ApiError, ControlPlane, Object, pod, until

KINDS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
ROOT = "/apis/admissionregistration.k8s.io/v1"
EXTENDER, PLUGIN = "scope-vgpuscope-extender", "scope-vgpuscope-plugin"  # accounts of the release, in namespace default
BOTH: dict[str, Any] = {"extender": {"enabled": True}, "plugin": {"enabled": True}}
FORGED = {"hami.io/vgpu-node": "n1", "hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,1,0:;"}


def rendered(values: Mapping[str, Any]) -> list[Object]:
    """The policies and their bindings, of a release in the namespace default."""
    served = "--api-versions=admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"
    return [one for one in template(values, "--namespace=default", served) if one["kind"] in KINDS]


@contextmanager
def policies(cluster: ControlPlane, values: Mapping[str, Any] = BOTH) -> Iterator[None]:
    """They are in force when this returns, and out of force when the block ends.

    The API server learns of policies, and of bindings, in the order of their changes. The probe tests those that are
    made and removed last.
    """
    made = sorted(rendered(values), key=lambda one: (one["kind"], "assignments" in one["metadata"]["name"]))
    assert made, "the chart has no policy"
    probe = tenant(cluster, "probe", {"pods": ["create", "delete"]})
    try:
        for item in made:
            cluster.call("POST", f"{ROOT}/{KINDS[item['kind']]}", item)
        until(lambda: refused(probe, pod("probe", annotations=FORGED)))
        yield
    finally:
        for item in made:
            cluster.call("DELETE", f"{ROOT}/{KINDS[item['kind']]}/{item['metadata']['name']}")
        until(lambda: not refused(probe, pod("probe", annotations=FORGED)))
        cluster.delete("pods", "probe", namespace="ml")


class Caller:
    """Somebody with a token."""

    def __init__(self, cluster: ControlPlane, token: str) -> None:
        self.cluster, self.token = cluster, token

    def create(self, item: Object) -> Object:
        path = f"/api/v1/namespaces/{item['metadata']['namespace']}/pods"
        return self.cluster.call("POST", path, {"apiVersion": "v1", **item}, token=self.token)

    def patch(self, path: str, change: Object) -> Object:
        return self.cluster.call("PATCH", f"/api/v1/{path}", change, token=self.token)

    def annotate(self, path: str, **notes: str | None) -> Object:
        return self.patch(path, {"metadata": {"annotations": notes}})

    def bind(self, name: str, node: str, notes: Mapping[str, str]) -> Object:
        meta = {"name": name, "namespace": "ml", "annotations": dict(notes)}
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        return self.cluster.call("POST", f"/api/v1/namespaces/ml/pods/{name}/binding", body, token=self.token)

    def delete(self, path: str) -> None:
        self.cluster.call("DELETE", f"/api/v1/{path}", params={"gracePeriodSeconds": "0"}, token=self.token)


def tenant(cluster: ControlPlane, name: str, rights: Mapping[str, Any]) -> Caller:
    """A service account of the namespace default with these rights."""
    cluster.namespace("ml")
    with open(cluster.user(name, rights), encoding="utf-8") as file:
        return Caller(cluster, json.load(file)["users"][0]["user"]["token"])


def refused(caller: Caller, item: Object) -> bool:
    """Whether the pod may not be created."""
    try:
        caller.create(item)
    except ApiError as e:
        if e.status not in {403, 409, 422}:
            raise
        return e.status != 409  # it is there already
    return False
