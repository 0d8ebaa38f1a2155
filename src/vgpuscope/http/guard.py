"""Access control: the web configuration in effect, reloaded while the process runs, applied to each request."""

import base64
import binascii
import hmac
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import bcrypt

from vgpuscope.http import tokens, webconfig
from vgpuscope.http.ratelimit import RateLimiter
from vgpuscope.model.errors import ScopeError, WebConfigInvalid
from vgpuscope.model.quantity import Seconds
from vgpuscope.runtime.log import OnChange, error_fields
from vgpuscope.worker import Worker

log = logging.getLogger(__name__)

OK, UNAUTHORIZED, TOO_MANY = 200, 401, 429
_REMEMBERED = 256
_WAITING = 8  # password checks running or queued; each costs up to seconds of CPU
_LONGEST = 72  # bytes of a password that bcrypt uses


class Guard:
    """Checks requests against a web configuration file; if a new file is invalid, the last valid one stays."""

    def __init__(
        self,
        path: str,
        *,
        on_error: Callable[[ScopeError], None] = lambda _: None,
        clock: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        self._path, self._clock = path, clock
        self._on_error = on_error
        self._changes = OnChange(log)
        self._passwords = _Passwords()
        self._limiter = RateLimiter()  # one limit for all requests together
        self.failures = 0
        self._files = webconfig.Files(path)
        self.web = webconfig.read(path, self._files)

    def refresh(self) -> bool:
        """Load the files that changed; whether any did. Never raises: after an error the last valid state stays."""
        if not self._files.changed():
            return False
        self._files = webconfig.Files(self._path)
        try:
            self.web = webconfig.read(self._path, self._files)
        except WebConfigInvalid as e:
            self._failed(e)
            return False
        self._changes.forget("broken")
        log.info("web configuration renewed", extra={"file": self._path})
        return True

    async def judge(self, headers: Iterable[tuple[bytes, bytes]]) -> int:
        """200 for a request that is allowed, else the status to answer with."""
        web = self.web
        if web.interval and self._limiter.wait("", interval=web.interval, burst=web.burst, now=self._clock()):
            return TOO_MANY
        if not web.guarded:
            return OK
        kind, value = tokens.credentials(_authorization(headers))
        if kind == b"bearer":
            return OK if tokens.known(value, [digest for _, digest in web.tokens]) else UNAUTHORIZED
        if kind == b"basic" and web.users:
            return await self._passwords.judge(value, web.users)
        return UNAUTHORIZED

    def allows_client(self, certificate: dict[str, Any] | None) -> bool:
        """Whether a client with this verified certificate may connect."""
        return webconfig.client_allowed(certificate, self.web.client_sans)

    def challenges(self) -> list[tuple[bytes, bytes]]:
        """The WWW-Authenticate headers of a 401."""
        kinds = [b'Basic realm="vgpuscope", charset="UTF-8"'] if self.web.users else []
        kinds += [b'Bearer realm="vgpuscope"'] if self.web.tokens else []
        return [(b"www-authenticate", kind) for kind in kinds]

    def close(self) -> None:
        self._passwords.close()

    def _failed(self, e: WebConfigInvalid) -> None:
        self.failures += 1
        self._on_error(e)
        self._changes.tell(
            "broken",
            str(e),
            level=logging.ERROR,
            message="web configuration is broken, the last good one stays in force",
            **error_fields(e),
        )


class _Passwords:
    """Checks passwords outside the event loop, one at a time, and caches the results under a keyed hash."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._good: OrderedDict[bytes, bool] = OrderedDict()
        self._bad: OrderedDict[bytes, bool] = OrderedDict()  # separate, so that guessing cannot evict known users
        self._worker = Worker("bcrypt")
        self._waiting = 0

    async def judge(self, credentials: bytes, users: dict[str, bytes]) -> int:
        try:
            name, _, password = base64.b64decode(credentials, validate=True).partition(b":")
            user = name.decode()
        except (binascii.Error, UnicodeDecodeError):
            return UNAUTHORIZED
        known = users.get(user)
        hashed = known or max(users.values(), key=lambda h: h[4:6])  # an unknown user takes as much time as a known one
        answer = await self._compare(user, password=password, hashed=hashed)
        if answer is None:
            return TOO_MANY
        return OK if answer and known is not None else UNAUTHORIZED

    async def _compare(self, user: str, *, password: bytes, hashed: bytes) -> bool | None:
        key = self._digest(user.encode(), hashed, password)
        for memory in (self._good, self._bad):
            if key in memory:
                memory.move_to_end(key)
                return memory[key]
        if self._waiting >= _WAITING:
            return None
        self._waiting += 1
        try:
            answer = await self._worker.do(lambda: _matches(password, hashed))
        finally:
            self._waiting -= 1
        self._remember(key, answer=answer)
        return answer

    def _digest(self, *parts: bytes) -> bytes:
        framed = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
        return hmac.digest(self._key, framed, "sha256")

    def _remember(self, key: bytes, *, answer: bool) -> None:
        memory = self._good if answer else self._bad
        memory[key] = answer
        if len(memory) > _REMEMBERED:
            memory.popitem(last=False)

    def close(self) -> None:
        self._worker.abandon()


def _authorization(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return next((value for name, value in headers if name == b"authorization"), b"")


def _matches(password: bytes, hashed: bytes) -> bool:
    try:
        return bcrypt.checkpw(password[:_LONGEST], hashed)
    except ValueError:  # bcrypt rejects a NUL in the password, so no user has this password
        return False
