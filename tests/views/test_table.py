"""Tables for a terminal of any width: what stays, what is cut, and what is said about it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from vgpuscope.views.table import TableColumn, table
from vgpuscope.views.text import fit_label, name_lines, text_lines

COLUMNS = (
    TableColumn(("POD", "POD"), form="name", least=20),
    TableColumn(("GPUS", "GPU"), right=True, hide=2),
    TableColumn(("NODE", "节点"), hide=1),
    TableColumn(("REASON", "原因"), form="text", least=20),
)
POD = "ml-platform/llama-finetune-7d9f8b6c5-x2k4p"
ROW = (POD, "2", "gpu-node-eu-1a", "2 nodes have too little memory")


def drawn(*rows, width, language="en", columns=COLUMNS):
    cells = [[Text(cell) for cell in row] for row in rows]
    console = Console(width=width or 1000, no_color=True, highlight=False)
    with console.capture() as captured:
        console.print(table(columns, cells, width, language))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_with_room_for_all_nothing_is_hidden_and_nothing_is_said_about_it():
    lines = drawn(ROW, width=None)
    assert re.split("  +", lines[1]) == list(ROW)
    assert len(lines) == 2
    assert drawn(ROW, width=cell_len(lines[1])) == lines


def test_long_texts_get_narrower_before_a_column_is_hidden():
    lines = drawn(ROW, width=90)
    assert lines[0].split() == ["POD", "GPUS", "NODE", "REASON"]
    assert "--wide" not in "".join(lines)


def test_columns_are_hidden_in_the_order_that_they_declare():
    assert drawn(ROW, width=60)[0].split() == ["POD", "GPUS", "REASON"]
    assert drawn(ROW, width=60)[-1] == "1 column hidden (NODE); --wide shows all"
    assert drawn(ROW, width=45)[0].split() == ["POD", "REASON"]
    assert drawn(ROW, width=45, language="zh")[-1] == "隐藏了 2 列（GPU、节点）；--wide 显示全部"


def test_a_name_is_broken_behind_a_slash_so_that_each_part_can_be_copied():
    assert drawn(ROW, width=60)[1:3] == [
        "ml-platform/                         2  2 nodes have too",
        "  llama-finetune-7d9f8b6c5-x2k4p        little memory",
    ]


def test_a_part_that_is_longer_than_a_line_loses_its_middle_and_the_table_says_so():
    lines = drawn(ROW, width=44)
    assert lines[1].startswith("ml-platform/")
    assert re.match(r"  llama-\S*…\S*-x2k4p  ", lines[2])
    assert "2 columns hidden, names shortened; --wide shows all" in " ".join(lines)  # no room for the titles


@given(st.text("ab-./ x中，", min_size=1, max_size=60), st.integers(8, 40))
def test_no_line_of_a_name_is_wider_than_asked_and_none_is_broken_at_a_hyphen(name, room):
    lines = name_lines(Text(name), room).plain.split("\n")
    assert all(cell_len(line.rstrip()) <= room for line in lines[1:] or [name.rstrip()[:1]])
    for before in lines[:-1]:
        assert not before.endswith("-") or f"{before.strip()} " in f"{name} " or "…" in before


@given(st.text("ab 中文，。（", max_size=80), st.integers(4, 40))
def test_a_sentence_in_lines_loses_nothing_but_blanks(sentence, room):
    lines = text_lines(Text(sentence), room).plain
    assert re.sub(r"\s", "", lines) == re.sub(r"\s", "", sentence)
    if cell_len(sentence) > room:
        assert all(cell_len(line) <= room for line in lines.split("\n"))


def test_no_line_of_chinese_begins_with_a_mark_that_ends_a_phrase():
    lines = text_lines(Text("2 个节点的显存不足，另有 2 个原因。"), 18).plain.split("\n")
    assert lines == ["2 个节点的显存不", "足，另有 2 个原", "因。"]


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (60, "ml-platform/llama-finetune-7d9f8b6c5-x2k4p/train"),
        (42, "…/llama-finetune-7d9f8b6c5-x2k4p/train"),
        (20, "…d9f8b6c5-x2k4p/train"[-20:]),
    ],
)
def test_in_one_line_the_end_of_the_pods_name_stays(width, shown):
    """The end tells the pods of a Deployment apart."""
    label = fit_label(f"{POD}/train", width)
    assert cell_len(label) == width
    assert label.rstrip() == shown if width != 20 else label.endswith("-x2k4p/train")


@given(st.lists(st.tuples(*[st.text("ab/-中 ", max_size=30)] * 4), min_size=1, max_size=4), st.integers(60, 120))
def test_no_line_is_wider_than_the_terminal(rows, width):
    assert all(cell_len(line) <= width for line in drawn(*rows, width=width))
