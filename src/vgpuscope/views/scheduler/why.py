"""Decisions about one pod for a terminal: what was asked, the choice, and why other nodes were refused."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from vgpuscope.model.decision_answers import (
    AskedGpus,
    CodeVerdicts,
    DecidedNode,
    DecisionBody,
    fitting_nodes,
    verdicts_by_code,
)
from vgpuscope.model.placement import DecidedGpu, DecisionOutcome
from vgpuscope.model.quantity import UnixTime
from vgpuscope.model.scheduling_codes import BY_CODE
from vgpuscope.model.words import Language
from vgpuscope.views.languages import lasting, one_of
from vgpuscope.views.names import REASON_NAMES
from vgpuscope.views.pairs import line, pairs
from vgpuscope.views.scheduler.words import OUTCOMES, ago, many, word
from vgpuscope.views.table import TableColumn, table
from vgpuscope.views.text import UNKNOWN, clean

STYLES: dict[DecisionOutcome, str] = {"assigned": "green", "bound": "green", "refused": "yellow", "failed": "red"}
_INDENT = 2
_MESSAGES = 4  # of one code
_NAMED = 3  # nodes with one message
_QUOTA = "SCHED_QUOTA_EXCEEDED"
_RANKED = 5  # nodes that fitted, too
_EARLIER = 8  # rows
_COLUMNS = (
    TableColumn(("AGE", "距今"), right=True),
    TableColumn(("TIMES", "次数"), right=True, hide=2),
    TableColumn(("OUTCOME", "决定")),
    TableColumn(("NODE", "节点"), form="name"),
    TableColumn(("SCORE", "得分"), right=True, hide=1),
    TableColumn(("MAIN CODE", "主要原因"), form="text", least=30),
)


def why_view(
    decisions: Sequence[DecisionBody],
    now: UnixTime,
    width: int | None,
    *more: RenderableType,
    language: Language = "en",
) -> Group:
    """The last decision in detail, `more` about it, and those before it as a table. The newest comes first.

    A pod is bound after it was assigned: the verdicts are those of the last time that a node was looked for.
    """
    last = decisions[0]
    sought = next((one for one in decisions if one.verb == "filter"), last)
    shown = last if last.outcome == "failed" else sought  # why it could not be bound, not why others were refused
    parts: list[RenderableType] = [_headline(decisions, now, language), pairs(_facts(last, sought, now, language))]
    for found in verdicts_by_code(shown.nodes):
        parts += ["", *_code(found, shown, language)]
    parts += more
    if len(decisions) > 1:
        parts += ["", Text(word("earlier", language), "bold"), _earlier(decisions[1:], now, width, language)]
    return Group(*parts)


def indented(what: RenderableType) -> RenderableType:
    """Below a heading, as facts are."""
    return Padding(what, (0, 0, 0, _INDENT))


def inner(width: int | None) -> int | None:
    """The width that is left for something indented."""
    return None if width is None else max(width - _INDENT, 1)


def _headline(decisions: Sequence[DecisionBody], now: UnixTime, language: Language) -> Text:
    last = decisions[0]
    name: str = last.outcome
    if name == "refused" and last.codes:
        name = "refused_by_all"
    elif name == "failed" and last.verb == "filter":
        name = "undecided"
    elif name == "failed" and last.node:
        name = "failed_at"
    said = word(name, language, node=last.node, ago=ago(now - last.at, language)).strip()
    again = _again(decisions)
    if again > 1:
        said += word("again", language, nth=_ordinal(again), n=again)
    pod = Text(clean(f"{last.namespace}/{last.pod}"), "bold")
    return pod.append(" ").append(clean(said), f"not bold {STYLES[last.outcome]}")


def _again(decisions: Sequence[DecisionBody]) -> int:
    """How often the last outcome was decided in a row."""
    _, same = next(groupby(decisions, key=lambda one: one.outcome))
    return len(list(same))


def _ordinal(number: int) -> str:
    last = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{last}"


# --- facts ------------------------------------------------------------------------------------------------------------


def _facts(last: DecisionBody, sought: DecisionBody, now: UnixTime, language: Language) -> Iterator[tuple[str, str]]:
    yield from listed(word("asks", language), asked_lines(sought.asks, language) or [UNKNOWN])
    yield from listed("", sought.constraints)
    yield from listed(word("gpus", language), [_gpu(one, language) for one in sought.devices or last.devices])
    if sought.score is not None:
        yield word("score", language), _score(sought.score, sought.terms, language)
    if sought.policy:
        yield word("policy", language), policy_text(sought.policy, language)
    others = _others(sought, language) if sought.node else ""
    if others:
        yield word("also", language), others
    yield word("nodes", language), _counts(sought, language)
    took = _duration(sought.seconds)
    yield word("decided", language), word("took", language, ago=ago(now - sought.at, language), time=took).strip()
    yield word("uid", language), last.pod_uid


def listed(name: str, texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """A fact with several lines: its name is beside the first."""
    for place, text in enumerate(texts):
        yield "" if place else name, text


def asked_lines(asks: Iterable[AskedGpus], language: Language) -> list[str]:
    """What each container requests."""
    return [
        word("init" if one.init else "container", language, what=_amount(one, language), name=one.container)
        for one in asks
    ]


def _amount(one: AskedGpus, language: Language) -> str:
    if one.memory is not None:
        memory = word("memory", language, n=one.memory)
    elif one.percentage is not None:
        memory = word("percentage", language, n=one.percentage)
    else:
        memory = word("whole", language)
    cores = word("and_cores", language, n=one.cores) if one.cores else ""
    return word("one_gpu" if one.count == 1 else "some_gpus", language, n=one.count, memory=memory, cores=cores)


def _gpu(one: DecidedGpu, language: Language) -> str:
    name = "gpu_cores" if one.cores else "gpu"
    return word(name, language, uuid=one.uuid, memory=one.memory, cores=one.cores)


def _score(score: float, terms: dict[str, float], language: Language) -> str:
    """HAMi's score of a node with its terms: each is ten times the share that is allocated."""
    parts = " + ".join(f"{word(f'term_{name}', language)} {value:.2f}" for name, value in terms.items())
    return word("of_30", language, score=f"{score:.2f}") + (f" = {parts}" if parts else "")


def policy_text(policy: str, language: Language) -> str:
    """`binpack/spread` in words."""
    node, _, gpu = policy.partition("/")
    return word("policies", language, node=node, gpu=gpu or UNKNOWN)


def _others(decision: DecisionBody, language: Language) -> str:
    """The best nodes that were not chosen, with their scores."""
    ranked = [one for one in fitting_nodes(decision) if one.node != decision.node][:_RANKED]
    shown = ", ".join(f"{one.node} {one.score:.2f}" for one in ranked)
    rest = decision.fitting - 1 - len(ranked)
    if not ranked or rest <= 0:
        return shown
    return shown + word("and_more", language, n=rest if language == "en" else decision.fitting - 1)


def _counts(decision: DecisionBody, language: Language) -> str:
    refused = sum(decision.codes.values())
    if not refused and not decision.fitting:
        return word("no_nodes", language)
    return word("counts", language, refused=refused, fit=decision.fitting)


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.1f} s"


# --- verdicts ---------------------------------------------------------------------------------------------------------


def _code(found: CodeVerdicts, of: DecisionBody, language: Language) -> Iterator[RenderableType]:
    count = of.codes.get(found.code, len(found.nodes))
    yield Text(clean(found.code), "bold yellow").append(f"  {many('one_node', count, language)}", "not bold default")
    meaning, advice = _known(found.code, language)
    rows = [(word("meaning", language), meaning)] if meaning else []
    rows += listed(word("verdict", language), _verdicts(found, count, language))
    if advice and of.outcome in {"refused", "failed"}:
        named = {"NAMESPACE": of.namespace, "POD": of.pod, "NODE": found.nodes[0].node}
        for name, value in named.items():
            advice = advice.replace(name, value)
        rows.append((word("to_do", language), advice))
    yield pairs(rows)


def _known(code: str, language: Language) -> tuple[str, str]:
    """What a code means, and what to do about it; empty: the code is not known here."""
    if language == "zh":
        chinese = REASON_NAMES.get(code)
        return (chinese.meaning, chinese.runbook) if chinese else ("", "")
    known = BY_CODE.get(code)
    return (known.meaning, known.runbook) if known else ("", "")


def _verdicts(found: CodeVerdicts, count: int, language: Language) -> Iterator[str]:
    """The first messages, each with its nodes, and how many nodes are left."""
    by_message: dict[str, list[str]] = {}
    for one in found.nodes:
        by_message.setdefault(message_of(one, language) or one.code, []).append(one.node)
    shown = list(by_message.items())[:_MESSAGES]
    for message, nodes in shown:
        yield word("said", language, nodes=_named(nodes, language), message=message)
    left = count - sum(len(nodes) for _, nodes in shown)
    if left > 0:
        yield many("more_node", left, language)


def message_of(one: DecidedNode, language: Language) -> str:
    """The sentence; in English if there is no Chinese one. That of a quota has no numbers, so they are added."""
    said = one.message_zh if language == "zh" and one.message_zh else one.message
    if one.code != _QUOTA or not one.requested:
        return said
    return word("amounts", language, said=said, requested=one.requested, available=one.available)


def _named(nodes: Sequence[str], language: Language) -> str:
    rest = len(nodes) - _NAMED
    shown = ("、" if language == "zh" else ", ").join(nodes[:_NAMED])
    return shown + (word("and_more", language, n=rest if language == "en" else len(nodes)) if rest > 0 else "")


# --- earlier decisions ------------------------------------------------------------------------------------------------


def _earlier(decisions: Sequence[DecisionBody], now: UnixTime, width: int | None, language: Language) -> RenderableType:
    """Equal decisions in a row are one row: a pod that fits nowhere is refused again and again."""
    runs = [list(same) for _, same in groupby(decisions, key=lambda one: (one.outcome, one.node, _main_code(one)))]
    rows = [_row(run, now, language) for run in runs[:_EARLIER]]
    used = [n for n in range(len(_COLUMNS)) if any(row[n].plain for row in rows)]
    columns, rows = [_COLUMNS[n] for n in used], [tuple(row[n] for n in used) for row in rows]
    made = indented(table(columns, rows, inner(width), language))
    rest = sum(map(len, runs[_EARLIER:]))
    return Group(made, line(word("more", language, n=rest))) if rest else made


def _row(run: Sequence[DecisionBody], now: UnixTime, language: Language) -> tuple[Text, ...]:
    newest = run[0]
    code = _main_code(newest)
    return (
        Text(lasting(now - newest.at, language)),
        Text(str(len(run))),
        Text(one_of(OUTCOMES[newest.outcome], language), STYLES[newest.outcome]),
        Text(clean(newest.node)),
        Text("" if newest.score is None else f"{newest.score:.2f}"),
        Text(clean(_code_at(code, newest.codes.get(code, 0), language))),
    )


def _code_at(code: str, nodes: int, language: Language) -> str:
    return word("code_at", language, code=code, nodes=many("one_node", nodes, language)) if nodes > 1 else code


def _main_code(one: DecisionBody) -> str:
    """The first code of a refusal; "": a node was found."""
    return next(iter(one.codes), "") if one.outcome in {"refused", "failed"} else ""
