"""The table of figures: what every number that is shown anywhere counts or measures, of what, and over which time.

A figure is shown in several places: as a field of the API, a tile or column of the console, a column of a command, a
metric. All places of one figure show the same number, perhaps in another unit. Two numbers with one name have one
definition. The text of a definition is made from its codes, in `views/definitions.py`.
"""

from vgpuscope.catalog.figure import Figure, Subject
from vgpuscope.catalog.figures import analysis, cluster, node, page, service
from vgpuscope.catalog.figures.not_figures import NOT_FIGURES, STATES
from vgpuscope.catalog.metric import Metric, Scope

__all__ = ["BY_CODE", "FIGURES", "NOT_FIGURES", "STATES", "figure_of_metric", "figures_of_field"]

FIGURES: tuple[Figure, ...] = (*analysis.FIGURES, *cluster.FIGURES, *node.FIGURES, *service.FIGURES, *page.FIGURES)
BY_CODE: dict[str, Figure] = {figure.code: figure for figure in FIGURES}
_BY_METRIC: dict[str, Figure] = {name: figure for figure in FIGURES for name in figure.metrics}
_BY_FIELD: dict[str, dict[str, Figure]] = {}  # Struct.field → part or key, or "" for the field itself → figure
for _figure in FIGURES:
    for _place in _figure.fields:
        _struct, _, _rest = _place.partition(".")
        _field, _, _part = _rest.replace("[", ".").rstrip("]").partition(".")
        _BY_FIELD.setdefault(f"{_struct}.{_field}", {})[_part] = _figure
# Answers of which a request chooses the fields: the same numbers as in the whole row.
_CHOSEN = {"SomeOfRow": "ResultRow", "SomeOfLow": "LowBody"}
_SUBJECTS: dict[Scope, Subject] = {
    "gpu": "gpu",
    "mig": "gpu",
    "subject": "gpu",
    "device": "gpu",
    "instance": "gpu",
    "offered": "gpu",
    "container": "tenant",
    "tenant": "tenant",
    "gpupod": "tenant",
    "vgpu": "tenant",
    "holding": "tenant",
    "holder": "tenant",
    "opinion": "tenant",
    "host": "tenant",
    "pod": "pod",
    "waiting": "fleet",
    "gpu-of-pod": "gpu_pod",
    "group": "namespace",
    "quota": "quota",
    "node": "node",
    "place": "node",
    "offer": "resource",
    "type": "capacity",
    "cluster": "capacity",
    "finding": "node",
    "source": "source",
    "scheduler": "scheduler",
    "fleet": "service",
    "kind": "service",
    "extender": "service",
    "extender-kind": "service",
    "plugin": "service",
}


def figures_of_field(struct: str, field: str) -> dict[str, Figure]:
    """The figures of a field of the API: "" → the field itself, else by its part or key; empty if it has none."""
    return _BY_FIELD.get(f"{_CHOSEN.get(struct, struct.removeprefix('SomeOf'))}.{field}", {})


def figure_of_metric(metric: Metric) -> Figure:
    """The definition of a metric: the figure that it shows, or, for events and states, one by its type and scope."""
    if found := _BY_METRIC.get(metric.name):
        return found
    events = metric.type != "gauge"
    return Figure(
        code=metric.name,
        subject=_SUBJECTS[metric.scope],
        population="events" if events else "one",
        quantity="count" if events and not metric.unit else "duration" if events else "state",
        time="since_start" if events else "now",
        unit=metric.unit,
        metrics=(metric.name,),
    )
