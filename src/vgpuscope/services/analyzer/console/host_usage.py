"""A pod or a node beside its GPUs: read while its page is open, and kept for some seconds for all consoles.

Agents that we scrape ourselves are asked for their last sample. With a PromQL engine, one query has the samples of some
minutes. While no such page is open, nothing is read.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from vgpuscope.formats.prom import promql
from vgpuscope.logic.console import agent_queries
from vgpuscope.logic.console.host_usage import (
    OF_NODE,
    OF_POD,
    SeriesSamples,
    node_of_sample,
    node_of_tracks,
    pod_of_sample,
    pod_of_tracks,
)
from vgpuscope.model.console.host_usage import NodeBeside, PodBeside
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.model.usage import NodeSnapshot
from vgpuscope.services.analyzer.console.agent_facts import AgentSource, EngineFacts, PageFacts
from vgpuscope.sources.clients.agent import AgentApi
from vgpuscope.sources.console.parts import PartReader

T = TypeVar("T")

_KEPT: Seconds = 5.0
_WITHIN: Seconds = 3.0
_READERS = 64  # pods and nodes whose pages were opened last
_SPAN: Seconds = 300.0  # of stored samples: several, even if targets are scraped once a minute


class HostUsage:
    """What agents know beside the GPUs."""

    def __init__(
        self, source: AgentSource | None, *, token: str | None, wall: Callable[[], UnixTime] = time.time
    ) -> None:
        self._source, self._token, self._wall = source, token, wall
        self._readers: dict[tuple[str, ...], PartReader[Any]] = {}

    async def pod(self, node: str, namespace: str, pod: str, uid: str | None) -> PodBeside | None:
        """One pod; None if nobody can tell."""
        source = self._source
        if isinstance(source, EngineFacts):
            this = agent_queries.of_pod(namespace, pod, uid)
            return await self._kept(("pod", namespace, pod, uid or ""), lambda: _of_pod(source, this))
        sample = await self.sample(node)
        return None if sample is None else pod_of_sample(sample, namespace, pod)

    async def node(self, node: str) -> NodeBeside | None:
        """One node; None if nobody can tell."""
        source = self._source
        if isinstance(source, EngineFacts):
            return await self._kept(("node", node), lambda: _of_node(source, node))
        sample = await self.sample(node)
        return None if sample is None else node_of_sample(sample)

    async def sample(self, node: str) -> NodeSnapshot | None:
        """The last sample of a node's agent; None if we do not scrape it ourselves, or it does not answer."""
        source = self._source
        target = source.target(node) if isinstance(source, PageFacts) else None
        if target is None:
            return None
        return await self._kept(("sample", target), lambda: self._snapshot(target))

    async def close(self) -> None:
        """End what is under way."""
        for reader in self._readers.values():
            await reader.close()

    async def _snapshot(self, target: str) -> NodeSnapshot:
        async with AgentApi(target, timeout=_WITHIN, token=self._token) as agent:
            return await agent.snapshot()

    async def _kept(self, key: tuple[str, ...], fetch: Callable[[], Awaitable[T]]) -> T | None:
        reader = self._readers.pop(key, None)
        if reader is None:
            reader = PartReader("agents", fetch, kept=_KEPT, deadline=_WITHIN, longest=2 * _WITHIN, wall=self._wall)
        self._readers[key] = reader
        while len(self._readers) > _READERS:
            await self._readers.pop(next(iter(self._readers))).close()
        held = await reader.read()
        return held.value if held.state == "ok" else None  # an old value would be shown as one of now


async def _of_pod(source: EngineFacts, this: tuple[promql.Matcher, ...]) -> PodBeside | None:
    return pod_of_tracks(await _tracks(source, OF_POD, this))


async def _of_node(source: EngineFacts, node: str) -> NodeBeside | None:
    return node_of_tracks(await _tracks(source, OF_NODE, agent_queries.of_node(node)))


async def _tracks(source: EngineFacts, names: Iterable[str], this: tuple[promql.Matcher, ...]) -> list[SeriesSamples]:
    data = await source.stored(names, this, seconds=_SPAN, within=_WITHIN)
    return await asyncio.to_thread(_decoded, data)


def _decoded(data: bytes) -> list[SeriesSamples]:
    rows = promql.decode_matrix(data).rows
    return [SeriesSamples(*promql.decode_named(row.metric), row.samples()) for row in rows]
