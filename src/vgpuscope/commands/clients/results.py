"""`vgpuscope results` asks an analyzer; `vgpuscope analyze --once` is one, for a single analysis."""

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeVar

from msgspec import Struct
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from vgpuscope.config import WORKING_DIRECTORY, Config, SettingsFile
from vgpuscope.model.analysis import Analysis, Target
from vgpuscope.model.errors import SourceDown
from vgpuscope.services.analyzer.cycle import Board, Cycle
from vgpuscope.services.analyzer.own_scrapes import ScrapeSource
from vgpuscope.services.analyzer.prometheus_reading import PrometheusSource
from vgpuscope.services.analyzer.settings import Settings
from vgpuscope.services.analyzer.sources import Sources, check_source
from vgpuscope.sources.clients.analyzer import ANALYZER
from vgpuscope.sources.clients.served_api import Kind, ServedApi
from vgpuscope.terminal.printing import print_drawn, print_json
from vgpuscope.terminal.screen import speak_plainly
from vgpuscope.views.fleet.results import ResultRow, iso
from vgpuscope.views.fleet.results_state import stale_line, targets_line
from vgpuscope.views.fleet.results_table import looked_at, results_table
from vgpuscope.views.fleet.selection import as_csv

Form = Literal["table", "json", "csv"]
T = TypeVar("T")

_TICK = 0.2  # seconds between two looks at how far we are
_TIMEOUT = 30.0  # seconds


class _Low(Struct):
    """What is wanted of /results/low."""

    count: int
    gpus: list[ResultRow]
    threshold: float
    timestamp: str | None
    total_gpus: int
    unknown_count: int
    tenants_total: int
    tenants_unknown: int


class _Summary(Struct):
    """What is wanted of /api/v1/summary."""

    timestamp: str | None
    source: str


class _State(Struct):
    """What is wanted of /api/v1/summary; an older analyzer says none of it."""

    stale_since: str | None = None
    stale_reason: str | None = None
    targets_up: int | None = None
    targets_down: int | None = None
    down_targets: tuple[Target, ...] = ()


def results(*, url: str, only_low: bool, form: Form) -> int:
    """Print the last results of an analyzer."""
    speak_plainly()
    rows, remark, state = asyncio.run(_asked(url, only_low=only_low))
    _print(rows, form, remark=remark)
    if form == "table":
        _print_state(state)
    return 0


def analyze_once(*, flags: Mapping[str, object], environ: Mapping[str, str], file: SettingsFile, form: Form) -> int:
    """Analyse once, with a line on standard error that says how far it is, and print the results."""
    speak_plainly()
    logging.getLogger("vgpuscope").setLevel(logging.CRITICAL)  # what there is to say is said below
    settings = Settings(flags=flags, environ=environ, file=file.path, check=check_source)
    if file.by == WORKING_DIRECTORY:
        print(f"vgpuscope: settings read from {file.path} ({file.by})", file=sys.stderr)
    analysis, rows = asyncio.run(_once(settings))
    for fault in analysis.faults:
        print(f"vgpuscope: {fault.code}: {fault.part}: {fault.message}", file=sys.stderr)
    _print(rows, form, remark="" if rows else _no_gpu(analysis.source, iso(analysis.started)))
    return 0


async def _asked(url: str, *, only_low: bool) -> tuple[list[ResultRow], str, _State]:
    """The rows, what stands below them or instead of them, and what is told beside them."""
    rows, remark = await (_ask_low(url) if only_low else _ask(url))
    return rows, remark, await _state(url)


async def _state(url: str) -> _State:
    """What is told beside the rows; nothing where it is not to be had."""
    async with _api(ANALYZER._replace(path="/api/v1/summary"), url, _State) as api:
        try:
            return (await api.fetch())[0]
        except SourceDown:
            return _State()


async def _ask(url: str) -> tuple[list[ResultRow], str]:
    """All rows, and what is to be said if there are none."""
    async with _api(ANALYZER, url, list[ResultRow]) as api:
        rows = (await api.fetch())[0]
    if rows:
        return rows, ""
    async with _api(ANALYZER._replace(path="/api/v1/summary"), url, _Summary) as about:
        found = (await about.fetch())[0]
    return rows, _no_gpu(found.source, found.timestamp)


async def _ask_low(url: str) -> tuple[list[ResultRow], str]:
    """The rows of /results/low, and how much was looked at."""
    async with _api(ANALYZER._replace(path="/results/low"), url, _Low) as api:
        found = (await api.fetch())[0]
    if found.timestamp is None:
        return found.gpus, _no_gpu("", None)
    return found.gpus, looked_at(
        listed=found.count,
        threshold=found.threshold,
        gpus=found.total_gpus,
        unknown=found.unknown_count,
        tenants=found.tenants_total,
        tenants_unknown=found.tenants_unknown,
    )


def _api(kind: Kind, url: str, content: type[T]) -> ServedApi[T]:
    return ServedApi(kind, url, content=content, timeout=_TIMEOUT, token=os.environ.get("VGPUSCOPE_TOKEN") or None)


def _no_gpu(source: str, timestamp: str | None) -> str:
    if timestamp is None:
        return "No analysis yet: the analyzer has no results."
    return f"No GPU found by the analysis of {timestamp} in {source or 'its source'}."


async def _once(settings: Settings) -> tuple[Analysis, Sequence[ResultRow]]:
    sources = Sources(settings.config)
    cycle = Cycle(
        lambda: settings.config, lambda: sources.current, owners=sources.owners, done=_nothing, nodes=sources.nodes
    )
    try:
        with _bar() as bar:
            if isinstance(sources.current, ScrapeSource):
                await _collect(sources.current, settings.config, bar)
            elif isinstance(sources.current, PrometheusSource):
                bar.add_task("asking Prometheus", total=None)
                await sources.current.ready()  # who typed a wrong address wants to know it soon
            cycle.trigger()
            await cycle.finished()
    finally:
        await sources.close()
    board = await cycle.board()
    if board.analysis is None:
        raise cycle.tally.last_error or SourceDown("the analysis came to no result")
    return board.analysis, board.rows


async def _collect(source: ScrapeSource, config: Config, bar: Progress) -> None:
    """Scrape for one window: what happened before we cannot know."""
    seconds = config.prometheus.time_window_min * 60
    task = bar.add_task(f"scraping for {seconds / 60:g} min", total=seconds)
    if bar.disable:
        print(f"vgpuscope: scraping for {seconds / 60:g} min", file=sys.stderr)
    scraping = asyncio.create_task(source.run(), name="scrape")
    began = time.monotonic()
    try:
        while (past := time.monotonic() - began) < seconds:
            bar.update(task, completed=past)
            await asyncio.wait({scraping}, timeout=min(_TICK, seconds - past))
            if scraping.done():
                scraping.result()  # raises: scraping never ends by itself
    finally:
        scraping.cancel()
        await asyncio.gather(scraping, return_exceptions=True)


async def _nothing(board: Board) -> None:
    """Nobody else has to be told."""


@contextlib.contextmanager
def _bar() -> Iterator[Progress]:
    """On a terminal only: a file or a pipe wants no moving line."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield bar


def _print_state(state: _State) -> None:
    if state.targets_down:
        print(targets_line(up=state.targets_up or 0, down=state.targets_down, named=state.down_targets))
    if state.stale_since:
        print(stale_line(state.stale_since, state.stale_reason or ""))


def _print(rows: Sequence[ResultRow], form: Form, *, remark: str) -> None:
    """`remark` stands below the table instead of sums, or alone if there is no table."""
    if form == "json":
        print_json(rows)
    elif form == "csv":
        sys.stdout.buffer.write(as_csv(rows, ResultRow.__struct_fields__))
        sys.stdout.buffer.flush()
    elif rows:
        print_drawn(lambda width: results_table(rows, width, below=remark))
    else:
        print(remark)
