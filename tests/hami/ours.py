"""vgpuscope's answers to the same questions, from the same JSON."""

import json

from tests.services.agent.noderoot import Samples
from vgpuscope.catalog import cluster as catalog
from vgpuscope.formats.kube.admission import decode_review
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
from vgpuscope.services.extender.pods import assignment_notes
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
