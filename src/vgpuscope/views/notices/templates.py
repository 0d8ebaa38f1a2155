"""Texts of notices by templates: Jinja's sandbox, and of its language only what cannot run for long.

A template is the text of one notice. It can print fields and choose by them. Loops, calls, attributes, assignments and
arithmetic that makes text longer are refused when the settings are read, so the length of a text is bounded by the
length of its template. Fields that do not exist are refused then, too.
"""

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # jinja2 is installed by the extra `notify`
    from jinja2 import Template
    from jinja2.nodes import Node
    from jinja2.sandbox import ImmutableSandboxedEnvironment

LONGEST = 4000  # characters of a template
FILTERS = ("default", "lower", "title", "trim", "upper")
TESTS = ("defined", "none")
_ALLOWED = frozenset(
    {
        *("Template", "Output", "TemplateData", "Name", "Const", "If", "CondExpr", "Compare", "Operand"),
        *("And", "Or", "Not", "Add", "Sub", "Concat", "Filter", "Test"),
    }
)
_REFUSED = {
    "For": "a loop",
    "Call": "a call",
    "Getattr": "an attribute",
    "Getitem": "an index",
    "Assign": "an assignment",
    "AssignBlock": "an assignment",
    "Macro": "a macro",
    "Include": "an include",
    "Mul": "a product",
    "Pow": "a power",
}


class TemplateRefused(ValueError):
    """A template that is not used; the text says why."""


def check(source: str, fields: frozenset[str]) -> None:
    """TemplateRefused unless the template is short, and made of known fields and choices only."""
    from jinja2 import TemplateError  # noqa: PLC0415 - an optional extra

    if len(source) > LONGEST:
        raise TemplateRefused(f"longer than {LONGEST} characters")
    try:
        tree = _sandbox().parse(source)
    except (TemplateError, RecursionError) as e:
        raise TemplateRefused(f"not a template: {e}") from e
    for node in _all(tree):
        _check_node(node, fields)


def rendered(source: str, values: dict[str, Any]) -> str:
    """The text of a template that was checked."""
    return _compiled(source).render(values)


def _all(tree: "Node") -> "list[Node]":
    found = [tree]
    for node in found:  # grows while it is read
        found += node.iter_child_nodes()
    return found


def _check_node(node: "Node", fields: frozenset[str]) -> None:
    kind = type(node).__name__
    line = f"line {node.lineno}: " if node.lineno else ""
    if kind not in _ALLOWED:
        raise TemplateRefused(f"{line}{_REFUSED.get(kind, kind)} is not allowed in a template")
    known = {"Name": ("field", tuple(sorted(fields))), "Filter": ("filter", FILTERS), "Test": ("test", TESTS)}.get(kind)
    name = getattr(node, "name", "")
    if known is not None and name not in known[1]:
        raise TemplateRefused(f"{line}there is no {known[0]} {name!r}; allowed: {', '.join(known[1])}")


@cache
def _sandbox() -> "ImmutableSandboxedEnvironment":
    from jinja2 import StrictUndefined  # noqa: PLC0415 - an optional extra
    from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415

    made = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False, cache_size=0
    )
    made.globals.clear()
    return made


@lru_cache(maxsize=256)
def _compiled(source: str) -> "Template":
    return _sandbox().from_string(source)
