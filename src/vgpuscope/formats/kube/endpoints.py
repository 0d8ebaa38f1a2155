"""Lists of EndpointSlices, as the Kubernetes API writes them → the addresses behind a Service."""

import msgspec
from msgspec import Struct, field

from vgpuscope.formats.kube.lists import AnyMeta, ObjectKind, ObjectPage, decode_page


class Port(Struct, frozen=True, kw_only=True):
    """One port that the pod listens on; the number may differ from the Service's port."""

    number: int
    name: str = ""
    tls: bool = False


class Endpoint(Struct, frozen=True, kw_only=True):
    """A ready endpoint. The same pod may have an endpoint for each IP family."""

    pod: str  # its UID; "": not a pod
    address: str
    ports: tuple[Port, ...] = ()


def decode_endpoints(data: bytes) -> ObjectPage[tuple[Endpoint, ...]]:
    """The endpoints of each slice; raises KubeUnreadable for anything but a list of slices."""
    return decode_page(_SLICES, data, origin="list of EndpointSlices")


# --- the shape of the JSON: unknown fields are skipped, null is treated as absent -------------------------------------


class _Port(Struct, rename="camel"):
    name: str | None = None
    port: int | None = None
    app_protocol: str | None = None


class _Conditions(Struct):
    ready: bool | None = None  # None: unknown, treated as ready


class _Target(Struct):
    kind: str | None = None
    uid: str | None = None


class _Endpoint(Struct, rename="camel"):
    addresses: list[str] | None = None
    conditions: _Conditions | None = None
    target_ref: _Target | None = None


class _Slice(Struct, rename="camel"):
    metadata: AnyMeta
    kind: str | None = None
    endpoints: list[_Endpoint] | None = None
    ports: list[_Port] | None = field(default=None)


def _read(found: _Slice, _: list[str]) -> tuple[Endpoint, ...]:
    ports = tuple(_port(port, port.port) for port in found.ports or () if port.port is not None)
    ready = [one for one in found.endpoints or () if (one.conditions or _Conditions()).ready is not False]
    return tuple(
        # each of several addresses reaches the endpoint
        Endpoint(pod=(one.target_ref or _Target()).uid or "", address=one.addresses[0], ports=ports)
        for one in ready
        if one.addresses
    )


def _port(port: _Port, number: int) -> Port:
    name, protocol = port.name or "", (port.app_protocol or "").lower()
    return Port(number=number, name=name, tls=protocol == "https" or name.startswith("https"))


_SLICES: ObjectKind[tuple[Endpoint, ...]] = ObjectKind("EndpointSlice", msgspec.json.Decoder(_Slice), _read)
