"""One service of the audited system: its answers as plain values, read with a limit on requests, bytes and time."""

import asyncio
import csv
import io
import json
import re
from typing import Any
from urllib.parse import urlencode

import httpx2
import msgspec
from msgspec import structs

from vgpuscope.model.consistency import FigureReading, PublicAnswer
from vgpuscope.model.errors import SourceDown
from vgpuscope.sources.audit.numbers import Document, document, page_readings, readings_of
from vgpuscope.sources.clients.served_api import ServedAnswer, ServedApi, ServiceKind

MOST_REQUESTS = 3000  # of one service in one audit
MOST_ROWS = 20_000  # of one list
_PAGE = 1000  # rows of one request
_TRIES = 5  # of a request that is answered with 429
_PAUSE = 1.0  # seconds, if 429 names none
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:e[+-]?\d+)?")
_TABLES = {"results": "ResultRow[]", "low": "LowBody", "stats": "Stats"}


class Unanswered(Exception):
    """A path that this service does not answer, or not for this caller; the text is its status or error."""


class AuditedService:
    """A client of one service."""

    def __init__(self, kind: ServiceKind, url: str, *, timeout: float, token: str | None) -> None:
        self.name = kind.name
        self._api: ServedApi[Any] = ServedApi(kind, url, content=object, timeout=timeout, token=token)
        self.url, self._asked = self._api.url, 0
        self.shapes = Document(schemas={}, answers={})
        self.refused: dict[str, str] = {}  # path → why it has no answer
        self.namespaces: tuple[str, ...] | None = None  # those that the caller sees, so sums are theirs; None: all

    async def __aenter__(self) -> "AuditedService":
        await self._api.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._api.__aexit__(*error)

    async def learn(self) -> None:
        """Read the shapes of all answers and what the caller sees; Unanswered if the service does not say it."""
        self.shapes = document(await self.json("/openapi.json"))
        if "/api/v1/session" in self.shapes.answers:
            seen = (await self.json("/api/v1/session")).get("namespaces")
            self.namespaces = None if seen is None else tuple(seen)

    @property
    def scoped(self) -> bool:
        """Whether the caller sees only some namespaces."""
        return self.namespaces is not None

    async def json(self, path: str, query: dict[str, str] | None = None) -> Any:
        """The plain value of one answer; Unanswered if there is none."""
        answer = await self._get(path, query or {}, {})
        try:
            return msgspec.json.decode(answer.content)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
            raise Unanswered(f"{path}: {e}") from e

    async def read(
        self, path: str, query: dict[str, str] | None = None, *, scope: tuple[str, ...] = ()
    ) -> PublicAnswer:
        """One answer with its shape. A list is read page by page, until it is complete."""
        asked = (query or {}) | ({"namespace": ",".join(scope)} if scope else {})
        body = await self.json(path, asked)
        kind = self.shapes.kind(path)
        if isinstance(body, dict) and isinstance(body.get("rows"), list) and isinstance(body.get("total"), int):
            body = await self._all_rows(path, asked, body)
        return PublicAnswer(
            service=self.name,
            surface=f"GET {path}" + (f"?{urlencode(asked, safe=',/:')}" if asked else ""),
            kind=kind,
            body=body,
            query=asked,
            scope=scope,
            sees=scope or self.namespaces,
            moment=_moment(body),
        )

    async def table(self, path: str, query: dict[str, str] | None = None) -> PublicAnswer:
        """The CSV of a path as the rows that its JSON has."""
        asked = (query or {}) | {"format": "csv"}
        answer = await self._get(path, asked, {})
        kind = self.shapes.kind(path)
        rows = [{name: _cell(name, cell) for name, cell in row.items()} for row in _rows_of(answer.content)]
        body: Any = {"rows": rows}
        if kind.endswith("[]"):
            body = rows
        elif kind.endswith("LowBody"):
            body = {"gpus": rows}
        elif kind == "Stats":
            body = rows[0] if rows else {}
        elif kind == "Waste":
            body = {"rows": rows, "group_by": asked.get("group_by", "tenant")}
        elif kind.endswith("WorkloadList"):
            body = {"rows": rows, "group_by": asked.get("group_by", "pod")}
        stamps = {row.get("timestamp") for row in rows}
        return PublicAnswer(
            service=self.name,
            surface=f"GET {path}?{urlencode(asked)}",
            kind=kind,
            body=body,
            query=asked,
            sees=self.namespaces,
            moment=str(stamps.pop()) if len(stamps) == 1 and None not in stamps else "",
        )

    async def page(self) -> list[FigureReading]:
        """The numbers of the page of metrics."""
        answer = await self._get("/metrics", {}, {"Accept": "text/plain"})
        return page_readings(answer.content, surface=f"GET /metrics ({self.name})", service=self.name)

    def numbers(self, answer: PublicAnswer) -> list[FigureReading]:
        """The numbers of one of its answers."""
        return readings_of(answer, self.shapes)

    async def _all_rows(self, path: str, query: dict[str, str], first: dict[str, Any]) -> dict[str, Any]:
        rows, total = list(first["rows"]), first["total"]
        while len(rows) < min(total, MOST_ROWS):
            more = await self.json(path, query | {"offset": str(len(rows)), "limit": str(_PAGE)})
            if not more["rows"]:
                break
            rows += more["rows"]
        return first | {"rows": rows}

    async def _get(self, path: str, query: dict[str, str], headers: dict[str, str]) -> ServedAnswer:
        try:
            return await self._answer(path, query, headers)
        except Unanswered as e:
            self.refused[path] = str(e)
            raise

    async def _answer(self, path: str, query: dict[str, str], headers: dict[str, str]) -> ServedAnswer:
        where = path + (f"?{urlencode(query)}" if query else "")
        for _ in range(_TRIES):
            self._asked += 1
            if self._asked > MOST_REQUESTS:
                raise Unanswered(f"{path}: more than {MOST_REQUESTS} requests")
            try:
                answer = await self._api.get(where, headers=headers)
            except SourceDown as e:
                raise Unanswered(f"{path}: {e}") from e
            if answer.status_code == httpx2.codes.TOO_MANY_REQUESTS:
                await asyncio.sleep(float(answer.headers.get("retry-after", _PAUSE)))
                continue
            if answer.status_code != httpx2.codes.OK:
                raise Unanswered(f"{path}: {answer.status_code}")
            return answer
        raise Unanswered(f"{path}: 429")


def with_moment(answer: PublicAnswer, moment: str) -> PublicAnswer:
    """The answer as one of an analysis, if it does not say itself of which it is."""
    return answer if answer.moment else structs.replace(answer, moment=moment)


def _moment(body: Any) -> str:
    """Of which analysis an answer says that it is."""
    if isinstance(body, dict):
        return str(body.get("at") or body.get("timestamp") or "") if "findings" not in body else ""
    if isinstance(body, list) and body and isinstance(body[0], dict):
        stamps = {row.get("timestamp") for row in body}
        return str(stamps.pop()) if len(stamps) == 1 and None not in stamps else ""
    return ""


def _rows_of(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"))))


_NAMES = frozenset({"name", "namespace", "pod", "container", "gpu_id", "mig", "owner", "node", "hostname", "model"})


def _cell(name: str, cell: str | None) -> Any:
    """A cell as the JSON has it: empty for null, lists and objects as JSON, numbers, else text."""
    if not cell:
        return None
    if cell[0] in "{[":
        return json.loads(cell)
    if cell in {"true", "false"}:
        return cell == "true"
    if name not in _NAMES and _NUMBER.fullmatch(cell):
        return json.loads(cell)
    return cell
