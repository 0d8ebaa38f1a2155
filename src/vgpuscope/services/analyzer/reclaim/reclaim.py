"""Reclaim as a whole: its parts, and what is shown of them."""

from collections.abc import Mapping, Sequence
from typing import Literal

from vgpuscope.config import SETTINGS, Setting
from vgpuscope.logic.reclaim.breaker import Breaker
from vgpuscope.model.audit import AuditPage
from vgpuscope.model.reclaim import Brake, Case, Policy
from vgpuscope.runtime import duration
from vgpuscope.services.analyzer.reclaim.case_actions import CaseActions
from vgpuscope.services.analyzer.reclaim.case_notices import CaseNotices
from vgpuscope.services.analyzer.reclaim.deliveries import Deliveries
from vgpuscope.services.analyzer.reclaim.dependencies import KubeState, ReclaimDependencies
from vgpuscope.services.analyzer.reclaim.shared import ReclaimCounts, ReclaimState
from vgpuscope.services.analyzer.reclaim.ticks import Ticks


class Reclaim:
    """The parts, which work on one ReclaimState; the properties below are what others read of it."""

    def __init__(self, given: ReclaimDependencies) -> None:
        self._given = given
        self._shared = ReclaimState(given)
        self.ticks = Ticks(self._shared)
        self.deliveries = Deliveries(self._shared)
        self.notices = CaseNotices(self._shared)
        self.case_actions = CaseActions(self._shared, self.deliveries)

    @property
    def cases(self) -> Mapping[str, Case]:
        return self._shared.cases

    @property
    def counts(self) -> ReclaimCounts:
        return self._shared.counts

    @property
    def changes(self) -> int:
        """Grows with everything that is shown."""
        return self._shared.changes

    @property
    def breaker(self) -> Breaker:
        return self._shared.memory.breaker

    @property
    def stopped_by(self) -> str:
        """Who stopped reclaim; "": nobody."""
        return self._shared.stopped_by

    def policy(self) -> Policy:
        return self._shared.policy()

    def changed_settings(self) -> Sequence[tuple[str, str, str]]:
        """The settings of the policy that differ from their defaults: each with its value, and its default, as text."""
        chosen = self._given.config().reclaim
        own = [setting for setting in SETTINGS if setting.section == "reclaim"]
        values = [(setting, getattr(chosen, setting.path.partition(".")[2])) for setting in own]
        return [
            (setting.path, _text(setting, value), _text(setting, setting.default))
            for setting, value in values
            if value != setting.default
        ]

    @property
    def mode(self) -> Literal["live", "dry_run", "off"]:
        """off: without a store nothing is remembered, so nothing is ever done."""
        if self._given.store is None:
            return "off"
        return "dry_run" if self.policy().dry_run else "live"

    def brakes(self, *, reachable: bool = True) -> Mapping[Brake, bool]:
        """The brakes on all workloads, and whether each is on; none in a dry run, or if another replica leads.

        `reachable`: the store answers. If it does not, nobody leads, and every replica says so.
        """
        if self.mode != "live" or (reachable and not self._given.lead.may_act()):
            return {}
        world = self._shared.world()
        return {
            "stop": world.stop,
            "breaker": world.breaker,
            "store_down": not (reachable and world.stored),
            "holder_unknown": world.kube == "none" and self.policy().action != "notify",
            "kube_unreachable": world.kube == "down",
        }

    @property
    def kube(self) -> KubeState:
        """The Kubernetes API: not configured, answers, or does not answer."""
        return self._given.kube()

    @property
    def asks_prometheus(self) -> bool:
        """Whether signs of use are read from Prometheus."""
        return self._given.asks_prometheus()

    @property
    def notifies(self) -> bool:
        """Whether an owner can be told anything."""
        return self._given.channel()

    async def audit(
        self,
        *,
        case_id: str = "",
        namespaces: frozenset[str] | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> AuditPage:
        store = self._given.store
        if store is None:
            return AuditPage(entries=())
        return await store.audit(case_id=case_id, namespaces=namespaces, before=before, limit=limit)


def _text(setting: Setting, value: object) -> str:
    return duration.text(value) if setting.form == "duration" and isinstance(value, float) else setting.shown(value)
