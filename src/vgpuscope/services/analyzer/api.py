"""The analyzer's API: gpu-oour's endpoints with its response formats, and /api/v1 with more detail."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Struct, UnsetType

from vgpuscope.config import Config
from vgpuscope.config.reclaim import callback_when
from vgpuscope.http import docs
from vgpuscope.http.answer_limits import LONGEST_PERIOD, MOST_HISTORIES, MOST_WASTES, WASTES_WAITING
from vgpuscope.http.answers import CSV, JSON, Content, HttpAnswer, json_content
from vgpuscope.http.events import Event, Feed, Stream
from vgpuscope.http.openapi import document
from vgpuscope.http.operations import EVENTS, HttpCall, Method, Operation
from vgpuscope.http.parameters import NoQuery
from vgpuscope.http.request_places import Places
from vgpuscope.logic.console.scope import allowed
from vgpuscope.model.analysis import Analysis
from vgpuscope.model.caller import Caller
from vgpuscope.model.console.opinion import OpinionRow
from vgpuscope.model.doctor import AnalyzerFacts, ChannelFacts, DoctorReport, ReclaimFacts
from vgpuscope.model.errors import BodyInvalid, ConfigInvalid, Forbidden, ScopeError
from vgpuscope.model.history import STEP_SECONDS, HistoryPage, HistoryPoint, Step
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.model.waste import Waste, WasteRow
from vgpuscope.runtime.duration import long_seconds
from vgpuscope.services.analyzer.backtest.api import BacktestApi
from vgpuscope.services.analyzer.backtest.backtests import Backtests
from vgpuscope.services.analyzer.console.api import ConsoleApi
from vgpuscope.services.analyzer.console.console import Console
from vgpuscope.services.analyzer.cycle import AnalysisCounts, Board, Staleness
from vgpuscope.services.analyzer.doctor import Doctor
from vgpuscope.services.analyzer.notices.api import NoticesApi
from vgpuscope.services.analyzer.notices.notices import Notices
from vgpuscope.services.analyzer.notices.owner_links import OwnerLinks
from vgpuscope.services.analyzer.opinion.opinions import Opinions
from vgpuscope.services.analyzer.parameters import (
    AnalyzeQuery,
    HistoryQuery,
    LowQuery,
    RowFilters,
    RowsQuery,
    StatsQuery,
    UpdateQuery,
    WasteQuery,
)
from vgpuscope.services.analyzer.reclaim.api import ReclaimApi
from vgpuscope.services.analyzer.reclaim.reclaim import Reclaim
from vgpuscope.services.analyzer.settings.settings import CHANGEABLE, TRIABLE, Sections, by_path
from vgpuscope.services.analyzer.sources.watch import SourceCheck
from vgpuscope.services.analyzer.wasted import wasted
from vgpuscope.services.field_notes import field_notes
from vgpuscope.store.results.wanted import HistorySelection
from vgpuscope.version import __version__
from vgpuscope.views.fleet import api as shapes
from vgpuscope.views.fleet import seed_bodies as seed
from vgpuscope.views.fleet.results.results import ResultRow, Stats, iso, low, named_by_tenants, stats, units
from vgpuscope.views.fleet.selection import as_csv, as_json, matching, select
from vgpuscope.views.fleet.visible import visible_rows, visible_summary

TITLE = "vgpuscope analyzer"
ABOUT = (
    "What each GPU of the fleet is used for: a score, a status, and a verdict (in_use, idle or unknown) with the "
    "evidence it rests on. What was not measured is null, and what is not known well enough is unknown."
)
STALE_SINCE, NEXT = "x-vgpuscope-stale-since", "x-next-cursor"
_DATED = {STALE_SINCE: "since when the data is stale, because analyses failed or are missing; otherwise absent"}
_TAGGED = {"etag": "changes when the answer does"}
_COUNTED = {"x-total-count": "rows on all pages"}
_CONTINUED = {NEXT: "the `cursor` of the next page; absent on the last one"}
_TABLE = (JSON, CSV)
_FAULTS = 5  # faults listed in /health
_BY_HOURS = 14 * 86400  # seconds; beyond that, days are added up
_NAMES = {"threshold": "thresholds.low_utilization", "interval": "scheduler.interval", "ai_enabled": "ai.enabled"}
_ENDPOINTS = {
    "analyze": "/analyze",
    "results": "/results",
    "results_low": "/results/low",
    "stats": "/results/stats",
    "metrics": "/metrics",
    "health": "/health",
    "docs": "/docs",
    "api": "/api/v1/summary",
}
Plain = HttpCall[NoQuery, None]
Rows = HttpCall[RowsQuery, None]
LowRows = HttpCall[LowQuery, None]


class ServiceState(Struct, frozen=True, kw_only=True):
    """The state of the service."""

    tally: AnalysisCounts
    last: Analysis | None  # the last good analysis, perhaps of another replica
    old: bool  # the last analysis is too old to be trusted
    stale: Staleness | None = None  # why the shown results are out of date
    look: SourceCheck | None = None  # None: the source was not checked yet
    leader: bool
    history: bool  # the store of results answers
    failing: tuple[str, ...] = ()  # followers of the last analysis that failed, with their codes
    ai_error: str | None = None  # code of the error with which the language model last failed
    control_error: str | None = None  # code of the error with which the last report of a low GPU failed

    @property
    def connected(self) -> bool:
        """Whether the source answered when it was last asked, by a check or by an analysis."""
        if self.look is not None and self.look.analyses >= self.tally.analyses:
            return self.look.error is None
        return bool(self.tally.connected)

    @property
    def error(self) -> ScopeError | None:
        """Why the source does not answer, else why the last analysis failed."""
        newest = self.look is not None and self.look.analyses >= self.tally.analyses
        return (self.look.error if self.look and newest else None) or self.tally.last_error


class TriggerResult(Struct, frozen=True, kw_only=True):
    """What a request for an analysis led to."""

    started: bool  # False: it joined one that is running
    asks: bool  # the language model is asked about it
    why_not: ConfigInvalid | None = None  # why the model cannot be asked, though it was wanted


class AnalyzerState(Protocol):
    """What the API reads from the analyzer, and what it can start there."""

    feed: Feed
    reclaim: Reclaim
    opinions: Opinions
    notices: Notices
    backtests: Backtests

    @property
    def read_only(self) -> bool: ...
    async def board(self) -> Board: ...
    def config(self) -> Config: ...
    def state(self) -> ServiceState: ...
    @property
    def console(self) -> Console: ...
    def trigger(self, *, use_ai: bool | None = None) -> TriggerResult: ...
    async def update(self, changes: dict[str, Any]) -> dict[str, Any]: ...
    async def page(self, wanted: HistorySelection) -> HistoryPage: ...
    async def points(self, wanted: HistorySelection) -> list[HistoryPoint]: ...


def _changes_types() -> tuple[Any, Any]:
    """The bodies of /config/update and of a preview: the settings that can be changed or tried, by section."""
    sections: dict[str, list[tuple[str, Any, Any]]] = {}
    for setting in CHANGEABLE:
        section, _, name = setting.path.partition(".")
        sections.setdefault(section, []).append((name, setting.type | UnsetType, UNSET))
    made = [
        (section, msgspec.defstruct(f"{section.title()}Changes", found, kw_only=True, forbid_unknown_fields=True))
        for section, found in sections.items()
    ]
    fields = [(section, kind | UnsetType, UNSET) for section, kind in made]
    tried = [field for field in fields if field[0] in TRIABLE]
    return (
        msgspec.defstruct("Changes", fields, kw_only=True, forbid_unknown_fields=True),
        msgspec.defstruct("TriedChanges", tried, kw_only=True, forbid_unknown_fields=True),
    )


CHANGES, TRIED = _changes_types()


class AnalyzerApi:
    """The operations, as a table."""

    def __init__(
        self,
        backend: AnalyzerState,
        *,
        guarded: Callable[[], bool] = lambda: False,
        more: Sequence[Operation] = (),
        clock: Callable[[], Seconds] = time.monotonic,
        wall: Callable[[], UnixTime] = time.time,
    ) -> None:
        """`guarded`: whether the web configuration has users or tokens now; `more`: other operations."""
        self._state, self._wall = backend, wall
        self._doctor = Doctor(
            console=lambda: self._state.console,
            config=self._settings_now,
            analyzer=self._own_facts,
            clock=clock,
            wall=wall,
        )
        self._histories, self._wastes = Places(MOST_HISTORIES), Places(MOST_WASTES, waiting=WASTES_WAITING)
        own = (*self._service(), *self._seed_tables(), *self._v1(), *more)
        made = cache(self.document)

        def described_now() -> bytes:
            settings = self._state.config().analyzer
            known = bool(settings.api_token or settings.proxy_user_header)
            return made(settings.protect_reads, guarded(), known)

        described = docs.operations(title=TITLE, document=described_now)
        self.operations: tuple[Operation, ...] = (*own, *described)

    def document(self, protected: bool = False, guarded: bool = False, known: bool = False) -> bytes:
        """The OpenAPI document."""
        return document(
            self.operations,
            title=TITLE,
            description=ABOUT,
            protected=protected,
            guarded=guarded,
            known=known,
            notes=field_notes,
        )

    def _service(self) -> tuple[Operation, ...]:
        """gpu-oour's endpoints about the service itself."""
        analyze: dict[str, Any] = {"role": "operate", "statuses": (409,)}
        started = "start an analysis, or join the running one"
        return (
            _row("GET", "/", "what this service is", self._info, seed.Info, scoped=True),
            _row(
                "GET",
                "/health",
                "state of source and analyses",
                self._health,
                seed.HealthBody,
                access="guarded",
                unlimited=True,
                no_store=True,
            ),
            _row("GET", "/analyze", started, self._analyze, seed.Triggered, **analyze),
            _row("POST", "/analyze", started, self._analyze, seed.Triggered, **analyze),
            _row("GET", "/config", "the settings in effect", self._config, dict[str, Any]),
            _row(
                "POST",
                "/config/update",
                "change settings; on any error none is changed",
                self._update,
                seed.Updated,
                body_shown=CHANGES,
                role="admin",
                statuses=(409,),
            ),
        )

    def _seed_tables(self) -> tuple[Operation, ...]:
        """gpu-oour's endpoints about GPUs."""
        return (
            self._rows_of("/results"),
            self._data(
                "/results/low",
                "GPUs and tenants with the verdict idle, or with a score below the threshold",
                self._low,
                seed.LowBody,
                scoped=True,
                or_else=seed.SomeOfLow,
                media=_TABLE,
                headers=_COUNTED | _TAGGED,
            ),
            self._data(
                "/results/stats",
                "sums over all GPUs",
                self._stats,
                Stats,
                scoped=True,
                media=_TABLE,
                headers=_TAGGED,
            ),
        )

    def _v1(self) -> tuple[Operation, ...]:
        return (
            self._data("/api/v1/summary", "the fleet in a few figures", self._summary, shapes.Summary, scoped=True),
            *ConsoleApi(lambda: self._state.console, data=self._data, changes=TRIED).operations(),
            *ReclaimApi(lambda: self._state.reclaim, data=self._data, opinion=self._opinion).operations(),
            *NoticesApi(lambda: self._state.notices, data=self._data).operations(),
            *OwnerLinks(lambda: self._state.notices, lambda: self._state.reclaim, clock=self._wall).operations(),
            *BacktestApi(lambda: self._state.backtests, data=self._data, wall=self._wall).operations(),
            self._data(
                "/api/v1/doctor",
                "the chain of checks: what is broken or misleading, why, and what to do",
                self._doctor.answer,
                DoctorReport,
                scoped=True,
                statuses=(503,),
            ),
            self._data(
                "/api/v1/doctor/facts",
                "the facts of the report, for `vgpuscope doctor` of the same version",
                self._doctor.facts,
                scoped=False,
                statuses=(503,),
                hidden=True,
            ),
            self._data(
                "/api/v1/history",
                "the course of GPUs and pods, a page at a time",
                self._history,
                list[HistoryPoint],
                scoped=True,
                headers=_CONTINUED,
                statuses=(503,),
            ),
            self._data(
                "/api/v1/waste",
                "idle GPU-hours, by tenant or group, most first",
                self._waste,
                Waste,
                scoped=True,
                media=_TABLE,
                headers=_COUNTED,
                statuses=(503,),
            ),
            self._data(
                "/api/v1/events",
                "server-sent events: `analysis` now, and whenever another analysis is shown",
                self._events,
                scoped=True,
                media=(EVENTS,),
            ),
        )

    def _rows_of(self, path: str) -> Operation:
        return self._data(
            path,
            "every GPU",
            self._results,
            list[ResultRow],
            scoped=True,
            or_else=list[seed.SomeOfRow],
            media=_TABLE,
            headers=_COUNTED | _TAGGED,
        )

    def _data(
        self,
        path: str,
        summary: str,
        handler: Any,
        answer: Any = Any,
        *,
        scoped: bool,
        headers: Mapping[str, str] = {},
        **more: Any,
    ) -> Operation:
        """An operation that shows data: its answer says when the data is stale.

        `scoped`: the handler hides tenants of other namespaces; if not, a caller with namespaces gets 403.
        """
        more = {"headers": {**headers, **_DATED}, "stamp": self._stale_header, "scoped": scoped, **more}
        return _row("GET", path, summary, handler, answer, **more)

    def _opinion(self, uid: str) -> OpinionRow | None:
        return self._state.opinions.on_pod(uid)

    def _settings_now(self) -> Config:
        return self._state.config()

    async def _own_facts(self) -> AnalyzerFacts:
        """What doctor can know of this analyzer."""
        state, config, board = self._state.state(), self._state.config(), await self._state.board()
        up, down = shapes.target_counts(state.last)
        error = state.error
        return AnalyzerFacts(
            url=TITLE,
            version=__version__,
            interval=config.scheduler.interval,
            window=config.prometheus.time_window_min * 60,
            condition=config.prometheus.query_condition,
            source_up=state.connected,
            error_code=error.code if error else "",
            error=str(error) if error else "",
            analysed=state.last is not None,
            old=state.old,
            leader=state.leader,
            stored=state.history if config.analyzer.keeps_results else None,
            failing=state.failing,
            targets_up=up,
            targets_down=down,
            down=_names_down(state.last),
            gpus=board.stats.total_gpus,
            unknown=board.stats.unknown_count,
            unproductive=_unproductive(board.analysis),
            asks_model=config.ai.enabled,
            model_error=state.ai_error or "",
            reports_low=callback_when(config.control, config.reclaim) is not None,
            control_error=state.control_error or "",
            channels=self._own_channels(),
            reclaim=self._own_reclaim(),
        )

    def _own_channels(self) -> tuple[ChannelFacts, ...]:
        notices = self._state.notices
        notices.channels()  # a channel that cannot be made has an error from now on
        return tuple(
            ChannelFacts(name=name, used=bool(one.error) or one.delivered_at is not None, error=one.error)
            for name, one in notices.states.items()
        )

    def _own_reclaim(self) -> ReclaimFacts:
        reclaim = self._state.reclaim
        breaker = reclaim.breaker
        return ReclaimFacts(
            live=not reclaim.policy().dry_run,
            stored=reclaim.mode != "off",
            kube=reclaim.kube,
            stopped_by=reclaim.stopped_by,
            turned=breaker.turned if breaker.is_open else None,
            of=breaker.of,
        )

    def _stale_header(self) -> dict[str, str]:
        stale = self._state.state().stale
        return {STALE_SINCE: iso(stale.since)} if stale else {}

    # ── gpu-oour's ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _info(self, call: Plain) -> seed.Info:  # noqa: ARG002
        config = self._state.config()
        return seed.Info(
            service="GPU Utilization Monitor",
            version=__version__,
            features=seed.Features(
                ai_analysis=config.ai.enabled, prometheus_metrics=True, control_api=config.control.enabled
            ),
            config=seed.InfoConfig(
                prometheus_url=config.prometheus.url or "",
                threshold=shapes.whole(config.thresholds.low_utilization),
                interval=shapes.whole(config.scheduler.interval),
                time_window_min=shapes.whole(config.prometheus.time_window_min),
                max_workers=config.scheduler.max_workers,
            ),
            endpoints=_ENDPOINTS,
            read_only=self._state.read_only,
        )

    async def _health(self, call: Plain) -> Content:  # noqa: ARG002
        """Never waits for anything."""
        state = self._state.state()
        tally, last, error, stale = state.tally, state.last, state.error, _stale(state)
        up, down = shapes.target_counts(last)
        body = seed.HealthBody(
            status="warning" if state.old else "degraded" if error or not state.connected or down else "healthy",
            prometheus_connected=state.connected,
            last_analysis=_moment(_later(tally.last_start, last)),
            analysis_timeout=state.old,
            ai_enabled=self._state.config().ai.enabled,
            interval=shapes.whole(self._state.config().scheduler.interval),
            source=last.source if last else "",
            last_success=_moment(_later(tally.last_success, last)),
            partial=bool(last and last.faults),
            leader=state.leader,
            history=state.history,
            error={"code": error.code, "message": str(error), "hint": error.advice} if error else None,
            targets_up=up,
            targets_down=down,
            faults=tuple(f"{fault.code}: {fault.message}" for fault in last.faults[:_FAULTS]) if last else (),
            failing=state.failing,
            ai_error=state.ai_error,
            control_error=state.control_error,
            stale_since=stale["stale_since"],
            stale_reason=stale["stale_reason"],
        )
        return json_content(body)

    async def _analyze(self, call: HttpCall[AnalyzeQuery, None]) -> seed.Triggered:
        done = self._state.trigger(use_ai=call.asked.use_ai)
        message = "GPU analysis started in background" if done.started else "GPU analysis is running already; joined it"
        if done.why_not is not None:
            message += f". The language model is not asked: {done.why_not}"
        return seed.Triggered("triggered", message, done.asks)

    async def _config(self, call: Plain) -> dict[str, Any]:  # noqa: ARG002
        return shapes.shown_config(self._state.config())

    async def _update(self, call: HttpCall[UpdateQuery, Sections | None]) -> seed.Updated:
        asked = msgspec.structs.asdict(call.asked)
        given = {_NAMES[name]: value for name, value in asked.items() if value is not None}
        named = by_path(call.body or {})
        if twice := sorted(given.keys() & named.keys()):
            raise BodyInvalid(f"{twice[0]} is in the body and among the parameters", hint="Give it once.")
        changes = named | given
        if not changes:
            raise BodyInvalid("no setting was given", hint='For example {"thresholds": {"idle": 5}}.')
        done = await self._state.update(changes)
        names = {path: name for name, path in _NAMES.items() if path in given}
        updates = {names.get(path, path): _plain(value) for path, value in done.items()}
        return seed.Updated("updated", updates, "In effect now; an analysis with the new settings has started.")

    async def _board(self, call: HttpCall[Any, Any]) -> Board:
        """The results that the caller may see. Every handler reads them here."""
        board, caller = await self._state.board(), call.caller
        if not caller.restricted:
            return board
        return await asyncio.to_thread(_visible, board, caller)

    async def _results(self, call: Rows) -> HttpAnswer:
        board = await self._board(call)
        return HttpAnswer(make=lambda: _rows_content(call, board.rows), version=_version(board))

    async def _low(self, call: LowRows) -> HttpAnswer:
        board = await self._board(call)
        return HttpAnswer(make=lambda: _low_content(call, board), version=(_version(board), board.threshold))

    async def _stats(self, call: HttpCall[StatsQuery, None]) -> HttpAnswer:
        board = await self._board(call)
        stale = _stale(self._state.state())

        def make() -> Content:
            made = msgspec.structs.replace(_sums(call.asked, board), **stale)
            return _csv([made], Stats) if call.csv else json_content(made)

        return HttpAnswer(make=make, version=(_version(board), board.threshold, stale))

    # ── /api/v1 ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _summary(self, call: Plain) -> HttpAnswer:
        board, state = await self._board(call), self._state.state()
        stale, errors = _stale(state), state.tally.errors
        sums = msgspec.structs.replace(board.stats, **stale)

        def make() -> Content:
            found = shapes.summary(board.analysis, board.rows, sums, stale=board.stale, errors=errors, **stale)
            return json_content(visible_summary(found, call.caller))

        return HttpAnswer(make=make, version=(_version(board), board.threshold, stale, errors))

    async def _history(self, call: HttpCall[HistoryQuery, None]) -> HttpAnswer:
        """One page. It holds its place until it is sent, so that slow clients do not pile up pages in memory."""
        _check_namespace(call.caller, call.asked)
        wanted = call.asked.wanted(self._wall())
        if wanted.namespace is None and wanted.pod is None:
            wanted = msgspec.structs.replace(wanted, tenants_of=call.caller.namespaces)
        await self._histories.take()
        try:
            page = await self._state.page(wanted)
        except BaseException:
            self._histories.leave()
            raise
        headers = {NEXT: page.cursor} if page.cursor else {}
        return HttpAnswer(make=lambda: json_content(page.points), headers=headers, ended=self._histories.leave)

    async def _waste(self, call: HttpCall[WasteQuery, None]) -> HttpAnswer:
        async with self._wastes:
            found = await self._sum_of_waste(call)
        headers = {"x-total-count": str(found.count)}
        return HttpAnswer(make=lambda: _csv(found.rows, WasteRow) if call.csv else json_content(found), headers=headers)

    async def _sum_of_waste(self, call: HttpCall[WasteQuery, None]) -> Waste:
        """One hour or day is read at a time, so that memory use does not grow with the period."""
        end = self._wall()
        asked, scope = call.asked, allowed(call.caller, call.asked.namespace)
        step, begin = _period(asked.since, end)
        analysis = (await self._board(call)).analysis
        ledger = await wasted(self._state.points, analysis, step=step, begin=begin, end=end)
        stored = self._state.config().analyzer.keeps_results
        found = ledger.waste(
            group_by=asked.group_by,
            begin=begin,
            end=end,
            history=stored,
            sees=None if scope is None else scope.__contains__,
        )
        return msgspec.structs.replace(found, rows=found.rows[: asked.limit])

    async def _events(self, call: Plain) -> Stream:
        return Stream(self._state.feed.listen(analysis_event(await self._board(call))))


def analysis_event(board: Board) -> Event:
    """The event that listeners get: which analysis is shown, and how many GPUs it has."""
    analysis = board.analysis
    data = shapes.ShownAnalysis(
        number=analysis.number if analysis else None,
        timestamp=board.stats.timestamp,
        gpus=board.stats.total_gpus,
        stale=board.stale,
    )
    return Event(name="analysis", data=data, id=str(analysis.number) if analysis else "")


def _visible(board: Board, caller: Caller) -> Board:
    rows = visible_rows(board.rows, caller)
    sums = stats(rows, threshold=board.threshold, timestamp=board.stats.timestamp)
    return msgspec.structs.replace(board, rows=rows, stats=sums)


def _check_namespace(caller: Caller, asked: HistoryQuery) -> None:
    """403 for a restricted caller that asks for pods without naming one of its namespaces."""
    pods = asked.namespace is not None or asked.pod is not None
    if pods and not caller.sees(asked.namespace or ""):
        own = ", ".join(caller.namespaces or ())
        raise Forbidden(f"{caller.name!r} sees only pods of {own}", hint="Give one of these as `namespace`.")


def _row(method: Method, path: str, summary: str, handler: Any, answer: Any = Any, **more: Any) -> Operation:
    return Operation(method=method, path=path, summary=summary, handler=handler, answer=answer, **more)


def _csv(rows: Sequence[Struct], row: type[Struct], **headers: str) -> Content:
    return Content(body=as_csv(rows, row.__struct_fields__), media=CSV, headers=headers)


def _rows_content(call: Rows, rows: Sequence[ResultRow]) -> Content:
    selection = call.asked.selection()
    page, total = select(rows, selection, parts=units)
    headers = {"x-total-count": str(total)}
    if call.csv:
        return Content(body=as_csv(page, selection.fields or ResultRow.__struct_fields__), media=CSV, headers=headers)
    return Content(body=as_json(page, selection.fields), headers=headers)


def _low_content(call: LowRows, board: Board) -> Content:
    selection, sums = call.asked.selection(), board.stats
    found = low(board.rows, threshold=board.threshold, kind=call.asked.kind)
    chosen = matching(found, selection, parts=named_by_tenants)
    page, total = select(chosen, msgspec.structs.replace(selection, equal={}, search="", least={}, most={}))
    headers = {"x-total-count": str(total)}
    if call.csv:
        return Content(body=as_csv(page, selection.fields or ResultRow.__struct_fields__), media=CSV, headers=headers)
    gpus: Any = msgspec.Raw(as_json(page, selection.fields))
    of_gpus = sum([row.kind == "gpu" for row in chosen])
    body = seed.LowBody(
        total,
        shapes.whole(board.threshold),
        sums.timestamp,
        gpus,
        stale=board.stale,
        total_gpus=sums.total_gpus,
        unknown_count=sums.unknown_count,
        tenants_total=sums.tenants_total,
        tenants_unknown=sums.tenants_unknown,
        low_utilization_count=sums.low_utilization_count,
        mig_instances=sums.mig_instances,
        gpu_rows=of_gpus,
        tenant_rows=total - of_gpus,
    )
    return json_content(body, **headers)


def _sums(asked: RowFilters, board: Board) -> Stats:
    selection = asked.selection()
    found = matching(board.rows, selection, parts=units)
    chosen = matching([unit for row in found for unit in units(row)], selection)
    return stats(found, threshold=board.threshold, timestamp=board.stats.timestamp, chosen=chosen)


def _version(board: Board) -> object:
    """What every answer about the shown analysis depends on."""
    analysis = board.analysis
    return (analysis.number, analysis.started, board.stale, board.opinions_version) if analysis else "none"


def _moment(at: float | None) -> str | None:
    return None if at is None else iso(at)


def _stale(state: ServiceState) -> dict[str, str | None]:
    """The fields that say since when, and why, the shown results are out of date."""
    stale = state.stale
    return {"stale_since": _moment(stale.since) if stale else None, "stale_reason": stale.reason if stale else None}


def _later(at: float | None, last: Analysis | None) -> float | None:
    """The later of this replica's own time and that of the last analysis, which may be another replica's."""
    told = last.started if last else None
    return max((moment for moment in (at, told) if moment is not None), default=None)


def _names_down(last: Analysis | None) -> tuple[str, ...]:
    targets = last.targets if last else ()
    return tuple(f"{one.name}: {one.reason}" for one in targets if not one.up)


def _unproductive(analysis: Analysis | None) -> frozenset[str]:
    """GPUs that the results call busy-unproductive, or of which they call a tenant so."""
    return frozenset(
        gpu.gpu_id
        for gpu in (analysis.gpus if analysis else ())
        if "busy-unproductive" in {gpu.use_class, *(tenant.use_class for tenant in gpu.tenants)}
    )


def _plain(value: Any) -> Any:
    return shapes.whole(value) if isinstance(value, float) else value


def _period(since: str, end: float) -> tuple[Step, float]:
    """The step by which a period is added up, and the start of the first step."""
    seconds = min(LONGEST_PERIOD, long_seconds(since))
    step: Step = "hour" if seconds <= _BY_HOURS else "day"
    long = STEP_SECONDS[step]
    return step, (end - seconds) // long * long
