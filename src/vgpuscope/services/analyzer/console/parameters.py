"""The parameters of the console's operations."""

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from vgpuscope.http.parameters import one_of
from vgpuscope.model.analysis import Status, UseClass, Verdict
from vgpuscope.model.console.gpus import GpuRow, Mode
from vgpuscope.model.console.history import QUANTITIES, ClassGroup
from vgpuscope.model.console.namespaces import NamespaceRow
from vgpuscope.model.console.nodes import NodeRow
from vgpuscope.model.console.timeline import EVENT_KINDS
from vgpuscope.model.console.workloads import WorkloadGroup, WorkloadRow
from vgpuscope.model.words import Language
from vgpuscope.runtime.duration import LONG
from vgpuscope.services.analyzer.parameters import Count, Format, Moment, Score
from vgpuscope.views.console.tables import field_names

Names: TypeAlias = tuple[
    Annotated[str, Meta(description="Only these namespaces; other tenants of shared GPUs are added up as others.")], ...
]
Lang: TypeAlias = Annotated[Language, Meta(description="Language of the sentences.")]
Search: TypeAlias = Annotated[str | None, Meta(description="Only rows with this text in one of their names.")]
Offset: TypeAlias = Annotated[Count, Meta(description="Rows to leave out at the beginning.")]
Limit: TypeAlias = Annotated[Count | None, Meta(description="Most rows to send.")]
Range: TypeAlias = Annotated[str, Meta(pattern=f"^{LONG}$", description="How far back, such as 1h, 24h, 7d or 30d.")]
Points: TypeAlias = Annotated[int, Meta(ge=2, le=500, description="Most points to send.")]
Namespace: TypeAlias = Annotated[str, Meta(description="The namespace.")]
Pod: TypeAlias = Annotated[str, Meta(description="The pod's name.")]


GPU_PARTS = ("tenants", "use")  # fields of a GPU of which single fields can be asked for


def _fields(row: type[Struct], parts: tuple[str, ...] = ()) -> Meta:
    return one_of(field_names(row, parts), "Fields to send.")


def _order(row: type[Struct]) -> Meta:
    names = row.__struct_fields__
    text = "A field to sort by; with - before it, the other way round. Lists sort by length, uses by mean."
    return one_of((*names, *(f"-{name}" for name in names)), text)


class ScopeQuery(Struct, frozen=True, kw_only=True):
    """Which namespaces are shown."""

    namespace: Names = ()


class ListQuery(ScopeQuery, frozen=True, kw_only=True):
    """A page of a list."""

    search: Search = None
    offset: Offset = 0
    limit: Limit = None
    format: Format = None


class GpusQuery(ListQuery, frozen=True, kw_only=True):
    """A page of GPUs. A row matches itself, or through one tenant that passes all filters."""

    status: Annotated[Status | None, Meta(description="Only GPUs of this status, or with a tenant of it.")] = None
    verdict: Annotated[Verdict | None, Meta(description="Only GPUs of this verdict, or with a tenant of it.")] = None
    use_class: Annotated[UseClass | None, Meta(description="Only GPUs of this class, or with a tenant of it.")] = None
    pod: Annotated[str | None, Meta(description="Only GPUs of which this pod is a tenant.")] = None
    node: Annotated[str | None, Meta(description="Only GPUs of this node.")] = None
    model: Annotated[str | None, Meta(description="Only GPUs of this model.")] = None
    gpu_id: Annotated[str | None, Meta(description="Only this GPU, by its whole UUID.")] = None
    mode: Annotated[Mode | None, Meta(description="Only GPUs that are shared in this way.")] = None
    health: Annotated[str | None, Meta(description="Only GPUs of this health.")] = None
    shared: Annotated[bool | None, Meta(description="Only GPUs with several tenants, or only those without.")] = None
    min_score: Annotated[Score | None, Meta(description="Only GPUs or tenants of this score or more.")] = None
    max_score: Annotated[Score | None, Meta(description="Only GPUs or tenants of this score or less.")] = None
    sort: Annotated[str | None, _order(GpuRow)] = None
    fields: tuple[Annotated[str, _fields(GpuRow, GPU_PARTS)], ...] = ()


class GpuQuery(ScopeQuery, frozen=True, kw_only=True):
    """One GPU or MIG instance."""

    gpu_id: Annotated[str, Meta(description="The GPU's whole UUID.")]
    mig: Annotated[str | None, Meta(description="The MIG instance; without it, the GPU or its first instance.")] = None
    lang: Lang = "en"


class NodesQuery(ListQuery, frozen=True, kw_only=True):
    """A page of nodes."""

    sort: Annotated[str | None, _order(NodeRow)] = None
    fields: tuple[Annotated[str, _fields(NodeRow)], ...] = ()


class NodeQuery(ScopeQuery, frozen=True, kw_only=True):
    """One node."""

    name: Annotated[str, Meta(description="The node's name.")]


class WorkloadsQuery(ListQuery, frozen=True, kw_only=True):
    """A page of workloads."""

    group_by: Annotated[WorkloadGroup, Meta(description="What a row is.")] = "pod"
    verdict: Annotated[Verdict | None, Meta(description="Only workloads of this verdict.")] = None
    use_class: Annotated[UseClass | None, Meta(description="Only workloads with a tenant of this class.")] = None
    owner: Annotated[str | None, Meta(description="Only workloads of this owner, such as Deployment/web.")] = None
    node: Annotated[str | None, Meta(description="Only workloads on this node.")] = None
    sort: Annotated[str | None, _order(WorkloadRow)] = None
    fields: tuple[Annotated[str, _fields(WorkloadRow)], ...] = ()


class PodQuery(Struct, frozen=True, kw_only=True):
    """One pod."""

    namespace: Namespace
    pod: Pod
    lang: Lang = "en"


class DecisionsQuery(ScopeQuery, frozen=True, kw_only=True):
    """A page of decisions."""

    offset: Offset = 0
    limit: Annotated[int, Meta(ge=0, le=1000, description="Most decisions to send.")] = 100


class NamespacesQuery(ListQuery, frozen=True, kw_only=True):
    """A page of namespaces."""

    sort: Annotated[str | None, _order(NamespaceRow)] = None
    fields: tuple[Annotated[str, _fields(NamespaceRow)], ...] = ()


class NamespaceQuery(Struct, frozen=True, kw_only=True):
    """One namespace."""

    name: Annotated[str, Meta(description="The namespace's name.")]


class ClassesQuery(ScopeQuery, frozen=True, kw_only=True):
    """A stacked chart of classes."""

    range: Range = "24h"
    end: Annotated[Moment | None, Meta(description="Until then, in Unix seconds; now by default.")] = None
    points: Points = 200
    group_by: Annotated[ClassGroup, Meta(description="What is shown separately.")] = "none"
    node: Annotated[str | None, Meta(description="Only GPUs of this node.")] = None
    model: Annotated[str | None, Meta(description="Only GPUs of this model.")] = None


class SeriesQuery(ScopeQuery, frozen=True, kw_only=True):
    """A chart of one GPU, node, pod, owner or namespace; without any of them, of the fleet."""

    range: Range = "24h"
    end: Annotated[Moment | None, Meta(description="Until then, in Unix seconds; now by default.")] = None
    points: Points = 200
    gpu_id: Annotated[str | None, Meta(description="Only this GPU.")] = None
    mig: Annotated[str | None, Meta(description="Only this MIG instance.")] = None
    node: Annotated[str | None, Meta(description="Only GPUs of this node.")] = None
    pod: Annotated[str | None, Meta(description="Only this pod; give its namespace too.")] = None
    owner: Annotated[str | None, Meta(description="Only pods of this owner, such as Deployment/web.")] = None
    quantity: tuple[Annotated[str, one_of(QUANTITIES, "Quantities to send; all by default.")], ...] = ()


class TimelineQuery(ScopeQuery, frozen=True, kw_only=True):
    """A page of events."""

    node: Annotated[str | None, Meta(description="Only events of this node.")] = None
    gpu_id: Annotated[str | None, Meta(description="Only events of this GPU.")] = None
    pod: Annotated[str | None, Meta(description="Only events of this pod.")] = None
    kind: tuple[Annotated[str, one_of(EVENT_KINDS, "Only events of these kinds.")], ...] = ()
    offset: Offset = 0
    limit: Annotated[int, Meta(ge=0, le=1000, description="Most events to send.")] = 100
