"""The owner of each pod (its Deployment, Job or other workload), fetched from the cluster exporter."""

import asyncio
from collections.abc import Mapping

import httpx2

from vgpuscope.model.quantity import Seconds
from vgpuscope.sources.clients.cluster import CLUSTER
from vgpuscope.sources.clients.served_api import ServedApi

OWNERS = CLUSTER._replace(path="/api/v1/owners", gives="list of owners", content="owners by pod")
_KEPT = 60.0  # seconds


class Owners(ServedApi[dict[str, str]]):
    """A client of a cluster exporter's list of owners; caches the response."""

    def __init__(self, url: str, *, timeout: Seconds = 5.0, token: str | None = None, kept: Seconds = _KEPT) -> None:
        super().__init__(OWNERS, url, content=dict[str, str], timeout=timeout, token=token)
        self._kept, self._due = kept, float("-inf")
        self._owners: Mapping[tuple[str, str], str] = {}

    async def read(self) -> Mapping[tuple[str, str], str]:
        """Owners such as Deployment/web, by namespace and pod; raises SourceDown if they cannot be fetched."""
        clock = asyncio.get_running_loop().time
        if clock() >= self._due:
            await self._refresh()
            self._due = clock() + self._kept
        return self._owners

    async def _refresh(self) -> None:
        answer = await self.get(OWNERS.path)
        if answer.status_code == httpx2.codes.NOT_MODIFIED:
            return
        if answer.status_code != httpx2.codes.OK:
            raise self._refused(answer)
        self._owners = _by_pod(self._decoded(answer))
        if tag := answer.headers.get("etag"):
            self._client.headers["If-None-Match"] = tag
        else:
            self._client.headers.pop("If-None-Match", None)


def _by_pod(said: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """Splits the keys NAMESPACE/POD; neither part may contain a slash."""
    parts = ((key.partition("/"), owner) for key, owner in said.items())
    return {(namespace, pod): owner for (namespace, _, pod), owner in parts if namespace and pod and owner}
