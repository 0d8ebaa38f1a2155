"""Texts of notices by templates: Jinja's sandbox, and of its language only what cannot run for long.

A template is the text of one notice. It can print fields and choose by them. Loops, calls, attributes, assignments and
arithmetic that makes text longer are refused when the settings are read, so the length of a text is bounded by the
length of its template. Fields that do not exist are refused then, too.
"""

from functools import lru_cache

from jinja2 import StrictUndefined, Template, TemplateError, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

LONGEST = 4000  # characters of a template
_FILTERS = frozenset({"default", "lower", "title", "trim", "upper"})
_TESTS = frozenset({"defined", "none"})
_ALLOWED: tuple[type[nodes.Node], ...] = (
    nodes.Template,
    nodes.Output,
    nodes.TemplateData,
    nodes.Name,
    nodes.Const,
    nodes.If,
    nodes.CondExpr,
    nodes.Compare,
    nodes.Operand,
    nodes.And,
    nodes.Or,
    nodes.Not,
    nodes.Add,
    nodes.Sub,
    nodes.Concat,
    nodes.Filter,
    nodes.Test,
)
_REFUSED: dict[type[nodes.Node], str] = {
    nodes.For: "a loop",
    nodes.Call: "a call",
    nodes.Getattr: "an attribute",
    nodes.Getitem: "an index",
    nodes.Assign: "an assignment",
    nodes.AssignBlock: "an assignment",
    nodes.Macro: "a macro",
    nodes.Include: "an include",
    nodes.Mul: "a product",
    nodes.Pow: "a power",
}

_sandbox = ImmutableSandboxedEnvironment(
    undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False, cache_size=0
)
_sandbox.globals.clear()


class TemplateRefused(ValueError):
    """A template that is not used; the text says why."""


def check(source: str, fields: frozenset[str]) -> None:
    """TemplateRefused unless the template is short, and made of known fields and choices only."""
    if len(source) > LONGEST:
        raise TemplateRefused(f"longer than {LONGEST} characters")
    try:
        tree = _sandbox.parse(source)
    except (TemplateError, RecursionError) as e:
        raise TemplateRefused(f"not a template: {e}") from e
    for node in _all(tree):
        _check_node(node, fields)


def rendered(source: str, values: dict[str, object]) -> str:
    """The text of a template that was checked."""
    return _compiled(source).render(values)


def _all(tree: nodes.Node) -> list[nodes.Node]:
    found = [tree]
    for node in found:  # grows while it is read
        found += node.iter_child_nodes()
    return found


def _check_node(node: nodes.Node, fields: frozenset[str]) -> None:
    line = f"line {node.lineno}: " if node.lineno else ""
    if not isinstance(node, _ALLOWED):
        raise TemplateRefused(f"{line}{_REFUSED.get(type(node), type(node).__name__)} is not allowed in a template")
    if isinstance(node, nodes.Name) and node.name not in fields:
        raise TemplateRefused(f"{line}no field {node.name!r}; fields: {', '.join(sorted(fields))}")
    if isinstance(node, nodes.Filter) and node.name not in _FILTERS:
        raise TemplateRefused(f"{line}the filter {node.name!r} is not allowed; filters: {', '.join(sorted(_FILTERS))}")
    if isinstance(node, nodes.Test) and node.name not in _TESTS:
        raise TemplateRefused(f"{line}the test {node.name!r} is not allowed; tests: {', '.join(sorted(_TESTS))}")


@lru_cache(maxsize=256)
def _compiled(source: str) -> Template:
    return _sandbox.from_string(source)
