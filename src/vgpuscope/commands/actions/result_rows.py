"""Rows of results as `results` and `analyze` print them."""

from collections.abc import Sequence

from vgpuscope.commands.arguments import Form
from vgpuscope.model.words import Language
from vgpuscope.terminal.printing import print_csv, print_drawn, print_json, print_line
from vgpuscope.views.fleet.results.results import ResultRow
from vgpuscope.views.fleet.results.table import results_table
from vgpuscope.views.fleet.results.words import word
from vgpuscope.views.fleet.selection import as_csv


def print_results(rows: Sequence[ResultRow], form: Form, language: Language, *, remark: str, wide: bool) -> None:
    """Print them; the remark replaces the sums below the table, or the table if there are no rows."""
    if form == "json":
        print_json(rows)
    elif form == "csv":
        print_csv(as_csv(rows, ResultRow.__struct_fields__))
    elif rows:
        print_drawn(lambda width: results_table(rows, width, language, below=remark), wide=wide)
    else:
        print_line(remark)


def no_gpu(source: str, timestamp: str | None, language: Language = "en") -> str:
    """Why there are no rows."""
    if timestamp is None:
        return word("no_analysis", language)
    return word("no_gpu", language, time=timestamp, source=source or word("its_source", language))
