"""A table of operations: what is read from a query, and the document and page that follow from the table."""

import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import QueryParams
from starlette.responses import PlainTextResponse

from tests.http.serving import SOON, served
from vgpuscope.http.operations import Operation, Param, docs_page, openapi, read_params, routes
from vgpuscope.model.errors import QueryInvalid

PARAMS = (
    Param(name="text", help="Any text."),
    Param(name="count", type="integer", help="How many.", least=0, most=10, default=3),
    Param(name="share", type="number", help="How much.", least=-1),
    Param(name="sure", type="boolean", help="Whether."),
    Param(name="colour", help="Which.", choices=("red", "green")),
    Param(name="parts", help="Which ones.", choices=("a", "b", "c"), many=True),
)


class Thing(msgspec.Struct):
    name: str
    size: float | None


def read(query: str) -> dict:
    return read_params(PARAMS, QueryParams(query))


def test_what_is_not_given_has_its_default():
    assert read("") == {"text": None, "count": 3, "share": None, "sure": None, "colour": None, "parts": None}


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
    found = read(query)[name]
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
        found = read_params(PARAMS, QueryParams([(name, value)]))
    except QueryInvalid:
        return
    assert found.keys() == {param.name for param in PARAMS}
    assert found["share"] is None or math.isfinite(found["share"])


async def nothing(request, asked):
    return PlainTextResponse(f"{request.method} {asked}")


TABLE = (
    Operation(method="GET", path="/things/{name}", summary="one <thing>", handler=nothing, answer=Thing, params=PARAMS),
    Operation(
        method="POST", path="/things", summary="make one", handler=nothing, answer=Thing, body=Thing, changes=True
    ),
    Operation(
        method="GET", path="/things", summary="do it", handler=nothing, changes=True, headers={"x-n": "how many"}
    ),
)


def test_the_document_tells_of_every_operation():
    document = json.loads(openapi(TABLE, title="t", description="d"))
    assert document["openapi"] == "3.1.0"
    one = document["paths"]["/things/{name}"]["get"]
    assert [param["name"] for param in one["parameters"]] == ["name", *(param.name for param in PARAMS)]
    assert one["parameters"][0] == {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
    assert one["parameters"][2]["schema"] == {"type": "integer", "minimum": 0, "maximum": 10, "default": 3}
    assert "security" not in one
    make = document["paths"]["/things"]["post"]
    assert make["security"] == [{"token": []}]
    assert make["requestBody"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Thing"}
    assert "403" in make["responses"]
    assert document["paths"]["/things"]["get"]["responses"]["200"]["headers"].keys() == {"x-n"}
    ids = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(set(ids)) == len(TABLE)


def test_the_page_escapes_what_it_shows():
    page = docs_page(TABLE, title="<t>", description="a & b").decode()
    assert "&lt;t&gt;" in page
    assert "one &lt;thing&gt;" in page
    assert "a &amp; b" in page
    assert "<script" not in page


async def test_each_method_reaches_its_operation_once_it_is_allowed():
    import httpx2

    asked = []

    async def allow(request, operation):
        asked.append((request.method, operation.summary))

    async with (
        served(routes=routes(TABLE, allow)) as server,
        httpx2.AsyncClient(base_url=server.url, timeout=SOON) as client,
    ):
        assert (await client.get("/things/a?count=1")).text.startswith("GET {'text': None, 'count': 1")
        assert (await client.post("/things")).text == "POST {}"
        assert (await client.head("/things/a")).status_code == 200
        assert (await client.head("/things")).status_code == 405
        assert (await client.put("/things")).status_code == 405
    assert asked == [("GET", "one <thing>"), ("POST", "make one"), ("HEAD", "one <thing>")]
