"""The analyzer's log of results: what changed, or gpu-oour's table; nodes at --v 4, GPUs and scores at --v 5."""

import logging
import time
from collections.abc import Callable, Collection, Sequence
from itertools import islice

from vgpuscope.config.analyzer import LogResults
from vgpuscope.logic.fleet.changes import ResultsSeen, changes, seen
from vgpuscope.model.analysis import Analysis
from vgpuscope.model.quantity import Seconds
from vgpuscope.runtime.log import DETAIL, SUMMARY, fields
from vgpuscope.services.analyzer.cycle import Board
from vgpuscope.views.fleet.log import detail
from vgpuscope.views.fleet.log.changes import analysis_event, change_event
from vgpuscope.views.fleet.log.table import low_lines, table_lines
from vgpuscope.views.fleet.results.results import ResultRow

log = logging.getLogger(__name__)

_MOST = 40  # changes of one analysis that are logged
_COUNTS_EVERY: Seconds = 3600.0  # the counts are logged even if nothing changed


class ResultsLog:
    """Compares each analysis with the one before."""

    def __init__(self, *, clock: Callable[[], Seconds] = time.monotonic) -> None:
        self._clock = clock
        self._before: ResultsSeen | None = None
        self._analyses, self._due = 0, 0.0

    def tell(self, board: Board, *, results: LogResults) -> None:
        """Log an analysis as the setting says, and remember it for the next one."""
        analysis, before = board.analysis, self._before
        assert analysis is not None
        self._before = seen(analysis)
        turned = _turned(before, self._before) if before is not None and results == "changes" else None
        if results == "changes":
            self._tell_changes(board, analysis, before)
        tell_analysis(analysis, only=turned)
        if results == "table":
            active = {gpu.gpu_id for gpu in analysis.gpus if gpu.last_seen is None and not gpu.unreported}
            tell_table(board.rows, threshold=board.threshold, active=len(active), seconds=analysis.seconds)

    def _tell_changes(self, board: Board, analysis: Analysis, before: ResultsSeen | None) -> None:
        found = list(changes(before, analysis)) if before is not None else []
        for change in islice(found, _MOST):
            message, values = change_event(change)
            log.log(logging.WARNING if change.needs_attention else logging.INFO, message, extra=fields(**values))
        if len(found) > _MOST:
            log.info("more changes", extra=fields(more=len(found) - _MOST))
        self._analyses += 1
        if before is None or found or self._clock() >= self._due:
            message, values = analysis_event(analysis, board.stats, analyses=self._analyses, changes=len(found))
            log.info(message, extra=fields(**values))
            self._analyses, self._due = 0, self._clock() + _COUNTS_EVERY


def tell_analysis(analysis: Analysis, *, only: Collection[str] | None = None) -> None:
    """Log the analysis at the configured level of detail; events that would not be logged are not made.

    `only`: the nodes whose counts are logged at --v 4; None: all.
    """
    if not log.isEnabledFor(SUMMARY):
        return
    detailed = log.isEnabledFor(DETAIL)
    for message, values in detail.node_events(analysis, all_nodes=detailed, only=None if detailed else only):
        log.log(SUMMARY, message, extra=fields(**values))
    if detailed:
        for message, values in detail.gpu_events(analysis):
            log.log(DETAIL, message, extra=fields(**values))


def tell_table(rows: Sequence[ResultRow], *, threshold: float, active: int, seconds: Seconds) -> None:
    """Log the table, and a warning about GPUs and tenants below the threshold."""
    for line in table_lines(rows, active=active):
        log.info(line)
    for line in low_lines(rows, threshold=threshold):
        log.warning(line)
    log.info("Analysis completed in %.2fs", seconds)


def _turned(before: ResultsSeen, now: ResultsSeen) -> frozenset[str]:
    """The nodes whose counts of verdicts changed."""
    return frozenset([name for name, counts in now.nodes.items() if before.nodes.get(name) != counts])
