"""Cases and the audit log as tables for the terminal."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import cast

import msgspec
from msgspec import Struct
from rich.console import Group, RenderableType
from rich.text import Text

from vgpuscope.model.audit import AuditEntry
from vgpuscope.model.quantity import UnixTime
from vgpuscope.model.reclaim import OPEN, Brake, State
from vgpuscope.model.words import Language
from vgpuscope.views.case_reasons import CHINESE_REASONS
from vgpuscope.views.languages import lasting
from vgpuscope.views.reclaim.api import CaseRow, ReclaimList
from vgpuscope.views.reclaim.held_by import LISTS, HeldBy
from vgpuscope.views.reclaim.words import CHINESE_BRAKES, CHINESE_STEPS, STATES, named, word
from vgpuscope.views.table import TableColumn, table
from vgpuscope.views.text import clean

_STYLES: dict[State, str] = {
    "grace": "yellow",
    "notified": "yellow",
    "awaiting_approval": "bold yellow",
    "acting": "bold red",
    "failed": "red",
    "verified": "green",
    "released": "dim",
}
_CASES = (  # which workloads, and what comes next
    TableColumn(("CASE", "编号")),
    TableColumn(("STATE", "状态"), form="text", least=19),
    TableColumn(("NEXT", "下一步"), form="text", least=14),
    TableColumn(("GPUS", "GPU"), right=True, hide=1),
    TableColumn(("IDLE FOR", "已空闲"), right=True, hide=2),
    TableColumn(("POD (HELD BACK BY)", "POD（阻止原因）"), form="name", least=28),
)
_BRAKES = (
    TableColumn(("HELD BACK BY", "阻止原因")),
    TableColumn(("CASES", "任务"), right=True),
    TableColumn(("SETTING", "设置"), form="text"),
)
_AUDIT = (  # who did what to which workload
    TableColumn(("TIME", "时间")),
    TableColumn(("WHO", "谁"), form="name", least=10, hide=2),
    TableColumn(("WHAT", "步骤")),
    TableColumn(("AFTER", "之后"), form="text", least=19),
    TableColumn(("WHY", "原因"), form="text", least=14, hide=1),
    TableColumn(("POD", "POD"), form="name", least=32),
)
_SHORT = 8  # characters of an id: enough to name it, as git does


def cases_table(found: ReclaimList, width: int | None, language: Language, *, now: UnixTime, limit: int) -> Group:
    """The cases, those that act soonest first, and whether anything is done about them."""
    shown = sorted(found.cases, key=_order)
    parts: list[RenderableType] = []
    if shown:
        parts.append(table(_CASES, [_cells(case, language, now) for case in shown[:limit]], width, language))
    else:
        parts.append(Text(word("empty", language)))
    if found.total > limit:
        parts.append(Text(word("more", language, n=found.total - limit, all=found.total)))
    if any(found.brakes.values()):
        parts += ["", _brakes(found, width, language), ""]
    return Group(*parts, *_machine(found, language))


def _brakes(found: ReclaimList, width: int | None, language: Language) -> RenderableType:
    """How many cases each brake holds back, and the setting that decides it; the most frequent first."""
    settings: dict[Brake, list[HeldBy]] = {}
    for case in found.cases:
        for held in case.brakes:
            same = settings.setdefault(held.brake, [])
            if held not in same:
                same.append(held)
    rows = []
    for brake, count in sorted(found.brakes.items(), key=lambda one: (-one[1], one[0])):
        if count:
            texts = [text for one in settings.get(brake, ()) if (text := setting_is(one, language))]
            name = named(brake, CHINESE_BRAKES, language)
            rows.append([Text(name), Text(str(count)), Text(_SEPARATORS[language].join(texts))])
    return table(_BRAKES, rows, width, language)


def setting_is(held: HeldBy, language: Language) -> str:
    """The setting of a brake: reclaim.include_held is false; "" if no setting decides it."""
    if held.setting is None or held.value is None:
        return held.setting or ""
    name = "contains" if held.setting in LISTS else "is"
    return word(name, language, setting=held.setting, value=clean(held.value))


_SEPARATORS: dict[Language, str] = {"en": ", ", "zh": "，"}


def _order(case: CaseRow) -> tuple[bool, UnixTime, str]:
    return (case.next_at is None, case.next_at or -case.since, case.id)


def _cells(case: CaseRow, language: Language, now: UnixTime) -> list[Text]:
    state = STATES[case.state][language == "zh"]
    return [
        Text(clean(case.id[:_SHORT])),
        Text(state, _STYLES.get(case.state, "")),
        Text(_next(case, language, now)),
        Text(str(len(case.gpu_ids))),
        Text(_idle_for(case, language, now)),
        _pod(case, language),
    ]


def _idle_for(case: CaseRow, language: Language, now: UnixTime) -> str:
    """How long it has been idle; nothing once it works again, is gone, or nobody looks any more."""
    if case.idle_since is None or (case.state not in OPEN and case.state != "snoozed"):
        return ""
    return lasting(now - case.idle_since, language)


def _pod(case: CaseRow, language: Language) -> Text:
    brakes = [brake for brake in case.held_by if brake != _OWN_BRAKES.get(case.state)]
    texts = [named(brake, CHINESE_BRAKES, language) for brake in brakes]
    return _in_parentheses(Text(clean(f"{case.namespace}/{case.pod}")), texts, language)


_OWN_BRAKES: Mapping[str, Brake] = {  # the state says it already
    "would_act": "dry_run",
    "awaiting_approval": "approval",
    "snoozed": "snoozed",
    "exempt": "exempted",
}


def _next(case: CaseRow, language: Language, now: UnixTime) -> str:
    """What has to happen before the state changes."""
    if case.state == "candidate" and case.held_by and not case.confirmations:
        return ""
    if case.state == "candidate":
        return word("window" if case.confirmations == 1 else "windows", language, n=case.confirmations)
    if case.state == "awaiting_approval":
        return word("approval" if not case.by else "now", language)
    if case.next_at is None or case.dry_run:
        return ""
    left = case.next_at - now
    return word("in", language, time=lasting(left, language)) if left > 0 else word("now", language)


def _machine(found: ReclaimList, language: Language) -> list[Text]:
    lines = [Text(word(found.mode, language), "dim")]
    if found.changed:
        differ = (
            word("differs", language, setting=one.setting, value=clean(one.value), default=one.default)
            for one in found.changed
        )
        lines.append(Text(word("differ", language, settings=_SEPARATORS[language].join(differ)), "dim"))
    if found.stopped_by:
        lines.append(Text(word("stopped", language, who=clean(found.stopped_by)), "bold yellow"))
    if found.breaker.open:
        breaker = found.breaker
        lines.append(Text(word("breaker", language, turned=breaker.turned, of=breaker.of), "bold red"))
    return lines


def case_line(case: CaseRow, language: Language) -> str:
    """One case after it was changed."""
    state = STATES[case.state][language == "zh"]
    return word("done", language, pod=clean(f"{case.namespace}/{case.pod}"), state=state)


def audit_table(entries: Sequence[AuditEntry], width: int | None, language: Language) -> RenderableType:
    """The entries, newest first."""
    if not entries:
        return Text(word("no_entry", language))
    return table(_AUDIT, [_entry(one, language) for one in entries], width, language)


def _entry(one: AuditEntry, language: Language) -> list[Text]:
    return [
        Text(moment(one.at), "dim"),
        Text(clean(one.actor)),
        Text(named(one.what, CHINESE_STEPS, language)),
        Text(_state(one.after, language)),
        Text(_why(one, language)),
        _audited_pod(one, language),
    ]


def _state(code: str, language: Language) -> str:
    """The name of a state; the code if it is not known here."""
    names = {state: both[language == "zh"] for state, both in STATES.items()}
    return names.get(cast("State", code), code)


def _why(one: AuditEntry, language: Language) -> str:
    if one.what in {"held", "lifted"}:
        brakes = [named(code, CHINESE_BRAKES, language) for code in clean(one.reason).split()]
        return _SEPARATORS[language].join(brakes)
    return named(clean(one.reason)[:40], CHINESE_REASONS, language)


class _Detail(Struct):
    """What is shown of the detail of an entry."""

    brakes: tuple[HeldBy, ...] = ()


def _audited_pod(one: AuditEntry, language: Language) -> Text:
    """The pod; in parentheses, the brakes that hold its case back from then on, each with its setting."""
    name = Text(clean(f"{one.namespace}/{one.pod}") if one.pod else "")
    if one.what not in {"moved", "held"} or one.after in _OWN_BRAKES:
        return name
    try:
        brakes = msgspec.json.decode(one.detail or "{}", type=_Detail).brakes
    except msgspec.DecodeError:  # of a newer analyzer
        return name
    colon = "：" if language == "zh" else ": "
    texts = [
        colon.join(filter(None, (named(held.brake, CHINESE_BRAKES, language), setting_is(held, language))))
        for held in brakes
    ]
    return _in_parentheses(name, texts, language)


def _in_parentheses(name: Text, texts: list[str], language: Language) -> Text:
    if not texts:
        return name
    return name.append(f"（{'、'.join(texts)}）" if language == "zh" else f" ({', '.join(texts)})", "dim")


def moment(at: UnixTime) -> str:
    """A time in UTC."""
    return datetime.fromtimestamp(at, tz=UTC).strftime("%Y-%m-%d %H:%M:%SZ")
