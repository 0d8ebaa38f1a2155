"""Who may ask for decisions: programs on this machine, listed networks, or callers with the role operate."""

import asyncio

import bcrypt
import pytest
import yaml
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from vgpuscope.http.address import networks
from vgpuscope.http.app import App, Readiness
from vgpuscope.http.guard import Guard
from vgpuscope.http.peers import Peers

pytestmark = pytest.mark.attack


def app(guard=None, allowed=()):
    peers = Peers(guard, networks(allowed))
    read = []

    async def decide(request: Request):
        peers.check(request)
        read.append(await request.body())
        return PlainTextResponse("decided")

    made = App(
        title="t",
        metrics=lambda: None,
        ready=Readiness,
        guard=guard,
        routes=[Route("/bind", decide, methods=["POST"])],
    )
    return made, read


async def call(made, peer="127.0.0.1", **headers):
    """The status of one request, as if it came from this address."""
    found = {"host": "127.0.0.1:8080", **{name.replace("_", "-"): value for name, value in headers.items()}}
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/bind",
        "raw_path": b"/bind",
        "query_string": b"",
        "scheme": "http",
        "server": ("127.0.0.1", 8080),
        "client": (peer, 40000),
        "headers": [(name.encode(), value.encode()) for name, value in found.items()],
        "root_path": "",
    }
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message):
        sent.append(message)

    await made(scope, receive, send)
    return sent[0]["status"]


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"])
async def test_a_program_on_this_machine_may(peer):
    assert await call(app()[0], peer) == 200


@pytest.mark.parametrize("peer", ["10.1.2.3", "192.168.0.1", "::ffff:10.1.2.3", "2001:db8::1", "unix", ""])
async def test_nobody_else_may_and_its_body_is_not_even_read(peer):
    made, read = app()
    assert await call(made, peer) == 403
    assert not read


@pytest.mark.parametrize("peer", ["10.1.2.3", "::ffff:10.9.9.9", "fd00::5"])
async def test_a_listed_network_may(peer):
    assert await call(app(allowed=("10.0.0.0/8", "fd00::/8"))[0], peer) == 200
    assert await call(app(allowed=("10.200.0.0/16", "fd01::/16"))[0], peer) == 403


@pytest.mark.parametrize(
    "header",
    [
        {"x_forwarded_for": "127.0.0.1"},
        {"x_real_ip": "127.0.0.1"},
        {"forwarded": "for=127.0.0.1"},
        {"via": "1.1 proxy"},
    ],
)
async def test_a_header_that_names_an_address_opens_nothing(header):
    assert await call(app()[0], "10.1.2.3", **header) == 403
    assert await call(app()[0], "127.0.0.1", **header) == 403  # a proxy on this machine, for somebody elsewhere
    assert await call(app(allowed=("127.0.0.2/32",))[0], "10.1.2.3", **header) == 403


@pytest.mark.parametrize(
    "header",
    [
        {"origin": "https://evil.example"},
        {"sec_fetch_site": "cross-site"},
        {"host": "evil.example:8080"},  # a name that its owner lets resolve to a loopback address
    ],
)
async def test_a_page_in_a_browser_on_this_machine_may_not(header):
    assert await call(app()[0], "127.0.0.1", **header) == 403


@pytest.fixture
def guard(tmp_path):
    def hashed(password):
        return bcrypt.hashpw(password, bcrypt.gensalt(4)).decode()

    users = {
        "scheduler": {"hash": hashed(b"right"), "role": "operate"},
        "prometheus": {"hash": hashed(b"right"), "role": "read"},
    }
    file = tmp_path / "web.yml"
    file.write_text(yaml.safe_dump({"basic_auth_users": users}))
    made = Guard(str(file))
    yield made
    made.close()


def basic(user, password="right"):
    import base64

    return {"authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


async def test_with_users_the_role_operate_is_needed_and_the_address_does_not_help(guard):
    made = app(guard, allowed=("10.0.0.0/8",))[0]
    async with asyncio.timeout(60):
        assert await call(made, "203.0.113.9", **basic("scheduler")) == 200
        assert await call(made, "127.0.0.1", **basic("prometheus")) == 403
        assert await call(made, "127.0.0.1") == 401
        assert await call(made, "10.1.2.3") == 401
        assert await call(made, "127.0.0.1", **basic("scheduler", "wrong")) == 401


def test_what_is_no_network_is_refused_by_name():
    with pytest.raises(ValueError, match=r"10\.0\.0\.0/99"):
        networks(["10.0.0.0/99"])
