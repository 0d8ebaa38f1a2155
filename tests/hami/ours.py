"""vgpuscope's answers to the same questions, from the same JSON."""

import asyncio
import json
from typing import Any

from tests.services.agent.noderoot import Samples
from vgpuscope.catalog import cluster as catalog
from vgpuscope.formats.kube.admission import decode_review
from vgpuscope.formats.kube.extender import BindingArgs, decode_pod_head
from vgpuscope.formats.kube.objects import decode_cluster_pods, decode_nodes, decode_quotas
from vgpuscope.formats.kube.placement_request import placement_request
from vgpuscope.logic.cluster.ledger import ClusterLedger
from vgpuscope.logic.scheduler.admission import admit
from vgpuscope.logic.scheduler.overfull import overfull
from vgpuscope.logic.scheduler.place import place
from vgpuscope.logic.scheduler.state import SchedulerState
from vgpuscope.model.cluster_event import NodeSet, PodSet, QuotaSet
from vgpuscope.model.errors import RequestInvalid
from vgpuscope.model.placement import Policies
from vgpuscope.services.extender.binding import LOCKED, Binder, BindFailed
from vgpuscope.services.extender.node_lock import NodeLocks
from vgpuscope.services.extender.pods import PodWriter, assignment_notes
from vgpuscope.sinks.kube.writer import KubeWriter
from vgpuscope.views.cluster.metrics import NodeSamples, namespace_samples
from vgpuscope.views.exposition.sharded import ShardedPage

_WRITTEN = ("hami.io/vgpu-node", "hami.io/vgpu-devices-allocated", "hami.io/vgpu-mig-allocations")


def _listed(kind, items):
    return json.dumps({"kind": f"{kind}List", "metadata": {"resourceVersion": "1"}, "items": items}).encode()


def _objects(world):
    yield from ((NodeSet, one) for one in decode_nodes(_listed("Node", world["nodes"])).items)
    yield from ((QuotaSet, one) for one in decode_quotas(_listed("ResourceQuota", world["quotas"])).items)
    yield from ((PodSet, one) for one in decode_cluster_pods(_listed("Pod", world["pods"])).items)


def state_of(world):
    state = SchedulerState()
    for event, one in _objects(world):
        state.apply(event(one))
    return state


def filter_pod(world, pod, names, *, node="binpack", gpu="spread"):
    """The annotations that are written, and the scores; or the words of refusal; None: the pod asks for no GPU."""
    try:
        request = placement_request(json.dumps(pod).encode())
    except RequestInvalid:
        return {"error": True}
    if request is None:
        return None
    state = state_of(world)
    found = place(state, request, names, policies=Policies(node=node, gpu=(gpu,)))
    if not found.node:
        return {"failed": {one.node: one.reason for one in found.nodes}}
    state.assume(request, found)
    refused = overfull(state, request.uid, found.node)  # what was placed can be bound
    notes = assignment_notes(request, found, 0.0)
    return {
        "written": {key: text for key in _WRITTEN if (text := notes[key])},
        "scores": {one.node: f"{one.score:.2f}" for one in found.nodes if not one.code},
        "unbindable": refused and refused.message,
    }


class Bindings:
    """A world whose pods are filtered and bound by vgpuscope, at times that the caller names."""

    def __init__(self, world, now):
        self.world, self.now, self._version, self._forbids = world, now, 0, False
        for one in [*world["nodes"], *world["pods"]]:
            self._merge(one, {})
        api: Any = self
        writer = KubeWriter(api, component="c", instance="i")
        self._pods = PodWriter(api, writer)
        self._binder = Binder(
            self._pods,
            NodeLocks(api, writer, expires=300.0, changed=self._changed, wall=lambda: self.now),
            written=lambda _: None,
            overfull=lambda uid, node: overfull(state_of(self.world), uid, node),
            cleared=lambda *_: None,
            check=lambda: None,
            leads=lambda: True,
            timeout=60.0,
            patience=0.0,  # who finds a lock is refused at once
            wall=lambda: self.now,
        )

    def filter(self, pod, names):
        """The node, which is written on the pod; None: it fits nowhere."""
        others = [one for one in self.world["pods"] if one is not pod]
        request, head = placement_request(json.dumps(pod).encode()), decode_pod_head(json.dumps(pod).encode())
        found = place(state_of({**self.world, "pods": others}), request, names, policies=Policies())
        if found.node:
            asyncio.run(self._pods.assign(head, request, found, self.now))
        elif head.assigned:
            asyncio.run(self._pods.clear(head))
        return found.node or None

    def bind(self, namespace, name, uid, node, *, fails):
        """How it ended: bound, locked or refused. `fails`: the API server refuses the binding."""
        self._forbids = fails
        try:
            asyncio.run(self._binder.bind(BindingArgs(name=name, namespace=namespace, uid=uid, node=node)))
        except BindFailed as e:
            return "locked" if e.code == LOCKED else "refused"
        return "bound"

    # --- the API server ---------------------------------------------------------------------------------------------

    async def find(self, path, **_):
        found = self._object(path)
        return None if found is None else json.dumps(found).encode()

    async def send(self, _, path, body, *, media):
        found, sent = self._object(path.removesuffix("/binding")), json.loads(body)
        if found is None:
            return 404, b"{}"
        if path.endswith("/binding") and self._forbids:
            return 403, b"{}"
        if media == "application/json-patch+json":
            if (key := sent[1]["path"].rpartition("/")[2].replace("~1", "/")) in found["metadata"]["annotations"]:
                return 422, b"{}"
            sent = {"metadata": {"annotations": {key: sent[1]["value"]}}}
        meta = sent["metadata"]
        if meta.get("resourceVersion", found["metadata"]["resourceVersion"]) != found["metadata"]["resourceVersion"]:
            return 409, b"{}"
        if path.endswith("/binding"):
            found["spec"]["nodeName"] = sent["target"]["name"]
        self._merge(found, meta)
        return 200, json.dumps(found).encode()

    def _object(self, path):
        kind, name = path.split("/")[-2:]
        spaces = (path.split("/")[-3], None)  # nodes have none
        fits = (one for one in self.world[kind] if one["metadata"].get("namespace") in spaces)
        return next((one for one in fits if one["metadata"]["name"] == name), None)

    def _merge(self, one, meta):
        self._version += 1
        for key in ("annotations", "labels"):
            changed = {**one["metadata"].get(key, {}), **meta.get(key, {})}
            one["metadata"][key] = {name: text for name, text in changed.items() if text is not None}
        one["metadata"]["resourceVersion"] = str(self._version)

    async def _changed(self, *_):
        """Nobody else is at work."""


def webhook(pod):
    """The pod as the webhook leaves it; None: it is denied."""
    request = {"uid": "r", "operation": "CREATE", "kind": {"kind": "Pod"}, "namespace": "ml", "object": pod}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    found = decode_review(json.dumps(review).encode())
    answer = admit(found.pod, scheduler="hami-scheduler")
    if answer.code:
        return None
    made = json.loads(json.dumps(pod))
    for one in answer.patch:
        *parents, last = [part.replace("~1", "/") for part in one["path"].split("/")[1:]]
        place_ = made
        for part in parents:
            place_ = place_[int(part)] if isinstance(place_, list) else place_[part]
        if last == "-":
            place_.append(one["value"])
        else:
            place_[last] = one["value"]
    return made


def page(world):
    """The families of HAMi's names, as {(name, labels): value}."""
    ledger = ClusterLedger()
    keep: dict = {NodeSet: ledger.set_node, QuotaSet: ledger.set_quota, PodSet: ledger.set_pod}
    for event, one in _objects(world):
        keep[event](one)
    made, samples, changes = ShardedPage(catalog.METRICS, ("hami",)), NodeSamples(), ledger.changed()
    for name in changes.nodes:
        made.update_rows(name, samples.of(ledger.node(name)))
    for name in changes.namespaces:
        made.update(("namespace", name), namespace_samples(ledger.namespace(name)))
    return dict(Samples.of(made.text().decode()))
