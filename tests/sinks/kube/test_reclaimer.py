"""What an answer of the API server means for a call that frees GPUs, and which requests are sent again.

The stand-in answers each request as told; what it was told to do is counted, whether it answered or not.
"""

import asyncio
import json
from typing import Any

import pytest

from vgpuscope.model.errors import CallFailed, CallRefused, KubeUnreadable
from vgpuscope.model.reclaim import ReclaimTarget
from vgpuscope.sinks.kube.reclaimer import ChangeReason, KubeReclaimer
from vgpuscope.sinks.kube.writer import KubeWriter

WEB = ReclaimTarget(kind="Deployment", api_version="apps/v1", name="web", uid="u-1", version="7")
POD = ReclaimTarget(kind="Pod", api_version="v1", name="alone", uid="p-1")
WHY = ChangeReason(key="k", namespace="n", pod="web-1", pod_uid="p-1")
ITEM = {"metadata": {"name": "web", "uid": "u-1", "resourceVersion": "7"}, "spec": {"replicas": 3}}
DONE = (201, b'{"kind":"Status","metadata":{}}')
LOST = KubeUnreadable("no answer")
Answer = tuple[int, bytes] | Exception


class Server:
    """Answers changes as told, and events afterwards."""

    def __init__(self, *answers: Answer, events: tuple[Answer, ...] = (DONE,)) -> None:
        self.answers, self.events = list(answers), list(events)
        self.sent: list[tuple[str, str, Any]] = []
        self.pauses: list[float] = []
        writer = KubeWriter(self, component="vgpuscope", instance="a", deadline=0.5, pause=self.pause)
        self.reclaimer = KubeReclaimer(self, writer)

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)

    async def find(self, path: str) -> bytes:
        return json.dumps(ITEM).encode()

    async def send(self, method: str, path: str, body: bytes, *, media: str) -> tuple[int, bytes]:
        self.sent.append((method, path, json.loads(body)))
        answer = (self.events if path.endswith("/events") else self.answers).pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def changes(self) -> list[Any]:
        return [body for _, path, body in self.sent if not path.endswith("/events")]

    @property
    def posted(self) -> list[str]:
        return [body["metadata"]["name"] for _, path, body in self.sent if path.endswith("/events")]


@pytest.mark.parametrize("target", [WEB, POD])
@pytest.mark.parametrize("answer", [LOST, (500, b""), (503, b"")])
async def test_a_change_that_may_have_been_made_is_not_sent_again(target: ReclaimTarget, answer: Answer):
    server = Server(answer, DONE)
    with pytest.raises(CallFailed) as failed:
        await server.reclaimer.stop(target, WHY, now=1.0)
    assert (type(failed.value), len(server.changes), server.posted) == (CallFailed, 1, [])


async def test_a_scaling_that_the_server_has_not_looked_at_is_sent_again_with_the_same_uid_and_version():
    server = Server((429, b""), (200, json.dumps(ITEM).encode()))
    await server.reclaimer.stop(WEB, WHY, now=1.0)
    first, second = server.changes
    assert first == second
    assert (second["metadata"]["uid"], second["metadata"]["resourceVersion"]) == ("u-1", "7")


async def test_an_eviction_that_a_budget_forbids_is_left_for_a_later_attempt():
    server = Server((429, b""), DONE)
    with pytest.raises(CallFailed, match="429") as failed:
        await server.reclaimer.stop(POD, WHY, now=1.0)
    assert (type(failed.value), len(server.changes), server.pauses) == (CallFailed, 1, [])
    assert server.changes[0]["deleteOptions"] == {"preconditions": {"uid": "p-1"}}


@pytest.mark.parametrize("target", [WEB, POD])
@pytest.mark.parametrize("status", [401, 403])
async def test_a_missing_right_refuses_the_call_and_the_hint_names_it(target: ReclaimTarget, status: int):
    with pytest.raises(CallRefused, match=str(status)) as refused:
        await Server((status, b"")).reclaimer.stop(target, WHY, now=1.0)
    assert "service account lacks the right" in refused.value.advice


@pytest.mark.parametrize(("target", "status"), [(WEB, 404), (WEB, 405), (WEB, 422), (POD, 405), (POD, 409), (POD, 422)])
async def test_what_no_attempt_can_change_refuses_the_call(target: ReclaimTarget, status: int):
    server = Server((status, b""))
    with pytest.raises(CallRefused, match=str(status)):
        await server.reclaimer.stop(target, WHY, now=1.0)
    assert server.posted == []


async def test_a_pod_that_is_gone_needs_no_eviction_and_no_event():
    server = Server((404, b""))
    mark = await server.reclaimer.stop(POD, WHY, now=1.0)
    assert (mark.key, server.posted) == ("k", [])


async def test_an_event_is_sent_again_under_the_same_name_until_the_server_has_it():
    server = Server(DONE, events=(LOST, (409, b"")))
    await server.reclaimer.stop(POD, WHY, now=1.0)
    again = Server(DONE)
    await again.reclaimer.stop(POD, WHY, now=2.0)
    assert server.posted == again.posted * 2


@pytest.mark.parametrize("answer", [LOST, (403, b""), (503, b"")])
async def test_a_change_whose_event_fails_is_made_all_the_same(answer: Answer, caplog: pytest.LogCaptureFixture):
    server = Server(DONE, events=(answer,) * 3)
    assert (await server.reclaimer.stop(POD, WHY, now=1.0)).key == "k"
    assert (len(server.changes), caplog.messages) == (1, ["event not posted"])


async def test_an_event_without_an_answer_does_not_outlast_the_deadline():
    server = Server(DONE)

    async def silent(*_: Any, **__: Any) -> tuple[int, bytes]:
        if server.changes:
            await asyncio.Event().wait()
        server.sent.append(("POST", "eviction", {}))
        return DONE

    writer = KubeWriter(_Api(server.find, silent), component="vgpuscope", instance="a", deadline=0.01)
    async with asyncio.timeout(5):
        await KubeReclaimer(server, writer).stop(POD, WHY, now=1.0)


class _Api:
    def __init__(self, find: Any, send: Any) -> None:
        self.find, self.send = find, send
