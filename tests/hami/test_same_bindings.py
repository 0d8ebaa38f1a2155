"""Pods are filtered, bound, served and ended in random order, by a model of HAMi and by vgpuscope.

After every step the answer, the pods and the locks of nodes have to be equal. A disagreement is made smaller and
printed. docs/migration.md names what differs on purpose: a pod that is refused loses its assignment. That is done to
HAMi's pods here, too, so that what follows can be compared.
"""

import json
from copy import deepcopy
from datetime import UTC, datetime
from random import Random

import pytest

from tests.hami import model, ours, questions

START = 1_800_000_000
WRITTEN = (model.PHASE, model.PLACED_ON, model.ALLOCATED, model.MIGS)


class Hami:
    """A world whose pods are filtered and bound by the model."""

    def __init__(self, world, now):
        self.world, self.now = world, now

    def filter(self, pod, names):
        answer = model.filter_pod(self.world, pod, names)
        self._clear(pod, *WRITTEN[1:])
        if "node" in answer:
            self._clear(pod, model.PHASE)
            pod["metadata"]["annotations"] |= model.annotations(pod, answer)
        return answer.get("node")

    def bind(self, _namespace, _name, uid, node, *, fails):
        pod = next((one for one in self.world["pods"] if one["metadata"]["uid"] == uid), None)
        refused = model.bind(self.world, pod, node, self.now, fails=fails)
        if refused and pod is not None:
            self._clear(pod, *WRITTEN)
            pod["metadata"]["annotations"][model.PHASE] = "failed"
        return ("locked" if "locked" in refused else "refused") if refused else "bound"

    def _clear(self, pod, *keys):
        for key in keys:
            pod["metadata"]["annotations"].pop(key, None)


def run(side, steps):
    """What each step leaves: the answer, the pods and the locks."""
    world, chosen, found = side.world, {}, []
    names = [one["metadata"]["name"] for one in world["nodes"]]
    uids = {one["metadata"]["name"]: (one["metadata"]["namespace"], one["metadata"]["uid"]) for one in world["pods"]}
    for step in steps:
        answer = None
        pod = next((one for one in world["pods"] if one["metadata"]["name"] == step.get("pod")), None)
        bound = pod is not None and "nodeName" in pod["spec"]
        match step["do"]:
            case "filter" if pod is not None and not bound:
                answer = chosen[step["pod"]] = side.filter(pod, names)
            case "bind" if not bound and chosen.get(step["pod"]):
                namespace, uid = uids[step["pod"]]
                answer = side.bind(namespace, step["pod"], uid, chosen.pop(step["pod"]), fails=step["fails"])
            case "served" if bound and model.notes(pod).get(model.PHASE) == "allocating":
                model.plugin_done(world, pod, step["phase"])
            case "ended" if bound:
                pod["status"]["phase"] = step["phase"]
            case "deleted" if pod is not None:
                world["pods"].remove(pod)
            case "passed":
                side.now += step["seconds"]
            case "locked" if step["node"] in names:
                time = datetime.fromtimestamp(side.now, UTC).isoformat()
                model.notes(world["nodes"][names.index(step["node"])]).setdefault(model.LOCK, time + step["by"])
        found.append([step, answer, [_pod(one) for one in world["pods"]], [_lock(one) for one in world["nodes"]]])
    return found


def _pod(pod):
    written = {key: model.notes(pod).get(key) or None for key in WRITTEN}
    if written[model.MIGS]:
        written[model.MIGS] = json.loads(written[model.MIGS])
    return [pod["metadata"]["name"], pod["spec"].get("nodeName"), written]


def _lock(node):
    since, _, holder = model.notes(node).get(model.LOCK, "").partition(",")
    return [datetime.fromisoformat(since).timestamp(), holder] if since else None


def both(question):
    return [run(kind(deepcopy(question["world"]), START), question["steps"]) for kind in (Hami, ours.Bindings)]


def disagree(question):
    theirs, mine = both(question)
    return theirs != mine


def shown(question):
    least = questions.shrunk(question, disagree, questions.smaller_bindings)
    first = next(pair for pair in zip(*both(least), strict=True) if pair[0] != pair[1])
    return f"\n{json.dumps(least, indent=1)}\nHAMi:      {first[0]}\nvgpuscope: {first[1]}"


@pytest.mark.parametrize("batch", range(4))
def test_bindings_leave_the_same_pods_and_locks(batch):
    for seed in range(batch, 200, 4):
        question = questions.some_bindings(Random(seed))
        assert not disagree(question), shown(question)


def test_random_bindings_meet_every_kind_of_lock():
    answers, held = [], set()
    for seed in range(200):
        question = questions.some_bindings(Random(seed))
        for _, answer, _, locks in run(Hami(question["world"], START), question["steps"]):
            answers.append(answer)
            held |= {lock[1] for lock in locks if lock}
    assert answers.count("locked") > 30
    assert answers.count("bound") > 100
    assert "refused" in answers  # its pod was deleted
    assert {"", "ml,x"} < held
