"""The parameters of the analyzer's operations."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from vgpuscope.http.answer_limits import MOST_POINTS, MOST_ROWS
from vgpuscope.http.parameters import one_of
from vgpuscope.model.analysis import Status, UseClass, Verdict
from vgpuscope.model.history import Step
from vgpuscope.model.waste import GroupBy
from vgpuscope.runtime.duration import LONG
from vgpuscope.store.results.wanted import CURSOR, HistorySelection
from vgpuscope.views.fleet.results.results import ResultRow, RowKind
from vgpuscope.views.fleet.selection import RowSelection

FIELDS = ResultRow.__struct_fields__
ORDERS = tuple(name for name in FIELDS if name not in {"tenants", "ai_analysis", "xids"})
_EQUAL = ("status", "verdict", "use_class", "namespace", "pod", "hostname", "model_name", "gpu_id", "shared")

Format: TypeAlias = Annotated[Literal["json", "csv"] | None, Meta(description="The same as the Accept header.")]
Score: TypeAlias = Annotated[float, Meta(ge=0, le=100)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=MOST_ROWS)]
Moment: TypeAlias = Annotated[float, Meta(ge=0, le=1e11)]


class RowFilters(Struct, frozen=True, kw_only=True):
    """Filters that select GPUs."""

    status: Annotated[Status | None, Meta(description="Only rows of this status, or with a tenant of it.")] = None
    verdict: Annotated[Verdict | None, Meta(description="Only rows of this verdict, or with a tenant of it.")] = None
    use_class: Annotated[UseClass | None, Meta(description="Only rows of this class, or with a tenant of it.")] = None
    namespace: Annotated[str | None, Meta(description="Only GPUs of which a tenant is in this namespace.")] = None
    pod: Annotated[str | None, Meta(description="Only GPUs of which this pod is a tenant.")] = None
    hostname: Annotated[str | None, Meta(description="Only GPUs of this node.")] = None
    model_name: Annotated[str | None, Meta(description="Only GPUs of this model.")] = None
    gpu_id: Annotated[str | None, Meta(description="Only this GPU, by its whole UUID.")] = None
    shared: Annotated[
        bool | None, Meta(description="Only GPUs with several tenants, or only those with one or none.")
    ] = None
    search: Annotated[str | None, Meta(description="Only rows with this text in one of their names.")] = None
    min_score: Annotated[Score | None, Meta(description="Only rows or tenants of this score or more.")] = None
    max_score: Annotated[Score | None, Meta(description="Only rows or tenants of this score or less.")] = None

    def selection(self) -> RowSelection:
        """The filters in the form that the view takes."""
        return RowSelection(
            equal={name: value for name in _EQUAL if (value := getattr(self, name)) is not None},
            search=self.search or "",
            least={} if self.min_score is None else {"score": self.min_score},
            most={} if self.max_score is None else {"score": self.max_score},
        )


class StatsQuery(RowFilters, frozen=True, kw_only=True):
    """Sums over some GPUs."""

    format: Format = None


class RowsQuery(RowFilters, frozen=True, kw_only=True):
    """A page of GPUs."""

    sort: Annotated[
        str | None,
        one_of(
            (*ORDERS, *(f"-{name}" for name in ORDERS)), "A field to sort by; with - before it, the other way round."
        ),
    ] = None
    offset: Annotated[Count, Meta(description="Rows to leave out at the beginning.")] = 0
    limit: Annotated[Count | None, Meta(description="Most rows to send.")] = None
    fields: tuple[Annotated[str, one_of(FIELDS, "Fields to send.")], ...] = ()
    format: Format = None

    def selection(self) -> RowSelection:
        found = super().selection()
        return RowSelection(
            equal=found.equal,
            search=found.search,
            least=found.least,
            most=found.most,
            sort=self.sort or "",
            offset=self.offset,
            limit=self.limit,
            fields=self.fields,
        )


class LowQuery(RowsQuery, frozen=True, kw_only=True):
    """A page of low GPUs and tenants."""

    kind: Annotated[
        RowKind | None,
        Meta(
            description="gpu: only GPUs and MIG instances. tenant: one row for each tenant. Default: GPUs and MIG "
            "instances, and the tenants of shared GPUs."
        ),
    ] = None


class AnalyzeQuery(Struct, frozen=True, kw_only=True):
    """How to analyse."""

    use_ai: Annotated[
        bool | None,
        Meta(description="Whether to ask the language model about this analysis; absent: as ai.enabled says."),
    ] = None


class UpdateQuery(Struct, frozen=True, kw_only=True):
    """Settings by gpu-oour's names."""

    threshold: Annotated[Score | None, Meta(description="thresholds.low_utilization")] = None
    interval: Annotated[
        Annotated[float, Meta(ge=1, le=3600)] | None, Meta(description="scheduler.interval, in seconds")
    ] = None
    ai_enabled: Annotated[bool | None, Meta(description="ai.enabled")] = None


class HistoryQuery(Struct, frozen=True, kw_only=True):
    """Selects points of the history."""

    step: Annotated[Step, Meta(description="One point for each analysis, hour or day.")] = "analysis"
    begin: Annotated[Moment | None, Meta(description="From then on, in unix seconds; a day ago by default.")] = None
    end: Annotated[Moment | None, Meta(description="Until then, in unix seconds; now by default.")] = None
    gpu_id: Annotated[str | None, Meta(description="Only this GPU.")] = None
    mig: Annotated[str | None, Meta(description="Only this MIG instance.")] = None
    namespace: Annotated[str | None, Meta(description="Only tenants of this namespace.")] = None
    pod: Annotated[str | None, Meta(description="Only this pod.")] = None
    limit: Annotated[int, Meta(ge=1, le=MOST_POINTS, description="Most points to send in one page.")] = MOST_POINTS
    cursor: Annotated[
        Annotated[str, Meta(pattern=f"^{CURSOR}$")] | None,
        Meta(description="The x-next-cursor header of the page before, to continue after it; all else unchanged."),
    ] = None

    def wanted(self, now: float) -> HistorySelection:
        """The selection in the form that the store takes."""
        end = now if self.end is None else self.end
        return HistorySelection(
            step=self.step,
            begin=end - 86400 if self.begin is None else self.begin,
            end=end,
            gpu_id=self.gpu_id,
            mig=self.mig,
            namespace=self.namespace,
            pod=self.pod,
            limit=self.limit,
            cursor=self.cursor,
        )


class WasteQuery(Struct, frozen=True, kw_only=True):
    """Idle GPU-hours."""

    since: Annotated[
        str,
        Meta(
            pattern=f"^{LONG}$",
            description="How far back, such as 90m, 24h, 7d or 2w; from a whole hour, beyond 14d a whole day.",
        ),
    ] = "24h"
    group_by: Annotated[GroupBy, Meta(description="What a row is.")] = "tenant"
    namespace: tuple[
        Annotated[str, Meta(description="Only pods of these namespaces; all figures are theirs.")], ...
    ] = ()
    limit: Annotated[Count | None, Meta(description="Most rows to send.")] = None
    format: Format = None
