"""TLS to an engine: whom it trusts, what it says of whom it does not, and what passes over it that nobody may see."""

import asyncio
import json
import logging
import ssl
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import trustme

from tests.services.analyzer.promstub import END, WINDOW, Engine, Reply, SpoilingServer
from vgpuscope.model.errors import ConfigInvalid, QueryForbidden, SourceDown
from vgpuscope.services.analyzer.sources.prometheus.reading import PrometheusSource

DAY = timedelta(days=1)
SECRETS = ("pa55word", "t0ken-one", "t0ken-two", "k3y")


class Secure(SpoilingServer):
    """The same over TLS, with a certificate of its own."""

    def __init__(self, leaf: trustme.LeafCert) -> None:
        engine = Engine()
        engine.add("DCGM_FI_DEV_GPU_UTIL", [95.0] * 20, UUID="GPU-1", gpu="0", pod="train", namespace="ml")
        super().__init__(engine)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        leaf.configure_cert(self._context)
        self._serving: set[asyncio.Task] = set()

    async def __aenter__(self) -> "Secure":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._context)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"https://127.0.0.1:{self.port}"
        asyncio.get_running_loop().set_exception_handler(self._refused)
        return self

    async def __aexit__(self, *_: object) -> None:
        await super().__aexit__()
        await asyncio.gather(*self._serving)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(asyncio.current_task())
        await self._serve(reader, writer)

    def _refused(self, loop: asyncio.AbstractEventLoop, context: dict) -> None:
        """A client that refuses us ends the handshake; all else is a mistake."""
        if not isinstance(context.get("exception"), ssl.SSLError | ConnectionError):
            loop.default_exception_handler(context)


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def ca_file(authority, tmp_path):
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return str(path)


@pytest.fixture
async def server(authority):
    async with Secure(authority.issue_cert("127.0.0.1")) as server:
        yield server


def source(server: Secure, **more) -> PrometheusSource:
    given: dict[str, Any] = {"url": server.url, "deadline": 20.0}
    return PrometheusSource(**given | more)


async def refusal(server: Secure, **more) -> SourceDown:
    """What ready() says; read() has to say it too, at once and with the same advice."""
    async with asyncio.timeout(60), source(server, retries=1000, deadline=1e6, **more) as prometheus:
        with pytest.raises(SourceDown) as asked:
            await prometheus.ready()
        with pytest.raises(SourceDown, match="certificate is rejected") as read:
            await prometheus.read(end=END, seconds=WINDOW)  # another try, of which there may be many, changes nothing
    assert (asked.value.code, read.value.code) == ("SOURCE_DOWN", "SOURCE_DOWN")
    assert asked.value.advice == read.value.advice
    assert server.requests == []
    return asked.value


# ── whom it trusts ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_server_whose_authority_is_known_is_read(server, ca_file):
    async with source(server, ca_file=ca_file) as prometheus:
        await prometheus.ready()
        reading = await prometheus.read(end=END, seconds=WINDOW)
    assert (reading.faults, len(reading.tracks)) == ((), 1)
    assert reading.source == server.url


async def test_connections_are_kept_over_tls(server, ca_file):
    async with source(server, ca_file=ca_file, concurrency=2) as prometheus:
        for _ in range(3):
            await prometheus.read(end=END, seconds=WINDOW)
    assert len(server._serving) <= 2 < len(server.requests)


async def test_a_chain_with_an_authority_in_between_is_read(authority, ca_file):
    between = authority.create_child_ca()
    async with Secure(between.issue_cert("127.0.0.1")) as server, source(server, ca_file=ca_file) as prometheus:
        await prometheus.ready()


@pytest.mark.parametrize("other", [False, True], ids=["the machine's authorities", "another file"])
async def test_an_unknown_authority_is_refused_and_the_setting_named(server, tmp_path, other):
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    error = await refusal(server, **({"ca_file": str(tmp_path / "other.pem")} if other else {}))
    assert "issuer" in str(error)
    assert "prometheus.ca_file" in error.advice


@pytest.mark.parametrize("name", ["elsewhere.example", "127.0.0.2"])
async def test_the_name_of_another_server_is_refused(authority, ca_file, name):
    async with Secure(authority.issue_cert(name)) as server:
        error = await refusal(server, ca_file=ca_file)
    assert "not valid for '127.0.0.1'" in str(error)
    assert "prometheus.url" in error.advice


async def test_a_host_name_is_compared_too(authority, ca_file):
    async with Secure(authority.issue_cert("elsewhere.example")) as server:
        server.url = f"https://localhost:{server.port}"
        error = await refusal(server, ca_file=ca_file)
    assert "not valid for 'localhost'" in str(error)
    assert "prometheus.url" in error.advice


@pytest.mark.parametrize(
    ("since", "said", "advice"), [(-2, "has expired", "new certificate"), (1, "not yet valid", "clocks")]
)
async def test_a_certificate_out_of_its_time_is_named(authority, ca_file, since, said, advice):
    begin = datetime.now(UTC) + since * DAY
    async with Secure(authority.issue_cert("127.0.0.1", not_before=begin, not_after=begin + DAY)) as server:
        error = await refusal(server, ca_file=ca_file)
    assert said in str(error)
    assert advice in error.advice


@pytest.mark.parametrize("name", ["127.0.0.1", "elsewhere.example"])
async def test_insecure_takes_any_certificate(name):
    begin = datetime.now(UTC) - 2 * DAY
    leaf = trustme.CA().issue_cert(name, not_before=begin, not_after=begin + DAY)
    async with Secure(leaf) as server, source(server, insecure=True) as prometheus:
        await prometheus.ready()
        assert len((await prometheus.read(end=END, seconds=WINDOW)).tracks) == 1


async def test_a_proxy_is_not_asked_for_what_is_on_this_machine(server, ca_file, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    async with source(server, ca_file=ca_file) as prometheus:
        await prometheus.ready()


async def test_a_server_without_tls_is_told_as_such(ca_file):
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    plain = await asyncio.start_server(greet, "127.0.0.1", 0)
    url = f"https://127.0.0.1:{plain.sockets[0].getsockname()[1]}"
    async with plain, PrometheusSource(url=url, ca_file=ca_file, retries=0) as prometheus:
        with pytest.raises(SourceDown, match="WRONG_VERSION_NUMBER") as down:
            await prometheus.ready()
    assert "prometheus.url" in down.value.advice


# ── what passes over it ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def no_secret_told(caplog):
    """After the test, however much was logged: no secret was."""
    caplog.set_level(logging.DEBUG)
    yield
    assert not [secret for secret in SECRETS if secret in caplog.text]


def silent(error: BaseException | None) -> bool:
    """Whether neither an error nor what it came from, as a log would show them, says a secret."""
    while error is not None:
        if any(secret in str(error) for secret in SECRETS):
            return False
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return True


@pytest.mark.usefixtures("no_secret_told")
@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"basic": ("me", "pa55word")}, {"authorization": "Basic bWU6cGE1NXdvcmQ="}),
        ({"token": "t0ken-one"}, {"authorization": "Bearer t0ken-one"}),
        ({"token": "t0ken-one\n"}, {"authorization": "Bearer t0ken-one"}),
        ({"headers": {"X-Scope-OrgID": "team-a|team-b"}}, {"x-scope-orgid": "team-a|team-b"}),
        (
            {"headers": {"X-Api-Key": "k3y", "X-Scope-OrgID": "a"}, "basic": ("me", "pa55word")},
            {"x-api-key": "k3y", "x-scope-orgid": "a", "authorization": "Basic bWU6cGE1NXdvcmQ="},
        ),
    ],
    ids=["basic", "token", "token with its line end", "tenants", "all together"],
)
async def test_credentials_and_tenants_reach_the_server_and_nobody_else(server, ca_file, given, sent):
    async with source(server, ca_file=ca_file, **given) as prometheus:
        await prometheus.ready()
        reading = await prometheus.read(end=END, seconds=WINDOW)
    assert all(sent.items() <= headers.items() for _, _, headers in server.requests)
    assert not [secret for secret in SECRETS if secret in repr(reading)]


@pytest.mark.usefixtures("no_secret_told")
async def test_a_token_file_that_is_renewed_accepts_at_once(server, ca_file, tmp_path):
    token = tmp_path / "token"
    token.write_text("t0ken-one\n")
    async with source(server, ca_file=ca_file, token_file=str(token)) as prometheus:
        await prometheus.read(end=END, seconds=WINDOW)
        before = len(server.requests)
        (tmp_path / "next").write_text("t0ken-two\n")
        (tmp_path / "next").rename(token)
        await prometheus.read(end=END, seconds=WINDOW)
    used = [headers["authorization"] for _, _, headers in server.requests]
    assert set(used[:before]) == {"Bearer t0ken-one"}
    assert set(used[before:]) == {"Bearer t0ken-two"}


@pytest.mark.usefixtures("no_secret_told")
@pytest.mark.parametrize("status", [401, 403])
async def test_a_refusal_shows_no_credentials(server, ca_file, status):
    server.spoil = lambda *_: Reply(status, b"Unauthorized")
    async with source(server, ca_file=ca_file, basic=("me", "pa55word"), headers={"X-Api-Key": "k3y"}) as prometheus:
        with pytest.raises(QueryForbidden, match=f"refused: {status}") as refused:
            await prometheus.ready()
    assert silent(refused.value)


@pytest.mark.usefixtures("no_secret_told")
@pytest.mark.parametrize(
    "given",
    [
        {"basic": ("me", "pa55word"), "headers": {"X-Api-Key": "k3y", "X-Scope-OrgID": "team-a"}},
        {"token": "t0ken-one", "headers": {"X-Scope-OrgID": "team-a"}},
    ],
)
async def test_a_server_that_repeats_credentials_is_quoted_without_them(server, ca_file, given):
    def echo(*_):
        said = [*server.requests[-1][2].values(), *given.get("basic", ())]
        return Reply(403, json.dumps({"status": "error", "error": f"who is {' '.join(said)}?"}).encode())

    server.spoil = echo
    async with source(server, ca_file=ca_file, **given) as prometheus:
        with pytest.raises(QueryForbidden, match="team-a") as refused:
            await prometheus.ready()
    assert silent(refused.value)


@pytest.mark.usefixtures("no_secret_told")
async def test_no_credentials_are_sent_to_who_cannot_prove_its_name(server, tmp_path):
    address = server.url.removeprefix("https://")
    for given in ({"token": "t0ken-one"}, {"url": f"https://me:pa55word@{address}"}, {"headers": {"X-Api-Key": "k3y"}}):
        assert silent(await refusal(server, **given))


@pytest.mark.usefixtures("no_secret_told")
async def test_no_credentials_follow_where_one_is_sent_elsewhere(server, authority, ca_file):
    async with Secure(authority.issue_cert("127.0.0.1")) as other:
        server.spoil = lambda *_: Reply(302, b"", (f"location: {other.url}/login",))
        async with source(server, ca_file=ca_file, token="t0ken-one") as prometheus:
            with pytest.raises(SourceDown, match="redirected") as sent:
                await prometheus.ready()
        assert other.requests == []
    assert silent(sent.value)


@pytest.mark.usefixtures("no_secret_told")
@pytest.mark.parametrize("bad", ["k3y\nx", "k3y\r\nHost: other", "k3ý", "k3y\x00"])
def test_a_value_that_no_header_can_carry_is_refused_by_the_headers_name(bad):
    for given, name in (({"headers": {"X-Api-Key": bad}}, "X-Api-Key"), ({"token": bad}, "bearer token")):
        with pytest.raises(ConfigInvalid, match=name) as refused:
            PrometheusSource(url="https://127.0.0.1:1", **given)
        assert silent(refused.value)


@pytest.mark.usefixtures("no_secret_told")
async def test_a_token_file_with_more_than_a_token_is_refused_by_its_name(server, ca_file, tmp_path):
    token = tmp_path / "token"
    token.write_text("t0ken-one\nt0ken-two\n")
    async with source(server, ca_file=ca_file, token_file=str(token)) as prometheus:
        with pytest.raises(QueryForbidden, match=str(token)) as refused:
            await prometheus.ready()
    assert silent(refused.value)
    assert server.requests == []
