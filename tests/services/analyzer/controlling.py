"""A control service, and an analyzer that soon has something to send to it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.http.serving import SOON, until
from tests.logic.doctor.test_reclaim import judgements_of
from tests.services.analyzer.analyzing import IDLE, TOKEN, track
from vgpuscope.model.analysis import Tenant
from vgpuscope.sources.doctor.services import read_analyzer

BEARER = {"authorization": f"Bearer {TOKEN}"}
EAGER: dict[str, Any] = {
    "scheduler.interval": 3600,
    "reclaim.confirmations": 1,
    "reclaim.grace": 0.0,
    "reclaim.min_pod_age": 0.0,
    "reclaim.max_fleet_share": 1.0,
    "reclaim.include_held": True,
}


class Control:
    """A control service: remembers what it received, and answers as it is told."""

    def __init__(self) -> None:
        self.received: list[tuple[dict[str, str], bytes]] = []
        self.answer = "204 No Content"
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head.split("\r\n")[1:])}
        body = await reader.readexactly(int(headers["content-length"]))
        self.received.append((headers, body))
        writer.write(f"HTTP/1.1 {self.answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()


@asynccontextmanager
async def control_service() -> AsyncIterator[Control]:
    service = Control()
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0)
    service.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/api/optimize"
    yield service
    server.close()


def idle_pod(number: int = 1):
    return track(number, util=IDLE, tenant=Tenant(namespace="ml", pod="nb", container="main", pod_uid="uid-1"))


async def decided(one) -> None:
    """It leads, and has analysed often enough to decide on an idle pod."""
    await one.analysed()
    await until(lambda: one.analyzer._replica.leads)
    await analysed(one)
    await analysed(one)


async def analysed(one) -> None:
    """One analysis more, and its cases settled."""
    await one.analyse()
    await until(lambda: one.analyzer._to_reclaim.settled)


async def cases(one) -> list[dict]:
    return (await one.json("/api/v1/reclaim"))["cases"]


async def doctored(one, code: str) -> tuple[str, list[str]]:
    """What the analyzer's own doctor and one from outside say, which is the same."""
    [own] = [check for check in (await one.json("/api/v1/doctor"))["findings"] if check["code"] == code]
    answer = await read_analyzer(str(one.client.base_url), token=TOKEN, within=SOON)
    outside = judgements_of(answer.facts)[code]
    examples = own["examples"] if own["status"] != "skipped" else []  # it would be where was looked
    assert (own["status"], examples) == (outside.status, list(outside.examples))
    return own["status"], examples
