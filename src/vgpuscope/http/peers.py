"""Callers of operations that need no user but must come from a known place: a scheduler beside its extender.

    web configuration with users or tokens   the caller needs the role `operate`
    web configuration with client certificates that are required   every verified client is accepted
    otherwise   a program on this machine, or an address in a list of networks

The address is that of the connection. A header that names another one (X-Forwarded-For) is never believed: a request
with such a header came through a proxy, so a loopback address says nothing about the client.
"""

import ipaddress
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from starlette.exceptions import HTTPException
from starlette.requests import Request

from vgpuscope.http.address import Network, is_loopback
from vgpuscope.http.browser import from_another_site, host, through_proxy
from vgpuscope.http.operations import caller_of
from vgpuscope.model.errors import Forbidden, PeerForbidden

if TYPE_CHECKING:
    from vgpuscope.http.guard import Guard

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


class Peers:
    """Decides whether a request may make decisions."""

    def __init__(self, guard: "Guard | None", allowed: Sequence[Network]) -> None:
        self._guard, self._allowed = guard, tuple(allowed)

    def check(self, request: Request) -> None:
        """401 or 403 for a caller that may not decide; the body of the request has not been read yet."""
        if from_another_site(request):
            raise PeerForbidden("a page of another site may not ask for decisions")
        if self._guard is not None and self._guard.guarded:
            self._check_role(request)
        elif not (self._certified or self._near(request)):
            raise PeerForbidden(f"{_peer(request) or 'an unknown address'} may not ask for decisions")

    def _check_role(self, request: Request) -> None:
        caller = caller_of(request)
        if caller.may("operate"):
            return
        if caller.role is None:
            raise HTTPException(401, headers={"www-authenticate": 'Basic realm="vgpuscope"'})
        raise Forbidden(f"{caller.name!r} has the role {caller.role}, and this needs the role operate")

    @property
    def _certified(self) -> bool:
        """Whether every client has shown a certificate that was verified."""
        tls = self._guard.web.tls if self._guard else None
        return tls is not None and tls.verify_mode == ssl.CERT_REQUIRED

    def _near(self, request: Request) -> bool:
        peer = _peer(request)
        if peer is None:
            return False
        if peer.is_loopback:
            return not through_proxy(request) and _names_this_machine(request)
        return any(peer in network for network in self._allowed)


def _names_this_machine(request: Request) -> bool:
    """A browser reaches a loopback address under any name that its page's owner chose; a scheduler does not."""
    return is_loopback(host(request))


def _peer(request: Request) -> _Address | None:
    """The address of the connection; an IPv4 address in IPv6 form is an IPv4 address."""
    try:
        found = ipaddress.ip_address(request.client.host.partition("%")[0] if request.client else "")
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, ipaddress.IPv6Address) else found
