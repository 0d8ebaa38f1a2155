"""Parameters as a struct: what is read from a query, and what is refused."""

import math
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct
from starlette.datastructures import QueryParams

from vgpuscope.http import parameters
from vgpuscope.http.parameters import NoQuery, Param, one_of
from vgpuscope.model.errors import QueryInvalid


class Query(Struct, frozen=True, kw_only=True):
    text: Annotated[str | None, Meta(description="Any text.")] = None
    count: Annotated[int, Meta(ge=0, le=10, description="How many.")] = 3
    share: Annotated[Annotated[float, Meta(ge=-1)] | None, Meta(description="How much.")] = None
    sure: bool | None = None
    colour: Annotated[Literal["red", "green"] | None, Meta(description="Which.")] = None
    parts: tuple[Annotated[str, one_of("abc", "Which ones.")], ...] = ()


PARAMS = parameters.declared(Query)


def read(query: str) -> Query:
    return parameters.read(Query, PARAMS, QueryParams(query).multi_items())


def test_a_structs_fields_declare_parameters():
    assert (
        Param(name="text", help="Any text."),
        Param(name="count", type="integer", help="How many.", least=0, most=10, default=3),
        Param(name="share", type="number", help="How much.", least=-1),
        Param(name="sure", type="boolean"),
        Param(name="colour", help="Which.", choices=("red", "green")),
        Param(name="parts", help="Which ones.", choices=("a", "b", "c"), many=True, default=()),
    ) == PARAMS
    assert parameters.declared(NoQuery) == ()


def test_a_parameter_without_default_has_to_be_given_in_path_or_query():
    class One(Struct):
        name: str
        colour: Literal["red", "green"] = "red"

    known = parameters.declared(One)
    assert known[0].required
    assert parameters.read(One, known, [("colour", "green")], {"name": "a"}) == One("a", "green")
    assert parameters.read(One, known, [("name", "b")]) == One("b")
    with pytest.raises(QueryInvalid, match="name is required"):
        parameters.read(One, known, [])
    with pytest.raises(QueryInvalid, match="unknown parameter 'name'"):  # the path has it already
        parameters.read(One, known, [("name", "b")], {"name": "a"})


def test_what_is_not_given_has_its_default():
    assert read("") == Query(text=None, count=3, share=None, sure=None, colour=None, parts=())


@pytest.mark.parametrize(
    ("query", "name", "value"),
    [
        ("text=a%20b", "text", "a b"),
        ("count=10", "count", 10),
        ("share=-.5e0", "share", -0.5),
        ("share=1e3", "share", 1000.0),
        ("sure=YES", "sure", True),
        ("sure=0", "sure", False),
        ("colour=green", "colour", "green"),
        ("parts=c,a,c", "parts", ("c", "a")),
    ],
)
def test_a_value_is_read_as_its_type(query, name, value):
    found = getattr(read(query), name)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    "query",
    [
        "unknown=1",
        "count=11",
        "count=-1",
        "count=1.0",
        "count=٣",
        "count=" + "9" * 400,
        "share=nan",
        "share=inf",
        "share=1e999",
        "share=1_0",
        "share=-2",
        "share= 1",
        "sure=maybe",
        "colour=Red",
        "parts=a,,b",
        "parts=",
        "count=1&count=1",
    ],
)
def test_a_value_that_is_none_is_refused_by_name(query):
    with pytest.raises(QueryInvalid) as refused:
        read(query)
    assert query.partition("=")[0] in str(refused.value)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("query", "message", "hint"),
    [
        (
            "colr=red",
            "unknown parameter 'colr'",
            "Did you mean colour? Possible: text, count, share, sure, colour, parts.",
        ),
        ("zz=1", "unknown parameter 'zz'", "Possible: text, count, share, sure, colour, parts."),
        ("colour=gren", "colour must be one of red, green (got 'gren')", "Did you mean green?"),
        ("colour=Red", "colour must be one of red, green (got 'Red')", "Did you mean red?"),
        ("parts=a,x", "parts must be one or more of a, b, c (got 'x')", QueryInvalid.hint),
        ("count=x", "count must be a whole number (got 'x')", QueryInvalid.hint),
        ("share=x", "share must be a number (got 'x')", QueryInvalid.hint),
        ("sure=x", "sure must be true or false (got 'x')", QueryInvalid.hint),
        ("count=11", "count must be from 0 to 10 (got 11)", QueryInvalid.hint),
        ("share=-2", "share must be at least -1 (got -2)", QueryInvalid.hint),
    ],
)
def test_a_refusal_says_what_is_possible_and_hints_at_the_nearest_word(query, message, hint):
    with pytest.raises(QueryInvalid) as refused:
        read(query)
    assert (str(refused.value), refused.value.advice) == (message, hint)


@given(st.text(), st.text())
def test_any_query_is_read_or_refused(name, value):
    try:
        found = parameters.read(Query, PARAMS, [(name, value)])
    except QueryInvalid:
        return
    assert found.share is None or math.isfinite(found.share)
    assert 0 <= found.count <= 10
