"""What a browser says of a request by itself: the site whose page sent it, and the session's cookie."""

import ipaddress
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.requests import Request

COOKIE = "vgpuscope_session"
_PROXY_HEADERS = ("forwarded", "via", "x-real-ip")


def from_another_site(request: Request) -> bool:
    """As the browser's headers report; a program that is not a browser sends none of them.

    Browsers send Sec-Fetch-Site over HTTPS and to this machine; over plain HTTP to others, only the origin.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        return site not in {"same-origin", "none"}
    if origin is None:
        return False
    asked = f"{origin.partition('://')[0]}://{request.headers.get('host', '')}"
    return _place(origin) is None or _place(origin) != _place(asked)


def from_unknown_page(request: Request) -> bool:
    """Whether a browser sent this request and does not say from which site: a GET over plain HTTP, as of an image."""
    said = "sec-fetch-site" in request.headers or "origin" in request.headers
    return not said and request.headers.get("user-agent", "").startswith("Mozilla/")


def through_proxy(request: Request) -> bool:
    """A proxy on this machine connects from a loopback address for callers anywhere; these headers reveal it."""
    return any(name in _PROXY_HEADERS or name.startswith("x-forwarded") for name in request.headers)


def under_foreign_name(request: Request) -> bool:
    """Whether a request to this machine names a host that is not this machine.

    A page can give its own name the address 127.0.0.1, and then reads what listens there as its own site.
    """
    named = host(request)
    try:
        ipaddress.ip_address(named)  # an address cannot be given another meaning
    except ValueError:
        return named not in {"", "localhost"} and not named.endswith(".localhost")
    return False


def under_a_name_of(request: Request, names: Sequence[str]) -> bool:
    """Whether a request names one of these hosts, of which `*.example.com` is every host below example.com."""
    named = host(request)
    return any(named.endswith(one[1:]) if one.startswith("*.") else named == one for one in map(str.lower, names))


def host(request: Request) -> str:
    """The host that the request was sent to; "" when it names none."""
    place = _place(f"http://{request.headers.get('host', '')}")
    return place[0] if place else ""


def _place(url: str) -> tuple[str, int] | None:
    """Host and port of an http address; None when it has none."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    except (ValueError, KeyError):
        return None
    return (parts.hostname, port) if parts.hostname else None
