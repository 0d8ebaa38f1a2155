"""Names with their values, and indented lines, as the terminal shows the details of one thing."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vgpuscope.views.text import clean, text_lines


def pairs(rows: Iterable[tuple[str, str]]) -> RenderableType:
    """A name and its value in each row; a long value is folded below itself."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True, width=10)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(name, Sentence(clean(value)))
    return Padding(grid, (0, 0, 0, 2))


def line(text: str) -> RenderableType:
    """One indented line, folded."""
    return Padding(Sentence(text), (0, 0, 0, 2))


class Sentence:
    """A text in as many lines as the width asks for; Chinese is broken between characters."""

    def __init__(self, text: str | Text, style: str = "") -> None:
        self._text = text if isinstance(text, Text) else Text(text, style)

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        for paragraph in self._text.split("\n", allow_blank=True):
            yield text_lines(paragraph, options.max_width)

    def __rich_measure__(self, _: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, min(options.max_width, self._text.cell_len))
