"""How much may be taken back in any rolling hour: of the fleet, of a namespace, in all."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from vgpuscope.model.quantity import Ratio, Seconds, UnixTime
from vgpuscope.model.reclaim import Brake, Policy

HOUR: Seconds = 3600.0


class SpentAction(NamedTuple):
    """One decision to act."""

    at: UnixTime
    namespace: str
    gpus: int


class Budgets:
    """The decisions of the last hour, and whether one more would be too much."""

    def __init__(self, spent: Iterable[SpentAction], *, now: UnixTime, fleet: int) -> None:
        """`fleet` is the number of physical GPUs. A decision of exactly one hour ago no longer counts."""
        self._fleet = fleet
        self._by_namespace, self._all, self._taken = Counter[str](), 0, 0  # decisions; GPUs
        for one in spent:
            if one.at > now - HOUR:
                self.spend(one)

    def exceeded(self, namespace: str, gpus: int, policy: Policy, *, workloads: int = 1) -> tuple[Brake, ...]:
        """The budgets that one more decision about so many workloads would exceed."""
        mine, taken = self._by_namespace[namespace], self._taken
        checks: tuple[tuple[Brake, bool], ...] = (
            ("budget_hour", self._all + workloads > policy.max_per_hour),
            ("budget_namespace", mine + workloads > policy.max_per_namespace),
            ("budget_fleet", taken + gpus > self._allowed(policy.max_fleet_share)),
        )
        return tuple(brake for brake, over in checks if over)

    def spend(self, one: SpentAction) -> None:
        self._by_namespace[one.namespace] += 1
        self._all += 1
        self._taken += one.gpus

    def _allowed(self, share: Ratio) -> float:
        return share * self._fleet + 1e-9  # 0.1 of 30 GPUs are 3, in spite of binary fractions
