"""The scheduler extender: kube-scheduler asks where a pod with GPUs goes, and this process decides, writes and binds.

nodes, pods, quotas,
slices, claims ──────► Cache ◄── assumptions ──┐
                         │                     │
/filter ─► queue of one ─┴─► place ─► write ───┴─► answer     lease ─► may this replica decide?
/bind ───► lock ─► mark ─► bind, or take back                  decisions, events, log lines, metrics
/webhook ► admit
"""

import asyncio
import gc
import logging
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from vgpuscope.catalog import extender as catalog
from vgpuscope.config import Config, ExtenderConfig, SettingsFile
from vgpuscope.formats.kube.extender import BindingArgs, ExtenderArgs, binding_result
from vgpuscope.http.address import networks
from vgpuscope.http.app import App, Readiness
from vgpuscope.http.operations import Operation, links, routes
from vgpuscope.http.peers import Peers
from vgpuscope.knowledge.vendors import NVIDIA
from vgpuscope.logic.scheduler.admission import admit, completion
from vgpuscope.logic.scheduler.overfull import overfull
from vgpuscope.logic.scheduler.state import nvidia_sums
from vgpuscope.model.admission import AdmissionResult, QuotaRoom, SubmittedPod
from vgpuscope.model.errors import ExtenderNotSynced, ExtenderStandby, KubeAbsent, ScopeError
from vgpuscope.model.extender import ExtenderFigures
from vgpuscope.model.placement import GpuPolicy, Policies
from vgpuscope.model.quantity import PodUID, Seconds, UnixTime
from vgpuscope.model.service import EXTENDER_LEASE
from vgpuscope.runtime.build import this_build
from vgpuscope.runtime.log import OnChange, fields
from vgpuscope.services.extender.api import TITLE, operations
from vgpuscope.services.extender.binding import Binder, BindFailed
from vgpuscope.services.extender.cache import Cache
from vgpuscope.services.extender.counters import ExtenderCounters
from vgpuscope.services.extender.deciding import Decider, ExtenderAnswer, FilterDecision
from vgpuscope.services.extender.decision_keeping import DecisionKeeper, open_store
from vgpuscope.services.extender.decisions_api import DecisionsApi
from vgpuscope.services.extender.events import EventPoster
from vgpuscope.services.extender.fit_api import FitApi
from vgpuscope.services.extender.idle_workloads import IdleWorkloads
from vgpuscope.services.extender.leadership import KubeLeadership
from vgpuscope.services.extender.node_lock import NodeLocks
from vgpuscope.services.extender.pod_role import PodRole
from vgpuscope.services.extender.pods import PodWriter
from vgpuscope.services.extender.protocol import LIMITS, WEBHOOK, ExtenderPaths
from vgpuscope.services.extender.reporting import Reports
from vgpuscope.services.extender.scheduler_lease import SchedulerLease
from vgpuscope.services.extender.waiting import RefusedPods
from vgpuscope.services.frame import Loops, Restartable, Service, run
from vgpuscope.services.lease_namespace import lease_namespace
from vgpuscope.services.watch import report_watch, watch_keys
from vgpuscope.sinks.kube.lease import KubeLease
from vgpuscope.sinks.kube.writer import KubeWriter
from vgpuscope.sources.kube import KubeClient, RenewedClient, check_kubeconfig
from vgpuscope.sources.seal_keys import seals
from vgpuscope.views.exposition.sharded import ShardedPage
from vgpuscope.views.scheduler.metrics import extender_samples

if TYPE_CHECKING:
    from vgpuscope.services.frame import Guard

log = logging.getLogger(__name__)

_API_WITHIN: Seconds = 10.0  # for one answer of the API server
_SETTLE_EVERY: Seconds = 1.0
_FENCED_AT_ONCE = 16
_REACHED_WITHIN = 2.0  # lease durations without an answer of the API server, until this replica is not ready
_STUCK_AFTER = 6.0  # lease durations without a round of the lease loop, until this process should be restarted
_LOCK_PATIENCE: Seconds = 5.0
_GC_EVERY = 20_000


def main(config: Config, *, file: SettingsFile | None = None) -> int:
    """`vgpuscope extender`."""
    gc.set_threshold(_GC_EVERY)
    return run(lambda: extender(config.extender), config=config, listening=config.extender, file=file)


def extender(config: ExtenderConfig) -> "Extender":
    """The service; ConfigInvalid if the kubeconfig cannot be used."""
    check_kubeconfig(config.kubeconfig)
    return Extender(config)


class Extender(Service):
    """The parts of the extender and its state. Everything happens on one thread."""

    name = "extender"

    def __init__(
        self,
        config: ExtenderConfig,
        *,
        clock: Callable[[], Seconds] = time.monotonic,
        wall: Callable[[], UnixTime] = time.time,
    ) -> None:
        super().__init__()
        self._config, count = config, self.counters.count
        self._clock, self._wall = clock, wall
        self._identity = f"{config.identity or socket.gethostname()}_{secrets.token_hex(4)}"
        keys = seals(config.seal_keys)
        self._client = RenewedClient(config.kubeconfig)
        api = KubeClient(self._client, timeout=_API_WITHIN)
        writer = KubeWriter(api, component=config.scheduler_name, instance=self._identity)
        lease = KubeLease(api, writer, namespace=lease_namespace(config.lease_namespace), name=EXTENDER_LEASE)
        self._leadership = KubeLeadership(
            lease,
            identity=self._identity,
            duration=config.lease_duration,
            elect=config.leader_elect,
            scheduler=self._scheduler_lease(api, writer),
            finished=self._finished,
            failed=count,
            clock=clock,
            wall=wall,
        )
        self._cache = Cache(seals=keys, resync=config.resync_interval, clock=clock)
        self._tally = ExtenderCounters()
        self._tell = OnChange(log)
        self._pods = PodWriter(api, writer, seals=keys)
        self._keeper = DecisionKeeper(
            open_store(config.state), failed=count, leads=lambda: self._leadership.leads, wall=wall
        )
        self._poster = EventPoster(writer.report, failed=count, clock=clock)
        self._reports = Reports(self._keeper, self._poster, gpus=self._gpus, memory=self._memory, wall=wall)
        self._idle = IdleWorkloads(config.analyzer_url, token=config.analyzer_token, wall=wall)
        self._decider = Decider(
            self._cache,
            self._pods,
            policies=policies(config),
            tally=self._tally,
            check=self._check,
            decided=self._filtered,
            failed=count,
            clock=clock,
            wall=wall,
        )
        self._binder = Binder(
            self._pods,
            NodeLocks(
                api,
                writer,
                expires=config.node_lock_timeout,
                changed=self._cache.node_changed,
                wall=wall,
                clock=clock,
            ),
            written=self._decider.written,
            overfull=lambda uid, node: overfull(self._cache.state, uid, node),
            cleared=self._cache.forget,
            sealed=self._pods.sealed,
            check=self._check,
            leads=lambda: self._leadership.leads,
            failed=count,
            timeout=config.bind_timeout,
            patience=min(_LOCK_PATIENCE, config.bind_timeout / 3),
            clock=clock,
            wall=wall,
        )
        self._refused = RefusedPods(
            self._cache, self._pods, policies=policies(config), failed=count, clock=clock, wall=wall
        )
        self._page = ShardedPage(catalog.METRICS, config.families)
        self._ready_as: int | None = None  # the term in which everything was listed again; None: not yet
        self._turned = asyncio.Event()
        self._leadership.on_turn.append(self._turned.set)
        self._role = PodRole(
            writer,
            namespace=config.lease_namespace,
            pod=config.identity,
            leads=lambda: self._leadership.leads,
            failed=count,
        )
        self._leadership.on_turn.append(self._role.turn)
        self._turned.set()

    # ── the frame ────────────────────────────────────────────────────────────────────────────────────────────────

    def loops(self) -> Loops:
        kubeconfig, count = self._config.kubeconfig, self.counters.count
        watches = {
            f"watch-{kind.name}": partial(self._cache.follow, kind, kubeconfig, count) for kind in self._cache.kinds
        }
        return {
            "lease": self._leadership.run,
            "lead": self._lead_forever,
            "role": Restartable(self._role.run),
            "settle": Restartable(self._settle_forever),
            "events": Restartable(self._poster.run),
            "decisions": Restartable(self._keeper.run),
            "idle": Restartable(self._idle.run),
            **watches,
        }

    def about(self) -> Mapping[str, object]:
        config = self._config
        return {
            "identity": self._identity,
            "scheduler": config.scheduler_name,
            "policy": f"{config.node_scheduler_policy}/{config.gpu_scheduler_policy}",
            "leader_elect": config.leader_elect,
        }

    def app(self, guard: "Guard | None") -> App:
        peers = Peers(guard, networks(self._config.allow_from))
        paths = ExtenderPaths(self, peers=peers, tally=self._tally, failed=self.counters.count, clock=self._clock)
        table = self._operations(lambda: guard is not None and guard.guarded)
        return App(
            title=TITLE,
            service=self.name,
            metrics=self._metrics,
            ready=self.readiness,
            health=self.health,
            guard=guard,
            routes=[*paths.routes(), *routes(table)],
            links=links(table),
            public=lambda request: request.url.path == WEBHOOK,
            longest=LIMITS,
        )

    def _operations(self, guarded: Callable[[], bool]) -> tuple[Operation, ...]:
        fit = FitApi(
            lambda: self._cache.state,
            self._keeper.log,
            policies=policies(self._config),
            idle=self._idle.now,
            completion=partial(
                completion,
                scheduler=self._config.scheduler_name,
                overwrite_default=self._config.overwrite_default_scheduler,
            ),
            check=self._check_state,
            clock=self._clock,
        )
        return operations(DecisionsApi(self._keeper.log, wall=self._wall), fit, guarded=guarded)

    def readiness(self) -> Readiness:
        """Ready while this replica may decide: it leads, has listed everything since, and reaches the API server."""
        missing = [*self._cache.missing]
        if not self._leadership.leads:
            missing.append(f"lease: {self._held}")
        elif not missing and not self._synced:
            missing.append("lists since this replica leads")
        if not self._reached:
            missing.append("API server: no answer")
        return Readiness(missing=tuple(missing))

    def health(self) -> Readiness:
        """Unhealthy if a restart would help: the loop that renews the lease is stuck. An API outage is shown only."""
        asked, limit = self._leadership.asked, _STUCK_AFTER * self._config.lease_duration
        stuck = asked is not None and self._clock() - asked > limit
        lease = "leading" if self._leadership.leads else self._held
        return Readiness(
            missing=("the lease loop is stuck",) if stuck else (),
            facts=(
                ("cache", "synced" if self._synced else "not synced"),
                ("lease", lease),
                ("api", "reachable" if self._reached else "unreachable"),
                *((name, "forbidden: GPUs that claims hold are not known") for name in self._cache.forbidden),
            ),
        )

    async def close(self) -> None:
        await self._leadership.release()
        await self._poster.flush()
        await self._keeper.close()
        await self._client.close()

    def _scheduler_lease(self, api: KubeClient, writer: KubeWriter) -> SchedulerLease | None:
        config = self._config
        if not config.scheduler_lease:
            return None
        lease = KubeLease(api, writer, namespace=lease_namespace(config.lease_namespace), name=config.scheduler_lease)
        return SchedulerLease(lease, host=socket.gethostname(), failed=self.counters.count, clock=self._clock)

    # ── leading ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _synced(self) -> bool:
        """Whether everything was listed since this replica leads, and is watched now."""
        return self._ready_as == self._leadership.term and self._cache.synced

    @property
    def _reached(self) -> bool:
        """Whether the API server answers. Without election the lease is not needed, so the watches tell, too."""
        reached, limit = self._leadership.reached, _REACHED_WITHIN * self._config.lease_duration
        recent = reached is not None and self._clock() - reached < limit
        return recent or (not self._config.leader_elect and self._cache.synced)

    @property
    def _held(self) -> str:
        """By which replica the lease was last seen to be held."""
        return f"held by {self._leadership.holder}" if self._leadership.holder else "not held"

    def _check(self) -> None:
        """Raises while this replica must not decide."""
        if not self._leadership.leads:
            self._leadership.want()
            raise ExtenderStandby(f"the lease is {self._held}")
        if not self._synced:
            missing = ", ".join(self._cache.missing) or "pods that were decided by the last leader"
            raise ExtenderNotSynced(f"not listed since this replica leads: {missing}")

    def _check_state(self) -> None:
        """Raises while the state is not complete; every replica has it."""
        if not self._cache.synced:
            raise ExtenderNotSynced(f"not listed yet: {', '.join(self._cache.missing)}")

    async def _lead_forever(self) -> None:
        """List everything again whenever this replica begins to lead."""
        while True:
            await self._turned.wait()
            self._turned.clear()
            term = self._leadership.term
            if self._leadership.leads and self._ready_as != term:
                await self._take_over(term)

    async def _take_over(self, term: int) -> None:
        """Nothing that the last leader wrote may be missing, and nothing that it still sends may take effect."""

        def still() -> bool:
            return self._leadership.leads and self._leadership.term == term

        began = self._clock()
        self._decider.unsettled.clear()
        self._cache.drop_assumptions()
        self._cache.relist()
        while still() and not self._cache.synced:  # noqa: ASYNC110 - it changes in many places
            await asyncio.sleep(0.02)
        fenced = await self._fence(term) if still() and self._leadership.takes_over else {}
        await self._cache.until_seen(fenced, still=still)
        if still():
            self._ready_as = term
            seconds = round(self._clock() - began, 3)
            log.info("ready to decide", extra=fields(term=term, fenced=len(fenced), seconds=seconds))

    async def _finished(self) -> None:
        """Returns when nothing that this replica has decided is still being written."""
        while self._decider.deciding or self._binder.binding or self._binder.undone:  # noqa: ASYNC110 - in many places
            await asyncio.sleep(0.02)

    async def _fence(self, term: int) -> dict[str, str]:
        """Give every waiting pod a new version: a late write of the last leader names the old one, and is rejected."""
        lanes, versions = asyncio.Semaphore(_FENCED_AT_ONCE), dict[str, str]()

        async def one(uid: str, namespace: str, name: str) -> None:
            async with lanes:
                while self._leadership.leads:
                    try:
                        versions[uid] = await self._pods.fence(namespace, name, uid, term)
                    except KubeAbsent:
                        return
                    except ScopeError as e:
                        self.counters.count(e)
                        await asyncio.sleep(0.5)
                    else:
                        return

        waiting = [
            pod
            for pod in self._cache.state.pods.values()
            if not pod.node and not pod.ended and pod.asking and pod.scheduler == self._config.scheduler_name
        ]
        async with asyncio.TaskGroup() as group:
            for pod in waiting:
                group.create_task(one(pod.uid, pod.namespace, pod.name), name=f"fence {pod.name}")
        return versions

    async def _settle_forever(self) -> None:
        """Take back what could not be taken back at once, and log what has become of the watches."""
        while True:
            await asyncio.sleep(_SETTLE_EVERY)
            self._report_watches()
            await self._binder.settle()  # also after this replica has lost the lease: no other replica knows its locks
            if self._leadership.leads:
                await self._decider.settle()
                await self._refused.look()
                self._cache.sweep(self._clock())

    def _report_watches(self) -> None:
        for kind in self._cache.kinds:
            report_watch(kind, self._tell, self.counters.count)
        self._tell.keep(watch_keys(self._cache.kinds))

    # ── what the paths lead to ───────────────────────────────────────────────────────────────────────────────────

    def _filtered(self, found: FilterDecision) -> None:
        self._reports.filtered(found)
        if found.decision.outcome == "failed":
            return
        if found.placement.node:
            self._refused.placed(found.pod.uid)
        elif found.request is not None:
            self._refused.refused(found.pod, found.request, [one.node for one in found.placement.nodes])

    async def filter(self, args: ExtenderArgs) -> ExtenderAnswer:
        return await self._decider.filter(args)

    async def prioritize(self, args: ExtenderArgs) -> ExtenderAnswer:
        return await self._decider.prioritize(args)

    async def bind(self, args: BindingArgs) -> ExtenderAnswer:
        began = self._clock()
        try:
            pod = await self._binder.bind(args)
        except BindFailed as e:
            self._tally.refused("bind", e.code)
            self._reports.bind_failed(args, e, self._clock() - began)
            return ExtenderAnswer(binding_result(f"{e.code}: {e}"), "refused")
        self._reports.bound(args, pod, self._clock() - began)
        return ExtenderAnswer(binding_result(), "ok")

    def may_assign(self, user: str) -> bool:
        """Whether the user may write who has a GPU; everyone, if nobody is named."""
        return not self._config.writers or user in self._config.writers

    def admit(self, pod: SubmittedPod) -> AdmissionResult:
        config = self._config
        return admit(
            pod,
            scheduler=config.scheduler_name,
            overwrite_default=config.overwrite_default_scheduler,
            rooms=self._rooms(pod.namespace),
        )

    def _rooms(self, namespace: str) -> tuple[QuotaRoom, ...]:
        """The quotas of a namespace; none while they are not known: the filter checks them again."""
        if not self._cache.synced:
            return ()
        room = self._cache.state.room(namespace)
        known = (
            (NVIDIA.memory, room.memory_limit, room.memory_used),
            (NVIDIA.core, room.cores_limit, room.cores_used),
        )
        return tuple(
            QuotaRoom(resource=str(name), limit=limit, used=used) for name, limit, used in known if limit is not None
        )

    def _gpus(self, node: str) -> int:
        node_info = self._cache.state.node_info(node)
        return len(node_info.gpus) if node_info else 0

    def _memory(self, uid: PodUID, node: str) -> int | None:
        """The MiB that decisions count for a pod on a node; None if it holds nothing there any more."""
        return next((nvidia_sums(pod)[0] for pod in self._cache.state.holding(uid) if pod.place == node), None)

    # ── metrics ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _metrics(self) -> ShardedPage:
        self._page.update("extender", extender_samples(self._figures(), this_build()))
        return self._page

    def _figures(self) -> ExtenderFigures:
        tally, leadership = self._tally, self._leadership
        return ExtenderFigures(
            filtering=tally.filtering,
            scoring=tally.scoring,
            binding=tally.binding,
            queueing=tally.queueing,
            bound=tally.bound,
            failed=tally.failed,
            requests=dict(tally.requests),
            refusals=dict(tally.refusals),
            node_refusals=dict(tally.node_refusals),
            queue=self._decider.waiting,
            assumed=self._cache.assumed,
            unsettled=len(self._decider.unsettled) + len(self._binder.undone),
            leads=leadership.leads,
            lease_age=leadership.age,
            lease_transitions=leadership.transitions,
            synced=self._cache.synced,
            watches=self._cache.states(),
            posted=self._poster.posted,
            dropped=self._poster.dropped,
            decisions=len(self._keeper.log),
            log=self._keeper.state(),
            errors=self.counters.errors,
            restarts=self.counters.restarts,
        )


def policies(config: ExtenderConfig) -> Policies:
    """The policies for pods whose annotations name none."""
    known: dict[str, GpuPolicy] = {
        "binpack": "binpack",
        "spread": "spread",
        "topology-aware": "topology-aware",
        "mutex": "mutex",
        "numa": "numa",
    }
    gpu = tuple(known[word] for word in config.gpu_scheduler_policy.split(","))
    return Policies(node=config.node_scheduler_policy, gpu=gpu)
