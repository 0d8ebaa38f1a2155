"""The numbers in the answers that a page of the console received, by the codes of their definitions.

What the page counts or adds up itself is counted and added up here again, from the same answers.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

Schema = dict[str, Any]
# Fields that say of what the numbers beside and below them are.
_NAMES = (
    "gpu_id", "mig", "name", "namespace", "pod", "pod_uid", "owner", "container", "resource", "node", "id", "code",
    "source", "kind", "scheduler", "stage", "type", "model", "vendor", "profile", "hostname", "reason",
)  # fmt: skip


@dataclass(frozen=True)
class Number:
    figure: str
    names: frozenset[str]  # of what it is
    value: float | None
    unit: str  # of its definition
    slack: float = 0.0  # how far it can have moved since the page was made


class Answers:
    """Collects answers; `openapi` says which field shows which figure."""

    def __init__(self, openapi: dict[str, Any], definitions: dict[str, Any]) -> None:
        self._schemas: dict[str, Schema] = openapi["components"]["schemas"]
        self._paths = {
            path: operations["get"]["responses"]["200"]["content"]["application/json"]["schema"]
            for path, operations in openapi["paths"].items()
            if "application/json" in operations.get("get", {}).get("responses", {}).get("200", {}).get("content", {})
        }
        self.units = {one["code"]: one.get("unit") or "" for one in definitions["definitions"]}
        self.numbers: dict[str, list[Number]] = {}
        self.bodies: dict[str, Any] = {}

    def add(self, url: str, body: Any, *, now: float) -> None:
        asked = urlsplit(url)
        path = unquote(asked.path)
        self.bodies[path] = body
        names = frozenset([*path.split("/"), *(value for _, value in parse_qsl(asked.query))])
        shapes = (shape for way, shape in self._paths.items() if re.fullmatch(re.sub(r"\{[^}]*\}", "[^/]+", way), path))
        for shape in list(shapes)[:1]:
            for one in self._walk(body, shape, names, now):
                self.numbers.setdefault(one.figure, []).append(one)

    def finish(self) -> None:
        """Make what the page makes of several answers: the idle tenants, what is done with them, and why not."""
        gpus, cases = (self.bodies.get(f"/api/v1/{path}") for path in ("gpus", "reclaim"))
        if gpus is None or cases is None:
            return
        for figure, made, *of in _idle(gpus["rows"], cases["cases"]):
            self.numbers.setdefault(figure, []).append(self._made(figure, made, 0.0, frozenset(of)))

    def of(self, figure: str, keys: frozenset[str]) -> list[Number]:
        """The numbers of a figure that are of all these names."""
        return [one for one in self.numbers.get(figure, ()) if keys <= one.names]

    def _walk(self, value: Any, schema: Schema, names: frozenset[str], now: float) -> Iterator[Number]:
        schema = self._resolved(schema, value)
        if isinstance(value, list):
            for item in value:
                yield from self._walk(item, schema.get("items", {}), names, now)
        elif isinstance(value, dict) and "properties" in schema:
            own = [str(value[name]) for name in _NAMES if isinstance(value.get(name), str | int) and value[name] != ""]
            names |= {part for name in own for part in (name, *name.split("/"))}
            for figure, made, slack, *of in _derived(schema.get("title", ""), value, now):
                yield self._made(figure, made, slack, names | set(of))
            for field, item in value.items():
                before = field == "before"
                for one in self._field(item, schema["properties"].get(field, {}), names, now):
                    yield one if not before else self._made(f"{one.figure}_before", one.value, 0.0, names)
        elif isinstance(value, dict):
            for key, item in value.items():
                yield from self._walk(item, schema.get("additionalProperties") or {}, names | {key}, now)

    def _field(self, item: Any, schema: Schema, names: frozenset[str], now: float) -> Iterator[Number]:
        code, parts = schema.get("x-figure"), schema.get("x-figures") or {}
        if code and (item is None or isinstance(item, int | float)):
            yield self._made(code, item, 0.0, names)
        elif code and isinstance(item, dict):
            for key, inner in item.items():
                if isinstance(inner, int | float):
                    yield self._made(code, inner, 0.0, names | {key})
        elif parts and isinstance(item, dict):
            for key, inner in item.items():
                if key in parts and (inner is None or isinstance(inner, int | float)):
                    yield self._made(parts[key], inner, 0.0, names)
                elif isinstance(inner, dict):  # the parts of each reason
                    yield from self._field(inner, schema, names | {key}, now)
        elif not code:
            yield from self._walk(item, schema, names, now)

    def _made(self, figure: str, value: float | None, slack: float, names: frozenset[str]) -> Number:
        known = None if value is None else float(value)
        return Number(figure, names, known, self.units.get(figure, ""), slack)

    def _resolved(self, schema: Schema, value: Any) -> Schema:
        for _ in range(8):
            if "$ref" in schema:
                schema = self._schemas[schema["$ref"].rpartition("/")[2]]
            elif "anyOf" in schema:
                kinds = [one for one in schema["anyOf"] if one.get("type") != "null"]
                schema = kinds[0] if value is not None and kinds else {}
            else:
                break
        return schema


_Derived = tuple[Any, ...]  # figure, value, slack, names
_SINCE = 120.0  # seconds that a page may be old
_ENDED = {"released", "verified", "restored", "exempt", "failed"}  # states of a case: nothing is idle any more


def _derived(kind: str, value: dict[str, Any], now: float) -> Iterator[_Derived]:
    """What the page makes of one struct of an answer."""
    kind = kind.removeprefix("SomeOf")
    rows = value.get("rows") or ()
    match kind:
        case "GpuRow":
            yield "gpu.idle_seconds", _age(value.get("idle_since"), now), _SINCE
        case "TenantRow":
            yield "tenant.idle_seconds", _age(value.get("idle_since"), now), _SINCE
            yield "tenant.last_kernel", _age(value.get("last_kernel"), now), _SINCE
        case "WorkloadRow":
            yield "workload.gpus_or_instances", len(value.get("gpus") or ()), 0.0
            limit, most = value.get("memory_limit"), value.get("memory_max")
            yield "workload.memory_max_share", most / limit if most is not None and limit else None, 0.0
            waits = value.get("state") == "pending"
            yield "tenant.idle_seconds", _age(value.get("since" if waits else "idle_since"), now), _SINCE
            yield "tenant.last_kernel", _age(value.get("last_kernel"), now), _SINCE
        case "PodBeside":
            yield "pod.processes", len(value["processes"] or ()), 0.0
            for process in value["processes"] or ():
                of = [str(process["pid"]), str(process["gpu_id"])]
                yield "process.memory", process.get("memory"), 0.0, *of
                yield "process.use", process["sm"], 0.0, *of
        case "NamespaceRow":
            idle, held = value.get("idle_gpu_hours"), value.get("held_gpu_hours")
            yield "namespace.idle_ratio_day", idle / held if held else None, 0.0
        case "GpuDetail":
            yield "gpu.tenants", len(value["tenants"]), 0.0
            yield "gpu.mig_instances", len(value["instances"]), 0.0
        case "CountedCapacity":
            most = value["memory"] if value["free"] else 0.0
            yield "resource.largest_memory", None if value["memory_free"] is None else most, 0.0
        case "MemoryLedger":
            for row in rows:
                of = [row[name] or "" for name in ("kind", "namespace", "pod", "container")]
                yield "gpu.memory_ledger_share", row["memory"] / value["total"], 0.0, *of
        case "SeriesHistory":
            energy = [one["values"] for one in value["columns"] if one["quantity"] == "energy"]
            yield "chart.energy_sum", _sum(energy[0]) if energy else None, 0.0
        case "CaseRow":
            yield "case.gpus", len(value.get("gpu_ids") or ()), 0.0
            since = None if value["state"] in _ENDED else value["idle_since"]
            yield "case.idle_seconds", _age(since, now), _SINCE
        case "GpuList":
            tenants = [(row, one) for row in rows for one in row.get("tenants") or ()]
            idle = [(row, one) for row, one in tenants if one.get("verdict") == "idle"]
            yield "fleet.tenants_idle", len(idle), 0.0
            yield "fleet.tenants_unknown", sum(one.get("verdict") == "unknown" for _, one in tenants), 0.0
            yield "fleet.gpus_with_idle", len({row.get("gpu_id") for row, _ in idle}), 0.0
            mixed = {id(row) for row, _ in idle if row.get("verdict") == "in_use"}
            yield "fleet.in_use_with_idle", len(mixed), 0.0


def _idle(rows: list[dict[str, Any]], cases: list[dict[str, Any]]) -> Iterator[_Derived]:
    """What the page of idle tenants adds up, from the rows of its lists."""
    ended_first = sorted(cases, key=lambda one: one["state"] != "released")  # the one that is open counts
    known = {one["pod_uid"] or f"{one['namespace']}/{one['pod']}": one for one in ended_first}
    idle, acted = list[dict[str, Any]](), list[dict[str, Any]]()
    alone: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for tenant in (one for row in rows for one in row["tenants"] if one["verdict"] == "idle"):
        case = known.get(tenant["pod_uid"] or f"{tenant['namespace']}/{tenant['pod']}")
        idle.append(tenant)
        if case and case["actionable"]:
            acted.append(tenant)
        else:
            alone.setdefault(_why_not(case), []).append(tenant)
    yield "fleet.idle_memory_allocated", _total(idle, "memory_allocated")
    yield "fleet.idle_memory_used", _total(idle, "memory_used")
    yield "fleet.idle_memory_actionable", _total(acted, "memory_allocated")
    yield "fleet.memory_used_actionable", _total(acted, "memory_used")
    yield "fleet.tenants_actionable", len(acted)
    yield "fleet.tenants_left_alone", len(idle) - len(acted)
    for codes, some in alone.items():
        yield "fleet.tenants_left_alone_by_reason", len(some), *codes
        yield "fleet.memory_used_left_alone_by_reason", _total(some, "memory_used"), *codes


def _why_not(case: dict[str, Any] | None) -> tuple[str, ...]:
    """The codes of what leaves a tenant alone: the first brake with its setting, or the state of its case."""
    if case is None:
        return ("no-case",)
    if case["brakes"]:
        brake = case["brakes"][0]
        codes = [brake[part] for part in ("brake", "setting", "value") if brake[part] is not None]
        return tuple(part for code in codes for part in code.split("/"))
    return ("approved" if case["reason"] == "approved" else case["state"],)


def _total(rows: list[dict[str, Any]], field: str) -> float | None:
    """Nothing adds up to zero; a sum of which no part is known is not known."""
    return _sum(row[field] for row in rows) if rows else 0.0


def _age(at: Any, now: float) -> float | None:
    if at is None:
        return None
    if isinstance(at, int | float):
        return now - at
    return now - datetime.fromisoformat(at.replace("Z", "+00:00")).timestamp()


def _sum(values: Iterable[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return sum(known) if known else None
