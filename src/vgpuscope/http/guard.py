"""Access control: the web configuration in effect, reloaded while the process runs, applied to each request."""

import asyncio
import base64
import binascii
import hmac
import logging
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

import bcrypt
from msgspec import Struct
from starlette.requests import Request

from vgpuscope.http import tokens, webconfig
from vgpuscope.http.identity import Authenticator, Identity, authorization
from vgpuscope.http.places import peer_of
from vgpuscope.http.ratelimit import RateLimiter
from vgpuscope.http.too_many import too_many
from vgpuscope.model.caller import RANK, Caller, Role
from vgpuscope.model.errors import ScopeError, WebConfigInvalid
from vgpuscope.model.quantity import Seconds
from vgpuscope.runtime.log import OnChange, error_fields
from vgpuscope.worker import Worker

log = logging.getLogger(__name__)

_REMEMBERED = 256
_MOST = {  # password checks that run or wait; each costs up to seconds of CPU
    "all": 16,
    "peer": 8,  # of one host
    "user": 2,  # of one user name from one host
    "unknown": 2,  # of names that no user has
}
_LONGEST = 72  # bytes of a password that bcrypt uses


class Guard:
    """The web configuration file in effect. If a new file is invalid, or opens the service, the last one stays."""

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
        self._files = webconfig.WebConfigFiles(path)
        self._looked: dict[str, bytes] | None = None  # changed files, as the last look found them
        self.web = webconfig.read(path, self._files)
        self.ways: tuple[Authenticator, ...] = (_Tokens(self), _Users(self, self._passwords))

    def refresh(self) -> bool:
        """Load the files that changed and are settled: the same in two looks, because a file may be half written.

        Returns whether any was loaded. Never raises: after an error the last valid state stays.
        """
        if not self._files.changed():
            self._looked = None
            return False
        files = webconfig.WebConfigFiles(self._path)
        loaded = self._load(files)
        settled, self._looked = files.seen == self._looked, files.seen
        if not settled:
            return False
        self._files = files
        if isinstance(loaded, WebConfigInvalid):
            self._failed(loaded)
            return False
        self.web = loaded
        self._changes.forget("broken")
        log.info("web configuration renewed", extra={"file": self._path})
        return True

    def _load(self, files: webconfig.WebConfigFiles) -> webconfig.WebConfig | WebConfigInvalid:
        try:
            web = webconfig.read(self._path, files)
            webconfig.check_kept(self.web, web, self._path)
        except WebConfigInvalid as e:
            return e
        return web

    def identity(self) -> Identity:
        """The identity of a service that knows no other callers than the guard's."""
        return Identity(guard=self)

    @property
    def guarded(self) -> bool:
        """Whether every request needs a user or a token."""
        return self.web.guarded

    @property
    def fingerprint(self) -> bytes:
        """A digest of all users and tokens; it changes when one of them does."""
        users = sorted(f"{name} {user.hash!r} {user.caller!r}" for name, user in self.web.users.items())
        return sha256(tokens.fingerprint(self.web.tokens) + "\n".join(users).encode()).digest()

    def limit(self) -> None:
        """Count one request; 429 if the rate limit of all requests together is exceeded."""
        web = self.web
        if not web.interval:
            return
        if wait := self._limiter.wait("", interval=web.interval, burst=web.burst, now=self._clock()):
            too_many(wait)

    def allows_client(self, certificate: dict[str, Any] | None) -> bool:
        """Whether a client with this verified certificate may connect."""
        return webconfig.client_allowed(certificate, self.web.client_sans)

    def challenges(self, *, to_script: bool = False) -> list[tuple[bytes, bytes]]:
        """The WWW-Authenticate headers of a 401. A script asks its user itself, so its browser should not."""
        kinds = [b'Basic realm="vgpuscope", charset="UTF-8"'] if self.web.users and not to_script else []
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


class _Tokens:
    """Bearer tokens of the web configuration."""

    ambient = False

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    @property
    def highest(self) -> Role | None:
        return _highest(one.caller for one in self._guard.web.tokens)

    async def caller(self, request: Request) -> Caller | None:
        return tokens.holder(tokens.bearer(authorization(request)), self._guard.web.tokens)


class _Users:
    """Users of the web configuration, by basic authentication."""

    ambient = True

    def __init__(self, guard: Guard, passwords: "_Passwords") -> None:
        self._guard, self._passwords = guard, passwords

    @property
    def highest(self) -> Role | None:
        return _highest(one.caller for one in self._guard.web.users.values())

    async def caller(self, request: Request) -> Caller | None:
        scheme, value = tokens.credentials(authorization(request))
        users = self._guard.web.users
        if scheme != b"basic" or not users:
            return None
        try:
            name, _, password = base64.b64decode(value, validate=True).partition(b":")
            user = users.get(name.decode())
        except (binascii.Error, UnicodeDecodeError):
            return None
        # an unknown user takes as much time as a known one
        hashed = user.hash if user else max((one.hash for one in users.values()), key=lambda found: found[4:6])
        right = await self._passwords.check(
            _Claim(name=name, password=password, hashed=hashed, known=user is not None, peer=peer_of(request.client))
        )
        return user.caller if user and right else None


def _highest(callers: Iterable[Caller]) -> Role | None:
    return max((one.role for one in callers if one.role), key=RANK.__getitem__, default=None)


class _Claim(Struct, frozen=True, kw_only=True):
    """A name and a password that a request sent, and the hash that the password must have."""

    name: bytes
    password: bytes
    hashed: bytes
    known: bool  # a user has the name
    peer: str

    def right(self) -> bool:
        try:
            return bcrypt.checkpw(self.password[:_LONGEST], self.hashed)
        except ValueError:  # bcrypt rejects a NUL in the password, so no user has this password
            return False


class _Passwords:
    """Checks passwords outside the event loop, one at a time, and caches the results under a keyed hash.

    A flood of passwords does not keep other users out: one host, and one name from it, have few of the places for
    checks. All unknown names together have fewer still; beyond that they get the same answer after a similar time,
    without a check, so that nobody learns which names are known.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._good: OrderedDict[bytes, bool] = OrderedDict()
        self._bad: OrderedDict[bytes, bool] = OrderedDict()  # separate, so that guessing cannot evict known users
        self._worker = Worker("bcrypt")
        self._checks: dict[bytes, asyncio.Future[bool]] = {}  # requests with the same password share one check
        self._unknown: list[asyncio.Future[bool]] = []  # of these, the checks of unknown names
        self._held: Counter[tuple[str, ...]] = Counter()  # places by their kind in _MOST

    async def check(self, claim: _Claim) -> bool:
        """Whether the password is right; 429 if too many checks wait."""
        key = self._digest(claim.name, claim.hashed, claim.password)
        for memory in (self._good, self._bad):
            if key in memory:
                memory.move_to_end(key)
                return memory[key]
        if key not in self._checks:
            self._begin(key, claim)
        return await asyncio.shield(self._checks[key])  # the check goes on for the others that wait for it

    def _begin(self, key: bytes, claim: _Claim) -> None:
        held: tuple[tuple[str, ...], ...] = (("user", claim.peer, claim.name.hex()), ("all",), ("peer", claim.peer))
        if any(self._held[one] >= _MOST[one[0]] for one in held):
            too_many()
        found: asyncio.Future[bool]
        if claim.known or len(self._unknown) < _MOST["unknown"]:
            found = asyncio.wrap_future(self._worker.submit(claim.right))
            self._unknown += [] if claim.known else [found]
        else:
            found, held = asyncio.ensure_future(_wrong_after(self._unknown[-1])), held[:1]
        self._checks[key] = found
        self._held.update(held)
        found.add_done_callback(lambda done: self._end(key, done, held=held))

    def _end(self, key: bytes, done: "asyncio.Future[bool]", *, held: Iterable[tuple[str, ...]]) -> None:
        del self._checks[key]
        self._held -= Counter(held)  # drops counts of 0
        self._unknown = [one for one in self._unknown if one is not done]
        if not done.cancelled() and done.exception() is None:
            self._remember(key, answer=done.result())

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


async def _wrong_after(check: "asyncio.Future[bool]") -> bool:
    await asyncio.wait([check])
    return False
