"""Every number that is shown has one definition, and every definition belongs to numbers that exist."""

import ast
import re
from collections import Counter
from typing import Any, get_args

import msgspec
import pytest
from msgspec import inspect as types

from tests.paths import REPOSITORY
from tools.writers.operations import service_operations
from vgpuscope.catalog import agent, analyzer, cluster, extender, plugin
from vgpuscope.catalog.figure import Condition, Population, Subject, TimeBasis
from vgpuscope.catalog.figures import BY_CODE, FIGURES, NOT_FIGURES, STATES, figure_of_metric, figures_of_field
from vgpuscope.http.openapi import document
from vgpuscope.model.console.history import QUANTITIES, SeriesColumn
from vgpuscope.views.definitions import (
    CONDITIONS,
    POPULATIONS,
    SUBJECTS,
    TIMES,
    definitions,
    field_notes,
    name_of,
    text_of,
)
from vgpuscope.views.definitions import (
    QUANTITIES as QUANTITY_NAMES,
)
from vgpuscope.views.table import TableColumn

METRICS = {metric.name: metric for part in (agent, cluster, analyzer, extender, plugin) for metric in part.METRICS}
# Shapes that several fields share: only the field that holds them says what their numbers are.
SHAPES = {"Use", "Amount", "Burst", "Split"}
KEYED = {f"{SeriesColumn.__name__}.values": QUANTITIES}  # a sibling field says which figure it is
VIEWS = REPOSITORY / "src" / "vgpuscope" / "views"
COMMANDS = {  # the module with the columns of a command's tables; a column aligned to the right is a number
    "results": "fleet/results/table.py",
    "waste": "fleet/waste_table.py",
    "nodes": "cluster/inventory.py",
    "gpus": "cluster/inventory.py",
    "pending": "cluster/pending/table.py",
    "why": "scheduler/why.py",
    "fit": "scheduler/fitting.py",
    "reclaim": "reclaim/tables.py",
    "backtest": "reclaim/backtest/table.py",
    "top": "node/top/table.py",
}
NO_FIGURE = {
    "gpus.#": "the index of a GPU",
    "fit.REPLICA": "the number of a replica",
    "backtest.CURRENT": "each line of this column is another figure",
    "backtest.PROPOSED": "each line of this column is another figure",
    "backtest.GPUS": "how many GPUs are in the list of one action",
}


def is_number(kind: Any) -> bool:
    match kind:
        case types.IntType() | types.FloatType():
            return True
        case types.UnionType():
            return any(map(is_number, kind.types))
        case types.Metadata():
            return is_number(kind.type)
        case types.ListType() | types.VarTupleType():
            return is_number(kind.item_type)
        case types.TupleType():
            return any(map(is_number, kind.item_types))
        case types.DictType():
            return is_number(kind.value_type)
    return False


def inner(kind: Any) -> list[Any]:
    """The types that a type is made of."""
    match kind:
        case types.UnionType():
            return list(kind.types)
        case types.Metadata():
            return [kind.type]
        case types.ListType() | types.VarTupleType() | types.SetType() | types.FrozenSetType():
            return [kind.item_type]
        case types.TupleType():
            return list(kind.item_types)
        case types.DictType():
            return [kind.key_type, kind.value_type]
    return []


def structs(kind: Any) -> list[Any]:
    """The structs and named tuples that a type refers to, not those within them."""
    if isinstance(kind, types.StructType | types.NamedTupleType):
        return [kind]
    return [found for part in inner(kind) for found in structs(part)]


def shown_fields() -> set[str]:
    """Struct.field of every number in an answer of any service, Struct.field.part where a shape is shared."""
    found: set[str] = set()
    seen: set[str] = set()
    answers = [
        answer
        for operations in service_operations().values()
        for operation in operations
        for answer in (operation.answer, operation.or_else)
        if answer not in {None, Any}
    ]
    waiting = [one for answer in answers for one in structs(types.type_info(answer))]
    while waiting:
        struct = waiting.pop()
        name = struct.cls.__name__
        if name in seen or name in SHAPES or name.startswith("SomeOf"):
            continue
        seen.add(name)
        for field in struct.fields:
            place = f"{name}.{getattr(field, 'encode_name', field.name)}"
            held = structs(field.type)
            found |= {place} if is_number(field.type) else set()
            found |= {
                f"{place}.{part.encode_name}"
                for shape in held
                if shape.cls.__name__ in SHAPES
                for part in shape.fields
                if is_number(part.type)
            }
            waiting += held
    return {f"{place}[{key}]" for place in found for key in KEYED.get(place, ())} | (found - KEYED.keys())


def declared_fields() -> list[str]:
    return [field for figure in FIGURES for field in figure.fields]


def excluded_fields() -> list[str]:
    return [field for fields in NOT_FIGURES.values() for field in fields.split()]


def titles(module: str) -> set[str]:
    tree = ast.parse((VIEWS / module).read_text())
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def numbers(module: str) -> set[str]:
    """The titles of the columns of numbers."""
    calls = [node for node in ast.walk(ast.parse((VIEWS / module).read_text())) if isinstance(node, ast.Call)]
    columns = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == TableColumn.__name__]
    return {
        ast.literal_eval(column.args[0])[0]
        for column in columns
        if any(given.arg == "right" and ast.literal_eval(given.value) for given in column.keywords)
    }


def test_every_number_in_an_answer_is_a_figure_or_has_a_reason_not_to_be_one():
    assert sorted(shown_fields() - {*declared_fields(), *excluded_fields()}) == []


def test_every_field_in_the_table_exists():
    assert sorted({*declared_fields(), *excluded_fields()} - shown_fields()) == []


def test_no_field_is_listed_twice():
    assert [place for place, times in Counter([*declared_fields(), *excluded_fields()]).items() if times > 1] == []


def test_an_answer_with_chosen_fields_has_the_figures_of_the_whole_row():
    assert figures_of_field("SomeOfGpuRow", "score") == figures_of_field("GpuRow", "score") != {}
    assert figures_of_field("SomeOfRow", "score") == figures_of_field("ResultRow", "score") != {}
    assert figures_of_field("SomeOfLow", "count") == figures_of_field("LowBody", "count") != {}


def test_every_metric_has_one_definition():
    named = Counter(name for figure in FIGURES for name in figure.metrics)
    assert sorted(named.keys() - METRICS.keys()) == []
    assert [name for name, times in named.items() if times > 1] == []
    values = {name for name, metric in METRICS.items() if metric.type == "gauge" and not name.endswith("_info")}
    assert sorted(values - named.keys() - STATES) == []
    assert sorted(STATES - (values - named.keys())) == []
    assert all(figure_of_metric(metric).subject for metric in METRICS.values())


def test_a_metric_and_its_figure_have_one_unit():
    # gpu-oour's and DCGM's names have their own units, and a metric in percent of a GPU is exposed as a ratio
    same = {"percent": "ratio", "cores": ""}
    wrong = {
        name
        for name, metric in METRICS.items()
        if metric.family not in {"gpu-oour", "dcgm"}
        and metric.unit != same.get(unit := figure_of_metric(metric).unit, unit)
    }
    assert wrong == set()


def test_a_counter_is_counted_since_a_start():
    wrong = [
        name
        for name, metric in METRICS.items()
        if (metric.type != "gauge") != (figure_of_metric(metric).time in {"since_start", "since_boot"})
    ]
    assert wrong == []


def test_every_code_is_unique_and_begins_with_its_subject():
    assert [code for code, times in Counter(figure.code for figure in FIGURES).items() if times > 1] == []
    for figure in FIGURES:
        assert re.fullmatch(r"[a-z_]+\.[a-z0-9_]+", figure.code)
        assert figure.subject in get_args(Subject)
        assert figure.population in get_args(Population)
        assert figure.condition in get_args(Condition)
        assert figure.time in get_args(TimeBasis)


def test_every_figure_is_shown_somewhere():
    assert [
        figure.code for figure in FIGURES if not (figure.fields or figure.metrics or figure.columns or figure.console)
    ] == []


def test_no_two_codes_define_the_same_number_without_a_reason():
    keys = Counter(
        (figure.subject, figure.population, figure.condition, figure.quantity, figure.time, figure.unit)
        for figure in FIGURES
        if not figure.why
    )
    assert [key for key, times in keys.items() if times > 1] == []


def test_every_column_of_a_command_has_one_definition():
    placed = Counter(column for figure in FIGURES for column in figure.columns)
    assert [column for column, times in placed.items() if times > 1] == []
    for column in placed:
        command, _, title = column.partition(".")
        assert title in titles(COMMANDS[command]), column
    for module in set(COMMANDS.values()):
        named = {
            column.partition(".")[2] for column in {*placed, *NO_FIGURE} if COMMANDS[column.partition(".")[0]] == module
        }
        assert numbers(module) <= named, module
    with_numbers = {command for command, module in COMMANDS.items() if numbers(module)}
    assert with_numbers == COMMANDS.keys() - {"top"}  # its columns are of another kind


@pytest.mark.parametrize("used", ["Condition", "Population", "Subject", "TimeBasis"])
def test_no_code_is_unused(used):
    attribute = {"TimeBasis": "time"}.get(used, used.lower())
    known = {"Condition": Condition, "Population": Population, "Subject": Subject, "TimeBasis": TimeBasis}[used]
    shown = {getattr(figure_of_metric(metric), attribute) for metric in METRICS.values()}
    assert sorted(set(get_args(known)) - shown - {getattr(figure, attribute) for figure in FIGURES}) == []


def test_a_table_of_figures_is_plain_data():
    assert msgspec.json.decode(msgspec.json.encode(FIGURES[0]))["code"] == FIGURES[0].code


def documents() -> dict[str, Any]:
    """The OpenAPI document of each service."""
    return {
        service: msgspec.json.decode(document(operations, title=service, description="", notes=field_notes))
        for service, operations in service_operations().items()
    }


def test_every_field_that_is_a_figure_carries_its_code_and_definition_in_openapi():
    noted: dict[str, set[str]] = {}
    for made in documents().values():
        for struct, schema in made["components"]["schemas"].items():
            for field, shown in schema.get("properties", {}).items():
                for code in [shown["x-figure"]] if "x-figure" in shown else shown.get("x-figures", {}).values():
                    noted.setdefault(f"{struct}.{field}", set()).add(code)
                    assert text_of(BY_CODE[code]).en in shown["description"], (struct, field)
    for figure in FIGURES:
        for place in figure.fields:
            struct, field = re.split(r"[.\[]", place)[:2]
            assert figure.code in noted[f"{struct}.{field}"], place


def test_every_code_has_words_in_both_languages_and_no_words_are_unused():
    assert set(get_args(Subject)) == SUBJECTS.keys()
    assert set(get_args(Population)) == POPULATIONS.keys()
    assert set(get_args(Condition)) == CONDITIONS.keys()
    assert set(get_args(TimeBasis)) == TIMES.keys()
    assert {figure.quantity for figure in FIGURES} - {"count"} == QUANTITY_NAMES.keys()


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.code)
def test_a_definition_is_made_of_whole_sentences(figure):
    text, name = text_of(figure), name_of(figure)
    assert re.fullmatch(r"[A-Z].*[^ .]\.", text.en)
    assert not re.search(r"  | [.,;]|\.\.|,,", text.en)
    assert text.zh.endswith("。")
    assert not re.search(r"[,;!?()]|[\u4e00-\u9fff][A-Za-z0-9]|[A-Za-z0-9][\u4e00-\u9fff]|，，|  ", text.zh)
    assert name.en
    assert name.zh


def test_definitions_differ_unless_the_table_says_why():
    texts = Counter(text_of(figure).en for figure in FIGURES if not figure.why)
    assert [text for text, times in texts.items() if times > 1] == []


def test_the_api_lists_every_figure_and_every_metric():
    made = definitions()
    assert [one.code for one in made.definitions] == [figure.code for figure in FIGURES]
    assert {one.name for one in made.metrics} == METRICS.keys()
    assert {one.figure for one in made.metrics} - {None} <= BY_CODE.keys()
