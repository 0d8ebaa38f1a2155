"""What holds a case back. Every brake is one row: its name, and when it applies.

EARLY brakes also keep the owner from being told: nothing would follow from such a notice, or, with the breaker open, a
fault of the metrics would be told to everybody.
"""

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from msgspec import Struct

from vgpuscope.logic.reclaim.hours import allowed
from vgpuscope.model.opinion import Stance
from vgpuscope.model.quantity import UnixTime
from vgpuscope.model.reclaim import Brake, Case, PodFacts, Policy, Signal, Workload


class World(Struct, frozen=True, kw_only=True):
    """What is the same for all workloads in one tick."""

    now: UnixTime
    leads: bool  # this replica holds the lease
    stored: bool  # the store answers
    history: bool = True  # a store is configured
    kube: Literal["none", "ok", "down"] = "none"  # the Kubernetes API: not configured, answers, does not answer
    stop: bool = False
    breaker: bool = False  # open
    channel: bool = True  # somebody can be notified


class Known(Struct, frozen=True, kw_only=True, gc=False):
    """What is known of one workload beyond its GPUs."""

    pod: PodFacts = PodFacts()
    activity: bool = False  # something beyond the GPU shows use
    signals: tuple[Signal, ...] = ()  # what was read beyond the GPU
    model: Stance = "off"


Facts = Callable[[Workload], Known]


def joined(*sources: Facts) -> Facts:
    """The facts of several sources about a workload. A field that one source leaves empty is filled by the others."""

    def known(workload: Workload) -> Known:
        return _together([source(workload) for source in sources])

    return known


def _together(parts: Iterable[Known]) -> Known:
    """Vetoes add up: no source can take back what another one says against acting."""
    found = Known()
    for part in parts:
        found = Known(
            pod=part.pod if part.pod != PodFacts() else found.pod,
            activity=found.activity or part.activity,
            signals=found.signals + part.signals,
            model=max(found.model, part.model, key=_MODEL.index),
        )
    return found


_MODEL: tuple[Stance, ...] = ("off", "agrees", "silent", "waiting", "veto")  # of two, the later one counts


class _Look(NamedTuple):
    case: Case
    known: Known
    policy: Policy
    world: World


_Applies = Callable[[_Look], bool]


def _young(look: _Look) -> bool:
    """By the pod's creation; without a Kubernetes API by the first idle window, which is later."""
    created = look.known.pod.created
    begun = look.case.first_idle if created is None else created
    return look.world.now - begun < look.policy.min_pod_age


EARLY: tuple[tuple[Brake, _Applies], ...] = (
    ("no_uid", lambda look: not look.case.uid),
    ("no_history", lambda look: not look.world.history),
    ("protected_namespace", lambda look: look.case.namespace in look.policy.protected_namespaces),
    ("protected_priority", lambda look: look.known.pod.priority_class in look.policy.protected_priorities),
    ("annotation_never", lambda look: look.known.pod.consent == "never"),
    ("pod_age", _young),
    ("activity", lambda look: look.known.activity or any(one.active for one in look.known.signals)),
    ("model_veto", lambda look: look.known.model == "veto"),
    ("stop", lambda look: look.world.stop),
    ("breaker", lambda look: look.world.breaker),
    # Without a store there is none that is down, and nobody leads.
    ("store_down", lambda look: look.world.history and not look.world.stored),
    ("not_leader", lambda look: look.world.history and not look.world.leads),
    ("kube_unreachable", lambda look: look.world.kube == "down"),
    ("pod_unknown", lambda look: look.world.kube == "ok" and not look.known.pod.read),
    ("activity_unknown", lambda look: any(one.active is None for one in look.known.signals)),
)
LATE: tuple[tuple[Brake, _Applies], ...] = (
    ("annotation_notify", lambda look: look.known.pod.consent == "notify"),
    ("notify_only", lambda look: look.policy.action == "notify"),
    ("model_waiting", lambda look: look.known.model == "waiting"),
    ("no_action", lambda look: look.policy.action == "scale" and look.known.pod.target is None),
    ("working_hours", lambda look: not allowed(look.policy.working_hours, look.world.now)),
)


def early(case: Case, known: Known, policy: Policy, world: World) -> tuple[Brake, ...]:
    """The brakes that forbid the notice to the owner, and with it everything after."""
    return _applying(EARLY, _Look(case, known, policy, world))


def late(case: Case, known: Known, policy: Policy, world: World) -> tuple[Brake, ...]:
    """The further brakes that forbid the action."""
    return _applying(LATE, _Look(case, known, policy, world))


def _applying(rows: tuple[tuple[Brake, _Applies], ...], look: _Look) -> tuple[Brake, ...]:
    return tuple([brake for brake, applies in rows if applies(look)])  # a list is faster here than a generator
