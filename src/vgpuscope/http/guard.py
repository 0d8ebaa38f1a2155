"""Who may come in: the web configuration in effect, renewed while we run, and its judgement of each request."""

import asyncio
import base64
import binascii
import hmac
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import bcrypt

from vgpuscope.http import webconfig
from vgpuscope.http.client_limits import TokenBucket
from vgpuscope.http.identity import known_token
from vgpuscope.model.errors import ScopeError, WebConfigInvalid
from vgpuscope.runtime.log import OnChange, error_fields

log = logging.getLogger(__name__)

OK, UNAUTHORIZED, TOO_MANY = 200, 401, 429
_REMEMBERED = 256
_WAITING = 8  # passwords being checked or waiting for it; each costs up to seconds of CPU
_LONGEST = 72  # bytes of a password that bcrypt takes into account


class Guard:
    """Judges requests by a web configuration file; a broken new file leaves the last good one in force."""

    def __init__(self, path: str, *, on_error: Callable[[ScopeError], None] = lambda _: None) -> None:
        self._path = path
        self._on_error = on_error
        self._changes = OnChange(log)
        self._passwords = _Passwords()
        self._bucket = TokenBucket()
        self.failures = 0
        self._files = webconfig.Files(path)
        self.web = webconfig.read(path, self._files)

    def refresh(self) -> bool:
        """Take over what changed in the files; whether anything did. Never raises, keeps the last good state."""
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
        """200 for a request that may pass, else the status to answer with."""
        web = self.web
        if web.interval and self._bucket.take(rate=1 / web.interval, burst=web.burst, now=time.monotonic()):
            return TOO_MANY
        if not web.guarded:
            return OK
        kind, _, value = _authorization(headers).partition(b" ")
        if kind.lower() == b"bearer":
            return OK if known_token(value.strip(), (digest for _, digest in web.tokens)) else UNAUTHORIZED
        if kind.lower() == b"basic" and web.users:
            return await self._passwords.judge(value.strip(), web.users)
        return UNAUTHORIZED

    def allows_client(self, certificate: dict[str, Any] | None) -> bool:
        """Whether a client with this verified certificate may connect."""
        return webconfig.client_allowed(certificate, self.web.client_sans)

    def challenges(self) -> list[tuple[bytes, bytes]]:
        """What a 401 asks for."""
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
    """Checks passwords away from the event loop, one at a time, and remembers the answers under a keyed hash."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._good: OrderedDict[bytes, bool] = OrderedDict()
        self._bad: OrderedDict[bytes, bool] = OrderedDict()  # apart, so that guessing cannot push out who is known
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="bcrypt")
        self._waiting = 0

    async def judge(self, credentials: bytes, users: dict[str, bytes]) -> int:
        try:
            name, _, password = base64.b64decode(credentials, validate=True).partition(b":")
            user = name.decode()
        except (binascii.Error, UnicodeDecodeError):
            return UNAUTHORIZED
        known = users.get(user)
        hashed = known or max(users.values(), key=lambda h: h[4:6])  # a stranger costs as much time as a user
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
            answer = await asyncio.get_running_loop().run_in_executor(self._thread, _matches, password, hashed)
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
        self._thread.shutdown(wait=False, cancel_futures=True)


def _authorization(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return next((value for name, value in headers if name == b"authorization"), b"")


def _matches(password: bytes, hashed: bytes) -> bool:
    try:
        return bcrypt.checkpw(password[:_LONGEST], hashed)
    except ValueError:  # a NUL in the password: nobody's
        return False
