"""Comparisons → the differences of the report, each side with its definition."""

from collections.abc import Mapping

from vgpuscope.catalog.figures import BY_CODE
from vgpuscope.model.consistency import Comparison, Difference, FigurePlace, Reading
from vgpuscope.model.words import Words
from vgpuscope.views.definitions import text_of


def difference(comparison: Comparison, texts: Mapping[str, Words]) -> Difference:
    """Both sides of a contradiction; `texts`: the definitions that the audited system gives."""
    return Difference(
        check=comparison.check,
        subject=comparison.subject,
        first=_place(comparison.first, texts),
        second=_place(comparison.second, texts),
        rule=comparison.rule,
        tolerance=comparison.tolerance,
    )


def _place(reading: Reading, texts: Mapping[str, Words]) -> FigurePlace:
    figure = BY_CODE.get(reading.figure)
    own = text_of(figure) if figure is not None else None
    return FigurePlace(
        surface=reading.surface,
        path=reading.path,
        figure=reading.figure,
        value=reading.value,
        definition=texts.get(reading.figure, own),
    )
