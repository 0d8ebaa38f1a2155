"""The analyzer's log: gpu-oour's table, nodes at --v 4, and GPUs, tenants and the terms of their scores at --v 5."""

import logging
from collections.abc import Sequence

from vgpuscope.model.analysis import Analysis
from vgpuscope.model.quantity import Seconds
from vgpuscope.runtime.log import DETAIL, SUMMARY, fields
from vgpuscope.views.fleet.log import detail
from vgpuscope.views.fleet.log.table import low_lines, table_lines
from vgpuscope.views.fleet.results.results import ResultRow

log = logging.getLogger(__name__)


def tell_analysis(analysis: Analysis) -> None:
    """Log the analysis at the configured level of detail; events that would not be logged are not made."""
    if not log.isEnabledFor(SUMMARY):
        return
    detailed = log.isEnabledFor(DETAIL)
    for message, values in detail.node_events(analysis, all_nodes=detailed):
        log.log(SUMMARY, message, extra=fields(**values))
    if detailed:
        for message, values in detail.gpu_events(analysis):
            log.log(DETAIL, message, extra=fields(**values))


def tell_table(rows: Sequence[ResultRow], *, threshold: float, seconds: Seconds) -> None:
    """Log the table, and a warning about GPUs below the threshold."""
    for line in table_lines(rows):
        log.info(line)
    for line in low_lines(rows, threshold=threshold):
        log.warning(line)
    log.info("Analysis completed in %.2fs", seconds)
