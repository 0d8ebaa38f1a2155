"""The board with the opinions of a language model on its rows, made once for each change of either."""

import asyncio

from msgspec.structs import replace

from vgpuscope.model.opinion import OpinionsShown
from vgpuscope.services.analyzer.cycle import AnalysisCycle, Board
from vgpuscope.services.analyzer.opinion.opinions import Opinions
from vgpuscope.views.fleet.results.results import with_opinions


class OpinionBoard:
    """Keeps the last board that was made."""

    def __init__(self, cycle: AnalysisCycle, opinions: Opinions) -> None:
        self._cycle, self._opinions = cycle, opinions
        self._kept: tuple[Board, OpinionsShown, Board] | None = None  # made from both, made

    async def board(self) -> Board:
        board, shown = await self._cycle.board(), self._opinions.shown
        if not shown.parts:
            return board
        if self._kept is None or self._kept[0] is not board or self._kept[1] is not shown:
            version = (self._opinions.changes, shown.language)
            rows = await asyncio.to_thread(with_opinions, board.rows, shown)
            self._kept = (board, shown, replace(board, rows=rows, opinions=shown, opinions_version=version))
        return self._kept[2]

    def forget(self) -> None:
        """The last board need not stay in memory."""
        self._kept = None
