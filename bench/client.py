"""`python -m bench.client`: scrapes on order. One JSON order per line in, one JSON list of latencies per line out.

An order names ports, which are scraped in turn, with a random pause before each scrape. Each scrape therefore hits a
random moment of the server's sampling, noise of the machine affects all alike, and a slow answer hides no others.
"""

import http.client
import json
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

TEXT = {"Accept": "text/plain;version=0.0.4"}
TEXT_GZIP = {**TEXT, "Accept-Encoding": "gzip"}
PROMETHEUS = {  # the headers of Prometheus 3
    "Accept": "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
    "Accept-Encoding": "gzip",
    "User-Agent": "Prometheus/3.5.0",
    "X-Prometheus-Scrape-Timeout-Seconds": "10",
}


@dataclass(frozen=True)
class Client:
    """The measuring process, as seen by the bench."""

    process: "subprocess.Popen[str]"

    def scrape(
        self, ports: list[int], *, rounds: int, headers: dict[str, str], pause: float, path: str = "/metrics"
    ) -> list[list[float]]:
        """Seconds of each scrape, by port; each pause is between 0 and twice the given one."""
        how = {"rounds": rounds, "headers": headers, "pause": pause, "path": path}
        return self._order({"ports": ports, "opened": True, **how})

    def scrape_once(self, port: int, *, headers: dict[str, str], path: str = "/metrics") -> float:
        """Seconds of one scrape, without another scrape before it."""
        how = {"rounds": 1, "headers": headers, "pause": 0.0, "path": path}
        return self._order({"ports": [port], "opened": False, **how})[0][0]

    def _order(self, order: dict[str, object]) -> list[list[float]]:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError("the client has ended")
        return json.loads(answer)  # type: ignore[no-any-return]


@contextmanager
def client() -> Iterator[Client]:
    """A client in its own process, so that its CPU time is not charged to others."""
    command = [sys.executable, "-m", "bench.client"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Client(process)
        assert process.stdin
        process.stdin.close()


@contextmanager
def asking_for_health(port: int) -> Iterator[list[float]]:
    """Seconds of each answer of /healthz, one request after the other."""
    waits: list[float] = []
    stop = threading.Event()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask() -> None:
        while not stop.wait(0.002):
            began = time.perf_counter()
            connection.request("GET", "/healthz")
            connection.getresponse().read()
            waits.append(time.perf_counter() - began)

    thread = threading.Thread(target=ask, name="health")
    thread.start()
    try:
        time.sleep(0.05)
        yield waits
    finally:
        stop.set()
        thread.join()
        connection.close()


class _Connection:
    """A keep-alive connection, or a new one each time if the server closes it; connecting is part of the latency."""

    def __init__(self, port: int, headers: dict[str, str], path: str) -> None:
        self._port = port
        fields = {"Host": f"127.0.0.1:{port}", **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self._request = f"GET {path} HTTP/1.1\r\n{head}\r\n".encode()
        self._sock: socket.socket | None = None
        self._buffer = bytearray(1 << 20)

    def scrape(self) -> float:
        """Seconds from just before the request to the last byte."""
        began = time.perf_counter()
        if self._sock is None:
            self._sock = socket.create_connection(("127.0.0.1", self._port))
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock.sendall(self._request)
        open_again = self._receive(self._sock)
        seconds = time.perf_counter() - began
        if open_again:
            self._sock.close()
            self._sock = None
        return seconds

    def _receive(self, sock: socket.socket) -> bool:
        """Receive one answer; True if the connection cannot be used again."""
        view, got, end = memoryview(self._buffer), 0, -1
        while end < 0:
            got += self._more(sock, view, got)
            end = self._buffer.find(b"\r\n\r\n", 0, got)
        head = bytes(self._buffer[:end]).lower()
        assert head.startswith((b"http/1.1 200", b"http/1.0 200")), head
        if b"transfer-encoding: chunked" in head:
            self._until_last_chunk(sock, bytes(self._buffer[end + 4 : got]))
            return False
        length = head.partition(b"content-length:")[2].split(b"\r\n", 1)[0].strip()
        missing = end + 4 + int(length) - got if length else -1
        while missing:
            taken = sock.recv_into(view)
            if not taken:
                assert missing < 0, "the answer was cut"
                return True
            missing -= taken if length else 0
        return head.startswith(b"http/1.0") or b"connection: close" in head

    def _until_last_chunk(self, sock: socket.socket, tail: bytes) -> None:
        """Receive up to the last chunk, which is empty; its bytes do not occur in text, and hardly ever in gzip."""
        view = memoryview(self._buffer)
        while not tail.endswith(b"\r\n0\r\n\r\n"):
            taken = sock.recv_into(view)
            assert taken, "the answer was cut"
            tail = (tail + bytes(view[max(0, taken - 7) : taken]))[-7:]

    def _more(self, sock: socket.socket, view: memoryview, got: int) -> int:
        taken = sock.recv_into(view[got:])
        assert taken, "no answer"
        return taken


def _obey(order: dict[str, Any]) -> list[list[float]]:
    connections = [_Connection(port, order["headers"], order["path"]) for port in order["ports"]]
    if order["opened"]:
        for connection in connections:
            connection.scrape()  # opens the connection; not measured
    taken: list[list[float]] = [[] for _ in connections]
    for _ in range(order["rounds"]):
        for connection, mine in zip(connections, taken, strict=True):
            time.sleep(random.uniform(0, 2 * order["pause"]))
            mine.append(connection.scrape())
    return taken


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(_obey(json.loads(line))), flush=True)
