"""What holds a case back. Every brake is one row: its name, and when it applies.

EARLY brakes also keep the owner from being told: nothing would follow from such a notice, or, with the breaker open, a
fault of the metrics would be told to everybody.
"""

from collections.abc import Callable, Iterable
from typing import Literal

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
            pod=part.pod if part.pod != _UNREAD else found.pod,
            activity=found.activity or part.activity,
            signals=found.signals + part.signals,
            model=max(found.model, part.model, key=_MODEL.index),
        )
    return found


_UNREAD = PodFacts()
_MODEL: tuple[Stance, ...] = ("off", "agrees", "silent", "waiting", "veto")  # of two, the later one counts


_OfCase = Callable[[Case, Known], bool]
_Rule = Callable[[Policy, World], bool | _OfCase]  # for all cases alike; or a test that each case is put to


def _young(policy: Policy, world: World) -> _OfCase:
    """By the pod's creation; without a Kubernetes API by the first idle window, which is later."""
    youngest = policy.min_pod_age

    def is_young(case: Case, known: Known) -> bool:
        created = known.pod.created
        return world.now - (case.first_idle if created is None else created) < youngest

    return is_young


def _active(known: Known) -> bool:
    return known.activity or any(one.active for one in known.signals)


EARLY: tuple[tuple[Brake, _Rule], ...] = (
    ("no_uid", lambda _p, _w: lambda case, _: not case.uid),
    ("no_history", lambda _, world: not world.history),
    ("protected_namespace", lambda policy, _w: lambda case, _: case.namespace in policy.protected_namespaces),
    ("protected_priority", lambda policy, _w: lambda _, known: known.pod.priority_class in policy.protected_priorities),
    ("annotation_never", lambda _p, _w: lambda _, known: known.pod.consent == "never"),
    ("pod_age", _young),
    ("activity", lambda _p, _w: lambda _, known: _active(known)),
    ("model_veto", lambda _p, _w: lambda _, known: known.model == "veto"),
    ("stop", lambda _, world: world.stop),
    ("breaker", lambda _, world: world.breaker),
    # Without a store there is none that is down, and nobody leads.
    ("store_down", lambda _, world: world.history and not world.stored),
    ("not_leader", lambda _, world: world.history and not world.leads),
    ("kube_unreachable", lambda _, world: world.kube == "down"),
    ("pod_unknown", lambda _, world: world.kube == "ok" and (lambda _, known: not known.pod.read)),
    ("activity_unknown", lambda _p, _w: lambda _, known: any(one.active is None for one in known.signals)),
)
LATE: tuple[tuple[Brake, _Rule], ...] = (
    ("annotation_notify", lambda _p, _w: lambda _, known: known.pod.consent == "notify"),
    ("notify_only", lambda policy, _: policy.action == "notify"),
    ("model_waiting", lambda _p, _w: lambda _, known: known.model == "waiting"),
    ("no_action", lambda policy, _: policy.action == "scale" and (lambda _, known: known.pod.target is None)),
    ("working_hours", lambda policy, world: not allowed(policy.working_hours, world.now)),
)


class Brakes:
    """The brakes of one tick. What holds for all cases alike is asked once: a fleet can have 100,000 cases."""

    def __init__(self, policy: Policy, world: World) -> None:
        self.policy, self.world = policy, world
        self._early, self._late = _tests(EARLY, policy, world), _tests(LATE, policy, world)

    def early(self, case: Case, known: Known) -> tuple[Brake, ...]:
        """The brakes that forbid the notice to the owner, and with it everything after."""
        return _applying(self._early, case, known)

    def late(self, case: Case, known: Known) -> tuple[Brake, ...]:
        """The further brakes that forbid the action."""
        return _applying(self._late, case, known)


_Tests = list[tuple[Brake, _OfCase]]


def _tests(rows: tuple[tuple[Brake, _Rule], ...], policy: Policy, world: World) -> _Tests:
    """What is left to ask of each case."""
    asked = [(brake, rule(policy, world)) for brake, rule in rows]
    return [(brake, rule if callable(rule) else _every_case) for brake, rule in asked if rule is not False]


def _every_case(_case: Case, _known: Known) -> bool:
    return True


def _applying(tests: _Tests, case: Case, known: Known) -> tuple[Brake, ...]:
    return tuple([brake for brake, applies in tests if applies(case, known)])  # a list is faster than a generator
