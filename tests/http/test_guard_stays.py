"""A web configuration that loses its credentials or its TLS: the guard stays closed, over real sockets."""

import hashlib

import pytest
import trustme

from tests.http.serving import served
from tests.http.test_guard import PASSWORD, TLS, TOKEN, Folder, hashed, status, trusting
from vgpuscope.model.errors import WebConfigInvalid

pytestmark = pytest.mark.attack

DIGEST = hashlib.sha256(TOKEN.encode()).hexdigest()
TOKENS = f"bearer_tokens:\n  - name: prometheus\n    sha256: {DIGEST}\n"
USERS = f"basic_auth_users:\n  me: {hashed(PASSWORD)}\n"
EMPTIED = [
    "",
    "\n",
    "# tokens are rotated\n",
    "{}",
    "bearer_tokens: []",
    "bearer_tokens:",
    "basic_auth_users: {}",
    "basic_auth_users:\n",
    "rate_limit: {interval: 1s, burst: 9}",
    "http_server_config: {headers: {X-Frame-Options: deny}}",
    "unguarded: false",
]


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def look(guard, times=4):
    """The server looks once a second."""
    return [guard.refresh() for _ in range(times)]


@pytest.mark.parametrize("emptied", EMPTIED)
async def test_an_emptied_file_does_not_open_a_guarded_service(folder, emptied):
    errors: list = []
    guard = folder.write(TOKENS).guard(on_error=errors.append)
    async with served(guard=guard) as server:
        folder.write(emptied)
        assert look(guard) == [False] * 4
        assert await status(server.url) == 401
        assert await status(server.url, token=TOKEN) == 200
        assert [error.code for error in errors] == ["WEB_CONFIG_INVALID"]
        folder.write(USERS)
        assert any(look(guard))
        assert [await status(server.url, **who) for who in ({}, {"auth": ("me", PASSWORD)})] == [401, 200]


@pytest.mark.parametrize("without", [TOKENS, "unguarded: false\n" + TOKENS])
async def test_a_reload_does_not_turn_tls_off(folder, without):
    authority = trustme.CA()
    guard = folder.certificate(authority).write(TLS + TOKENS).guard()
    async with served(guard=guard) as server:
        folder.write(without)
        assert not any(look(guard))
        assert await status(server.url, context=trusting(authority), token=TOKEN) == 200
        assert await status(server.url.replace("https", "http"), token=TOKEN) is None


def test_a_reload_does_not_drop_client_certificates_if_nothing_else_is_needed(folder):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder.path / "ca.pem")
    verified = TLS.replace("}", ", client_ca_file: ca.pem, client_auth_type: RequireAndVerifyClientCert}")
    guard = folder.certificate(authority).write(verified).guard()
    before = guard.web
    folder.write(TLS)
    assert not any(look(guard))
    assert guard.web is before
    folder.write(TLS + TOKENS)
    assert any(look(guard))
    guard.close()


@pytest.mark.parametrize("whole", [TOKENS + USERS, TLS + USERS + TOKENS, TLS + TOKENS], ids=["plain", "both", "tls"])
def test_no_first_part_of_a_file_opens_the_service(folder, whole):
    guard = folder.certificate(trustme.CA()).write(whole).guard()
    tls = guard.web.tls is not None
    for length in range(len(whole)):
        folder.write(whole[:length])
        look(guard, 2)
        assert guard.web.guarded, whole[:length]
        assert (guard.web.tls is not None) is tls, whole[:length]
    guard.close()


def test_a_file_is_taken_when_it_is_settled(folder):
    first, second = ("a" * 64, "b" * 64)
    more = TOKENS + f"  - name: other\n    sha256: {first}\n"
    guard = folder.write(more).guard()
    folder.write(TOKENS)  # the first part of what is being written
    assert not guard.refresh()
    folder.write(more.replace(first, second))
    assert not guard.refresh()
    assert len(guard.web.tokens) == 2
    assert guard.refresh()
    assert len(guard.web.tokens) == 2
    guard.close()


def test_a_file_that_is_broken_for_one_look_is_no_error(folder):
    guard = folder.write(TOKENS).guard()
    folder.write("bearer_tokens: [")
    assert not guard.refresh()
    folder.write(USERS)
    assert any(look(guard))
    assert guard.failures == 0
    guard.close()


@pytest.mark.parametrize("given", [TOKENS, TLS, TLS + TOKENS], ids=["tokens", "tls", "both"])
def test_a_service_is_opened_on_purpose(folder, given):
    guard = folder.certificate(trustme.CA()).write(given).guard()
    folder.write("unguarded: true")
    assert any(look(guard))
    assert not guard.web.protections
    guard.close()


@pytest.mark.parametrize("emptied", EMPTIED)
def test_a_named_file_that_protects_nothing_is_refused_at_the_start(folder, emptied):
    with pytest.raises(WebConfigInvalid, match="neither users, tokens nor TLS") as refused:
        folder.write(emptied).guard()
    assert "unguarded: true" in refused.value.advice
