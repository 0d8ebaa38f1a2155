"""Durations and failures of scheduling, from pods and events: a fold that counts everything once.

A stage is counted when a pod first shows its end; the duration comes from the times stored in the pod. So a stage that
passed while the watch was interrupted is counted too. A stage that ended before the first list is never counted.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from vgpuscope.catalog.limits import CLUSTER_SCHEDULERS
from vgpuscope.model.allocation import PodState, PodTimes
from vgpuscope.model.histogram import Histogram
from vgpuscope.model.pending import PodEvent
from vgpuscope.model.quantity import PodUID, Seconds, UnixTime
from vgpuscope.model.scheduling import NOTHING, STEPS, SchedulerResult, SchedulingResult, Step
from vgpuscope.model.scheduling_codes import BY_CODE, Reason

OTHER = "other"  # all schedulers beyond the limit
MOST_SCHEDULERS = CLUSTER_SCHEDULERS.most  # users choose the name in the pod, so the number is limited
_OWN_NAME = ("default-scheduler", "hami-scheduler", "volcano", "kai-scheduler")  # always listed by name

_SKEW = 1.0  # times are in whole seconds, so two of them may be in the wrong order by 1 s
_LONGEST = 30 * 86400.0  # users can write annotations, and one absurd time would spoil a sum for ever
_REFUSALS = 4  # refusal times kept for a waiting pod, among them the last one before its node was found
_REPORTS = 64  # pairs of reporter and code kept for a pod
_EARLY = 20_000  # events kept whose pod is unknown; most are of pods without devices

_HAMI_STEPS: tuple[Step, ...] = ("filter", "lock", "bind")
_SCHEDULED, _BOUND, _STARTED, _FAILED = 1, 2, 4, 8

_Reporter = tuple[str, str]  # the process that reports, and the event's reason
_Reports = dict[tuple[_Reporter, str], int]  # and a code or a stage → how often
_POD: _Reporter = ("", "")  # the pod itself, by its annotation


class _Tally:
    """The running counts of one scheduler."""

    __slots__ = ("bound", "failed", "refusals", "steps")

    def __init__(self) -> None:
        self.steps: dict[Step, Histogram] = {"schedule": NOTHING, "start": NOTHING}
        self.bound = 0
        self.failed = 0
        self.refusals: dict[str, int] = {}

    def result(self, name: str) -> SchedulerResult:
        steps = {step: self.steps[step] for step in STEPS if step in self.steps}
        return SchedulerResult(
            scheduler=name, steps=steps, bound=self.bound, failed=self.failed, refusals=dict(self.refusals)
        )


class _Note(Struct, gc=False):
    """The stages of a pod that were counted already, or were over before the first list."""

    tally: _Tally
    filtered: UnixTime | None = None
    bind_begun: UnixTime | None = None
    done: int = 0
    refused: tuple[UnixTime, ...] = ()  # times of the latest refusals, oldest first
    reports: _Reports | None = None


class SchedulingTimes:
    """Counts the stages and failures of scheduling, each once. One writer, the watch."""

    def __init__(self) -> None:
        self._pods: dict[PodUID, _Note] = {}
        self._events: dict[str, int] = {}  # by the event's UID: how much of its count is counted already
        self._early = _Early()
        self._tallies: dict[str, _Tally] = {}
        self._filtering = self._binding = NOTHING
        self._skipped = 0

    # ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, pods: Iterable[PodState]) -> None:
        """The first list of pods, one for each watched namespace: stages that are over in it are never counted."""
        for pod in pods:
            self._remember(self._note(pod), pod)

    def set_pod(self, pod: PodState) -> None:
        """A pod was added or has changed; stages that are over for the first time are counted."""
        note = self._note(pod)
        times, done = pod.times, note.done
        if _later(times.filtered, note.filtered):
            self._count_filter(note, times)
        if _later(times.bind_begun, note.bind_begun):
            self._count_lock(note, times)
        if times.scheduled is not None and not done & _SCHEDULED:
            self._count_bind(note, times)
        if not done & _BOUND and _bound(pod):
            note.tally.bound += 1
        if times.started is not None and times.scheduled is not None and not done & _STARTED:
            self._count(note, "start", times.scheduled, times.started)
        if not done & _FAILED and _failed(times):
            self._blame(note, _POD, ("SCHED_ALLOCATE_FAILED", "allocate"), 1)
        self._remember(note, pod)

    def drop_pod(self, uid: PodUID) -> None:
        """A pod was deleted; what was kept about it is removed."""
        self._pods.pop(uid, None)

    def begin_events(self, events: Iterable[PodEvent]) -> None:
        """The first list of events: what happened before it is never counted."""
        for event in events:
            if event.said:
                self._events[event.uid] = max(event.count, self._events.get(event.uid, 0))
                self.set_event(event)

    def set_event(self, event: PodEvent) -> None:
        """An event was added or has changed; the increase of its count is counted."""
        if not event.said:
            return
        note = self._pods.get(event.pod_uid)
        if note is None:  # the pod has no devices, or the watch of pods is behind
            self._early.put(event)
        else:
            self._take(note, event)

    def drop_event(self, uid: str) -> None:
        """An event was deleted, which happens after an hour."""
        self._events.pop(uid, None)
        self._early.drop(uid)

    def result(self) -> SchedulingResult:
        """Everything that was counted so far."""
        tallies = self._tallies.values()
        return SchedulingResult(
            filtering=self._filtering,
            binding=self._binding,
            bound=sum(tally.bound for tally in tallies),
            failed=sum(tally.failed for tally in tallies),
            skipped=self._skipped,
            schedulers=tuple(self._tallies[name].result(name) for name in sorted(self._tallies)),
        )

    # ── pods ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _note(self, pod: PodState) -> _Note:
        note = self._pods.get(pod.uid)
        if note is None:
            note = self._pods[pod.uid] = _Note(self._tally(pod.scheduler))
            for event in self._early.take(pod.uid):
                self._take(note, event)
        if pod.refusal is not None:
            _refuse(note, pod.refusal.at)
        return note

    def _tally(self, scheduler: str) -> _Tally:
        known = self._tallies.get(scheduler)
        if known is not None:
            return known
        strangers = sum(name not in _OWN_NAME for name in self._tallies)
        if scheduler not in _OWN_NAME and strangers >= MOST_SCHEDULERS - len(_OWN_NAME) - 1:
            scheduler = OTHER
        return self._tallies.setdefault(scheduler, _Tally())

    def _remember(self, note: _Note, pod: PodState) -> None:
        """Mark the stages that are over in this pod, whether they were counted or not."""
        times = pod.times
        if _later(times.filtered, note.filtered):
            note.filtered = times.filtered
            for step in _HAMI_STEPS:
                note.tally.steps.setdefault(step, NOTHING)
        if _later(times.bind_begun, note.bind_begun):
            note.bind_begun = times.bind_begun
        note.done |= (
            (_SCHEDULED if times.scheduled is not None else 0)
            | (_BOUND if _bound(pod) else 0)
            | (_STARTED if times.started is not None and times.scheduled is not None else 0)
            | (_FAILED if _failed(times) else 0)
        )
        if note.done & _BOUND:
            note.refused = ()  # a pod that is bound is never filtered again

    def _count_filter(self, note: _Note, times: PodTimes) -> None:
        """Count the filter stage: from the creation of the pod, or from the last known time of earlier attempts."""
        assert times.filtered is not None
        last_bound = None if _of_this_attempt(times) else times.bind_begun
        before = (times.created, note.filtered, note.bind_begun, last_bound, *note.refused)
        begun = max((moment for moment in before if moment is not None and moment <= times.filtered), default=None)
        if begun is None:
            begun = times.created
        took = self._count(note, "filter", begun, times.filtered)
        if took is not None:
            self._filtering = self._filtering.with_one(took)

    def _count_lock(self, note: _Note, times: PodTimes) -> None:
        if _own(times.filtered, times) and _of_this_attempt(times):
            self._count(note, "lock", times.filtered, times.bind_begun)

    def _count_bind(self, note: _Note, times: PodTimes) -> None:
        self._count(note, "schedule", times.created, times.scheduled)
        if not _own(times.filtered, times):
            return
        if _of_this_attempt(times):
            self._count(note, "bind", times.bind_begun, times.scheduled)
        took = self._took(times.filtered, times.scheduled)
        if took is not None:
            self._binding = self._binding.with_one(took)

    def _count(self, note: _Note, step: Step, begun: UnixTime | None, ended: UnixTime | None) -> Seconds | None:
        took = self._took(begun, ended)
        if took is None:
            return None
        note.tally.steps[step] = note.tally.steps.get(step, NOTHING).with_one(took)
        return took

    def _took(self, begun: UnixTime | None, ended: UnixTime | None) -> Seconds | None:
        if begun is None or ended is None:
            return None
        took = ended - begun
        if -_SKEW <= took <= _LONGEST:
            return max(took, 0.0)
        self._skipped += 1
        return None

    # ── events ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _take(self, note: _Note, event: PodEvent) -> None:
        if not note.done & _BOUND:
            _refuse(note, event.last)
        more = event.count - self._events.get(event.uid, 0)
        if more > 0:
            self._events[event.uid] = event.count
            self._blame(note, (event.instance, event.reason), sorted(set(_words(event.said))), more)

    def _blame(self, note: _Note, reporter: _Reporter, words: Iterable[str], more: int) -> None:
        """Count `more` failures for these codes and stages.

        HAMi and kube-scheduler report the same attempt, each in an event of its own, perhaps under one name. If several
        of them report the same code for one pod, the highest count is used.
        """
        reports = note.reports = note.reports if note.reports is not None else {}
        for word in words:
            known = max((count for (_, other), count in reports.items() if other == word), default=0)
            key = (reporter, word)
            if key not in reports and len(reports) >= _REPORTS:
                key = (_POD, word)
            reports[key] = reports.get(key, 0) + more
            _fail(note.tally, word, max(reports[key] - known, 0))


class _Early:
    """Events that came before their pod. If there are too many, the oldest are dropped."""

    __slots__ = ("_events", "_of")

    def __init__(self) -> None:
        self._events: dict[str, PodEvent] = {}
        self._of: dict[PodUID, set[str]] = {}

    def put(self, event: PodEvent) -> None:
        known = self._events.get(event.uid)
        if known is not None and known.count >= event.count:
            return
        self._events[event.uid] = event
        self._of.setdefault(event.pod_uid, set()).add(event.uid)
        if len(self._events) > _EARLY:
            self.drop(next(iter(self._events)))

    def take(self, pod: PodUID) -> list[PodEvent]:
        return [self._events.pop(uid) for uid in sorted(self._of.pop(pod, ()))]

    def drop(self, uid: str) -> None:
        event = self._events.pop(uid, None)
        if event is not None:
            of_pod = self._of[event.pod_uid]
            of_pod.discard(uid)
            if not of_pod:
                del self._of[event.pod_uid]


def _bound(pod: PodState) -> bool:
    return pod.node != "" or pod.times.scheduled is not None


def _later(moment: UnixTime | None, known: UnixTime | None) -> bool:
    return moment is not None and (known is None or moment > known)


def _own(moment: UnixTime | None, times: PodTimes) -> bool:
    """Whether the time is not before the pod's creation: a pod copied from another inherits its annotations."""
    return moment is not None and (times.created is None or moment >= times.created - _SKEW)


def _failed(times: PodTimes) -> bool:
    """Whether the device plugin rejected the pod; that happens at most once, as the kubelet never retries."""
    return times.bind_phase == "failed" and _own(times.bind_begun, times)


def _of_this_attempt(times: PodTimes) -> bool:
    """Whether the time of binding is of this attempt: HAMi keeps the old time until it binds again."""
    return times.bind_begun is not None and times.filtered is not None and times.bind_begun >= times.filtered - _SKEW


def _refuse(note: _Note, moment: UnixTime | None) -> None:
    if moment is not None and moment not in note.refused:
        note.refused = tuple(sorted((*note.refused, moment))[-_REFUSALS:])


def _words(said: Iterable[Reason]) -> Iterator[str]:
    """The codes, and their stages if these are bind or allocate, which are counted as failures to bind."""
    for reason in said:
        row = BY_CODE.get(reason.code) or BY_CODE["SCHED_OTHER"]
        yield row.code
        if row.stage in ("bind", "allocate"):
            yield row.stage


def _fail(tally: _Tally, word: str, times: int) -> None:
    if word in ("bind", "allocate"):
        tally.failed += times
    elif times:
        tally.refusals[word] = tally.refusals.get(word, 0) + times
