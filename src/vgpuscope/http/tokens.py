"""Bearer tokens: how a request sends one, and whose it is. Tokens are kept as digests only."""

import hashlib
import hmac
from collections.abc import Iterable

from msgspec import Struct

from vgpuscope.model.caller import Caller


class KnownToken(Struct, frozen=True, kw_only=True):
    """A token that is accepted, and the caller that sends it."""

    digest: bytes
    caller: Caller


def fingerprint(known: Iterable[KnownToken]) -> bytes:
    """A digest of tokens and their callers; it changes when one of them does."""
    return hashlib.sha256(b"".join(sorted(one.digest + repr(one.caller).encode() for one in known))).digest()


def credentials(authorization: bytes) -> tuple[bytes, bytes]:
    """Scheme (in lower case) and value of an Authorization header; both empty without the header."""
    scheme, _, value = authorization.partition(b" ")
    return scheme.lower(), value.strip()


def bearer(authorization: bytes) -> bytes:
    """The token of an Authorization header; empty if it carries none."""
    scheme, value = credentials(authorization)
    return value if scheme == b"bearer" else b""


def digest(token: bytes) -> bytes:
    """The digest that is kept instead of the token."""
    return hashlib.sha256(token).digest()


def holder(token: bytes, known: Iterable[KnownToken]) -> Caller | None:
    """The caller with this token; None: it is not known. All digests are compared, each in constant time.

    So the response time reveals neither which token is similar nor how many characters are right.
    """
    given = digest(token)
    found = [one.caller for one in known if hmac.compare_digest(given, one.digest)]
    return found[0] if found and token else None
