"""The cluster exporter: the API server's objects → a ledger → a page in shards; a scrape only joins the shards.

nodes, slices ──┐
pods, claims ───┼─► ClusterState ─► what changed ─► ShardedPage ──────────────► /metrics
resourcequotas ─┘     (a fold)      (node by node) └─► computed ledgers ──────► /api/v1/nodes
pods, events ─────► SchedulingTimes, PendingPods ─────────────────────┴───────► /api/v1/pending
"""

import asyncio
import gc
import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from vgpuscope.catalog import cluster as catalog
from vgpuscope.catalog.limits import ClusterOmission
from vgpuscope.config import ClusterConfig, Config, SettingsFile
from vgpuscope.formats.kube import events, objects
from vgpuscope.http.answers import HttpAnswer, KeptAnswers, json_content
from vgpuscope.http.app import App, Readiness
from vgpuscope.http.operations import HttpCall, links, routes
from vgpuscope.http.parameters import NoQuery
from vgpuscope.logic.cluster.fit import advice
from vgpuscope.logic.cluster.owners import OwnerIndex
from vgpuscope.logic.cluster.pending.facts import explain, facts
from vgpuscope.logic.cluster.pending.pods import PendingPods
from vgpuscope.logic.cluster.scheduling import SchedulingTimes
from vgpuscope.logic.cluster.state import ClusterState
from vgpuscope.model.allocation import PodState
from vgpuscope.model.cluster import NodeLedger
from vgpuscope.model.cluster_event import PodGone, PodSet
from vgpuscope.model.errors import SourceDown
from vgpuscope.model.pending import PendingList, PendingPod, PodEvent
from vgpuscope.model.quantity import PodUID, Seconds, UnixTime
from vgpuscope.model.words import NO_WORDS, Words
from vgpuscope.runtime.build import this_build
from vgpuscope.runtime.log import DEBUG, OnChange, fields
from vgpuscope.runtime.units import Units
from vgpuscope.services.cluster.api import TITLE, PendingQuery, operations
from vgpuscope.services.cluster.extender_sighting import ExtenderSighting
from vgpuscope.services.cluster.log import ClusterNews
from vgpuscope.services.cluster.owners import OwnerSearch
from vgpuscope.services.frame import Loops, Restartable, Service, run
from vgpuscope.services.lease_namespace import lease_namespace
from vgpuscope.services.watch import RETRY, WatchedKind, merged, report_watch, watch_keys
from vgpuscope.services.watched_kinds import KindBuilder
from vgpuscope.sources.kube import check_kubeconfig
from vgpuscope.sources.seal_keys import seals
from vgpuscope.views.cluster.metrics import NodeSamples, assumed_node_samples, cluster_samples, namespace_samples
from vgpuscope.views.cluster.pending.api import pending_list
from vgpuscope.views.cluster.pending.metrics import pending_samples
from vgpuscope.views.cluster.scheduling_metrics import scheduling_samples
from vgpuscope.views.cluster.series_limits import examples
from vgpuscope.views.exposition.sharded import ShardedPage

if TYPE_CHECKING:
    from vgpuscope.services.frame import Guard

log = logging.getLogger(__name__)

_SETTLE_EVERY = 0.5  # seconds between two updates of the page
_LONGEST_PAUSE = 5.0  # seconds, while changes keep coming
_FIRST_EVERY = 0.1  # seconds, until every kind was listed once
_AT_ONCE = 0.02  # seconds of work before other tasks run: a scrape, an event
_GC_EVERY = 20_000  # new objects before a garbage collection: there are hardly any reference cycles here
_FACTS = 200  # pods of a list that get the number behind their code
_CLUSTER, _PODS, _ASSUMED = "cluster", "pods", "assumed nodes"  # shards that belong to no node or namespace


def main(config: Config, *, file: SettingsFile | None = None) -> int:
    """`vgpuscope cluster`."""
    gc.set_threshold(_GC_EVERY)
    return run(lambda: _exporter(config.cluster), config=config, listening=config.cluster, file=file)


def _exporter(config: ClusterConfig) -> "ClusterExporter":
    check_kubeconfig(config.kubeconfig)
    return ClusterExporter(config, on_ready=gc.freeze)  # listed objects stay, so the collector can skip them


class ClusterExporter(Service):
    """The parts of the exporter and its state. Everything but the watches' waiting happens on one thread."""

    name = "cluster exporter"

    def __init__(
        self,
        config: ClusterConfig,
        *,
        on_ready: Callable[[], None] = lambda: None,
        retry: tuple[Seconds, Seconds] = RETRY,
        clock: Callable[[], Seconds] = time.monotonic,
        wall: Callable[[], UnixTime] = time.time,
    ) -> None:
        """`retry` is the first and the longest pause before a watch is retried."""
        super().__init__()
        self._config, self._on_ready, self._retry = config, on_ready, retry
        self._seals = seals(config.seal_keys)
        self._clock, self._wall = clock, wall
        self._state = ClusterState()
        self._scheduling = SchedulingTimes()
        self._pending = PendingPods(self._state.pods)
        self._owners = OwnerIndex(self._state.pods)
        self._node_samples = NodeSamples()
        self._assumed: dict[str, NodeLedger] = {}  # nodes that only annotations or claims name
        self._beyond: set[str] = set()  # nodes that found the page full
        self._page = ShardedPage(catalog.METRICS, config.families)
        self._tell = OnChange(log)
        self._units = Units(log, self.counters.count)
        self._news = ClusterNews(self._state.settled_node, self._state.capacity)
        self._settled = False
        self._instance = secrets.token_hex(8)  # versions of another process are not comparable
        self._answered, self._answers = 0, KeptAnswers()  # the answer with all ledgers, as long as they stay the same
        self._events: dict[str, int] = {}  # by UID: a hash of the event, to tell after a fresh list what has changed
        self._kinds = list(self._watched())
        self._extender = ExtenderSighting(
            namespace=lease_namespace(config.lease_namespace), resync=config.resync_interval, clock=clock, wall=wall
        )

    def loops(self) -> Loops:
        """The loops that run for as long as the exporter does.

        An unexpected error ends neither a watch nor the settle loop: it belongs to one object or one part of the page.
        """
        count, kubeconfig = self.counters.count, self._config.kubeconfig
        search = OwnerSearch(self._owners, kubeconfig, failed=count, clock=self._clock)
        watches = {
            f"watch-{kind.name}-{number}": partial(kind.follow, kubeconfig, count)
            for number, kind in enumerate(self._kinds)
        }
        if self._config.scheduler_metrics == "auto":
            watches["watch-extender"] = partial(self._extender.follow, kubeconfig, count)
        return {"settle": self._settle_forever, "owners": Restartable(search.run), **watches}

    def about(self) -> dict[str, object]:
        return {"families": ",".join(self._config.families)}

    def app(self, guard: "Guard | None") -> App:
        """The HTTP application."""
        table = operations(self, guarded=lambda: guard is not None and guard.guarded)
        return App(
            title=TITLE,
            service=self.name,
            metrics=lambda: self._page,
            ready=self.readiness,
            guard=guard,
            routes=routes(table),
            links=links(table),
        )

    def readiness(self) -> Readiness:
        """Ready once every kind was listed or is known to be forbidden, and the first page was made."""
        missing = [kind.name for kind in self._kinds if not kind.settled]
        if not missing and not self._settled:
            missing = ["the first page"]
        return Readiness(missing=tuple(dict.fromkeys(missing)))

    async def nodes(self, call: HttpCall[NoQuery, None]) -> HttpAnswer:  # noqa: ARG002 - the shape of a handler
        version = self._state.settled_version
        if self._answered != version:
            self._answered, self._answers = version, KeptAnswers()
        ledgers = list(self._state.settled_nodes())  # now: what they are made of changes while they are encoded
        return HttpAnswer(make=lambda: json_content(ledgers), version=(self._instance, version), kept=self._answers)

    async def pending(self, call: HttpCall[PendingQuery, None]) -> PendingList:
        asked = call.asked
        known = self._pending.pods(namespace=asked.namespace, name=asked.pod, all=asked.all)
        found = [structs.replace(pod, owner=self._owners.owner(pod.pod_uid) or pod.owner) for pod in known]
        one = found[0] if asked.namespace and asked.pod and found else None
        return self._explained(found, one) if one else pending_list(self._with_facts(found), self._wall())

    def _explained(self, found: Sequence[PendingPod], one: PendingPod) -> PendingList:
        """The answer about one pod: runbooks with its names, and if it is waiting, the numbers behind each code."""
        answer = pending_list(found, self._wall())
        codes = answer.codes | explain(one)
        if one.outcome != "waiting":
            return structs.replace(answer, codes=codes)
        nodes = {node.name: node for node in self._state.settled_nodes()}
        numbers = facts(one, nodes, node_of=nodes.get, namespace=self._state.settled_namespace(one.namespace))
        tips = advice(one.requests, nodes.values(), blocker=_blocker(one))
        return structs.replace(
            answer,
            codes=codes,
            facts={code: tuple(line.en for line in lines) for code, lines in numbers.items()},
            facts_zh={code: tuple(line.zh for line in lines) for code, lines in numbers.items()},
            advice=tuple(line.en for line in tips),
            advice_zh=tuple(line.zh for line in tips),
        )

    def _with_facts(self, found: Sequence[PendingPod]) -> Iterator[PendingPod]:
        """Adds the number behind the code to the first waiting pods, if their reason names nodes or a quota."""
        for place, pod in enumerate(found):
            if place >= _FACTS or pod.outcome != "waiting" or not pod.said:
                yield pod
                continue
            first = structs.replace(pod, said=pod.said[:1])
            namespace = self._state.settled_namespace(pod.namespace)
            numbers = facts(first, (), node_of=self._state.settled_node, namespace=namespace)
            fact = next(iter(numbers.get(pod.code, ())), NO_WORDS)
            yield structs.replace(pod, fact=fact.en, fact_zh=fact.zh)

    async def owners(self, call: HttpCall[NoQuery, None]) -> dict[str, str]:
        if not self.readiness().ready:
            raise SourceDown("the pods have not been listed yet", hint="Retry in a few seconds.")
        sees = call.caller.sees
        return {pod: owner for pod, owner in self._owners.owners() if sees(pod.partition("/")[0])}

    def _watched(self) -> Iterator[WatchedKind[Any]]:
        build = KindBuilder(self._state, resync=self._config.resync_interval, retry=self._retry, clock=self._clock)
        yield build.nodes()
        yield build.slices()
        for namespace in self._config.namespaces or ("",):
            yield self._watched_pods(build, namespace)
            yield build.quotas(namespace)
            yield self._watched_events(build, namespace)
            yield build.claims(namespace)

    def _watched_pods(self, build: KindBuilder, namespace: str) -> WatchedKind[PodState]:
        return build.kind(
            "pods",
            namespace=namespace,
            decoders=(
                partial(objects.decode_cluster_pods, seals=self._seals),
                partial(objects.decode_cluster_pod_event, seals=self._seals),
            ),
            key=lambda pod: pod.uid,
            begin=self._scheduling.begin,
            keep=self._set_pod,
            drop=self._drop_pod,
            kept=lambda pod: self._state.keeps(PodSet(pod)),
        )

    def _watched_events(self, build: KindBuilder, namespace: str) -> WatchedKind[PodEvent]:
        return build.kind(
            "events",
            namespace=namespace,
            fields="involvedObject.kind=Pod",
            decoders=(events.decode_events, events.decode_event_line),
            key=lambda event: event.uid,
            begin=self._scheduling.begin_events,
            keep=self._set_event,
            drop=self._drop_event,
            kept=lambda event: self._events.get(event.uid) == hash(event),
        )

    def _set_pod(self, pod: PodState) -> None:
        self._state.apply(PodSet(pod))
        self._scheduling.set_pod(pod)
        self._pending.set_pod(pod, self._wall())
        self._owners.set_pod(pod)

    def _drop_pod(self, uid: PodUID) -> None:
        """Remove a pod; parts that need it a last time are called before it is removed from the state."""
        with self._units.isolated(f"pod {uid}"):
            self._scheduling.drop_pod(uid)
        with self._units.isolated(f"pod {uid}"):
            self._pending.drop_pod(uid, self._wall())
        self._state.apply(PodGone(uid))
        self._owners.drop_pod()

    def _set_event(self, event: PodEvent) -> None:
        """Record an event; its reasons are kept after the event itself is deleted."""
        self._events[event.uid] = hash(event)
        self._scheduling.set_event(event)
        self._pending.set_event(event)

    def _drop_event(self, uid: str) -> None:
        self._events.pop(uid, None)
        self._scheduling.drop_event(uid)

    async def _settle_forever(self) -> None:
        while True:
            listed = all(kind.listed or kind.state().code for kind in self._kinds)  # read first: all is settled below
            await self._settle_all()
            if listed:
                with self._units.isolated("log of nodes"):
                    self._news.tell(self._clock())
            if listed and not self._settled:
                self._settled = True
                self._on_ready()
            await self._pause(_SETTLE_EVERY if listed else _FIRST_EVERY)

    async def _settle_all(self) -> None:
        """Update the page, part by part; a part that fails stays as it was, or is left out."""
        isolated = self._units.isolated
        with isolated("binding times"):
            self._state.pass_time(self._clock())
        with isolated("waiting times"):
            self._pending.pass_time(self._wall())
        with isolated("changes"):
            await self._settle()
        with isolated("metrics of the cluster"):
            self._settle_cluster()
        with isolated("metrics of waiting pods"):
            self._settle_pods()
        for kind in self._kinds:
            with isolated(f"report of {kind.name}"):
                self._report(kind)
        self._tell.keep(watch_keys(self._kinds) | self._report_omitted())

    async def _pause(self, seconds: float) -> None:
        """Wait; while changes keep coming, wait longer (bounded), so that a node's events are handled together."""
        until, seen = self._clock() + _LONGEST_PAUSE, self._told()
        while True:
            await asyncio.sleep(seconds)
            now = self._told()
            if now == seen or self._clock() >= until:
                return
            seen = now

    def _told(self) -> int:
        """The number of changes that the watches have reported so far."""
        return sum(kind.told for kind in self._kinds)

    async def _settle(self) -> None:
        """Recompute the shards of changed nodes and namespaces, and let other tasks run in between."""
        changes = self._state.changed()
        self._news.changed(changes.nodes)
        began = start = self._clock()
        for name in changes.nodes | self._waiting_for_room():
            with self._units.isolated(f"node {name}"):
                self._settle_node(name)
            if self._clock() - began > _AT_ONCE:
                await asyncio.sleep(0)
                began = self._clock()
        for name in changes.namespaces:
            with self._units.isolated(f"namespace {name}"):
                self._settle_namespace(name)
        if changes.nodes and log.isEnabledFor(DEBUG):
            seconds = round(self._clock() - start, 6)
            log.log(DEBUG, "settled", extra=fields(nodes=len(changes.nodes), seconds=seconds))

    def _settle_namespace(self, name: str) -> None:
        namespace = self._state.namespace(name)
        if namespace.quotas:
            self._page.update(("namespace", name), namespace_samples(namespace))
        else:
            self._page.drop(("namespace", name))

    def _settle_node(self, name: str) -> None:
        self._assumed.pop(name, None)
        self._beyond.discard(name)
        try:
            self._show_node(name, self._state.node(name))
        except Exception:
            self._hide_node(name)  # what it had before may be wrong by now
            raise

    def _show_node(self, name: str, node: NodeLedger | None) -> None:
        shard = ("node", name)
        if node is not None and node.real and self._fits(shard):
            self._page.update_rows(shard, self._node_samples.of(node))
            return
        self._hide_node(name)
        if node is not None and node.real:
            self._node_samples.leave_out(node, "cluster-limit")
            self._beyond.add(name)
        elif node is not None:
            self._node_samples.leave_out(node, "unregistered-device")
            self._assumed[name] = node

    def _hide_node(self, name: str) -> None:
        self._page.drop(("node", name))
        self._node_samples.forget(name)

    def _fits(self, shard: tuple[str, str]) -> bool:
        return shard in self._page or self._page.series < self._config.max_series

    def _waiting_for_room(self) -> frozenset[str]:
        """The nodes without series, if the page has room again."""
        return frozenset(self._beyond if self._page.series < self._config.max_series else ())

    def _settle_cluster(self) -> None:
        self._page.update(_ASSUMED, assumed_node_samples(self._assumed.values()))
        samples = cluster_samples(
            build=this_build(),
            cluster=self._state.capacity(),
            types=self._state.capacity_types(),
            unplaced=self._state.unplaced,
            omitted=sum(self._node_samples.omitted.values(), Counter[ClusterOmission]()),
            watches=merged([kind.state() for kind in self._kinds]),
            errors=self.counters.errors,
            loop_restarts=self.counters.restarts,
        )
        self._page.update(_CLUSTER, samples)

    def _settle_pods(self) -> None:
        samples = [
            *scheduling_samples(self._scheduling.result(), estimates=self._estimates),
            *pending_samples(self._pending.counts(self._wall())),
        ]
        self._page.update(_PODS, samples)

    @property
    def _estimates(self) -> bool:
        """Whether to publish hami_scheduler_*: an extender of ours measures them, and sums would count both."""
        asked = self._config.scheduler_metrics
        return asked == "on" or (asked == "auto" and not self._extender.running)

    def _report_omitted(self) -> set[tuple[str, str]]:
        """Log what has no series, once for each node and once for all nodes that do not exist; the keys in the log."""
        told: set[tuple[str, str]] = set()
        for name, omitted in self._node_samples.omitted.items():
            node = self._assumed.get(name) or self._state.settled_node(name)
            key = ("omitted", "" if name in self._assumed else name)
            if node is not None and key not in told:
                told.add(key)
                self._tell_omitted(key, node, omitted)
        return told

    def _tell_omitted(self, key: tuple[str, str], node: NodeLedger, omitted: Mapping[ClusterOmission, int]) -> None:
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(omitted.items()))
        values = {"node": node.name[:80], "omitted": reasons, "examples": examples(node.findings)}
        message = "allocations or devices without series"
        self._tell.tell(key, tuple(sorted(omitted)), level=logging.WARNING, message=message, **values)

    def _report(self, kind: WatchedKind[Any]) -> None:
        report_watch(kind, self._tell, self.counters.count)


def _blocker(pod: PendingPod) -> Words | None:
    """What keeps a pod pending although there is room."""
    quota = Words(f"the quota of namespace {pod.namespace}", f"命名空间 {pod.namespace} 的配额")
    return quota if pod.code == "SCHED_QUOTA_EXCEEDED" else None
