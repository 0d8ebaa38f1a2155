"""One process that measures the machine with many workloads, and prints the figures as JSON."""

import asyncio
import gc
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from bench.measure import Speed
from vgpuscope.logic.reclaim.brakes import TickFacts, WorkloadFacts
from vgpuscope.logic.reclaim.tick import ReclaimMemory, TickResult, tick
from vgpuscope.model.analysis import Analysis, Evidence, GpuUse, Tenant, TenantUse, Window
from vgpuscope.model.audit import AuditEntry
from vgpuscope.model.reclaim import Case, Policy, Workload
from vgpuscope.runtime.heap import without_collections
from vgpuscope.store.engine.engine import open_engine
from vgpuscope.store.past import PastStore
from vgpuscope.store.reclaim import ReclaimBatch, ReclaimStore

_SHARED_BY = 4
_IDLE = 3  # of ten workloads
_TICKS = 10
_ROUNDS = 5
_WINDOW = 600.0
_NOBODY = WorkloadFacts()


def fleet(workloads: int) -> tuple[GpuUse, ...]:
    return tuple(
        GpuUse(
            gpu_id=f"GPU-{number:08x}-0000-4000-8000-{number:012x}",
            hostname=f"node-{number // 8}",
            model="NVIDIA A100-SXM4-80GB",
            tenants=tuple(_tenant(number * _SHARED_BY + one) for one in range(_SHARED_BY)),
        )
        for number in range(workloads // _SHARED_BY)
    )


def _tenant(number: int) -> TenantUse:
    idle = number % 10 < _IDLE
    return TenantUse(
        tenant=Tenant(
            namespace=f"team-{number % 200}",
            pod=f"notebook-{number}",
            container="main",
            pod_uid=f"{number:08x}-1111-4000-8000-{number:012x}",
        ),
        own=True,
        verdict="idle" if idle else "in_use",
        use_class="idle" if idle else "busy",
        evidence=Evidence(coverage=1.0),
        idle_since=0.0 if idle else None,
    )


def lower_bound(gpus: tuple[GpuUse, ...]) -> float:
    """CPU of the least that any machine has to do: look at each verdict once, and remember it by its workload."""
    began = time.thread_time()
    found = {}
    for gpu in gpus:
        for use in gpu.tenants:
            found[use.tenant.pod_uid] = use.verdict
    assert len(found) == len(gpus) * _SHARED_BY
    return time.thread_time() - began


def analysis(gpus: tuple[GpuUse, ...], number: int) -> Analysis:
    end = 1_790_000_000.0 + number * _WINDOW
    window = Window(begin=end - _WINDOW, end=end, interval=15.0)
    return Analysis(number=number, started=end, seconds=0.0, window=window, gpus=gpus)


class Machine:
    """The machine as the service drives it."""

    def __init__(self) -> None:
        self.cases: dict[str, Case] = {}
        self._memory = ReclaimMemory()
        self._policy = Policy(dry_run=False)

    def follow(self, one: Analysis) -> tuple[float, TickResult]:
        """The CPU of one tick, and its moves."""
        world = TickFacts(now=one.window.end, leads=True, stored=True, channel=False)
        with without_collections():  # as the service does
            began = time.thread_time()
            done = tick(self.cases, one, self._memory, policy=self._policy, world=world, facts=_known)
            took = time.thread_time() - began
        self._memory = done.memory
        self.cases = {**self.cases, **{move.after.id: move.after for move in done.moves}}
        return took, done


def _known(_: Workload) -> WorkloadFacts:
    return _NOBODY


async def saved(done: TickResult, one: Analysis) -> tuple[float, float, float]:
    """Seconds in which the largest batch is stored, and in which a frame of the past is; the frame's bytes."""
    with tempfile.TemporaryDirectory(prefix="vgpuscope-reclaim-") as folder:
        engine = open_engine(str(Path(folder) / "store.db"))
        assert engine is not None
        store, past = ReclaimStore(engine), PastStore(engine)
        try:
            term = (await store.lead()).term
            entries = [AuditEntry(at=0.0, actor="bench", what="moved", case_id=move.after.id) for move in done.moves]
            began = time.perf_counter()
            await store.save(ReclaimBatch(cases=[move.after for move in done.moves], audit=entries), term=term)
            batch = time.perf_counter() - began
            began = time.perf_counter()
            (await engine.write(lambda tx: past.add(tx, one)))()
            frame = time.perf_counter() - began
            [(size,)] = await engine.read(lambda tx: tx.all("SELECT size FROM past_frames"))
        finally:
            await engine.close()
    return batch, frame, size


def _resident() -> float:
    status = Path("/proc/self/status").read_text()
    return float(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) * 1024


class Round(NamedTuple):
    """One life of a machine, from its first analysis on."""

    ticks: list[float]
    turned: float
    bound: float
    resident: float
    largest: TickResult
    cases: int


def one_round(gpus: tuple[GpuUse, ...], speed: Speed) -> Round:
    gc.collect()
    before = _resident()
    machine, ticks, bounds, largest = Machine(), [], [], TickResult(memory=ReclaimMemory())
    for number in range(1, _TICKS + 1):
        speed.look()
        bounds.append(lower_bound(gpus))
        took, done = machine.follow(analysis(gpus, number))
        ticks.append(took)
        largest = max(largest, done, key=lambda one: len(one.moves))
    resident = _resident() - before
    flipped = tuple(replace(gpu, tenants=tuple(map(_flipped, gpu.tenants))) for gpu in gpus)
    turned, _ = machine.follow(analysis(flipped, _TICKS + 1))  # the breaker opens
    return Round(ticks, turned, min(bounds), resident, largest, len(machine.cases))


def main(workloads: int) -> None:
    """Other work on the machine only adds to the time of a tick, so the fastest of some rounds counts."""
    speed = Speed()
    gpus = fleet(workloads)
    gc.collect()
    gc.freeze()
    rounds = [one_round(gpus, speed) for _ in range(_ROUNDS)]
    first = rounds[0]
    batch, frame, size = asyncio.run(saved(first.largest, analysis(gpus, 1)))
    figures = {
        "workloads": workloads,
        "cases": first.cases,
        "ticks": [min(times) for times in zip(*(one.ticks for one in rounds), strict=True)],
        "turned": min(one.turned for one in rounds),
        "lower_bound": min(one.bound for one in rounds),
        "resident_bytes": first.resident,
        "moves": len(first.largest.moves),
        "batch_seconds": batch,
        "frame_seconds": frame,
        "frame_bytes": size,
        "speed": speed.share(),
    }
    print(json.dumps(figures))


def _flipped(use: TenantUse) -> TenantUse:
    idle = use.verdict != "idle"
    return replace(use, verdict="idle" if idle else "in_use", use_class="idle" if idle else "busy")


if __name__ == "__main__":
    main(int(sys.argv[1]))
