"""Who may change something, and how often one client may ask."""

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from vgpuscope.http.doorman import Doorman
from vgpuscope.model.errors import ConfigInvalid, ReadOnly

TOKEN = "sixteen-letters-long"
RIGHT = {"authorization": f"Bearer {TOKEN}"}


def request(host: str = "127.0.0.1:8080", client: str = "10.0.0.9", **headers: str) -> Request:
    named = {"host": host} | {name.replace("_", "-"): value for name, value in headers.items()}
    raw = [(name.encode(), value.encode("latin-1")) for name, value in named.items()]
    return Request({"type": "http", "method": "POST", "path": "/", "headers": raw, "client": (client, 1)})


def doorman(listen: str = "127.0.0.1", *, token=None, protect_reads=False, user_header=None, rate=1e6) -> Doorman:
    return Doorman(listen_host=listen, token=token, protect_reads=protect_reads, user_header=user_header, rate=rate)


def status(door: Doorman, asked: Request, *, changes: bool = True, open_to_all: bool = False) -> int:
    try:
        door.admit(asked, changes=changes, open_to_all=open_to_all)
    except HTTPException as e:
        return e.status_code
    except ReadOnly as e:
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
def test_with_a_token_changing_needs_it_wherever_we_listen(listen, said, expected):
    assert status(doorman(listen, token=TOKEN), request(**said)) == expected
    assert status(doorman(listen, token=TOKEN), request(**said), changes=False) == 200


@pytest.mark.parametrize(
    ("listen", "read_only"),
    [("127.0.0.1", False), ("::1", False), ("[::1]", False), ("localhost", False), ("0.0.0.0", True), ("::", True)],
)
def test_without_a_token_only_loopback_takes_changes(listen, read_only):
    door = doorman(listen)
    assert door.read_only is read_only
    assert status(door, request()) == (403 if read_only else 200)
    assert status(door, request(), changes=False) == 200


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
def test_a_page_of_another_site_changes_nothing_on_loopback(said, expected):
    assert status(doorman(), request(**said)) == expected


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
def test_a_user_that_the_proxy_names_may_change_things_but_not_by_another_sites_page(said, expected):
    assert status(doorman("0.0.0.0", user_header="X-Forwarded-User"), request(**said)) == expected


def test_a_header_that_nobody_said_to_believe_is_not_believed():
    assert status(doorman("0.0.0.0"), request(x_forwarded_user="ann")) == 403


def test_reading_can_need_the_token():
    door = doorman("0.0.0.0", token=TOKEN, protect_reads=True)
    assert status(door, request(), changes=False) == 401
    assert status(door, request(**RIGHT), changes=False) == 200
    assert status(door, request(), changes=False, open_to_all=True) == 200


def test_reading_cannot_be_protected_by_nothing():
    with pytest.raises(ConfigInvalid):
        doorman(protect_reads=True)


def test_a_client_may_ask_as_often_as_agreed(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("vgpuscope.http.doorman.time.monotonic", lambda: now[0])
    door = doorman(rate=2)
    assert [status(door, request(), changes=False) for _ in range(9)] == [200] * 8 + [429]
    assert status(door, request(client="10.0.0.10"), changes=False) == 200
    with pytest.raises(HTTPException) as refused:
        door.admit(request(), changes=False)
    assert refused.value.headers == {"retry-after": "1"}
    now[0] += 0.5
    assert [status(door, request(), changes=False) for _ in range(2)] == [200, 429]


def test_a_slow_rate_says_how_long_to_wait(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("vgpuscope.http.doorman.time.monotonic", lambda: now[0])
    door = doorman(rate=0.1)
    status(door, request(), changes=False)
    with pytest.raises(HTTPException) as refused:
        door.admit(request(), changes=False)
    now[0] += int(refused.value.headers["retry-after"])
    assert status(door, request(), changes=False) == 200


def test_very_many_clients_take_little_memory():
    door = doorman(rate=1)
    for number in range(10_000):
        status(door, request(client=str(number)), changes=False)
    assert len(door._bucket._left) <= 4096
