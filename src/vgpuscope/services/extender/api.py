"""The extender's API: its decisions, and whether a pod would fit."""

from collections.abc import Callable
from functools import cache

from vgpuscope.http import docs
from vgpuscope.http.openapi import document
from vgpuscope.http.operations import Operation
from vgpuscope.services.extender.decisions_api import DecisionsApi
from vgpuscope.services.extender.fit_api import FitApi
from vgpuscope.services.field_notes import field_notes

TITLE = "vgpuscope extender"
_ABOUT = "Decides where pods with GPUs run, and explains every decision."


def operations(
    decisions: DecisionsApi, fit: FitApi, *, guarded: Callable[[], bool] = lambda: False
) -> tuple[Operation, ...]:
    """The table of operations. `guarded`: whether the web configuration has users or tokens now."""
    own = (*decisions.operations(), *fit.operations())
    made = cache(lambda guarded: document(table, title=TITLE, description=_ABOUT, guarded=guarded, notes=field_notes))
    table = (*own, *docs.operations(title=TITLE, document=lambda: made(guarded())))
    return table
