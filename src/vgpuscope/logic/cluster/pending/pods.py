"""Which pods are waiting for devices and why, and what became of pods that waited.

Pods and events come from two watches, so either may arrive first, and an event object is deleted after an hour.
Therefore events of unknown pods are kept for an hour. Pods that were bound at once are kept for an hour too, because
a rejection by the kubelet comes after the binding.

All waiting pods are listed, without a limit. `most` limits the pods that no longer wait, and the pods with a history.

A pod itself is kept by the cluster's state and read there, as long as it exists. A record of a pod that waited is kept
here when it is deleted, because the state forgets it.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import structs

from vgpuscope.catalog.limits import CLUSTER_WAITING
from vgpuscope.logic.cluster.pending.reports import ReportedReasons
from vgpuscope.model.allocation import PodState, UnschedulableCondition
from vgpuscope.model.pending import Outcome, PendingPod, PodEvent, Said, WaitingCount
from vgpuscope.model.quantity import PodUID, Seconds, UnixTime
from vgpuscope.model.scheduling_codes import Reason

NOT_TRIED, BIND_FAILED = "SCHED_NOT_TRIED", "SCHED_BIND_FAILED"

_EVENT_LIFE: Seconds = 3600.0  # the API server deletes an event after this time
_STEP: Seconds = 3600.0  # a longer step of the clock is a jump; it must not expire what is kept
_SWEEP: Seconds = 60.0
_KUBELET = "kubelet"
_PHASE = "hami.io/bind-phase"


class _Wait:
    """The wait of one pod; it goes on as long as `ended` is None."""

    __slots__ = ("code", "deleted", "ended", "record", "refusal", "reported", "tick")

    def __init__(self, reported: ReportedReasons) -> None:
        self.reported = reported
        self.refusal: UnschedulableCondition | None = None  # the last one; a bound pod no longer shows it
        self.record: PodState | None = None  # what is kept of a pod that was deleted
        self.ended: UnixTime | None = None
        self.tick: Seconds = 0.0  # when the wait ended, by the clock of PendingPods
        self.deleted = False
        self.code: str | None = None  # None: not computed yet


class _Early:
    """Reasons that were reported for a pod that is not known yet."""

    __slots__ = ("reported", "tick")

    def __init__(self) -> None:
        self.reported = ReportedReasons()
        self.tick: Seconds = 0.0


class PendingPods:
    """Waiting pods, and pods that waited: these for `keep` seconds, limited by `most`.

    `pods` is a live view of the cluster's pods. A pod is in it when `set_pod` is called, and still when `drop_pod` is.
    """

    def __init__(self, pods: Mapping[PodUID, PodState], *, keep: Seconds = 86400, most: int = 10_000) -> None:
        self._pods, self._keep, self._most = pods, keep, most
        self._waiting: dict[PodUID, _Wait] = {}
        self._past: dict[PodUID, _Wait] = {}  # in the order in which they ended
        self._bound: dict[PodUID, _Wait] = {}  # bound recently, without a reported problem
        self._early: dict[PodUID, _Early] = {}
        self._now: UnixTime | None = None
        self._tick: Seconds = 0.0  # follows the wall clock, but never goes back and never jumps
        self._swept: Seconds = 0.0

    @property
    def size(self) -> int:
        """The number of pods about which anything is kept."""
        return len(self._waiting) + len(self._past) + len(self._bound) + len(self._early)

    def set_pod(self, pod: PodState, now: UnixTime) -> None:
        """A pod was added or has changed."""
        self._advance(now)
        if not _waits(pod):
            self._set_placed(pod, now)
            return
        if pod.uid in self._past and not self._past[pod.uid].deleted:
            return  # a pod keeps its node once it is bound, so this state is outdated
        if pod.uid in self._bound:
            return
        wait = self._waiting.get(pod.uid) or self._past.pop(pod.uid, None) or _Wait(self._heard_early(pod.uid))
        self._waiting[pod.uid] = wait
        wait.record, wait.code, wait.ended, wait.deleted = None, None, None, False
        self._hear_condition(wait, pod, now)
        self._make_room()

    def drop_pod(self, uid: PodUID, now: UnixTime) -> None:
        """A pod was deleted."""
        self._advance(now)
        wait = self._waiting.pop(uid, None)
        if wait is not None:
            wait.deleted = True
            self._end(wait, self._pods[uid], now=now, ended=now)
        kept, pod = self._past.get(uid) or self._bound.get(uid), self._pods.get(uid)
        if kept is not None and pod is not None:
            kept.record = structs.replace(pod, assignments=(), instances=(), refusal=kept.refusal)

    def set_event(self, event: PodEvent) -> None:
        """An event was added or has changed; its deletion by the API server does not matter."""
        if not event.said:
            return
        uid = event.pod_uid
        wait = self._waiting.get(uid) or self._past.get(uid) or self._bound.pop(uid, None)
        if wait is None:
            self._hear_early(event)
            return
        if self._has_room_for(wait):
            wait.reported.hear(event)
        else:
            wait.reported.cut += len(event.said)
        wait.code = None
        if wait.ended is not None and uid not in self._past:
            self._past[uid] = wait
            self._make_room()

    def pass_time(self, now: UnixTime) -> None:
        """Remove everything that has expired."""
        self._advance(now)
        if self._tick - self._swept < _SWEEP:
            return
        self._swept = self._tick
        for kept, life in ((self._past, self._keep), (self._bound, _EVENT_LIFE)):
            for uid in [uid for uid, wait in kept.items() if self._tick - wait.tick > life]:
                del kept[uid]
        for uid in [uid for uid, early in self._early.items() if self._tick - early.tick > _EVENT_LIFE]:
            del self._early[uid]

    def pods(self, *, namespace: str | None = None, name: str | None = None, all: bool = False) -> list[PendingPod]:  # noqa: A002
        """Waiting pods, oldest first; with `all` followed by pods that no longer wait, newest first."""

        def chosen(waits: dict[PodUID, _Wait]) -> list[tuple[_Wait, PodState]]:
            return [
                (wait, pod)
                for wait, pod in self._with_pods(waits)
                if namespace in {None, pod.namespace} and name in {None, pod.name}
            ]

        found = sorted(chosen(self._waiting), key=_by_age)
        if all:
            found += sorted(chosen(self._past), key=_by_end, reverse=True)
        return [_answer(wait, pod) for wait, pod in found]

    def counts(self, now: UnixTime, most: int = CLUSTER_WAITING.most) -> list[WaitingCount]:
        """Waiting pods by namespace and code; beyond `most` pairs, the smallest are merged without a namespace."""
        pairs: dict[tuple[str, str], tuple[int, UnixTime | None]] = {}
        for wait, pod in self._with_pods(self._waiting):
            _add(pairs, (pod.namespace, _code(wait, pod)), 1, pod.times.created)
        order = sorted(pairs, key=lambda pair: (-pairs[pair][0], pair))
        shown = {pair: pairs[pair] for pair in sorted(order[:most])}
        for pair in order[most:]:
            _add(shown, ("", pair[1]), *pairs[pair])
        return [
            WaitingCount(namespace=pair[0], code=pair[1], pods=pods, oldest=_age(created, now))
            for pair, (pods, created) in shown.items()
        ]

    # --- end of the wait ----------------------------------------------------------------------------------------------

    def _set_placed(self, pod: PodState, now: UnixTime) -> None:
        """A pod that has a node, or will never get one."""
        uid = pod.uid
        known = self._past.get(uid) or self._bound.get(uid)
        if known is not None:
            _keep_refusal(known, pod)
            known.record = None
            if known.deleted and pod.node:
                known.deleted = False  # it was bound after all
            if _allocation_failed(pod):
                self._hear_plugin(known, pod)
            return
        wait = self._waiting.pop(uid, None)
        ended = _ended(pod, now)
        if wait is None:
            recent = now - ended <= _EVENT_LIFE
            if uid not in self._early and not recent:
                return  # the usual case: the pod was bound long ago
            wait = _Wait(self._heard_early(uid))
        wait.deleted = not pod.node and not pod.ended
        self._end(wait, pod, now=now, ended=ended)

    def _end(self, wait: _Wait, pod: PodState, *, now: UnixTime, ended: UnixTime) -> None:
        _keep_refusal(wait, pod)
        wait.ended, wait.tick = ended, self._tick - max(0.0, now - ended)
        if _allocation_failed(pod):
            self._hear_plugin(wait, pod)
        told = wait.reported or wait.deleted or wait.refusal
        (self._past if told else self._bound)[pod.uid] = wait
        self._make_room()

    def _hear_plugin(self, wait: _Wait, pod: PodState) -> None:
        """Record that HAMi's device plugin failed to allocate; it reports that in an annotation of the pod."""
        wait.reported.hear(_plugin_event(pod, wait.ended))
        if self._bound.pop(pod.uid, None):
            self._past[pod.uid] = wait

    def _with_pods(self, waits: Mapping[PodUID, _Wait]) -> Iterator[tuple[_Wait, PodState]]:
        """Each wait with its pod: the cluster's while it exists, then the record."""
        found = ((wait, wait.record or self._pods.get(uid)) for uid, wait in waits.items())
        return ((wait, pod) for wait, pod in found if pod is not None)

    # --- reported reasons ---------------------------------------------------------------------------------------------

    def _hear_condition(self, wait: _Wait, pod: PodState, now: UnixTime) -> None:
        """Record the condition's reasons. It has the time of the first refusal only; later changes get `now`."""
        before, refusal = wait.refusal, pod.refusal
        wait.refusal = refusal
        if refusal is not None and (before is None or before.said != refusal.said) and self._has_room_for(wait):
            wait.reported.hear_condition(pod.scheduler, refusal.said, now if before else refusal.at)

    def _has_room_for(self, wait: _Wait) -> bool:
        return bool(wait.reported) or len(self._waiting) <= self._most

    def _hear_early(self, event: PodEvent) -> None:
        early = self._early.pop(event.pod_uid, None) or _Early()
        early.reported.hear(event)
        early.tick = self._tick
        self._early[event.pod_uid] = early
        if len(self._early) > self._most:
            del self._early[next(iter(self._early))]

    def _heard_early(self, uid: PodUID) -> ReportedReasons:
        early = self._early.pop(uid, None)
        return early.reported if early else ReportedReasons()

    # --- bounds -------------------------------------------------------------------------------------------------------

    def _make_room(self) -> None:
        while len(self._bound) > self._most:
            del self._bound[next(iter(self._bound))]
        while self._past and len(self._waiting) + len(self._past) > self._most:
            del self._past[next(iter(self._past))]

    def _advance(self, now: UnixTime) -> None:
        if self._now is not None:
            self._tick += min(max(0.0, now - self._now), _STEP)
        self._now = now


def _waits(pod: PodState) -> bool:
    return not pod.node and not pod.deleting and not pod.ended


def _allocation_failed(pod: PodState) -> bool:
    return bool(pod.node) and pod.times.bind_phase == "failed" and pod.times.started is None


def _plugin_event(pod: PodState, at: UnixTime | None) -> PodEvent:
    """The annotation as an event."""
    said = Reason(code="SCHED_ALLOCATE_FAILED", nodes=(pod.node,), node_count=1, detail=f"{_PHASE}: failed")
    return PodEvent(
        uid=_PHASE,
        pod_uid=pod.uid,
        namespace=pod.namespace,
        pod=pod.name,
        component="hami-device-plugin",
        reason=_PHASE,
        said=(said,),
        first=at,
        last=at,
    )


def _ended(pod: PodState, now: UnixTime) -> UnixTime:
    """When the wait ended; never in the future, even if clocks differ."""
    return min(now, now if pod.times.scheduled is None else pod.times.scheduled)


def _keep_refusal(wait: _Wait, pod: PodState) -> None:
    """Keep the last refusal after the wait, without its message: a bound pod no longer shows it."""
    last = pod.refusal or wait.refusal
    wait.refusal = structs.replace(last, message="") if last else None
    wait.code = None


# --- answers ----------------------------------------------------------------------------------------------------------


def _answer(wait: _Wait, pod: PodState) -> PendingPod:
    said = wait.reported.said(pod.scheduler, _condition(wait, pod))
    refused = wait.refusal is not None and wait.refusal.reason != "SchedulingGated"
    return PendingPod(
        namespace=pod.namespace,
        pod=pod.name,
        pod_uid=pod.uid,
        owner=pod.owner,
        scheduler=pod.scheduler,
        requests=pod.requests,
        asking=pod.asking,
        claims=pod.claims,
        outcome=_outcome(wait, pod),
        code=_main(said, pod),
        created=pod.times.created,
        ended=wait.ended,
        node=pod.node,
        attempts=max(wait.reported.attempts, int(refused or pod.times.bind_phase == "failed")),
        said=tuple(said),
        said_cut=wait.reported.cut,
    )


def _code(wait: _Wait, pod: PodState) -> str:
    if wait.code is None:
        wait.code = _main(wait.reported.said(pod.scheduler, _condition(wait, pod)), pod)
    return wait.code


def _main(said: Sequence[Said], pod: PodState) -> str:
    """The most important code; without a reported reason, the annotation may show a failed binding."""
    if said:
        return said[0].reason.code
    return BIND_FAILED if pod.times.bind_phase == "failed" else NOT_TRIED


def _condition(wait: _Wait, pod: PodState) -> tuple[Reason, ...]:
    """The reasons in the last condition; empty for a pod rejected by its node, where they are outdated."""
    return wait.refusal.said if wait.refusal and _outcome(wait, pod) != "failed" else ()


def _outcome(wait: _Wait, pod: PodState) -> Outcome:
    """The outcome; failed: the pod never started, because its node rejected it or it ended without a node."""
    if wait.ended is None:
        return "waiting"
    if wait.deleted:
        return "deleted"
    refused = wait.reported.by(_KUBELET) or not pod.node
    failed = _allocation_failed(pod) or (refused and pod.phase == "Failed" and pod.times.started is None)
    return "failed" if failed else "scheduled"


def _by_age(found: tuple[_Wait, PodState]) -> tuple[float, str, str]:
    _, pod = found
    created = pod.times.created
    return float("inf") if created is None else created, pod.namespace, pod.name


def _by_end(found: tuple[_Wait, PodState]) -> tuple[float, str, str]:
    wait, pod = found
    return wait.ended or 0.0, pod.namespace, pod.name


def _age(created: UnixTime | None, now: UnixTime) -> Seconds | None:
    return None if created is None else max(0.0, now - created)


def _add(
    pairs: dict[tuple[str, str], tuple[int, UnixTime | None]],
    pair: tuple[str, str],
    pods: int,
    created: UnixTime | None,
) -> None:
    known, oldest = pairs.get(pair, (0, None))
    both = [moment for moment in (oldest, created) if moment is not None]
    pairs[pair] = (known + pods, min(both, default=None))
