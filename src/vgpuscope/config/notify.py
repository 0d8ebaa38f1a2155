"""Settings of notices: the channels, who gets what, and the links by which owners answer."""

import re
from typing import Annotated, Literal, TypeAlias
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Meta, Struct

from vgpuscope.model.notices import NoticeKind
from vgpuscope.model.quantity import Seconds
from vgpuscope.model.words import Language

LowGpus: TypeAlias = Literal["none", "change", "digest", "schedule"]  # not `off`: YAML 1.1 reads it as false
Service = Literal["auto", "feishu", "lark", "dingtalk", "wecom", "webhook"]
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/]+\S*", re.IGNORECASE)


class ChannelConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `notify.channels`."""

    name: str
    url: str = ""  # an https address of a bot or webhook, or an address of apprise
    url_file: str = ""  # a file with the url, instead of it
    secret: str = ""  # of the bot's signature
    secret_file: str = ""
    service: Service = "auto"
    language: Language | None = None  # None: zh for Feishu, Lark, DingTalk and WeCom, en for all others
    namespaces: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    operators: bool = False
    kinds: tuple[NoticeKind, ...] = ()  # (): all
    templates: dict[NoticeKind, str] = msgspec.field(default_factory=dict)


class NotifyConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who is told what happens to workloads, and how."""

    channels: Annotated[
        tuple[ChannelConfig, ...],
        Meta(
            description="Channels for notices: a list with name and url, and optionally secret, service, language, "
            "namespaces, owners, operators, kinds and templates (docs/notices.md). In a variable it is JSON.",
            extra={"form": "json", "secret": True, "unset": "none: no notices are sent"},
        ),
    ] = ()
    low_gpus: Annotated[
        LowGpus,
        Meta(
            description="Messages that list low GPUs, as in gpu-oour; they take nothing. change: when a GPU or tenant "
            "becomes low or idle. digest: all of them, every notify.low_gpus_every. schedule: all of them, "
            "at the times of notify.low_gpus_at.",
        ),
    ] = "none"
    low_gpus_every: Annotated[
        Seconds,
        Meta(
            ge=60,
            le=30 * 86400,
            description="Time between two lists of low GPUs.",
            extra={"form": "duration"},
        ),
    ] = 86400.0
    low_gpus_at: Annotated[
        tuple[str, ...],
        Meta(
            description="Times of day, in notify.timezone, at which low GPUs are listed: 09:00,17:30.",
            extra={"form": "list"},
        ),
    ] = ("09:00",)
    digest: Annotated[
        Seconds,
        Meta(
            ge=0,
            le=86400,
            description="Minimum time between two messages of a channel; notices in between share one message.",
            extra={"form": "duration"},
        ),
    ] = 300.0
    timeout: Annotated[
        Seconds,
        Meta(ge=0.1, le=120, description="Timeout of sending one message.", extra={"form": "duration"}),
    ] = 10.0
    console_url: Annotated[
        str | None,
        Meta(
            description="URL of the analyzer as owners reach it, for the links in notices.",
            extra={"form": "url", "unset": "none: notices have no links"},
        ),
    ] = None
    link_secret: Annotated[
        Annotated[str, Meta(min_length=32)] | None,
        Meta(
            description="Secret that signs the links of owners; the same for all replicas.",
            extra={
                "secret": True,
                "unset": "made from analyzer.session_key or the API token; without both, notices have no such links",
            },
        ),
    ] = None
    link_lifetime: Annotated[
        Seconds,
        Meta(
            ge=60,
            le=30 * 86400,
            description="How long a link of an owner is valid.",
            extra={"form": "duration"},
        ),
    ] = 3 * 86400.0
    timezone: Annotated[str, Meta(description="Time zone of the times in notices, for example Asia/Shanghai.")] = "UTC"


def check_notify(config: NotifyConfig) -> None:
    """ValueError names the part that is invalid; no secret is in its text."""
    try:
        ZoneInfo(config.timezone)
    except (KeyError, ValueError, OSError) as e:
        raise ValueError(f"timezone: {config.timezone!r} is not a known time zone") from e
    if config.low_gpus != "none" and not config.channels:
        raise ValueError(f"low_gpus: {config.low_gpus}, but there is no channel to send to")
    for text in config.low_gpus_at:
        if not _TIME.fullmatch(text):
            raise ValueError(f"low_gpus_at: expected a time of day such as 09:00 (got {text[:40]!r})")
    if config.low_gpus == "schedule" and not config.low_gpus_at:
        raise ValueError("low_gpus_at: missing, but low_gpus is schedule")
    seen: set[str] = set()
    for number, channel in enumerate(config.channels):
        at = f"channels[{number}]"
        if not _NAME.fullmatch(channel.name):
            raise ValueError(f"{at}.name: expected lower-case letters, digits and dashes (got {channel.name[:80]!r})")
        if channel.name in seen:
            raise ValueError(f"{at}.name: {channel.name!r} is the name of two channels")
        seen.add(channel.name)
        _check_channel(channel, at)


def _check_channel(channel: ChannelConfig, at: str) -> None:
    for name, text, file in (
        ("url", channel.url, channel.url_file),
        ("secret", channel.secret, channel.secret_file),
    ):
        if text and file:
            raise ValueError(f"{at}: {name} and {name}_file exclude each other")
    if not (channel.url or channel.url_file):
        raise ValueError(f"{at}.url: missing")
    if channel.url and not is_address(channel.url):
        raise ValueError(f"{at}.url: [redacted] is not a URL; expected https://… or an address of apprise")


def is_address(text: str) -> bool:
    return bool(_ADDRESS.fullmatch(text))
