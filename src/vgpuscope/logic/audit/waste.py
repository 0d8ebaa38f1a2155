"""Idle GPU-hours: rows add up to the totals, whatever they are grouped by."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from msgspec import structs

from vgpuscope.model.consistency import FigureComparison, FigureReading, PublicAnswer, Surfaces

_HOURS = ("idle_gpu_hours", "in_use_gpu_hours", "unknown_gpu_hours")
_FREE_PART = "free_part_gpu_hours"  # an older analyzer has no such field
_HOUR = 3600.0
_HOURS_OF_A_DAY = 24  # a period begins at a whole hour: if the hour changed between two answers, an hour differs
_MINUTE = 0.002  # of the hours of a day: analyses that were saved between two answers
_DIGIT = 0.00006  # hours: each row is rounded


def hours(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """GPU-hours are held or unallocated; held ones are those of tenants and the free parts of shared GPUs."""
    for answer in _answers(surfaces):
        body = answer.body
        yield _sum(answer, "gpu_hours", ("held_gpu_hours", "unallocated_gpu_hours"), body)
        if _FREE_PART in body:
            yield _sum(answer, "held_gpu_hours", (*_HOURS, _FREE_PART), body)
            continue
        yield FigureComparison(
            check="waste-hours",
            subject=body["group_by"],
            first=reading_of(answer, "fleet.idle_gpu_hours", f"sum({', '.join(_HOURS)})", sum(map(body.get, _HOURS))),
            second=reading_of(answer, "fleet.held_gpu_hours", "held_gpu_hours", body["held_gpu_hours"]),
            rule="at_most",
            tolerance=_DIGIT * 4,
        )


def rows(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """The rows of a group add up to the totals above them; held hours, with the free parts of shared GPUs."""
    for answer in _answers(surfaces):
        listed = answer.body["rows"]
        if answer.body["count"] != len(listed):
            continue
        for field in (*_HOURS, "held_gpu_hours"):
            if any(field not in row for row in listed):
                continue
            total = reading_of(answer, f"fleet.{field}", field, answer.body[field])
            value, path = sum(row[field] for row in listed), f"sum(rows[].{field})"
            if field == "held_gpu_hours" and _FREE_PART in answer.body:
                value, path = value + answer.body[_FREE_PART], f"{path} + {_FREE_PART}"
            parts = reading_of(answer, f"waste.{field}", path, value)
            yield FigureComparison(
                check="waste-rows",
                subject=answer.body["group_by"],
                first=total,
                second=parts,
                rule="sum",
                tolerance=_DIGIT * (len(listed) + 1) + 1e-4 * answer.body[field],
            )


def groups(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """The totals are the same however the rows are grouped, and a group holds no less than any of its members."""
    answers = _answers(surfaces)
    whole = next((one for one in answers if one.body["group_by"] == "tenant"), None)
    if whole is None:
        return
    for answer in answers:
        if answer is whole or answer.query.get("since") != whole.query.get("since"):
            continue
        for field in (*_HOURS, "gpu_hours", "held_gpu_hours", "unallocated_gpu_hours"):
            first, second = whole.body[field], answer.body[field]
            yield FigureComparison(
                check="waste-groups",
                subject=f"{whole.body['group_by']}, {answer.body['group_by']}",
                first=reading_of(whole, f"fleet.{field}", field, first),
                second=reading_of(answer, f"fleet.{field}", field, second),
                rule="equal",
                tolerance=_MINUTE * max(first, second) + 0.05,
            )
        if answer.body["group_by"] == "namespace":
            yield from _memory(whole, answer)


def day_of_namespaces(surfaces: Surfaces) -> Iterator[FigureComparison]:
    """The idle hours of a namespace are the same on the page of namespaces and in the list of idle hours."""
    shown = {one.subject: one for one in surfaces.readings if one.figure == "namespace.idle_gpu_hours_day"}
    read = {one.surface: _history_at(one) for one in surfaces.answers}
    for answer in _answers(surfaces):
        if answer.body["group_by"] != "namespace" or answer.query.get("since", "24h") != "24h":
            continue
        end = datetime.fromisoformat(answer.body["end"]).timestamp()
        for index, row in enumerate(answer.body["rows"]):
            reading = shown.get((row["namespace"],))
            if reading is not None:
                at = read.get(reading.surface) or 0.0
                apart = abs(end - at) / _HOUR if at // _HOUR == end // _HOUR else 1.0
                yield FigureComparison(
                    check="waste-groups",
                    subject=row["namespace"],
                    first=structs.replace(reading, moment=answer.moment),
                    second=reading_of(
                        answer, "waste.idle_gpu_hours", f"rows[{index}].idle_gpu_hours", row["idle_gpu_hours"]
                    ),
                    rule="equal",
                    tolerance=apart * max(row["gpus"], sum(row[field] for field in _HOURS) / _HOURS_OF_A_DAY) + 0.05,
                )


def _history_at(answer: PublicAnswer) -> float | None:
    """When the hours of a page were read: a page keeps them for some minutes."""
    parts = answer.body.get("parts") if isinstance(answer.body, dict) else None
    at = next((part["at"] for part in parts or () if part["name"] == "history"), None)
    return datetime.fromisoformat(at).timestamp() if at else None


def _memory(tenants: PublicAnswer, namespaces: PublicAnswer) -> Iterator[FigureComparison]:
    held = {row["namespace"]: (index, row) for index, row in enumerate(namespaces.body["rows"])}
    for index, row in enumerate(tenants.body["rows"]):
        place, group = held.get(row["namespace"], (0, None))
        if group is None or row["memory_held"] is None or group["memory_held"] is None or row["verdict"] != "idle":
            continue
        yield FigureComparison(
            check="waste-groups",
            subject=f"{row['namespace']}/{row['pod']}",
            first=reading_of(tenants, "waste.memory_held", f"rows[{index}].memory_held", row["memory_held"]),
            second=reading_of(namespaces, "waste.memory_held", f"rows[{place}].memory_held", group["memory_held"]),
            rule="at_most",
            tolerance=0.01 * group["memory_held"],
        )


def _sum(answer: PublicAnswer, whole: str, parts: tuple[str, ...], body: dict[str, Any]) -> FigureComparison:
    return FigureComparison(
        check="waste-hours",
        subject=answer.body["group_by"],
        first=reading_of(answer, f"fleet.{whole}", whole, body[whole]),
        second=reading_of(answer, f"fleet.{parts[0]}", f"sum({', '.join(parts)})", sum(body[part] for part in parts)),
        rule="sum",
        tolerance=_DIGIT * (len(parts) + 1) + 1e-6 * body[whole],
    )


def reading_of(answer: PublicAnswer, figure: str, path: str, value: float) -> FigureReading:
    """A number of an answer, as the reading of a figure."""
    return FigureReading(
        surface=answer.surface,
        path=path,
        figure=figure,
        subject=(),
        value=value,
        scope=answer.scope,
        moment=answer.moment,
    )


def _answers(surfaces: Surfaces) -> list[PublicAnswer]:
    return [one for one in surfaces.answers if one.kind == "Waste" and one.body.get("history")]
