"""The page of one scrape target: fetched, bounded in size, and unpacked."""

from typing import Final

import httpx2
from msgspec import Struct

from vgpuscope.model.errors import ConfigInvalid, SourceDown
from vgpuscope.model.quantity import Seconds
from vgpuscope.sources.authorities import authorities
from vgpuscope.sources.bodies import BodyRefused, encoding_of, sent_body, unpacked, unpacked_at_once

CHECK_TARGETS: Final = (
    "Check analyzer.targets or analyzer.discover_services, and that the network allows connections to them."
)
_LARGEST = 32 * 1024 * 1024  # bytes of a page; an agent's page has well below one million
_EVERYWHERE: Final = ("all://", "http://", "https://")  # URL patterns to which the environment may assign a proxy
_ACCEPT: Final = {"Accept": "text/plain;version=0.0.4,*/*;q=0.1", "Accept-Encoding": "gzip"}


class LastPage(Struct, frozen=True):
    """The last page of a target, as it arrived."""

    body: bytes
    packed: bool


def text_of(page: LastPage) -> bytes:
    """The text of a page; it is not too large, because it was read once before."""
    return unpacked_at_once(page.body, most=_LARGEST) if page.packed else page.body


class PageClient:
    """Fetches pages of all targets."""

    def __init__(self, *, token: str | None, interval: Seconds) -> None:
        """`interval`: of the scrapes of one target; its connection is kept until the next but one."""
        self._client = _client(token, interval)

    async def fetch(self, url: str) -> tuple[LastPage, bytes]:
        """A page as it arrived, and its text; SourceDown if it cannot be had. The caller sets the deadline."""
        try:
            return await self._fetched(url)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as e:
            raise SourceDown(" ".join(str(e).split()) or type(e).__name__) from e
        except BodyRefused as e:
            raise SourceDown(str(e)) from e

    async def _fetched(self, url: str) -> tuple[LastPage, bytes]:
        async with self._client.stream("GET", url) as answer:
            if answer.status_code != httpx2.codes.OK:
                raise SourceDown(f"answers {answer.status_code} {answer.reason_phrase}".rstrip(), hint=CHECK_TARGETS)
            if answer.headers.get("content-type", "").startswith("text/html"):
                raise SourceDown("answers with HTML, not with metrics", hint=CHECK_TARGETS)
            encoding = encoding_of(answer, "gzip")
            # still packed: all targets may be scraped at once, and the memory for that is little
            body = await sent_body(answer, most=_LARGEST)
        text = await unpacked(body, most=_LARGEST) if encoding else body
        return LastPage(body, bool(encoding)), text

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()


def _client(token: str | None, interval: Seconds) -> httpx2.AsyncClient:
    """A client without proxies, which do not reach pods, and without redirects, which would forward the token."""
    try:
        return httpx2.AsyncClient(
            headers=_ACCEPT | ({"Authorization": f"Bearer {token}"} if token else {}),
            mounts=dict.fromkeys(_EVERYWHERE),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=512, keepalive_expiry=2 * interval),
            timeout=None,  # the whole scrape has one
            verify=authorities(),
        )
    except OSError as e:  # SSL_CERT_FILE and VGPUSCOPE_CA_FILE are read here
        raise ConfigInvalid(
            f"the CA file cannot be used: {e}", hint="Check SSL_CERT_FILE and VGPUSCOPE_CA_FILE."
        ) from e
