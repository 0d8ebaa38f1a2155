"""Events are written in the background, counted instead of repeated, and bounded."""

import pytest

from vgpuscope.formats.kube.events import EventText
from vgpuscope.formats.kube.paths import ObjectRef
from vgpuscope.model.errors import KubeUnwritten
from vgpuscope.services.extender.events import EventPoster

POD = ObjectRef("Pod", "train", "ml", "u1")
CODES = frozenset({"SCHED_INSUFFICIENT_GPU_MEMORY"})


def refusal(available):
    return EventText("FailedScheduling", f"0/1 nodes available:\nn: {available}MB", "Warning")


class Api:
    def __init__(self):
        self.now, self.written, self.down = 0.0, [], False
        self.poster = EventPoster(self.report, clock=lambda: self.now)

    async def report(self, about, text, *, now, times=1):
        if self.down:
            raise KubeUnwritten("no answer")
        self.written.append((about.name, text.note.rpartition(" ")[2], times))

    async def refuse(self, at, available, codes=CODES):
        self.now = at
        self.poster.post(POD, refusal(available), now=at, codes=codes)
        await self.poster.flush()


@pytest.fixture
def api():
    return Api()


async def test_a_refusal_that_repeats_is_counted_and_written_twice_a_minute_at_most(api):
    for second in range(61):
        await api.refuse(float(second), 4000)
    assert api.written == [("train", "4000MB", 1), ("train", "4000MB", 30), ("train", "4000MB", 30)]


async def test_other_numbers_are_the_same_refusal_until_ten_minutes_have_passed(api):
    await api.refuse(0, 4000)
    await api.refuse(40, 3000)
    await api.refuse(601, 2000)
    assert [note for _, note, _ in api.written] == ["4000MB", "4000MB", "2000MB"]


async def test_another_code_is_written_at_once(api):
    await api.refuse(0, 4000)
    await api.refuse(1, 3000, frozenset({"SCHED_QUOTA_EXCEEDED"}))
    assert [note for _, note, _ in api.written] == ["4000MB", "3000MB"]


async def test_an_api_server_that_is_down_loses_the_event_and_nothing_else(api):
    api.down = True
    await api.refuse(0, 4000)
    assert (api.poster.posted, api.poster.dropped, api.written) == (0, 1, [])


async def test_too_many_events_are_dropped_and_counted(api):
    for number in range(2500):
        api.poster.post(ObjectRef("Pod", f"p{number}", "ml", f"u{number}"), EventText("Scheduled", "x"), now=0.0)
    assert api.poster.dropped == 500
    await api.poster.flush()
    assert len(api.written) == 2000
