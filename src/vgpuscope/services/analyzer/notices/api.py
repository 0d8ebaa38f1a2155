"""The operations of notices: the channels and how they work, and a trial message."""

from collections.abc import Callable, Iterator
from typing import Annotated

from msgspec import Meta, Struct

from vgpuscope.http.operations import HttpCall, Operation
from vgpuscope.http.parameters import NoQuery
from vgpuscope.logic.console.moments import iso
from vgpuscope.model.quantity import UnixTime
from vgpuscope.services.analyzer.notices.notices import ChannelState, Notices, ReadyChannel
from vgpuscope.views.notices.api import ChannelRow, NoticesBody, TrialBody

_WITHOUT_CHANNEL = "notify.channels is empty: no notices are sent."
_WITHOUT_URL = "notify.console_url is not set: notices have no links."
_WITHOUT_KEY = "There is no notify.link_secret, session key or API token: owners cannot answer by a link."


class ChannelQuery(Struct, frozen=True, kw_only=True):
    """One channel."""

    name: Annotated[str, Meta(description="The name of the channel in notify.channels.")]


class NoticesApi:
    """The operations, as a table."""

    def __init__(self, notices: Callable[[], Notices], *, data: Callable[..., Operation]) -> None:
        self._find, self._data = notices, data

    def operations(self) -> tuple[Operation, ...]:
        return (
            self._data(
                "/api/v1/notices", "channels for notices, and how they work", self._show, NoticesBody, scoped=False
            ),
            Operation(
                method="POST",
                path="/api/v1/notices/{name}/test",
                summary="send a trial message through a channel",
                handler=self._test,
                answer=TrialBody,
                role="operate",
                statuses=(404, 502),
            ),
        )

    async def _show(self, call: HttpCall[NoQuery, None]) -> NoticesBody:  # noqa: ARG002 - the same for every caller
        notices = self._find()
        channels = notices.channels()
        rows = (self._row(name, channels.get(name), state) for name, state in notices.states.items())
        return NoticesBody(channels=tuple(rows), links=notices.links, without=tuple(self._without()))

    async def _test(self, call: HttpCall[ChannelQuery, None]) -> TrialBody:
        notices, name = self._find(), call.asked.name
        await notices.trial(name)
        return TrialBody(channel=name, service=notices.channels()[name].sender.service)

    def _row(self, name: str, channel: ReadyChannel | None, state: ChannelState) -> ChannelRow:
        counts = self._find().counts
        fails = bool(state.error)
        return ChannelRow(
            name=name,
            service=channel.sender.service if channel else None,
            language=channel.style.language if channel else None,
            state="fails" if fails else "unused" if state.delivered_at is None else "works",
            delivered=counts[name, "success"],
            failed=counts[name, "failure"],
            delivered_at=_shown(state.delivered_at),
            failed_at=_shown(state.failed_at),
            error=state.error or None,
        )

    def _without(self) -> Iterator[str]:
        notices = self._find()
        if not notices.config.channels:
            yield _WITHOUT_CHANNEL
            return
        if not notices.config.console_url:
            yield _WITHOUT_URL
        if notices.link_key is None:
            yield _WITHOUT_KEY


def _shown(at: UnixTime | None) -> str | None:
    return None if at is None else iso(at)
