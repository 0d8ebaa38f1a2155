"""The extender's API: its decisions, and whether a pod would fit."""

from functools import cache

from vgpuscope.http import docs
from vgpuscope.http.openapi import METRICS, document
from vgpuscope.http.operations import Operation
from vgpuscope.services.extender.decisions_api import DecisionsApi
from vgpuscope.services.extender.fit_api import FitApi

TITLE = "vgpuscope extender"
_ABOUT = "Decides where pods with GPUs run, and explains every decision."


def operations(decisions: DecisionsApi, fit: FitApi, *, protected: bool = False) -> tuple[Operation, ...]:
    """The table of operations. `protected`: the web configuration file requires credentials."""
    own = (*decisions.operations(), *fit.operations())
    made = cache(lambda: document((*own, METRICS), title=TITLE, description=_ABOUT, protected=protected))
    return (*own, *docs.operations(title=TITLE, document=made))
