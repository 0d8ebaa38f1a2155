"""Every item of the four documents has a test that runs, or a line in docs/migration.md that says why it differs.

items.tsv is typed from the documents, one item in a row: the document, the place in it, the item, and its check. A
check is a test (FILE::FUNCTION), or `migration: ROW`, by the first cell of the row in docs/migration.md. `hami-metrics`
is HAMi's document on Prometheus metrics, `hami-handbook` the chapter on monitoring of its handbook, `k8s-vgpu-monitor`
and `gpu-oour` are the readmes of these projects.
"""

import ast
import csv
import re
from collections import Counter
from functools import cache
from typing import NamedTuple

import pytest

from tests.paths import REPOSITORY, TESTS

MIGRATION = "migration: "
DOCUMENTS = ("hami-metrics", "hami-handbook", "k8s-vgpu-monitor", "gpu-oour")


class Item(NamedTuple):
    """One item of a document."""

    document: str
    place: str
    name: str
    check: str


with (TESTS / "seeds" / "items.tsv").open(newline="") as file:
    _HEAD, *_ROWS = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
ITEMS = [Item(*row) for row in _ROWS]


@cache
def functions(file: str) -> frozenset[str]:
    """The tests of a file."""
    tree = ast.parse((REPOSITORY / file).read_text())
    defined = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in defined if node.name.startswith("test_"))


def first_cells(page: str) -> list[str]:
    """The first cells of all rows of its tables, without heads."""
    lines = (REPOSITORY / "docs" / page).read_text().splitlines()
    rows = [line for line, after in zip(lines, [*lines[1:], ""], strict=True) if not after.startswith("|---")]
    return [match[1] for row in rows if (match := re.match(r"\| (.*?) \|", row)) and not row.startswith("|---")]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_item_has_a_test_or_a_line_that_says_how_it_differs(document):
    differences = set(first_cells("migration.md"))

    def checked(check: str) -> bool:
        if check.startswith(MIGRATION):
            return check.removeprefix(MIGRATION) in differences
        file, _, name = check.partition("::")
        return (REPOSITORY / file).exists() and name in functions(file)

    items = [item for item in ITEMS if item.document == document]
    assert items
    assert [item for item in items if not checked(item.check)] == []


def test_an_item_is_in_the_table_once():
    assert [item for item, times in Counter(item[:3] for item in ITEMS).items() if times > 1] == []
    assert {item.document for item in ITEMS} == set(DOCUMENTS)


def test_every_test_of_the_documents_sessions_is_named_by_an_item():
    """A session that no item names would be a test of something that no document says."""
    named = {item.check for item in ITEMS}
    files = sorted((TESTS / "seeds").glob("test_*.py"))
    for path in (f"tests/seeds/{file.name}" for file in files if file.name != "test_items.py"):
        assert [name for name in sorted(functions(path)) if f"{path}::{name}" not in named] == []


@pytest.mark.parametrize(("page", "head"), [("migration.md", "why"), ("migration.zh-CN.md", "原因")])
def test_every_difference_to_a_document_has_its_reason(page, head):
    sections = re.split(r"^## ", (REPOSITORY / "docs" / page).read_text(), flags=re.MULTILINE)
    names = ("HAMi's exporters", "HAMi 的 exporter", "the HAMi handbook", "HAMi 手册", "gpu-oour", "k8s-vgpu-monitor")
    tables = [text for text in sections if any(name in text.partition("\n")[0] for name in names)]
    assert len(tables) == 4
    for text in tables:
        rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("|")]
        assert rows[0][-1].strip() == head
        assert [row for row in rows if len(row) != len(rows[0]) or not row[-1].strip()] == []


def test_both_languages_list_the_same_number_of_differences():
    assert len(first_cells("migration.md")) == len(first_cells("migration.zh-CN.md"))
