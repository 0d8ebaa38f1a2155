"""Objects as rows of a Table: what `kubectl get` and k9s show, with the columns of a real API server."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from vgpuscope.sim.kubekinds import KINDS

Json = dict[str, Any]
Cell = str | int
_NONE, _UNKNOWN = "<none>", "<unknown>"
_PARTIAL = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}


class _Columns(NamedTuple):
    """Names of columns, those of them that only `-o wide` shows, and the cells of an object at a time."""

    names: tuple[str, ...]
    cells: Callable[[Json, float], Sequence[Cell]]
    wide: frozenset[str] = frozenset()


def table(plural: str, objects: Iterable[Json], metadata: Json, *, included: str, now: float) -> Json:
    """A Table of objects; `included` says what each row has of its object: Metadata, Object or None."""
    columns = _COLUMNS[plural]
    definitions = [
        {
            "name": name,
            "type": "string",
            "format": "name" if name == "Name" else "",
            "description": "",
            "priority": int(name in columns.wide),
        }
        for name in columns.names
    ]
    rows = [{"cells": columns.cells(one, now), **_of_the_object(plural, one, included)} for one in objects]
    head = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
    return head | {"columnDefinitions": definitions, "rows": rows}


def _of_the_object(plural: str, one: Json, included: str) -> Json:
    if included == "None":
        return {}
    if included == "Object":
        return {"object": {**one, "kind": KINDS[plural].kind, "apiVersion": KINDS[plural].version}}
    return {"object": {**_PARTIAL, "metadata": one["metadata"]}}


def _pod(pod: Json, now: float) -> Sequence[Cell]:
    meta, spec, status = pod["metadata"], pod["spec"], pod["status"]
    containers = status.get("containerStatuses") or []
    ready = sum(bool(one.get("ready")) for one in containers)
    restarts = sum(one.get("restartCount", 0) for one in containers)
    address, node, nominated = status.get("podIP"), spec.get("nodeName"), status.get("nominatedNodeName")
    return (
        meta["name"],
        f"{ready}/{len(spec['containers'])}",
        _pod_status(meta, status, containers),
        str(restarts),
        _age(meta.get("creationTimestamp"), now),
        address or _NONE,
        node or _NONE,
        nominated or _NONE,
        _NONE,
    )


def _pod_status(meta: Json, status: Json, containers: Sequence[Json]) -> str:
    phase = str(status.get("phase", ""))
    word = str(status.get("reason") or phase)
    for one in reversed(containers):
        state = one.get("state") or {}
        ended = state.get("terminated")
        if reason := (state.get("waiting") or {}).get("reason"):
            word = reason
        elif ended:
            word = ended.get("reason") or f"ExitCode:{ended.get('exitCode', 0)}"
    if "deletionTimestamp" in meta and phase not in {"Succeeded", "Failed"}:
        return "Terminating"
    return word


def _node(node: Json, now: float) -> Sequence[Cell]:
    meta, status = node["metadata"], node["status"]
    info = status.get("nodeInfo") or {}
    ready = [one["status"] == "True" for one in status.get("conditions", ()) if one["type"] == "Ready"]
    word = ("Ready" if ready[0] else "NotReady") if ready else "Unknown"
    roles = [key.partition("/")[2] for key in meta.get("labels", {}) if key.startswith("node-role.kubernetes.io/")]
    addresses = {one["type"]: one["address"] for one in reversed(status.get("addresses", []))}
    return (
        meta["name"],
        word + (",SchedulingDisabled" if node["spec"].get("unschedulable") else ""),
        ",".join(sorted(roles)) or _NONE,
        _age(meta.get("creationTimestamp"), now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", _NONE),
        addresses.get("ExternalIP", _NONE),
        info.get("osImage") or _UNKNOWN,
        info.get("kernelVersion") or _UNKNOWN,
        info.get("containerRuntimeVersion") or _UNKNOWN,
    )


def _event(event: Json, now: float) -> Sequence[Cell]:
    about, source, series = event["involvedObject"], event.get("source") or {}, event.get("series") or {}
    first = _age(event.get("firstTimestamp") or event.get("eventTime"), now)
    last = _age(event["lastTimestamp"], now) if event.get("lastTimestamp") else first
    component = source.get("component") or event.get("reportingComponent", "")
    host = source.get("host") or event.get("reportingInstance", "")
    return (
        _age(series["lastObservedTime"], now) if series else last,
        event.get("type", ""),
        event.get("reason", ""),
        f"{about.get('kind', '').lower()}/{about.get('name', '')}",
        about.get("fieldPath", ""),
        ", ".join(filter(None, (component, host))),
        event.get("message", "").strip(),
        first,
        series.get("count") or event.get("count") or 1,
        event["metadata"]["name"],
    )


def _quota(quota: Json, now: float) -> Sequence[Cell]:
    status = quota.get("status") or {}
    hard, used = status.get("hard") or {}, status.get("used") or {}
    shown = {name: f"{name}: {used.get(name, 0)}/{hard[name]}" for name in sorted(hard)}
    limits = [text for name, text in shown.items() if name.startswith("limits.")]
    requests = [text for name, text in shown.items() if not name.startswith("limits.")]
    age = _age(quota["metadata"].get("creationTimestamp"), now)
    return quota["metadata"]["name"], ", ".join(requests), ", ".join(limits), age


def _namespace(namespace: Json, now: float) -> Sequence[Cell]:
    meta = namespace["metadata"]
    return meta["name"], namespace["status"]["phase"], _age(meta.get("creationTimestamp"), now)


def _lease(lease: Json, now: float) -> Sequence[Cell]:
    meta, spec = lease["metadata"], lease.get("spec") or {}
    return meta["name"], spec.get("holderIdentity") or "", _age(meta.get("creationTimestamp"), now)


_COLUMNS = {
    "pods": _Columns(
        ("Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node", "Readiness Gates"),
        _pod,
        wide=frozenset({"IP", "Node", "Nominated Node", "Readiness Gates"}),
    ),
    "nodes": _Columns(
        (
            *("Name", "Status", "Roles", "Age", "Version", "Internal-IP", "External-IP", "OS-Image", "Kernel-Version"),
            "Container-Runtime",
        ),
        _node,
        wide=frozenset({"Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"}),
    ),
    "events": _Columns(
        ("Last Seen", "Type", "Reason", "Object", "Subobject", "Source", "Message", "First Seen", "Count", "Name"),
        _event,
        wide=frozenset({"Subobject", "Source", "First Seen", "Count", "Name"}),
    ),
    "resourcequotas": _Columns(("Name", "Request", "Limit", "Age"), _quota),
    "namespaces": _Columns(("Name", "Status", "Age"), _namespace),
    "leases": _Columns(("Name", "Holder", "Age"), _lease),
}


def _age(since: str | None, now: float) -> str:
    if not since:
        return _UNKNOWN
    return duration(int(now - datetime.fromisoformat(since).timestamp()))


def duration(seconds: int) -> str:
    """A duration as kubectl shows it: at most two units, and fewer digits the longer it is."""
    if seconds < 0:
        return "0s" if seconds >= -1 else "<invalid>"
    if seconds < 120:
        return f"{seconds}s"
    minutes, rest = divmod(seconds, 60)
    if minutes < 10:
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours, rest = divmod(minutes, 60)
    if hours < 8:
        return f"{hours}h{rest}m" if rest else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days, rest = divmod(hours, 24)
    if days < 8:
        return f"{days}d{rest}h" if rest else f"{days}d"
    if days < 730:
        return f"{days}d"
    years, rest = divmod(days, 365)
    return f"{years}y{rest}d" if rest and years < 8 else f"{years}y"
