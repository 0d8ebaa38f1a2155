"""Who gets in, over real HTTPS, and how that changes without a restart."""

import asyncio
import base64
import hashlib
import logging
import socket
import ssl
import threading

import bcrypt
import httpx2
import pytest
import trustme
from starlette.exceptions import HTTPException
from starlette.requests import Request

from tests.http.serving import SOON, served, until
from vgpuscope.http import guard as guards
from vgpuscope.http.guard import Guard
from vgpuscope.http.identity import Identity
from vgpuscope.model.errors import WebConfigInvalid

PASSWORD, TOKEN = "correct horse", "0123456789abcdef0123456789abcdef"


def hashed(password, cost=4):
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost)).decode()


class Folder:
    """A web configuration and its files, rewritten by the test."""

    def __init__(self, path):
        self.path = path
        self.file = path / "web.yaml"

    def write(self, text):
        self.file.write_text(text)
        return self

    def certificate(self, authority):
        cert = authority.issue_cert("127.0.0.1")
        cert.private_key_pem.write_to_path(self.path / "key.pem")
        cert.cert_chain_pems[0].write_to_path(self.path / "cert.pem")
        return self

    def guard(self, **kwargs):
        return Guard(str(self.file), **kwargs)


TLS = "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n"


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def trusting(*authorities):
    context = ssl.create_default_context()
    for authority in authorities:
        authority.configure_trust(context)
    return context


def renewed(guard):
    """Whether the files as they are now are taken: a change is taken at the second look."""
    return [guard.refresh() for _ in range(2)][1]


async def judge(guard, headers, peer="10.0.0.9"):
    """The status that the guard alone gives to a request."""
    request = Request({"type": "http", "method": "GET", "path": "/", "headers": headers, "client": (peer, 1)})
    try:
        guard.limit()
        caller = await Identity(guard=guard).caller(request)
    except HTTPException as e:
        return e.status_code
    return 401 if caller.role is None else 200


async def status(url, *, context=None, path="/metrics", auth=None, token=None):
    """What a fresh connection is answered; None when TLS fails."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    try:
        async with httpx2.AsyncClient(verify=context or True, timeout=SOON) as client:
            return (await client.get(url + path, auth=auth, headers=headers)).status_code
    except (httpx2.ConnectError, httpx2.ReadError, httpx2.RemoteProtocolError):
        return None


async def test_https_is_served_and_plain_http_is_not(folder):
    authority = trustme.CA()
    guard = folder.certificate(authority).write(TLS).guard()
    async with served(guard=guard) as server:
        assert server.url.startswith("https://")
        assert await status(server.url, context=trusting(authority)) == 200
        assert await status(server.url, context=trusting()) is None
        assert await status(server.url.replace("https", "http")) is None


async def test_users_tokens_and_strangers(folder):
    authority = trustme.CA()
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    folder.certificate(authority).write(
        TLS + f"basic_auth_users: {{me: '{hashed(PASSWORD)}'}}\nbearer_tokens: [{{name: prom, sha256: {digest}}}]\n"
    )
    context = trusting(authority)
    async with served(guard=folder.guard()) as server:
        answers = [
            await status(server.url, context=context, **credentials)
            for credentials in (
                {"auth": ("me", PASSWORD)},
                {"token": TOKEN},
                {},
                {"auth": ("me", "wrong")},
                {"auth": ("you", PASSWORD)},
                {"token": TOKEN[:-1]},
                {"token": digest},
            )
        ]
    assert answers == [200, 200, 401, 401, 401, 401, 401]


async def test_probes_need_no_credentials_and_everything_else_does(folder):
    folder.write(f"basic_auth_users: {{me: '{hashed(PASSWORD)}'}}")
    async with served(guard=folder.guard()) as server:
        paths = ("/healthz", "/readyz", "/", "/metrics", "/nowhere")
        assert [await status(server.url, path=path) for path in paths] == [200, 200, 401, 401, 401]


async def test_a_refusal_says_what_is_asked_for_in_our_shape(folder):
    folder.write(
        f"basic_auth_users: {{me: '{hashed(PASSWORD)}'}}\nbearer_tokens: [{{name: a, sha256: {'a' * 64}}}]\n"
        "http_server_config: {headers: {X-Frame-Options: deny}}"
    )
    async with served(guard=folder.guard()) as server, httpx2.AsyncClient(timeout=SOON) as client:
        got = await client.get(f"{server.url}/metrics")
    assert got.json()["error"]["code"] == "UNAUTHORIZED"
    assert "web configuration" not in got.json()["error"]["hint"]  # a service behind a proxy's header has none
    assert [kind.split()[0] for kind in got.headers.get_list("www-authenticate")] == ["Basic", "Bearer"]
    assert got.headers["x-frame-options"] == "deny"


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"Basic",
        b"Basic !!!",
        b"Basic " + base64.b64encode(b"me"),
        b"Basic " + base64.b64encode(b"\xff:x"),
        b"Basic " + base64.b64encode(b"me:a\0b"),
        b"Basic " + base64.b64encode(b"me:" + b"x" * 10_000),
        b"Bearer",
        b"Digest x",
        b"Negotiate",
    ],
)
async def test_malformed_credentials_are_those_of_a_stranger(folder, header):
    guard = folder.write(f"basic_auth_users: {{me: '{hashed(PASSWORD)}'}}").guard()
    assert await judge(guard, [(b"authorization", header)]) == 401
    guard.close()


async def test_a_password_is_hashed_once_and_then_remembered(folder, monkeypatch):
    checks = []
    real = bcrypt.checkpw
    seen = lambda *a: checks.append(threading.current_thread().name) or real(*a)  # noqa: E731
    monkeypatch.setattr("vgpuscope.http.guard.bcrypt.checkpw", seen)
    guard = folder.write(f"basic_auth_users: {{me: '{hashed(PASSWORD)}'}}").guard()
    for password, answer in ((PASSWORD, 200), ("wrong", 401)):
        for _ in range(5):
            assert await judge(guard, basic("me", password)) == answer
    guard.close()
    assert len(checks) == 2
    assert all(name.startswith("bcrypt") for name in checks)  # away from the event loop


def basic(user, password):
    return [(b"authorization", b"Basic " + base64.b64encode(f"{user}:{password}".encode()))]


async def test_a_stranger_costs_as_much_time_as_a_user(folder, monkeypatch):
    asked = []
    monkeypatch.setattr(bcrypt, "checkpw", lambda password, hashed: asked.append(hashed) or False)
    cheap, dear = hashed("a", cost=4), hashed("b", cost=6)
    guard = folder.write(f"basic_auth_users: {{a: '{cheap}', b: '{dear}'}}").guard()
    assert await judge(guard, basic("stranger", "x")) == 401
    assert asked == [dear.encode()]
    guard.close()


async def test_guessing_neither_fills_the_memory_nor_pushes_out_who_is_known(folder, monkeypatch):
    guard = folder.write(f"basic_auth_users: {{me: '{hashed(PASSWORD)}'}}").guard()
    assert await judge(guard, basic("me", PASSWORD)) == 200
    monkeypatch.setattr(bcrypt, "checkpw", lambda *_: False)
    for i in range(guards._REMEMBERED * 2):
        await judge(guard, basic("me", str(i)))
    assert len(guard._passwords._bad) == guards._REMEMBERED
    assert await judge(guard, basic("me", PASSWORD)) == 200  # no check would say so any more
    guard.close()


async def test_a_rate_limit_lets_a_burst_pass_and_then_waits(folder):
    now = [100.0]
    guard = folder.write("unguarded: true\nrate_limit: {interval: 1s, burst: 3}").guard(clock=lambda: now[0])
    assert [await judge(guard, []) for _ in range(4)] == [200, 200, 200, 429]
    now[0] += 1
    assert [await judge(guard, []) for _ in range(2)] == [200, 429]
    now[0] += 1000
    assert [await judge(guard, []) for _ in range(4)] == [200, 200, 200, 429]
    guard.close()


async def test_the_rate_limit_says_when_to_retry(folder):
    guard = folder.write("unguarded: true\nrate_limit: {interval: 7s, burst: 1}").guard(clock=lambda: 100.0)
    async with served(guard=guard) as server, httpx2.AsyncClient(timeout=SOON) as client:
        assert (await client.get(f"{server.url}/metrics")).status_code == 200
        late = await client.get(f"{server.url}/metrics")
    assert (late.status_code, late.headers["retry-after"]) == (429, "7")
    assert late.json()["error"]["hint"] == "Retry after 7 s."


async def test_a_new_certificate_is_taken_without_a_restart_and_open_connections_stay(folder):
    old, new = trustme.CA(), trustme.CA()
    guard = folder.certificate(old).write(TLS).guard()
    async with served(guard=guard) as server, httpx2.AsyncClient(verify=trusting(old), timeout=SOON) as kept:
        assert (await kept.get(f"{server.url}/metrics")).status_code == 200
        folder.certificate(new)

        async def renewed():
            return await status(server.url, context=trusting(new)) == 200

        await until(renewed)
        assert await status(server.url, context=trusting(old)) is None
        assert (await kept.get(f"{server.url}/metrics")).status_code == 200


async def test_no_connection_is_refused_while_the_certificate_changes(folder):
    authority = trustme.CA()
    guard = folder.certificate(authority).write(TLS).guard()
    async with served(guard=guard) as server:
        answers = []
        for _ in range(5):
            folder.certificate(authority)
            assert renewed(guard)
            await server._inner._listen()
            answers.append(await status(server.url, context=trusting(authority)))
    assert answers == [200] * 5


@pytest.mark.parametrize("turns", range(4))
async def test_a_connection_that_was_just_accepted_is_served_although_its_listener_is_closed(folder, turns):
    """asyncio forgets a connection if its server closes between the accept and the first step of the connection."""
    guard = folder.write("unguarded: true").guard()
    async with served(guard=guard) as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as asking:
            asking.sendall(b"GET /healthz HTTP/1.1\r\nhost: here\r\n\r\n")
            asking.setblocking(False)
            for _ in range(turns):
                await asyncio.sleep(0)
            await server._inner._listen()
            answer = await asyncio.get_running_loop().sock_recv(asking, 100)
    assert answer.startswith(b"HTTP/1.1 200 ")


async def test_headers_change_without_a_restart(folder):
    guard = folder.write("unguarded: true").guard()
    async with served(guard=guard) as server, httpx2.AsyncClient(timeout=SOON) as client:
        folder.write("unguarded: true\nhttp_server_config: {headers: {X-Frame-Options: deny}}")

        async def carried():
            return (await client.get(f"{server.url}/healthz")).headers.get("x-frame-options") == "deny"

        await until(carried)


async def test_users_change_without_a_restart(folder):
    guard = folder.write("unguarded: true").guard()
    async with served(guard=guard) as server:
        assert await status(server.url) == 200
        folder.write(f"basic_auth_users: {{me: '{hashed(PASSWORD)}'}}")

        async def closed():
            return await status(server.url) == 401

        await until(closed)
        assert await status(server.url, auth=("me", PASSWORD)) == 200
        folder.write(f"basic_auth_users: {{me: '{hashed('other')}'}}")

        async def changed():
            return await status(server.url, auth=("me", PASSWORD)) == 401

        await until(changed)  # the remembered answer went with the old hash


async def test_tls_can_be_turned_on_without_a_restart(folder):
    authority = trustme.CA()
    guard = folder.certificate(authority).write("unguarded: true").guard()
    async with served(guard=guard) as server:
        plain = server.url
        folder.write(TLS)

        async def secure():
            return await status(plain.replace("http", "https"), context=trusting(authority)) == 200

        await until(secure)
        assert server.url.startswith("https://")


def test_a_broken_new_file_leaves_the_last_good_one_in_force_and_is_told_once(folder, caplog):
    errors: list = []
    guard = folder.write(f"bearer_tokens: [{{name: a, sha256: {'a' * 64}}}]").guard(on_error=errors.append)
    before = guard.web
    with caplog.at_level(logging.INFO, "vgpuscope"):
        folder.write("basic_auth_users: {me: oops}")
        assert [guard.refresh() for _ in range(5)] == [False] * 5
        assert guard.web is before
        assert guard.failures == 1
        assert [e.code for e in errors] == ["WEB_CONFIG_INVALID"]
        assert [r.levelname for r in caplog.records] == ["ERROR"]
        folder.write(f"bearer_tokens: [{{name: b, sha256: {'a' * 64}}}]")
        assert renewed(guard)
    assert guard.web.tokens[0].caller.name == "b"
    assert caplog.records[-1].message == "web configuration renewed"
    guard.close()


def test_a_key_that_does_not_fit_yet_waits_for_its_certificate(folder):
    guard = folder.certificate(trustme.CA()).write(TLS).guard()
    before = guard.web.tls
    cert = trustme.CA().issue_cert("127.0.0.1")
    cert.private_key_pem.write_to_path(folder.path / "key.pem")
    assert not renewed(guard)
    assert guard.web.tls is before
    cert.cert_chain_pems[0].write_to_path(folder.path / "cert.pem")
    assert renewed(guard)
    assert guard.web.tls is not before
    guard.close()


def test_a_file_that_vanishes_and_comes_back_is_noticed(folder):
    text = f"bearer_tokens: [{{name: a, sha256: {'a' * 64}}}]"
    guard = folder.write(text).guard()
    folder.file.unlink()
    assert not renewed(guard)
    assert guard.web.guarded  # never open by accident
    folder.write(text)
    assert renewed(guard)
    guard.close()


def test_a_change_within_one_tick_of_the_clock_and_of_the_same_size_is_noticed(folder):
    import os

    guard = folder.write(f"bearer_tokens: [{{name: a, sha256: {'a' * 64}}}]").guard()
    times = os.stat(folder.file)
    folder.write(f"bearer_tokens: [{{name: b, sha256: {'a' * 64}}}]")
    os.utime(folder.file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert renewed(guard)
    guard.close()


def test_nothing_changed_is_nothing_done(folder):
    guard = folder.certificate(trustme.CA()).write(TLS).guard()
    before = guard.web
    assert not guard.refresh()
    assert guard.web is before
    guard.close()


def test_a_broken_file_at_start_is_refused(folder):
    with pytest.raises(WebConfigInvalid):
        folder.write("users: {}").guard()


async def test_only_clients_with_a_certificate_of_ours_and_an_allowed_name_get_in(folder):
    authority, stranger = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(folder.path / "ca.pem")
    folder.certificate(authority).write(
        "tls_server_config: {cert_file: cert.pem, key_file: key.pem, client_ca_file: ca.pem,"
        " client_auth_type: RequireAndVerifyClientCert, client_allowed_sans: [prometheus.local]}"
    )

    def client(cert):
        context = trusting(authority)
        if cert:
            cert.configure_cert(context)
        return context

    async with served(guard=folder.guard()) as server:
        answers = [
            await status(server.url, context=client(cert))
            for cert in (
                authority.issue_cert("prometheus.local"),
                authority.issue_cert("other.local"),
                stranger.issue_cert("prometheus.local"),
                None,
            )
        ]
    assert answers == [200, None, None, None]
