"""The cluster exporter: the API server's objects → a ledger → a page in shards; a scrape only joins what is there.

nodes ──────────┐
pods ───────────┼──► ClusterLedger ──► what changed ──► ShardedPage ──► /metrics
resourcequotas ─┘     (a fold)          (node by node)       └────────► /api/v1/nodes
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vgpuscope.catalog import cluster as catalog
from vgpuscope.config import ClusterConfig, Config
from vgpuscope.formats import cluster_objects as objects
from vgpuscope.logic.cluster_capacity import CapacityTotals
from vgpuscope.logic.cluster_ledger import ClusterLedger
from vgpuscope.model.allocation import NodeState, PodState, QuotaState
from vgpuscope.model.errors import AnnotationMalformed, ScopeError, SourceDown
from vgpuscope.model.watch import WatchState
from vgpuscope.runtime import address, lifecycle
from vgpuscope.runtime.build import this_build
from vgpuscope.runtime.http import App, Readiness, Server, make_app
from vgpuscope.runtime.log import OnChange, fields, setup
from vgpuscope.sources.kube import Api, Watch, check_kubeconfig, open_client
from vgpuscope.views.cluster_metrics import cluster_samples, namespace_samples, node_samples
from vgpuscope.views.sharded import ShardedPage

if TYPE_CHECKING:
    from vgpuscope.runtime.guard import Guard

log = logging.getLogger(__name__)

_SETTLE_EVERY = 0.25  # seconds between two looks at what changed
_AT_ONCE = 0.02  # seconds of settling before others get their turn: a scrape, an event
_RETRY = (1.0, 30.0)  # seconds: first and longest pause before a kind is tried again
_TIMEOUT = 10.0  # seconds for the API server to begin an answer
_CLUSTER = "cluster"  # the shard of what is not a node's or a namespace's


def main(config: Config) -> int:
    """`vgpuscope cluster`."""
    setup(v=config.log.v, format=config.log.format)
    return lifecycle.main(lambda life: _serve(config.cluster, life))


async def _serve(config: ClusterConfig, life: lifecycle.Lifecycle) -> None:
    if config.kubeconfig is not None:
        check_kubeconfig(config.kubeconfig)
    exporter = ClusterExporter(config)
    guard = _guard(config, exporter.count)
    server = Server(exporter.app(guard), sock=address.bind(config.listen), guard=guard)
    log.info("cluster exporter starts", extra=fields(url=server.url, families=",".join(config.families)))
    await life.run(exporter.loops(), server=server)


class Kind:
    """One kind of object, in all namespaces or in one: watched, and told to the ledger change by change."""

    def __init__(
        self,
        name: str,
        path: str,
        *,
        resync: float,
        decoders: tuple[Callable[[bytes], Any], Callable[[bytes], Any]],
        key: Callable[[Any], str],
        keep: Callable[[Any], None],
        drop: Callable[[str, Any], None],
    ) -> None:
        self.name = name
        self._keep, self._drop = keep, drop
        self._known: dict[str, Any] = {}
        self._error: ScopeError | None = None
        self._heard: float | None = None
        self._events = 0
        self.listed = False
        self._watch: Watch[Any] = Watch(
            path=path,
            params={},
            decode_page=decoders[0],
            decode_event=decoders[1],
            key=key,
            resync=resync,
            on_list=self._take_list,
            on_change=self._take,
        )

    async def follow(self, kubeconfig: str | None) -> None:
        """Watch until that fails."""
        async with open_client(kubeconfig) as client:
            await self._watch.run(Api(client, timeout=_TIMEOUT), self._alive)

    def failed(self, error: ScopeError) -> None:
        """The last attempt ended so."""
        self._error = error

    def faults(self) -> Mapping[str, str]:
        """What could not be read in the objects as they are now."""
        return {fault.uid: f"{fault.object}: {fault.reason}" for fault in self._watch.faults}

    def state(self) -> WatchState:
        """How the watch stands."""
        error = self._error
        return WatchState(
            kind=self.name,
            up=self.listed and error is None,
            objects=len(self._known) if self.listed else None,
            events=self._events,
            faults=len(self._watch.faults),
            age_seconds=None if self._heard is None else time.monotonic() - self._heard,
            code=error.code if error else None,
            message=str(error) if error else None,
        )

    def _alive(self) -> None:
        self._heard, self._error = time.monotonic(), None

    def _take_list(self, found: Mapping[str, Any]) -> None:
        for uid in [uid for uid in self._known if uid not in found]:
            self._drop(uid, self._known.pop(uid))
        for uid, item in found.items():
            if self._known.get(uid) != item:
                self._known[uid] = item
                self._keep(item)
        self.listed = True

    def _take(self, uid: str, item: Any) -> None:
        self._events += 1
        if item is not None:
            self._known[uid] = item
            self._keep(item)
        elif uid in self._known:
            self._drop(uid, self._known.pop(uid))


class ClusterExporter:
    """The parts of the exporter, and what it knows. Everything but the watches' waiting happens on one thread."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._ledger = ClusterLedger()
        self._totals = CapacityTotals()
        self._page = ShardedPage(catalog.METRICS, config.families)
        self._errors: dict[str, int] = {}
        self._tell = OnChange(log)
        self._settled = False
        self._kinds = list(self._watched())

    def loops(self) -> dict[str, lifecycle.Loop]:
        """What runs for as long as the exporter does."""
        loops: dict[str, lifecycle.Loop] = {"settle": self._settle_forever}
        for number, kind in enumerate(self._kinds):
            loops[f"watch-{kind.name}-{number}"] = self._following(kind)
        return loops

    def app(self, guard: "Guard | None") -> App:
        """What is served."""
        return make_app(
            title="vgpuscope cluster",
            metrics=lambda: self._page,
            ready=self.readiness,
            guard=guard,
            routes=[Route("/api/v1/nodes", self._nodes_json)],
            links=[("api/v1/nodes", "the ledger of every node as JSON")],
        )

    def readiness(self) -> Readiness:
        """Ready once every kind was listed, or is known to be refused, and the page was made from it."""
        missing = [kind.name for kind in self._kinds if not kind.listed and kind.state().code != "KUBE_FORBIDDEN"]
        if not missing and not self._settled:
            missing = ["the first page"]
        return Readiness(missing=tuple(dict.fromkeys(missing)))

    def count(self, error: ScopeError) -> None:
        """One more of this error."""
        self._errors[error.code] = self._errors.get(error.code, 0) + 1

    async def _nodes_json(self, request: Request) -> Response:  # noqa: ARG002 - the shape of a route
        nodes = [self._ledger.node(name) for name in sorted(self._ledger.node_names())]
        return Response(msgspec.json.encode([node for node in nodes if node]), media_type="application/json")

    def _watched(self) -> list[Kind]:
        kinds = [
            self._kind(
                "nodes",
                "",
                (objects.decode_nodes, objects.decode_node_event),
                key=lambda node: node.name,
                keep=self._ledger.set_node,
                drop=lambda _, node: self._drop_node(node),
            )
        ]
        for namespace in self._config.namespaces or ("",):
            where = f"namespaces/{namespace}/" if namespace else ""
            kinds.append(
                self._kind(
                    "pods",
                    where,
                    (objects.decode_cluster_pods, objects.decode_cluster_pod_event),
                    key=lambda pod: pod.uid,
                    keep=self._ledger.set_pod,
                    drop=lambda _, pod: self._drop_pod(pod),
                )
            )
            kinds.append(
                self._kind(
                    "resourcequotas",
                    where,
                    (objects.decode_quotas, objects.decode_quota_event),
                    key=lambda quota: f"{quota.namespace}/{quota.name}",
                    keep=self._ledger.set_quota,
                    drop=lambda _, quota: self._drop_quota(quota),
                )
            )
        return kinds

    def _kind(self, name: str, where: str, decoders: Any, **calls: Any) -> Kind:
        path = f"/api/v1/{where}{name}"
        return Kind(name, path, resync=self._config.resync_interval, decoders=decoders, **calls)

    def _drop_node(self, node: NodeState) -> None:
        self._ledger.drop_node(node.name)

    def _drop_pod(self, pod: PodState) -> None:
        self._ledger.drop_pod(pod.uid)

    def _drop_quota(self, quota: QuotaState) -> None:
        self._ledger.drop_quota(quota.namespace, quota.name)

    def _following(self, kind: Kind) -> lifecycle.Loop:
        async def follow() -> None:
            pause = _RETRY[0]
            while True:
                began = time.monotonic()
                try:
                    await kind.follow(self._config.kubeconfig)
                except SourceDown as error:
                    kind.failed(error)
                    self.count(error)
                    self._report(kind)
                if time.monotonic() - began > _RETRY[1]:
                    pause = _RETRY[0]
                await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # many exporters must not come back at once
                pause = min(pause * 2, _RETRY[1])

        return follow

    async def _settle_forever(self) -> None:
        while True:
            self._ledger.pass_time(time.monotonic())
            await self._settle()
            self._settle_cluster()
            for kind in self._kinds:
                self._report(kind)
            self._settled = all(kind.listed or kind.state().code for kind in self._kinds)
            await asyncio.sleep(_SETTLE_EVERY)

    async def _settle(self) -> None:
        """Make the shards anew of what changed, a little at a time."""
        changes = self._ledger.changed()
        began = time.perf_counter()
        for name in changes.nodes:
            self._settle_node(name)
            if time.perf_counter() - began > _AT_ONCE:
                await asyncio.sleep(0)
                began = time.perf_counter()
        for name in changes.namespaces:
            self._page.update(("namespace", name), namespace_samples(self._ledger.namespace(name)))

    def _settle_node(self, name: str) -> None:
        node = self._ledger.node(name)
        if node is None:
            self._totals.drop(name)
            self._page.drop(("node", name))
            return
        self._totals.put(node)
        self._page.update(("node", name), node_samples(node))

    def _settle_cluster(self) -> None:
        samples = cluster_samples(
            build=this_build(),
            cluster=self._totals.cluster(),
            types=self._totals.types(),
            watches=_merged([kind.state() for kind in self._kinds]),
            errors=self._errors,
        )
        self._page.update(_CLUSTER, samples)

    def _report(self, kind: Kind) -> None:
        """Log what changed, once."""
        state = kind.state()
        level = logging.INFO if state.up else logging.WARNING
        if state.up or state.code:
            word = "watch up" if state.up else "watch down"
            values = {"kind": kind.name, "error_code": state.code, "err": state.message}
            self._tell.tell((kind, "state"), (state.up, state.code), level=level, message=word, **values)
        for uid, fault in kind.faults().items():
            values = {"kind": kind.name, "object": fault, "error_code": AnnotationMalformed.code}
            if self._tell.tell((kind, uid), fault, level=logging.WARNING, message="malformed", **values):
                self.count(AnnotationMalformed(fault))


def _merged(states: list[WatchState]) -> list[WatchState]:
    """One state for each kind: of several namespaces, the worst."""
    merged: dict[str, WatchState] = {}
    for state in states:
        known = merged.get(state.kind)
        if known is not None:
            objects_ = (known.objects or 0) + (state.objects or 0)
            state = msgspec.structs.replace(  # noqa: PLW2901
                state if not state.up else known,
                up=known.up and state.up,
                objects=objects_,
                events=known.events + state.events,
                faults=known.faults + state.faults,
            )
        merged[state.kind] = state
    return list(merged.values())


def _guard(config: ClusterConfig, on_error: Callable[[ScopeError], None]) -> "Guard | None":
    if config.web_config_file is None:
        return None
    from vgpuscope.runtime.guard import Guard

    return Guard(config.web_config_file, on_error=on_error)
