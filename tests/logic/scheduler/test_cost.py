"""What a decision costs: at most 20 µs of CPU a node, for shapes never seen before."""

from random import Random

import pytest
from msgspec.structs import replace

from bench.scheduler_cluster import SHAPES, half_full
from tests.cputime import seconds
from vgpuscope.logic.scheduler.fit import fit
from vgpuscope.logic.scheduler.place import place
from vgpuscope.model.cluster_event import PodSet

NODES = 300


@pytest.fixture(scope="module")
def state():
    made = half_full(NODES, Random(1))
    place(made, SHAPES["second container fits nowhere"](Random(1)), list(made.nodes))  # the order of GPUs is kept
    return made


@pytest.mark.parametrize("shape", SHAPES)
def test_the_filter_of_one_pod_costs_less_than_20_microseconds_a_node(state, shape):
    random, names = Random(2), list(state.nodes)
    assert seconds(lambda: place(state, SHAPES[shape](random), names)) / NODES < 20e-6


def test_an_event_of_a_pod_costs_less_than_100_microseconds(state):
    pods = list(state.pods.values())[:2000]
    versions = iter([[replace(one, deleting=at % 2 == 0) for one in pods] for at in range(3)])
    assert seconds(lambda: [state.apply(PodSet(one)) for one in next(versions)]) / len(pods) < 100e-6


def test_a_report_about_a_pod_that_fits_nowhere_is_made_in_time(state):
    random, idle = Random(3), [uid for at, uid in enumerate(state.pods) if at % 10 == 0]
    assert seconds(lambda: fit(state, SHAPES["fits nowhere"](random), idle=idle)) < 2
