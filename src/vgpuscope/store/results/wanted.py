"""What is asked of a store of results: which analysis, and which points from where on."""

from typing import NamedTuple, Self

from msgspec import Struct

from vgpuscope.model.analysis import Analysis
from vgpuscope.model.history import Step
from vgpuscope.model.quantity import Seconds, UnixTime

# whole numbers that every database can compare; the store itself never makes longer ones
CURSOR = r"[0-9]{1,15}\.[0-9]{1,10}\.[0-9]{1,10}"


class Cursor(NamedTuple):
    """The key by which points are ordered."""

    time: int  # milliseconds, or the number of the hour or day
    analysis: int  # 0 for hours and days
    series: int

    @classmethod
    def of(cls, text: str) -> Self:
        """The cursor of a text that matches CURSOR."""
        return cls(*map(int, text.split(".")))

    def __str__(self) -> str:
        return ".".join(map(str, self))


class AnalysisKey(NamedTuple):
    """Identifies an analysis. Its time is that of a replica's clock, which may be wrong, so it does not order them."""

    started: UnixTime
    number: int

    @classmethod
    def of(cls, analysis: Analysis) -> Self:
        return cls(analysis.started, analysis.number)


class Covered(NamedTuple):
    """For how much of a period there are analyses."""

    seconds: dict[int, Seconds]  # number of the step, counted from the epoch → how much of it analyses stand for
    until: UnixTime  # end of the last analysis that stands for a part of the period
    measured: dict[str, dict[int, Seconds]]  # the same, of the analyses that have this one of SUMMED of any GPU


class HistorySelection(Struct, frozen=True, kw_only=True):
    """Selects points: those of GPUs, or of pods if a namespace or pod is given ("": any).

    With `tenants_of`, a point of a GPU is selected only if a pod of one of these namespaces held the GPU in its step.
    """

    step: Step
    begin: UnixTime
    end: UnixTime
    gpu_id: str | None = None
    mig: str | None = None
    namespace: str | None = None
    pod: str | None = None
    tenants_of: tuple[str, ...] | None = None  # namespaces; None: whoever held the GPU
    limit: int
    cursor: str | None = None  # of the page before
    fields: frozenset[str] = frozenset()  # that points of hours and days need, besides their names; none: all

    @property
    def names(self) -> dict[str, str]:
        """The columns that are given, with their values."""
        given = {"gpu_id": self.gpu_id, "mig": self.mig, "namespace": self.namespace, "pod": self.pod}
        return {column: value for column, value in given.items() if value is not None}
