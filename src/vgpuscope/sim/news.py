"""Findings for the demo's page, and events, from the running analyzer, cluster exporter and agents.

Everything is requested over HTTP, as a person or a script would do it. This module does not know the simulator's plans.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from vgpuscope.knowledge.xid import advice
from vgpuscope.model.errors import ScopeError
from vgpuscope.model.pending import PendingList, PendingPod
from vgpuscope.model.usage import NodeSnapshot
from vgpuscope.sources.clients.agent import AgentApi
from vgpuscope.sources.clients.analyzer import ANALYZER
from vgpuscope.sources.clients.cluster import PendingApi
from vgpuscope.sources.clients.served_api import ServedApi
from vgpuscope.views.text import span

LOOK_EVERY = 2.0  # seconds
_TIMEOUT = 5.0
_HELD = 256.0  # MiB; a tenant that holds less does not keep the GPU from others

HEALTH = ANALYZER._replace(path="/health", gives="health", content="health")
RECLAIM = ANALYZER._replace(path="/api/v1/reclaim", gives="cases", content="cases")


class NewsTenant(Struct, frozen=True, kw_only=True):
    """The fields of a tenant in /results that are used."""

    namespace: str
    pod: str
    verdict: str
    use_class: str = ""
    mem_used_mb: float | None = None
    idle_since: str | None = None

    @property
    def name(self) -> str:
        return f"{self.namespace}/{self.pod}"

    @property
    def wastes(self) -> bool:
        """Whether it is idle and does nothing else that needs the GPU soon."""
        return self.verdict == "idle" and self.use_class != "idle-preparing"


class GpuHealthNews(Struct, frozen=True, kw_only=True):
    """The fields of /health that are used."""

    source: str = ""


class NewsRow(Struct, frozen=True, kw_only=True):
    """The fields of a row of /results that are used."""

    gpu_id: str
    hostname: str
    gpu_index: str
    model_name: str
    verdict: str
    mig: str = ""
    mig_profile: str = ""
    mem_used_mb: float | None = None
    idle_since: str | None = None
    tenants: tuple[NewsTenant, ...] = ()

    @property
    def place(self) -> str:
        """`gpu-b GPU 1`."""
        part = f" MIG {self.mig_profile}" if self.mig else ""
        return f"{self.hostname} GPU {self.gpu_index}{part}"


class NewsCase(Struct, frozen=True, kw_only=True):
    """The fields of a case in /api/v1/reclaim that are used."""

    id: str
    state: str
    namespace: str
    pod: str
    reason: str = ""
    by: str | None = None


class NewsCases(Struct, frozen=True, kw_only=True):
    """The fields of /api/v1/reclaim that are used."""

    cases: tuple[NewsCase, ...] = ()


class NewsAnswers(NamedTuple):
    """All answers at one moment; None: no answer."""

    rows: tuple[NewsRow, ...] | None
    waiting: PendingList | None
    nodes: tuple[NodeSnapshot, ...]  # of the agents that answered
    cases: tuple[NewsCase, ...] | None = None


EventKind: TypeAlias = Literal[
    "GPU lost", "GPU hangs", "GPU back", "pod pending", "tenant idle", "tenant back", "reclaim", "notice"
]


class NewsEvent(NamedTuple):
    """Something that happened: its kind, and a description."""

    kind: EventKind
    words: str


class Reporter:
    """Queries the services; a context manager, because connections are kept open."""

    def __init__(self, *, analyzer: str, cluster: str, agents: Sequence[str]) -> None:
        self._analyzer = ServedApi(ANALYZER, analyzer, content=tuple[NewsRow, ...], timeout=_TIMEOUT, token=None)
        self._health = ServedApi(HEALTH, analyzer, content=GpuHealthNews, timeout=_TIMEOUT, token=None)
        self._reclaim = ServedApi(RECLAIM, analyzer, content=NewsCases, timeout=_TIMEOUT, token=None)
        self._cluster = PendingApi(cluster, timeout=_TIMEOUT)
        self._agents = [AgentApi(url, timeout=_TIMEOUT) for url in agents]

    async def __aenter__(self) -> "Reporter":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._analyzer.__aexit__()
        await self._health.__aexit__()
        await self._reclaim.__aexit__()
        await self._cluster.__aexit__()
        for api in self._agents:
            await api.__aexit__()

    async def look(self) -> NewsAnswers:
        """The current answers of all services."""
        asked = asyncio.gather(*map(_snapshot, self._agents))
        rows, waiting, nodes, cases = await asyncio.gather(self._rows(), self._waiting(), asked, self._cases())
        return NewsAnswers(rows, waiting, tuple(node for node in nodes if node is not None), cases)

    async def judged_by(self) -> str:
        """The source of the analyzer's last results; "" if the analyzer does not answer."""
        with contextlib.suppress(ScopeError):
            return (await self._health.fetch())[0].source
        return ""

    async def events(self, first: NewsAnswers) -> AsyncIterator[NewsEvent]:
        """Events from now on; never ends."""
        known = NewsState()
        known.news(first)
        while True:
            await asyncio.sleep(LOOK_EVERY)
            for event in known.news(await self.look()):
                yield event

    async def _rows(self) -> tuple[NewsRow, ...] | None:
        with contextlib.suppress(ScopeError):
            return (await self._analyzer.fetch())[0]
        return None

    async def _cases(self) -> tuple[NewsCase, ...] | None:
        with contextlib.suppress(ScopeError):
            return (await self._reclaim.fetch())[0].cases
        return None

    async def _waiting(self) -> PendingList | None:
        with contextlib.suppress(ScopeError):
            return await self._cluster.pending()
        return None


async def _snapshot(api: AgentApi) -> NodeSnapshot | None:
    with contextlib.suppress(ScopeError):
        return await api.snapshot()
    return None


# --- findings --------------------------------------------------------------------------------------------------------


def findings(look: NewsAnswers, *, now: float, most: int = 3) -> list[str]:
    """The most important findings: the first of each sort, then the second of each sort, and so on."""
    rows = look.rows or ()
    sorts = [_idle_alone(rows, now), _idle_beside(rows, now), _waiting(look.waiting), _free(rows, now)]
    told = [sentence for rank in range(most) for found in sorts for sentence in found[rank : rank + 1]]
    return told[:most]


class _Waste(NamedTuple):
    weight: float
    sentence: str


def _idle_alone(rows: Iterable[NewsRow], now: float) -> list[str]:
    """Tenants that have a GPU or MIG instance to themselves and are idle (verdict)."""
    found = []
    for row in rows:
        if row.verdict == "idle" and len(row.tenants) == 1 and row.tenants[0].wastes and _holds(row.mem_used_mb):
            tenant = row.tenants[0]
            since = tenant.idle_since or row.idle_since
            words = f"{tenant.name} has held an idle {_what(row)}{_for(since, now)} ({row.hostname}, "
            found.append(_Waste(_weight(since, row.mem_used_mb, now), f"{words}{_gib(row.mem_used_mb)})"))
    return _ranked(found)


def _idle_beside(rows: Iterable[NewsRow], now: float) -> list[str]:
    """Idle tenants beside busy ones: the GPU as a whole is in use, so only the tenants' verdicts show them."""
    found = []
    for row in rows:
        if row.verdict == "idle" or len(row.tenants) < 2:
            continue
        for tenant in row.tenants:
            if tenant.wastes and _holds(tenant.mem_used_mb):
                words = f"{tenant.name} holds {_gib(tenant.mem_used_mb)} of a busy {_what(row)}, idle"
                sentence = f"{words}{_for(tenant.idle_since, now)} ({row.hostname})"
                found.append(_Waste(_weight(tenant.idle_since, tenant.mem_used_mb, now), sentence))
    return _ranked(found)


def _waiting(waiting: PendingList | None) -> list[str]:
    """Pods that wait; first those for which the exporter knows how much is missing."""
    if waiting is None:
        return []
    pods = sorted(waiting.pending, key=lambda pod: not pod.fact)
    return [f"{pod.namespace}/{pod.pod} is pending: {_why(pod, waiting)}" for pod in pods]


def _free(rows: Iterable[NewsRow], now: float) -> list[str]:
    found = [row for row in rows if row.verdict == "idle" and not row.tenants and not row.mig]
    return _ranked(
        [_Waste(_weight(r.idle_since, 1.0, now), f"{r.place} ({_what(r)}) is free{_since(r, now)}") for r in found]
    )


def _since(row: NewsRow, now: float) -> str:
    return f" and idle{_for(row.idle_since, now)}"


def _ranked(found: Iterable[_Waste]) -> list[str]:
    return [waste.sentence for waste in sorted(found, key=lambda waste: -waste.weight)]


def _weight(since: str | None, memory: float | None, now: float) -> float:
    return (1.0 + _seconds(since, now)) * (memory or 0.0)


def _holds(memory: float | None) -> bool:
    return memory is not None and memory >= _HELD


def _seconds(since: str | None, now: float) -> float:
    return 0.0 if since is None else max(0.0, now - datetime.fromisoformat(since).timestamp())


def _for(since: str | None, now: float) -> str:
    return "" if since is None else f" for {span(_seconds(since, now))}"


def _gib(memory: float | None) -> str:
    return "?" if memory is None else f"{memory / 1024:.0f} GiB" if memory >= 1024 else f"{memory:.0f} MiB"


def _what(row: NewsRow) -> str:
    """`H100`, from `NVIDIA H100 80GB HBM3`; for a MIG instance with its profile."""
    match = re.search(r"\b[A-Z]{1,4}\d+[A-Z]?\b", row.model_name)
    model = match[0] if match else row.model_name or "GPU"
    return f"{model} MIG {row.mig_profile}" if row.mig else model


# Why a pod waits, with its request; for other codes their meaning is printed.
_WHY = {
    "SCHED_INSUFFICIENT_GPU_MEMORY": "no GPU has {memory} free",
    "SCHED_INSUFFICIENT_GPU_COUNT": "no node has {gpus} such GPUs free",
    "SCHED_QUOTA_EXCEEDED": "{memory} more would exceed the quota of {namespace}",
}


def _why(pod: PendingPod, waiting: PendingList) -> str:
    asked = {name.rpartition("/")[2]: amount for name, amount in pod.requests.items()}
    if pod.code in _WHY and {"gpu", "gpumem"} <= asked.keys():
        memory = _gib(asked["gpumem"])
        return _WHY[pod.code].format(memory=memory, gpus=asked["gpu"], namespace=pod.namespace)
    code = waiting.codes.get(pod.code)
    return code.meaning.rstrip(".") if code else pod.code


# --- events ----------------------------------------------------------------------------------------------------------


class NewsState:
    """The state that was last reported, so that only changes become events."""

    def __init__(self) -> None:
        self._verdicts: dict[tuple[str, str, str], str] = {}
        self._health: dict[str, str] = {}
        self._waiting: set[str] | None = None
        self._cases: dict[str, str] | None = None

    def news(self, look: NewsAnswers) -> list[NewsEvent]:
        """Changes since the last look; a service that did not answer has none."""
        events = list(self._of_gpus(look.nodes))
        if look.waiting is not None:
            events += self._of_pods(look.waiting)
        if look.rows is not None:
            events += self._of_tenants(look.rows)
        if look.cases is not None:
            events += self._of_cases(look.cases)
        return events

    def _of_gpus(self, nodes: Iterable[NodeSnapshot]) -> Iterator[NewsEvent]:
        for node in nodes:
            xids = dict(node.last_xid)
            for usage in node.gpus:
                gpu = usage.gpu
                before = self._health.get(gpu.uuid, "ok")
                self._health[gpu.uuid] = gpu.health
                place = f"{node.node} GPU {gpu.index}"
                if gpu.health == before:
                    continue
                if gpu.health == "lost":
                    yield NewsEvent("GPU lost", f"{place}{_xid(xids.get(gpu.uuid))}")
                elif gpu.health != "ok":
                    yield NewsEvent("GPU hangs", f"{place} is {gpu.health}")
                else:
                    yield NewsEvent("GPU back", f"{place} is ok (was {before})")

    def _of_pods(self, waiting: PendingList) -> Iterator[NewsEvent]:
        """A pod becomes an event once its scheduler has reported why it waits."""
        said = [pod for pod in waiting.pending if pod.said]
        known = self._waiting if self._waiting is not None else {pod.pod_uid for pod in waiting.pending}
        for pod in said:
            if pod.pod_uid not in known:
                yield NewsEvent("pod pending", f"{pod.namespace}/{pod.pod}: {_why(pod, waiting)}")
        here = {pod.pod_uid for pod in waiting.pending}
        self._waiting = (known & here) | {pod.pod_uid for pod in said}

    def _of_tenants(self, rows: Iterable[NewsRow]) -> Iterator[NewsEvent]:
        """Changes between idle and in_use; an unknown verdict keeps the last known verdict."""
        verdicts: dict[tuple[str, str, str], str] = {}
        for row in rows:
            for tenant in row.tenants:
                key = (row.gpu_id, row.mig, tenant.name)
                before = self._verdicts.get(key, "")
                verdicts[key] = before if tenant.verdict == "unknown" else tenant.verdict
                held = tenant.mem_used_mb if len(row.tenants) > 1 else row.mem_used_mb
                if verdicts[key] == "idle" and before == "in_use":
                    yield NewsEvent("tenant idle", f"{tenant.name} does nothing and holds {_gib(held)} ({row.place})")
                elif verdicts[key] == "in_use" and before == "idle":
                    yield NewsEvent("tenant back", f"{tenant.name} computes again ({row.place})")
        self._verdicts = verdicts

    def _of_cases(self, cases: Iterable[NewsCase]) -> Iterator[NewsEvent]:
        """Cases in another state than before; those of the first look are no events."""
        known = self._cases
        self._cases = {case.id: case.state for case in cases}
        for case in cases if known is not None else ():
            if known is not None and known.get(case.id) != case.state:
                yield NewsEvent("reclaim", f"{case.namespace}/{case.pod} {_case_words(case)}")


_CASE_WORDS = {
    "candidate": "is idle: a case is opened",
    "notified": "is confirmed idle: its owner is notified",
    "grace": "is confirmed idle: its grace period runs",
    "awaiting_approval": "waits for an operator to approve",
    "acting": "loses its GPU",
    "would_act": "would lose its GPU now (dry run)",
    "verified": "is gone, and its GPU is free",
    "restored": "was put back",
    "exempt": "is exempt from now on",
    "snoozed": "is left alone for a while",
    "failed": "could not be taken back",
}
_RELEASED = {"ended": "has ended: its case is closed", "works_again": "works again: its case is closed"}


def _case_words(case: NewsCase) -> str:
    """What happened to a case, after the name of its pod."""
    if case.state == "released":
        return _RELEASED.get(case.reason, "is no longer idle: its case is closed")
    words = _CASE_WORDS.get(case.state, case.state)
    return f"{words} (by {case.by})" if case.by else words


def _xid(xid: int | None) -> str:
    if xid is None:
        return ""
    told = advice(xid)
    return f" (XID {xid}{f', {told.name}' if told.name else ''})"


def clock(at: float) -> str:
    """The local time as hours, minutes and seconds."""
    return time.strftime("%H:%M:%S", time.localtime(at))


STYLES: Mapping[EventKind, str] = {
    "GPU lost": "bold red",
    "GPU hangs": "red",
    "GPU back": "green",
    "pod pending": "yellow",
    "tenant idle": "yellow",
    "tenant back": "green",
    "reclaim": "magenta",
    "notice": "cyan",
}
