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
from vgpuscope.model.quantity import Seconds
from vgpuscope.sources.doctor.kube import read_kube
from vgpuscope.sources.doctor.local import LocalFacts, LocalPlaces, is_gpu_node, nothing_here, read_local
from vgpuscope.sources.doctor.pages import series_of
from vgpuscope.sources.doctor.prometheus import PrometheusReader, open_prometheus
from vgpuscope.sources.doctor.services import (
    AgentAnswer,
    AnalyzerAnswer,
    Asked,
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


class Address(Struct, frozen=True):
    """Where a service is looked for; `given`: somebody named it, so that silence is a fault."""

    url: str
    given: bool = True


class Looked(Struct, frozen=True, kw_only=True):
    """Where to look."""

    agents: tuple[Address, ...] = ()
    cluster: Address | None = None
    analyzer: Address | None = None
    extender: Address | None = None
    plugins: tuple[str, ...] = ()  # addresses of device plugins, each named
    prometheus: Address | None = None
    kubeconfig: Address | None = None
    kubernetes: bool = False  # there is a kubeconfig, or a service account
    local: LocalPlaces | None = None
    condition: str | None = None  # None: that of the analyzer
    token: str | None = None
    within: Seconds = DEADLINE
    open_prometheus: Callable[[str], PromApi] = open_prometheus


class Collected(Struct, frozen=True, kw_only=True):
    """The facts, and the answers that they were read from."""

    facts: DoctorFacts
    answers: tuple[Asked, ...] = ()


Progress = Callable[[tuple[str, ...]], None]  # told what is still awaited


async def collect(looked: Looked, *, progress: Progress = lambda _: None) -> Collected:
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

    each = looked.within * _SLOWEST / 2  # Prometheus is asked after the analyzer, which may know its address
    local, agents, cluster, analyzer, kube, (extender, plugins) = await asyncio.gather(
        told("node", _local(looked, each)),
        told("agents", _agents(looked, each)),
        told("cluster exporter", _cluster(looked, each)),
        told("analyzer", _analyzer(looked, each)),
        told("kubernetes", _kube(looked, each)),
        told("scheduler", _scheduling(looked, each)),
    )
    prometheus, series = await told("prometheus", _prometheus(looked, analyzer, each))
    pages = {answer.facts.url: answer.page for answer in agents if isinstance(answer.facts, AgentFacts) and answer.page}
    if pages and (isinstance(series, Missing) or not series.now):
        series = await asyncio.to_thread(series_of, pages, origin=", ".join(pages), whole=False)
    facts = DoctorFacts(
        at=time.time(),
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
    shown = [Asked(f"agent-{number}.prom", page) for number, page in enumerate(pages.values())]
    return Collected(facts=facts, answers=(*analyzer.answers, *shown))


def _place(local: LocalFacts) -> Place:
    driver = local.driver
    return "outside" if isinstance(driver, Missing) and driver.reason == "not-here" else "node"


async def _local(looked: Looked, within: Seconds) -> LocalFacts:
    if looked.local is None or not await asyncio.to_thread(is_gpu_node, looked.local):
        return nothing_here()
    return await read_local(looked.local, within=within)


async def _agents(looked: Looked, within: Seconds) -> list[AgentAnswer]:
    return await asyncio.gather(
        *(read_agent(one.url, token=looked.token, within=within, given=one.given) for one in looked.agents)
    )


def _of_agents(answers: list[AgentAnswer]) -> tuple[AgentFacts, ...] | Missing:
    """The agents that answered. If one that was named does not, that is the fact."""
    silent = [one.facts for one in answers if isinstance(one.facts, Missing)]
    if silent:
        return silent[0]
    if not answers:
        return Missing(fact="agent", reason="not-given")
    return tuple(one.facts for one in answers if isinstance(one.facts, AgentFacts))


async def _cluster(looked: Looked, within: Seconds) -> ClusterFacts | Missing:
    if looked.cluster is None:
        return Missing(fact="cluster", reason="not-given")
    return await read_cluster(looked.cluster.url, token=looked.token, within=within, given=looked.cluster.given)


async def _analyzer(looked: Looked, within: Seconds) -> AnalyzerAnswer:
    if looked.analyzer is None:
        return AnalyzerAnswer(Missing(fact="analyzer", reason="not-given"))
    return await read_analyzer(looked.analyzer.url, token=looked.token, within=within, given=looked.analyzer.given)


async def _scheduling(looked: Looked, within: Seconds) -> tuple[ExtenderFacts | Missing, SeriesFacts | Missing]:
    extender, plugins = await asyncio.gather(_extender(looked, within), _plugins(looked, within))
    return extender, plugins


async def _extender(looked: Looked, within: Seconds) -> ExtenderFacts | Missing:
    if looked.extender is None:
        return Missing(fact="extender", reason="not-given")
    return await read_extender(looked.extender.url, token=looked.token, within=within, given=looked.extender.given)


async def _plugins(looked: Looked, within: Seconds) -> SeriesFacts | Missing:
    """The pages of the device plugins that were named. If one does not answer, that is the fact."""
    if not looked.plugins:
        return Missing(fact="plugin", reason="not-given")
    answers = await asyncio.gather(*(read_plugin(one, token=looked.token, within=within) for one in looked.plugins))
    pages: dict[str, bytes] = {}
    for url, answer in zip(looked.plugins, answers, strict=True):
        if isinstance(answer, Missing):
            return answer
        pages[url] = answer
    return await asyncio.to_thread(series_of, pages, origin=", ".join(pages), whole=False)


async def _kube(looked: Looked, within: Seconds) -> KubeFacts | Missing:
    if not looked.kubernetes:
        return Missing(fact="kubernetes", reason="not-given")
    named = looked.kubeconfig
    return await read_kube(named.url if named else None, within=within, given=named is not None and named.given)


async def _prometheus(
    looked: Looked, analyzer: AnalyzerAnswer, within: Seconds
) -> tuple[PrometheusFacts | Missing, SeriesFacts | Missing]:
    place = looked.prometheus or (Address(analyzer.prometheus_url, given=False) if analyzer.prometheus_url else None)
    if place is None:
        absent = Missing(fact="prometheus", reason="not-given")
        return absent, structs.replace(absent, fact="series")
    condition = looked.condition
    if condition is None:
        condition = "" if isinstance(analyzer.facts, Missing) else analyzer.facts.condition
    api = looked.open_prometheus(place.url)
    try:
        return await PrometheusReader(api, condition=condition, within=within).read(given=place.given)
    finally:
        await api.aclose()
