"""HAMi's scheduler itself is asked what tests/hami asks its model, and gives the same answers as the model and we.

HAMI_SCHEDULER=path names the program of HAMi v2.10; without it tests/standins/hamischeduler.py serves the model under
the same protocol, which tests this driver and not HAMi. docs/testing.md has what that leaves unproven.
"""

import json
import os
import sys
import time
from copy import deepcopy
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from tests.hami import model, ours, questions
from tests.hami.program import GONE, Program, of_gpus
from tests.hami.test_same_answers import asked, hami, vgpuscope

pytestmark = pytest.mark.real
REAL = os.environ.get("HAMI_SCHEDULER")
QUESTIONS = int(os.environ.get("HAMI_QUESTIONS", "500" if REAL else "12"))
DEFAULTS = ({"node": "binpack", "gpu": "spread"}, {"node": "spread", "gpu": "binpack"})
LOCKS = (None, None, f",{GONE}", "")  # of another scheduler: none, of a pod that is gone, of HAMi's first releases


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    """A program that takes HAMi's flags."""
    path = tmp_path_factory.mktemp("hami") / "scheduler"
    root = Path(__file__).parents[2]
    path.write_text(f'#!/bin/sh\ncd {root} && exec {sys.executable} -m tests.standins.hamischeduler "$@"\n')
    path.chmod(0o755)
    return path


def some_questions(count, *, defaults):
    """Questions of many worlds. Pods with init containers ask for GPUs in all containers: HAMi miscounts others."""
    found = []
    for seed in range(count):
        question = deepcopy(next(islice(asked(seed), seed % 15 + 3, None)))
        pod = question["pod"]["spec"]
        if pod.get("initContainers"):
            for one in [*pod["initContainers"], *pod["containers"]]:
                one["resources"]["limits"].setdefault(model.GPU, "1")
        found.append({**question, "defaults": defaults, "lock": LOCKS[seed % len(LOCKS)]})
    return found


def expected(question, theirs):
    """What the model answers if it chooses among equals as the program did."""
    world, pod = question["world"], question["pod"]
    chance = _chance(pod, theirs) if theirs and "node" in theirs else ("", {})
    try:
        answer = model.filter_pod(world, pod, question["names"], **question["defaults"], chance=chance)
    except model.FilterError:
        return {"error": True}
    if answer is None:
        return None
    found = {"page": of_gpus(model.page(world))}
    if "failed" in answer:
        return found | {"failed": answer["failed"]}
    written = model.annotations(pod, answer)
    return found | {"node": answer["node"], "written": written, "bound": _bound(question, written)}


def _chance(pod, theirs):
    asking = [at for at, request in enumerate(model.containers_of(pod)[0]) if request]
    segments = [part for part in theirs["written"].get(model.ALLOCATED, "").split(";") if part]
    gpus = [[device.split(",")[0] for device in part.split(":") if device] for part in segments]
    return theirs["node"], dict(zip(asking, gpus, strict=False))


def _bound(question, written):
    world, now = deepcopy(question["world"]), time.time()
    pod, node = deepcopy(question["pod"]), written[model.PLACED_ON]
    (at,) = (one for one in world["nodes"] if one["metadata"]["name"] == node)
    if question["lock"] is not None:
        at["metadata"]["annotations"][model.LOCK] = (
            time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)) + question["lock"]
        )
    refused = model.bind(world, pod, node, now)
    holder = model.notes(at).get(model.LOCK, "").partition(",")[2]
    phase = model.notes(pod).get(model.PHASE)
    return {"refused": bool(refused), "node": pod["spec"].get("nodeName"), "phase": phase, "lock": holder}


def same(theirs, mine):
    return _comparable(theirs) == _comparable(mine)


def _comparable(answer):
    """Without what says nothing: empty segments, other annotations, the order of series, the last digits."""
    if not answer or "page" not in answer:
        return answer
    made = {**answer, "page": sorted([name, labels, round(value, 5)] for name, labels, value in answer["page"])}
    if "written" in answer:
        notes = answer["written"]
        made["written"] = {
            "segments": [part for part in notes.get(model.ALLOCATED, "").split(";") if part],
            "node": notes.get(model.PLACED_ON),
            "instances": json.loads(notes.get(model.MIGS, "[]")),
        }
    return made


def disagreement(program, question):
    """What the program says and what the model would; None: the same, and so do we."""
    theirs = program.ask(question)
    mine = expected(question, theirs)
    if same(theirs, mine) and hami(question) == vgpuscope(question):
        return None
    return theirs, mine


def shown(program, question):
    least = questions.shrunk(question, lambda smaller: disagreement(program, smaller) is not None)
    theirs, mine = disagreement(program, least)
    text = json.dumps(least, indent=1)
    return f"\n{text}\nHAMi:      {theirs}\nthe model: {mine}\nvgpuscope: {vgpuscope(least)}"


@pytest.mark.parametrize(
    "defaults", [{"node": "binpack", "gpu": "spread"}, {"node": "spread", "gpu": "binpack"}], ids=str
)
def test_the_program_the_model_and_vgpuscope_give_the_same_answers(empty_cluster, stand_in, tmp_path, defaults):
    with Program(empty_cluster, tmp_path, REAL or stand_in, **defaults) as program:
        for question in some_questions(QUESTIONS // 2, defaults=defaults):
            assert disagreement(program, question) is None, shown(program, question)
        random = Random(1)
        for _ in range(QUESTIONS * 4):
            pod = questions.submitted(random)
            answers = [stored(one) for one in (program.admit(pod), model.webhook(pod), ours.webhook(pod))]
            assert answers[0] == answers[1] == answers[2], json.dumps(pod, indent=1)


def stored(pod):
    """What the webhook decides of a pod."""
    if pod is None:
        return None
    containers = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
    amounts = [
        {key: str(value) for key, value in one.get("resources", {}).get("limits", {}).items()} for one in containers
    ]
    return pod["spec"].get("schedulerName"), amounts, [one.get("env", []) for one in containers]


def test_the_questions_for_the_program_are_of_every_kind():
    found = [hami(question) for question in some_questions(100, defaults=DEFAULTS[0])]
    assert sum("written" in one for one in found) > 30
    assert sum("failed" in one for one in found) > 20
    assert sum(model.MIGS in one.get("written", {}) for one in found) > 5


REVEALS = {
    "memory": lambda question, answer: ",NVIDIA,1000," in answer.get("written", {}).get(model.ALLOCATED, ""),
    "words": lambda question, answer: "CardInsufficientCore" in str(answer.get("failed")),
    "page": lambda question, answer: "written" in answer or "failed" in answer,
    "lock": lambda question, answer: "written" in answer and question["lock"] == f",{GONE}",
    "silent": lambda question, answer: "written" in answer,
}


@pytest.mark.parametrize("fault", REVEALS)
def test_a_fault_of_the_program_is_printed_with_a_question_that_cannot_be_smaller(
    empty_cluster, stand_in, tmp_path, fault
):
    defaults = DEFAULTS[0]
    candidates = some_questions(200, defaults=defaults)
    question = next(one for one in candidates if REVEALS[fault](one, hami(one)))
    with Program(empty_cluster, tmp_path, stand_in, **defaults, flags=[f"--fault={fault}"]) as program:
        assert disagreement(program, question) is not None
        if fault == "memory":  # shrinking asks the program again and again
            least = json.loads(shown(program, question).partition("\nHAMi: ")[0])
            assert (len(least["world"]["nodes"]), least["world"]["pods"]) == (1, [])
            assert len(least["pod"]["spec"]["containers"]) == 1


def test_what_the_program_leaves_to_chance_is_no_disagreement(empty_cluster, stand_in, tmp_path):
    alike = []
    with Program(empty_cluster, tmp_path, stand_in, **DEFAULTS[0], flags=["--ties=last"]) as program:
        for question in some_questions(QUESTIONS, defaults=DEFAULTS[0]):
            theirs = program.ask(question)
            assert same(theirs, expected(question, theirs)), json.dumps(question)
            alike.append(same(theirs, expected(question, None)))
    assert not all(alike)  # among equals it chose otherwise than the model by itself


def test_a_fault_of_the_webhook_is_seen(empty_cluster, stand_in, tmp_path):
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"resources": {"limits": {model.MEMORY: "1"}}}]}}
    with Program(empty_cluster, tmp_path, stand_in, **DEFAULTS[0], flags=["--fault=webhook"]) as program:
        assert stored(program.admit(pod)) != stored(model.webhook(pod))


def test_a_program_that_ends_is_shown_with_its_log(empty_cluster, stand_in, tmp_path):
    wrong = Program(empty_cluster, tmp_path, stand_in, **DEFAULTS[0], flags=["--no-such-flag"])
    with pytest.raises(AssertionError, match="unrecognized arguments: --no-such-flag"), wrong:
        raise RuntimeError("it cannot have started")
