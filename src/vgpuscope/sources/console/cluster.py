"""Everything that the console needs from the cluster exporter: its ledger, the waiting pods, and its metrics."""

import asyncio
import hashlib
import time
from collections.abc import Callable
from typing import Any, TypeVar

import httpx2
import msgspec
from msgspec import structs

from vgpuscope.catalog import cluster as m
from vgpuscope.catalog import scheduling as s
from vgpuscope.formats.prom.text import PageReader
from vgpuscope.model.cluster import NodeLedger
from vgpuscope.model.console.facts import ClusterFacts, SeenSeries
from vgpuscope.model.errors import QueryForbidden, ScopeError, SourceDown
from vgpuscope.model.pending import PendingList
from vgpuscope.model.quantity import Seconds
from vgpuscope.sources.clients.cluster import CLUSTER, PENDING, ClusterApi

T = TypeVar("T")

_PAGE_KEPT: Seconds = 15.0  # the page of a large cluster has tens of megabytes
_SHARE = 20  # and is read at most for 1/20 of the time
_REJECTED = frozenset({httpx2.codes.UNAUTHORIZED, httpx2.codes.FORBIDDEN})
_PLAIN = {"Accept-Encoding": "identity"}  # the page has several gzip members, and the client would read only one
_STAGE = s.STAGE_SECONDS.name
WANTED = frozenset(
    {
        *(f"{_STAGE}{suffix}" for suffix in ("_bucket", "_sum", "_count")),
        *(metric.name for metric in (s.BINDS, s.FAILURES, m.QUOTA_USED, m.QUOTA_LIMIT, m.WATCH_UP, m.UNPLACED)),
    }
)


class ClusterPart(ClusterApi[Any]):
    """A client of one cluster exporter; what has not changed is not decoded again."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: Seconds = 30.0,
        clock: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        super().__init__(CLUSTER, url, content=Any, timeout=timeout, token=token)
        self._clock, self._page_due = clock, float("-inf")
        self._reader: PageReader[SeenSeries] = PageReader(wanted=WANTED, meaning=SeenSeries)
        self._page: tuple[tuple[SeenSeries, float], ...] | None = None
        self._bodies: dict[str, tuple[bytes, Any]] = {}  # path → digest and content
        self._last: ClusterFacts | None = None

    async def read(self) -> ClusterFacts:
        """The answers of now; raises SourceDown if the ledger or the waiting pods cannot be fetched."""
        if missing := await self.missing():
            raise SourceDown(f"the cluster exporter has not listed {', '.join(missing)} yet")
        nodes, pending, fault = await asyncio.gather(
            self._fetched(CLUSTER.path, tuple[NodeLedger, ...]),
            self._fetched(f"{PENDING.path}?all=true", PendingList),
            self._read_page(),
        )
        found = self._numbered(ClusterFacts(nodes=nodes, pending=pending, page=self._page, fault=fault))
        if self._last is None or not _same(found, self._last):
            self._last = found
        return self._last

    def _numbered(self, found: ClusterFacts) -> ClusterFacts:
        last = self._last
        revision = 1 if last is None else last.revision + (found.nodes is not last.nodes)
        return structs.replace(found, revision=revision)

    async def explain(self, namespace: str, pod: str) -> PendingList:
        """One pod that waits or waited, with the numbers behind its reasons."""
        query = httpx2.QueryParams({"namespace": namespace, "pod": pod, "all": "true"})
        return await self._fetched(f"{PENDING.path}?{query}", PendingList, keep=False)

    async def _fetched(self, path: str, shape: type[T], *, keep: bool = True) -> T:
        answer = await self.get(path)
        if answer.status_code in _REJECTED:
            refused = self._refused(answer)
            raise QueryForbidden(str(refused), hint="Set analyzer.scrape_token to the cluster exporter's bearer token.")
        if answer.status_code != httpx2.codes.OK:
            raise self._refused(answer)
        return await asyncio.to_thread(self._read_content, path, answer.content, shape, keep=keep)

    def _read_content(self, path: str, body: bytes, shape: type[T], *, keep: bool) -> T:
        digest = hashlib.blake2b(body, digest_size=16).digest()
        known = self._bodies.get(path)
        if known is not None and known[0] == digest:
            return known[1]  # type: ignore[no-any-return]
        try:
            found = msgspec.json.decode(body, type=shape)
        except (msgspec.MsgspecError, UnicodeDecodeError) as e:
            hint = "Compare `vgpuscope --version` of analyzer and cluster exporter."
            raise SourceDown(f"{self.url} answers, but not with {CLUSTER.content}: {e}", hint=hint) from e
        if keep:
            self._bodies[path] = (digest, found)
        return found

    async def _read_page(self) -> ScopeError | None:
        """Read the metrics, if it is time; returns why that failed."""
        began = self._clock()
        if began < self._page_due:
            return None
        try:
            answer = await self.get("/metrics", headers=_PLAIN)
            if answer.status_code != httpx2.codes.OK:
                raise SourceDown(f"{self.url}/metrics answers {answer.status_code}")
            found = await asyncio.to_thread(self._reader.read, answer.content)
        except ScopeError as e:
            self._page = None
            return e
        self._page = tuple(found)
        now = self._clock()
        self._page_due = now + max(_PAGE_KEPT, _SHARE * (now - began))
        return None


def _same(found: ClusterFacts, last: ClusterFacts) -> bool:
    """Whether nothing has changed; the list of waiting pods names the moment at which it was made."""
    return (
        found.nodes is last.nodes
        and found.pending.pending == last.pending.pending
        and found.page == last.page
        and str(found.fault) == str(last.fault)
    )
