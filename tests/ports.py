"""Ports for programs that have to be told theirs."""

import itertools
import os
import secrets
import socket

_FIRST, _BEYOND = 20_000, 32_768  # the kernel gives none of these to anybody by itself
_APART = 37  # a demo takes the ports after its own, too


def _ports() -> range:
    """Those of this process alone: each worker of xdist has a part of its own, and no two could choose the same."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % workers
    share = (_BEYOND - _FIRST) // workers
    return range(_FIRST + number * share, _FIRST + (number + 1) * share)


_OURS = _ports()
_TURNS = itertools.count(secrets.randbelow(len(_OURS)))  # another run on this machine begins elsewhere


def free_port() -> int:
    """A port that is free, and that nobody else gets before its server starts: each comes once until all have come."""
    while True:
        port = _OURS[next(_TURNS) * _APART % len(_OURS)]
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
