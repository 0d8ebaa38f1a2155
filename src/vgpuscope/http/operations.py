"""The operations of an API as a table: routes, checks of parameters and the OpenAPI document all follow from it."""

import html
import json
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vgpuscope.model.errors import QueryInvalid
from vgpuscope.model.service import ANALYZER_PORT, default_url
from vgpuscope.model.wording import instead, nearest
from vgpuscope.version import __version__

ParamType: TypeAlias = Literal["string", "integer", "number", "boolean"]
Handler: TypeAlias = Callable[[Request, dict[str, Any]], Awaitable[Response]]

_TRUE, _FALSE = frozenset({"true", "1", "yes", "on"}), frozenset({"false", "0", "no", "off"})
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")


class Param(Struct, frozen=True, kw_only=True):
    """One query parameter."""

    name: str
    type: ParamType = "string"
    help: str
    choices: tuple[str, ...] = ()
    pattern: str = ""  # that the whole text matches; help says it in words
    many: bool = False  # several of the choices, with commas
    least: float | None = None
    most: float | None = None
    default: Any = None  # None: not given


class Operation(Struct, frozen=True, kw_only=True):
    """One method of one path."""

    method: Literal["GET", "POST"]
    path: str
    summary: str
    handler: Handler
    answer: Any = Any  # the type of the body
    or_else: Any = None  # another type that the body has if so asked for
    body: Any = None  # the type of the request's body; None: it takes none
    params: tuple[Param, ...] = ()
    changes: bool = False  # it changes something, and so needs the token
    media: tuple[str, ...] = ("application/json",)
    statuses: tuple[int, ...] = ()  # of errors it may answer with, besides the common ones
    headers: Mapping[str, str] = {}  # of the answer: name → what it says


def read_params(params: Sequence[Param], given: QueryParams) -> dict[str, Any]:
    """The values of the parameters that are known; QueryInvalid names the one that is wrong."""
    known = {param.name: param for param in params}
    values: dict[str, Any] = {}
    for name, text in given.multi_items():
        param = known.get(name)
        if param is None:
            raise QueryInvalid(f"unknown parameter {name[:80]!r}", hint=instead(name, known) or _NO_PARAMS)
        if name in values:
            raise QueryInvalid(f"{name} is given more than once")
        values[name] = _value(param, text)
    return {param.name: param.default for param in params} | values


def _value(param: Param, text: str) -> Any:
    if param.many:
        return tuple(dict.fromkeys(_one(param, part) for part in text.split(",")))
    return _one(param, text)


def _one(param: Param, text: str) -> Any:
    try:
        value = _CONVERT[param.type](text)
    except ValueError:
        raise QueryInvalid(f"{param.name} must be {_TYPE_WORDS[param.type]} (got {text[:80]!r})") from None
    if param.choices and value not in param.choices:
        raise _no_choice(param, text)
    if param.pattern and not re.fullmatch(param.pattern, text):
        raise QueryInvalid(f"{param.name} has another form (got {text[:80]!r})", hint=param.help)
    if param.type in {"integer", "number"} and not _within(param, value):
        raise QueryInvalid(f"{param.name} must be {_range(param)} (got {text[:80]})")
    return value


_NO_PARAMS = "This path takes no parameters."
_TYPE_WORDS = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false"}
_LISTED = 12  # choices; more stand in the documentation


def _no_choice(param: Param, text: str) -> QueryInvalid:
    number = "one or more of" if param.many else "one of"
    choices = ", ".join(param.choices) if len(param.choices) <= _LISTED else "those that /docs lists"
    message = f"{param.name} must be {number} {choices} (got {text[:80]!r})"
    return QueryInvalid(message, hint=nearest(text, param.choices) or None)


def _within(param: Param, value: float) -> bool:
    return (param.least is None or value >= param.least) and (param.most is None or value <= param.most)


def _range(param: Param) -> str:
    if param.least is None:
        return f"at most {param.most:g}"
    return f"at least {param.least:g}" if param.most is None else f"from {param.least:g} to {param.most:g}"


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _number(text: str) -> float:
    """Python would also take 1_000, digits of other scripts and nan."""
    if not _NUMBER.fullmatch(text) or not math.isfinite(value := float(text)):
        raise ValueError(text)
    return value


def _boolean(text: str) -> bool:
    if text.lower() not in _TRUE | _FALSE:
        raise ValueError(text)
    return text.lower() in _TRUE


_CONVERT: dict[ParamType, Callable[[str], Any]] = {
    "string": str,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
}


def routes(operations: Sequence[Operation], allow: Callable[[Request, Operation], Awaitable[None]]) -> list[Route]:
    """A route for each path; `allow` raises when the client may not do the operation."""
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, {})[operation.method] = operation
    return [Route(path, _endpoint(methods, allow), methods=list(methods)) for path, methods in by_path.items()]


def _endpoint(
    methods: Mapping[str, Operation], allow: Callable[[Request, Operation], Awaitable[None]]
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        operation = methods["GET" if request.method == "HEAD" else request.method]
        if request.method == "HEAD" and operation.changes:  # whoever only asks for headers wants nothing done
            raise HTTPException(405, headers={"allow": ", ".join(methods)})
        await allow(request, operation)
        return await operation.handler(request, read_params(operation.params, request.query_params))

    return endpoint


# --- the OpenAPI document ---------------------------------------------------------------------------------------------


class ErrorText(Struct, frozen=True):
    """What went wrong."""

    code: str
    message: str
    hint: str


class ErrorBody(Struct, frozen=True):
    """The shape of every error."""

    error: ErrorText


_STATUS_WORDS = {
    401: "credentials are missing or wrong",
    403: "this listener takes no changes",
    404: "there is no such thing",
    409: "another replica leads",
    422: "a parameter or the body is wrong; nothing was done",
    429: "too many requests",
    503: "a source or store is down",
}


def openapi(operations: Sequence[Operation], *, title: str, description: str) -> bytes:
    """The document, as JSON."""
    types = [t for o in operations for t in (o.answer, o.or_else, o.body) if t is not None and t is not Any]
    schemas, components = msgspec.json.schema_components(
        [*types, ErrorBody], ref_template="#/components/schemas/{name}"
    )
    by_type = {_type_key(t): schema for t, schema in zip([*types, ErrorBody], schemas, strict=True)}
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, by_type)
    document = {
        "openapi": "3.1.0",
        "info": {"title": title, "version": __version__, "description": description},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
    return json.dumps(document, ensure_ascii=False).encode()


def _type_key(found: Any) -> str:
    return str(found)


def _operation(operation: Operation, by_type: Mapping[str, Any]) -> dict[str, Any]:
    schema = by_type.get(_type_key(operation.answer), {})
    if operation.or_else is not None:
        schema = {"anyOf": [schema, by_type[_type_key(operation.or_else)]]}
    content = {media: {"schema": schema if "json" in media else {"type": "string"}} for media in operation.media}
    good: dict[str, Any] = {"description": "as asked", "content": content}
    if operation.headers:
        good["headers"] = {
            name: {"description": text, "schema": {"type": "string"}} for name, text in operation.headers.items()
        }
    error = {"application/json": {"schema": by_type[_type_key(ErrorBody)]}}
    statuses = {401, 422, 429, *operation.statuses, *((403,) if operation.changes else ())}
    made: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": _operation_id(operation),
        "parameters": [*_path_params(operation.path), *map(_param, operation.params)],
        "responses": {
            "200": good,
            **{str(s): {"description": _STATUS_WORDS[s], "content": error} for s in sorted(statuses)},
        },
    }
    if operation.changes:
        made["security"] = [{"token": []}]
    if operation.body is not None:
        made["requestBody"] = {"content": {"application/json": {"schema": by_type[_type_key(operation.body)]}}}
    return made


def _operation_id(operation: Operation) -> str:
    words = operation.path.strip("/").replace("{", "").replace("}", "").replace("/", "_") or "index"
    return f"{operation.method.lower()}_{words}"


def _path_params(path: str) -> list[dict[str, Any]]:
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _param(param: Param) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": param.type}
    extras = {
        "enum": list(param.choices) or None,
        "pattern": f"^{param.pattern}$" if param.pattern else None,
        "minimum": param.least,
        "maximum": param.most,
    }
    schema |= {key: value for key, value in extras.items() if value is not None}
    if param.default is not None:
        schema["default"] = param.default
    shown = {"name": param.name, "in": "query", "description": param.help}
    if param.many:
        return {**shown, "style": "form", "explode": False, "schema": {"type": "array", "minItems": 1, "items": schema}}
    return {**shown, "schema": schema}


# --- a page to read it on ---------------------------------------------------------------------------------------------

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}: API</title>
<meta name="viewport" content="width=device-width"><style>
body{{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}}
code,pre{{font-family:ui-monospace,monospace;font-size:.9em}}
details{{border:1px solid #8886;border-radius:.4rem;margin:.5rem 0;padding:.4rem .8rem}}
summary{{cursor:pointer}}b.GET{{color:#0a7d36}}b.POST{{color:#b3541e}}
@media(prefers-color-scheme:dark){{b.GET{{color:#5fd38d}}b.POST{{color:#f0a36b}}}}
table{{border-collapse:collapse;width:100%}}td,th{{text-align:left;padding:.2rem .6rem;border-top:1px solid #8884;
vertical-align:top}}
</style><h1>{title}</h1><p>vgpuscope {version} · <a href="openapi.json">openapi.json</a></p><p>{description}</p>
{operations}</html>
"""


def docs_page(operations: Sequence[Operation], *, title: str, description: str) -> bytes:
    """The operations for people: needs neither script nor anything from elsewhere."""
    return _PAGE.format(
        title=html.escape(title),
        version=__version__,
        description=html.escape(description),
        operations="\n".join(map(_docs_entry, operations)),
    ).encode()


def _docs_entry(operation: Operation) -> str:
    token = " <small>needs the token</small>" if operation.changes else ""
    rows = "".join(
        f"<tr><td><code>{html.escape(p.name)}</code><td>{p.type}{_choices(p)}<td>{html.escape(p.help)}"
        for p in operation.params
    )
    table = f"<table><tr><th>parameter<th>type<th>what it does{rows}</table>" if rows else "<p>No parameters.</p>"
    method = f" -X {operation.method}" if operation.method != "GET" else ""
    example = html.escape(f"curl{method} {default_url(ANALYZER_PORT)}{operation.path}")
    return (
        f'<details><summary><b class="{operation.method}">{operation.method}</b> '
        f"<code>{html.escape(operation.path)}</code> {html.escape(operation.summary)}{token}</summary>"
        f"{table}<pre>{example}</pre></details>"
    )


def _choices(param: Param) -> str:
    several = ", one or more with commas" if param.many else ""
    return f"{several}: {html.escape(', '.join(param.choices))}" if param.choices else ""
