"""The analyzer: readings of the fleet → scores and verdicts → an API, /metrics, a log table and a history.

PrometheusSource ─┐
ScrapeSource ─────┴─► Cycle (fleet → score → verdict) ─► Board ─► API, /metrics, log
                                    └──────────────────► History ─► /api/v1/history, the next start, other replicas
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from vgpuscope.catalog import analyzer as catalog
from vgpuscope.config import Config
from vgpuscope.model.analysis import Analysis
from vgpuscope.model.errors import ConfigInvalid, HistoryDown, NotLeader, ScopeError
from vgpuscope.model.history import HistoryPoint
from vgpuscope.runtime import address, lifecycle
from vgpuscope.runtime.build import this_build
from vgpuscope.runtime.doorman import Doorman
from vgpuscope.runtime.http import App, Readiness, Server, make_app
from vgpuscope.runtime.log import error_fields, fields, setup
from vgpuscope.runtime.operations import Operation, routes
from vgpuscope.services.analyzer_api import TITLE, AnalyzerApi
from vgpuscope.services.analyzer_cycle import Board, Cycle, Tally
from vgpuscope.services.analyzer_settings import Settings
from vgpuscope.services.analyzer_sources import Sources
from vgpuscope.sinks.history import History, Outbox, open_history
from vgpuscope.views.analyzer_metrics import Health, fleet_samples, gpu_samples
from vgpuscope.views.log_table import low_lines, table_lines
from vgpuscope.views.sharded import ShardedPage

if TYPE_CHECKING:
    from vgpuscope.runtime.guard import Guard

log = logging.getLogger(__name__)

_LOOK_EVERY = 2.0  # seconds between two looks at the file of settings
_LEASE = 15.0  # seconds; who leads renews it thrice in that time
_PRUNE_EVERY = 600.0
_LEVELS = {"DEBUG": 6, "INFO": 4, "WARNING": 0, "ERROR": 0}
_OPEN = frozenset({"/health", "/docs", "/openapi.json"})


def main(*, flags: Mapping[str, object], environ: Mapping[str, str], file: str | None) -> int:
    """`vgpuscope analyzer`."""
    settings = Settings(flags=flags, environ=environ, file=file)
    config = settings.config
    level = config.logging.level
    setup(v=_LEVELS[level] if level else config.log.v, format=config.log.format)
    return lifecycle.main(lambda life: _serve(settings, life))


async def _serve(settings: Settings, life: lifecycle.Lifecycle) -> None:
    config = settings.config.analyzer
    analyzer = Analyzer(settings)
    guard = _guard(settings.config, analyzer.count)
    sock = address.bind(config.listen)
    server = Server(analyzer.app(guard), sock=sock, guard=guard)
    log.info("analyzer starts", extra=fields(url=server.url, source=analyzer.source_name))
    if analyzer.doorman.read_only:
        log.warning("read-only: no token is set and the listener is not on a loopback address")
    try:
        with _on_hangup(analyzer.reload):
            await life.run(analyzer.loops(), server=server)
    finally:
        await analyzer.close()


class Analyzer:
    """The parts of the analyzer, and what the API asks of them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        config = settings.config.analyzer
        host, _ = address.split(config.listen)
        self.doorman = Doorman(
            listen_host=host,
            token=config.api_token,
            protect_reads=config.protect_reads,
            user_header=config.proxy_user_header,
            rate=config.rate_limit,
        )
        self._sources = Sources(settings.config)
        self._history: History = open_history(
            config.history, keep_results=config.keep_results, keep_hours=config.keep_hours, keep_days=config.keep_days
        )
        self._outbox = Outbox(self._history)
        self._cycle = Cycle(
            lambda: settings.config, lambda: self._sources.current, owners=self._sources.owners, done=self._done
        )
        self._page = ShardedPage(catalog.METRICS, catalog.FAMILIES)
        self._shown: set[str] = set()
        self._errors: dict[str, int] = {}
        self._holder = f"{socket.gethostname()}-{os.getpid()}"
        self._leads = False
        self._wake = asyncio.Event()
        self._show_fleet()

    @property
    def source_name(self) -> str:
        return self._sources.name

    def loops(self) -> dict[str, lifecycle.Loop]:
        """What runs for as long as the analyzer does."""
        return {
            "schedule": self._schedule,
            "lead": self._lead_forever,
            "settings": self._watch_settings,
            "source": self._sources.run,
            "prune": self._prune_forever,
        }

    def app(self, guard: "Guard | None") -> App:
        """What is served."""
        api = AnalyzerApi(self, read_only=self.doorman.read_only)
        return make_app(
            title=TITLE,
            metrics=self._metrics,
            ready=self._readiness,
            guard=guard,
            routes=routes(api.operations, self._admit),
        )

    def count(self, error: ScopeError) -> None:
        """One more of this error."""
        self._errors[error.code] = self._errors.get(error.code, 0) + 1

    def reload(self) -> None:
        """Read the settings again; bad ones are told of, and change nothing."""
        try:
            self._settings.reload()
        except ConfigInvalid as e:
            self.count(e)
            log.warning("settings not taken", extra=error_fields(e))
            return
        log.info("settings renewed")
        self._apply()

    async def close(self) -> None:
        """Give back what others may want: the lease, connections."""
        with contextlib.suppress(HistoryDown):
            await self._history.resign(self._holder)
        await self._sources.close()
        await self._history.close()

    # ── what the API asks ────────────────────────────────────────────────────────────────────────────────────────

    def board(self) -> Board:
        return self._cycle.board()

    def config(self) -> Config:
        return self._settings.config

    def tally(self) -> Tally:
        return self._cycle.tally

    def leads(self) -> bool:
        return self._leads

    def trigger(self) -> bool:
        if not self._leads:
            raise NotLeader("another replica analyses")
        return self._cycle.trigger()

    async def update(self, changes: dict[str, Any]) -> dict[str, Any]:
        done = await asyncio.to_thread(self._settings.update, changes)
        log.info("settings changed", extra=fields(**{path.replace(".", "_"): value for path, value in done.items()}))
        self._apply()
        return done

    async def points(self, **asked: Any) -> list[HistoryPoint]:
        end = asked["end"] if asked["end"] is not None else time.time()
        begin = asked["begin"] if asked["begin"] is not None else end - 86400
        return await self._history.points(
            step=asked["step"] or "analysis",
            begin=begin,
            end=end,
            gpu_id=asked["gpu_id"],
            mig=asked["mig"],
            namespace=asked["namespace"],
            pod=asked["pod"],
            limit=asked["limit"],
        )

    # ── loops ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _schedule(self) -> None:
        """An analysis each interval, measured from start to start; changed settings take effect at once."""
        await self._restore()
        while True:
            began = time.monotonic()
            if self._leads:
                self._cycle.trigger()
                await self._cycle.finished()
            else:
                await self._restore()
            self._show_fleet()
            rest = began + (self._settings.config.scheduler.interval if self._leads else _LEASE / 3) - time.monotonic()
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), max(0.05, rest))

    async def _restore(self) -> None:
        """Take over the last result of an earlier run, or of the replica that leads."""
        try:
            latest = await self._history.latest()
        except HistoryDown as e:
            self._history_failed(e)
            return
        if latest is not None:
            await self._cycle.restore(latest)
            await asyncio.to_thread(self._show_gpus, latest)

    async def _lead_forever(self) -> None:
        while True:
            try:
                leads = await self._history.lead(self._holder, _LEASE)
            except HistoryDown as e:
                leads = False
                self._history_failed(e)
            if leads != self._leads:
                log.info("leading" if leads else "following", extra=fields(holder=self._holder))
                self._leads = leads
                self._wake.set()
            await asyncio.sleep(_LEASE / 3)

    async def _watch_settings(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            if self._settings.file_changed():
                self.reload()
            self._show_fleet()

    async def _prune_forever(self) -> None:
        while True:
            await asyncio.sleep(_PRUNE_EVERY)
            if self._leads:
                try:
                    await self._history.prune(time.time())
                except HistoryDown as e:
                    self._history_failed(e)

    # ── what follows from an analysis ────────────────────────────────────────────────────────────────────────────

    async def _done(self, analysis: Analysis) -> None:
        await asyncio.to_thread(self._show_gpus, analysis)
        self._log_table()
        try:
            await self._outbox.save(analysis)
        except HistoryDown as e:
            self._history_failed(e)

    def _history_failed(self, error: HistoryDown) -> None:
        self.count(error)
        log.error("history store", extra=error_fields(error))

    def _log_table(self) -> None:
        board = self._cycle.board()
        for line in table_lines(board.rows):
            log.info(line)
        for line in low_lines(board.rows, threshold=self._settings.config.thresholds.low_utilization):
            log.warning(line)
        if board.analysis:
            log.info("Analysis completed in %.2fs", board.analysis.seconds)

    def _show_gpus(self, analysis: Analysis) -> None:
        """Cards that are gone, and what they showed, go from the page."""
        by_host: dict[str, list[Any]] = {}
        for gpu in analysis.gpus:
            by_host.setdefault(gpu.hostname, []).append(gpu)
        for host, gpus in by_host.items():
            self._page.update(("host", host), [sample for gpu in gpus for sample in gpu_samples(gpu)])
        for host in self._shown - by_host.keys():
            self._page.drop(("host", host))
        self._shown = set(by_host)

    def _show_fleet(self) -> None:
        board, tally, config = self._cycle.board(), self._cycle.tally, self._settings.config
        if board.stale:
            for host in self._shown:
                self._page.drop(("host", host))
            self._shown = set()
        health = Health(
            analyses=tally.analyses,
            errors=tally.errors,
            seconds=tally.seconds,
            dropped=tally.dropped,
            last_success=tally.last_success,
            leader=self._leads,
            threshold=config.thresholds.low_utilization,
            interval=config.scheduler.interval,
            error_counts=dict(self._errors),
        )
        analysis = None if board.stale else board.analysis
        samples = fleet_samples(
            build=this_build(), analysis=analysis, rows=board.rows, stats=board.stats, health=health
        )
        self._page.update("fleet", samples)

    def _metrics(self) -> ShardedPage:
        return self._page

    def _readiness(self) -> Readiness:
        """Ready to answer as soon as there is a result, or it is known why there is none."""
        tally = self._cycle.tally
        waiting = self._cycle.board().analysis is None and tally.analyses == 0
        return Readiness(missing=("the first analysis",) if waiting else ())

    async def _admit(self, request: Request, operation: Operation) -> None:
        self.doorman.admit(request, changes=operation.changes, open_to_all=operation.path in _OPEN)

    def _apply(self) -> None:
        """Let changed settings take effect now."""
        self._sources.renew(self._settings.config)
        self._wake.set()


@contextlib.contextmanager
def _on_hangup(reload: Any) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(signal.SIGHUP, reload)
    except (RuntimeError, ValueError):  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


def _guard(config: Config, on_error: Any) -> "Guard | None":
    if config.analyzer.web_config_file is None:
        return None
    from vgpuscope.runtime.guard import Guard

    return Guard(config.analyzer.web_config_file, on_error=on_error)
