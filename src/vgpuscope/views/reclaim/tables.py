"""Cases and the audit log as tables for the terminal."""

from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.text import Text

from vgpuscope.model.audit import AuditEntry
from vgpuscope.model.quantity import UnixTime
from vgpuscope.model.reclaim import OPEN, State
from vgpuscope.model.words import Language
from vgpuscope.views.case_reasons import CHINESE_REASONS
from vgpuscope.views.reclaim.api import CaseRow, ReclaimList
from vgpuscope.views.reclaim.words import CHINESE_BRAKES, CHINESE_STEPS, STATES, named, word
from vgpuscope.views.table import table
from vgpuscope.views.text import clean, span

_STYLES: dict[State, str] = {
    "grace": "yellow",
    "notified": "yellow",
    "awaiting_approval": "bold yellow",
    "acting": "bold red",
    "failed": "red",
    "verified": "green",
    "released": "dim",
}
_CHINESE_STATES: dict[str, str] = {state: chinese for state, (_, chinese) in STATES.items()}
_SHORT = 8  # characters of an id: enough to name it, as git does


def cases_table(found: ReclaimList, width: int | None, language: Language, *, now: UnixTime, limit: int) -> Group:
    """The cases, those that act soonest first, and whether anything is done about them."""
    shown = sorted(found.cases, key=_order)
    parts: list[RenderableType] = []
    if shown:
        names = ("id", "state", "next", "gpus", "idle", "pod_held")
        titles = tuple(word(name, language) for name in names)
        rows = [_cells(case, language, now) for case in shown[:limit]]
        parts.append(table(titles, rows, width, spared=(titles[4], titles[3])))
    else:
        parts.append(Text(word("empty", language)))
    if found.total > limit:
        parts.append(Text(word("more", language, n=found.total - limit, all=found.total)))
    return Group(*parts, *_machine(found, language))


def _order(case: CaseRow) -> tuple[bool, UnixTime, str]:
    return (case.next_at is None, case.next_at or -case.since, case.id)


def _cells(case: CaseRow, language: Language, now: UnixTime) -> list[Text]:
    state = STATES[case.state][language == "zh"]
    return [
        Text(clean(case.id[:_SHORT])),
        Text(state, _STYLES.get(case.state, "")),
        Text(_next(case, language, now)),
        Text(str(len(case.gpu_ids))),
        Text(_idle_for(case, now)),
        _pod(case, language),
    ]


def _idle_for(case: CaseRow, now: UnixTime) -> str:
    """How long it has been idle; nothing once it works again, is gone, or nobody looks any more."""
    if case.idle_since is None or (case.state not in OPEN and case.state != "snoozed"):
        return ""
    return span(max(0.0, now - case.idle_since))


def _pod(case: CaseRow, language: Language) -> Text:
    name = Text(clean(f"{case.namespace}/{case.pod}"))
    if not case.held_by:
        return name
    brakes = [named(brake, CHINESE_BRAKES, language) for brake in case.held_by]
    return name.append(f"（{'、'.join(brakes)}）" if language == "zh" else f" ({', '.join(brakes)})", "dim")


def _next(case: CaseRow, language: Language, now: UnixTime) -> str:
    """What has to happen before the state changes."""
    if case.state == "candidate":
        return word("window" if case.confirmations == 1 else "windows", language, n=case.confirmations)
    if case.state == "awaiting_approval":
        return word("approval" if not case.by else "now", language)
    if case.next_at is None or case.dry_run:
        return ""
    left = case.next_at - now
    return word("in", language, time=span(left)) if left > 0 else word("now", language)


def _machine(found: ReclaimList, language: Language) -> list[Text]:
    lines = [Text(word(found.mode, language), "dim")]
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
    titles = tuple(word(name, language) for name in ("time", "actor", "what", "after", "why", "pod"))
    return table(titles, [_entry(one, language) for one in entries], width, spared=(titles[4], titles[1]))


def _entry(one: AuditEntry, language: Language) -> list[Text]:
    return [
        Text(moment(one.at), "dim"),
        Text(clean(one.actor)),
        Text(named(one.what, CHINESE_STEPS, language)),
        Text(named(one.after, _CHINESE_STATES, language)),
        Text(named(clean(one.reason)[:40], CHINESE_REASONS, language)),
        Text(clean(f"{one.namespace}/{one.pod}") if one.pod else ""),
    ]


def moment(at: UnixTime) -> str:
    """A time in UTC."""
    return datetime.fromtimestamp(at, tz=UTC).strftime("%Y-%m-%d %H:%M:%SZ")
