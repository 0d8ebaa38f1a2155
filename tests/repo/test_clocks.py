"""Time is an argument: code is given its clocks, and tests pass a clock instead of patching one."""

import ast
import re
from collections.abc import Iterator
from typing import TypeGuard

import pytest

from tests.paths import REPOSITORY

SOURCE = REPOSITORY / "src" / "vgpuscope"
CLOCKS = {
    "time": {"time", "time_ns", "monotonic", "monotonic_ns"},
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
}
WITHOUT_CLOCKS = ("logic", "views", "model", "formats", "catalog", "knowledge")  # they get times, not clocks
GIVEN_CLOCKS = (
    "services",
    "sources",
    "sinks",
    "http",
    "runtime",
)  # the machine's clock is only the default of an argument or a field
# What the law would find, by file, with the reason why it stays.
SET_CLOCKS = {
    "tests/loopclock.py": "the clock of an event loop: asyncio takes it from the loop and from nowhere else",
    "tests/services/cluster/test_bad_input.py": "a process of its own, on a machine whose clock is set again and again",
}


def is_clock(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """Whether this is time.time, datetime.now or another of CLOCKS, also as datetime.datetime.now."""
    return isinstance(node, ast.Attribute) and node.attr in CLOCKS.get(_name(node.value), ())


def _name(node: ast.AST) -> str:
    """The last part of a dotted name."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def clocks_read(tree: ast.AST, *, defaults: bool) -> list[int]:
    """The lines that name a clock of the machine; with `defaults`, defaults of arguments and fields are allowed."""
    allowed = {id(node) for node in _defaults(tree)} if defaults else set()
    named = [node.lineno for node in ast.walk(tree) if is_clock(node) and id(node) not in allowed]
    brought = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and node.module == "time"
        and {one.name for one in node.names} & CLOCKS["time"]
    ]
    return sorted(named + brought)


def _defaults(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.arguments):
            yield from node.defaults
            yield from filter(None, node.kw_defaults)
        elif isinstance(node, ast.ClassDef):
            yield from (one.value for one in node.body if isinstance(one, ast.AnnAssign) and one.value is not None)


def clocks_replaced(tree: ast.AST) -> list[int]:
    """The lines that patch a clock, or the module `time` of another module; also in the text of a program."""
    return sorted({node.lineno for node in ast.walk(tree) if isinstance(node, ast.expr | ast.stmt) and _replaces(node)})


def _replaces(node: ast.AST) -> bool:
    if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
        return any(map(_is_replaced, node.targets if isinstance(node, ast.Assign) else [node.target]))
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return bool(re.search(r"(?m)^\s*time\.(time|monotonic)(_ns)?\s*=[^=]", node.value))
    if not isinstance(node, ast.Call) or _name(node.func) not in {"setattr", "patch", "object"}:
        return False
    given = [*node.args, *(one.value for one in node.keywords)]
    texts = [one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    if any(re.search(r"(^|\.)time(\.(time|monotonic)(_ns)?)?$", text) for text in texts):
        return True
    return bool(given) and bool(CLOCKS.get(_name(given[0]), set()).intersection(texts))


def _is_replaced(target: ast.expr) -> bool:
    """Whether this is time.time, module.time, vars(module)["time"] or the like."""
    if isinstance(target, ast.Subscript):
        key, owner = target.slice, target.value
        of_module = (isinstance(owner, ast.Call) and _name(owner.func) == "vars") or _name(owner) == "__dict__"
        return of_module and isinstance(key, ast.Constant) and key.value in {"time", *CLOCKS["time"]}
    return is_clock(target) or (_name(target) == "time" and isinstance(target, ast.Attribute))


def found(folder: str, **how: bool) -> dict[str, list[int]]:
    files = sorted((SOURCE / folder).rglob("*.py"))
    assert files, folder
    read = {str(path.relative_to(SOURCE)): clocks_read(ast.parse(path.read_text()), **how) for path in files}
    return {path: lines for path, lines in read.items() if lines}


@pytest.mark.parametrize("folder", WITHOUT_CLOCKS)
def test_what_computes_or_shows_knows_no_clock(folder):
    assert found(folder, defaults=False) == {}


@pytest.mark.parametrize("folder", GIVEN_CLOCKS)
def test_a_clock_of_the_machine_is_only_the_default_of_an_argument(folder):
    """Durations for a metric or a log line are measured with time.perf_counter(), by which nothing is decided."""
    assert found(folder, defaults=True) == {}


def test_no_test_patches_a_clock():
    files = sorted((REPOSITORY / "tests").rglob("*.py"))
    read = {str(path.relative_to(REPOSITORY)): clocks_replaced(ast.parse(path.read_text())) for path in files}
    own = "tests/repo/test_clocks.py"  # it has examples
    assert {path for path, lines in read.items() if lines} - {own} == set(SET_CLOCKS)


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("import time\ndef f():\n    return time.time()", [3]),
        ("import time\nheard(clock=time.monotonic)", [2]),
        ("from time import monotonic", [1]),
        ("import datetime\nnow = datetime.datetime.now(datetime.UTC)", [2]),
        ("def f(*, clock=time.monotonic, wall=time.time): ...", []),
        ("def f(at=time.time()): ...", [1]),
        ("class Given:\n    clock: Clock = time.time", []),
        ("began = time.perf_counter()", []),
    ],
)
def test_a_clock_that_code_reads_itself_is_found(code, lines):
    assert clocks_read(ast.parse(code), defaults=True) == lines


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ('monkeypatch.setattr(time, "monotonic", later)', [1]),
        ('monkeypatch.setattr("vgpuscope.http.guard.time.time", later)', [1]),
        ('monkeypatch.setattr(module, "time", later)', [1]),
        ('mock.patch.object(module.time, "time_ns", later)', [1]),
        ("with patch('time.time'): ...", [1]),
        ("time.time = later", [1]),
        ("module.time = later", [1]),
        ('vars(module)["time"] = later', [1]),
        ('module.__dict__["time"] = later', [1]),
        ('PROGRAM = """\ntime.time = later\n"""', [1]),
        ('monkeypatch.setattr(module, "sleep", later)', []),
        ("Leadership(clock=lambda: now)", []),
    ],
)
def test_a_clock_that_a_test_patches_is_found(code, lines):
    assert clocks_replaced(ast.parse(code)) == lines
