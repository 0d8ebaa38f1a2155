"""How scheduling went and who waits, told by the exporter beside a real API server and a real kube-scheduler."""

import json
import time
import urllib.request
from datetime import datetime
from zlib import crc32

import pytest

from tests.commands.test_inventory import run
from tests.contract.clusterrun import exporter, holder, quota, registered
from tests.controlplane import node, pod, until
from vgpuscope.catalog import cluster as c
from vgpuscope.catalog import scheduling as m

pytestmark = pytest.mark.real
GPU = {"nvidia.com/gpu": "2"}


def pending(running, query=""):
    with urllib.request.urlopen(f"{running.url}/api/v1/pending{query}") as answer:
        return {found["pod"]: found for found in json.load(answer)["pending"]}


def test_a_pod_that_does_not_fit_is_explained_until_it_does(empty_cluster, tmp_path):
    empty_cluster.create(node("small", capacity={"nvidia.com/gpu": "1"}))
    with empty_cluster.scheduler(), exporter(empty_cluster.kubeconfig, tmp_path) as running:
        empty_cluster.create(pod("train", limits=GPU))
        code = "SCHED_INSUFFICIENT_GPU_COUNT"
        page = running.until(lambda page: page.has(m.PENDING_PODS.name, namespace="ml", code=code))
        assert page.one(m.PENDING_PODS.name, namespace="ml", code=code) == 1
        assert page.one(m.PENDING_OLDEST.name, namespace="ml", code=code) >= 0
        waits = pending(running)["train"]
        assert (waits["outcome"], waits["code"], waits["scheduler"]) == ("waiting", code, "default-scheduler")
        assert waits["requests"] == {"nvidia.com/gpu": 2}
        empty_cluster.create(node("large", capacity={"nvidia.com/gpu": "4"}))
        page = running.until(lambda page: page.one(m.BIND_SUCCESS.name) == 1)
        running.until(lambda page: not page.has(m.PENDING_PODS.name, namespace="ml"))
        assert page.one(m.BINDS.name, scheduler="default-scheduler", result="success") == 1
        assert page.one(m.FAILURES.name, scheduler="default-scheduler", code=code) >= 1
        assert not page.has(f"{m.FILTER_SECONDS.name}_count") or page.one(f"{m.FILTER_SECONDS.name}_count") == 0
        assert pending(running) == {}
        remembered = pending(running, "?all=true")["train"]
        assert (remembered["outcome"], remembered["node"], remembered["code"]) == ("scheduled", "large", code)


def test_what_hami_wrote_down_becomes_stages_and_a_restart_recounts_nothing(empty_cluster, tmp_path):
    empty_cluster.create(registered("gpu-1", "GPU-a"))
    with exporter(empty_cluster.kubeconfig, tmp_path) as running:
        running.until(lambda page: page.one(m.BIND_SUCCESS.name) == 0)
        created = empty_cluster.create(holder("train", "gpu-1", "GPU-a", bound=False))["metadata"]["creationTimestamp"]
        chosen = int(datetime.fromisoformat(created).timestamp()) + 3
        times = {"hami.io/vgpu-time": str(chosen), "hami.io/bind-time": str(chosen)}
        empty_cluster.patch("pods", "train", {"metadata": {"annotations": times}}, namespace="ml")
        page = running.until(lambda page: page.one(f"{m.FILTER_SECONDS.name}_count") == 1)
        assert page.one(f"{m.FILTER_SECONDS.name}_sum") == 3
        binding = {"kind": "Binding", "apiVersion": "v1", "metadata": {"name": "train"}, "target": {"name": "gpu-1"}}
        until(lambda: time.time() > chosen)
        empty_cluster.call("POST", "/api/v1/namespaces/ml/pods/train/binding", binding)
        page = running.until(lambda page: page.one(m.BIND_SUCCESS.name) == 1)
        assert page.one(f"{m.BIND_SECONDS.name}_count") == 1
        failed = {"metadata": {"annotations": {"hami.io/bind-phase": "failed"}}}
        empty_cluster.patch("pods", "train", failed, namespace="ml")
        running.until(lambda page: page.one(m.BIND_FAILURE.name) == 1)
    with exporter(empty_cluster.kubeconfig, tmp_path) as again:
        page = again.until(lambda page: page.has(c.HOLDER_MEMORY.name, pod="train"))
        assert page.one(m.BIND_SUCCESS.name) == page.one(m.BIND_FAILURE.name) == 0
        assert page.one(f"{m.FILTER_SECONDS.name}_count") == page.one(f"{m.BIND_SECONDS.name}_count") == 0


def test_without_the_right_to_events_conditions_still_explain(empty_cluster, tmp_path):
    watch = ["get", "list", "watch"]
    user = empty_cluster.user("no-events", {"nodes": watch, "pods": watch, "resourcequotas": watch})
    empty_cluster.create(node("small", capacity={"nvidia.com/gpu": "1"}))
    with empty_cluster.scheduler(), exporter(user, tmp_path) as running:
        empty_cluster.create(pod("train", limits=GPU))
        running.wait(lambda: pending(running).get("train", {}).get("code") == "SCHED_INSUFFICIENT_GPU_COUNT")
        # events are asked for beside the pods, maybe later
        page = running.until(lambda page: page.has(c.ERRORS.name, code="KUBE_FORBIDDEN"))
        assert page.one(c.ERRORS.name, code="KUBE_FORBIDDEN") >= 1
        assert page.one(c.WATCH_UP.name, kind="events") == 0


def test_a_parameter_that_does_not_exist_is_refused(empty_cluster, tmp_path):
    with exporter(empty_cluster.kubeconfig, tmp_path) as running:
        assert running.status("/api/v1/pending?al=true") == 422
        assert running.status("/api/v1/pending?all=maybe") == 422
        assert running.status("/api/v1/pending?all=yes") == 200


def one_pod(running, name):
    with urllib.request.urlopen(f"{running.url}/api/v1/pending?namespace=ml&pod={name}") as answer:
        return json.load(answer)


def test_a_pod_that_a_real_scheduler_refuses_is_told_with_how_many_gpus_are_missing_where(empty_cluster, tmp_path):
    code = "SCHED_INSUFFICIENT_GPU_COUNT"
    empty_cluster.create(node("small", capacity={"nvidia.com/gpu": "1"}))
    empty_cluster.create(node("large", capacity={"nvidia.com/gpu": "4"}))
    with empty_cluster.scheduler(), exporter(empty_cluster.kubeconfig, tmp_path) as running:
        empty_cluster.create(pod("first", limits={"nvidia.com/gpu": "3"}))
        running.until(lambda page: page.one(m.BIND_SUCCESS.name) == 1)
        empty_cluster.create(pod("train", limits=GPU))
        running.until(lambda page: page.has(m.PENDING_PODS.name, code=code))
        found = one_pod(running, "train")
    assert found["facts"][code] == [
        "large: 1 of 4 nvidia.com/gpu free; the pod asks for 2: 1 missing.",
        "small: 1 of 1 nvidia.com/gpu free; the pod asks for 2: 1 missing.",
    ]
    assert len(found["advice"]) == 1
    assert "1 missing" in found["advice"][0]


def hami_event(name, uid, message, **more):
    """An event as HAMi's scheduler writes it."""
    about = {"kind": "Pod", "namespace": "ml", "name": name, "uid": uid}
    return {
        "kind": "Event",
        "metadata": {"name": f"{name}.{crc32(message.encode()):x}", "namespace": "ml"},
        "involvedObject": about,
        "reason": "FilteringFailed",
        "type": "Warning",
        "message": message,
        "source": {"component": "hami-scheduler"},
        "count": 1,
        **more,
    }


def test_a_quota_that_keeps_a_pod_away_is_told_with_its_numbers_and_names_and_nothing_twice(empty_cluster, tmp_path):
    empty_cluster.create(registered("gpu-1", "GPU-a"))
    empty_cluster.create(holder("train", "gpu-1", "GPU-a", memory=7000))
    empty_cluster.create(quota("ml", gpumem="10000"))
    wants = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8000"}
    made = empty_cluster.create(pod("more", limits=wants, schedulerName="hami-scheduler"))
    now = made["metadata"]["creationTimestamp"]
    times = {"firstTimestamp": now, "lastTimestamp": now}
    uid = made["metadata"]["uid"]
    said = "0/1 nodes are available: 1 1/1 ResourceQuotaNotFit."
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
    empty_cluster.patch("pods", "more", {"status": {"conditions": [refused]}}, namespace="ml", subresource="status")
    empty_cluster.create(hami_event("more", uid, "1 nodes ResourceQuotaNotFit(gpu-1)", **times))
    empty_cluster.create(hami_event("more", uid, "no available node, 1 nodes do not meet", **times))
    repeats = {"reason": "FailedScheduling", "source": {"component": "default-scheduler"}}
    empty_cluster.create(hami_event("more", uid, said, **times, **repeats))
    with exporter(empty_cluster.kubeconfig, tmp_path) as running:
        running.wait(lambda: len(one_pod(running, "more")["pending"][0]["said"]) == 2)
        shown = run("pending", "ml/more", running.url).stdout
        row = run("pending", running.url).stdout
    numbers = "nvidia.com/gpumem 7000 of 10000 MiB used; the pod asks for 8000 MiB: 5000 MiB too much."
    assert f"  numbers     Quota gpus of namespace ml: {numbers}\n" in shown
    assert "kubectl describe resourcequota -n ml`" in shown
    assert "The blocker is the quota of namespace ml.\n" in shown
    assert shown.count("SCHED_QUOTA_EXCEEDED") == 1
    assert "earlier" not in shown
    assert numbers in row
