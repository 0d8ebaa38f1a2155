"""Limits and pauses are arguments: a test passes a short one, and patches no constant of the program.

A constant that a test patches can be renamed, or bound earlier than the test thinks, and the test goes on without it.
"""

import ast
import re
import textwrap
from collections.abc import Iterator, Mapping

import pytest

from tests.paths import REPOSITORY

SOURCE = REPOSITORY / "src" / "vgpuscope"
FOLDERS = ("services", "sources", "sinks", "http", "runtime")
UPPER = re.compile(r"_?[A-Z][A-Z0-9_]*")
IN_TIME = re.compile(r"\b(milli)?seconds?\b|\bms\b")
# Patches that stay, as (file, constant), with the reason.
EXCEPTIONS: Mapping[tuple[str, str], str] = {}


def times_in(text: str) -> frozenset[str]:
    """The constants of a module or of its classes that are a time: by their type, or by the comment beside them."""
    lines, found = text.splitlines(), set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            typed = isinstance(node, ast.AnnAssign) and "Seconds" in ast.unparse(node.annotation)
            comment = lines[(node.end_lineno or node.lineno) - 1][node.end_col_offset or 0 :]
            names = {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
            if typed or ("#" in comment and IN_TIME.search(comment)):
                found |= {name for name in names if UPPER.fullmatch(name) or name.endswith("_MS")}
    return frozenset(found)


def all_times() -> dict[str, frozenset[str]]:
    """The times of each module, by its dotted name."""
    found = {}
    for path in (path for folder in FOLDERS for path in sorted((SOURCE / folder).rglob("*.py"))):
        name = ".".join(("vgpuscope", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        found[name] = times_in(path.read_text())
    return found


def patched(tree: ast.AST, times: Mapping[str, frozenset[str]]) -> list[tuple[int, str]]:
    """Line and name of each time that code replaces, also in the text of a program; defaults of arguments count too."""
    imported, found = _imports(tree), list[tuple[int, str]]()
    for node in ast.walk(tree):
        for owner, name in _replaced(node, imported):
            if _is_default(owner, name) or _is_time(owner, name, times):
                found.append((node.lineno, name))  # type: ignore[attr-defined]
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "vgpuscope" in node.value:
            found += [(node.lineno, name) for _, name in patched(_program(node.value), times)]
    return sorted(set(found))


def _program(text: str) -> ast.AST:
    try:
        return ast.parse(textwrap.dedent(text))
    except SyntaxError:
        return ast.Module(body=[], type_ignores=[])


def _imports(tree: ast.AST) -> dict[str, str]:
    """The dotted name of what each imported name stands for."""
    found = dict[str, str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
        elif isinstance(node, ast.Import):
            found |= {one.asname: one.name for one in node.names if one.asname}
    return found


def _replaced(node: ast.AST, imported: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The owner (as a dotted name; "": not known) and the name of each attribute that a node replaces."""
    if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            place = target.value if isinstance(target, ast.Subscript) else target
            if isinstance(place, ast.Attribute):
                yield _dotted(place.value, imported), place.attr
    elif isinstance(node, ast.Call) and _last(node.func) in {"setattr", "patch", "object"} and node.args:
        first, *more = node.args
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            owner, _, name = first.value.rpartition(".")
            yield owner, name
        elif more and isinstance(more[0], ast.Constant) and isinstance(more[0].value, str):
            yield _dotted(first, imported), more[0].value


def _last(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _dotted(node: ast.AST, imported: Mapping[str, str]) -> str:
    if isinstance(node, ast.Name):
        return imported.get(node.id, "")
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value, imported)
        return f"{owner}.{node.attr}" if owner else ast.unparse(node) if _root(node) == "vgpuscope" else ""
    return ""


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_default(owner: str, name: str) -> bool:
    """Whether these are the defaults of a function that is ours, or whose owner is not known."""
    return name in {"__kwdefaults__", "__defaults__"} and (not owner or owner.startswith("vgpuscope."))


def _is_time(owner: str, name: str, times: Mapping[str, frozenset[str]]) -> bool:
    """Whether the owner has such a time; an owner that is not known could be any module."""
    if not UPPER.fullmatch(name):
        return False
    if not owner:
        return any(name in some for some in times.values())
    return any(name in some for module, some in times.items() if owner == module or owner.startswith(f"{module}."))


def test_no_test_patches_a_limit_or_a_pause():
    times, own = all_times(), "tests/repo/test_times.py"  # it has examples
    files = sorted((REPOSITORY / "tests").rglob("*.py"))
    found = {
        (str(path.relative_to(REPOSITORY)), name)
        for path in files
        for _, name in patched(ast.parse(path.read_text()), times)
    }
    assert {one for one in found if one[0] != own} == set(EXCEPTIONS)


def test_the_times_of_the_program_are_found():
    found = all_times()
    assert {"GRACE", "DRAIN"} <= found["vgpuscope.runtime.lifecycle"]
    assert "_AGAIN" in found["vgpuscope.services.extender.pod_role"]
    assert "_KEPT_FOR" in found["vgpuscope.sources.http_stream"]
    assert "_MOST" not in found["vgpuscope.sources.http_stream"]  # bytes


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("_AGAIN: Seconds = 2.0", {"_AGAIN"}),
        ("_PAUSE = (0.02, 0.12)  # seconds before each further read", {"_PAUSE"}),
        ("_LISTEN_MS = 1000  # ms that a listener needs", {"_LISTEN_MS"}),
        ("class A:\n    LONGEST: Seconds = 2.0", {"LONGEST"}),
        ("_RETRY: tuple[Seconds, Seconds] = (1.0, 30.0)", {"_RETRY"}),
        ("_MOST = 4  # connections", set()),
        ("began = 2.0  # seconds", set()),
    ],
)
def test_a_constant_that_is_a_time_is_known_by_its_type_or_its_comment(text, names):
    assert times_in(text) == names


TIMES = {"vgpuscope.runtime.life": frozenset({"GRACE"}), "vgpuscope.sources.kube": frozenset({"_SHORTEST", "_KEPT"})}


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ('from vgpuscope.sources import kube\nmonkeypatch.setattr(kube, "_SHORTEST", 0.01)', [2]),
        ('monkeypatch.setattr("vgpuscope.sources.kube._SHORTEST", 0.01)', [1]),
        ('from vgpuscope.runtime import life as own\nwith mock.patch.object(own, "GRACE", 0.0): ...', [2]),
        ("import vgpuscope.runtime.life\nvgpuscope.runtime.life.GRACE = 0.0", [2]),
        ("from vgpuscope.runtime import life\nlife.GRACE = 0.0", [2]),
        ("from vgpuscope.runtime.life import Life\nLife.GRACE = 0.0", [2]),
        ('from vgpuscope.runtime.life import Life\nLife.__init__.__kwdefaults__["grace"] = 3600', [2]),
        ('PROGRAM = """\n    from vgpuscope.runtime import life\n    life.GRACE = 3600\n"""', [1]),
        ('monkeypatch.setattr(module, "_SHORTEST", 0.01)', [1]),
        ('monkeypatch.setattr("lightkube.Config.read.__defaults__", (3,))', []),
        ('from vgpuscope.sources import http\nmonkeypatch.setattr(http, "_KEPT", 2)', []),
        ('from vgpuscope.sources import kube\nmonkeypatch.setattr(kube, "_PAGE", 2)', []),
        ("from vgpuscope.sources.kube import Watch\nWatch(shortest=0.01)", []),
    ],
)
def test_a_time_that_a_test_patches_is_found(code, lines):
    assert [line for line, _ in patched(ast.parse(code), TIMES)] == lines
