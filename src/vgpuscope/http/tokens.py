"""Bearer tokens: how a request sends one, and whether it is known. Tokens are kept as digests only."""

import hashlib
import hmac
from collections.abc import Iterable


def credentials(authorization: bytes) -> tuple[bytes, bytes]:
    """Scheme (in lower case) and value of an Authorization header; both empty without the header."""
    scheme, _, value = authorization.partition(b" ")
    return scheme.lower(), value.strip()


def digest(token: bytes) -> bytes:
    """The digest that is kept instead of the token."""
    return hashlib.sha256(token).digest()


def known(token: bytes, digests: Iterable[bytes]) -> bool:
    """Whether the token has one of these digests. All of them are compared, each in constant time.

    So the response time reveals neither which token is similar nor how many characters are right.
    """
    given = digest(token)
    return bool(sum(hmac.compare_digest(given, one) for one in digests))
