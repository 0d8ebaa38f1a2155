"""HAMi's scheduler and ours are asked the same random questions; a disagreement is made smaller and printed.

HAMi's part is a model of v2.10.0 (tests/hami/model.py), which shares no code with vgpuscope.
"""

import json
import re
from random import Random

import pytest

from tests.hami import model, ours, questions

WORLDS, QUESTIONS = 100, 20


def hami(question):
    world, pod, names = question["world"], question["pod"], question["names"]
    try:
        answer = model.filter_pod(world, pod, names, **question["defaults"])
    except model.FilterError:
        return {"error": True}
    if answer is None or "failed" in answer:
        return answer
    written = model.annotations(pod, answer)
    return {"written": _read(written), "scores": answer["scores"], "unbindable": None}


def vgpuscope(question):
    answer = ours.filter_pod(question["world"], question["pod"], question["names"], **question["defaults"])
    return {**answer, "written": _read(answer["written"])} if answer and "written" in answer else answer


def _read(written):
    return {key: json.loads(text) if key == model.MIGS else text for key, text in written.items()}


def disagree(question):
    return hami(question) != vgpuscope(question)


def shown(question):
    least = questions.shrunk(question, disagree)
    return f"\n{json.dumps(least, indent=1)}\nHAMi:      {hami(least)}\nvgpuscope: {vgpuscope(least)}"


def asked(seed):
    """The questions of one world, one after the other; the answers of HAMi are carried out."""
    random = Random(seed)
    world = questions.some_world(random)
    limited = {one["metadata"]["namespace"] for one in world["quotas"]}
    names = [one["metadata"]["name"] for one in world["nodes"]]
    for number in range(QUESTIONS):
        pod = questions.some_pod(random, f"p{number}", limited=limited)
        defaults = {"node": random.choice(("binpack", "spread")), "gpu": random.choice(("binpack", "spread"))}
        question = {"world": world, "pod": pod, "names": [*names, "unknown"], "defaults": defaults}
        yield question
        answer = model.filter_pod(world, pod, names, **defaults)
        if answer and "node" in answer:
            pod["metadata"]["annotations"] |= model.annotations(pod, answer)
            pod["metadata"]["labels"] = {model.PLACED_ON: answer["node"]}
            world["pods"].append(pod)
        questions.change(random, world)


@pytest.mark.parametrize("batch", range(10))
def test_the_filter_gives_the_same_nodes_gpus_and_words(batch):
    for seed in range(batch, WORLDS, 10):
        for question in asked(seed):
            assert not disagree(question), shown(question)


def test_a_disagreement_is_shrunk_and_remains_the_same(monkeypatch):
    """A smaller question is not one that docs/migration.md says is answered otherwise."""
    filtered = ours.filter_pod

    def half_of_scores(*question, **defaults):
        answer = filtered(*question, **defaults)
        halved = {name: f"{float(text) / 2:.2f}" for name, text in (answer or {}).get("scores", {}).items()}
        return answer | {"scores": halved} if halved else answer

    monkeypatch.setattr(ours, "filter_pod", half_of_scores)
    wrong = [next(filter(disagree, asked(seed)), None) for seed in range(10)]
    assert len(wrong) - wrong.count(None) > 5
    for found in filter(None, wrong):
        text, theirs, mine = re.split("\nHAMi:|\nvgpuscope:", shown(found))
        assert (len(json.loads(text)["world"]["nodes"]), len(json.loads(text)["world"]["pods"])) == (1, 1)
        assert "'scores'" in theirs
        assert "'scores'" in mine


@pytest.mark.parametrize("batch", range(4))
def test_the_page_has_the_same_series_and_values(batch):
    for seed in range(batch, WORLDS, 4):
        for last in asked(seed):
            world = last["world"]
        for node in world["nodes"]:  # HAMi does not know a node whose kubelet has never offered a GPU
            node["status"] = {key: {model.GPU: "10"} for key in ("capacity", "allocatable")}
        theirs, mine = model.page(world), ours.page(world)
        assert mine == pytest.approx(theirs, rel=1e-6), f"world {seed}"


def test_the_webhook_stores_the_same_pods_and_denies_the_same():
    random = Random(1)
    for _ in range(500):
        pod = questions.submitted(random)
        theirs, mine = model.webhook(pod), ours.webhook(pod)
        assert mine == theirs, json.dumps(pod, indent=1)
