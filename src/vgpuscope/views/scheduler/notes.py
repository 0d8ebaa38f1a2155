"""Decisions → the texts of events on pods, as the HAMi handbook shows them.

Successfully assigned ml/train to node-01        0/3 nodes available:
GPU: 1/3, Memory: 4000MB                         node-01: GPU memory insufficient (requested 8000MB, available 4000MB)
Score: 85, Policy: binpack                       node-02: device type mismatch (requested A100, has T4)

GPU x/y: GPUs given, and GPUs of the node. Memory: MiB that the pod holds on all of them together; init containers and
app containers take turns. Score: from 0 to 100, the higher the better. Of HAMi's node score, 10 × (used share of
slots + of cores + of memory), so at most 30, it is the percentage; with the policy spread, where the emptiest node is
the best, it is 100 minus that.
"""

from collections.abc import Iterable, Sequence

from vgpuscope.model.placement import NodeVerdict, Placement
from vgpuscope.model.scheduling_codes import telling

LONGEST = 1024  # bytes of a note that the API server accepts
_MOST_LINES = 10  # nodes or groups that are named
_FULL = 30.0  # HAMi's score of a node that is completely allocated


def shown_score(score: float | None, policy: str) -> int:
    """A node's score from 0 to 100, the higher the better; 0 for a node that was not ranked."""
    if score is None:
        return 0
    percent = min(100.0, max(0.0, 100.0 * score / _FULL))
    return round(100.0 - percent if policy.partition("/")[0] == "spread" else percent)


def priority(score: float | None, policy: str) -> int:
    """The same from 0 to 10, as extenders answer prioritize."""
    return round(shown_score(score, policy) / 10)


def scheduled_note(namespace: str, pod: str, placement: Placement, *, gpus_of_node: int, memory: int | None) -> str:
    """What the event `Scheduled` says; without the memory (MiB) or the score if that is not known."""
    given = len({(one.uuid) for one in placement.gpus})
    note = f"Successfully assigned {namespace}/{pod} to {placement.node}"
    if given:
        note += f"\nGPU: {given}/{gpus_of_node}" + (f", Memory: {memory}MB" if memory is not None else "")
    if placement.score is not None:
        policy = placement.policy.partition("/")[0]
        note += f"\nScore: {shown_score(placement.score, placement.policy)}, Policy: {policy}"
    return note


def refused_note(verdicts: Sequence[NodeVerdict]) -> str:
    """What the event `FailedScheduling` says: one line for each node, or for each group of nodes if there are many."""
    refused = _refused(verdicts)
    head = f"0/{len(verdicts)} nodes available:"
    lines = [f"{one.node}: {_text(one)}" for one in refused]
    if len(lines) > _MOST_LINES or _size("\n".join((head, *lines))) > LONGEST:
        lines = _grouped(refused, by_text=True)
    if len(lines) > _MOST_LINES:
        lines = _grouped(refused, by_text=False)
    return _fitting(head, lines)


def main_verdict(verdicts: Iterable[NodeVerdict]) -> NodeVerdict | None:
    """The refusal that stands for all: of the most telling code, the first node; None: no node was refused."""
    refused = _refused(verdicts)
    if not refused:
        return None
    counts: dict[str, int] = {}
    for one in refused:
        counts[one.code] = counts.get(one.code, 0) + 1
    top = min(counts, key=lambda code: telling(code, counts[code]))
    return next(one for one in refused if one.code == top)


def _refused(verdicts: Iterable[NodeVerdict]) -> list[NodeVerdict]:
    """By name: kube-scheduler sends the nodes in another order each time, and equal refusals have equal texts."""
    return sorted((one for one in verdicts if one.code), key=lambda one: one.node)


def _text(one: NodeVerdict) -> str:
    return one.message or one.reason or one.code


def _grouped(refused: Sequence[NodeVerdict], *, by_text: bool) -> list[str]:
    """A line for each group, the most telling group first."""
    groups: dict[str, list[NodeVerdict]] = {}
    for one in refused:
        groups.setdefault(_text(one) if by_text else one.code, []).append(one)
    ordered = sorted(groups.values(), key=lambda group: (*telling(group[0].code, len(group))[:2], group[0].node))
    return [_line(group, exact=by_text) for group in ordered]


def _line(group: Sequence[NodeVerdict], *, exact: bool) -> str:
    first, text = group[0], _text(group[0])
    if len(group) == 1:
        return f"{first.node}: {text}"
    if not exact:  # the numbers differ, so those of one node are an example
        return f"{len(group)} nodes, such as {first.node}: {text}"
    named = ", ".join(one.node for one in group[:2])
    return f"{named}{f' and {len(group) - 2} more' if len(group) > 2 else ''}: {text}"


def _fitting(head: str, lines: Sequence[str]) -> str:
    """The lines that the API server accepts, at least one of them; the last one counts those that are missing."""
    kept, size = [head], _size(head)
    for number, line in enumerate(lines):
        more = f"and {len(lines) - number} more reasons"
        room = LONGEST - size - len(more) - 2
        shown = line if number else shortened(line, room)
        if number >= _MOST_LINES or _size(shown) > room:
            return "\n".join((*kept, more))
        kept.append(shown)
        size += _size(shown) + 1
    return "\n".join(kept)


def shortened(text: str, most: int = LONGEST) -> str:
    """The beginning of a text that has at most so many bytes as UTF-8, with … at its end if it was cut."""
    if _size(text) <= most:
        return text
    return text.encode()[: most - _size("…")].decode(errors="ignore") + "…"


def _size(text: str) -> int:
    return len(text.encode())
