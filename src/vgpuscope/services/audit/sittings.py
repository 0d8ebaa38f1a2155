"""What is read together: a sitting reads a few answers between two looks at the analysis that is shown."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from msgspec import structs

from vgpuscope.model.consistency import STORED, FigureReading, PublicAnswer, Surfaces
from vgpuscope.sources.audit.client import AuditedService, Unanswered, with_moment
from vgpuscope.sources.audit.commands import printed

T = TypeVar("T")

_TRIES = 4  # of a sitting, until the same analysis is shown before and after
_AT_ONCE = 4  # requests
_NAMESPACES, _DETAILS, _CHARTED = 12, 6, 4  # how many of each are looked at one by one
_COMMAND_SECONDS = 60.0
_LONGEST_WAIT = 5.0  # seconds, until what the analyzer shows of the cluster is read again
_HOUR, _DAY = 3600, 86400
_STORED_GPUS = 3
_RANGES = ("1h", "24h", "30d")
_WASTE = ("tenant", "namespace", "owner", "node", "model")

Sitting = Callable[[], Awaitable[Surfaces]]


def analyzer_sittings(analyzer: AuditedService, cluster: AuditedService | None) -> dict[str, Sitting]:
    """What is read of an analyzer, and of the cluster exporter that it joins."""
    looks: dict[str, Sitting] = {
        "fleet": lambda: _fleet(analyzer),
        "tables": lambda: _tables(analyzer),
        "groups": lambda: _groups(analyzer),
        "namespaces": lambda: _namespaces(analyzer),
        "details": lambda: _details(analyzer),
        "waste": lambda: _waste(analyzer),
        "charts": lambda: _charts(analyzer),
        "stored": lambda: _stored(analyzer),
        "doctor": lambda: _doctor(analyzer),
    }
    if cluster is not None and not analyzer.scoped:  # the cluster exporter shows all namespaces
        looks["joined"] = lambda: _joined(analyzer, cluster)
    return looks


def analyzer_commands(analyzer: AuditedService, url: str) -> dict[str, Sitting]:
    """What commands print that ask an analyzer."""
    return {
        "vgpuscope results": _command(analyzer, ("results", url), "/results", "ResultRow[]"),
        "vgpuscope reclaim": _command(analyzer, ("reclaim", "--url", url), "/api/v1/reclaim", "ReclaimList"),
        "vgpuscope waste": _command(analyzer, ("waste", url), "/api/v1/waste", "Waste"),
    }


def cluster_sittings(cluster: AuditedService) -> dict[str, Sitting]:
    """What is read of a cluster exporter alone."""
    return {"cluster": lambda: _cluster(cluster)}


def cluster_commands(cluster: AuditedService, url: str) -> dict[str, Sitting]:
    """What commands print that ask a cluster exporter."""
    return {
        "vgpuscope nodes": _command(cluster, ("nodes", url), "/api/v1/nodes", "NodeLedger[]"),
        "vgpuscope pending": _command(cluster, ("pending", url), "/api/v1/pending", "PendingList"),
        "vgpuscope gpus": _command(cluster, ("gpus", url), "/api/v1/nodes", "NodeLedger[]", shape=_as_nodes),
    }


def agent_sittings(agent: AuditedService, url: str) -> dict[str, Sitting]:
    """What is read of an agent."""
    return {f"agent {url}": lambda: _agent(agent)}


def agent_commands(agent: AuditedService, url: str) -> dict[str, Sitting]:
    """What the command prints that asks an agent."""
    return {f"vgpuscope top {url}": _command(agent, ("top", "--once", url), "/api/v1/node", "NodeSnapshot")}


async def _fleet(analyzer: AuditedService) -> Surfaces:
    paths = ("overview", "gpus", "nodes", "namespaces", "workloads", "summary", "scheduling", "decisions", "reclaim")
    return await _steady(
        analyzer,
        lambda: [
            *(analyzer.read(path) for path in ("/results", "/results/low", "/results/stats")),
            *(analyzer.read(f"/api/v1/{path}") for path in paths),
        ],
        page=not analyzer.scoped,  # the page of metrics has all namespaces
    )


async def _tables(analyzer: AuditedService) -> Surfaces:
    paths = ("/results", "/results/low", "/results/stats")
    more = tuple(f"/api/v1/{path}" for path in ("gpus", "nodes", "namespaces", "workloads"))
    return await _steady(
        analyzer,
        lambda: [*(analyzer.read(path) for path in (*paths, *more)), *(analyzer.table(one) for one in (*paths, *more))],
    )


async def _groups(analyzer: AuditedService) -> Surfaces:
    return await _steady(
        analyzer,
        lambda: [
            analyzer.read("/api/v1/overview"),
            analyzer.read("/api/v1/namespaces"),
            *(analyzer.read("/api/v1/workloads", {"group_by": group}) for group in ("pod", "owner", "namespace")),
        ],
    )


async def _namespaces(analyzer: AuditedService) -> Surfaces:
    names = [row["name"] for row in (await analyzer.json("/api/v1/namespaces"))["rows"] if row["name"]]
    paths = ("overview", "gpus", "nodes", "scheduling")
    return await _steady(
        analyzer,
        lambda: [
            *(analyzer.read(f"/api/v1/{path}") for path in (*paths, "namespaces", "workloads")),
            *(
                analyzer.read(f"/api/v1/{path}", scope=(name,))
                for name in _some(names, _NAMESPACES)
                for path in (*paths, "namespaces")
            ),
        ],
    )


async def _details(analyzer: AuditedService) -> Surfaces:
    gpus = (await analyzer.json("/api/v1/gpus"))["rows"]
    pods = [row for row in (await analyzer.json("/api/v1/workloads"))["rows"] if row["pod"]]
    nodes = [row["name"] for row in (await analyzer.json("/api/v1/nodes"))["rows"]]
    names = [row["name"] for row in (await analyzer.json("/api/v1/namespaces"))["rows"]]

    def requests() -> list[Awaitable[Any]]:
        return [
            *(analyzer.read(f"/api/v1/{path}") for path in ("gpus", "workloads", "nodes", "namespaces")),
            *(
                analyzer.read(f"/api/v1/gpus/{row['gpu_id']}", {"mig": row["mig"]} if row["mig"] else {})
                for row in _some(gpus, _DETAILS)
            ),
            *(analyzer.read(f"/api/v1/workloads/{row['namespace']}/{row['pod']}") for row in _some(pods, _DETAILS)),
            *(analyzer.read(f"/api/v1/nodes/{name}") for name in _some(nodes, _DETAILS)),
            *(_namespace(analyzer, name) for name in _some(names, _DETAILS)),
        ]

    return await _steady(analyzer, requests)


async def _namespace(analyzer: AuditedService, name: str) -> PublicAnswer:
    """The page of one namespace: its lists are narrowed to it."""
    return structs.replace(await analyzer.read(f"/api/v1/namespaces/{name}"), scope=(name,))


async def _waste(analyzer: AuditedService) -> Surfaces:
    names = [row["name"] for row in (await analyzer.json("/api/v1/namespaces"))["rows"] if row["name"]]
    return await _past(
        analyzer,
        [
            analyzer.read("/api/v1/namespaces"),
            *(analyzer.read("/api/v1/waste", {"since": "24h", "group_by": group}) for group in _WASTE),
            *(analyzer.read("/api/v1/waste", {"since": "7d", "group_by": group}) for group in _WASTE[:2]),
            *(analyzer.read("/api/v1/waste", {"group_by": "tenant"}, scope=(name,)) for name in _some(names, 2)),
        ],
    )


async def _charts(analyzer: AuditedService) -> Surfaces:
    """Charts of the fleet, of namespaces, of nodes and of pods in several ranges that show the same hours."""
    names = [row["name"] for row in (await analyzer.json("/api/v1/namespaces"))["rows"] if row["tenants"]]
    nodes = [row["name"] for row in (await analyzer.json("/api/v1/nodes"))["rows"] if row["tenants"]]
    pods = [row for row in (await analyzer.json("/api/v1/workloads"))["rows"] if row["pod"] and row["tenants"]]
    subjects: list[dict[str, str]] = [
        {},
        *({"namespace": name} for name in _some(names, _CHARTED)),
        *({"node": name} for name in _some(nodes, 2)),
        *({"namespace": row["namespace"], "pod": row["pod"]} for row in _some(pods, 2)),
    ]
    long = await analyzer.json("/api/v1/history/series", {"range": "24h", "quantity": "power"})
    ends = _ends(long["times"], int(long["step_seconds"]))
    ranges: list[dict[str, str]] = [{"range": "1h"}, {"range": "24h"}, {"range": "30d"}]
    ranges += [{"range": "2h", "end": str(end + _HOUR)} for end in ends]
    if long["times"]:
        day = long["times"][-1] // _DAY * _DAY
        ranges.append({"range": "26h", "end": str(day + _HOUR)})

    if long["source"] == "prometheus":  # steps that are whole multiples of each other
        ranges += [{"range": "1h", "points": "61"}, {"range": "1h", "points": "7"}]

    classes = [*ranges, {"range": "24h", "group_by": "namespace"}]
    since = str((long["times"][-1] if long["times"] else 0) - 3 * _HOUR)
    return await _past(
        analyzer,
        [
            analyzer.read("/api/v1/overview"),
            *(analyzer.read("/api/v1/history/series", subject | some) for subject in subjects for some in ranges),
            # the classes of a caller of some namespaces are parts of GPUs, and the tile counts whole ones
            *(analyzer.read("/api/v1/history/classes", some) for some in classes if not analyzer.scoped),
            analyzer.read("/api/v1/history", {"step": "hour", "begin": since}),
        ],
    )


async def _stored(analyzer: AuditedService) -> Surfaces:
    """Of some GPUs: what the last analysis showed, its stored points and those of the hours and days, and charts."""
    every = sorted((await analyzer.json("/api/v1/gpus"))["rows"], key=lambda row: -(row["use"]["mean"] or 0.0))
    rows = _some(every, _STORED_GPUS)  # the busiest, and others
    chart = await analyzer.json("/api/v1/history/classes", {"range": "1h"})
    now = int(datetime.fromisoformat(chart["end"]).timestamp())
    hour, day = now // _HOUR * _HOUR, now // _DAY * _DAY
    spans: list[dict[str, str]] = [
        {"step": "analysis", "begin": str(hour - 2 * _HOUR)},
        {"step": "hour", "begin": str(hour - _HOUR), "end": str(hour)},
        {"step": "hour", "begin": str(day - _DAY), "end": str(day)},
        {"step": "day", "begin": str(day - _DAY), "end": str(day)},
    ]
    devices = [{"gpu_id": row["gpu_id"]} | ({"mig": row["mig"]} if row["mig"] else {}) for row in rows]
    shown = [
        analyzer.read(f"/api/v1/gpus/{one['gpu_id']}", {"mig": one["mig"]} if "mig" in one else {}) for one in devices
    ]
    points = [analyzer.read("/api/v1/history", one | span) for one in devices for span in spans]
    charts = [analyzer.read("/api/v1/history/series", one | {"range": range_}) for one in devices for range_ in _RANGES]
    answers = [one for reads in (shown, points, charts) for one in await _gathered(reads) if one is not None]
    return Surfaces(answers=tuple(answers), defined=analyzer.shapes.defined)


def _ends(times: Sequence[int], step: int) -> tuple[int, ...]:
    """The ends of the last two whole steps, if they are hours."""
    if step != _HOUR or len(times) < 3:
        return ()
    return times[-2] + step, times[-3] + step


async def _doctor(analyzer: AuditedService) -> Surfaces:
    paths = ("/results", "/api/v1/gpus", "/api/v1/doctor")
    return await _steady(analyzer, lambda: [analyzer.read(path) for path in paths])


def doctor_command(analyzer: AuditedService, words: tuple[str, ...]) -> dict[str, Sitting]:
    """What the command states about GPUs and nodes, and what the results show of them."""

    async def look() -> Surfaces:
        before = await analyzer.read("/api/v1/doctor")
        body = await printed(words, within=_COMMAND_SECONDS)
        report = PublicAnswer(service=analyzer.name, surface="vgpuscope doctor --json", kind="DoctorReport", body=body)
        after = await analyzer.read("/api/v1/doctor")
        known = {one["code"]: one["numbers"] for one in before.body["findings"]}
        unmoved = [one for one in after.body["findings"] if one["numbers"] == known.get(one["code"])]
        steady = structs.replace(after, body=after.body | {"findings": unmoved})
        answers = [await analyzer.read(path) for path in ("/results", "/api/v1/gpus")]
        return Surfaces(answers=(*answers, steady, report), defined=analyzer.shapes.defined)

    return {"vgpuscope doctor": look}


async def _joined(analyzer: AuditedService, cluster: AuditedService) -> Surfaces:
    """What the analyzer shows of the cluster, between two equal answers of the cluster exporter.

    The analyzer keeps the exporter's answers for longer the longer they take: what is older than the first look at the
    exporter is read again.
    """
    now = asyncio.get_running_loop().time
    began, before = now(), cluster.numbers(await cluster.read("/api/v1/nodes"))
    paths = ("gpus", "nodes", "scheduling", "overview")
    for _ in range(_TRIES):
        read = await _steady(analyzer, lambda: [analyzer.read(f"/api/v1/{path}") for path in paths])
        older = _age_of_cluster(read.answers) - (now() - began)
        if older <= 0:
            break
        await asyncio.sleep(min(older, _LONGEST_WAIT))
    else:
        return Surfaces(defined=read.defined)
    ledger = await cluster.read("/api/v1/nodes")
    numbers = [*_unmoved(before, cluster.numbers(ledger)), *await cluster.page()]
    mixed = tuple(structs.replace(reading, moment="") for reading in read.readings)
    return Surfaces(answers=(*read.answers, ledger), readings=(*mixed, *numbers), defined=read.defined)


def _age_of_cluster(answers: Iterable[PublicAnswer]) -> float:
    """How long ago the analyzer read what these answers show of the cluster."""
    bodies = [answer.body for answer in answers if isinstance(answer.body, dict)]
    parts = [part for body in bodies for part in body.get("parts") or () if part["name"] == "cluster"]
    return max((part["age_seconds"] or 0.0 for part in parts), default=0.0)


async def _cluster(cluster: AuditedService) -> Surfaces:
    before = [cluster.numbers(await cluster.read(path)) for path in ("/api/v1/nodes", "/api/v1/pending")]
    page = await cluster.page()
    answers = [await cluster.read(path) for path in ("/api/v1/nodes", "/api/v1/pending")]
    unmoved = [
        reading
        for first, answer in zip(before, answers, strict=True)
        for reading in _unmoved(first, cluster.numbers(answer))
    ]
    return Surfaces(answers=tuple(answers), readings=(*unmoved, *page), defined=cluster.shapes.defined)


async def _agent(agent: AuditedService) -> Surfaces:
    """The JSON and the page of metrics of one sample."""
    for _ in range(_TRIES * 3):
        answer = await agent.read("/api/v1/node")
        page = await agent.page()
        again = await agent.read("/api/v1/node")
        if answer.body["at"] == again.body["at"]:
            return Surfaces(answers=(answer,), readings=(*agent.numbers(answer), *page), defined=agent.shapes.defined)
    return Surfaces(defined=agent.shapes.defined)


def _command(
    service: AuditedService,
    words: tuple[str, ...],
    path: str,
    kind: str,
    *,
    shape: Callable[[Any], Any] = lambda body: body,
) -> Sitting:
    """What a command prints, between two answers of the service that it asks: compared is what has not moved."""

    async def look() -> Surfaces:
        before = await service.read(path)
        body = shape(await printed(words, within=_COMMAND_SECONDS))
        after = await service.read(path)
        answer = PublicAnswer(service=service.name, surface=f"vgpuscope {words[0]} --json", kind=kind, body=body)
        unmoved = _unmoved(service.numbers(before), service.numbers(after))
        readings = [structs.replace(one, moment="") for one in (*unmoved, *service.numbers(answer))]
        return Surfaces(answers=(), readings=tuple(readings), defined=service.shapes.defined)

    return look


def _as_nodes(rows: Any) -> Any:
    """The output of `vgpuscope gpus`, one row for each GPU, as the ledgers of nodes."""
    nodes: dict[str, dict[str, Any]] = {}
    for row in rows:
        node = nodes.setdefault(row["node"], {"name": row["node"], "devices": [], "holders": []})
        if row.get("ledger"):
            node["devices"].append(row["ledger"])
        node["holders"] += row.get("holders", ())
    return list(nodes.values())


async def _steady(
    analyzer: AuditedService, requests: Callable[[], list[Awaitable[Any]]], *, page: bool = False
) -> Surfaces:
    """Answers between two looks at the same analysis. If it never is, each answer has the moment that it states."""
    answers: list[PublicAnswer] = []
    readings: list[FigureReading] = []
    for _ in range(_TRIES):
        before = await _shown(analyzer)
        answers = [one for one in await _gathered(requests()) if one is not None]
        readings = await analyzer.page() if page else []
        if before == await _shown(analyzer):
            answers = [with_moment(answer, before) for answer in answers]
            readings = [structs.replace(reading, moment=before) for reading in readings]
            break
    else:
        answers = [with_moment(answer, answer.surface) for answer in answers]
        readings = []
    numbers = [reading for answer in answers for reading in analyzer.numbers(answer)]
    return Surfaces(answers=tuple(answers), readings=(*numbers, *readings), defined=analyzer.shapes.defined)


async def _past(analyzer: AuditedService, requests: list[Awaitable[Any]]) -> Surfaces:
    """What the store says of the past. An analysis more or less changes it by less than the checks allow."""
    read = [one for one in await _gathered(requests) if one is not None]
    answers = [structs.replace(answer, moment=STORED) for answer in read]
    numbers = [reading for answer in answers for reading in analyzer.numbers(answer)]
    return Surfaces(answers=tuple(answers), readings=tuple(numbers), defined=analyzer.shapes.defined)


async def _shown(analyzer: AuditedService) -> str:
    """The time of the analysis that is shown."""
    return str((await analyzer.json("/results/stats")).get("timestamp") or "")


async def _gathered(requests: Iterable[Awaitable[T]]) -> list[T | None]:
    """The answers in their order, a few at once; None for what this service does not answer."""
    free = asyncio.Semaphore(_AT_ONCE)

    async def one(request: Awaitable[T]) -> T | None:
        async with free:
            try:
                return await request
            except Unanswered:
                return None

    return list(await asyncio.gather(*map(one, requests)))


def _unmoved(before: Iterable[FigureReading], after: Iterable[FigureReading]) -> list[FigureReading]:
    """The readings that are the same as some moments earlier."""
    known = {(one.figure, one.subject, one.path): one.value for one in before}
    return [one for one in after if known.get((one.figure, one.subject, one.path)) == one.value]


def _some(items: Sequence[T], most: int) -> Sequence[T]:
    """A few of many, spread over all of them."""
    if len(items) <= most:
        return items
    return [items[index * len(items) // most] for index in range(most)]
