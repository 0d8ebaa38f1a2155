"""When a change is sent again: only if twice does no harm, or the server has not looked at it."""

import asyncio
from typing import Any

import pytest

from vgpuscope.formats.kube.events import EventText
from vgpuscope.formats.kube.paths import ObjectRef
from vgpuscope.model.errors import KubeConflict, KubeForbidden, KubeUnreadable, KubeUnwritten
from vgpuscope.sinks.kube.writer import KubeWriter

POD = ObjectRef("Pod", "train", "ml", "uid-1")
TEXT = EventText("BindingFailed", "no", "Warning")
DONE, LOST = (200, b'{"metadata":{"resourceVersion":"8"}}'), KubeUnreadable("no answer")
BUSY, DOWN, CONFLICT, FORBIDDEN = (429, b""), (503, b""), (409, b""), (403, b"")


class Answers:
    """An API server that answers as told, one request after the other."""

    def __init__(self, *answers, **more):
        self.answers, self.sent, self.pauses = list(answers), [], []
        api: Any = self
        self.writer = KubeWriter(api, component="c", instance="i", pause=self.pause, **more)

    async def pause(self, seconds):
        self.pauses.append(seconds)

    async def send(self, method, path, body, *, media):
        self.sent.append((method, path))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def patch(writer):
    return writer.patch(POD.path, {})


def versioned(writer):
    return writer.patch(POD.path, {}, version="7")


def bind(writer):
    return writer.bind(POD, "n1")


def annotate_new(writer):
    return writer.annotate_new(POD.path, "a", "1")


def report(writer):
    return writer.report(POD, TEXT, now=0.0)


@pytest.mark.parametrize("failure", [BUSY, DOWN, LOST])
@pytest.mark.parametrize("what", [patch, report])
async def test_what_may_be_done_twice_is_tried_three_times(what, failure):
    server = Answers(failure, failure, DONE)
    await what(server.writer)
    assert (len(server.sent), len(server.pauses)) == (3, 2)
    assert server.pauses[0] <= 0.3
    assert server.pauses[1] >= 0.2
    with pytest.raises(KubeUnwritten):
        await what(Answers(failure, failure, failure, DONE).writer)


@pytest.mark.parametrize("failure", [DOWN, LOST])
@pytest.mark.parametrize("what", [versioned, annotate_new, bind])
async def test_what_may_have_been_done_is_not_tried_again(what, failure):
    server = Answers(failure, DONE)
    with pytest.raises(KubeUnwritten):
        await what(server.writer)
    assert len(server.sent) == 1


@pytest.mark.parametrize("what", [versioned, annotate_new, bind])
async def test_what_the_server_has_not_looked_at_is_tried_again(what):
    server = Answers(BUSY, DONE)
    await what(server.writer)
    assert len(server.sent) == 2


@pytest.mark.parametrize(("answer", "error"), [(CONFLICT, KubeConflict), (FORBIDDEN, KubeForbidden)])
@pytest.mark.parametrize("what", [patch, versioned, annotate_new, bind])
async def test_a_rejection_is_final(what, answer, error):
    server = Answers(answer, DONE)
    with pytest.raises(error):
        await what(server.writer)
    assert len(server.sent) == 1


async def test_an_event_whose_answer_was_lost_is_there_and_not_posted_under_a_second_name():
    server = Answers(LOST, CONFLICT, DONE)
    await report(server.writer)
    await report(server.writer)
    assert [method for method, _ in server.sent] == ["POST", "POST", "PATCH"]


async def test_no_more_events_are_remembered_than_fit():
    server = Answers(*[DONE] * 4, remembered=2)
    for number in (1, 2, 3, 1):
        await server.writer.report(POD._replace(name=f"p{number}"), TEXT, now=0.0)
    assert [method for method, _ in server.sent] == ["POST"] * 4
    assert len(server.writer._events) == 2


async def test_a_call_ends_at_its_deadline():
    server = Answers(*[BUSY] * 3)

    async def for_ever(_):
        await asyncio.Event().wait()

    api: Any = server
    server.writer = KubeWriter(api, component="c", instance="i", deadline=0.01, pause=for_ever)
    with pytest.raises(KubeUnwritten, match=r"0\.01 s"):
        await bind(server.writer)
