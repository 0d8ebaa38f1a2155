"""Who may change something, and how often one client may ask.

Changing needs the token. Without one, changes are taken on a loopback listener only. Neither there nor from a user that
a proxy names are they taken from a page of another site that a browser happens to show: a browser sends a proxy's
cookie along with it, and reaches a loopback address whatever name that site has for it.
"""

import ipaddress
import math
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request

from vgpuscope.http import tokens
from vgpuscope.http.ratelimit import RateLimiter
from vgpuscope.model.errors import ConfigInvalid, ReadOnly
from vgpuscope.model.quantity import Seconds

_BURST = 4.0  # seconds of the allowed rate that may come at once


class Doorman:
    """Lets requests in, or raises."""

    def __init__(
        self,
        *,
        listen_host: str,
        token: str | None,
        protect_reads: bool,
        user_header: str | None,
        rate: float,
        clock: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        """ConfigInvalid when reading is to be protected and nothing is there to know readers by."""
        if protect_reads and not (token or user_header):
            raise ConfigInvalid(
                "analyzer.protect_reads: reading is to need the token, but there is none",
                hint="Set VGPUSCOPE_API_TOKEN, or analyzer.proxy_user_header behind an authenticating proxy.",
            )
        self._tokens = (tokens.digest(token.encode()),) if token else ()
        self._protect_reads = protect_reads
        self._user_header = user_header
        self._loopback = _is_loopback(listen_host)
        self._interval, self._burst, self._clock = 1 / rate, max(1.0, rate * _BURST), clock
        self._limiter = RateLimiter()

    @property
    def read_only(self) -> bool:
        """Whether nobody can change anything here."""
        return not (self._tokens or self._loopback or self._user_header)

    def admit(self, request: Request, *, changes: bool, open_to_all: bool = False) -> None:
        """Nothing, if the request may pass; else 401, 403 or 429."""
        client = request.client.host if request.client else ""
        wait = self._limiter.wait(client, interval=self._interval, burst=self._burst, now=self._clock())
        if wait:
            raise HTTPException(429, headers={"retry-after": str(math.ceil(wait))})
        if open_to_all or not (changes or self._protect_reads) or self._knows_token(request):
            return
        if self.user(request):
            if changes and _from_another_site(request):
                raise ReadOnly("a page of another site may not change anything here")
            return
        if self._tokens or self._user_header:
            raise HTTPException(401, headers={"www-authenticate": 'Bearer realm="vgpuscope"'})
        if not self._loopback:
            raise ReadOnly("this listener is read-only: it is not on a loopback address, and no token is set")
        if _from_another_site(request) or not _is_loopback(_host(request)):
            raise ReadOnly("a page of another site may not change anything here")

    def user(self, request: Request) -> str:
        """The user that the authenticating proxy names; "" when no proxy is believed, or it names none."""
        return request.headers.get(self._user_header, "")[:253] if self._user_header else ""

    def _knows_token(self, request: Request) -> bool:
        kind, value = tokens.credentials(request.headers.get("authorization", "").encode())
        return kind == b"bearer" and tokens.known(value, self._tokens)


def _from_another_site(request: Request) -> bool:
    """As the browser says; a program that is none says nothing."""
    if request.headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        return True
    origin = request.headers.get("origin")
    return origin is not None and _host_of(origin) != _host(request)


def _host(request: Request) -> str:
    return _host_of(f"//{request.headers.get('host', '')}")


def _host_of(url: str) -> str:
    """The host of an address; "" when it is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
