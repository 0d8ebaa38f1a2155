"""A real kube-scheduler asks our extender beside a real API server: single decisions, told to the user."""

import base64
import json
import socket
import time
import urllib.error
import urllib.request
from contextlib import ExitStack

import pytest
import trustme

from tests.contract.clusterrun import exporter, quota, registered
from tests.contract.extenderrun import (
    ALLOCATED,
    LOCK,
    PHASE,
    RIGHTS,
    SHORT_LEASE,
    DevicePlugins,
    configuration,
    decisions,
    extender,
    gpu_pod,
    scheduler,
    start_extender,
)
from tests.contract.test_cluster_dra import give, user, wanting
from tests.controlplane import ApiError, pod, until
from tests.ports import free_port
from vgpuscope.catalog import extender as m
from vgpuscope.catalog import scheduling

pytestmark = pytest.mark.real


@pytest.fixture
def cluster(empty_cluster):
    for number in range(3):
        empty_cluster.create(registered(f"gpu-{number}", f"GPU-{number}-a", f"GPU-{number}-b", memory=10000))
    return empty_cluster


@pytest.fixture
def rights(cluster):
    """The kubeconfig of an account that has the rights of docs/extender.md, and no others."""
    return cluster.user("extender", RIGHTS)


def found(cluster, name):
    return cluster.get("pods", name, namespace="ml")


def bound(cluster, name):
    return found(cluster, name)["spec"].get("nodeName")


def notes(cluster, name):
    return found(cluster, name)["metadata"].get("annotations", {})


def unschedulable(cluster, name):
    """What kube-scheduler says in the pod's condition; empty while it has none."""
    conditions = found(cluster, name)["status"].get("conditions", [])
    return next((one["message"] for one in conditions if one["type"] == "PodScheduled"), "")


def event(cluster, name, reason):
    """The note of an event that our extender wrote on a pod."""
    for one in cluster.list("events", namespace="ml"):
        ours = one.get("reportingInstance", "").partition("_")[2]  # kube-scheduler writes under the same name
        if one["involvedObject"]["name"] == name and one["reason"] == reason and len(ours) == 8:
            return one
    return None


def note(cluster, name, reason):
    until(lambda: event(cluster, name, reason))
    return event(cluster, name, reason)["message"]


def test_a_pod_is_bound_to_the_gpu_that_was_written_on_it_and_told_so(cluster, rights, tmp_path):
    with extender(rights, tmp_path) as running, DevicePlugins(cluster) as plugins, scheduler(cluster, running.url):
        cluster.create(gpu_pod("train", memory=4000, cores=30))
        until(lambda: notes(cluster, "train").get(PHASE) == "success")
        made = found(cluster, "train")
        node = made["spec"]["nodeName"]
        assert made["metadata"]["labels"]["hami.io/vgpu-node"] == node
        written = notes(cluster, "train")
        gpu = written[ALLOCATED].partition(",")[0]
        assert gpu.startswith(f"GPU-{node[-1]}-")
        assert written[ALLOCATED] == f"{gpu},NVIDIA,4000,30:;"
        assert written["hami.io/vgpu-node"] == node
        text = note(cluster, "train", "Scheduled")
        head, gpus, score = text.split("\n")
        assert head == f"Successfully assigned ml/train to {node}"
        assert gpus == "GPU: 1/2, Memory: 4000MB"
        assert score == "Score: 0, Policy: binpack"
        assert event(cluster, "train", "Scheduled")["reportingComponent"] == "hami-scheduler"
        until(lambda: len(decisions(running, "train")) == 2)  # the pod is bound before that is recorded
        last, first = decisions(running, "train")
        assert (first["verb"], first["outcome"], first["node"]) == ("filter", "assigned", node)
        assert (last["verb"], last["outcome"]) == ("bind", "bound")
        assert first["devices"] == [{"uuid": gpu, "memory": 4000, "cores": 30}]
        assert not plugins.wrong


def test_the_memory_of_an_init_container_is_not_added_to_that_of_its_app_container(cluster, rights, tmp_path):
    """They take turns: the pod holds the larger of both amounts, and that is what a decision counts."""
    with extender(rights, tmp_path) as running, DevicePlugins(cluster), scheduler(cluster, running.url):
        made = gpu_pod("turns", memory=3000)
        first = gpu_pod("fetch", memory=7000)["spec"]["containers"][0]
        made["spec"]["initContainers"] = [first | {"name": "fetch"}]
        cluster.create(made)
        until(lambda: bound(cluster, "turns"))
        init, app = (segment.split(",") for segment in notes(cluster, "turns")[ALLOCATED].split(";")[:2])
        assert (init[0], init[2], app[2]) == (app[0], "7000", "3000")  # the same GPU
        assert note(cluster, "turns", "Scheduled").split("\n")[1] == "GPU: 1/2, Memory: 7000MB"


def test_a_pod_that_fits_nowhere_is_told_why_and_is_bound_once_it_fits(cluster, rights, tmp_path):
    with extender(rights, tmp_path) as running, DevicePlugins(cluster) as plugins, scheduler(cluster, running.url):
        cluster.create(gpu_pod("large", memory=16000))
        text = note(cluster, "large", "FailedScheduling")
        short = "GPU memory insufficient (requested 16000MB, available 10000MB)"
        assert text == "0/3 nodes available:\n" + "\n".join(f"gpu-{number}: {short}" for number in range(3))
        refused = decisions(running, "large")[0]
        assert refused["outcome"] == "refused"
        assert {(one["node"], one["code"], one["requested"], one["available"]) for one in refused["nodes"]} == {
            (f"gpu-{number}", "SCHED_INSUFFICIENT_GPU_MEMORY", "16000MB", "10000MB") for number in range(3)
        }
        line = "Failed to schedule pod error_code=SCHED_INSUFFICIENT_GPU_MEMORY pod=ml/large node=gpu-0"
        running.wait(lambda: line in (log := running.log.read_text()) and "requested=16000MB available=10000MB" in log)
        # kube-scheduler writes its condition after our event
        until(lambda: "2/2 CardInsufficientMemory" in unschedulable(cluster, "large"))
        cluster.create(registered("gpu-9", "GPU-9-a", memory=20000))
        plugins._capacity["GPU-9-a"] = (20000, 100, 10)
        until(lambda: bound(cluster, "large") == "gpu-9")
        page = running.until(lambda page: page.one(m.BIND_SUCCESS.name) == 1)  # the pod is bound before that is counted
        assert page.one(m.REFUSALS.name, verb="filter", code="SCHED_INSUFFICIENT_GPU_MEMORY") >= 1
        assert page.one(f"{m.SCORE_SECONDS.name}_count") == page.one(f"{m.FILTER_SECONDS.name}_count")
        assert not plugins.wrong


def test_the_replica_beside_the_kube_scheduler_that_was_elected_leads_within_seconds(cluster, rights, tmp_path):
    """Two elections, two winners: the first replica leads, and the kube-scheduler of the second one is elected."""
    environ = {"VGPUSCOPE_EXTENDER_SCHEDULER_LEASE": "vgpuscope-kube-scheduler"}
    elected = {"leaderElect": True, "resourceName": "vgpuscope-kube-scheduler", "resourceNamespace": "default"}
    with extender(rights, tmp_path, environ=environ, host="another-pod") as first, ExitStack() as ends:
        port = free_port()
        second = start_extender(rights, tmp_path, port, environ=environ)
        ends.callback(second.process.wait, 60)
        ends.callback(second.process.terminate)
        second.wait(lambda: second.status("/healthz") == 200)
        settings = configuration([second.url]) | {"leaderElection": elected}
        settings["clientConnection"]["kubeconfig"] = cluster.kubeconfig
        ends.enter_context(DevicePlugins(cluster))
        ends.enter_context(cluster.scheduler(settings))
        began = time.monotonic()
        cluster.create(gpu_pod("elected", memory=100))
        until(lambda: bound(cluster, "elected"))
        print(f"bound after {time.monotonic() - began:.1f} s")
        lease = cluster.get("leases", "vgpuscope-kube-scheduler", namespace="default")
        assert lease["spec"]["holderIdentity"].startswith(f"{socket.gethostname()}_")
        # the first one gave the lease back, so nobody had to wait until it had stopped, and nothing had to be fenced
        assert "handing over" in first.log.read_text()
        assert " fenced=0" in next(one for one in second.log.read_text().splitlines() if "ready to decide" in one)
        assert first.status("/readyz") == 503


def test_a_quota_holds_before_the_pods_are_bound(cluster, rights, tmp_path):
    cluster.namespace("ml")
    cluster.create(quota("ml", gpumem="5000"))
    with extender(rights, tmp_path) as running, DevicePlugins(cluster), scheduler(cluster, running.url):
        cluster.create(gpu_pod("first", memory=3000))
        until(lambda: bound(cluster, "first"))
        cluster.create(gpu_pod("second", memory=3000))
        assert "quota exceeded (namespace ml)" in note(cluster, "second", "FailedScheduling")
        assert decisions(running, "second")[0]["nodes"][0]["code"] == "SCHED_QUOTA_EXCEEDED"
        more = {"spec": {"hard": {"limits.nvidia.com/gpumem": "6000"}}}
        cluster.patch("resourcequotas", "gpus", more, namespace="ml")  # of which kube-scheduler learns nothing
        until(lambda: bound(cluster, "second"))
        assert "vgpuscope.io/retry" in notes(cluster, "second")


def test_a_pod_without_gpus_passes_and_is_not_changed(cluster, rights, tmp_path):
    """managedResources keep such pods away from us; a configuration without them does not."""
    with extender(rights, tmp_path) as running:
        made = cluster.create(pod("web", schedulerName="hami-scheduler"))
        args = {"Pod": made, "Nodes": None, "NodeNames": ["gpu-0", "gpu-1"]}
        answer = post(running, "/filter", args)
        assert (answer["NodeNames"], answer["FailedNodes"], answer["Error"]) == (["gpu-0", "gpu-1"], {}, "")
        binding = {"PodName": "web", "PodNamespace": "ml", "PodUID": made["metadata"]["uid"], "Node": "gpu-1"}
        assert post(running, "/bind", binding) == {"Error": ""}
        assert bound(cluster, "web") == "gpu-1"
        assert not notes(cluster, "web")
        assert LOCK not in cluster.get("nodes", "gpu-1")["metadata"]["annotations"]
        assert running.page().one(m.BIND_SUCCESS.name) == 1


def post(running, path, body):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(running.url + path, data=data, headers={"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as e:
        with e:
            return {"status": e.code, **json.load(e)}


def bind_of(made, node):
    meta = made["metadata"]
    return {"PodName": meta["name"], "PodNamespace": "ml", "PodUID": meta["uid"], "Node": node}


def test_a_bind_without_an_assignment_fails_with_a_code(cluster, rights, tmp_path):
    with extender(rights, tmp_path) as running:
        made = cluster.create(gpu_pod("train", memory=4000))
        answer = post(running, "/bind", bind_of(made, "gpu-0"))
        assert answer["Error"].startswith("SCHED_BIND_FAILED: the pod has no assignment of GPUs on gpu-0")
        assert bound(cluster, "train") is None
        assert notes(cluster, "train") == {PHASE: "failed"}
        assert "no assignment" in note(cluster, "train", "FailedScheduling")
        page = running.page()
        assert (page.one(m.BIND_FAILURE.name), page.one(m.BIND_SUCCESS.name)) == (1, 0)


def test_a_lock_of_another_pod_is_respected_and_not_released(cluster, rights, tmp_path):
    with extender(rights, tmp_path, environ={"VGPUSCOPE_EXTENDER_BIND_TIMEOUT": "3s"}) as running:
        cluster.create(pod("other"))
        made = cluster.create(gpu_pod("train", memory=4000))
        node = post(running, "/filter", {"Pod": made, "NodeNames": ["gpu-0"]})["NodeNames"][0]
        lock = "2099-01-01T00:00:00Z,ml,other"
        cluster.patch("nodes", node, {"metadata": {"annotations": {LOCK: lock}}})
        answer = post(running, "/bind", bind_of(made, node))
        assert answer["Error"] == f"SCHED_NODE_LOCKED: node {node} has been locked by ml/other"
        assert cluster.get("nodes", node)["metadata"]["annotations"][LOCK] == lock
        assert notes(cluster, "train") == {PHASE: "failed"}
        assert "hami.io/vgpu-node" not in found(cluster, "train")["metadata"].get("labels", {})
        assert running.page().one(m.BIND_FAILURE.name) == 1


def test_a_lock_of_a_dead_pod_an_old_one_and_a_broken_one_are_void(cluster, rights, tmp_path):
    elsewhere = {"hami.io/vgpu-node": "gpu-2", ALLOCATED: "GPU-2-a,NVIDIA,1,0:;"}
    void = {
        "dead": "2099-01-01T00:00:00Z,ml,gone",
        "old": "2020-01-01T00:00:00Z,ml,other",
        "broken": "???",
        "moved": "2099-01-01T00:00:00Z,ml,moved",
    }
    with extender(rights, tmp_path) as running:
        cluster.create(pod("other"))
        cluster.create(gpu_pod("moved", memory=1, annotations=elsewhere))
        for name, lock in void.items():
            made = cluster.create(gpu_pod(f"train-{name}", memory=1000))
            node = post(running, "/filter", {"Pod": made, "NodeNames": ["gpu-0"]})["NodeNames"][0]
            cluster.patch("nodes", node, {"metadata": {"annotations": {LOCK: lock}}})
            assert post(running, "/bind", bind_of(made, node)) == {"Error": ""}, name
            assert cluster.get("nodes", node)["metadata"]["annotations"][LOCK].endswith(f",ml,train-{name}")
            assert notes(cluster, f"train-{name}")[PHASE] == "allocating"


def test_whole_nodes_give_the_same_choice_and_nothing_is_written(cluster, rights, tmp_path):
    with extender(rights, tmp_path) as running:
        used = cluster.create(gpu_pod("used", memory=1000))
        first = post(running, "/filter", {"Pod": used, "NodeNames": ["gpu-1"]})["NodeNames"]
        assert first == ["gpu-1"]
        made = cluster.create(gpu_pod("train", memory=4000))
        nodes = {"metadata": {}, "items": cluster.list("nodes")}
        answer = post(running, "/filter", {"Pod": made, "Nodes": nodes, "NodeNames": None})
        assert [one["metadata"]["name"] for one in answer["Nodes"]["items"]] == ["gpu-1"]  # binpack: beside the other
        assert answer["NodeNames"] is None
        assert not notes(cluster, "train")
        names = [one["metadata"]["name"] for one in nodes["items"]]
        assert post(running, "/filter", {"Pod": made, "NodeNames": names})["NodeNames"] == ["gpu-1"]
        scores = {one["Host"]: one["Score"] for one in post(running, "/prioritize", {"Pod": made, "NodeNames": names})}
        assert scores == {one["Host"]: one["Score"] for one in post(running, "/score", {"Pod": made, "Nodes": nodes})}
        assert set(scores) == set(names)
        assert all(0 <= score <= 10 for score in scores.values())


def test_two_schedulers_on_one_pod_do_not_both_have_it(cluster, rights, tmp_path):
    """The pod that kube-scheduler sends is older than what another scheduler has written."""
    with extender(rights, tmp_path) as running:
        made = cluster.create(gpu_pod("train", memory=4000))
        theirs = {"hami.io/vgpu-node": "gpu-2", ALLOCATED: "GPU-2-a,NVIDIA,4000,0:;"}
        cluster.patch("pods", "train", {"metadata": {"annotations": theirs}}, namespace="ml")
        assert post(running, "/filter", {"Pod": made, "NodeNames": ["gpu-0"]})["NodeNames"] == ["gpu-0"]
        assert notes(cluster, "train")["hami.io/vgpu-node"] == "gpu-0"  # decided again over the newer version
        assert post(running, "/bind", bind_of(made, "gpu-2"))["Error"].startswith("SCHED_BIND_FAILED: the pod has no")


def test_an_assignment_that_another_scheduler_made_impossible_is_not_bound(cluster, rights, tmp_path):
    with extender(rights, tmp_path) as running:
        made = cluster.create(gpu_pod("train", memory=8000))
        assert post(running, "/filter", {"Pod": made, "NodeNames": ["gpu-0"]})["NodeNames"] == ["gpu-0"]
        gpu = notes(cluster, "train")[ALLOCATED].partition(",")[0]
        theirs = {"hami.io/vgpu-node": "gpu-0", ALLOCATED: f"{gpu},NVIDIA,8000,0:;"}
        cluster.create(pod("rival", node="gpu-0", annotations=theirs, limits={"nvidia.com/gpu": "1"}))
        running.until(lambda page: page.one(m.WATCH_OBJECTS.name, kind="pods") == 2)
        answer = post(running, "/bind", bind_of(made, "gpu-0"))
        assert answer["Error"].startswith("SCHED_INSUFFICIENT_GPU_MEMORY: the assignment does not fit any more")
        assert bound(cluster, "train") is None
        assert notes(cluster, "train") == {PHASE: "failed"}
        again = post(running, "/filter", {"Pod": found(cluster, "train"), "NodeNames": ["gpu-0"]})
        assert again["NodeNames"] == ["gpu-0"]
        assert gpu not in notes(cluster, "train")[ALLOCATED]


IMPOSSIBLE = {
    "nvidia.com/gpumem": ["1e18", "-1"],
    "nvidia.com/gpu": ["1e18"],
    "nvidia.com/gpumem-percentage": ["101"],
}


def test_an_impossible_amount_is_refused_with_a_code(cluster, rights, tmp_path):
    """The API server lets most of them pass; a program that calls us can send any."""
    with extender(rights, tmp_path) as running:
        made = cluster.create(gpu_pod("train", memory=1000))
        for name, value in [(name, value) for name, values in IMPOSSIBLE.items() for value in values]:
            asked = json.loads(json.dumps(made))
            asked["spec"]["containers"][0]["resources"]["limits"][name] = value
            answer = post(running, "/filter", {"Pod": asked, "NodeNames": ["gpu-0", "gpu-1"]})
            assert answer["NodeNames"] == []
            assert all(text.startswith("SCHED_REQUEST_INVALID: ") for text in answer["FailedNodes"].values())
            assert set(answer["FailedNodes"]) == {"gpu-0", "gpu-1"}
            assert decisions(running, "train")[0]["nodes"][0]["code"] == "SCHED_REQUEST_INVALID"
        assert not notes(cluster, "train")


@pytest.fixture
def certificate(tmp_path):
    """A web configuration with a certificate for this machine, and the authority that signed it."""
    authority = trustme.CA()
    own = authority.issue_cert("127.0.0.1")
    own.cert_chain_pems[0].write_to_path(tmp_path / "tls.crt")
    own.private_key_pem.write_to_path(tmp_path / "tls.key")
    (tmp_path / "web.yml").write_text("tls_server_config: {cert_file: tls.crt, key_file: tls.key}\n")
    return tmp_path / "web.yml", base64.b64encode(authority.cert_pem.bytes()).decode()


def test_the_api_server_applies_what_the_webhook_answers(cluster, rights, tmp_path, certificate):
    file, authority = certificate
    hooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    cluster.namespace("ml")
    with extender(rights, tmp_path, "--web.config.file", str(file)) as running:
        hook = {
            "name": "pods.vgpuscope.io",
            "clientConfig": {"url": running.url.replace("http:", "https:") + "/webhook", "caBundle": authority},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
        }
        body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
        cluster.call("POST", hooks, {**body, "metadata": {"name": "vgpuscope"}, "webhooks": [hook]})
        try:
            until(lambda: _scheduler_of(cluster) == "hami-scheduler")  # the API server learns of it by a watch
            ask = {"nvidia.com/gpu": "1", "nvidia.com/priority": "0"}
            made = cluster.create(pod("whole", limits=ask))["spec"]["containers"][0]
            assert made["resources"]["limits"] == made["resources"]["requests"] == {**ask, "nvidia.com/gpucores": "100"}
            assert made["env"] == [{"name": "CUDA_TASK_PRIORITY", "value": "0"}]
            with pytest.raises(ApiError, match="SCHED_ADMISSION_DENIED: pod has node assigned"):
                cluster.create(pod("pinned", limits=ask, node="gpu-0"))
            assert cluster.create(pod("web"))["spec"]["schedulerName"] == "default-scheduler"
        finally:
            cluster.call("DELETE", f"{hooks}/vgpuscope")
            # it forgets it by a watch, too; until then it would ask an extender that has ended
            until(lambda: _scheduler_of(cluster) == "default-scheduler")


def _scheduler_of(cluster):
    """The scheduler of a pod that is created now, and removed again."""
    made = cluster.create(pod("probe", limits={"nvidia.com/gpu": "1"}))
    cluster.delete("pods", "probe", namespace="ml")
    return made["spec"]["schedulerName"]


def test_the_cluster_exporter_leaves_the_names_to_a_running_extender(cluster, rights, tmp_path):
    with exporter(cluster.kubeconfig, tmp_path, "--lease-namespace", "default") as watching:
        watching.until(lambda page: page.has(scheduling.BIND_SUCCESS.name))
        with extender(rights, tmp_path):
            watching.until(lambda page: not page.has(scheduling.BIND_SUCCESS.name))
        watching.until(lambda page: page.has(scheduling.BIND_SUCCESS.name))  # it has released its lease


def test_health_tells_the_truth_while_the_api_server_is_down(cluster, rights, tmp_path):
    with extender(rights, tmp_path, environ=SHORT_LEASE) as running:
        running.wait(lambda: b"cache: synced\nlease: leading\napi: reachable" in running.get("/healthz")[2])
        cluster.stop_apiserver()
        running.wait(lambda: running.status("/readyz") == 503)
        running.wait(lambda: b"api: unreachable" in running.get("/healthz")[2])
        assert running.status("/healthz") == 200  # a restart would not help
        cluster.start_apiserver()
        running.wait(lambda: running.status("/readyz") == 200)


def test_without_election_no_right_on_leases_is_needed(cluster, tmp_path):
    rights = {name: verbs for name, verbs in RIGHTS.items() if not name.startswith("leases")}
    with extender(cluster.user("alone", rights), tmp_path, "--leader-elect", "false") as running:
        running.wait(lambda: running.status("/readyz") == 200)
        made = cluster.create(gpu_pod("train", memory=4000))
        assert post(running, "/filter", {"Pod": made, "NodeNames": ["gpu-0"]})["NodeNames"] == ["gpu-0"]


def test_kube_scheduler_tells_the_user_why_the_extender_cannot_decide(cluster, tmp_path):
    """Without the right to the lease a replica never leads. kube-scheduler reads only answers with status 200."""
    rights = {name: verbs for name, verbs in RIGHTS.items() if not name.startswith("leases")}
    running = start_extender(cluster.user("standby", rights), tmp_path, free_port())
    try:
        running.wait(lambda: running.status("/healthz") == 200)
        with scheduler(cluster, running.url):
            cluster.create(gpu_pod("train", memory=4000))
            until(lambda: "EXTENDER_STANDBY: the lease is not held" in unschedulable(cluster, "train"))
        last = decisions(running, "train")[0]
        assert (last["verb"], last["outcome"], last["nodes"][0]["code"]) == ("filter", "failed", "SCHED_NO_EXTENDER")
        assert not notes(cluster, "train")
    finally:
        running.process.kill()
        running.process.wait()


def held_by_claims(cluster):
    """GPU-0-a by a claim that a pod uses, GPU-1-a by one that no pod uses; a driver publishes both."""
    for number in range(2):
        gpu = {"name": "gpu-0", "attributes": {"uuid": {"string": f"GPU-{number}-a"}}}
        gpu["capacity"] = {"memory": {"value": "10000Mi"}}
        pool = {"name": f"gpu-{number}", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "gpu.nvidia.com", "nodeName": f"gpu-{number}", "pool": pool, "devices": [gpu]}
        cluster.create({"kind": "ResourceSlice", "metadata": {"name": f"s{number}"}, "spec": spec})
        claim = {**wanting(f"c{number}"), "status": allocated(f"gpu-{number}")}
        cluster.create(claim)
        using = [cluster.create(user("by-claim", "c0", node="gpu-0"))] if number == 0 else []
        give(cluster, claim, using)


def allocated(node):
    result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": node, "device": "gpu-0"}
    here = {"key": "metadata.name", "operator": "In", "values": [node]}
    selector = {"nodeSelectorTerms": [{"matchFields": [here]}]}
    return {"allocation": {"devices": {"results": [result]}, "nodeSelector": selector}}


def test_gpus_that_claims_hold_are_used_for_extender_and_exporter_alike(cluster, rights, tmp_path):
    cluster.namespace("ml")
    held_by_claims(cluster)
    with extender(rights, tmp_path) as running, exporter(cluster.kubeconfig, tmp_path) as watching:
        body = {"kind": "Pod", **gpu_pod("asked", memory=10000)}
        fits = post(running, "/api/v1/fit", {"pod": body, "replicas": 9})
        assert "places" in fits, fits
        nodes = json.loads(watching.get("/api/v1/nodes")[2])
    free = {one["device"]["id"] for node in nodes for one in node["devices"] if not one["shared"]}
    assert {gpu["uuid"] for place in fits["places"] for gpu in place["gpus"]} == free
    assert free == {"GPU-0-b", "GPU-1-b", "GPU-2-a", "GPU-2-b"}
    refused = {one["node"]: one for one in fits["nodes"]}
    assert "1/2 CardHeldByClaim" in refused["gpu-0"]["reason"]


def test_a_gpu_of_a_claim_is_given_only_when_the_claim_is_gone_and_the_pod_is_told_why(cluster, rights, tmp_path):
    cluster.namespace("ml")
    for name in ("gpu-1", "gpu-2"):
        cluster.delete("nodes", name)
    held_by_claims(cluster)
    with extender(rights, tmp_path) as running, DevicePlugins(cluster), scheduler(cluster, running.url):
        cluster.create(gpu_pod("two", memory=1000, count=2))
        text = note(cluster, "two", "FailedScheduling")
        assert text == "0/1 nodes available:\ngpu-0: GPU held by a ResourceClaim (1 of 2 GPUs)"
        assert decisions(running, "two")[0]["nodes"][0]["code"] == "SCHED_EXCLUSIVE_CONFLICT"
        free = {"status": {"allocation": None, "reservedFor": None}}
        cluster.patch("resourceclaims", "c0", free, namespace="ml", subresource="status")
        until(lambda: bound(cluster, "two") == "gpu-0")


def test_without_the_right_to_read_claims_it_decides_and_tells(cluster, tmp_path):
    rights = {name: verbs for name, verbs in RIGHTS.items() if not name.endswith("resource.k8s.io")}
    with extender(cluster.user("no-claims", rights), tmp_path) as running:
        running.wait(lambda: running.status("/readyz") == 200)
        page = running.until(lambda page: page.has(m.CACHE_AGE.name))
        assert page.one(m.WATCH_UP.name, kind="resourceclaims") == 0
        assert page.one(m.WATCH_UP.name, kind="pods") == 1
        assert b"resourceclaims: forbidden" in running.get("/healthz")[2]
        running.wait(lambda: "watch down" in (log := running.log.read_text()) and "resourceclaims" in log)
