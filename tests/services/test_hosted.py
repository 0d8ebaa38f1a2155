"""`uvicorn vgpuscope.asgi:app` with gpu-oour's own config.yaml and variables: a real uvicorn, started as documented."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from hashlib import sha256
from pathlib import Path

import httpx2
import pytest
import trustme
from starlette.requests import Request

from tests.environment import bare
from tests.paths import TESTS
from tests.ports import free_port
from tests.services.analyzer.promstub import SpoilingServer
from tests.services.analyzer.test_analyzer import fleet
from tests.standins.llm import Llm
from vgpuscope.asgi import app
from vgpuscope.http.identity import Identity
from vgpuscope.services.hosted import Hosted

UVICORN = str(Path(sys.executable).with_name("uvicorn"))
CONFIG = TESTS / "fixtures" / "gpu-oour" / "config.yaml"
KEY = "sk-your-secret-key"
WITHIN = 60
SLOW = 30  # seconds: a busy machine ends sooner, and what waits for a client never
LATE = "not everything ended in time"  # after five seconds
TOKEN = "0123456789abcdef"


class Hosting:
    """A uvicorn process, a client of it, and what it logged."""

    def __init__(self, process, client):
        self.process, self.client, self.lines = process, client, []

    async def listen(self):
        async for line in self.process.stderr:
            self.lines.append(line.decode())

    async def json(self, path):
        return (await self.client.get(path)).json()

    @property
    def log(self):
        return "".join(self.lines)

    async def until(self, condition):
        async with asyncio.timeout(WITHIN):
            while True:
                assert self.process.returncode is None, self.log
                with contextlib.suppress(httpx2.TransportError):
                    if found := await condition():
                        return found
                await asyncio.sleep(0.05)  # between two looks, of which each also looks at the process

    async def end(self, number=signal.SIGTERM):
        """The exit code, and the seconds that it took."""
        began = time.monotonic()
        self.process.send_signal(number)
        async with asyncio.timeout(WITHIN):
            code = await self.process.wait()
        return code, time.monotonic() - began


@contextlib.asynccontextmanager
async def uvicorn(directory, *flags, **environ):
    port = free_port()
    command = (UVICORN, "vgpuscope.asgi:app", "--host", "127.0.0.1", "--port", str(port), *flags)
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=directory,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=bare(**environ),
        start_new_session=True,  # its workers are killed with it
    )
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=WITHIN) as client:
        hosting = Hosting(process, client)
        listening = asyncio.create_task(hosting.listen())
        try:
            yield hosting
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            await listening


@pytest.fixture
def directory(tmp_path):
    shutil.copy(CONFIG, tmp_path)
    return tmp_path


async def test_uvicorn_runs_the_analyzer_with_the_config_and_the_variables_of_gpu_oour(directory):
    async with (
        SpoilingServer(fleet(now=time.time())) as prometheus,
        Llm() as model,
        uvicorn(
            directory, PROM_URL=prometheus.url, THRESHOLD="25", INTERVAL="2", AI_API_KEY=KEY, AI_API_URL=model.url
        ) as host,
    ):
        await host.until(lambda: host.json("/results"))
        health = await host.json("/health")
        assert (health["status"], health["prometheus_connected"], health["interval"]) == ("healthy", True, 2)
        assert (health["ai_enabled"], "without_effect" in health) == (True, False)
        about = await host.json("/")
        assert (about["config"]["threshold"], about["features"]["ai_analysis"]) == (25, True)
        await host.until(lambda: _asked(model))
        assert model.asked[0].headers["authorization"] == f"Bearer {KEY}"
        assert (await host.json("/results/low"))["threshold"] == 25
        assert (await host.client.get("/readyz")).status_code == 200
        assert (await host.client.get("/ui/")).status_code == 200
        assert b"gpu_utilization_score" in (await host.client.get("/metrics")).content

        first = (await host.json("/health"))["last_analysis"]
        await host.until(lambda: _later(host, first))  # the loops run, not only the requests

        code, seconds = await host.end()
        assert (code, seconds < SLOW) == (-signal.SIGTERM, True), host.log
    assert LATE not in host.log
    assert f"settings read file={directory / 'config.yaml'}" in host.log
    assert "Application shutdown complete" in host.log
    assert "Traceback" not in host.log
    assert KEY not in host.log


async def _asked(model):
    return model.asked


async def _later(host, first):
    return (await host.json("/health"))["last_analysis"] > first


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_open_stream_of_events_does_not_keep_uvicorn_from_ending(directory, number):
    async with (
        SpoilingServer(fleet(now=time.time())) as prometheus,
        uvicorn(directory, PROM_URL=prometheus.url) as host,
    ):
        await host.until(lambda: host.json("/results"))
        async with host.client.stream("GET", "/api/v1/events") as stream:
            lines = stream.aiter_lines()
            assert (await anext(lines)).startswith("event:")
            _, seconds = await host.end(number)
        assert seconds < SLOW, host.log
    assert LATE not in host.log
    assert "Application shutdown complete" in host.log


async def test_settings_that_cannot_be_used_end_uvicorn_with_the_reason(directory):
    async with uvicorn(directory, THRESHOLD="abc") as host:
        async with asyncio.timeout(WITHIN):
            assert await host.process.wait() != 0
    assert "THRESHOLD" in host.log
    assert "'abc'" in host.log
    assert "Traceback" not in host.log


async def test_without_a_lifespan_every_request_says_what_is_missing(directory):
    async with uvicorn(directory, "--lifespan", "off") as host:

        async def answer():
            return await host.client.get("/health")

        answered = await host.until(answer)
        assert (answered.status_code, answered.json()["error"]["code"]) == (503, "NOT_STARTED")


async def test_of_several_workers_one_analyses_and_all_answer(directory):
    """Workers that share a store elect a leader: the others show its results, and do not ask Prometheus."""
    store = str(directory / "history.db")
    async with (
        SpoilingServer(fleet(now=time.time())) as prometheus,
        uvicorn(directory, "--workers", "2", PROM_URL=prometheus.url, VGPUSCOPE_ANALYZER_HISTORY=store) as host,
    ):

        async def led():
            return host.log.count("leading holder=") == host.log.count("following holder=") == 1

        await host.until(led)

        async def both():
            async with httpx2.AsyncClient(base_url=host.client.base_url, timeout=WITHIN) as new:  # its own connection
                health = (await new.get("/health")).json()
                if not (await new.get("/results")).json():
                    return False
            seen.add(health["leader"])
            return seen == {True, False}

        seen: set[bool] = set()
        await host.until(both)
        assert host.log.count("analysis completed") == 1


async def test_a_web_configuration_protects_it(directory, tmp_path):
    web = tmp_path / "web.yaml"
    web.write_text("http_server_config:\n  headers:\n    X-Frame-Options: deny\n")
    with web.open("a") as file:
        file.write(f"bearer_tokens:\n- name: a\n  sha256: '{sha256(TOKEN.encode()).hexdigest()}'\n")
    async with (
        SpoilingServer(fleet(now=time.time())) as prometheus,
        uvicorn(directory, PROM_URL=prometheus.url, VGPUSCOPE_ANALYZER_WEB_CONFIG_FILE=str(web)) as host,
    ):

        async def refused():
            return (await host.client.get("/results")).status_code == 401

        await host.until(refused)
        good = await host.client.get("/results", headers={"authorization": f"Bearer {TOKEN}"})
        assert (good.status_code, good.headers["x-frame-options"]) == (200, "deny")


@pytest.mark.attack
@pytest.mark.parametrize("listen", ["127.0.0.1", "0.0.0.0"])
async def test_on_this_machine_no_token_is_needed(directory, listen):
    async with (
        SpoilingServer(fleet(now=time.time())) as prometheus,
        uvicorn(directory, "--host", listen, PROM_URL=prometheus.url, AI_ENABLED="false") as host,
    ):
        await host.until(lambda: host.json("/results"))
        assert (await host.json("/"))["read_only"] is False
        assert (await host.client.get("/analyze")).status_code == 200
        assert (await host.client.post("/config/update?threshold=30")).status_code == 200
        for stranger in (
            {"host": "gpu.example.com"},
            {"x-forwarded-for": "192.0.2.7"},
            {"sec-fetch-site": "cross-site"},
        ):
            refused = await host.client.post("/config/update?threshold=1", headers=stranger)
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "READ_ONLY"), stranger
        assert (await host.json("/"))["config"]["threshold"] == 30


@pytest.mark.attack
async def test_in_a_pod_a_loopback_connection_gives_no_role(directory):
    """It can be a sidecar's, which passes on what anyone sends."""
    async with (
        SpoilingServer(fleet(now=time.time())) as prometheus,
        uvicorn(directory, PROM_URL=prometheus.url, AI_ENABLED="false", KUBERNETES_SERVICE_HOST="10.96.0.1") as host,
    ):
        await host.until(lambda: host.json("/results"))
        assert (await host.json("/"))["read_only"] is True
        for change in (host.client.get("/analyze"), host.client.post("/config/update?threshold=30")):
            answer = await change
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "READ_ONLY")


@pytest.mark.attack
@pytest.mark.parametrize(
    ("client", "server", "role"),
    [
        (("127.0.0.1", 5), ("127.0.0.1", 8080), "admin"),
        (("::1", 5), ("::1", 8080), "admin"),
        (("10.0.0.9", 5), ("127.0.0.1", 8080), "read"),
        (("127.0.0.1", 5), ("10.0.0.7", 8080), "read"),
        (None, ("/run/app.sock", None), "read"),  # a proxy before a socket
        (("127.0.0.1", 5), None, "read"),
    ],
)
async def test_who_is_on_this_machine_is_known_by_both_ends_of_the_connection(client, server, role):
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "client": client, "server": server}
    scope["headers"] = [(b"host", b"localhost:8080")]
    assert (await Identity(listen_host=None).caller(Request(scope))).role == role


async def test_tls_of_the_web_configuration_is_rejected(directory, tmp_path):
    authority = trustme.CA()
    files = {"cert": tmp_path / "cert.pem", "key": tmp_path / "key.pem"}
    issued = authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(files["cert"])
    issued.private_key_pem.write_to_path(files["key"])
    web = tmp_path / "web.yaml"
    web.write_text(f"tls_server_config:\n  cert_file: {files['cert']}\n  key_file: {files['key']}\n")
    async with uvicorn(directory, VGPUSCOPE_ANALYZER_WEB_CONFIG_FILE=str(web)) as host:
        async with asyncio.timeout(WITHIN):
            assert await host.process.wait() != 0
    assert "--ssl-keyfile" in host.log


async def test_nothing_happens_at_import_and_a_websocket_is_closed():
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "websocket.connect"}

    await app({"type": "websocket", "path": "/"}, receive, send)
    assert sent == [{"type": "websocket.close"}]


async def test_an_error_that_nobody_foresaw_fails_the_start_with_its_reason(caplog):
    """The host goes on without its lifespan if it raises, and every request would be answered with a wrong hint."""
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "lifespan.startup"}

    def prepare():
        raise OSError(28, "No space left on device")

    await Hosted(prepare)({"type": "lifespan"}, receive, send)
    [failed] = sent
    assert failed["type"] == "lifespan.startup.failed"
    assert "No space left on device" in failed["message"]
    assert "No space left on device" in caplog.text
