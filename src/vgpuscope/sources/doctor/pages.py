"""Pages of metrics → the series that doctor looks at."""

from collections.abc import Mapping

from vgpuscope.catalog import agent as m
from vgpuscope.formats.prom.text import PageReader
from vgpuscope.knowledge.gpu_series import DEVICES, LOOKED_AT, UUID_LABELS
from vgpuscope.model.console.facts import SeenSeries
from vgpuscope.model.doctor import SeriesFacts, SeriesValue

_AGENT = frozenset({m.SAMPLE_TIME.name})
MOST_SERIES = 200_000  # of all pages together


def series_of(pages: Mapping[str, bytes], *, origin: str, whole: bool) -> SeriesFacts:
    """The series of some pages, by the address of each. A page has no job, and of the past it knows nothing."""
    found: list[SeriesValue] = []
    for instance, page in pages.items():
        reader: PageReader[SeenSeries] = PageReader(wanted=LOOKED_AT, meaning=SeenSeries)
        for seen, value in reader.read(page):
            found.append(SeriesValue(name=seen.name, labels={**seen.labels, "instance": instance}, value=value))
        if len(found) > MOST_SERIES:
            break
    gpus = len(gpus_of(found))
    return SeriesFacts(now=tuple(found), whole=whole, gpus=gpus, all_gpus=gpus, origin=origin)


def node_of(page: bytes | None) -> str | None:
    """The node of an agent's page; None if it is no agent's."""
    if page is None:
        return None
    reader: PageReader[SeenSeries] = PageReader(wanted=_AGENT, meaning=SeenSeries)
    return next((seen.labels.get("node", "") for seen, _ in reader.read(page)), None)


def gpus_of(series: list[SeriesValue]) -> set[str]:
    """The GPUs that have a utilisation."""
    return {one.labels[name] for one in series if one.name in DEVICES for name in UUID_LABELS if one.labels.get(name)}
