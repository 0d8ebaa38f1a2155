"""/api/v1/doctor: the chain of checks as it can be seen from the analyzer."""

import asyncio
import time
import zlib
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Struct

from vgpuscope.config import Config
from vgpuscope.http.operations import HttpCall
from vgpuscope.http.parameters import NoQuery
from vgpuscope.logic.console.moments import iso
from vgpuscope.logic.doctor.chain import judged
from vgpuscope.model.doctor import AnalyzerFacts, DoctorFacts, DoctorReport
from vgpuscope.model.errors import QueryTimeout
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.services.analyzer.console.console import Console
from vgpuscope.services.analyzer.sources.own_scrapes import ScrapedTarget
from vgpuscope.services.analyzer.sources.sources import cluster_url
from vgpuscope.services.doctor.asked import ServiceAddress
from vgpuscope.services.doctor.collect import MOST_AGENTS, DoctorTargets, OwnFacts, ScrapedPage, collect
from vgpuscope.sources.console.parts import PartReader
from vgpuscope.sources.doctor.kube import find_beside
from vgpuscope.sources.doctor.services import encode_facts
from vgpuscope.sources.fleet.promapi import PromApi
from vgpuscope.sources.fleet.scrape import text_of
from vgpuscope.version import __version__
from vgpuscope.views.doctor.report import report, without_examples

_KEPT: Seconds = 15.0
_WITHIN: Seconds = 10.0  # that a caller waits
_FOUND_WITHIN: Seconds = 1.0
_COLLECTED_WITHIN: Seconds = 8.5
_PAGES = 500  # that are looked at
_SHARE = 5.0  # of the time between two collections, one fifth is spent on collecting at most


class _Made(Struct, frozen=True):
    """The facts of one moment, and the report on them."""

    packed: bytes  # the facts as JSON, compressed: those of 5,000 GPUs would take 100 MB
    report: DoctorReport


class Doctor:
    """One report for all callers, made when somebody asks and kept for some seconds."""

    def __init__(
        self,
        *,
        console: Callable[[], Console],
        config: Callable[[], Config],
        analyzer: Callable[[], Awaitable[AnalyzerFacts]],
        clock: Callable[[], Seconds] = time.monotonic,
        wall: Callable[[], UnixTime] = time.time,
    ) -> None:
        self._console, self._config, self._analyzer, self._wall = console, config, analyzer, wall
        self._reader: PartReader[_Made] = PartReader(
            "analysis", self._make, kept=_KEPT, share=_SHARE, deadline=_WITHIN, clock=clock, wall=wall
        )

    async def answer(self, call: HttpCall[NoQuery, None]) -> DoctorReport:
        """The report; callers who may not see every namespace get the numbers without examples."""
        found = (await self._made()).report
        return found if call.caller.namespaces is None else without_examples(found)

    async def facts(self, call: HttpCall[NoQuery, None]) -> msgspec.Raw:  # noqa: ARG002
        """The facts of the same report, from which `vgpuscope doctor` judges."""
        found = await self._made()
        return msgspec.Raw(await asyncio.to_thread(zlib.decompress, found.packed))

    async def _made(self) -> _Made:
        held = await self._reader.read()
        if held.value is None:
            raise held.error or QueryTimeout(f"the checks are not done within {_WITHIN:g} s", hint="Retry soon.")
        return held.value

    async def _make(self) -> _Made:
        began = time.perf_counter()
        facts = (await collect(self._targets(await self._plugins()), wall=self._wall)).facts
        checks = await asyncio.to_thread(judged, facts)
        seconds = time.perf_counter() - began
        shown = report(
            checks, at=iso(facts.at), version=__version__, place="analyzer", seconds=seconds, services=facts.services
        )
        return _Made(await asyncio.to_thread(_packed, facts), shown)

    async def _plugins(self) -> tuple[ServiceAddress, ...]:
        """The device plugins beside this analyzer, if it finds its targets through the Kubernetes API."""
        analyzer = self._config().analyzer
        if self._console().engine is not None or analyzer.targets or not analyzer.discover_services:
            return ()
        found = await find_beside(analyzer.kubeconfig, within=_FOUND_WITHIN)
        plugins = (one for one in found if one.component == "plugin")
        return tuple(ServiceAddress(one.url, found_by="cluster", name=one.node) for one in plugins)[:MOST_AGENTS]

    def _targets(self, plugins: tuple[ServiceAddress, ...]) -> DoctorTargets:
        """What the analyzer reads itself, and the services that its settings name."""
        config, console = self._config(), self._console()
        extender = config.analyzer.extender_url
        cluster = cluster_url(config)
        return DoctorTargets(
            cluster=ServiceAddress(cluster, found_by="settings") if cluster else None,
            extender=ServiceAddress(extender, found_by="settings") if extender else None,
            prometheus=ServiceAddress(console.engine.url, found_by="settings") if console.engine else None,
            plugins=plugins,
            condition=config.prometheus.query_condition,
            token=config.analyzer.scrape_token,
            within=_COLLECTED_WITHIN,
            own=OwnFacts(analyzer=self._analyzer, pages=self._pages, engine=self._engine),
        )

    def _engine(self) -> PromApi | None:
        return self._console().engine

    async def _pages(self) -> tuple[ScrapedPage, ...] | None:
        targets = self._console().scraped()
        return None if targets is None else await asyncio.to_thread(_unpacked, targets)


def _packed(facts: DoctorFacts) -> bytes:
    return zlib.compress(encode_facts(facts), level=1)


def _unpacked(targets: tuple[ScrapedTarget, ...]) -> tuple[ScrapedPage, ...]:
    """The pages of targets, those that are down first; beyond a number of targets without their pages."""
    first = sorted(targets, key=lambda target: target.up)
    return tuple(
        ScrapedPage(
            name=target.name,
            url=target.url.removesuffix("/metrics"),
            up=target.up,
            page=text_of(target.page) if target.page is not None and number < _PAGES else None,
            reason=target.reason,
        )
        for number, target in enumerate(first)
    )
