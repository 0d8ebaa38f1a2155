"""A browser logs in once; its cookie is worth no more and no longer than the credentials it stands for."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from vgpuscope.http.browser import COOKIE
from vgpuscope.http.identity import ApiToken, Identity
from vgpuscope.http.sessions import SessionCookie, Sessions, set_cookie
from vgpuscope.model.caller import Caller

KEY = b"k" * 32
ALICE = Caller(name="alice", role="operate", namespaces=("ml",))


class World:
    """Sessions with a clock and credentials that the test changes."""

    def __init__(self):
        self.now, self.bound = 1000.0, b"credentials"
        self.sessions = Sessions(KEY, lifetime=600.0, bound=lambda: self.bound, clock=lambda: self.now)


@pytest.fixture
def world():
    return World()


def request(cookie="", **headers):
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    if cookie:
        raw.append((b"cookie", f"{COOKIE}={cookie}".encode()))
    return Request({"type": "http", "headers": [(b"host", b"console.example"), *raw], "client": ("10.0.0.1", 5)})


def test_a_cookie_stands_for_its_caller_until_it_ends(world):
    cookie, made = world.sessions.make(ALICE)
    assert made.ends == 1600
    assert world.sessions.read(cookie).caller == ALICE
    world.now = 1599.9
    assert world.sessions.read(cookie) is not None
    world.now = 1600.0
    assert world.sessions.read(cookie) is None


def test_a_session_ends_when_any_credential_changes(world):
    cookie, _ = world.sessions.make(ALICE)
    world.bound = b"others"
    assert world.sessions.read(cookie) is None


@pytest.mark.attack
def test_a_cookie_of_another_key_is_worth_nothing(world):
    forged, _ = Sessions(b"x" * 32, lifetime=600.0, bound=lambda: b"credentials", clock=lambda: 1000.0).make(ALICE)
    assert world.sessions.read(forged) is None


@pytest.mark.attack
def test_a_role_cannot_be_raised_in_the_cookie(world):
    cookie, _ = world.sessions.make(ALICE)
    body, _, signature = cookie.partition(".")
    content = json.loads(base64.urlsafe_b64decode(body + "=="))
    content["role"], content["namespaces"] = "admin", None
    raised = base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")
    assert world.sessions.read(f"{raised}.{signature}") is None


@pytest.mark.attack
@given(place=st.integers(0, 400), letter=st.characters(min_codepoint=33, max_codepoint=126))
def test_no_changed_letter_makes_another_caller(place, letter):
    world = World()
    cookie, _ = world.sessions.make(ALICE)
    at = place % len(cookie)
    found = world.sessions.read(cookie[:at] + letter + cookie[at + 1 :])
    assert found is None or found.caller == ALICE


@pytest.mark.attack
@given(st.text(max_size=300))
def test_any_text_is_no_session(text):
    assert World().sessions.read(text) is None


def test_scripts_cannot_read_the_cookie_and_other_sites_do_not_send_it():
    made = set_cookie("value", lifetime=600, secure=True)
    assert {"HttpOnly", "SameSite=Strict", "Secure", "Path=/", "Max-Age=600"} <= set(made.split("; "))
    assert "Secure" not in set_cookie("value", lifetime=600, secure=False)
    assert "Max-Age=0" in set_cookie("", lifetime=600, secure=True)


def identity(world, **more):
    token = ApiToken("t" * 20, Caller(name="token", role="admin"))
    return Identity(api_token=token, session=SessionCookie(world.sessions), **more)


async def test_a_session_identifies_its_caller(world):
    cookie, _ = world.sessions.make(ALICE)
    assert await identity(world).caller(request(cookie)) == ALICE


@pytest.mark.attack
async def test_a_page_of_another_site_only_reads_with_a_session(world):
    cookie, _ = world.sessions.make(ALICE)
    found = await identity(world).caller(request(cookie, origin="https://evil.example"))
    assert (found.name, found.role) == ("alice", "read")


async def test_a_token_wins_over_the_session_of_the_same_browser(world):
    cookie, _ = world.sessions.make(ALICE)
    found = await identity(world).caller(request(cookie, authorization=f"Bearer {'t' * 20}"))
    assert found.name == "token"


async def test_a_session_alone_opens_no_service(world):
    """Without a token or a user nobody could have logged in, so the listener stays read-only."""
    assert Identity(session=SessionCookie(world.sessions)).read_only


@pytest.mark.parametrize(("sent", "role"), [("admin", "admin"), ("operate", "operate"), ("", "read"), ("root", "read")])
async def test_a_proxy_names_the_role_of_its_user(sent, role):
    found = await Identity(user_header="x-user", role_header="x-role").caller(request(x_user="carol", x_role=sent))
    assert (found.name, found.role) == ("carol", role)


def test_the_guard_changes_its_fingerprint_with_any_user_or_token(tmp_path):
    from vgpuscope.http.guard import Guard

    def fingerprint(text):
        path = tmp_path / "web.yaml"
        path.write_text(text)
        guard = Guard(str(path))
        try:
            return guard.fingerprint
        finally:
            guard.close()

    digest = "0" * 64
    one = f"bearer_tokens: [{{name: a, sha256: '{digest}'}}]\n"
    seen = {fingerprint(text) for text in (one, one.replace("name: a", "name: b"), one.replace("0" * 64, "1" * 64))}
    assert len(seen) == 3
