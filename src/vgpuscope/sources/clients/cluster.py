"""What the cluster exporter knows, fetched over HTTP: the ledger of every node, the pods that wait."""

from typing import TypeVar
from urllib.parse import urlencode

import httpx2
import msgspec

from vgpuscope.model.cluster import NodeLedger
from vgpuscope.model.pending import PendingList
from vgpuscope.model.service import CLUSTER_PORT
from vgpuscope.sources.clients.served_api import ServedApi, ServiceKind

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
    """The door to one cluster exporter."""

    async def missing(self) -> tuple[str, ...]:
        """What it has yet to list before its ledger is whole; nothing when it is, or when it does not say."""
        answer = await self.get("/readyz")
        if answer.status_code != 503:
            return ()
        try:
            return msgspec.json.decode(answer.content, type=_Readiness).missing
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return ()  # a proxy's word; the ledger itself will tell what is wrong


class NodesApi(ClusterApi[list[NodeLedger]]):
    """The door to its ledger."""

    def __init__(self, url: str, *, timeout: float = 10.0, token: str | None = None) -> None:
        super().__init__(CLUSTER, url, content=list[NodeLedger], timeout=timeout, token=token)

    async def nodes(self) -> list[NodeLedger]:
        """The ledger of every node; SourceDown when there is none to be had."""
        return (await self.fetch())[0]


class PendingApi(ClusterApi[PendingList]):
    """The door to its book of pods that wait."""

    def __init__(self, url: str, *, timeout: float = 10.0, token: str | None = None) -> None:
        super().__init__(PENDING, url, content=PendingList, timeout=timeout, token=token)

    async def pending(self, *, namespace: str = "", pod: str = "", everything: bool = False) -> PendingList:
        """The pods that wait, of these names where given, or also those that waited; SourceDown when there is none."""
        asked = {"namespace": namespace, "pod": pod, "all": "true" if everything else ""}
        query = urlencode({name: value for name, value in asked.items() if value})
        answer = await self.get(PENDING.path + (f"?{query}" if query else ""))
        if answer.status_code != httpx2.codes.OK:
            raise self._refused(answer)
        return self._decoded(answer)
