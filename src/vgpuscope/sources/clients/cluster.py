"""HTTP clients of the cluster exporter: the ledger of every node, and waiting pods."""

from typing import TypeVar
from urllib.parse import urlencode

import httpx2
import msgspec

from vgpuscope.model.cluster import NodeLedger
from vgpuscope.model.pending import PendingList
from vgpuscope.model.service import CLUSTER_PORT
from vgpuscope.sources.clients.served_api import UNNAMED, ServedApi, ServiceKind, TokenSource

T = TypeVar("T")

CLUSTER = ServiceKind(
    name="cluster exporter",
    an="a cluster exporter",
    path="/api/v1/nodes",
    port=CLUSTER_PORT,
    gives="ledger",
    content="the ledger of nodes",
    start="vgpuscope cluster",
    ask="vgpuscope nodes",
)
PENDING = CLUSTER._replace(
    path="/api/v1/pending", gives="list of pods that wait", content="pods that wait", ask="vgpuscope pending"
)


class _Readiness(msgspec.Struct):
    missing: tuple[str, ...] = ()


class ClusterApi(ServedApi[T]):
    """A client of one cluster exporter."""

    async def missing(self) -> tuple[str, ...]:
        """The kinds that are not listed yet; empty if the ledger is complete, or if /readyz is not understood."""
        answer = await self.get("/readyz")
        if answer.status_code != 503:
            return ()
        try:
            return msgspec.json.decode(answer.content, type=_Readiness).missing
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return ()  # a proxy's answer; the request for the ledger will show the problem


class NodesApi(ClusterApi[list[NodeLedger]]):
    """A client of its ledger."""

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 10.0,
        token: str | None = None,
        source: TokenSource = UNNAMED,
    ) -> None:
        super().__init__(CLUSTER, url, content=list[NodeLedger], timeout=timeout, token=token, source=source)

    async def nodes(self) -> list[NodeLedger]:
        """The ledger of every node; raises SourceDown if it cannot be fetched."""
        return (await self.fetch())[0]


class PendingApi(ClusterApi[PendingList]):
    """A client of its list of waiting pods."""

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 10.0,
        token: str | None = None,
        source: TokenSource = UNNAMED,
    ) -> None:
        super().__init__(PENDING, url, content=PendingList, timeout=timeout, token=token, source=source)

    async def pending(self, *, namespace: str = "", pod: str = "", everything: bool = False) -> PendingList:
        """Waiting pods, filtered by namespace and name; `everything` adds pods that waited. Raises SourceDown."""
        asked = {"namespace": namespace, "pod": pod, "all": "true" if everything else ""}
        query = urlencode({name: value for name, value in asked.items() if value})
        answer = await self.get(PENDING.path + (f"?{query}" if query else ""))
        if answer.status_code != httpx2.codes.OK:
            raise self._refused(answer)
        return self._decoded(answer)
