"""What schedulers say of pods that wait, in their own words → our codes."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cputime import seconds
from tests.paths import TESTS
from vgpuscope.formats.scheduler_messages.reasons import condition_reasons, reasons, success
from vgpuscope.knowledge.vendors import VENDORS
from vgpuscope.model.scheduling_codes import BY_CODE, Reason

FILES = sorted((TESTS / "fixtures" / "events").glob("*.json"))
CHECK_WORDS = [
    (path.stem, number, event) for path in FILES for number, event in enumerate(json.loads(path.read_text()))
]

each_text = pytest.mark.parametrize(
    "event", [pytest.param(e, id=f"{stem}-{number}") for stem, number, e in CHECK_WORDS]
)


def read(event):
    if "component" in event:
        return reasons(event["component"], event["reason"], event["message"])
    return condition_reasons(event["reason"], event["message"])


def said(message, reason="FailedScheduling", component="default-scheduler"):
    """Code and count of each reason."""
    return [(one.code.removeprefix("SCHED_"), one.node_count) for one in reasons(component, reason, message)]


# --- known texts ------------------------------------------------------------------------------------------------------


@each_text
def test_a_known_text_says_what_it_says(event):
    told = [msgspec.structs.replace(one, detail="") for one in read(event)]
    assert told == [msgspec.convert(one, Reason) for one in event["says"]]


@each_text
def test_every_reason_keeps_words_of_the_text_it_was_made_from(event):
    words = " ".join(event["message"].split())
    for one in read(event):
        assert one.detail
        assert one.detail.split(", ")[0] in words


def test_every_code_is_said_by_some_known_text():
    silence = {"SCHED_NOT_TRIED"}  # what it is called when nobody said anything
    assert {one.code for _, _, event in CHECK_WORDS for one in read(event)} == set(BY_CODE) - silence


def test_no_text_of_kube_scheduler_is_unknown():
    recorded = [event for stem, _, event in CHECK_WORDS if stem == "kube-scheduler-1.35"]
    assert len(recorded) > 40
    assert not any(one.code == "SCHED_OTHER" for event in recorded for one in read(event))


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.word)
def test_a_scarce_resource_of_any_vendor_is_a_device_and_not_something_else(vendor):
    kinds = {
        vendor.count: "INSUFFICIENT_GPU_COUNT",
        vendor.memory: "INSUFFICIENT_GPU_MEMORY",
        vendor.memory_percentage: "INSUFFICIENT_GPU_MEMORY",
        vendor.core: "INSUFFICIENT_GPU_CORES",
    }
    for resource, code in kinds.items():
        if resource:
            assert said(f"0/3 nodes are available: 3 Insufficient {resource}.") == [(code, 3)]


# --- the shapes -------------------------------------------------------------------------------------------------------


def test_what_preemption_found_is_not_counted():
    text = "0/5 nodes are available: 2 Insufficient cpu. preemption: 0/5 nodes are available: 5 Insufficient memory."
    assert said(text) == [("INSUFFICIENT_CPU", 2)]


def test_the_reasons_of_one_node_share_its_count_and_each_has_its_gpus():
    text = "0/4 nodes are available: 3 1/3 AllocatedCardsInsufficientRequest, 1/3 CardCordoned, 1 node unregistered."
    assert said(text) == [("INSUFFICIENT_GPU_COUNT", 3), ("DEVICE_CORDONED", 3), ("NODE_UNREGISTERED", 1)]
    assert [one.cards for one in reasons("s", "FailedScheduling", text)] == ["1/3", "1/3", ""]


def test_a_line_for_each_node_names_the_node():
    lines = "\n".join(f"  node-{n}: GPU memory insufficient (requested 8000MB, available {n}MB)" for n in range(3))
    (one,) = reasons("hami-scheduler", "FailedScheduling", f"0/3 nodes available:\n{lines}")
    assert (one.code, one.nodes, one.node_count) == ("SCHED_INSUFFICIENT_GPU_MEMORY", ("node-0", "node-1", "node-2"), 3)
    assert one.detail == "GPU memory insufficient (requested 8000MB, available 0MB)"


def test_words_before_a_colon_are_a_node_only_where_each_line_is_one():
    (one,) = reasons("s", "FailedScheduling", "0/7 nodes are available: gpu: device class nowhere does not exist.")
    assert (one.code, one.nodes, one.node_count) == ("SCHED_DRA_UNALLOCATABLE", (), 7)


def test_the_words_that_are_kept_are_those_of_the_reason_alone():
    text = (
        "0/7 nodes are available: 4 Insufficient cpu, 3 node(s) had untolerated taint(s). no new claims, preemption: x"
    )
    details = [one.detail for one in reasons("s", "FailedScheduling", text)]
    assert details == ["Insufficient cpu", "node(s) had untolerated taint(s)"]


def test_commas_in_brackets_separate_nothing():
    text = "0/2 nodes are available: 2 node(s) had untolerated taint {a: b, 1 Insufficient cpu}."
    assert said(text) == [("TAINT", 2)]


@pytest.mark.parametrize("count", [65, 5000, 50_000])
def test_more_nodes_than_are_kept_are_still_counted(count):
    names = [f"node{'-' * 40}{number}" for number in range(count)]  # a text that is cut is cut within a name
    text = f"{count} nodes CardInsufficientMemory({','.join(names)})"
    (one,) = reasons("hami-scheduler", "FilteringFailed", text)
    assert (one.code, one.node_count, one.nodes) == ("SCHED_INSUFFICIENT_GPU_MEMORY", count, tuple(names[:64]))


def test_nodes_of_several_lines_are_kept_and_counted_together():
    lines = "\n".join(f"node-{number}: GPU memory insufficient" for number in range(1000))
    (one,) = reasons("hami-scheduler", "FailedScheduling", f"0/1000 nodes available:\n{lines}")
    assert (one.node_count, len(one.nodes)) == (1000, 64)
    halves = [",".join(f"{half}{number}" for number in range(50)) for half in "ab"]
    text = f"0/100 nodes are available: 50 Insufficient vGPU memory ({halves[0]}), 50 GPU memory short ({halves[1]})."
    (one,) = reasons("vgpu-manager", "FilteringFailed", text)
    assert (one.node_count, len(one.nodes)) == (100, 64)


def test_an_unknown_text_is_kept_as_it_is():
    (one,) = reasons("someone", "FailedScheduling", "the moon is\nin the wrong house")
    assert (one.code, one.detail) == ("SCHED_OTHER", "the moon is in the wrong house")
    assert said("0/4 nodes are available: 3 wrong moon, 1 Insufficient cpu.") == [("OTHER", 3), ("INSUFFICIENT_CPU", 1)]


def test_a_text_that_was_cut_off_keeps_what_was_whole():
    text = "0/9 nodes are available: 2 Insufficient cpu, 3 node(s) were unschedulable, 4 node(s) didn't ma ..."
    assert said(text) == [("INSUFFICIENT_CPU", 2), ("NODE_UNSCHEDULABLE", 3), ("OTHER", 4)]


def test_an_event_without_text_is_not_lost():
    assert [one.code for one in reasons("kubelet", "UnexpectedAdmissionError", "")] == ["SCHED_ALLOCATE_FAILED"]
    assert [one.code for one in condition_reasons("SchedulingGated", "")] == ["SCHED_GATED"]
    assert condition_reasons("", "") == ()


# --- events that say something else -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reason", ["Scheduled", "FilteringSucceed", "BindingSucceed", "Pulled", "Preempted", "Pending"]
)
def test_an_event_that_gives_no_reason_gives_none(reason):
    assert reasons("anyone", reason, "0/5 nodes are available: 5 Insufficient cpu.") == ()


def test_success_is_told_of_its_stage():
    stages = [success("s", reason) for reason in ("FilteringSucceed", "BindingSucceed", "Scheduled", "Bound", "Pulled")]
    assert stages == ["filter", "bind", "bind", "bind", None]


# --- any text at all --------------------------------------------------------------------------------------------------

PARTS = """
    0/3 nodes are available:_|3_|1/2_|CardNotHealth|Insufficient cpu|,_|._|(|)|{|<|>|node-a|,|:_|preemption:|_and 3 more
    no nodes with enough resources were found|999999999999999999999|has been locked|nodes do not meet
"""
parts = st.sampled_from(["\n", "\0", *(part.strip().replace("_", " ") for part in PARTS.replace("\n", "|").split("|"))])
texts = st.one_of(st.text(), st.lists(parts, max_size=30).map("".join))


@given(st.sampled_from(["FailedScheduling", "FilteringFailed", "BindingFailed", "FailedCreate", "OutOfx"]), texts)
def test_any_text_is_read_and_every_answer_is_bounded(reason, text):
    for found in (reasons("anyone", reason, text), condition_reasons(reason, text)):
        assert found
        check_bounds(found)


def check_bounds(found):
    assert len(found) <= 64
    for one in found:
        assert one.code in BY_CODE
        assert len(one.detail) <= 160
        assert one.detail.isprintable()
        assert len(one.nodes) <= 64
        assert all(0 < len(name) <= 253 for name in one.nodes)
        assert one.node_count is None or 0 <= one.node_count < 2**53
        assert msgspec.json.decode(msgspec.json.encode(one), type=Reason) == one


HARD = [
    "a",
    "(",
    "1 ",
    "1/1 a, ",
    "0/1 nodes are available: ",
    "\n<a>: b",
    "post ",
    " " * 7,
    "(a,",
    "/",
    "queue ",
    "gpu",
    "\n",
]


@pytest.mark.parametrize("part", HARD)
def test_megabytes_of_anything_are_read_at_once(part):
    for text in (
        part * (3_000_000 // len(part)),
        ", ".join(f"{n} {n}{part * (500 // len(part))}" for n in range(9000)),
    ):

        def read(text=text):
            found = reasons("anyone", "FailedScheduling", f"0/3 nodes are available: {text}")
            return found, reasons("anyone", "BindingFailed", text)

        assert seconds(read) < 0.4
        found, bind = read()
        assert found
        check_bounds(found)
        check_bounds(bind)
