"""The nodes of the cluster, fetched from the cluster exporter: a GPU is gone when its node is gone."""

import asyncio

import httpx2
from msgspec import Struct

from vgpuscope.model.errors import SourceDown
from vgpuscope.model.quantity import Seconds
from vgpuscope.sources.clients.cluster import CLUSTER, ClusterApi

_KEPT = 60.0  # seconds


class _Node(Struct):
    """The fields of a node's ledger that are needed here."""

    name: str
    known: bool = True  # False: only pods refer to it


class ClusterNodes(ClusterApi[list[_Node]]):
    """A client of a cluster exporter's list of nodes; caches the response."""

    def __init__(self, url: str, *, timeout: Seconds = 5.0, token: str | None = None, kept: Seconds = _KEPT) -> None:
        super().__init__(CLUSTER, url, content=list[_Node], timeout=timeout, token=token)
        self._kept, self._due = kept, float("-inf")
        self._nodes: frozenset[str] = frozenset()

    async def read(self) -> frozenset[str]:
        """The names of all nodes; raises SourceDown if they cannot be fetched or are not all listed yet."""
        clock = asyncio.get_running_loop().time
        if clock() >= self._due:
            self._nodes = await self._listed()
            self._due = clock() + self._kept
        return self._nodes

    async def _listed(self) -> frozenset[str]:
        if missing := await self.missing():
            raise SourceDown(f"the cluster exporter has not listed {', '.join(missing)} yet")
        answer = await self.get(CLUSTER.path)
        if answer.status_code != httpx2.codes.OK:
            raise self._refused(answer)
        return frozenset(node.name for node in self._decoded(answer) if node.known)
