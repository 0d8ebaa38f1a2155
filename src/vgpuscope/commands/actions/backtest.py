"""`vgpuscope backtest`: by an analyzer, or in this process from its store or from Prometheus."""

import asyncio
import logging
import os
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from msgspec import Struct

from vgpuscope.commands.actions.access import TOKEN_SOURCE, token
from vgpuscope.commands.actions.language import language_of
from vgpuscope.config import settings_file
from vgpuscope.model.analysis import Analysis
from vgpuscope.model.backtest import Backtest, BacktestProgress
from vgpuscope.model.errors import ConfigInvalid, ScopeError
from vgpuscope.model.quantity import Seconds
from vgpuscope.runtime import yamlfile
from vgpuscope.runtime.duration import long_seconds
from vgpuscope.services.analyzer.backtest.backtests import BacktestPeriod, changes, replayed
from vgpuscope.services.analyzer.backtest.past_readings import past_readings
from vgpuscope.services.analyzer.settings.settings import SECTIONS, Settings
from vgpuscope.services.analyzer.sources.sources import Sources, check_source
from vgpuscope.sources.clients.analyzer import BACKTEST
from vgpuscope.sources.clients.served_api import ServedApi
from vgpuscope.store.engine.engine import Engine, Kept, open_engine
from vgpuscope.store.past import PastStore
from vgpuscope.terminal.printing import print_drawn, print_json
from vgpuscope.terminal.progress import progress_bar
from vgpuscope.terminal.screen import speak_plainly
from vgpuscope.views.reclaim.backtest.api import backtest_answer
from vgpuscope.views.reclaim.backtest.table import backtest_table

_TIMEOUT = 120.0  # the analyzer ends a replay long before
_LOOK_EVERY: Seconds = 0.5


class BacktestArguments(Struct, frozen=True, kw_only=True):
    """What the command line says."""

    policy: str | None
    since: str
    busy_within: str
    url: str
    history: str | None
    prometheus: str | None
    config: str | None
    limit: int
    as_json: bool
    language: str | None
    wide: bool = False


def main(asked: BacktestArguments) -> int:
    """Print the back-test."""
    speak_plainly()
    logging.getLogger("vgpuscope").setLevel(logging.CRITICAL)  # a window that fails is a gap, and is reported as one
    if asked.history and asked.prometheus:
        raise ConfigInvalid("--history and --prometheus: only one of them can be replayed", hint="Give one of them.")
    language = language_of(asked.language, os.environ)
    policy = _policy(asked.policy)
    found = asyncio.run(_here(asked, policy) if asked.history or asked.prometheus else _there(asked, policy))
    if asked.as_json:
        print_json(found)
    else:
        print_drawn(lambda width: backtest_table(found, width, language, limit=asked.limit), wide=asked.wide)
    return 0


def _policy(file: str | None) -> Mapping[str, Any]:
    """The keys of the policy in the file; of a whole settings file, its section `reclaim`."""
    if file is None:
        return {}
    content = yamlfile.mapping(yamlfile.read(file, hint="Check the path of --policy."), path=file)
    if "reclaim" in content:
        content = yamlfile.section(content["reclaim"], at=f"reclaim in {file}")
    if not content:
        raise ConfigInvalid(f"--policy: {file} has no key", hint="It has keys of the section reclaim: grace: 2h")
    return content


def _span(asked: BacktestArguments) -> BacktestPeriod:
    now = time.time()
    return BacktestPeriod(
        begin=now - _seconds("--since", asked.since),
        end=now,
        busy_within=_seconds("--busy-within", asked.busy_within),
    )


def _seconds(flag: str, text: str) -> Seconds:
    try:
        return long_seconds(text)
    except ValueError as e:
        raise ConfigInvalid(f"{flag} {text!r}: {e}", hint=f"For example {flag} 24h.") from e


# ── by an analyzer ───────────────────────────────────────────────────────────────────────────────────────────────


async def _there(asked: BacktestArguments, policy: Mapping[str, Any]) -> Backtest:
    _span(asked)  # a wrong time is told before anything is asked
    body = {"policy": policy, "since": asked.since, "busy_within": asked.busy_within}
    async with ServedApi(
        BACKTEST, asked.url, content=Backtest, timeout=_TIMEOUT, token=token(), source=TOKEN_SOURCE
    ) as api:
        run = asyncio.create_task(api.ask("POST", BACKTEST.path, Backtest, body), name="backtest")
        try:
            with progress_bar() as bar:
                task = bar.add_task("replaying", total=None)
                while not (await asyncio.wait({run}, timeout=_LOOK_EVERY))[0]:
                    bar.update(task, **await _progress(api))
            return await run
        finally:
            run.cancel()


async def _progress(api: ServedApi[Backtest]) -> dict[str, Any]:
    """How far it is; nothing if another replica answers, or none."""
    try:
        found = await api.ask("GET", BACKTEST.path, BacktestProgress)
    except ScopeError:
        return {}
    return {"total": 1.0, "completed": found.done} if found.running else {}


# ── in this process ──────────────────────────────────────────────────────────────────────────────────────────────


async def _here(asked: BacktestArguments, policy: Mapping[str, Any]) -> Backtest:
    span = _span(asked)
    flags = {"prometheus.url": asked.prometheus} if asked.prometheus else {}
    file = settings_file(asked.config, os.environ, sections=SECTIONS)
    check = check_source if asked.prometheus else _nothing
    settings = Settings(flags=flags, environ=os.environ, file=file.path, check=check)
    proposed = settings.with_policy(policy) if policy else None
    with progress_bar() as bar:
        task = bar.add_task("replaying", total=1.0)
        found = await replayed(
            _past(asked, settings, span),
            span,
            settings.config,
            proposed.config if proposed else None,
            told=lambda done: bar.update(task, completed=done),
        )
    return backtest_answer(
        found,
        busy_within=span.busy_within,
        changed=changes(settings.loaded, proposed),
        sees=None,
        source="prometheus" if asked.prometheus else "stored",
    )


def _nothing(_: object) -> None:
    """A store needs no source."""


async def _past(asked: BacktestArguments, settings: Settings, span: BacktestPeriod) -> AsyncGenerator[Analysis, None]:
    if asked.history:
        engine = _engine(asked.history)
        try:
            async for analysis in PastStore(engine).read(begin=span.begin, end=span.end):
                yield analysis
        finally:
            await engine.close()
        return
    sources = Sources(settings.config)
    try:
        await sources.ready()  # a wrong address is told at once
        async for analysis in past_readings(sources.current, settings.config, begin=span.begin, end=span.end):
            yield analysis
    finally:
        await sources.close()


def _engine(url: str) -> Engine:
    if "://" not in url and not os.path.isfile(url):
        raise ConfigInvalid(f"--history: {url} is not a file", hint="Give the file or URL of analyzer.history.")
    engine = open_engine(url, kept=Kept("results", "--history"))
    if engine is None:
        raise ConfigInvalid(
            "--history: expected a file or a postgresql:// URL", hint="Give the file or URL of analyzer.history."
        )
    return engine
