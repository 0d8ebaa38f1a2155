"""Our own scrapes of agents and dcgm-exporters: the window is kept in memory, and no Prometheus is needed.

Each target has its own task, which scrapes it at its own moment of the interval. If a target is slow, hangs or sends
invalid data, only its own samples are missing.
"""

import asyncio
import logging
import math
import time
import zlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple, get_args

from vgpuscope.formats.prom.promql import parse_condition
from vgpuscope.formats.prom.text import PageReader
from vgpuscope.logic.fleet.scrape_window import MOST_ROWS, WANTED, Meaning, Pages, SeriesFilter
from vgpuscope.model.analysis import Fault, Reading, Schema, Target, Track, Window
from vgpuscope.model.errors import ConfigInvalid, PageMalformed, ScopeError, SourceDown
from vgpuscope.model.quantity import Ratio, Seconds, UnixTime
from vgpuscope.runtime.units import Units
from vgpuscope.sources.clients.agent import AGENT
from vgpuscope.sources.clients.served_api import addresses
from vgpuscope.sources.fleet.scrape import CHECK_TARGETS, LastPage, PageClient

log = logging.getLogger(__name__)

_MOST_SAMPLES = 100_000  # of a page that are needed; an agent's page has well below ten thousand
_LONGEST = 10.0  # seconds until a page must have arrived
_FROZEN = 60.0  # seconds, or two intervals: an agent that shows one sample for longer has stopped sampling
_SLICE = 0.005  # seconds of reading before other tasks get a turn


def _moment(target: str) -> Ratio:
    """The part of an interval after which a target is scraped: spread evenly, and the same in every process."""
    return zlib.crc32(target.encode()) / 2**32


class ScrapedTarget(NamedTuple):
    """One target, for those who look at the scrapes themselves."""

    name: str
    url: str  # of its page, with credentials
    up: bool
    page: LastPage | None  # the last one that was answered
    reason: str = ""  # why it is down


class ScrapeSource:
    """Readings from our own scrapes, which `run` makes."""

    def __init__(
        self,
        *,
        targets: Callable[[], Awaitable[tuple[str, ...]]],
        interval: Seconds,
        keep: Seconds,
        condition: str = "{}",
        token: str | None = None,
        timeout: Seconds | None = None,
        target_faults: Callable[[], tuple[Fault, ...]] = tuple,
        clock: Callable[[], UnixTime] = time.time,
        moment: Callable[[str], Ratio] = _moment,
        frozen: Seconds = _FROZEN,
        turn: Seconds = _SLICE,
    ) -> None:
        """`targets` returns URLs, with or without /metrics; `target_faults` what could not be found out.

        `condition`: matchers that series must fulfil, as in a PromQL engine. ConfigInvalid if it cannot be used.
        `moment`: when in each interval a target is scraped. `turn`: time of reading before other tasks get a turn.
        """
        self._choice = SeriesFilter(parse_condition(condition))
        self._targets, self._target_faults = targets, target_faults
        self._interval, self._clock = interval, clock
        self._moment, self._turn = moment, turn
        self._frozen = max(frozen, 2 * interval)
        self._timeout = min(timeout or _LONGEST, 0.8 * interval)
        self._known: dict[str, _Target] = {}  # includes former targets, as long as their samples are used
        self._listed = False  # whether the targets have been listed once
        self._lost: ScopeError | None = None  # why the targets could not be listed, or one of them cannot be scraped
        self.units = Units(log)
        self._scrapes = 0
        self.keep = keep
        self._client = PageClient(token=token, interval=interval)

    async def run(self) -> None:
        """Scrape all targets forever; what goes wrong with one of them is its own error."""
        for target in self._known.values():  # of an earlier run that was ended
            target.leave()
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._refresh(tasks)
                await asyncio.sleep(self._interval)

    async def ready(self) -> None:
        """SourceDown if no target answers now."""
        if not any(target.up for target in self._followed()):
            raise self._nothing()

    @property
    def tried(self) -> bool:
        """Whether every known target was scraped once, or failed."""
        followed = self._followed()
        return bool(followed) and all(target.up or target.error for target in followed)

    async def read(self, *, end: UnixTime, seconds: Seconds) -> Reading:
        """The samples of the window; SourceDown if there are none because no target could be scraped."""
        self.keep = max(self.keep, seconds)
        tracks = await self._tracks(end - seconds, end)
        if not tracks and not any(target.followed and target.up for target in self._known.values()):
            raise self._nothing()
        scrapes, self._scrapes = self._scrapes, 0
        schemas = {track.schema for track in tracks}
        return Reading(
            window=Window(begin=end - seconds, end=end, interval=self._interval),
            tracks=tuple(tracks),
            schemas=tuple(schema for schema in get_args(Schema) if schema in schemas),
            source=f"own scrapes of {len(self._followed())} targets",
            requests=scrapes,
            faults=self._faults(),
            targets=tuple(target.state() for target in self._followed()),
            own=True,
        )

    def tracks_of(self, gpu_ids: Collection[str], *, begin: UnixTime, end: UnixTime) -> Iterator[Track]:
        """The tracks of some GPUs in a part of the window; only targets that report one of them are looked at."""
        for target in tuple(self._known.values()):
            if target.pages.reports(gpu_ids):
                found = target.pages.tracks(begin=begin, end=end, interval=self._interval)
                yield from (track for track in found if track.gpu_id in gpu_ids)

    def last_pages(self) -> dict[str, LastPage]:
        """The last page of each target that answers, by its name."""
        return {target.name: target.page for target in self._followed() if target.up and target.page is not None}

    def scraped(self) -> tuple[ScrapedTarget, ...]:
        """Every target, with the last page that it answered, also if it is down now."""
        return tuple(
            ScrapedTarget(target.name, target.url, target.up, target.page, target.state().reason)
            for target in self._followed()
        )

    async def close(self) -> None:
        """Close all connections, once `run` has ended."""
        await self._client.close()

    # ── what is known ────────────────────────────────────────────────────────────────────────────────────────────

    async def _tracks(self, begin: UnixTime, end: UnixTime) -> list[Track]:
        """All tracks, target by target; other tasks get a turn in between."""
        clock = asyncio.get_running_loop().time
        found: list[Track] = []
        since = clock()
        for target in tuple(self._known.values()):
            try:
                found += target.pages.tracks(begin=begin, end=end, interval=self._interval)
            except Exception as e:
                target.failed(self.units.failed(target.name, e))
            if clock() - since > self._turn:
                await asyncio.sleep(0)
                since = clock()
        return found

    def _followed(self) -> "list[_Target]":
        return [target for target in self._known.values() if target.followed]

    def _faults(self) -> tuple[Fault, ...]:
        errors = [(target.name, target.error or target.doubt) for target in self._followed()]
        if self._lost:
            errors.insert(0, ("targets", self._lost))
        found = [Fault(part=part, code=error.code, message=str(error)) for part, error in errors if error]
        return (*self._target_faults(), *found)

    def _nothing(self) -> SourceDown:
        if self._lost:
            return SourceDown(f"no targets are known: {self._lost}", hint=self._lost.advice)
        followed = self._followed()
        down = [target for target in followed if target.error]
        if down:
            first = f"{down[0].name}: {down[0].error}"
            counted = f"{len(down)} of {len(followed)} targets are down, none is up"
            return SourceDown(f"{counted}; {first}", hint=CHECK_TARGETS)
        none = self._listed and not followed
        return SourceDown("there are no targets" if none else "no target has been scraped yet", hint=CHECK_TARGETS)

    # ── scraping ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _refresh(self, tasks: asyncio.TaskGroup) -> None:
        """Start with new targets and stop with removed ones; if the targets cannot be listed, nothing changes."""
        try:
            urls = await self._targets()
        except ScopeError as e:
            self._not_listed(e)
        except Exception as e:
            self._not_listed(self.units.failed("targets", e))
        else:
            self._take_targets(self._addressed(urls), tasks)
            self._listed = True

    def _not_listed(self, error: ScopeError) -> None:
        if self._lost is None or str(self._lost) != str(error):
            log.warning("targets not listed", extra={"error_code": error.code, "err": str(error)})
        self._lost = error

    def _addressed(self, urls: Iterable[str]) -> dict[str, str]:
        """The URLs of the pages, by the names of the targets; an address that cannot be used is left out."""
        found: dict[str, str] = {}
        wrong: ScopeError | None = None
        for url in urls:
            try:
                name, found_url = _address(url)
                found[name] = found_url
            except ConfigInvalid as e:
                wrong = wrong or e
        if wrong is not None:
            self._not_listed(wrong)
        else:
            self._lost = None
        return found

    def _take_targets(self, wanted: Mapping[str, str], tasks: asyncio.TaskGroup) -> None:
        for name, url in wanted.items():
            target = self._known.get(name) or _Target(name, self._choice)
            self._known[name], target.url = target, url
            if not target.followed:
                target.follow(tasks.create_task(self._follow(target), name=f"scrapes of {name}"))
        oldest = self._clock() - self.keep - 2 * self._interval
        for name, target in tuple(self._known.items()):
            if name not in wanted:
                target.leave()
                target.pages.forget(oldest)
                if not target.pages:
                    del self._known[name]

    async def _follow(self, target: "_Target") -> None:
        """Scrape one target at its own moment of every interval; a missed scrape is skipped."""
        clock, interval = asyncio.get_running_loop().time, self._interval
        due = clock() + self._moment(target.name) * interval
        while True:
            await asyncio.sleep(due - clock())
            try:
                await self._scrape(target)
                target.pages.forget(self._clock() - self.keep - 2 * interval)
                self.units.good(target.name)
            except Exception as e:
                target.failed(self.units.failed(target.name, e))
            due += interval * max(1, math.ceil((clock() - due) / interval))

    async def _scrape(self, target: "_Target") -> None:
        self._scrapes += 1
        at, clock = self._clock(), asyncio.get_running_loop().time
        began, frozen = clock(), self._frozen
        try:
            async with asyncio.timeout(self._timeout):
                target.page, page = await self._client.fetch(target.url)
                if log.isEnabledFor(logging.DEBUG):
                    told = {"target": target.name, "seconds": round(clock() - began, 6), "bytes": len(page)}
                    log.debug("scrape", extra={"fields": told})
                samples = await target.samples(page, at=at, late=frozen, turn=self._turn)
            target.take(at, samples, frozen=frozen)
        except TimeoutError:
            target.failed(SourceDown(f"no whole page within {self._timeout:g} s"))
        except SourceDown as e:
            target.failed(e)


class _Target:
    """One target: its address, the samples of its pages, and whether it is up."""

    def __init__(self, name: str, choice: SeriesFilter) -> None:
        self.name = name  # its address, without credentials
        self.url = ""
        self.pages = Pages(choice, instance=name)
        self.error: ScopeError | None = None  # of the last scrape
        self.doubt: ScopeError | None = None  # what was skipped on the last page
        self.up = False  # the last scrape was answered
        self.page: LastPage | None = None
        self.answered: UnixTime | None = None  # time of the last answered scrape; None: never
        self._reader: PageReader[Meaning] = PageReader(wanted=WANTED, meaning=self.pages.meaning)
        self._task: asyncio.Task[None] | None = None

    @property
    def followed(self) -> bool:
        return self._task is not None

    def state(self) -> Target:
        """The target as it is reported; one that has not answered yet is reported as down."""
        if self.up:
            return Target(name=self.name, up=True)
        reason = str(self.error) if self.error else "has not been scraped yet"
        return Target(name=self.name, up=False, since=self.answered, reason=reason)

    def follow(self, task: asyncio.Task[None]) -> None:
        self._task = task

    def leave(self) -> None:
        if self._task:
            self._task.cancel()
        self._task, self.error, self.doubt, self.up = None, None, None, False

    async def samples(self, page: bytes, *, at: UnixTime, late: Seconds, turn: Seconds) -> list[tuple[Meaning, float]]:
        """A page's samples; other tasks get a turn in between. SourceDown if there are too many."""
        clock = asyncio.get_running_loop().time
        found: list[tuple[Meaning, float]] = []
        since = clock()
        for some in self._reader.parts(page, at=at, late=late):
            found += some
            if len(found) > _MOST_SAMPLES:
                raise SourceDown(f"the page has more than {_MOST_SAMPLES:,} samples of GPUs and containers")
            if clock() - since > turn:
                await asyncio.sleep(0)
                since = clock()
        return found

    def take(self, at: UnixTime, samples: list[tuple[Meaning, float]], *, frozen: Seconds) -> None:
        """Keep a page's samples; SourceDown if the page has shown the same sample for too long."""
        old = self.pages.unchanged_for(at, samples)
        if old > frozen:
            raise SourceDown(f"has taken no sample for {old:.0f} s", hint="See its log and /healthz.")
        self.pages.take(at, samples)
        self.up, self.answered = True, at
        if self.error:
            log.info("target is back", extra={"target": self.name})
        self.error = None
        self._note_skipped()

    def _note_skipped(self) -> None:
        """Log once that a page has lines that are skipped, and keep it as a fault until a page has none."""
        malformed, beyond = self._reader.malformed, self.pages.left_out
        told = [f"{malformed} lines of the page are malformed and were skipped"] if malformed else []
        if beyond:
            told.append(f"{beyond} series of more than {MOST_ROWS:,} GPUs and containers were left out")
        doubt = PageMalformed("; ".join(told)) if told else None
        if doubt is not None and self.doubt is None:
            log.warning("page is malformed", extra={"target": self.name, "error_code": doubt.code, "err": str(doubt)})
        self.doubt = doubt

    def failed(self, error: ScopeError) -> None:
        if self.error is None:
            log.warning("target is down", extra={"target": self.name, "error_code": error.code, "err": str(error)})
        self.error, self.up = error, False


def _address(url: str) -> tuple[str, str]:
    """The name of a target, and the URL of its page."""
    name, base = addresses(AGENT, url)
    return name, f"{base}/metrics"
