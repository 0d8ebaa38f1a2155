"""The worlds: kinds that share one Prometheus, and exporters for an analyzer with its own scrapes."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from bench.trust_case import Case, Kind
from bench.trust_kinds import KINDS
from bench.trust_scrapes import Setup, Target, recorded, text
from tests.contract import promworld

FILLER = 21_000  # GPUs of a fleet that is too large to query all samples at once
_AT_ONCE = 4000  # series kept in memory
OWN_INTERVAL = 4.0
OWN_WINDOW = 120.0


class World(Struct, frozen=True, kw_only=True):
    """Kinds that share a store and the settings of an analyzer."""

    name: str
    window: float = 600.0
    cases: list[Case]

    @property
    def minutes(self) -> str:
        """The window in the format of the analyzer's setting."""
        return f"{self.window / 60:g}"


def world(name: str, *, window: float = 600.0, kinds: frozenset[str] = frozenset()) -> World:
    """One case for each setup of each kind of this world; only of the named kinds, if any are named."""
    chosen = [one for one in KINDS if one.world == name and (not kinds or one.name in kinds)]
    pairs = [(one, setup) for one in chosen for setup in one.setups]
    return World(name=name, window=window, cases=_cases(pairs, window))


def own_world() -> World:
    """Every kind that an analyzer can see in its own scrapes, once for each of its schemas."""
    pairs = [(one, Setup(schema=schema, interval=OWN_INTERVAL)) for one in KINDS for schema in one.own]
    return World(name="own", window=OWN_WINDOW, cases=_cases(pairs, OWN_WINDOW))


def _cases(pairs: list[tuple[Kind, Setup]], window: float) -> list[Case]:
    cases = []
    for number, (one, setup) in enumerate(pairs, 1):
        case = Case(one, setup, window=window, number=number)
        one.make(case)
        for subject, truth in case.truth.items():
            worked = case.worked(subject)
            assert truth not in ("busy", "idle", "preparing", "either") or worked == (truth == "busy"), (
                one.name,
                setup,
                subject,
            )
        cases.append(case)
    return cases


def fill(url: str, cases: list[Case], now: float) -> None:
    """Write everything that a Prometheus would have stored about the cases."""
    batch = []
    for case in cases:
        for number, target in enumerate(case.targets):
            batch += recorded(target, now=now, begin=case.begin, end=case.end, seed=case.number + number)
        if len(batch) >= _AT_ONCE:
            promworld.write(url, batch)
            batch = []
    promworld.write(url, batch)


def fill_fleet(url: str, now: float) -> None:
    """Write many more GPUs, scraped every 30 s, which belong to no case."""
    times = [now + at for at in range(-900, 181, 30)]
    for begin in range(0, FILLER, _AT_ONCE):
        batch = []
        for number in range(begin, min(FILLER, begin + _AT_ONCE)):
            labels = {"__name__": "DCGM_FI_DEV_GPU_UTIL", "UUID": f"GPU-f1f1f1f1-0000-4000-8000-{number:012x}"}
            labels |= {"job": "fleet", "instance": f"fleet-{number // 8}:9400", "gpu": str(number % 8)}
            labels |= {"Hostname": f"fleet-{number // 8}", "pod": f"fleet-{number}", "namespace": "fleet"}
            batch.append((labels, [(at, 50.0) for at in times]))
        promworld.write(url, batch)


# ── exporters ────────────────────────────────────────────────────────────────────────────────────────────────────


class Exporters:
    """Exporters for every target of the cases, each on its own port, in their own event loop and thread."""

    def __init__(self, cases: list[Case], now: float) -> None:
        self._targets = [target for case in cases for target in case.targets]
        self._now = now
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="exporters")
        self.urls: list[str] = []

    def __enter__(self) -> "Exporters":
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(60)

    async def _run(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        servers = [await self._server(target) for target in self._targets]
        self.urls = [f"http://127.0.0.1:{one.sockets[0].getsockname()[1]}" for one in servers]
        self._ready.set()
        await self._over.wait()
        for one in servers:
            one.close()

    async def _server(self, target: Target) -> asyncio.Server:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while await reader.readuntil(b"\r\n\r\n"):
                    if (answer := self._answer(target)) is None:
                        break
                    writer.write(answer)
                    await writer.drain()
            writer.close()

        return await asyncio.start_server(talk, "127.0.0.1", 0)

    def _answer(self, target: Target) -> bytes | None:
        """The answer of a target; None: the connection is closed without an answer."""
        now = time.time()
        t = now - self._now
        if not target.since <= t < target.until or not target.answers(t):
            return None
        body: bytes | None = text(target.page(t, self._now), target.stamps(now) if target.stamps else None)
        if target.broken:
            body = target.broken(t, body or b"")
        status = b"200 OK" if body is not None else b"500 Internal Server Error"
        body = body or b""
        kind = b"Content-Type: text/plain; version=0.0.4\r\n"
        return b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\n\r\n%b" % (status, kind, len(body), body)


@contextlib.contextmanager
def engine(name: str, path: Path) -> Iterator[str]:
    """An empty Prometheus with its default settings, or a VictoriaMetrics."""
    path.mkdir(parents=True, exist_ok=True)
    with (promworld.victoria_metrics if name == "VictoriaMetrics" else promworld.prometheus)(path) as url:
        yield url
