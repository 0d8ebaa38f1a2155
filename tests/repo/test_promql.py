"""PromQL is written in a few modules of logic, which docs/internals.md names; all others pass expressions on."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.paths import REPOSITORY

PACKAGE = REPOSITORY / "src/vgpuscope"
WRITERS = {
    "logic/console/agent_queries.py",
    "logic/console/details.py",
    "logic/console/series_queries.py",
    "logic/doctor/queries.py",
    "logic/fleet/queries.py",
    "logic/fleet/requests.py",
    "logic/fleet/series_table.py",
    "logic/reclaim/activity_queries.py",
}
SHOWN = {"views/doctor/words.py"}  # an expression in an advice: it is read by people, and never sent
# functions and clauses that SQL and English do not have; rate() alone is how texts call the function
PROMQL = re.compile(
    r"\w_over_time\b|\b(?:by|without|on|ignoring) \(|\boffset [\d{]|"
    r"\b(?:rate|increase|changes|timestamp|vector|topk|count_values|label_replace|histogram_quantile)\((?!\))"
)


def expressions(source: str) -> Iterator[str]:
    """String literals of a module that have PromQL in them; a docstring is not sent to an engine."""
    tree = ast.parse(source)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    spoken = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in spoken:
            yield from PROMQL.findall(node.value)
        elif isinstance(node, ast.JoinedStr) and re.search(r"\}\[\{|\} offset \{", ast.unparse(node)):
            yield ast.unparse(node)


def selecting(source: str) -> bool:
    """Whether a module makes selectors or ranges."""
    makers = {"Matcher", "one_of", "selector", "window"}
    calls = [node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    imported = re.search(r"prom\.promql import (?:\(([^)]*)\)|(.*))", source)
    named = set(re.findall(r"\w+", " ".join(filter(None, imported.groups())))) if imported else set()
    return any(
        (isinstance(call, ast.Name) and call.id in makers & named)
        or (isinstance(call, ast.Attribute) and ast.unparse(call.value) == "promql" and call.attr in makers)
        for call in calls
    )


MODULES = {path.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob("*.py")}


def test_only_queries_in_logic_are_written_in_promql():
    found = {name: list(expressions(path.read_text())) for name, path in MODULES.items() if name not in WRITERS | SHOWN}
    assert {name: texts for name, texts in found.items() if texts} == {}


def test_only_queries_in_logic_select_series():
    found = {name for name, path in MODULES.items() if selecting(path.read_text())}
    assert found
    assert found <= WRITERS


def test_the_documentation_names_every_module_that_writes_promql():
    text = (REPOSITORY / "docs/internals.md").read_text()
    (paragraph,) = [part for part in text.split("\n\n") if part.startswith("PromQL is written only in `logic/`")]
    assert {f"logic/{name}" for name in re.findall(r"`([a-z_]+/[a-z_]+\.py)`", paragraph)} == WRITERS


@pytest.mark.parametrize(
    "source",
    [
        'query = f"avg_over_time({series}[{window}])"',
        'query = "count by (job) (up)"',
        'query = f"{series}[{window}]"',
        'query = f"changes({series})"',
        'query = f"{series} offset {window}"',
    ],
)
def test_an_expression_elsewhere_is_found(source):
    assert list(expressions(source))


@pytest.mark.parametrize(
    "source", ['help = "its rate() is the mean"', '"""Uses avg_over_time(x[1m])."""', 'sql = "SELECT count(*) FROM t"']
)
def test_texts_and_sql_are_no_expressions(source):
    assert not list(expressions(source))
