"""Bearer tokens: how a request presents one, and whether it is one that we know. Tokens are kept as digests only."""

import hashlib
import hmac
from collections.abc import Iterable


def credentials(authorization: bytes) -> tuple[bytes, bytes]:
    """Scheme, in lower case, and value of an Authorization header; both empty when there is none."""
    scheme, _, value = authorization.partition(b" ")
    return scheme.lower(), value.strip()


def digest(token: bytes) -> bytes:
    """What is kept of a token."""
    return hashlib.sha256(token).digest()


def known(token: bytes, digests: Iterable[bytes]) -> bool:
    """Whether the token has one of these digests. All of them are compared, each in constant time.

    So the time of an answer shows neither which token is similar nor how many characters are right.
    """
    given = digest(token)
    return bool(sum(hmac.compare_digest(given, one) for one in digests))
