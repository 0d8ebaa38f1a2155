"""Which notices follow from a case that moved, and from the circuit breaker."""

from vgpuscope.model.notices import NoticeKind
from vgpuscope.model.reclaim import Case, State

_TOLD_BEFORE: frozenset[State] = frozenset({"grace", "awaiting_approval", "acting"})


def of_move(before: Case | None, after: Case, *, tell: bool, only_told: bool) -> NoticeKind | None:
    """The notice of a move. `tell`: the owner is to be notified; `only_told`: no action will follow.

    A dry run sends no notices, because it takes nothing.
    """
    if tell:
        return "advice" if only_told else "soon"
    if before is None or before.state == after.state or after.dry_run:
        return None
    if after.state == "verified":
        return "taken"
    if after.state == "restored":
        return "restored"
    if after.state == "failed":
        return "failed"
    works = after.state == "released" and after.reason in {"works_again", "holds_memory", "prepares_data"}
    works = works and not after.taken  # it ends, and its last work is not what keeps its GPUs
    return "recovered" if works and after.notified_at is not None and before.state in _TOLD_BEFORE else None


def of_breaker(*, was_open: bool, is_open: bool) -> NoticeKind | None:
    if was_open == is_open:
        return None
    return "breaker_opened" if is_open else "breaker_closed"
