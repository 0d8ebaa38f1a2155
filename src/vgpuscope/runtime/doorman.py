"""Who may change something, and how often one client may ask.

Changing needs the token. Without one, changes are taken on a loopback listener only, and there not from a page of
another site that a browser happens to show: neither by a cross-site request nor under a foreign name for this host.
"""

import hmac
import ipaddress
import time
from collections import OrderedDict

from starlette.exceptions import HTTPException
from starlette.requests import Request

from vgpuscope.model.errors import ReadOnly

_CLIENTS = 4096  # whose requests are counted; the longest silent is forgotten first
_BURST = 4.0  # seconds of the allowed rate that may come at once


class Doorman:
    """Lets requests in, or raises."""

    def __init__(
        self, *, listen_host: str, token: str | None, protect_reads: bool, user_header: str | None, rate: float
    ) -> None:
        self._token = token
        self._protect_reads = protect_reads
        self._user_header = user_header
        self._loopback = _is_loopback(listen_host)
        self._bucket = _Buckets(rate=rate, burst=max(1.0, rate * _BURST))

    @property
    def read_only(self) -> bool:
        """Whether nobody can change anything here."""
        return not (self._token or self._loopback or self._user_header)

    def admit(self, request: Request, *, changes: bool, open_to_all: bool = False) -> None:
        """Nothing, if the request may pass; else 401, 403 or 429."""
        if not self._bucket.take(request.client.host if request.client else "", time.monotonic()):
            raise HTTPException(429, headers={"retry-after": "1"})
        if open_to_all or not (changes or self._protect_reads):
            return
        if self._knows_token(request) or self.user(request):
            return
        if self._token or self._user_header:
            raise HTTPException(401, headers={"www-authenticate": 'Bearer realm="vgpuscope"'})
        if not changes:
            return
        if not self._loopback:
            raise ReadOnly("this listener is read-only: it is not on a loopback address, and no token is set")
        if _from_another_site(request):
            raise ReadOnly("a page of another site may not change anything here")

    def user(self, request: Request) -> str:
        """The user that the authenticating proxy names; "" when no proxy is believed, or it names none."""
        return request.headers.get(self._user_header, "")[:253] if self._user_header else ""

    def _knows_token(self, request: Request) -> bool:
        kind, _, value = request.headers.get("authorization", "").partition(" ")
        given = value.strip().encode()
        return self._token is not None and kind.lower() == "bearer" and hmac.compare_digest(given, self._token.encode())


class _Buckets:
    """A bucket of tokens for each client, filled at a steady rate."""

    def __init__(self, *, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str, now: float) -> bool:
        left, at = self._left.pop(client, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._rate)
        allowed = left >= 1
        self._left[client] = (left - 1 if allowed else left, now)
        if len(self._left) > _CLIENTS:
            self._left.popitem(last=False)
        return allowed


def _from_another_site(request: Request) -> bool:
    if request.headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        return True
    return not _is_loopback(request.url.hostname or "")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
