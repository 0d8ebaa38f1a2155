"""A page that a user's browser opens sends requests to us, with what the browser has stored."""

import asyncio
import base64
import contextlib
import socket

import bcrypt
import httpx2
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from tests.http.serving import SOON, Numbers, served, until
from vgpuscope.http.admission import IdentityAdmission
from vgpuscope.http.app import App, Readiness
from vgpuscope.http.browser import from_another_site
from vgpuscope.http.client_limits import ClientLimits
from vgpuscope.http.events import Event, Feed, Stream, Streams
from vgpuscope.http.guard import Guard
from vgpuscope.http.identity import Identity
from vgpuscope.http.operations import HttpCall, Operation, routes
from vgpuscope.http.parameters import NoQuery
from vgpuscope.http.places import peer_of
from vgpuscope.http.server import HttpServer

pytestmark = pytest.mark.attack
BROWSER = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Safari/537.36"
PASSWORD = "hunter2hunter2"


def request(host: str, **headers: str) -> Request:
    named = {"host": host} | {name.replace("_", "-"): value for name, value in headers.items()}
    raw = [(name.encode(), value.encode("latin-1")) for name, value in named.items()]
    return Request({"type": "http", "method": "POST", "path": "/", "headers": raw, "client": ("10.0.0.9", 1)})


@pytest.mark.parametrize(
    ("host", "origin", "foreign"),
    [
        ("gpu.example:8080", "http://gpu.example:8080", False),
        ("gpu.example:8080", "http://gpu.example:9000", True),  # another service of the same machine
        ("gpu.example:8080", "http://gpu.example", True),
        ("gpu.example", "http://gpu.example:80", False),
        ("gpu.example", "https://gpu.example", False),  # TLS ends at a proxy
        ("gpu.example", "https://gpu.example:8443", True),
        ("gpu.example", "ftp://gpu.example", True),
        ("[fd00::1]:8080", "http://[fd00::1]:8080", False),
    ],
)
def test_a_page_on_another_port_of_the_same_host_is_another_site(host, origin, foreign):
    assert from_another_site(request(host, origin=origin)) is foreign


@pytest.fixture
def started() -> list[str]:
    return []


def analyzer(started: list[str], guard: Guard):
    async def analyze(call: HttpCall[NoQuery, None]) -> str:
        started.append(call.caller.name)
        return "started"

    admission = IdentityAdmission(Identity(guard=guard), ClientLimits(100.0))
    both = [
        Operation(method=method, path="/analyze", summary="start", handler=analyze, role="operate")
        for method in ("GET", "POST")
    ]
    return routes(both, admission)


@pytest.fixture
def guard(tmp_path):
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
    (tmp_path / "token").write_text("a-token-of-a-script")
    (tmp_path / "web.yaml").write_text(
        f"basic_auth_users:\n  ann: {{hash: '{hashed}', role: operate}}\n"
        "bearer_tokens:\n  - {name: script, file: token, role: operate}\n"
    )
    return Guard(str(tmp_path / "web.yaml"))


async def test_an_image_on_a_page_starts_nothing_though_the_browser_sends_the_password(started, guard):
    basic = "Basic " + base64.b64encode(f"ann:{PASSWORD}".encode()).decode()
    image = {"authorization": basic, "user-agent": BROWSER, "accept": "image/avif,image/webp,*/*;q=0.8"}
    async with served(routes=analyzer(started, guard), guard=guard) as server, httpx2.AsyncClient(timeout=SOON) as web:
        url = f"{server.url}/analyze"
        refused = await web.get(url, headers=image)
        assert (refused.status_code, started) == (403, [])
        assert "POST /analyze" in refused.json()["error"]["message"]
        # a program, a script's token and the console's own button
        assert (await web.get(url, headers={"authorization": basic})).status_code == 200
        token = {"authorization": "Bearer a-token-of-a-script", "user-agent": BROWSER}
        assert (await web.get(url, headers=token)).status_code == 200
        button = image | {"origin": server.url}
        assert (await web.post(url, headers=button)).status_code == 200
        assert (await web.get(url, headers=image | {"sec-fetch-site": "same-origin"})).status_code == 200
        assert started == ["ann", "script", "ann", "ann"]


async def test_a_name_that_its_owner_points_at_this_machine_reads_nothing():
    async with served() as server, httpx2.AsyncClient(timeout=SOON) as web:
        port = server.url.rpartition(":")[2]
        for name in (f"evil.example:{port}", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example"):
            for more in ({}, {"x-forwarded-for": "10.0.0.1", "x-forwarded-host": "localhost"}):
                answer = await web.get(f"{server.url}/metrics", headers={"host": name} | more)
                assert (answer.status_code, answer.json()["error"]["code"]) == (421, "MISDIRECTED")
        for name in (f"localhost:{port}", f"127.0.0.1:{port}", "[::1]:1", "gpu.localhost", "10.1.2.3:80"):
            assert (await web.get(f"{server.url}/metrics", headers={"host": name})).status_code == 200
        assert (await web.get(f"{server.url}/healthz", headers={"host": "evil.example"})).status_code == 200


async def status(web: httpx2.AsyncClient, url: str, name: str, **headers: str) -> int:
    return (await web.get(url, headers={"host": name} | headers)).status_code


NAMES = ("vgpuscope.monitoring.svc", "*.GPU.example")
FOREIGN = (
    "gpu.example",
    "evil-gpu.example",
    "vgpuscope.monitoring.svc.evil.example",
    "a.gpu.example.",
    "*.gpu.example.x",
)


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "0.0.0.0:0"])
async def test_names_of_a_proxy_or_a_service_are_answered_if_they_are_listed_and_others_are_not(listen):
    async with served(listen=listen) as server, httpx2.AsyncClient(timeout=SOON) as web:
        server._app.hosts = NAMES
        url, port = f"{server.url}/metrics", server.url.rpartition(":")[2]
        for name in (
            "vgpuscope.monitoring.svc",
            f"VGPUSCOPE.monitoring.svc:{port}",
            "a.gpu.example",
            f"localhost:{port}",
        ):
            assert await status(web, url, name) == 200
        for name in FOREIGN:
            assert await status(web, url, name) == 421
        assert await status(web, f"{server.url}/readyz", "evil.example") == 200  # probes


async def test_a_page_under_a_name_of_its_own_does_not_name_itself_as_the_proxys_user():
    """Its name is its site, so the browser lets it add any header, and calls the request same-origin."""
    identity = Identity(user_header="x-auth-user", listen_host="127.0.0.1")
    page = {"x-auth-user": "admin", "sec-fetch-site": "same-origin", "x-forwarded-for": "10.0.0.1"}
    app = App(title="t", metrics=Numbers, ready=Readiness, identity=lambda: identity)
    async with served(app=app) as server, httpx2.AsyncClient(timeout=SOON) as web:
        url = f"{server.url}/metrics"
        assert await status(web, url, "evil.example", **page) == 421
        assert await status(web, url, "localhost", **page) == 200  # as the proxy sends it
        server._app.hosts = ("gpu.example",)
        assert await status(web, url, "gpu.example", **page) == 200
        assert await status(web, url, "evil.example", **page) == 421


async def test_a_listener_for_others_answers_under_every_name():
    async with served(listen="0.0.0.0:0") as server, httpx2.AsyncClient(timeout=SOON) as web:
        assert (await web.get(f"{server.url}/metrics", headers={"host": "gpu.example"})).status_code == 200


async def _streams(server: HttpServer, source: str, count: int) -> list[socket.socket]:
    """Open streams from one address of this machine, and read each answer's first line."""
    host, port = server.url.removeprefix("http://").split(":")
    opened = []
    for _ in range(count):
        client = socket.create_connection((host, int(port)), source_address=(source, 0))
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, b"GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n")
        opened.append(client)
        assert (await loop.sock_recv(client, 4096)).startswith(b"HTTP/1.1 ")
    return opened


async def test_one_reader_with_many_addresses_does_not_keep_others_from_the_stream_of_events():
    """A /64 of IPv6 is one client, and a user with a token is one user from wherever it comes."""
    streams = Streams(most=8)
    with contextlib.ExitStack() as stack:
        lost = [stack.enter_context(streams.place((f"10.0.0.{n}", "team-a"))) for n in range(8)]
        stack.enter_context(streams.place(("10.0.1.1", "team-b")))
        stack.enter_context(streams.place(("10.0.1.2", "anyone")))
        assert [one.is_set() for one in lost] == [True, True] + 6 * [False]
        with pytest.raises(HTTPException):
            stack.enter_context(streams.place(("10.0.2.1", "team-a")))
    assert streams.open == 0
    assert peer_of(("2001:db8::1", 1)) == peer_of(("2001:db8::ffff:1", 1))


async def test_one_reader_does_not_keep_others_from_the_stream_of_events():
    feed = Feed()

    async def events(_: HttpCall[NoQuery, None]) -> Stream:
        return Stream(feed.listen(Event(name="first", data={})))

    operation = Operation(method="GET", path="/events", summary="events", handler=events, media=("text/event-stream",))
    async with served(routes=routes([operation])) as server:
        server._app.streams = Streams(most=8)
        hog = await _streams(server, "127.0.0.2", 8)
        assert server._app.streams.open == 8
        others = await _streams(server, "127.0.0.3", 4)
        await until(lambda: feed.listeners == 8)
        # now both have four: a fifth of either is refused, and nobody loses one
        for source in ("127.0.0.2", "127.0.0.3"):
            [more] = await _streams(server, source, 1)
            more.close()
        await until(lambda: (feed.listeners, server._app.streams.open) == (8, 8))
        for client in (*hog, *others):
            client.close()
        await until(lambda: (feed.listeners, server._app.streams.open) == (0, 0))
