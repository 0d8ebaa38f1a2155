"""The reasons reported for one waiting pod: merged, counted, bounded, the most important first.

The order of reports and repeated reports make no difference. An event is one object whose count rises, so its highest
count is used; the counts of different objects are added. Several objects may report the same attempt: HAMi writes one
event for each reason, and kube-scheduler repeats HAMi's message in its own event. An extender may report under the
name of its kube-scheduler, so the counts of two processes of one name are not added either.
"""

from collections.abc import Iterable, Iterator
from sys import intern
from typing import TypeAlias

from msgspec import structs

from vgpuscope.model.pending import PodEvent, Said
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.model.scheduling_codes import BY_CODE, Reason

MOST_SAID = 32
MOST_NODES = 64
# Events kept one by one, so that a repeated event is not counted twice; of older ones only the sums are kept.
# client-go lets a component write 25 events about an object at once, then one every five minutes. An event lives for
# an hour.
MOST_EVENTS = 64

_Key: TypeAlias = tuple[str, str, str]  # component, code, detail
_Reporter: TypeAlias = tuple[str, str, str]  # component, process, event reason
_Tally: TypeAlias = tuple[_Reporter, str]  # and a code

_VERDICT = "FailedScheduling"  # repeats the condition, but later, and may have the text of the first attempt
_PIECEWISE = frozenset({"FilteringFailed"})  # one event for each reason, so an attempt has several events
_ATTEMPT: Seconds = 10.0  # a report this shortly before the latest one belongs to the same attempt

_COUNTED_GPUS = "SCHED_INSUFFICIENT_GPU_COUNT"  # also reported for nodes without GPUs, where it explains less
_NO_GPUS_AT_ALL = "NodeInsufficientDevice"
_LOST_GPUS = frozenset({"SCHED_DEVICE_CORDONED", "SCHED_DEVICE_UNHEALTHY"})  # explain less than a shortage
_GENERAL = frozenset(
    {
        "SCHED_GANG_WAITING",
        "SCHED_NODE_UNREGISTERED",
        "SCHED_NODE_SELECTOR",
        "SCHED_TAINT",
        "SCHED_NODE_UNSCHEDULABLE",
        "SCHED_NODE_NOT_READY",
        "SCHED_INSUFFICIENT_CPU",
        "SCHED_INSUFFICIENT_MEMORY",
        "SCHED_INSUFFICIENT_STORAGE",
        "SCHED_INSUFFICIENT_RESOURCE",
        "SCHED_TOO_MANY_PODS",
        "SCHED_PORT_CONFLICT",
        "SCHED_POD_AFFINITY",
        "SCHED_TOPOLOGY_SPREAD",
        "SCHED_VOLUME",
        "SCHED_NO_NODES",
    }
)
_VAGUE = frozenset({"SCHED_NO_NODE_FITS", "SCHED_OTHER"})
_STAGES = {"allocate": 0, "bind": 1}  # a pod that gets this far has passed the filter


class _Spoken:
    """One reason, in its latest form."""

    __slots__ = ("before", "first", "key", "last", "reason", "word")

    def __init__(self, key: _Key, reason: Reason) -> None:
        self.key, self.reason = key, reason
        self.first: UnixTime | None = None
        self.last: UnixTime | None = None
        self.word: UnixTime | None = None  # last report by an event that does not only repeat the condition
        self.before: dict[_Reporter, int] | None = None  # how often, in events kept only as sums


class _Reported:
    """One event, in its latest form."""

    __slots__ = ("count", "keys", "last", "reporter")

    def __init__(self, event: PodEvent, keys: tuple[_Key, ...], count: int) -> None:
        self.count, self.last, self.keys = count, event.last, keys
        self.reporter: _Reporter = (event.component, event.instance, event.reason)

    def tallies(self) -> Iterable[_Tally]:
        """The tallies to which the count is added; events of the same attempt go to different tallies."""
        codes = {code for _, code, _ in self.keys} if self.reporter[2] in _PIECEWISE else ("",)
        return [(self.reporter, code) for code in codes]


class ReportedReasons:
    """All reasons that were reported for one pod."""

    __slots__ = ("_events", "_latest", "_spoken", "_tallies", "cut")

    def __init__(self) -> None:
        self._spoken: dict[_Key, _Spoken] = {}
        self._events: dict[str, _Reported] = {}
        self._tallies: dict[_Tally, int] | None = None  # of events kept only as sums
        self._latest: UnixTime | None = None  # of all events
        self.cut = 0

    def __bool__(self) -> bool:
        return bool(self._spoken)

    def hear(self, event: PodEvent) -> None:
        """Record an event; events without a reason against the pod are ignored."""
        if not event.said:
            return
        uid, count = (f"{event.uid}#{event.count}", 1) if event.combined else (event.uid, event.count)
        first = event.last if event.combined else event.first
        keys = []
        for key, reason in _by_key(event.component, event.said).items():
            spoken = self._speak(key, reason, first, event.last)
            keys.append(spoken.key)
            if event.reason != _VERDICT:
                spoken.word = _later(spoken.word, event.last)
        self._latest = _later(self._latest, event.last)
        known = self._events.get(uid)
        if known is None or (count, _order(event.last)) > (known.count, _order(known.last)):
            self._events[uid] = _Reported(event, tuple(keys), count)
            self._sum_up()

    def hear_condition(self, scheduler: str, reasons: Iterable[Reason], at: UnixTime | None) -> None:
        """Record the reasons in the pod's condition."""
        for key, reason in _by_key(scheduler, reasons).items():
            self._speak(key, reason, at, at)

    def said(self, scheduler: str, condition: Iterable[Reason]) -> list[Said]:
        """All reasons together with the pod's last condition, the most important first."""
        now = _by_key(scheduler, condition)
        found = [
            self._as_said(key, spoken, conditioned=bool(now), in_condition=key in now)
            for key, spoken in self._spoken.items()
        ]
        found += [Said(reason=now[key], component=scheduler) for key in now if key not in self._spoken]
        return sorted(_each_once(found), key=_rank)

    def by(self, component: str) -> bool:
        """Whether this component has reported a reason."""
        return any(key[0] == component for key in self._spoken)

    @property
    def attempts(self) -> int:
        """A lower bound of the number of failed attempts."""
        sums = dict(self._tallies or {})
        for heard in self._events.values():
            for tally in heard.tallies():
                sums[tally] = sums.get(tally, 0) + heard.count
        return max(sums.values(), default=0)

    def _speak(self, key: _Key, reason: Reason, first: UnixTime | None, last: UnixTime | None) -> _Spoken:
        spoken = self._spoken.get(key)
        if spoken is None:
            spoken = self._spoken[key] = _Spoken(key, _lean(reason))
        elif (_order(last), _form(reason)) > (_order(spoken.last), _form(spoken.reason)):
            spoken.reason = _lean(reason)
        spoken.first, spoken.last = _earlier(spoken.first, first), _later(spoken.last, last)
        if len(self._spoken) > MOST_SAID:
            del self._spoken[min(self._spoken, key=lambda key: (_order(self._spoken[key].last), key))]
            self.cut += 1
        return spoken

    def _sum_up(self) -> None:
        """Keep only the newest `MOST_EVENTS` events one by one, and add the oldest to the sums."""
        if len(self._events) <= MOST_EVENTS:
            return
        heard = self._events.pop(min(self._events, key=lambda uid: (_order(self._events[uid].last), uid)))
        for key in heard.keys:
            if spoken := self._spoken.get(key):
                spoken.before = spoken.before or {}
                spoken.before[heard.reporter] = spoken.before.get(heard.reporter, 0) + heard.count
        self._tallies = self._tallies or {}
        for tally in heard.tallies():
            if tally in self._tallies or len(self._tallies) < MOST_SAID:
                self._tallies[tally] = self._tallies.get(tally, 0) + heard.count

    def _as_said(self, key: _Key, spoken: _Spoken, *, conditioned: bool, in_condition: bool) -> Said:
        # If there is a condition, it is the scheduler's latest report, and the scheduler's events only repeat it.
        word = spoken.word if conditioned else spoken.last
        return Said(
            reason=spoken.reason,
            component=key[0],
            current=in_condition or self._in_latest_attempt(word, otherwise=not conditioned),
            count=self._count(key, spoken),
            first=spoken.first,
            last=spoken.last,
        )

    def _in_latest_attempt(self, word: UnixTime | None, *, otherwise: bool) -> bool:
        if self._latest is None:
            return otherwise
        return word is not None and word >= self._latest - _ATTEMPT

    def _count(self, key: _Key, spoken: _Spoken) -> int:
        """How often the reason was reported; two reporters of the same reason report the same attempts."""
        sums = dict(spoken.before or {})
        for heard in self._events.values():
            if key in heard.keys:
                sums[heard.reporter] = sums.get(heard.reporter, 0) + heard.count
        return max(sums.values(), default=1)


def _each_once(found: Iterable[Said]) -> Iterator[Said]:
    """Each reason once, even if several components report it: a current reason is not listed as history too."""
    groups: dict[tuple[str, str], list[Said]] = {}
    for one in found:
        groups.setdefault((one.reason.code, one.reason.detail), []).append(one)
    for group in groups.values():
        yield group[0] if len(group) == 1 else _as_one(group)


def _as_one(group: list[Said]) -> Said:
    """The report that names the most nodes, current ones first; counts are of the same attempts, so not added up."""
    current = [one for one in group if one.current]
    best = max(current or group, key=lambda one: (len(one.reason.nodes), one.count, _order(one.last), one.component))
    first = [one.first for one in group if one.first is not None]
    last = [one.last for one in group if one.last is not None]
    return structs.replace(
        best,
        count=max(one.count for one in group),
        first=min(first, default=None),
        last=max(last, default=None),
    )


def _by_key(component: str, reasons: Iterable[Reason]) -> dict[_Key, Reason]:
    """Each reason once; if it is reported for several nodes separately, with all of these nodes."""
    found: dict[_Key, Reason] = {}
    for reason in reasons:
        key = (component, reason.code, intern(reason.detail))
        found[key] = _together(found[key], reason) if key in found else reason
    return found


def _together(one: Reason, other: Reason) -> Reason:
    counts = [count for count in (one.node_count, other.node_count) if count is not None]
    return structs.replace(
        one,
        nodes=tuple(dict.fromkeys((*one.nodes, *other.nodes))),
        node_count=sum(counts) if counts else None,
        cards=one.cards if one.cards == other.cards else "",
    )


def _lean(reason: Reason) -> Reason:
    """The same reason with at most `MOST_NODES` nodes, and with strings shared between pods."""
    nodes = tuple(intern(name) for name in reason.nodes[:MOST_NODES])
    return structs.replace(reason, code=intern(reason.code), nodes=nodes, detail=intern(reason.detail))


def _form(reason: Reason) -> tuple[int, tuple[str, ...], str]:
    """A tie-breaker for forms of one reason reported at the same time; any fixed order will do."""
    return reason.node_count or 0, reason.nodes, reason.cards


def _rank(said: Said) -> tuple[object, ...]:
    reason, last = said.reason, _order(said.last)
    size = reason.node_count if reason.node_count is not None else len(reason.nodes)
    history = (0.0 if said.current else -last,)  # newest first
    gpus = int(reason.cards.partition("/")[0] or 0)  # one GPU of another type does not hide that the others are full
    return not said.current, history, _weight(reason), -size, -last, -gpus, reason.code, said.component, reason.detail


def _weight(reason: Reason) -> tuple[int, int]:
    """The stage, then GPU reasons before node reasons: taints of nodes without GPUs do not help a GPU user."""
    code, row = reason.code, BY_CODE.get(reason.code)
    stage = _STAGES.get(row.stage, 2) if row else 2
    if code in _VAGUE or row is None:
        return stage, 3
    if code in _GENERAL:
        return stage, 2
    uncounted = code == _COUNTED_GPUS and (reason.detail == _NO_GPUS_AT_ALL or not reason.nodes)
    return stage, 1 if uncounted or code in _LOST_GPUS else 0


def _order(moment: UnixTime | None) -> float:
    return float("-inf") if moment is None else moment


def _later(one: UnixTime | None, other: UnixTime | None) -> UnixTime | None:
    return max(_times(one, other), default=None)


def _earlier(one: UnixTime | None, other: UnixTime | None) -> UnixTime | None:
    return min(_times(one, other), default=None)


def _times(*moments: UnixTime | None) -> Iterator[UnixTime]:
    return (moment for moment in moments if moment is not None)
