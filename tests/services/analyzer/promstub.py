"""A PromQL engine for tests: just the queries that an analyzer asks, over samples in memory; and a server that spoils.

The server stands before that engine, or before a real one, and does to answers what networks and proxies do to them.
"""

import asyncio
import json
import math
import re
import struct
from collections.abc import Awaitable, Callable
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

_PART = 1 << 20  # bytes that are sent at a time
STALE = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]  # what Prometheus writes when a series ends
STEP = 30
END = 1_800_000_000
WINDOW = 600

Labels = dict[str, str]
Samples = list[tuple[float, float]]


class Reply(NamedTuple):
    status: int = 200
    body: bytes = b""
    headers: tuple[str, ...] = ()


class Drop(NamedTuple):
    """The connection ends without an answer."""


class Hang(NamedTuple):
    """No answer ever comes."""


class Cut(NamedTuple):
    """Half the answer comes, then the connection ends."""

    body: bytes


Spoilt = Reply | Drop | Hang | Cut


class Engine:
    """Series by labels, __name__ among them."""

    def __init__(self, *, keeps_names: bool = False) -> None:
        self.series: list[tuple[Labels, Samples]] = []
        self.keeps_names = keeps_names  # as VictoriaMetrics does for some functions

    def add(self, name, values, *, until=END, step=STEP, **labels):
        """Values in time, the last one at `until`."""
        values = list(values)
        begin = until - step * (len(values) - 1)
        self.series.append(({"__name__": name, **labels}, [(begin + i * step, v) for i, v in enumerate(values)]))

    async def __call__(self, path: str, form: dict[str, str]) -> Reply:
        if path.endswith("/values"):
            wanted = _matchers(form["match[]"][1:-1])
            names = sorted({labels["__name__"] for labels, _ in self.series if _fits(labels, wanted)})
            return Reply(body=_answer(names))
        if path.endswith("/query_range"):  # courses of a window: nothing is known of them here
            return Reply(body=_answer({"resultType": "matrix", "result": []}))
        query = form["query"]
        if query == "vector(1)":
            return Reply(body=_answer({"resultType": "vector", "result": [{"metric": {}, "value": [0, "1"]}]}))
        return Reply(body=_answer(self._evaluated(query, float(form["time"]))))

    def _there(self, matchers: str, begin: float, end: float) -> list[tuple[Labels, Samples]]:
        """Series with their samples, where they have some."""
        wanted = _matchers(matchers)
        found = [(labels, _within(samples, begin, end)) for labels, samples in self.series if _fits(labels, wanted)]
        return [(labels, inside) for labels, inside in found if inside]

    def _changed(self, name: str, matchers: str, window: float, end: float) -> list[tuple[Labels, float]]:
        """Series above 0 that changed in the window, or that were not there before."""
        rows = []
        for labels, inside in self._there(f'__name__="{name}",{matchers}', end - window, end):
            before = self._there(
                ",".join(f"{k}={json.dumps(v)}" for k, v in labels.items()), end - window - 300, end - window
            )
            if inside[-1][1] > 0 and (len({v for _, v in inside}) > 1 or not before):
                rows.append((labels, inside[-1][1]))
        return rows

    def _now(self, name: str, matchers: str, end: float) -> list[Samples]:
        """What is there of a metric at a time."""
        wanted = [("__name__", "=", name), *_matchers(matchers)]
        found = (_within(samples, end - 300, end) for labels, samples in self.series if _fits(labels, wanted))
        return [inside for inside in found if inside]

    def _evaluated(self, query: str, end: float) -> dict:
        if (parts := _sides(query)) is not None:
            return {
                "resultType": "vector",
                "result": [r for part in parts for r in self._evaluated(part, end)["result"]],
            }
        if marked := re.fullmatch(r'label_replace\((.*),"(\w+)","(\w+)","",""\)', query):
            found = self._evaluated(marked[1], end)["result"]
            rows = [{**row, "metric": dict(sorted({**row["metric"], marked[2]: marked[3]}.items()))} for row in found]
            return {"resultType": "vector", "result": rows}
        if counted := re.fullmatch(r"count by \(__name__\) \(\{(.*)\}\)", query):
            names = [labels["__name__"] for labels, inside in self._there(counted[1], end - 300, end)]
            return _vector([({"__name__": name}, names.count(name)) for name in sorted(set(names))], end)
        if facts := re.fullmatch(r"last_over_time\(\{(.*)\}\[(\d+)ms\]\) > 0", query):
            there = self._there(facts[1], end - int(facts[2]) / 1000, end)
            return _vector([(labels, inside[-1][1]) for labels, inside in there if inside[-1][1] > 0], end)
        if frozen := re.match(r"\(changes\((\w+)\{(.*?)\}\[(\d+)ms\]\) == 0", query):
            there = self._there(f'__name__="{frozen[1]}",{frozen[2]}', end - int(frozen[3]) / 1000, end)
            return _vector([(labels, 0.0) for labels, inside in there if len({v for _, v in inside}) == 1], end)
        if xids := re.fullmatch(r"\((\w+)\{(.*?)\} > 0 and changes\(.*\[(\d+)ms\]\) > 0\) or \(.*\)", query):
            return _vector(self._changed(xids[1], xids[2], int(xids[3]) / 1000, end), end)
        if raw := re.fullmatch(r"(\w*)\{(.*)\}\[(\d+)ms\]", query):
            begin, wanted = end - int(raw[3]) / 1000, _matchers(raw[2])
            wanted += [("__name__", "=", raw[1])] if raw[1] else []
            found = [(labels, _within(samples, begin, end)) for labels, samples in self.series if _fits(labels, wanted)]
            lines = [{"metric": m, "values": [[t, _text(v)] for t, v in inside]} for m, inside in found if inside]
            return {"resultType": "matrix", "result": lines}
        if evaluated := re.fullmatch(r"max\(timestamp\(([\w:]+)\{(.*)\}\)\)", query):
            times = [samples[-1][0] for samples in self._now(evaluated[1], evaluated[2], end)]
            return _vector([({}, max(times))] if times else [], end)
        if lacking := re.fullmatch(r"count\((\w+)\{(.*)\}\) - count\(([\w:]+)\{(.*)\}\)", query):
            counts = [len(self._now(lacking[i], lacking[i + 1], end)) for i in (1, 3)]
            return _vector([({}, counts[0] - counts[1])] if all(counts) else [], end)
        if plain := re.fullmatch(r"([\w:]+)\{(.*)\}", query):
            wanted = [("__name__", "=", plain[1]), *_matchers(plain[2])]
            found = [
                (labels, _within(samples, end - 300, end)) for labels, samples in self.series if _fits(labels, wanted)
            ]
            rows = [{"metric": m, "value": [end, _text(inside[-1][1])]} for m, inside in found if inside]
            return {"resultType": "vector", "result": rows}
        call = re.fullmatch(r"(\w+)\((?:0\.95,)?(\w+)\{(.*)\}(?:\[(\d+)ms\])?\)", query)
        assert call, query
        begin = end - (int(call[4]) / 1000 if call[4] else 300)
        wanted = [("__name__", "=", call[2]), *_matchers(call[3])]
        rows = []
        for labels, samples in self.series:
            inside = _within(samples, begin, end)
            ended = call[1] == "timestamp" and any(is_stale(v) for t, v in samples if t <= end)
            if _fits(labels, wanted) and inside and not ended:
                shown = {k: v for k, v in labels.items() if k != "__name__" or self.keeps_names}
                rows.append({"metric": shown, "value": [end, _text(_FUNCTIONS[call[1]](inside))]})
        return {"resultType": "vector", "result": rows}


def _sides(query: str) -> list[str] | None:
    """Both sides of (a or b); None: it is no union."""
    if (
        not (query.startswith("(") and query.endswith(")"))
        or query.startswith(("(DCGM", "(changes"))
        or " unless " in query
    ):
        return None
    depth = 0
    for at, letter in enumerate(query):
        depth += (letter == "(") - (letter == ")")
        if depth == 1 and query.startswith(" or ", at):
            return [query[1:at], query[at + 4 : -1]]
        if depth == 0 and at < len(query) - 1:
            return None
    return None


def _vector(rows: list[tuple[dict[str, str], float]], end: float) -> dict:
    found = [{"metric": labels, "value": [end, _text(value)]} for labels, value in rows]
    return {"resultType": "vector", "result": found}


def _mean(samples: Samples) -> float:
    values = [v for _, v in samples]
    return math.fsum(values) / len(values) if all(map(math.isfinite, values)) else sum(values) / len(values)


def _max(samples: Samples) -> float:
    return max((v for _, v in samples if not math.isnan(v)), default=math.nan)


def _p95(samples: Samples) -> float:
    ordered = sorted(v for _, v in samples)
    rank = 0.95 * (len(ordered) - 1)
    low = int(rank)
    return ordered[low] + (ordered[min(low + 1, len(ordered) - 1)] - ordered[low]) * (rank - low)


def _rate(samples: Samples) -> float:
    return (samples[-1][1] - samples[0][1]) / (samples[-1][0] - samples[0][0]) if len(samples) > 1 else 0.0


_FUNCTIONS: dict[str, Callable[[Samples], float]] = {
    "rate": _rate,
    "avg_over_time": _mean,
    "max_over_time": _max,
    "quantile_over_time": _p95,
    "count_over_time": len,
    "last_over_time": lambda samples: samples[-1][1],
    "timestamp": lambda samples: samples[-1][0],
}


def _within(samples: Samples, begin: float, end: float) -> Samples:
    return [(t, v) for t, v in samples if begin <= t <= end and not is_stale(v)]


def is_stale(value: float) -> bool:
    return math.isnan(value) and struct.pack("<d", value) == struct.pack("<d", STALE)


def _matchers(text: str) -> list[tuple[str, str, str]]:
    found = re.findall(r'(\w+)(=~|!~|!=|=)("(?:[^"\\]|\\.)*")', text)
    return [(label, op, json.loads(value)) for label, op, value in found]


def _fits(labels: Labels, wanted: list[tuple[str, str, str]]) -> bool:
    tests = {
        "=": lambda have, want: have == want,
        "!=": lambda have, want: have != want,
        "=~": lambda have, want: re.fullmatch(want, have) is not None,
        "!~": lambda have, want: re.fullmatch(want, have) is None,
    }
    return all(tests[op](labels.get(label, ""), value) for label, op, value in wanted)


def _text(value: float) -> str:
    return (
        "NaN" if math.isnan(value) else "+Inf" if value == math.inf else "-Inf" if value == -math.inf else repr(value)
    )


def _answer(data: object) -> bytes:
    return json.dumps({"status": "success", "data": data}, separators=(",", ":")).encode()


class SpoilingServer:
    """Serves what `answer` gives, after `spoil` has seen it."""

    def __init__(self, answer: Callable[[str, dict[str, str]], Awaitable[Reply]]) -> None:
        self._answer = answer
        self.spoil: Callable[[str, Reply], Spoilt] = lambda _, reply: reply
        self.queries: list[str] = []
        self.requests: list[tuple[str, str, Labels]] = []  # method, path, headers
        self.connections = 0
        self._over = asyncio.Event()

    async def __aenter__(self) -> "SpoilingServer":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over.set()
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._one(reader, writer):
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        method, target, _ = first.split(" ")
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
        body = (await reader.readexactly(int(headers.get("content-length", 0)))).decode()
        url = urlsplit(target)
        form = {k: v[0] for k, v in parse_qs(body or url.query).items()}
        query = form.get("query", url.path)
        self.requests.append((method, url.path, headers))
        self.queries.append(query)
        return await self._send(writer, self.spoil(query, await self._answer(url.path, form)))

    async def _send(self, writer: asyncio.StreamWriter, spoilt: Spoilt) -> bool:
        match spoilt:
            case Drop():
                return False
            case Hang():
                await self._over.wait()
                return False
            case Cut(body):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body[: len(body) // 2])
                return False
            case Reply(status, body, headers):
                more = "".join(f"{line}\r\n" for line in headers).encode()
                writer.write(b"HTTP/1.1 %d X\r\n%scontent-length: %d\r\n\r\n" % (status, more, len(body)))
                for start in range(0, len(body), _PART):  # at once, a huge body would hold the loop that tests measure
                    writer.write(body[start : start + _PART])
                    await writer.drain()
        return True
