"""The console's operations under /api/v1: the fleet as analysis, cluster exporter, agents and history know it."""

from collections.abc import Callable
from typing import Any

from vgpuscope.http.answers import CSV, JSON, Answer
from vgpuscope.http.operations import Call, Operation
from vgpuscope.http.parameters import NoQuery
from vgpuscope.model.console.gpus import GpuDetail, GpuList
from vgpuscope.model.console.history import ClassHistory, SeriesHistory
from vgpuscope.model.console.namespaces import NamespaceDetail, NamespaceList
from vgpuscope.model.console.nodes import NodeDetail, NodeList
from vgpuscope.model.console.overview import Overview
from vgpuscope.model.console.parts import PartList
from vgpuscope.model.console.scheduling import PendingDetail, Scheduling
from vgpuscope.model.console.settings import Preview, SettingList
from vgpuscope.model.console.timeline import Timeline
from vgpuscope.model.console.words import Vocabulary
from vgpuscope.model.console.workloads import WorkloadDetail, WorkloadList
from vgpuscope.model.errors import SourceDown
from vgpuscope.services.analyzer.console_parameters import (
    ClassesQuery,
    GpuQuery,
    GpusQuery,
    NamespaceQuery,
    NamespacesQuery,
    NodeQuery,
    NodesQuery,
    PodQuery,
    ScopeQuery,
    SeriesQuery,
    TimelineQuery,
    WorkloadsQuery,
)

Sections = dict[str, dict[str, Any]]  # section → name → value
_TABLE = (JSON, CSV)
_LISTED = {"x-total-count": "rows on all pages", "etag": "changes when the answer does"}


class ConsoleApi:
    """The operations, as a table."""

    def __init__(self, *, data: Callable[..., Operation], changes: Any) -> None:
        """`data` makes an operation whose answers say when the data is stale; `changes`: the body of a change."""
        self._data, self._changes = data, changes

    def operations(self) -> tuple[Operation, ...]:
        table: dict[str, Any] = {"media": _TABLE, "headers": _LISTED}
        one: dict[str, Any] = {"statuses": (404,)}
        get = self._data
        return (
            get("/api/v1/parts", "the parts that answers are joined from, and their state", self._parts, PartList),
            get("/api/v1/overview", "the fleet at a glance", self._overview, Overview),
            get("/api/v1/gpus", "every GPU", self._gpus, GpuList, **table),
            get("/api/v1/gpus/{gpu_id}", "one GPU, with evidence and ledger", self._gpu, GpuDetail, **one),
            get("/api/v1/nodes", "every node", self._nodes, NodeList, **table),
            get("/api/v1/nodes/{name}", "one node, with its GPUs and pods", self._node, NodeDetail, **one),
            get("/api/v1/workloads", "every pod with GPUs, or groups of them", self._workloads, WorkloadList, **table),
            get("/api/v1/workloads/{namespace}/{pod}", "one pod, with evidence", self._workload, WorkloadDetail, **one),
            get("/api/v1/scheduling", "pods that wait, and what still fits", self._scheduling, Scheduling),
            get("/api/v1/scheduling/{namespace}/{pod}", "why one pod waits", self._pending, PendingDetail, **one),
            get("/api/v1/namespaces", "every namespace", self._namespaces, NamespaceList, **table),
            get("/api/v1/namespaces/{name}", "one namespace", self._namespace, NamespaceDetail, **one),
            get("/api/v1/history/classes", "GPUs by class over time, as columns", self._classes, ClassHistory),
            get("/api/v1/history/series", "use, memory, score and power over time", self._series, SeriesHistory),
            get("/api/v1/timeline", "what happened, newest first", self._timeline, Timeline),
            get("/api/v1/words", "the names of all codes in English and Chinese", self._words, Vocabulary),
            get("/api/v1/settings", "every setting, with bounds and origin", self._settings, SettingList),
            Operation(
                method="POST",
                path="/api/v1/settings/preview",
                summary="whose status a change of settings would change; nothing is changed",
                handler=self._preview,
                answer=Preview,
                body_shown=self._changes,
                role="operate",
                statuses=(409, 503),
            ),
        )

    async def _parts(self, call: Call[NoQuery, None]) -> Answer:
        raise SourceDown("not served yet")

    async def _overview(self, call: Call[ScopeQuery, None]) -> Answer:
        raise SourceDown("not served yet")

    async def _gpus(self, call: Call[GpusQuery, None]) -> Answer:
        raise SourceDown("not served yet")

    async def _gpu(self, call: Call[GpuQuery, None]) -> Answer:
        raise SourceDown("not served yet")

    async def _nodes(self, call: Call[NodesQuery, None]) -> Answer:
        raise SourceDown("not served yet")

    async def _node(self, call: Call[NodeQuery, None]) -> Answer:
        raise SourceDown("not served yet")

    async def _workloads(self, call: Call[WorkloadsQuery, None]) -> Answer:
        raise SourceDown("not served yet")

    async def _workload(self, call: Call[PodQuery, None]) -> Answer:
        raise SourceDown("not served yet")

    async def _scheduling(self, call: Call[ScopeQuery, None]) -> Answer:
        raise SourceDown("not served yet")

    async def _pending(self, call: Call[PodQuery, None]) -> Answer:
        raise SourceDown("not served yet")

    async def _namespaces(self, call: Call[NamespacesQuery, None]) -> Answer:
        raise SourceDown("not served yet")

    async def _namespace(self, call: Call[NamespaceQuery, None]) -> Answer:
        raise SourceDown("not served yet")

    async def _classes(self, call: Call[ClassesQuery, None]) -> Answer:
        raise SourceDown("not served yet")

    async def _series(self, call: Call[SeriesQuery, None]) -> Answer:
        raise SourceDown("not served yet")

    async def _timeline(self, call: Call[TimelineQuery, None]) -> Answer:
        raise SourceDown("not served yet")

    async def _words(self, call: Call[NoQuery, None]) -> Answer:
        raise SourceDown("not served yet")

    async def _settings(self, call: Call[NoQuery, None]) -> Answer:
        raise SourceDown("not served yet")

    async def _preview(self, call: Call[NoQuery, Sections]) -> Preview:
        raise SourceDown("not served yet")
