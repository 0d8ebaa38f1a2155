"""Scrape targets: a static list, or the current endpoints of Kubernetes Services."""

import asyncio
import logging
import re
from collections.abc import Iterable
from typing import NamedTuple

from vgpuscope.formats.kube.endpoints import Endpoint, Port, decode_endpoints
from vgpuscope.formats.kube.lists import ObjectPage
from vgpuscope.model.analysis import Fault
from vgpuscope.model.errors import ConfigInvalid, KubeUnreadable, ScopeError
from vgpuscope.model.quantity import Seconds
from vgpuscope.sources.clients.agent import AGENT
from vgpuscope.sources.clients.served_api import addresses
from vgpuscope.sources.kube import KubeClient, VersionForgotten, all_pages

log = logging.getLogger(__name__)

_PAGE = "500"
_REFRESH = 60.0  # seconds
_NAME = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
_SERVICE = re.compile(rf"(?P<namespace>{_NAME})/(?P<name>{_NAME}):(?P<port>[a-z0-9-]+)")


class StaticTargets:
    """A static list of targets; raises ConfigInvalid for an invalid address."""

    def __init__(self, urls: Iterable[str]) -> None:
        self._urls = tuple(urls)
        for url in self._urls:
            addresses(AGENT, url)

    async def __call__(self) -> tuple[str, ...]:
        return self._urls


class ServicePort(NamedTuple):
    """A Kubernetes Service and one of its ports."""

    namespace: str
    name: str
    port: str  # a number or a name

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}:{self.port}"


class ServiceTargets:
    """The ready endpoints of Services, refreshed once a minute; the last known ones stay while the API fails."""

    def __init__(self, services: Iterable[str], *, api: KubeClient, refresh: Seconds = _REFRESH) -> None:
        """Services as NAMESPACE/NAME:PORT; raises ConfigInvalid for anything else."""
        self._services = tuple(map(parse_service, services))
        self._api, self._refresh = api, refresh
        self._due = float("-inf")
        self._last: dict[ServicePort, tuple[str, ...]] = {}
        self._errors: dict[ServicePort, ScopeError] = {}

    async def __call__(self) -> tuple[str, ...]:
        """URLs; raises KubeForbidden or KubeUnreadable if no Service has ever been listed."""
        clock = asyncio.get_running_loop().time
        if clock() >= self._due:
            await asyncio.gather(*map(self._update, self._services))
            self._due = clock() + (self._refresh if not self._errors else min(self._refresh, 10.0))
        if self._errors and not self._last:
            raise next(iter(self._errors.values()))
        return tuple(dict.fromkeys(url for urls in self._last.values() for url in urls))

    def faults(self) -> tuple[Fault, ...]:
        """The Services whose endpoints could not be listed."""
        errors = self._errors.items()
        return tuple(Fault(part=f"service {service}", code=e.code, message=str(e)) for service, e in errors)

    async def _update(self, service: ServicePort) -> None:
        try:
            self._last[service] = urls_of(service, await self._endpoints(service))
        except ScopeError as e:
            self._failed(service, e)
        except Exception as e:  # what goes wrong with one Service is its own fault
            self._failed(service, ScopeError(f"{service}: {e!r}"), cause=e)
        else:
            self._errors.pop(service, None)

    def _failed(self, service: ServicePort, error: ScopeError, *, cause: Exception | None = None) -> None:
        if service not in self._errors:
            values = {"service": str(service), "error_code": error.code, "err": str(error)}
            log.warning("endpoints not listed", extra=values, exc_info=cause)
        self._errors[service] = error

    async def _endpoints(self, service: ServicePort) -> list[Endpoint]:
        path = f"/apis/discovery.k8s.io/v1/namespaces/{service.namespace}/endpointslices"
        asked = {"labelSelector": f"kubernetes.io/service-name={service.name}", "limit": _PAGE}

        async def page(token: str) -> ObjectPage[tuple[Endpoint, ...]]:
            found = decode_endpoints(await self._api.get(path, asked | ({"continue": token} if token else {})))
            if found.faults:
                raise KubeUnreadable(f"{found.faults[0].object}: {found.faults[0].reason}")
            return found

        try:
            pages = await all_pages(page)
        except VersionForgotten as e:
            raise KubeUnreadable(f"the API server answered {e}") from e
        return [endpoint for one in pages for endpoints in one.items for endpoint in endpoints]


def parse_service(text: str) -> ServicePort:
    """Parses NAMESPACE/NAME:PORT; raises ConfigInvalid."""
    found = _SERVICE.fullmatch(text.strip())
    if found is None:
        raise ConfigInvalid(
            f"{text!r} is not a Service", hint="The form is NAMESPACE/NAME:PORT; the port is a number or a name."
        )
    return ServicePort(found["namespace"], found["name"], found["port"])


def urls_of(service: ServicePort, endpoints: Iterable[Endpoint]) -> tuple[str, ...]:
    """One URL for each pod, in a stable order; IPv4 if the pod has both families."""
    chosen: dict[str, str] = {}
    for endpoint in sorted(endpoints, key=lambda one: (":" in one.address, one.address)):
        port = _port(service.port, endpoint.ports)
        if port is not None:
            host = f"[{endpoint.address}]" if ":" in endpoint.address else endpoint.address
            url = f"{'https' if port.tls else 'http'}://{host}:{port.number}"
            chosen.setdefault(endpoint.pod or url, url)
    return tuple(chosen.values())


def _port(asked: str, ports: tuple[Port, ...]) -> Port | None:
    """The pod's port. A number may also be the Service's port, which is unambiguous if the pod has one port."""
    for port in ports:
        if asked in {port.name, str(port.number)}:
            return port
    if not asked.isdigit():
        return None
    return ports[0] if len(ports) == 1 else Port(number=int(asked))
