"""/api/v1/doctor: the chain of checks as it can be seen from the analyzer."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from vgpuscope.config import Config
from vgpuscope.http.operations import HttpCall
from vgpuscope.http.parameters import NoQuery
from vgpuscope.logic.console.moments import iso
from vgpuscope.logic.doctor.chain import judged
from vgpuscope.model.console.facts import ClusterFacts
from vgpuscope.model.doctor import (
    AnalyzerFacts,
    DoctorFacts,
    DoctorReport,
    Missing,
    PrometheusFacts,
    Reason,
    SeriesFacts,
)
from vgpuscope.model.errors import QueryTimeout
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.services.analyzer.console.console import Console
from vgpuscope.services.doctor.prometheus import PrometheusReader
from vgpuscope.sources.console.parts import PartReader, PartReading
from vgpuscope.sources.doctor.local import nothing_here
from vgpuscope.sources.doctor.pages import series_of
from vgpuscope.sources.fleet.scrape import LastPage, text_of
from vgpuscope.version import __version__
from vgpuscope.views.doctor.report import report, without_examples

_KEPT: Seconds = 15.0
_WITHIN: Seconds = 10.0  # that a caller waits
_PROMETHEUS_WITHIN: Seconds = 8.0
_PAGES = 500  # that are looked at
_REASONS: dict[str, Reason] = {"absent": "not-given", "forbidden": "refused"}

Seen = tuple[PrometheusFacts | Missing, SeriesFacts | Missing]


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
        self._reader: PartReader[DoctorReport] = PartReader(
            "analysis", self._made, kept=_KEPT, deadline=_WITHIN, clock=clock, wall=wall
        )

    async def answer(self, call: HttpCall[NoQuery, None]) -> DoctorReport:
        """The report; callers who may not see every namespace get the numbers without examples."""
        held = await self._reader.read()
        if held.value is None:
            raise held.error or QueryTimeout(f"the checks are not done within {_WITHIN:g} s", hint="Retry soon.")
        return held.value if call.caller.namespaces is None else without_examples(held.value)

    async def _made(self) -> DoctorReport:
        began = time.perf_counter()
        facts = await self._facts()
        checks = await asyncio.to_thread(judged, facts)
        seconds = time.perf_counter() - began
        return report(checks, at=iso(facts.at), version=__version__, place="analyzer", seconds=seconds)

    async def _facts(self) -> DoctorFacts:
        console = self._console()
        view, analyzer, (prometheus, series) = await asyncio.gather(
            console.view(), self._analyzer(), self._seen(console)
        )
        local = nothing_here()
        return DoctorFacts(
            at=self._wall(),
            place="analyzer",
            driver=local.driver,
            regions=local.regions,
            processes=local.processes,
            podresources=local.podresources,
            agents=Missing(fact="agent", reason="elsewhere"),
            cluster=_cluster(view.cluster),
            prometheus=prometheus,
            series=series,
            kubernetes=Missing(fact="kubernetes", reason="elsewhere"),
            analyzer=analyzer,
        )

    async def _seen(self, console: Console) -> Seen:
        """The series: from the engine, or from the last pages of our own scrapes."""
        engine = console.engine
        if engine is not None:
            condition = self._config().prometheus.query_condition
            return await PrometheusReader(engine, condition=condition, within=_PROMETHEUS_WITHIN).read()
        prometheus = Missing(fact="prometheus", reason="not-here")
        pages = console.pages()
        if not pages:
            return prometheus, Missing(fact="series", reason="no-data")
        return prometheus, await asyncio.to_thread(_of_pages, pages)


def _of_pages(pages: dict[str, LastPage]) -> SeriesFacts:
    some = dict(list(pages.items())[:_PAGES])
    texts = {name: text_of(page) for name, page in some.items()}
    return series_of(texts, origin="analyzer.targets", whole=len(some) == len(pages))


def _cluster(held: PartReading[Any]) -> ClusterFacts | Missing:
    if isinstance(held.value, ClusterFacts):
        return held.value
    error = held.error
    return Missing(
        fact="cluster",
        reason=_REASONS.get(held.state, "no-answer"),
        code=error.code if error else "",
        detail=str(error) if error else "",
    )
