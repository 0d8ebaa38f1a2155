"""The measurements of taking GPUs back: whom the machine acts on, and how long a tick takes."""

import subprocess
import sys

import msgspec
from msgspec import Struct

from bench import reclaim_trust
from bench.reclaim_trust import TrustFigures
from bench.trust_measure import say

WORKLOADS = 100_000


class TickFigures(Struct, frozen=True, kw_only=True):
    """One process with many workloads. Times are seconds of CPU; those of the store are seconds."""

    workloads: int
    cases: int
    ticks: tuple[float, ...]
    turned: float  # the tick in which all workloads turn round
    lower_bound: float  # look at each verdict once
    resident_bytes: float  # of the cases and the memory of the machine
    moves: int
    batch_seconds: float
    frame_seconds: float
    frame_bytes: int
    speed: float

    @property
    def median(self) -> float:
        return sorted(self.ticks)[len(self.ticks) // 2]

    @property
    def worst(self) -> float:
        return max(*self.ticks, self.turned)


class ReclaimFigures(Struct, frozen=True, kw_only=True):
    """The figures of one run."""

    trust: TrustFigures
    tick: TickFigures


def run(*, quick: bool) -> ReclaimFigures:
    return ReclaimFigures(tick=_ticks(), trust=reclaim_trust.run(quick=quick))


def _ticks() -> TickFigures:
    say(f"reclaim: {WORKLOADS:,} workloads")
    command = [sys.executable, "-m", "bench.reclaim_script", str(WORKLOADS)]
    done = subprocess.run(command, capture_output=True, check=True, timeout=600)
    return msgspec.json.decode(done.stdout, type=TickFigures)
