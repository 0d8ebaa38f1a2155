"""Calls a control service: one POST, signed by the Standard Webhooks scheme, never redirected.

The signature covers the idempotency key, the time and the body. A receiver that remembers the keys of the last day sees
each call once, however often it was sent.
"""

import asyncio
import base64
import hashlib
import hmac
from types import TracebackType
from typing import Self

import httpx2

from vgpuscope.model.errors import CallFailed
from vgpuscope.model.quantity import Seconds, UnixTime

_PREFIX = "whsec_"
_SHOWN = 200  # characters of a refusal
_READ = 4096  # bytes of a refusal


def signature(secret: str, *, key: str, at: int, body: bytes) -> str:
    """The value of `webhook-signature`."""
    mac = hmac.new(base64.b64decode(secret.removeprefix(_PREFIX)), f"{key}.{at}.".encode() + body, hashlib.sha256)
    return f"v1,{base64.b64encode(mac.digest()).decode()}"


class Webhook:
    """Sends calls to one URL. `timeout` is that of a whole call, however slowly the service answers."""

    def __init__(self, url: str, *, secret: str, timeout: Seconds, agent: str) -> None:
        self._url, self._secret, self._timeout = url, secret, timeout
        self._client = httpx2.AsyncClient(
            timeout=timeout, follow_redirects=False, trust_env=False, headers={"user-agent": agent}
        )

    async def send(self, body: bytes, *, key: str, now: UnixTime) -> int:
        """POST the body; returns the status, any 2xx. CallFailed for everything else."""
        at = int(now)
        headers = {"content-type": "application/json", "accept": "application/json", "webhook-id": key}
        headers["webhook-timestamp"] = str(at)
        if self._secret:
            headers["webhook-signature"] = signature(self._secret, key=key, at=at, body=body)
        headers["accept-encoding"] = "identity"  # the beginning of a refusal can be read without the rest
        try:
            async with asyncio.timeout(self._timeout):
                return await self._sent(body, headers)
        except (TimeoutError, httpx2.TimeoutException) as e:
            raise CallFailed(f"the control service did not answer within {self._timeout:g} s") from e
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as e:
            raise CallFailed(f"the control service did not answer: {type(e).__name__}") from e

    async def _sent(self, body: bytes, headers: dict[str, str]) -> int:
        async with self._client.stream("POST", self._url, content=body, headers=headers) as answer:
            if answer.is_success:
                return answer.status_code  # whatever follows is not read
            text = b""
            async for piece in answer.aiter_raw(_READ):
                text += piece
                if len(text) >= _READ:
                    break
        shown = text[:_READ].decode(errors="replace")[:_SHOWN]
        raise CallFailed(f"the control service answered {answer.status_code}: {shown!r}")

    async def close(self) -> None:
        await self._client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
