"""The analyzer's log beside its table: nodes at --v 4, GPUs, tenants and the terms of their scores at --v 5."""

import logging

from vgpuscope.model.analysis import Analysis
from vgpuscope.runtime.log import DETAIL, SUMMARY, fields
from vgpuscope.views.fleet import log_detail

log = logging.getLogger(__name__)


def tell_analysis(analysis: Analysis) -> None:
    """Log the analysis at the configured level of detail; events that would not be logged are not made."""
    if not log.isEnabledFor(SUMMARY):
        return
    detailed = log.isEnabledFor(DETAIL)
    for message, values in log_detail.node_events(analysis, all_nodes=detailed):
        log.log(SUMMARY, message, extra=fields(**values))
    if detailed:
        for message, values in log_detail.gpu_events(analysis):
            log.log(DETAIL, message, extra=fields(**values))
