"""Profiling values of one sample: the driver's from a thread of their own, then a dcgm-exporter's.

The driver's calls may hang. A round that misses its deadline is the last one: its thread stays with the call, and
everything else goes on without these values.
"""

import logging
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import TYPE_CHECKING

from msgspec.structs import replace

from vgpuscope.logic.node.profiling import Profile, Replacements, joined, strange
from vgpuscope.model.activity import ActivityReading, Blind, DcgmPage
from vgpuscope.model.device import DeviceReading, Gpu
from vgpuscope.model.errors import ProfilingAbsent, ProfilingOff, ScopeError
from vgpuscope.model.quantity import Seconds
from vgpuscope.runtime.log import fields
from vgpuscope.services.agent.waits import WAITS
from vgpuscope.sources.node.nvml.driver import Nvml
from vgpuscope.worker import Worker

if TYPE_CHECKING:
    from vgpuscope.logic.node.dcgm import DcgmReadings

log = logging.getLogger(__name__)

_KEPT: Seconds = 5.0  # how long the values of a slow round are shown
_QUIET: Seconds = 60.0  # between two rounds if no GPU has counters: the answer changes only with the driver
_GAP: Seconds = 0.2  # between two rounds: the driver needs 0.1 s between two samples to make a value of them
_DCGM_KEPT: Seconds = 30.0  # how long a dcgm-exporter's values are shown; it is read every ten seconds
_DCGM_LAG: Seconds = 30.0  # a dcgm-exporter collects so rarely by default, so its page may be that old


class Profiling:
    """The driver's profiling values, round by round, and the newest page of a dcgm-exporter."""

    def __init__(
        self,
        nvml: Nvml,
        *,
        deadline: Seconds,
        good: Callable[[Seconds], None],
        bad: Callable[[ScopeError], None],
        patience: Seconds = WAITS.profiling,
        clock: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        """`patience` is how long a sample waits for a round."""
        self._nvml, self._deadline, self._clock = nvml, deadline, clock
        self.patience = patience
        self._good, self._bad = good, bad
        self._worker = Worker("profiling")
        self._round: tuple[Future[ActivityReading | None], float] | None = None
        self._latest: tuple[ActivityReading, float] | None = None
        self._latest_began = 0.0
        self._replacements = Replacements()
        self._hung = False
        self._due = 0.0  # when the next round may begin
        self._readings: DcgmReadings | None = None  # None: no page of a dcgm-exporter has been read
        self._dcgm: tuple[ActivityReading, float] | None = None
        self._checked: ActivityReading | None = None
        self._strange: dict[str, int] = {}

    def take_dcgm(self, page: DcgmPage) -> ActivityReading:
        """A dcgm-exporter has been read; returns what its page shows."""
        from vgpuscope.logic.node.dcgm import DcgmReadings

        if self._readings is None:
            self._readings = DcgmReadings()
        reading = self._readings.take(page)
        self.show(reading)
        return reading

    def show(self, reading: ActivityReading) -> None:
        """The profiling values of a dcgm-exporter, from now on."""
        self._dcgm = reading, self._clock()

    def begin(self, reading: DeviceReading | None) -> None:
        """Start a round for the GPUs of this reading, unless one is under way or has just ended."""
        if reading is None:
            return
        self._replacements.look_at(reading.gpus, self._clock())
        if self._hung:
            return
        if (gpu := self._nvml.disturbed(reading)) is not None:
            self._off(f"{gpu}: memory queries of MIG instances fail since profiling counters are read", gpu=gpu)
        if self._round is None and reading.gpus and self._clock() >= self._due:
            gpus = reading.gpus
            self._round = self._worker.submit(lambda: self._nvml.profile(gpus)), self._clock()

    def take(self, gpus: Collection[Gpu]) -> Profile:
        """The profile of this sample."""
        self._collect()
        return joined(self._of_driver(gpus), self._of_exporter(gpus))

    def _collect(self) -> None:
        """Take the result of the round if it is there; a round that misses the deadline is the last one."""
        if self._round is None:
            return
        job, began = self._round
        age = self._clock() - began
        try:
            found = job.result(timeout=max(0.0, self.patience - age))
        except TimeoutError:
            if not job.done():
                if age > self._deadline and not self._hung:
                    self._hung = True
                    self._off(f"{self._nvml.profiling} has not come back for {age:.1f} s", gpu=None)
                return
            found = None
        except Exception as e:
            self._round, self._due = None, self._clock() + _GAP
            self._bad(ProfilingOff(f"unexpected: {type(e).__name__}: {e}"))
            return
        self._round, self._due = None, self._clock() + _GAP
        if not self._hung and found is not None:
            self._take_round(found, began)

    def _take_round(self, found: ActivityReading, began: float) -> None:
        seconds = self._clock() - began
        self._latest, self._latest_began = (found, self._clock()), began
        seeing = found.places or found.waiting or not found.blind
        lasting = not seeing and "no-values" not in found.blind.values()
        if lasting:
            self._due = self._clock() + _QUIET
        if seeing:
            self._good(seconds)
        elif "disturbs-memory" in found.blind.values():
            self._bad(ProfilingOff("profiling counters disturbed memory queries of MIG instances"))
        else:
            reasons = ", ".join(sorted(set(found.blind.values())))
            self._bad(ProfilingAbsent(f"no GPU has profiling values: {reasons}"))

    def _off(self, why: str, *, gpu: str | None) -> None:
        log.warning("profiling is switched off", extra=fields(reason=why, gpu=gpu, error_code=ProfilingOff.code))
        self._bad(ProfilingOff(why))

    def _of_driver(self, gpus: Collection[Gpu]) -> ActivityReading | None:
        if self._hung:
            blind: dict[str, Blind] = {gpu.uuid: "hung" for gpu in gpus}
            dropped = self._latest[0].dropped if self._latest else {}
            return ActivityReading(source="gpm", blind=blind, dropped=dropped)
        if self._latest is None:
            return None
        found, at = self._latest
        shown = self._clock() - at <= _KEPT or self._clock() < self._due
        return self._replacements.own(found, self._latest_began) if shown else None

    def _of_exporter(self, gpus: Collection[Gpu]) -> ActivityReading | None:
        """The exporter's values; those of GPUs and instances that the node does not have are counted, page by page."""
        if self._dcgm is None or self._clock() - self._dcgm[1] > _DCGM_KEPT:
            return None
        reading, read = self._dcgm
        if reading is not self._checked:
            self._checked = reading
            for reason, count in strange(reading, gpus).items():
                self._strange[reason] = self._strange.get(reason, 0) + count
        if self._strange:
            reading = replace(reading, dropped={**reading.dropped, **self._strange})
        return self._replacements.own(reading, read - _DCGM_LAG)
