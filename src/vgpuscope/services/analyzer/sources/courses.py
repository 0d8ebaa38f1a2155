"""Values over time of a few GPUs, from the source of the analyses: the means of equal parts of a window."""

import asyncio
from collections.abc import Collection, Iterable, Iterator
from typing import cast

from vgpuscope.knowledge.exporters import GROUPS, Quantity
from vgpuscope.knowledge.series_labels import SeriesIdentity
from vgpuscope.logic.opinion.courses import SLICES, Courses
from vgpuscope.model.analysis import Term, Track, Window
from vgpuscope.model.opinion import PartId
from vgpuscope.model.quantity import DeviceUUID, Seconds, UnixTime
from vgpuscope.services.analyzer.cycle import ReadingSource
from vgpuscope.services.analyzer.sources.own_scrapes import ScrapeSource
from vgpuscope.services.analyzer.sources.prometheus.reading import PrometheusSource

_WANTED: frozenset[str] = frozenset({"gpu_util", "process_sm", "sm_active", "mem_copy", "mem_used", "power"})
_WITHIN: Seconds = 15.0
_Found = dict[PartId, dict[Term, list[float | None]]]


async def read_courses(source: ReadingSource, window: Window, gpu_ids: Collection[DeviceUUID]) -> Courses:
    """The courses of these GPUs and their tenants; empty if the source cannot give them. May raise QueryFailed."""
    if not gpu_ids:
        return {}
    if isinstance(source, PrometheusSource):
        return _frozen(await _queried(source, window, gpu_ids))
    if isinstance(source, ScrapeSource):
        return _frozen(await _scraped(source, window, frozenset(gpu_ids)))
    return {}


def _frozen(found: _Found) -> Courses:
    return {part: {term: tuple(values) for term, values in terms.items()} for part, terms in found.items()}


# ── our own scrapes ──────────────────────────────────────────────────────────────────────────────────────────────


async def _scraped(source: ScrapeSource, window: Window, gpu_ids: frozenset[DeviceUUID]) -> _Found:
    found: _Found = {}
    long = window.seconds / SLICES
    for number in range(SLICES):
        begin = window.begin + number * long
        for track in source.tracks_of(gpu_ids, begin=begin, end=begin + long):
            for term, mean in _means(track):
                _course(found, _part(track), term)[number] = mean
        await asyncio.sleep(0)  # the other tasks get a turn
    return found


def _means(track: Track) -> Iterator[tuple[Term, float]]:
    return ((term, stat.mean) for term, stat in track.terms.items() if term in _WANTED and stat.mean is not None)


# ── a PromQL engine ──────────────────────────────────────────────────────────────────────────────────────────────


async def _queried(source: PrometheusSource, window: Window, gpu_ids: Collection[DeviceUUID]) -> _Found:
    """One query for each quantity of each group. A step is never shorter than two samples."""
    step = max(window.seconds / SLICES, 2 * window.interval)
    by = asyncio.get_running_loop().time() + _WITHIN
    asked = [
        (quantity, source.course(group, name, gpu_ids, window=window, step=step, by=by))
        for group in GROUPS
        for quantity in group.quantities
        if (name := _name(quantity, source.present))
    ]
    answers = await asyncio.gather(*(answer for _, answer in asked))
    found: _Found = {}
    for (quantity, _), series in zip(asked, answers, strict=True):
        for where, samples in series:
            values = _course(found, _part(where), cast("Term", quantity.part), max(1, int(window.seconds / step)))
            _take(values, quantity, samples, window.begin, step)
    return found


def _name(quantity: Quantity, present: frozenset[str]) -> str | None:
    """The metric of a wanted quantity, if the engine has it."""
    if quantity.part not in _WANTED or quantity.twin or quantity.counter:
        return None
    return next((name for name in quantity.mean if name in present), None)


def _take(
    values: list[float | None],
    quantity: Quantity,
    samples: Iterable[tuple[float, float]],
    begin: UnixTime,
    step: Seconds,
) -> None:
    """A value is that of the step that ends with it. Of two series the higher one is kept: work must not be hidden."""
    for at, value in samples:
        number = round((at - begin) / step) - 1
        if 0 <= number < len(values) and quantity.plausible(value):
            values[number] = max(values[number] or 0.0, value / quantity.scale)


# ── both ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _part(of: Track | SeriesIdentity) -> PartId:
    tenant = of.tenant
    if tenant is None:
        return PartId(of.gpu_id, of.mig, "", "", "")
    return PartId(of.gpu_id, of.mig, tenant.namespace, tenant.pod, tenant.container)


def _course(found: _Found, part: PartId, term: Term, count: int = SLICES) -> list[float | None]:
    return found.setdefault(part, {}).setdefault(term, [None] * count)
