"""What holds a case back. Every brake is one row: its name, and when it applies.

EARLY brakes also keep the owner from being told: nothing would follow from such a notice, or, with the breaker open, a
fault of the metrics would be told to everybody.
"""

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

from msgspec import Struct

from vgpuscope.logic.reclaim.hours import allowed
from vgpuscope.model.opinion import Stance
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.model.reclaim import Brake, Case, PodFacts, Policy, Share, Signal, Workload


class TickFacts(Struct, frozen=True, kw_only=True):
    """What is the same for all workloads in one tick."""

    now: UnixTime
    leads: bool  # this replica holds the lease
    stored: bool  # the store answers
    history: bool = True  # a store is configured
    # the Kubernetes API: not configured, answers, does not answer; None: the past is replayed, of which it says nothing
    kube: Literal["none", "ok", "down"] | None = None
    stop: bool = False
    breaker: bool = False  # open
    channel: bool = True  # somebody can be notified
    interval: Seconds = 0.0  # between two analyses; 0: not known


class WorkloadFacts(Struct, frozen=True, kw_only=True, gc=False):
    """What is known of one workload beyond its GPUs."""

    pod: PodFacts = PodFacts()
    activity: bool = False  # something beyond the GPU shows use
    signals: tuple[Signal, ...] = ()  # what was read beyond the GPU
    model: Stance = "off"


Facts = Callable[[Workload], WorkloadFacts]


def joined(*sources: Facts) -> Facts:
    """The facts of several sources about a workload. A field that one source leaves empty is filled by the others."""

    def known(workload: Workload) -> WorkloadFacts:
        return _together([source(workload) for source in sources])

    return known


def _together(parts: Iterable[WorkloadFacts]) -> WorkloadFacts:
    """Vetoes add up: no source can take back what another one says against acting."""
    found = WorkloadFacts()
    for part in parts:
        found = WorkloadFacts(
            pod=part.pod if part.pod != _UNREAD else found.pod,
            activity=found.activity or part.activity,
            signals=found.signals + part.signals,
            model=max(found.model, part.model, key=_MODEL.index),
        )
    return found


_UNREAD = PodFacts()
_MODEL: tuple[Stance, ...] = ("off", "agrees", "silent", "waiting", "veto")  # of two, the later one counts


class BrakeRule(NamedTuple):
    """A brake. It holds a case back if both tests say so; a test that is left out always does."""

    brake: Brake
    tick: Callable[[Policy, TickFacts], bool] = lambda _policy, _world: True  # asked once for all cases
    case: Callable[[Case, WorkloadFacts, Policy, TickFacts], bool] | None = None  # asked of each case


def _young(case: Case, known: WorkloadFacts, policy: Policy, world: TickFacts) -> bool:
    """By the pod's creation; without a Kubernetes API by the first idle window, which is later."""
    created = known.pod.created
    return world.now - (case.first_idle if created is None else created) < policy.min_pod_age


def _trusted(share: Share, policy: Policy) -> bool:
    """Whether every job that reports the GPU may speak for GPUs: a stranger's page is scraped under another job."""
    return all(any(fnmatchcase(job, pattern) for pattern in policy.evidence_jobs) for job in share.jobs)


EARLY: tuple[BrakeRule, ...] = (
    BrakeRule("no_uid", case=lambda case, *_: not case.uid),
    BrakeRule("no_history", tick=lambda _, world: not world.history),
    BrakeRule("protected_namespace", case=lambda case, _, policy, __: case.namespace in policy.protected_namespaces),
    BrakeRule(
        "protected_priority",
        case=lambda _, known, policy, __: known.pod.priority_class in policy.protected_priorities,
    ),
    BrakeRule("job_untrusted", case=lambda case, _, policy, __: not all(_trusted(one, policy) for one in case.shares)),
    BrakeRule("annotation_never", case=lambda _, known, *__: known.pod.consent == "never"),
    BrakeRule("pod_age", case=_young),
    BrakeRule("activity", case=lambda _, known, *__: known.activity or any(one.active for one in known.signals)),
    BrakeRule("model_veto", case=lambda _, known, *__: known.model == "veto"),
    BrakeRule("stop", tick=lambda _, world: world.stop),
    BrakeRule("breaker", tick=lambda _, world: world.breaker),
    # Without a store there is none that is down, and nobody leads.
    BrakeRule("store_down", tick=lambda _, world: world.history and not world.stored),
    BrakeRule("not_leader", tick=lambda _, world: world.history and not world.leads),
    # Only metrics say which pod holds the GPU, and anyone can get a page scraped.
    BrakeRule("holder_unknown", tick=lambda policy, world: world.kube == "none" and policy.action != "notify"),
    BrakeRule("kube_unreachable", tick=lambda _, world: world.kube == "down"),
    BrakeRule("pod_unknown", tick=lambda _, world: world.kube == "ok", case=lambda _, known, *__: not known.pod.read),
    BrakeRule("activity_unknown", case=lambda _, known, *__: any(one.active is None for one in known.signals)),
)
LATE: tuple[BrakeRule, ...] = (
    BrakeRule("annotation_notify", case=lambda _, known, *__: known.pod.consent == "notify"),
    BrakeRule("notify_only", tick=lambda policy, _: policy.action == "notify"),
    BrakeRule("model_waiting", case=lambda _, known, *__: known.model == "waiting"),
    BrakeRule(
        "no_action",
        tick=lambda policy, _: policy.action == "scale",
        case=lambda _, known, *__: known.pod.target is None,
    ),
    BrakeRule("working_hours", tick=lambda policy, world: not allowed(policy.working_hours, world.now)),
)


_FORESEEN: frozenset[Brake] = frozenset(  # no API has to be asked
    {"no_uid", "no_history", "protected_namespace", "job_untrusted", "model_veto"}
)


class Brakes:
    """The brakes of one tick. What holds for all cases alike is asked once: a fleet can have 100,000 cases."""

    def __init__(self, policy: Policy, world: TickFacts) -> None:
        self.policy, self.world = policy, world
        self._early = [row for row in EARLY if row.tick(policy, world)]
        self._late = [row for row in LATE if row.tick(policy, world)]
        self._foreseen = [row for row in self._early if row.brake in _FORESEEN]

    def on_all(self) -> tuple[Brake, ...]:
        """The brakes that hold every case back, whatever is known of it."""
        return tuple(row.brake for row in self._early + self._late if row.case is None)

    def early(self, case: Case, known: WorkloadFacts) -> tuple[Brake, ...]:
        """The brakes that forbid the notice to the owner, and with it everything after."""
        return self._holding(self._early, case, known)

    def late(self, case: Case, known: WorkloadFacts) -> tuple[Brake, ...]:
        """The further brakes that forbid the action."""
        return self._holding(self._late, case, known)

    def foreseen(self, case: Case, known: WorkloadFacts) -> tuple[Brake, ...]:
        """The brakes that will hold a case back when enough windows are counted, as far as that is known before."""
        return self._holding(self._foreseen, case, known)

    def _holding(self, rows: list[BrakeRule], case: Case, known: WorkloadFacts) -> tuple[Brake, ...]:
        policy, world = self.policy, self.world  # a list is faster here than a generator
        return tuple([brake for brake, _, test in rows if test is None or test(case, known, policy, world)])
