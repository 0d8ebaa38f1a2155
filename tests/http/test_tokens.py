"""One check of bearer tokens for the web configuration and for the API."""

import hmac

import pytest

from vgpuscope.http import tokens
from vgpuscope.http.tokens import KnownToken
from vgpuscope.model.caller import Caller

TOKENS = (b"0123456789abcdef", b"fedcba9876543210", b"a-third-token-for-tests")
DIGESTS = tuple(map(tokens.digest, TOKENS))
KNOWN = tuple(KnownToken(digest=digest, caller=Caller(name=str(i))) for i, digest in enumerate(DIGESTS))
EMPTY = KnownToken(digest=tokens.digest(b""), caller=Caller(name="empty"))


@pytest.mark.parametrize("token", TOKENS)
def test_every_known_token_is_known(token):
    assert tokens.holder(token, KNOWN) == Caller(name=str(TOKENS.index(token)))


@pytest.mark.parametrize("token", [b"", b"0123456789abcde", b"0123456789abcdef0", "ÿ".encode(), DIGESTS[0]])
def test_nothing_else_is(token):
    assert tokens.holder(token, KNOWN) is None
    assert tokens.holder(token, ()) is None


def test_no_token_is_never_a_token():
    assert tokens.holder(b"", (*KNOWN, EMPTY)) is None


def test_all_tokens_are_compared_in_constant_time_whichever_is_right(monkeypatch):
    compared = []
    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda *a: compared.append(a) or real(*a))
    for token in (*TOKENS, b"unknown"):
        compared.clear()
        tokens.holder(token, KNOWN)
        assert [one for _, one in compared] == list(DIGESTS)


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (b"", (b"", b"")),
        (b"Bearer", (b"bearer", b"")),
        (b"BEARER  x ", (b"bearer", b"x")),
        (b"Basic a b", (b"basic", b"a b")),
    ],
)
def test_scheme_and_value_of_a_header(header, found):
    assert tokens.credentials(header) == found
