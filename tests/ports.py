"""Ports for programs that have to be told theirs."""

import secrets
import socket


def free_port() -> int:
    """A free port that the kernel gives to nobody by itself: else it could be taken before its server starts."""
    while True:
        port = 20_000 + secrets.randbelow(12_768)
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
