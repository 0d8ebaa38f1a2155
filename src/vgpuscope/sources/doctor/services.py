"""What our own services say of themselves: agents, the cluster exporter, extender, device plugins, the analyzer."""

import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

from vgpuscope.catalog import cluster as c
from vgpuscope.catalog import extender as x
from vgpuscope.formats.prom.text import PageReader
from vgpuscope.model.console.facts import ClusterFacts, SeenSeries
from vgpuscope.model.console.parts import PartList
from vgpuscope.model.doctor import (
    AgentFacts,
    AnalyzerFacts,
    ChannelFacts,
    DoctorFacts,
    DoctorReport,
    ExtenderFacts,
    Missing,
    ReclaimFacts,
    ServiceCode,
)
from vgpuscope.model.errors import QueryForbidden, ScopeError, SourceDown
from vgpuscope.model.pending import PendingList
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.model.service import HEADER, PLUGIN_PORT
from vgpuscope.model.usage import NodeSnapshot
from vgpuscope.sources.clients.agent import AGENT, clock_offset
from vgpuscope.sources.clients.analyzer import ANALYZER
from vgpuscope.sources.clients.extender import EXTENDER
from vgpuscope.sources.clients.served_api import ServedAnswer, ServedApi, ServiceKind
from vgpuscope.sources.console.cluster import WANTED, ClusterPart
from vgpuscope.sources.doctor.missing import missing

_PLAIN = {"Accept-Encoding": "identity"}
_OK = 200
DOCTOR_PATH = "/api/v1/doctor"
FACTS_PATH = f"{DOCTOR_PATH}/facts"
_MORE = ("/", "/config", "/results/stats", "/api/v1/parts", "/api/v1/notices", "/api/v1/reclaim/policy")
_REJECTED = frozenset({401, 403})


class BundledAnswer(NamedTuple):
    """What one service answered, for the bundle."""

    name: str
    body: bytes


class _Told:
    """Remembers that another service answered."""

    another = False
    there = ""  # its name

    def _another(self, there: str) -> SourceDown:
        self.another, self.there = True, there
        return super()._another(there)  # type: ignore[misc,no-any-return]


class _Service(_Told, ServedApi[Any]):
    def __init__(self, kind: ServiceKind, url: str, *, token: str | None, within: Seconds) -> None:
        super().__init__(kind, url, content=Any, timeout=within, token=token)

    async def answer(self, path: str, *, plain: bool = False) -> ServedAnswer:
        """An answer with content; QueryForbidden or SourceDown."""
        found = await self.get(path, headers=_PLAIN if plain else None)
        if found.status_code in _REJECTED:
            raise QueryForbidden(str(self._refused(found)))
        if found.status_code != _OK:
            raise self._refused(found)
        return found


class _Cluster(_Told, ClusterPart):
    pass


def _missing(fact: Any, error: ScopeError | TimeoutError, *, url: str, another: bool, given: bool) -> Missing:
    if another:
        return Missing(fact=fact, reason="wrong-service", code="SOURCE_DOWN", detail=str(error), place=url)
    return missing(fact, error, place=url, given=given)


_CODES: dict[str, ServiceCode] = {
    "agent": "agent",
    "cluster exporter": "cluster",
    "analyzer": "analyzer",
    "extender": "extender",
    "device plugin": "plugin",
}


async def service_at(url: str, *, within: Seconds) -> ServiceCode | None:
    """Which of our services answers at an address; None if none does."""
    async with _Service(ANALYZER, url, token=None, within=within) as api:
        try:
            answer = await api.get("/healthz")
        except (ScopeError, TimeoutError):
            return _CODES.get(api.there)
    return _CODES.get(answer.headers.get(HEADER, ""))


class AgentAnswer(NamedTuple):
    """One agent: its state, and its page."""

    facts: AgentFacts | Missing
    page: bytes | None = None


async def read_agent(
    url: str,
    *,
    token: str | None,
    within: Seconds,
    given: bool = True,
    wall: Callable[[], UnixTime] = time.time,
    paged: bool = True,
) -> AgentAnswer:
    """What an agent answers; never raises, except for an address that is none. `paged`: with its page of metrics."""
    async with _Service(AGENT, url, token=token, within=within) as api:
        try:
            answer = await api.answer(AGENT.path)
            offset = clock_offset(answer.headers.get("date"), wall())
            snapshot = _read(answer.content, NodeSnapshot, api.url)
            page = (await api.answer("/metrics", plain=True)).content if paged else None
        except (ScopeError, TimeoutError) as e:
            return AgentAnswer(_missing("agent", e, url=api.url, another=api.another, given=given))
    return AgentAnswer(_agent(snapshot, api.url, offset, now=wall()), page)


def _agent(snapshot: NodeSnapshot, url: str, offset: Seconds, *, now: float) -> AgentFacts:
    unused = frozenset(one.source for one in snapshot.sources if one.absent and one.code is None)
    return AgentFacts(
        url=url,
        node=snapshot.node,
        sample_age=max(0.0, now + offset - snapshot.at),
        clock_offset=offset,
        faults=tuple(
            (one.source, one.code or "SOURCE_DOWN", one.message or "")
            for one in snapshot.sources
            if not one.up and one.source not in unused
        ),
        unused=unused,
    )


async def read_cluster(
    url: str, *, token: str | None, within: Seconds, given: bool = True, wall: Callable[[], UnixTime] = time.time
) -> ClusterFacts | Missing:
    """What a cluster exporter answers; never raises, except for an address that is none."""
    async with _Cluster(url, token=token, timeout=within) as api:
        try:
            if waiting := await api.missing():
                return await _unlisted(api, waiting, now=wall())
            return await api.read()
        except (ScopeError, TimeoutError) as e:
            return _missing("cluster", e, url=api.url, another=api.another, given=given)


async def _unlisted(api: _Cluster, waiting: tuple[str, ...], *, now: UnixTime) -> ClusterFacts:
    """An exporter that has not listed everything: its page says which watches fail."""
    answer = await api.get("/metrics", headers=_PLAIN)
    reader: PageReader[SeenSeries] = PageReader(wanted=WANTED, meaning=SeenSeries)
    page = list(reader.read(answer.content))
    shown = {seen.labels.get("kind") for seen, _ in page if seen.name == c.WATCH_UP.name}
    page += [(SeenSeries(c.WATCH_UP.name, {"kind": kind}), 0.0) for kind in waiting if kind not in shown]
    return ClusterFacts(pending=PendingList(now=now), page=tuple(page))


# ── the extender, and device plugins ─────────────────────────────────────────────────────────────────────────────

_FILTERS = f"{x.FILTER_SECONDS.name}_count"
_EXTENDER = frozenset({x.LEADER.name, _FILTERS})
PLUGIN = ServiceKind(
    name="device plugin",
    an="a device plugin",
    path="/metrics",
    port=PLUGIN_PORT,
    gives="page of metrics",
    content="metrics",
    start="vgpuscope plugin",
    ask="curl",
)


class _Ready(Struct):
    missing: tuple[str, ...] = ()


async def read_extender(url: str, *, token: str | None, within: Seconds, given: bool = True) -> ExtenderFacts | Missing:
    """What a scheduler extender answers; never raises, except for an address that is none."""
    async with _Service(EXTENDER, url, token=token, within=within) as api:
        try:
            state = _read((await api.get("/readyz")).content, _Ready, api.url)  # 503 has the same form
            page = (await api.answer("/metrics", plain=True)).content
        except (ScopeError, TimeoutError) as e:
            return _missing("extender", e, url=api.url, another=api.another, given=given)
    reader: PageReader[SeenSeries] = PageReader(wanted=_EXTENDER, meaning=SeenSeries)
    values = {seen.name: value for seen, value in reader.read(page)}
    leader = values.get(x.LEADER.name)
    return ExtenderFacts(
        url=api.url,
        missing=state.missing,
        leader=None if leader is None else leader == 1,
        filters=values.get(_FILTERS),
    )


async def read_plugin(url: str, *, token: str | None, within: Seconds) -> bytes | Missing:
    """The page of a device plugin; never raises, except for an address that is none."""
    async with _Service(PLUGIN, url, token=token, within=within) as api:
        try:
            await api.get("/readyz")  # its header says which service this is; a page of metrics has none
            return (await api.answer("/metrics", plain=True)).content
        except (ScopeError, TimeoutError) as e:
            return _missing("plugin", e, url=api.url, another=api.another, given=True)


# ── the analyzer ─────────────────────────────────────────────────────────────────────────────────────────────────


class _Error(Struct):
    code: str = ""
    message: str = ""


class _Health(Struct):
    prometheus_connected: bool = True
    last_analysis: str | None = None
    analysis_timeout: bool = False
    interval: float | None = None
    leader: bool = True
    history: bool = False
    error: _Error | None = None
    targets_up: int | None = None
    targets_down: int | None = None
    stale_reason: str | None = None
    failing: tuple[str, ...] = ()
    ai_enabled: bool = False
    ai_error: str | None = None
    control_error: str | None = None


class _InfoConfig(Struct):
    prometheus_url: str = ""
    time_window_min: float | None = None


class _Info(Struct):
    version: str | None = None
    config: _InfoConfig | None = None


class _Prometheus(Struct):
    query_condition: str = ""


class _Control(Struct):
    enabled: bool | None = None


class _Config(Struct):
    prometheus: _Prometheus | None = None
    control: _Control | None = None


class _Stats(Struct):
    total_gpus: int | None = None
    unknown_count: int | None = None


class _Channel(Struct):
    name: str
    state: str
    error: str | None = None


class _Notices(Struct):
    channels: tuple[_Channel, ...] = ()


class _Breaker(Struct):
    open: bool = False
    turned: int = 0
    of: int = 0


class _Policy(Struct):
    mode: str
    dry_run: bool
    kube: Literal["none", "ok", "down"]
    stopped_by: str | None = None
    breaker: _Breaker = msgspec.field(default_factory=_Breaker)


class AnalyzerAnswer(NamedTuple):
    """The analyzer: its state, where it reads from, all facts that it knows, and its answers for the bundle."""

    facts: AnalyzerFacts | Missing
    prometheus_url: str = ""
    answers: tuple[BundledAnswer, ...] = ()
    known: DoctorFacts | None = None  # None: it does not give them, or not to this caller
    report: DoctorReport | None = None  # only if it does not give its facts


async def read_analyzer(
    url: str, *, token: str | None, within: Seconds, given: bool = True, wall: Callable[[], UnixTime] = time.time
) -> AnalyzerAnswer:
    """What an analyzer answers; never raises, except for an address that is none."""
    async with _Service(ANALYZER, url, token=token, within=within) as api:
        try:
            answer = await api.answer("/health")
            health = _read(answer.content, _Health, api.url)
        except (ScopeError, TimeoutError) as e:
            return AnalyzerAnswer(_missing("analyzer", e, url=api.url, another=api.another, given=given))
        offset = clock_offset(answer.headers.get("date"), wall())
        bundled = (BundledAnswer("health.json", answer.content),)
        known = _facts(await _optional(api, FACTS_PATH))
        if known is not None and isinstance(known.analyzer, AnalyzerFacts):
            facts = msgspec.structs.replace(known.analyzer, clock_offset=offset)
            return AnalyzerAnswer(facts, answers=bundled, known=known)
        return await _older_analyzer(api, health, offset=offset, answers=bundled)


async def _older_analyzer(
    api: _Service, health: _Health, *, offset: Seconds, answers: tuple[BundledAnswer, ...]
) -> AnalyzerAnswer:
    """An analyzer that does not give its facts: it is older, or the caller may see only some namespaces."""
    more = [await _optional(api, path) for path in _MORE]
    info, config = _or_empty(more[0], _Info), _or_empty(more[1], _Config)
    stats, parts = _or_empty(more[2], _Stats), _or_empty(more[3], PartList)
    facts = _analyzer(health, info, config, stats, parts, url=api.url, offset=offset)
    notices, policy = _or_empty(more[4], _Notices), _or_empty(more[5], _Policy)
    facts = msgspec.structs.replace(facts, channels=_channels(notices), reclaim=_reclaim(policy))
    address = info.config.prometheus_url if info and info.config else ""
    report = _or_empty(await _optional(api, DOCTOR_PATH), DoctorReport)
    return AnalyzerAnswer(facts, address, answers, report=report)


def encode_facts(facts: DoctorFacts) -> bytes:
    """All facts of an analyzer, for `vgpuscope doctor`."""
    cluster = facts.cluster
    if not isinstance(cluster, Missing):
        facts = msgspec.structs.replace(facts, cluster=msgspec.structs.replace(cluster, fault=None))
    return msgspec.json.encode(facts)


def _facts(body: bytes | None) -> DoctorFacts | None:
    """The facts of an analyzer; None if it does not give them, or those of its version have another form."""
    if body is None:
        return None
    try:
        return msgspec.json.decode(body, type=DoctorFacts, dec_hook=_no_error)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _no_error(kind: type, value: object) -> object:
    raise NotImplementedError(f"{kind}: {value!r}")  # errors are not sent


def _analyzer(
    health: _Health,
    info: _Info | None,
    config: _Config | None,
    stats: _Stats | None,
    parts: PartList | None,
    *,
    url: str,
    offset: Seconds,
) -> AnalyzerFacts:
    state = next((part.state for part in parts.parts if part.name == "history"), None) if parts else None
    window = info.config.time_window_min if info and info.config else None
    return AnalyzerFacts(
        url=url,
        version=info.version if info else None,
        interval=health.interval,
        window=window * 60 if window else None,
        condition=config.prometheus.query_condition if config and config.prometheus else "",
        source_up=health.prometheus_connected,
        error_code=health.error.code if health.error else "",
        error=(health.error.message if health.error else "") or health.stale_reason or "",
        analysed=health.last_analysis is not None,
        old=health.analysis_timeout,
        leader=health.leader,
        stored=None if state == "absent" else health.history,
        failing=health.failing,
        targets_up=health.targets_up,
        targets_down=health.targets_down,
        gpus=stats.total_gpus if stats else None,
        unknown=stats.unknown_count if stats else None,
        clock_offset=offset,
        asks_model=health.ai_enabled,
        model_error=health.ai_error or "",
        reports_low=_reports_low(health, config),
        control_error=health.control_error or "",
    )


def _reports_low(health: _Health, config: _Config | None) -> bool | None:
    """Enabled calls may be those of reclaim only: that is not told apart here, unless a report failed."""
    if health.control_error:
        return True
    return False if config and config.control and config.control.enabled is False else None


def _channels(notices: _Notices | None) -> tuple[ChannelFacts, ...] | None:
    if notices is None:
        return None
    return tuple(
        ChannelFacts(name=one.name, used=one.state != "unused", error=one.error or "") for one in notices.channels
    )


def _reclaim(policy: _Policy | None) -> ReclaimFacts | None:
    if policy is None:
        return None
    return ReclaimFacts(
        live=not policy.dry_run,
        stored=policy.mode != "off",
        kube=policy.kube,
        stopped_by=policy.stopped_by or "",
        turned=policy.breaker.turned if policy.breaker.open else None,
        of=policy.breaker.of,
    )


async def _optional(api: _Service, path: str) -> bytes | None:
    try:
        return (await api.answer(path)).content
    except (ScopeError, TimeoutError):
        return None


def _or_empty(body: bytes | None, shape: type[Any]) -> Any:
    if body is None:
        return None
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _read(body: bytes, shape: type[Any], url: str) -> Any:
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        raise SourceDown(f"{url} answers, but its answer cannot be read: {e}") from e
