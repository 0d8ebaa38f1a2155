"""Pods that a real kube-scheduler refuses, explained from what a real API server serves about them."""

import json
import time

import pytest

from tests.controlplane import node, pod, until
from tests.logic.cluster.waiting import WaitingPods
from vgpuscope.formats.kube.events import decode_events
from vgpuscope.formats.kube.objects import decode_cluster_pods

pytestmark = pytest.mark.real

GPUS = {"nvidia.com/gpu": "2"}
TOO_FEW = "SCHED_INSUFFICIENT_GPU_COUNT"  # the first that is said may be that there is no node: it is not seen at once


@pytest.fixture
def cluster(empty_cluster):
    with empty_cluster.scheduler():
        yield empty_cluster


def read(cluster, book):
    """Take in all pods and events, as they are served."""
    now = time.time()
    for path, decode, take in (
        ("/api/v1/pods", decode_cluster_pods, lambda found: book.set_pod(found, now)),
        ("/api/v1/events", decode_events, book.set_event),
    ):
        page = decode(json.dumps(cluster.call("GET", path)).encode())
        assert page.faults == ()
        for found in page.items:
            take(found)
    return book.pods(all=True)


def only(cluster, book, *, when):
    """The one pod, as soon as this is true of it."""
    found: list = []

    def seen():
        found[:] = read(cluster, book)
        return len(found) == 1 and when(found[0])

    until(seen)
    return found[0]


def test_a_refused_pod_is_explained_and_remembered_when_it_has_its_node(cluster):
    book = WaitingPods()
    cluster.create(node("small", capacity={"nvidia.com/gpu": "1"}))
    cluster.create(pod("train", limits=GPUS))
    refused = only(cluster, book, when=lambda one: one.said and one.code == TOO_FEW)
    assert refused.outcome == "waiting"
    assert refused.requests == {"nvidia.com/gpu": 2}
    assert refused.said[0].component == "default-scheduler"
    assert abs(time.time() - refused.said[0].last) < 600
    cluster.create(node("large", capacity={"nvidia.com/gpu": "8"}))
    done = only(cluster, book, when=lambda one: one.outcome == "scheduled")
    assert (done.node, done.code, done.attempts >= 1) == ("large", TOO_FEW, True)


def told(cluster):
    """The events that say why."""
    page = decode_events(json.dumps(cluster.call("GET", "/api/v1/events")).encode())
    return [event for event in page.items if TOO_FEW in {reason.code for reason in event.said}]


def test_events_alone_tell_the_same_as_the_condition(cluster):
    cluster.create(node("small", capacity={"nvidia.com/gpu": "1"}))
    cluster.create(pod("train", limits=GPUS))
    until(lambda: told(cluster))
    (event,) = told(cluster)
    assert (event.namespace, event.pod, event.component, event.reason) == (
        "ml",
        "train",
        "default-scheduler",
        "FailedScheduling",
    )
    assert event.count >= 1
    assert abs(time.time() - event.first) < 600

    def condition_says_so():
        (found,) = decode_cluster_pods(json.dumps(cluster.call("GET", "/api/v1/pods")).encode()).items
        return event.pod_uid == found.uid and found.refusal and event.said == found.refusal.said

    until(condition_says_so)


def test_a_pod_whose_scheduler_does_not_run_was_not_tried(cluster):
    cluster.create(node("large", capacity={"nvidia.com/gpu": "8"}))
    cluster.create(pod("lost", limits=GPUS, schedulerName="nobody"))
    cluster.create(pod("found", limits=GPUS))
    until(lambda: cluster.get("pods", "found", namespace="ml")["spec"].get("nodeName"))
    (lost,) = read(cluster, WaitingPods())
    assert (lost.pod, lost.scheduler, lost.code) == ("lost", "nobody", "SCHED_NOT_TRIED")


def test_a_gated_pod_is_told_so(cluster):
    cluster.create(pod("gated", limits=GPUS, schedulingGates=[{"name": "example.org/wait"}]))
    found = only(cluster, WaitingPods(), when=lambda one: one.code != "SCHED_NOT_TRIED")
    assert (found.code, found.attempts) == ("SCHED_GATED", 0)
