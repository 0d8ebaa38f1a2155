"""What users read is in plain words: no private ones, and a GPU is called a GPU. A class has a name of its own."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.paths import REPOSITORY

SOURCE = REPOSITORY / "src" / "vgpuscope"
PAGES = (
    *sorted(REPOSITORY.glob("README*.md")),
    REPOSITORY / "CONTRIBUTING.md",
    REPOSITORY / "SECURITY.md",
    *sorted((REPOSITORY / "docs").rglob("*.md")),
)

# Each of these once stood in a text that had to be read twice. docs/glossary.md has the words to use instead.
PRIVATE_WORDS = (
    r"(?:is|are) none of th[oe]se",
    r"(?:is|are|was|were) told of",
    r"told on\b",
    r"that is no good",
    r"given away",
    r"haunt(?:s|ed)?\b",
    r"hearsay",
    r"(?:nobody|somebody|whoever|anybody)(?:'s)?\b",
    r"\banew\b",
    r"changed hands",
    r"in \S+ hands",
    r"weighs? (?:more|less)",
    r"counts? at once",
    r"by (?:itself|themselves)\b",
    r"come again",
    r"\bcards?\b",  # say GPU
)
# Where one of these words is another program's: patterns that read schedulers' messages.
FOREIGN = {SOURCE / "formats" / "scheduler_messages" / "phrases.py"}
MODULES = sorted(set(SOURCE.rglob("*.py")) - FOREIGN)
_PRIVATE = re.compile("|".join(f"(?:{word})" for word in PRIVATE_WORDS), re.I)
_CODE = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)]*\)|<!-- bench \w+: begin.*?: end -->", re.S)  # and measured tables


def private(text: str) -> list[str]:
    """The private words of a text, without what is code in it."""
    return [found.group() for found in _PRIVATE.finditer(_CODE.sub(" ", text))]


def strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The string constants of a module with spaces in them, which is what sentences have; without docstrings."""
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docs)
    for node in constants:
        if isinstance(node.value, str) and " " in node.value.strip():
            yield node.lineno, node.value


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_a_page_of_the_documentation_has_no_private_word(page: Path) -> None:
    assert private(page.read_text()) == []


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(SOURCE)))
def test_a_message_or_help_text_has_no_private_word(module: Path) -> None:
    found = [(line, private(text)) for line, text in strings(ast.parse(module.read_text()))]
    assert [(line, words) for line, words in found if words] == []


def test_a_line_of_make_help_has_no_private_word() -> None:
    shown = re.findall(r"^[a-z-]+:.*## (.*)", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    assert shown
    assert [line for line in shown if private(line)] == []


def test_a_text_of_the_console_has_no_private_word() -> None:
    found = re.findall(r'"(?:[^"\\\n]|\\.)*"', (REPOSITORY / "web" / "src" / "words" / "en.ts").read_text())
    texts = [text for text in found if " " in text]  # the others are keys
    assert texts
    assert [text for text in texts if private(text)] == []


# The simulator must not share code with what it simulates, so it has classes of its own for the same things.
_OTHER_NAMES = (SOURCE / "sim", SOURCE / "sources" / "plugin" / "v1beta1")
CLASSES = {
    str(module.relative_to(SOURCE)): module.read_text()
    for module in sorted(SOURCE.rglob("*.py"))
    if not any(module.is_relative_to(one) for one in _OTHER_NAMES)
}


def twice_named(sources: Mapping[str, str]) -> list[str]:
    """Public classes that have the same name in two modules, with both places."""
    places = defaultdict(list)
    for module, source in sources.items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{module}:{node.lineno}")
    return [f"{name} is defined at {' and '.join(at)}" for name, at in sorted(places.items()) if len(at) > 1]


def test_a_public_class_name_means_one_thing() -> None:
    assert twice_named(CLASSES) == []


def test_a_class_name_in_two_modules_is_reported_with_both_places() -> None:
    lease = "class Lease:\n    pass\n"
    both = {"store/lease.py": lease, "services/extender/leadership.py": f"import time\n{lease}"}
    assert twice_named(both) == ["Lease is defined at store/lease.py:1 and services/extender/leadership.py:2"]
    assert twice_named({"a.py": lease, "b.py": lease.replace("Lease", "_Lease")}) == []
