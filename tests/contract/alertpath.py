"""The way of an alert: a page of metrics, a real Prometheus, a real Alertmanager and a receiver."""

import contextlib
import json
import queue
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.contract.promworld import prometheus
from tests.needed import needed
from tests.paths import REPOSITORY
from tests.ports import free_port
from tests.services.agent.noderoot import WITHIN, RunningAgent

RULES = REPOSITORY / "charts" / "vgpuscope" / "rules"


class Page:
    """An address that serves a text, which can be exchanged, and keeps what is posted to it."""

    def __init__(self) -> None:
        self.text, self.posted = "", queue.Queue[dict[str, Any]]()
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(page.text.encode())

            def do_POST(self) -> None:
                page.posted.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self._answer(b"")

            def _answer(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    @contextlib.contextmanager
    def serving(self) -> Iterator["Page"]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def notice(self, status: str) -> dict[str, Any]:
        """The next alert with this status that the receiver was told of."""
        while True:
            for alert in self.posted.get(timeout=WITHIN)["alerts"]:
                if alert["status"] == status:
                    return alert


@contextlib.contextmanager
def alertmanager(path: Path, webhook: str) -> Iterator[str]:
    """A real Alertmanager that tells one webhook everything at once; its address."""
    needed("prometheus-alertmanager", package="prometheus-alertmanager")
    path.mkdir()
    (path / "alertmanager.yml").write_text(
        f"""
route: {{receiver: hook, group_by: [alertname], group_wait: 0s, group_interval: 1s, repeat_interval: 1h}}
receivers: [{{name: hook, webhook_configs: [{{url: 'http://{webhook}/', send_resolved: true}}]}}]
"""
    )
    port = free_port()
    flags = [f"--config.file={path / 'alertmanager.yml'}", f"--storage.path={path / 'data'}"]
    flags += [f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="]
    with (path / "log").open("w") as log:
        process = subprocess.Popen(["prometheus-alertmanager", *flags], stdout=log, stderr=log)
        server = RunningAgent(process, f"http://127.0.0.1:{port}", path / "log")
        try:
            server.wait(lambda: server.status("/-/ready") == 200)
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


@contextlib.contextmanager
def with_rules(path: Path, jobs: dict[str, list[str]], *, manager: str = "", seconds: int = 1) -> Iterator[str]:
    """A real Prometheus that has our rules loaded and scrapes these addresses; its own."""
    path.mkdir()
    scrapes = "".join(
        f"  - {{job_name: {name}, honor_labels: true, static_configs: [{{targets: {json.dumps(targets)}}}]}}\n"
        for name, targets in jobs.items()
    )
    alerting = f"alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{manager}']}}]}}]}}\n" if manager else ""
    config = (
        f"global: {{scrape_interval: {seconds}s, scrape_timeout: {seconds}s, evaluation_interval: {seconds}s}}\n"
        f"rule_files: ['{RULES}/*.yaml']\n{alerting}scrape_configs:\n{scrapes}"
    )
    with prometheus(path, config) as url:
        yield url


def asked(url: str, path: str, **parameters: str) -> Any:
    """The data of an answer of Prometheus."""
    query = urllib.parse.urlencode(parameters)
    with urllib.request.urlopen(f"{url}/api/v1/{path}?{query}", timeout=30) as answer:
        return json.load(answer)["data"]
