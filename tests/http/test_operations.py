"""A table of operations, over real sockets: who calls what with which values, and what comes back."""

import gzip
import json
from typing import Annotated, Literal
from urllib.parse import urljoin

import httpx2
import msgspec
import pytest
from msgspec import Meta, Struct
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tests.http.serving import SOON, served
from vgpuscope.http.answers import CSV, JSON, Content, HttpAnswer, KeptAnswers, json_content
from vgpuscope.http.openapi import document
from vgpuscope.http.operations import EVENTS, HttpCall, Operation, links, routes
from vgpuscope.http.parameters import NoQuery
from vgpuscope.model.caller import Caller

MANY = [{"number": number} for number in range(1000)]


class Thing(Struct):
    name: str
    size: float | None = None


class ThingQuery(Struct, frozen=True, kw_only=True):
    name: str
    count: Annotated[int, Meta(ge=0, le=10, description="How many.")] = 3
    format: Literal["json", "csv"] | None = None


async def one(call: HttpCall[ThingQuery, None]) -> Content:
    assert isinstance(call.asked, ThingQuery)
    if call.csv:
        return Content(body=b"name\r\n", media=CSV)
    return json_content([call.asked.name, call.asked.count], **{"x-n": "1"})


async def put(call: HttpCall[ThingQuery, Thing]) -> Thing:
    return Thing(call.asked.name, call.body.size)


async def patch(call: HttpCall[ThingQuery, Thing | None]) -> str:
    return f"{call.caller.name} {call.body}"


async def plain(call: HttpCall[NoQuery, None]) -> list[dict]:
    return MANY


def row(method, path, handler, **more) -> Operation:
    return Operation(method=method, path=path, summary=f"{method} <it>", handler=handler, **more)


TABLE = (
    row("GET", "/things/{name}", one, answer=list[str | int], media=(JSON, CSV), headers={"x-n": "how many"}),
    row("PUT", "/things/{name}", put, answer=Thing, role="operate", status=201),
    row("PATCH", "/things/{name}", patch, answer=str, role="operate"),
    row("DELETE", "/things/{name}", one, role="admin"),
    row("GET", "/things", plain, stamp=lambda: {"x-stamp": "now"}),
    row("GET", "/act", plain, role="operate"),
    row("GET", "/open", plain, access="guarded", hidden=True),
)


class ByHeader:
    """The header says who calls, and with which role."""

    def admit(self, request, operation):
        caller = Caller(name="ann", role=request.headers.get("x-role"))
        if not operation.public and not caller.may(operation.role):
            raise HTTPException(403)
        return caller


@pytest.fixture
async def client():
    async with (
        served(routes=routes(TABLE, ByHeader())) as server,
        httpx2.AsyncClient(base_url=server.url, timeout=SOON, headers={"x-role": "admin"}) as found,
    ):
        yield found


# ── calls ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_handlers_get_values_of_the_types_they_declare(client):
    assert (await client.get("/things/a?count=1")).json() == ["a", 1]
    assert (await client.get("/things/b")).json() == ["b", 3]
    made = await client.put("/things/a", content=b'{"name": "x", "size": 2}')
    assert (made.status_code, made.json()) == (201, {"name": "a", "size": 2.0})
    assert (await client.patch("/things/a")).json() == "ann None"
    assert (await client.delete("/things/a")).status_code == 200


async def test_each_method_of_a_path_is_its_own_operation(client):
    assert (await client.head("/things/a")).status_code == 200
    assert (await client.head("/act")).status_code == 405  # asking for headers changes nothing
    late = await client.post("/things/a")
    assert (late.status_code, late.json()["error"]["code"]) == (405, "METHOD_NOT_ALLOWED")


async def stream(call: HttpCall[NoQuery, None]) -> Response:
    return Response(b"", media_type=EVENTS)


ALLOWED = {
    "/things/a": "DELETE, GET, HEAD, PATCH, PUT",
    "/things": "GET, HEAD",
    "/act": "GET",
    "/events": "GET",
    "/metrics": "GET, HEAD",
    "/own": "GET, HEAD",
}


@pytest.mark.parametrize("path", ALLOWED)
async def test_allow_lists_the_methods_of_a_path_that_are_answered_and_no_others(path):
    table = (*TABLE, row("GET", "/events", stream, media=(EVENTS,)))
    own = Route("/own", lambda _: Response(b""), methods=["GET"])
    async with (
        served(routes=[*routes(table, ByHeader()), own]) as server,
        httpx2.AsyncClient(base_url=server.url, timeout=SOON, headers={"x-role": "admin"}) as client,
    ):
        methods = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
        found = {method: await client.request(method, path) for method in methods}
    refused = {method: answer for method, answer in found.items() if answer.status_code == 405}
    assert {answer.headers["allow"] for answer in refused.values()} == {ALLOWED[path]}
    assert sorted(found.keys() - refused.keys()) == ALLOWED[path].split(", ")
    assert refused["POST"].json()["error"]["hint"] == f"Allowed: {ALLOWED[path]}."


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"size": 1}', b'{"name": 1}', b"\xff", b"[" * 100_000])
async def test_a_body_that_is_not_of_the_declared_type_is_refused_in_one_shape(client, body):
    refused = await client.put("/things/a", content=body)
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "BODY_INVALID")


@pytest.mark.parametrize(
    ("role", "statuses"),
    [
        ("admin", [200, 201, 200, 200]),
        ("operate", [200, 201, 403, 200]),
        ("read", [200, 403, 403, 200]),
        ("", [403, 403, 403, 200]),
    ],
)
async def test_a_role_is_needed_as_the_table_says(client, role, statuses):
    calls = [("GET", "/things/a"), ("PUT", "/things/a"), ("DELETE", "/things/a"), ("GET", "/open")]
    headers = {"x-role": role} if role else {}
    del client.headers["x-role"]
    got = [await client.request(*call, headers=headers, content=b'{"name": "x"}') for call in calls]
    assert [answer.status_code for answer in got] == statuses


async def test_without_an_admission_everyone_may_read_and_nobody_may_change():
    async with served(routes=routes(TABLE)) as server, httpx2.AsyncClient(base_url=server.url, timeout=SOON) as client:
        assert (await client.get("/things")).status_code == 200
        assert (await client.get("/act")).status_code == 401


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_answers_are_compressed_for_who_wants_it(client):
    plain = await client.get("/things", headers={"accept-encoding": "identity"})
    packed = await client.get("/things", headers={"accept-encoding": "gzip"})
    assert ("content-encoding" in plain.headers, packed.headers["content-encoding"]) == (False, "gzip")
    assert plain.json() == packed.json() == MANY
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"]) / 3
    assert "accept-encoding" in packed.headers["vary"]
    small = await client.get("/things/a", headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in small.headers


@pytest.mark.parametrize("encoding", ["gzip", "identity"])
@pytest.mark.parametrize("path", ["/things", "/things/a", "/things/a?format=csv"])
async def test_who_has_the_answer_already_gets_no_body(client, path, encoding):
    first = await client.get(path, headers={"accept-encoding": encoding})
    tag = first.headers["etag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = await client.get(path, headers={"if-none-match": known, "accept-encoding": encoding})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert (await client.get(path, headers={"if-none-match": '"other"'})).status_code == 200
    assert again.headers.get("x-stamp") == first.headers.get("x-stamp")


async def test_different_bytes_have_different_tags(client):
    asked = [("/things/a", "identity"), ("/things/b", "identity"), ("/things", "gzip"), ("/things", "identity")]
    tags = [(await client.get(path, headers={"accept-encoding": word})).headers["etag"] for path, word in asked]
    assert len(set(tags)) == 4


async def test_an_answer_to_a_change_has_no_tag(client):
    assert "etag" not in (await client.put("/things/a", content=b'{"name": "x"}')).headers


async def test_an_answer_with_a_known_version_is_not_made_again():
    made = []

    def make() -> Content:
        made.append(1)
        return json_content(MANY)

    async def handler(call: HttpCall[ThingQuery, None]) -> HttpAnswer:
        return HttpAnswer(make=make, version=7)

    table = [row("GET", "/v/{name}", handler)]
    async with served(routes=routes(table)) as server, httpx2.AsyncClient(base_url=server.url, timeout=SOON) as client:
        tag = (await client.get("/v/a")).headers["etag"]
        assert (await client.get("/v/a", headers={"if-none-match": tag})).status_code == 304
        assert len(made) == 1
        assert (await client.get("/v/a?count=4", headers={"if-none-match": tag})).status_code == 200
        assert (await client.get("/v/b", headers={"if-none-match": tag})).status_code == 200


async def test_a_table_comes_as_csv_by_header_or_parameter(client):
    for how in ({"headers": {"accept": "text/csv"}}, {"params": {"format": "csv"}}):
        got = await client.get("/things/a", **how)
        assert (got.headers["content-type"], got.content) == ("text/csv; charset=utf-8", b"name\r\n")
    both = {"headers": {"accept": "text/csv"}, "params": {"format": "json"}}
    assert (await client.get("/things/a", **both)).json() == ["a", 3]


def test_a_compressed_body_is_gzip():
    from vgpuscope.http.answers import compressed

    assert gzip.decompress(compressed(b"x" * 5000)) == b"x" * 5000


# ── the type of a body ───────────────────────────────────────────────────────────────────────────────────────────


_BODY = b'{"name": "x"}'


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": ""},
        {"content-type": "application/json"},
        {"content-type": "Application/JSON; Charset=UTF-8"},
        {"content-type": 'application/json; charset="utf-8"'},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/json", "content-encoding": "identity"},
    ],
    ids=str,
)
async def test_json_is_read_under_its_own_name_and_that_of_curl(client, headers):
    assert (await client.put("/things/a", content=_BODY, headers=headers)).status_code == 201


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": "application/xml"},
        {"content-type": "nonsense"},
        {"content-type": "application/json; charset=utf-16"},
        {"content-type": "multipart/form-data; boundary=x"},
        {"content-encoding": "gzip"},
        {"content-type": "application/json", "content-encoding": "identity, br"},
    ],
    ids=str,
)
async def test_a_body_under_another_name_is_415(client, headers):
    got = await client.put("/things/a", content=_BODY, headers=headers)
    assert (got.status_code, got.json()["error"]["code"]) == (415, "MEDIA_UNSUPPORTED")


async def test_a_body_that_is_empty_or_not_asked_for_can_have_any_type(client):
    odd = {"content-type": "text/plain", "content-encoding": "gzip"}
    assert (await client.patch("/things/a", headers=odd)).json() == "ann None"
    assert (await client.delete("/things/a", headers=odd)).status_code == 200
    assert (await client.request("DELETE", "/things/a", headers=odd, content=b"whatever")).status_code == 200


# ── answers with a version ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kept", [None, KeptAnswers()], ids=["made", "kept"])
async def test_only_a_get_is_answered_from_what_the_client_has(kept):
    async def versioned(call: HttpCall[NoQuery, None]) -> HttpAnswer:
        return HttpAnswer(make=lambda: json_content("done"), version=1, kept=kept)

    table = (row("GET", "/v", versioned), row("POST", "/v", versioned, role="operate"))
    async with (
        served(routes=routes(table, ByHeader())) as server,
        httpx2.AsyncClient(base_url=server.url, timeout=SOON, headers={"x-role": "admin"}) as client,
    ):
        tag = (await client.get("/v")).headers["etag"]
        known = {"if-none-match": tag}
        assert (await client.get("/v", headers=known)).status_code == 304
        for given in (known, {"if-none-match": "*"}):
            made = await client.post("/v", headers=given)
            assert (made.status_code, made.json(), made.headers.get("etag")) == (200, "done", None)


# ── the document ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_document_of_a_service_with_credentials_asks_for_them():
    made = json.loads(document(TABLE, title="t", description="d", guarded=True))
    assert made["paths"]["/things/{name}"]["put"]["security"] == [{"token": []}]


def test_paths_of_the_document_are_relative_to_the_document():
    """Behind a path prefix, /docs calls the operations beside itself."""
    (server,) = json.loads(document(TABLE, title="t", description="d"))["servers"]
    assert urljoin("https://host/prefix/openapi.json", server["url"] + "/things") == "https://host/prefix/things"


class Pair(Struct):
    both: tuple[int, str]


def test_a_tuple_is_described_as_common_generators_read_it():
    row = Operation(method="GET", path="/pair", summary="s", handler=lambda _: NotImplemented, answer=Pair)
    schema = json.loads(document((row,), title="t", description="d"))["components"]["schemas"]["Pair"]
    both = schema["properties"]["both"]
    assert "items" not in both
    assert (both["minItems"], both["maxItems"], len(both["prefixItems"])) == (2, 2, 2)


def test_the_document_describes_every_operation_that_is_not_hidden():
    made = json.loads(document(TABLE, title="t", description="d"))
    assert made["openapi"] == "3.1.0"
    common = {"/metrics", "/healthz", "/readyz"}
    assert made["paths"].keys() == {"/things/{name}", "/things", "/act", *common}
    get, change = made["paths"]["/things/{name}"]["get"], made["paths"]["/things/{name}"]["put"]
    assert [(param["name"], param["in"]) for param in get["parameters"]] == [
        ("name", "path"),
        ("count", "query"),
        ("format", "query"),
    ]
    assert get["parameters"][1]["schema"] == {"type": "integer", "minimum": 0, "maximum": 10, "default": 3}
    assert get["responses"]["200"]["headers"].keys() == {"x-n"}
    assert "security" not in get
    assert change["security"] == [{"token": []}, {}]  # a program on the same machine needs none
    assert "`operate`" in change["description"]
    assert {"201", "403", "422"} <= change["responses"].keys()
    assert change["requestBody"] == {
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}},
        "required": True,
    }
    assert made["paths"]["/things/{name}"]["patch"]["requestBody"]["required"] is False
    ids = [operation["operationId"] for path in made["paths"].values() for operation in path.values()]
    assert len(set(ids)) == len(ids) == len(TABLE) - 1 + len(common)


def test_where_reading_is_protected_the_document_asks_for_the_token():
    made = json.loads(document(TABLE, title="t", description="d", protected=True))
    assert made["paths"]["/things"]["get"]["security"] == [{"token": []}]


def test_the_document_asks_for_the_token_where_the_access_does():
    table = [row("GET", f"/{access}", plain, access=access) for access in ("role", "guarded", "open")]

    def asking(**more):
        paths = json.loads(document(table, title="t", description="d", **more))["paths"]
        return {path for path, found in paths.items() if "security" in found["get"]}

    assert asking() == set()
    assert asking(protected=True) == {"/role", "/metrics"}
    assert asking(guarded=True) == {"/role", "/guarded", "/metrics"}


def test_the_document_has_the_statuses_that_every_operation_can_answer_with():
    paths = json.loads(document(TABLE, title="t", description="d"))["paths"]
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}}
    assert all(one["responses"]["default"]["content"] == error for found in paths.values() for one in found.values())
    tagged = {path for path, found in paths.items() if "304" in found.get("get", {"responses": ()})["responses"]}
    assert tagged == {"/things/{name}", "/things"}
    with_body = [
        (one["responses"].keys() >= {"413", "415"}, "requestBody" in one) for one in paths["/things/{name}"].values()
    ]
    assert all(named == body for named, body in with_body)
    ready = paths["/readyz"]["get"]["responses"]
    assert ready["503"]["content"] == ready["200"]["content"] != error
    assert ready.keys() == {"200", "503", "default"}


async def test_a_get_is_a_304_exactly_where_the_document_has_one(client):
    paths = json.loads(document(TABLE, title="t", description="d"))["paths"]
    for path in ("/things/a", "/things", "/act"):
        got = await client.get(path, headers={"if-none-match": "*"})
        documented = paths[path.replace("things/a", "things/{name}")]["get"]["responses"]
        assert (got.status_code == 304) == ("304" in documented)
        assert ("etag" in got.headers) == ("304" in documented)


def test_the_index_lists_what_a_browser_can_open():
    assert links(TABLE) == [("/things", "GET <it>")]


def test_an_error_body_is_what_the_document_says():
    schemas = json.loads(document(TABLE, title="t", description="d"))["components"]["schemas"]
    assert schemas["ErrorBody"]["required"] == ["error"]
    assert msgspec.json.decode(json.dumps(schemas["ErrorText"]["required"])) == ["code", "message", "hint"]
