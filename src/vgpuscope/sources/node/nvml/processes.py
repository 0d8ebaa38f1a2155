"""The processes on a GPU: the driver's three lists merged, and the use of each process since the last sample."""

from collections.abc import Callable
from typing import Any, TypeAlias

from vgpuscope.model.device import GpuProcess, Memory, ProcessKind
from vgpuscope.sources.node.nvml.calls import NOT_FOUND, SUCCESS, Calls, GpuHandle, NvmlQuery, attribute
from vgpuscope.sources.node.nvml.lists import LISTS, as_row

_NONE = 0xFFFFFFFF  # NVML's "no such instance"
_PID_MAX = 1 << 22
_CLOCK_SLACK = 100_000  # µs that a sample may appear to be in the future

_SAMPLES = NvmlQuery(
    "nvmlDeviceGetProcessesUtilizationInfo",
    "nvmlDeviceGetProcessUtilization",
    nothing=(SUCCESS, NOT_FOUND),  # no process was active; the binding also raises a library's SUCCESS without samples
)

_KINDS: tuple[ProcessKind, ...] = ("compute", "graphics", "mps")
_KIND_SETS = tuple(frozenset(k for i, k in enumerate(_KINDS) if mask >> i & 1) for mask in range(8))


def process_lists(of: str) -> tuple[NvmlQuery, ...]:
    """The questions for the lists of a GPU, or of a MIG instance: each remembers separately what is not supported."""
    return tuple(NvmlQuery(name, f"{name}_v2", of=of) for name in LISTS)


Listed: TypeAlias = dict[int, list[Any]]  # by pid: mask of kinds, memory, GPU instance, compute instance


def read_processes(
    calls: Calls, gpu: GpuHandle, lists: tuple[NvmlQuery, ...], memory: Memory | None, handle: Any = None
) -> Listed | None:
    """Each process once, even if several lists have it. None: a list could not be read, and the rest would mislead."""
    merged: Listed = {}
    failed, readable = gpu.failed, False
    for kind, question in enumerate(lists):
        rows = calls.ask(gpu, question, handle=handle)
        if rows is not None:
            readable = True
            _merge(calls, merged, rows, kind=1 << kind, most=memory.total if memory else 1 << 50)
    return merged if readable and gpu.failed == failed else None


def _merge(calls: Calls, merged: Listed, rows: Any, *, kind: int, most: int) -> None:
    for row in rows:
        pid, memory, gi, ci = row if isinstance(row, tuple) else as_row(row)
        if not 0 < pid <= _PID_MAX:
            calls.drop("process-pid")  # 0: a process that has no pid in our pid namespace
            continue
        if memory is not None and memory > most:
            calls.drop("process-memory-over-total")
            memory = None
        listed = merged.get(pid)
        if listed is None:
            merged[pid] = [kind, memory, None if gi == _NONE else gi, None if ci == _NONE else ci]
            continue
        listed[0] |= kind
        if memory is not None and (listed[1] is None or memory > listed[1]):
            listed[1] = memory  # each list has the complete sum: adding them would count it twice


def without_use(listed: Listed) -> tuple[GpuProcess, ...]:
    """The processes of a GPU or MIG instance without the use of each, which the driver does not report."""
    return tuple(_process(pid, one, None) for pid, one in listed.items())


def with_use(calls: Calls, gpu: GpuHandle, listed: Listed, clock: Callable[[], float]) -> tuple[GpuProcess, ...]:
    """The processes with the use of each since the last sample: 0 for a process without a driver sample."""
    now = int(clock() * 1e6)
    # the first time, ask for one second: 0 would return the driver's whole history
    since = now - 1_000_000 if gpu.seen_until is None else min(gpu.seen_until, now)
    gpu.seen_until = since
    samples = calls.ask(gpu, _SAMPLES, since)
    if samples is None:
        return without_use(listed)
    newest = _newest(calls, samples, listed, since=since, until=int(clock() * 1e6) + _CLOCK_SLACK)
    times = [sample[0] for sample in newest.values() if sample is not None]
    if times:
        gpu.seen_until = max(times)
    return tuple(_process(pid, one, newest.get(pid, _IDLE)) for pid, one in listed.items())


_Use = tuple[int, int, int, int]  # µs, percent of SM, encoder, decoder
_IDLE: _Use = (0, 0, 0, 0)


def _newest(calls: Calls, samples: Any, listed: Listed, *, since: int, until: int) -> dict[int, _Use | None]:
    """The latest sample of each listed process; None for a process whose samples are all garbage."""
    newest: dict[int, _Use | None] = {}
    for sample in samples:
        pid, at = attribute(sample, "pid"), attribute(sample, "timeStamp")
        if pid not in listed or at <= since:
            continue
        sm, enc, dec = attribute(sample, "smUtil"), attribute(sample, "encUtil"), attribute(sample, "decUtil")
        before = newest.get(pid)
        if at > until or sm > 100 or enc > 100 or dec > 100 or attribute(sample, "memUtil") > 100:
            calls.drop("process-time" if at > until else "process-percent-over-100")
            newest[pid] = before
        elif before is None or at > before[0]:
            newest[pid] = (at, sm, enc, dec)
    return newest


def _process(pid: int, listed: list[Any], use: _Use | None) -> GpuProcess:
    kinds, memory, gi, ci = listed
    if use is None:
        return GpuProcess(pid=pid, kinds=_KIND_SETS[kinds], memory=memory, gpu_instance=gi, compute_instance=ci)
    return GpuProcess(
        pid=pid,
        kinds=_KIND_SETS[kinds],
        memory=memory,
        sm=use[1] / 100,
        encoder=use[2] / 100,
        decoder=use[3] / 100,
        gpu_instance=gi,
        compute_instance=ci,
    )
