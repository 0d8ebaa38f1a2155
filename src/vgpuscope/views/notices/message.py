"""Notices → one message: their texts by template, grouped by kind, with headings and the link to the console."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from msgspec import Struct, structs

from vgpuscope.model.notices import Notice, NoticeKind
from vgpuscope.model.quantity import UnixTime
from vgpuscope.model.reclaim import Case
from vgpuscope.model.words import Language, Words
from vgpuscope.views.notices import words
from vgpuscope.views.notices.templates import TemplateRefused, check, rendered

_ADDRESS = re.compile(r"\S*([:：][/／⁄]{2}|www[.．｡。․])\S*", re.IGNORECASE)
_DOMAIN = re.compile(  # a dot as in evil.example or 10.0.0.1, not as in 2.5; domain names may have other dots
    r"[.．｡․](?=[^\W\d_])|(?<=[A-Za-z0-9])。(?=[A-Za-z0-9])|(?<=\d)[.．｡](?=\d+[.．｡]\d+[.．｡]\d)"
)
_NOT_A_LINK = "\\g<0>\u200b"  # a space of no width: chat services make links of bare domains, and none of this
_OPINION = 300  # characters
_GPUS = 8  # that are named


class Fields(Struct, frozen=True, kw_only=True):
    """What a template can print. An empty text: not known, or not offered."""

    kind: str
    at: str  # when it happened
    namespace: str = ""
    pod: str = ""
    owner: str = ""  # Deployment/web
    gpus: str = ""  # GPU-1 (A100), GPU-2 (A100)
    gpu_count: int = 0
    score: str = ""  # the highest of its GPUs
    idle_since: str = ""
    grace_end: str = ""
    reason: str = ""
    by: str = ""
    opinion: str = ""
    keep_url: str = ""
    snooze_url: str = ""
    release_url: str = ""
    console_url: str = ""
    turned: int = 0
    of: int = 0


FIELDS = frozenset(Fields.__struct_fields__)
_EMPTY = Fields(kind="", at="2026-11-17 09:30 UTC")
_FULL = Fields(
    kind="",
    at="2026-11-17 09:30 UTC",
    namespace="ml",
    pod="train-0",
    owner="Job/train",
    gpus="GPU-1 (A100), GPU-2 (A100)",
    gpu_count=2,
    score="2.5",
    idle_since="2026-11-17 07:30 UTC",
    grace_end="2026-11-17 10:00 UTC",
    reason="the GPUs were not free in time",
    by="ops",
    opinion="idle for two hours",
    keep_url="https://gpu.example.com/owner/1",
    snooze_url="https://gpu.example.com/owner/2",
    release_url="https://gpu.example.com/owner/3",
    console_url="https://gpu.example.com",
    turned=7,
    of=9,
)


class Style(Struct, frozen=True, kw_only=True):
    """How a channel writes."""

    language: Language = "en"
    oour: bool = False  # gpu-oour's text for Feishu
    tz: str = "UTC"
    templates: Mapping[NoticeKind, str] = {}
    console_url: str = ""

    def template(self, kind: NoticeKind) -> str:
        own = self.templates.get(kind)
        ours = words.TEXTS[self.language][kind]
        return own or (words.OOUR_TEXTS.get(kind, ours) if self.oour else ours)

    def heading(self, kind: NoticeKind) -> str:
        oour = self.oour and kind in {"soon", "low"}
        return words.OOUR_HEADING if oour else words.HEADINGS[self.language][kind]


class Item(Struct, frozen=True, kw_only=True):
    """A notice with what is added when it is sent."""

    notice: Notice
    grace_end: UnixTime | None = None
    links: Mapping[str, str] = {}  # by action


class Message(Struct, frozen=True, kw_only=True):
    title: str
    body: str


def message(items: Sequence[Item], style: Style, *, waiting: int = 0, left_out: int = 0) -> Message:
    """One message for all items; `waiting` more follow later, and `left_out` more do not."""
    kinds = dict.fromkeys(item.notice.kind for item in items)
    parts = [_section(kind, [item for item in items if item.notice.kind == kind], style) for kind in kinds]
    if style.console_url:
        parts.append(words.CONSOLE[style.language].format(url=f"{style.console_url}/ui/idle"))
    if waiting:
        parts.append(words.MORE[style.language].format(count=waiting))
    if left_out:
        parts.append(words.LEFT_OUT[style.language].format(count=left_out))
    [first, *others] = kinds
    heading = words.HEADINGS[style.language][first] + (" …" if others else "")
    return Message(title=f"vgpuscope: {heading}", body="\n".join(parts))


def check_template(kind: NoticeKind, source: str) -> None:
    """TemplateRefused for a template that may not be used, or that cannot be rendered with few or with all fields."""
    check(source, FIELDS)
    for sample in (_EMPTY, _FULL):
        try:
            rendered(source, structs.asdict(sample) | {"kind": kind})
        except Exception as e:  # whatever its operators and filters raise
            raise TemplateRefused(f"cannot be rendered: {type(e).__name__}: {e}") from e


def trial(language: Language) -> Message:
    """A message that says only that it arrived."""
    title, body = words.TRIAL[language]
    return Message(title=title, body=body)


def _section(kind: NoticeKind, items: Sequence[Item], style: Style) -> str:
    template = style.template(kind)
    texts = [rendered(template, structs.asdict(fields(item, style))).rstrip("\n") for item in items]
    return f"{style.heading(kind)}\n\n" + "\n".join(texts) + "\n"


def fields(item: Item, style: Style) -> Fields:
    """The fields of one notice."""
    notice, case = item.notice, item.notice.case
    common: dict[str, Any] = {"kind": notice.kind, "at": moment(notice.at, style.tz), "console_url": style.console_url}
    if (use := notice.low) is not None:
        return Fields(
            **common,
            namespace=harmless(use.namespace),
            pod=harmless(use.pod),
            gpus=harmless(f"{use.gpu_id} ({use.model})" if use.model else use.gpu_id),
            gpu_count=1,
            score="" if use.score is None else f"{use.score:.1f}",
            idle_since=use.idle_since,
            opinion=harmless(Words(use.opinion, use.opinion_zh).text_in(style.language)),
        )
    if case is None:
        return Fields(**common, turned=notice.turned, of=notice.of)
    return Fields(
        **common,
        namespace=harmless(case.namespace),
        pod=harmless(case.pod),
        owner=harmless(case.owner),
        gpus=gpu_names(case),
        gpu_count=len(case.gpu_ids),
        score=score(case),
        idle_since=moment(idle_since(case), style.tz),
        grace_end=moment(item.grace_end, style.tz) if item.grace_end is not None else "",
        reason=words.REASONS[style.language].get(case.reason, harmless(case.reason)),
        by=harmless(case.by),
        opinion=harmless(Words(notice.opinion, notice.opinion_zh).text_in(style.language)),
        keep_url=item.links.get("keep", ""),
        snooze_url=item.links.get("snooze", ""),
        release_url=item.links.get("release", ""),
    )


def score(case: Case) -> str:
    """The highest score of its GPUs; "" if none is known."""
    known = [share.score for share in case.shares if share.score is not None]
    return f"{max(known):.1f}" if known else ""


def gpu_names(case: Case) -> str:
    models = {share.gpu_id: share.model for share in case.shares}
    names = [f"{gpu_id} ({models[gpu_id]})" if models[gpu_id] else gpu_id for gpu_id in case.gpu_ids]
    more = len(names) - _GPUS
    return ", ".join(map(harmless, names[:_GPUS])) + (f", +{more}" if more > 0 else "")


def idle_since(case: Case) -> UnixTime:
    known = [share.idle_since for share in case.shares if share.idle_since is not None]
    return max(known, default=case.first_idle)  # since then all of its GPUs are idle


def moment(at: UnixTime, tz: str) -> str:
    """2026-11-17 09:30 UTC+08:00."""
    local = datetime.fromtimestamp(at, ZoneInfo(tz))
    offset = local.strftime("%z")
    zone = "UTC" if offset == "+0000" else f"UTC{offset[:3]}:{offset[3:5]}"
    return f"{local:%Y-%m-%d %H:%M} {zone}"


def harmless(text: str) -> str:
    """Text that others wrote, without what a chat service would obey: links, mentions, lines of its own."""
    words_only = _ADDRESS.sub("…", " ".join(text.split()))
    plain = "".join(one for one in words_only if one.isprintable() and one not in "<>@＠﹫`*[]|{}")[:_OPINION]
    return _DOMAIN.sub(_NOT_A_LINK, plain)
