"""All facts at once, each with its own deadline: what is slow or down makes only its own facts missing.

The analyzer's `/api/v1/doctor` and `vgpuscope doctor` both collect here. If an analyzer answers, the command takes the
facts that the analyzer has collected, and asks only what it was told to ask and what the analyzer cannot see.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

from msgspec import Struct, structs

from vgpuscope.catalog import agent as m
from vgpuscope.logic.doctor.judging import named
from vgpuscope.model.console.facts import ClusterFacts
from vgpuscope.model.doctor import (
    AgentFacts,
    AnalyzerFacts,
    AskedService,
    DoctorFacts,
    DoctorReport,
    ExtenderFacts,
    KubeFacts,
    Missing,
    Place,
    PrometheusFacts,
    SeriesFacts,
    ServiceCode,
    ServiceState,
)
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.services.doctor.asked import ServiceAddress, as_seen_here, completed, row_of
from vgpuscope.services.doctor.prometheus import PrometheusReader, open_prometheus
from vgpuscope.sources.doctor.kube import read_kube
from vgpuscope.sources.doctor.local import LocalFacts, LocalPlaces, is_gpu_node, nothing_here, read_local
from vgpuscope.sources.doctor.pages import node_of, series_of
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
MOST_AGENTS = 100  # that one caller asks; of the others only the scraped pages are read
_SLOWEST = 0.9  # of the whole deadline, for one fact
_AT_ONCE = 16  # agents


class ScrapedPage(Struct, frozen=True, kw_only=True):
    """A scrape target of the analyzer that collects, with the last page that it answered."""

    name: str
    url: str
    up: bool
    page: bytes | None = None
    reason: str = ""  # why it is down


class OwnFacts(Struct, frozen=True, kw_only=True):
    """What an analyzer that collects has itself, and need not ask over the network."""

    analyzer: Callable[[], Awaitable[AnalyzerFacts]]
    pages: Callable[[], Awaitable[tuple[ScrapedPage, ...] | None]]  # None: a PromQL engine is read instead
    engine: Callable[[], PromApi | None]


class DoctorTargets(Struct, frozen=True, kw_only=True):
    """Where to look."""

    agents: tuple[ServiceAddress, ...] = ()
    cluster: ServiceAddress | None = None
    analyzer: ServiceAddress | None = None
    extender: ServiceAddress | None = None
    plugins: tuple[ServiceAddress, ...] = ()
    prometheus: ServiceAddress | None = None
    kubeconfig: ServiceAddress | None = None
    kubernetes: bool = False  # there is a kubeconfig, or a service account
    local: LocalPlaces | None = None
    condition: str | None = None  # None: that of the analyzer
    token: str | None = None
    within: Seconds = DEADLINE
    open_prometheus: Callable[[str], PromApi] = open_prometheus
    own: OwnFacts | None = None  # of the analyzer that collects


class Collected(Struct, frozen=True, kw_only=True):
    """The facts, and the answers that they were read from."""

    facts: DoctorFacts
    answers: tuple[BundledAnswer, ...] = ()
    report: DoctorReport | None = None  # of an analyzer that gives its facts to nobody, or not to this caller


Progress = Callable[[tuple[str, ...]], None]  # called with what is still awaited


async def collect(
    targets: DoctorTargets, *, progress: Progress = lambda _: None, wall: Callable[[], UnixTime] = time.time
) -> Collected:
    """Everything that can be found out within the deadline."""
    waiting: set[str] = set()

    async def awaited(name: str, work: Awaitable[T]) -> T:
        waiting.add(name)
        progress(tuple(sorted(waiting)))
        try:
            return await work
        finally:
            waiting.discard(name)
            progress(tuple(sorted(waiting)))

    # the analyzer is asked first: it may know all the others. One that collects need not be asked
    each = targets.within * _SLOWEST / (1 if targets.own else 2)
    local, analyzer, kube, pages = await asyncio.gather(
        awaited("node", _local(targets, each)),
        awaited("analyzer", _analyzer(targets, each, wall)),
        awaited("kubernetes", _kube(targets, each)),
        awaited("scraped pages", _pages(targets)),
    )
    asked = _not_known_to(analyzer.known, targets)
    agents, cluster, extender, plugins, (prometheus, series) = await asyncio.gather(
        awaited("agents", _agents(asked, pages, each, wall)),
        awaited("cluster exporter", _cluster(asked, each, wall)),
        awaited("scheduler extender", _extender(asked, each)),
        awaited("device plugins", _plugins(asked, each)),
        awaited("prometheus", _prometheus(asked, analyzer, each)),
    )
    if isinstance(series, Missing) or not series.now:
        series = await asyncio.to_thread(_of_pages, agents, pages, series)
    if targets.own is not None and pages is None:
        agents = _seen_in(series)
    place: Place = "analyzer" if targets.own else "outside" if _not_here(local.driver) else "node"
    services = (
        *_analyzer_row(targets, analyzer),
        *agents.rows,
        *plugins.rows,
        *row_of("cluster", asked.cluster, cluster),
        *row_of("extender", asked.extender, extender),
        *row_of("prometheus", _engine(asked, analyzer), prometheus),
        *_kube_row(targets, kube),
    )
    facts = DoctorFacts(
        at=wall(),
        place=place,
        driver=local.driver,
        regions=local.regions,
        processes=local.processes,
        podresources=local.podresources,
        agents=agents.facts,
        cluster=cluster,
        prometheus=prometheus,
        series=series,
        kubernetes=kube,
        analyzer=analyzer.facts,
        extender=extender,
        plugins=plugins.facts,
        silent=(*agents.silent, *plugins.silent),
        services=services,
    )
    if analyzer.known is not None:
        facts = combined(facts, analyzer.known)
    facts = structs.replace(facts, services=completed(facts.services))
    shown = [BundledAnswer(f"agent-{number}.prom", page) for number, page in enumerate(agents.pages.values())]
    return Collected(facts=facts, answers=(*analyzer.answers, *shown), report=analyzer.report)


def combined(here: DoctorFacts, known: DoctorFacts) -> DoctorFacts:
    """The facts of an analyzer, and what only this caller has: it was named here, or the analyzer lacks it."""
    facts: dict[str, object] = {}
    for name in DoctorFacts.__struct_fields__:
        mine, theirs = getattr(here, name), getattr(known, name)
        facts[name] = theirs if _not_asked(mine) else mine
    asked = {row.service for row in here.services if _was_asked(row)} | {"analyzer"}
    theirs = [
        structs.replace(row, by_analyzer=True) for row in known.services if _was_asked(row) and row.service not in asked
    ]
    alone = _not_asked(here.agents)
    if _not_asked(here.prometheus) and not isinstance(known.series, Missing):
        facts["series"] = known.series  # the pages of some agents are a part of it
    facts |= {
        "at": known.at if facts["series"] is known.series else here.at,
        "silent": (*here.silent, *(one for one in known.silent if one.fact != "agent" or alone)),
        "services": (*(row for row in here.services if row.service in asked), *theirs),
    }
    return DoctorFacts(**facts)  # type: ignore[arg-type]


def _was_asked(row: AskedService) -> bool:
    return row.state != "not-configured"


def _not_asked(fact: object) -> bool:
    """Whether a fact is missing because it was not asked for, and not because of a fault."""
    return isinstance(fact, Missing) and fact.reason in {"not-given", "not-here", "elsewhere"}


def _not_known_to(known: DoctorFacts | None, targets: DoctorTargets) -> DoctorTargets:
    """The targets without those that an analyzer has asked, unless the caller named them."""
    if known is None:
        return targets

    def needed(fact: object, address: ServiceAddress | None) -> ServiceAddress | None:
        return address if address is not None and (address.named or _not_asked(fact)) else None

    agents, plugins = targets.agents, targets.plugins
    return structs.replace(
        targets,
        agents=agents if any(one.named for one in agents) or _not_asked(known.agents) else (),
        plugins=plugins if any(one.named for one in plugins) or _not_asked(known.plugins) else (),
        cluster=needed(known.cluster, targets.cluster),
        extender=needed(known.extender, targets.extender),
        prometheus=needed(known.prometheus, targets.prometheus),
    )


def _not_here(fact: object) -> bool:
    return isinstance(fact, Missing) and fact.reason == "not-here"


async def _local(targets: DoctorTargets, within: Seconds) -> LocalFacts:
    if targets.local is None or not await asyncio.to_thread(is_gpu_node, targets.local):
        return nothing_here()
    return await read_local(targets.local, within=within)


def _token(targets: DoctorTargets, address: ServiceAddress) -> str | None:
    """The token for an address; none for one that was found in the cluster, where others may publish addresses."""
    return None if address.found_by == "cluster" else targets.token


async def _pages(targets: DoctorTargets) -> tuple[ScrapedPage, ...] | None:
    return await targets.own.pages() if targets.own else None


# ── agents and device plugins ────────────────────────────────────────────────────────────────────────────────────


class _Asked(Struct, Generic[T], frozen=True, kw_only=True):
    """What all services of one kind answered."""

    facts: T | Missing
    silent: tuple[Missing, ...] = ()
    rows: tuple[AskedService, ...] = ()
    pages: Mapping[str, bytes] = {}


async def _agents(
    targets: DoctorTargets,
    scraped: tuple[ScrapedPage, ...] | None,
    within: Seconds,
    wall: Callable[[], UnixTime],
) -> _Asked[tuple[AgentFacts, ...]]:
    """The agents that were named, or that the analyzer scrapes; the first of those that do not answer come first."""
    agents, others = targets.agents, []
    if scraped is not None:
        known = [(page, await asyncio.to_thread(node_of, page.page)) for page in scraped]
        ours = sorted((pair for pair in known if pair[1] is not None), key=lambda pair: pair[0].up)
        agents = tuple(
            ServiceAddress(page.url, found_by="analyzer", name=node or "") for page, node in ours[:MOST_AGENTS]
        )
        left = [*ours[MOST_AGENTS:], *(pair for pair in known if pair[1] is None)]
        others = [_scraped_row(page, node) for page, node in left[:MOST_AGENTS]]
        if more := len(left) - len(others):
            others.append(AskedService(service="agent", state="not-asked", found_by="analyzer", name=f"+{more}"))
    turn = asyncio.Semaphore(_AT_ONCE)

    async def read(one: ServiceAddress) -> AgentAnswer:
        async with turn:
            return await read_agent(
                one.url, token=_token(targets, one), within=within, given=one.given, wall=wall, paged=scraped is None
            )

    answers = await asyncio.gather(*map(read, agents))
    good = [answer.facts for answer in answers if isinstance(answer.facts, AgentFacts)]
    pairs = [(one, as_seen_here(one, answer.facts)) for one, answer in zip(agents, answers, strict=True)]
    silent = [found for _, found in pairs if isinstance(found, Missing)]
    facts = tuple(good) or (silent[0] if silent else Missing(fact="agent", reason="not-given"))
    rows = [
        row
        for one, found in pairs
        for row in row_of("agent", one, found, name=found.node if isinstance(found, AgentFacts) else one.name)
    ]
    pages = {a.facts.url: a.page for a in answers if isinstance(a.facts, AgentFacts) and a.page}
    return _Asked(facts=facts, silent=tuple(silent), rows=(*rows, *others), pages=pages)


def _scraped_row(page: ScrapedPage, node: str | None) -> AskedService:
    """A scrape target that is no agent, or one of more agents than are asked."""
    service: ServiceCode = "agent" if node is not None else "exporter" if page.page is not None else "target"
    state: ServiceState = "answered" if page.up and node is None else "not-asked" if page.up else "no-answer"
    return AskedService(
        service=service, state=state, found_by="analyzer", name=node or "", url=page.name, detail=page.reason
    )


def _seen_in(series: SeriesFacts | Missing) -> _Asked[tuple[AgentFacts, ...]]:
    """Agents that Prometheus scrapes. They are not asked: a token is not sent to addresses that series name."""
    found = () if isinstance(series, Missing) else named(series, m.SAMPLE_TIME.name)
    places = sorted({(one.labels.get("node", ""), one.labels.get("instance", "")) for one in found})
    rows = [
        AskedService(service="agent", state="not-asked", found_by="prometheus", name=node, url=url)
        for node, url in places[:MOST_AGENTS]
    ]
    if more := len(places) - len(rows):
        rows.append(AskedService(service="agent", state="not-asked", found_by="prometheus", name=f"+{more}"))
    return _Asked(facts=Missing(fact="agent", reason="elsewhere"), rows=tuple(rows))


def _of_pages(
    agents: _Asked[tuple[AgentFacts, ...]], scraped: tuple[ScrapedPage, ...] | None, otherwise: SeriesFacts | Missing
) -> SeriesFacts | Missing:
    """The series of pages: those that the analyzer has scraped, or those of the agents that were asked."""
    if scraped is not None:
        pages = {one.name: one.page for one in scraped if one.up and one.page is not None}
        if pages:
            whole = len(pages) == sum(one.up for one in scraped)
            return series_of(pages, origin="analyzer.targets", whole=whole)
        return Missing(fact="series", reason="no-data")
    if agents.pages:
        return series_of(agents.pages, origin=", ".join(agents.pages), whole=False)
    return otherwise


async def _plugins(targets: DoctorTargets, within: Seconds) -> _Asked[SeriesFacts]:
    """The pages of the device plugins."""
    answers = await asyncio.gather(
        *(read_plugin(one.url, token=_token(targets, one), within=within) for one in targets.plugins)
    )
    pairs = [(one, as_seen_here(one, answer)) for one, answer in zip(targets.plugins, answers, strict=True)]
    silent = [found for _, found in pairs if isinstance(found, Missing)]
    pages = {one.url: found for one, found in pairs if not isinstance(found, Missing)}
    facts: SeriesFacts | Missing = silent[0] if silent else Missing(fact="plugin", reason="not-given")
    if pages:
        facts = await asyncio.to_thread(series_of, pages, origin=", ".join(pages), whole=False)
    rows = [row for one, found in pairs for row in row_of("plugin", one, found, name=one.name)]
    return _Asked(facts=facts, silent=tuple(silent), rows=tuple(rows))


# ── the services of which there is one ───────────────────────────────────────────────────────────────────────────


async def _analyzer(targets: DoctorTargets, within: Seconds, wall: Callable[[], UnixTime]) -> AnalyzerAnswer:
    if targets.own is not None:
        return AnalyzerAnswer(await targets.own.analyzer())
    if targets.analyzer is None:
        return AnalyzerAnswer(Missing(fact="analyzer", reason="not-given"))
    place = targets.analyzer
    answer = await read_analyzer(place.url, token=_token(targets, place), within=within, given=place.given, wall=wall)
    return answer._replace(facts=as_seen_here(place, answer.facts))


def _analyzer_row(targets: DoctorTargets, analyzer: AnalyzerAnswer) -> tuple[AskedService, ...]:
    if targets.own is not None:
        return (AskedService(service="analyzer", state="answered", found_by="self"),)
    return row_of("analyzer", targets.analyzer, analyzer.facts)


async def _cluster(targets: DoctorTargets, within: Seconds, wall: Callable[[], UnixTime]) -> ClusterFacts | Missing:
    if targets.cluster is None:
        return Missing(fact="cluster", reason="not-given")
    place = targets.cluster
    found = await read_cluster(place.url, token=_token(targets, place), within=within, given=place.given, wall=wall)
    return as_seen_here(place, found)


async def _extender(targets: DoctorTargets, within: Seconds) -> ExtenderFacts | Missing:
    if targets.extender is None:
        return Missing(fact="extender", reason="not-given")
    place = targets.extender
    found = await read_extender(place.url, token=_token(targets, place), within=within, given=place.given)
    return as_seen_here(place, found)


async def _kube(targets: DoctorTargets, within: Seconds) -> KubeFacts | Missing:
    if targets.own is not None:
        return Missing(fact="kubernetes", reason="elsewhere")
    if not targets.kubernetes:
        return Missing(fact="kubernetes", reason="not-given")
    named = targets.kubeconfig
    return await read_kube(named.url if named else None, within=within, given=named is not None and named.given)


def _kube_row(targets: DoctorTargets, kube: KubeFacts | Missing) -> tuple[AskedService, ...]:
    if not targets.kubernetes:
        return ()
    usual = ServiceAddress("", given=False, found_by="default")
    return row_of("kubernetes", targets.kubeconfig or usual, kube)


def _engine(targets: DoctorTargets, analyzer: AnalyzerAnswer) -> ServiceAddress | None:
    """Where Prometheus is: as named, or as an analyzer names it that does not give its facts."""
    if targets.prometheus is not None or analyzer.known is not None or not analyzer.prometheus_url:
        return targets.prometheus
    return ServiceAddress(analyzer.prometheus_url, given=False, found_by="analyzer")


async def _prometheus(
    targets: DoctorTargets, analyzer: AnalyzerAnswer, within: Seconds
) -> tuple[PrometheusFacts | Missing, SeriesFacts | Missing]:
    condition = targets.condition
    if condition is None:
        condition = "" if isinstance(analyzer.facts, Missing) else analyzer.facts.condition
    if targets.own is not None:
        engine = targets.own.engine()
        if engine is not None:
            return await PrometheusReader(engine, condition=condition, within=within).read()
        return Missing(fact="prometheus", reason="not-here"), Missing(fact="series", reason="no-data")
    place = _engine(targets, analyzer)
    if place is None:
        absent = Missing(fact="prometheus", reason="not-given")
        return absent, structs.replace(absent, fact="series")
    api = targets.open_prometheus(place.url)
    try:
        return await PrometheusReader(api, condition=condition, within=within).read(given=place.given)
    finally:
        await api.aclose()
