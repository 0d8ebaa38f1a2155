"""The page behind an owner's link: what will happen, and a button. No scripts, no account, nothing from elsewhere.

A GET shows the page and changes nothing; only the button's POST does. So a mail scanner that follows a link does no
harm.
"""

import base64
import hashlib
from html import escape

from vgpuscope.model.notices import LinkAction, SignedLink
from vgpuscope.model.reclaim import Case, State
from vgpuscope.model.words import Language
from vgpuscope.views.notices.message import gpu_names, idle_since, moment

SNOOZES = (4 * 3600, 86400, 3 * 86400, 7 * 86400)  # seconds
_STYLE = """\
*{box-sizing:border-box}body{font:16px/1.6 system-ui,-apple-system,"PingFang SC","Microsoft YaHei",sans-serif;margin:0;
background:#f4f5f7;color:#1c2128}main{max-width:36rem;margin:4vh auto;padding:1.5rem;background:#fff;
border:1px solid #d8dce2;border-radius:8px}h1{font-size:1.35rem;line-height:1.35;margin:0 0 1rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.25rem 1rem;margin:1rem 0}dt{color:#57606a}
dd{margin:0;overflow-wrap:anywhere}form{display:flex;flex-wrap:wrap;gap:.75rem;margin:1.5rem 0 0}
button{font:inherit;padding:.6rem 1.2rem;border:0;border-radius:6px;background:#0b5cad;color:#fff;cursor:pointer;
min-height:44px}button:hover,button:focus-visible{background:#084a8c}button:focus-visible{outline:3px solid #9ec5f0}
small{color:#57606a}code{overflow-wrap:anywhere}@media(max-width:36rem){main{margin:0;border:0;border-radius:0;
min-height:100vh}button{width:100%}}@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}
main{background:#161b22;border-color:#30363d}dt,small{color:#9198a1}}
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS = {
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{_HASH}'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-robots-tag": "noindex, nofollow",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}

_ASK: dict[Language, dict[LinkAction, tuple[str, str, str]]] = {  # heading, what it means, button
    "en": {
        "keep": (
            "Keep the GPUs of this workload?",
            "Its GPUs are not taken back until this pod ends.",
            "Keep the GPUs",
        ),
        "snooze": (
            "Postpone taking the GPUs back?",
            "The workload keeps its GPUs for the time you choose. If it is still idle then, you are notified again.",
            "",
        ),
        "release": (
            "Give the GPUs back now?",
            "You need not wait for the end of the grace period. vgpuscope checks once more that the workload is idle, "
            "then its GPUs are taken back.",
            "Give the GPUs back",
        ),
    },
    "zh": {
        "keep": ("保留该工作负载的 GPU？", "在该 Pod 结束之前，它的 GPU 不会被收回。", "保留 GPU"),
        "snooze": ("推迟收回 GPU？", "在所选时间内，GPU 不会被收回。到期后如果仍然空闲，会再次通知您。", ""),
        "release": (
            "现在归还 GPU？",
            "无需等待宽限期结束。vgpuscope 会再确认一次该工作负载处于空闲状态，然后收回它的 GPU。",
            "归还 GPU",
        ),
    },
}
_DONE: dict[Language, dict[LinkAction, tuple[str, str]]] = {
    "en": {
        "keep": ("The GPUs are kept", "They are not taken back until this pod ends."),
        "snooze": ("Postponed", "The GPUs are not taken back before {until}."),
        "release": ("Thank you", "The GPUs are taken back soon, if the workload is still idle."),
    },
    "zh": {
        "keep": ("已保留", "在该 Pod 结束之前，它的 GPU 不会被收回。"),
        "snooze": ("已推迟", "{until} 之前，GPU 不会被收回。"),
        "release": ("谢谢", "如果该工作负载仍然空闲，GPU 将很快被收回。"),
    },
}
_TIMES: dict[Language, dict[int, str]] = {
    "en": {4 * 3600: "4 hours", 86400: "1 day", 3 * 86400: "3 days", 7 * 86400: "7 days"},
    "zh": {4 * 3600: "4 小时", 86400: "1 天", 3 * 86400: "3 天", 7 * 86400: "7 天"},
}
_LABELS: dict[Language, tuple[str, str, str, str, str]] = {
    "en": ("Workload", "GPUs", "Idle since", "Taken back after", "The link works once, until {until}."),
    "zh": ("工作负载", "GPU", "空闲开始", "收回时间", "该链接只能使用一次，有效期至 {until}。"),
}
_REFUSED: dict[Language, dict[str, tuple[str, str]]] = {
    "en": {
        "LINK_INVALID": ("This link is not valid", "Open it from the notice itself. Some programs break long links."),
        "LINK_EXPIRED": ("This link has expired", "Use the link of a newer notice, or ask your operators."),
        "LINK_USED": ("This link was used before", "Each link works once. Nothing was changed this time."),
        "CASE_UNFIT": ("Nothing to do any more", "{state} Nothing was changed."),
        "OBJECT_UNKNOWN": ("The workload is gone", "Its pod has ended, so nothing is left to decide."),
        "": ("This does not work at the moment", "Nothing was changed. Please try again in a minute."),
    },
    "zh": {
        "LINK_INVALID": ("链接无效", "请直接从通知中打开链接。有些程序会截断较长的链接。"),
        "LINK_EXPIRED": ("链接已过期", "请使用较新通知中的链接，或联系操作员。"),
        "LINK_USED": ("链接已使用过", "每个链接只能使用一次，这次未做任何更改。"),
        "CASE_UNFIT": ("无需再操作", "{state}未做任何更改。"),
        "OBJECT_UNKNOWN": ("工作负载已不存在", "该 Pod 已结束，无需再做决定。"),
        "": ("暂时无法处理", "未做任何更改，请稍后重试。"),
    },
}
_STATES: dict[Language, dict[State, str]] = {
    "en": {
        "released": "The workload is in use again, or has ended.",
        "exempt": "The GPUs of this workload are kept already.",
        "acting": "The GPUs are being taken back already.",
        "would_act": "Reclaim is a dry run: the GPUs are kept.",
        "verified": "The GPUs were taken back already.",
        "restored": "The workload was restored.",
        "failed": "The GPUs could not be taken back.",
        "snoozed": "It was postponed already.",
        "awaiting_approval": "An operator decides now.",
    },
    "zh": {
        "released": "该工作负载已重新使用 GPU，或已结束。",
        "exempt": "该工作负载的 GPU 已设为保留。",
        "acting": "GPU 正在收回。",
        "would_act": "当前为演练模式：GPU 不会被收回。",
        "verified": "GPU 已收回。",
        "restored": "该工作负载已恢复。",
        "failed": "GPU 未能收回。",
        "snoozed": "已经推迟过。",
        "awaiting_approval": "正在等待操作员批准。",
    },
}


def asked(link: SignedLink, case: Case, *, tz: str) -> bytes:
    """The question, and its button or buttons."""
    heading, meaning, button = _ASK[link.language][link.action]
    times = _TIMES[link.language]
    choices = {f"?seconds={one}": times[one] for one in SNOOZES} if link.action == "snooze" else {"": button}
    buttons = "".join(f"<button{_to(where)}>{escape(text)}</button>" for where, text in choices.items())
    valid = _LABELS[link.language][4].format(until=moment(link.expires, tz))
    return _page(
        link.language,
        heading,
        f"<h1>{escape(heading)}</h1><p>{escape(meaning)}</p>{_facts(link.language, case, tz)}"
        f'<form method="post">{buttons}</form><p><small>{escape(valid)}</small></p>',
    )


def done(link: SignedLink, case: Case, *, tz: str) -> bytes:
    """What was decided."""
    heading, meaning = _DONE[link.language][link.action]
    until = moment(case.next_at, tz) if case.next_at is not None else ""
    said = f"<h1>{escape(heading)}</h1><p>{escape(meaning.format(until=until))}</p>"
    return _page(link.language, heading, said + _named(link.language, case))


def refused(code: str, *, language: Language | None, state: State | None = None) -> bytes:
    """Why nothing was done. Before a link is known to be ours, its language is not known either."""
    languages: tuple[Language, ...] = (language,) if language else ("zh", "en")
    parts = []
    for one in languages:
        heading, hint = _REFUSED[one].get(code) or _REFUSED[one][""]
        why = hint.format(state=f"{_STATES[one].get(state, '')} " if state else "")
        parts.append(f'<section lang="{_tag(one)}"><h1>{escape(heading)}</h1><p>{escape(why.strip())}</p></section>')
    return _page(languages[0], code, f"{''.join(parts)}<p><small><code>{escape(code)}</code></small></p>")


def _to(where: str) -> str:
    return f' formaction="{escape(where)}"' if where else ""


def _facts(language: Language, case: Case, tz: str) -> str:
    workload, gpus, since, after, _ = _LABELS[language]
    rows = [
        (workload, f"{case.namespace}/{case.pod}"),
        (gpus, gpu_names(case)),
        (since, moment(idle_since(case), tz)),
    ]
    if case.state == "grace" and case.next_at is not None:
        rows.append((after, moment(case.next_at, tz)))
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in rows) + "</dl>"


def _named(language: Language, case: Case) -> str:
    label = _LABELS[language][0]
    return f"<dl><dt>{escape(label)}</dt><dd>{escape(f'{case.namespace}/{case.pod}')}</dd></dl>"


def _tag(language: Language) -> str:
    return "zh-CN" if language == "zh" else "en"


def _page(language: Language, heading: str, body: str) -> bytes:
    return (
        f'<!doctype html><html lang="{_tag(language)}"><head><meta charset="utf-8">'
        f"<title>{escape(heading)} · vgpuscope</title>"
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="robots" content="noindex">'
        f"<style>{_STYLE}</style></head><body><main>{body}</main></body></html>\n"
    ).encode()
