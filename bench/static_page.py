"""`python -m bench.static_page FILE PORT`: serves the file on /metrics with the agent's HTTP stack and nothing else."""

import asyncio
import gzip
import sys
from pathlib import Path

from vgpuscope.http import address
from vgpuscope.http.app import App, Readiness
from vgpuscope.http.server import HttpServer


class _Fixed:
    """A page in all its formats, made before the first request."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._gzipped = gzip.compress(text, 1, mtime=0)

    def text(self) -> bytes:
        return self._text

    def openmetrics(self) -> bytes:
        return self._text

    def gzipped(self, openmetrics: bool) -> bytes:  # noqa: ARG002 - the shape of a page
        return self._gzipped


def main() -> None:
    """Serve until the process is ended."""
    page = _Fixed(Path(sys.argv[1]).read_bytes())
    app = App(title="static page", metrics=lambda: page, ready=Readiness)
    asyncio.run(HttpServer(app, sock=address.bind(f"127.0.0.1:{sys.argv[2]}")).run())


main()
