"""An analyzer in the test's own loop, over a source and a store that do as they are told."""

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
from msgspec import structs

from tests.http.serving import SOON, until
from tests.standins.smallapi import small_api
from vgpuscope.model.analysis import Analysis, Reading, Stat, Tenant, Track, Window
from vgpuscope.model.errors import HistoryDown, QueryFailed, ScopeError
from vgpuscope.runtime.lifecycle import Lifecycle
from vgpuscope.services.analyzer.process import Analyzer
from vgpuscope.services.analyzer.settings.settings import Settings
from vgpuscope.services.frame import Frame
from vgpuscope.store.lease import LocalLease
from vgpuscope.store.opening import AnalyzerStore
from vgpuscope.store.results.history import Unstored
from vgpuscope.store.results.wanted import AnalysisKey
from vgpuscope.store.timeline import LocalEvents

TOKEN = "a-token-of-the-tests"
GIB = 1024**3
BUSY, IDLE = 0.95, 0.0
PATIENT = (
    "-c",
    "import argparse, os, sys\n"
    "from vgpuscope.commands.analyzer import COMMAND\n"
    "from vgpuscope.commands.setting_flags import given, settings_file\n"
    "from vgpuscope.services import frame\n"
    "from vgpuscope.services.analyzer import process\n"
    "parser = argparse.ArgumentParser()\n"
    "COMMAND.arguments(parser)\n"
    "args = parser.parse_args(sys.argv[2:])\n"
    "plan = process.plan(flags=given(args), environ=os.environ, file=settings_file(args))\n"
    "sys.exit(frame.run(*plan, grace=3600.0))\n",
)  # `vgpuscope analyzer`, but when it is told to end nothing ends it but itself


def uuid(number: int) -> str:
    return f"GPU-{number:08x}-0000-4000-8000-{number:012x}"


def track(number: int = 0, *, util: float | None = BUSY, pod: str = "train", **more) -> Track:
    """A GPU that was watched for the whole window, with one tenant."""
    end = time.time()
    levels = {
        "gpu_util": util,
        "mem_copy": util and util / 2,
        "mem_used": 40.0 * GIB,
        "power": 60.0 + 250.0 * (util or 0),
    }
    terms = {name: stat(value) for name, value in levels.items() if value is not None}
    terms |= {"mem_total": stat(80.0 * GIB), "power_limit": stat(400.0), "sm_clock": stat(1.41e9)}
    fields: dict[str, Any] = {
        "schema": "vgpuscope",
        "gpu_id": uuid(number),
        "gpu_index": str(number),
        "hostname": f"node-{number // 8}",
        "model": "NVIDIA A100-SXM4-80GB",
        "tenant": Tenant(namespace="ml", pod=f"{pod}-{number}", container="main"),
        "terms": terms,
        "first": end - 600,
        "last": end,
    }
    return Track(**(fields | more))


def stat(value: float, **more) -> Stat:
    return Stat(**{"mean": value, "max": value, "p95": value, "samples": 20, **more})


def reading(*tracks: Track, **more) -> Reading:
    end = time.time()
    fields: dict[str, Any] = {
        "window": Window(begin=end - 600, end=end, interval=30),
        "source": "http://stub",
        "requests": 6,
    }
    return Reading(tracks=tracks, schemas=("vgpuscope",), **(fields | more))


class StubSource:
    """Answers with what `answer` is: a reading, an error, or an event to wait for first."""

    def __init__(self, answer: Reading | BaseException | None = None) -> None:
        self.answer: Reading | BaseException = answer if answer is not None else reading(track(0), track(1, util=IDLE))
        self.reads = 0
        self.asked = asyncio.Event()
        self.let_go = asyncio.Event()
        self.let_go.set()

    def hang(self) -> None:
        self.let_go.clear()
        self.asked.clear()

    def fail(self, message: str = "refused") -> None:
        self.answer = QueryFailed(message)

    async def read(self, *, end, seconds):
        self.reads += 1
        self.asked.set()
        await self.let_go.wait()
        if isinstance(self.answer, BaseException):
            raise self.answer
        window = Window(begin=end - seconds, end=end, interval=30)
        tracks = tuple(structs.replace(one, first=end - seconds, last=end) for one in self.answer.tracks)
        return structs.replace(self.answer, window=window, tracks=tracks)


class StubSources:
    """What the analyzer knows of its sources."""

    name = "StubSource"

    def __init__(self, source: StubSource) -> None:
        self.current = source
        self.known_owners: Any = {("ml", "train-0"): "Job/train"}  # an error: nobody tells
        self.known_nodes: Any = None
        self.known_allocations: Any = None
        self.looks = 0
        self.down: Exception | None = None  # it does not even answer a look
        self.renewed = 0

    def on_error(self, count) -> None:
        pass

    def renew(self, config) -> None:
        self.renewed += 1

    async def begun(self, *, within) -> None:
        pass

    async def run(self, *, finished) -> None:
        await asyncio.Event().wait()

    async def ready(self) -> None:
        self.looks += 1
        if self.down is not None:
            raise self.down
        await self.current.let_go.wait()
        if isinstance(self.current.answer, ScopeError):
            raise self.current.answer

    async def nodes(self):
        return self.known_nodes

    async def allocations(self):
        return self.known_allocations

    async def owners(self):
        if isinstance(self.known_owners, Exception):
            raise self.known_owners
        return self.known_owners

    async def close(self) -> None:
        pass


class SharedLease(LocalLease):
    """The lease of a store that several analyzers share."""

    shared = True

    def __init__(self, store: "SharedHistory", clock) -> None:
        super().__init__(clock=clock)
        self._store = store

    async def take(self, holder, seconds):
        await self._store.let_go.wait()
        self._store.check()
        return await super().take(holder, seconds)

    async def release(self, holder):
        self._store.check()
        await super().release(holder)


class SharedHistory(Unstored):
    """A store that several analyzers share, and that can be down."""

    keeps = True

    def __init__(self, clock=time.monotonic) -> None:
        self.lease, self.events = SharedLease(self, clock), LocalEvents()
        self.down = False
        self.let_go = asyncio.Event()
        self.let_go.set()
        self.saved: list[Analysis] = []

    def whole(self) -> AnalyzerStore:
        return AnalyzerStore(lease=self.lease, results=self, events=self.events)

    def hold(self) -> None:
        """Nobody is told who leads until it is let go."""
        self.let_go.clear()

    def check(self) -> None:
        if self.down:
            raise HistoryDown("the store is away")

    async def save(self, analysis, *, current=False):
        self.check()
        self.saved.append(analysis)

    async def latest(self, *, unlike=None):
        self.check()
        last = self.saved[-1] if self.saved else None
        return last if last and AnalysisKey.of(last) != unlike else None


class Running:
    """An analyzer that runs, and a client of it."""

    def __init__(self, analyzer: Analyzer, client: httpx2.AsyncClient, source: StubSource, life: Lifecycle) -> None:
        self.analyzer, self.client, self.source, self.life = analyzer, client, source, life

    async def get(self, path: str, **more) -> httpx2.Response:
        return await self.client.get(path, **more)

    async def json(self, path: str, **more):
        answer = await self.client.get(path, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def analysed(self, times: int = 1) -> None:
        """Wait until so many analyses came to an end, whatever their end."""
        await until(lambda: self.analyzer.state().tally.analyses >= times and self._shown())

    def _shown(self) -> bool:
        running = self.analyzer._cycle._running
        return (running is None or running.done()) and not self.analyzer._saving.busy

    async def analyse(self) -> None:
        """One analysis more, from now."""
        await self.analyzer._cycle.finished()
        before = self.analyzer.state().tally.analyses
        assert self.analyzer.trigger().started
        await self.analysed(before + 1)

    async def metrics(self) -> str:
        return (await self.client.get("/metrics", headers={"accept-encoding": "identity"})).text


class Ahead:
    """A wall clock that a test puts forward."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return time.time() + self.seconds


@contextlib.contextmanager
def kubernetes(source: StubSource) -> Iterator[dict[str, Any]]:
    """Settings for an API server that shows each pod of the source on the node of its GPU, asking for a GPU."""
    asking = {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}

    def answer(method: str, path: str, query: dict[str, list[str]], body: bytes) -> tuple[int, Any]:
        place, name = path.rpartition("/")[::2]
        if place == "/api/v1/namespaces":
            return 200, {"kind": "Namespace", "metadata": {"name": name, "uid": f"uid-{name}"}}
        tracks = source.answer.tracks if isinstance(source.answer, Reading) else ()
        for one in tracks:
            who = one.tenant
            if method == "GET" and who and path == f"/api/v1/namespaces/{who.namespace}/pods/{who.pod}":
                meta = {"name": who.pod, "namespace": who.namespace, "uid": who.pod_uid}
                return 200, {"kind": "Pod", "metadata": meta, "spec": asking | {"nodeName": one.hostname}}
        return 404, {"kind": "Status", "message": "not found"}

    with TemporaryDirectory() as directory, small_api(Path(directory)) as api:
        api.answer = answer  # type: ignore[method-assign]
        yield {"kube.enabled": True, "analyzer.kubeconfig": api.kubeconfig}


@contextlib.asynccontextmanager
async def running(
    source=None,
    *,
    history=None,
    environ=(),
    file=None,
    listen="127.0.0.1:0",
    sources=None,
    clock=time.monotonic,
    wall=time.time,
    paces=(),
    **flags,
):
    """An analyzer that serves; `paces` are its lease and its pauses. One that reclaims has an API server to ask."""
    source = source or StubSource()
    api = contextlib.ExitStack()
    reclaims = any(name.startswith("reclaim.") for name in flags) and "kube.enabled" not in flags
    known = api.enter_context(kubernetes(source)) if reclaims else {}
    given = {"analyzer.listen": listen, "prometheus.url": "http://stub", **known, **flags}
    settings = Settings(flags=given, environ=dict(environ), file=str(file) if file else None)
    stub: Any = sources or StubSources(source)
    store: AnalyzerStore | None = history.whole() if isinstance(history, SharedHistory) else history
    analyzer = Analyzer(settings, store=store, sources=stub, clock=clock, wall=wall, **dict(paces))
    analyzer._replica.leadership.holder = f"{os.getpid()}-{id(analyzer)}"
    life = Lifecycle(drain=0.0)  # nobody here has to be told first
    frame = Frame(analyzer, life, settings.config.analyzer)
    task = asyncio.create_task(frame.run())
    try:
        async with httpx2.AsyncClient(base_url=frame.server.url, timeout=SOON) as client:
            await frame.server.started()
            yield Running(analyzer, client, source, life)
    finally:
        life.stop()
        source.let_go.set()
        async with asyncio.timeout(SOON):
            with api, contextlib.suppress(asyncio.CancelledError):
                await task
