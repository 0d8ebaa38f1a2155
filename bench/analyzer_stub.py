"""`python -m bench.analyzer_stub CARDS`: a PromQL engine that knows one fleet and has every answer ready.

It stands in for a real one where that would take minutes to fill. Prints its port, and ends when its input does. The
answers have the bytes that Prometheus would send: labels in their order, one row for each series. How fast it is must
not count, so all is made before it says its port; only the times of last samples are put in when they are asked for.
"""

import asyncio
import gc
import json
import random
import sys
import time
from statistics import fmean
from urllib.parse import parse_qs, urlsplit

from bench.analyzer_fleet import NAMES, STEP, WINDOW, holders, values

_SAMPLES = WINDOW // STEP
_HEAD = b'{"status":"success","data":{"resultType":"vector","result":['
_NOW = b"1234567890"  # stands for the time of the last sample
_FUNCTIONS = {
    "avg_over_time": fmean,
    "max_over_time": max,
    "quantile_over_time": lambda found: sorted(found)[round(0.95 * (len(found) - 1))],
    "count_over_time": len,
    "timestamp": lambda _: int(_NOW),
}
_ASKED_MORE = frozenset(NAMES[:2])  # of the others only means are asked for


class Engine:
    """Answers by function and metric."""

    def __init__(self, cards: int) -> None:
        self._answers: dict[tuple[str, str], bytes] = {}
        dice, rows = random.Random(cards), []
        for holder in holders(cards, handovers=False):
            labels = json.dumps(holder.labels, separators=(",", ":"))
            rows.append((labels, list(zip(*(values(holder, dice) for _ in range(_SAMPLES)), strict=True))))
        for index, name in enumerate(NAMES):
            for function in _FUNCTIONS if name in _ASKED_MORE else ("avg_over_time",):
                self._answers[function, name] = _answer(function, [(labels, found[index]) for labels, found in rows])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                target, length = head.split(b" ", 2)[1].decode(), head.lower().partition(b"content-length:")[2]
                form = (await reader.readexactly(int(length.split(b"\r\n", 1)[0]))).decode() if length else ""
                body = self._body(urlsplit(target).path, parse_qs(form or urlsplit(target).query))
                status = b"200 OK" if body else b"422 Unprocessable Entity"
                lead = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
                writer.write(lead % (status, len(body)))
                writer.write(body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client has gone, or it is time to end
        finally:
            writer.close()

    def _body(self, path: str, form: dict[str, list[str]]) -> bytes:
        """Empty: it does not know."""
        if path.startswith("/api/v1/label/__name__/"):
            return json.dumps({"status": "success", "data": NAMES}).encode()
        query = form.get("query", [""])[0]
        function, name = query.partition("(")[0], next((name for name in NAMES if name in query), "")
        answer = self._answers.get((function, name), b"")
        return answer.replace(_NOW, b"%d" % (time.time() // STEP * STEP)) if function == "timestamp" else answer


def _answer(function: str, rows: list[tuple[str, tuple[float, ...]]]) -> bytes:
    of, now = _FUNCTIONS[function], f"{time.time():.3f}"
    made = (f'{{"metric":{labels},"value":[{now},"{of(found):.16g}"]}}' for labels, found in rows)
    return _HEAD + ",".join(made).encode() + b"]}}"


async def _main() -> None:
    engine = Engine(int(sys.argv[1]))
    gc.collect()
    gc.freeze()
    server = await asyncio.start_server(engine.serve, "127.0.0.1", 0, limit=1 << 20)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_main())
