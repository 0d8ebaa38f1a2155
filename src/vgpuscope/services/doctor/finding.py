"""Where our services are, if the caller names none: at their default ports, in a demo of this user, in the cluster.

What the caller names takes precedence, then the settings. Otherwise all services come from one place, so that a report
never mixes two systems: the default ports, or else a demo, or else the cluster.
"""

import asyncio
from collections.abc import Mapping

from msgspec import Struct, structs

from vgpuscope.model.doctor import FoundBy, ServiceCode
from vgpuscope.model.quantity import Seconds
from vgpuscope.model.service import AGENT_PORT, ANALYZER_PORT, CLUSTER_PORT, EXTENDER_PORT, PLUGIN_PORT, default_url
from vgpuscope.services.doctor.asked import ServiceAddress
from vgpuscope.services.doctor.collect import DoctorTargets
from vgpuscope.services.doctor.demos import running_demos
from vgpuscope.sources.doctor.kube import find_services
from vgpuscope.sources.doctor.services import service_at

_WITHIN: Seconds = 3.0  # for each place
_PORTS = tuple(dict.fromkeys((ANALYZER_PORT, CLUSTER_PORT, EXTENDER_PORT, AGENT_PORT, PLUGIN_PORT)))
_OURS: frozenset[ServiceCode] = frozenset({"analyzer", "cluster", "extender", "agent", "plugin"})


class Place(Struct, frozen=True):
    """Services that belong together."""

    services: tuple[tuple[ServiceCode, ServiceAddress], ...] = ()

    def all(self, service: ServiceCode) -> tuple[ServiceAddress, ...]:
        return tuple(address for code, address in self.services if code == service)

    def one(self, service: ServiceCode) -> ServiceAddress | None:
        return next(iter(self.all(service)), None)


async def find(targets: DoctorTargets, environ: Mapping[str, str]) -> DoctorTargets:
    """The targets with the services that the caller did not name."""
    named = [*targets.agents, *targets.plugins, targets.cluster, targets.analyzer, targets.extender]
    default = await at_default_ports()
    place = default
    if not any(one is not None and one.named for one in named):
        place = _demo(default, environ) or (default if default.services else await in_cluster(targets))
    return structs.replace(
        targets,
        agents=targets.agents or place.all("agent"),
        plugins=targets.plugins or place.all("plugin"),
        cluster=targets.cluster or place.one("cluster"),
        analyzer=targets.analyzer or place.one("analyzer"),
        extender=targets.extender or place.one("extender"),
        prometheus=targets.prometheus or place.one("prometheus"),
    )


async def at_default_ports() -> Place:
    """Those of our services that answer at their default ports of this machine."""
    urls = [default_url(port) for port in _PORTS]
    answers = await asyncio.gather(*(service_at(url, within=_WITHIN) for url in urls))
    return Place(
        tuple(
            (service, ServiceAddress(url, given=False, found_by="default"))
            for url, service in zip(urls, answers, strict=True)
            if service is not None
        )
    )


def _demo(default: Place, environ: Mapping[str, str]) -> Place | None:
    """The newest demo; None if there is none, or the default ports belong to something else."""
    taken = {address.url for _, address in default.services}
    for demo in running_demos(environ):
        if taken <= {one.url for one in demo.services}:
            return _place([(one.service, one.url, one.name) for one in demo.services], "demo")
    return None


async def in_cluster(targets: DoctorTargets) -> Place:
    """The services of the chart, as far as the caller may list them."""
    if not targets.kubernetes:
        return Place()
    config = targets.kubeconfig.url if targets.kubeconfig else None
    found = await find_services(config, within=_WITHIN)
    return _place([(_code(one.component), one.url, one.node) for one in found], "cluster")


def _place(found: list[tuple[ServiceCode | None, str, str]], by: FoundBy) -> Place:
    """The services of a place; of a node its name, for agents and device plugins."""
    several = {"agent", "plugin"}
    return Place(
        tuple(
            (service, ServiceAddress(url, found_by=by, name=name if service in several else ""))
            for service, url, name in found
            if service is not None
        )
    )


def _code(component: str) -> ServiceCode | None:
    return next((code for code in _OURS if code == component), None)
