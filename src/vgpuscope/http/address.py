"""Addresses to listen on, as text and as sockets."""

import errno
import ipaddress
import socket
from collections.abc import Sequence
from typing import Any, TypeAlias

from vgpuscope.model.errors import PortBusy

BACKLOG = 128
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


def split(listen: str) -> tuple[str, int]:
    """Host and port of "host:port", "[v6]:port" or ":port"; the ValueError gives the reason."""
    host, colon, port = listen.strip().rpartition(":")
    if not colon:
        raise ValueError("expected HOST:PORT")
    if not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f"port {port!r} is not a number from 0 to 65535")
    if host.startswith("[") and host.endswith("]"):
        return _ipv6(host[1:-1]), int(port)
    if ":" in host:
        raise ValueError("write an IPv6 address in brackets, as in [::1]:PORT")
    if any(c in host for c in "[]/@ "):
        raise ValueError(f"{host!r} is not a host name")
    return host, int(port)


def _ipv6(host: str) -> str:
    try:
        socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    except OSError:
        raise ValueError(f"[{host}] is not an IPv6 address") from None
    return host


def networks(listed: Sequence[str]) -> tuple[Network, ...]:
    """The networks in CIDR notation; a single address is a network of one; ValueError names the wrong one."""
    found = []
    for text in listed:
        try:
            found.append(ipaddress.ip_network(text.strip(), strict=False))
        except ValueError:
            raise ValueError(f"{text[:80]!r} is not a network such as 10.0.0.0/8 or fd00::/8") from None
    return tuple(found)


def bind(listen: str) -> socket.socket:
    """A listening socket, or PortBusy with the address and the reason."""
    host, port = split(listen)
    try:
        return _listening(*_resolve(host, port))
    except OSError as e:
        raise PortBusy(f"cannot listen on {listen}: {_reason(e)}") from e


def local_url(listen: str) -> str:
    """The URL by which a program on this machine reaches an address to listen on."""
    host, port = split(listen)
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether a host is this machine under its loopback name or address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def shown(sock: socket.socket) -> str:
    """The address of a bound socket as host:port, with brackets around IPv6."""
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _resolve(host: str, port: int) -> tuple[int, tuple[Any, ...]]:
    if not host:
        host = "::" if _has_ipv6() else "0.0.0.0"  # noqa: S104 - ":PORT" asks for every interface
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return found[0][0], found[0][4]


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


def _listening(family: int, place: tuple[Any, ...]) -> socket.socket:
    # The protocol is given because asyncio disables Nagle's algorithm only for sockets with IPPROTO_TCP: 40 ms per
    # scrape.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and place[0] == "::":
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(place)
        sock.listen(BACKLOG)  # two sockets may bind one port with SO_REUSEADDR; only one may listen
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def _reason(e: OSError) -> str:
    match e.errno:
        case errno.EADDRINUSE:
            return "the port is in use"
        case errno.EACCES | errno.EPERM:
            return "ports below 1024 need the right to bind them"
        case errno.EADDRNOTAVAIL:
            return "this machine does not have that address"
        case _:
            return e.strerror or str(e)
