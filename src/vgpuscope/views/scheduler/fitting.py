"""The answer to `what if` for a terminal: where a pod would go, or what it lacks and what would make it fit."""

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from vgpuscope.model.decision_answers import FitAnswer
from vgpuscope.model.fit import NodeLack, ReplicaPlace
from vgpuscope.model.placement import NodeVerdict
from vgpuscope.model.scheduling_codes import WITHOUT_GPUS, telling
from vgpuscope.model.words import Language
from vgpuscope.views.languages import one_of
from vgpuscope.views.pairs import line, pairs
from vgpuscope.views.scheduler.why import asked_lines, indented, inner, listed, policy_text
from vgpuscope.views.scheduler.words import IDLE, REMEDIES, many, word
from vgpuscope.views.table import TableColumn, table
from vgpuscope.views.text import UNKNOWN, clean

_PLACES = 10  # replicas that are listed
_LACKS = 5  # nodes that are listed
_PLACE_COLUMNS = (
    TableColumn(("REPLICA", "副本"), right=True),
    TableColumn(("NODE", "节点"), form="name"),
    TableColumn(("SCORE", "得分"), right=True, hide=1),
    TableColumn(("GPUS", "GPU"), form="names", least=40),
)
_LACK_COLUMNS = (
    TableColumn(("NODE", "节点"), form="name"),
    TableColumn(("MISSING", "缺少"), form="text", least=14),
    TableColumn(("VERDICT", "结论"), form="text"),
)


def fit_view(found: FitAnswer, width: int | None, *, title: str = "", language: Language = "en") -> Group:
    """The whole answer."""
    parts: list[RenderableType] = [_headline(found, title, language), pairs(_facts(found, language))]
    if found.places:
        parts += ["", _places(found.places, width, language)]
    if untried(found):
        parts += ["", line(word("untried", language, n=found.replicas - found.fitting))]
    elif found.fitting < found.replicas:
        if found.lacks:
            parts += ["", Text(word("nearest", language), "bold"), _lacks(found, width, language)]
        parts += ["", *help_parts(found, language)]
    return Group(*parts)


def untried(found: FitAnswer) -> bool:
    """Whether the time was over before all replicas were tried: all that were tried fit."""
    return found.cut and not found.nodes


def help_parts(found: FitAnswer, language: Language) -> Iterator[RenderableType]:
    """What would make the pod fit."""
    partly = found.fitting > 0  # the answer is about the first replica that does not fit
    yield Text(word("help_next" if partly else "help", language, n=found.fitting + 1), "bold")
    if found.remedies:
        yield pairs(
            (one_of(REMEDIES[one.kind], language), one_of((one.message, one.message_zh), language))
            for one in found.remedies
        )
    else:
        yield line(word("no_remedy", language))
    if found.cut:
        yield line(word("cut", language))
    if found.idle_state != "ok":
        yield line(clean(one_of(IDLE[found.idle_state], language).format(reason=found.idle_reason)))


def _headline(found: FitAnswer, title: str, language: Language) -> Text:
    name = title or f"{found.namespace}/{found.name or word('pod', language)}"
    if not found.asks:
        said, style = "no_gpu", "green"
    elif found.fitting >= found.replicas:
        said, style = "fits" if found.replicas == 1 else "fits_all", "green"
    elif untried(found):
        said, style = "fits_so_far", "yellow"
    elif found.fitting:
        said, style = "fits_partly", "yellow"
    else:
        said, style = "fits_not", "red"
    count = found.replicas if said == "fits_all" else found.fitting
    text = word(said, language, n=count, all=found.replicas)
    return Text(clean(name), "bold").append(" ").append(text, f"not bold {style}")


def _facts(found: FitAnswer, language: Language) -> Iterator[tuple[str, str]]:
    yield from listed(word("asks", language), asked_lines(found.asks, language))
    yield from listed("", found.constraints)
    if found.policy:
        yield word("policy", language), policy_text(found.policy, language)
    if found.fitting < found.replicas and not untried(found):
        yield from listed(word("verdicts", language), _codes(found.nodes, language) or [word("no_node", language)])


def _codes(nodes: Sequence[NodeVerdict], language: Language) -> list[str]:
    counts = Counter(one.code for one in nodes)
    ranked = sorted(counts.items(), key=lambda item: telling(*item))
    return [
        word("code_on", language, code=code or word("fits_on", language), nodes=many("one_node", count, language))
        for code, count in ranked
    ]


def _places(places: Sequence[ReplicaPlace], width: int | None, language: Language) -> RenderableType:
    rows = [
        (
            Text(str(one.replica + 1)),
            Text(clean(one.node)),
            Text(UNKNOWN if one.score is None else f"{one.score:.2f}"),
            Text(clean(", ".join(f"{gpu.uuid} {gpu.memory} MiB" for gpu in one.gpus))),
        )
        for one in places[:_PLACES]
    ]
    made = indented(table(_PLACE_COLUMNS, rows, inner(width), language))
    rest = len(places) - len(rows)
    return Group(made, line(word("more", language, n=rest))) if rest else made


def _lacks(found: FitAnswer, width: int | None, language: Language) -> RenderableType:
    rows = [
        (
            Text(clean(one.node)),
            Text(_missing(one, language)),
            Text(clean(one_of((one.message, one.message_zh or one.message), language))),
        )
        for one in _nearest(found.lacks)[:_LACKS]
    ]
    made = indented(table(_LACK_COLUMNS, rows, inner(width), language))
    rest = len(found.nodes) - len(rows)
    return Group(made, line(many("more_node", rest, language))) if rest > 0 else made


def _nearest(lacks: Sequence[NodeLack]) -> list[NodeLack]:
    """Nodes that lack memory or cores first; nodes without GPUs only if there are no others."""
    with_gpus = [one for one in lacks if one.code != WITHOUT_GPUS]
    return sorted(with_gpus or lacks, key=lambda one: one.memory is None and one.cores is None)


def _missing(one: NodeLack, language: Language) -> str:
    """How much is missing on the GPU that comes closest, or how many GPUs."""
    amounts = [
        *((word("memory", language, n=one.memory),) if one.memory else ()),
        *((word("lack_cores", language, n=one.cores),) if one.cores else ()),
    ]
    if one.gpus and (one.gpus > 1 or not amounts):
        amounts.append(many("lack_gpu", one.gpus, language))
    return ("、" if language == "zh" else ", ").join(amounts) or UNKNOWN
