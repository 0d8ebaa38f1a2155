"""Many wrong passwords at once, over real sockets: users who were never seen before are still let in."""

import asyncio
import threading

import bcrypt
import httpx2
import pytest

from tests.http.serving import SOON, served, until
from tests.http.test_guard import PASSWORD, Folder, hashed

pytestmark = pytest.mark.attack

HERE, NEXT_DOOR = "127.0.0.1", "127.0.0.2"
FLOOD = 24


class Gate:
    """Password checks that wait until the test lets them go on."""

    def __init__(self, monkeypatch):
        self._real, self._open = bcrypt.checkpw, threading.Event()
        monkeypatch.setattr(bcrypt, "checkpw", self._check)

    def _check(self, password, hashed):
        assert self._open.wait(SOON)
        return self._real(password, hashed)

    def open(self):
        self._open.set()


@pytest.fixture
async def flooded(tmp_path, monkeypatch):
    """A server with two users, its password checks stopped, and a way to ask it from an address."""
    users = f"basic_auth_users: {{me: '{hashed(PASSWORD)}', you: '{hashed('yours')}'}}"
    guard, gate = Folder(tmp_path).write(users).guard(), Gate(monkeypatch)
    arrived, limit = [], guard.limit
    monkeypatch.setattr(guard, "limit", lambda: arrived.append(limit()))  # called once for each request
    async with served(guard=guard) as server, asyncio.TaskGroup() as group:

        async def ask(user, password, address):
            transport = httpx2.AsyncHTTPTransport(local_address=address)
            async with httpx2.AsyncClient(transport=transport, timeout=SOON) as client:
                return (await client.get(f"{server.url}/metrics", auth=(user, password))).status_code

        async def begun(user, password, address=HERE):
            """A request that has arrived: it waits for its check, or is answered."""
            before = len(arrived)
            task = group.create_task(ask(user, password, address))
            await until(lambda: len(arrived) > before)
            return task

        yield begun, gate
        gate.open()


async def test_a_flood_of_unknown_names_leaves_a_place_for_a_user(flooded):
    begun, gate = flooded
    flood = [await begun(f"guess-{number}", "x") for number in range(FLOOD)]
    me, you, wrong = await begun("me", PASSWORD), await begun("you", "yours"), await begun("nobody", "x")
    gate.open()
    assert [await one for one in (me, you, wrong)] == [200, 200, 401]
    assert {await one for one in flood} == {401}  # as for a known name: nobody learns which names exist


async def test_a_flood_for_one_name_leaves_places_for_others_and_for_that_name_elsewhere(flooded):
    begun, gate = flooded
    flood = [await begun("me", f"guess {number}") for number in range(FLOOD)]
    you, me = await begun("you", "yours"), await begun("me", PASSWORD, NEXT_DOOR)
    gate.open()
    assert [await one for one in (you, me)] == [200, 200]
    assert {await one for one in flood} == {401, 429}


async def test_a_name_is_refused_as_early_whether_it_is_known_or_not(flooded):
    begun, gate = flooded
    tasks = {name: [await begun(name, f"guess {number}") for number in range(4)] for name in ("me", "stranger")}
    gate.open()
    answers = {name: sorted([await one for one in found]) for name, found in tasks.items()}
    assert answers["me"] == answers["stranger"] == [401, 401, 429, 429]


async def test_a_page_that_asks_many_times_at_once_costs_one_check(flooded):
    begun, gate = flooded
    page = [await begun("me", PASSWORD) for _ in range(FLOOD)]
    gate.open()
    assert {await one for one in page} == {200}
