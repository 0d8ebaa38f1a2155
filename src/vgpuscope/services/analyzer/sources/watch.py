"""Checks whether the source answers. Analyses alone are too rare for that, and may take a minute."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from msgspec import Struct

from vgpuscope.model.errors import ScopeError, SourceDown
from vgpuscope.model.quantity import Seconds
from vgpuscope.runtime.log import SUMMARY, OnChange, error_fields

log = logging.getLogger(__name__)

_ASK_EVERY, _ASK_WITHIN = 5.0, 4.5  # seconds: it takes at most ten to notice whether the source answers


class SourceCheck(Struct, frozen=True, kw_only=True):
    """One check whether the source answers."""

    error: ScopeError | None
    analyses: int  # analyses that had ended when the check began


class SourceWatch:
    """The last check, renewed every few seconds."""

    def __init__(
        self,
        ready: Callable[[], Awaitable[None]],
        *,
        analyses: Callable[[], int],
        back: Callable[[], None],
        every: Seconds = _ASK_EVERY,
    ) -> None:
        """`ready` raises a ScopeError if the source does not answer; `analyses` counts those that have ended.

        `back` is called when the source answers after it did not.
        """
        self._ready, self._analyses, self._back, self._every = ready, analyses, back, every
        self._told = OnChange(log)
        self.last: SourceCheck | None = None

    async def forever(self) -> None:
        while True:
            analyses = self._analyses()
            error, before = await self._error(), self.last
            first = before is None
            self.last = SourceCheck(error=error, analyses=analyses)
            if error is None and before is not None and before.error is not None:
                self._back()
            if error is not None and first:
                pass  # own scrapes have just begun, and an engine is asked again in a moment
            elif error is not None:
                self._told.tell(
                    "source", error.code, level=logging.WARNING, message="source does not answer", **error_fields(error)
                )
            else:
                self._told.tell("source", "up", level=SUMMARY, message="source answers")
            await asyncio.sleep(self._every)

    async def _error(self) -> ScopeError | None:
        try:
            async with asyncio.timeout(_ASK_WITHIN):
                await self._ready()
        except TimeoutError:
            return SourceDown(f"the source does not answer within {_ASK_WITHIN:g} s")
        except ScopeError as e:
            return e
        return None
