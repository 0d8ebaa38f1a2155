"""What was said of one pod that waits: merged, counted, bounded, and what counts most first.

The order in which it is heard does not matter, nor does hearing it twice. An event is one object that counts upwards,
so its highest count stands; different objects add up. Several objects may speak of one attempt: HAMi writes one for
each reason, and kube-scheduler repeats HAMi's words in its own.
"""

from collections.abc import Iterable, Iterator
from sys import intern
from typing import TypeAlias

from msgspec import structs

from vgpuscope.model.decision import BY_CODE, Reason
from vgpuscope.model.pending import PodEvent, Said
from vgpuscope.model.quantity import Seconds, UnixTime

MOST_SAID = 32
MOST_NODES = 64
# Events told apart, so that hearing one again is no news; older ones are only summed up. client-go lets a component
# write 25 at once and then one in five minutes about an object, and an event lives for an hour.
MOST_EVENTS = 64

_Key: TypeAlias = tuple[str, str, str]  # component, code, detail
_Tally: TypeAlias = tuple[str, str, str]  # component, event reason, code

_VERDICT = "FailedScheduling"  # says what the condition says, but later, and its text may be that of the first time
_PIECEWISE = frozenset({"FilteringFailed"})  # one event for each reason, so that an attempt has several
_ATTEMPT: Seconds = 10.0  # what was said so shortly before the latest word belongs to the same attempt

_COUNTED_CARDS = "SCHED_INSUFFICIENT_GPU_COUNT"  # also said of nodes that have no GPUs at all, and then less news
_NO_CARDS_AT_ALL = "NodeInsufficientDevice"
_LOST_CARDS = frozenset({"SCHED_DEVICE_CORDONED", "SCHED_DEVICE_UNHEALTHY"})  # explain less than what is lacking
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
_STAGES = {"allocate": 0, "bind": 1}  # who gets so far has passed the filter


class _Spoken:
    """One reason, in its latest form."""

    __slots__ = ("before", "first", "key", "last", "reason", "word")

    def __init__(self, key: _Key, reason: Reason) -> None:
        self.key, self.reason = key, reason
        self.first: UnixTime | None = None
        self.last: UnixTime | None = None
        self.word: UnixTime | None = None  # last time by those who say more than the condition
        self.before: dict[str, int] | None = None  # by event reason: how often, in events no longer told apart


class _Reported:
    """One event, in its latest form."""

    __slots__ = ("component", "count", "keys", "last", "reason")

    def __init__(self, event: PodEvent, keys: tuple[_Key, ...], count: int) -> None:
        self.count, self.last, self.keys = count, event.last, keys
        self.component, self.reason = event.component, event.reason

    def tallies(self) -> Iterable[_Tally]:
        """What its count is added to: of several that speak of one attempt, each to its own."""
        codes = {code for _, code, _ in self.keys} if self.reason in _PIECEWISE else ("",)
        return [(self.component, self.reason, code) for code in codes]


class ReportedReasons:
    """All that was said of one pod."""

    __slots__ = ("_events", "_latest", "_spoken", "_tallies", "cut")

    def __init__(self) -> None:
        self._spoken: dict[_Key, _Spoken] = {}
        self._events: dict[str, _Reported] = {}
        self._tallies: dict[_Tally, int] | None = None  # of events that are no longer told apart
        self._latest: UnixTime | None = None  # of all events
        self.cut = 0

    def __bool__(self) -> bool:
        return bool(self._spoken)

    def hear(self, event: PodEvent) -> None:
        """Take in an event; one that says nothing against the pod is of no interest."""
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
        """Take in what the pod's own condition says."""
        for key, reason in _by_key(scheduler, reasons).items():
            self._speak(key, reason, at, at)

    def said(self, scheduler: str, condition: Iterable[Reason]) -> list[Said]:
        """Everything, with the condition as it is or was last; what counts most comes first."""
        now = _by_key(scheduler, condition)
        found = [
            self._as_said(key, spoken, conditioned=bool(now), in_condition=key in now)
            for key, spoken in self._spoken.items()
        ]
        found += [Said(reason=now[key], component=scheduler) for key in now if key not in self._spoken]
        return sorted(_each_once(found), key=_rank)

    def by(self, component: str) -> bool:
        """Whether this one has said something."""
        return any(key[0] == component for key in self._spoken)

    @property
    def attempts(self) -> int:
        """How many attempts are known to have failed: at least so many."""
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
        """Tell no more events apart than the newest."""
        if len(self._events) <= MOST_EVENTS:
            return
        heard = self._events.pop(min(self._events, key=lambda uid: (_order(self._events[uid].last), uid)))
        for key in heard.keys:
            if spoken := self._spoken.get(key):
                spoken.before = spoken.before or {}
                spoken.before[heard.reason] = spoken.before.get(heard.reason, 0) + heard.count
        self._tallies = self._tallies or {}
        for tally in heard.tallies():
            if tally in self._tallies or len(self._tallies) < MOST_SAID:
                self._tallies[tally] = self._tallies.get(tally, 0) + heard.count

    def _as_said(self, key: _Key, spoken: _Spoken, *, conditioned: bool, in_condition: bool) -> Said:
        # Where there is a condition, it is the scheduler's latest word, and its events only repeat it.
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
        """How often it was said; two kinds of events that say the same speak of the same attempts."""
        sums = dict(spoken.before or {})
        for heard in self._events.values():
            if key in heard.keys:
                sums[heard.reason] = sums.get(heard.reason, 0) + heard.count
        return max(sums.values(), default=1)


def _each_once(found: Iterable[Said]) -> Iterator[Said]:
    """A reason that several report in the same words once: what is said now is not also history."""
    groups: dict[tuple[str, str], list[Said]] = {}
    for one in found:
        groups.setdefault((one.reason.code, one.reason.detail), []).append(one)
    for group in groups.values():
        yield group[0] if len(group) == 1 else _as_one(group)


def _as_one(group: list[Said]) -> Said:
    """Who names the most nodes reports it, of those who do so now; two who count the same attempts are not added up."""
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
    """Each reason once; where it is said of several nodes in different ways, of all of them together."""
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
    """The same with no more nodes than are kept, and names that are shared with other pods."""
    nodes = tuple(intern(name) for name in reason.nodes[:MOST_NODES])
    return structs.replace(reason, code=intern(reason.code), nodes=nodes, detail=intern(reason.detail))


def _form(reason: Reason) -> tuple[int, tuple[str, ...], str]:
    """An order among forms of one reason that were said at the same time: any, so long as it is one."""
    return reason.node_count or 0, reason.nodes, reason.cards


def _rank(said: Said) -> tuple[object, ...]:
    reason, last = said.reason, _order(said.last)
    size = reason.node_count if reason.node_count is not None else len(reason.nodes)
    history = (0.0 if said.current else -last,)  # is told backwards
    return not said.current, history, _weight(reason), -size, -last, reason.code, said.component, reason.detail


def _weight(reason: Reason) -> tuple[int, int]:
    """The stage, and then GPUs before nodes: that nodes without GPUs have taints is no news to who wants a GPU."""
    code, row = reason.code, BY_CODE.get(reason.code)
    stage = _STAGES.get(row.stage, 2) if row else 2
    if code in _VAGUE or row is None:
        return stage, 3
    if code in _GENERAL:
        return stage, 2
    uncounted = code == _COUNTED_CARDS and (reason.detail == _NO_CARDS_AT_ALL or not reason.nodes)
    return stage, 1 if uncounted or code in _LOST_CARDS else 0


def _order(moment: UnixTime | None) -> float:
    return float("-inf") if moment is None else moment


def _later(one: UnixTime | None, other: UnixTime | None) -> UnixTime | None:
    return max(_times(one, other), default=None)


def _earlier(one: UnixTime | None, other: UnixTime | None) -> UnixTime | None:
    return min(_times(one, other), default=None)


def _times(*moments: UnixTime | None) -> Iterator[UnixTime]:
    return (moment for moment in moments if moment is not None)
