"""The texts of events, as the handbook shows them."""

from vgpuscope.model.placement import ChosenGpu, NodeVerdict, Placement
from vgpuscope.views.scheduler.notes import (
    LONGEST,
    main_verdict,
    priority,
    refused_note,
    scheduled_note,
    shortened,
    shown_score,
)


def verdict(node, available=4000, code="SCHED_INSUFFICIENT_GPU_MEMORY", message=None):
    text = f"GPU memory insufficient (requested 8000MB, available {available}MB)"
    return NodeVerdict(node=node, code=code, message=message or text)


def test_the_seeds_examples():
    gpu = ChosenGpu(container=0, position=0, uuid="GPU-0", memory=4000, cores=0)
    placed = Placement(node="node-01", gpus=(gpu,), score=25.5, policy="binpack/spread")
    assert scheduled_note("ml", "train", placed, gpus_of_node=3, memory=4000) == (
        "Successfully assigned ml/train to node-01\nGPU: 1/3, Memory: 4000MB\nScore: 85, Policy: binpack"
    )
    types = verdict(
        "node-02", message="device type mismatch (requested A100, has T4)", code="SCHED_DEVICE_TYPE_MISMATCH"
    )
    full = verdict("node-03", message="quota exceeded (namespace ai-team)", code="SCHED_QUOTA_EXCEEDED")
    assert refused_note([full, types, verdict("node-01")]) == (
        "0/3 nodes available:\n"
        "node-01: GPU memory insufficient (requested 8000MB, available 4000MB)\n"
        "node-02: device type mismatch (requested A100, has T4)\n"
        "node-03: quota exceeded (namespace ai-team)"
    )


def test_the_order_in_which_nodes_are_sent_changes_nothing():
    nodes = [verdict(f"n{number:03d}", available=number % 3) for number in range(50)]
    assert refused_note(nodes) == refused_note(nodes[::-1])


def test_many_nodes_with_the_same_words_are_one_line():
    text = refused_note([verdict(f"n{number:03d}") for number in range(1000)])
    assert text.split("\n") == [
        "0/1000 nodes available:",
        "n000, n001 and 998 more: GPU memory insufficient (requested 8000MB, available 4000MB)",
    ]


def test_many_nodes_with_other_numbers_are_one_line_for_each_code():
    text = refused_note([verdict(f"n{number:03d}", available=number) for number in range(1000)])
    assert text.split("\n")[1] == (
        "1000 nodes, such as n000: GPU memory insufficient (requested 8000MB, available 0MB)"
    )


def test_no_text_is_longer_than_the_api_server_accepts():
    long = [
        verdict(f"{'n' * 250}{number}", message=f"{number}{'x' * 300}", code=f"SCHED_{number}") for number in range(40)
    ]
    assert len(refused_note(long)) <= LONGEST
    assert refused_note(long).endswith("more reasons")


def test_the_limit_counts_bytes_and_leaves_room_for_one_node_at_least():
    for count in (1, 2, 40):
        long = [
            verdict(f"节点{number}", message=f"{number}{'显' * 2000}", code=f"SCHED_{number}")
            for number in range(count)
        ]
        note = refused_note(long)
        assert len(note.encode()) <= LONGEST
        assert note.split("\n")[1].startswith("节点0: 0显显")
        assert count == 1 or note.endswith(f"and {count - 1} more reasons")


def test_a_text_is_cut_between_characters():
    assert shortened("显示", 6) == "显示"
    assert shortened("显示器", 8) == "显…"
    assert shortened("abc", 3) == "abc"


def test_a_score_is_better_the_higher_it_is():
    assert (shown_score(30.0, "binpack/spread"), shown_score(0.0, "binpack/spread")) == (100, 0)
    assert (shown_score(30.0, "spread/spread"), shown_score(0.0, "spread/spread")) == (0, 100)
    assert shown_score(45.0, "binpack/spread") == 100  # memory that is scaled can be allocated more than once
    assert (priority(30.0, "binpack/spread"), priority(None, "binpack/spread")) == (10, 0)


def test_the_most_frequent_code_stands_for_all():
    nodes = [verdict("b"), verdict("a"), verdict("c", code="SCHED_QUOTA_EXCEEDED"), NodeVerdict(node="d", score=1.0)]
    assert main_verdict(nodes).node == "a"
    assert main_verdict([NodeVerdict(node="d", score=1.0)]) is None


def test_nodes_without_gpus_are_named_last_however_many_they_are():
    cpus = [
        verdict(f"cpu-{at:02}", message="the node has no registered GPU", code="SCHED_NODE_UNREGISTERED")
        for at in range(50)
    ]
    gpus = [verdict("gpu-1"), verdict("gpu-2")]
    found = main_verdict([*cpus, *gpus])
    assert (found.node, found.code) == ("gpu-1", gpus[0].code)
    lines = refused_note([*cpus, *gpus]).splitlines()
    assert lines[1].startswith("gpu-1, gpu-2: ")
    assert lines[2] == "cpu-00, cpu-01 and 48 more: the node has no registered GPU"
    assert main_verdict(cpus).code == "SCHED_NODE_UNREGISTERED"
