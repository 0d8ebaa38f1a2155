"""Containers beside their GPU: which ones to look at, and what follows from two looks at the kernel's counters."""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeAlias

from msgspec.structs import replace

from vgpuscope.catalog.limits import HOST_CONTAINERS
from vgpuscope.logic.node.holdings import PodIndex
from vgpuscope.model.container_key import ContainerKey
from vgpuscope.model.host import CgroupCounts, HostUse, NodeHost, SoughtContainer
from vgpuscope.model.pod import ProcessOwner
from vgpuscope.model.quantity import Pid, Seconds
from vgpuscope.model.usage import ContainerUsage


def sought(
    containers: Iterable[ContainerUsage], owners: Mapping[Pid, ProcessOwner] | None, pod_index: PodIndex
) -> tuple[SoughtContainer, ...]:
    """The containers that hold or use a GPU, once each, with what is known of where their cgroups are.

    A pod that holds the device of a claim which none of its containers uses has no container to look at.
    """
    running: dict[ContainerKey, list[tuple[Pid, str]]] = {}
    for owner in (owners or {}).values():
        if owner.pod_uid is not None or owner.container_id is not None:
            key, _ = pod_index.container_of(owner)
            running.setdefault(key, []).append((owner.pid, pod_index.container_id_of(owner)))
    found: dict[ContainerKey, SoughtContainer] = {}
    for usage in containers:
        named = usage.key.container or usage.key in running
        if named and usage.key not in found and len(found) < HOST_CONTAINERS.most:
            found[usage.key] = _sought(usage.key, running.get(usage.key, ()), pod_index)
    return tuple(found.values())


def _sought(key: ContainerKey, running: Collection[tuple[Pid, str]], pod_index: PodIndex) -> SoughtContainer:
    """A process shows which container of that name runs now; the pod's status may be late."""
    pod = pod_index.by_uid.get(key.pod_uid)
    said = next((one.id for one in pod.containers if one.name == key.container), None) if pod else None
    seen = next((container for _, container in running if container), None)
    uids = (pod.uid, pod.config_hash) if pod else (key.pod_uid,)
    return SoughtContainer(
        key=key,
        pod_uids=tuple(uid for uid in uids if uid),
        container_id=seen or said or "",
        pids=tuple(sorted(pid for pid, _ in running)),
    )


_Counters: TypeAlias = tuple[float | None, ...]


class _Looks:
    """Counters by the clock, over a window."""

    __slots__ = ("_found", "_window")

    def __init__(self, window: Seconds) -> None:
        self._window = window
        self._found: deque[tuple[float, _Counters]] = deque()

    def forget(self) -> None:
        self._found.clear()

    def add(self, at: float, counters: _Counters) -> tuple[Seconds, _Counters]:
        """The time since the oldest look, and what each counter gained in a second since it was last not known.

        None of a counter until two looks in a row show it.
        """
        self._found.append((at, counters))
        while len(self._found) > 2 and self._found[1][0] <= at - self._window:
            self._found.popleft()
        return at - self._found[0][0], tuple(self._rate(at, n, value) for n, value in enumerate(counters))

    def _rate(self, at: float, counter: int, now: float | None) -> float | None:
        if now is None:
            return None
        began, first = at, now
        for when, values in reversed(self._found):
            before = values[counter]
            if before is None:
                break  # what was used meanwhile is not known
            began, first = when, before
        return (now - first) / (at - began) if at > began else None


class _Past:
    """What was seen of one container before."""

    __slots__ = ("counts", "looks")

    def __init__(self, counts: CgroupCounts, window: Seconds) -> None:
        self.counts = counts
        self.looks = _Looks(window)


_MEANS = (
    "cpu_seconds",
    "periods",
    "throttled_periods",
    "read_bytes",
    "written_bytes",
    "received_bytes",
    "sent_bytes",
)
_RATES = ("read_rate", "written_rate", "received_rate", "sent_rate")
_COUNTERS = (
    "cpu_seconds",
    "periods",
    "throttled_periods",
    "throttled_seconds",
    "read_bytes",
    "written_bytes",
    "received_bytes",
    "sent_bytes",
)


class HostAccounts:
    """Turns what the kernel counted into what containers use. One writer."""

    def __init__(self, window: Seconds) -> None:
        self._window = window
        self._past: dict[ContainerKey, _Past] = {}
        self._node = _Looks(window)
        self.backwards = 0

    def settle(self, found: Mapping[ContainerKey, CgroupCounts], at: float) -> tuple[HostUse, ...]:
        """What each container uses; `at` is from a monotonic clock."""
        self._past = {key: past for key, past in self._past.items() if key in found}
        return tuple([self._use(key, counts, at) for key, counts in found.items()])

    def _use(self, key: ContainerKey, counts: CgroupCounts, at: float) -> HostUse:
        past = self._past.get(key)
        if past is None or past.counts.place != counts.place:  # a restarted container has another cgroup
            past = self._past[key] = _Past(counts, self._window)
        fell = {name for name in _COUNTERS if _fell(getattr(past.counts, name), getattr(counts, name))}
        self.backwards += len(fell)
        past.counts = counts
        known = {name: None if name in fell else getattr(counts, name) for name in _COUNTERS}
        return HostUse(
            key=key,
            cpu_limit=counts.cpu_limit,
            memory=counts.memory,
            memory_working_set=_working_set(counts),
            memory_limit=counts.memory_limit,
            **known,
            **self._means(past, known, at),
        )

    def _means(self, past: _Past, known: Mapping[str, float | None], at: float) -> dict[str, Any]:
        """Means over the window, each since its counter last fell or could not be read."""
        over, (cpu, periods, throttled, *moved) = past.looks.add(at, tuple(known[name] for name in _MEANS))
        return {
            "over": over or None,
            "cpu_cores": cpu,
            "throttled": None if throttled is None or not periods else min(1.0, throttled / periods),
            **dict(zip(_RATES, moved, strict=True)),
        }

    def node(self, node: NodeHost, at: float) -> NodeHost:
        """The node with its CPU use over the window; without, if its counters fell: it was started again."""
        if node.cpu is None:
            self._node.forget()
            return node
        times = node.cpu
        idle, waited = times.idle, times.iowait
        every = times.user + times.system + times.steal + idle + waited
        over, (total, unused, waiting) = self._node.add(at, (every, idle, waited))
        if total is None or unused is None or waiting is None:
            return node
        if total <= 0:
            self._node.forget()
            return node
        # the kernel's times of idleness and waiting can fall a little
        used = min(1.0, max(0.0, 1 - (unused + waiting) / total))
        return replace(node, over=over, cpu_used=used, iowait=min(1.0, max(0.0, waiting / total)))


def _fell(before: float | None, now: float | None) -> bool:
    return before is not None and now is not None and now < before


def _working_set(counts: CgroupCounts) -> int | None:
    """As the kubelet counts it. The two files are read one after the other, so the second may say more."""
    if counts.memory is None or counts.memory_inactive is None:
        return None
    return max(0, counts.memory - counts.memory_inactive)


def together(*faults: Mapping[str, int]) -> dict[str, int]:
    """Counts by reason, added up."""
    total: Counter[str] = Counter()
    for one in faults:
        total.update(one)
    return dict(total)
