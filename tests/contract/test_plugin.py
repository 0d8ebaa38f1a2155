"""The device plugin at a real kube-apiserver, with the rights that docs/plugin.md lists and no others."""

import json
import re

import grpc
import pytest

from tests.controlplane import node, pod, until
from tests.paths import TESTS
from tests.services.plugin.pluginrun import FIRST, LOCK, PHASE, REGISTER, SECOND, TO_ALLOCATE, assigned, lock, plugin_at

pytestmark = pytest.mark.real

GUIDE = TESTS.parent / "docs/plugin.md"
RIGHT = re.compile(r"^\| `([a-z./0-9]*)` \| ([a-z]+) \| ([a-z, ]+) \|", re.MULTILINE)


def rights():
    """The table of the guide: API group, resource, verbs."""
    found = {f"{name}.{group}" if group != "v1" else name: verbs.split(", ") for group, name, verbs in _table()}
    assert len(found) == 3
    return found


def _table():
    return RIGHT.findall(GUIDE.read_text())


def annotations(cluster, kind, name, namespace=None):
    return cluster.get(kind, name, namespace=namespace)["metadata"].get("annotations") or {}


def bound(cluster, name, text, **more):
    made = pod(name, node="n1")
    made["metadata"]["annotations"] = assigned(text)
    made["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    found = cluster.create(made)
    cluster.patch("nodes", "n1", {"metadata": {"annotations": lock(name)}})
    return found["metadata"]["uid"], found["spec"]["containers"][0]["name"]


def events(cluster):
    """Reason, message and reporter, as `kubectl describe pod` shows them."""
    found = cluster.list("events", namespace="ml")
    return [(one["reason"], one["message"], one["reportingComponent"]) for one in found]


def test_lock_phase_annotation_and_event_of_a_good_and_a_failed_allocation(empty_cluster, tmp_path):
    cluster = empty_cluster
    cluster.create(node("n1"))
    kubeconfig = cluster.user("plugin", rights())
    with plugin_at(tmp_path, kubeconfig) as running:
        until(lambda: REGISTER in annotations(cluster, "nodes", "n1"))
        registered = json.loads(annotations(cluster, "nodes", "n1")[REGISTER])
        assert [(one["id"], one["count"], one["health"]) for one in registered] == [
            (FIRST, 10, True),
            (SECOND, 10, True),
        ]
        until(lambda: running.ready()[0] == 200)

        uid, container = bound(cluster, "good", f"{SECOND},NVIDIA,8000,30:;")
        (answer,) = running.kubelet.allocate([f"{FIRST}-0"])
        assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == SECOND
        assert (running.hook / "containers" / f"{uid}_{container}").is_dir()
        found = annotations(cluster, "pods", "good", "ml")
        assert (found[PHASE], found[TO_ALLOCATE]) == ("success", ";")
        assert LOCK not in annotations(cluster, "nodes", "n1")
        until(lambda: ("DeviceAllocated", "Allocated GPU-1 on n1", "hami-device-plugin") in events(cluster))

        bound(cluster, "bad", "GPU-of-another-node,NVIDIA,8000,30:;")
        with pytest.raises(grpc.RpcError, match="ALLOCATE_DEVICE_UNKNOWN"):
            running.kubelet.allocate([f"{FIRST}-0"])
        assert annotations(cluster, "pods", "bad", "ml")[PHASE] == "failed"
        assert LOCK not in annotations(cluster, "nodes", "n1")
        until(lambda: [event[0] for event in events(cluster)].count("DeviceAllocationFailed") == 1)
        assert running.value('vgpuscope_plugin_allocate_failures_total{node="n1",code="ALLOCATE_DEVICE_UNKNOWN"}') == 1
        assert "KUBE_FORBIDDEN" not in running.log


def test_while_the_api_server_is_away_nothing_is_given_and_what_failed_is_taken_back_after_it(empty_cluster, tmp_path):
    cluster = empty_cluster
    cluster.create(node("n1"))
    kubeconfig = cluster.user("plugin", rights())
    with plugin_at(tmp_path, kubeconfig) as running:
        until(lambda: running.ready()[0] == 200)
        bound(cluster, "early", f"{FIRST},NVIDIA,1,0:;")
        cluster.stop_apiserver()
        try:
            with pytest.raises(grpc.RpcError, match="KUBE_UNREADABLE"):
                running.kubelet.allocate([f"{FIRST}-0"])
            until(lambda: running.ready()[0] == 503)
            assert set(running.kubelet.devices.values()) == {"Healthy"}
        finally:
            cluster.start_apiserver()
        # the kubelet fails such a pod for good, so its binding is ended as soon as the API server answers
        until(lambda: annotations(cluster, "pods", "early", "ml")[PHASE] == "failed")
        until(lambda: LOCK not in annotations(cluster, "nodes", "n1"))
        until(lambda: "DeviceAllocationFailed" in [event[0] for event in events(cluster)])
        cluster.patch("pods", "early", {"status": {"phase": "Failed"}}, namespace="ml", subresource="status")  # kubelet
        bound(cluster, "late", f"{FIRST},NVIDIA,1,0:;")
        (answer,) = running.kubelet.allocate([f"{FIRST}-0"])
        assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == FIRST
        until(lambda: running.ready()[0] == 200)
