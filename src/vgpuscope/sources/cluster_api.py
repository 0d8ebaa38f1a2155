"""The ledger of every node, fetched over HTTP from the cluster exporter."""

import msgspec

from vgpuscope.model.cluster import NodeLedger
from vgpuscope.sources.served_api import Kind, ServedApi

CLUSTER = Kind(
    name="cluster exporter",
    an="a cluster exporter",
    path="/api/v1/nodes",
    port=31993,
    gives="ledger",
    content="the ledger of nodes",
    start="vgpuscope cluster",
    ask="vgpuscope nodes",
)


class _Readiness(msgspec.Struct):
    missing: tuple[str, ...] = ()


class ClusterApi(ServedApi[list[NodeLedger]]):
    """The door to one cluster exporter."""

    def __init__(self, url: str, *, timeout: float = 10.0, token: str | None = None) -> None:
        super().__init__(CLUSTER, url, content=list[NodeLedger], timeout=timeout, token=token)

    async def missing(self) -> tuple[str, ...]:
        """What it has yet to list before its ledger is whole; nothing when it is, or when it does not say."""
        answer = await self.get("/readyz")
        if answer.status_code != 503:
            return ()
        try:
            return msgspec.json.decode(answer.content, type=_Readiness).missing
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return ()  # a proxy's word; the ledger itself will tell what is wrong

    async def nodes(self) -> list[NodeLedger]:
        """The ledger of every node; SourceDown when there is none to be had."""
        return (await self.fetch())[0]
