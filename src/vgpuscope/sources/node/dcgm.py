"""The profiling values of a dcgm-exporter on this node, for GPUs whose driver has none (Ampere and older)."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Collection
from typing import TYPE_CHECKING

from vgpuscope.formats.prom.dcgm import DcgmPages
from vgpuscope.model.activity import DcgmPage
from vgpuscope.model.errors import DcgmNotFound, DcgmUnreadable, SourceDown
from vgpuscope.model.pod import Pod
from vgpuscope.model.quantity import Seconds
from vgpuscope.sources.bodies import BodyRefused, plain_body

if TYPE_CHECKING:
    import httpx2

_LARGEST = 16 * 1024 * 1024  # bytes; the page of 16 GPUs with 7 instances each has less than 1 MiB
_POLL: Seconds = 10.0  # an exporter collects every 30 s by default
_TIMEOUT: Seconds = 5.0


class DcgmExporter:
    """Reads an exporter's page at every poll. `find` gives its address each time: an exporter's pod may be replaced."""

    def __init__(
        self,
        find: Callable[[], str],
        *,
        poll: Seconds = _POLL,
        timeout: Seconds = _TIMEOUT,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._find, self._poll, self._timeout, self._clock = find, poll, timeout, clock
        self._pages = DcgmPages()
        self._url = ""
        self._interrupted = False

    async def follow(self) -> AsyncGenerator[DcgmPage, None]:
        """What was read at every poll, even if nothing of it can be used; DcgmNotFound or DcgmUnreadable."""
        import httpx2  # noqa: PLC0415 - 6 MB that only this choice needs

        async with httpx2.AsyncClient(timeout=self._timeout, trust_env=False) as client:
            while True:
                page, at = await self._page(client), self._clock()
                interrupted, self._interrupted = self._interrupted, False
                yield DcgmPage(self._pages.read(page, at=at), at, interrupted)
                await asyncio.sleep(self._poll)

    async def _page(self, client: "httpx2.AsyncClient") -> bytes:
        """The newest page. After an interruption or at another address it may be that of another release."""
        try:
            url = self._find()
            page = await self._get(client, url)
        except SourceDown:
            self._interrupted = True
            raise
        if url != self._url:
            self._interrupted = True
            self._url = url
        return page

    async def _get(self, client: "httpx2.AsyncClient", url: str) -> bytes:
        import httpx2  # noqa: PLC0415

        try:
            async with asyncio.timeout(self._timeout):  # the client's own timeout is per read: a trickle would pass it
                async with client.stream("GET", url, headers={"accept-encoding": "gzip"}) as answer:
                    body = await plain_body(answer, most=_LARGEST)
        except (httpx2.TimeoutException, TimeoutError) as e:
            raise DcgmUnreadable(f"{url}: no answer within {self._timeout:g} s") from e
        except (httpx2.HTTPError, httpx2.InvalidURL, BodyRefused) as e:
            raise DcgmUnreadable(f"{url}: {str(e) or type(e).__name__}") from e
        if answer.status_code != 200:
            raise DcgmUnreadable(f"{url}: status {answer.status_code}")
        return body


def page_url(setting: str) -> str:
    """The address of the page, from a setting that may have no path."""
    host = setting.partition("://")[2]
    return setting if "/" in host.rstrip("/") else f"{setting.rstrip('/')}/metrics"


def exporter_url(pods: Collection[Pod] | None, *, namespace: str = "") -> str:
    """The page of the only dcgm-exporter among the pods of this node; DcgmNotFound if there is not exactly one.

    `namespace` limits the search: anyone who may create pods can name an image dcgm-exporter.
    """
    if pods is None:
        raise DcgmNotFound("the pods of this node are not known")
    running = [pod for pod in pods if pod.dcgm and not pod.ended and namespace in {"", pod.namespace}]
    found = sorted((f"{pod.namespace}/{pod.name}", pod.dcgm) for pod in running)
    if not found:
        where = f" in the namespace {namespace}" if namespace else ""
        raise DcgmNotFound(f"no pod of this node runs dcgm-exporter{where}")
    if len(found) > 1:
        names = ", ".join(name for name, _ in found[:3])
        raise DcgmNotFound(f"{len(found)} pods of this node run dcgm-exporter ({names}); choose one with --dcgm URL")
    return f"http://{found[0][1]}/metrics"
