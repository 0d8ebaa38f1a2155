"""Outputs in the tutorial and on the demo's page are what a running demo prints, but for numbers and ids."""

import pytest

from tests.ports import free_port
from tests.sim.demorun import END, Running, eventually, page
from tools import doc_outputs
from tools.doc_outputs import PAGES, Block, blocks, normal, shown

BLOCKS = [block for path in PAGES for block in blocks(path)]


@pytest.fixture(scope="module")
def run():
    running = Running("--port", str(free_port()))
    try:
        printed = running.until(END)
        eventually(lambda: "idle-held" in page(f"{running.analyzer}/results"), 300)
        yield doc_outputs.runner(printed)
    finally:
        running.stop()


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.page}: {block.command}")
def test_an_output_of_the_documentation_is_what_the_demo_prints(run, block: Block):
    printed = shown(run(block.command), block.only)
    assert normal(block.text) == normal(printed), f"python -m tools.doc_outputs writes the page anew:\n{printed}"


def test_every_page_has_outputs_and_the_tutorials_have_the_same():
    commands = {path.name: [block.command for block in blocks(path)] for path in PAGES}
    assert min(map(len, commands.values())) >= 1
    assert commands["tutorial.md"] == commands["tutorial.zh-CN.md"]
    assert len(commands["tutorial.md"]) >= 5


def test_a_renamed_column_is_seen_and_a_number_is_not():
    before = "NODE     SCORE  IDLE\nwhole-b    6.1   9 h  GPU-4d8a821e…  ━━─ 12%\n"
    assert normal(before) == normal("NODE  SCORE  IDLE\nwhole-b  17.6  9 h 5 min  GPU-88209f18…  ━━━━ 7%\n")
    assert normal(before) != normal(before.replace("SCORE", "POINTS"))
    assert normal(before) != normal(before.replace("whole-b", "mig-c"))


def test_whether_a_use_is_known_at_the_moment_is_not_seen_and_idle_is():
    """A busy machine misses samples, and in use becomes unknown; proven idleness stays."""
    assert normal("3%  in use   batch\n") == normal("3%  unknown  batch\n") == normal("3%  in_use  batch\n")
    assert normal("3%  in use   batch\n") != normal("3%  idle     batch\n")
