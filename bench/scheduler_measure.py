"""The measurements of the scheduler extender: how long the filter of one pod takes, by the number of nodes."""

import subprocess
import sys

import msgspec
from msgspec import Struct

from bench import scheduler_bind
from bench.scheduler_bind import BoundFigures
from bench.trust_measure import say

SIZES = (100, 1000, 5000)
DECISIONS = 30  # of each shape and size
QUICK = 12


class ShapeFigures(Struct, frozen=True, kw_only=True):
    """The decisions about one shape of request: seconds of CPU, the quickest first."""

    shape: str
    fitting: int
    seconds: tuple[float, ...]

    def share(self, of: float) -> float:
        """The time within which that share of the decisions was made."""
        return self.seconds[min(len(self.seconds) - 1, int(of * len(self.seconds)))]


class FilterFigures(Struct, frozen=True, kw_only=True):
    """One size of cluster."""

    nodes: int
    decisions: int  # of each shape
    shapes: tuple[ShapeFigures, ...]
    speed: float

    def share(self, of: float) -> float:
        """The same over the decisions of all shapes."""
        everything = sorted(one for shape in self.shapes for one in shape.seconds)
        return everything[min(len(everything) - 1, int(of * len(everything)))]


class SchedulerFigures(Struct, frozen=True, kw_only=True):
    """The figures of one run."""

    filters: tuple[FilterFigures, ...]
    bound: tuple[BoundFigures, ...] = ()  # through a real kube-scheduler; empty: its programs are not built


def run(*, quick: bool) -> SchedulerFigures:
    filters = tuple(_filter(nodes, QUICK if quick else DECISIONS) for nodes in SIZES)
    return SchedulerFigures(filters=filters, bound=scheduler_bind.run(quick=quick))


def _filter(nodes: int, decisions: int) -> FilterFigures:
    say(f"scheduler: {nodes:,} nodes")
    command = [sys.executable, "-m", "bench.scheduler_script", str(nodes), str(decisions)]
    done = subprocess.run(command, capture_output=True, check=True, timeout=900)
    return msgspec.json.decode(done.stdout, type=FilterFigures)
