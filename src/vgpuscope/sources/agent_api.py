"""An agent's latest sample, fetched over HTTP from wherever it runs."""

import asyncio
import contextlib
import time
from email.utils import parsedate_to_datetime
from typing import Self
from urllib.parse import SplitResult, urlsplit

import httpx2
import msgspec

from vgpuscope.model.errors import ConfigInvalid, SourceDown
from vgpuscope.model.usage import NodeSnapshot

DEFAULT_PORT = 9394

_PATH = "/api/v1/node"
_DIRECT = ("all://127.0.0.1", "all://localhost", "all://[::1]")  # a proxy cannot reach what is on this machine
_CLOCK_NOISE = 2.0  # seconds; the Date header counts whole ones and the answer takes time to travel


class _Fault(msgspec.Struct):
    message: str = ""


class _FaultBody(msgspec.Struct):
    error: _Fault


class AgentApi:
    """The door to one agent; a connection is kept between two snapshots."""

    def __init__(self, url: str, *, timeout: float = 3.0, token: str | None = None) -> None:
        self.url, self._address = addresses(url)
        self.clock_offset = 0.0  # seconds that the agent's clock is ahead of ours, where that is more than noise
        self._timeout = timeout
        try:
            self._client = httpx2.AsyncClient(
                headers={"Authorization": f"Bearer {token}"} if token else {},
                mounts=dict.fromkeys(_DIRECT),
                timeout=timeout,
                follow_redirects=True,
            )
        except OSError as e:  # SSL_CERT_FILE is read here
            raise ConfigInvalid(f"the CA file cannot be used: {e}", hint="Check SSL_CERT_FILE.") from e

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def snapshot(self) -> NodeSnapshot:
        """The sample the agent holds now; SourceDown when there is none to be had."""
        answer = await self._get()
        if answer.status_code != httpx2.codes.OK:
            raise _refused(self.url, answer)
        self.clock_offset = _clock_offset(answer.headers.get("date"), time.time())
        try:
            return msgspec.json.decode(answer.content, type=NodeSnapshot)
        except (msgspec.MsgspecError, UnicodeDecodeError) as e:
            raise SourceDown(
                f"{self.url} answers, but not with the sample of a node: {e}",
                hint="Is it a vgpuscope agent, and of this version? `vgpuscope --version` on both sides tells.",
            ) from e

    async def _get(self) -> httpx2.Response:
        try:
            async with asyncio.timeout(self._timeout):  # httpx2 bounds each read, not a body that trickles in
                return await self._client.get(self._address)
        except (TimeoutError, httpx2.TimeoutException) as e:
            raise _nobody(self.url, f"no answer within {self._timeout:g} s") from e
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as e:
            raise _nobody(self.url, str(e) or type(e).__name__) from e


def addresses(url: str) -> tuple[str, str]:
    """What to call the agent (without a password) and where its API is, from anything a person may type."""
    parts = _split(url.strip())
    path = parts.path.rstrip("/").removesuffix(_PATH).removesuffix("/metrics")
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{path}", f"{parts.scheme}://{parts.netloc}{path}{_PATH}"


def _split(url: str) -> SplitResult:
    bare = "://" not in url
    wrong = ConfigInvalid(
        f"{_without_password(url)!r} is not the address of an agent",
        hint="Say HOST, HOST:PORT or http(s)://HOST:PORT.",
    )
    if bare and url.count(":") > 1 and not url.startswith("[") and "@" not in url:
        url = f"[{url}]"  # an IPv6 address as `ip addr` shows it
    try:
        parts = urlsplit(f"http://{url}" if bare else url)
        port = parts.port
    except ValueError as e:
        raise wrong from e
    if parts.scheme not in {"http", "https"} or not parts.hostname or any(c.isspace() for c in parts.netloc):
        raise wrong
    return parts._replace(netloc=f"{parts.netloc.rstrip(':')}:{DEFAULT_PORT}") if bare and port is None else parts


def _without_password(url: str) -> str:
    before, at, host = url.rpartition("@")
    return f"{before.partition('://')[0]}://…@{host}" if at and "://" in before else host


def _nobody(url: str, why: str) -> SourceDown:
    return SourceDown(
        f"no agent answers at {url}: {why}",
        hint="Start one with `vgpuscope agent`, or give the URL: `vgpuscope top HOST:PORT`.",
    )


def _refused(url: str, answer: httpx2.Response) -> SourceDown:
    status = answer.status_code
    if status in {httpx2.codes.UNAUTHORIZED, httpx2.codes.FORBIDDEN}:
        return SourceDown(
            f"the agent at {url} refuses us ({status})",
            hint="Put its bearer token into VGPUSCOPE_TOKEN, or name and password into the URL.",
        )
    if status == httpx2.codes.NOT_FOUND:
        return SourceDown(
            f"{url} is no vgpuscope agent: it has no {_PATH}",
            hint="Give the address of an agent; it listens on port 9394 unless told otherwise.",
        )
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
        said = msgspec.json.decode(answer.content, type=_FaultBody).error.message
        return SourceDown(f"the agent at {url} has no sample ({status}): {said}", hint="It may have just started.")
    return SourceDown(f"the agent at {url} has no sample ({status})", hint="The agent's log says why.")


def _clock_offset(date: str | None, now: float) -> float:
    try:
        offset = parsedate_to_datetime(date or "").timestamp() - now
    except ValueError:
        return 0.0
    return offset if abs(offset) > _CLOCK_NOISE else 0.0
