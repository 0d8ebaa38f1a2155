"""The audit on a terminal: what each check compared, then each contradiction with both numbers and definitions."""

import re
from collections.abc import Iterator
from itertools import groupby

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vgpuscope.model.consistency import AuditReport, CheckCount, Difference, FigurePlace
from vgpuscope.model.words import Language
from vgpuscope.views.audit import words
from vgpuscope.views.languages import one_of
from vgpuscope.views.pairs import Sentence
from vgpuscope.views.text import clean, fit

_CODE_WIDTH = max(map(cell_len, words.RULES)) + 1
_SHOWN = 3  # differences of one kind
_ROW = re.compile(r"\[\d+\]|\{.*\}|=[^&\]]*")


def drawn(report: AuditReport, language: Language) -> RenderableType:
    """The whole report, in one language."""
    return Group(*_parts(report, language))


def _parts(report: AuditReport, lang: Language) -> Iterator[RenderableType]:
    compared = sum(check.compared for check in report.checks)
    head = one_of(words.HEAD, lang).format(
        compared=compared, seconds=f"{report.seconds:.1f}", differences=len(report.differences)
    )
    yield Text(head, "bold")
    yield Text()
    for service in report.asked:
        line = Text("✓ " if service.answered else "✗ ", "green" if service.answered else "bold red")
        line.append(f"{service.service}  {clean(service.url)}  ")
        line.append(one_of(words.ANSWERED if service.answered else words.SILENT, lang), "dim")
        yield line
        if service.message:
            yield Padding(Text(clean(service.message), "dim"), (0, 0, 0, 4))
    yield Text()
    yield _table(report.checks, lang)
    if report.unread:
        yield Text()
        yield Text(one_of(words.UNREAD, lang), "bold")
        for unread in report.unread:
            why = one_of(words.REASONS["no-time"], lang) if unread.why == "no-time" else clean(unread.why)
            yield Padding(Text(f"{clean(unread.what)}: {why}", "dim"), (0, 0, 0, 2))
    if report.uncompared:
        yield Text()
        yield Text(one_of(words.UNCOMPARED, lang), "bold")
        for left in report.uncompared:
            first, *others = left.surfaces
            more = f" {one_of(words.AND_MORE, lang).format(number=len(others))}" if others else ""
            why = one_of(words.REASONS[left.why], lang)
            yield Padding(Text(f"{left.check}: {clean(first)}{more}: {why}", "dim"), (0, 0, 0, 2))
    yield Text()
    if not compared:
        yield Text(one_of(words.UNCHECKED, lang), "bold")
    elif report.undecided:
        yield Text(one_of(words.UNDECIDED, lang).format(number=report.undecided), "bold yellow")
    elif not report.differences:
        yield Text(one_of(words.NOTHING, lang), "green")
    if report.differences:
        yield Text(one_of(words.READ_AGAIN, lang).format(rounds=report.rounds), "dim")
    for _, alike in groupby(sorted(report.differences, key=_kind), key=_kind):
        some = list(alike)
        for one in some[:_SHOWN]:
            yield Text()
            yield from _difference(one, lang)
        if len(some) > _SHOWN:
            yield Padding(Text(one_of(words.MORE, lang).format(number=len(some) - _SHOWN), "dim"), (0, 0, 0, 2))


def _table(checks: tuple[CheckCount, ...], lang: Language) -> Table:
    made = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for number, title in enumerate(words.TITLES):
        made.add_column(
            one_of(title, lang), justify="right" if number in {2, 3} else "left", no_wrap=number < 4, overflow="fold"
        )
    for check in checks:
        mark, style = ("–", "dim") if not check.compared else ("✗", "bold red") if check.differences else ("✓", "green")
        rule = Text(one_of(words.RULES[check.code], lang))
        if check.reason is not None:
            reason = one_of(words.REASONS[check.reason], lang)
            rule.append("\n" + one_of(words.NOT_CHECKED, lang).format(reason=reason), "yellow")
        if check.skipped:
            moved = one_of(words.MOVED, lang).format(number=check.skipped, reason=one_of(words.REASONS["moving"], lang))
            rule.append(f"\n{moved}", "dim")
        made.add_row(
            Text(mark, style),
            Text(fit(check.code, _CODE_WIDTH)),
            Text(str(check.compared) if check.compared else "–"),
            Text(str(check.differences) if check.compared else "–", style if check.differences else ""),
            Sentence(rule),
        )
    return made


def _difference(one: Difference, lang: Language) -> Iterator[RenderableType]:
    title = Text("✗ ", "bold red").append(one.check, "bold")
    if one.subject:
        title.append(f"  {clean(one.subject)}")
    yield title
    yield from _side(one.first, lang)
    yield Padding(Text(one_of(words.JOINED[one.rule], lang), "dim"), (0, 0, 0, 2))
    yield from _side(one.second, lang)


def _side(place: FigurePlace, lang: Language) -> Iterator[RenderableType]:
    line = Text(_number(place.value), "bold").append(f"  {clean(place.surface)}  ").append(clean(place.path), "cyan")
    yield Padding(line, (0, 0, 0, 4))
    if place.definition is not None:
        text = place.definition.zh if lang == "zh" else place.definition.en
        yield Padding(
            Text(f"{place.figure}: {text}" if lang == "en" else f"{place.figure}：{text}", "dim"), (0, 0, 0, 6)
        )


def _kind(one: Difference) -> tuple[str, ...]:
    """What kind of contradiction it is, without its rows and names."""
    places = (one.first.surface, one.first.path, one.second.surface, one.second.path)
    return (one.check, one.first.figure, *(_ROW.sub("", place) for place in places))


def _number(value: float) -> str:
    """All digits that matter, and separators in large numbers."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.4f}".rstrip("0").rstrip(".")
