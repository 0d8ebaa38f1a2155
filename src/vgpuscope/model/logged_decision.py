"""A decision as the log keeps it: nodes with equal verdicts together, so that 5,000 nodes cost little memory."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from msgspec import Struct

from vgpuscope.model.placement import Decision, DecisionFacts, NodeVerdict, Verdict
from vgpuscope.model.quantity import Bytes

_VERDICT = Verdict.__struct_fields__
_FACTS = DecisionFacts.__struct_fields__
_values_of = attrgetter(*_VERDICT)


class VerdictGroup(Verdict, frozen=True, kw_only=True):
    """Nodes with the same verdict."""

    nodes: tuple[str, ...]

    def verdicts(self) -> Iterable[NodeVerdict]:
        """The verdict of each node."""
        values = dict(zip(_VERDICT, _values_of(self), strict=True))
        return (NodeVerdict(node=node, **values) for node in self.nodes)


class LoggedDecision(DecisionFacts, frozen=True, kw_only=True):
    """One entry in the log of decisions."""

    groups: tuple[VerdictGroup, ...] = ()

    @property
    def nodes(self) -> tuple[NodeVerdict, ...]:
        """The verdict of each node; made again for each call."""
        return tuple(verdict for group in self.groups for verdict in group.verdicts())

    @property
    def node_count(self) -> int:
        return sum(len(group.nodes) for group in self.groups)


class DecisionLogState(Struct, frozen=True, kw_only=True):
    """What metrics and health say about the log."""

    entries: int = 0
    bytes: Bytes = 0
    dropped: int = 0  # entries dropped from memory before their time
    stored: bool | None = None  # whether the store answers; None: there is none, or it was not asked yet
    unsaved: int = 0  # entries that wait for the store
    lost: int = 0  # entries that were dropped unsaved
    saved: int = 0
    fault: str = ""  # why the store does not answer


def logged(decision: Decision) -> LoggedDecision:
    """A decision with its verdicts grouped, in the order in which they first occur."""
    facts = {name: getattr(decision, name) for name in _FACTS}
    return LoggedDecision(groups=grouped(decision.nodes), **facts)


def grouped(verdicts: Iterable[NodeVerdict]) -> tuple[VerdictGroup, ...]:
    """Equal verdicts together."""
    names: dict[tuple[Any, ...], list[str]] = {}
    for one in verdicts:
        names.setdefault(_values_of(one), []).append(one.node)
    return tuple(
        VerdictGroup(nodes=tuple(nodes), **dict(zip(_VERDICT, values, strict=True))) for values, nodes in names.items()
    )
