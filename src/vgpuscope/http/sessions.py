"""Sessions of browsers: credentials are sent once, then a signed cookie that scripts cannot read stands for them.

The cookie holds the caller and when it ends; nothing is stored here, so every replica with the same key accepts it.
It is bound to all configured credentials: when one of them changes, every session ends.
"""

import base64
import binascii
import hmac
import time
from collections.abc import Callable
from hashlib import sha256

import msgspec
from msgspec import Struct
from starlette.requests import Request

from vgpuscope.http.browser import COOKIE
from vgpuscope.model.caller import Caller, Role
from vgpuscope.model.quantity import Seconds, UnixTime

_LONGEST = 4000  # characters; browsers keep no longer cookies


class _Content(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    role: Role
    namespaces: tuple[str, ...] | None
    ends: UnixTime
    bound: str


class OpenSession(Struct, frozen=True, kw_only=True):
    """A session that is valid now."""

    caller: Caller
    ends: UnixTime


class Sessions:
    """Makes and reads session cookies."""

    def __init__(
        self, key: bytes, *, lifetime: Seconds, bound: Callable[[], bytes], clock: Callable[[], UnixTime] = time.time
    ) -> None:
        """`bound` returns a digest of all credentials that are configured now."""
        self._key, self.lifetime, self._bound, self._clock = key, lifetime, bound, clock

    def make(self, caller: Caller) -> tuple[str, OpenSession]:
        """The value of a cookie for this caller, and its session."""
        assert caller.role is not None
        ends = float(int(self._clock() + self.lifetime))
        content = _Content(
            name=caller.name, role=caller.role, namespaces=caller.namespaces, ends=ends, bound=self._bound().hex()
        )
        body = _text(msgspec.json.encode(content))
        return f"{body}.{_text(self._signature(body))}", OpenSession(caller=caller, ends=ends)

    def read(self, cookie: str) -> OpenSession | None:
        """The session of a cookie; None: it is not ours, has ended, or the credentials have changed since."""
        body, _, signature = cookie[:_LONGEST].partition(".")
        try:
            if not hmac.compare_digest(_bytes(signature), self._signature(body)):
                return None
            content = msgspec.json.decode(_bytes(body), type=_Content)
        except (binascii.Error, ValueError):  # msgspec's errors are ValueErrors
            return None
        if content.ends <= self._clock() or content.bound != self._bound().hex():
            return None
        caller = Caller(name=content.name, role=content.role, namespaces=content.namespaces)
        return OpenSession(caller=caller, ends=content.ends)

    def _signature(self, body: str) -> bytes:
        return hmac.digest(self._key, body.encode(), "sha256")


class SessionCookie:
    """The way of identification by a session. It accepts only what another way has accepted before."""

    ambient = True
    highest: Role | None = None

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def caller(self, request: Request) -> Caller | None:
        cookie = request.cookies.get(COOKIE)
        found = self._sessions.read(cookie) if cookie else None
        return found.caller if found else None


def set_cookie(value: str, *, lifetime: Seconds, secure: bool) -> str:
    """The Set-Cookie header that begins a session, or with an empty value ends it."""
    kept = f"Max-Age={int(lifetime) if value else 0}"
    return f"{COOKIE}={value}; Path=/; {kept}; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"


def session_key(configured: str | None, api_token: str | None) -> bytes | None:
    """The key that signs cookies: as configured, or made from the API token; None: neither is set."""
    if configured:
        return sha256(configured.encode()).digest()
    if api_token:
        return hmac.digest(api_token.encode(), b"vgpuscope session", "sha256")
    return None


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text.encode() + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
