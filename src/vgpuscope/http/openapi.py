"""A table of operations → the OpenAPI 3.1 document of a service, built on request because its types cost memory."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from vgpuscope.http import parameters
from vgpuscope.http.answers import JSON, Content, HttpAnswer
from vgpuscope.http.error_body import ErrorBody
from vgpuscope.http.operations import HttpCall, Operation
from vgpuscope.http.parameters import NoQuery, Param
from vgpuscope.version import __version__

Table = Sequence[Operation]


class ReadyBody(Struct, frozen=True):
    """Whether the process is ready, and what is missing."""

    ready: bool
    missing: tuple[str, ...]


def _common(path: str, summary: str, **more: Any) -> Operation:
    """A path that http/app.py serves in every service; only described here."""
    return Operation(method="GET", path=path, summary=summary, handler=lambda _: NotImplemented, checked=False, **more)


METRICS = _common("/metrics", "what Prometheus scrapes", media=("text/plain", "application/openmetrics-text"))
_CHECK: dict[str, Any] = {"access": "open", "same_body": (503,)}  # open, because the kubelet has no credentials
COMMON = (
    METRICS,
    _common("/healthz", "whether this process works", media=("text/plain",), **_CHECK),
    _common("/readyz", "whether this process is ready, and what is missing", answer=ReadyBody, **_CHECK),
)
_STATUS_WORDS = {
    401: "Credentials are missing or wrong.",
    403: "The caller may not do this.",
    404: "The named thing does not exist.",
    409: "Another replica is the leader.",
    413: "The request is larger than 2 MiB.",
    415: "The body is not JSON by its Content-Type, or is compressed.",
    422: "A parameter or the body is wrong; nothing was done.",
    429: "Too many requests at once, or within a short time; Retry-After says when to retry.",
    502: "The service that was called did not accept the call.",
    503: "A source or the store is down.",
}
_ROLE_WORDS = {"read": "", "operate": "Needs the role `operate`.", "admin": "Needs the role `admin`."}


def document(
    operations: Table,
    *,
    title: str,
    description: str,
    protected: bool = False,
    guarded: bool = False,
    known: bool = False,
    notes: Callable[[str, str], dict[str, Any]] = lambda _struct, _field: {},
) -> bytes:
    """The OpenAPI document of a whole table and of the common paths, as JSON.

    `protected`: reading needs credentials, too; `guarded`: the web configuration has users or tokens; `known`: the
    service knows callers by other credentials, so that changes need them; `notes`: what to add to a field of a struct.
    """
    shown = [operation for operation in (*operations, *COMMON) if not operation.hidden]
    secured = {"open": False, "guarded": guarded, "role": protected or guarded}
    types = [t for o in shown for t in (o.answer, o.or_else, _body(o)) if t is not None and t is not Any]
    schemas, components = msgspec.json.schema_components(
        [*types, ErrorBody], ref_template="#/components/schemas/{name}"
    )
    _require(components, besides=[_body(o) for o in shown])
    for name, component in components.items():
        for field, property_ in component.get("properties", {}).items():
            if added := notes(name, field):
                own = property_.get("description", "")
                property_.update(added | {"description": f"{own} {added['description']}".strip()})
    for schema in (*schemas, *components.values()):
        _without_false_items(schema)
    by_type = {str(t): schema for t, schema in zip([*types, ErrorBody], schemas, strict=True)}
    paths: dict[str, Any] = {}
    for operation in shown:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(
            operation,
            by_type,
            security=_security(operation, required=secured[operation.access], closed=protected or guarded or known),
        )
    made = {
        "openapi": "3.1.0",
        "info": {"title": title, "version": __version__, "description": description},
        "servers": [{"url": "."}],  # where the document is, also behind a path prefix
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }
    return json.dumps(made, ensure_ascii=False).encode()


def _security(operation: Operation, *, required: bool, closed: bool) -> list[dict[str, list[str]]]:
    """What a client has to send. Programs on the same machine change something without credentials unless `closed`."""
    if required or (operation.changes and closed):
        return [{"token": []}]
    return [{"token": []}, {}] if operation.changes else []


def _without_false_items(schema: Any) -> None:
    """Generators of clients do not read `items: false` of a tuple; its minItems and maxItems say the same."""
    for child in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        _without_false_items(child)
    if isinstance(schema, dict) and schema.get("items") is False and "prefixItems" in schema:
        del schema["items"]


def _require(components: dict[str, Any], *, besides: Sequence[Any]) -> None:
    """Mark every field of an answer as required: answers send fields with their defaults too.

    Fields that may be missing have no default in the schema. `besides`: the bodies of requests.
    """
    given = msgspec.json.schema_components([t for t in besides if t is not None and t is not Any])[1]
    for name, schema in components.items():
        if name not in given and "properties" in schema:
            always = {field for field, found in schema["properties"].items() if "default" in found}
            schema["required"] = [*schema.get("required", ()), *sorted(always - set(schema.get("required", ())))]


def described(made: Callable[[], bytes]) -> Operation:
    """The public operation `/openapi.json`; `made` returns the document when it is requested."""

    async def handler(call: HttpCall[NoQuery, None]) -> HttpAnswer:  # noqa: ARG001 - the same for every caller
        return HttpAnswer(make=lambda: Content(body=made()))

    summary, answer = "this API for programs", dict[str, Any]
    return Operation(
        method="GET", path="/openapi.json", summary=summary, handler=handler, answer=answer, access="guarded"
    )


def _body(operation: Operation) -> Any:
    return operation.body_shown or operation.body


def _operation(
    operation: Operation, by_type: Mapping[str, Any], *, security: list[dict[str, list[str]]]
) -> dict[str, Any]:
    made: dict[str, Any] = {
        "summary": operation.summary,
        "tags": [_tag(operation.path)],
        "operationId": _operation_id(operation),
        "parameters": [_param(param, operation.path) for param in parameters.declared(operation.query)],
        "responses": _responses(operation, by_type),
    }
    if words := _ROLE_WORDS[operation.role]:
        made["description"] = words
    if security:
        made["security"] = security
    if (body := _body(operation)) is not None:
        content = {JSON: {"schema": by_type[str(body)]}}
        made["requestBody"] = {"content": content, "required": operation.body_required}
    return made


def _responses(operation: Operation, by_type: Mapping[str, Any]) -> dict[str, Any]:
    schema = by_type.get(str(operation.answer), {})
    if operation.or_else is not None:
        schema = {"anyOf": [schema, by_type[str(operation.or_else)]]}
    content = {media: {"schema": schema if media == JSON else {"type": "string"}} for media in operation.media}
    good: dict[str, Any] = {"description": operation.summary, "content": content}
    if operation.headers:
        good["headers"] = {
            name: {"description": text, "schema": {"type": "string"}} for name, text in operation.headers.items()
        }
    error = {JSON: {"schema": by_type[str(ErrorBody)]}}
    return {
        str(operation.status): good,
        **({"304": {"description": "The client has this answer already."}} if operation.tagged else {}),
        **{str(s): {"description": _STATUS_WORDS[s], "content": content} for s in operation.same_body},
        **{str(s): {"description": _STATUS_WORDS[s], "content": error} for s in sorted(_errors(operation))},
        "default": {"description": "Any other error.", "content": error},
    }


def _errors(operation: Operation) -> set[int]:
    """The statuses of errors that an operation can answer with, besides those of any path."""
    known = {401, 429} if operation.checked or not operation.public else set()
    role = set() if operation.public else {403}
    given = {422} if operation.checked else set()
    body = {413, 415} if operation.body is not None else set()
    return {*known, *role, *given, *body, *operation.statuses}


def _tag(path: str) -> str:
    """The group of an operation: the version of the API that it belongs to."""
    return "/api/v1" if path.startswith("/api/v1/") else "service"


def _operation_id(operation: Operation) -> str:
    words = operation.path.strip("/").replace("{", "").replace("}", "").replace("/", "_") or "index"
    return f"{operation.method.lower()}_{words}"


def _pattern(param: Param) -> str | None:
    """The texts that are accepted: a text never holds a NUL."""
    if param.pattern:
        return f"^{param.pattern}$"
    return "^[^\\u0000]*$" if param.type == "string" and not param.choices else None


def _param(param: Param, path: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": param.type}
    extras = {
        "enum": list(param.choices) or None,
        "pattern": _pattern(param),
        "minimum": param.least,
        "maximum": param.most,
    }
    schema |= {key: value for key, value in extras.items() if value is not None}
    if param.default is not None and not param.many:
        schema["default"] = param.default
    shown: dict[str, Any] = {"name": param.name, "in": "query", "description": param.help}
    if f"{{{param.name}}}" in path:
        return {**shown, "in": "path", "required": True, "schema": schema}
    if param.required:
        shown["required"] = True
    if param.many:
        return {**shown, "style": "form", "explode": False, "schema": {"type": "array", "minItems": 1, "items": schema}}
    return {**shown, "schema": schema}
