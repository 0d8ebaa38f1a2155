"""A stand-in for a Service of Kubernetes: connections go to a replica that is ready."""

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def service(backends: Callable[[], list[str]]) -> Iterator[str]:
    """The URL of a TCP proxy; `backends` returns the URLs of all replicas that there are now."""
    listener = socket.create_server(("127.0.0.1", 0))
    over, ready = threading.Event(), list[str]()

    def probe() -> None:
        while not over.wait(0.1):
            ready[:] = [url for url in backends() if _ready(url)]

    def serve() -> None:
        while not over.is_set():
            with suppress(OSError):
                client, _ = listener.accept()
                threading.Thread(target=_connect, args=(client, ready[:1]), daemon=True).start()

    threads = [threading.Thread(target=one, daemon=True) for one in (probe, serve)]
    for thread in threads:
        thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        over.set()
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in threads:
            thread.join(10)


def _connect(client: socket.socket, ready: list[str]) -> None:
    if not ready:
        client.close()
        return
    host, _, port = ready[0].removeprefix("http://").partition(":")
    try:
        server = socket.create_connection((host, int(port)), timeout=30)
    except OSError:
        client.close()
        return
    server.settimeout(None)
    back = threading.Thread(target=_copy, args=(server, client), daemon=True)
    with client, server:
        back.start()
        _copy(client, server)
        back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for one in (source, target):  # the other direction ends, too
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=5) as answer:
            return answer.status == 200
    except (OSError, urllib.error.URLError):
        return False
