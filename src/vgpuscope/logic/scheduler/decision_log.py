"""The log of decisions in memory: the last day, bounded by entries and by bytes.

A pod that fits nowhere is tried again and again. Where there is too much, refusals and failures to decide that a later
decision about the same pod supersedes are dropped first: what was assigned, and the latest word about each pod, stay
longest.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from itertools import islice

from msgspec.structs import replace

from vgpuscope.model.logged_decision import LoggedDecision, VerdictGroup, logged
from vgpuscope.model.placement import Decision
from vgpuscope.model.quantity import Bytes, Seconds, UnixTime

KEEP: Seconds = 86400.0
MOST = 20_000  # entries
MOST_BYTES: Bytes = 64 * 2**20
_ENTRY: Bytes = 1000  # of an entry without verdicts and GPUs
_GPU: Bytes = 150
_GROUP: Bytes = 250
_NODE: Bytes = 8  # names are shared with the state of the cluster


class _Kept:
    """A group of verdicts, shared by all entries that have the same."""

    __slots__ = ("group", "size", "uses")

    def __init__(self, group: VerdictGroup) -> None:
        texts = (group.code, group.reason, group.message, 2 * group.message_zh, group.requested, group.available)
        self.group, self.uses = group, 0
        self.size = _GROUP + _NODE * len(group.nodes) + sum(map(len, texts))


class DecisionLog:
    """Decisions of the last day, newest first."""

    def __init__(self, *, keep: Seconds = KEEP, most: int = MOST, most_bytes: Bytes = MOST_BYTES) -> None:
        self._keep, self._most, self._most_bytes = keep, most, most_bytes
        self._entries: OrderedDict[str, LoggedDecision] = OrderedDict()  # by id, oldest first
        self._pods: dict[tuple[str, str], deque[str]] = {}  # ids, oldest first
        self._superseded: OrderedDict[str, None] = (
            OrderedDict()
        )  # refusals and the like with a later decision about the pod
        self._groups: dict[VerdictGroup, _Kept] = {}
        self.bytes: Bytes = 0  # an estimate
        self.dropped = 0  # entries that were dropped before their time

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, decision: Decision) -> LoggedDecision:
        """Record a decision; returns it as it is kept. The same id is recorded once."""
        known = self._entries.get(decision.id)
        return known if known is not None else self._put(logged(decision))

    def merge(self, entries: Iterable[LoggedDecision]) -> int:
        """Add what another process or an earlier one decided; returns how many entries were new."""
        new = [entry for entry in entries if entry.id not in self._entries]
        if not new:
            return 0
        every = sorted((*self._entries.values(), *new), key=lambda entry: entry.at)
        self._clear()
        for entry in every:
            self._put(entry)
        return len(new)

    def forget(self, now: UnixTime) -> None:
        """Remove what is older than a day."""
        while self._entries and next(iter(self._entries.values())).at < now - self._keep:
            self._remove(next(iter(self._entries)))

    def find(
        self, namespace: str = "", pod: str = "", since: UnixTime | None = None, limit: int = 100
    ) -> list[LoggedDecision]:
        """The newest entries, of one namespace or one pod if given, newest first."""
        return list(islice(self.each(namespace, pod, since), limit))

    def each(self, namespace: str = "", pod: str = "", since: UnixTime | None = None) -> Iterator[LoggedDecision]:
        """Entries, newest first."""
        for entry in self._of(namespace, pod):
            if since is not None and entry.at < since:
                continue
            if namespace in ("", entry.namespace) and pod in ("", entry.pod):
                yield entry

    def latest(self, namespace: str, pod: str) -> LoggedDecision | None:
        """The last decision about a pod; None: there is none."""
        ids = self._pods.get((namespace, pod))
        return self._entries[ids[-1]] if ids else None

    def assigned(self, namespace: str, pod: str, uid: str) -> LoggedDecision | None:
        """The last time that this pod was assigned; None: it is not known."""
        found = (one for one in self.each(namespace, pod) if one.pod_uid == uid and one.outcome == "assigned")
        return next(found, None)

    def _of(self, namespace: str, pod: str) -> Iterator[LoggedDecision]:
        if not (namespace and pod):
            return reversed(self._entries.values())
        return (self._entries[one] for one in reversed(self._pods.get((namespace, pod), ())))

    def _put(self, entry: LoggedDecision) -> LoggedDecision:
        entry = replace(entry, groups=tuple(map(self._shared, entry.groups)))
        ids = self._pods.setdefault((entry.namespace, entry.pod), deque())
        if ids and _without_node(self._entries[ids[-1]]):
            self._superseded[ids[-1]] = None
        ids.append(entry.id)
        self._entries[entry.id] = entry
        self.bytes += _size(entry)
        self.forget(entry.at)
        self._shrink()
        return entry

    def _shrink(self) -> None:
        """Drop entries while there is too much; the newest one always stays."""
        while len(self._entries) > 1 and (len(self._entries) > self._most or self.bytes > self._most_bytes):
            self._remove(next(iter(self._superseded), None) or next(iter(self._entries)))
            self.dropped += 1

    def _remove(self, key: str) -> None:
        entry = self._entries.pop(key)
        self._superseded.pop(key, None)
        ids = self._pods[entry.namespace, entry.pod]
        ids.remove(key)  # nearly always the first
        if not ids:
            del self._pods[entry.namespace, entry.pod]
        for group in entry.groups:
            self._release(group)
        self.bytes -= _size(entry)

    def _shared(self, group: VerdictGroup) -> VerdictGroup:
        kept = self._groups.get(group)
        if kept is None:
            kept = self._groups[group] = _Kept(group)
            self.bytes += kept.size
        kept.uses += 1
        return kept.group

    def _release(self, group: VerdictGroup) -> None:
        kept = self._groups[group]
        kept.uses -= 1
        if not kept.uses:
            del self._groups[group]
            self.bytes -= kept.size

    def _clear(self) -> None:
        self._entries.clear()
        self._pods.clear()
        self._superseded.clear()
        self._groups.clear()
        self.bytes = 0


def _without_node(entry: LoggedDecision) -> bool:
    return entry.outcome == "refused" or (entry.outcome == "failed" and entry.verb == "filter")


def _size(entry: LoggedDecision) -> Bytes:
    return _ENTRY + _GPU * len(entry.devices) + _NODE * len(entry.groups)
