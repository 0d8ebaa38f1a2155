"""The operations of an API as a table: each row defines routes, typed parameters and body, role and OpenAPI entry.

Operation(method="GET", path="/api/v1/pods/{name}", summary="one pod", answer=PodBody, handler=pod)

async def pod(call: HttpCall[PodQuery, None]) -> PodBody: ...
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import NoneType
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar, get_args

import msgspec
from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, compile_path

from vgpuscope.http import answers, parameters
from vgpuscope.http.answers import CSV, JSON
from vgpuscope.http.browser import COOKIE, from_another_site
from vgpuscope.http.media import check_json
from vgpuscope.http.negotiation import prefers
from vgpuscope.http.parameters import NoQuery, Param
from vgpuscope.model.caller import Caller, Role
from vgpuscope.model.errors import BodyInvalid, Forbidden

Q = TypeVar("Q", bound=Struct)
B = TypeVar("B")
Method: TypeAlias = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Access: TypeAlias = Literal["role", "guarded", "open"]
EVENTS = "text/event-stream"
_PRIVATE = {"cache-control": "private, no-cache"}  # no cache may give it to another caller
_NO_STORE = {"cache-control": "no-store"}


class RequestFacts(Struct, frozen=True, kw_only=True):
    """What the operations of a session know of the request itself."""

    peer: str = ""
    secure: bool = False  # the browser's connection is encrypted
    foreign: bool = False  # a page of another site sent the request
    session: str = ""  # the session's cookie


class HttpCall(Struct, Generic[Q, B], frozen=True, kw_only=True):
    """One request that passed every check: its caller, parameters and body, and the media type to answer with."""

    caller: Caller
    asked: Q
    body: B
    media: str = JSON  # one that the operation offers
    connection: RequestFacts = RequestFacts()

    @property
    def csv(self) -> bool:
        return self.media == CSV


class Operation(Struct, frozen=True, kw_only=True):
    """One method of one path. The handler's value is sent as JSON unless it is an HttpAnswer, a Content or a Stream."""

    method: Method
    path: str
    summary: str
    handler: Callable[[HttpCall[Any, Any]], Awaitable[Any]]
    body_shown: Any = None  # the type of the body in the OpenAPI document, if the handler checks a stricter one
    answer: Any = Any  # the type of the response's body
    or_else: Any = None  # the body's type if the request asks for the alternative
    role: Role = "read"  # the role that the caller needs
    access: Access = "role"  # guarded: credentials of the web configuration, if it has any, and no role; open: neither
    scoped: bool = (
        False  # the handler shows a caller only what its namespaces allow; if not, restricted callers get 403
    )
    unlimited: bool = False  # not counted by the rate limits
    media: tuple[str, ...] = (JSON,)
    status: int = 200
    statuses: tuple[int, ...] = ()  # error statuses, besides the common ones
    same_body: tuple[int, ...] = ()  # statuses that have the body of a good answer
    checked: bool = True  # by this module; False: /metrics and the health checks, which ignore parameters
    no_store: bool = False  # the answer is never cached, and has no ETag
    headers: Mapping[str, str] = {}  # of the answer: name → meaning
    stamp: Callable[[], Mapping[str, str]] = dict  # headers of every answer, computed for each request
    hidden: bool = False  # not in the OpenAPI document: files of a page

    @property
    def changes(self) -> bool:
        return self.role != "read"

    @property
    def public(self) -> bool:
        """Whether no role is needed, not even where reading is protected."""
        return self.access != "role"

    @property
    def streams(self) -> bool:
        return EVENTS in self.media

    @property
    def tagged(self) -> bool:
        """Whether the answer has an ETag, and is a 304 for a client that has it."""
        return self.method == "GET" and self.checked and not (self.changes or self.streams or self.no_store)

    @property
    def query(self) -> type[Struct]:
        """The struct with the operation's parameters."""
        return _declared(self.handler)[0]

    @property
    def body(self) -> Any:
        """The type of the request's body; None: the operation takes no body."""
        found = _declared(self.handler)[1]
        return None if found is NoneType else found

    @property
    def body_required(self) -> bool:
        return self.body is not None and NoneType not in get_args(self.body)


def _declared(handler: Callable[..., Any]) -> tuple[type[Struct], Any]:
    """Parameters and body, from the annotation of the handler's first argument: HttpCall[PodQuery, None]."""
    first = next(iter(handler.__annotations__.values()), None)
    query, body = get_args(first) or (NoQuery, NoneType)
    return query, body


class Admission(Protocol):
    """Decides whether a caller may run an operation."""

    def admit(self, request: Request, operation: Operation) -> Caller:
        """The caller; raises if the caller lacks the role or exceeds its rate limit."""


class RoleAdmission:
    """Admits callers by their role alone: for services without credentials of their own."""

    def admit(self, request: Request, operation: Operation) -> Caller:
        caller = caller_of(request)
        if not (operation.public or caller.may(operation.role)):
            raise HTTPException(401)
        return caller


def caller_of(request: Request) -> Caller:
    """The caller of a request, as the application has identified it."""
    found: Caller = request.scope["caller"]
    return found


def check_scope(caller: Caller, operation: Operation) -> None:
    """403 for a caller that is restricted to namespaces, if the operation cannot hide the others."""
    if caller.restricted and not (operation.scoped or operation.public):
        raise Forbidden(
            f"{caller.name!r} has the namespaces {', '.join(caller.namespaces or ())}, and this concerns all of them"
        )


def routes(operations: Sequence[Operation], admission: Admission | None = None) -> list[Route]:
    """A route for each path, with the methods that it answers; all others are 405, with these in `Allow`."""
    by_path: dict[str, dict[str, _Endpoint]] = {}
    for operation in operations:
        endpoint = _Endpoint(operation, admission or RoleAdmission())
        by_path.setdefault(operation.path, {})[operation.method] = endpoint
    return [_route(path, endpoints) for path, endpoints in by_path.items()]


def _route(path: str, endpoints: "Mapping[str, _Endpoint]") -> Route:
    made = Route(path, _dispatch(endpoints), methods=list(endpoints))
    heads = {"HEAD"} if "GET" in endpoints and not endpoints["GET"].refuses_head else set()
    made.methods = {*endpoints, *heads}  # Starlette allows HEAD wherever it allows GET
    return made


def open_paths(operations: Sequence[Operation]) -> Callable[[str], bool]:
    """Whether a path is one of the operations that need no credentials at all."""
    found = [compile_path(one.path)[0] for one in operations if one.access == "open"]
    return lambda path: any(pattern.match(path) for pattern in found)


def links(operations: Sequence[Operation]) -> list[tuple[str, str]]:
    """The links of the index page: the documents that a browser can open."""
    shown = [o for o in operations if o.method == "GET" and "{" not in o.path and not (o.hidden or o.changes)]
    return [(operation.path, operation.summary) for operation in shown]


def _dispatch(endpoints: "Mapping[str, _Endpoint]") -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        return await endpoints["GET" if request.method == "HEAD" else request.method].serve(request)

    return endpoint


def _connection(request: Request) -> RequestFacts:
    forwarded = request.headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower()
    return RequestFacts(
        peer=request.client.host if request.client else "",
        secure=(forwarded or request.url.scheme) == "https",
        foreign=from_another_site(request),
        session=request.cookies.get(COOKIE, ""),
    )


class _Endpoint:
    """Checks a request step by step, then calls the operation's handler."""

    def __init__(self, operation: Operation, admission: Admission) -> None:
        self._operation, self._admission = operation, admission
        self._query, self._body_type = operation.query, operation.body
        self._params: tuple[Param, ...] = parameters.declared(self._query)
        self.refuses_head = operation.changes or operation.streams  # HEAD does nothing, and a stream never ends

    async def serve(self, request: Request) -> Response:
        operation = self._operation
        caller = self._admission.admit(request, operation)
        check_scope(caller, operation)
        given = request.query_params.multi_items()
        asked = parameters.read(self._query, self._params, given, request.path_params)
        media = self._media(request, asked)
        body = await self._body(request) if self._body_type is not None else None
        answer = await operation.handler(
            HttpCall(caller=caller, asked=asked, body=body, media=media, connection=_connection(request))
        )
        if isinstance(answer, Response):  # a stream, or a session's cookie
            answer.headers.update(operation.stamp())
            return answer
        return await answers.respond(
            request,
            answer,
            asked=(asked, media, caller.namespaces),
            status=operation.status,
            headers={
                **operation.stamp(),
                **(_PRIVATE if caller.restricted else {}),
                **({} if operation.tagged else _NO_STORE),
            },
        )

    def _media(self, request: Request, asked: Struct) -> str:
        """CSV if the operation offers it and `format` asks for it, or the Accept header prefers it."""
        first = self._operation.media[0]
        if CSV not in self._operation.media:
            return first
        if (chosen := getattr(asked, "format", None)) is not None:
            return CSV if chosen == "csv" else JSON
        return CSV if prefers(request.headers.get("accept", ""), CSV, over=JSON) else first

    async def _body(self, request: Request) -> Any:
        content = await request.body()
        if not content.strip() and not self._operation.body_required:
            return None
        check_json(request.headers)
        try:
            return _decoded(content, self._body_type)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
            raise BodyInvalid(f"the body: {e}") from e


def _decoded(content: bytes, to: Any) -> Any:
    """A body as its type. For JSON Schema 307.0 is an integer, and some clients write whole numbers like this."""
    try:
        return msgspec.json.decode(content, type=to)
    except msgspec.ValidationError:
        return msgspec.convert(_with_integers(msgspec.json.decode(content)), to)


def _with_integers(value: Any) -> Any:
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {key: _with_integers(one) for key, one in value.items()}
        case list():
            return [_with_integers(one) for one in value]
        case _:
            return value
