"""Two analyzers over one real PostgreSQL: one leads, and when it is killed the other goes on from its result."""

import asyncio
import contextlib
import json
import sys
import time

import httpx2
import pytest

from tests.contract.postgres import Postgres
from tests.environment import bare
from tests.services.analyzer.analyzing import uuid
from tests.services.analyzer.promstub import SpoilingServer
from tests.services.analyzer.test_analyzer import fleet
from tests.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("postgres")]
WITHIN = 60


@pytest.fixture
def postgres():
    with Postgres() as found:
        yield found


class Replica:
    """One process, and a client of it."""

    def __init__(self, process, client, log):
        self.process, self.client, self.log = process, client, log

    async def json(self, path):
        return (await self.client.get(path)).json()


@contextlib.asynccontextmanager
async def replica(*, store, prometheus):
    command = (sys.executable, "-m", "vgpuscope", "analyzer", "--listen", "127.0.0.1:0", "--log-format", "json")
    environ = bare(PROM_URL=prometheus, INTERVAL="1", VGPUSCOPE_ANALYZER_HISTORY=store)
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE, env=environ)
    first = json.loads(await process.stderr.readline())
    log = [json.dumps(first)]

    async def listen():
        async for line in process.stderr:
            log.append(line.decode())

    listening = asyncio.create_task(listen())
    try:
        async with httpx2.AsyncClient(base_url=first["url"], timeout=WITHIN) as client:
            yield Replica(process, client, log)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        async with asyncio.timeout(WITHIN):
            await process.wait()
            await listening


async def leaders(*replicas):
    return [one for one in replicas if (await one.json("/health"))["leader"]]


@contextlib.asynccontextmanager
async def two_replicas(postgres):
    """The replica that leads, and the other one."""
    async with (
        SpoilingServer(fleet(now=time.time())) as prometheus,
        replica(store=postgres.url, prometheus=prometheus.url) as one,
        replica(store=postgres.url, prometheus=prometheus.url) as other,
    ):
        (leader,) = await until(lambda: leaders(one, other))
        yield leader, other if leader is one else one


async def test_one_leads_and_when_it_is_killed_the_other_goes_on(postgres):
    async with two_replicas(postgres) as (leader, follower):
        rows = await until(lambda: follower.json("/results"))
        assert {row["gpu_id"] for row in rows} == {uuid(0), uuid(1)}
        assert (await follower.client.post("/analyze")).json()["error"]["code"] == "NOT_LEADER"
        assert await leaders(leader, follower) == [leader]
        leader.process.kill()
        await until(lambda: leaders(follower))
        before = (await follower.json("/health"))["last_success"]

        async def goes_on():
            return (await follower.json("/health"))["last_success"] > before

        await until(goes_on)
        times = [point["time"] for point in await follower.json(f"/api/v1/history?gpu_id={uuid(0)}")]
        assert times == sorted(set(times))
        assert all("pass#word" not in line and "pass%23word" not in line for line in (*leader.log, *follower.log))


async def test_who_leaves_gives_the_lease_to_the_other_at_once(postgres):
    async with two_replicas(postgres) as (leader, follower):
        holder = postgres.say("SELECT holder FROM history_lease")
        leader.process.terminate()
        assert await leader.process.wait() == 0
        assert postgres.say("SELECT holder FROM history_lease") != holder != ""  # long before it runs out
        await until(lambda: leaders(follower))


async def test_while_the_database_is_away_analyses_go_on_and_are_stored_later(postgres):
    async with (
        SpoilingServer(fleet(now=time.time())) as prometheus,
        replica(store=postgres.url, prometheus=prometheus.url) as one,
    ):
        await until(lambda: one.json("/results"))
        postgres.stop()

        async def alone():
            health = await one.json("/health")
            return health["history"] is False and health["status"] == "healthy"

        await until(alone)
        before = len(prometheus.queries)

        async def asked_on():
            return len(prometheus.queries) > before

        await until(asked_on)
        postgres.start()

        async def back():
            page = (await one.client.get("/metrics", headers={"accept-encoding": "identity"})).text
            return "vgpuscope_analyzer_unsaved_results 0\n" in page and (await one.json("/health"))["leader"]

        await until(back)


@pytest.mark.attack
async def test_while_the_database_is_frozen_analyses_go_on_and_histories_are_refused_in_time(postgres):
    async with (
        SpoilingServer(fleet(now=time.time())) as prometheus,
        replica(store=postgres.url, prometheus=prometheus.url) as one,
    ):
        await until(lambda: leaders(one))
        await until(lambda: one.json("/results"))
        with postgres.frozen():
            for _ in range(5):  # each of them would wait for the one before to be saved
                before = (await one.json("/health"))["last_success"]

                async def newer(before=before):
                    health = await one.json("/health")
                    return health["last_success"] > before and health["status"] == "healthy"

                await until(newer)
            answer = await one.client.get("/api/v1/history")
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "HISTORY_DOWN")

            async def told():
                return (await one.json("/health"))["history"] is False

            await until(told)

        async def back():
            health = await one.json("/health")
            return health["leader"] and health["history"] and not health["failing"]

        await until(back)

        async def saved():
            page = (await one.client.get("/metrics", headers={"accept-encoding": "identity"})).text
            return "vgpuscope_analyzer_unsaved_results 0\n" in page

        await until(saved)
