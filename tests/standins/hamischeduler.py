"""A stand-in for the program of HAMi's scheduler v2.10: its flags, its caches, its endpoints, over tests/hami/model.py.

    KUBECONFIG=file python -m tests.standins.hamischeduler --http_bind=127.0.0.1:8443 --cert_file=… --key_file=… \
        --metrics-bind-address=127.0.0.1:9395 --node-scheduler-policy=binpack --gpu-scheduler-policy=spread

Like HAMi it knows nodes as they were when they were added, and pods and quotas as its watches report them. `--fault`
makes one mistake on purpose: FAULTS. `--ties=last` chooses otherwise among equal nodes and GPUs, as HAMi may.
"""

import argparse
import base64
import json
import os
import ssl
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.hami import model

KINDS = ("nodes", "pods", "resourcequotas")
FAULTS = ("memory", "words", "page", "lock", "webhook", "silent")


class Kube:
    """The API server of a kubeconfig, and what watches have seen of it."""

    def __init__(self, path):
        config = json.loads(Path(path).read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._url, self._token = cluster["server"], user["token"]
        self._trust = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self.seen: dict = {kind: {} for kind in KINDS}
        self.lock = threading.RLock()

    def call(self, method, path, body=None, *, media="application/merge-patch+json"):
        with self._open(method, path, body, media) as answer:
            return json.loads(answer.read())

    def follow(self, kind):
        """List once, then watch for as long as the process lives."""
        found = self.call("GET", f"/api/v1/{kind}")
        for one in found["items"]:
            self._keep(kind, "ADDED", one)
        version = found["metadata"]["resourceVersion"]
        threading.Thread(target=self._watch, args=(kind, version), daemon=True).start()

    def _watch(self, kind, version):
        while True:
            with self._open("GET", f"/api/v1/{kind}?watch=1&resourceVersion={version}", None, "") as stream:
                for line in stream:
                    event = json.loads(line)
                    version = event["object"]["metadata"]["resourceVersion"]
                    self._keep(kind, event["type"], event["object"])

    def _keep(self, kind, event, one):
        uid = one["metadata"]["uid"]
        with self.lock:
            if event == "DELETED":
                self.seen[kind].pop(uid, None)
            elif kind != "nodes" or event == "ADDED":
                self.seen[kind][uid] = _plain(one)

    def _open(self, method, path, body, media):
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": media}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data=data, headers=headers, method=method)
        return urllib.request.urlopen(request, context=self._trust)

    def world(self):
        with self.lock:
            found = {kind: list(self.seen[kind].values()) for kind in KINDS}
        return {"nodes": found["nodes"], "pods": found["pods"], "quotas": found["resourcequotas"]}


def _plain(one):
    one["metadata"].setdefault("annotations", {})
    return one


class Scheduler:
    def __init__(self, kube, *, node, gpu, fault, ties):
        self.kube, self.fault, self._ties = kube, fault, ties
        self._policies = {"node": node, "gpu": gpu}
        self._overview: dict = {"nodes": []}  # the world as of the last filter or new node: what the page says of GPUs

    def filter(self, args):
        pod, names = _plain(args["Pod"]), args["NodeNames"]
        self._overview = world = self.kube.world()
        try:
            answer = model.filter_pod(world, pod, names, **self._policies, chance=self._chance(world))
        except model.FilterError as e:
            return _filtered(None, Error=f"invalid weights: {e}")
        if answer is None:
            return _filtered(names)
        if "failed" in answer:
            failed = answer["failed"]
            if self.fault == "words":
                failed = {
                    name: text.replace("CardInsufficientCore", "CardInsufficientMemory")
                    for name, text in failed.items()
                }
            return _filtered(None, FailedNodes=failed)
        notes = model.annotations(pod, answer)
        if self.fault == "memory":
            notes[model.ALLOCATED] = notes[model.ALLOCATED].replace(",NVIDIA,1000,", ",NVIDIA,1001,")
        notes[model.ALLOCATED] = "".join(f"{part};" for part in notes[model.ALLOCATED].split(";") if part)
        notes |= {"hami.io/vgpu-devices-to-allocate": notes[model.ALLOCATED], "hami.io/vgpu-time": f"{time.time():.0f}"}
        change = {"metadata": {"annotations": notes, "labels": {model.PLACED_ON: answer["node"]}}}
        if self.fault != "silent":
            self.kube.call("PATCH", _path(pod), change)
        return _filtered([answer["node"]])

    def _chance(self, world):
        """Equal nodes and GPUs in another order than the model's own, as HAMi may choose them."""
        if self._ties == "first":
            return "", {}
        gpus = sorted(card.id for node in world["nodes"] for card in model.cards_of(node))
        return max(node["metadata"]["name"] for node in world["nodes"]), dict.fromkeys(range(10), gpus)

    def bind(self, args):
        pod = _plain(self.kube.call("GET", f"/api/v1/namespaces/{args['PodNamespace']}/pods/{args['PodName']}"))
        node = _plain(self.kube.call("GET", f"/api/v1/nodes/{args['Node']}"))
        world = {"nodes": [node], "pods": self.kube.world()["pods"]}
        if self.fault == "lock" and model.LOCK in model.notes(node):
            return {"Error": "node is locked"}
        if refused := model.bind(world, pod, args["Node"], time.time()):
            return {"Error": refused}
        model.notes(pod)["hami.io/bind-time"] = f"{time.time():.0f}"
        for one, path in ((node, f"/api/v1/nodes/{args['Node']}"), (pod, _path(pod))):
            self.kube.call("PATCH", path, {"metadata": {"annotations": model.notes(one)}})
        target = {"apiVersion": "v1", "kind": "Node", "name": args["Node"]}
        meta = {"name": args["PodName"], "uid": args["PodUID"]}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        self.kube.call("POST", f"{_path(pod)}/binding", body, media="application/json")
        return {"Error": ""}

    def webhook(self, review):
        request = review["request"]
        made = model.webhook(request["object"])
        answer = {"uid": request["uid"], "allowed": made is not None}
        if made is not None and self.fault != "webhook":
            patch = [{"op": "replace", "path": "/spec", "value": made["spec"]}]
            answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}
        return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}

    def page(self):
        world = self.kube.world()
        if self._overview["nodes"] != world["nodes"]:
            self._overview = world
        of_gpus, live = model.page(self._overview), model.page(world)
        page = {key: value for key, value in of_gpus.items() if "_gpu_" in key[0]}
        page |= {key: value for key, value in live.items() if "_gpu_" not in key[0]}
        lines = []
        for (name, labels), value in page.items():
            off = 1 if self.fault == "page" and name == "hami_gpu_shared_count" else 0
            lines.append(f"{name}{{{','.join(f'{key}={json.dumps(text)}' for key, text in labels)}}} {value + off}\n")
        return "".join(lines)


def _filtered(names, **more):
    return {
        "Nodes": None,
        "NodeNames": names,
        "FailedNodes": None,
        "FailedAndUnresolvableNodes": None,
        "Error": "",
        **more,
    }


def _path(pod):
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _handler(posts, gets):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._answer(json.dumps(posts[self.path](body)))

        def do_GET(self):
            self._answer(gets[self.path]())

        def _answer(self, text):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            """Quiet."""

    return Handler


def _server(address, handler):
    host, _, port = address.rpartition(":")
    return ThreadingHTTPServer((host, int(port)), handler)


def main():
    parser = argparse.ArgumentParser()
    for name in ("http_bind", "cert_file", "key_file", "metrics-bind-address", "scheduler-name", "device-config-file"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--node-scheduler-policy", default="binpack")
    parser.add_argument("--gpu-scheduler-policy", default="spread")
    parser.add_argument("--leader-elect")
    parser.add_argument("--fault", choices=FAULTS)
    parser.add_argument("--ties", choices=("first", "last"), default="first")
    args = parser.parse_args()
    kube = Kube(os.environ["KUBECONFIG"])
    for kind in KINDS:
        kube.follow(kind)
    scheduler = Scheduler(
        kube, node=args.node_scheduler_policy, gpu=args.gpu_scheduler_policy, fault=args.fault, ties=args.ties
    )
    metrics = _server(args.metrics_bind_address, _handler({}, {"/metrics": scheduler.page}))
    threading.Thread(target=metrics.serve_forever, daemon=True).start()
    posts = {"/filter": scheduler.filter, "/bind": scheduler.bind, "/webhook": scheduler.webhook}
    server = _server(args.http_bind, _handler(posts, {"/healthz": lambda: ""}))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(args.cert_file, args.key_file)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
