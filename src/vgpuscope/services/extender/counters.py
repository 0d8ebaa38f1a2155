"""What the extender counts: requests, refusals and durations."""

from collections import Counter
from collections.abc import Iterable
from typing import Literal, TypeAlias

from vgpuscope.catalog.extender import BOUNDS
from vgpuscope.model.histogram import Histogram
from vgpuscope.model.placement import NodeVerdict
from vgpuscope.model.quantity import Seconds

Verb: TypeAlias = Literal["filter", "prioritize", "bind", "webhook"]
Outcome: TypeAlias = Literal["ok", "refused", "error"]


class ExtenderCounters:
    """Counters since the start of the process."""

    def __init__(self) -> None:
        nothing = Histogram.empty(BOUNDS)
        self.filtering = self.scoring = self.binding = self.queueing = nothing
        self.bound = self.failed = 0
        self.requests: Counter[tuple[str, str]] = Counter()
        self.refusals: Counter[tuple[str, str]] = Counter()
        self.node_refusals: Counter[str] = Counter()

    def answered(self, verb: Verb, outcome: Outcome, seconds: Seconds, *, ranked: Seconds = 0.0) -> None:
        """One request was answered; `ranked` is the part of the time that ranked nodes."""
        self.requests[verb, outcome] += 1
        if verb == "filter":
            self.filtering = self.filtering.with_one(seconds)
            self.scoring = self.scoring.with_one(ranked)
        elif verb == "bind":
            self.binding = self.binding.with_one(seconds)
            self.bound += outcome == "ok"
            self.failed += outcome != "ok"

    def waited(self, seconds: Seconds) -> None:
        """A decision waited for its turn."""
        self.queueing = self.queueing.with_one(seconds)

    def refused(self, verb: Verb, code: str, verdicts: Iterable[NodeVerdict] = ()) -> None:
        """A pod was refused, with these verdicts on its nodes."""
        self.refusals[verb, code] += 1
        self.node_refusals.update(one.code for one in verdicts if one.code)
