"""What the annotations of a pod, its owners and its namespace say together.

Levels are in the order pod, its owners from the nearest to the topmost, namespace. `never` counts at every level:
nobody can lift what another one forbade. Of the other values, the nearest counts.
"""

from collections.abc import Iterator, Sequence

from vgpuscope.logic.reclaim.hours import within
from vgpuscope.model.kube_object import ReclaimAnnotations
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.model.reclaim import Consent, Signal


def consent_of(levels: Sequence[ReclaimAnnotations]) -> Consent | None:
    """What the annotations allow. None if there is none: the policy decides then."""
    said = [level.consent for level in levels if level.consent is not None]
    return "never" if "never" in said else next(iter(said), None)


def grace_of(levels: Sequence[ReclaimAnnotations]) -> Seconds | None:
    """The nearest grace period; None: that of the policy."""
    return next((level.grace for level in levels if level.grace is not None), None)


def notify_of(levels: Sequence[ReclaimAnnotations]) -> str:
    """Who is notified, by the nearest annotation; "": there is none."""
    return next((level.notify for level in levels if level.notify), "")


def queues_of(levels: Sequence[ReclaimAnnotations]) -> frozenset[str]:
    """The queues that the workload says it serves."""
    return frozenset(name for level in levels for name in level.queues)


def signals_of(levels: Sequence[ReclaimAnnotations], *, now: UnixTime, recent: Seconds) -> Iterator[Signal]:
    """The signs of use that are written on the objects, and what is not understood."""
    for level in levels:
        if level.last_activity is not None:
            yield _since("notebook", level.last_activity, now=now, recent=recent)
        if level.restored is not None:
            yield _since("restored", level.restored, now=now, recent=recent)
        if level.schedule:
            yield Signal(name="schedule", active=within(level.schedule, now))
        yield from level.wrong


def _since(name: str, at: UnixTime, *, now: UnixTime, recent: Seconds) -> Signal:
    """Active if it was recent; a time in the future is a clock that is ahead."""
    return Signal(name=name, active=now - at < recent, at=at)
