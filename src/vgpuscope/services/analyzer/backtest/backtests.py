"""Runs back-tests, one at a time and within a time limit: what a policy would have done in the stored past."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import aclosing
from typing import Any

from msgspec import Struct

from vgpuscope.config import SETTINGS, Config, Loaded, Setting
from vgpuscope.logic.reclaim.backtest import Comparison, Replay
from vgpuscope.model.analysis import Analysis
from vgpuscope.model.backtest import Backtest, BacktestProgress, PolicyChange
from vgpuscope.model.errors import BacktestBusy, HistoryAbsent
from vgpuscope.model.quantity import Ratio, Seconds, UnixTime
from vgpuscope.runtime import duration
from vgpuscope.services.analyzer.reclaim.dependencies import policy_of
from vgpuscope.services.analyzer.settings.settings import Settings
from vgpuscope.store.past import PastStore
from vgpuscope.views.reclaim.backtest.api import backtest_answer

WITHIN: Seconds = 50.0  # of a request: proxies often give up after 60
_NO_EFFECT = frozenset({"reclaim.keep_history"})


class BacktestPeriod(Struct, frozen=True, kw_only=True):
    """What is replayed, and what is called a false alarm."""

    begin: UnixTime
    end: UnixTime
    busy_within: Seconds


class Backtests:
    """The back-tests of this replica."""

    def __init__(
        self,
        settings: Settings,
        past: PastStore | None,
        *,
        within: Seconds = WITHIN,
        clock: Callable[[], Seconds] = time.monotonic,
        wall: Callable[[], UnixTime] = time.time,
    ) -> None:
        self._settings, self._past, self._within = settings, past, within
        self._clock, self._wall = clock, wall
        self._running: BacktestProgress | None = None

    @property
    def progress(self) -> BacktestProgress:
        return self._running or BacktestProgress(running=False)

    async def run(
        self, span: BacktestPeriod, policy: Mapping[str, Any], *, by: str, sees: Collection[str] | None = None
    ) -> Backtest:
        """Replay the span; BacktestBusy if another one runs."""
        if self._past is None:
            raise HistoryAbsent("a back-test has nothing to replay: analyzer.history is not set")
        if self._running is not None:
            raise BacktestBusy(f"a back-test of {self._running.by} is running")
        began = self._wall()
        self._running = BacktestProgress(running=True, by=by, since=began)
        try:
            current, proposed = await asyncio.to_thread(self._policies, policy)

            def told(done: Ratio) -> None:
                self._running = BacktestProgress(running=True, done=done, by=by, since=began)

            past = self._past.read(begin=span.begin, end=span.end)
            found = await replayed(
                past,
                span,
                current.config,
                proposed.config if proposed else None,
                told=told,
                within=self._within,
                clock=self._clock,
            )
            changed = changes(current, proposed)
            return await asyncio.to_thread(
                backtest_answer, found, busy_within=span.busy_within, changed=changed, sees=sees
            )
        finally:
            self._running = None

    def _policies(self, policy: Mapping[str, Any]) -> tuple[Loaded, Loaded | None]:
        return self._settings.loaded, self._settings.with_policy(policy) if policy else None


async def replayed(
    past: AsyncGenerator[Analysis, None],
    span: BacktestPeriod,
    current: Config,
    proposed: Config | None,
    *,
    told: Callable[[Ratio], None],
    within: Seconds | None = None,
    clock: Callable[[], Seconds] = time.monotonic,
) -> Comparison:
    """The past through the policies; it ends early if it takes longer than allowed."""
    by = None if within is None else clock() + within
    beside = _replay(proposed, span) if proposed else None
    found = Comparison(_replay(current, span), beside, begin=span.begin, end=span.end)
    async with aclosing(past):
        async for analysis in past:
            told(await asyncio.to_thread(found.follow, analysis))
            if by is not None and clock() > by:
                found.cut(analysis.window.end)
                break
    await asyncio.to_thread(found.close)
    return found


def _replay(config: Config, span: BacktestPeriod) -> Replay:
    return Replay(
        policy_of(config),
        begin=span.begin,
        end=span.end,
        busy_within=span.busy_within,
        stop=config.reclaim.stop,
        interval=config.scheduler.interval,
    )


def changes(current: Loaded, proposed: Loaded | None) -> tuple[PolicyChange, ...]:
    """The keys of the policy that differ."""
    if proposed is None:
        return ()
    own = (one for one in SETTINGS if one.section == "reclaim" and one.path not in _NO_EFFECT)
    pairs = ((one, current.value(one.path), proposed.value(one.path)) for one in own)
    return tuple(
        PolicyChange(key=one.path.partition(".")[2], current=_text(one, old), proposed=_text(one, new))
        for one, old, new in pairs
        if old != new
    )


def _text(setting: Setting, value: object) -> str:
    """The value as it is written in a file."""
    if setting.form == "duration" and isinstance(value, float):
        return duration.text(value)
    return setting.shown(value)
