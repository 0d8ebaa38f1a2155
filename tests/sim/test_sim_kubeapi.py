"""The simulated Kubernetes API, as the real watch and the real decoders of the cluster exporter see it."""

import asyncio
import contextlib
import time
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import httpx2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.formats.kube import objects as objects_format
from vgpuscope.formats.kube.events import decode_events
from vgpuscope.logic.cluster.ledger import ClusterLedger
from vgpuscope.sim import cluster, kubeapi
from vgpuscope.sim.kinds import PLANS
from vgpuscope.sim.kubeapi import KubeApi, Objects
from vgpuscope.sim.kubeproto import MAGIC, access_review
from vgpuscope.sim.world import World
from vgpuscope.sources.kube import KubeClient, Watch, open_client


def node(name, **more):
    return {"metadata": {"name": name}, **more}


def pod(namespace, name):
    return {"metadata": {"namespace": namespace, "name": name, "uid": f"{namespace}-{name}"}}


@asynccontextmanager
async def served(tmp_path, objects, **more):
    api = KubeApi(objects, **more)
    async with api.serve():
        api.write_kubeconfig(tmp_path / "kubeconfig")
        async with open_client(str(tmp_path / "kubeconfig")) as client:
            yield client


async def names(client, path, **params):
    """Names on one page, and its metadata."""
    answer = (await client.get(path, params=params)).json()
    return [one["metadata"]["name"] for one in answer["items"]], answer["metadata"]


@asynccontextmanager
async def watching(client, path, **params):
    async with client.stream("GET", path, params={"watch": "1", **params}) as answer:
        lines = answer.aiter_lines()

        async def event():
            async with asyncio.timeout(60):
                return msgspec.json.decode(await anext(lines))

        yield event


async def test_objects_are_listed_by_namespace_and_page_by_page(tmp_path):
    objects = Objects()
    objects.replace("pods", [pod("b", "two"), pod("a", "one"), pod("b", "three")])
    async with served(tmp_path, objects) as client:
        assert (await names(client, "/api/v1/pods"))[0] == ["one", "three", "two"]
        assert (await names(client, "/api/v1/namespaces/b/pods"))[0] == ["three", "two"]
        first, metadata = await names(client, "/api/v1/pods", limit="2")
        objects.replace("pods", [pod("a", "one"), pod("b", "two"), pod("b", "unborn")])
        rest, later = await names(client, "/api/v1/pods", limit="2", **{"continue": metadata["continue"]})
    assert (first, rest) == (["one", "three"], ["two", "unborn"])
    assert later == {"resourceVersion": metadata["resourceVersion"]}


async def test_a_watch_tells_every_change_after_a_version_and_nothing_else(tmp_path):
    objects = Objects()
    objects.replace("nodes", [node("a"), node("b")])
    async with served(tmp_path, objects) as client:
        version = (await names(client, "/api/v1/nodes"))[1]["resourceVersion"]
        async with watching(client, "/api/v1/nodes", resourceVersion=version) as event:
            objects.replace("pods", [pod("a", "one")])
            objects.replace("nodes", [node("a"), node("b", spec={"unschedulable": True})])
            objects.replace("nodes", [node("b", spec={"unschedulable": True}), node("c")])
            told = [await event() for _ in range(3)]
    seen = [(one["type"], one["object"]["metadata"]["name"]) for one in told]
    assert seen == [("MODIFIED", "b"), ("DELETED", "a"), ("ADDED", "c")]
    versions = [int(one["object"]["metadata"]["resourceVersion"]) for one in told]
    assert versions == sorted({*versions, int(version)})[1:]


async def test_what_stays_the_same_is_no_change():
    objects = Objects()
    objects.replace("nodes", [node("a")])
    version = objects.version
    objects.replace("nodes", [node("a")])
    assert objects.version == version


async def test_silence_is_filled_with_bookmarks_and_ends_in_time(tmp_path):
    objects = Objects()
    objects.replace("nodes", [node("a")])
    params = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": "1"}
    async with asyncio.timeout(60), served(tmp_path, objects, bookmark_every=0.01) as client:
        answer = await client.get("/api/v1/nodes", params=params)  # comes back when the watch has ended
    first, *marks = [msgspec.json.decode(line) for line in answer.text.splitlines()]
    assert first["type"] == "ADDED"
    assert {one["type"] for one in marks} == {"BOOKMARK"}
    assert {one["object"]["metadata"]["resourceVersion"] for one in marks} == {str(objects.version)}


async def test_a_forgotten_version_is_answered_with_410(tmp_path):
    objects = Objects()
    for turn in range(kubeapi._REMEMBERED + 1):
        objects.replace("nodes", [node("a", turn=turn)])
    async with served(tmp_path, objects) as client:
        async with watching(client, "/api/v1/nodes", resourceVersion="1") as event:
            told = await event()
        assert (told["type"], told["object"]["code"]) == ("ERROR", 410)
        assert (await client.get("/api/v1/nodes", params={"continue": "1//a"})).status_code == 410


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/secrets", 404),
        ("/", 404),
        ("/api/v1/namespaces/a/nodes", 404),
        ("/api/v1/pods?limit=many", 400),
        ("/api/v1/pods?fieldSelector=spec.hostNetwork=true", 400),
        ("/api/v1/pods?labelSelector=a+in+b", 400),
        ("/api/v1/pods?watch=1&resourceVersion=-1", 400),
    ],
)
async def test_what_is_not_served_is_refused_with_a_status(tmp_path, path, status):
    async with served(tmp_path, Objects()) as client:
        answer = await client.get(path)
        assert (answer.status_code, answer.json()["kind"], answer.json()["code"]) == (status, "Status", status)


@pytest.mark.parametrize(("part", "status"), [("", 200), ("/status", 200), ("/log", 404), ("/exec", 404)])
async def test_a_pod_is_not_sent_as_its_log(tmp_path, part, status):
    objects = Objects()
    objects.replace("pods", [pod("a", "x")])
    async with served(tmp_path, objects) as client:
        assert (await client.get(f"/api/v1/namespaces/a/pods/x{part}")).status_code == status


async def test_nobody_is_served_without_the_token(tmp_path):
    """The token is a part of the server's address."""
    async with served(tmp_path, Objects()) as client:
        port = client.base_url.port
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as stranger:
            for path in ("/api/v1/pods", "/api", "/", f"/{'0' * 32}/api/v1/pods", "/%C3%A9/api/v1/pods"):
                assert (await stranger.get(path)).status_code == 401
        assert (await client.post("/api/v1/pods", json={})).status_code == 405
    assert (tmp_path / "kubeconfig").stat().st_mode & 0o077 == 0


async def test_the_end_of_the_server_ends_its_watches(tmp_path):
    async with asyncio.timeout(60):
        async with served(tmp_path, Objects()) as client:
            request = client.build_request("GET", "/api/v1/nodes", params={"watch": "1"})
            answer = await client.send(request, stream=True)
        with pytest.raises(httpx2.HTTPError):
            await answer.aread()


# What clients change


async def test_a_patch_lasts_while_the_simulation_sets_its_objects_again_and_ends_with_the_object(tmp_path):
    objects = Objects()
    objects.replace("pods", [pod("a", "one")])
    path = "/api/v1/namespaces/a/pods/one"
    async with served(tmp_path, objects) as client:
        change = {"metadata": {"annotations": {"x": "1", "y": "2"}}}
        assert (await client.patch(path, json=change)).status_code == 200
        assert (await client.patch(path, json={"metadata": {"annotations": {"y": None}}})).status_code == 200
        objects.replace("pods", [pod("a", "one") | {"status": {"phase": "Running"}}])
        found = (await client.get(path)).json()
        assert (found["metadata"]["annotations"], found["status"]) == ({"x": "1"}, {"phase": "Running"})
        fresh = pod("a", "one")
        fresh["metadata"]["uid"] = "another"
        objects.replace("pods", [fresh])
        assert "annotations" not in (await client.get(path)).json()["metadata"]
        objects.replace("pods", [])
        assert (await client.patch(path, json=change)).status_code == 404


async def test_a_patch_of_an_old_version_is_a_conflict_and_every_watch_sees_the_others(tmp_path):
    objects = Objects()
    objects.replace("nodes", [node("a")])
    async with served(tmp_path, objects) as client:
        version = (await client.get("/api/v1/nodes/a")).json()["metadata"]["resourceVersion"]
        async with watching(client, "/api/v1/nodes", resourceVersion=version) as event:
            lock = {"metadata": {"annotations": {"lock": "mine"}, "resourceVersion": version}}
            assert (await client.patch("/api/v1/nodes/a", json=lock)).status_code == 200
            assert (await event())["object"]["metadata"]["annotations"] == {"lock": "mine"}
            assert (await client.patch("/api/v1/nodes/a", json=lock)).status_code == 409


async def test_a_pod_is_bound_once_and_only_under_its_own_uid(tmp_path):
    objects = Objects()
    objects.replace("pods", [pod("a", "one") | {"spec": {}}])
    path = "/api/v1/namespaces/a/pods/one/binding"
    async with served(tmp_path, objects) as client:
        target = {"target": {"kind": "Node", "name": "n"}}
        assert (await client.post(path, json={**target, "metadata": {"uid": "x"}})).status_code == 409
        assert (await client.post(path, json={**target, "metadata": {"uid": "a-one"}})).status_code == 201
        assert (await client.post(path, json=target)).status_code == 409
        assert (await client.get("/api/v1/namespaces/a/pods/one")).json()["spec"]["nodeName"] == "n"


async def test_a_binding_sets_annotations_of_the_version_that_it_names(tmp_path):
    objects = Objects()
    objects.replace("pods", [pod("a", "one") | {"spec": {}}])
    path = "/api/v1/namespaces/a/pods/one"
    async with served(tmp_path, objects) as client:
        version = (await client.get(path)).json()["metadata"]["resourceVersion"]
        for named, status in (("1" + version, 409), (version, 201)):
            meta = {"annotations": {"phase": "allocating"}, "resourceVersion": named}
            binding = {"target": {"kind": "Node", "name": "n"}, "metadata": meta}
            assert (await client.post(f"{path}/binding", json=binding)).status_code == status
        assert (await client.get(path)).json()["metadata"]["annotations"]["phase"] == "allocating"


async def test_an_annotation_is_added_by_operations_only_if_it_is_absent(tmp_path):
    objects = Objects()
    one = pod("a", "one")
    one["metadata"]["annotations"] = {"x": "y"}
    objects.replace("pods", [pod("a", "bare"), one])
    at = "/metadata/annotations/hami.io~1a~0b"
    change = [{"op": "test", "path": at, "value": None}, {"op": "add", "path": at, "value": "1"}]
    async with served(tmp_path, objects) as client:
        for name, status in (("bare", 422), ("one", 200), ("one", 422)):
            answer = await client.patch(f"/api/v1/namespaces/a/pods/{name}", json=change)
            assert answer.status_code == status
        notes = (await client.get("/api/v1/namespaces/a/pods/one")).json()["metadata"]["annotations"]
        assert notes == {"x": "y", "hami.io/a~b": "1"}


async def test_leases_are_created_once_and_replaced_only_by_who_read_the_latest(tmp_path):
    leases = "/apis/coordination.k8s.io/v1/namespaces/a/leases"
    lease = {"metadata": {"name": "leader"}, "spec": {"holderIdentity": "x"}}
    async with served(tmp_path, Objects()) as client:
        assert (await client.get(f"{leases}/leader")).status_code == 404
        made = (await client.post(leases, json=lease)).json()
        assert (made["kind"], made["apiVersion"]) == ("Lease", "coordination.k8s.io/v1")
        assert (await client.post(leases, json=lease)).status_code == 409
        taken = {"metadata": made["metadata"], "spec": {"holderIdentity": "y"}}
        assert (await client.put(f"{leases}/leader", json=taken)).json()["spec"] == {"holderIdentity": "y"}
        assert (await client.put(f"{leases}/leader", json=taken)).status_code == 409


async def test_an_event_of_the_new_kind_is_listed_as_one_of_the_old(tmp_path):
    """As a real API server does: it keeps one object and serves it in both forms."""
    path = "/apis/events.k8s.io/v1/namespaces/a/events"
    sent = {
        "metadata": {"name": "one.1"},
        "eventTime": "2026-11-17T08:00:00.000000Z",
        "reportingController": "hami-scheduler",
        "reportingInstance": "x",
        "action": "Scheduling",
        "reason": "FailedScheduling",
        "type": "Warning",
        "note": "0/1 nodes are available",
        "regarding": {"kind": "Pod", "namespace": "a", "name": "one", "uid": "u"},
    }
    async with served(tmp_path, Objects()) as client:
        assert (await client.post(path, json=sent)).status_code == 201
        series = {"series": {"count": 4, "lastObservedTime": "2026-11-17T08:01:00.000000Z"}}
        assert (await client.patch(f"{path}/one.1", json=series)).status_code == 200
        page = decode_events((await client.get("/api/v1/events")).content)
    (event,) = page.items
    assert (event.pod_uid, event.component, event.reason, event.count) == ("u", "hami-scheduler", "FailedScheduling", 4)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/api/v1/namespaces/a/pods", 405),
        ("DELETE", "/api/v1/namespaces/a/pods/one", 405),
        ("POST", "/api/v1/namespaces/a/pods/one/ephemeralcontainers", 405),
        ("PATCH", "/api/v1/pods/one", 404),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/a/pods", 404),
    ],
)
async def test_what_cannot_be_changed_here_is_refused(tmp_path, method, path, status):
    async with served(tmp_path, Objects()) as client:
        assert (await client.request(method, path, json={})).status_code == status


async def test_a_body_that_is_no_object_is_refused(tmp_path):
    objects = Objects()
    objects.replace("nodes", [node("a")])
    async with served(tmp_path, objects) as client:
        assert (await client.patch("/api/v1/nodes/a", content=b"[1")).status_code == 400


# The cluster of the demo


def worlds(at=0.0):
    now = time.time()
    found = [World(plan, seed=1, now=now) for plan in PLANS]
    for second in range(int(at) + 1):
        for world in found:
            world.advance(now + second)
    return found


KINDS: dict[str, tuple[Any, ...]] = {
    "nodes": (objects_format.decode_nodes, objects_format.decode_node_event, lambda one: one.name),
    "pods": (objects_format.decode_cluster_pods, objects_format.decode_cluster_pod_event, lambda one: one.uid),
    "resourcequotas": (
        objects_format.decode_quotas,
        objects_format.decode_quota_event,
        lambda one: (one.namespace, one.name),
    ),
}


async def ledger(tmp_path, found):
    """What the exporter concludes from the API, and what it could not read in it."""
    objects, ledger = Objects(), ClusterLedger()
    faults: list = []
    cluster.publish(objects, found)
    sinks: dict[str, Any] = {
        "nodes": ledger.set_node,
        "pods": ledger.set_pod,
        "resourcequotas": ledger.set_quota,
    }
    async with served(tmp_path, objects) as client:
        for plural, (decode_page, decode_event, key) in KINDS.items():
            listed = asyncio.Event()
            watch = Watch(
                path=f"/api/v1/{plural}", params={}, decode_page=decode_page, decode_event=decode_event, key=key
            )
            task = asyncio.create_task(watch.run(KubeClient(client, timeout=60), listed.set))
            async with asyncio.timeout(60):
                await listed.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            for one in watch.objects:
                sinks[plural](one)
            faults += watch.faults
    ledger.pass_time(0)
    ledger.pass_time(1e6)
    return ledger, faults


def kinds_of(node_ledger):
    return {(one.kind, one.reason) for one in node_ledger.findings}


async def test_every_kind_of_finding_is_somewhere_in_the_demo(tmp_path):
    found, faults = await ledger(tmp_path, worlds(at=26))
    assert faults == []
    assert {kind for name in found.changed().nodes for kind in kinds_of(found.node(name))} == {
        ("ghost", "ended"),
        ("ghost", "unknown"),
        ("ghost", "terminating"),
        ("ghost", "unbound"),
        ("unallocated-user", ""),
        ("vanished-device", ""),
        ("node-unknown", ""),
        ("over-allocated", "memory"),
        ("kubelet-zero", ""),
    }


async def test_what_the_api_gives_away_is_what_the_node_was_told(tmp_path):
    living = worlds()
    found, _ = await ledger(tmp_path, living)
    hami = found.node("hami-a")
    assert [one.device.id for one in hami.devices] == [gpu.uuid for gpu in living[0].gpus]
    held = {(one.pod, one.device, one.memory >> 20) for one in hami.holders}
    for life in living[0].lives.values():
        for gpu in life.job.gpus if life.job.hami else ():
            memory = life.job.hami.memory or living[0].gpus[gpu].spec.memory
            assert (life.name, living[0].gpus[gpu].uuid, memory) in held
    mig = found.node("mig-c")
    assert [one.device.mode for one in mig.devices] == ["mig", "mig", "hami-core"]
    assert [one.instance.profile for one in mig.devices[0].instances] == ["1g.10gb"]


def waits(one):
    """Whether a scheduler that runs has still to find a node for the pod."""
    return not one["spec"].get("nodeName") and one["spec"]["schedulerName"] == "hami-scheduler"


async def test_pods_come_and_wait_and_go():
    objects, living = Objects(), worlds()

    def waiting():
        cluster.publish(objects, living)
        found = [msgspec.json.decode(encoded) for _, encoded in objects.listed("pods", "")]
        return {one["metadata"]["name"] for one in found if waits(one)}

    seen = []
    for second in range(90):
        for world in living:
            world.advance(world.began + second)
        seen.append(waiting())
    assert {"llm-eval-huge-0", "train-octet-0", "sweep-12"} == set.intersection(*seen)
    gone = {name for early, late in pairwise(seen) for name in early - late}
    come = {name for early, late in pairwise(seen) for name in late - early}
    assert {"backfill-7-10", "canary-3-25"} <= gone & come


async def test_one_quota_is_nearly_used_up_and_one_is_not(tmp_path):
    found, _ = await ledger(tmp_path, worlds())
    share = {}
    for name in ("ml-team", "serving"):
        for use in found.namespace(name).quotas:
            if use.resource == "nvidia.com/gpumem":
                share[name] = use.used / use.limit
    assert 0.9 < share["ml-team"] < 1
    assert share["serving"] < 0.7


async def test_pods_are_selected_by_labels(tmp_path):
    objects = Objects()
    labels = {"one": {"app": "a", "tier": "x"}, "two": {"app": "a"}, "three": {}}
    pods = [pod("ml", name) for name in labels]
    for one in pods:
        one["metadata"]["labels"] = labels[one["metadata"]["name"]]
    objects.replace("pods", pods)
    async with served(tmp_path, objects) as client:
        path = "/api/v1/namespaces/ml/pods"
        assert (await names(client, path, labelSelector="app=a"))[0] == ["one", "two"]
        assert (await names(client, path, labelSelector="app=a,tier=x"))[0] == ["one"]
        assert (await names(client, path, labelSelector="app=b"))[0] == []
        assert (await names(client, path, labelSelector="app in (a),tier"))[0] == ["one"]


async def test_an_evicted_pod_is_told_to_the_simulation_unless_another_one_has_its_name(tmp_path):
    objects = Objects()
    objects.replace("pods", [pod("ml", "one")])
    async with served(tmp_path, objects) as client:
        path = "/api/v1/namespaces/ml/pods/one/eviction"
        other = await client.post(path, json={"deleteOptions": {"preconditions": {"uid": "other"}}})
        assert (other.status_code, objects.evicted) == (409, set())
        same = await client.post(path, json={"deleteOptions": {"preconditions": {"uid": "ml-one"}}})
        assert (same.status_code, objects.evicted) == (201, {("ml", "one")})
        assert (await client.post(path.replace("one", "none"), json={})).status_code == 404


# as the real kubectl 1.35 sends it for `kubectl auth can-i list pods -n ml-team`
CAN_I = bytes.fromhex(
    "6b3873000a320a17617574686f72697a6174696f6e2e6b38732e696f2f7631121753656c665375626a65637441636365"
    "7373526576696577123d0a100a0012001a0022002a00320038004200121f0a1d0a076d6c2d7465616d12046c6973741a"
    "0022002a04706f647332003a001a08080012001a0020001a002200"
)


def test_the_question_of_kubectl_is_read_and_each_shorter_one_is_read_or_refused():
    assert access_review(CAN_I)["spec"]["resourceAttributes"] == {
        "namespace": "ml-team",
        "verb": "list",
        "group": "",
        "version": "",
        "resource": "pods",
        "subresource": "",
        "name": "",
    }
    for size in range(len(CAN_I)):
        with contextlib.suppress(ValueError):
            access_review(CAN_I[:size])


@given(st.binary(max_size=200))
def test_any_bytes_are_a_review_or_are_refused(sent):
    try:
        found = access_review(MAGIC + sent)
    except ValueError:
        return
    assert all(isinstance(text, str) for text in found["spec"]["resourceAttributes"].values())


async def test_what_is_no_access_review_is_refused_and_the_api_answers_on(tmp_path):
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    async with served(tmp_path, Objects()) as client:
        for sent in (MAGIC + b"\xff", MAGIC + b"\x12\x7f", MAGIC + b"\x12\x09\x12\x07\x0a\x05\x12\x03\xff\xfe\xfd"):
            assert (await client.post(path, content=sent)).status_code == 400
        assert (await client.post(path, content=CAN_I)).json()["status"] == {"allowed": True}
