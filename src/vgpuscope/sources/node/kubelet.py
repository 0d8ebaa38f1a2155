"""The pods of this node from its kubelet: /pods over HTTPS with our service account's token."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from vgpuscope.formats.kube.lists import ObjectFault, decode_status
from vgpuscope.formats.kube.pods import PodPage, decode_pods
from vgpuscope.model.errors import KubeForbidden, KubeUnreadable
from vgpuscope.model.pod import Pod
from vgpuscope.model.quantity import Seconds
from vgpuscope.model.service import KUBELET_PORT, local
from vgpuscope.sources.bodies import BodyRefused, plain_body

if TYPE_CHECKING:
    import httpx2

    from vgpuscope.formats.hami.seal import Seals

_LARGEST = 128 * 1024 * 1024  # bytes; a node has some hundred pods
_SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


class KubeletPods:
    """Queries the kubelet at every poll, and verifies its certificate with the cluster's CA or the configured one."""

    def __init__(
        self,
        *,
        url: str = f"https://{local(KUBELET_PORT)}",
        token_file: str | None = f"{_SERVICE_ACCOUNT}/token",
        ca_file: str | None = None,
        insecure: bool = False,
        poll: Seconds = 10.0,
        timeout: Seconds = 5.0,
        seals: "Seals | None" = None,
    ) -> None:
        self._url = f"{url.rstrip('/')}/pods"
        self._token_file = token_file
        self._ca_file = ca_file or f"{_SERVICE_ACCOUNT}/ca.crt"
        self._insecure = insecure
        self._poll = poll
        self._timeout = timeout
        self._seals = seals
        self._page = PodPage()

    @property
    def faults(self) -> tuple[ObjectFault, ...]:
        """What could not be read in the last answer."""
        return self._page.faults

    async def follow(self) -> AsyncGenerator[tuple[Pod, ...], None]:
        """The pods at every poll; KubeForbidden when the token is refused, else KubeUnreadable."""
        import httpx2  # noqa: PLC0415 - 6 MB that only this choice needs

        verify = self._tls()
        async with httpx2.AsyncClient(verify=verify, timeout=self._timeout, trust_env=False) as client:
            while True:
                self._page = decode_pods(await self._get(client), origin=self._url, seals=self._seals)
                yield self._page.items
                await asyncio.sleep(self._poll)

    def _tls(self) -> ssl.SSLContext | bool:
        if self._insecure:
            return False
        if self._url.startswith("http://"):
            return True
        try:
            return ssl.create_default_context(cafile=self._ca_file)
        except OSError as e:  # includes SSLError
            raise KubeUnreadable(f"certificate authority {self._ca_file}: {e.strerror or e}") from e

    async def _get(self, client: "httpx2.AsyncClient") -> bytes:
        import httpx2  # noqa: PLC0415

        try:
            async with asyncio.timeout(self._timeout):  # the client's own timeout is per read: a trickle would pass it
                headers = {**self._credentials(), "accept-encoding": "gzip"}
                async with client.stream("GET", self._url, headers=headers) as answer:
                    body = await plain_body(answer, most=_LARGEST)
        except (httpx2.TimeoutException, TimeoutError) as e:
            raise KubeUnreadable(f"{self._url}: no answer within {self._timeout:g} s") from e
        except (httpx2.HTTPError, httpx2.InvalidURL, BodyRefused) as e:
            raise KubeUnreadable(f"{self._url}: {str(e) or type(e).__name__}") from e
        if answer.status_code in {401, 403}:
            raise KubeForbidden(f"{self._url}: {answer.status_code} {decode_status(body)}".rstrip())
        if answer.status_code != 200:
            raise KubeUnreadable(f"{self._url}: {answer.status_code} {decode_status(body)}".rstrip())
        return body

    def _credentials(self) -> dict[str, str]:
        """The token, read each time because the kubelet replaces it about once an hour. Never sent without TLS."""
        if self._token_file is None or not self._url.startswith("https://"):
            return {}
        try:
            with open(self._token_file, encoding="ascii") as file:
                return {"Authorization": f"Bearer {file.read().strip()}"}
        except (OSError, UnicodeDecodeError) as e:
            raise KubeForbidden(f"token {self._token_file}: {getattr(e, 'strerror', None) or e}") from e
