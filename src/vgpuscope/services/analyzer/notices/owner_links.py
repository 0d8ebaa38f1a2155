"""The page behind an owner's link. It needs no account: whoever has the link may decide on one workload, once.

GET shows the question and changes nothing. POST, from the page's button, decides.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Annotated

from msgspec import Meta, Struct
from starlette.responses import Response

from vgpuscope.http.operations import HttpCall, Operation
from vgpuscope.logic.notices import links
from vgpuscope.model.errors import CaseUnfit, LinkInvalid, LinkUsed, ScopeError, Unknown
from vgpuscope.model.notices import SignedLink
from vgpuscope.model.quantity import UnixTime
from vgpuscope.model.reclaim import Case, State
from vgpuscope.model.words import Language
from vgpuscope.services.analyzer.notices.notices import LINK_PATH, Notices
from vgpuscope.services.analyzer.reclaim.reclaim import Reclaim
from vgpuscope.views.notices import page

_HTML = "text/html; charset=utf-8"


class LinkQuery(Struct, frozen=True, kw_only=True):
    """One link, and for how long the workload is left alone."""

    token: Annotated[str, Meta(description="What the notice's link says, with its signature.")]
    seconds: Annotated[int, Meta(ge=60, le=30 * 86400, description="For a snooze: how long, in seconds.")] = 86400


class OwnerLinks:
    """The operations, as a table; `notices` and `reclaim` are those of now."""

    def __init__(
        self,
        notices: Callable[[], Notices],
        reclaim: Callable[[], Reclaim],
        *,
        clock: Callable[[], UnixTime] = time.time,
    ) -> None:
        self._notices, self._reclaim, self._clock = notices, reclaim, clock

    def operations(self) -> tuple[Operation, ...]:
        path = LINK_PATH + "{token}"
        return (
            Operation(
                method="GET", path=path, summary="an owner's link", handler=self._ask, access="open", hidden=True
            ),
            Operation(
                method="POST", path=path, summary="an owner decides", handler=self._do, access="open", hidden=True
            ),
        )

    async def _ask(self, call: HttpCall[LinkQuery, None]) -> Response:
        async def show(link: SignedLink, case: Case) -> bytes:
            return page.asked(link, case, tz=self._notices().config.timezone)

        return await self._with_case(call, show)

    async def _do(self, call: HttpCall[LinkQuery, None]) -> Response:
        async def decide(link: SignedLink, _: Case) -> bytes:
            changed = await self._reclaim().case_actions.answer(link, seconds=call.asked.seconds)
            return page.done(link, changed, tz=self._notices().config.timezone)

        return await self._with_case(call, decide)

    async def _with_case(
        self, call: HttpCall[LinkQuery, None], then: Callable[[SignedLink, Case], Awaitable[bytes]]
    ) -> Response:
        """The page that follows from a link, or the one that says why there is none."""
        language: Language | None = None
        state: State | None = None
        try:
            link = self._read(call.asked.token)
            language = link.language
            case, used_at = await self._reclaim().case_actions.case_of(link)
            if used_at is not None:
                raise LinkUsed("this link was used before")
            if case is None:
                raise Unknown("the workload of this link is no longer known")
            state = "verified" if case.taken else case.state
            return _answer(await then(link, case))
        except ScopeError as e:
            return _refusal(e, language, state)

    def _read(self, token: str) -> SignedLink:
        key = self._notices().link_key
        if key is None:
            raise LinkInvalid("no secret for links is configured")
        return links.read(token, key, now=self._clock())


def _answer(body: bytes, status: int = 200) -> Response:
    return Response(body, status_code=status, headers={**page.HEADERS, "content-type": _HTML})


def _refusal(error: ScopeError, language: Language | None, state: State | None) -> Response:
    known = state if isinstance(error, CaseUnfit) else None
    response = _answer(page.refused(error.code, language=language, state=known), error.status)
    response.headers["x-vgpuscope-error"] = error.code
    return response
