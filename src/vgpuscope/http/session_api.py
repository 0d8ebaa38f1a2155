"""The operations of a browser's session: who am I, log in once, log out."""

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from vgpuscope.http.answers import JSON
from vgpuscope.http.identity import Identity
from vgpuscope.http.operations import HttpCall, Operation
from vgpuscope.http.parameters import NoQuery
from vgpuscope.http.sessions import OpenSession, Sessions, set_cookie
from vgpuscope.model.caller import ANYONE, Caller, Role
from vgpuscope.model.errors import BodyInvalid, Forbidden, LoginFailed
from vgpuscope.model.quantity import UnixTime

PATH = "/api/v1/session"
LoginWay: TypeAlias = Literal["token", "password"]


class Session(Struct, frozen=True, kw_only=True):
    """Who sends this request, and what the caller may do."""

    user: str | None  # null: no credentials were sent
    role: Role | None  # null: may not even read
    namespaces: tuple[str, ...] | None  # null: all
    expires: str | None  # null: not a session of a browser
    can_log_in: bool
    ways: tuple[LoginWay, ...]  # with what one can log in


class Login(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token, or a user's name and password."""

    token: str | None = None
    user: str | None = None
    password: str | None = None


class SessionApi:
    """The operations; `identity` and `sessions` return what is configured now."""

    def __init__(self, identity: Callable[[], Identity], sessions: Callable[[], Sessions]) -> None:
        self._identity, self._sessions = identity, sessions

    def operations(self) -> tuple[Operation, ...]:
        shared: dict[str, Any] = {"path": PATH, "answer": Session, "access": "open", "no_store": True}
        return (
            Operation(method="GET", summary="who sends this request", handler=self._show, **shared),
            Operation(method="POST", summary="log in", handler=self._log_in, statuses=(401, 403, 429), **shared),
            Operation(method="DELETE", summary="log out", handler=self._log_out, statuses=(403,), **shared),
        )

    async def _show(self, call: HttpCall[NoQuery, None]) -> Response:
        found = self._sessions().read(call.connection.session) if call.connection.session else None
        return _answer(self._session(call.caller, found))

    async def _log_in(self, call: HttpCall[NoQuery, Login]) -> Response:
        """Answers wrong credentials with 401, whichever part of them is wrong."""
        _check_site(call)
        caller = await self._identity().known(_request(_authorization(call.body), call.connection.peer))
        if caller is None or caller.role is None:
            raise LoginFailed("the credentials are not known")
        sessions = self._sessions()
        cookie, found = sessions.make(caller)
        made = set_cookie(cookie, lifetime=sessions.lifetime, secure=call.connection.secure)
        return _answer(self._session(caller, found), cookie=made)

    async def _log_out(self, call: HttpCall[NoQuery, None]) -> Response:
        _check_site(call)
        return _answer(self._session(ANYONE, None), cookie=set_cookie("", lifetime=0, secure=call.connection.secure))

    def _session(self, caller: Caller, found: OpenSession | None) -> Session:
        identity = self._identity()
        ends = found.ends if found and found.caller == caller else None
        return Session(
            user=None if caller.name == ANYONE.name else caller.name,
            role=caller.role,
            namespaces=caller.namespaces,
            expires=None if ends is None else _iso(ends),
            can_log_in=identity.can_log_in,
            ways=identity.login_ways,
        )


def _check_site(call: HttpCall[Any, Any]) -> None:
    """A page of another site may not log a browser in, nor out."""
    if call.connection.foreign:
        raise Forbidden("a page of another site may not change the session")


def _authorization(given: Login) -> bytes:
    if given.token and given.user is None and given.password is None:
        return b"Bearer " + given.token.strip().encode()
    if given.user and given.password is not None and given.token is None:
        return b"Basic " + base64.b64encode(f"{given.user}:{given.password}".encode())
    raise BodyInvalid("the body needs a token, or a user and a password", hint='For example {"token": "…"}.')


def _request(authorization: bytes, peer: str) -> Request:
    """A request with these credentials alone, for the ways that check them."""
    return Request({"type": "http", "headers": [(b"authorization", authorization)], "client": (peer, 0)})


def _answer(session: Session, *, cookie: str = "") -> Response:
    headers = {"cache-control": "no-store"} | ({"set-cookie": cookie} if cookie else {})
    return Response(msgspec.json.encode(session), media_type=JSON, headers=headers)


def _iso(at: UnixTime) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
