"""Calls a control service: one POST, signed by the Standard Webhooks scheme, never redirected.

The signature covers the idempotency key, the time and the body. A receiver that remembers the keys of the last day sees
each call once, however often it was sent.
"""

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


def signature(secret: str, *, key: str, at: int, body: bytes) -> str:
    """The value of `webhook-signature`."""
    mac = hmac.new(base64.b64decode(secret.removeprefix(_PREFIX)), f"{key}.{at}.".encode() + body, hashlib.sha256)
    return f"v1,{base64.b64encode(mac.digest()).decode()}"


class Webhook:
    """Sends calls to one URL."""

    def __init__(self, url: str, *, secret: str, timeout: Seconds, agent: str) -> None:
        self._url, self._secret = url, secret
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
        try:
            answer = await self._client.post(self._url, content=body, headers=headers)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as e:
            raise CallFailed(f"the control service did not answer: {type(e).__name__}") from e
        if not answer.is_success:
            raise CallFailed(f"the control service answered {answer.status_code}: {answer.text[:_SHOWN]!r}")
        return answer.status_code

    async def close(self) -> None:
        await self._client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
