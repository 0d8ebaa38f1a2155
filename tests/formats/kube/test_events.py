"""Events of both generations, as the API server writes them in JSON."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.formats.kube.events import EventText, decode_event_line, decode_events, event_body, events_path
from vgpuscope.formats.kube.objects import decode_cluster_pods
from vgpuscope.formats.kube.paths import ObjectRef
from vgpuscope.model.errors import KubeUnreadable
from vgpuscope.model.pending import PodEvent

MEMORY = "2 nodes CardInsufficientMemory(gpu-1,gpu-2)"
OLD = {
    "count": 7,
    "firstTimestamp": "2026-11-15T08:00:00Z",
    "lastTimestamp": "2026-11-15T08:10:00Z",
    "source": {"component": "hami-scheduler"},
    "eventTime": None,
    "reportingComponent": "hami-scheduler",
}
NEW = {
    "eventTime": "2026-11-15T08:00:00.250000Z",
    "series": {"count": 4, "lastObservedTime": "2026-11-15T08:06:00.500000Z"},
    "reportingComponent": "default-scheduler",
    "source": {},
    "firstTimestamp": None,
    "lastTimestamp": None,
}


def event(reason="FilteringFailed", message=MEMORY, *, about=None, **more):
    pod = {"kind": "Pod", "namespace": "ml", "name": "train", "uid": "pod-1"}
    return {
        "metadata": {"uid": "event-1", "name": "train.18", "namespace": "ml", "resourceVersion": "9"},
        "involvedObject": pod if about is None else about,
        "reason": reason,
        "message": message,
        **more,
    }


def listed(*items):
    return json.dumps({"kind": "EventList", "metadata": {"resourceVersion": "12"}, "items": items}).encode()


def read(item):
    page = decode_events(listed(item))
    assert page.faults == ()
    return page.items[0] if page.items else None


def test_an_event_of_the_old_recorders_is_read_whole():
    found = read(event(**OLD))
    (said,) = found.said
    assert (said.code, said.nodes, said.node_count) == ("SCHED_INSUFFICIENT_GPU_MEMORY", ("gpu-1", "gpu-2"), 2)
    assert found == PodEvent(
        uid="event-1",
        pod_uid="pod-1",
        namespace="ml",
        pod="train",
        component="hami-scheduler",
        reason="FilteringFailed",
        said=found.said,
        count=7,
        first=1794729600.0,
        last=1794730200.0,
    )


def test_an_event_of_the_new_recorders_counts_in_its_series():
    found = read(event("FailedScheduling", "0/1 nodes are available: 1 Insufficient cpu.", **NEW))
    assert (found.component, found.instance, found.count) == ("default-scheduler", "", 4)
    assert (found.first, found.last) == (1794729600.25, 1794729960.5)


def test_the_process_that_reports_is_read_from_events_of_both_generations():
    new = event(**NEW, reportingInstance="default-scheduler-node-1")
    old = event(**OLD | {"source": {"component": "hami-scheduler", "host": "node-1"}, "reportingInstance": ""})
    assert [read(one).instance for one in (new, old, event(**OLD))] == ["default-scheduler-node-1", "node-1", ""]


def test_an_event_that_happened_once_and_has_no_times_but_its_own_creation():
    bare = event(count=0)
    bare["metadata"]["creationTimestamp"] = "2026-11-15T08:00:00Z"
    assert (read(bare).count, read(bare).first, read(bare).last) == (1, 1794729600.0, 1794729600.0)
    assert read(event()).last is None


@pytest.mark.parametrize("reason", ["FilteringSucceed", "BindingSucceed", "Scheduled"])
def test_what_went_well_is_read_without_reasons(reason):
    found = read(event(reason, "find fit node(gpu-1), 0 nodes not fit", **OLD))
    assert (found.reason, found.said) == (reason, ())


@pytest.mark.parametrize(
    "item",
    [
        event("Pulled", "Container image already present"),
        event("BackOff", "0/1 nodes are available: 1 Insufficient cpu."),
        event(about={"kind": "Node", "name": "gpu-1", "uid": "n"}),
        event(about={"kind": "Pod", "namespace": "ml", "name": "train"}),
        event(about={}),
        {**event(), "involvedObject": None},
    ],
    ids=["pulled", "back-off", "a node", "no uid", "nothing", "null"],
)
def test_what_is_not_about_a_pods_scheduling_is_no_item(item):
    assert read(item) is None
    line = decode_event_line(json.dumps({"type": "ADDED", "object": item}).encode())
    assert (line.item, line.uid, line.faults) == (None, "event-1", ())


def test_a_combined_event_tells_its_latest_text_and_that_it_is_combined():
    found = read(event(message=f"(combined from similar events): {MEMORY}", **OLD))
    assert found.combined
    assert found.said == read(event(**OLD)).said


def test_lines_of_a_watch_say_what_became_of_an_event():
    changed = decode_event_line(json.dumps({"type": "MODIFIED", "object": event(**OLD)}).encode())
    assert (changed.type, changed.uid, changed.resource_version) == ("MODIFIED", "event-1", "9")
    assert changed.item == read(event(**OLD))
    gone = decode_event_line(json.dumps({"type": "DELETED", "object": event(**OLD)}).encode())
    assert (gone.type, gone.uid, gone.item) == ("DELETED", "event-1", None)


def test_one_bad_event_costs_itself_and_is_named():
    anonymous = event()
    anonymous["metadata"]["uid"] = ""
    page = decode_events(listed(event(count="many"), anonymous, event(**OLD)))
    assert [found.count for found in page.items] == [7]
    assert [fault.object for fault in page.faults] == ["Event/ml/train.18", "Event/ml/train.18"]


def test_a_text_of_a_million_characters_is_cut():
    found = read(event(message="x" * 1_000_000))
    assert sum(len(one.detail) for one in found.said) < 8192


def test_a_count_that_nobody_can_have_is_bounded():
    assert read(event(count=10**30)).count < 2**31
    assert read(event(count=-5)).count == 1


def test_a_refused_pod_brings_its_reasons_along():
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    text = "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 2/2 CardInsufficientMemory."
    pod = {
        "metadata": {"name": "train", "namespace": "ml", "uid": "pod-1"},
        "spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
        "status": {"phase": "Pending", "conditions": [{**condition, "message": text}]},
    }
    page = decode_cluster_pods(json.dumps({"kind": "PodList", "items": [pod]}).encode())
    said = {(one.code, one.node_count, one.cards) for one in page.items[0].refusal.said}
    assert said == {("SCHED_TAINT", 1, ""), ("SCHED_INSUFFICIENT_GPU_MEMORY", 2, "2/2")}


@given(st.binary())
def test_any_bytes_are_read_or_refused(data):
    for decode in (decode_events, decode_event_line):
        with contextlib.suppress(KubeUnreadable):
            decode(data)


values = st.recursive(st.none() | st.integers() | st.text(max_size=9), lambda inner: st.lists(inner, max_size=2))


@given(st.dictionaries(st.sampled_from([*OLD, *NEW, "reason", "message", "involvedObject"]), values))
def test_any_field_may_hold_anything_and_costs_its_event_only(fields):
    page = decode_events(listed({**event(**OLD), **fields}, event(**OLD)))
    assert page.items[-1] == read(event(**OLD))


# --- events that we post ----------------------------------------------------------------------------------------------

POD = ObjectRef("Pod", "train", "ml", "uid-1")


def posted(about=POD, *, note="no", instance="pod-1"):
    text = EventText("BindingFailed", note, "Warning", "Binding")
    return event_body(about, text, name="train.18", component="hami-scheduler", instance=instance, now=1794767070.25)


def test_an_event_names_its_object_its_reporter_and_its_moment():
    assert posted() == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "train.18", "namespace": "ml"},
        "eventTime": "2026-11-15T18:24:30.250000Z",
        "reportingController": "hami-scheduler",
        "reportingInstance": "pod-1",
        "action": "Binding",
        "reason": "BindingFailed",
        "type": "Warning",
        "note": "no",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "train", "namespace": "ml", "uid": "uid-1"},
    }


def test_an_event_about_a_cluster_scoped_object_is_in_the_default_namespace():
    node = ObjectRef("Node", "n1")
    assert (posted(node)["metadata"]["namespace"], posted(node)["regarding"]["namespace"]) == ("default", "")
    assert events_path(node) == "/apis/events.k8s.io/v1/namespaces/default/events"
    assert events_path(POD) == "/apis/events.k8s.io/v1/namespaces/ml/events"


texts = st.builds(
    lambda start, filling, times: start + filling * times,
    st.text(st.characters(codec="utf-8")),
    st.characters(codec="utf-8"),
    st.integers(0, 1100),
)


def test_half_of_a_surrogate_pair_which_a_file_name_can_have_does_not_stop_an_event():
    assert posted(note="no \udc80 here")["note"] == "no ? here"


@given(texts)
def test_a_note_is_cut_at_1024_bytes_between_two_characters_and_a_shorter_one_is_not_changed(note):
    cut = posted(note=note)["note"]
    assert note.startswith(cut)
    assert len(cut.encode()) <= 1024
    assert cut == note or len((cut + note[len(cut)]).encode()) > 1024


@given(texts)
def test_the_name_of_an_instance_is_cut_at_128_bytes_and_an_instance_without_one_has_its_components(instance):
    cut = posted(instance=instance)["reportingInstance"]
    assert len(cut.encode()) <= 128
    assert instance.startswith(cut) or (instance, cut) == ("", "hami-scheduler")
