"""Signs of use from the values of expressions: only a value above 0 is use, and what is not known is not quiet.

A pod of which an expression says nothing has no such sign. An expression that failed is unknown for all pods, and so is
a queue that a pod names and no expression knows.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from vgpuscope.model.reclaim import ActivityQuery, Signal, Workload

Key = tuple[str, ...]  # namespace and pod, or a queue


class ActivityAnswer(NamedTuple):
    """The values of one expression; or why there are none."""

    query: ActivityQuery
    values: Mapping[Key, float]
    fault: str = ""


def highest_values(query: ActivityQuery, rows: Iterable[tuple[Mapping[str, str], float]]) -> dict[Key, float]:
    """The highest value of each pod or queue; NaN is unknown, and only a sign of use takes precedence over it."""
    found: dict[Key, float] = {}
    names = ("namespace", "pod") if query.by == "pod" else ("queue",)
    for labels, value in rows:
        key = tuple(labels.get(name, "") for name in names)
        if all(key):
            found[key] = max(value, found.get(key, value), key=_weight)
    return found


def _weight(value: float) -> tuple[bool, bool, float]:
    """Use outweighs unknown, and unknown outweighs quiet."""
    unknown = math.isnan(value)
    return (value > 0, unknown, 0.0 if unknown else value)


def signals_of(answers: Sequence[ActivityAnswer], workload: Workload, queues: Iterable[str]) -> tuple[Signal, ...]:
    """The signs of one workload; `queues` are those that its annotations name."""
    own = [one for answer in answers if (one := _signal(answer, workload)) is not None]
    return (*own, *(_queue(answers, name) for name in sorted(queues)))


def _signal(answer: ActivityAnswer, workload: Workload) -> Signal | None:
    if answer.fault:
        return Signal(name=answer.query.name, active=None, detail=answer.fault)
    if answer.query.by == "queue":
        return None
    return _valued(answer, (workload.namespace, workload.pod))


def _queue(answers: Sequence[ActivityAnswer], name: str) -> Signal:
    found = (_valued(one, (name,)) for one in answers if one.query.by == "queue")
    unknown = Signal(name=f"queue {name}", active=None, detail="no expression of activity.queries knows this queue")
    return next((one for one in found if one is not None), unknown)


def _valued(answer: ActivityAnswer, key: Key) -> Signal | None:
    value = answer.values.get(key)
    if value is None:
        return None
    if math.isnan(value):
        return Signal(name=answer.query.name, active=None, detail="the value is not a number")
    return Signal(name=answer.query.name, active=value > 0, value=value)
