"""Places for connections: which connection makes room for a newcomer, so that no client can keep others out.

A connection is quiet if it waits for its client: no request, or a request that is not complete. A quiet connection
makes room first, and the one that was quiet for longest before all others.
"""

import ipaddress
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from vgpuscope.model.quantity import Seconds


class PlacedConnection(Protocol):
    """A connection that holds a place."""

    @property
    def peer(self) -> str: ...
    @property
    def reserved(self) -> bool:
        """Whether it holds a place that is reserved for health checks."""

    @property
    def quiet_since(self) -> Seconds | None:
        """None: a request of it is being answered."""

    @property
    def asked_at(self) -> Seconds:
        """When its last request arrived."""


H = TypeVar("H", bound=PlacedConnection)


class PlaceDecision(Struct, Generic[H], frozen=True, kw_only=True):
    """What happens when a connection arrives."""

    close: H | None = None  # the connection that makes room
    reserved: bool = False  # the newcomer gets a reserved place
    full: bool = False  # there is no place at all


def room(held: Sequence[H], peer: str, *, most: int, per_peer: int, reserved: int) -> PlaceDecision[H]:
    """Room for a newcomer from a peer. Nothing that is being answered is closed as long as there is another way."""
    usual = [one for one in held if not one.reserved]
    same = [one for one in usual if one.peer == peer]
    if len(same) >= per_peer and (found := _quietest(same)) is not None:
        return PlaceDecision(close=found)
    if len(usual) < most:
        return PlaceDecision()
    if (found := _quietest(usual) or _oldest_of_the_busiest(usual, than=len(same))) is not None:
        return PlaceDecision(close=found)
    kept = [one for one in held if one.reserved]
    if len(kept) < reserved:
        return PlaceDecision(reserved=True)
    found = _quietest(kept)
    return PlaceDecision(close=found, reserved=True, full=found is None)


def peer_of(address: tuple[str, int] | None) -> str:
    """The host behind an address; "" if it is not known. One host can use every address of an IPv6 /64."""
    if address is None:
        return ""
    try:
        found = ipaddress.ip_address(address[0])
    except ValueError:
        return address[0]
    if found.version == 4:
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))


def _quietest(held: Iterable[H]) -> H | None:
    quiet = [(since, one) for one in held if (since := one.quiet_since) is not None]
    return min(quiet, key=lambda pair: pair[0])[1] if quiet else None


def _oldest_of_the_busiest(held: Sequence[H], *, than: int) -> H | None:
    """The longest-running request of the peer with most connections, if it has clearly more than the newcomer."""
    peer, count = Counter(one.peer for one in held).most_common(1)[0]
    return min((one for one in held if one.peer == peer), key=lambda one: one.asked_at) if count > than + 1 else None
