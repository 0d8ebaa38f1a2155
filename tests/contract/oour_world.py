"""A fleet whose every sample is known in a real Prometheus, a proxy that spoils its answers, and a real analyzer."""

import asyncio
import contextlib
import json
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx2

from tests.environment import bare
from tests.ports import free_port
from tests.services.agent.noderoot import WITHIN, Samples
from tests.services.analyzer.promstub import STALE, Engine, Reply, SpoilingServer
from vgpuscope.logic.fleet.queries import recording_rules

STEP = 30
MODEL = "NVIDIA A100-SXM4-80GB"
H100 = "NVIDIA H100 80GB HBM3"
BUSY_SCORE = 86.8  # 0.5·95 + 0.2·60 + 0.2·90 + 0.1·93, of the busy GPUs below
CONDITION = '{pod!="",cluster="a"}'


def uuid(number: int) -> str:
    """Any two of them are equal in their first 32 characters."""
    return f"GPU-5f6e7d8c-1a2b-4c3d-8e9f-0000{number:08x}"


class Fleet(Engine):
    """GPUs that are all busy but for the few that are said not to be; their samples go on into the future."""

    def __init__(self) -> None:
        super().__init__()
        self.now = int(time.time()) // STEP * STEP
        for number in range(8):
            self.gpu(number, pod=f"busy-{number}")
        self.gpu(8, pod="honest", util=0)
        self.gpu(9, pod="before", util=0, until=-300)
        self.gpu(9, pod="after", since=-270)
        self.gpu(10, pod="mig-a", GPU_I_ID="1", GPU_I_PROFILE="3g.40gb")
        self.gpu(10, pod="mig-b", util=0, GPU_I_ID="2", GPU_I_PROFILE="3g.40gb")
        for pod in ("slice-a", "slice-b"):
            self.gpu(11, pod=pod)
        self.gpu(12, pod="dead-for-two-hours", util=0, since=-9000, until=-7200)
        self.gpu(13, pod="dead-for-half-an-hour", util=0, since=-3000, until=-1800)
        self.gpu(14, pod="just-finished", util=0, until=-240)
        self.gpu(15, pod="pair")
        self.gpu(16, pod="pair", util=40)
        self.gpu(17, pod="warm", util=0, power=250, limit=700, modelName=H100)
        self.gpu(18, pod="warm-without-limit", util=0, power=250, limit=None, modelName=H100)
        self.gpu(19, pod="no-memory-metrics", memory=False)
        self.gpu(20, pod="infinite", false=math.inf)
        self.gpu(21, pod="not-a-number", false=math.nan)
        self.gpu(22, pod="lean", copy=0, power=60, used=400)
        self.gpu(23, pod="both", GPU_I_ID="1", GPU_I_PROFILE="3g.40gb")
        self.gpu(23, pod="both", util=0, GPU_I_ID="2", GPU_I_PROFILE="3g.40gb")
        self.gpu(30, pod="elsewhere", util=0, cluster="b")
        self._recorded(30, pod="elsewhere", cluster="b")
        self.gpu(40, pod="calms-down", cluster="earlier", namespace="ml")
        self.gpu(41, pod="ends", cluster="earlier", namespace="short-lived")
        self.gpu(40, pod="calms-down", util=0, cluster="later", namespace="ml")

    def gpu(
        self,
        number,
        *,
        util=95,
        copy=60,
        used=72_000,
        power=None,
        limit=400,
        memory=True,
        false=None,
        since=-1200,
        until=3600,
        **more,
    ) -> None:
        """`since` and `until` are seconds from now; who ends before now is marked as ended, as Prometheus does."""
        labels = {"UUID": uuid(number), "gpu": str(number % 8), "modelName": MODEL, "Hostname": f"node-{number // 8}"}
        labels |= {"job": "dcgm", "cluster": "a", "namespace": "ml", "container": "main"} | more
        busy = util > 0
        values = {"GPU_UTIL": util, "MEM_COPY_UTIL": copy if busy else 0, "SM_CLOCK": 1410}
        values |= {"POWER_USAGE": power or (372 if busy else 60)}
        used = used if busy else 0
        values |= {"FB_USED": used, "FB_FREE": 80_000 - used} if memory else {}
        values |= {"POWER_MGMT_LIMIT": limit} if limit else {}
        count = (until - since) // STEP + 1
        for name, value in values.items():
            self.add(f"DCGM_FI_DEV_{name}", [float(value)] * count, until=self.now + until, **labels)
            samples = self.series[-1][1]
            if false is not None:
                samples[:] = [(at, false if at == self.now - 4 * STEP else v) for at, v in samples]
            if until < 0:
                samples.append((self.now + until + STEP, STALE))

    def _recorded(self, number: int, **labels: str) -> None:
        """What recording rules make of a GPU, where somebody has them."""
        for name in (rule.name for rule in recording_rules()):
            if "DCGM" in name:
                self.add(
                    name, [0.0] * 150, until=self.now + 3600, UUID=uuid(number), namespace="ml", job="dcgm", **labels
                )


BUSY = {uuid(number) for number in (*range(8), 9, 11, 15, 16, 19, 20, 21, 22)}
BUSY_INSTANCES = {(uuid(10), "GI-1"), (uuid(23), "GI-1")}


def called_idle(rows: list[dict]) -> list[dict]:
    """The busy GPUs and instances of cluster a that are said to be idle in any way."""
    busy = [row for row in rows if row["gpu_id"] in BUSY or (row["gpu_id"], row["mig"]) in BUSY_INSTANCES]
    return [
        row
        for row in busy
        if "idle" in (row["status"], row["verdict"], *(tenant["verdict"] for tenant in row["tenants"]))
        or row["use_class"].startswith("idle")
    ]


class Proxy:
    """Stands before a Prometheus, in a loop and thread of its own; passes everything on until told otherwise."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="proxy")
        self.reset()

    def reset(self) -> None:
        self.spoil: Callable[[str, Reply], Any] = lambda _, reply: reply
        self.renamed: tuple[str, str] = ("", "")  # text of queries, and what stands for it
        self.slow = 0.0  # seconds for which each answer is held back
        self.asked: list[dict[str, str]] = []  # without looks whether it is there

    def __enter__(self) -> "Proxy":
        self._thread.start()
        assert self._ready.wait(WITHIN)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(WITHIN)

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Meanwhile nothing is answered; then everything is."""
        self._loop.call_soon_threadsafe(self._open.clear)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._open.set)

    async def _run(self) -> None:
        self._loop, self._over, self._open = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        self._open.set()
        async with (
            httpx2.AsyncClient(base_url=self._upstream, timeout=WITHIN) as self._client,
            SpoilingServer(self._passed_on) as server,
        ):
            server.spoil = self._spoilt
            self.url = server.url
            self._ready.set()
            await self._over.wait()

    def _spoilt(self, query: str, reply: Reply) -> Any:
        return self.spoil(query, reply)  # as it is told by then

    async def _passed_on(self, path: str, form: dict[str, str]) -> Reply:
        if form.get("query") != "vector(1)":
            self.asked.append(form)
        await self._open.wait()
        await asyncio.sleep(self.slow)  # an engine that is as slow as the test wants
        form = {name: text.replace(*self.renamed) if self.renamed[0] else text for name, text in form.items()}
        send = self._client.get(path, params=form) if "values" in path else self._client.post(path, data=form)
        answer = await send
        return Reply(answer.status_code, answer.content)


class Analyzer:
    """A running `vgpuscope analyzer` and a client of it."""

    def __init__(self, process: subprocess.Popen, url: str, log: Path) -> None:
        self.process, self.url, self._log = process, url, log
        # this client would read only the first part of a page that is compressed in parts
        self.client = httpx2.Client(base_url=url, timeout=WITHIN, headers={"accept-encoding": "identity"})

    @property
    def log(self) -> str:
        return self._log.read_text()

    def get(self, path: str, **params: Any) -> Any:
        """An answer that must be good, and JSON as the standard has it: without NaN and Infinity."""
        answer = self.client.get(path, params=params)
        assert answer.status_code == 200, (path, answer.text)
        return json.loads(answer.text, parse_constant=_no_number)

    def post(self, path: str, **params: Any) -> httpx2.Response:
        return self.client.post(path, params=params)

    def rows(self) -> list[dict]:
        return self.get("/results")

    def of(self, pod: str) -> dict:
        """The one row of a pod."""
        (row,) = [row for row in self.rows() if any(tenant["pod"] == pod for tenant in row["tenants"])]
        return row

    def page(self) -> Samples:
        return Samples.of(self.client.get("/metrics").text)

    def analyses(self) -> float:
        return self.page().one("gpu_analysis_total")

    def errors(self) -> float:
        return self.page().one("gpu_analysis_errors_total")

    def analyse(self) -> list[dict]:
        """One analysis from its beginning to its end, and its rows."""
        before = self.analyses()
        self.wait(lambda: "started" in self.post("/analyze").json()["message"])
        self.wait(lambda: self.analyses() > before)
        return self.rows()

    def wait(self, condition: Callable[[], object]) -> Any:
        end = time.monotonic() + WITHIN
        while not (found := condition()):
            assert self.process.poll() is None, self.log
            assert time.monotonic() < end, f"did not come true in {WITHIN} s\n{self.log}"
            time.sleep(0.01)  # between two looks, not in place of one
        return found

    def answers(self) -> bool:
        with contextlib.suppress(httpx2.TransportError):
            return self.client.get("/health").status_code == 200
        return False


def command(
    *flags: str, program: Sequence[str] = ("-m", "vgpuscope"), **environ: str
) -> tuple[list[str], dict[str, str]]:
    """Command line and environment of an analyzer that is asked by nobody else."""
    return [sys.executable, *program, "analyzer", *flags], bare(**environ)


@contextlib.contextmanager
def analyzer(path: Path, *flags: str, host: str = "127.0.0.1", analysed: bool = True, **more: Any):
    """An analyzer that analyses when told to, unless it is given an interval; it must leave when told."""
    port = free_port()
    usual = {"INTERVAL": "3600", "QUERY_CONDITION": CONDITION, "VGPUSCOPE_ANALYZER_RATE_LIMIT": "10000"}
    words, variables = command("--listen", f"{host}:{port}", *flags, **(usual | more))
    log = path / f"analyzer-{port}.log"
    with log.open("w") as out:
        process = subprocess.Popen(words, env=variables, stdout=out, stderr=out, cwd=path)
    found = Analyzer(process, f"http://127.0.0.1:{port}", log)
    try:
        found.wait(found.answers)
        if analysed:
            found.wait(lambda: found.analyses() >= 1)
        yield found
        if process.poll() is None:
            process.terminate()
        assert process.wait(WITHIN) == 0, found.log
        assert "Traceback" not in found.log, found.log
    finally:
        found.client.close()
        if process.poll() is None:
            process.kill()
            process.wait()


def _no_number(text: str) -> None:
    raise AssertionError(f"{text} is no JSON")
