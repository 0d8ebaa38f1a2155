"""Pods waiting for GPUs: a row for each pod, or the details of one."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from vgpuscope.knowledge.hami_reasons import HAMI_REASONS
from vgpuscope.model.pending import Outcome, PendingList, PendingPod, Said
from vgpuscope.model.quantity import UnixTime
from vgpuscope.model.scheduling_codes import Reason
from vgpuscope.model.words import Language
from vgpuscope.views.cluster.pending.words import OUTCOMES, word
from vgpuscope.views.languages import lasting, one_of
from vgpuscope.views.names import REASON_NAMES
from vgpuscope.views.pairs import line, pairs
from vgpuscope.views.table import TableColumn, table
from vgpuscope.views.text import UNKNOWN, clean

_STYLES: dict[Outcome, str] = {"waiting": "yellow", "scheduled": "green", "failed": "red", "deleted": "dim"}
_NO_CAUSE = "SCHED_NO_NODE_FITS"  # HAMi's summary of reasons that it also reports one by one
_FEW_NODES = 3  # named in a row; the view of one pod names all known nodes
_COLUMNS = (  # the reason is what the command is for
    TableColumn(("POD", "POD"), form="name"),
    TableColumn(("OUTCOME", "结果")),
    TableColumn(("AGE", "已等待"), right=True, hide=6),
    TableColumn(("CODE", "代码"), hide=5),
    TableColumn(("SCHEDULER", "调度器"), hide=2),
    TableColumn(("ASKS FOR", "申请"), hide=4),
    TableColumn(("ATTEMPTS", "尝试"), right=True, hide=3),
    TableColumn(("REASON", "原因"), form="text", least=36),
    TableColumn(("EVENT", "事件"), form="text", hide=1),
)


# --- the table --------------------------------------------------------------------------------------------------------


def pending_table(
    found: PendingList, width: int | None, *, outcomes: bool, language: Language = "en"
) -> RenderableType:
    """A row for each pod: how long it waits, for what and why; with `outcomes`, also how the wait ended."""
    columns = [column for column in _COLUMNS if outcomes or column.title[0] != "OUTCOME"]
    rows = [_cells(pod, found, language, outcomes=outcomes) for pod in found.pending]
    return table(columns, rows, width, language)


def _cells(pod: PendingPod, found: PendingList, language: Language, *, outcomes: bool) -> list[Text]:
    outcome = Text(one_of(OUTCOMES[pod.outcome], language), _STYLES[pod.outcome])
    return [
        Text(clean(f"{pod.namespace}/{pod.pod}"), "bold"),
        *([outcome] if outcomes else ()),
        Text(_waited(pod, found.now, language)),
        Text(clean(pod.code), "" if pod.outcome != "waiting" else "yellow"),
        Text(clean(pod.scheduler)),
        Text(_asks(pod, language, short=True)),
        Text(str(pod.attempts)),
        Text(_reason_in_short(pod, found, language)),
        Text(_words(pod.said[0].reason, language, nodes=_FEW_NODES) if pod.said else UNKNOWN),
    ]


def _reason_in_short(pod: PendingPod, found: PendingList, language: Language) -> str:
    """What the main code means, the number behind it, for how many nodes, and how many other codes there are.

    Without a number it is the scheduler's message, unless that is one of HAMi's codes, which says no more.
    """
    meaning = _known(pod.code, found, language)[0]
    if not pod.said:
        return meaning
    main = pod.said[0].reason
    fact = (language == "zh" and pod.fact_zh) or pod.fact
    if not fact and main.detail not in HAMI_REASONS:
        fact = main.detail
    sentences = [meaning, clean(fact)] if meaning else [clean(fact or main.detail or main.code)]
    count = len(main.nodes) if main.node_count is None else main.node_count
    if count:
        names = main.nodes[:_FEW_NODES]
        listed = clean(_names(names, count - len(names), language))
        sentences.append(word("named_nodes" if names else "number_of_nodes", language, n=count, nodes=listed))
    if more := len({one.reason.code for one in pod.said if one.current} - {main.code}) + pod.said_cut:
        sentences.append(word("one_more" if more == 1 else "more", language, n=more))
    return ("" if language == "zh" else " ").join(_ended(one, language) for one in sentences if one)


def _ended(sentence: str, language: Language) -> str:
    return sentence if sentence.endswith((".", "。")) else sentence + ("。" if language == "zh" else ".")


def _words(reason: Reason, language: Language, *, nodes: int) -> str:
    """`2 nodes: CardInsufficientMemory (gpu-1, gpu-2)`."""
    what = reason.detail or reason.code
    if reason.cards:
        what = word("on_gpus", language, what=what, gpus=reason.cards)
    if reason.node_count is not None:
        what = word("one_node" if reason.node_count == 1 else "some_nodes", language, n=reason.node_count, what=what)
    names = reason.nodes[:nodes]
    if not names:
        return clean(what)
    rest = max(len(reason.nodes), reason.node_count or 0) - len(names)
    return clean(word("at", language, what=what, nodes=_names(names, rest, language)))


def _names(names: Sequence[str], rest: int, language: Language) -> str:
    listed = ("、" if language == "zh" else ", ").join(names)
    return listed + (word("more_names", language, n=rest) if rest > 0 else "")


def _asks(pod: PendingPod, language: Language, *, short: bool) -> str:
    """`1 gpu, 8000 gpumem`, in the resources' own units."""
    amounts = (f"{amount} {name.rpartition('/')[2] if short else name}" for name, amount in pod.requests.items())
    claims = (word("claim", language, name=name) for name in pod.claims)
    return clean(("，" if language == "zh" else ", ").join((*amounts, *claims))) or UNKNOWN


def _waited(pod: PendingPod, now: UnixTime, language: Language) -> str:
    """How long the pod has waited so far, or had waited when the wait ended."""
    if pod.created is None:
        return UNKNOWN
    return lasting((now if pod.ended is None else pod.ended) - pod.created, language)


# --- details of one pod -----------------------------------------------------------------------------------------------


def pod_view(pod: PendingPod, found: PendingList, language: Language = "en") -> Group:
    """The pod, its outcome, and each reason: its meaning, the numbers, what to do, and who reported it."""
    parts: list[RenderableType] = [_headline(pod, found.now, language), pairs(_identity(pod, found.now, language))]
    reasons = _reasons(pod)
    for code, said in reasons.items():
        parts += ["", *_reason(code, said, pod, found, language)]
    if not pod.said and pod.code in found.codes:
        parts += ["", *_reason(pod.code, (), pod, found, language)]
    advice = (language == "zh" and found.advice_zh) or found.advice
    if advice:
        parts += ["", Text(word("capacity", language), "bold"), *(line(clean(text)) for text in advice)]
    history = [one for one in pod.said if not one.current and one.reason.code not in reasons]
    if history:
        parts += ["", Text(word("reported_earlier", language), "bold")]
        parts += (line(_history(one, found.now, language)) for one in history)
    if pod.said_cut:
        parts.append(line(word("not_stored", language, n=pod.said_cut)))
    return Group(*parts)


def _reasons(pod: PendingPod) -> dict[str, list[Said]]:
    """All reports by code, for codes that are reported now; the summary only if it is the only one."""
    now = dict.fromkeys(one.reason.code for one in pod.said if one.current)
    telling = [code for code in now if code != _NO_CAUSE] or list(now)
    return {code: [one for one in pod.said if one.reason.code == code] for code in telling}


def _headline(pod: PendingPod, now: UnixTime, language: Language) -> Text:
    name = "failed_at" if pod.outcome == "failed" and pod.node else pod.outcome
    ago, time = _ago(pod.ended, now, language), _waited(pod, now, language)
    said = word(name, language, node=pod.node, ago=ago, time=time).strip()
    shown = Text(clean(f"{pod.namespace}/{pod.pod}"), "bold")
    return shown.append(" ").append(clean(said), f"not bold {_STYLES[pod.outcome]}")


def _identity(pod: PendingPod, now: UnixTime, language: Language) -> Iterator[tuple[str, str]]:
    failed = word("some_failed", language, n=pod.attempts) if pod.attempts else word("none_failed", language)
    yield word("owner", language), pod.owner or UNKNOWN
    yield word("scheduler", language), pod.scheduler or UNKNOWN
    yield word("asks", language), _asks(pod, language, short=False)
    yield word("created", language), _ago(pod.created, now, language).strip()
    yield word("attempts", language), failed
    yield word("uid", language), pod.pod_uid


def _reason(
    code: str, said: Sequence[Said], pod: PendingPod, found: PendingList, language: Language
) -> Iterator[RenderableType]:
    yield Text(clean(code), "bold yellow")
    yield pairs(_explained(code, said, pod, found, language))


def _explained(
    code: str, said: Sequence[Said], pod: PendingPod, found: PendingList, language: Language
) -> Iterator[tuple[str, str]]:
    meaning, advice = _known(code, found, language)
    advice = _named(advice, pod, said)
    if meaning:
        yield word("meaning", language), meaning
    facts = (language == "zh" and found.facts_zh.get(code)) or found.facts.get(code, ())
    for place, fact in enumerate(facts):
        yield "" if place else word("numbers", language), fact
    if advice:
        yield word("to_do", language), advice
    for one in sorted(said, key=lambda one: not one.current):
        detail, gpus = one.reason.detail, one.reason.cards
        shown = word("on_gpus", language, what=detail, gpus=gpus) if gpus else detail
        yield word("message" if one.current else "earlier", language), shown
        yield word("by", language), _who(one, found.now, language)
        if (nodes := _nodes(one.reason, language)) is not None:
            yield word("nodes", language), nodes


def _known(code: str, found: PendingList, language: Language) -> tuple[str, str]:
    """What a code means, and what to do about it; English if there is no Chinese, empty for an unknown code."""
    chinese, english = REASON_NAMES.get(code), found.codes.get(code)
    if language == "zh" and chinese:
        return chinese.meaning, chinese.runbook
    return (english.meaning, english.runbook) if english else ("", "")


def _named(advice: str, pod: PendingPod, said: Sequence[Said]) -> str:
    """The advice with the names that it leaves open, as far as they are known."""
    node = next((node for one in said for node in one.reason.nodes), pod.node)
    for place, name in (("NAMESPACE", pod.namespace), ("POD", pod.pod), ("NODE", node)):
        advice = advice.replace(place, name) if name else advice
    return advice


def _who(one: Said, now: UnixTime, language: Language) -> str:
    who, last = one.component or UNKNOWN, _ago(one.last, now, language)
    if one.count == 1:
        return word("once", language, who=who, last=last.strip())
    if one.first == one.last:
        return word("times", language, who=who, n=one.count, last=last)
    return word("times_since", language, who=who, n=one.count, first=_ago(one.first, now, language), last=last)


def _nodes(reason: Reason, language: Language) -> str | None:
    """The number of nodes, and the names that are known."""
    count = len(reason.nodes) if reason.node_count is None else reason.node_count
    if not count:
        return None
    if not reason.nodes:
        return str(count)
    return word("counted", language, n=count, nodes=_names(reason.nodes, count - len(reason.nodes), language))


def _history(one: Said, now: UnixTime, language: Language) -> str:
    what = _words(one.reason, language, nodes=_FEW_NODES)
    return clean(word("history", language, code=one.reason.code, what=what, who=_who(one, now, language)))


def _ago(moment: UnixTime | None, now: UnixTime, language: Language) -> str:
    return word("no_time", language) if moment is None else word("ago", language, time=lasting(now - moment, language))
