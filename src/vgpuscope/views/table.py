"""A table for a terminal of any width, from one table of its columns.

If the terminal is too narrow, long texts get narrower first, and then columns are hidden: those that matter least for
what the command promises go first. One line below the table says what is hidden, and which switch shows it.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vgpuscope.model.words import Language
from vgpuscope.views.languages import Pair, one_of
from vgpuscope.views.text import CUT, name_lines, text_lines, uncut_room

_GAP = 2  # cells between two columns
_LEAST = 12  # cells of a long text when nothing is left to hide

Form: TypeAlias = Literal["whole", "name", "names", "text"]


class TableColumn(NamedTuple):
    """One column, and what becomes of it on a narrow terminal."""

    title: Pair
    hide: int = 0  # 1 is hidden first, then 2, …; 0: never
    right: bool = False
    form: Form = "whole"  # whole: never cut; name(s): as `name_lines` says; text: as `text_lines` says
    least: int = 22  # cells that a long text keeps before a column is hidden for it


def table(
    columns: Sequence[TableColumn], rows: Sequence[Sequence[Text]], width: int | None, language: Language = "en"
) -> RenderableType:
    """The rows, and below them what is hidden. No width: nothing is."""
    titles = [one_of(column.title, language) for column in columns]
    natural = _natural(titles, rows)
    least = [
        size if column.form == "whole" else min(size, max(column.least, cell_len(title)))
        for column, title, size in zip(columns, titles, natural, strict=True)
    ]
    shown = _shown(columns, least, width)
    uncut = [
        min(natural[n], max((uncut_room(row[n].plain) for row in rows), default=0)) if columns[n].form == "name" else 0
        for n in range(len(columns))
    ]
    widths = natural if width is None else _widths(columns, shown, (least, uncut, natural), width)
    drawn = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
    for n in shown:
        justify: Literal["left", "right"] = "right" if columns[n].right else "left"
        no_wrap = widths[n] >= natural[n]
        drawn.add_column(titles[n], justify=justify, width=widths[n], no_wrap=no_wrap, overflow="fold")
    cuts = 0
    for row in rows:
        cells = [_cell(row[n], columns[n].form, widths[n]) for n in shown]
        cuts += sum(cell.plain.count(CUT) - row[n].plain.count(CUT) for n, cell in zip(shown, cells, strict=True))
        drawn.add_row(*cells)
    hidden = [title for n, title in enumerate(titles) if n not in shown]
    if not hidden and not cuts:
        return drawn
    return Group(drawn, Text(hidden_line(hidden, width, language, shortened=cuts > 0), "dim"))


def fits(columns: Sequence[TableColumn], rows: Sequence[Sequence[Text]], width: int, language: Language = "en") -> bool:
    """Whether nothing has to be cut, wrapped or hidden in this width."""
    natural = _natural([one_of(column.title, language) for column in columns], rows)
    return _total(range(len(columns)), natural) <= width


def _natural(titles: Sequence[str], rows: Sequence[Sequence[Text]]) -> list[int]:
    return [max(cell_len(title), *(cell_len(row[n].plain) for row in rows), 0) for n, title in enumerate(titles)]


def _cell(cell: Text, form: Form, width: int) -> Text:
    if form == "text":
        return text_lines(cell, width)
    return cell if form == "whole" else name_lines(cell, width, several=form == "names")


def _shown(columns: Sequence[TableColumn], least: Sequence[int], width: int | None) -> list[int]:
    """The columns that have room."""
    shown = list(range(len(columns)))
    for n in sorted((n for n in shown if columns[n].hide), key=lambda n: columns[n].hide):
        if width is None or _total(shown, least) <= width:
            break
        shown.remove(n)
    return shown


def _widths(
    columns: Sequence[TableColumn], shown: Sequence[int], steps: tuple[Sequence[int], ...], width: int
) -> list[int]:
    """What each column gets: the least, then names as much as they need to lose nothing, then all what they would like.

    In each step the narrowest grows first. Where not even the least fits, the widest shrinks.
    """
    least, *wishes = steps
    widths = list(least)
    long = [n for n in shown if columns[n].form != "whole"]
    for shrinking in (long, shown):
        while _total(shown, widths) > width and (wide := [n for n in shrinking if widths[n] > _LEAST]):
            widths[max(wide, key=widths.__getitem__)] -= 1
    for wish in wishes:
        while _total(shown, widths) < width and (growing := [n for n in long if widths[n] < wish[n]]):
            widths[min(growing, key=widths.__getitem__)] += 1
    return widths


def _total(shown: Sequence[int], widths: Sequence[int]) -> int:
    return sum(widths[n] for n in shown) + _GAP * (len(shown) - 1)


WIDE: Pair = ("--wide shows all", "--wide 显示全部")
WIDEN: Pair = ("a wider terminal shows all", "加宽终端可显示全部")


def hidden_line(
    hidden: Sequence[str], width: int | None, language: Language, *, shortened: bool = False, how: Pair = WIDE
) -> str:
    """What is hidden, in one line with the switch that shows it; with the titles of the columns if there is room."""
    comma = "、" if language == "zh" else ", "
    count = one_of(_HIDDEN[len(hidden) > 1], language).format(n=len(hidden))
    titles = one_of(_TITLES, language).format(titles=comma.join(hidden))
    cut = one_of(_SHORTENED, language)
    for parts in ([count + titles, cut], [count + titles, ""], [count, cut]):
        what = comma.join(part for part, said in zip(parts, (hidden, shortened), strict=True) if said and part)
        line = one_of(_ALL, language).format(what=what, how=one_of(how, language))
        if width is None or cell_len(line) <= width:
            break
    return line


_HIDDEN = (("1 column hidden", "隐藏了 1 列"), ("{n} columns hidden", "隐藏了 {n} 列"))
_SHORTENED = ("names shortened", "名称已缩短")
_TITLES = (" ({titles})", "（{titles}）")
_ALL = ("{what}; {how}", "{what}；{how}")
