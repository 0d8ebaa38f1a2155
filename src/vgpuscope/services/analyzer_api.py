"""The analyzer's API: gpu-oour's endpoints with its shapes, and /api/v1 for those who want more."""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from vgpuscope.config import Config
from vgpuscope.model.analysis import STATUSES, USE_CLASSES, VERDICTS
from vgpuscope.model.errors import BodyInvalid, Unknown
from vgpuscope.model.history import HistoryPoint
from vgpuscope.runtime.operations import Operation, Param, docs_page, openapi
from vgpuscope.services.analyzer_cycle import Board, Tally
from vgpuscope.version import __version__
from vgpuscope.views import fleet_api as shapes
from vgpuscope.views.results import ResultRow, Stats, iso, low
from vgpuscope.views.selection import Selection, as_csv, as_json, check_fields, select

TITLE = "vgpuscope analyzer"
ABOUT = (
    "What each GPU of the fleet is used for: a score, a status, and a verdict (in_use, idle or unknown) with the "
    "evidence it rests on. What was not measured is null, and what is not known well enough is unknown."
)
_CSV = "text/csv; charset=utf-8"


class Desk(Protocol):
    """What the API asks for and asks to be done."""

    def board(self) -> Board: ...
    def config(self) -> Config: ...
    def tally(self) -> Tally: ...
    def leads(self) -> bool: ...
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
    error: dict[str, str] | None


class Triggered(Struct, frozen=True):
    """What `/analyze` says."""

    status: str
    message: str
    use_ai: bool


class LowBody(Struct, frozen=True):
    """What `/results/low` says."""

    count: int
    threshold: float
    timestamp: str | None
    gpus: list[ResultRow]


class Updated(Struct, frozen=True):
    """What `/config/update` says."""

    status: str
    updates: dict[str, Any]
    note: str


_ROW_FILTERS = (
    Param(name="status", help="Only rows of this status.", choices=STATUSES),
    Param(name="verdict", help="Only rows of this verdict.", choices=VERDICTS),
    Param(name="use_class", help="Only rows of this class.", choices=USE_CLASSES),
    Param(name="namespace", help="Only cards that a pod of this namespace has."),
    Param(name="pod", help="Only cards that this pod has."),
    Param(name="hostname", help="Only cards of this node."),
    Param(name="model_name", help="Only cards of this model."),
    Param(name="gpu_id", help="Only this card, by its whole UUID."),
    Param(name="shared", type="boolean", help="Only cards that several have, or only those that one has."),
    Param(name="search", help="Only rows in whose names this text occurs."),
    Param(name="min_score", type="number", help="Only rows with at least this score.", least=0, most=100),
    Param(name="max_score", type="number", help="Only rows with at most this score.", least=0, most=100),
)
_PAGING = (
    Param(name="sort", help="A field to sort by; with - before it, the other way round."),
    Param(name="offset", type="integer", help="Rows to leave out at the beginning.", least=0, most=10**9, default=0),
    Param(name="limit", type="integer", help="Most rows to send.", least=0, most=10**9),
    Param(name="fields", help="Fields to send, with commas."),
    Param(name="format", help="The same as the Accept header.", choices=("json", "csv")),
)
_TABLE = (*_ROW_FILTERS, *_PAGING)
_TABLE_HEADERS = {"x-total-count": "rows on all pages", "etag": "changes when the rows do"}
_HISTORY = (
    Param(name="step", help="One point for each analysis, hour or day.", choices=("analysis", "hour", "day")),
    Param(name="begin", type="number", help="From then on, in unix seconds; a day ago by default.", least=0, most=1e11),
    Param(name="end", type="number", help="Until then, in unix seconds; now by default.", least=0, most=1e11),
    Param(name="gpu_id", help="Only this card."),
    Param(name="mig", help="Only this MIG instance."),
    Param(name="namespace", help="Only tenants of this namespace."),
    Param(name="pod", help="Only this pod."),
    Param(name="limit", type="integer", help="Most points to send.", least=1, most=100_000, default=10_000),
)
_LANGUAGE = Param(name="lang", help="Language of the sentences.", choices=("en", "zh"), default="en")


class AnalyzerApi:
    """The operations, as a table."""

    def __init__(self, desk: Desk, *, read_only: bool) -> None:
        self._desk = desk
        self._read_only = read_only
        self.operations = self._table()
        self._openapi = openapi(self.operations, title=TITLE, description=ABOUT)
        self._docs = docs_page(self.operations, title=TITLE, description=ABOUT)

    def _table(self) -> tuple[Operation, ...]:
        both = ("application/json", "text/csv")
        return (
            _get("/", "what this service is", self._info, Info),
            _get("/health", "whether analyses go well", self._health, HealthBody),
            _get(
                "/analyze",
                "start an analysis, or join the running one",
                self._analyze,
                Triggered,
                _USE_AI,
                changes=True,
            ),
            _post("/analyze", "start an analysis, or join the running one", self._analyze, Triggered, _USE_AI),
            _get("/results", "every card", self._results, list[ResultRow], *_TABLE, media=both, headers=_TABLE_HEADERS),
            _get("/results/low", "cards below the threshold", self._low, LowBody),
            _get("/results/stats", "sums over all cards", self._stats, Stats),
            _get("/config", "the settings in effect", self._config, dict[str, Any]),
            _post(
                "/config/update",
                "change settings: all of them, or on any error none",
                self._update,
                Updated,
                Param(name="threshold", type="number", help="thresholds.low_utilization"),
                Param(name="interval", type="number", help="scheduler.interval"),
                Param(name="ai_enabled", type="boolean", help="ai.enabled"),
                body=dict[str, dict[str, Any]] | None,
            ),
            _get("/openapi.json", "this API for programs", self._openapi_json, dict[str, Any]),
            _get("/docs", "this API for people", self._docs_html, media=("text/html",)),
            _get("/api/v1/summary", "the fleet in a few figures", self._summary, shapes.Summary),
            _get(
                "/api/v1/gpus",
                "every card",
                self._results,
                list[ResultRow],
                *_TABLE,
                media=both,
                headers=_TABLE_HEADERS,
            ),
            _get(
                "/api/v1/gpus/{gpu_id}",
                "one card: terms, tenants and the evidence of its verdict",
                self._gpu,
                list[shapes.GpuDetail],
                _LANGUAGE,
                statuses=(404,),
            ),
            _get("/api/v1/nodes", "every node", self._grouped("hostname"), list[shapes.GroupRow], media=both),
            _get(
                "/api/v1/namespaces", "every namespace", self._grouped("namespace"), list[shapes.GroupRow], media=both
            ),
            _get(
                "/api/v1/workloads",
                "every owner of pods with cards",
                self._workloads,
                list[shapes.WorkloadRow],
                media=both,
            ),
            _get("/api/v1/history", "how it was", self._history, list[HistoryPoint], *_HISTORY, statuses=(503,)),
        )

    # ── gpu-oour's ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _info(self, request: Request, asked: dict[str, Any]) -> Response:  # noqa: ARG002
        config = self._desk.config()
        info = Info(
            service="GPU Utilization Monitor",
            version=__version__,
            features=Features(ai_analysis=False, prometheus_metrics=True, control_api=False),
            config=InfoConfig(
                prometheus_url=config.prometheus.url or "",
                threshold=config.thresholds.low_utilization,
                interval=config.scheduler.interval,
                time_window_min=config.prometheus.time_window_min,
                max_workers=config.scheduler.max_workers,
            ),
            endpoints=_ENDPOINTS,
            read_only=self._read_only,
        )
        return _json(info)

    async def _health(self, request: Request, asked: dict[str, Any]) -> Response:  # noqa: ARG002
        tally, board, config = self._desk.tally(), self._desk.board(), self._desk.config()
        status = "warning" if board.stale else "degraded" if tally.connected is False else "healthy"
        error = tally.last_error
        body = HealthBody(
            status=status,
            prometheus_connected=bool(tally.connected),
            last_analysis=_moment(tally.last_start),
            analysis_timeout=board.stale,
            ai_enabled=False,
            interval=config.scheduler.interval,
            source=board.analysis.source if board.analysis else "",
            last_success=_moment(tally.last_success),
            partial=bool(board.analysis and board.analysis.faults),
            leader=self._desk.leads(),
            error={"code": error.code, "message": str(error), "hint": error.advice} if error else None,
        )
        return _json(body, headers={"cache-control": "no-store"})

    async def _analyze(self, request: Request, asked: dict[str, Any]) -> Response:  # noqa: ARG002
        started = self._desk.trigger()
        message = "GPU analysis started in background" if started else "an analysis is running; joined it"
        return _json(Triggered("triggered" if started else "joined", message, bool(asked["use_ai"])))

    async def _results(self, request: Request, asked: dict[str, Any]) -> Response:
        return _table(request, self._desk.board(), asked)

    async def _low(self, request: Request, asked: dict[str, Any]) -> Response:  # noqa: ARG002
        board, threshold = self._desk.board(), self._desk.config().thresholds.low_utilization
        found = low(board.rows, threshold=threshold)
        return _json(LowBody(len(found), threshold, board.stats.timestamp, found))

    async def _stats(self, request: Request, asked: dict[str, Any]) -> Response:  # noqa: ARG002
        return _json(self._desk.board().stats)

    async def _config(self, request: Request, asked: dict[str, Any]) -> Response:  # noqa: ARG002
        return _json(shapes.shown_config(self._desk.config()))

    async def _update(self, request: Request, asked: dict[str, Any]) -> Response:
        changes = await _body_changes(request)
        names = {
            "threshold": "thresholds.low_utilization",
            "interval": "scheduler.interval",
            "ai_enabled": "ai.enabled",
        }
        changes |= {path: asked[name] for name, path in names.items() if asked[name] is not None}
        if not changes:
            raise BodyInvalid("nothing to change was given")
        updates = await self._desk.update(changes)
        return _json(Updated("updated", updates, "In effect from the next analysis."))

    async def _openapi_json(self, request: Request, asked: dict[str, Any]) -> Response:  # noqa: ARG002
        return Response(self._openapi, media_type="application/json")

    async def _docs_html(self, request: Request, asked: dict[str, Any]) -> Response:  # noqa: ARG002
        return Response(self._docs, media_type="text/html", headers={"content-security-policy": _NO_SCRIPTS})

    # ── /api/v1 ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _summary(self, request: Request, asked: dict[str, Any]) -> Response:  # noqa: ARG002
        board, tally = self._desk.board(), self._desk.tally()
        return _json(shapes.summary(board.analysis, board.rows, board.stats, stale=board.stale, errors=tally.errors))

    async def _gpu(self, request: Request, asked: dict[str, Any]) -> Response:
        board, gpu_id = self._desk.board(), request.path_params["gpu_id"]
        found = [gpu for gpu in (board.analysis.gpus if board.analysis else ()) if gpu.gpu_id == gpu_id]
        if not found:
            raise Unknown(f"no GPU {gpu_id[:80]!r} among the results")
        return _json([shapes.detail(gpu, lang=asked["lang"], stale=board.stale) for gpu in found])

    def _grouped(self, by: str) -> Callable[[Request, dict[str, Any]], Awaitable[Response]]:
        async def grouped(request: Request, asked: dict[str, Any]) -> Response:  # noqa: ARG001
            return _rows(request, shapes.groups(self._desk.board().rows, by=by), shapes.GroupRow)

        return grouped

    async def _workloads(self, request: Request, asked: dict[str, Any]) -> Response:  # noqa: ARG002
        return _rows(request, shapes.workloads(self._desk.board().rows), shapes.WorkloadRow)

    async def _history(self, request: Request, asked: dict[str, Any]) -> Response:  # noqa: ARG002
        return _json(await self._desk.points(**asked))


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
_NO_SCRIPTS = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"


def _get(path: str, summary: str, handler: Any, answer: Any = Any, *params: Param, **more: Any) -> Operation:
    return Operation(method="GET", path=path, summary=summary, handler=handler, answer=answer, params=params, **more)


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
    )


def _json(content: Any, *, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json", headers=headers)


def _moment(at: float | None) -> str | None:
    return None if at is None else iso(at)


def _table(request: Request, board: Board, asked: dict[str, Any]) -> Response:
    """Rows of the board as they were asked for; 304 for who has them already."""
    tag = _tag(board, str(sorted(asked.items())), request.headers.get("accept", ""))
    headers = {"etag": tag, "vary": "accept", "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    selection = _selection(asked)
    page, total = select(_of_tenant(board.rows, asked), selection)
    headers["x-total-count"] = str(total)
    if _wants_csv(request, asked):
        return Response(as_csv(page, selection.fields or ResultRow.__struct_fields__), media_type=_CSV, headers=headers)
    return Response(as_json(page, selection.fields), media_type="application/json", headers=headers)


def _selection(asked: dict[str, Any]) -> Selection:
    equal = {name: asked[name] for name in _EQUAL if asked[name] is not None}
    wanted = [name.strip() for name in (asked["fields"] or "").split(",") if name.strip()]
    sort = asked["sort"] or ""
    if sort:
        check_fields([sort.removeprefix("-")], ResultRow)
    return Selection(
        equal=equal,
        search=asked["search"] or "",
        least={"score": asked["min_score"]} if asked["min_score"] is not None else {},
        most={"score": asked["max_score"]} if asked["max_score"] is not None else {},
        sort=sort,
        offset=asked["offset"],
        limit=asked["limit"],
        fields=check_fields(wanted, ResultRow),
    )


_EQUAL = ("status", "verdict", "use_class", "hostname", "model_name", "gpu_id", "shared")


def _of_tenant(rows: Sequence[ResultRow], asked: dict[str, Any]) -> Sequence[ResultRow]:
    """A shared card has several tenants: it is found by each of them."""
    namespace, pod = asked["namespace"], asked["pod"]
    if namespace is None and pod is None:
        return rows
    return [
        row for row in rows if any(namespace in (None, one.namespace) and pod in (None, one.pod) for one in row.tenants)
    ]


def _rows(request: Request, found: Sequence[Struct], kind: type[Struct]) -> Response:
    if _wants_csv(request, {"format": None}):
        return Response(as_csv(found, kind.__struct_fields__), media_type=_CSV, headers={"vary": "accept"})
    return _json(found, headers={"vary": "accept"})


def _wants_csv(request: Request, asked: dict[str, Any]) -> bool:
    if asked["format"] is not None:
        return bool(asked["format"] == "csv")
    accept = request.headers.get("accept", "")
    return "text/csv" in accept and "application/json" not in accept


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
    except msgspec.MsgspecError as e:
        raise BodyInvalid(f"the body: {e}", hint='For example {"thresholds": {"idle": 5}}.') from e
    return {f"{section}.{name}": value for section, found in sections.items() for name, value in found.items()}
