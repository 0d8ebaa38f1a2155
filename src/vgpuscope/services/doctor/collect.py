"""All facts at once, each with its own deadline: what is slow or down makes only its own facts missing."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import Struct, structs

from vgpuscope.model.console.facts import ClusterFacts
from vgpuscope.model.doctor import (
    AgentFacts,
    DoctorFacts,
    ExtenderFacts,
    KubeFacts,
    Missing,
    Place,
    PrometheusFacts,
    SeriesFacts,
)
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.services.doctor.prometheus import PrometheusReader, open_prometheus
from vgpuscope.sources.doctor.kube import read_kube
from vgpuscope.sources.doctor.local import LocalFacts, LocalPlaces, is_gpu_node, nothing_here, read_local
from vgpuscope.sources.doctor.pages import series_of
from vgpuscope.sources.doctor.services import (
    AgentAnswer,
    AnalyzerAnswer,
    BundledAnswer,
    read_agent,
    read_analyzer,
    read_cluster,
    read_extender,
    read_plugin,
)
from vgpuscope.sources.fleet.promapi import PromApi

T = TypeVar("T")

DEADLINE: Seconds = 20.0
_SLOWEST = 0.9  # of the whole deadline, for one fact


class ServiceAddress(Struct, frozen=True):
    """Where a service is looked for; `given`: somebody named it, so that silence is a fault."""

    url: str
    given: bool = True


class DoctorTargets(Struct, frozen=True, kw_only=True):
    """Where to look."""

    agents: tuple[ServiceAddress, ...] = ()
    cluster: ServiceAddress | None = None
    analyzer: ServiceAddress | None = None
    extender: ServiceAddress | None = None
    plugins: tuple[str, ...] = ()  # addresses of device plugins, each named
    prometheus: ServiceAddress | None = None
    kubeconfig: ServiceAddress | None = None
    kubernetes: bool = False  # there is a kubeconfig, or a service account
    local: LocalPlaces | None = None
    condition: str | None = None  # None: that of the analyzer
    token: str | None = None
    within: Seconds = DEADLINE
    open_prometheus: Callable[[str], PromApi] = open_prometheus


class Collected(Struct, frozen=True, kw_only=True):
    """The facts, and the answers that they were read from."""

    facts: DoctorFacts
    answers: tuple[BundledAnswer, ...] = ()


Progress = Callable[[tuple[str, ...]], None]  # told what is still awaited


async def collect(
    targets: DoctorTargets, *, progress: Progress = lambda _: None, wall: Callable[[], UnixTime] = time.time
) -> Collected:
    """Everything that can be found out within the deadline."""
    waiting: set[str] = set()

    async def told(name: str, work: Awaitable[T]) -> T:
        waiting.add(name)
        progress(tuple(sorted(waiting)))
        try:
            return await work
        finally:
            waiting.discard(name)
            progress(tuple(sorted(waiting)))

    each = targets.within * _SLOWEST / 2  # Prometheus is asked after the analyzer, which may know its address
    local, agents, cluster, analyzer, kube, (extender, plugins) = await asyncio.gather(
        told("node", _local(targets, each)),
        told("agents", _agents(targets, each, wall)),
        told("cluster exporter", _cluster(targets, each, wall)),
        told("analyzer", _analyzer(targets, each, wall)),
        told("kubernetes", _kube(targets, each)),
        told("scheduler", _scheduling(targets, each)),
    )
    prometheus, series = await told("prometheus", _prometheus(targets, analyzer, each))
    pages = {answer.facts.url: answer.page for answer in agents if isinstance(answer.facts, AgentFacts) and answer.page}
    if pages and (isinstance(series, Missing) or not series.now):
        series = await asyncio.to_thread(series_of, pages, origin=", ".join(pages), whole=False)
    facts = DoctorFacts(
        at=wall(),
        place=_place(local),
        driver=local.driver,
        regions=local.regions,
        processes=local.processes,
        podresources=local.podresources,
        agents=_of_agents(agents),
        cluster=cluster,
        prometheus=prometheus,
        series=series,
        kubernetes=kube,
        analyzer=analyzer.facts,
        extender=extender,
        plugins=plugins,
    )
    shown = [BundledAnswer(f"agent-{number}.prom", page) for number, page in enumerate(pages.values())]
    return Collected(facts=facts, answers=(*analyzer.answers, *shown))


def _place(local: LocalFacts) -> Place:
    driver = local.driver
    return "outside" if isinstance(driver, Missing) and driver.reason == "not-here" else "node"


async def _local(targets: DoctorTargets, within: Seconds) -> LocalFacts:
    if targets.local is None or not await asyncio.to_thread(is_gpu_node, targets.local):
        return nothing_here()
    return await read_local(targets.local, within=within)


async def _agents(targets: DoctorTargets, within: Seconds, wall: Callable[[], UnixTime]) -> list[AgentAnswer]:
    return await asyncio.gather(
        *(read_agent(one.url, token=targets.token, within=within, given=one.given, wall=wall) for one in targets.agents)
    )


def _of_agents(answers: list[AgentAnswer]) -> tuple[AgentFacts, ...] | Missing:
    """The agents that answered. If one that was named does not, that is the fact."""
    silent = [one.facts for one in answers if isinstance(one.facts, Missing)]
    if silent:
        return silent[0]
    if not answers:
        return Missing(fact="agent", reason="not-given")
    return tuple(one.facts for one in answers if isinstance(one.facts, AgentFacts))


async def _cluster(targets: DoctorTargets, within: Seconds, wall: Callable[[], UnixTime]) -> ClusterFacts | Missing:
    if targets.cluster is None:
        return Missing(fact="cluster", reason="not-given")
    place = targets.cluster
    return await read_cluster(place.url, token=targets.token, within=within, given=place.given, wall=wall)


async def _analyzer(targets: DoctorTargets, within: Seconds, wall: Callable[[], UnixTime]) -> AnalyzerAnswer:
    if targets.analyzer is None:
        return AnalyzerAnswer(Missing(fact="analyzer", reason="not-given"))
    place = targets.analyzer
    return await read_analyzer(place.url, token=targets.token, within=within, given=place.given, wall=wall)


async def _scheduling(targets: DoctorTargets, within: Seconds) -> tuple[ExtenderFacts | Missing, SeriesFacts | Missing]:
    extender, plugins = await asyncio.gather(_extender(targets, within), _plugins(targets, within))
    return extender, plugins


async def _extender(targets: DoctorTargets, within: Seconds) -> ExtenderFacts | Missing:
    if targets.extender is None:
        return Missing(fact="extender", reason="not-given")
    return await read_extender(targets.extender.url, token=targets.token, within=within, given=targets.extender.given)


async def _plugins(targets: DoctorTargets, within: Seconds) -> SeriesFacts | Missing:
    """The pages of the device plugins that were named. If one does not answer, that is the fact."""
    if not targets.plugins:
        return Missing(fact="plugin", reason="not-given")
    answers = await asyncio.gather(*(read_plugin(one, token=targets.token, within=within) for one in targets.plugins))
    pages: dict[str, bytes] = {}
    for url, answer in zip(targets.plugins, answers, strict=True):
        if isinstance(answer, Missing):
            return answer
        pages[url] = answer
    return await asyncio.to_thread(series_of, pages, origin=", ".join(pages), whole=False)


async def _kube(targets: DoctorTargets, within: Seconds) -> KubeFacts | Missing:
    if not targets.kubernetes:
        return Missing(fact="kubernetes", reason="not-given")
    named = targets.kubeconfig
    return await read_kube(named.url if named else None, within=within, given=named is not None and named.given)


async def _prometheus(
    targets: DoctorTargets, analyzer: AnalyzerAnswer, within: Seconds
) -> tuple[PrometheusFacts | Missing, SeriesFacts | Missing]:
    place = targets.prometheus or (
        ServiceAddress(analyzer.prometheus_url, given=False) if analyzer.prometheus_url else None
    )
    if place is None:
        absent = Missing(fact="prometheus", reason="not-given")
        return absent, structs.replace(absent, fact="series")
    condition = targets.condition
    if condition is None:
        condition = "" if isinstance(analyzer.facts, Missing) else analyzer.facts.condition
    api = targets.open_prometheus(place.url)
    try:
        return await PrometheusReader(api, condition=condition, within=within).read(given=place.given)
    finally:
        await api.aclose()
