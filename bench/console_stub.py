"""`python -m bench.console_stub GPUS`: a PromQL engine for a fleet of shared GPUs that our agents show.

It prints its port, and ends when its input ends. It understands the queries of the analyzer and of its console, and
nothing else. Its own speed is not measured. The last sample of every series is always at most 30 s old.
"""

import asyncio
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from statistics import fmean

from bench.analyzer_fleet import STEP
from bench.console_fleet import SAMPLES, Series, metrics
from bench.stub_server import Form, serve

_HEAD = '{"status":"success","data":{"resultType":"%s","result":['
_TIMES = [b"12345678%02d" % number for number in range(SAMPLES)]  # placeholders for the times of samples
_LAST = _TIMES[-1].decode()
_FUNCTIONS: dict[str, Callable[[tuple[float, ...]], object]] = {
    "avg_over_time": fmean,
    "max_over_time": max,
    "quantile_over_time": lambda found: sorted(found)[round(0.95 * (len(found) - 1))],
    "count_over_time": lambda _: SAMPLES,
    "last_over_time": lambda found: found[-1],
    "timestamp": lambda _: _LAST,
    "": lambda found: found[-1],
}
_MARKED = re.compile(r'label_replace\((.*?),"(\w+)","(\w+)","",""\)')
_CALL = re.compile(r"(?:(\w+)\((?:0\.95,)?)?(\w*)\{(.*)\}(?:\[(\d+)ms\])?\)?(?: (?:== 1|> 0))?")
_MATCHER = re.compile(r'(\w+)=~"((?:[^"\\]|\\.)*)"')
_KEPT = 400 * 2**20  # bytes of rendered answers


class Engine:
    """Answers by their query."""

    def __init__(self, gpus: int) -> None:
        self._series = metrics(gpus)
        self._kept: dict[tuple[str, ...], bytes] = {}

    async def body(self, path: str, form: Form) -> bytes:
        """The body of an answer, rendered on another thread; empty: the request is not supported."""
        return await asyncio.to_thread(self._body, path, form)

    def _body(self, path: str, form: Form) -> bytes:
        if path.startswith("/api/v1/label/__name__/"):
            return json.dumps({"status": "success", "data": sorted(self._series)}).encode()
        query = form.get("query", [""])[0]
        if not path.endswith("/query"):
            return b""
        if query == "vector(1)":
            return _vector([f'{{"metric":{{}},"value":[{time.time():.3f},"1"]}}'])
        if query.startswith("count by"):
            return _vector(self._counts(query))
        if query.startswith(("up{", "(changes(")):  # no target is known, and no agent has stopped
            return _vector([])
        return self._timed(query)

    def _counts(self, query: str) -> Iterator[str]:
        for name in _names(query):
            number = len(self._series.get(name, ()))
            yield f'{{"metric":{{"__name__":"{name}"}},"value":[{time.time():.3f},"{number}"]}}'

    def _timed(self, query: str) -> bytes:
        """The answer with the times of now."""
        body = self._kept.get((query,))
        if body is None:
            body = self._rendered(query)
            if sum(map(len, self._kept.values())) < _KEPT:
                self._kept[query,] = body
        last = int(time.time()) // STEP * STEP
        for age, mark in enumerate(reversed(_TIMES)):
            body = body.replace(mark, b"%d" % (last - STEP * age))
        return body

    def _rendered(self, query: str) -> bytes:
        if marked := _MARKED.findall(query):
            return _vector(row for text, label, mark in marked for row in self._rows(text, f',"{label}":"{mark}"'))
        call = _CALL.fullmatch(query)
        if call is None:
            return b""
        return _answer("matrix", self._lines(call)) if call[4] and not call[1] else _vector(self._rows(query))

    def _rows(self, query: str, mark: str = "") -> Iterator[str]:
        """One row for each series, with a statistic of its samples or with its last one."""
        call = _CALL.fullmatch(query)
        assert call, query
        of, named = _FUNCTIONS[call[1] or ""], call[1] in {None, "last_over_time"}
        for name, series in self._found(call):
            head = f'"__name__":"{name}",' if named else ""
            yield f'{{"metric":{{{head}{series.labels}{mark}}},"value":[{_LAST},"{of(series.values)}"]}}'

    def _lines(self, call: re.Match[str]) -> Iterator[str]:
        """The samples of each series."""
        times = [mark.decode() for mark in _TIMES]
        for name, series in self._found(call):
            values = series.values if len(series.values) > 1 else series.values * SAMPLES
            pairs = ",".join([f'[{at},"{value}"]' for at, value in zip(times, values, strict=True)])
            yield f'{{"metric":{{"__name__":"{name}",{series.labels}}},"values":[{pairs}]}}'

    def _found(self, call: re.Match[str]) -> Iterator[tuple[str, Series]]:
        gpus = _chosen(call[3], "gpu_uuid")
        for name in [call[2]] if call[2] else _names(call[3]):
            for series in self._series.get(name, ()):
                if not gpus or series.gpu_id in gpus:
                    yield name, series


def _chosen(matchers: str, label: str) -> set[str]:
    """The values that a label may have; empty: all of them."""
    exact = re.search(rf'\b{label}="([^"]*)"', matchers)
    if exact:
        return {exact[1]}
    return {value for name, text in _MATCHER.findall(matchers) if name == label for value in _alternatives(text)}


def _names(matchers: str) -> list[str]:
    return sorted(_chosen(matchers, "__name__"))


def _alternatives(text: str) -> list[str]:
    return text.replace("\\", "").split("|")


def _answer(kind: str, rows: Iterator[str]) -> bytes:
    return f"{_HEAD % kind}{','.join(rows)}]}}}}".encode()


def _vector(rows: "Iterator[str] | list[str]") -> bytes:
    return _answer("vector", iter(rows))


if __name__ == "__main__":
    asyncio.run(serve(Engine(int(sys.argv[1])).body))
