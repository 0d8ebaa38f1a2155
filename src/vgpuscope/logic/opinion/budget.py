"""How many requests may still be made: in any 24 hours, counted by hours, so that it survives a restart."""

from collections.abc import Mapping

from vgpuscope.model.quantity import UnixTime

HOUR = 3600
_DAY = 24  # hours


class RequestBudget:
    """Requests of the last 24 hours. The running hour and 24 full ones count, so the budget is never exceeded."""

    def __init__(self, spent: Mapping[int, int] | None = None) -> None:
        """`spent`: requests by the number of the hour since 1970."""
        self._spent = dict(spent or {})

    def left(self, most: int, now: UnixTime) -> int:
        return max(0, most - sum(self._current(now).values()))

    def spend(self, now: UnixTime) -> None:
        hour = int(now // HOUR)
        self._spent = self._current(now)
        self._spent[hour] = self._spent.get(hour, 0) + 1

    def free_at(self, now: UnixTime) -> UnixTime:
        """When the oldest counted hour no longer counts."""
        oldest = min(self._current(now), default=int(now // HOUR))
        return float((oldest + _DAY + 1) * HOUR)

    def hours(self, now: UnixTime) -> dict[int, int]:
        """What is counted now, to be stored."""
        return dict(self._current(now))

    def _current(self, now: UnixTime) -> dict[int, int]:
        first = int(now // HOUR) - _DAY
        return {hour: count for hour, count in self._spent.items() if hour >= first}
