"""The board with the opinions of a language model on its rows, made once for each change of either."""

import asyncio

from msgspec.structs import replace

from vgpuscope.services.analyzer.cycle import AnalysisCycle, Board
from vgpuscope.services.analyzer.opinion.opinions import Opinions
from vgpuscope.views.fleet.results.results import with_opinions


class OpinionBoard:
    """Keeps the last board that was made."""

    def __init__(self, cycle: AnalysisCycle, opinions: Opinions) -> None:
        self._cycle, self._opinions = cycle, opinions
        self._kept: tuple[Board | None, int, Board | None] = (None, 0, None)  # made from, changes, made

    async def board(self) -> Board:
        board, changes, shown = await self._cycle.board(), self._opinions.changes, self._opinions.shown
        if not shown.parts:
            return board
        made_from, known, made = self._kept
        if made is None or made_from is not board or known != changes:
            rows = await asyncio.to_thread(with_opinions, board.rows, shown)
            made = replace(board, rows=rows, opinions=shown, opinions_version=changes)
            self._kept = (board, changes, made)
        return made

    def forget(self) -> None:
        """The last board need not stay in memory."""
        self._kept = (None, 0, None)
