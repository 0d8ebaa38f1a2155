"""Counts of waiting pods → samples."""

from collections.abc import Iterable, Iterator

from vgpuscope.catalog import scheduling as m
from vgpuscope.catalog.label_sets import WaitingPodsLabels
from vgpuscope.model.pending import WaitingCount
from vgpuscope.views.exposition.page import Sample


def pending_samples(counts: Iterable[WaitingCount]) -> Iterator[Sample]:
    """The number of waiting pods by namespace and code, and the longest wait."""
    for one in counts:
        row = WaitingPodsLabels(namespace=one.namespace, code=one.code)
        yield Sample(m.PENDING_PODS, row, one.pods)
        yield Sample(m.PENDING_OLDEST, row, one.oldest)
