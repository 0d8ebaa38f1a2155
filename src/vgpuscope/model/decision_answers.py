"""The answers of the extender's API about its decisions."""

import re
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from vgpuscope.model.fit import FitReport, Remedy
from vgpuscope.model.placement import DecidedGpu, DecisionHead
from vgpuscope.model.quantity import Seconds
from vgpuscope.model.scheduling_codes import telling

IdleState: TypeAlias = Literal["absent", "ok", "stale", "down"]  # whether an analyzer says which workloads are idle


class AskedGpus(Struct, frozen=True, kw_only=True):
    """The GPUs that one container of a pod requests."""

    container: str
    init: bool
    count: int
    memory: int | None  # MiB of each GPU; null: by percentage, or the whole GPU
    percentage: int | None  # of each GPU's memory
    cores: int  # percent of each GPU; 0: no reservation


class DecidedNode(Struct, frozen=True, kw_only=True, gc=False):
    """The verdict on one node."""

    node: str
    code: str  # of docs/scheduling-codes.md; "": the pod fits
    message: str
    requested: str
    available: str
    score: float | None  # null: not ranked
    message_zh: str = ""  # the message in Chinese; "": there is only English, such as an answer of the API server


class DecisionBody(DecisionHead, frozen=True, kw_only=True):
    """One decision of the extender."""

    node: str  # "": none
    devices: tuple[DecidedGpu, ...]
    score: float | None
    policy: str  # binpack/spread: of the node, of the GPUs
    terms: dict[str, float]  # of the node's score
    nodes: tuple[DecidedNode, ...]
    codes: dict[str, int]  # refused nodes by code, the most telling first
    fitting: int  # nodes that the pod fits on
    nodes_omitted: int  # nodes of this decision that are not listed, because the answer would be too long
    seconds: Seconds
    asks: tuple[AskedGpus, ...]  # what the pod requests; empty: not known
    constraints: tuple[str, ...] = ()  # annotations that restrict the choice: nvidia.com/use-gputype=a100


class FitAnswer(FitReport, frozen=True, kw_only=True):
    """The answer to `what if`, with what was asked, and whether idle workloads are known."""

    asks: tuple[AskedGpus, ...] = ()  # empty: the pod requests no GPU, so it fits anywhere
    constraints: tuple[str, ...] = ()  # annotations that restrict the choice
    idle_state: IdleState = "absent"
    idle_reason: str = ""  # why no idle workloads are known


def seen_by(answer: FitAnswer, sees: Callable[[str], bool]) -> FitAnswer:
    """The answer without the names of pods in hidden namespaces: remedies that need such a pod are left out."""
    return replace(answer, remedies=tuple(one for one in answer.remedies if all(map(sees, _namespaces(one)))))


def _namespaces(remedy: Remedy) -> set[str]:
    return {pod.namespace for pod in (*remedy.pods, *(move.pod for move in remedy.moves))}


class CodeVerdicts(Struct, frozen=True, kw_only=True):
    """The nodes that were refused with one code, the nearest to fitting first."""

    code: str
    nodes: tuple[DecidedNode, ...]


def verdicts_by_code(nodes: Iterable[DecidedNode]) -> list[CodeVerdicts]:
    """Refused nodes by code, the most telling code first."""
    found: dict[str, list[DecidedNode]] = {}
    for one in nodes:
        if one.code:
            found.setdefault(one.code, []).append(one)
    groups = [CodeVerdicts(code=code, nodes=tuple(sorted(some, key=_lack))) for code, some in found.items()]
    return sorted(groups, key=lambda group: telling(group.code, len(group.nodes)))


def fitting_nodes(decision: DecisionBody) -> list[DecidedNode]:
    """The nodes that the pod fits on, best first: the fullest by binpack, the emptiest by spread."""
    sign = 1 if decision.policy.partition("/")[0] == "spread" else -1
    ranked = [one for one in decision.nodes if not one.code and one.score is not None]
    return sorted(ranked, key=lambda one: (sign * (one.score or 0.0), one.node))


_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")


def _lack(one: DecidedNode) -> tuple[float, str]:
    """How much a node lacks, if both amounts are numbers; nodes without numbers come last."""
    asked, there = (_NUMBER.match(text) for text in (one.requested, one.available))
    return (float(asked[0]) - float(there[0]) if asked and there else float("inf"), one.node)
