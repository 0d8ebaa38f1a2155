"""What a browser says of a request by itself: the site whose page sent it, and the session's cookie."""

from urllib.parse import urlsplit

from starlette.requests import Request

COOKIE = "vgpuscope_session"


def from_another_site(request: Request) -> bool:
    """As the browser's headers report; a program that is not a browser sends none of them."""
    if request.headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        return True
    origin = request.headers.get("origin")
    return origin is not None and _host_of(origin) != host(request)


def host(request: Request) -> str:
    """The host that the request was sent to; "" when it names none."""
    return _host_of(f"//{request.headers.get('host', '')}")


def _host_of(url: str) -> str:
    """The host of an address; "" when it has none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
