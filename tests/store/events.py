"""Events to be stored, and what holds for them on every database."""

from vgpuscope.logic.console.moments import iso
from vgpuscope.model.console.timeline import TimelineEvent
from vgpuscope.store.timeline import EventLog


def event(number: int, *, at: float = 1_790_000_000.0, **more) -> TimelineEvent:
    fields = {"kind": "verdict", "pod": "it's; --\0 日本", "before": "busy", "after": "idle", "number": 0.1}
    return TimelineEvent(**{"id": str(number), "at": iso(at), **fields, **more})


async def assert_events_are_kept(events: EventLog) -> None:
    first, second = event(1), event(2, at=1_790_000_060.0)
    await events.add([first, first])
    await events.add([second, first])  # as after a commit that was not seen
    await events.add([])
    assert await events.newest(10) == [second, first]
