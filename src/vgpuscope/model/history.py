"""The stored results of past analyses: one point for a GPU, MIG instance or tenant at one time, hour or day."""

from typing import Literal, TypeAlias

from msgspec import Struct

from vgpuscope.model.analysis import Status, UseClass, Verdict
from vgpuscope.model.quantity import Bytes, DeviceUUID, Ratio, Seconds, UnixTime, Watts

Step: TypeAlias = Literal["analysis", "hour", "day"]
STEP_SECONDS: dict[Step, int] = {"hour": 3600, "day": 86400}


class HistoryPoint(Struct, frozen=True, kw_only=True, gc=False):
    """One GPU or MIG instance, or one pod on one, over one step.

    Without namespace and pod it is the GPU's point; with them it is the pod's part of the GPU. Every analysis
    represents the time since the one before it, but at most its window. So seconds add up, and no time is counted
    twice.
    """

    step: Step
    time: UnixTime  # end of the analysis' window, or begin of the hour or day (UTC)
    gpu_id: DeviceUUID
    mig: str = ""
    gpu_instance: str = ""  # number of the MIG instance's GPU instance: its compute instances share memory
    hostname: str = ""
    model: str = ""
    namespace: str = ""
    pod: str = ""
    owner: str = ""
    samples: int = 1  # analyses
    scored: int = 0  # of these, the number with a score
    score_seconds: Seconds = 0.0  # of `seconds`, those in which it was measured; likewise for each quantity below
    score: float | None = None  # mean of the analyses with a score
    score_min: float | None = None
    score_max: float | None = None
    util_samples: int = 0
    util_seconds: Seconds = 0.0
    util: Ratio | None = None  # mean of the best signal
    util_max: Ratio | None = None
    memory_samples: int = 0
    memory_seconds: Seconds = 0.0
    memory_used: Bytes | None = None  # mean
    memory_max: Bytes | None = None
    power_samples: int = 0
    power_seconds: Seconds = 0.0
    power: Watts | None = None  # mean
    power_max: Watts | None = None
    energy: float | None = None  # joules in `seconds`; of a pod, in the time in which it held the GPU
    allocated_samples: int = 0
    allocated_seconds: Seconds = 0.0
    memory_allocated: Bytes | None = None  # mean; by the scheduler
    cores_samples: int = 0
    cores_seconds: Seconds = 0.0
    cores_allocated: float | None = None  # mean; percent of one GPU
    share: Ratio | None = None  # of the GPU, by the memory limit of the pod; mean while the limit was known
    coverage_samples: int = 0
    coverage: Ratio | None = None  # mean
    seconds: Seconds = 0.0  # that the analyses represent
    analysis_seconds: Seconds | None = None  # of a single analysis: all that it represents; a pod's time is in it
    held_seconds: Seconds = 0.0  # of these, the seconds in which a pod held the GPU
    by_status: dict[Status, Seconds] = {}  # seconds; time without a result is counted as unknown
    by_verdict: dict[Verdict, Seconds] = {}
    by_class: dict[UseClass, Seconds] = {}
    status: Status | None = None  # of a single analysis; None: an hour's or a day's point
    verdict: Verdict | None = None
    use_class: UseClass | None = None


class HistoryPage(Struct, frozen=True, kw_only=True):
    """Some points of the history, oldest first."""

    points: list[HistoryPoint] = []
    cursor: str | None = None  # continues after the last of these points; None: there are no more
