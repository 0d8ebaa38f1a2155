"""The past as Prometheus has it: every window is read and judged again, by the same code as the window of now."""

from collections.abc import AsyncGenerator, Mapping

from vgpuscope.config import Config
from vgpuscope.model.analysis import Analysis
from vgpuscope.model.errors import SourceDown
from vgpuscope.model.quantity import UnixTime
from vgpuscope.services.analyzer.cycle import AnalysisCycle, Board, ReadingSource


async def past_readings(
    source: ReadingSource, config: Config, *, begin: UnixTime, end: UnixTime
) -> AsyncGenerator[Analysis, None]:
    """An analysis each interval, oldest first. One that fails is left out; if all fail, the last error is raised."""
    at = begin
    cycle = AnalysisCycle(lambda: config, lambda: source, owners=_no_owners, done=_nothing, clock=lambda: at)
    found = False
    try:
        while (at := at + config.scheduler.interval) <= end:
            cycle.trigger()
            await cycle.finished()
            analysis = cycle.last()
            if analysis is not None and analysis.started == at:
                found = True
                yield analysis
    finally:
        await cycle.close()
    if not found:
        raise cycle.tally.last_error or SourceDown("there is no window to read", hint="Ask for a longer --since.")


async def _no_owners() -> Mapping[tuple[str, str], str]:
    return {}


async def _nothing(board: Board) -> None:
    """Nothing follows from a window of the past."""
