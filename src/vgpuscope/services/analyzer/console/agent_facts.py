"""What agents show beside the analysis: from the pages of our own scrapes, or from the PromQL engine."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from vgpuscope.catalog.console import CURRENT, OF_ALL, OF_ONE
from vgpuscope.formats.prom import promql
from vgpuscope.formats.prom.text import decode_labels, number
from vgpuscope.logic.console import agent_queries
from vgpuscope.logic.console.facts import folded, together
from vgpuscope.logic.fleet.queries import matchers_of_gpus
from vgpuscope.model.console.facts import Facts, LabelledValues
from vgpuscope.model.quantity import Seconds
from vgpuscope.runtime.heap import without_collections
from vgpuscope.runtime.units import Units
from vgpuscope.sources.fleet.promapi import PromApi
from vgpuscope.sources.fleet.scrape import LastPage, text_of

log = logging.getLogger(__name__)

_DEADLINE: Seconds = 30.0


class AgentSource(Protocol):
    """Where agents' facts come from."""

    async def fleet(self) -> Facts:
        """A few facts of every GPU, container and node."""

    async def gpu(self, gpu_id: str) -> Facts:
        """All facts of one GPU."""


class PageFacts:
    """Facts from the last page of each scrape target; a page is read once."""

    def __init__(self, pages: Callable[[], dict[str, LastPage]]) -> None:
        """`pages` returns the last page of each target that answers, by its name."""
        self._pages = pages
        self._known: dict[str, tuple[LastPage, Facts]] = {}
        self._whole = Facts()
        self._units = Units(log)

    async def fleet(self) -> Facts:
        return await asyncio.to_thread(self._fleet, self._pages())

    async def gpu(self, gpu_id: str) -> Facts:
        if not self._known:
            await self.fleet()
        pages = self._pages()
        names = (name for name, (_, facts) in self._known.items() if (gpu_id, "") in facts.gpus)
        page = next((pages[name] for name in names if name in pages), None)
        return Facts() if page is None else await asyncio.to_thread(_of_gpu, page, gpu_id)

    def target(self, node: str) -> str | None:
        """The scrape target at which the node's agent answers."""
        return next((name for name, (_, facts) in self._known.items() if node in facts.nodes), None)

    def _fleet(self, pages: dict[str, LastPage]) -> Facts:
        known = {name: self._read(name, page) for name, page in pages.items()}
        changed = known.keys() != self._known.keys() or any(known[n][0] is not self._known[n][0] for n in known)
        self._known = known
        if changed:
            self._whole = together(facts for _, facts in known.values())
        return self._whole

    def _read(self, name: str, page: LastPage) -> tuple[LastPage, Facts]:
        known = self._known.get(name)
        if known is not None and known[0] is page:
            return known
        facts = Facts()
        with self._units.isolated(f"page of {name}"):
            facts = folded(_shown(text_of(page), OF_ALL | CURRENT))
        return page, facts


def _of_gpu(page: LastPage, gpu_id: str) -> Facts:
    return _only(folded(_shown(text_of(page), OF_ALL | CURRENT | OF_ONE)), gpu_id)


def _shown(page: bytes, wanted: frozenset[str]) -> list[LabelledValues]:
    """The wanted values of a page.

    Most series of a container have the same labels, which are decoded once. What series mean is not remembered from one
    page to the next: that would take more memory than the facts.
    """
    names = {name.encode(): name for name in wanted}
    known: dict[bytes, dict[str, float]] = {}
    lines = page.split(b"\n")
    lines.pop()  # a line without an end was cut off
    for line in lines:
        name, brace, rest = line.partition(b"{")
        if not brace or name not in names or (name in _CURRENT and line.endswith(b" 0")):
            continue
        text, _, value = rest.rpartition(b"}")
        known.setdefault(text, {})[names[name]] = number(value)
    decoded = ((decode_labels(text), values) for text, values in known.items())
    return [LabelledValues(labels, values) for labels, values in decoded if labels is not None]


_CURRENT = frozenset(name.encode() for name in CURRENT)  # with 0, it is a state that a GPU or container is not in


def _only(facts: Facts, gpu_id: str) -> Facts:
    return Facts(
        gpus={key: found for key, found in facts.gpus.items() if key[0] == gpu_id},
        tenants={key: found for key, found in facts.tenants.items() if key.gpu_id == gpu_id},
        nodes=facts.nodes,
    )


class EngineFacts:
    """Facts from a PromQL engine, by queries of our own."""

    def __init__(self, api: PromApi, *, condition: str) -> None:
        self._api = api
        self._matchers = matchers_of_gpus(promql.parse_condition(condition))

    async def fleet(self) -> Facts:
        every, current = await asyncio.gather(
            self._shown(agent_queries.values(OF_ALL, self._matchers)),
            self._shown(agent_queries.current_states(CURRENT, self._matchers)),
        )
        with without_collections():
            return await asyncio.to_thread(lambda: folded((*every, *current)))

    async def gpu(self, gpu_id: str) -> Facts:
        matchers = (*self._matchers, *agent_queries.of_gpu(gpu_id))
        found = await self._shown(agent_queries.values(OF_ALL | CURRENT | OF_ONE, matchers))
        return await asyncio.to_thread(folded, found)

    async def stored(
        self, names: Iterable[str], these: Iterable[promql.Matcher], *, seconds: Seconds, within: Seconds
    ) -> bytes:
        """The samples of some series in the last seconds, as the engine answers: one query for all of them."""
        query = agent_queries.samples(names, (*self._matchers, *these), seconds=seconds)
        return await self._api.query(query, at=None, by=asyncio.get_running_loop().time() + within)

    async def _shown(self, query: str) -> list[LabelledValues]:
        data = await self._api.query(query, at=None, by=asyncio.get_running_loop().time() + _DEADLINE)
        with without_collections():
            return await asyncio.to_thread(_decoded, data)

    async def close(self) -> None:
        await self._api.aclose()


def _decoded(data: bytes) -> list[LabelledValues]:
    return [LabelledValues(*found) for found in promql.by_labels(promql.decode_vector(data).rows)]
