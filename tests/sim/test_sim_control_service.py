"""The demo's control service: it accepts what Standard Webhooks signs, deletes the pod once, and nothing else."""

import asyncio
import base64
import hashlib
import hmac
import json

import httpx2
import pytest

from vgpuscope.sim import posts
from vgpuscope.sim.control_service import ControlService, Refusal, verify
from vgpuscope.sim.kinds import WHOLE_GPUS
from vgpuscope.sim.posts import Asked
from vgpuscope.sim.world import World
from vgpuscope.sinks.webhook import Webhook

NOW = 1_800_000_000.0
# The example of the specification: https://github.com/standard-webhooks/standard-webhooks
SPEC_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SPEC_HEADERS = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
SPEC_BODY = b'{"test": 2432232314}'


def test_the_example_of_the_specification_is_accepted_and_no_other_body():
    verify(SPEC_HEADERS, SPEC_BODY, secret=SPEC_SECRET, now=1614265330)
    for headers, body, now in (
        (SPEC_HEADERS, SPEC_BODY + b" ", 1614265330),
        (SPEC_HEADERS | {"webhook-id": "msg_other"}, SPEC_BODY, 1614265330),
        (SPEC_HEADERS | {"webhook-timestamp": "1614265331"}, SPEC_BODY, 1614265330),
        (SPEC_HEADERS | {"webhook-signature": "v1,AAAA"}, SPEC_BODY, 1614265330),
        (SPEC_HEADERS | {"webhook-timestamp": "soon"}, SPEC_BODY, 1614265330),
        ({}, SPEC_BODY, 1614265330),
        (SPEC_HEADERS, SPEC_BODY, 1614265330 + 301),
        (SPEC_HEADERS, SPEC_BODY, 1614265330 - 301),
    ):
        with pytest.raises(Refusal) as refused:
            verify(headers, body, secret=SPEC_SECRET, now=now)
        assert refused.value.status == 401


def test_one_of_several_signatures_is_enough():
    signed = f"v1,AAAA {SPEC_HEADERS['webhook-signature']}"
    verify(SPEC_HEADERS | {"webhook-signature": signed}, SPEC_BODY, secret=SPEC_SECRET, now=1614265330)


@pytest.fixture
def world():
    return World(WHOLE_GPUS, seed=1, now=NOW)


@pytest.fixture
def service(world, tmp_path):
    return ControlService([world], tmp_path / "stopped", secret=SPEC_SECRET, clock=lambda: NOW)


def life_of(world, job):
    return next(life for life in world.lives.values() if life.job.name == job)


def call(life, *, key="uid/GPU-1", uid=None, secret=SPEC_SECRET, at=NOW, **changes):
    """A call as the analyzer makes it."""
    body = {
        "gpu_id": "GPU-1",
        "pod": life.name,
        "namespace": life.job.namespace,
        "idempotency_key": key,
        "evidence": {"pod_uid": uid or life.uid},
        "status": "idle",
    }
    content = json.dumps(body | changes).encode()
    mac = hmac.new(base64.b64decode(secret[6:]), f"{key}.{int(at)}.".encode() + content, hashlib.sha256)
    headers = {"webhook-id": key, "webhook-timestamp": str(int(at))}
    headers["webhook-signature"] = f"v1,{base64.b64encode(mac.digest()).decode()}"
    return Asked("POST", "/", headers, content)


def test_a_call_deletes_the_pod_once_however_often_it_comes(service, world, tmp_path):
    life = life_of(world, "notebook-carol")
    assert service.answer(call(life)) == (200, {"accepted": True, "again": False})
    assert (tmp_path / "stopped").read_text().split() == ["research/notebook-carol"]
    (tmp_path / "stopped").write_text("")  # somebody created it again: the same call must not delete it again
    assert service.answer(call(life)) == (200, {"accepted": True, "again": True})
    assert (tmp_path / "stopped").read_text() == ""
    assert [one.pod for one in service.answer(Asked("GET", "/", {}, b"")).content["calls"]] == ["notebook-carol"]


def test_the_second_gpu_of_a_pod_is_a_call_of_its_own_and_the_pod_is_deleted_once(service, world, tmp_path):
    life = life_of(world, "notebook-carol")
    for key in ("uid/GPU-1", "uid/GPU-2"):
        assert service.answer(call(life, key=key)).status == 200
    assert (tmp_path / "stopped").read_text().split() == ["research/notebook-carol"]
    assert len(service.calls) == 2


def test_names_that_were_there_stay(service, world, tmp_path):
    (tmp_path / "stopped").write_text("ml-team/other\n")
    service.answer(call(life_of(world, "notebook-carol")))
    assert (tmp_path / "stopped").read_text().split() == ["ml-team/other", "research/notebook-carol"]


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"secret": "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}, 401),
        ({"at": NOW - 600}, 401),
        ({"uid": "another"}, 409),
        ({"idempotency_key": "another"}, 400),
        ({"evidence": None}, 400),
    ],
    ids=["another secret", "old", "another pod of this name", "another key", "no evidence"],
)
def test_what_is_not_proven_deletes_nothing(service, world, tmp_path, changes, status):
    assert service.answer(call(life_of(world, "notebook-carol"), **changes)).status == status
    assert not (tmp_path / "stopped").exists()
    assert service.calls == {}


def test_a_pod_that_is_gone_needs_nothing(service, world, tmp_path):
    life = life_of(world, "notebook-carol")
    del world.lives[life.job]
    assert service.answer(call(life)).status == 200
    assert not (tmp_path / "stopped").exists()


def test_other_methods_are_refused(service):
    assert service.answer(Asked("DELETE", "/", {}, b"")).status == 405


async def test_the_analyzers_own_client_is_understood_over_http(service, world, tmp_path):
    life = life_of(world, "notebook-carol")
    async with posts.serve(service.answer) as url, Webhook(url, secret=SPEC_SECRET, timeout=5, agent="test") as client:
        assert await client.send(call(life).body, key="uid/GPU-1", now=NOW) == 200
    assert (tmp_path / "stopped").read_text().split() == ["research/notebook-carol"]


async def test_garbage_is_answered_and_the_server_lives_on(service):
    async with posts.serve(service.answer) as url:
        port = int(url.rpartition(":")[2])
        for sent in (b"\x00\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n", b"x" * 50_000):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            writer.write_eof()
            answered = await reader.read()
            assert answered == b"" or answered.startswith(b"HTTP/1.1 400 ")
            writer.close()
        async with httpx2.AsyncClient() as client:
            assert (await client.get(url)).json() == {"calls": []}
