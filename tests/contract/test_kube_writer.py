"""Patches, bindings and events, taken or rejected by a real kube-apiserver."""

import json
from contextlib import asynccontextmanager

import pytest

from tests.controlplane import node, pod
from vgpuscope.formats.hami.annotation import AssignedDevice, assignment_annotations
from vgpuscope.formats.kube.events import EventText
from vgpuscope.formats.kube.objects import decode_cluster_pod_event
from vgpuscope.formats.kube.paths import ObjectRef
from vgpuscope.knowledge.vendors import NVIDIA
from vgpuscope.model.errors import KubeAbsent, KubeConflict, KubeForbidden, KubeUnwritten
from vgpuscope.sinks.kube.writer import KubeWriter
from vgpuscope.sources.kube import KubeClient, open_client

pytestmark = pytest.mark.real

NOW = 1794767070.25
TEXT = EventText("BindingSucceed", "Successfully binding node [n1] to ml/train")
EVENTS = "/apis/events.k8s.io/v1/namespaces/ml/events"


@pytest.fixture
def cluster(empty_cluster):
    empty_cluster.create(node("n1"))
    made = empty_cluster.create(pod("train", limits={"nvidia.com/gpu": "1"}))
    empty_cluster.train = ObjectRef("Pod", "train", "ml", made["metadata"]["uid"])
    return empty_cluster


@asynccontextmanager
async def writer(kubeconfig, instance="here"):
    async with open_client(kubeconfig) as client:
        yield KubeWriter(
            KubeClient(client, timeout=60.0), component="vgpuscope-test", instance=instance, deadline=120.0
        )


def train(cluster):
    return cluster.get("pods", "train", namespace="ml")


async def test_what_a_scheduler_assigns_is_written_on_the_pod_and_read_again(cluster):
    notes = assignment_annotations(NVIDIA, node="n1", segments=[[AssignedDevice("GPU-0", "NVIDIA", 8, 30)]], now=NOW)
    async with writer(cluster.kubeconfig) as to:
        version = await to.annotate(cluster.train.path, notes)
    found = train(cluster)
    assert found["metadata"]["resourceVersion"] == version
    assert {key: found["metadata"]["annotations"][key] for key in notes} == notes
    read = decode_cluster_pod_event(json.dumps({"type": "MODIFIED", "object": found}).encode()).item
    assert (read.place, [one.device for one in read.assignments], read.times.filtered) == ("n1", ["GPU-0"], 1794767070)


async def test_a_patch_of_an_old_version_is_a_conflict_and_changes_nothing(cluster):
    path, old = cluster.train.path, train(cluster)["metadata"]["resourceVersion"]
    async with writer(cluster.kubeconfig) as to:
        new = await to.annotate(path, {"a": "1"}, version=old)
        assert new != old
        with pytest.raises(KubeConflict):
            await to.annotate(path, {"a": "2"}, version=old)
        assert train(cluster)["metadata"]["annotations"] == {"a": "1"}
        await to.annotate(path, {"a": None}, version=new)
    assert "a" not in train(cluster)["metadata"].get("annotations", {})


async def test_a_strategic_patch_merges_lists_by_their_keys(cluster):
    conditions = [{"type": "Odd", "status": "True"}]
    async with writer(cluster.kubeconfig) as to:
        await to.patch("/api/v1/nodes/n1/status", {"status": {"conditions": conditions}}, strategic=True)
    assert {one["type"] for one in cluster.get("nodes", "n1")["status"]["conditions"]} == {"Ready", "Odd"}


async def test_a_pod_is_bound_once(cluster):
    async with writer(cluster.kubeconfig) as to:
        await to.bind(cluster.train, "n1")
        assert train(cluster)["spec"]["nodeName"] == "n1"
        with pytest.raises(KubeConflict):
            await to.bind(cluster.train, "n1")


async def test_a_binding_of_an_old_version_is_a_conflict_and_a_current_one_sets_annotations_with_the_same_write(
    cluster,
):
    async with writer(cluster.kubeconfig) as to:
        old = train(cluster)["metadata"]["resourceVersion"]
        version = await to.annotate(cluster.train.path, {"a": "1", "b": "1"})
        with pytest.raises(KubeConflict):
            await to.bind(cluster.train, "n1", version=old, annotations={"b": "2"})
        assert train(cluster)["metadata"]["annotations"] == {"a": "1", "b": "1"}
        await to.bind(cluster.train, "n1", version=version, annotations={"b": "2", "c": "2"})
    assert train(cluster)["spec"]["nodeName"] == "n1"
    assert train(cluster)["metadata"]["annotations"] == {"a": "1", "b": "2", "c": "2"}


async def test_an_annotation_that_an_object_has_is_not_set_a_second_time(cluster):
    async with writer(cluster.kubeconfig) as to:
        path = cluster.train.path
        assert await to.annotate_new(path, "hami.io/a.b", "1") is None  # it has no annotations at all
        await to.annotate(path, {"other": "x"})
        version = await to.annotate_new(path, "hami.io/a.b", "1")
        assert version == train(cluster)["metadata"]["resourceVersion"]
        assert await to.annotate_new(path, "hami.io/a.b", "2") is None
        assert train(cluster)["metadata"]["annotations"] == {"other": "x", "hami.io/a.b": "1"}
        with pytest.raises(KubeAbsent):
            await to.annotate_new(cluster.train._replace(name="gone").path, "a", "1")


async def test_another_pod_of_the_same_name_is_not_bound(cluster):
    async with writer(cluster.kubeconfig) as to:
        with pytest.raises(KubeConflict):
            await to.bind(cluster.train._replace(uid="11111111-2222-3333-4444-555555555555"), "n1")
    assert "nodeName" not in train(cluster)["spec"]


async def test_what_is_gone_is_absent(cluster):
    gone = cluster.train._replace(name="gone", uid="")
    async with writer(cluster.kubeconfig) as to:
        with pytest.raises(KubeAbsent):
            await to.annotate(gone.path, {"a": "1"})
        with pytest.raises(KubeAbsent):
            await to.bind(gone, "n1")


async def test_who_may_only_read_is_forbidden_to_write(cluster):
    async with writer(cluster.user("reader", {"pods": ["get", "list"]})) as to:
        for done in (
            to.annotate(cluster.train.path, {"a": "1"}),
            to.bind(cluster.train, "n1"),
            to.report(cluster.train, TEXT, now=NOW),
        ):
            with pytest.raises(KubeForbidden):
                await done


async def test_an_invalid_patch_is_rejected_in_the_servers_words(cluster):
    async with writer(cluster.kubeconfig) as to:
        with pytest.raises(KubeUnwritten, match="422"):
            await to.patch(cluster.train.path, {"spec": {"nodeName": "elsewhere", "hostNetwork": True}})


async def test_an_event_that_is_posted_twice_is_one_with_count_2(cluster):
    async with writer(cluster.kubeconfig) as to:
        await to.report(cluster.train, TEXT, now=NOW)
        (first,) = cluster.call("GET", EVENTS)["items"]
        assert "series" not in first
        await to.report(cluster.train, TEXT, now=NOW + 5)
        (one,) = cluster.call("GET", EVENTS)["items"]
        assert (one["series"]["count"], one["note"], one["reason"], one["type"]) == (
            2,
            TEXT.note,
            TEXT.reason,
            "Normal",
        )
        assert (one["regarding"]["uid"], one["reportingController"]) == (cluster.train.uid, "vgpuscope-test")
        assert one["series"]["lastObservedTime"] > one["eventTime"]
        await to.report(cluster.train, TEXT._replace(reason="BindingFailed", type="Warning"), now=NOW)
        assert len(cluster.call("GET", EVENTS)["items"]) == 2


async def test_a_note_and_an_instance_that_are_too_long_for_the_server_are_cut_to_its_limits_in_bytes(cluster):
    async with writer(cluster.kubeconfig, "i" * 129) as to:
        await to.report(cluster.train, TEXT._replace(note="显存不足" * 100), now=NOW)
    (one,) = cluster.call("GET", EVENTS)["items"]
    assert (one["note"], one["reportingInstance"]) == (("显存不足" * 100)[:341], "i" * 128)


async def test_an_event_that_the_server_forgot_is_posted_anew(cluster):
    async with writer(cluster.kubeconfig) as to:
        await to.report(cluster.train, TEXT, now=NOW)
        (first,) = cluster.list("events", namespace="ml")
        cluster.delete("events", first["metadata"]["name"], namespace="ml")
        await to.report(cluster.train, TEXT, now=NOW)
        (second,) = cluster.list("events", namespace="ml")
    assert second["metadata"]["name"] != first["metadata"]["name"]
