"""A real analyzer process is killed with SIGKILL on the way of a notice, and another one goes on from the store.

docs/notices.md: no notice is lost. A notice that was sent, and not recorded as sent, is sent once more.
"""

import asyncio
import json
import os
import select
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.environment import bare
from tests.http.serving import SOON, until
from tests.sinks import chat

ROOT = Path(__file__).parents[3]


class Reader:
    """The owner's chat. It can kill the analyzer when it has read a message, before it answers."""

    def __init__(self) -> None:
        self.service = chat.Standin(self.judge)
        self.service._server.handle_error = lambda *_: None  # type: ignore[method-assign] # nobody waits for the answer
        self.kills: int | None = None  # the process that dies of the next message

    @property
    def messages(self) -> list[str]:
        return [one.body["content"]["text"] for one in self.service.received]

    def judge(self, one: chat.Received) -> tuple[int, Any]:
        if self.kills is not None:
            handle = os.pidfd_open(self.kills)
            os.kill(self.kills, signal.SIGKILL)
            select.select([handle], [], [])  # it is gone
            os.close(handle)
        return chat.feishu()(one)


@pytest.fixture
def reader():
    one = Reader()
    with one.service:
        yield one


class Room:
    """Where the processes run, one after the other: their store, and their log."""

    def __init__(self, path: Path, reader: Reader) -> None:
        self.store, self.log, self.reader = path / "h.db", path / "log", reader

    @asynccontextmanager
    async def analyzer(self, moment: str = ""):
        own = [] if moment in {"", "received"} else [moment]
        command = [sys.executable, "-m", "tests.services.analyzer.mortal", str(self.store), self.reader.service.url]
        with self.log.open("wb") as log:
            child = await asyncio.create_subprocess_exec(*command, *own, cwd=ROOT, env=bare(), stderr=log)
        self.reader.kills = child.pid if moment == "received" else None
        try:
            yield child
        finally:
            self.reader.kills = None
            if child.returncode is None:
                child.kill()
            await child.wait()

    async def killed(self, moment: str) -> None:
        async with self.analyzer(moment) as child:
            async with asyncio.timeout(2 * SOON):
                assert await child.wait() == -signal.SIGKILL, self.log.read_text()[-2000:]

    def url(self) -> str:
        lines = self.log.read_text().splitlines(keepends=True)
        urls = [json.loads(line).get("url", "") for line in lines if line.endswith("\n")]
        return next(filter(None, urls), "")

    async def told(self) -> list[dict]:
        """The audit log of an analyzer that is not killed, oldest entry first, once the grace period has begun."""
        async with self.analyzer(), httpx2.AsyncClient(base_url=await until(self.url), timeout=SOON) as client:

            async def in_grace() -> bool:
                cases = (await client.get("/api/v1/reclaim")).json()["cases"]
                return [case["state"] for case in cases] == ["grace"]

            await until(in_grace)
            return (await client.get("/api/v1/audit")).json()["entries"][::-1]


@pytest.mark.parametrize(
    ("moments", "messages"),
    [
        ("recorded", 1),
        ("attempted", 1),
        ("received", 2),
        ("answered", 2),
        ("settled", 1),
        ("recorded, attempted, received, answered", 3),
    ],
)
async def test_no_kill_loses_a_notice_and_only_one_after_sending_repeats_it(tmp_path, reader, moments, messages):
    room = Room(tmp_path, reader)
    for moment in moments.split(", "):
        await room.killed(moment)
    entries = await room.told()
    assert len(reader.messages) == messages
    assert all("ml/nb" in text for text in reader.messages)
    assert [one["what"] for one in entries].count("notice_delivered") == 1
    assert [one["after"] for one in entries if one["what"] == "moved"] == ["candidate", "notified", "grace"]
