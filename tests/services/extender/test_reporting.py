"""What is told about a bound pod, also by a replica that has not assigned it."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.logic.scheduler.decided import decision
from vgpuscope.formats.kube.extender import BindingArgs, PodHead
from vgpuscope.model.placement import ChosenGpu, DecidedGpu, Placement
from vgpuscope.services.extender.binding import BindFailed
from vgpuscope.services.extender.deciding import FilterDecision
from vgpuscope.services.extender.decision_keeping import DecisionKeeper
from vgpuscope.services.extender.reporting import Reports

ARGS = BindingArgs(name="train", namespace="ml", uid="u1", node="n1")
POD = PodHead(
    name="train", namespace="ml", uid="u1", assigned_node="n1", assigned="GPU-0,NVIDIA,4000,30:GPU-1,NVIDIA,4000,30:;"
)
DEVICES = tuple(DecidedGpu(uuid=f"GPU-{at}", memory=4000, cores=30) for at in range(2))
ASSIGNED = replace(
    decision(1, pod="train", outcome="assigned"),
    pod_uid="u1",
    node="n1",
    devices=DEVICES,
    score=25.5,
    policy="binpack/spread",
    terms={"slots": 1.0},
)


class World:
    """Reports without a cluster: the events, and the log."""

    def __init__(self, *known):
        self.keeper, self.notes, self.memory = DecisionKeeper(), [], 8000
        for one in known:
            self.keeper.add(one)
        poster: Any = self
        self.reports = Reports(self.keeper, poster, gpus=lambda _: 3, memory=lambda *_: self.memory, wall=lambda: 10.0)

    def post(self, _, text, **__):
        self.notes.append(text.note)

    @property
    def last(self):
        return self.keeper.log.latest("ml", "train")


def test_after_a_take_over_the_gpus_are_those_of_the_annotation_and_the_score_is_absent():
    world = World()
    world.reports.bound(ARGS, POD, 0.1)
    assert (world.last.outcome, world.last.devices) == ("bound", DEVICES)
    assert (world.last.score, world.last.policy, world.last.terms) == (None, "", {})
    assert world.notes == ["Successfully assigned ml/train to n1\nGPU: 2/3, Memory: 8000MB"]


def test_the_memory_is_what_decisions_count_for_the_pod_and_is_left_out_if_it_is_not_known():
    world = World()
    world.memory = 5000  # 4000 MiB of an init container, then 5000 MiB
    world.reports.bound(ARGS, POD, 0.1)
    world.memory = None
    world.reports.bound(ARGS, POD, 0.1)
    told = [note.split("\n")[1] for note in world.notes]
    assert told == ["GPU: 2/3, Memory: 5000MB", "GPU: 2/3"]


def test_a_decision_of_another_replica_in_the_log_gives_the_score():
    world = World(ASSIGNED)
    world.reports.bound(ARGS, POD, 0.1)
    assert (world.last.score, world.last.policy, world.last.terms) == (25.5, "binpack/spread", {"slots": 1.0})
    assert world.notes[0].endswith("GPU: 2/3, Memory: 8000MB\nScore: 85, Policy: binpack")


@pytest.mark.parametrize(
    "other",
    [replace(ASSIGNED, pod_uid="u0"), replace(ASSIGNED, node="n2"), replace(ASSIGNED, devices=DEVICES[:1])],
    ids=["an earlier pod of that name", "another node", "other GPUs"],
)
def test_the_score_of_another_assignment_is_not_told(other):
    world = World(other)
    world.reports.bound(ARGS, POD, 0.1)
    assert world.last.score is None
    assert "Score" not in world.notes[0]


def test_what_this_replica_decided_before_another_led_is_not_told_of_the_later_assignment():
    world = World()
    old = Placement(node="n1", gpus=(ChosenGpu(container=0, position=0, uuid="GPU-9", memory=1, cores=0),), score=1.0)
    world.reports.filtered(FilterDecision(POD, None, old, replace(ASSIGNED, id="old", devices=())))
    world.reports.bound(ARGS, POD, 0.1)
    assert (world.last.devices, world.last.score) == (DEVICES, None)


def test_an_annotation_that_cannot_be_read_gives_no_gpus():
    world = World()
    world.reports.bound(ARGS, replace(POD, assigned="nonsense"), 0.1)
    assert (world.last.devices, world.notes) == ((), ["Successfully assigned ml/train to n1"])


def test_a_failed_binding_names_the_gpus_that_the_log_knows():
    world = World(ASSIGNED)
    world.reports.bind_failed(ARGS, BindFailed("SCHED_BIND_FAILED", "no answer"), 0.1)
    assert (world.last.outcome, world.last.devices, world.last.score) == ("failed", DEVICES, 25.5)
    world.reports.bind_failed(replace(ARGS, node="n2"), BindFailed("SCHED_BIND_FAILED", "no answer"), 0.1)
    assert (world.last.node, world.last.devices) == ("n2", ())
