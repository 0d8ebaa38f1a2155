"""Recorded decisions of HAMi's scheduler, replayed: our ledger has the usage that theirs decided by."""

import json
import re

import pytest

from tests.logic.cluster.builders import MIB, ledger
from tests.paths import TESTS
from vgpuscope.model.allocation import Assignment, NodeState, PodState, QuotaState, RegisteredDevice

RECORDED = TESTS / "fixtures" / "scheduler"
DECISIONS = json.loads((RECORDED / "hami_scheduler_decisions.json").read_text())
INPUTS = json.loads((RECORDED / "hami_scheduler_inputs.json").read_text())


def start():
    quotas = [
        QuotaState(
            namespace=one["namespace"],
            name="quota",
            hard={name.removeprefix("limits."): limit for name, limit in one["hard"].items()},
        )
        for one in INPUTS["resourceQuotas"]
    ]
    return ledger(map(_node, INPUTS["nodes"]), quotas=quotas)


def _node(one):
    cordoned = one["annotations"].get("hami.io/device-cordon", "")
    registered = json.loads(one["annotations"].get("hami.io/node-nvidia-register", "[]"))
    devices = tuple(
        RegisteredDevice(
            id=gpu["id"],
            vendor="NVIDIA",
            index=gpu.get("index", 0),
            slots=gpu["count"],
            memory=gpu["devmem"] * MIB,
            cores=gpu["devcore"],
            type=gpu["type"],
            mode=gpu["mode"],
            healthy=gpu.get("health", False),
            cordoned=gpu["id"] in cordoned,
        )
        for gpu in registered
    )
    return NodeState(name=one["name"], devices=devices, allocatable={"nvidia.com/gpu": one["allocatable_nvidia_gpu"]})


def place(made, decision):
    """What the scheduler wrote on the pod, if it found a place."""
    given, wanted = decision["podAnnotationsAfter"] or {}, decision["input"]
    segments = [part for part in given.get("hami.io/vgpu-devices-allocated", "").split(";") if part]
    made.set_pod(
        PodState(
            uid=wanted["uid"],
            namespace=wanted["namespace"],
            name=wanted["pod"],
            assigned_node=given.get("hami.io/vgpu-node", ""),
            assignments=tuple(
                _assignment(index, text) for index, part in enumerate(segments) for text in part.split(":") if text
            ),
        )
    )


def _assignment(index, text):
    uuid, vendor, memory, cores = text.split(",")
    return Assignment(
        container_index=index,
        container="",
        init=False,
        vendor=vendor,
        device=uuid,
        memory=int(memory) * MIB,
        cores=int(cores),
    )


def score(node):
    """HAMi's score of a node, from our numbers."""
    parts = [
        (sum(d.shared for d in node.devices), sum(d.device.slots for d in node.devices)),
        (sum(d.cores_allocated for d in node.devices), sum(d.device.cores for d in node.devices)),
        (sum(d.memory_allocated for d in node.devices), sum(d.device.memory for d in node.devices)),
    ]
    return f"{10 * sum(used / total for used, total in parts):.2f}"


def recorded_scores(decision):
    """By node: its score when the decision was made."""
    fit = re.search(r"nodes fit\((.*)\)", " ".join(decision["events"] or ()))
    return dict(part.split(":") for part in fit.group(1).split(",")) if fit else {}


@pytest.fixture(params=range(len(DECISIONS)), ids=[one["scenario"] for one in DECISIONS])
def moment(request):
    """The ledger as it was before a decision, and the decision."""
    made = start()
    for decision in DECISIONS[: request.param]:
        place(made, decision)
    return made, DECISIONS[request.param]


def wants(decision):
    return [one["limits"] for one in decision["input"]["containers"] if one["limits"]]


def test_the_score_the_scheduler_gave_each_node_follows_from_our_usage(moment):
    made, decision = moment
    scores = recorded_scores(decision)
    assert {name: score(made.node(name)) for name in scores} == scores


def test_scores_were_recorded_for_most_decisions():
    assert sum(bool(recorded_scores(decision)) for decision in DECISIONS) == 11


def test_where_the_scheduler_found_a_place_our_capacity_has_one(moment):
    made, decision = moment
    for name in decision["nodeNames"] or ():
        capacity = made.node(name).capacity
        for want in wants(decision):
            assert capacity.largest_memory >= want.get("nvidia.com/gpumem", 0) * MIB
            assert capacity.largest_cores >= want.get("nvidia.com/gpucores", 0)
            assert capacity.free.cards >= want["nvidia.com/gpu"]


def test_what_the_scheduler_refused_does_not_fit_by_our_numbers_either(moment):
    made, decision = moment
    for name, why in (decision["failedNodes"] or {}).items():
        node, want = made.node(name), (wants(decision) or [{}])[0]
        quotas = {one.resource: one for one in made.namespace(decision["input"]["namespace"]).quotas}
        if "CardInsufficientMemory" in why:
            assert node.capacity.largest_memory < want["nvidia.com/gpumem"] * MIB
        elif "CardInsufficientCore" in why:
            assert node.capacity.largest_cores < want["nvidia.com/gpucores"]
        elif "NodeInsufficientDevice" in why:
            assert len(node.devices) < want["nvidia.com/gpu"]
        elif "ResourceQuotaNotFit" in why:
            memory = quotas["nvidia.com/gpumem"]
            assert memory.used + want["nvidia.com/gpumem"] > memory.limit
        elif "unregistered" in why:
            assert node.devices == ()
        else:
            assert why.endswith(("CardTypeMismatch", "CardUuidMismatch"))  # the pod's own wish, no lack of capacity


def test_at_the_end_every_recorded_assignment_is_held_once():
    made = start()
    for decision in DECISIONS:
        place(made, decision)
    held = [holder for one in INPUTS["nodes"] for holder in made.node(one["name"]).holders]
    written = [one["podAnnotationsAfter"] or {} for one in DECISIONS]
    assert len(held) == sum(one.get("hami.io/vgpu-devices-allocated", "").count(":") for one in written)
    assert {one.used for one in made.namespace("team-q").quotas} == {6000, 20}
