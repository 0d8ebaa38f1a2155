"""Messages of schedulers about a waiting pod → codes, with the nodes and GPUs they were reported for.

The messages have few shapes. kube-scheduler, Volcano and vgpu-manager write a header and then counted phrases; phrases
of a scheduler extender are among them. The result of preemption follows after the first full stop; it is not a reason:

    0/6 nodes are available: 1 node unregistered, 2 2/2 CardInsufficientMemory, 3 Insufficient cpu. preemption: …
    0/9 nodes are available: 2 Insufficient vGPU memory (node-a,node-b and 5 more).

HAMi's events have one phrase each. If a node has several reasons, they are joined by commas under one count:

    3 nodes CardInsufficientMemory(node-a,node-b,node-c)
    1 1/3 AllocatedCardsInsufficientRequest, 1/3 CardCordoned, 1/3 CardNotHealth

Other schedulers write one line for each node (`node-a: …`, `<node-a>: …`), or one sentence. Text of an unknown shape
that matches no table is kept, shortened, under SCHED_OTHER.
"""

import re
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from vgpuscope.formats.scheduler_messages.phrases import code_of
from vgpuscope.model.scheduling_codes import Reason

OTHER = "SCHED_OTHER"

# Limits. The API server accepts conditions of up to 32 KiB and events of 1 KiB; HAMi's old-style events have no limit.
_TEXT, _LINES, _PHRASES, _REASONS, _NODES, _DETAIL = 65536, 4096, 512, 64, 64, 160


def reasons(component: str, reason: str, message: str) -> tuple[Reason, ...]:
    """The reasons in an event for why a pod is waiting; () if the event has no such reason."""
    kind = _EVENTS.get(reason) or _kind_by_look(component, reason)
    return _read(kind, message or reason) if kind else ()


def condition_reasons(reason: str, message: str) -> tuple[Reason, ...]:
    """The reasons in the condition PodScheduled=False; () if it has neither a reason nor a message."""
    return _read(_GATED if reason == "SchedulingGated" else _VERDICT, message or reason) if reason or message else ()


def success(component: str, reason: str) -> Literal["filter", "bind"] | None:  # noqa: ARG001 - the same words for all
    """The stage that the event reports as successful, if any."""
    return _SUCCESS.get(reason)


# --- kinds of events --------------------------------------------------------------------------------------------------


class _Kind(Struct, frozen=True):
    """How an event's text is read: the code if no phrase is known, and the codes to look for (None: all)."""

    otherwise: str
    only: frozenset[str] | None = None


_VERDICT = _Kind(OTHER)
_GATED = _Kind("SCHED_GATED", frozenset())
_BIND = _Kind("SCHED_BIND_FAILED", frozenset({"SCHED_NODE_LOCKED", "SCHED_VOLUME", "SCHED_NO_EXTENDER"}))
_ALLOCATE = _Kind("SCHED_ALLOCATE_FAILED", frozenset())
_CREATE = _Kind(OTHER, frozenset({"SCHED_QUOTA_EXCEEDED", "SCHED_ADMISSION_DENIED"}))

_EVENTS: dict[str, _Kind] = {
    "FailedScheduling": _VERDICT,  # kube-scheduler, Volcano
    "FilteringFailed": _VERDICT,  # HAMi, vgpu-manager
    "Unschedulable": _VERDICT,  # KAI; Volcano, about a pod group
    "NotEnoughResources": _VERDICT,
    "PodGrouperWarning": _Kind(OTHER, frozenset()),  # KAI, about a pod that it cannot group
    "SchedulingGated": _GATED,
    "ResourceInvalid": _Kind("SCHED_REQUEST_INVALID", frozenset()),  # vgpu-manager
    "BindingFailed": _BIND,
    "FailedBinding": _BIND,
    "BindingError": _BIND,  # KAI's binder
    "UnexpectedAdmissionError": _ALLOCATE,  # kubelet, also the next two
    "FailedPrepareDynamicResources": _ALLOCATE,
    "TopologyAffinityError": _Kind("SCHED_NUMA_MISMATCH", frozenset()),
    "FailedCreate": _CREATE,  # about the pod's owner
}
_SUCCESS: dict[str, Literal["filter", "bind"]] = {
    "FilteringSucceed": "filter",
    "BindingSucceed": "bind",
    "Scheduled": "bind",
    "Bound": "bind",  # KAI's binder
}


def _kind_by_look(component: str, reason: str) -> _Kind | None:
    if reason.startswith("OutOf"):  # the kubelet: OutOfcpu, OutOfnvidia.com/gpu
        return _ALLOCATE
    return _VERDICT if reason == "Pending" and component.startswith("kueue") else None


# --- from a text to phrases -------------------------------------------------------------------------------------------


class _Phrase(Struct):
    """One reason in the scheduler's words."""

    text: str
    count: int | None = None
    node: str = ""


_HEADER = re.compile(
    r"[0-9]{1,9}/(?P<total>[0-9]{1,9}) nodes (?:are )?(?:un)?available|all nodes are unavailable"
    r"|(?P<kai>no nodes with enough resources were found|not enough resources for the workload"
    r"|unable to schedule pod\w*)",
    re.IGNORECASE,
)
_COUNTED = re.compile(r"([0-9]{1,9}) (?:nodes (?=[A-Z]))?(.+)", re.DOTALL)
_GPUS = re.compile(r"([0-9]{1,6}/[0-9]{1,6}) (.+)", re.DOTALL)
_NODE_LINE = re.compile(r"\s*(?P<quote><?)(?P<node>[a-z0-9][a-z0-9.-]{0,252})>?:\s(?P<rest>.+)")
_MARKS = re.compile(r"[][(){}]|, |\. ")
_BEGINS = re.compile(r"node[ (]|insufficient |not enough ", re.IGNORECASE)


def _read(kind: _Kind, message: str) -> tuple[Reason, ...]:
    if kind.only is not None:
        code = code_of(message)
        return (_free(message, code if code in kind.only else kind.otherwise),)
    text = message[:_TEXT]
    preemption = text.find("preemption:")  # not a reason, but it has counted phrases too
    if preemption > 0:
        text = text[:preemption]
    headers = list(_HEADER.finditer(text))
    return _merged(_all(text, headers)) or (_free(message, kind.otherwise),)


def _all(text: str, headers: list[re.Match[str]]) -> Iterator[Reason]:
    """All reasons, counted phrases first: the text before them is more general."""
    if not headers and _COUNTED.match(text):
        yield from map(_reason, _segment(text, total=None, whole=True))
        return
    lead = text[: headers[0].start()] if headers else text
    nodes = [line for line in lead.split("\n", _LINES)[:_LINES] if line.startswith("<")]
    said = [*_segment("\n".join(nodes), total=None, whole=True), *_behind(text, headers)]
    if headers and not said:
        last = headers[-1]
        said = [_Phrase(last[0].partition(" ")[2], int(last["total"])) if last["total"] else _Phrase(last[0])]
    yield from map(_reason, said)
    if not nodes and (code := code_of(lead)):
        yield _free(lead, code)


def _behind(text: str, headers: list[re.Match[str]]) -> Iterator[_Phrase]:
    ends = [*(header.start() for header in headers[1:]), len(text)]
    for header, end in zip(headers, ends, strict=False):  # without headers, `ends` still has an item
        total = int(header["total"]) if header["total"] else None
        yield from _segment(text[header.end() : end].lstrip(":. "), total=total, whole=header["kai"] is not None)


def _segment(text: str, *, total: int | None, whole: bool) -> Iterator[_Phrase]:
    """The phrases after one header; `total` is used for phrases without a count of their own."""
    for number, line in enumerate(text.split("\n", _LINES)[:_LINES]):
        named = _NODE_LINE.match(line)
        if named and (number or named["quote"]):
            for phrase in _line(named["rest"], whole=True):
                yield _Phrase(phrase.text, 1, named["node"])
        else:
            for phrase in _line(line, whole=whole):
                yield _Phrase(phrase.text, total if phrase.count is None else phrase.count)


def _line(line: str, *, whole: bool) -> Iterator[_Phrase]:
    """The counted phrases of a line; a piece without a count continues the phrase before it, or shares its count."""
    last: _Phrase | None = None
    for piece in _pieces(line, whole=whole):
        counted = _COUNTED.match(piece)
        if counted:
            begins = _Phrase(counted[2], int(counted[1]))
        elif last is None or _GPUS.match(piece) or _BEGINS.match(piece):
            begins = _Phrase(piece, last.count if last else None)
        else:
            if len(last.text) < _DETAIL:
                last.text += f", {piece}"
            continue
        if last:
            yield last
        last = begins
    if last:
        yield last


def _pieces(line: str, *, whole: bool) -> Iterator[str]:
    """The parts between commas outside brackets; up to the first full stop, unless `whole` is set."""
    depth = begin = made = 0
    end = len(line)
    for mark in _MARKS.finditer(line):
        sign = mark[0]
        if sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth = max(0, depth - 1)
        elif depth == 0 and sign == ", " and made < _PHRASES:
            yield from _stripped(line[begin : mark.start()])
            begin, made = mark.end(), made + 1
        elif depth == 0 and sign == ". " and not whole:
            end = mark.start()
            break
    yield from _stripped(line[begin:end])


def _stripped(piece: str) -> Iterator[str]:
    if text := piece.strip().rstrip(". "):
        yield text


# --- from a phrase to a reason ----------------------------------------------------------------------------------------

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_LOCKED = re.compile(r"node (\S{1,253}) has been locked")
_UNMET = re.compile(r"([0-9]{1,9}) nodes do not meet")


def _reason(phrase: _Phrase) -> Reason:
    gpus = _GPUS.match(phrase.text)
    text, names = _without_names(gpus[2] if gpus else phrase.text)
    return Reason(
        code=code_of(text) or OTHER,
        nodes=(phrase.node,) if phrase.node else names,
        node_count=len(names) or None if phrase.count is None else phrase.count,
        cards=gpus[1] if gpus else "",
        detail=_detail(text),
    )


def _free(text: str, code: str) -> Reason:
    """A whole sentence as one reason, with the nodes it names or counts."""
    start = text[:1024]
    locked, unmet = _LOCKED.search(start), _UNMET.search(start)
    nodes = (locked[1],) if locked and _NAME.fullmatch(locked[1]) else ()
    count = int(unmet[1]) if unmet else len(nodes) or None
    return Reason(code=code, nodes=nodes, node_count=count, detail=_detail(text))


def _without_names(text: str) -> tuple[str, tuple[str, ...]]:
    """The phrase, and the node names in parentheses after it, if there are any."""
    phrase, bracket, inside = text.rpartition("(")
    whole = text.endswith(")") or len(text) > 4096  # the end of such a long text may be cut off
    names = [name.partition(" and ")[0] for name in inside.removesuffix(")").split(",", _NODES)[:_NODES]]
    if not (bracket and whole and all(map(_NAME.fullmatch, names))) or names == ["s"]:  # node(s)
        return text, ()
    return phrase.rstrip(), tuple(names)


def _detail(text: str) -> str:
    seen = "".join(sign if sign.isprintable() else " " for sign in text[: 4 * _DETAIL])
    return " ".join(seen.split())[:_DETAIL].rstrip(". ")


# --- each reason once -------------------------------------------------------------------------------------------------


class _Group(Struct):
    """A reason that occurs more than once: its first form, and the nodes of all of them."""

    first: Reason
    nodes: dict[str, None]
    count: int | None

    def add(self, one: Reason) -> None:
        more = any(name not in self.nodes for name in one.nodes)
        counts = [count for count in (self.count, one.node_count) if count is not None]
        self.count = (sum(counts) if more else max(counts)) if counts else None
        if len(self.nodes) < _NODES:
            self.nodes.update(dict.fromkeys(one.nodes))

    def reason(self) -> Reason:
        one = self.first
        nodes = tuple(self.nodes)[:_NODES]
        return Reason(code=one.code, nodes=nodes, node_count=self.count, cards=one.cards, detail=one.detail)


def _merged(found: Iterator[Reason]) -> tuple[Reason, ...]:
    """Merges equal reasons; a reason for named nodes is one for all of them, even if the amounts differ."""
    groups: dict[tuple[str, str, str | None], _Group] = {}
    for one in found:
        key = (one.code, one.cards, None if one.nodes else one.detail)
        if key in groups:
            groups[key].add(one)
        elif len(groups) < _REASONS:
            groups[key] = _Group(one, dict.fromkeys(one.nodes), one.node_count)
    return tuple(group.reason() for group in groups.values())
