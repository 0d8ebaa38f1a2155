"""Real PromQL engines, fed by remote write with a fleet whose every sample is known."""

import contextlib
import math
import struct
import subprocess
import urllib.request
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from tests.needed import needed
from tests.ports import free_port
from tests.services.agent.noderoot import RunningAgent
from tests.services.analyzer.promstub import Labels, Samples, is_stale


@contextlib.contextmanager
def prometheus(path: Path, config: str = "global: {}\n") -> Iterator[str]:
    """An empty Prometheus that takes remote writes, and scrapes what its config says."""
    needed("prometheus", package="prometheus")
    (path / "prometheus.yml").write_text(config)
    port = free_port()
    flags = [f"--config.file={path / 'prometheus.yml'}", f"--storage.tsdb.path={path / 'tsdb'}"]
    flags += [f"--web.listen-address=127.0.0.1:{port}", "--web.enable-remote-write-receiver"]
    with _running(["prometheus", *flags], port, path, ready="/-/ready") as url:
        yield url


@contextlib.contextmanager
def victoria_metrics(path: Path) -> Iterator[str]:
    """An empty VictoriaMetrics."""
    needed("victoria-metrics", package="victoria-metrics")
    port = free_port()
    flags = [f"-storageDataPath={path / 'data'}", f"-httpListenAddr=127.0.0.1:{port}", "-memory.allowedPercent=5"]
    with _running(["victoria-metrics", *flags], port, path, ready="/health") as url:
        yield url


@contextlib.contextmanager
def _running(command: list[str], port: int, path: Path, *, ready: str) -> Iterator[str]:
    with (path / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        server = RunningAgent(process, f"http://127.0.0.1:{port}", path / "log")
        try:
            server.wait(lambda: server.status(ready) == 200)
            yield server.url
        finally:
            process.terminate()
            process.wait()


# ── remote write 1.0 ─────────────────────────────────────────────────────────────────────────────────────────────


def write(url: str, series: list[tuple[Labels, Samples]]) -> None:
    """Send samples, oldest series first; STALE ends a series, any other NaN is one."""
    ordered = sorted(series, key=lambda one: one[1][-1][0])
    for at in range(0, len(ordered), 500):
        body = _snappy(b"".join(_field(1, _series(*one)) for one in ordered[at : at + 500]))
        headers = {
            "Content-Encoding": "snappy",
            "Content-Type": "application/x-protobuf",
            "X-Prometheus-Remote-Write-Version": "0.1.0",
        }
        urllib.request.urlopen(urllib.request.Request(f"{url}/api/v1/write", body, headers), timeout=30).close()
    with contextlib.suppress(OSError):  # VictoriaMetrics shows what it has within a second, or at once
        urllib.request.urlopen(f"{url}/internal/force_flush", timeout=30).close()


def _series(labels: Labels, samples: Samples) -> bytes:
    names = b"".join(
        _field(1, _field(1, name.encode()) + _field(2, value.encode()))
        for name, value in sorted(labels.items())
        if value
    )
    return names + b"".join(_field(2, _sample(at, value)) for at, value in samples)


def _sample(at: float, value: float) -> bytes:
    bits = (
        struct.pack("<d", value) if is_stale(value) or not math.isnan(value) else struct.pack("<Q", 0x7FF8000000000001)
    )
    return b"\x09" + bits + b"\x10" + _varint(round(at * 1000))


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


@lru_cache(maxsize=100_000)  # most series have the same times
def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _snappy(data: bytes) -> bytes:
    """Snappy's block format, all of it literal."""
    chunks = [data[at : at + 65536] for at in range(0, len(data), 65536)]
    return _varint(len(data)) + b"".join(b"\xf4" + struct.pack("<H", len(c) - 1) + c for c in chunks)
