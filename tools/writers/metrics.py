"""The tables of metrics → docs/metrics-agent.md and its like, one for each service."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tools.writers.families import FAMILY_HELP
from tools.writers.series import series_per
from vgpuscope.catalog.figures import figure_of_metric
from vgpuscope.catalog.limits import SeriesLimit
from vgpuscope.catalog.metric import DEFAULT_FAMILIES, FAMILIES, ExposedName, Metric, Scope
from vgpuscope.views.definitions import POPULATIONS, TIMES

_ALL = frozenset(FAMILY_HELP)


def metrics_page(
    title: str,
    metrics: Sequence[Metric],
    scopes: Mapping[Scope, str],
    *,
    limits: Sequence[SeriesLimit],
    fixed: Sequence[str] = (),
    lifetime: str = "",
) -> str:
    """One page: the metrics of one process, with the families that can be switched or these fixed ones.

    `lifetime`: when series of fixed families end.
    """
    families = [f for f in (fixed or FAMILIES) if any(_rows(f, metrics))]
    tables = (line for f in families for line in _family(f, metrics))
    rest = [*_limits(metrics, limits), *tables]
    if fixed:
        return "\n".join([*_fixed_intro(title, fixed, lifetime), *_fixed_formula(metrics, scopes, fixed), *rest]) + "\n"
    return "\n".join([*_intro(title, families), *_merging(metrics), *_formula(metrics, scopes), *rest]) + "\n"


def _fixed_intro(title: str, families: Sequence[str], lifetime: str) -> Iterator[str]:
    yield f"# {title}"
    yield ""
    yield "<!-- made by `make gen` from src/vgpuscope/catalog; do not edit -->"
    yield ""
    yield (
        f"A value that was not measured has no series: missing is never 0. Empty labels are omitted. {lifetime} The "
        "terms are explained in the [glossary](glossary.md), populations and times with the "
        "[definitions](definitions.md)."
    )
    yield ""
    yield "| family | what |"
    yield "|---|---|"
    for family in families:
        yield f"| `{family}` | {FAMILY_HELP[family]} |"
    yield ""


def _fixed_formula(metrics: Sequence[Metric], scopes: Mapping[Scope, str], families: Sequence[str]) -> Iterator[str]:
    yield "## How many series"
    yield ""
    yield "Maximum, if everything is measured:"
    yield ""
    yield "| per | series |"
    yield "|---|---|"
    for scope, what in scopes.items():
        yield f"| {what} | {series_per(scope, metrics, families)} |"
    yield ""


def _intro(title: str, families: Sequence[str]) -> Iterator[str]:
    yield f"# {title}"
    yield ""
    yield "<!-- made by `make gen` from src/vgpuscope/catalog; do not edit -->"
    yield ""
    yield (
        "A value that was not measured has no series: missing is never 0. Empty labels are omitted. The series of a "
        "container end with the first sample after the container ended. The terms are explained in the "
        "[glossary](glossary.md), populations and times with the [definitions](definitions.md)."
    )
    yield ""
    yield "`--families a,b` (or `all`) selects the families:"
    yield ""
    yield "| family | by default | what |"
    yield "|---|---|---|"
    for family in families:
        yield f"| `{family}` | {'on' if family in DEFAULT_FAMILIES else 'off'} | {FAMILY_HELP[family]} |"
    yield ""


def _merging(metrics: Iterable[Metric]) -> Iterator[str]:
    if any(metric.merge == "sum" for metric in metrics):
        yield (
            "No series appears twice. Some families have fewer labels than `native`. There, two MIG instances of one "
            "container, or two pods of one name on a GPU, are one series, and their amounts are added. The memory of a "
            "GPU instance counts once for all its compute instances. A sum with a part that was not measured has no "
            "series."
        )
        yield ""


def _formula(metrics: Sequence[Metric], scopes: Mapping[Scope, str]) -> Iterator[str]:
    yield "## How many series"
    yield ""
    yield "Maximum, if the GPU supports everything and every name applies:"
    yield ""
    yield "| per | native | default families | all families |"
    yield "|---|---|---|---|"
    for scope, what in scopes.items():
        counts = [series_per(scope, metrics, families) for families in (("native",), DEFAULT_FAMILIES, FAMILIES)]
        yield f"| {what} | {' | '.join(map(str, counts))} |"
    yield ""
    unbounded = [m.name for m in metrics if m.each is None]
    yield (
        "series = Σ (count × the number above), plus one for each distinct reason in "
        + ", ".join(f"`{name}`" for name in unbounded)
        + "."
    )
    yield ""


def _limits(metrics: Iterable[Metric], limits: Sequence[SeriesLimit]) -> Iterator[str]:
    if not limits:
        return
    counter = next(metric.name for metric in metrics if metric.name.endswith("_without_series"))
    yield "## Limits"
    yield ""
    yield (
        "Series exist only for objects that exist; [security](security.md#who-can-write-a-label) says who can write "
        f"which label. Beyond a limit, `{counter}` counts the rest under the reason, and the log names where."
    )
    yield ""
    yield "| at most | of | reason |"
    yield "|---|---|---|"
    for limit in limits:
        yield f"| {limit.most:,} | {limit.what} | {f'`{limit.reason}`' if limit.reason else '–'} |"
    yield ""


def _family(family: str, metrics: Iterable[Metric]) -> Iterator[str]:
    yield f"## `{family}`"
    yield ""
    yield f"{FAMILY_HELP[family][0].upper()}{FAMILY_HELP[family][1:]}."
    yield ""
    native = family == "native"
    yield "| name | type | labels | " + ("unit | " if native else "scale | native name | ") + "counts | time | what |"
    yield "|---|---|---|---|---|---|---|" if native else "|---|---|---|---|---|---|---|---|"
    for metric, exposed in _rows(family, metrics):
        labels = ", ".join(f"`{label}`" for label in _labels(exposed)) or "–"
        if native:
            middle = metric.unit or "–"
        else:
            twin = f"`{metric.name}`" if metric.name != exposed.name else "–"
            middle = f"{_scale(exposed.scale)} | {twin}"
        figure = figure_of_metric(metric)
        counts = POPULATIONS[figure.population][0] or "–"
        time = TIMES[figure.time][0] or "–"
        yield (
            f"| `{exposed.name}` | {exposed.type} | {labels} | {middle} | {counts} | {time} | {_cell(exposed.help)} |"
        )
    yield ""


def _rows(family: str, metrics: Iterable[Metric]) -> Iterator[tuple[Metric, ExposedName]]:
    for metric in metrics:
        for exposed in metric.exposed(_ALL):
            if exposed.family == family:
                yield metric, exposed


def _labels(exposed: ExposedName) -> list[str]:
    fixed = [f'{label}="{value}"' for label, value in exposed.const]
    return [label for label, _ in exposed.labels] + list(exposed.extra) + fixed


def _scale(scale: float) -> str:
    if scale >= 1 or scale == 0:
        return f"× {scale:g}"
    return f"÷ {round(1 / scale):,}".replace(",", " ")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
