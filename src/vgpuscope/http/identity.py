"""Identity: which caller a request comes from, and whether that caller has the role an operation needs.

Ways of identification are asked one after the other, and the first that knows the request's credentials decides:

API token ─► tokens and users of the web configuration ─► session ─► user named by a proxy ─► program on this machine

A request that none of them knows comes from anyone. To add a way, add an Authenticator. Handlers see the Caller only.

A browser sends some credentials with a request from any page, and reaches a loopback address under any host name. So a
request from a page of another site has at most the role `read`, unless it carries a token.
"""

from typing import Literal, Protocol

from msgspec.structs import replace
from starlette.exceptions import HTTPException
from starlette.requests import Request

from vgpuscope.http import tokens
from vgpuscope.http.address import is_loopback
from vgpuscope.http.browser import from_another_site, host, through_proxy
from vgpuscope.http.tokens import KnownToken
from vgpuscope.model.caller import ANYONE, NOBODY, RANK, Caller, Role
from vgpuscope.model.errors import Forbidden, ReadOnly

_LONGEST_NAME = 253


class Authenticator(Protocol):
    """One way to identify callers."""

    @property
    def ambient(self) -> bool:
        """Whether a browser sends these credentials automatically, also with requests from pages of other sites."""

    @property
    def highest(self) -> Role | None:
        """The highest role of its callers; None: it has no callers, because it is not configured."""

    async def caller(self, request: Request) -> Caller | None:
        """The caller; None: the request has no credentials of this kind, or wrong ones."""


class WebGuard(Protocol):
    """The users and tokens of a web configuration file; they can change at any time."""

    @property
    def guarded(self) -> bool:
        """Whether every request needs credentials."""

    @property
    def ways(self) -> tuple[Authenticator, ...]: ...

    @property
    def fingerprint(self) -> bytes:
        """A digest of all users and tokens; it changes when one of them does."""


class ApiToken:
    """The token of the analyzer's settings."""

    ambient = False

    def __init__(self, token: str | None, caller: Caller) -> None:
        self._known = (KnownToken(digest=tokens.digest(token.encode()), caller=caller),) if token else ()

    @property
    def highest(self) -> Role | None:
        return self._known[0].caller.role if self._known else None

    @property
    def fingerprint(self) -> bytes:
        """A digest of the token and its caller."""
        return tokens.fingerprint(self._known)

    async def caller(self, request: Request) -> Caller | None:
        return tokens.holder(tokens.bearer(authorization(request)), self._known)


class ProxyUser:
    """A user that an authenticating proxy names in a header."""

    ambient = True

    def __init__(self, header: str | None, guard: WebGuard | None, role_header: str | None = None) -> None:
        """`role_header`: the header with the user's role; None: every user has the role `admin`."""
        self._header, self._guard, self._role_header = header, guard, role_header

    @property
    def highest(self) -> Role | None:
        return "admin" if self._header and not _guarded(self._guard) else None

    async def caller(self, request: Request) -> Caller | None:
        """With credentials in the web configuration the proxy needs some itself: anyone can send a header."""
        name = self.name(request)
        return Caller(name=name, role=self._role(request)) if name and not _guarded(self._guard) else None

    def _role(self, request: Request) -> Role:
        """As the proxy says; an unknown role is the lowest."""
        if self._role_header is None:
            return "admin"
        named = request.headers.get(self._role_header, "").strip().lower()
        return next((role for role in RANK if role == named), "read")

    def name(self, request: Request) -> str:
        """The named user; "" when no proxy is trusted, or it names none."""
        return request.headers.get(self._header, "")[:_LONGEST_NAME] if self._header else ""


class Identity:
    """Maps a request to its caller, and checks the caller's role."""

    def __init__(
        self,
        *,
        guard: WebGuard | None = None,
        api_token: ApiToken | None = None,
        session: Authenticator | None = None,
        user_header: str | None = None,
        role_header: str | None = None,
        protect_reads: bool = False,
        listen_host: str | None = "",
    ) -> None:
        """`listen_host`: a program on this machine has every role if this is a loopback address.

        None: the listener is another server's. Then each connection shows whether it is a loopback connection.
        """
        self._guard, self._protect_reads = guard, protect_reads
        self._proxy = ProxyUser(user_header, guard, role_header)
        self._ways: tuple[Authenticator, ...] = (
            *((api_token,) if api_token else ()),
            *(guard.ways if guard else ()),
            *((session,) if session else ()),
            self._proxy,
        )
        self._asked: tuple[Authenticator, ...] = (*((api_token,) if api_token else ()), *(guard.ways if guard else ()))
        self._hosted = listen_host is None
        self._loopback = listen_host is None or is_loopback(listen_host)

    @property
    def read_only(self) -> bool:
        """Whether no caller can have more than the role `read` here."""
        known = [way.highest for way in self._ways if way.highest is not None]
        return all(role == "read" for role in known) if known else not self._loopback

    async def caller(self, request: Request) -> Caller:
        """The caller of a request; a request without credentials has the caller `anyone`."""
        for way in self._ways:
            found = await way.caller(request)
            if found is not None:
                return self._within_site(way, found, request)
        if (
            self._open
            and self._loopback
            and (not self._hosted or _on_loopback(request))
            and _from_this_machine(request)
        ):
            return Caller(name="loopback", role="admin")
        return NOBODY if self._protect_reads or _guarded(self._guard) else ANYONE

    async def known(self, request: Request) -> Caller | None:
        """The caller of credentials that were typed in; None: they are wrong."""
        for way in self._asked:
            if found := await way.caller(request):
                return found
        return None

    def named_only(self, request: Request) -> bool:
        """Whether only a header names the caller: a page can send it, too, if it is of this site by its name."""
        return self._proxy.highest is not None and bool(self._proxy.name(request)) and not authorization(request)

    def refuses(self, request: Request) -> bool:
        """Whether a request, known to nobody, sends a token that is wrong here.

        A token that came through a proxy was meant for the proxy, and without tokens there is none to compare with.
        """
        sent = bool(tokens.bearer(authorization(request)))
        return sent and "token" in self.login_ways and not through_proxy(request)

    def checks(self, request: Request) -> bool:
        """Whether credentials of this kind, a token or a password, are configured."""
        scheme, _ = tokens.credentials(authorization(request))
        return {b"bearer": "token", b"basic": "password"}.get(scheme) in self.login_ways

    @property
    def login_ways(self) -> tuple[Literal["token", "password"], ...]:
        """With what a user can log in."""
        open_to = {"password" if way.ambient else "token" for way in self._asked if way.highest is not None}
        return tuple(one for one in ("token", "password") if one in open_to)

    @property
    def can_log_in(self) -> bool:
        """Whether there is a token or a password to log in with."""
        return bool(self.login_ways)

    def check(self, caller: Caller, role: Role, request: Request) -> None:
        """401, or 403 when no credentials would help, for a caller without this role."""
        if caller.may(role):
            return
        if caller not in (ANYONE, NOBODY):
            raise Forbidden(_lacks(caller, role, request))
        if not self._open:
            raise HTTPException(401, headers={"www-authenticate": 'Bearer realm="vgpuscope"'})
        raise ReadOnly(_PAGE if self._loopback and from_another_site(request) else self._why_read_only)

    @property
    def _open(self) -> bool:
        """Whether no credential is configured."""
        return all(way.highest is None for way in self._ways)

    @property
    def _why_read_only(self) -> str:
        if self._hosted:
            return "this request does not come directly from this machine, and no token is set"
        if self._loopback:
            return "this request came through a proxy, not from this machine, and no token is set"
        return "this listener is read-only: it is not known to be on a loopback address, and no token is set"

    def _within_site(self, way: Authenticator, found: Caller, request: Request) -> Caller:
        """A proxy that has credentials itself names its user; role and namespaces stay those of its credentials."""
        named = self._proxy.name(request) if _guarded(self._guard) and not isinstance(way, ApiToken) else ""
        if named:
            found = replace(found, name=named)
        return found.at_most("read") if (way.ambient or named) and from_another_site(request) else found


def authorization(request: Request) -> bytes:
    """The Authorization header; empty if there is none."""
    return request.headers.get("authorization", "").encode("latin-1")


def _guarded(guard: WebGuard | None) -> bool:
    return guard is not None and guard.guarded


_PAGE = "a page of another site may not change anything here"


def _lacks(caller: Caller, role: Role, request: Request) -> str:
    if from_another_site(request):
        return _PAGE
    return f"{caller.name!r} has the role {caller.role}, and this needs the role {role}"


def _from_this_machine(request: Request) -> bool:
    return is_loopback(host(request)) and not from_another_site(request) and not through_proxy(request)


def _on_loopback(request: Request) -> bool:
    """Whether both ends of the connection have loopback addresses; a server that does not tell them is elsewhere."""
    ends = (request.scope.get("client"), request.scope.get("server"))
    return all(end is not None and is_loopback(str(end[0])) for end in ends)
