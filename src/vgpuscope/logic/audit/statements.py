"""What one page states and another one shows: what doctor rules out, what still fits, what has a case."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from vgpuscope.model.consistency import FigureComparison, FigureReading, PublicAnswer, Surfaces, Uncompared

_UNKNOWN = "SM activity is not known"
_NEVER = re.compile(r"`([a-z-]+)` is never found there")


def ruled_out(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """What doctor says to be unknown or never found on a GPU or node is not shown of it elsewhere."""
    results = next((one for one in surfaces.answers if one.kind == "ResultRow[]"), None)
    gpus = next((one for one in surfaces.answers if one.kind.removeprefix("SomeOf") == "GpuList"), None)
    for report in surfaces.answers:
        if report.kind != "DoctorReport":
            continue
        for finding in report.body["findings"]:
            cause = (finding.get("cause") or {}).get("en", "")
            if finding["status"] not in {"warn", "fail"} or not finding.get("examples"):
                continue  # a caller of some namespaces does not get the examples
            places = " ".join(finding["examples"])
            said = _place(report, f"findings[code={finding['code']}].cause", "fleet.by_class", 0)
            never = _NEVER.search(cause)
            if never is not None and results is not None:
                for index, row in enumerate(results.body):
                    if _named(row, places):
                        path, shown = f"count([{index}][use_class={never[1]}])", row["use_class"] == never[1]
                        yield _ruled_out(_place(results, path, "fleet.by_class", float(shown)), said, row)
            if _UNKNOWN in cause and gpus is not None:
                for index, row in enumerate(gpus.body["rows"]):
                    if _named(row, places):
                        path, shown = f"count(rows[{index}].sm_active.mean)", row["sm_active"]["mean"] is not None
                        yield _ruled_out(_place(gpus, path, "gpu.sm_active", float(shown)), said, row)


def _ruled_out(shown: FigureReading, said: FigureReading, row: dict[str, Any]) -> FigureComparison:
    name = "/".join(part for part in (row["gpu_id"], row.get("mig")) if part)
    return FigureComparison(check="ruled-out", subject=name, first=shown, second=said, rule="equal")


def doctors(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """Doctor counts the same on the command line and in the console, if both asked the same services."""
    reports = [one for one in surfaces.answers if one.kind == "DoctorReport"]
    if len(reports) != 2 or _asked(reports[0]) != _asked(reports[1]):
        return
    first, second = ({one["code"]: one for one in report.body["findings"]} for report in reports)
    for code in first.keys() & second.keys():
        if "skipped" in {first[code]["status"], second[code]["status"]}:
            continue
        for name, value in first[code]["numbers"].items():
            other = second[code]["numbers"].get(name)
            if isinstance(value, int) and isinstance(other, int):
                path = f"findings[code={code}].numbers.{name}"
                yield FigureComparison(
                    check="doctors",
                    subject=code,
                    first=_place(reports[0], path, "service.checks", value),
                    second=_place(reports[1], path, "service.checks", other),
                    rule="equal",
                )


def _asked(report: PublicAnswer) -> list[tuple[str, str]]:
    """The services whose answers a report is made of; a caller of some namespaces does not get their names."""
    return sorted(
        (one["service"], one["name"]) for one in report.body.get("services", ()) if one["state"] == "answered"
    )


def uncompared(surfaces: Surfaces) -> Iterator[Uncompared]:
    """Doctors that asked different services: with a PromQL engine, the analyzer reads it in place of the agents."""
    reports = [one for one in surfaces.answers if one.kind == "DoctorReport"]
    if len(reports) == 2 and _asked(reports[0]) != _asked(reports[1]):
        yield Uncompared(check="doctors", why="other-services", surfaces=(reports[1].surface,))


def _named(row: dict[str, Any], places: str) -> bool:
    """Whether a row is of a GPU or node that the examples name."""
    uuid, host = row["gpu_id"], row.get("hostname") or row.get("node")
    names = [uuid] if "GPU-" in places else [name for name in (uuid, host) if name]
    return any(re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", places) for name in names)


def fits(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """The most whole GPUs that one pod can get include GPUs of which only the number is known."""
    shown = next((one for one in surfaces.answers if one.kind == "Scheduling"), None)
    ledgers = next((one for one in surfaces.answers if one.kind == "NodeLedger[]"), None)
    if shown is None or ledgers is None or shown.body.get("capacity") is None:
        return
    most = max([shown.body["capacity"]["whole_gpus"], *(one["whole_gpus"] for one in shown.body.get("counted", ()))])
    for index, node in enumerate(ledgers.body):
        for number, offer in enumerate(node.get("offers", ())):
            whole = offer["offer"].get("replicas") == 1 and not offer["offer"].get("profile")
            if whole and not offer.get("lost"):
                yield FigureComparison(
                    check="fits",
                    subject=f"{node['name']}/{offer['offer']['resource']}",
                    first=_place(ledgers, f"[{index}].offers[{number}].free", "resource.free", offer["free"]),
                    second=_place(shown, "max(whole_gpus)", "capacity.whole_gpus", most),
                    rule="at_most",
                )


def attempts(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """A pod has no more failed attempts than the extender has decisions against it.

    Only pods since the oldest decision of the log are compared, because a scheduler may have tried the others before;
    and of those only the ones that wait for a reason of the extender: it is not asked about a pod that fits no node
    for another reason.
    """
    shown = next((one for one in surfaces.answers if one.kind == "Scheduling"), None)
    log = next((one for one in surfaces.answers if one.kind == "DecisionList" and one.body["rows"]), None)
    if shown is None or log is None:
        return
    against = Counter(row["pod_uid"] for row in log.body["rows"] if row["outcome"] in {"refused", "failed"})
    oldest = min(row["at"] for row in log.body["rows"])
    codes = {row["pod_uid"]: row["codes"] for row in reversed(log.body["rows"])}  # of the newest decision
    for index, pod in enumerate(shown.body["pending"]):
        uid = pod["pod_uid"]
        if pod["code"] in codes.get(uid, ()) and pod["created"] is not None and pod["created"] > oldest:
            yield FigureComparison(
                check="attempts",
                subject=f"{pod['namespace']}/{pod['pod']}",
                first=_place(shown, f"pending[{index}].attempts", "pod.attempts", pod["attempts"]),
                second=_place(
                    log, f"count(rows[pod_uid={uid}][outcome=refused|failed])", "pod.decisions", against[uid]
                ),
                rule="at_most",
            )


def cases(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """Every idle workload has a case of reclaim."""
    listed = next((one for one in surfaces.answers if one.kind == "ReclaimList"), None)
    pods = next((one for one in surfaces.answers if one.kind == "WorkloadList" and not one.scope), None)
    if listed is None or pods is None or listed.body["mode"] == "off" or pods.body["group_by"] != "pod":
        return
    known = {(case["namespace"], case["pod"]) for case in listed.body["cases"]}
    for index, row in enumerate(pods.body["rows"]):
        if row["verdict"] == "idle" and row["state"] == "running":
            yield FigureComparison(
                check="cases",
                subject=f"{row['namespace']}/{row['pod']}",
                first=_place(pods, f"rows[{index}].verdict", "workload.tenants", 1),
                second=_place(
                    listed,
                    f"count(cases[pod={row['namespace']}/{row['pod']}])",
                    "fleet.cases",
                    float((row["namespace"], row["pod"]) in known),
                ),
                rule="equal",
            )


def low_rows(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """What is listed and counted as low has a score below the threshold and a known status, or the verdict idle."""
    listed = next((one for one in surfaces.answers if one.kind == "LowBody" and "format=" not in one.surface), None)
    results = next((one for one in surfaces.answers if one.kind == "ResultRow[]"), None)
    if listed is None or results is None or listed.moment != results.moment:
        return
    threshold = listed.body["threshold"]

    def below(row: dict[str, Any]) -> bool:
        return row["score"] is not None and row["score"] < threshold and row["status"] != "unknown"

    def low(row: dict[str, Any]) -> bool:
        return row["verdict"] == "idle" or below(row)

    rows = listed.body["gpus"]
    unproven = sum(not low(row) for row in rows)
    yield FigureComparison(
        check="low",
        subject="",
        first=_place(listed, f"count(gpus[not idle, and no known status below {threshold:g}])", _LOW, unproven),
        second=_place(listed, "0", _LOW, 0),
        rule="equal",
    )
    counts = (
        ("low_utilization_count", "fleet.low", f"count(rows[score<{threshold:g}][status known])", below),
        ("gpu_rows", "fleet.low_gpu_rows", "count(rows[low or idle])", low),
    )
    for field, figure, path, chosen in counts:
        if field in listed.body:
            yield FigureComparison(
                check="low",
                subject="",
                first=_place(listed, field, figure, listed.body[field]),
                second=_place(results, path, figure, sum(chosen(row) for row in results.body)),
                rule="equal",
            )


_LOW = "fleet.low_or_idle"


def populations(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """A list named `gpus` whose count has no other definition lists each GPU once; parts of a count add up to it."""
    for answer in surfaces.answers:
        if answer.kind == "LowBody" and "gpu_rows" in answer.body:
            yield FigureComparison(
                check="populations",
                subject="",
                first=_place(answer, "count", "fleet.low_or_idle", answer.body["count"]),
                second=_place(
                    answer,
                    "sum(gpu_rows, tenant_rows)",
                    "fleet.low_or_idle",
                    answer.body["gpu_rows"] + answer.body["tenant_rows"],
                ),
                rule="sum",
            )
    if surfaces.defined:
        return
    for answer in surfaces.answers:
        if answer.kind.removeprefix("SomeOf") == "LowBody" and "count" in answer.body:
            gpus = {(row["gpu_id"], row["mig"]) for row in answer.body["gpus"]}
            yield FigureComparison(
                check="populations",
                subject="",
                first=_place(answer, "count", "fleet.low_or_idle", answer.body["count"]),
                second=_place(answer, "count(gpus[].gpu_id)", "fleet.gpus_or_instances", len(gpus)),
                rule="equal",
            )


def _place(answer: PublicAnswer, path: str, figure: str, value: float) -> FigureReading:
    return FigureReading(
        surface=answer.surface, path=path, figure=figure, subject=(), value=value, moment=answer.moment
    )
