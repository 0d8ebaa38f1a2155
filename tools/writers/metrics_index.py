"""Every metric of every service → docs/metrics.md, the entry to the pages of the single services."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tools.writers.families import FAMILY_HELP
from vgpuscope.catalog.metric import Metric

_ALL = frozenset(FAMILY_HELP)


class ServiceMetrics(NamedTuple):
    """A service, where it serves metrics, and the page that has labels, units, limits and numbers of series."""

    name: str
    port: int
    page: str
    metrics: Sequence[Metric]


def index_page(services: Sequence[ServiceMetrics]) -> str:
    """One page with all names; a name that is not here does not exist."""
    return "\n".join([*_intro(services), *_native(services), *_others(services)]) + "\n"


def _intro(services: Sequence[ServiceMetrics]) -> Iterator[str]:
    yield "# Metrics of all services"
    yield ""
    yield "<!-- made by `make gen` from src/vgpuscope/catalog; do not edit -->"
    yield ""
    yield (
        "Every name that a service exports. The pages of the services add labels, units, limits and the number of "
        "series. The [dashboards](dashboards.md) use native names only, and the names of gpu-oour for what only the "
        "analyzer counts. A value that was not measured has no series: missing is never 0."
    )
    yield ""
    yield "| service | serves `/metrics` on port | details |"
    yield "|---|---|---|"
    for service in services:
        yield f"| {service.name} | {service.port} | [{service.page}]({service.page}) |"
    yield ""
    yield (
        "Scrape with `honor_labels: true`. Otherwise Prometheus renames our `pod`, `namespace` and `container` to "
        "`exported_pod` and so on, and the plain labels are those of the exporter."
    )
    yield ""


def _native(services: Sequence[ServiceMetrics]) -> Iterator[str]:
    for service in services:
        yield f"## {service.name[0].upper()}{service.name[1:]}"
        yield ""
        yield "| name | type | what |"
        yield "|---|---|---|"
        for metric in service.metrics:
            if metric.family == "native":
                own = metric.exposed(frozenset({"native"}))[0]
                yield f"| `{own.name}` | {own.type} | {own.help.replace('|', chr(92) + '|')} |"
        yield ""


def _others(services: Sequence[ServiceMetrics]) -> Iterator[str]:
    yield "## Names from elsewhere"
    yield ""
    yield "The same numbers under the names of HAMi, its handbook, k8s-vgpu-monitor, dcgm-exporter and gpu-oour."
    yield ""
    yield "| name | family | service | native name |"
    yield "|---|---|---|---|"
    yield from sorted({*_aliases(services)}, key=str.lower)


def _aliases(services: Sequence[ServiceMetrics]) -> Iterator[str]:
    for service in services:
        for metric in service.metrics:
            for exposed in metric.exposed(_ALL):
                if exposed.family != "native":
                    native = f"`{metric.name}`" if metric.family == "native" else "–"
                    yield f"| `{exposed.name}` | {exposed.family} | {service.name} | {native} |"
