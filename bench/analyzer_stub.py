"""`python -m bench.analyzer_stub GPUS`: a PromQL engine for one fleet, with every answer prepared.

It replaces a real Prometheus that would take minutes to fill. It prints its port, and ends when its input ends. The
answers have the bytes that Prometheus would send: labels in their order, one row for each series. Its speed must not be
measured, so it prepares everything before it prints its port. POST /renew sets the times of the samples to the present.
"""

import asyncio
import json
import random
import re
import sys
import time
from collections.abc import Callable
from statistics import fmean

from bench.analyzer_fleet import NAMES, STEP, WINDOW, holders, values
from bench.stub_server import Form, serve

_SAMPLES = WINDOW // STEP
_HEAD = '{"status":"success","data":{"resultType":"%s","result":['
_TIMES = [b"12345678%02d" % number for number in range(_SAMPLES)]  # placeholders for the times of samples
_ANY_TIME = re.compile(rb"12345678\d\d(?=[,\"])")
_FUNCTIONS: dict[str, Callable[[tuple[float, ...]], float]] = {
    "avg_over_time": fmean,
    "max_over_time": max,
    "quantile_over_time": lambda found: sorted(found)[round(0.95 * (len(found) - 1))],
    "count_over_time": len,
    "timestamp": lambda _: int(_TIMES[-1]),
}
_RAW = "samples themselves"
_ASKED_MORE = frozenset(NAMES[:2])  # for the other metrics only means are queried


class Engine:
    """The answers by function and metric."""

    def __init__(self, gpus: int) -> None:
        self._gpus = gpus
        self._answers: dict[tuple[str, str], bytes] = {}
        dice, rows = random.Random(gpus), []
        for holder in holders(gpus, handovers=False):
            labels = json.dumps(holder.labels, separators=(",", ":"))
            rows.append((labels, list(zip(*(values(holder, dice) for _ in range(_SAMPLES)), strict=True))))
        for index, name in enumerate(NAMES):
            column = [(labels, found[index]) for labels, found in rows]
            for function in _FUNCTIONS if name in _ASKED_MORE else ("avg_over_time",):
                self._answers[function, name] = _answer(function, column)
            if name in _ASKED_MORE:
                self._answers[_RAW, name] = _raw_answer(name, column)
        self._timeless = {of: body for of, body in self._answers.items() if of[0] in {_RAW, "timestamp"}}
        self._renew()

    def _renew(self) -> bytes:
        last = int(time.time()) // STEP * STEP
        times = {mark: b"%d" % (last - STEP * age) for age, mark in enumerate(reversed(_TIMES))}
        for of, body in self._timeless.items():
            self._answers[of] = _ANY_TIME.sub(lambda mark: times[mark[0]], body)
        return b"{}"

    async def body(self, path: str, form: Form) -> bytes:
        """The body of an answer; empty: the request is not supported."""
        if path == "/renew":
            return self._renew()
        if path.startswith("/api/v1/label/__name__/"):
            return json.dumps({"status": "success", "data": NAMES}).encode()
        query = form.get("query", [""])[0]
        if (row := self._small(query)) is not None:
            return f"{_HEAD % 'vector'}{row}]}}}}".encode()
        function = query.partition("(")[0] if "(" in query else _RAW
        return self._answers.get((function, next((name for name in NAMES if name in query), "")), b"")

    def _small(self, query: str) -> str | None:
        """The rows for queries that are not statistics: the health check, the number of series, the targets."""
        if query == "vector(1)":
            return f'{{"metric":{{}},"value":[{time.time():.3f},"1"]}}'
        if query.startswith("count by"):
            return f'{{"metric":{{"__name__":"{NAMES[0]}"}},"value":[{time.time():.3f},"{self._gpus}"]}}'
        return "" if query.startswith("up{") else None


def _answer(function: str, rows: list[tuple[str, tuple[float, ...]]]) -> bytes:
    of, now = _FUNCTIONS[function], f"{time.time():.3f}"
    made = (f'{{"metric":{labels},"value":[{now},"{of(found):.16g}"]}}' for labels, found in rows)
    return f"{_HEAD % 'vector'}{','.join(made)}]}}}}".encode()


def _raw_answer(name: str, rows: list[tuple[str, tuple[float, ...]]]) -> bytes:
    times = [mark.decode() for mark in _TIMES]
    made = (
        f'{{"metric":{{"__name__":"{name}",{labels[1:]},"values":['
        + ",".join([f'[{at},"{value:.16g}"]' for at, value in zip(times, found, strict=True)])
        + "]}"
        for labels, found in rows
    )
    return f"{_HEAD % 'matrix'}{','.join(made)}]}}}}".encode()


if __name__ == "__main__":
    asyncio.run(serve(Engine(int(sys.argv[1])).body))
