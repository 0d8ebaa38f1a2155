"""`vgpuscope analyze`: one analysis in this process, without a server."""

import asyncio
import logging
import sys
import time
from collections.abc import Mapping, Sequence

from rich.progress import Progress

from vgpuscope.commands.actions.language import language_of
from vgpuscope.commands.actions.result_rows import no_gpu, print_results
from vgpuscope.commands.arguments import Form
from vgpuscope.config import WORKING_DIRECTORY, Config, SettingsFile
from vgpuscope.model.analysis import Analysis
from vgpuscope.model.errors import SourceDown
from vgpuscope.services.analyzer.cycle import AnalysisCycle, Board
from vgpuscope.services.analyzer.settings.settings import Settings
from vgpuscope.services.analyzer.sources.own_scrapes import ScrapeSource
from vgpuscope.services.analyzer.sources.prometheus.reading import PrometheusSource
from vgpuscope.services.analyzer.sources.sources import Sources, check_source
from vgpuscope.terminal.printing import print_line
from vgpuscope.terminal.progress import progress_bar
from vgpuscope.terminal.screen import speak_plainly
from vgpuscope.views.fleet.results.results import ResultRow, iso

_TICK = 0.2  # seconds between two updates of the progress bar


def main(
    *,
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    file: SettingsFile,
    form: Form,
    language: str | None,
    wide: bool,
) -> int:
    """Analyse once, with the progress on standard error, and print the results."""
    speak_plainly()
    logging.getLogger("vgpuscope").setLevel(logging.CRITICAL)  # errors are printed below
    settings = Settings(flags=flags, environ=environ, file=file.path, check=check_source)
    if file.by == WORKING_DIRECTORY:
        print(f"vgpuscope: settings read from {file.path} ({file.by})", file=sys.stderr)
    analysis, rows = asyncio.run(_once(settings))
    for fault in analysis.faults:
        print_line(f"vgpuscope: {fault.code}: {fault.part}: {fault.message}", sys.stderr)
    spoken = language_of(language, environ)
    remark = "" if rows else no_gpu(analysis.source, iso(analysis.started), spoken)
    print_results(rows, form, spoken, remark=remark, wide=wide)
    return 0


async def _once(settings: Settings) -> tuple[Analysis, Sequence[ResultRow]]:
    sources = Sources(settings.config)
    cycle = AnalysisCycle(
        lambda: settings.config, lambda: sources.current, owners=sources.owners, done=_nothing, nodes=sources.nodes
    )
    try:
        with progress_bar() as bar:
            if isinstance(sources.current, ScrapeSource):
                await _collect(sources.current, settings.config, bar)
            elif isinstance(sources.current, PrometheusSource):
                bar.add_task("querying Prometheus", total=None)
                await sources.current.ready()  # a wrong address is reported at once
            cycle.trigger()
            await cycle.finished()
    finally:
        await sources.close()
    board = await cycle.board()
    if board.analysis is None:
        raise cycle.tally.last_error or SourceDown("the analysis ended without a result")
    return board.analysis, board.rows


async def _collect(source: ScrapeSource, config: Config, bar: Progress) -> None:
    """Scrape for one window, since there are no earlier samples."""
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
                scraping.result()  # raises: scraping ends only by failing
    finally:
        scraping.cancel()
        await asyncio.gather(scraping, return_exceptions=True)


async def _nothing(board: Board) -> None:
    """Nothing follows this analysis."""
