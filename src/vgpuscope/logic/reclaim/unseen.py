"""Cases whose workload no analysis shows any more: they end after some days, and are forgotten later.

A workload that is missing is not always gone: its node may be down, or its exporter. So a case waits for some days, and
what a person decided waits longest. The key of a call is known as long as its case is, and so is what can be restored.
"""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from vgpuscope.logic.reclaim.budgets import HOUR
from vgpuscope.logic.reclaim.machine import Wish, moved
from vgpuscope.logic.reclaim.tick import CaseChange, TickResult, forgettable
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.model.reclaim import Case, State

DAY: Seconds = 24 * HOUR
_WITHOUT_SIGHT: Seconds = 7 * DAY  # longer than a weekend in which nobody repairs a node
_EXEMPT_WITHOUT_SIGHT: Seconds = 30 * DAY  # a person's word is not lost because a node was away for some weeks
_KEEP_ENDED: Seconds = 7 * DAY
_ENDED: frozenset[State] = frozenset({"verified", "restored", "released", "failed"})


def marked(cases: Mapping[str, Case], done: TickResult, now: UnixTime) -> TickResult:
    """The tick with the cases that begin or cease to be unseen, and those that end for it.

    An analysis that shows no workload at all says nothing: its source is down.
    """
    if not done.found:
        return done
    moves = tuple(CaseChange(move.before, *_aged(move.after, move.wish, done, now)) for move in done.moves)
    moved_ones = {move.after.id for move in moves}
    others = ((case, *_aged(case, "", done, now)) for key, case in cases.items() if key not in moved_ones)
    return replace(done, moves=(*moves, *(CaseChange(*one) for one in others if one[1] is not one[0])))


def _aged(case: Case, wish: Wish, done: TickResult, now: UnixTime) -> tuple[Case, Wish]:
    if case.id in done.found:
        return (case if case.unseen_since is None else replace(case, unseen_since=None)), wish
    if case.unseen_since is None:
        return replace(case, unseen_since=now), wish
    if case.state in _ENDED or now <= _ends(case, case.unseen_since):
        return case, wish
    return moved(case, "released", now, reason="ended"), "cancel" if case.state in {"notified", "acting"} else wish


def _ends(case: Case, unseen_since: UnixTime) -> UnixTime:
    """When a case ends that is not seen again."""
    if case.state == "snoozed":
        return max(unseen_since + _WITHOUT_SIGHT, case.next_at or 0.0)
    return unseen_since + (_EXEMPT_WITHOUT_SIGHT if case.state == "exempt" else _WITHOUT_SIGHT)


def forgotten(cases: Mapping[str, Case], done: TickResult, now: UnixTime) -> Iterator[str]:
    """The ids of ended cases that nobody asks for any more; never of one whose workload is still there."""
    for key, case in list(cases.items()):
        unseen = case.unseen_since is not None and now - case.unseen_since > _KEEP_ENDED and key not in done.found
        if unseen and case.state in _ENDED and now - case.since > _KEEP_ENDED and forgettable(case, now):
            yield key
