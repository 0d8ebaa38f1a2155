"""A table for a terminal of any width: less important columns are dropped before any text is cut."""

from collections.abc import Callable, Sequence
from typing import Literal

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

_GAP = 2  # cells between two columns
_LEAST_LAST = 22  # cells for the last column, which has the longest texts


def table(
    titles: Sequence[str],
    rows: Sequence[Sequence[Text]],
    width: int | None,
    *,
    spared: Sequence[str],
    fold: Callable[[Text, int], Text] | None = None,
) -> Table:
    """Columns by title; a title with `>` is aligned right. The last column is folded, by `fold` to its width if given.

    If the last column gets too narrow, the columns in `spared` are dropped, one after the other.
    """
    widths = [max(map(cell_len, (title, *(row[n].plain for row in rows)))) for n, title in enumerate(titles)]
    shown = list(range(len(titles)))
    for title in spared:
        last = min(widths[shown[-1]], _LEAST_LAST)
        if width is None or sum(widths[n] + _GAP for n in shown[:-1]) + last <= width:
            break
        shown.remove(titles.index(title))
    made = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
    for n in shown:
        justify: Literal["left", "right"] = "right" if titles[n].endswith(">") else "left"
        made.add_column(titles[n].rstrip(">"), justify=justify, no_wrap=n != shown[-1], overflow="fold")
    room = 0 if width is None else width - sum(widths[n] + _GAP for n in shown[:-1])
    for row in rows:
        *cells, rest = (row[n] for n in shown)
        made.add_row(*cells, fold(rest, room) if fold and 0 < room < cell_len(rest.plain) else rest)
    return made
