"""Identity: which caller a request comes from, and whether that caller has the role an operation needs.

The token, or a user that an authenticating proxy names, has every role. If neither is configured, a program on the same
machine has every role on a loopback listener. A request from a page of another site gets none of these roles: a browser
sends the proxy's cookie with a request from any page, and reaches a loopback address under any host name.
"""

import ipaddress
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request

from vgpuscope.http import tokens
from vgpuscope.model.caller import ANYONE, Caller, Role
from vgpuscope.model.errors import ConfigInvalid, ReadOnly

_NOBODY = Caller(name="anyone", role=None)
_LONGEST_NAME = 253


class Identity:
    """Maps requests to callers by the token, the proxy's header and the listener's address."""

    def __init__(self, *, listen_host: str, token: str | None, protect_reads: bool, user_header: str | None) -> None:
        """ConfigInvalid when reading is to be protected and no credential is configured."""
        if protect_reads and not (token or user_header):
            raise ConfigInvalid(
                "analyzer.protect_reads: reading is to need the token, but there is none",
                hint="Set VGPUSCOPE_API_TOKEN, or analyzer.proxy_user_header behind an authenticating proxy.",
            )
        self._tokens = (tokens.digest(token.encode()),) if token else ()
        self._user_header = user_header
        self._without = _NOBODY if protect_reads else ANYONE
        self._loopback = is_loopback(listen_host)

    @property
    def read_only(self) -> bool:
        """Whether no caller can have more than the role `read` here."""
        return not (self._tokens or self._loopback or self._user_header)

    def caller(self, request: Request) -> Caller:
        """The caller of a request; a request without credentials has the caller `anyone`."""
        if self._has_token(request):
            return Caller(name="token", role="admin")
        if user := self._user(request):
            return Caller(name=user, role="read" if _from_another_site(request) else "admin")
        if self._open and self._loopback and _from_this_machine(request):
            return Caller(name="loopback", role="admin")
        return self._without

    def admit(self, request: Request, role: Role) -> Caller:
        """The caller, if it has this role; else 401, or 403 when no credentials would help."""
        caller = self.caller(request)
        if caller.may(role):
            return caller
        if not self._open and not self._user(request):
            raise HTTPException(401, headers={"www-authenticate": 'Bearer realm="vgpuscope"'})
        if self._open and not self._loopback:
            raise ReadOnly("this listener is read-only: it is not on a loopback address, and no token is set")
        raise ReadOnly("a page of another site may not change anything here")

    @property
    def _open(self) -> bool:
        """Whether no credential is configured."""
        return not (self._tokens or self._user_header)

    def _user(self, request: Request) -> str:
        """The user that the authenticating proxy names; "" when no proxy is trusted, or it names none."""
        return request.headers.get(self._user_header, "")[:_LONGEST_NAME] if self._user_header else ""

    def _has_token(self, request: Request) -> bool:
        scheme, value = tokens.credentials(request.headers.get("authorization", "").encode())
        return scheme == b"bearer" and tokens.known(value, self._tokens)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine under its loopback name or address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _from_this_machine(request: Request) -> bool:
    return is_loopback(_host(request)) and not _from_another_site(request)


def _from_another_site(request: Request) -> bool:
    """As the browser's headers report; a program that is not a browser sends none of them."""
    if request.headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        return True
    origin = request.headers.get("origin")
    return origin is not None and _host_of(origin) != _host(request)


def _host(request: Request) -> str:
    return _host_of(f"//{request.headers.get('host', '')}")


def _host_of(url: str) -> str:
    """The host of an address; "" when it has none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
