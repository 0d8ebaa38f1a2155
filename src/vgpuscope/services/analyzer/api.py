"""The analyzer's API: gpu-oour's endpoints with its shapes, and /api/v1 for those who want more."""

import asyncio
import hashlib
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from vgpuscope.config import Config
from vgpuscope.http.negotiation import prefers
from vgpuscope.http.operations import Operation, Param, docs_page, openapi
from vgpuscope.logic.fleet.waste import WasteLedger, present
from vgpuscope.model.analysis import STATUSES, USE_CLASSES, VERDICTS, Analysis
from vgpuscope.model.errors import BodyInvalid, ScopeError, Unknown
from vgpuscope.model.history import STEP_SECONDS, HistoryPoint, Step
from vgpuscope.model.waste import GROUPINGS, Waste, WasteRow
from vgpuscope.model.wording import nearest, sentences
from vgpuscope.runtime.duration import LONG, long_seconds
from vgpuscope.services.analyzer.cycle import Board, Stale, Tally
from vgpuscope.services.analyzer.settings import CHANGEABLE
from vgpuscope.version import __version__
from vgpuscope.views.fleet import api as shapes
from vgpuscope.views.fleet.results import ResultRow, Stats, iso, low, stats, units
from vgpuscope.views.fleet.selection import Selection, as_csv, as_json, matching, select

TITLE = "vgpuscope analyzer"
ABOUT = (
    "What each GPU of the fleet is used for: a score, a status, and a verdict (in_use, idle or unknown) with the "
    "evidence it rests on. What was not measured is null, and what is not known well enough is unknown."
)
_CSV = "text/csv; charset=utf-8"
_SEARCHED = 500  # GPUs, for one whose UUID is like the one that was asked for
STALE_SINCE = "x-vgpuscope-stale-since"
_DATED = {STALE_SINCE: "since when the data is stale, because analyses failed or are missing; otherwise absent"}
_NO_DATA = frozenset({"/", "/health", "/analyze", "/config", "/config/update", "/openapi.json", "/docs"})


class Look(Struct, frozen=True, kw_only=True):
    """One look at the source, whether it answers."""

    error: ScopeError | None
    analyses: int  # that had ended when it began


class Pulse(Struct, frozen=True, kw_only=True):
    """How it goes."""

    tally: Tally
    last: Analysis | None  # the last good one, perhaps of another replica
    old: bool  # it is too old to be believed
    stale: Stale | None = None  # why it is not what an analysis would find now
    look: Look | None = None  # None: the source was not looked at yet
    leader: bool
    history: bool  # the store of results answers
    failing: tuple[str, ...] = ()  # followers of the last analysis that failed, with their codes

    @property
    def connected(self) -> bool:
        """Whether the source answered when it was last asked, by a look or by an analysis."""
        if self.look is not None and self.look.analyses >= self.tally.analyses:
            return self.look.error is None
        return bool(self.tally.connected)

    @property
    def error(self) -> ScopeError | None:
        """Why the source does not answer, else why the last analysis failed."""
        newest = self.look is not None and self.look.analyses >= self.tally.analyses
        return (self.look.error if self.look and newest else None) or self.tally.last_error


class Desk(Protocol):
    """What the API asks for and asks to be done."""

    @property
    def read_only(self) -> bool: ...
    async def board(self) -> Board: ...
    def config(self) -> Config: ...
    def pulse(self) -> Pulse: ...
    def trigger(self) -> bool: ...
    async def update(self, changes: dict[str, Any]) -> dict[str, Any]: ...
    async def points(self, **asked: Any) -> list[HistoryPoint]: ...


class Features(Struct, frozen=True):
    ai_analysis: bool
    prometheus_metrics: bool
    control_api: bool


class InfoConfig(Struct, frozen=True):
    prometheus_url: str
    threshold: float
    interval: float
    time_window_min: float
    max_workers: int


class Info(Struct, frozen=True):
    """What `/` says."""

    service: str
    version: str
    features: Features
    config: InfoConfig
    endpoints: dict[str, str]
    read_only: bool


_FAULTS = 5  # that /health names


class HealthBody(Struct, frozen=True):
    """What `/health` says; the first six fields are gpu-oour's."""

    status: str
    prometheus_connected: bool
    last_analysis: str | None
    analysis_timeout: bool
    ai_enabled: bool
    interval: float
    source: str
    last_success: str | None
    partial: bool
    leader: bool
    history: bool  # the store of results answers
    error: dict[str, str] | None
    stale_since: str | None  # null: what is shown is what the last analysis found
    stale_reason: str | None
    targets_up: int | None  # scrape targets that answer; null: the source does not know its targets
    targets_down: int | None  # that are expected to answer, and do not
    faults: tuple[str, ...]  # what was missing in the last analysis: the first few, with their codes
    failing: tuple[str, ...] = ()  # what failed after the last analysis (page, log, store), with codes


class Triggered(Struct, frozen=True):
    """What `/analyze` says."""

    status: str
    message: str
    use_ai: bool


class LowBody(Struct, frozen=True):
    """What `/results/low` says; `count` is that of all pages.

    `gpus` are GPUs that one tenant has, or none, and of shared GPUs the tenants, each with its own numbers.
    """

    count: int
    threshold: float
    timestamp: str | None
    gpus: list[ResultRow]
    stale: bool = False
    total_gpus: int = 0  # that were analysed, of all statuses
    unknown_count: int = 0  # of these, those whose verdict is unknown
    tenants_total: int = 0
    tenants_unknown: int = 0


SomeOfRow: Any = msgspec.defstruct(
    "SomeOfRow",
    [(field.name, field.type | UnsetType, UNSET) for field in msgspec.structs.fields(ResultRow)],
    kw_only=True,
    forbid_unknown_fields=True,
)


class SomeOfLow(Struct, frozen=True, forbid_unknown_fields=True):
    """What `/results/low` says when only some fields were asked for."""

    count: int
    threshold: float
    timestamp: str | None
    gpus: list[SomeOfRow]
    stale: bool = False
    total_gpus: int = 0
    unknown_count: int = 0
    tenants_total: int = 0
    tenants_unknown: int = 0


class Updated(Struct, frozen=True):
    """What `/config/update` says."""

    status: str
    updates: dict[str, Any]
    note: str


_ROW_FILTERS = (
    Param(name="status", help="Only rows of this status, or with a tenant of it.", choices=STATUSES),
    Param(name="verdict", help="Only rows of this verdict, or with a tenant of it.", choices=VERDICTS),
    Param(name="use_class", help="Only rows of this class, or with a tenant of it.", choices=USE_CLASSES),
    Param(name="namespace", help="Only GPUs of which a tenant is in this namespace."),
    Param(name="pod", help="Only GPUs of which this pod is a tenant."),
    Param(name="hostname", help="Only GPUs of this node."),
    Param(name="model_name", help="Only GPUs of this model."),
    Param(name="gpu_id", help="Only this GPU, by its whole UUID."),
    Param(name="shared", type="boolean", help="Only GPUs with several tenants, or only those with one or none."),
    Param(name="search", help="Only rows with this text in one of their names."),
    Param(name="min_score", type="number", help="Only rows or tenants of this score or more.", least=0, most=100),
    Param(name="max_score", type="number", help="Only rows or tenants of this score or less.", least=0, most=100),
)
_FIELDS = ResultRow.__struct_fields__
_ORDERS = tuple(name for name in _FIELDS if name not in {"tenants", "ai_analysis", "xids"})
_PAGING = (
    Param(
        name="sort",
        help="Field to sort by; a leading - reverses the order.",
        choices=(*_ORDERS, *(f"-{name}" for name in _ORDERS)),
    ),
    Param(name="offset", type="integer", help="Number of rows to skip.", least=0, most=10**9, default=0),
    Param(name="limit", type="integer", help="Most rows to send.", least=0, most=10**9),
    Param(name="fields", help="Fields to send.", choices=_FIELDS, many=True),
)
_FORMAT = Param(name="format", help="The same as the Accept header.", choices=("json", "csv"))
_TABLE = (*_ROW_FILTERS, *_PAGING, _FORMAT)
_TAGGED = {"etag": "changes when the content changes"}
_TABLE_HEADERS = {"x-total-count": "rows on all pages"} | _TAGGED
_BOTH = ("application/json", "text/csv")
_NAMES = {"threshold": "thresholds.low_utilization", "interval": "scheduler.interval", "ai_enabled": "ai.enabled"}
_SETTINGS = (
    Param(name="threshold", type="number", help="thresholds.low_utilization", least=0, most=100),
    Param(name="interval", type="number", help="scheduler.interval, in seconds", least=1, most=86400),
    Param(name="ai_enabled", type="boolean", help="ai.enabled; a language model is not part of this release."),
)
_HISTORY = (
    Param(name="step", help="One point for each analysis, hour or day.", choices=("analysis", "hour", "day")),
    Param(
        name="begin",
        type="number",
        help="Begin, in Unix seconds; default: a day ago.",
        least=0,
        most=1e11,
    ),
    Param(name="end", type="number", help="End, in Unix seconds; default: now.", least=0, most=1e11),
    Param(name="gpu_id", help="Only this GPU."),
    Param(name="mig", help="Only this MIG instance."),
    Param(name="namespace", help="Only tenants of this namespace."),
    Param(name="pod", help="Only this pod."),
    Param(name="limit", type="integer", help="Maximum number of points.", least=1, most=100_000, default=10_000),
)
_WASTE = (
    Param(
        name="since",
        help="How far back, such as 90m, 24h, 7d or 2w; begins with a whole hour, beyond 14d with a whole day.",
        pattern=LONG,
        default="24h",
    ),
    Param(name="group_by", help="What each row stands for.", choices=GROUPINGS, default="tenant"),
    Param(name="limit", type="integer", help="Most rows to send.", least=0, most=10**9),
    Param(name="format", help="The same as the Accept header.", choices=("json", "csv")),
)
_LONGEST = 400 * 86400.0  # seconds: days are kept no longer, by default
_BY_HOURS = 14 * 86400  # seconds; beyond that, days are added up
_AT_ONCE = 6  # hours or days that are read from the store at once, so that memory does not grow with the time
_EVERYTHING = 10**9
_LANGUAGE = Param(name="lang", help="Language of the sentences.", choices=("en", "zh"), default="en")


class AnalyzerApi:
    """The operations, as a table."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.operations = tuple(one if one.path in _NO_DATA else self._dated(one) for one in self._table())
        self._openapi = openapi((*self.operations, METRICS), title=TITLE, description=ABOUT)
        self._docs = docs_page((*self.operations, METRICS), title=TITLE, description=ABOUT)

    def _table(self) -> tuple[Operation, ...]:
        rows = {"media": _BOTH, "headers": _TABLE_HEADERS}
        started = "start an analysis, or join the running one"
        return (
            _get("/", "what this service is", self._info, Info),
            _get("/health", "state of the source and of the last analysis", self._health, HealthBody),
            _get("/analyze", started, self._analyze, Triggered, _USE_AI, changes=True, statuses=(409,)),
            _post("/analyze", started, self._analyze, Triggered, _USE_AI),
            _get(
                "/results",
                "every GPU or MIG instance",
                self._results,
                list[ResultRow],
                *_TABLE,
                or_else=list[SomeOfRow],
                **rows,
            ),
            _get(
                "/results/low",
                "GPUs and tenants that are idle or below the threshold",
                self._low,
                LowBody,
                *_TABLE,
                or_else=SomeOfLow,
                **rows,
            ),
            _get(
                "/results/stats",
                "totals over all GPUs",
                self._stats,
                Stats,
                *_ROW_FILTERS,
                _FORMAT,
                media=_BOTH,
                headers=_TAGGED,
            ),
            _get("/config", "the settings in effect", self._config, dict[str, Any]),
            _post(
                "/config/update",
                "change settings; on any error none is changed",
                self._update,
                Updated,
                *_SETTINGS,
                body=CHANGES,
            ),
            _get("/openapi.json", "OpenAPI document of this API", self._openapi_json, dict[str, Any]),
            _get("/docs", "this page", self._docs_html, media=("text/html",)),
            _get("/api/v1/summary", "the fleet in a few figures", self._summary, shapes.Summary),
            _get(
                "/api/v1/gpus",
                "every GPU or MIG instance",
                self._results,
                list[ResultRow],
                *_TABLE,
                or_else=list[SomeOfRow],
                **rows,
            ),
            _get(
                "/api/v1/gpus/{gpu_id}",
                "one GPU: terms, tenants and the evidence of its verdict",
                self._gpu,
                list[shapes.GpuDetail],
                _LANGUAGE,
                statuses=(404,),
            ),
            _get("/api/v1/nodes", "every node", self._nodes, list[shapes.GroupRow], _FORMAT, media=_BOTH),
            _get("/api/v1/namespaces", "every namespace", self._spaces, list[shapes.GroupRow], _FORMAT, media=_BOTH),
            _get(
                "/api/v1/workloads",
                "every owner of pods with GPUs",
                self._workloads,
                list[shapes.WorkloadRow],
                _FORMAT,
                media=_BOTH,
            ),
            _get(
                "/api/v1/history",
                "past results, by analysis, hour or day",
                self._history,
                list[HistoryPoint],
                *_HISTORY,
                statuses=(503,),
            ),
            _get(
                "/api/v1/waste",
                "idle GPU-hours, by tenant or group, most first",
                self._waste,
                Waste,
                *_WASTE,
                media=_BOTH,
                headers={"x-total-count": "rows on all pages"},
                statuses=(503,),
            ),
        )

    def _dated(self, operation: Operation) -> Operation:
        """The same, but its answer says when what it shows is stale."""

        async def handler(request: Request, asked: dict[str, Any]) -> Response:
            answer = await operation.handler(request, asked)
            if stale := self._desk.pulse().stale:
                answer.headers[STALE_SINCE] = iso(stale.since)
            return answer

        return msgspec.structs.replace(operation, handler=handler, headers={**operation.headers, **_DATED})

    # ── gpu-oour's ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _info(self, request: Request, asked: dict[str, Any]) -> Response:  # noqa: ARG002
        config = self._desk.config()
        info = Info(
            service="GPU Utilization Monitor",
            version=__version__,
            features=Features(ai_analysis=False, prometheus_metrics=True, control_api=False),
            config=InfoConfig(
                prometheus_url=config.prometheus.url or "",
                threshold=shapes.whole(config.thresholds.low_utilization),
                interval=shapes.whole(config.scheduler.interval),
                time_window_min=shapes.whole(config.prometheus.time_window_min),
                max_workers=config.scheduler.max_workers,
            ),
            endpoints=_ENDPOINTS,
            read_only=self._desk.read_only,
        )
        return _json(info)

    async def _health(self, request: Request, asked: dict[str, Any]) -> Response:  # noqa: ARG002
        """Never waits for anything."""
        pulse = self._desk.pulse()
        tally, last, error, stale = pulse.tally, pulse.last, pulse.error, _stale(pulse)
        up, down = shapes.target_counts(last)
        body = HealthBody(
            status="warning" if pulse.old else "degraded" if error or not pulse.connected or down else "healthy",
            prometheus_connected=pulse.connected,
            last_analysis=_moment(_later(tally.last_start, last)),
            analysis_timeout=pulse.old,
            ai_enabled=False,
            interval=shapes.whole(self._desk.config().scheduler.interval),
            source=last.source if last else "",
            last_success=_moment(_later(tally.last_success, last)),
            partial=bool(last and last.faults),
            leader=pulse.leader,
            history=pulse.history,
            error={"code": error.code, "message": str(error), "hint": error.advice} if error else None,
            targets_up=up,
            targets_down=down,
            faults=tuple(f"{fault.code}: {fault.message}" for fault in last.faults[:_FAULTS]) if last else (),
            failing=pulse.failing,
            **stale,
        )
        return _json(body, headers={"cache-control": "no-store"})

    async def _analyze(self, request: Request, asked: dict[str, Any]) -> Response:  # noqa: ARG002
        started = self._desk.trigger()
        message = "GPU analysis started in background" if started else "GPU analysis is running already; joined it"
        return _json(Triggered("triggered", message, bool(asked["use_ai"])))

    async def _results(self, request: Request, asked: dict[str, Any]) -> Response:
        board = await self._desk.board()
        return await _tagged(request, board, asked, lambda: _rows_answer(request, board.rows, asked))

    async def _low(self, request: Request, asked: dict[str, Any]) -> Response:
        board, threshold = await self._desk.board(), self._desk.config().thresholds.low_utilization

        def answer() -> Response:
            found = low(board.rows, threshold=threshold)
            if _wants_csv(request, asked):
                return _rows_answer(request, found, asked)
            page, total, fields = _selected(found, asked)
            gpus: Any = msgspec.Raw(as_json(page, fields))
            body = LowBody(
                total,
                shapes.whole(threshold),
                board.stats.timestamp,
                gpus,
                stale=board.stale,
                total_gpus=board.stats.total_gpus,
                unknown_count=board.stats.unknown_count,
                tenants_total=board.stats.tenants_total,
                tenants_unknown=board.stats.tenants_unknown,
            )
            return _json(body, headers={"x-total-count": str(total)})

        return await _tagged(request, board, {**asked, "threshold": threshold}, answer)

    async def _stats(self, request: Request, asked: dict[str, Any]) -> Response:
        board, threshold = await self._desk.board(), self._desk.config().thresholds.low_utilization
        stale = _stale(self._desk.pulse())

        def answer() -> Response:
            selection = _selection(asked)
            found = matching(board.rows, selection, parts=units)
            chosen = matching([unit for row in found for unit in units(row)], selection)
            made = stats(found, threshold=threshold, timestamp=board.stats.timestamp, chosen=chosen)
            made = msgspec.structs.replace(made, **stale)
            if _wants_csv(request, asked):
                return _csv(as_csv([made], Stats.__struct_fields__))
            return _json(made)

        return await _tagged(request, board, {**asked, "threshold": threshold, **stale}, answer)

    async def _config(self, request: Request, asked: dict[str, Any]) -> Response:  # noqa: ARG002
        return _json(shapes.shown_config(self._desk.config()))

    async def _update(self, request: Request, asked: dict[str, Any]) -> Response:
        given = {_NAMES[name]: value for name, value in asked.items() if value is not None}
        named = await _body_changes(request)
        if twice := sorted(given.keys() & named.keys()):
            raise BodyInvalid(f"{twice[0]} is in the body and among the parameters", hint="Give it once.")
        changes = named | given
        if not changes:
            raise BodyInvalid("no setting was given", hint='For example {"thresholds": {"idle": 5}}.')
        done = await self._desk.update(changes)
        names = {path: name for name, path in _NAMES.items() if path in given}
        updates = {names.get(path, path): _plain(value) for path, value in done.items()}
        return _json(Updated("updated", updates, "In effect now; an analysis with the new settings has started."))

    async def _openapi_json(self, request: Request, asked: dict[str, Any]) -> Response:  # noqa: ARG002
        return Response(self._openapi, media_type="application/json")

    async def _docs_html(self, request: Request, asked: dict[str, Any]) -> Response:  # noqa: ARG002
        return Response(self._docs, media_type="text/html", headers={"content-security-policy": _NO_SCRIPTS})

    # ── /api/v1 ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _summary(self, request: Request, asked: dict[str, Any]) -> Response:  # noqa: ARG002
        board, pulse = await self._desk.board(), self._desk.pulse()
        stale, errors = _stale(pulse), pulse.tally.errors
        sums = msgspec.structs.replace(board.stats, **stale)
        return _json(
            await asyncio.to_thread(
                shapes.summary, board.analysis, board.rows, sums, stale=board.stale, errors=errors, **stale
            )
        )

    async def _gpu(self, request: Request, asked: dict[str, Any]) -> Response:
        board, gpu_id = await self._desk.board(), request.path_params["gpu_id"]
        found = [gpu for gpu in (board.analysis.gpus if board.analysis else ()) if gpu.gpu_id == gpu_id]
        if not found:
            known = {gpu.gpu_id for gpu in board.analysis.gpus} if board.analysis else ()
            raise Unknown(f"no GPU {gpu_id[:80]!r} among the results", hint=_nearest_gpu(gpu_id, known))
        return _json([shapes.detail(gpu, lang=asked["lang"], stale=board.stale) for gpu in found])

    async def _nodes(self, request: Request, asked: dict[str, Any]) -> Response:
        return await self._grouped(request, asked, lambda rows: shapes.groups(rows, by="hostname"))

    async def _spaces(self, request: Request, asked: dict[str, Any]) -> Response:
        return await self._grouped(request, asked, lambda rows: shapes.groups(rows, by="namespace"))

    async def _workloads(self, request: Request, asked: dict[str, Any]) -> Response:
        return await self._grouped(request, asked, shapes.workloads)

    async def _grouped(
        self, request: Request, asked: dict[str, Any], group: Callable[[Iterable[ResultRow]], Sequence[Struct]]
    ) -> Response:
        found = await asyncio.to_thread(group, (await self._desk.board()).rows)
        if _wants_csv(request, asked):
            kind = shapes.WorkloadRow if group is shapes.workloads else shapes.GroupRow
            return _csv(as_csv(found, kind.__struct_fields__))
        return _json(found, headers={"vary": "accept"})

    async def _history(self, request: Request, asked: dict[str, Any]) -> Response:  # noqa: ARG002
        found = await self._desk.points(**asked)
        return Response(await asyncio.to_thread(msgspec.json.encode, found), media_type="application/json")

    async def _waste(self, request: Request, asked: dict[str, Any]) -> Response:
        end = time.time()
        step, begin = _period(asked["since"], end)
        analysis = (await self._desk.board()).analysis
        ledger = WasteLedger(await asyncio.to_thread(present, analysis.gpus if analysis else ()))
        at, stride = begin, _AT_ONCE * STEP_SECONDS[step]
        while at < end:
            gpus, pods = [await self._points(step, at, min(at + stride, end), **of) for of in ({}, {"namespace": ""})]
            await asyncio.to_thread(ledger.add, gpus, pods)
            at += stride
        stored = self._desk.config().analyzer.history not in {"", "none"}
        found = ledger.waste(group_by=asked["group_by"], begin=begin, end=end, history=stored)
        found = msgspec.structs.replace(found, rows=found.rows[: asked["limit"]])
        headers = {"x-total-count": str(found.count), "vary": "accept"}
        if _wants_csv(request, asked):
            return _csv(as_csv(found.rows, WasteRow.__struct_fields__), headers)
        return _json(found, headers=headers)

    async def _points(self, step: Step, begin: float, end: float, **of: str) -> list[HistoryPoint]:
        asked: dict[str, Any] = {"gpu_id": None, "mig": None, "namespace": None, "pod": None, **of}
        return await self._desk.points(step=step, begin=begin, end=end, limit=_EVERYTHING, **asked)


_USE_AI = Param(name="use_ai", type="boolean", help="Echoed; a language model is not part of this release.")
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
METRICS = Operation(  # the shell serves it; here it is only told of
    method="GET",
    path="/metrics",
    summary="what Prometheus scrapes",
    handler=lambda *_: NotImplemented,
    media=("text/plain", "application/openmetrics-text"),
)
_NO_SCRIPTS = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"


def _get(path: str, summary: str, handler: Any, answer: Any = Any, *params: Param, **more: Any) -> Operation:
    return Operation(method="GET", path=path, summary=summary, handler=handler, answer=answer, params=params, **more)


def _changes_type() -> Any:
    """What may be changed, section by section, as the body of /config/update has it."""
    sections: dict[str, list[tuple[str, Any, Any]]] = {}
    for setting in CHANGEABLE:
        section, _, name = setting.path.partition(".")
        sections.setdefault(section, []).append((name, setting.type | UnsetType, UNSET))
    made = [
        (section, msgspec.defstruct(f"{section.title()}Changes", found, kw_only=True, forbid_unknown_fields=True))
        for section, found in sections.items()
    ]
    fields = [(section, kind | UnsetType, UNSET) for section, kind in made]
    return msgspec.defstruct("Changes", fields, kw_only=True, forbid_unknown_fields=True)


CHANGES = _changes_type()


def _post(path: str, summary: str, handler: Any, answer: Any, *params: Param, body: Any = None) -> Operation:
    return Operation(
        method="POST",
        path=path,
        summary=summary,
        handler=handler,
        answer=answer,
        params=params,
        body=body,
        changes=True,
        statuses=(409,),
    )


def _json(content: Any, *, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json", headers=headers)


def _csv(content: bytes, headers: dict[str, str] | None = None) -> Response:
    return Response(content, media_type=_CSV, headers={"vary": "accept", **(headers or {})})


def _moment(at: float | None) -> str | None:
    return None if at is None else iso(at)


def _stale(pulse: Pulse) -> dict[str, str | None]:
    """The fields that say since when, and why, what is shown is not what an analysis would find now."""
    stale = pulse.stale
    return {"stale_since": _moment(stale.since) if stale else None, "stale_reason": stale.reason if stale else None}


def _later(at: float | None, last: Analysis | None) -> float | None:
    """Of what this replica did and what it was told, the later."""
    told = last.started if last else None
    return max((moment for moment in (at, told) if moment is not None), default=None)


def _plain(value: Any) -> Any:
    return shapes.whole(value) if isinstance(value, float) else value


async def _tagged(request: Request, board: Board, asked: dict[str, Any], answer: Callable[[], Response]) -> Response:
    """The answer, made off the event loop; 304 for who has it already."""
    tag = _tag(board, str(sorted(asked.items())), str(_wants_csv(request, asked)))
    headers = {"etag": tag, "vary": "accept", "cache-control": "no-cache"}
    if _has(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    made = await asyncio.to_thread(answer)
    made.headers.update(headers)
    return made


def _rows_answer(request: Request, rows: Sequence[ResultRow], asked: dict[str, Any]) -> Response:
    page, total, fields = _selected(rows, asked)
    headers = {"x-total-count": str(total)}
    if _wants_csv(request, asked):
        return _csv(as_csv(page, fields or ResultRow.__struct_fields__), headers)
    return Response(as_json(page, fields), media_type="application/json", headers=headers)


def _selected(rows: Sequence[ResultRow], asked: dict[str, Any]) -> tuple[Sequence[ResultRow], int, tuple[str, ...]]:
    """The page that was asked for, how many rows there are on all pages, and the fields to send of each."""
    selection = _selection(asked)
    return (*select(rows, selection, parts=units), selection.fields)


def _selection(asked: dict[str, Any]) -> Selection:
    equal = {name: asked[name] for name in _EQUAL if asked[name] is not None}
    return Selection(
        equal=equal,
        search=asked["search"] or "",
        least={"score": asked["min_score"]} if asked["min_score"] is not None else {},
        most={"score": asked["max_score"]} if asked["max_score"] is not None else {},
        sort=asked.get("sort") or "",
        offset=asked.get("offset") or 0,
        limit=asked.get("limit"),
        fields=asked.get("fields") or (),
    )


_EQUAL = ("status", "verdict", "use_class", "namespace", "pod", "hostname", "model_name", "gpu_id", "shared")


def _nearest_gpu(given: str, known: Collection[str]) -> str | None:
    """A hint on a UUID that is not known: most often it was cut off. A large fleet is not searched for the like."""
    begins = sorted(one for one in known if one.startswith(given)) if given else []
    near = f"Did you mean {begins[0]}?" if begins else nearest(given, known) if len(known) <= _SEARCHED else ""
    return sentences(near, Unknown.hint) if near else None


def _period(since: str, end: float) -> tuple[Step, float]:
    """By what steps a time is added up, and where the first of them begins."""
    seconds = min(_LONGEST, long_seconds(since))
    step: Step = "hour" if seconds <= _BY_HOURS else "day"
    long = STEP_SECONDS[step]
    return step, (end - seconds) // long * long


def _wants_csv(request: Request, asked: dict[str, Any]) -> bool:
    if asked["format"] is not None:
        return bool(asked["format"] == "csv")
    return prefers(request.headers.get("accept", ""), "text/csv", over="application/json")


def _has(if_none_match: str, tag: str) -> bool:
    """Whether one of the tags that a client has is this one."""
    return any(one.strip().removeprefix("W/") in {tag, "*"} for one in if_none_match.split(","))


def _tag(board: Board, *parts: str) -> str:
    analysis = board.analysis
    told = (analysis.number, analysis.started, board.stale, *parts) if analysis else parts
    return f'"{hashlib.blake2b(repr(told).encode(), digest_size=12).hexdigest()}"'


async def _body_changes(request: Request) -> dict[str, Any]:
    """Settings by path, from a JSON object of sections; none without a body."""
    content = await request.body()
    if not content.strip():
        return {}
    try:
        sections = msgspec.json.decode(content, type=dict[str, dict[str, Any]])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        raise BodyInvalid(f"the body: {e}", hint='For example {"thresholds": {"idle": 5}}.') from e
    return {f"{section}.{name}": value for section, found in sections.items() for name, value in found.items()}
