"""The program of HAMi's scheduler, asked the questions of tests/hami/questions.py through a real API server.

    with Program(control_plane, tmp_path, "/usr/local/bin/scheduler", node="binpack", gpu="spread") as program:
        program.ask(question)

Each question is seeded from nothing, so it can be made smaller like any other: nodes and quotas, then pods, then their
status, as kubelets and users would. It is asked when the program's own page shows the GPUs and pods of the question.
HAMi reads new nodes at once and changed ones within 15 seconds; therefore each question has nodes of its own.
"""

import base64
import json
import os
import re
import ssl
import subprocess
import time
from copy import deepcopy
from datetime import UTC, datetime

import httpx2

from tests.controlplane import WITHIN, ApiError
from tests.environment import bare
from tests.hami import model
from tests.ports import free_port
from tests.services.agent.noderoot import Samples

SCHEDULER = "hami-scheduler"
GONE = "ml,x"  # holds locks, and is no pod
OF_GPUS = ("hami_gpu_", "hami_node_gpu_")
OF_PODS = "hami_vgpu_"
OF_QUOTAS = "hami_resource_quota_limit"
# what HAMi's chart writes into its device configuration for NVIDIA; JSON is YAML
DEVICES = {
    "nvidia": {
        "resourceCountName": model.GPU,
        "resourceMemoryName": model.MEMORY,
        "resourceMemoryPercentageName": model.PERCENTAGE,
        "resourceCoreName": model.CORES,
        "resourcePriorityName": model.PRIORITY,
        "overwriteEnv": False,
        "defaultMemory": 0,
        "defaultCores": 0,
        "defaultGPUNum": 1,
        "memoryFactor": 1,
        "deviceSplitCount": 10,
        "deviceMemoryScaling": 1,
        "deviceCoreScaling": 1,
        "gpuCorePolicy": "default",
    }
}


class Program:
    """A running scheduler of HAMi, with these default policies."""

    def __init__(self, cluster, path, program, *, node, gpu, flags=()):
        self._cluster, self._number = cluster, 0
        self._url, self._metrics = f"https://127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        devices = path / "device-config.yaml"
        devices.write_text(json.dumps(DEVICES))
        self._command = [
            str(program),
            f"--http_bind={self._url.removeprefix('https://')}",
            f"--cert_file={cluster.path / 'tls.crt'}",
            f"--key_file={cluster.path / 'tls.key'}",
            f"--metrics-bind-address={self._metrics}",
            f"--scheduler-name={SCHEDULER}",
            f"--node-scheduler-policy={node}",
            f"--gpu-scheduler-policy={gpu}",
            f"--device-config-file={os.environ.get('HAMI_DEVICE_CONFIG', devices)}",
            "--leader-elect=false",
            *flags,
        ]
        self._log = path / "scheduler.log"
        self._http = httpx2.Client(verify=ssl.create_default_context(cafile=str(cluster.path / "ca.crt")), timeout=60.0)

    def __enter__(self):
        environ = bare(
            KUBECONFIG=self._cluster.kubeconfig, POD_NAME="hami", POD_NAMESPACE="default", HOME="/nonexistent"
        )
        with self._log.open("w") as log:
            self._process = subprocess.Popen(self._command, env=environ, stdout=log, stderr=log)
        try:
            self._until(self._ready, "serve /healthz")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._http.close()

    # --- questions ----------------------------------------------------------------------------------------------------

    def ask(self, question):
        """What the program answers and leaves behind, in the question's own names."""
        self._number += 1
        prefix = f"w{self._number}"
        asked = json.loads(re.sub(r"\bn(\d)\b", rf"{prefix}n\1", json.dumps(question)))
        try:
            answer = self._answer(asked)
        finally:
            self._cluster.clear()
        return _restored(answer, prefix)

    def _answer(self, asked):
        world, pod = asked["world"], asked["pod"]
        expected = model.page(world)
        self._seed(world)
        self._until(lambda: self._shows(expected), "show the question's GPUs and pods")
        made = self._create(pod)
        names = asked["names"]
        filtered = self._post("/filter", {"Pod": made, "Nodes": None, "NodeNames": names})
        if filtered["Error"]:
            return {"error": True}
        if filtered["NodeNames"] == names:
            return None
        found = {"page": of_gpus(self._page())}
        if not filtered["NodeNames"]:
            return found | {"failed": filtered["FailedNodes"]}
        (node,) = filtered["NodeNames"]
        written = self._cluster.get("pods", pod["metadata"]["name"], namespace=pod["metadata"]["namespace"])
        found |= {"node": node, "written": model.notes(written)}
        return found | {"bound": self._bind(made, node, asked.get("lock"))}

    def _bind(self, pod, node, lock):
        meta = pod["metadata"]
        if lock is not None:
            time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            self._cluster.patch("nodes", node, {"metadata": {"annotations": {model.LOCK: time + lock}}})
        args = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}
        refused = self._post("/bind", args)["Error"]
        after = self._cluster.get("pods", meta["name"], namespace=meta["namespace"])
        holder = model.notes(self._cluster.get("nodes", node)).get(model.LOCK, "").partition(",")[2]
        phase = model.notes(after).get(model.PHASE)
        return {"refused": bool(refused), "node": after["spec"].get("nodeName"), "phase": phase, "lock": holder}

    def admit(self, pod):
        """The pod as the webhook leaves it; None: it is denied."""
        request = {"uid": "r", "operation": "CREATE", "namespace": "ml", "name": "p", "object": pod}
        request["kind"] = {"group": "", "version": "v1", "kind": "Pod"}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        answer = self._post("/webhook", review)["response"]
        if not answer["allowed"]:
            return None
        return patched(pod, json.loads(base64.b64decode(answer.get("patch") or "W10=")))

    # --- the cluster --------------------------------------------------------------------------------------------------

    def _seed(self, world):
        for quota in world["quotas"]:
            self._cluster.create({"kind": "ResourceQuota", **quota})
        for node in world["nodes"]:
            self._cluster.create({"kind": "Node", **node})
        for pod in world["pods"]:
            self._create(pod)

    def _create(self, pod):
        """The pod at the API server; its status is written after it, as by a kubelet."""
        made = deepcopy(pod)
        status, meta = made.pop("status"), made["metadata"]
        meta.pop("uid")
        for one in [*made["spec"].get("initContainers", []), *made["spec"]["containers"]]:
            one["image"] = "none"
        created = self._cluster.create({"kind": "Pod", **made})
        for one in status.get("initContainerStatuses", []):
            one |= {"image": "none", "imageID": "none", "ready": True, "restartCount": 0}
        if status != {"phase": "Pending"}:
            where = {"namespace": meta["namespace"], "subresource": "status"}
            created = self._cluster.patch("pods", meta["name"], {"status": status}, **where)
        created["metadata"].setdefault("annotations", {})
        return created

    def _shows(self, expected):
        """Whether the program knows all GPUs of the page, all pods with what they hold, and the limits of quotas.

        Each kind has a watch of its own: the quotas of an earlier question can still be there. A limit of 0 is none:
        it may be left of a quota that is gone.
        """
        page = self._page()
        known = {key for key in expected if key[0] in {"hami_gpu_memory_limit_bytes", OF_QUOTAS}}
        pods = [{key: value for key, value in one.items() if key[0].startswith(OF_PODS)} for one in (page, expected)]
        limits = [
            {key: value for key, value in one.items() if key[0] == OF_QUOTAS and value} for one in (page, expected)
        ]
        return known <= page.keys() and pods[0] == pods[1] and limits[0] == limits[1]

    def _page(self):
        return Samples.of(self._http.get(f"http://{self._metrics}/metrics").raise_for_status().text)

    # --- the program --------------------------------------------------------------------------------------------------

    def _post(self, path, body):
        return self._http.post(self._url + path, json=body).raise_for_status().json()

    def _ready(self):
        return self._http.get(f"{self._url}/healthz").is_success

    def _until(self, condition, what):
        end = time.monotonic() + WITHIN
        while not _holds(condition):
            log = self._log.read_text()[-4000:]
            assert self._process.poll() is None, f"the scheduler ended:\n{log}"
            assert time.monotonic() < end, f"the scheduler does not {what} in {WITHIN:g} s:\n{log}"
            time.sleep(0.02)  # between two looks, not in place of one


def _holds(condition):
    try:
        return condition()
    except (httpx2.HTTPError, ApiError):
        return False


def of_gpus(page):
    return [
        [name, list(map(list, labels)), value] for (name, labels), value in page.items() if name.startswith(OF_GPUS)
    ]


def _restored(answer, prefix):
    return json.loads(re.sub(rf"\b{prefix}n(\d)\b", r"n\1", json.dumps(answer)))


def patched(pod, patch):
    """The pod after a JSON patch of the operations that HAMi's webhook uses."""
    made = deepcopy(pod)
    for one in patch:
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in one["path"].split("/")[1:]]
        at = made
        for part in parents:
            at = at[int(part)] if isinstance(at, list) else at[part]
        key = int(last) if isinstance(at, list) and last != "-" else last
        if one["op"] == "remove":
            del at[key]
        elif isinstance(at, list) and one["op"] == "add":
            at.insert(len(at) if last == "-" else key, one["value"])
        else:
            at[key] = one["value"]
    return made
