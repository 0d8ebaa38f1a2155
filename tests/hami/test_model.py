"""The model of HAMi's scheduler gives the answers that were recorded from HAMi v2.10.0 itself.

tests/fixtures/scheduler/SOURCE says how they were recorded. HAMi v2.10.0 writes no segment for a container without a
GPU; the model writes an empty one, so segments are compared without those.
"""

import json

import pytest

from tests.hami import model
from tests.paths import TESTS
from tests.services.agent.noderoot import Samples

RECORDED = TESTS / "fixtures" / "scheduler"
DECISIONS = json.loads((RECORDED / "hami_scheduler_decisions.json").read_text())
INPUTS = json.loads((RECORDED / "hami_scheduler_inputs.json").read_text())
PAGE = Samples.of((RECORDED / "hami_scheduler_metrics_legacy_false.prom").read_text())
OF_NODES = ("hami_gpu_memory_limit_bytes", "hami_gpu_core_limit_ratio")


def node(one):
    allocatable = {model.GPU: str(one["allocatable_nvidia_gpu"])}
    return {
        "metadata": {"name": one["name"], "annotations": one["annotations"]},
        "status": {"allocatable": allocatable},
    }


def quota(one):
    return {"metadata": {"name": "q", "namespace": one["namespace"]}, "spec": {"hard": one["hard"]}}


def pod(one):
    meta = {key: one[key] for key in ("namespace", "uid")} | {
        "name": one["pod"],
        "annotations": dict(one["annotations"]),
    }
    containers = [{"name": part["name"], "resources": {"limits": part["limits"]}} for part in one["containers"]]
    return {"metadata": meta, "spec": {"containers": containers}}


@pytest.fixture(scope="module")
def answers():
    """Each pod with the model's answer; the answers are carried out one after the other."""
    world = {
        "nodes": list(map(node, INPUTS["nodes"])),
        "quotas": list(map(quota, INPUTS["resourceQuotas"])),
        "pods": [],
    }
    found = {}
    for decision in DECISIONS:
        asked = pod(decision["input"])
        answer = model.filter_pod(world, asked, decision["input"]["candidateNodes"])
        found[decision["scenario"]] = (asked, answer)
        if answer and "node" in answer:
            asked["metadata"]["annotations"] |= model.annotations(asked, answer)
            world["pods"].append(asked)
    return found | {"": world}


@pytest.mark.parametrize("decision", DECISIONS, ids=[one["scenario"] for one in DECISIONS])
def test_a_recorded_decision_is_made_again(answers, decision):
    asked, answer = answers[decision["scenario"]]
    if answer is None:
        assert decision["nodeNames"] == decision["input"]["candidateNodes"]
    elif "failed" in answer:
        assert (answer["failed"], decision["nodeNames"]) == (decision["failedNodes"], None)
    else:
        assert [answer["node"]] == decision["nodeNames"]
        theirs, found = decision["podAnnotationsAfter"], asked["metadata"]["annotations"]
        assert [part for part in found[model.ALLOCATED].split(";") if part] == [
            part for part in theirs[model.ALLOCATED].split(";") if part
        ]
        scores = " ".join(decision["events"])
        assert all(f"{name}:{score}" in scores for name, score in answer["scores"].items())


def test_what_the_recorded_page_says_of_gpus_is_what_the_model_says(answers):
    found = model.page(answers[""])
    for name in OF_NODES:
        theirs = {key: value for key, value in PAGE.items() if key[0] == name}
        assert {key: value for key, value in found.items() if key[0] == name} == theirs
    assert {key[0] for key in found} == {key[0] for key in PAGE}
