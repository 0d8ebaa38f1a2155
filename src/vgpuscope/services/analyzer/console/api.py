"""The console's operations under /api/v1: the fleet as analysis, cluster exporter, agents and history know it."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from vgpuscope.http.answers import CSV, JSON, Content, HttpAnswer, json_content
from vgpuscope.http.operations import HttpCall, Operation
from vgpuscope.http.parameters import NoQuery
from vgpuscope.logic.console import decisions, scheduling
from vgpuscope.logic.console.allocations import pod_allocations
from vgpuscope.logic.console.nodes import with_codes
from vgpuscope.logic.console.scope import Namespaces, allowed, findings_in, gpus_in, pods_in
from vgpuscope.logic.console.timeline import waits
from vgpuscope.logic.console.workloads import workload_rows
from vgpuscope.model.console.decisions import DecisionList, PodDecisions, WhatIf
from vgpuscope.model.console.definitions import Definitions
from vgpuscope.model.console.gpus import GpuDetail, GpuList, GpuRow, TenantRow
from vgpuscope.model.console.history import ClassHistory, SeriesHistory
from vgpuscope.model.console.host_usage import PodBeside
from vgpuscope.model.console.namespaces import NamespaceDetail, NamespaceList, NamespaceRow
from vgpuscope.model.console.nodes import NodeDetail, NodeList, NodeRow
from vgpuscope.model.console.overview import Overview
from vgpuscope.model.console.parts import PartList
from vgpuscope.model.console.scheduling import PendingDetail, Scheduling
from vgpuscope.model.console.settings import Preview, SettingList
from vgpuscope.model.console.timeline import Timeline
from vgpuscope.model.console.words import Vocabulary
from vgpuscope.model.console.workloads import WorkloadDetail, WorkloadList, WorkloadRow
from vgpuscope.model.decision_answers import FitAnswer, seen_by
from vgpuscope.model.errors import Forbidden, Unknown
from vgpuscope.model.pending import PendingList
from vgpuscope.model.wording import nearest, sentences
from vgpuscope.model.words import NO_WORDS
from vgpuscope.services.analyzer.console.answers import (
    gpu_detail,
    namespace_rows_of,
    node_row_of,
    node_rows_of,
    on_gpus,
    overview_of,
    pending_rows_of,
    reasons_of,
    saying,
    scheduling_of,
    workload_rows_of,
    workload_rows_on,
)
from vgpuscope.services.analyzer.console.console import JOINED, Console, ConsoleView
from vgpuscope.services.analyzer.console.history import class_history, series_history
from vgpuscope.services.analyzer.console.parameters import (
    GPU_PARTS,
    ClassesQuery,
    DecisionsQuery,
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
from vgpuscope.services.analyzer.settings.settings import Sections, by_path
from vgpuscope.views.console import tables
from vgpuscope.views.console.words import scheduling_words, vocabulary
from vgpuscope.views.definitions import definitions

T = TypeVar("T", bound=Struct)
_TABLE = (JSON, CSV)
_LISTED = {"x-total-count": "rows on all pages", "etag": "changes when the answer does"}
_SEARCHED = 500  # names; more are not searched for a similar one


class ConsoleApi:
    """The operations, as a table."""

    def __init__(self, console: Callable[[], Console], *, data: Callable[..., Operation], changes: Any) -> None:
        """`data` makes an operation whose answers say when the data is stale; `changes`: the body of a change."""
        self._find, self._data, self._changes = console, data, changes

    @property
    def _console(self) -> Console:
        return self._find()

    def operations(self) -> tuple[Operation, ...]:
        one: dict[str, Any] = {"statuses": (404,)}
        seen = partial(self._data, scoped=True)  # shows a caller only what its namespaces allow
        return (
            seen("/api/v1/parts", "the parts that answers are joined from, and their state", self._parts, PartList),
            seen("/api/v1/overview", "the fleet at a glance", self._overview, Overview),
            seen("/api/v1/gpus", "every GPU", self._gpus, GpuList, **_list(GpuList, GpuRow, GPU_PARTS)),
            seen("/api/v1/gpus/{gpu_id}", "one GPU, with evidence and ledger", self._gpu, GpuDetail, **one),
            seen("/api/v1/nodes", "every node", self._nodes, NodeList, **_list(NodeList, NodeRow)),
            seen("/api/v1/nodes/{name}", "one node, with its GPUs and pods", self._node, NodeDetail, **one),
            seen(
                "/api/v1/workloads",
                "every pod with GPUs, or groups of them",
                self._workloads,
                WorkloadList,
                **_list(WorkloadList, WorkloadRow),
            ),
            seen(
                "/api/v1/workloads/{namespace}/{pod}", "one pod, with evidence", self._workload, WorkloadDetail, **one
            ),
            seen("/api/v1/scheduling", "pods that wait, and what still fits", self._scheduling, Scheduling),
            seen(
                "/api/v1/scheduling/{namespace}/{pod}",
                "why one pod waits",
                self._pending,
                PendingDetail,
                statuses=(404, 503),
            ),
            seen("/api/v1/decisions", "the newest decisions of the extender", self._decisions, DecisionList),
            seen(
                "/api/v1/decisions/{namespace}/{pod}",
                "the decisions of the extender about one pod, with its verdicts",
                self._pod_decisions,
                PodDecisions,
                **one,
            ),
            seen(
                "/api/v1/fit/{namespace}/{pod}",
                "whether a pod that the extender knows would fit now, and what would make it fit",
                self._fit_pod,
                FitAnswer,
                statuses=(404, 503),
            ),
            Operation(
                method="POST",
                path="/api/v1/fit",
                summary="whether a pod would fit, and what would make it fit; nothing is created",
                handler=self._fit,
                answer=FitAnswer,
                scoped=True,
                statuses=(404, 503),
            ),
            seen(
                "/api/v1/namespaces",
                "every namespace",
                self._namespaces,
                NamespaceList,
                **_list(NamespaceList, NamespaceRow),
            ),
            seen("/api/v1/namespaces/{name}", "one namespace", self._namespace, NamespaceDetail, **one),
            seen("/api/v1/history/classes", "GPUs by class over time, as columns", self._classes, ClassHistory),
            seen(
                "/api/v1/history/series",
                "use, memory, score, power, energy and allocation over time",
                self._series,
                SeriesHistory,
            ),
            seen("/api/v1/timeline", "what happened, newest first", self._timeline, Timeline),
            seen("/api/v1/words", "the names of all codes in English and Chinese", self._words, Vocabulary),
            seen(
                "/api/v1/definitions",
                "what every number means, in English and Chinese, and where it is shown",
                self._definitions,
                Definitions,
            ),
            self._data(
                "/api/v1/settings", "every setting, with bounds and origin", self._settings, SettingList, scoped=False
            ),
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

    # ── the fleet ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _parts(self, call: HttpCall[NoQuery, None]) -> PartList:  # noqa: ARG002 - the same for every caller
        return PartList(parts=(await self._console.view(past=True)).parts)

    async def _overview(self, call: HttpCall[ScopeQuery, None]) -> HttpAnswer:
        scope = allowed(call.caller, call.asked.namespace)
        view = await self._console.view(past=True)
        return self._answer(lambda: json_content(overview_of(view, scope)), view.full_version, scope)

    async def _gpus(self, call: HttpCall[GpusQuery, None]) -> HttpAnswer:
        scope = allowed(call.caller, call.asked.namespace)
        view = await self._console.view()

        def make() -> Content:
            return _page(call, view, _chosen_gpus(gpus_in(view.rows, scope), call.asked), GpuRow, parts=JOINED)

        return self._answer(make, view.version, scope)

    async def _gpu(self, call: HttpCall[GpuQuery, None]) -> GpuDetail:
        asked, scope = call.asked, allowed(call.caller, call.asked.namespace)
        view = await self._console.view()
        shown = [row for row in gpus_in(view.rows, scope) if row.gpu_id == asked.gpu_id]
        row = next((row for row in shown if asked.mig is None or row.mig == asked.mig), None)
        if row is None:
            known = {row.gpu_id for row in gpus_in(view.rows, scope)}
            what = f"GPU {asked.gpu_id[:80]!r}" if not shown else f"MIG instance {str(asked.mig)[:80]!r} on this GPU"
            raise Unknown(f"no {what} among the results", hint=_near(asked.gpu_id, known) if not shown else None)
        gpus = view.analysis.gpus if view.analysis else ()
        gpu = next((one for one in gpus if (one.gpu_id, one.mig) == (row.gpu_id, row.mig or "")), None)
        facts = await self._console.gpu_facts(row.gpu_id)
        say = saying(asked.lang)
        return await asyncio.to_thread(gpu_detail, view, row, rows=shown, gpu=gpu, facts=facts, scope=scope, say=say)

    # ── nodes ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _nodes(self, call: HttpCall[NodesQuery, None]) -> HttpAnswer:
        scope = allowed(call.caller, call.asked.namespace)
        view = await self._console.view()

        def make() -> Content:
            rows = tables.searched(node_rows_of(view, scope), call.asked.search)
            return _page(call, view, rows, NodeRow, parts=JOINED)

        return self._answer(make, view.version, scope)

    async def _node(self, call: HttpCall[NodeQuery, None]) -> NodeDetail:
        scope, name = allowed(call.caller, call.asked.namespace), call.asked.name
        view = await self._console.view()
        node = await asyncio.to_thread(node_row_of, view, scope, name)
        if node is None:
            known = {row.node for row in gpus_in(view.rows, scope) if row.node}
            raise Unknown(f"no node {name[:80]!r} among the results", hint=_near(name, known))
        if sources := await self._console.agent_sources(name):
            node = replace(node, agent=with_codes(node.agent, sources))
        ledger = view.ledgers.nodes.get(name) if view.ledgers else None
        gpus = tuple(row for row in gpus_in(view.rows, scope) if row.node == name)
        return NodeDetail(
            at=view.at,
            stale=view.board.stale,
            node=node,
            gpus=gpus,
            workloads=workload_rows_on(view, scope, name),
            types=tuple(scheduling.free_capacity(one) for one in ledger.types) if ledger else (),
            offers=ledger.offers if ledger and scope is None else (),
            findings=tuple(findings_in(ledger.findings, scope)) if ledger else (),
            parts=view.part(*JOINED),
            beside=await self._console.beside.node(name),
        )

    # ── workloads ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _workloads(self, call: HttpCall[WorkloadsQuery, None]) -> HttpAnswer:
        scope = allowed(call.caller, call.asked.namespace)
        view = await self._console.view()

        def make() -> Content:
            rows = _chosen_workloads(workload_rows_of(view, scope, call.asked), call.asked)
            return _page(call, view, rows, WorkloadRow, parts=JOINED, group_by=call.asked.group_by)

        return self._answer(make, (*view.version, view.cluster.version), scope)

    async def _workload(self, call: HttpCall[PodQuery, None]) -> WorkloadDetail:
        asked, view = call.asked, await self._console.view()
        scope = allowed(call.caller, (asked.namespace,))
        gpus = [row for row in gpus_in(view.rows, scope) if any(_is(one, asked) for one in row.tenants)]
        pods = [
            pod
            for pod in pods_in(view.pending or (), scope)
            if (pod.namespace, pod.pod) == (asked.namespace, asked.pod)
        ]
        waiting = [pod for pod in pods if pod.outcome == "waiting"]
        own = [_only(row, asked) for row in gpus]
        allocated = [one for one in pod_allocations(view.ledgers, scope) if one.pod == asked.pod]
        rows = workload_rows(own, group_by="pod", pending=waiting, allocations=allocated, now=view.now)
        if not rows:
            raise Unknown(f"no pod {asked.namespace}/{asked.pod} with GPUs among the results")
        return WorkloadDetail(
            at=view.at,
            stale=view.board.stale,
            workload=rows[0],
            gpus=await asyncio.to_thread(on_gpus, view, gpus, asked),
            scheduling=pending_rows_of(view, (waiting or pods)[:1])[0] if pods else None,
            reasons=reasons_of(view, (waiting or pods)[0]) if pods else (),
            parts=view.part(*JOINED),
            beside=await self._beside(rows[0]),
        )

    async def _beside(self, row: WorkloadRow) -> PodBeside | None:
        """The pod beside its GPUs; it runs on one node."""
        if not row.nodes or row.pod is None:
            return None
        return await self._console.beside.pod(row.nodes[0], row.namespace, row.pod, row.pod_uid)

    # ── scheduling ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _scheduling(self, call: HttpCall[ScopeQuery, None]) -> HttpAnswer:
        scope = allowed(call.caller, call.asked.namespace)
        view = await self._console.view()
        return self._answer(lambda: json_content(scheduling_of(view, scope)), view.full_version, scope)

    async def _pending(self, call: HttpCall[PodQuery, None]) -> PendingDetail:
        asked = call.asked
        if not allowed(call.caller, (asked.namespace,)):
            raise _no_pod(asked)
        view = await self._console.view()
        found = await self._console.explained(asked.namespace, asked.pod) or _known(view, asked)
        if found is None:
            raise view.cluster.error or _no_pod(asked)
        if not found.pending:
            raise _no_pod(asked)
        pod = min(found.pending, key=lambda one: (one.outcome != "waiting", -(one.created or 0.0)))
        facts = scheduling.facts_of(found)
        fact = next(iter(facts.get(pod.code, ())), NO_WORDS)
        return PendingDetail(
            pod=scheduling.pending_row(
                pod if pod.fact else replace(pod, fact=fact.en, fact_zh=fact.zh),
                now=found.now,
                codes=found.codes,
                say=scheduling_words,
            ),
            reasons=tuple(
                scheduling.reason_row(one, pod, codes=found.codes, facts=facts, say=scheduling_words)
                for one in pod.said
            ),
            changes=scheduling.both(found.advice, found.advice_zh),
            parts=view.part("cluster"),
        )

    # ── decisions ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _decisions(self, call: HttpCall[DecisionsQuery, None]) -> DecisionList:
        scope = allowed(call.caller, call.asked.namespace)
        found, part = await self._console.decisions()
        seen = [one for one in found if scope is None or one.namespace in scope]
        rows = seen[call.asked.offset : call.asked.offset + call.asked.limit]
        return DecisionList(total=len(seen), rows=tuple(map(decisions.decision_row, rows)), parts=(part,))

    async def _pod_decisions(self, call: HttpCall[PodQuery, None]) -> PodDecisions:
        asked = call.asked
        if not allowed(call.caller, (asked.namespace,)):
            raise Unknown(f"no decision about {asked.namespace}/{asked.pod} in the last day")
        found, part = await self._console.decisions_of(asked.namespace, asked.pod)
        return decisions.pod_decisions(found, say=scheduling_words, parts=(part,))

    async def _fit_pod(self, call: HttpCall[PodQuery, None]) -> FitAnswer:
        asked = call.asked
        if not call.caller.sees(asked.namespace):
            raise Unknown(f"no decision about {asked.namespace}/{asked.pod} in the last day")
        found = await self._console.extender.fit_pod(asked.namespace, asked.pod)
        return seen_by(found, call.caller.sees)

    async def _fit(self, call: HttpCall[NoQuery, WhatIf]) -> FitAnswer:
        asked = call.body
        if not call.caller.sees(asked.namespace):
            raise Forbidden(f"{call.caller.name!r} may not ask about the namespace {asked.namespace}")
        found = await self._console.extender.fit(decisions.manifest_of(asked), asked.replicas)
        return seen_by(found, call.caller.sees)

    # ── namespaces ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _namespaces(self, call: HttpCall[NamespacesQuery, None]) -> HttpAnswer:
        scope = allowed(call.caller, call.asked.namespace)
        view = await self._console.view(past=True)

        def make() -> Content:
            rows = tables.searched(namespace_rows_of(view, scope), call.asked.search)
            return _page(call, view, rows, NamespaceRow, parts=(*JOINED, "history"))

        return self._answer(make, view.full_version, scope)

    async def _namespace(self, call: HttpCall[NamespaceQuery, None]) -> NamespaceDetail:
        name, view = call.asked.name, await self._console.view(past=True)
        scope = allowed(call.caller, (name,))
        rows = await asyncio.to_thread(namespace_rows_of, view, scope)
        if not rows:
            known = {tenant.namespace for row in gpus_in(view.rows, allowed(call.caller, ())) for tenant in row.tenants}
            raise Unknown(f"no namespace {name[:80]!r} with GPUs among the results", hint=_near(name, known))
        gpus = tuple(gpus_in(view.rows, scope))
        waiting = [pod for pod in pods_in(view.pending or (), scope) if pod.outcome == "waiting"]
        return NamespaceDetail(
            at=view.at,
            stale=view.board.stale,
            namespace=rows[0],
            gpus=gpus,
            workloads=workload_rows(
                gpus,
                group_by="pod",
                pending=waiting,
                allocations=pod_allocations(view.ledgers, scope),
                now=view.now,
            ),
            pending=pending_rows_of(view, waiting),
            parts=view.part(*JOINED, "history"),
        )

    # ── the past ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _classes(self, call: HttpCall[ClassesQuery, None]) -> ClassHistory:
        return await class_history(self._console, call.asked, allowed(call.caller, call.asked.namespace))

    async def _series(self, call: HttpCall[SeriesQuery, None]) -> SeriesHistory:
        return await series_history(self._console, call.asked, allowed(call.caller, call.asked.namespace))

    async def _timeline(self, call: HttpCall[TimelineQuery, None]) -> Timeline:
        asked, scope = call.asked, allowed(call.caller, call.asked.namespace)
        view = await self._console.view()
        recorded, since = await self._console.events()
        events = [*waits(pods_in(view.pending or (), scope)), *recorded]
        found = [
            event
            for event in events
            if (scope is None or event.namespace in scope)
            and (not asked.kind or event.kind in asked.kind)
            and all(wanted in (None, getattr(event, name)) for name, wanted in _event_filters(asked))
        ]
        found.sort(key=lambda event: event.at, reverse=True)
        return Timeline(
            total=len(found),
            since=since,
            rows=tuple(found[asked.offset : asked.offset + asked.limit]),
            parts=view.part("analysis", "cluster"),
        )

    # ── words and settings ───────────────────────────────────────────────────────────────────────────────────────

    async def _words(self, call: HttpCall[NoQuery, None]) -> HttpAnswer:  # noqa: ARG002 - the same for every caller
        return HttpAnswer(make=lambda: json_content(vocabulary()))

    async def _definitions(self, call: HttpCall[NoQuery, None]) -> HttpAnswer:  # noqa: ARG002 - the same for every caller
        return HttpAnswer(make=lambda: json_content(definitions()))

    async def _settings(self, call: HttpCall[NoQuery, None]) -> SettingList:  # noqa: ARG002
        return self._console.settings()

    async def _preview(self, call: HttpCall[NoQuery, Sections]) -> Preview:
        return await self._console.preview(by_path(call.body))

    def _answer(self, make: Callable[[], Content], version: object, scope: Namespaces) -> HttpAnswer:
        """An answer that is made once for all callers who see the same."""
        seen = None if scope is None else tuple(sorted(scope))
        return HttpAnswer(make=make, version=(version, seen), kept=self._console.kept)


# ── lists ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _list(answer: type[Struct], row: type[Struct], parts: Sequence[str] = ()) -> dict[str, Any]:
    return {"media": _TABLE, "headers": _LISTED, "or_else": tables.some_of(answer, row, parts)}


def _page(
    call: HttpCall[Any, None], view: ConsoleView, rows: Sequence[T], row: type[T], *, parts: Iterable[str], **head: Any
) -> Content:
    asked: Any = call.asked
    found = tables.page(rows, sort=asked.sort, offset=asked.offset, limit=asked.limit)
    headers = {"x-total-count": str(len(rows))}
    if call.csv:
        return Content(body=tables.csv_list(found, row, asked.fields), media=CSV, headers=headers)
    top = {"at": view.at, "stale": view.board.stale, **head, "total": len(rows)}
    body = tables.json_list(found, fields=asked.fields, head=top, parts=view.part(*parts))
    return Content(body=body, headers=headers)


def _chosen_gpus(rows: Sequence[GpuRow], asked: GpusQuery) -> Sequence[GpuRow]:
    of_gpu = {name: value for name in _GPU_FILTERS if (value := getattr(asked, name)) is not None}
    of_tenant = {name: value for name in _TENANT_FILTERS if (value := getattr(asked, name)) is not None}
    found = tables.searched(rows, asked.search)
    if of_gpu:
        found = [row for row in found if all(getattr(row, name) == value for name, value in of_gpu.items())]
    if not of_tenant and asked.min_score is None and asked.max_score is None:
        return found

    def passes(one: GpuRow | TenantRow) -> bool:
        return all(getattr(one, name, None) == value for name, value in of_tenant.items()) and _scored(one, asked)

    return tables.tenants_or_row(found, passes)


_GPU_FILTERS = ("node", "model", "gpu_id", "mode", "health", "shared")
_TENANT_FILTERS = ("status", "verdict", "use_class", "pod")


def _scored(one: GpuRow | TenantRow, asked: GpusQuery) -> bool:
    least, most = asked.min_score, asked.max_score
    if least is None and most is None:
        return True
    if one.score is None:
        return False
    return (least is None or one.score >= least) and (most is None or one.score <= most)


def _chosen_workloads(rows: Sequence[WorkloadRow], asked: WorkloadsQuery) -> Sequence[WorkloadRow]:
    return [
        row
        for row in tables.searched(rows, asked.search)
        if asked.verdict in (None, row.verdict)
        and asked.owner in (None, row.owner)
        and (asked.use_class is None or asked.use_class in row.by_class)
        and (asked.node is None or asked.node in row.nodes)
    ]


def _is(tenant: TenantRow, asked: PodQuery) -> bool:
    return (tenant.namespace, tenant.pod) == (asked.namespace, asked.pod)


def _only(row: GpuRow, asked: PodQuery) -> GpuRow:
    """The GPU with the tenants of one pod."""
    return replace(row, tenants=tuple(one for one in row.tenants if _is(one, asked)))


def _known(view: ConsoleView, asked: PodQuery) -> PendingList | None:
    """The pod as the list of waiting pods has it, without the numbers; None: there is no list."""
    if view.cluster.value is None:
        return None
    listed = view.cluster.value.pending
    pods = tuple(pod for pod in listed.pending if (pod.namespace, pod.pod) == (asked.namespace, asked.pod))
    return replace(listed, pending=pods)


def _no_pod(asked: PodQuery) -> Unknown:
    return Unknown(
        f"{asked.namespace}/{asked.pod} does not wait for GPUs, and did not in the last day",
        hint="/api/v1/scheduling lists all pods that wait or waited.",
    )


def _near(given: str, known: Collection[str]) -> str | None:
    """A hint for an unknown name, which most often was cut off. Many names are not searched for similar ones."""
    begins = sorted(one for one in known if one.startswith(given)) if given else []
    near = f"Did you mean {begins[0]}?" if begins else nearest(given, known) if len(known) <= _SEARCHED else ""
    return sentences(near, Unknown.hint) if near else None


def _event_filters(asked: TimelineQuery) -> tuple[tuple[str, str | None], ...]:
    return ("node", asked.node), ("gpu_id", asked.gpu_id), ("pod", asked.pod)
