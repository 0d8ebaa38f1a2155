"""A command that is pointed at another of our services says which one answers, and how to ask it."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from tests.http.serving import SOON
from tests.services.analyzer.analyzing import StubSource, reading, running
from vgpuscope import cli
from vgpuscope.config import load
from vgpuscope.http import address
from vgpuscope.http.server import HttpServer
from vgpuscope.model.errors import SourceDown
from vgpuscope.services.agent.process import Agent
from vgpuscope.services.analyzer.sources.prometheus.reading import PrometheusSource
from vgpuscope.services.cluster.process import ClusterExporter
from vgpuscope.sources.fleet.owners import Owners


@asynccontextmanager
async def serving(app):
    server = HttpServer(app, sock=address.bind("127.0.0.1:0"))
    task = asyncio.create_task(server.run())
    try:
        async with asyncio.timeout(SOON):
            await server.started()
        yield server.url
    finally:
        server.stop()
        await task


@asynccontextmanager
async def started(name):
    """The URL of a service that has just started: it has nothing to show yet."""
    config = load(flags={"agent.pods": "none", "agent.podresources_socket": "none"}, environ={}, file="none").config
    if name == "analyzer":
        async with running(StubSource(reading()), **{"scheduler.interval": 3600}) as analyzer:
            yield str(analyzer.client.base_url).rstrip("/")
    elif name == "agent":
        agent = Agent(config.agent)
        async with serving(agent.app(None)) as url:
            yield url
        await agent.close()
    else:
        async with serving(ClusterExporter(config.cluster).app(None)) as url:
            yield url


@pytest.mark.parametrize(
    ("command", "wanted", "there", "ask"),
    [
        (["results"], "analyzer", "agent", "vgpuscope top"),
        (["results", "--low"], "analyzer", "cluster exporter", "vgpuscope nodes"),
        (["top", "--once"], "agent", "analyzer", "vgpuscope results"),
        (["top", "--once", "--json"], "agent", "cluster exporter", "vgpuscope nodes"),
        (["nodes"], "cluster exporter", "analyzer", "vgpuscope results"),
        (["gpus"], "cluster exporter", "agent", "vgpuscope top"),
        (["pending"], "cluster exporter", "analyzer", "vgpuscope results"),
        (["pending", "ml/train-0"], "cluster exporter", "agent", "vgpuscope top"),
    ],
)
async def test_a_command_pointed_at_the_wrong_service_says_which_one_answers(command, wanted, there, ask, capfd):
    async with started(there) as url:
        async with asyncio.timeout(SOON):
            code = await asyncio.to_thread(cli.main, [*command, url])
    out, err = capfd.readouterr()
    first, hint = err.splitlines()
    article = "an" if there[0] == "a" else "a"
    other = "an" if wanted[0] == "a" else "a"
    assert (code, out) == (1, "")
    assert first == f"vgpuscope: SOURCE_DOWN: {url} is {article} {there}, not {other} {wanted}"
    assert hint.startswith("hint: ")
    assert f"`{ask} {url}`" in hint


async def test_an_analyzer_whose_prometheus_is_an_agent_says_so():
    async with started("agent") as url, PrometheusSource(url=url) as source:
        with pytest.raises(SourceDown, match="it is an agent, not a Prometheus") as caught:
            await source.ready()
        assert "analyzer.targets" in caught.value.advice


async def test_an_analyzer_whose_cluster_exporter_is_an_agent_says_so():
    async with started("agent") as url, Owners(url) as owners:
        with pytest.raises(SourceDown, match="is an agent, not a cluster exporter"):
            await owners.read()
