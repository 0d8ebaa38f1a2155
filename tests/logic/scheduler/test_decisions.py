"""HAMi's recorded decisions, made again by our engine, one after the other."""

import json
import re

import pytest

from tests.paths import TESTS
from vgpuscope.formats.hami.annotation import AssignedDevice, encode_devices
from vgpuscope.formats.kube.objects import decode_nodes, decode_quotas
from vgpuscope.formats.kube.placement_request import placement_request
from vgpuscope.logic.scheduler.place import place
from vgpuscope.logic.scheduler.state import SchedulerState
from vgpuscope.model.cluster_event import NodeSet, QuotaSet

RECORDED = TESTS / "fixtures" / "scheduler"
DECISIONS = json.loads((RECORDED / "hami_scheduler_decisions.json").read_text())
INPUTS = json.loads((RECORDED / "hami_scheduler_inputs.json").read_text())
ALLOCATED = "hami.io/vgpu-devices-allocated"

# HAMi v2.10.0 writes no segment for a container without a GPU (its issue 2899). We write an empty one, as HAMi did
# before, so that a segment's position is its container's.
WITH_EMPTY_SEGMENT = {
    "sidecar_first_then_gpu": ";GPU-bbbbbbbb-0000-0000-0000-000000000000,NVIDIA,2000,10:;",
    "gpu_first_then_sidecar": "GPU-bbbbbbbb-0000-0000-0000-000000000001,NVIDIA,2000,10:;;",
}


def start():
    state = SchedulerState()
    nodes = [
        {
            "metadata": {"name": one["name"], "annotations": one["annotations"]},
            "status": {"allocatable": {"nvidia.com/gpu": one["allocatable_nvidia_gpu"]}},
        }
        for one in INPUTS["nodes"]
    ]
    for node in decode_nodes(_list("Node", nodes)).items:
        state.apply(NodeSet(node))
    quotas = [
        {"metadata": {"name": "q", "namespace": one["namespace"]}, "spec": {"hard": one["hard"]}}
        for one in INPUTS["resourceQuotas"]
    ]
    for quota in decode_quotas(_list("ResourceQuota", quotas)).items:
        state.apply(QuotaSet(quota))
    return state


def _list(kind, items):
    return json.dumps({"kind": f"{kind}List", "metadata": {"resourceVersion": "1"}, "items": items}).encode()


def asked(decision):
    wanted = decision["input"]
    pod = {
        "metadata": {
            "name": wanted["pod"],
            "namespace": wanted["namespace"],
            "uid": wanted["uid"],
            "annotations": wanted["annotations"],
        },
        "spec": {
            "containers": [
                {"name": one["name"], "resources": {"limits": one["limits"]}} for one in wanted["containers"]
            ]
        },
    }
    return placement_request(json.dumps(pod).encode())


def written(request, found):
    segments = [
        [AssignedDevice(gpu.uuid, "NVIDIA", gpu.memory, gpu.cores) for gpu in found.gpus if gpu.container == index]
        for index in range(request.containers)
    ]
    return encode_devices(segments)


@pytest.fixture(scope="module")
def made():
    """Each decision of ours, made in the sequence of the record."""
    state = start()
    found: dict = {}
    for decision in DECISIONS:
        request = asked(decision)
        if request is None:
            found[decision["scenario"]] = None
            continue
        placement = place(state, request, decision["input"]["candidateNodes"])
        found[decision["scenario"]] = (request, placement)
        if placement.node:
            state.assume(request, placement)
    return found


each = pytest.mark.parametrize("decision", DECISIONS, ids=[one["scenario"] for one in DECISIONS])


@each
def test_the_node_and_the_gpus_are_those_that_hami_chose(made, decision):
    if made[decision["scenario"]] is None:
        assert decision["nodeNames"] == decision["input"]["candidateNodes"]  # no GPU requested: every node passes
        return
    request, placement = made[decision["scenario"]]
    assert [placement.node] == (decision["nodeNames"] or [""])
    if placement.node:
        theirs = decision["podAnnotationsAfter"][ALLOCATED]
        assert written(request, placement) == WITH_EMPTY_SEGMENT.get(decision["scenario"], theirs)


@each
def test_refused_nodes_have_the_reasons_that_hami_gave(made, decision):
    if made[decision["scenario"]] is not None and not decision["nodeNames"]:
        _, placement = made[decision["scenario"]]
        assert {one.node: one.reason for one in placement.nodes} == decision["failedNodes"]
        assert all(one.code and one.message for one in placement.nodes)


@each
def test_nodes_have_the_scores_that_hami_gave(made, decision):
    fit = re.search(r"nodes fit\((.*)\)", " ".join(decision["events"] or ()))
    if fit:
        _, placement = made[decision["scenario"]]
        scores = [(one.node, f"{one.score:.2f}") for one in placement.nodes if not one.code]
        assert sorted(scores) == sorted(tuple(part.split(":")) for part in fit.group(1).split(","))


def test_the_sidecar_defect_is_the_only_difference():
    assert [one["scenario"] for one in DECISIONS if one["scenario"] in WITH_EMPTY_SEGMENT] == list(WITH_EMPTY_SEGMENT)
    for decision in DECISIONS:
        ours = WITH_EMPTY_SEGMENT.get(decision["scenario"])
        if ours:
            assert ours.replace(";", "") == decision["podAnnotationsAfter"][ALLOCATED].replace(";", "")
