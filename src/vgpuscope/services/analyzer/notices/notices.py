"""Tells people: notices from the outbox → one message for each channel and interval → apprise.

case moved ─► a call for each channel, in the same transaction ─► a round: still true? ─► message ─► sent ─► settled

No crash loses a notice. A crash between sending and settling sends the notice once more. A channel that hangs or fails
delays its own notices only.
"""

import asyncio
import hashlib
import hmac
import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import Struct

from vgpuscope.config import AnalyzerConfig, Config
from vgpuscope.config.notify import ChannelConfig, NotifyConfig, is_address
from vgpuscope.logic.notices import links
from vgpuscope.logic.notices.digest import MOST, fitting
from vgpuscope.logic.notices.routing import channels_for
from vgpuscope.logic.reclaim import retries
from vgpuscope.model.errors import CallFailed, ConfigInvalid, HistoryDown, NotLeader, Unknown
from vgpuscope.model.notices import ANSWERED, LINK_ACTIONS, NOTICE_KINDS, LowUse, Notice, Route, SignedLink
from vgpuscope.model.quantity import UnixTime
from vgpuscope.model.reclaim import Call, Case
from vgpuscope.model.words import NO_WORDS, Words
from vgpuscope.runtime.log import error_fields, fields
from vgpuscope.services.analyzer.reclaim.case_notices import CaseNotices
from vgpuscope.services.analyzer.reclaim.dependencies import NoticeRequest
from vgpuscope.store.reclaim import NOTICE
from vgpuscope.views.notices.message import Item, Message, Style, check_template, message, trial

if TYPE_CHECKING:  # apprise is installed by the extra `notify`
    from vgpuscope.sinks.notices import ChannelTarget, Sender

log = logging.getLogger(__name__)

LINK_PATH = "/owner/"
_LOOK_EVERY = 1.0
_LOOK_AGAIN = 60.0  # seconds between two looks for files that changed, and for notices of channels that are gone
_CHINESE = frozenset({"feishu", "lark", "dingtalk", "wecom"})
_OOUR = frozenset({"feishu", "lark"})  # they get gpu-oour's text
_INSTALL = "Run pip install 'vgpuscope[notify]', or in a clone pip install '.[notify]'"


# ── settings ─────────────────────────────────────────────────────────────────────────────────────────────────────


def check_notices(config: Config) -> None:
    """ConfigInvalid for channels that cannot be used: their library, address, files and templates."""
    if not config.notify.channels:
        return
    sink = _sink()
    for number, channel in enumerate(config.notify.channels):
        at = f"notify.channels[{number}]"
        try:
            _target(sink, _address(channel), channel, config.notify)
        except ValueError as e:
            raise ConfigInvalid(f"{at} ({channel.name}): {e}", hint="docs/notices.md has an example of each.") from e
        for kind, template in channel.templates.items():
            try:
                check_template(kind, template)
            except ValueError as e:
                raise ConfigInvalid(
                    f"{at}.templates.{kind}: {e}", hint="docs/notices.md lists the fields, and what a template can do."
                ) from e


def _sink() -> ModuleType:
    """The module that needs apprise; jinja2 is needed by what it sends."""
    try:
        import jinja2  # noqa: F401

        from vgpuscope.sinks import notices
    except ImportError as e:
        text = f"notify.channels: the Python package {e.name} is not installed. {_INSTALL}"
        raise ConfigInvalid(text, hint="The container image has it.") from e
    return notices


class _Address(NamedTuple):
    url: str
    secret: str


def _address(channel: ChannelConfig) -> _Address:
    """The address and the secret, perhaps from files; ValueError if they cannot be used."""
    url = _given(channel.url, channel.url_file, "url")
    if not is_address(url):
        raise ValueError("url: [redacted] is not a URL; expected https://… or an address of apprise")
    return _Address(url, _given(channel.secret, channel.secret_file, "secret"))


def _target(sink: ModuleType, at: _Address, channel: ChannelConfig, notify: NotifyConfig) -> "ChannelTarget":
    """ValueError: no service has such an address."""
    found: ChannelTarget = sink.target(at.url, secret=at.secret, service=channel.service, timeout=notify.timeout)
    return found


def _given(text: str, file: str, name: str) -> str:
    if not file:
        return text
    try:
        return Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as e:
        raise ValueError(f"{name}_file: {file}: {type(e).__name__}") from e


def link_key(notify: NotifyConfig, analyzer: AnalyzerConfig) -> bytes | None:
    """The key of owners' links; None: there is no secret to make it from, so there are no such links."""
    secret = notify.link_secret or analyzer.session_key or analyzer.api_token
    return hmac.digest(secret.encode(), b"vgpuscope owner links", hashlib.sha256) if secret else None


# ── channels ─────────────────────────────────────────────────────────────────────────────────────────────────────


class ChannelState(Struct):
    """What happened on a channel since the start of this process."""

    not_before: UnixTime = 0.0
    failures: int = 0  # in a row
    delivered_at: UnixTime | None = None
    failed_at: UnixTime | None = None
    error: str = ""


class ReadyChannel(Struct, frozen=True, kw_only=True):
    """A channel that is ready to send."""

    name: str
    address: _Address
    sender: "Sender"
    style: Style


class Notices:
    """The channels of the settings, and what is sent through them."""

    def __init__(
        self,
        config: Callable[[], Config],
        *,
        opinion: Callable[[Case], Words] = lambda _: NO_WORDS,
        clock: Callable[[], UnixTime] = time.time,
    ) -> None:
        """`opinion` is the reason that a language model gave for a case; NO_WORDS if it gave none."""
        self._config, self._opinion, self._clock = config, opinion, clock
        self._made_by: NotifyConfig | None = None
        self._channels: dict[str, ReadyChannel] = {}
        self.states: dict[str, ChannelState] = {}
        self.counts: Counter[tuple[str, str]] = Counter()  # channel, outcome
        self._look_at = 0.0
        self.changes = 0  # grows with everything that is shown

    @property
    def config(self) -> NotifyConfig:
        return self._config().notify

    def routes(self) -> list[Route]:
        return [_route(one) for one in self.config.channels]

    def ready(self) -> bool:
        """Whether there is a channel for owners. A channel that fails counts: it only delays notices."""
        return any(route.kinds & ANSWERED for route in self.routes())

    def channels(self, *, again: bool = False) -> Mapping[str, ReadyChannel]:
        """The channels that can be used, by name. They are made again when the settings change.

        `again`: also look for files that changed. A channel whose file cannot be read has no entry until it can.
        """
        config = self._config().notify
        if config is self._made_by and not again:
            return self._channels
        same = config is self._made_by
        before, self._made_by = self._channels, config
        made = {one.name: self._made(one, config, before.get(one.name) if same else None) for one in config.channels}
        self._channels = {name: channel for name, channel in made.items() if channel is not None}
        for name, old in before.items():
            if self._channels.get(name) is not old:
                old.sender.close()
        self.states = {one.name: self.states.get(one.name, ChannelState()) for one in config.channels}
        return self._channels

    def _made(self, channel: ChannelConfig, config: NotifyConfig, before: ReadyChannel | None) -> ReadyChannel | None:
        try:
            address = _address(channel)
            if before is not None and before.address == address:
                return before
            return _channel(channel, address, config)
        except ValueError as e:
            self.states.setdefault(channel.name, ChannelState()).error = str(e)
            log.warning("a channel cannot be used", extra=fields(channel=channel.name, error=str(e)))
            return None

    @property
    def links(self) -> bool:
        """Whether notices have links by which an owner can answer."""
        config = self._config()
        return bool(config.notify.console_url) and self.link_key is not None

    @property
    def link_key(self) -> bytes | None:
        config = self._config()
        return link_key(config.notify, config.analyzer)

    def working(self) -> dict[str, bool]:
        """By channel: whether its last message was accepted; channels without a message have no entry."""
        known = {name: one for name, one in self.states.items() if one.error or one.delivered_at is not None}
        return {name: not one.error for name, one in known.items()}

    # ── from the machine ─────────────────────────────────────────────────────────────────────────────────────────

    def calls(self, told: NoticeRequest) -> Sequence[Call]:
        """One call for each channel that is told."""
        namespace = told.case.namespace if told.case else ""
        names = channels_for(told.kind, namespace, told.owner, self.routes())
        if not names:
            log.warning("a notice has no channel", extra=fields(kind=told.kind, namespace=namespace))
        return [self._call(told, name) for name in names]

    def _call(self, told: NoticeRequest, channel: str) -> Call:
        case = told.case
        opinion = self._opinion(case) if case else NO_WORDS
        notice = Notice(
            kind=told.kind,
            channel=channel,
            at=told.at,
            case=case,
            turned=told.turned,
            of=told.of,
            opinion=opinion.en,
            opinion_zh=opinion.zh,
        )
        case_id, since = (case.id, case.since) if case else ("", told.at)
        return Call(
            key=f"{NOTICE}{channel}/{case_id}/{told.kind}/{since * 1000:.0f}",
            case_id=case_id,
            kind="notice",
            body=msgspec.json.encode(notice).decode(),
            first_at=self._clock(),
            next_at=self._clock(),
        )

    # ── rounds ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def deliver_forever(self, cases: CaseNotices) -> None:
        """Send what is due."""
        while True:
            try:
                await self.deliver_due(cases)
            except (HistoryDown, NotLeader) as e:
                log.warning("a notice was not sent", extra=error_fields(e))
            await asyncio.sleep(_LOOK_EVERY)

    async def deliver_due(self, cases: CaseNotices) -> None:
        """One round: at most one message for each channel."""
        if not self._config().notify.channels:
            return
        now = self._clock()
        channels = self.channels(again=now >= self._look_at)
        if now >= self._look_at:
            self._look_at = now + _LOOK_AGAIN
            await self._adopt(cases)
        ready = [one for one in channels.values() if now >= self.states[one.name].not_before]
        done = await asyncio.gather(*(self._round(channel, cases) for channel in ready), return_exceptions=True)
        for error in done:  # after all of them have ended
            if isinstance(error, BaseException):
                raise error

    async def _adopt(self, cases: CaseNotices) -> None:
        """Notices of channels that are no longer there go to those that are."""
        waiting = await cases.due("", most=500)
        known = {one.name for one in self._config().notify.channels}
        gone = [call for call in waiting if call.key.split("/")[1] not in known]
        if gone:
            await cases.reroute(gone)

    async def _round(self, channel: ReadyChannel, cases: CaseNotices) -> None:
        due = await cases.due(channel.name, most=4 * MOST)
        told = await cases.tellable(due) if due else []
        if not told:
            return
        try:
            pairs, message = await asyncio.to_thread(self._message, channel, told, cases)
        except Exception as e:  # of a template: the check of the settings cannot try all values of the fields
            await self._unwritten(channel, told, cases, _named(e))
            return
        tried = await cases.attempt([call for call, _ in pairs])
        if len(tried) < len(pairs):
            return  # one was cancelled meanwhile: the next round makes a message without it
        error = await self._sent(channel, message)
        self.counts[channel.name, "failure" if error else "success"] += len(tried)
        await cases.settle(tried, channel=channel.name, error=error)

    async def _unwritten(
        self, channel: ReadyChannel, told: Sequence[tuple[Call, Notice]], cases: CaseNotices, error: str
    ) -> None:
        """Notices whose text cannot be made have failed. The others of the channel are sent by the next round."""

        def writable(one: tuple[Call, Notice]) -> bool:
            try:
                self._message(channel, [one], cases)
            except Exception:  # as above
                return False
            return True

        failed = await asyncio.to_thread(lambda: [call for call, notice in told if not writable((call, notice))])
        tried = await cases.attempt(failed or [call for call, _ in told])
        self._note_failure(channel, error)
        self.counts[channel.name, "failure"] += len(tried)
        await cases.settle(tried, channel=channel.name, error=error)

    async def _sent(self, channel: ReadyChannel, message: Message) -> str:
        """ "" if the message was accepted; else why not."""
        state = self.states.setdefault(channel.name, ChannelState())
        try:
            await channel.sender.send(message.title, message.body)
        except Exception as e:  # whatever it is, it must not stop the other channels
            # Its text is not shown: it may name the address, which can be a secret.
            error = str(e) if isinstance(e, CallFailed) else f"unexpected {type(e).__name__}"
            self._note_failure(channel, error)
            state.not_before = self._clock() + retries.pause(state.failures)
            return error
        now = self._clock()
        self.changes += 1
        state.failures, state.error, state.delivered_at = 0, "", now
        state.not_before = now + self._config().notify.digest
        return ""

    def _note_failure(self, channel: ReadyChannel, error: str) -> None:
        state = self.states.setdefault(channel.name, ChannelState())
        self.changes += 1
        state.failures, state.failed_at, state.error = state.failures + 1, self._clock(), error
        log.warning("a notice failed", extra=fields(channel=channel.name, failures=state.failures, error=error))

    def _message(
        self, channel: ReadyChannel, told: Sequence[tuple[Call, Notice]], cases: CaseNotices
    ) -> tuple[Sequence[tuple[Call, Notice]], Message]:
        items = {call.key: self._item(notice, channel, cases) for call, notice in told}

        def text(some: Sequence[tuple[Call, Notice]]) -> str:
            waiting = len(told) - len(some)
            return message([items[call.key] for call, _ in some], channel.style, waiting=waiting).body

        chosen, body = fitting(told, text, longest=channel.sender.longest)
        title = message([items[call.key] for call, _ in chosen], channel.style).title
        return chosen, Message(title=title, body=body)

    def _item(self, notice: Notice, channel: ReadyChannel, cases: CaseNotices) -> Item:
        if notice.case is None or notice.kind not in ANSWERED:
            return Item(notice=notice)
        end = cases.grace_end(notice.case) if notice.kind == "soon" else None
        return Item(notice=notice, grace_end=end, links=self._links(notice, channel))

    def _links(self, notice: Notice, channel: ReadyChannel) -> dict[str, str]:
        config, key = self._config().notify, self.link_key
        if not config.console_url or key is None or notice.case is None:
            return {}
        expires = int(self._clock() + config.link_lifetime)
        offered = [one for one in LINK_ACTIONS if one != "release" or notice.kind == "soon"]
        made = {
            action: SignedLink(
                case_id=notice.case.id,
                action=action,
                expires=expires,
                nonce=secrets.token_urlsafe(9),
                language=channel.style.language,
            )
            for action in offered
        }
        base = config.console_url.rstrip("/") + LINK_PATH
        return {action: base + links.signed(link, key) for action, link in made.items()}

    # ── low GPUs ─────────────────────────────────────────────────────────────────────────────────────────────────

    def may_send(self, name: str) -> bool:
        """Whether a channel is there, and its pause after the last message is over."""
        return name in self.channels() and self._clock() >= self.states[name].not_before

    async def send_low(self, name: str, uses: Sequence[LowUse]) -> bool:
        """Send one message with as many of these as fit; False if the service did not take it."""
        channel = self.channels()[name]
        at = self._clock()
        items = [Item(notice=Notice(kind="low", channel=name, at=at, low=use)) for use in uses]

        def text(some: Sequence[Item]) -> str:
            return message(some, channel.style, left_out=len(items) - len(some)).body

        try:
            chosen, body = await asyncio.to_thread(fitting, items, text, longest=channel.sender.longest)
        except Exception as e:  # of a template, as above
            error = _named(e)
            self._note_failure(channel, error)
            self.states[name].not_before = self._clock() + retries.pause(self.states[name].failures)
        else:
            error = await self._sent(channel, Message(title=message(chosen, channel.style).title, body=body))
        self.counts[name, "failure" if error else "success"] += 1
        return not error

    # ── a trial ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def trial(self, name: str) -> None:
        """Send a message that says only that it arrived; CallFailed if it did not."""
        channel = self.channels(again=True).get(name)
        if channel is None:
            known = ", ".join(self._channels) or "none"
            raise Unknown(f"no usable channel {name!r}", hint=f"Usable channels: {known}.")
        error = await self._sent(channel, trial(channel.style.language))
        self.states[name].not_before = 0.0  # a trial delays no notice
        if error:
            raise CallFailed(error, hint="docs/notices.md describes the address of each channel.")

    def close(self) -> None:
        for one in self._channels.values():
            one.sender.close()


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _channel(channel: ChannelConfig, address: _Address, config: NotifyConfig) -> ReadyChannel:
    sink = _sink()
    sender: Sender = sink.Sender(_target(sink, address, channel, config), timeout=config.timeout)
    language = channel.language or ("zh" if sender.service in _CHINESE else "en")
    style = Style(
        language=language,
        oour=sender.service in _OOUR and language == "zh",
        tz=config.timezone,
        templates=channel.templates,
        console_url=(config.console_url or "").rstrip("/"),
    )
    return ReadyChannel(name=channel.name, address=address, sender=sender, style=style)


def _route(channel: ChannelConfig) -> Route:
    kinds = frozenset(channel.kinds or NOTICE_KINDS)
    return Route(
        name=channel.name,
        namespaces=frozenset(channel.namespaces),
        owners=frozenset(channel.owners),
        operators=channel.operators,
        kinds=kinds | ANSWERED if kinds & ANSWERED else kinds,  # they are one kind for whoever chooses
    )
