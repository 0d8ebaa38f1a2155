"""Readers of the history, a broken store and wrong clocks: the analyzer goes on, and says how things are."""

import asyncio
import contextlib
import socket
import sqlite3
import threading
import time
from typing import Any

import pytest
from msgspec import structs

from tests.http.serving import SOON, until
from tests.services.analyzer.analyzing import SharedHistory, running
from tests.store.fleets import DAY, analysis, fleet, gpu
from vgpuscope.http import parameters
from vgpuscope.http.answer_limits import MOST_HISTORIES, MOST_POINTS, MOST_WASTES, WASTES_WAITING
from vgpuscope.model.errors import RowRefused
from vgpuscope.services.analyzer.api import AnalyzerApi
from vgpuscope.store.opening import open_store
from vgpuscope.store.results import stored
from vgpuscope.store.results.unsaved import Outbox

pytestmark = pytest.mark.attack
KEEP: dict[str, Any] = {"keep_results": DAY, "keep_hours": 30 * DAY, "keep_days": 400 * DAY}
HOURLY: dict[str, Any] = {"scheduler.interval": 3600, "analyzer.rate_limit": 1e6}
MANY = 60


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "h.db")


@contextlib.contextmanager
def held(monkeypatch, name):
    """Reads of the store hang until the block ends."""
    gate, real = threading.Event(), getattr(stored, name)
    monkeypatch.setattr(stored, name, lambda *given: gate.wait(SOON) and real(*given))
    try:
        yield
    finally:
        gate.set()


async def done(tasks, count):
    await until(lambda: sum(task.done() for task in tasks) >= count)
    return [task.result() for task in tasks if task.done()]


# ── many readers ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_of_many_readers_a_few_are_served_and_the_core_goes_on(path, monkeypatch):
    async with running(history=open_store(path, **KEEP), **HOURLY) as analyzer:
        await analyzer.analysed()
        with held(monkeypatch, "points_of_rows"):
            asked = [asyncio.ensure_future(analyzer.get("/api/v1/history")) for _ in range(MANY)]
            told = await done(asked, MANY - MOST_HISTORIES)
            assert {answer.status_code for answer in told} == {429}
            assert {answer.headers["retry-after"] for answer in told} == {"1"}
            assert {answer.json()["error"]["code"] for answer in told} == {"TOO_MANY_REQUESTS"}
            await analyzer.analyse()
            await analyzer.analyzer._replica.ask()
            health = await analyzer.json("/health")
            assert (health["leader"], health["history"], health["failing"]) == (True, True, [])
            assert sum(task.done() for task in asked) == MANY - MOST_HISTORIES
        answers = await asyncio.gather(*asked)
        assert sum(answer.status_code == 200 for answer in answers) == MOST_HISTORIES
        assert len(await analyzer.json("/api/v1/history")) == 4  # and all places are free again
        assert analyzer.analyzer._saving.outbox.waiting == 0


async def test_sums_over_the_history_wait_for_their_turn_and_then_are_refused(path, monkeypatch):
    async with running(history=open_store(path, **KEEP), **HOURLY) as analyzer:
        await analyzer.analysed()
        with held(monkeypatch, "points_of_parts"):
            asked = [asyncio.ensure_future(analyzer.get("/api/v1/waste?since=1h")) for _ in range(MANY)]
            told = await done(asked, MANY - MOST_WASTES - WASTES_WAITING)
            assert {answer.status_code for answer in told} == {429}
            assert (await analyzer.get("/api/v1/history?step=analysis")).status_code == 200
        answers = await asyncio.gather(*asked)
        assert sum(answer.status_code == 200 for answer in answers) == MOST_WASTES + WASTES_WAITING


async def test_a_client_that_does_not_read_its_page_holds_one_place_and_no_more(path):
    store = open_store(path, **KEEP)
    end = time.time() - 100
    for number in range(5):
        await store.results.save(fleet(end + number, 1000, number=number))
    async with running(history=store, **HOURLY) as analyzer:
        await analyzer.analysed()
        url = analyzer.client.base_url

        async def answered(status):
            return (await analyzer.get("/api/v1/history")).status_code == status

        with contextlib.ExitStack() as stack:
            for _ in range(MOST_HISTORIES):
                silent = stack.enter_context(socket.create_connection((url.host, url.port)))
                silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                silent.sendall(b"GET /api/v1/history HTTP/1.1\r\nhost: localhost\r\n\r\n")
            await until(lambda: answered(429))
            await analyzer.analyse()
        await until(lambda: answered(200))  # the silent ones are gone
        assert len(await analyzer.json("/api/v1/history")) == MOST_POINTS


async def test_a_read_that_fails_gives_its_place_back(path, monkeypatch):
    async with running(history=open_store(path, **KEEP), **HOURLY) as analyzer:
        await analyzer.analysed()

        def broken(*_):
            raise KeyError("broken on purpose")

        with monkeypatch.context() as patch:
            patch.setattr(stored, "points_of_rows", broken)
            for _ in range(MOST_HISTORIES + 1):
                assert (await analyzer.get("/api/v1/history")).status_code == 500
        assert (await analyzer.get("/api/v1/history")).status_code == 200


async def test_pages_of_the_api_follow_one_another(path):
    async with running(history=open_store(path, **KEEP), **HOURLY) as analyzer:
        await analyzer.analysed()
        await analyzer.analyse()
        whole = await analyzer.json("/api/v1/history")
        first = await analyzer.get("/api/v1/history?limit=3")
        rest = await analyzer.get("/api/v1/history", params={"limit": 3, "cursor": first.headers["x-next-cursor"]})
        assert first.json() + rest.json() == whole
        assert "x-next-cursor" not in rest.headers


@pytest.mark.parametrize("query", [f"limit={MOST_POINTS + 1}", "cursor=1", "cursor=1.2.x", "cursor=1.2.-3", "cursor="])
async def test_more_than_a_page_and_no_cursor_of_ours_are_refused(path, query):
    async with running(history=open_store(path, **KEEP), **HOURLY) as analyzer:
        answer = await analyzer.get(f"/api/v1/history?{query}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "QUERY_INVALID")


def texts():
    """Every parameter of the API that is free text, with its method and path."""
    state: Any = None
    for operation in AnalyzerApi(state).operations:
        for param in parameters.declared(operation.query):
            if param.type == "string" and not param.choices:
                yield operation.method, operation.path, param.name


async def test_no_parameter_may_have_a_nul():
    found, wrong = sorted(set(texts())), []
    assert ("GET", "/api/v1/history", "gpu_id") in found
    async with running(**HOURLY) as analyzer:
        for method, path, name in found:
            for text in ("%00", "GPU-%00", "%00x", "a%00b"):
                part = f"{{{name}}}"
                where = path.replace(part, text) if part in path else f"{path}?{name}={text}"
                answer = await analyzer.client.request(method, where)
                if answer.status_code != 422 or answer.json()["error"]["code"] != "QUERY_INVALID":
                    wrong.append((where, answer.status_code))
    assert wrong == []


# ── saving ───────────────────────────────────────────────────────────────────────────────────────────────────────


def gated_save(monkeypatch, store):
    """Nothing is saved before the event that is returned is set."""
    gate, save = asyncio.Event(), store.save

    async def slow(analysis, *, current=False):
        await gate.wait()
        await save(analysis, current=current)

    monkeypatch.setattr(store, "save", slow)
    return gate


async def test_analyses_go_on_while_one_is_being_saved(monkeypatch):
    store = SharedHistory()
    gate = gated_save(monkeypatch, store)
    async with running(history=store, **HOURLY) as analyzer:
        await until(lambda: analyzer.analyzer.state().tally.analyses == 1)
        for number in range(2, 5):
            await analyzer.analyzer._cycle.finished()
            assert analyzer.analyzer.trigger()
            await until(lambda: analyzer.analyzer.state().tally.analyses == number)  # noqa: B023
        assert store.saved == []
        gate.set()
        await analyzer.analysed(4)
        assert [one.number for one in store.saved] == [1, 2, 3, 4]


async def test_what_was_analysed_last_is_saved_when_the_process_ends(monkeypatch):
    store = SharedHistory()
    gated_save(monkeypatch, store)
    async with running(history=store, **HOURLY) as analyzer:
        await until(lambda: analyzer.analyzer._saving.outbox.waiting == 1)
        monkeypatch.undo()
    assert [one.number for one in store.saved] == [1]


async def test_a_result_that_the_store_rejects_is_named_and_the_next_is_saved(monkeypatch):
    store = SharedHistory()

    async def picky(analysis, *, current=False):
        raise RowRefused("NUL")

    monkeypatch.setattr(store, "save", picky)
    async with running(history=store, **HOURLY) as analyzer:
        await analyzer.analysed()
        health, page = await analyzer.json("/health"), await analyzer.metrics()
        assert (health["failing"], health["history"]) == (["store: HISTORY_REFUSED"], True)
        assert 'vgpuscope_analyzer_errors_total{code="HISTORY_REFUSED"} 1\n' in page
        monkeypatch.undo()
        await analyzer.analyse()
        assert [one.number for one in store.saved] == [2]
        assert (await analyzer.json("/health"))["failing"] == []


# ── health tells the truth ───────────────────────────────────────────────────────────────────────────────────────


def rename(path, before, after):
    file = sqlite3.connect(path)
    file.execute(f"ALTER TABLE {before} RENAME TO {after}")
    file.close()


async def test_a_store_that_cannot_be_written_is_never_up_until_it_was_written(path):
    async with running(history=open_store(path, **KEEP), **HOURLY) as analyzer:
        await analyzer.analysed()
        assert (await analyzer.json("/health"))["history"] is True
        rename(path, "history_results", "elsewhere")
        await analyzer.analyse()
        for _ in range(5):
            await analyzer.analyzer._replica.ask()  # the lease is fine
            health = await analyzer.json("/health")
            assert (health["leader"], health["history"]) == (True, False)
        rename(path, "elsewhere", "history_results")
        await analyzer.analyse()
        assert (await analyzer.json("/health"))["history"] is True
        assert analyzer.analyzer._saving.outbox.waiting == 0


async def test_before_the_store_has_answered_nobody_says_that_it_is_up():
    store = SharedHistory()
    store.hold()
    async with running(history=store, **HOURLY) as analyzer:
        assert (await analyzer.json("/health"))["history"] is False
        store.let_go.set()
        await analyzer.analysed()
        assert (await analyzer.json("/health"))["history"] is True


async def test_a_follower_that_could_not_read_is_well_again_when_it_could(monkeypatch):
    store = SharedHistory()
    assert await store.lease.take("another", 3600)
    async with running(history=store, **HOURLY) as analyzer:
        await until(lambda: analyzer.analyzer.state().history)
        store.down = True
        await analyzer.analyzer._restore()
        store.down = False
        await analyzer.analyzer._replica.ask()
        assert analyzer.analyzer.state().history is False
        await analyzer.analyzer._restore()
        assert analyzer.analyzer.state().history is True
        assert analyzer.analyzer._replica.analyses is False


# ── clocks ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def shown(analyzer):
    await analyzer.analyzer._restore()
    last = analyzer.analyzer._cycle.last()
    return last.number if last else None


async def test_consoles_of_a_replica_that_only_reads_hear_of_each_analysis_once(path, monkeypatch):
    leader, now, heard = open_store(path, **KEEP), time.time(), list[object]()
    outbox = Outbox(leader.results)
    assert await leader.lease.take("leader", 3600)
    await outbox.save(analysis(now, gpu(), number=1))
    async with running(history=open_store(path, **KEEP), **HOURLY) as follower:
        assert await shown(follower) == 1
        monkeypatch.setattr(follower.analyzer.feed, "publish", heard.append)
        await outbox.save(analysis(now + 60, gpu(), number=2))
        assert await asyncio.gather(*(shown(follower) for _ in range(3))) == [2, 2, 2]
        assert await shown(follower) == 2
        assert len(heard) == 1


@pytest.mark.parametrize("ahead", [3600.0, -3600.0, 30 * DAY])
async def test_one_wrong_clock_does_not_stop_followers(path, ahead):
    leader, now = open_store(path, **KEEP), time.time()
    outbox = Outbox(leader.results)
    assert await leader.lease.take("leader", 3600)
    await outbox.save(analysis(now, gpu(), number=1))
    async with running(history=open_store(path, **KEEP), **HOURLY) as follower:
        assert await shown(follower) == 1
        await outbox.save(analysis(now + ahead, gpu(), number=2))
        assert await shown(follower) == 2
        await outbox.save(analysis(now + 1, gpu(), number=3))
        assert await shown(follower) == 3
        assert (await follower.json("/health"))["stale_since"] is None
    await leader.close()


async def test_results_that_come_late_do_not_replace_newer_ones(path):
    leader, now = open_store(path, **KEEP), time.time()
    assert await leader.lease.take("leader", 3600)
    late = Outbox(leader.results, leads=lambda: False)
    await Outbox(leader.results).save(analysis(now, gpu(), number=5))
    await late.put(analysis(now - 120, gpu(), number=1))
    await late.save(analysis(now - 60, gpu(), number=2))
    assert (await leader.results.latest()).number == 5
    await leader.close()


async def test_a_replica_keeps_its_own_result_until_the_leader_has_a_newer_one_or_its_own_is_old():
    store, now = SharedHistory(), time.time()
    async with running(history=store, **HOURLY) as one:
        await one.analysed()
        own = one.analyzer._cycle.last()
        await store.save(analysis(now - 60, gpu(), number=77))
        assert await shown(one) == own.number
        board = one.analyzer._cycle._board
        future = structs.replace(own, window=structs.replace(own.window, begin=now + DAY, end=now + DAY))
        one.analyzer._cycle._board = structs.replace(board, analysis=future)  # its clock was a day ahead
        assert await shown(one) == 77
