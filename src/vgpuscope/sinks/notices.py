"""Sends messages through apprise: one address for each channel, on a thread of its own, never redirected.

Feishu, Lark, DingTalk and WeCom answer 200 with a code in the body when they refuse a message, and apprise takes that
for success; it also lacks the signature of Feishu and Lark. So these four have a plugin of ours.
"""

import asyncio
import base64
import ctypes
import hashlib
import hmac
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import httpx2
import requests.sessions
from apprise import Apprise, AppriseAsset, NotifyBase, NotifyFormat
from requests.adapters import HTTPAdapter
from urllib3.exceptions import ProtocolError

from vgpuscope.model.errors import CallFailed
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.version import __version__
from vgpuscope.worker import Closed, Worker

_SHOWN = 200  # characters of a refusal
_LONGEST_ANSWER = 64 * 1024
_MOST_HANGING = 4  # threads of one channel whose service does not end its answer
_SHORT = 8  # characters; no token is shorter
_LONGEST_BODY = 16_000  # bytes, for services without a stricter limit
_apprise_log = logging.getLogger("apprise")


class AddressInvalid(ValueError):
    """An address that no service has; its text holds no secret."""


# ── the bots that apprise does not understand well enough ────────────────────────────────────────────────────────


class Bot(NamedTuple):
    """A chat service with a webhook for each of its bots."""

    name: str
    longest: int  # bytes of a text
    native: re.Pattern[str]  # its own addresses
    short: re.Pattern[str]  # apprise's addresses
    url: str
    body: Callable[[str], dict[str, Any]]
    sign: Callable[[str, float], tuple[Mapping[str, str], Mapping[str, str]]]  # → more of the query, more of the body
    codes: tuple[str, ...]  # of the answer; 0 is success


def _feishu_text(text: str) -> dict[str, Any]:
    return {"msg_type": "text", "content": {"text": text}}


def _plain_text(text: str) -> dict[str, Any]:
    return {"msgtype": "text", "text": {"content": text}}


def feishu_signature(secret: str, at: float) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """base64(HMAC-SHA256(key="timestamp\\nsecret", message="")), with the time in seconds, both in the body."""
    stamp = str(int(at))
    mac = hmac.digest(f"{stamp}\n{secret}".encode(), b"", hashlib.sha256)
    return {}, {"timestamp": stamp, "sign": base64.b64encode(mac).decode()}


def dingtalk_signature(secret: str, at: float) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """base64(HMAC-SHA256(key=secret, message="timestamp\\nsecret")), with the time in ms, both in the query."""
    stamp = str(int(at * 1000))
    mac = hmac.digest(secret.encode(), f"{stamp}\n{secret}".encode(), hashlib.sha256)
    return {"timestamp": stamp, "sign": base64.b64encode(mac).decode()}, {}


def _unsigned(_secret: str, _at: float) -> tuple[Mapping[str, str], Mapping[str, str]]:
    return {}, {}


_HOOK = "/open-apis/bot/v2/hook/"
BOTS: Mapping[str, Bot] = MappingProxyType(
    {
        bot.name: bot
        for bot in (
            Bot(
                "feishu",
                19_000,
                re.compile(r"https://open\.feishu\.cn/\S+"),
                re.compile(r"feishu://(?P<token>[\w-]+)/?"),
                f"https://open.feishu.cn{_HOOK}{{token}}",
                _feishu_text,
                feishu_signature,
                ("code", "StatusCode"),
            ),
            Bot(
                "lark",
                19_000,
                re.compile(r"https://open\.larksuite\.com/\S+"),
                re.compile(r"lark://(?P<token>[\w-]+)/?"),
                f"https://open.larksuite.com{_HOOK}{{token}}",
                _feishu_text,
                feishu_signature,
                ("code", "StatusCode"),
            ),
            Bot(
                "dingtalk",
                18_000,
                re.compile(r"https://oapi\.dingtalk\.com/\S+"),
                re.compile(r"dingtalk://((?P<secret>\w+)@)?(?P<token>\w+)/?"),
                "https://oapi.dingtalk.com/robot/send?access_token={token}",
                _plain_text,
                dingtalk_signature,
                ("errcode",),
            ),
            Bot(
                "wecom",
                2048,
                re.compile(r"https://qyapi\.weixin\.qq\.com/\S+"),
                re.compile(r"wecombot://(?P<token>[\w-]+)/?"),
                "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key={token}",
                _plain_text,
                _unsigned,
                ("errcode",),
            ),
        )
    }
)


class BotPlugin(NotifyBase):  # type: ignore[no-untyped-call]
    """apprise's side of a bot."""

    service_name = "vgpuscope bot"  # type: ignore[assignment]
    secure_protocol = "vgpuscope-bot"  # type: ignore[assignment]
    title_maxlen = 0

    def __init__(self, bot: Bot, url: str, secret: str, *, wall: Callable[[], UnixTime], **more: Any) -> None:
        super().__init__(**more)  # type: ignore[no-untyped-call]
        self._bot, self._url, self._secret, self._wall = bot, url, secret, wall
        self.body_maxlen = bot.longest
        self.failure = ""

    def send(self, body: str, title: str = "", *_: Any, **__: Any) -> bool:  # noqa: ARG002 - it has no titles
        self.failure = ""
        try:
            self._post(body)
        except CallFailed as e:
            self.failure = str(e)
        return not self.failure

    def _post(self, body: str) -> None:
        if (listening := _listening.get()) is not None:
            listening.thread = threading.get_ident()
        query, more = self._bot.sign(self._secret, self._wall()) if self._secret else ({}, {})
        try:
            with (
                httpx2.Client(timeout=self.socket_read_timeout, follow_redirects=False) as client,
                client.stream(
                    "POST",
                    _with_query(self._url, query),
                    content=json.dumps({**more, **self._bot.body(body)}).encode(),
                    headers={"content-type": "application/json; charset=utf-8", "user-agent": self.app_id},
                ) as answer,
            ):
                content = _bounded(answer.iter_bytes(), within=4 * self.socket_read_timeout)
                self._check(answer.status_code, content)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as e:
            raise CallFailed(f"{self._bot.name} did not answer: {type(e).__name__}") from e

    def _check(self, status: int, content: bytes) -> None:
        """The code in the body decides: these services answer 200 to what they refuse."""
        try:
            said = json.loads(content)
        except (ValueError, RecursionError):
            said = None
        codes = [said.get(name) for name in self._bot.codes if name in said] if isinstance(said, dict) else []
        if status != 200 or codes[:1] != [0]:
            shown = content[:_SHOWN].decode(errors="replace")
            raise CallFailed(f"{self._bot.name} answered {status}: {shown!r}")

    def url(self, privacy: bool = False, *_: Any, **__: Any) -> str:  # noqa: ARG002 - never with its secrets
        return f"{self.secure_protocol}://{self._bot.name}"


def _bounded(parts: Iterable[bytes], *, within: Seconds, clock: Callable[[], Seconds] = time.monotonic) -> bytes:
    """The whole answer. The time limit of a client is for each part, and a service may send one byte at a time."""
    began, content = clock(), b""
    for part in parts:
        content += part
        if len(content) > _LONGEST_ANSWER or clock() - began > within:
            raise CallFailed("the answer is too long, or does not end")
    return content


class _BoundedAdapter(HTTPAdapter):
    """requests reads an answer to its end, and apprise has no setting for it. Only answers to notices are bounded."""

    def send(self, request: Any, *args: Any, **settings: Any) -> requests.Response:
        if (listening := _listening.get()) is None:
            return super().send(request, *args, **settings)
        listening.thread = threading.get_ident()
        answer = super().send(request, *args, **settings)
        raw, timeout = answer.raw, settings.get("timeout") or 0.0
        within = 4 * (timeout[1] if isinstance(timeout, tuple) else timeout)
        parts = iter(lambda: raw.read1(_LONGEST_ANSWER, decode_content=True), b"")

        def stream(*_: Any, **__: Any) -> Iterator[bytes]:
            try:
                yield _bounded(parts, within=within)
            except CallFailed as e:
                raw.close()
                raise ProtocolError(str(e)) from e

        raw.stream = stream
        return answer


requests.sessions.HTTPAdapter = _BoundedAdapter  # type: ignore[attr-defined]  # what each new session takes


def _with_query(url: str, more: Mapping[str, str]) -> str:
    if not more:
        return url
    parts = urlsplit(url)
    return urlunsplit(parts._replace(query=urlencode([*parse_qsl(parts.query, keep_blank_values=True), *more.items()])))


# ── channels ─────────────────────────────────────────────────────────────────────────────────────────────────────


class ChannelTarget(NamedTuple):
    """Where a channel sends: the service, its address, and the longest text of one message in bytes."""

    service: str
    plugin: Any
    longest: int
    hidden: tuple[str, ...]  # parts of the address that no log may show


def target(
    url: str, *, secret: str, service: str, timeout: Seconds, wall: Callable[[], UnixTime] = time.time
) -> ChannelTarget:
    """The target of an address; AddressInvalid if no service has such an address. `wall`: the time of signatures."""
    hidden = _secrets_of(url) + ((secret,) if secret else ())
    bot, address, key = _bot_of(url, secret, service)
    if bot is not None:
        plugin = BotPlugin(bot, address, key, wall=wall, asset=_asset())
        longest = bot.longest
    else:
        if secret:
            raise AddressInvalid("secret: only Feishu, Lark and DingTalk have a signature")
        plugin = _other(address, webhook=service == "webhook")
        longest = min(_LONGEST_BODY, int(plugin.body_maxlen * 0.9))  # apprise counts characters
    plugin.socket_read_timeout = plugin.socket_connect_timeout = timeout
    name = bot.name if bot is not None else str(plugin.service_name)
    return ChannelTarget(name, plugin, longest, hidden)


def _bot_of(url: str, secret: str, service: str) -> tuple[Bot | None, str, str]:
    if service in BOTS:
        if not re.match(r"https?://[^/\s]+", url):
            raise AddressInvalid(f"url: expected an https address of {service}")
        return BOTS[service], url, secret
    for bot in BOTS.values() if service == "auto" else ():
        if bot.native.fullmatch(url):
            return bot, url, secret
        if found := bot.short.fullmatch(url):
            parts = found.groupdict()
            return bot, bot.url.format(token=parts["token"]), secret or parts.get("secret") or ""
    return None, url, secret


def _other(url: str, *, webhook: bool) -> Any:
    """apprise's own plugin; an https address that it does not know is a webhook that takes JSON."""
    plugin = None
    with _Silence():
        if not webhook:
            plugin = Apprise.instantiate(url, asset=_asset(), suppress_exceptions=True)
        if plugin is None and re.match(r"https?://", url):
            plugin = Apprise.instantiate(_as_json(url), asset=_asset(), suppress_exceptions=True)
    if plugin is None:
        raise AddressInvalid("url: no service of apprise has such an address")
    if plugin.schema in {"mailto", "mailtos"}:
        plugin.notify_format = NotifyFormat.TEXT  # as it is, with links on lines of their own
    return plugin


def _as_json(url: str) -> str:
    """apprise writes a JSON webhook as jsons://, and marks what belongs to the address's own query by a dash."""
    parts = urlsplit(url)
    query = urlencode([(f"-{name}", value) for name, value in parse_qsl(parts.query, keep_blank_values=True)])
    return urlunsplit(("json" if parts.scheme == "http" else "jsons", parts.netloc, parts.path, query, ""))


def _asset() -> AppriseAsset:
    """Each message is one request that is not redirected, under our own name; nothing is kept on disk."""
    return AppriseAsset(
        app_id=f"vgpuscope/{__version__}",
        app_desc="vgpuscope",
        app_url="",
        image_url_mask="",
        image_url_logo="",
        http_redirects=False,
        async_mode=False,
        storage_mode="memory",
    )


def _secrets_of(url: str) -> tuple[str, ...]:
    """Every part of an address that could be a secret: all but a name of a host, and short words of a path."""
    parts = urlsplit(url)
    pieces = [*parts.path.split("/"), *(value for _, value in parse_qsl(parts.query))]
    if parts.scheme not in {"http", "https"}:
        pieces += [parts.netloc, parts.hostname or ""]
    found = {one for one in (parts.username, parts.password) if one and len(one) > 3} | {
        one for one in pieces if len(one) >= _SHORT
    }
    return tuple(sorted(found | {quote(one) for one in found}, key=len, reverse=True))


class Sender:
    """Sends messages to one channel. A service that hangs holds its own thread only."""

    def __init__(self, where: ChannelTarget, *, timeout: Seconds) -> None:
        self._where, self._timeout = where, timeout
        self._worker = Worker("notice")
        self._running: set[_Warnings] = set()  # of each message that is being sent, also of those that were abandoned

    @property
    def service(self) -> str:
        return self._where.service

    @property
    def longest(self) -> int:
        return self._where.longest

    async def send(self, title: str, body: str) -> None:
        """CallFailed if the service did not take the message; a hint of its reason is in the error's text."""
        if len(self._running) >= _MOST_HANGING:
            raise CallFailed(f"{self.service} has not ended its answers to earlier messages; this one was not sent")

        running = _Warnings()

        def sent() -> str | None:
            self._running.add(running)
            try:
                return self._sent(title, body, running)
            finally:
                self._running.discard(running)

        # Connecting and reading have the timeout each, and a mail needs several answers.
        try:
            failure = await self._worker.do(sent, deadline=4 * self._timeout)
        except TimeoutError as e:
            self._worker.abandon()
            self._worker = Worker("notice")
            # the client's limits end most threads by now; one that is still busy after as long again is interrupted
            asyncio.get_running_loop().call_later(4 * self._timeout, _interrupt, running, self._running)
            raise CallFailed(f"{self.service} did not answer within {4 * self._timeout:g} s") from e
        except Closed as e:
            raise CallFailed(f"{self.service} did not answer an earlier message; this one was not sent") from e
        if failure is not None:
            raise CallFailed(self._redacted(failure or f"{self.service} did not accept the message"))

    def _sent(self, title: str, body: str, said: "_Warnings") -> str | None:
        """None: it was taken; else what apprise says of it."""
        plugin = self._where.plugin
        sender = Apprise(asset=plugin.asset)
        sender.add(plugin)
        if isinstance(plugin, BotPlugin):
            title = ""  # their texts have a heading
        if plugin.notify_format == NotifyFormat.MARKDOWN:
            body = body.replace("\n", "\n\n")  # one line break is none there
        with said:
            taken = sender.notify(body=body, title=title)  # without a format nothing is escaped, and links stay whole
        return None if taken else (getattr(plugin, "failure", "") or " ".join(said.texts))

    def _redacted(self, text: str) -> str:
        for one in self._where.hidden:
            text = text.replace(one, "[redacted]")
        return " ".join(text.split())[: 2 * _SHOWN]

    def close(self) -> None:
        self._worker.abandon()


class _Abandoned(SystemExit):
    """Nobody waits for this message any more."""


def _interrupt(message: "_Warnings", running: Collection["_Warnings"]) -> None:
    """End the thread of a message that is still running. A service can keep it busy for ever, for example by interim
    answers (100 Continue), of which no library limits the number. One that waits for the network ends when it hears
    something, or times out.
    """
    if message in running and message.thread is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(message.thread), ctypes.py_object(_Abandoned))


class _Warnings(logging.Handler):
    """What apprise warns of while it sends one message: it reports the reason of a failure nowhere else.

    apprise sends on threads of its own, in a copy of our context; so the context says which message it is about.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []
        self.thread: int | None = None  # that waits for the service

    def emit(self, record: logging.LogRecord) -> None:
        if _listening.get() is self:
            self.texts.append(record.getMessage())

    def __enter__(self) -> "_Warnings":
        _keep_quiet()
        self._before = _listening.set(self)
        _apprise_log.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        _apprise_log.removeHandler(self)
        _listening.reset(self._before)


_listening: ContextVar[_Warnings | None] = ContextVar("vgpuscope_notice", default=None)


class _Silence(_Warnings):
    """Nothing of what apprise says of an address is kept: it repeats the address."""


def _keep_quiet() -> None:
    """The logs of apprise and of what it sends with never reach ours: they hold addresses."""
    _apprise_log.propagate = False
    _apprise_log.setLevel(logging.WARNING)
    for name in ("urllib3", "httpx2", "httpcore2"):
        logging.getLogger(name).setLevel(logging.WARNING)
