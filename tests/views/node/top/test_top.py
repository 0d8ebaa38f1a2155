"""What `vgpuscope top` shows of a node, without a terminal. `VGPUSCOPE_GOLDEN=write` rewrites the golden pages."""

import os

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import Console

from tests.paths import TESTS
from vgpuscope.model.device import XidCount
from vgpuscope.model.usage import MODES, STATES, Burst, ContainerKey, ContainerUsage, NodeSnapshot
from vgpuscope.views import text
from vgpuscope.views.node.top.rows import REST
from vgpuscope.views.node.top.state import SORTS, TopState, missed, narrowed, page, press, rows, sampled, screen, settle
from vgpuscope.views.node.top.table import table_lines

FIXTURES = TESTS / "fixtures" / "top"
NODE = msgspec.json.decode((FIXTURES / "node.json").read_bytes(), type=NodeSnapshot)
STATE = TopState(url="http://node:9394", snapshot=NODE, arrived=NODE, now=NODE.at + 0.4)
KEYS = [*"qsr/gl ?njkxml训", "esc", "enter", "backspace", "clear", "up", "down", "pgup", "pgdn", "home", "end", "\0"]

ratios = st.none() | st.floats(0, 2)
counts = st.none() | st.integers(0, 2**40)
names = st.text(max_size=12)
keys = st.builds(ContainerKey, namespace=names, pod=names, pod_uid=names, container=names)
usages = st.builds(
    ContainerUsage,
    key=keys,
    gpu=st.sampled_from([*(g.gpu.uuid for g in NODE.gpus), "GPU-gone"]),
    mig=st.none() | st.sampled_from(["MIG-5c8e", "MIG-gone"]),
    mode=st.sampled_from(MODES),
    state=st.sampled_from(STATES),
    allocated=st.booleans(),
    processes=counts,
    memory=counts,
    memory_total=counts,
    sm=ratios,
    sm_burst=st.none() | st.builds(Burst, mean=st.floats(0, 2), max=st.floats(0, 2)),
    power=st.none() | st.floats(0, 1000),
    energy=st.none() | st.floats(0, 1e12),
)
nodes = st.lists(usages, max_size=12).map(lambda found: replace(NODE, containers=tuple(found)))
orders = st.sampled_from(SORTS)


def shown(state: TopState, width: int | None) -> str:
    return "\n".join(line.plain for line in page(state, width)) + "\n"


def drawn(state: TopState, size: tuple[int, int]) -> list[str]:
    console = Console(width=size[0], color_system=None)
    with console.capture() as picture:
        console.print(screen(settle(state, size), size), end="")
    return picture.get().removesuffix("\n").split("\n")


def containers(table):
    return sorted((row.usage for row in table if row.kind == "container"), key=repr)


def pressed(state: TopState, *pressed_keys: str) -> TopState:
    for key in pressed_keys:
        state = press(state, key)
    return state


@pytest.mark.parametrize("width", [80, 140])
def test_the_page_of_a_node_of_all_modes_is_the_golden_one(width):
    golden = FIXTURES / f"{width}.txt"
    if os.environ.get("VGPUSCOPE_GOLDEN") == "write":
        golden.write_text(shown(STATE, width))
    assert shown(STATE, width) == golden.read_text()


def test_every_mode_and_state_is_said_in_words():
    everything = shown(STATE, 140)
    for word in (*MODES, *STATES, "free", "✗ lost"):
        assert word in everything


@pytest.mark.parametrize("width", [80, 100, 140, 200])
@pytest.mark.parametrize("group", [True, False])
def test_wide_characters_do_not_push_the_columns_out_of_line(width, group):
    titles, lines = table_lines(rows(NODE, group=group), width, group=group)
    assert len({cell_len(line.plain) for line in (*titles, *lines)}) == 1
    assert cell_len(lines[0].plain) <= width


@given(nodes, st.integers(1, 250))
def test_all_lines_of_a_table_are_equally_wide(node, width):
    titles, lines = table_lines(rows(node), width, group=True)
    assert len({cell_len(line.plain) for line in (*titles, *lines)}) == 1


@given(nodes, orders, st.booleans(), st.booleans())
def test_sorting_and_grouping_show_every_container_exactly_once(node, sort, reverse, group):
    table = rows(node, sort=sort, reverse=reverse, group=group)
    assert containers(table) == sorted(node.containers, key=repr)


@given(nodes, orders, st.booleans(), st.booleans(), st.text(max_size=3) | st.sampled_from(["a100", "ml", "GPU-", "t4"]))
def test_a_filter_shows_only_what_was_there_and_all_that_matches(node, sort, group, reverse, pattern):
    some = containers(rows(node, sort=sort, reverse=reverse, group=group, pattern=pattern))
    everything = containers(rows(node, sort=sort, reverse=reverse, group=group))
    assert all(usage in everything for usage in some)
    matching = [u for u in everything if pattern.strip().casefold() in text.label(u.key).casefold()]
    assert all(usage in some for usage in matching)


@given(nodes, st.sampled_from(["memory", "sm", "power"]), st.booleans())
def test_what_is_not_measured_is_sorted_last_in_either_direction(node, sort, reverse):
    column = {"memory": "memory", "sm": "busy", "power": "power"}[sort]
    values = [getattr(row, column) for row in rows(node, sort=sort, reverse=reverse, group=False)]
    known = [value for value in values if value is not None]
    assert values == sorted(known, reverse=not reverse) + [None] * (len(values) - len(known))


@pytest.mark.parametrize("gpu", [entry.gpu for entry in NODE.ledgers if entry.mig is None])
def test_the_rows_below_a_gpu_add_up_to_its_memory(gpu):
    ledger = next(entry for entry in NODE.ledgers if entry.gpu == gpu and entry.mig is None)
    table = rows(NODE)
    held = sum(row.memory or 0 for row in table if row.gpu == gpu and row.kind == "container")
    rest = sum(row.memory or 0 for row in table if row.gpu == gpu and row.kind in REST and len(row.branch) == 2)
    assert held + rest == ledger.memory.total


def test_the_rows_below_a_gpu_add_up_to_its_energy():
    ledger = next(entry for entry in NODE.ledgers if entry.energy and entry.energy.ended)
    parts = [row for row in rows(NODE) if row.gpu == ledger.gpu and row.kind != "gpu"]
    assert sum(row.energy or 0 for row in parts) == pytest.approx(ledger.energy.total)


def test_a_gpu_that_is_shown_in_part_does_not_pretend_to_add_up():
    assert not [row for row in rows(NODE, pattern="notebook-bob") if row.kind in REST]
    assert [row for row in rows(NODE, pattern="T4") if row.kind in REST]


def test_a_filter_narrows_the_data_as_it_narrows_the_screen():
    some = narrowed(NODE, "BERT")
    assert [u.key.pod for u in some.containers] == ["bert-qa-6f7c"]
    assert [g.gpu.index for g in some.gpus] == [2]
    assert some.migs == NODE.migs
    assert some.vgpus == ()
    assert some.sources == NODE.sources


def test_what_is_not_measured_is_a_dash_and_never_a_zero():
    for render in (text.percent, text.size, text.watts, text.joules):
        assert render(None) == "–"
    lost = next(line for line in shown(STATE, None).split("\n") if "✗ lost" in line)
    assert "–" in lost
    assert "0%" not in lost


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (text.percent(0.0), "0%"),
        (text.percent(0.001), "<1%"),
        (text.percent(1.37), "137%"),
        (text.percent(12.0), "×12"),
        (text.percent(1e9), "×1k+"),
        (text.size(0), "0"),
        (text.size(1024), "1Ki"),
        (text.size(1023.7 * 2**20), "1.0Gi"),
        (text.size(80 * 2**30), "80.0Gi"),
        (text.size(1500 * 2**30), "1.46Ti"),
        (text.sizes(2**29, 8 * 2**30), "512Mi/8.0Gi"),
        (text.sizes(2**30, 8 * 2**30), "1.0/8.0Gi"),
        (text.sizes(None, 8 * 2**30), "–/8.0Gi"),
        (text.sizes(2**30, None), "1.0Gi"),
        (text.watts(312.4, 400), "312/400W"),
        (text.watts(None, 400), "–/400W"),
        (text.joules(901), "901J"),
        (text.joules(12_345), "12.3kJ"),
        (text.joules(41.9e6), "41.9MJ"),
        (text.joules(3e12), "3000.0GJ"),
        (text.span(0.44), "0.4 s"),
        (text.span(61), "61 s"),
        (text.span(600), "10 min"),
        (text.span(7300), "2 h"),
        (text.span(864000), "10 d"),
        (text.fit("搜索推荐/向量召回", 9).rstrip(), "搜索…召回"),
        (text.label(ContainerKey(pod_uid="u-1", container="c")), "pod u-1/c"),
        (text.label(ContainerKey()), "(no name)"),
    ],
)
def test_numbers_are_short_and_true(said, meant):
    assert said == meant


@given(st.text(), st.integers(0, 40))
def test_a_fitted_text_is_exactly_as_wide_as_asked(name, width):
    assert cell_len(text.fit(text.clean(name), width)) == width


@given(ratios, st.integers(0, 30))
def test_a_bar_is_as_long_as_asked_and_shows_that_little_is_not_nothing(ratio, width):
    bar = text.bar(ratio, width, "").plain
    assert len(bar) == width
    if width and ratio:
        assert bar[0] in "━╾"


def test_a_name_cannot_steer_the_terminal():
    evil = replace(NODE.containers[0], key=ContainerKey(namespace="\x1b]0;owned\x07", pod="a\nb", container="\u202e"))
    everything = shown(replace(STATE, snapshot=replace(NODE, containers=(evil,), node="\x1b[2J")), None)
    assert all(c == "\n" or c.isprintable() for c in everything)


def test_faults_are_in_sight_the_worst_first():
    said = shown(STATE, None).split("\n\n")[-1].splitlines()
    assert said[0].startswith(" ✗ GPU 7 lost")
    assert said[1].startswith(" ✗ GPU 7 reported XID 79 (fell off the bus)")
    assert said[2].startswith(" ✗ pods KUBE_FORBIDDEN: the API server answers 403")
    assert " ! 3 HAMi regions rejected: size 1, version 2" in said
    assert " ! ml-team/notebook-alice/jupyter waits for a container of higher priority" in said


def test_an_empty_node_says_so():
    empty = NodeSnapshot(at=0.0, node="n", ratio=1.0)
    assert "no GPUs" in shown(TopState(snapshot=empty), 80)
    assert "no rows match “zzz”" in shown(replace(STATE, pattern="zzz"), 80)


@given(st.lists(st.sampled_from(KEYS)), st.integers(1, 200), st.integers(1, 60), st.booleans(), st.booleans())
def test_any_keys_on_a_screen_of_any_size_fill_it_exactly(history, width, height, lost, started):
    state = STATE if started else TopState(url="x")
    state = missed(state, "no agent answers", hint="start one", now=NODE.at + 60) if lost else state
    for key in history:
        state = press(settle(state, (width, height)), key)
    lines = drawn(state, (width, height))
    assert len(lines) == height
    assert all(cell_len(line) == width for line in lines)


@given(st.lists(st.sampled_from(KEYS)))
def test_keys_never_lose_the_data(history):
    state = pressed(STATE, *history)
    assert state.snapshot is NODE
    assert state.sort in SORTS


def test_s_goes_through_all_orders_and_r_turns_them():
    assert [pressed(STATE, *"s" * n).sort for n in range(6)] == [*SORTS, SORTS[0]]
    assert rows(NODE, sort="memory", group=False)[0] == rows(NODE, sort="memory", group=False, reverse=True)[-3]
    assert pressed(STATE, "r").reverse


def test_q_and_esc_quit_unless_a_filter_is_typed():
    assert press(STATE, "q").quit
    assert press(STATE, "esc").quit
    typing = pressed(STATE, "/", "q")
    assert (typing.quit, typing.needle) == (False, "q")


def test_a_filter_acts_while_it_is_typed_and_esc_takes_it_back():
    kept = pressed(STATE, "/", *"bert", "enter")
    assert kept.pattern == "bert"
    assert len(containers(kept.table())) == 1
    typing = pressed(kept, "/", "clear", *"llamax", "backspace")
    assert [u.key.pod for u in containers(typing.table())] == ["llama-finetune-0"]
    assert press(typing, "esc").needle == "bert"


def test_g_shows_containers_alone_and_l_hides_what_they_leave_over():
    assert {row.kind for row in press(STATE, "g").table()} == {"container"}
    assert {row.kind for row in press(STATE, "l").table()} == {"gpu", "mig", "container"}


def test_a_paused_screen_keeps_its_picture_and_goes_on_with_the_newest():
    later = replace(NODE, at=NODE.at + 5)
    paused = sampled(press(STATE, " "), later, now=later.at)
    assert paused.snapshot is NODE
    assert "PAUSED" in drawn(paused, (120, 30))[0]
    assert press(paused, " ").snapshot is later


def test_scrolling_ends_where_the_rows_end():
    size = (100, 24)
    bottom = settle(press(settle(STATE, size), "end"), size)
    assert press(bottom, "j") == bottom
    assert "7 NVIDIA" in "\n".join(drawn(bottom, size))
    assert press(bottom, "home").scroll == 0
    assert settle(bottom, (100, 200)).scroll == 0


def test_lost_contact_leaves_the_last_data_with_their_age_and_the_reason():
    lost = missed(STATE, "no agent answers at http://node:9394", hint="", now=NODE.at + 42)
    everything = "\n".join(drawn(lost, (100, 40)))
    assert "no agent answers at http://node:9394" in everything
    assert "data is 42 s old" in everything
    assert "llama" in everything
    back = sampled(lost, NODE, now=NODE.at + 43)
    assert "no agent answers" not in "\n".join(drawn(back, (100, 40)))


def test_help_and_notices_close_with_any_key_and_name_every_command():
    assert pressed(STATE, "?", "q") == STATE
    helped = "\n".join(drawn(press(STATE, "?"), (100, 30)))
    for word in ("sort", "reverse", "filter", "scroll", "quit", "not measured"):
        assert word in helped
    assert "throttled" in "\n".join(drawn(press(STATE, "n"), (100, 30)))


def told_of_xids(last, *seen):
    """What is said of the XIDs of the first GPU."""
    gpu = NODE.gpus[0].gpu.uuid
    counts = tuple(XidCount(gpu=gpu, xid=xid, count=1) for xid in seen)
    state = replace(STATE, snapshot=replace(NODE, xids=counts, last_xid=((gpu, last),)))
    return [line.strip() for line in shown(state, 140).splitlines() if "XID" in line]


def test_a_fatal_xid_is_shown_with_what_to_do_even_if_a_harmless_one_came_later():
    (line,) = told_of_xids(43, 79, 43)
    assert line == "✗ GPU 0 reported XID 79 (fell off the bus): restart the machine; 2 XIDs so far"


def test_an_xid_of_the_application_is_not_shown_as_a_broken_gpu():
    (line,) = told_of_xids(31, 31)
    assert line == "! GPU 0 reported XID 31 (MMU fault): restart the application; 1 XID so far"
