"""A back-test for the terminal: both policies side by side, then namespaces and actions of the one that matters."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from vgpuscope.model.backtest import Backtest, Episode, Outcome
from vgpuscope.model.words import Language
from vgpuscope.views.languages import lasting
from vgpuscope.views.reclaim.backtest.api import UNAPPLIED
from vgpuscope.views.reclaim.tables import moment
from vgpuscope.views.reclaim.words import CHINESE_BRAKES, ENDS, named, word
from vgpuscope.views.table import TableColumn, table
from vgpuscope.views.text import clean

_FIGURES = (
    ("f_actions", "actions"),
    ("f_workloads", "workloads"),
    ("f_won", "gpu_hours"),
    ("f_unknown", "unknown_gpu_hours"),
    ("f_alarms", "false_alarms"),
    ("f_later", "busy_later"),
    ("f_ended", "ended"),
    ("f_idle", "still_idle"),
)

_NAMESPACES = (
    TableColumn(("ACTIONS", "操作"), right=True),
    TableColumn(("GPU-H FREED", "节省 GPU 小时"), right=True),
    TableColumn(("UNKNOWN", "未知"), right=True, hide=1),
    TableColumn(("FALSE ALARMS", "误报"), right=True),
    TableColumn(("NAMESPACE", "命名空间"), form="name"),
)
_ACTIONS = (
    TableColumn(("TIME", "时间")),
    TableColumn(("GPUS", "GPU"), right=True, hide=1),
    TableColumn(("GPU-H FREED", "节省 GPU 小时"), right=True),
    TableColumn(("THEN", "之后")),
    TableColumn(("POD", "POD"), form="name"),
)


def backtest_table(found: Backtest, width: int | None, language: Language, *, limit: int) -> Group:
    """What would have been taken back, what that would have won, and which part of the past is known."""
    best = found.proposed or found.current
    parts: list[RenderableType] = [*_changes(found, language), _figures(found, width, language)]
    if best.actions:
        parts += [Text(""), _namespaces(best, width, language), Text(""), *_list(found, best, width, language, limit)]
    else:
        parts.append(Text(word("none", language)))
    return Group(*parts, Text(""), *_notes(found, best, language))


def _changes(found: Backtest, language: Language) -> Iterator[Text]:
    for one in found.changed:
        yield Text(word("changed", language, key=one.key, current=clean(one.current), proposed=clean(one.proposed)))


def _figures(found: Backtest, width: int | None, language: Language) -> RenderableType:
    soon = lasting(found.busy_within, language)
    proposed = [TableColumn(("PROPOSED", "新策略"), right=True)] if found.proposed else []
    columns = (TableColumn(("CURRENT", "当前策略"), right=True), *proposed, TableColumn(("", ""), form="text"))
    rows = [
        [
            Text(_number(getattr(found.current, field)), "bold"),
            *([Text(_number(getattr(found.proposed, field)), "bold")] if found.proposed else []),
            Text(word(name, language, time=soon)),
        ]
        for name, field in _FIGURES
    ]
    return table(columns, rows, width, language)


def _number(value: int | float) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _namespaces(best: Outcome, width: int | None, language: Language) -> RenderableType:
    rows = [
        [
            Text(str(one.actions)),
            Text(_number(one.gpu_hours), "bold"),
            Text(_number(one.unknown_gpu_hours)),
            Text(str(one.false_alarms), "red" if one.false_alarms else ""),
            Text(clean(one.namespace)),
        ]
        for one in best.namespaces
    ]
    return table(_NAMESPACES, rows, width, language)


def _list(
    found: Backtest, best: Outcome, width: int | None, language: Language, limit: int
) -> Iterator[RenderableType]:
    which = word("which_proposed" if found.proposed else "which_current", language)
    yield Text(word("listed", language, which=which))
    yield table(_ACTIONS, [_row(one, language) for one in best.list[:limit]], width, language)
    if best.actions > limit:
        yield Text(word("more", language, n=best.actions - limit, all=best.actions))


def _row(one: Episode, language: Language) -> list[Text]:
    return [
        Text(moment(one.at), "dim"),
        Text(str(len(one.gpu_ids))),
        Text(_number(one.gpu_hours), "bold"),
        Text(ENDS[one.end][language == "zh"], "red" if one.end == "false_alarm" else ""),
        Text(clean(f"{one.namespace}/{one.pod}")),
    ]


def _notes(found: Backtest, best: Outcome, language: Language) -> Iterator[Text]:
    coverage = found.coverage
    yield Text(word("span", language, begin=moment(found.begin), end=moment(found.end)), "dim")
    ratio = f"{100 * coverage.ratio:.0f}%" if coverage.ratio in {0.0, 1.0} else f"{100 * coverage.ratio:.1f}%"
    yield Text(word("known", language, analyses=coverage.analyses, ratio=ratio), "" if coverage.ratio < 0.9 else "dim")
    if not found.complete:
        yield Text(word("cut", language, until=moment(found.replayed_until)), "bold yellow")
    if best.held_back:
        counts = (f"{named(brake, CHINESE_BRAKES, language)} {n}" for brake, n in sorted(best.held_back.items()))
        brakes = ("，" if language == "zh" else ", ").join(counts)
        yield Text(word("brakes", language, brakes=brakes), "dim")
    for code in found.not_applied_codes:
        yield Text(UNAPPLIED[code][language == "zh"], "dim")
