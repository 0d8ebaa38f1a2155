"""The processes of `vgpuscope top`. `VGPUSCOPE_GOLDEN=write` rewrites the golden page."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len

from tests.paths import TESTS
from tests.views.node.top.test_top import NODE, STATE, drawn, pressed, shown
from vgpuscope.model.host import ProcessUse
from vgpuscope.model.usage import ContainerKey, NodeSnapshot
from vgpuscope.views.node.top.processes import short_age
from vgpuscope.views.node.top.state import TopState

GIB = 1 << 30
GOLDEN = TESTS / "fixtures" / "top" / "processes-80.txt"
TRAINER = NODE.containers[0]
NOTEBOOK = next(one for one in NODE.containers if one.key.pod == "notebook-alice")
LONG = "python3 -m torch.distributed.run --nproc_per_node 8 train.py --data /mnt/datasets/imagenet --epochs 90"


def process(pid: int, usage=TRAINER, **more) -> ProcessUse:
    return ProcessUse(**{"gpu": usage.gpu, "mig": usage.mig, "pid": pid, "key": usage.key, **more})


PROCESSES = (
    process(40811, uid=1000, command="python3", memory=12 * GIB, sm=0.3, started=NODE.at - 7500),
    process(40812, uid=1000, command="python3", command_line=LONG, memory=11 * GIB, sm=0.22, started=NODE.at - 60),
    process(51200, NOTEBOOK, uid=0, command="ipykernel_launc", memory=GIB // 2, sm=0.0, started=NODE.at - 9 * 86400),
    process(52000, NOTEBOOK),  # nothing is known of it
    ProcessUse(gpu=TRAINER.gpu, pid=2101, uid=0, command="Xorg", memory=64 << 20, sm=0.0, started=NODE.at - 999_999),
)
WITH = replace(STATE, snapshot=replace(NODE, processes=PROCESSES), processes=True)


def test_the_page_with_processes_is_the_golden_one():
    if os.environ.get("VGPUSCOPE_GOLDEN") == "write":
        GOLDEN.write_text(shown(WITH, 80))
    assert shown(WITH, 80) == GOLDEN.read_text()


def test_no_line_is_wider_than_the_screen():
    for width in (40, 60, 80, 120, 200):
        assert all(cell_len(line) <= width for line in shown(WITH, width).splitlines())


def test_a_process_is_below_its_container_with_what_is_known_of_it():
    lines = shown(WITH, 140).splitlines()
    at = next(n for n, line in enumerate(lines) if "trainer" in line)
    assert "40811 python3" in lines[at + 1]
    assert all(part in lines[at + 1] for part in ("uid 1000", "30%", "12.0Gi", "2h"))
    assert "40812 python3 -m torch" in lines[at + 2]
    unknown = next(line for line in lines if "52000" in line)
    assert "0%" not in unknown
    assert unknown.count("–") >= 2  # SM and running time; its memory is not 0 either


def test_a_process_of_the_host_is_below_the_memory_of_the_system():
    lines = shown(WITH, 100).splitlines()
    at = next(n for n, line in enumerate(lines) if "2101 Xorg" in line)
    assert "system" in lines[at - 1]


def test_a_key_shows_and_hides_them():
    state = replace(WITH, processes=False)
    assert "40811" not in shown(state, 100)
    assert "40811" in shown(pressed(state, "p"), 100)
    assert "40811" not in shown(pressed(state, "p", "p"), 100)
    assert any("40811" in line for line in drawn(pressed(state, "p"), (80, 40)))


def test_a_filter_keeps_only_the_processes_of_what_it_keeps():
    found = shown(replace(WITH, pattern="notebook-alice"), 100)
    assert "51200" in found
    assert "40811" not in found


@pytest.mark.parametrize("group", [True, False])
@pytest.mark.parametrize("rest", [True, False])
def test_every_process_is_shown_once_however_the_rows_are_listed(group, rest):
    lines = shown(replace(WITH, group=group, rest=rest), None).splitlines()
    for one in PROCESSES[: 5 if group else 4]:  # without GPUs there is nothing that a process of the host is below
        assert sum(f"{one.pid} " in line for line in lines) == 1


def test_a_name_cannot_control_the_terminal():
    nasty = process(7, command="a\x1b[2Jb\nc")
    text = shown(replace(WITH, snapshot=replace(NODE, processes=(nasty,))), 100)
    assert "\x1b" not in text
    assert "7 a\ufffd[2Jb\ufffdc" in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (0, "0s"), (99, "99s"), (100, "1m"), (5999, "99m"), (6000, "1h"), (172_800, "2d"), (1e9, "999d")],
)
def test_an_age_has_four_cells_at_the_most(seconds, text):
    assert short_age(seconds) == text
    assert len(text) <= 4


numbers = st.none() | st.integers(0, 2**40)
uses = st.builds(
    ProcessUse,
    gpu=st.sampled_from([*(g.gpu.uuid for g in NODE.gpus), "GPU-gone"]),
    mig=st.none() | st.sampled_from(["MIG-5c8e", "MIG-gone"]),
    pid=st.integers(0, 2**22),
    key=st.none() | st.sampled_from([u.key for u in NODE.containers]) | st.just(ContainerKey(pod="gone")),
    uid=numbers,
    command=st.none() | st.text(max_size=15),
    command_line=st.none() | st.text(max_size=40),
    memory=numbers,
    sm=st.none() | st.floats(0, 2),
    started=st.none() | st.floats(0, 2e9),
)


@given(st.lists(uses, max_size=12), st.integers(1, 160), st.booleans(), st.booleans())
def test_any_processes_are_drawn(found, width, group, rest):
    snapshot: NodeSnapshot = replace(NODE, processes=tuple(found))
    state: TopState = replace(WITH, snapshot=snapshot, group=group, rest=rest)
    assert all(cell_len(line) <= width for line in shown(state, width).splitlines())
