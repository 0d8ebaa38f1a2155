"""The lines around the table: the heading above it and the notices below it."""

from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime, timedelta

from rich.text import Text

from vgpuscope.knowledge.xid import ADVICE, advice
from vgpuscope.model.activity import Blind
from vgpuscope.model.device import Gpu, XidCount
from vgpuscope.model.pod import SourceState
from vgpuscope.model.quantity import Seconds
from vgpuscope.model.usage import ContainerKey, NodeSnapshot, State
from vgpuscope.views.text import UNKNOWN, clean, label, percent, sizes, span, watts


def heading(snapshot: NodeSnapshot, *, now: float, utc_offset: Seconds, paused: bool, width: int | None) -> list[Text]:
    """The node, the time of the sample, the totals and the state of the sources."""
    when = datetime.fromtimestamp(snapshot.at, UTC) + timedelta(seconds=utc_offset)
    age = max(0.0, now - snapshot.at)
    right = Text(f"{when:%H:%M:%S}  ").append(f"sampled {span(age)} ago", "yellow" if age > 10 else "dim")
    if paused:
        right = Text().append(" PAUSED ", "black on yellow").append("  ").append_text(right)
    left = Text().append(" vgpuscope ", "bold reverse").append(f" {clean(snapshot.node)}", "bold")
    for word, value in _versions(snapshot):
        part = Text().append(f"  {word} ", "dim").append(clean(value))
        if width is None or left.cell_len + part.cell_len + right.cell_len + 3 <= width:
            left.append_text(part)
    return [_apart(left, right, width), _totals(snapshot), _sources(snapshot.sources)]


def _versions(snapshot: NodeSnapshot) -> Iterator[tuple[str, str]]:
    yield "driver", snapshot.driver_version or UNKNOWN
    yield "CUDA", snapshot.cuda_version or UNKNOWN
    if snapshot.ratio != 1:
        yield "ratio", f"{snapshot.ratio:g}"


def _apart(left: Text, right: Text, width: int | None) -> Text:
    gap = 3 if width is None else width - left.cell_len - right.cell_len - 1
    return left.append(" " * max(2, gap)).append_text(right)


def _totals(snapshot: NodeSnapshot) -> Text:
    gpus = [usage.gpu for usage in snapshot.gpus]
    memory = [g.memory for g in gpus if g.memory]
    used, total = (sum(m.used for m in memory), sum(m.total for m in memory)) if memory else (None, None)
    power = [g.power for g in gpus if g.power is not None]
    busy = [g.utilization for g in gpus if g.utilization is not None]
    line = Text().append(f" {_count(len(gpus), 'GPU')}", "bold")
    for word, value in (
        ("util", percent(sum(busy) / len(busy) if busy else None)),
        ("memory", f"{sizes(used, total)} {percent(used / total if used is not None and total else None)}"),
        ("power", watts(sum(power) if power else None)),
    ):
        line.append(f"  {word} ", "dim").append(value)
    states = _states(snapshot)
    counts = ", ".join(f"{states.count(state)} {state}" for state in _LIVELIEST if state in states)
    line.append(f"  {_count(len(states), 'container')}", "bold")
    return line.append(f" {counts}" if counts else "", "dim")


_LIVELIEST: tuple[State, ...] = ("active", "idle", "unknown", "not-started")


def _states(snapshot: NodeSnapshot) -> list[State]:
    """One state for each container: the most active of its states on several GPUs."""
    found: dict[ContainerKey, State] = {}
    for usage in snapshot.containers:
        found[usage.key] = min(usage.state, found.get(usage.key, usage.state), key=_LIVELIEST.index)
    return list(found.values())


def _count(n: int, word: str) -> str:
    return f"{n} {word}" if n == 1 else f"{n} {word}s"


def _sources(sources: Iterable[SourceState]) -> Text:
    """Failed sources come first, because a narrow screen cuts the line."""
    line = Text().append(" sources", "dim")
    for source in sorted(sources, key=lambda s: (not s.up and s.absent, s.up)):
        if source.up:
            line.append("  ✓ ", "green").append(clean(source.source))
        elif source.absent:
            line.append(f"  ○ {clean(source.source)} absent", "dim")
        else:
            line.append("  ✗ ", "bold red").append(clean(f"{source.source} {source.code or 'down'}"), "red")
    return line


_ALARMING = {"hw-slowdown", "sw-thermal", "hw-thermal", "hw-power-brake"}  # the other reasons are normal operation


_SWITCHED_OFF: dict[Blind, str] = {
    "hung": "because a call to the driver did not return",
    "disturbs-memory": "because memory queries of MIG instances failed since it began",
}


def notices(snapshot: NodeSnapshot) -> list[Text]:
    """Problems that the numbers do not show, most severe first."""
    found = [*_gpu_notices(snapshot), *_source_notices(snapshot), *_region_notices(snapshot)]
    found += (("!", "yellow", text) for text in _unallocated(snapshot))
    waiting = dict.fromkeys(vgpu.key for vgpu in snapshot.vgpus if vgpu.blocked)  # once, even if it is on several GPUs
    found += (("!", "yellow", f"{label(key)} waits for a container of higher priority") for key in waiting)
    found.sort(key=lambda notice: notice[0] != "✗")
    return [Text(f" {sign} {clean(text)}", style) for sign, style, text in found]


def _unallocated(snapshot: NodeSnapshot) -> Iterator[str]:
    """Containers that use a GPU that was not allocated to them, each with its GPUs."""
    index = {usage.gpu.uuid: str(usage.gpu.index) for usage in snapshot.gpus}
    used: dict[ContainerKey, dict[str, None]] = {}
    for usage in snapshot.containers:
        if not usage.allocated:
            used.setdefault(usage.key, {})[index.get(usage.gpu, usage.gpu)] = None
    for key, gpus in used.items():
        yield f"{label(key)} uses GPU {', '.join(gpus)} without an allocation"


def _gpu_notices(snapshot: NodeSnapshot) -> Iterator[tuple[str, str, str]]:
    last_xid = dict(snapshot.last_xid)
    for usage in snapshot.gpus:
        gpu = usage.gpu
        if gpu.health != "ok":
            yield "✗", "bold red", f"GPU {gpu.index} {gpu.health}: {gpu.uuid}"
        if gpu.uuid in last_xid:
            yield _xid_notice(gpu, last_xid[gpu.uuid], [x for x in snapshot.xids if x.gpu == gpu.uuid])
        if slow := sorted(_ALARMING & (gpu.throttle or frozenset())):
            yield "!", "yellow", f"GPU {gpu.index} is throttled: {', '.join(slow)}"
        if usage.activity_blind in _SWITCHED_OFF:
            yield "!", "yellow", f"GPU {gpu.index}: profiling is switched off, {_SWITCHED_OFF[usage.activity_blind]}"
        if gpu.remap_failed or gpu.ecc_uncorrected:
            yield "!", "yellow", f"GPU {gpu.index} has uncorrectable memory errors"


def _xid_notice(gpu: Gpu, last: int, seen: Collection[XidCount]) -> tuple[str, str, str]:
    """The last XID of a GPU, or an earlier one if that is fatal and the last is not."""
    xid = next((x for x in (last, *(x.xid for x in seen)) if advice(x).fatal), last)
    known = advice(xid)
    name = f" ({known.name})" if known.name else ""
    count = sum(x.count for x in seen) or 1
    text = f"GPU {gpu.index} reported XID {xid}{name}: {ADVICE[known.action]}; {_count(count, 'XID')} so far"
    return ("✗", "bold red", text) if known.fatal else ("!", "yellow", text)


def _source_notices(snapshot: NodeSnapshot) -> Iterator[tuple[str, str, str]]:
    for source in snapshot.sources:
        if not source.up and not source.absent:
            since = "" if source.age_seconds is None else f" (last read {span(source.age_seconds)} ago)"
            yield "✗", "red", f"{source.source} {source.code or 'down'}: {source.message or 'no reason given'}{since}"
        elif source.source == "nvml" and source.absent:
            yield "!", "yellow", f"no GPUs, because the driver is missing: {source.message} ({source.code})"


def _region_notices(snapshot: NodeSnapshot) -> Iterator[tuple[str, str, str]]:
    if snapshot.regions_refused:
        reasons = ", ".join(f"{reason} {n}" for reason, n in sorted(snapshot.regions_refused.items()))
        total = sum(snapshot.regions_refused.values())
        yield "!", "yellow", f"{_count(total, 'HAMi region')} rejected: {reasons}"
    if snapshot.regions_orphaned:
        n = snapshot.regions_orphaned
        yield "!", "yellow", f"{_count(n, 'HAMi region')} of deleted pods not removed"
    for dispute in snapshot.disputes:
        claimed = f"{_count(dispute.devices, 'device')} that the container was not assigned ({dispute.example[:40]})"
        yield "!", "yellow", f"{label(dispute.key)}: the HAMi region claims {claimed}; ignored"
    for one in snapshot.unknown_devices:
        named = f"{_count(one.devices, 'device')} that this node does not have ({one.example[:40]})"
        yield "!", "yellow", f"{label(one.key)}: an annotation names {named}; ignored"
    for one in snapshot.forged_assignments:
        named = f"{_count(one.devices, 'device')} that the scheduler did not assign ({one.example[:40]})"
        yield "!", "yellow", f"{label(one.key)}: an annotation names {named}; ignored"
