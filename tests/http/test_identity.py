"""Which caller a request comes from, and which role that caller has."""

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from vgpuscope.http.identity import ApiToken, Identity
from vgpuscope.model.caller import ANYONE, NOBODY, Caller
from vgpuscope.model.errors import Forbidden, ReadOnly

TOKEN = "sixteen-letters-long"
ADMIN = Caller(name="token", role="admin")
OPERATOR = Caller(name="token", role="operate", namespaces=("ml",))
RIGHT = {"authorization": f"Bearer {TOKEN}"}


def request(host: str = "127.0.0.1:8080", client: str = "10.0.0.9", **headers: str) -> Request:
    named = {"host": host} | {name.replace("_", "-"): value for name, value in headers.items()}
    raw = [(name.encode(), value.encode("latin-1")) for name, value in named.items()]
    return Request({"type": "http", "method": "POST", "path": "/", "headers": raw, "client": (client, 1)})


def identity(listen: str = "127.0.0.1", *, token=None, caller=ADMIN, **more) -> Identity:
    return Identity(listen_host=listen, api_token=ApiToken(token, caller), **more)


async def status(known: Identity, asked: Request, role="operate") -> int:
    try:
        known.check(await known.caller(asked), role, asked)
    except HTTPException as e:
        return e.status_code
    except (ReadOnly, Forbidden) as e:
        return e.status
    return 200


@pytest.mark.parametrize("listen", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, 401),
        ({"authorization": "Bearer"}, 401),
        ({"authorization": f"Bearer {TOKEN}x"}, 401),
        ({"authorization": f"Basic {TOKEN}"}, 401),
        ({"authorization": "Bearer ÿþ"}, 401),
        ({"authorization": f"bearer  {TOKEN} "}, 200),
        (RIGHT, 200),
        (RIGHT | {"sec_fetch_site": "cross-site"}, 200),
    ],
)
async def test_with_a_token_changing_needs_it_wherever_we_listen(listen, said, expected):
    assert await status(identity(listen, token=TOKEN), request(**said)) == expected
    assert await status(identity(listen, token=TOKEN), request(**said), "read") == 200


@pytest.mark.parametrize(
    ("listen", "read_only"),
    [("127.0.0.1", False), ("::1", False), ("[::1]", False), ("localhost", False), ("0.0.0.0", True), ("::", True)],
)
async def test_without_a_token_only_loopback_takes_changes(listen, read_only):
    known = identity(listen)
    assert known.read_only is read_only
    assert await status(known, request()) == (403 if read_only else 200)
    assert await status(known, request(), "read") == 200


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, 200),
        ({"host": "localhost:8080"}, 200),
        ({"host": "[::1]:8080"}, 200),
        ({"sec_fetch_site": "same-origin"}, 200),
        ({"sec_fetch_site": "none"}, 200),
        ({"origin": "http://127.0.0.1:8080"}, 200),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"host": "evil.example"}, 403),
        ({"host": "[::1"}, 403),
        ({"host": ""}, 403),
    ],
)
async def test_a_page_of_another_site_changes_nothing_on_loopback(said, expected):
    assert await status(identity(), request(**said)) == expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, 401),
        ({"x_forwarded_user": ""}, 401),
        ({"x_forwarded_user": "ann"}, 200),
        ({"x_forwarded_user": "ann", "host": "gpus.example", "origin": "https://gpus.example"}, 200),
        ({"x_forwarded_user": "ann", "sec_fetch_site": "cross-site"}, 403),
        ({"x_forwarded_user": "ann", "host": "gpus.example", "origin": "https://evil.example"}, 403),
    ],
)
async def test_a_user_that_the_proxy_names_may_change_things_but_not_by_another_sites_page(said, expected):
    assert await status(identity("0.0.0.0", user_header="X-Forwarded-User"), request(**said)) == expected


async def test_a_header_that_nobody_said_to_believe_is_not_believed():
    assert await status(identity("0.0.0.0"), request(x_forwarded_user="ann")) == 403


async def test_reading_can_need_the_token():
    known = identity("0.0.0.0", token=TOKEN, protect_reads=True)
    assert await status(known, request(), "read") == 401
    assert await status(known, request(**RIGHT), "read") == 200


@pytest.mark.parametrize(
    ("known", "asked", "caller"),
    [
        (identity(token=TOKEN), request(**RIGHT), ADMIN),
        (identity(token=TOKEN, caller=OPERATOR), request(**RIGHT), OPERATOR),
        (identity(token=TOKEN), request(), ANYONE),
        (identity(token=TOKEN, protect_reads=True), request(), NOBODY),
        (identity(), request(), Caller(name="loopback", role="admin")),
        (identity(), request(origin="http://evil.example"), ANYONE),
        (identity("0.0.0.0"), request(), ANYONE),
        (identity(user_header="x-user"), request(x_user="ann"), Caller(name="ann", role="admin")),
        (identity(user_header="x-user"), request(x_user="ann", origin="http://e.example"), Caller(name="ann")),
    ],
)
async def test_a_request_has_one_caller_with_a_name_and_a_role(known, asked, caller):
    assert await known.caller(asked) == caller
    assert [role for role in ("read", "operate", "admin") if await status(known, asked, role) == 200] == [
        role for role in ("read", "operate", "admin") if caller.may(role)
    ]
