"""Filter and prioritize: one decision at a time, written on the pod before it is answered.

A decision is held in the cache before it is written, so that the next decision counts its GPUs. If the API server
rejects the write, nothing was changed, and it is decided again over the pod's new version. If the API server does not
answer, the GPUs stay held until the pod's assignment is known to be cleared.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec import structs

from vgpuscope.formats.kube import objects
from vgpuscope.formats.kube.extender import (
    BindingArgs,
    ExtenderArgs,
    PodHead,
    filter_error,
    filter_result,
    node_name,
    priorities,
)
from vgpuscope.formats.kube.placement_request import placement_request
from vgpuscope.logic.scheduler.place import CheckedCandidates, check_nodes, place
from vgpuscope.model.errors import (
    KubeAbsent,
    KubeConflict,
    KubeForbidden,
    KubeUnreadable,
    KubeUnwritten,
    RequestInvalid,
    ScopeError,
)
from vgpuscope.model.placement import (
    DecidedGpu,
    Decision,
    DecisionOutcome,
    NodeVerdict,
    Placement,
    PlacementRequest,
    Policies,
    Verb,
    Verdict,
)
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.services.extender.cache import Cache
from vgpuscope.services.extender.counters import ExtenderCounters, Outcome
from vgpuscope.services.extender.pods import FoundPod, PodWriter
from vgpuscope.views.scheduler.notes import main_verdict, priority

log = logging.getLogger(__name__)

UNDECIDED = "SCHED_NO_EXTENDER"
_TRIES = 4  # of a pod that others change meanwhile
_MOST_WRITTEN = 5000  # pods that were assigned, and not bound yet


class ExtenderAnswer(NamedTuple):
    """The body of an answer, and what it means."""

    body: bytes
    outcome: Outcome
    error: ScopeError | None = None
    ranked: Seconds = 0.0  # time to rank nodes


class FilterDecision(NamedTuple):
    """A decision, for those who record and report it."""

    pod: PodHead
    request: PlacementRequest | None
    placement: Placement
    decision: Decision


def decision_of(
    pod: PodHead | BindingArgs,
    placement: Placement,
    *,
    verb: Verb,
    outcome: DecisionOutcome,
    at: UnixTime,
    seconds: Seconds,
    request: PlacementRequest | None = None,
) -> Decision:
    """The decision about a pod, for the log of decisions."""
    return Decision(
        id=uuid.uuid4().hex,
        at=at,
        verb=verb,
        namespace=pod.namespace,
        pod=pod.name,
        pod_uid=pod.uid,
        outcome=outcome,
        node=placement.node,
        devices=tuple(DecidedGpu(uuid=one.uuid, memory=one.memory, cores=one.cores) for one in placement.gpus),
        score=placement.score,
        policy=placement.policy,
        terms=placement.terms,
        nodes=placement.nodes,
        seconds=seconds,
        request=request,
    )


class Decider:
    """Answers filter and prioritize."""

    def __init__(
        self,
        cache: Cache,
        pods: PodWriter,
        *,
        policies: Policies,
        tally: ExtenderCounters,
        check: Callable[[], None],
        decided: Callable[[FilterDecision], None],
        failed: Callable[[ScopeError], None] = lambda _: None,
        clock: Callable[[], Seconds] = time.monotonic,
        wall: Callable[[], UnixTime] = time.time,
    ) -> None:
        """`check` raises ExtenderStandby or ExtenderNotSynced while this replica must not decide."""
        self._cache, self._pods, self._policies, self._tally = cache, pods, policies, tally
        self._check, self._decided, self._failed = check, decided, failed
        self._clock, self._wall = clock, wall
        self._turn = asyncio.Lock()
        self._spent: Seconds = 0.0  # ranking nodes, in the decision that is being made
        self.waiting = 0
        self.unsettled: dict[str, PodHead] = {}  # by uid: pods of which it is not known what was written
        self._written: dict[str, PodHead] = {}  # by uid: pods as they were assigned

    @property
    def deciding(self) -> bool:
        """Whether a decision is being made or written, or it is not known what was written."""
        return self._turn.locked() or self.waiting > 0 or bool(self.unsettled)

    # ── filter ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def filter(self, args: ExtenderArgs) -> ExtenderAnswer:
        """The nodes that pass: all of them for a pod without GPUs, else the one that was chosen."""
        began = self._clock()
        try:
            request = placement_request(args.pod)
        except RequestInvalid as e:
            return self._invalid(args, e, began)
        if request is None:
            return ExtenderAnswer(filter_result(args, None), "ok")
        await self._queue()
        self._spent = 0.0
        try:
            answer = await self._filter(args, request, began)
        except RequestInvalid as e:  # the pod was changed meanwhile
            answer = self._invalid(args, e, began)
        except ScopeError as e:
            answer = self._undecided(args, request, e, began)
        finally:
            self._turn.release()
        return answer._replace(ranked=self._spent)

    async def _filter(self, args: ExtenderArgs, request: PlacementRequest, began: Seconds) -> ExtenderAnswer:
        self._check()
        if args.node_names is None:
            return self._simulated(args, request)
        pod = args.head
        for left in reversed(range(_TRIES)):
            _check_placeable(pod)
            placement = self._ranked(check_nodes(self._cache.state, request, args.node_names, policies=self._policies))
            if not placement.node:
                await self._release(pod)
                return self._refused(args, pod, request, placement, began)
            try:
                await self._write(pod, request, placement)
            except KubeConflict:
                if not left:
                    raise
                found = await self._again(pod)
                pod, request = found.head, placement_request(found.body) or request
            else:
                self._record(pod, request, placement, began)
                return ExtenderAnswer(_chosen(args, placement), "ok")
        raise AssertionError("the last try returns or raises")

    async def _write(self, pod: PodHead, request: PlacementRequest, placement: Placement) -> None:
        """Hold the GPUs, and write the assignment. If it is not known whether it was written, they stay held."""
        self._check()
        self._cache.assume(request, placement, self._clock())
        try:
            written = await self._pods.assign(pod, request, placement, self._wall())
        except (KubeConflict, KubeAbsent, KubeForbidden):
            self._cache.forget(pod.uid)
            raise
        except BaseException:
            self.unsettled[pod.uid] = pod
            raise
        self.unsettled.pop(pod.uid, None)
        self._cache.wrote(pod.uid, written.version)
        self._written[pod.uid] = written
        if len(self._written) > _MOST_WRITTEN:
            del self._written[next(iter(self._written))]

    def written(self, uid: str) -> PodHead | None:
        """The pod as it was assigned here, once; None: it was not, or it was returned before."""
        return self._written.pop(uid, None)

    async def _again(self, pod: PodHead) -> FoundPod:
        """The pod as the API server has it now."""
        found = await self._pods.read(pod.namespace, pod.name)
        if found is None or found.head.uid != pod.uid:
            raise KubeAbsent(f"pod {pod.key} does not exist any more")
        return found

    async def _release(self, pod: PodHead) -> None:
        """A refused pod must not hold GPUs by an earlier assignment. If that fails, the next attempt tries again."""
        if not self._cache.state.holds(pod.uid):
            return
        try:
            found = await self._again(pod)
            if found.head.assignment and not found.head.node:
                self._cache.forget(pod.uid, await self._pods.clear(found.head))
        except (KubeUnreadable, KubeUnwritten) as e:
            self._failed(e)

    def _ranked(self, checked: CheckedCandidates) -> Placement:
        """The decision; only the time to rank the nodes counts as time of the score."""
        began = self._clock()
        best = checked.best()
        self._spent += self._clock() - began
        return checked.on(best)

    # ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _simulated(self, args: ExtenderArgs, request: PlacementRequest) -> ExtenderAnswer:
        """The answer from whole nodes: the same choice, but nothing is held or written, as with HAMi."""
        placement = self._ranked(self._simulation(args, request))
        if placement.node:
            return ExtenderAnswer(_chosen(args, placement), "ok")
        self._tally.refused("filter", _code(placement), placement.nodes)
        return ExtenderAnswer(filter_result(args, (), failed=_failures(placement.nodes)), "refused")

    def _simulation(self, args: ExtenderArgs, request: PlacementRequest) -> CheckedCandidates:
        nodes = objects.decode_nodes(args.sent_nodes or b"").items
        state = self._cache.state.with_nodes(nodes, without=request.uid)
        return check_nodes(state, request, [node.name for node in nodes], policies=self._policies)

    def _refused(
        self, args: ExtenderArgs, pod: PodHead, request: PlacementRequest | None, placement: Placement, began: Seconds
    ) -> ExtenderAnswer:
        self._tally.refused("filter", _code(placement), placement.nodes)
        self._record(pod, request, placement, began)
        return ExtenderAnswer(filter_result(args, (), failed=_failures(placement.nodes)), "refused")

    def _invalid(self, args: ExtenderArgs, error: RequestInvalid, began: Seconds) -> ExtenderAnswer:
        """A request that no node can satisfy: every node is refused with the same words."""
        verdict = Verdict(
            code=error.code,
            reason=f"{error.code}: {error}",
            message=str(error),
            message_zh=error.chinese,
        )
        try:
            self._check()
        except ScopeError as e:
            return self._undecided(args, None, e, began)
        return self._refused(args, args.head, None, Placement(nodes=_of_all(args, verdict)), began)

    def _undecided(
        self, args: ExtenderArgs, request: PlacementRequest | None, error: ScopeError, began: Seconds
    ) -> ExtenderAnswer:
        """No decision could be made. kube-scheduler shows the text only if the answer is a 200, and retries."""
        self._failed(error)
        text = f"{error.code}: {error}"
        nodes = _of_all(args, Verdict(code=UNDECIDED, reason=text, message=text))
        self._record(args.head, request, Placement(nodes=nodes), began, outcome="failed")
        return ExtenderAnswer(filter_error(text), "error")

    def _record(
        self,
        pod: PodHead,
        request: PlacementRequest | None,
        placement: Placement,
        began: Seconds,
        *,
        outcome: DecisionOutcome | None = None,
    ) -> None:
        """`outcome` is that of the placement unless given."""
        decision = decision_of(
            pod,
            placement,
            verb="filter",
            outcome=outcome or ("assigned" if placement.node else "refused"),
            at=self._wall(),
            seconds=self._clock() - began,
            request=request,
        )
        self._decided(FilterDecision(pod, request, placement, decision))

    # ── prioritize ───────────────────────────────────────────────────────────────────────────────────────────────

    async def prioritize(self, args: ExtenderArgs) -> ExtenderAnswer:
        """A score from 0 to 10 for each node; 0 for all if the pod has no GPUs."""
        try:
            request = placement_request(args.pod)
            names = _names(args)
            if request is None:
                return ExtenderAnswer(priorities((name, 0) for name in names), "ok")
            self._check()
            if args.node_names is None:
                placement = self._simulation(args, request).placement()
            else:
                placement = place(self._cache.state, request, names, policies=self._policies)
        except ScopeError as e:
            self._failed(e)
            return ExtenderAnswer(b"[]", "error", e)
        scores = {one.node: one.score for one in placement.nodes if not one.code}
        return ExtenderAnswer(priorities((name, priority(scores.get(name), placement.policy)) for name in names), "ok")

    # ── the queue ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _queue(self) -> None:
        """Wait for this decision's turn; the caller ends it."""
        began = self._clock()
        self.waiting += 1
        try:
            await self._turn.acquire()
        finally:
            self.waiting -= 1
        self._tally.waited(self._clock() - began)

    async def settle(self) -> None:
        """Clear assignments of which it is not known whether they were written. Then no late write can follow."""
        for uid, pod in list(self.unsettled.items()):
            async with self._turn:
                if self.unsettled.get(uid) is not pod:
                    continue  # decided again meanwhile
                try:
                    found = await self._again(pod)
                    if found.head.node:  # bound by another scheduler: what it holds is what the watch reports
                        self._cache.wrote(uid, found.head.version)
                    else:
                        self._cache.forget(uid, await self._pods.clear(found.head))
                except KubeAbsent:
                    self._cache.gone(uid)
                except (KubeUnreadable, KubeUnwritten):
                    continue
                self.unsettled.pop(uid, None)  # a take-over clears them all meanwhile


def _check_placeable(pod: PodHead) -> None:
    if pod.node:
        raise KubeConflict(f"pod {pod.key} is already bound to {pod.node}")
    if pod.deleting or pod.ended:
        raise KubeAbsent(f"pod {pod.key} is being deleted, or has ended")


def _chosen(args: ExtenderArgs, placement: Placement) -> bytes:
    return filter_result(args, (placement.node,), failed=_failures(placement.nodes))


def _failures(verdicts: Sequence[NodeVerdict]) -> dict[str, str]:
    return {one.node: one.reason or one.message for one in verdicts if one.code}


def _code(placement: Placement) -> str:
    main = main_verdict(placement.nodes)
    return main.code if main else "SCHED_NO_NODES"


def _names(args: ExtenderArgs) -> tuple[str, ...]:
    """The candidates, in whichever form they were sent."""
    if args.node_names is not None:
        return args.node_names
    return tuple(filter(None, map(node_name, args.nodes or ())))


def _of_all(args: ExtenderArgs, verdict: Verdict) -> tuple[NodeVerdict, ...]:
    """The same verdict on every candidate."""
    values = structs.asdict(verdict)
    return tuple(NodeVerdict(node=name, **values) for name in _names(args))
