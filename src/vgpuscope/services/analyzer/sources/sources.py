"""Where the analyzer reads from, as the settings say: a PromQL engine, or its own scrapes."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any
from urllib.parse import urlsplit

from vgpuscope.config import Config
from vgpuscope.config.analyzer import PrometheusConfig
from vgpuscope.formats.prom.promql import chosen_by, parse_condition
from vgpuscope.model.analysis import Allocations
from vgpuscope.model.errors import ConfigInvalid, ScopeError
from vgpuscope.model.quantity import Seconds
from vgpuscope.runtime.log import error_fields, fields
from vgpuscope.runtime.units import Units
from vgpuscope.services.analyzer.cycle import Owners as OwnersByPod
from vgpuscope.services.analyzer.cycle import ReadingSource
from vgpuscope.services.analyzer.sources.own_scrapes import ScrapeSource
from vgpuscope.services.analyzer.sources.prometheus.reading import PrometheusSource
from vgpuscope.sources.clients.cluster import CLUSTER
from vgpuscope.sources.fleet.cluster_nodes import ClusterNodes
from vgpuscope.sources.fleet.owners import Owners
from vgpuscope.sources.fleet.promapi import PromApi
from vgpuscope.sources.fleet.targets import ServiceTargets, StaticTargets
from vgpuscope.sources.kube import KubeClient, open_client

log = logging.getLogger(__name__)

_API_TIMEOUT = 10.0  # seconds
_TICK = 0.1  # seconds
_LOOK_WITHIN = 4.0  # seconds for an engine to answer a check


class Sources:
    """The source in use; it is replaced when the settings ask for another one."""

    def __init__(
        self,
        config: Config,
        *,
        make: Callable[[Config], ReadingSource] | None = None,
        clock: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        """`make` returns the source that the settings ask for; the demo has one that remembers more."""
        self._make, self._clock = make or make_source, clock
        self._units = Units(log)
        self.current: ReadingSource = self._make(config)
        self._made_for = _concerns(config)
        self._owners, self._nodes, self._owners_at = _owners(config), _nodes(config), cluster_url(config)
        self._config, self._door = config, _Door()
        self._changed = asyncio.Event()

    @property
    def name(self) -> str:
        """Where readings come from, for the log."""
        url = self._config.prometheus.url
        return url if url is not None else "own scrapes"

    def on_error(self, count: Callable[[ScopeError], None]) -> None:
        """Let `count` get every unexpected error of one target or query."""
        self._units.count = count
        _count_errors(self.current, count)

    def renew(self, config: Config) -> None:
        """Apply the current settings; if the new source cannot be made, the old one stays."""
        try:
            self._renew_owners(config)
            self._renew_source(config)
        except ConfigInvalid as e:
            log.warning("new source rejected; the old one stays", extra=error_fields(e))

    def _renew_owners(self, config: Config) -> None:
        if cluster_url(config) != self._owners_at:
            self._owners, self._nodes, self._owners_at = _owners(config), _nodes(config), cluster_url(config)

    def _renew_source(self, config: Config) -> None:
        if _concerns(config) != self._made_for:
            self.current, self._made_for, self._config = self._make(config), _concerns(config), config
            _count_errors(self.current, self._units.count)
            self._changed.set()
            log.info("source changed", extra=fields(source=self.name))

    async def begun(self, *, within: Seconds) -> None:
        """Wait until our own scrapes have tried every target once, but at most `within` seconds.

        An earlier analysis would report all other targets as not answering.
        """
        source, began = self.current, self._clock()
        while isinstance(source, ScrapeSource) and not source.tried and self._clock() - began < within:  # noqa: ASYNC110
            await asyncio.sleep(_TICK)

    async def ready(self) -> None:
        """Raise SourceDown or another error if the source does not answer now. One call at a time.

        An engine is asked over a separate connection: an analysis may use all of the others.
        """
        source = self.current
        if isinstance(source, ScrapeSource):
            await source.ready()
        else:
            await self._door.ready(self._config)

    async def run(self, *, finished: Callable[[], Awaitable[None]]) -> None:
        """Run our own scrapes, if that is the source; start again when the source changes.

        The former source is closed after `finished` returns, when no analysis reads from it any more.
        """
        while True:
            self._changed.clear()
            source = self.current
            task = asyncio.create_task(_scrape(source), name="scrape")
            changed = asyncio.create_task(self._changed.wait(), name="source changed")
            try:
                await asyncio.wait({task, changed}, return_when=asyncio.FIRST_COMPLETED)
                if task.done():
                    task.result()  # raises: scraping ends only with an error
            finally:
                for one in (task, changed):
                    one.cancel()
                await asyncio.gather(task, changed, return_exceptions=True)
            await finished()
            await _let_go(source)

    async def owners(self) -> OwnersByPod:
        """The owners of the pods; empty without a cluster exporter. A ScopeError if they cannot be read."""
        if self._owners is None:
            return {}
        try:
            return await self._owners.read()
        except ScopeError:
            raise
        except Exception as e:
            raise self._units.failed("owners", e) from e

    async def nodes(self) -> Collection[str] | None:
        """All nodes of the cluster; None if no cluster exporter reports them."""
        if self._nodes is None:
            return None
        try:
            return await self._nodes.read()
        except ScopeError:  # owners are read from the same exporter, and report that it is down
            return None
        except Exception as e:
            self._units.failed("nodes", e)
            return None

    async def allocations(self) -> Allocations | None:
        """What the scheduler has allocated; None if no cluster exporter reports it."""
        if self._nodes is None:
            return None
        try:
            return await self._nodes.allocations()
        except ScopeError:  # as above
            return None
        except Exception as e:
            self._units.failed("allocations", e)
            return None

    async def close(self) -> None:
        """Close all connections."""
        await _let_go(self.current)
        await self._door.close()
        for api in (self._owners, self._nodes):
            if api is not None:
                await api.__aexit__()


class _Door:
    """Checks whether an engine answers; its client is made at the first check, and again for other settings."""

    def __init__(self) -> None:
        self._source: PrometheusSource | None = None
        self._config: Config | None = None

    async def ready(self, config: Config) -> None:
        if self._source is None or config is not self._config:
            await self.close()
            self._source, self._config = _prometheus(config, retries=1, deadline=_LOOK_WITHIN, at_once=1), config
        await self._source.ready()

    async def close(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            await source.aclose()


def make_source(config: Config) -> ReadingSource:
    """The source that the settings ask for; ConfigInvalid if they name none, or are invalid."""
    check_source(config)
    if config.prometheus.url is not None:
        return _prometheus(config, deadline=config.prometheus.deadline, at_once=config.scheduler.max_workers)
    return _scrapes(config)


def prom_api(config: Config, *, largest: int, at_once: int) -> PromApi:
    """A client of the engine that the settings name, for queries beside an analysis."""
    found = config.prometheus
    assert found.url is not None
    return PromApi(
        url=found.url,
        **_access(found),
        retries=1,
        concurrency=at_once,
        largest=largest,
    )


def _count_errors(source: ReadingSource, count: Callable[[ScopeError], None]) -> None:
    if isinstance(source, PrometheusSource | ScrapeSource):
        source.units.count = count


async def _let_go(source: ReadingSource) -> None:
    if isinstance(source, PrometheusSource):
        await source.aclose()
    elif isinstance(source, ScrapeSource):
        await source.close()


async def _scrape(source: ReadingSource) -> None:
    if isinstance(source, ScrapeSource):
        await source.run()
    else:
        await asyncio.Event().wait()


def _prometheus(config: Config, *, deadline: Seconds, at_once: int, retries: int = 3) -> PrometheusSource:
    found = config.prometheus
    assert found.url is not None
    return PrometheusSource(
        url=found.url,
        condition=found.query_condition,
        interval=found.step,
        **_access(found),
        deadline=deadline,
        retries=retries,
        concurrency=at_once,
    )


def _access(found: PrometheusConfig) -> dict[str, Any]:
    """How an engine is reached: credentials, headers and certificates."""
    return {
        "headers": _headers(found.headers),
        "basic": (found.username, found.password or "") if found.username else None,
        "token": found.bearer_token,
        "token_file": found.bearer_token_file,
        "ca_file": found.ca_file,
        "insecure": found.insecure,
    }


def _scrapes(config: Config) -> ScrapeSource:
    analyzer = config.analyzer
    window = config.prometheus.time_window_min * 60
    if analyzer.targets:
        return ScrapeSource(
            targets=StaticTargets(analyzer.targets),
            interval=analyzer.scrape_interval,
            keep=window,
            condition=config.prometheus.query_condition,
            token=analyzer.scrape_token,
        )
    api = KubeClient(open_client(analyzer.kubeconfig), timeout=_API_TIMEOUT)
    targets = ServiceTargets(analyzer.discover_services, api=api)
    return ScrapeSource(
        targets=targets,
        target_faults=targets.faults,
        interval=analyzer.scrape_interval,
        keep=window,
        condition=config.prometheus.query_condition,
        token=analyzer.scrape_token,
    )


def check_source(config: Config) -> None:
    """ConfigInvalid if the settings name no source, or select series in a way that only an engine can."""
    analyzer = config.analyzer
    if config.prometheus.url is None:
        chosen_by(parse_condition(config.prometheus.query_condition))
    if config.prometheus.url is None and not analyzer.targets and not analyzer.discover_services:
        raise ConfigInvalid(
            "nothing to read from: neither prometheus.url nor analyzer.targets nor analyzer.discover_services is set",
            hint="Set --prometheus-url URL (env PROM_URL), or --targets with the addresses of the agents.",
        )


def _owners(config: Config) -> Owners | None:
    url = cluster_url(config)
    return Owners(url, token=config.analyzer.scrape_token) if url else None


def _nodes(config: Config) -> ClusterNodes | None:
    url = cluster_url(config)
    return ClusterNodes(url, token=config.analyzer.scrape_token) if url else None


def cluster_url(config: Config) -> str | None:
    """The URL of the cluster exporter: as set, or the target that has the exporter's port."""
    found = (target for target in config.analyzer.targets if _port(target) == CLUSTER.port)
    return config.analyzer.cluster_url or next(found, None)


def _port(target: str) -> int | None:
    try:
        return urlsplit(target if "://" in target else f"//{target}").port
    except ValueError:
        return None


def _headers(lines: tuple[str, ...]) -> Mapping[str, str]:
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _concerns(config: Config) -> object:
    """The settings that a source is made from."""
    analyzer, prometheus = config.analyzer, config.prometheus
    return (
        # our own scrapes use only the condition
        (prometheus, config.scheduler.max_workers) if prometheus.url else prometheus.query_condition,
        analyzer.targets,
        analyzer.discover_services,
        analyzer.scrape_interval,
        analyzer.scrape_token,
        analyzer.kubeconfig,
    )
