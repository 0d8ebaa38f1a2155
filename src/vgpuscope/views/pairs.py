"""Names with their values, and indented lines, as the terminal shows the details of one thing."""

from collections.abc import Iterable

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vgpuscope.views.text import clean


def pairs(rows: Iterable[tuple[str, str]]) -> RenderableType:
    """A name and its value in each row; a long value is folded below itself."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True, width=10)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(name, Text(clean(value)))
    return Padding(grid, (0, 0, 0, 2))


def line(text: str) -> RenderableType:
    """One indented line, folded."""
    return Padding(Text(text, overflow="fold"), (0, 0, 0, 2))
