"""What a policy would have done in the past: the actions, the GPU-hours won, and the false alarms."""

from typing import Literal, TypeAlias

from msgspec import Struct

from vgpuscope.model.quantity import DeviceUUID, PodUID, Ratio, Seconds, UnixTime
from vgpuscope.model.reclaim import Brake

# How the time after an action ended. busy_later: the workload was busy again, but not soon.
EpisodeEnd: TypeAlias = Literal["false_alarm", "busy_later", "ended", "still_idle"]


class Gap(Struct, frozen=True, kw_only=True):
    """A time of which nothing is stored."""

    begin: UnixTime
    end: UnixTime


class PastCoverage(Struct, frozen=True, kw_only=True):
    """Which part of a span is known. A gap is not idle time: nothing is concluded from it."""

    ratio: Ratio
    known_seconds: Seconds
    seconds: Seconds
    analyses: int
    first: UnixTime | None  # end of the first analysis; null: there is none
    last: UnixTime | None
    gaps: tuple[Gap, ...] = ()  # the longest ones


class Episode(Struct, frozen=True, kw_only=True):
    """One action that a policy would have taken, and what came after it."""

    at: UnixTime
    until: UnixTime | None  # null: idle until the end of the span
    end: EpisodeEnd
    namespace: str
    pod: str
    pod_uid: PodUID
    owner: str | None
    gpu_ids: tuple[DeviceUUID, ...]
    gpu_hours: float  # won: known to be idle
    unknown_gpu_hours: float  # nothing is known of this time; it is not counted as won


class BucketSum(Struct, frozen=True, kw_only=True):
    """One hour or day (UTC)."""

    time: UnixTime
    actions: int
    gpu_hours: float
    unknown_gpu_hours: float
    false_alarms: int  # of the actions of this hour or day


class NamespaceSum(Struct, frozen=True, kw_only=True):
    namespace: str
    actions: int
    gpu_hours: float
    unknown_gpu_hours: float
    false_alarms: int


class Outcome(Struct, frozen=True, kw_only=True):
    """All that one policy would have done."""

    actions: int
    workloads: int
    gpu_hours: float
    unknown_gpu_hours: float
    false_alarms: int
    busy_later: int
    ended: int
    still_idle: int
    held_back: dict[Brake, int]  # how often each brake began to hold a case back
    namespaces: tuple[NamespaceSum, ...]  # most GPU-hours first
    series: tuple[BucketSum, ...]
    list: tuple[Episode, ...]  # newest first
    omitted: int  # actions that are not in the list


class PolicyChange(Struct, frozen=True, kw_only=True):
    """One key of the policy, as text."""

    key: str
    current: str
    proposed: str


Unapplied: TypeAlias = Literal["annotations", "activity", "model", "approval", "notices", "hand", "no_uid", "scale"]


class Backtest(Struct, frozen=True, kw_only=True):
    """The current policy and, if one is given, a proposed one, over the same past."""

    source: Literal["stored", "prometheus"]
    begin: UnixTime
    end: UnixTime
    complete: bool  # false: the time limit ended the replay at replayed_until
    replayed_until: UnixTime
    busy_within: Seconds
    step: int  # seconds of one bucket of the series
    coverage: PastCoverage
    not_applied: tuple[str, ...]  # what the past does not tell, in sentences
    not_applied_codes: tuple[Unapplied, ...]
    changed: tuple[PolicyChange, ...]
    current: Outcome
    proposed: Outcome | None


class BacktestProgress(Struct, frozen=True, kw_only=True):
    """The back-test that runs in this replica."""

    running: bool
    done: Ratio = 0.0
    by: str | None = None
    since: UnixTime | None = None
