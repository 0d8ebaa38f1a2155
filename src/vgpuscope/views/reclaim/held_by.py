"""What holds a case back, with the setting or annotation that decides it."""

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from vgpuscope.model.quantity import Seconds
from vgpuscope.model.reclaim import BRAKES, Brake, Case, Policy


class HeldBy(Struct, frozen=True, kw_only=True, gc=False):
    """A brake on a case. `setting` has `value`, or contains it if it is a list."""

    brake: Brake
    setting: str | None = None  # of the analyzer, or an annotation; null: no setting decides this
    value: str | None = None  # as it is written in settings; null: the setting has no short value


_RULES: Mapping[Brake, tuple[str, Callable[[Policy, Case], str | None]]] = {
    "no_history": ("analyzer.history", lambda *_: "none"),
    "protected_namespace": ("reclaim.protected_namespaces", lambda _, case: case.namespace),
    "protected_priority": ("reclaim.protected_priorities", lambda *_: None),
    "job_untrusted": ("reclaim.evidence_jobs", lambda policy, _: ",".join(policy.evidence_jobs)),
    "annotation_never": ("vgpuscope.io/reclaim", lambda *_: "never"),
    "annotation_notify": ("vgpuscope.io/reclaim", lambda *_: "notify"),
    "pod_age": ("reclaim.min_pod_age", lambda policy, _: _duration(policy.min_pod_age)),
    "activity": ("activity.recent", lambda *_: None),
    "activity_unknown": ("activity.queries", lambda *_: None),
    "model_veto": ("ai.enabled", lambda *_: "true"),
    "model_waiting": ("ai.enabled", lambda *_: "true"),
    "breaker": ("reclaim.breaker.share", lambda policy, _: f"{policy.breaker_share:g}"),
    "holder_unknown": ("kube.enabled", lambda *_: "false"),
    "kube_unreachable": ("kube.enabled", lambda *_: None),
    "pod_unknown": ("kube.enabled", lambda *_: None),
    "working_hours": ("reclaim.working_hours", lambda *_: None),
    "budget_hour": ("reclaim.max_per_hour", lambda policy, _: str(policy.max_per_hour)),
    "budget_namespace": ("reclaim.max_per_namespace", lambda policy, _: str(policy.max_per_namespace)),
    "budget_fleet": ("reclaim.max_fleet_share", lambda policy, _: f"{policy.max_fleet_share:g}"),
    "notify_only": ("reclaim.action", lambda policy, _: policy.action),
    "unconfirmed": ("reclaim.confirmations", lambda policy, _: str(policy.confirmations)),
    "no_action": ("reclaim.action", lambda policy, _: policy.action),
    "preparing": ("reclaim.include_preparing", lambda policy, _: _switch(on=policy.include_preparing)),
    "holds_memory": ("reclaim.include_held", lambda policy, _: _switch(on=policy.include_held)),
    "low_coverage": ("reclaim.min_coverage", lambda policy, _: f"{policy.min_coverage:g}"),
    "owner_in_use": ("reclaim.action", lambda policy, _: policy.action),
    "approval": ("reclaim.approval", lambda policy, _: _switch(on=policy.approval)),
    "dry_run": ("control.dry_run", lambda *_: "true"),
}
LISTS = frozenset({"reclaim.protected_namespaces"})  # they contain the value


def held_by(case: Case, policy: Policy) -> tuple[HeldBy, ...]:
    """Everything that keeps the case from moving on, each with its setting."""
    return tuple([_held_by(brake, case, policy) for brake in case.brakes])


def _held_by(brake: Brake, case: Case, policy: Policy) -> HeldBy:
    if brake == "dry_run" and not policy.enabled:
        return HeldBy(brake=brake, setting="control.enabled", value="false")
    rule = _RULES.get(brake)
    return HeldBy(brake=brake) if rule is None else HeldBy(brake=brake, setting=rule[0], value=rule[1](policy, case))


def counted_brakes(cases: Iterable[Case]) -> dict[Brake, int]:
    """The number of cases that each brake holds back; a case with several brakes counts for each of them."""
    found: dict[Brake, int] = dict.fromkeys(BRAKES, 0)
    for case in cases:
        for brake in case.brakes:
            found[brake] += 1
    return found


def _switch(*, on: bool) -> str:
    return "true" if on else "false"


def _duration(seconds: Seconds) -> str:
    """As settings have it: 30m, 1h30m, 90s."""
    hours, rest = divmod(int(seconds), 3600)
    minutes, left = divmod(rest, 60)
    return "".join(f"{number}{unit}" for number, unit in ((hours, "h"), (minutes, "m"), (left, "s")) if number) or "0s"
