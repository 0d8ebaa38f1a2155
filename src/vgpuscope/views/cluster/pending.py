"""Pods waiting for GPUs: a row for each pod, or the details of one."""

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vgpuscope.model.decision import Code, Reason
from vgpuscope.model.pending import Outcome, PendingList, PendingPod, Said
from vgpuscope.model.quantity import UnixTime
from vgpuscope.views.table import table
from vgpuscope.views.text import UNKNOWN, clean, span

_STYLES: dict[Outcome, str] = {"waiting": "yellow", "scheduled": "green", "failed": "red", "deleted": "dim"}
_NO_CAUSE = "SCHED_NO_NODE_FITS"  # HAMi's summary of reasons that it also reports one by one
_FEW_NODES = 3  # named in a row; the view of one pod names all known nodes


# --- the table --------------------------------------------------------------------------------------------------------


def pending_table(found: PendingList, width: int | None, *, outcomes: bool) -> Table:
    """A row for each pod: how long it waits, for what and why; with `outcomes`, also how the wait ended."""
    titles = (
        "POD",
        *(("OUTCOME",) if outcomes else ()),
        "AGE>",
        "CODE",
        "SCHEDULER",
        "ASKS FOR",
        "ATTEMPTS>",
        "REASON",
    )
    rows = [_cells(pod, found.now, outcomes=outcomes) for pod in found.pending]
    # A narrow terminal keeps names and codes: the code is the reason in one word.
    return table(titles, rows, width, spared=("SCHEDULER", "ATTEMPTS>", "ASKS FOR", "REASON"))


def _cells(pod: PendingPod, now: UnixTime, *, outcomes: bool) -> list[Text]:
    return [
        Text(clean(f"{pod.namespace}/{pod.pod}"), "bold"),
        *([Text(pod.outcome, _STYLES[pod.outcome])] if outcomes else ()),
        Text(_waited(pod, now)),
        Text(clean(pod.code), "" if pod.outcome != "waiting" else "yellow"),
        Text(clean(pod.scheduler)),
        Text(_asks(pod, short=True)),
        Text(str(pod.attempts)),
        Text(_short(pod)),
    ]


def _short(pod: PendingPod) -> str:
    """The main reason in the scheduler's words, the number behind it, and how many more reasons there are."""
    if not pod.said:
        return ""
    more = len(pod.said) - 1 + pod.said_cut
    words = _words(pod.said[0].reason, nodes=_FEW_NODES) + (f"; {more} more" if more else "")
    return f"{words}. {clean(pod.fact)}" if pod.fact else words


def _words(reason: Reason, *, nodes: int) -> str:
    """`2 nodes: CardInsufficientMemory (gpu-1, gpu-2)`."""
    count = "" if reason.node_count is None else f"{_many(reason.node_count, 'node')}: "
    cards = f" on {reason.cards} GPUs" if reason.cards else ""
    names = reason.nodes[:nodes]
    rest = max(len(reason.nodes), reason.node_count or 0) - len(names)
    listed = ", ".join((*names, *((f"and {rest} more",) if rest else ())))
    return clean(f"{count}{reason.detail or reason.code}{cards}{f' ({listed})' if names else ''}")


def _asks(pod: PendingPod, *, short: bool) -> str:
    """`1 gpu, 8000 gpumem`, in the resources' own units."""
    amounts = (f"{amount} {name.rpartition('/')[2] if short else name}" for name, amount in pod.requests.items())
    return clean(", ".join((*amounts, *(f"claim {name}" for name in pod.claims)))) or UNKNOWN


def _waited(pod: PendingPod, now: UnixTime) -> str:
    """How long the pod has waited so far, or had waited when the wait ended."""
    if pod.created is None:
        return UNKNOWN
    return span(max(0.0, (now if pod.ended is None else pod.ended) - pod.created))


# --- details of one pod -----------------------------------------------------------------------------------------------


def pod_view(pod: PendingPod, found: PendingList) -> Group:
    """The pod, its outcome, and each reason: its meaning, the numbers, what to do, and who reported it."""
    parts: list[RenderableType] = [_headline(pod, found.now), _pairs(_identity(pod, found.now))]
    reasons = _reasons(pod)
    for code, said in reasons.items():
        parts += ["", *_reason(code, said, found)]
    if not pod.said and pod.code in found.codes:
        parts += ["", *_reason(pod.code, (), found)]
    if found.advice:
        parts += ["", Text("capacity", "bold"), *(_line(clean(text)) for text in found.advice)]
    history = [one for one in pod.said if not one.current and one.reason.code not in reasons]
    if history:
        parts += ["", Text("reported earlier", "bold"), *(_line(_history(one, found.now)) for one in history)]
    if pod.said_cut:
        parts.append(_line(f"and {pod.said_cut} more, which are not stored"))
    return Group(*parts)


def _reasons(pod: PendingPod) -> dict[str, list[Said]]:
    """All reports by code, for codes that are reported now; the summary only if it is the only one."""
    now = dict.fromkeys(one.reason.code for one in pod.said if one.current)
    telling = [code for code in now if code != _NO_CAUSE] or list(now)
    return {code: [one for one in pod.said if one.reason.code == code] for code in telling}


def _headline(pod: PendingPod, now: UnixTime) -> Text:
    said = {
        "waiting": f"has waited for {_waited(pod, now)}",
        "scheduled": f"was scheduled on {pod.node} {_ago(pod.ended, now)}, after {_waited(pod, now)}",
        "failed": f"failed {f'on {pod.node} ' if pod.node else ''}{_ago(pod.ended, now)}, before it started",
        "deleted": f"was deleted {_ago(pod.ended, now)}, after waiting for {_waited(pod, now)}",
    }[pod.outcome]
    name = Text(clean(f"{pod.namespace}/{pod.pod}"), "bold")
    return name.append(" ").append(clean(said), f"not bold {_STYLES[pod.outcome]}")


def _identity(pod: PendingPod, now: UnixTime) -> Iterator[tuple[str, str]]:
    yield "owner", pod.owner or UNKNOWN
    yield "scheduler", pod.scheduler or UNKNOWN
    yield "asks for", _asks(pod, short=False)
    yield "created", _ago(pod.created, now)
    yield "attempts", f"{pod.attempts} failed" if pod.attempts else "none reported"
    yield "uid", pod.pod_uid


def _reason(code: str, said: Sequence[Said], found: PendingList) -> Iterator[RenderableType]:
    known: Code | None = found.codes.get(code)
    yield Text(clean(code), "bold yellow")
    yield _pairs(_explained(said, known, found.facts.get(code, ()), found.now))


def _explained(
    said: Sequence[Said], known: Code | None, facts: Sequence[str], now: UnixTime
) -> Iterator[tuple[str, str]]:
    if known:
        yield "meaning", known.meaning
    for place, fact in enumerate(facts):
        yield "numbers" if not place else "", fact
    if known:
        yield "what to do", known.runbook
    for one in sorted(said, key=lambda one: not one.current):
        cards = f" on {one.reason.cards} GPUs" if one.reason.cards else ""
        yield "message" if one.current else "earlier", f"{one.reason.detail}{cards}"
        yield "by", _who(one, now)
        if (nodes := _nodes(one.reason)) is not None:
            yield "nodes", nodes


def _who(one: Said, now: UnixTime) -> str:
    who = one.component or UNKNOWN
    if one.count == 1:
        return f"{who}, {_ago(one.last, now)}"
    first = f"first {_ago(one.first, now)}, " if one.first != one.last else ""
    return f"{who}, {one.count} times, {first}last {_ago(one.last, now)}"


def _nodes(reason: Reason) -> str | None:
    """The number of nodes, and the names that are known."""
    count = len(reason.nodes) if reason.node_count is None else reason.node_count
    if not count:
        return None
    rest = count - len(reason.nodes)
    if not reason.nodes:
        return str(count)
    return f"{count}: {', '.join(reason.nodes)}" + (f" and {rest} more" if rest > 0 else "")


def _history(one: Said, now: UnixTime) -> str:
    return clean(f"{one.reason.code}  {_words(one.reason, nodes=_FEW_NODES)}, by {_who(one, now)}")


def _pairs(pairs: Iterable[tuple[str, str]]) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True, width=10)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(name, Text(clean(value)))
    return Padding(grid, (0, 0, 0, 2))


def _line(text: str) -> RenderableType:
    return Padding(Text(text, overflow="fold"), (0, 0, 0, 2))


def _ago(moment: UnixTime | None, now: UnixTime) -> str:
    return "at an unknown time" if moment is None else f"{span(max(0.0, now - moment))} ago"


def _many(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
