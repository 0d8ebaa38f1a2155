"""Our own scrapes of agents and dcgm-exporters: the window is kept in memory, and no Prometheus is needed.

Each target has its own task, which scrapes it at its own moment of the interval. If a target is slow, hangs or sends
invalid data, only its own samples are missing.
"""

import asyncio
import logging
import math
import time
import zlib
from collections.abc import Awaitable, Callable
from typing import Final, get_args

import httpx2
from msgspec import Struct

from vgpuscope.formats.prom.promql import parse_condition
from vgpuscope.formats.prom.text import PageReader
from vgpuscope.logic.fleet.scrape_window import WANTED, Choice, Meaning, Pages
from vgpuscope.model.analysis import Fault, Reading, Schema, Target, Track, Window
from vgpuscope.model.errors import ConfigInvalid, ScopeError, SourceDown
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.sources.clients.agent import AGENT
from vgpuscope.sources.clients.served_api import addresses

log = logging.getLogger(__name__)

_LARGEST = 32 * 1024 * 1024  # bytes of a page; an agent's page has well below one million
_STEP = 64 * 1024  # bytes unpacked at a time: the data after a gzip member is copied for each member
_LONGEST = 10.0  # seconds until a page must have arrived
_FROZEN = 60.0  # seconds, or two intervals: an agent that shows one sample for longer has stopped sampling
_SLICE = 0.005  # seconds of reading before other tasks get a turn
_EVERYWHERE: Final = ("all://", "http://", "https://")  # URL patterns to which the environment may assign a proxy
_ACCEPT: Final = {"Accept": "text/plain;version=0.0.4,*/*;q=0.1", "Accept-Encoding": "gzip"}


class LastPage(Struct, frozen=True):
    """The last page of a target, as it arrived."""

    body: bytes
    packed: bool


def unpacked(page: LastPage) -> bytes:
    """The text of a page; SourceDown if it is too large."""
    return _unpacked(page.body) if page.packed else page.body


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
    ) -> None:
        """`targets` returns URLs, with or without /metrics; `target_faults` what could not be found out.

        `condition`: matchers that series must fulfil, as in a PromQL engine. ConfigInvalid if it cannot be used.
        """
        self._choice = Choice(parse_condition(condition))
        self._targets, self._target_faults = targets, target_faults
        self._interval, self._clock = interval, clock
        self._timeout = min(timeout or _LONGEST, 0.8 * interval)
        self._known: dict[str, _Target] = {}  # includes former targets, as long as their samples are used
        self._lost: ScopeError | None = None  # why the targets could not be listed
        self._scrapes = 0
        self.keep = keep
        self._client = _client(token, interval)

    async def run(self) -> None:
        """Scrape all targets forever."""
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

    def last_pages(self) -> dict[str, LastPage]:
        """The last page of each target that answers, by its name."""
        return {target.name: target.page for target in self._followed() if target.up and target.page is not None}

    async def close(self) -> None:
        """Close all connections, once `run` has ended."""
        await self._client.aclose()

    # ── what is known ────────────────────────────────────────────────────────────────────────────────────────────

    async def _tracks(self, begin: UnixTime, end: UnixTime) -> list[Track]:
        """All tracks, target by target; other tasks get a turn in between."""
        clock = asyncio.get_running_loop().time
        found: list[Track] = []
        since = clock()
        for target in tuple(self._known.values()):
            found += target.pages.tracks(begin=begin, end=end, interval=self._interval)
            if clock() - since > _SLICE:
                await asyncio.sleep(0)
                since = clock()
        return found

    def _followed(self) -> "list[_Target]":
        return [target for target in self._known.values() if target.followed]

    def _faults(self) -> tuple[Fault, ...]:
        down = [Fault(part=t.name, code=t.error.code, message=str(t.error)) for t in self._followed() if t.error]
        lost = self._lost
        own = [Fault(part="targets", code=lost.code, message=str(lost))] if lost else []
        return (*own, *self._target_faults(), *down)

    def _nothing(self) -> SourceDown:
        if self._lost:
            return SourceDown(f"no targets are known: {self._lost}", hint=self._lost.advice)
        followed = self._followed()
        down = [target for target in followed if target.error]
        if down:
            first = f"{down[0].name}: {down[0].error}"
            return SourceDown(f"{len(down)} of {len(followed)} targets are down, none is up; {first}", hint=_CHECK)
        return SourceDown("no target has been scraped yet" if followed else "there are no targets", hint=_CHECK)

    # ── scraping ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _refresh(self, tasks: asyncio.TaskGroup) -> None:
        """Start with new targets and stop with removed ones; if the targets cannot be listed, nothing changes."""
        try:
            wanted = dict(map(_address, await self._targets()))
        except ScopeError as e:
            if self._lost is None:
                log.warning("targets not listed", extra={"error_code": e.code, "err": str(e)})
            self._lost = e
            return
        self._lost = None
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
        due = clock() + zlib.crc32(target.name.encode()) / 2**32 * interval
        while True:
            await asyncio.sleep(due - clock())
            await self._scrape(target)
            target.pages.forget(self._clock() - self.keep - 2 * interval)
            due += interval * max(1, math.ceil((clock() - due) / interval))

    async def _scrape(self, target: "_Target") -> None:
        self._scrapes += 1
        at, clock = self._clock(), asyncio.get_running_loop().time
        began = clock()
        try:
            async with asyncio.timeout(self._timeout):
                page = await self._page(target)
            if log.isEnabledFor(logging.DEBUG):
                told = {"target": target.name, "seconds": round(clock() - began, 6), "bytes": len(page)}
                log.debug("scrape", extra={"fields": told})
            target.take(at, page, frozen=max(_FROZEN, 2 * self._interval))
        except TimeoutError:
            target.failed(SourceDown(f"no whole page within {self._timeout:g} s"))
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as e:
            target.failed(SourceDown(" ".join(str(e).split()) or type(e).__name__))
        except SourceDown as e:
            target.failed(e)

    async def _page(self, target: "_Target") -> bytes:
        """The target's page, unpacked."""
        async with self._client.stream("GET", target.url) as answer:
            if answer.status_code != httpx2.codes.OK:
                raise SourceDown(f"answers {answer.status_code} {answer.reason_phrase}".rstrip(), hint=_CHECK)
            if answer.headers.get("content-type", "").startswith("text/html"):
                raise SourceDown("answers with HTML, not with metrics", hint=_CHECK)
            packed = answer.headers.get("content-encoding", "") == "gzip"
            body = await _body(answer)
        target.page = LastPage(body, packed)
        return unpacked(target.page)


class _Target:
    """One target: its address, the samples of its pages, and whether it is up."""

    def __init__(self, name: str, choice: Choice) -> None:
        self.name = name  # its address, without credentials
        self.url = ""
        self.pages = Pages(choice, instance=name)
        self.error: ScopeError | None = None  # of the last scrape
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
        self._task, self.error, self.up = None, None, False

    def take(self, at: UnixTime, page: bytes, *, frozen: Seconds) -> None:
        """Keep a page's samples; SourceDown if the page has shown the same sample for too long."""
        samples = self._reader.read(page, at=at, late=frozen)
        old = self.pages.unchanged_for(at, samples)
        if old > frozen:
            raise SourceDown(f"has taken no sample for {old:.0f} s", hint="See its log and /healthz.")
        self.pages.take(at, samples)
        self.up, self.answered = True, at
        if self.error:
            log.info("target is back", extra={"target": self.name})
        self.error = None

    def failed(self, error: ScopeError) -> None:
        if self.error is None:
            log.warning("target is down", extra={"target": self.name, "error_code": error.code, "err": str(error)})
        self.error, self.up = error, False


_CHECK = "Check analyzer.targets or analyzer.discover_services, and that the network allows connections to them."


def _address(url: str) -> tuple[str, str]:
    """The name of a target, and the URL of its page."""
    name, base = addresses(AGENT, url)
    return name, f"{base}/metrics"


def _client(token: str | None, interval: Seconds) -> httpx2.AsyncClient:
    """A client without proxies, which do not reach pods, and without redirects, which would forward the token."""
    try:
        return httpx2.AsyncClient(
            headers=_ACCEPT | ({"Authorization": f"Bearer {token}"} if token else {}),
            mounts=dict.fromkeys(_EVERYWHERE),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=512, keepalive_expiry=2 * interval),
            timeout=None,  # the whole scrape has one
        )
    except OSError as e:  # SSL_CERT_FILE is read here
        raise ConfigInvalid(f"the CA file cannot be used: {e}", hint="Check SSL_CERT_FILE.") from e


async def _body(answer: httpx2.Response) -> bytes:
    """The whole page, still compressed, so that all targets can be scraped at once with little memory."""
    parts: list[bytes] = []
    left = _LARGEST
    async for chunk in answer.aiter_raw():
        left -= len(chunk)
        if left < 0:
            raise _too_large()
        parts.append(chunk)
    return b"".join(parts)


def _unpacked(body: bytes) -> bytes:
    """The decompressed page; SourceDown if it is too large, however small it was compressed."""
    unpacker = _Unpacker()
    parts: list[bytes] = []
    left = _LARGEST
    for at in range(0, len(body), _STEP):
        parts.append(unpacker.more(body[at : at + _STEP], left + 1))
        left -= len(parts[-1])
        if left < 0:
            raise _too_large()
    if not unpacker.ended:
        raise SourceDown("the page was cut off")
    return b"".join(parts)


def _too_large() -> SourceDown:
    return SourceDown(f"the page is larger than {_LARGEST >> 20} MiB")


class _Unpacker:
    """Decompresses gzip as it arrives, member by member: our own large pages have several members."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(zlib.MAX_WBITS | 16)

    @property
    def ended(self) -> bool:
        return self._member.eof

    def more(self, chunk: bytes, most: int) -> bytes:
        """Decompress a chunk, up to `most` bytes."""
        parts: list[bytes] = []
        while chunk and most > 0:
            if self._member.eof:
                self._member = zlib.decompressobj(zlib.MAX_WBITS | 16)
            try:
                parts.append(self._member.decompress(chunk, most))
            except zlib.error as e:
                raise SourceDown(f"the page does not match its content encoding: {e}") from e
            most -= len(parts[-1])
            chunk = self._member.unused_data
        return b"".join(parts)
