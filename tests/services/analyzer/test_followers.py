"""What follows from an analysis: whatever one follower does, the others run, and /health says which one failed."""

import asyncio
import logging

import msgspec
import pytest

from tests.http.serving import SOON, until
from tests.loopclock import forward
from tests.services.analyzer.analyzing import SharedHistory, running, uuid
from vgpuscope.model.errors import HistoryDown
from vgpuscope.services.analyzer import log as analyzer_log
from vgpuscope.services.analyzer import metrics_page
from vgpuscope.services.analyzer.api import analysis_event
from vgpuscope.services.analyzer.followers import Follower, Followers
from vgpuscope.services.analyzer.sources import watch as source_watch

HOURLY = {"scheduler.interval": 3600}


class Three:
    """Three followers, of which the one in the middle does what the test says."""

    def __init__(self, middle):
        self.ran: list = []
        self.failed: list = []
        self.all = Followers(
            [
                Follower(name="first", follow=self._good("first"), deadline=3600),
                Follower(name="middle", follow=middle, deadline=3600),
                Follower(name="last", follow=self._good("last"), deadline=3600),
            ],
            failed=lambda name, error: self.failed.append((name, error.code)),
        )

    def _good(self, name):
        async def follow(result):
            self.ran.append((name, result))

        return follow

    @property
    def codes(self):
        return {name: error.code for name, error in self.all.failing.items()}


def raising(error):
    async def follow(result):
        raise error

    return follow


@pytest.mark.parametrize(
    ("error", "code", "ours"),
    [
        (KeyError("gone"), "INTERNAL", True),
        (TimeoutError("of its own"), "INTERNAL", True),
        (HistoryDown("away"), "HISTORY_DOWN", False),
    ],
)
async def test_a_follower_that_raises_is_logged_once_and_counted_and_the_others_run(error, code, ours, caplog):
    three = Three(raising(error))
    for number in range(3):
        assert await three.all.tell(number) is ours
    assert three.ran == [(name, number) for number in range(3) for name in ("first", "last")]
    assert three.failed == [("middle", code)] * 3
    assert three.codes == {"middle": code}
    assert [(r.fields["follower"], r.fields["error_code"]) for r in caplog.records] == [("middle", code)]


async def test_a_follower_that_is_late_is_left_and_the_others_run():
    forward(0)
    begun = asyncio.Event()

    async def hangs(result):
        begun.set()
        await asyncio.Event().wait()

    three = Three(hangs)
    telling = asyncio.create_task(three.all.tell(1))
    await begun.wait()
    assert three.ran == [("first", 1)]
    forward(3600)
    assert await telling is False
    assert three.ran == [("first", 1), ("last", 1)]
    assert three.codes == {"middle": "FOLLOWER_LATE"}


async def test_a_follower_that_works_again_is_no_longer_named():
    errors = [KeyError("gone")]

    async def once(result):
        if errors:
            raise errors.pop()

    three = Three(once)
    await three.all.tell(1)
    assert three.codes == {"middle": "INTERNAL"}
    await three.all.tell(2)
    assert three.codes == {}


class Ended(BaseException):
    """What `except Exception` does not catch."""


async def cancels_itself(result):
    asyncio.current_task().cancel()
    await asyncio.Event().wait()


async def waits_for_what_is_cancelled(result):
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


@pytest.mark.parametrize("strange", [cancels_itself, waits_for_what_is_cancelled, raising(Ended("no Exception"))])
async def test_a_follower_that_is_cancelled_from_inside_stops_no_other(strange):
    three = Three(strange)
    assert await three.all.tell(1)
    assert three.ran == [("first", 1), ("last", 1)]
    assert three.codes == {"middle": "INTERNAL"}


async def test_a_late_follower_that_ignores_its_cancellation_is_left_running():
    forward(0)
    begun, ignored, go = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def stubborn(result):
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ignored.set()
            await go.wait()

    three = Three(stubborn)
    telling = asyncio.create_task(three.all.tell(1))
    await begun.wait()
    forward(3600)
    await ignored.wait()
    forward(3600)
    async with asyncio.timeout(SOON):
        assert await telling is False
    assert three.ran == [("first", 1), ("last", 1)]
    assert three.codes == {"middle": "FOLLOWER_LATE"}
    go.set()
    await until(lambda: not three.all._left)


async def test_a_follower_that_blocks_the_loop_is_reported_as_late():
    forward(0)

    async def blocks(result):
        forward(3601)

    three = Three(blocks)
    assert await three.all.tell(1) is False
    assert three.codes == {"middle": "FOLLOWER_LATE"}


async def test_the_end_of_the_process_is_not_swallowed():
    begun, ended = asyncio.Event(), asyncio.Event()

    async def works(result):
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    three = Three(works)
    telling = asyncio.create_task(three.all.tell(1))
    await begun.wait()
    telling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await telling
    async with asyncio.timeout(SOON):
        await ended.wait()
    assert three.ran == [("first", 1)]


# ── in the analyzer ──────────────────────────────────────────────────────────────────────────────────────────────

BREAKS = {"page": (metrics_page, "gpus_page"), "log": (analyzer_log, "tell_analysis")}


def noting(ran, name):
    async def follow(result):
        ran.append(name)

    return follow


def again(analysis):
    return msgspec.structs.replace(analysis, number=analysis.number + 1, started=analysis.started + 1)


def broken(*args, **kwargs):
    raise KeyError("broken on purpose")


@pytest.mark.parametrize("follower", ["page", "log", "store"])
async def test_whichever_follower_breaks_the_others_run_and_health_names_it(follower, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "vgpuscope")
    store = SharedHistory()
    if follower == "store":
        monkeypatch.setattr(store, "save", broken)
    else:
        monkeypatch.setattr(*BREAKS[follower], broken)
    async with running(history=store, **HOURLY) as analyzer:
        await analyzer.analysed()
        health, page = await analyzer.json("/health"), await analyzer.metrics()
        assert health["failing"] == [f"{follower}: INTERNAL"]
        assert f'vgpuscope_analyzer_follower_failures_total{{follower="{follower}"}} 1\n' in page
        assert (uuid(0) in page) is (follower != "page")
        assert any(r.message == "analysis completed" for r in caplog.records)
        assert bool(store.saved) is (follower != "store")
        assert len(await analyzer.json("/results")) == 2
        monkeypatch.undo()
        await analyzer.analyse()
        assert (await analyzer.json("/health"))["failing"] == []


async def test_listeners_hear_of_an_analysis_whose_page_cannot_be_rendered(monkeypatch):
    async with running(history=SharedHistory(), **HOURLY) as analyzer:
        await analyzer.analysed()
        monkeypatch.setattr(*BREAKS["page"], broken)
        events = analyzer.analyzer.feed.listen(analysis_event(await analyzer.analyzer.board()))
        first = await anext(events)
        await analyzer.analyse()
        assert (await analyzer.json("/health"))["failing"] == ["page: INTERNAL"]
        async with asyncio.timeout(SOON):
            assert (await anext(events)).id == str(int(first.id) + 1)


@pytest.mark.parametrize("follower", ["opinions", "page", "events"])
async def test_of_a_restored_analysis_one_broken_follower_leaves_the_others_shown(follower, monkeypatch, caplog):
    store = SharedHistory()
    async with running(history=store, **HOURLY) as leader:
        await leader.analysed()
    assert await store.lease.take("another", 3600)
    async with running(history=store, **HOURLY) as replica:
        own = replica.analyzer
        await until(lambda: own.console._digest is not None)  # the last step of the first restore
        parts = {"opinions": (own.opinions, "show"), "page": (own._metrics, "show"), "events": (own.console, "follow")}
        shown: list[str] = []
        for name, (part, method) in parts.items():
            monkeypatch.setattr(part, method, raising(KeyError("gone")) if name == follower else noting(shown, name))
        store.saved.append(again(store.saved[-1]))
        own._schedule.wake()
        await until(lambda: len(shown) == 2 and own._followers.failing)
        assert own._cycle.last() == store.saved[-1]
        assert shown == [name for name in parts if name != follower]
        assert (await replica.json("/health"))["failing"] == [f"{follower}: INTERNAL"]
        page = await replica.metrics()
        assert f'vgpuscope_analyzer_follower_failures_total{{follower="{follower}"}} 1\n' in page
        assert 'loop_restarts_total{loop="schedule"}' not in page
        assert [r.fields["follower"] for r in caplog.records if "follower" in r.message] == [follower]


async def test_a_store_that_is_down_is_named_as_such():
    store = SharedHistory()
    async with running(history=store, **HOURLY) as analyzer:
        await analyzer.analysed()
        store.down = True
        await analyzer.analyse()
        health = await analyzer.json("/health")
        assert (health["failing"], health["history"]) == (["store: HISTORY_DOWN"], False)


async def test_an_analyzer_whose_loop_dies_says_so_and_goes_on(monkeypatch):
    async with running(**HOURLY) as analyzer:
        await analyzer.analysed()
        monkeypatch.setattr(analyzer.analyzer._look, "_ready", broken)  # the loop that looks at the source
        forward(source_watch._ASK_EVERY)

        async def restarted():
            return 'vgpuscope_loop_restarts_total{loop="look"} 1\n' in await analyzer.metrics()

        await until(restarted)
        assert (await analyzer.json("/health"))["status"] == "healthy"
