"""Which services were asked: their addresses, how these were found, and whether they answered."""

from collections.abc import Iterable
from typing import TypeVar

from msgspec import Struct, structs

from vgpuscope.model.doctor import SERVICES, AskedService, FoundBy, Missing, Reason, ServiceCode, ServiceState

T = TypeVar("T")

_STATES: dict[Reason, ServiceState] = {
    "not-given": "not-configured",
    "no-answer": "no-answer",
    "refused": "refused",
    "wrong-service": "wrong-service",
    "unreadable": "unreadable",
    "elsewhere": "not-asked",
    "unreachable": "no-answer",
    "not-allowed": "refused",
}
_EXPECTED: tuple[ServiceCode, ...] = tuple(one for one in SERVICES if one not in {"exporter", "target"})


class ServiceAddress(Struct, frozen=True):
    """Where a service is looked for; `given`: it must be there, so that silence is a fault."""

    url: str
    given: bool = True
    found_by: FoundBy = "flag"
    name: str = ""  # the node of an agent or device plugin

    @property
    def named(self) -> bool:
        """Whether the caller named it, which takes precedence over what an analyzer knows."""
        return self.found_by == "flag"

    @property
    def shown(self) -> str:
        """The address without user name and password."""
        scheme, there, rest = self.url.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2]}" if there else self.url.rpartition("@")[2]


def as_seen_here(address: ServiceAddress, fact: T) -> T:
    """The fact of a service. An address inside a cluster that this machine cannot reach is no fault of the service."""
    if isinstance(fact, Missing) and address.found_by == "cluster" and fact.reason == "no-answer":
        return structs.replace(fact, reason="unreachable", name=address.name)
    return structs.replace(fact, name=address.name) if isinstance(fact, Missing) and address.name else fact


def row_of(
    service: ServiceCode, address: ServiceAddress | None, fact: object, *, name: str = ""
) -> tuple[AskedService, ...]:
    """The row of a service that was asked at an address; none without an address."""
    if address is None:
        return ()
    missing = fact if isinstance(fact, Missing) else None
    return (
        AskedService(
            service=service,
            state=_STATES.get(missing.reason, "answered") if missing else "answered",
            found_by=address.found_by,
            name=name,
            url=address.shown,
            detail=missing.detail if missing else "",
        ),
    )


def completed(rows: Iterable[AskedService]) -> tuple[AskedService, ...]:
    """The rows in the order of services, with one for each service of which no address is known."""
    found = list(rows)
    there = {row.service for row in found}
    found += [
        AskedService(service=one, state="not-configured", found_by="none") for one in _EXPECTED if one not in there
    ]
    return tuple(sorted(found, key=lambda row: (SERVICES.index(row.service), row.name, row.url)))
